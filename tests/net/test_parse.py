"""The parse on the hot path: it finds what the full parse finds, whatever is wanted, and reads nothing outside."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import IP, TCP, UDP, Dot1Q, IPv6, Raw

from tests.net import stacks
from tests.net.frames import Edge, captured, mutated
from tests.net.stacks import ETHER
from wirespeed.jit.kernel import assembly, kernel
from wirespeed.net.dissect import Header, layers
from wirespeed.net.layer import LAYER_BAD, LAYER_CUT, LAYER_FIRST_FRAGMENT, LAYER_LATER_FRAGMENT
from wirespeed.net.parse import (
    ARP,
    BAD,
    BITS,
    CUT,
    ETH,
    EVERYTHING,
    FIRST_FRAGMENT,
    FLAGS,
    IPV4,
    IPV6,
    LATER_FRAGMENT,
    PAYLOAD,
    POSITION,
    SHIFT,
    VLAN,
    VLAN2,
    find,
    locate,
)  # fmt: skip
from wirespeed.net.parse import (
    TCP as TCP_BIT,
)
from wirespeed.net.parse import (
    UDP as UDP_BIT,
)

SEEDS = st.integers(0, 2**32)
NETWORK = ("arp", "ipv4", "ipv6")
LINKS = (0, 1, 1, 1, 1, 9, 12, 14, 101, 108, 113, 228, 229, 276, 147)
SMALL = ("zeek", "tcpdump", "libpcap", "PcapPlusPlus", "community-id", "gopacket", "extra")


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


def outer(found: list[Header]) -> list[Header]:
    """The headers before the first tunnel's inner frame."""
    for number, header in enumerate(found):
        inner = header.name in ("eth", "vlan", "llc", "snap", "ppp", "pppoe", "mpls", *NETWORK)
        if inner and any(before.name in NETWORK and before.whole for before in found[:number]):
            return found[:number]
    return found


def expected(frame: bytes, link: int) -> tuple[int, dict[str, int], int, int]:
    """What :func:`locate` should say by the full parse: bits and flags, offset of each header, payload, end."""
    found = outer(layers(frame, link))
    bits, offsets, payload, end = 0, {}, 0, len(frame)
    flags = {LAYER_CUT: CUT, LAYER_BAD: BAD, LAYER_FIRST_FRAGMENT: FIRST_FRAGMENT, LAYER_LATER_FRAGMENT: LATER_FRAGMENT}
    for header in found:
        bits |= sum(bit for flag, bit in flags.items() if header.flags & flag)
        if not header.whole:
            continue
        name = "vlan2" if header.name == "vlan" and "vlan" in offsets else header.name
        if name in BITS and name not in offsets:
            bits |= BITS[name]
            offsets[name] = header.offset
        payload = min(header.offset + header.length, header.end)
        if header.name not in ("tcp", "udp", "icmp", "icmpv6", "sctp", "gre", "vxlan", "geneve"):
            end = header.end
    return bits, offsets, payload, end


def check(frame: bytes, link: int, at: int, want: int = int(EVERYTHING)) -> None:
    result = locate(at, len(frame), link, want)
    bits, offsets, payload, end = expected(frame, link)
    assert result[0] == bits & want, frame.hex()
    for name, offset in offsets.items():
        if want & BITS[name] and name != "eth":
            assert result[POSITION[name]] + SHIFT.get(name, 0) == offset, (name, frame.hex())
    assert result[7:] == ((payload, end) if want & PAYLOAD else (0, 0)), frame.hex()


@given(SEEDS)
def test_locate_finds_what_dissect_finds(edge: Edge, seed: int) -> None:
    generator = random.Random(seed)
    frame = stacks.assembled(stacks.frame(generator))
    check(frame, 1, edge.high(frame))


@given(SEEDS)
def test_locate_finds_what_dissect_finds_in_mutated_frames(edge: Edge, seed: int) -> None:
    generator = random.Random(seed)
    original = stacks.assembled(stacks.frame(generator))
    for _ in range(50):
        frame = mutated(original, generator)
        link = generator.choice(LINKS)
        check(frame, link, edge.high(frame))
        check(frame, link, edge.low(frame))


@given(SEEDS)
def test_what_is_not_wanted_changes_nothing_else(edge: Edge, seed: int) -> None:
    generator = random.Random(seed)
    original = stacks.assembled(stacks.frame(generator))
    for _ in range(20):
        frame = mutated(original, generator)
        want = generator.getrandbits(21) & generator.getrandbits(21)
        check(frame, 1, edge.high(frame), want)
        check(frame, 1, edge.high(frame), want & 0xFFFF)


