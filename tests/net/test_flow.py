"""Five-tuples: against scapy's idea of a packet, with fragments and cut headers told apart."""

import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import ARP, IP, TCP, UDP, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, Raw

from tests.net import stacks
from tests.net.frames import Edge, captured, mutated
from tests.net.stacks import ETHER
from wirespeed.net.flow import FRAGMENT, PORTS, Flow, five_tuple

PORTED = ("tcp", "udp", "sctp")


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


def words(edge: Edge, frame: bytes, link: int = 1) -> tuple[str, str, int, int, int, int, int]:
    """Source, destination, protocol, ports, version and flags of a frame's five-tuple."""
    *parts, flags = five_tuple(edge.high(frame), len(frame), link)
    record = Flow(b"".join(int(part).to_bytes(8, "little") for part in parts))
    text = ipaddress.IPv4Address if record.version == 4 else ipaddress.IPv6Address
    source, destination = (high << 64 | low for high, low in ((record.src_hi, record.src_lo),
                                                              (record.dst_hi, record.dst_lo)))  # fmt: skip
    assert record.spare == 0
    return (str(text(source)), str(text(destination)), record.proto, record.sport, record.dport, record.version, flags)


@given(st.integers(0, 2**32))
def test_the_five_tuple_is_that_of_the_outer_headers(edge: Edge, seed: int) -> None:
    stack = stacks.frame(random.Random(seed))
    names = [name for name, _ in stack]
    found = words(edge, stacks.assembled(stack))
    if names[-1] == "arp" and not {"ipv4", "ipv6"} & set(names):
        assert found == ("::", "::", 0, 0, 0, 0, 0)
        return
    at = next(i for i, name in enumerate(names) if name in ("ipv4", "ipv6"))
    ip = stack[at][1]
    assert found[:2] == (ip.src, ip.dst)
    assert found[5] == ip.version
    inner = next(i for i in range(at + 1, len(names)) if not names[i].endswith("opts") and names[i] not in
                 ("routing", "fragment"))  # fmt: skip
    if names[inner] in PORTED:
        assert found[3:5] == (stack[inner][1].sport, stack[inner][1].dport)
        assert found[6] == PORTS
    else:
        assert found[3:5] + found[6:] == (0, 0, 0)
    protocols = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58, "gre": 47, "ipv4": 4, "ipv6": 41}
    assert found[2] == protocols[names[inner]]


@given(st.integers(0, 2**32))
def test_no_byte_outside_the_frame_is_read(edge: Edge, seed: int) -> None:
    generator = random.Random(seed)
    original = stacks.assembled(stacks.frame(generator))
    for _ in range(50):
        frame = mutated(original, generator)
        found = words(edge, frame, generator.choice([1, 1, 101, 113]))
        assert found[6] & PORTS or found[3:5] == (0, 0)


def test_fragments_are_told_apart(edge: Edge) -> None:
    ends = {"src": "10.0.0.1", "dst": "10.0.0.2"}
    first = bytes(ETHER / IP(flags="MF", **ends) / UDP(sport=7, dport=9, len=3000) / Raw(bytes(64)))
    later = bytes(ETHER / IP(frag=9, proto=17, **ends) / Raw(bytes(64)))
    assert words(edge, first) == ("10.0.0.1", "10.0.0.2", 17, 7, 9, 4, PORTS | FRAGMENT)
    assert words(edge, later) == ("10.0.0.1", "10.0.0.2", 17, 0, 0, 4, FRAGMENT)


def test_an_atomic_fragment_is_none(edge: Edge) -> None:
    frame = bytes(ETHER / IPv6(src="::1", dst="::2") / IPv6ExtHdrFragment() / TCP(sport=7, dport=9))
    assert words(edge, frame) == ("::1", "::2", 6, 7, 9, 6, PORTS)


def test_the_protocol_of_a_later_ipv6_fragment_is_the_first_header_of_its_datagram(edge: Edge) -> None:
    frame = bytes(
        ETHER / IPv6(src="::1", dst="::2") / IPv6ExtHdrFragment(offset=5, nh=60) / Raw(bytes(IPv6ExtHdrDestOpt()))
    )
    assert words(edge, frame) == ("::1", "::2", 60, 0, 0, 6, FRAGMENT)


def test_case_33_a_cut_transport_header_has_no_ports(edge: Edge) -> None:
    frame = bytes(ETHER / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=7, dport=9))
    for length in range(34, len(frame)):
        assert words(edge, frame[:length]) == ("10.0.0.1", "10.0.0.2", 6, 0, 0, 4, 0)
    assert words(edge, frame) == ("10.0.0.1", "10.0.0.2", 6, 7, 9, 4, PORTS)


def test_case_33_captured_headers_that_are_cut_have_no_ports(edge: Edge, captures) -> None:
    (link, frame, _), *_ = captured(captures / "tcpdump/tcp_header_heapoverflow.pcap")
    found = words(edge, frame, link)
    assert found[2] == 6
    assert found[3:5] + found[6:] == (0, 0, 0)


def test_a_frame_without_ip_has_no_flow(edge: Edge) -> None:
    for frame in (bytes(ETHER / ARP()), bytes(60), b"", bytes(ETHER / IP())[:33]):
        assert words(edge, frame) == ("::", "::", 0, 0, 0, 0, 0)
