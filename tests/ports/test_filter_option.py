"""``filter=EXPR`` of any port: which packets enter and leave, and that each of the others is accounted for."""

import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import Driver
from tests.jit.bpf_programs import programs
from tests.lab import laboratory
from wirespeed.core.element import Element
from wirespeed.core.frame import Packet
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.engine.run import run, start
from wirespeed.errors import GraphError
from wirespeed.jit import bpf
from wirespeed.net import filter as pcap_filter
from wirespeed.ports import port
from wirespeed.ports.filter import attach, record
from wirespeed.ports.filter.expression import Filter
from wirespeed.ports.filter.part import FilteredPart, put_on
from wirespeed.ports.filter.reach import MOST, reach
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.memory import MemoryPort

ETHERNET, RAW, USER0 = 1, 101, 147
TCP, UDP = 6, 17


def ipv4(protocol: int, sport: int, dport: int, payload: bytes = b"") -> bytes:
    """An IPv4 packet whose checksums nobody looks at."""
    rest = struct.pack("!HH", sport, dport) + bytes(16 if protocol == TCP else 4) + payload
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(rest), 0, 0, 64, protocol, 0, b"\n\0\0\1", b"\n\0\0\2") + rest


def ethernet(packet: bytes, type: int = 0x0800, vlan: int | None = None) -> bytes:
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return bytes.fromhex("020000000002020000000001") + tag + struct.pack("!H", type) + packet


WEB, BACK, DNS = ethernet(ipv4(TCP, 5000, 80)), ethernet(ipv4(TCP, 80, 5000)), ethernet(ipv4(UDP, 5000, 53))
TAGGED, ARP = ethernet(ipv4(TCP, 5000, 80), vlan=7), ethernet(bytes(46), 0x0806)
ALL = [WEB, DNS, TAGGED, BACK, ARP]


def memory(name: str = "out", **options: Any) -> MemoryPort:
    made = port(f"memory:{name}", **options)
    assert isinstance(made, MemoryPort)
    return made


def through(source: MemoryPort, sink: Any, frames: list[Any], **how: Any) -> Any:
    """The report of a run from ``source``, into which ``frames`` are pushed, to ``sink``."""
    assert source.push(frames) == len(frames)
    source.close_input()
    report = run(source >> sink, **how)
    assert report.balanced
    return report


def test_a_source_gives_what_its_filter_matches_in_order() -> None:
    source = memory("in,filter=tcp port 80 and not vlan")
    frames = [frame + bytes([i]) for i, frame in enumerate(ALL * 40)]
    sink = memory()
    report = through(source, sink, frames)
    wanted = [frame for frame in frames if frame[:-1] in (WEB, BACK)]
    assert [p.data for p in sink.pull()] == wanted
    told = report.stage("memory:in")
    assert told.drops == {"filtered": len(frames) - len(wanted)}
    assert (told.packets_out, told.bytes) == (len(wanted), sum(map(len, wanted)))


def test_a_sink_takes_what_its_filter_matches_in_order() -> None:
    source, sink = memory("in"), memory("out", filter="udp or arp")
    frames = [frame + bytes([i]) for i, frame in enumerate(ALL * 40)]
    report = through(source, sink, frames)
    wanted = [frame for frame in frames if frame[:-1] in (DNS, ARP)]
    assert [p.data for p in sink.pull()] == wanted
    told = report.stage("memory:out")
    assert (told.packets_in, told.packets_out) == (len(frames), len(wanted))
    assert told.drops == {"filtered": len(frames) - len(wanted)}


def test_both_ends_may_have_a_filter_and_several_workers() -> None:
    source, sink = memory("in,filter=tcp"), memory("out,filter=src port 80")
    frames = [frame + i.to_bytes(2) for i, frame in enumerate(ALL * 100)]
    report = through(source, sink, frames, workers=3)
    assert sorted(p.data for p in sink.pull()) == sorted(frame for frame in frames if frame[:-2] == BACK)
    assert report.stage("memory:in").drops == {"filtered": 300}
    assert report.stage("memory:out").drops == {"filtered": 100}


def test_a_sink_that_is_full_loses_nothing_of_what_matches() -> None:
    source, sink = memory("in"), memory("out,size=4096,filter=tcp")
    frames = [frame + i.to_bytes(2) for i, frame in enumerate(ALL * 200)]
    source.push(frames)
    source.close_input()
    with start(source >> sink) as running:
        out = [p.data for p in sink]
        running.wait()
        report = running.report()
    assert report.balanced and report.stage("memory:out").refused > 0
    assert out == [frame for frame in frames if frame[:-2] in (WEB, BACK)]


def test_a_filter_that_matches_one_packet_in_many_comes_to_it() -> None:
    source = memory("in,filter=arp")
    frames = [*([WEB] * 20_000), ARP]
    sink = memory()
    report = through(source, sink, frames)
    assert [p.data for p in sink.pull()] == [ARP]
    assert report.stage("memory:in").drops == {"filtered": 20_000}


