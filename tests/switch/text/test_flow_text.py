"""Flows as text and as parts: settings, commands, files, errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.switch import action as ws
from wirespeed.switch.match import Match
from wirespeed.switch.rule import (
    CHECK_OVERLAP,
    NO_BYTE_COUNTS,
    NO_PACKET_COUNTS,
    RESET_COUNTS,
    SEND_FLOW_REM,
    Rule,
    RuleStats,
)
from wirespeed.switch.text.flow import FlowMod, flow_mod, flow_text, parse_flow, parse_flows, stats_text

ALL = (1 << 64) - 1


def test_all_settings_of_a_flow_are_read() -> None:
    found = parse_flow(
        "table=3, priority=5 cookie=0x12,idle_timeout=6,hard_timeout=7 importance=9,send_flow_rem,check_overlap"
        " reset_counts no_packet_counts no_byte_counts in_port=2 actions=output:1"
    )
    assert found == FlowMod(
        "add", 3, 5, Match(2, 0xFFFFFFFF), (ws.output(1),), 0x12, 0, 6, 7, 9,
        SEND_FLOW_REM | CHECK_OVERLAP | RESET_COUNTS | NO_PACKET_COUNTS | NO_BYTE_COUNTS,
    )  # fmt: skip


def test_what_is_not_said_is_as_openflow_has_it() -> None:
    assert parse_flow("actions=drop") == FlowMod("add", 0, 32768, Match(), ())
    assert parse_flow("", "delete") == FlowMod("delete", 255, 32768, Match(), ())


def test_a_flow_of_parts_is_that_of_its_text() -> None:
    text = "table=1,priority=10,cookie=5,idle_timeout=60,send_flow_rem,in_port=2,ip,nw_dst=10.0.0.0/24,actions=dec_ttl,output:1"
    parts = {"table": 1, "priority": 10, "cookie": 5, "idle_timeout": 60, "send_flow_rem": True}
    match = {"in_port": 2, "ip": True, "nw_dst": "10.0.0.0/24"}
    wanted = parse_flow(text)
    assert flow_mod("add", **parts, match=match, actions=[ws.dec_ttl(), ws.output(1)]) == wanted
    assert flow_mod("add", **parts, match="in_port=2,ip,nw_dst=10.0.0.0/24", actions="dec_ttl,output:1") == wanted
    assert flow_mod("add", **parts, match=wanted.match, actions=iter(wanted.actions)) == wanted
    assert flow_mod("add", match=match, actions=[]).actions == ()
    assert flow_mod("delete", match=match, cookie=5, cookie_mask=0xFF, table=None) == parse_flow(
        "cookie=5/0xff,in_port=2,ip,nw_dst=10.0.0.0/24", "delete"
    )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"prority": 5}, "no part of a flow 'prority'; did you mean priority"),
        ({"priority": 70000}, "priority is a number from 0 to 0xffff, got 70000"),
        ({"priority": "5"}, "priority is a number from 0 to 0xffff, got '5'"),
        ({"match": "priority=5"}, "priority is not part of a match: give it as priority="),
        ({"table": 254}, "a rule's table is 0 to 253, got 254"),
        ({"match": {"nw_scr": 5}}, "no field 'nw_scr'; did you mean nw_src"),
    ],
)
def test_parts_that_are_not_of_a_flow_are_refused(parts: dict[str, object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        flow_mod("add", actions=[], **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        ("add", "ip", "no actions: write actions="),
        ("modify", "ip", "no actions: write actions="),
        ("delete", "ip,actions=drop", "a flow to be deleted has no actions"),
        ("add", "cookie=1/2,actions=drop", "a new flow's cookie has no mask"),
        ("add", "table=254,actions=drop", "a rule's table is 0 to 253"),
        ("add", "table=256,actions=drop", "table: 256 is not a number from 0 to 0xff"),
        ("add", "priority=65536,actions=drop", "priority: 65536 is not a number from 0 to 0xffff"),
        ("add", "priority=,actions=drop", "priority: '' is not a number"),
        ("add", "prority=5,actions=drop", "no field 'prority'; did you mean priority"),
        ("add", "idle_timeout=1_0,actions=drop", "idle_timeout: '1_0' is not a number"),
        ("add", "actions=output:1 actions=2", "no action 'actions'"),
    ],
)
def test_a_text_that_is_no_flow_says_why(command: str, text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_flow(text, command)


def test_deleting_and_modifying_choose_by_cookie_port_and_group() -> None:
    found = parse_flow("cookie=0x5/-1,out_port=LOCAL,out_group=7", "delete")
    assert (found.cookie, found.cookie_mask, found.out_port, found.out_group) == (5, ALL, 0xFFFFFFFE, 7)
    assert (found.table, found.match) == (255, Match())
    assert parse_flow("table=2,cookie=0x5/0xf,actions=1", "modify").cookie_mask == 15
    assert parse_flow("out_port=vm1", "delete", {"vm1": 4}.get).out_port == 4


def test_words_may_stand_apart_in_many_ways() -> None:
    wanted = parse_flow("priority=5,ip,actions=output:1,output:2")
    for text in (
        "priority = 5 , ip actions = output:1 , output:2",
        "ip priority=5 action=output:1 output:2",
        "  priority=0x5\tip\tactions=1,2,",
        "priority=5,,ip,actions=output:1,,output:2",
    ):
        assert parse_flow(text) == wanted, text


def test_names_of_ports_are_asked_for_each_time() -> None:
    text = 'in_port=vm1,actions=output:vm2,"vm 3",resubmit(vm1,2)'
    assert flow_text(parse_flow(text, "add", {"vm1": 1, "vm2": 2, "vm 3": 3}.get)) == (
        "in_port=1 actions=output:2,output:3,resubmit(1,2)"
    )
    assert flow_text(parse_flow(text, "add", {"vm1": 4, "vm2": 5, "vm 3": 6}.get)) == (
        "in_port=4 actions=output:5,output:6,resubmit(4,2)"
    )
    with pytest.raises(GraphError, match="no port 'vm1'"):
        parse_flow(text, "add", {}.get)


FILE = """# the rules of a small office

