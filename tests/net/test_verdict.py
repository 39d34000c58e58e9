"""Verdicts on checksums: known answers, everything that can keep one from being checked, and tunnels."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import (
    GRE,
    ICMP,
    IP,
    TCP,
    UDP,
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrRouting,
    IPv6ExtHdrSegmentRouting,
    Raw,
)
from scapy.layers.inet6 import HAO
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.layers.vxlan import VXLAN

from tests.net import stacks
from tests.net.frames import Edge, captured, mutated
from tests.net.stacks import ETHER
from wirespeed.net.dissect import dissect, layers
from wirespeed.net.layer import MAX_LAYERS, Layer
from wirespeed.net.verdict import verdict, verdicts

# zeek's set of known answers: which checksum each file is about, and what it is.
KNOWN = {
    "ip4-bad-chksum": ("ipv4", "bad"),
    "ip4-icmp-bad-chksum": ("icmp", "bad"),
    "ip4-icmp-good-chksum": ("icmp", "good"),
    "ip4-tcp-bad-chksum": ("tcp", "bad"),
    "ip4-tcp-good-chksum": ("tcp", "good"),
    "ip4-udp-bad-chksum": ("udp", "bad"),
    "ip4-udp-good-chksum": ("udp", "good"),
    "ip6-hoa-tcp-bad-chksum": ("tcp", "bad"),
    "ip6-hoa-tcp-good-chksum": ("tcp", "good"),
    "ip6-tcp-bad-chksum": ("tcp", "bad"),
    "ip6-tcp-good-chksum": ("tcp", "good"),
    "ip6-udp-bad-chksum": ("udp", "bad"),
    "ip6-udp-good-chksum": ("udp", "good"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_answers_are_told_apart(captures, name: str) -> None:
    found = [dict(verdicts(frame, link)) for link, frame, _ in captured(captures / f"zeek/chksums/{name}.pcap")]
    header, word = KNOWN[name]
    assert found
    assert {verdict[header] for verdict in found} == {word}


def test_every_known_answer_there_is_was_asked(captures) -> None:
    stems = {path.stem for path in (captures / "zeek/chksums").glob("ip*chksum.pcap")}
    assert stems == set(KNOWN)


PACKETS = [
    ("tcp", IP() / TCP()),
    ("udp", IP() / UDP()),
    ("icmp", IP() / ICMP()),
    ("sctp", IP() / SCTP() / SCTPChunkData(data=b"12345678")),
    ("tcp", IPv6() / TCP()),
    ("udp", IPv6() / UDP()),
    ("icmpv6", IPv6() / ICMPv6EchoRequest()),
    ("udp", IPv6(dst="2001:db8::1") / IPv6ExtHdrRouting(addresses=["2001:db8::2", "2001:db8::3"], segleft=2) / UDP()),
    ("tcp", IPv6() / IPv6ExtHdrRouting(addresses=["2001:db8::2"], segleft=0) / TCP()),
    ("tcp", IPv6() / IPv6ExtHdrSegmentRouting(addresses=["2001:db8::9", "::8"], segleft=1, lastentry=1) / TCP()),
    ("tcp", IPv6() / IPv6ExtHdrDestOpt(options=HAO(hoa="2001:db8::77")) / TCP()),
    ("gre", IP() / GRE(chksum_present=1) / IP() / UDP()),
]  # fmt: skip


@pytest.mark.parametrize("name, packet", PACKETS, ids=lambda value: value if isinstance(value, str) else "")
@given(data=st.binary(max_size=50), flip=st.integers(0, 10**6), bit=st.integers(0, 7), padding=st.integers(0, 1400))
def test_a_flipped_bit_is_seen_and_padding_does_not_matter(name, packet, data, flip, bit, padding) -> None:
    frame = bytes(ETHER / packet / Raw(data))
    found = verdicts(frame + b"\xaa" * padding)
    at = next(i for i, (header, _) in enumerate(found) if header == name)
    assert found[at] == (name, "good")
    checked = next(header for header in layers(frame) if header.name == name)
    place = checked.offset + checked.length + flip % (len(data) + 1)
    if place < len(frame):
        broken = frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]
        assert verdicts(broken)[at] == (name, "bad")


def test_a_wrong_ipv4_header_is_seen() -> None:
    assert verdicts(bytes(ETHER / IP(chksum=1) / UDP())) == [("ipv4", "bad"), ("udp", "good")]


def test_an_absent_udp_checksum_is_none() -> None:
    assert verdicts(bytes(IP() / UDP(chksum=0)), 101)[-1] == ("udp", "absent")
    assert verdicts(bytes(IP(flags="MF") / UDP(chksum=0)), 101)[-1] == ("udp", "absent")


def test_an_absent_udp_checksum_over_ipv6_is_bad_but_in_tunnels() -> None:
    assert verdicts(bytes(IPv6() / UDP(chksum=0)), 101)[-1] == ("udp", "bad")
    tunnel = bytes(IPv6() / UDP(chksum=0, dport=4789) / VXLAN() / ETHER / IP() / TCP())
    assert verdicts(tunnel, 101) == [("udp", "absent"), ("ipv4", "good"), ("tcp", "good")]


@pytest.mark.parametrize("frame", [
    bytes(IP(flags="MF") / TCP() / Raw(b"data")),
    bytes(IP(flags="MF") / UDP() / Raw(b"data")),
    bytes(IP() / TCP() / Raw(b"data"))[:-1],
    bytes(IP() / UDP() / Raw(b"data"))[:-1],
    bytes(IP() / UDP(len=100) / Raw(b"data")),
    bytes(IP() / UDP(len=7) / Raw(b"data")),
    bytes(IPv6() / ICMPv6EchoRequest(data=b"data"))[:-1],
    bytes(IPv6() / IPv6ExtHdrRouting(type=3, addresses=["::1"], segleft=1) / TCP()),
])  # fmt: skip
def test_what_is_not_all_there_is_unverifiable(frame: bytes) -> None:
    assert verdicts(frame, 101)[-1][1] == "unverifiable"


def test_cut_options_make_the_header_unverifiable() -> None:
    header = bytes(IP(options=[]))
    assert verdicts(bytes([0x46]) + header[1:], 101) == [("ipv4", "unverifiable")]


def test_case_40_captured_options_that_are_cut_short_are_unverifiable(captures) -> None:
    path = captures / "PcapPlusPlus/Tests/Pcap++Test/PcapExamples/ip4_bad_fragment.pcap"
    assert [verdicts(frame, link) for link, frame, _ in captured(path)] == [[("ipv4", "unverifiable")]]


def test_a_cut_header_has_no_verdict() -> None:
    assert verdicts(bytes(IP() / TCP())[:39], 101) == [("ipv4", "good")]
    assert verdicts(b"") == []


@given(st.integers(0, 2**32))
def test_no_byte_outside_the_frame_is_read(seed: int) -> None:
    generator, edge = random.Random(seed), Edge()
    original = stacks.assembled(stacks.frame(generator), generator.randbytes(generator.randrange(40)))
    records = np.zeros(MAX_LAYERS, Layer.dtype)
    for _ in range(50):
        frame = mutated(original, generator)
        at, to = edge.high(frame), records.ctypes.data
        n = dissect(at, len(frame), 1, to, MAX_LAYERS)
        found = [verdict(at, len(frame), to, i) for i in range(n)]
        at = edge.low(frame)
        assert found == [verdict(at, len(frame), to, i) for i in range(n)]


def test_tunnels_are_looked_into() -> None:
    inner = ETHER / IP(chksum=9) / TCP(chksum=9)
    frame = bytes(ETHER / IP() / UDP(dport=4789) / VXLAN() / inner)
    assert verdicts(frame) == [("ipv4", "good"), ("udp", "good"), ("ipv4", "bad"), ("tcp", "bad")]
