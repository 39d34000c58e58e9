"""What graphs can be built of, and what is said about those that cannot."""

import pytest

from tests.elements import TestElement, TestPort, drop_odd, record_packets, sink, source
from wirespeed.engine.graph import build
from wirespeed.errors import GraphError


def stage(name):
    return TestElement(name, drop_odd)


def test_a_chain_is_put_in_the_order_of_its_arrows():
    a, f, g, b = source(1, "a"), stage("f"), stage("g"), sink(name="b")
    graph = build([a >> f >> g >> b])
    assert [(n.name, n.role) for n in graph.nodes] == [("a", "source"), ("f", "stage"), ("g", "stage"), ("b", "sink")]


def test_a_tuple_lists_the_outputs_in_order():
    a, f, b, c = source(1, "a"), stage("f"), sink(name="b"), sink(name="c")
    graph = build([a >> f >> (b, c)])
    f_node = next(n for n in graph.nodes if n.name == "f")
    assert {k: t.name for k, t in f_node.targets.items()} == {0: "b", 1: "c"}


def test_arrows_from_several_chains_meet_at_one_node():
    a, b, f, out = source(1, "a"), source(1, "b"), stage("f"), sink(name="out")
    graph = build([a >> f >> out, b >> f])
    assert len(graph.nodes) == 4
    assert graph.groups == 1


def test_chains_without_an_element_in_common_are_groups_of_their_own():
    graph = build([source(1, "a") >> sink(name="b"), source(1, "c") >> sink(name="d")])
    assert graph.groups == 2
    assert len({n.group for n in graph.nodes if n.name in "ab"}) == 1


def test_a_port_at_both_ends_is_a_source_and_a_sink():
    tap = TestPort("tap", record_packets)
    graph = build([tap >> stage("f") >> tap])
    assert [(n.name, n.role) for n in graph.nodes if n.name == "tap"] == [("tap", "source"), ("tap", "sink")]


def test_nested_outputs_go_on_behind_each():
    a, f, g = source(1, "a"), stage("f"), stage("g")
    graph = build([a >> f >> (sink(name="b"), g >> (sink(name="c"), sink(name="d")))])
    assert {n.name for n in graph.nodes} == {"a", "f", "g", "b", "c", "d"}


def test_a_tap_stands_on_every_arrow_that_leaves_its_stage():
    a, f, b, c = source(1, "a"), stage("f"), sink(name="b"), sink(name="c")
    tap = stage("tap")
    graph = build([a >> f >> (b, c)], {"f": tap})
    f_node = next(n for n in graph.nodes if n.name == "f")
    assert [t.name for t in f_node.targets.values()] == ["tap", "tap"]
    assert [t.targets[0].name for t in f_node.targets.values()] == ["b", "c"]


def test_a_tap_at_a_sink_stands_before_it():
    a, b, tap = source(1, "a"), sink(name="b"), stage("tap")
    graph = build([a >> b], {"b": tap})
    assert [n.name for n in graph.nodes] == ["a", "tap", "b"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [], "got no graph"),
        (lambda: [source(1, "a")], "a stands alone"),
        (lambda: [source(1, "a") >> stage("f")], "nothing stands behind f"),
        (lambda: [stage("f") >> sink(name="b")], "no packets can reach f"),
        (lambda: [source(1, "a") >> (sink(name="b"), sink(name="c"))], "a has 2 outputs; only a function chooses"),
        (lambda: ["x"], "got 'x', wanted a chain"),
    ],
)
def test_a_graph_that_cannot_work_is_refused_with_a_reason(make, message):
    with pytest.raises(GraphError, match=message):
        build(make())


def test_two_arrows_from_one_output_are_refused():
    a, f = source(1, "a"), stage("f")
    with pytest.raises(GraphError, match="output 0 of f leads to b and to c"):
        build([a >> f >> sink(name="b"), a >> f >> sink(name="c")])


def test_an_element_behind_itself_is_refused_with_advice():
    a, f = source(1, "a"), stage("f")
    with pytest.raises(GraphError, match=r"f stands behind itself.*f\.bind\(\)"):
        build([a >> f >> f >> sink(name="b")])


def test_a_cycle_is_refused_with_its_names():
    a, f, g = source(1, "a"), stage("f"), stage("g")
    with pytest.raises(GraphError, match="cycle"):
        build([a >> f >> g, g >> f])


def test_going_on_behind_several_outputs_is_refused():
    with pytest.raises(GraphError, match="ended in several outputs"):
        source(1, "a") >> stage("f") >> (sink(name="b"), sink(name="c")) >> sink(name="d")


def test_an_empty_tuple_is_refused():
    with pytest.raises(GraphError, match="empty tuple"):
        source(1, "a") >> ()


def test_a_plain_function_is_told_to_be_decorated():
    with pytest.raises(GraphError, match=r"decorate it with @wirespeed\.function"):
        source(1, "a") >> (lambda pkt: 0)


def test_a_tap_on_a_stage_that_is_not_there_lists_the_stages():
    with pytest.raises(GraphError, match="no stage 'x' to tap; the stages are a, b"):
        build([source(1, "a") >> sink(name="b")], {"x": stage("tap")})
