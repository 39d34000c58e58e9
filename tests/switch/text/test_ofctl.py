"""Flows as ``ovs-ofctl`` reads and prints them: a committed sample of its answers, the program itself, a real switch."""

import re

import pytest

from tests.ovs import OpenVSwitch, needs_ovs
from tests.switch.text.texts import ANSWERS, available, sample
from wirespeed.switch.text.flow import FlowMod, flow_text, parse_flow

needs_ofctl = pytest.mark.skipif(not available(), reason="ovs-ofctl is not installed")
COMMITTED = [line.split("\t") for line in ANSWERS.read_text().splitlines()]


def as_dumped(answer: str) -> str:
    """What ``parse-flows`` prints, as ``dump-flows`` would."""
    return re.sub(r"^table:(\d+) ", r"table=\1, ", answer)


def check(pairs: list[tuple[str, str]]) -> None:
    for text, answer in pairs:
        flow = parse_flow(text)
        assert flow_text(flow) == as_dumped(answer), text
        assert parse_flow(flow_text(flow)) == flow, text


def test_flows_are_printed_as_the_committed_answers_of_ofctl_have_them() -> None:
    check([(text, answer) for text, answer in COMMITTED])


@needs_ofctl
def test_flows_are_printed_as_ofctl_prints_them() -> None:
    check(sample(seed=23, count=400))


SETTINGS = (
    "table=3,cookie=0x12,priority=5,idle_timeout=6,hard_timeout=7,importance=9,send_flow_rem,check_overlap,ip,actions=1",
    "idle_timeout=6,actions=drop",
    "priority=0,send_flow_rem,actions=output:5",
    "priority=1,table=1,cookie=1,send_flow_rem,no_packet_counts,no_byte_counts,reset_counts,ip,actions=output:2",
    "priority=3,importance=3,actions=3",
    "priority=4,in_port=LOCAL,actions=controller(id=3)",
    "priority=8,dl_type=0x88cc,actions=3,LOCAL",
)


@needs_ovs
def test_flows_with_all_settings_are_printed_as_a_switch_dumps_them() -> None:
    with OpenVSwitch(ports=1) as switch:
        switch.flows("\n".join(SETTINGS))
        dumped = switch.dump_flows("--no-stats")
    ours = [parse_flow(text) for text in SETTINGS]
    assert sorted(map(flow_text, ours)) == sorted(dumped)
    assert {parse_flow(line) for line in dumped} == set(ours)


def test_what_a_dump_has_of_statistics_is_read_over() -> None:
    line = "cookie=0x1, duration=0.036s, table=1, n_packets=3, n_bytes=180, idle_age=0, priority=1,ip actions=output:2"
    assert parse_flow(line) == FlowMod(
        table=1, priority=1, cookie=1, match=parse_flow("ip,actions=2").match, actions=parse_flow("actions=2").actions
    )
