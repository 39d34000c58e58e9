"""``ws.filter``: what matches is output 0, the rest output 1 or a drop with its reason."""

from typing import Any

import pytest
from scapy.layers.l2 import Ether

from tests.ports.test_filter_option import ALL, ARP, BACK, DNS, RAW, TAGGED, USER0, WEB, memory, through
from wirespeed.core.frame import Packet
from wirespeed.engine.filter import FilterStage, filter
from wirespeed.engine.run import run
from wirespeed.errors import GraphError
from wirespeed.ports import port

MANY = [frame + i.to_bytes(2) for i, frame in enumerate(ALL * 100)]


def of(*kinds: bytes) -> list[bytes]:
    return [frame for frame in MANY if frame[:-2] in kinds]


def test_what_does_not_match_is_dropped_where_nothing_stands_behind_output_1() -> None:
    source, sink = memory("in"), memory()
    report = through(source, filter("tcp port 80 and not vlan") >> sink, MANY)
    assert [p.data for p in sink.pull()] == of(WEB, BACK)
    told = report.stage("filter:tcp port 80 and not vlan")
    assert told.drops == {"filtered": 300} and told.outputs == (200,)


def test_the_rest_goes_out_at_output_1_in_order() -> None:
    source, matching, rest = memory("in"), memory("yes"), memory("no")
    report = through(source, filter("arp or vlan 7") >> (matching, rest), MANY)
    assert [p.data for p in matching.pull()] == of(TAGGED, ARP)
    assert [p.data for p in rest.pull()] == of(WEB, DNS, BACK)
    assert report.stage("filter:arp or vlan 7").outputs == (200, 300)
    assert report.dropped == 0


def test_filters_may_stand_in_a_row_and_run_on_several_workers() -> None:
    source, tcp, udp, rest = memory("in"), memory("tcp"), memory("udp"), memory("rest")
    report = through(source, filter("tcp") >> (tcp, filter("udp") >> (udp, rest)), MANY, workers=2)
    assert report.dropped == 0
    assert sorted(p.data for p in udp.pull()) == sorted(of(DNS))
    assert sorted(p.data for p in rest.pull()) == sorted(of(TAGGED, ARP))
    assert sorted(p.data for p in tcp.pull()) == sorted(of(WEB, BACK))


@pytest.mark.parametrize("apart", [False, True])
def test_packets_of_a_link_type_that_it_cannot_be_applied_to_are_of_the_rest(apart: bool) -> None:
    frames = [WEB, Packet(b"who knows", link=USER0), Packet(WEB[14:], link=RAW), Packet(b"", link=0xFFFF), DNS]
    source, matching, rest = memory("in"), memory("yes"), memory("no")
    stage = filter("tcp")
    report = through(source, stage >> ((matching, rest) if apart else matching), frames)
    assert [p.link for p in matching.pull()] == [1, RAW]
    assert [p.link for p in rest.pull()] == ([USER0, 0xFFFF, 1] if apart else [])
    assert report.stage(stage.name).drops == ({} if apart else {"filtered": 1, "filter_link": 2})


def test_an_element_can_be_run_again() -> None:
    stage = filter("arp")
    for _ in range(2):
        sink = memory()
        through(memory("in"), stage >> sink, ALL)
        assert [p.data for p in sink.pull()] == [ARP]


def test_a_bad_expression_is_refused_where_the_stage_is_made() -> None:
    with pytest.raises(GraphError, match=r"tcp portt 80\n"):
        filter("tcp portt 80")


def test_what_only_the_kernel_can_tell_is_refused() -> None:
    with pytest.raises(GraphError, match="'ifindex' is told by the kernel only"):
        filter("ifindex 3 and vlan 7")


def test_it_can_be_asked_about_a_packet_in_memory() -> None:
    web = filter("tcp dst port 80 and len < 1000")
    assert [frame for frame in ALL if web(frame)] == [WEB]
    assert web(bytearray(WEB)) and web(Ether(WEB))
    assert web(Packet(WEB[14:], link=RAW)) and not web(Packet(DNS[14:], link=RAW))
    assert not web(Packet(WEB, wire=1514))
    assert not web(b"")
    with pytest.raises(GraphError, match=r"USER0|147"):
        filter("ip")(Packet(WEB, link=USER0))


@pytest.mark.parametrize("given", [None, 80, b"tcp"])
def test_an_expression_is_a_text(given: Any) -> None:
    with pytest.raises(GraphError, match="wanted an expression such as 'tcp port 80'"):
        filter(given)


def test_a_third_output_is_refused() -> None:
    with pytest.raises(GraphError, match="has 3 outputs, wanted one or two"):
        run(port("null:count=1") >> filter("tcp") >> (port("null:"), port("null:"), port("null:")))


def test_it_says_what_it_is() -> None:
    stage = filter("tcp port 80")
    assert isinstance(stage, FilterStage) and repr(stage) == "<FilterStage filter:tcp port 80>"
    assert str(stage.filter) == "tcp port 80"