@given(SEEDS, st.sampled_from([0x0800, 0x86DD, 0x8100]))
def test_locate_finds_what_dissect_finds_near_the_common_case(edge: Edge, seed: int, number: int) -> None:
    """Every byte that the inline path looks at, one at a time, with values that matter."""
    generator = random.Random(seed)
    inside = generator.choice([UDP(sport=7, dport=generator.choice([9, 4789, 8472, 6081])), TCP(), stacks.ICMP()])
    packet = (IPv6() if number == 0x86DD else IP()) / inside / Raw(bytes(generator.randrange(30)))
    original = bytes(ETHER / Dot1Q() / packet if number == 0x8100 else ETHER / packet)
    for place in range(12, min(len(original), 60)):
        for value in (0, 1, 4, 5, 6, 7, 8, 17, 20, 28, 0x20, 0x3F, 0x40, 0x45, 0x46, 0x60, 0x81, 0xFF):
            frame = original[:place] + bytes([value]) + original[place + 1 :]
            check(frame, 1, edge.high(frame))


def test_locate_finds_what_dissect_finds_at_every_length(edge: Edge) -> None:
    tagged = ETHER / Dot1Q() / Dot1Q() / IPv6() / UDP() / Raw(b"data")
    for packet in (ETHER / IP() / UDP() / Raw(b"data"), ETHER / IP() / TCP() / Raw(b"data"), tagged,
                   ETHER / IPv6() / TCP() / Raw(b"data")):  # fmt: skip
        data = bytes(packet)
        for length in range(len(data) + 1):
            check(data[:length], 1, edge.high(data[:length]))


def test_locate_finds_what_dissect_finds_in_the_captures(edge: Edge, captures) -> None:
    files = [path for folder in SMALL for path in (captures / folder).rglob("*cap") if path.stat().st_size < 1 << 20]
    assert len(files) > 50
    seen = 0
    for path in sorted(files):
        for link, frame, _ in captured(path):
            if len(frame) < 1 << 17:
                check(frame, link, edge.high(frame))
                seen += 1
    assert seen > 2000


def test_the_protocol_is_the_one_behind_all_extension_headers(edge: Edge) -> None:
    for packet, protocol in (
        (IP() / UDP(), 17),
        (IP(proto=89), 89),
        (IP(frag=1, proto=17) / Raw(b"x" * 8), 17),
        (IPv6() / stacks.IPv6ExtHdrDestOpt() / TCP(), 6),
        (IPv6() / stacks.IPv6ExtHdrFragment(offset=9, nh=17) / Raw(b"x" * 8), 17),
        (IPv6() / stacks.IPv6ExtHdrFragment(offset=9, nh=60) / Raw(b"x" * 8), 60),
        (stacks.ARP(), -1),
    ):
        frame = bytes(ETHER / packet)
        assert find(edge.high(frame), len(frame), 1, int(EVERYTHING))[9] == protocol


def test_what_is_behind_an_authentication_header_is_found_whatever_is_wanted(edge: Edge) -> None:
    for header, protocol, bit in ((TCP(), 6, BITS["tcp"]), (UDP(), 17, BITS["udp"]), (stacks.ICMP(), 1, BITS["icmp"])):
        authentication = bytes([protocol, 4]) + bytes(22)
        frame = bytes(ETHER / IP(proto=51) / Raw(authentication + bytes(header)))
        for want in (bit, bit | IPV4, bit | PAYLOAD, int(EVERYTHING)):
            found = locate(edge.high(frame), len(frame), 1, want)
            assert found[0] & bit
            assert found[6] == 14 + 20 + 24


# What the compiler leaves of it


def compiled(want: int) -> Callable[..., int]:
    """A kernel that locates what ``want`` has bits of."""
    wanted = np.int64(want)

    @kernel
    def located(frame, length, link):
        return locate(frame, length, link, wanted)[0]

    return located


def test_ethernet_alone_costs_a_comparison_of_the_length_and_no_load() -> None:
    located = compiled(ETH)
    assert located(0, 14, 1) == ETH  # at address 0 there is nothing to read
    assert located(0, 13, 1) == 0
    assert located(0, 60, 101) == 0


def test_a_plain_header_is_found_without_the_walk(edge: Edge) -> None:
    frame = bytes(ETHER / IP() / UDP() / Raw(b"x" * 18))
    located = compiled(IPV4 | UDP_BIT)
    assert located(edge.high(frame), len(frame), 1) == IPV4 | UDP_BIT
    code = assembly(located)
    body = code[code.index("located") :]
    body = body[: body.index("retq")] if "retq" in body else body[: body.index("\tret")]
    assert body.count("walk") <= 2  # the rare case, out of line; one path calls it


# Bug cases: parsing


def test_case_19_two_tags_are_told_and_more_are_passed(edge: Edge) -> None:
    for tags in range(6):
        frame = bytes(12) + b"\x88\xa8\x00\x05" * tags + b"\x08\x00" + bytes(IP() / UDP())
        bits, vlan, vlan2, _, l3, _, l4, payload, _ = locate(edge.high(frame), len(frame), 1, int(EVERYTHING))
        assert bits == ETH | IPV4 | UDP_BIT | (VLAN if tags else 0) | (VLAN2 if tags > 1 else 0)
        assert (l3, l4, payload) == (14 + 4 * tags, 34 + 4 * tags, 42 + 4 * tags)
        assert (vlan, vlan2) == (14 if tags else 0, 18 if tags > 1 else 0)