def test_captures_generators_and_null_ports_filter_too(tmp_path: Path) -> None:
    file = tmp_path / "a,b.pcap"
    source = memory("in")
    through(source, port(f"pcap:{str(file).replace(',', ',,')},filter=port 80"), ALL)
    sink = memory()
    assert run(port(f"pcap:{str(file).replace(',', ',,')}", filter="dst port 80") >> sink).balanced
    assert [p.data for p in sink.pull()] == [WEB]
    report = run(port("generator:count=640,filter=udp") >> port("null:filter=tcp"))
    assert report.balanced and report.stage("null:").drops == {"filtered": 640}
    report = run(port("null:count=100,size=64,filter=ip") >> port("null:"))
    assert report.balanced and report.packets == 0 and report.stage("null:").dropped == 100


def test_each_packet_is_judged_by_its_own_link_type() -> None:
    source = memory("in,filter=tcp dst port 80")
    raw = [Packet(frame[14:], link=RAW) for frame in (WEB, DNS, BACK)]
    frames = [WEB, raw[0], Packet(b"who knows", link=USER0), raw[1], DNS, raw[2], raw[0], Packet(WEB, link=0xFFFF), WEB]
    sink = memory()
    report = through(source, sink, frames)
    assert [(p.link, p.data) for p in sink.pull()] == [(1, WEB), (RAW, WEB[14:]), (RAW, WEB[14:]), (1, WEB)]
    told = report.stage("memory:in")
    assert told.drops == {"filtered": 3, "filter_link": 2}
    assert len([text for name, text in told.counters.items() if name.startswith("filter on")]) == 1


def test_the_length_that_a_filter_asks_for_is_that_on_the_wire() -> None:
    source = memory("in,filter=greater 1000")
    frames = [Packet(WEB, wire=1514), Packet(DNS, wire=999), Packet(DNS + bytes(960))]
    sink = memory()
    through(source, sink, frames)
    assert [p.data for p in sink.pull()] == [frames[0].data, frames[2].data]


@pytest.mark.parametrize("role", ["source", "sink"])
def test_a_packet_in_several_segments_is_judged_as_one(role: str) -> None:
    far = [ethernet(ipv4(UDP, 1, 2, bytes(300) + bytes([k]) + bytes(200))) for k in (0, 7, 9, 7)]
    with (
        memory("chains,filter=ether[342] = 7") as chains,
        PacketPool(200, HEADROOM + 64) as pool,
        Driver(chains.open(role, 1), pool=pool) as driver,
    ):
        if role == "source":
            chains.push([*far, WEB])
            assert [p.data for p in driver.receive()] == [far[1], far[3]]
        else:
            assert driver.transmit([*far, WEB]) == 0
            assert [p.data for p in chains.pull()] == [far[1], far[3]]
        assert driver.drops() == {"filtered": 3}


@pytest.mark.parametrize(("expression", "marked"), [("tcp prot 80", "prot"), ("host", ""), ("ip and (udp", "")])
def test_a_bad_expression_is_refused_where_the_port_is_made(expression: str, marked: str) -> None:
    with pytest.raises(GraphError) as refused:
        port("pcap:no-such-file.pcap", filter=expression)
    first, shown, under = str(refused.value).splitlines()
    assert first and shown.strip() == expression
    assert set(under.strip()) == {"^"}
    at = under.index("^") - (len(shown) - len(shown.lstrip()))
    if marked:
        assert expression[at : at + under.count("^")] == marked


