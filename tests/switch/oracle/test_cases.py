"""Cases as data: they are kept whole, made again from a seed, and made smaller without losing what they show."""

import random

from tests.switch.oracle import compare, generate, recorded
from tests.switch.oracle.case import Case, Flows, Mirror, Outputs, Port, PortState, Refused, Send, Setup, Warp
from tests.switch.oracle.world import World


class Toy:
    """A switch of few words, for the tools that compare switches: each rule's actions are ports, ``x`` is refused."""

    def __init__(self, *, wrong: str = "") -> None:
        self.wrong = wrong  # a rule with this word in it is not followed

    def run(self, case: Case) -> list[Outputs]:
        if any("x" in flow for flow in case.flows):
            raise Refused("x")
        rules = [flow.partition(",actions=")[2] for flow in case.flows if not (self.wrong and self.wrong in flow)]
        return [
            [(int(port), step.frame) for rule in rules for port in compare.split(rule) if port.isdigit()]
            for step in case.sent
        ]


def test_a_case_is_read_back_from_json_as_it_was():
    case = Case(
        flows=("priority=1,actions=output:2",),
        steps=(Send(1, b"\1\2"), Warp(500), PortState(3, False), Flows("actions=drop"), Send(2, b"")),
        groups=("group_id=1,type=all,bucket=actions=output:1",),
        meters=("meter=1,pktps,bands=type=drop,rate=1",),
        setup=Setup(
            ports=(Port(1, tag=3), Port(2, trunks=(1, 2), up=False)),
            mirrors=(Mirror("m", sources=(1,), output_port=2),),
            mac_aging=30,
        ),
        name="all of it",
    )
    assert Case.from_json(case.to_json()) == case
    assert all(Case.from_json(one.to_json()) == one for one in recorded.WRITTEN.values())


def test_a_seed_gives_the_same_case_again():
    for seed in range(20):
        assert generate.generate(random.Random(seed)) == generate.generate(random.Random(seed))


def test_no_two_rules_of_one_priority_can_be_hit_by_one_packet():
    for seed in range(40):
        case = generate.generate(random.Random(seed), rules=40, packets=0)
        heads = [(flow.partition(",actions=")[0], index) for index, flow in enumerate(case.flows)]
        same = {}
        for head, index in heads:
            words = [word for word in compare.split(head) if not word.startswith("cookie=")]
            same.setdefault(",".join(words).removeprefix("table=0,"), []).append(index)
        assert all(len(indices) == 1 for indices in same.values()), same


def test_a_world_has_values_of_every_width_it_speaks_of():
    world = World(random.Random(3))
    assert all(value < 1 << 128 for values in world.values.values() for value in values)
    assert 1 <= len(world.in_ports) <= 3


def test_a_difference_is_made_small_without_being_lost():
    flows = tuple(f"table=0,priority={n},tcp,nw_ttl=3,actions={n},7" for n in range(8)) + (
        "priority=50,ip,bad,tp_dst=5,actions=1,2,3,4",
    )
    case = Case(flows=flows, steps=tuple(Send(1, bytes([n] * 14)) for n in range(9)))
    found = compare.difference(Toy(), Toy(wrong="bad"), case)
    assert found
    small = compare.shrunk(Toy(), Toy(wrong="bad"), found)
    assert len(small.case.flows) == 1 and len(small.case.steps) == 1
    head, _, actions = small.case.flows[0].partition(",actions=")
    assert compare.split(head) == ["priority=50", "bad"] and actions in ("1", "2", "3", "4")
    assert small.wanted != small.got and "wanted:" in str(small)


def test_what_only_one_of_two_switches_refuses_is_a_difference():
    class Strict(Toy):
        def run(self, case: Case) -> list[Outputs]:
            raise Refused("everything")

    case = Case(flows=("priority=1,actions=2",), steps=(Send(1, b"\0" * 14),))
    assert compare.difference(Toy(), Strict(), case)
    assert compare.difference(Strict(), Toy(), case)
    assert compare.difference(Strict(), Strict(), case) is None
    assert "refused: everything" in str(compare.difference(Toy(), Strict(), case))


def test_lines_that_are_refused_are_taken_out_of_a_case():
    case = Case(flows=("priority=1,actions=2", "x,actions=3", "priority=2,actions=4"), steps=())
    kept, refused = compare.accepted(Toy(), case)
    assert kept.flows == ("priority=1,actions=2", "priority=2,actions=4") and refused == ["x,actions=3"]


def test_commas_in_parentheses_do_not_divide():
    assert compare.split("a,write_actions(b,c(d,e)),f") == ["a", "write_actions(b,c(d,e))", "f"]
    assert list(compare.simplifications("ip,actions=a,write_actions(b,c)")) == [
        "ip,actions=write_actions(b,c)",
        "ip,actions=a,write_actions(c)",
        "ip,actions=a,write_actions(b)",
        "ip,actions=a",
        ",actions=a,write_actions(b,c)",
    ]


def test_the_recorded_answers_are_there_for_every_case_and_not_all_empty():
    written, drawn = recorded.written_cases(), recorded.random_cases()
    assert {case.name for case, _ in written} == set(recorded.WRITTEN)
    assert len(drawn) == 300
    for case, answers in [*written, *drawn]:
        assert len(answers) == len(case.sent)
    assert sum(bool(outputs) for _, answers in drawn for outputs in answers) > 600
    assert len(recorded.refused()) > 100 and len(recorded.printed()) > 200