def test_case_19_captured_tag_stacks_are_passed(edge: Edge, captures) -> None:
    for name, tags in (("tcpdump/802.1ad_QinQ.pcap", 2), ("zeek/pppoe-over-qinq.pcap", 2)):
        found = [
            (locate(edge.high(frame), len(frame), link, int(EVERYTHING)), layers(frame, link))
            for link, frame, _ in captured(captures / name)
        ]
        assert any(result[0] & VLAN2 and result[0] & (ARP | IPV4) for result, _ in found), name
        assert max(sum(header.name == "vlan" for header in dissected) for _, dissected in found) == tags


@pytest.mark.parametrize("padding", [1, 6, 46, 1400, 60000])
def test_case_22_padding_of_any_length_is_not_payload(edge: Edge, padding: int) -> None:
    frame = bytes(ETHER / IP() / TCP() / Raw(b"data")) + b"\xee" * padding
    bits, *_, payload, end = locate(edge.high(frame), len(frame), 1, int(EVERYTHING))
    assert bits == ETH | IPV4 | TCP_BIT
    assert (payload, end) == (54, 58)


def test_case_22_a_transport_header_in_the_padding_is_none(edge: Edge) -> None:
    for total in range(20, 40):
        frame = bytearray(bytes(ETHER / IP(len=total) / TCP()))
        assert locate(edge.high(bytes(frame)), len(frame), 1, IPV4 | TCP_BIT)[0] == IPV4


def test_case_25_a_total_length_of_0_takes_the_frames_length(edge: Edge, captures) -> None:
    (_, frame, _), *_ = captured(captures / "tcpdump/ipv4_tcp_http_xml_tso.pcap")
    bits, *_, payload, end = locate(edge.high(frame), len(frame), 1, int(EVERYTHING))
    assert bits == ETH | IPV4 | TCP_BIT
    assert end == len(frame)
    assert payload < end


@pytest.mark.parametrize("total", [1, 19])
def test_case_26_a_total_length_below_the_header_has_nothing_behind_it(edge: Edge, total: int) -> None:
    frame = bytes(ETHER / IP(len=total) / UDP())
    bits, *_, payload, end = locate(edge.high(frame), len(frame), 1, int(EVERYTHING))
    assert bits == ETH | IPV4 | BAD
    assert payload == end == 34


CUT_CHAINS = {
    "tcpdump/ipv6-next-header-oobr-1.pcap": "Extension headers end with the capture",
    "tcpdump/ipv6-rthdr-oobr.pcap": "A routing header of 5 bytes",
    "tcpdump/ipv6hdr-heapoverflow.pcap": "An IPv6 header cut short",
    "PcapPlusPlus/Tests/Packet++Test/PacketExamples/ipv4-malformed.pcap": "A total length below the header length",
    "tcpdump/ipv4_invalid_total_length.pcap": "A total length beyond the frame",
}


@pytest.mark.parametrize("name", CUT_CHAINS)
def test_case_29_damaged_captures_are_flagged(edge: Edge, captures, name: str) -> None:
    frames = list(captured(captures / name))
    assert frames
    for link, frame, _ in frames:
        check(frame, link, edge.high(frame))
    flags = [locate(edge.high(frame), len(frame), link, FLAGS)[0] for link, frame, _ in frames]
    assert any(flag & (CUT | BAD) for flag in flags)


def test_case_31_ports_are_not_read_from_the_fragment_header(edge: Edge, captures) -> None:
    found = [
        (frame, locate(edge.high(frame), len(frame), link, int(EVERYTHING)))
        for link, frame, _ in captured(captures / "zeek/ipv6-http-atomic-frag.pcap")
    ]
    ports = {frame[r[6] : r[6] + 4] for frame, r in found if r[0] & TCP_BIT and r[0] & BITS["fragment"]}
    assert ports
    assert all(b"\x00\x50" in (port[:2], port[2:]) for port in ports)  # it is HTTP


def test_case_33_a_cut_transport_header_has_no_bit(edge: Edge) -> None:
    for packet, size in ((TCP(), 20), (UDP(), 8), (stacks.ICMP(), 8), (stacks.SCTP(), 12)):
        for length in range(size):
            frame = bytes(ETHER / IP() / packet)[: 34 + length]
            assert locate(edge.high(frame), len(frame), 1, int(EVERYTHING))[0] == ETH | IPV4 | CUT


def test_case_37_a_length_is_no_ethertype(edge: Edge, captures) -> None:
    frames = [frame for _, frame, _ in captured(captures / "libpcap/filter/llc.pcap") if frame[12] < 6]
    assert len(frames) == 10
    for frame in frames:
        assert locate(edge.high(frame), len(frame), 1, int(EVERYTHING))[0] & (IPV4 | IPV6) == 0
        without = frame[14:16] == b"\xff\xff"  # Novell's raw 802.3
        assert [header.name for header in layers(frame)][:2] == (["eth"] if without else ["eth", "llc"])