priority=5,ip,actions=1   # a comment behind
add in_port=2 actions=drop
modify ip,actions=2
modify_strict priority=5,ip,actions=3
delete table=1
delete_strict priority=7,arp
"""


def test_a_file_has_a_flow_a_line_and_what_to_do_with_it() -> None:
    found = list(parse_flows(FILE))
    assert [flow.command for flow in found] == ["add", "add", "modify", "modify_strict", "delete", "delete_strict"]
    assert found[0] == parse_flow("priority=5,ip,actions=1")
    assert found[3] == parse_flow("priority=5,ip,actions=3", "modify_strict")
    assert found[4].table == 1


def test_an_error_in_a_file_says_where() -> None:
    with pytest.raises(GraphError, match=r"flows\.txt, line 3: no field 'nw_scr'; did you mean nw_src"):
        list(parse_flows("ip,actions=1\n\nip,nw_scr=1.2.3.4,actions=1\n", "flows.txt"))


def test_a_rule_is_printed_with_what_it_counted() -> None:
    flow = parse_flow("table=1,cookie=0x7,priority=9,send_flow_rem,idle_timeout=5,importance=2,tcp,actions=output:2")
    rule = Rule(
        flow.table, flow.priority, flow.match, flow.actions, flow.cookie, flow.idle_timeout, flow.hard_timeout,
        flow.importance, flow.flags, 1, 0.0, 0.0, 0.0,
    )  # fmt: skip
    assert stats_text(RuleStats(rule, 12, 720, 3.25, 1.5)) == (
        "cookie=0x7, duration=3.250s, table=1, n_packets=12, n_bytes=720, idle_timeout=5, send_flow_rem importance=2,"
        " idle_age=1, priority=9,tcp actions=output:2"
    )
    assert flow_text(rule) == (
        "cookie=0x7, table=1, idle_timeout=5, send_flow_rem importance=2, priority=9,tcp actions=output:2"
    )
    assert parse_flow(stats_text(RuleStats(rule, 12, 720, 3.25, 1.5))) == flow
    assert flow_text(parse_flow("actions=drop")) == "actions=drop"


@given(st.text(max_size=60) | st.text("ip,=actions:()[]>-/reg0.\"' 12", max_size=60))
def test_any_text_is_a_flow_or_an_error(text: str) -> None:
    for whole in (text, f"{text} actions={text}", f"actions={text}"):
        try:
            flow = parse_flow(whole)
        except GraphError:
            continue
        assert parse_flow(flow_text(flow)) == flow