def test_a_fault_that_every_link_type_has_is_found_once_and_names_are_resolved_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, compiled = [], []
    resolve, make = socket.getaddrinfo, pcap_filter.compile

    def getaddrinfo(name: str, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        return resolve("10.0.0.1" if name == "db" else "nosuch.invalid", *rest, **more)

    def compile(*words: Any, **options: Any) -> Any:
        compiled.append(options.get("link", ETHERNET))
        return make(*words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(pcap_filter, "compile", compile)
    with pytest.raises(GraphError, match="unknown host 'web'"):
        Filter("host web or tcp")
    assert asked == ["web"] and compiled == [ETHERNET]
    found = Filter("host db or host db")
    found.program(RAW)
    assert asked == ["web", "db"] and compiled == [ETHERNET, ETHERNET, RAW]


def test_an_expression_that_takes_seconds_is_told_and_one_that_is_too_long_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Filter("tcp") and not caplog.records
    assert Filter("tcp" + " " * 30_000)
    assert "30,003 characters: it will take seconds to compile" in caplog.text
    hosts = " or ".join(f"host 10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(5600))
    with pytest.raises(GraphError, match=r"may have 65,536 steps, got 67,\d{3}; name networks instead"):
        Filter(hosts)


def test_odd_values_and_second_filters_are_refused() -> None:
    with pytest.raises(GraphError, match="wanted an expression"):
        port("null:", filter=80)
    with pytest.raises(GraphError, match="given twice"):
        port("null:filter=tcp", filter="udp")
    with pytest.raises(GraphError, match="given twice"):
        port("null:filter=tcp,filter=udp")
    element = port("null:filter=tcp")
    with pytest.raises(GraphError, match="has a filter already, tcp"):
        put_on(element, "udp")
    with pytest.raises(GraphError, match=r"options are .*filter"):
        port("null:", filtre="tcp")


class Attaching(Element):
    """A source whose kernel takes filters, or does not."""

    name = "attaching"

    def __init__(self, takes: bool, link: int | None = None) -> None:
        self.takes, self.given, self.closed, self.link = takes, [], 0, link

    def open(self, role: str, workers: int) -> Any:
        return AttachingPart(self)


class AttachingPart:
    def __init__(self, element: Attaching) -> None:
        self.element = element
        if element.link is not None:
            self.link = element.link

    def attach(self, filter: Filter) -> bool:
        self.element.given.append(filter.expression)
        return self.element.takes

    def close(self) -> None:
        self.element.closed += 1


def test_a_port_whose_kernel_filters_has_no_stage_of_ours_in_front() -> None:
    for takes in (True, False):
        element = Attaching(takes)
        put_on(element, "tcp")
        assert isinstance(element.open("source", 1), AttachingPart if takes else FilteredPart)
        assert element.given == ["tcp"]
        assert isinstance(element.open("sink", 1), FilteredPart)
        assert element.given == ["tcp"]


def test_a_filter_that_the_ports_link_type_cannot_have_closes_it_again() -> None:
    element = Attaching(False, link=USER0)
    put_on(element, "tcp")
    with pytest.raises(GraphError):
        element.open("source", 1)
    assert element.closed == 1


def test_what_only_the_kernel_can_tell_is_for_ports_whose_kernel_filters() -> None:
    element = Attaching(True)
    put_on(element, "ifindex 3 and vlan 7")
    assert isinstance(element.open("source", 1), AttachingPart)
    with pytest.raises(GraphError, match="'ifindex' is told by the kernel only"):
        element.open("sink", 1)
    with pytest.raises(GraphError, match="'ifindex' is told by the kernel only"):
        run(port("null:count=1,filter=ifindex 3 and vlan 7") >> port("null:"))


def test_a_filter_attached_to_a_socket_keeps_what_does_not_match_from_it() -> None:
    large = WEB + bytes(1400)
    with laboratory() as lab:
        lab.veth("a/x0", "a/x1")
        with (
            inside(lab.space("a")),
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as taker,
        ):
            assert attach.to_socket(taker.fileno(), Filter("tcp port 80 and not vlan"), ETHERNET)
            taker.bind(("x1", 3))  # ETH_P_ALL
            taker.settimeout(10)
            sender.bind(("x0", 3))
            for frame in [*ALL, large]:
                sender.send(frame)
            assert [taker.recv(2000) for _ in range(3)] == [WEB, BACK, large]
            attach.off_socket(taker.fileno())
            sender.send(DNS)
            assert taker.recv(2000) == DNS
            attach.off_socket(taker.fileno())  # there is none any more


def test_what_the_kernel_cannot_attach_is_left_to_our_stage() -> None:
    with socket.socket() as other:
        assert not attach.to_socket(other.fileno(), Filter("ip6 protochain 6"), ETHERNET)
        assert not attach.to_tap(other.fileno(), Filter("tcp"), ETHERNET)


def test_a_program_for_the_kernel_keeps_frames_whole() -> None:
    steps = Filter("tcp").kernel_program(ETHERNET)
    assert {k for code, _, _, k in steps if code == 0x06} == {0, 0xFFFFFFFF}


@given(programs(), st.binary(max_size=160), st.integers(0, 0xFFFF))
def test_no_program_looks_beyond_its_reach(program: list[tuple[int, int, int, int]], frame: bytes, wire: int) -> None:
    code = bpf.compile(program)
    assert code(frame[: reach(program)], wire) == code(frame, wire)


def test_the_reach_of_usual_filters_is_short() -> None:
    assert reach(Filter("ip").program(ETHERNET).instructions) == 14
    assert reach(Filter("tcp port 80").program(ETHERNET).instructions) == 14 + 60 + 4
    assert reach(Filter("tcp[((tcp[12:1] & 0xf0) >> 2):4] = 1").program(ETHERNET).instructions) == 14 + 60 + 60 + 4
    assert reach(Filter("ether[60000] = 1").program(ETHERNET).instructions) == 60001
    assert reach(Filter("ip6 protochain 6").program(ETHERNET).instructions) == MOST


def test_a_record_fills_two_cache_lines() -> None:
    assert record.Record.size == 128
