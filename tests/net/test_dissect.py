"""The full parse, against stacks of headers that scapy built, cut at each byte, and mutated."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import GRE, IP, TCP, UDP, Dot1AD, Dot1Q, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, Raw

from tests.net import stacks
from tests.net.frames import Edge, mutated
from tests.net.stacks import ETHER
from wirespeed.net import layer
from wirespeed.net.dissect import Header, dissect, layers
from wirespeed.net.layer import LAYER_BAD, LAYER_CUT, LAYER_FIRST_FRAGMENT, LAYER_LATER_FRAGMENT, MAX_LAYERS, Layer
from wirespeed.net.protocol import PROTO_AH, PROTO_HIP, PROTO_MOBILITY, PROTO_SHIM6, PROTO_TCP

SEEDS = st.integers(0, 2**32)


def names(found: list[Header]) -> list[str]:
    return [header.name for header in found]


def offsets(stack: stacks.Stack) -> list[int]:
    """Where each header of a stack begins, by the sizes scapy gives them."""
    sizes = [len(header.copy()) for _, header in stack]
    return [sum(sizes[:i]) for i in range(len(sizes))]


@given(SEEDS)
def test_every_header_of_a_stack_is_found_where_it_is(seed: int) -> None:
    stack = stacks.frame(random.Random(seed))
    found = layers(stacks.assembled(stack))
    assert names(found) == [name for name, _ in stack]
    assert [header.offset for header in found] == offsets(stack)
    assert all(header.whole and not header.flags for header in found)


@given(SEEDS)
def test_every_header_of_a_cooked_capture_is_found(seed: int) -> None:
    stack = stacks.cooked(random.Random(seed))
    found = layers(stacks.assembled(stack), link=113)
    assert names(found) == [name for name, _ in stack]
    assert [header.offset for header in found] == offsets(stack)


@given(SEEDS)
def test_a_cut_frame_has_the_same_headers_up_to_the_cut(seed: int) -> None:
    generator = random.Random(seed)
    data = stacks.assembled(stacks.frame(generator), payload=b"")
    whole = layers(data)
    for length in {0, *generator.sample(range(len(data)), min(len(data), 12))}:
        found = layers(data[:length])
        kept = [header for header in whole if header.offset + header.length <= length]
        assert names(found)[: len(kept)] == names(kept)
        assert all(header.whole for header in found[: len(kept)])
        assert all(header.end <= length for header in found)
        # What is behind them begins inside the cut; only its fixed part can still be whole.
        assert len(found) <= len(kept) + 1
        assert all(header.flags & LAYER_CUT for header in found[len(kept) :])


def walked(edge: Edge, frame: bytes, link: int, low: bool = False) -> np.ndarray:
    """The records of a frame that lies at an edge of mapped memory."""
    out = np.zeros(MAX_LAYERS, Layer.dtype)
    at = edge.low(frame) if low else edge.high(frame)
    return out[: dissect(at, len(frame), link, out.ctypes.data, MAX_LAYERS)]


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


LINKS = (0, 1, 9, 12, 14, 101, 108, 113, 228, 229, 276, 147)


@given(SEEDS)
def test_no_byte_outside_the_frame_is_read(edge: Edge, seed: int) -> None:
    generator = random.Random(seed)
    original = stacks.assembled(stacks.frame(generator))
    for _ in range(100):
        frame = mutated(original, generator)
        link = generator.choice(LINKS)
        high, low = walked(edge, frame, link), walked(edge, frame, link, low=True)
        assert (high == low).all()
        check(high, len(frame))


@given(st.binary(max_size=300), st.sampled_from(LINKS))
def test_no_byte_outside_of_random_bytes_is_read(edge: Edge, frame: bytes, link: int) -> None:
    check(walked(edge, frame, link), len(frame))


def check(records: np.ndarray, length: int) -> None:
    """What holds for any frame: each header lies behind the one before, inside of what that one carries."""
    end = length
    at = 0
    for number, record in enumerate(records):
        assert record["offset"] == at
        assert record["end"] <= end
        if number < len(records) - 1:
            assert record["whole"]
            assert record["length"] > 0
            assert at + record["length"] <= record["end"]
        at, end = int(record["offset"] + record["length"]), int(record["end"])


# Bug cases: parsing


def test_case_19_tags_of_any_type_and_order_are_a_stack() -> None:
    for types in ([0x8100], [0x88A8, 0x8100], [0x8100, 0x88A8], [0x9100, 0x8100], [0x88A8, 0x88A8, 0x8100, 0x9100]):
        tags = b"".join(struct.pack(">HH", number, 7 + i) for i, number in enumerate(types))
        data = bytes(12) + tags + b"\x08\x00" + bytes(IP() / UDP() / Raw(b"x"))
        found = layers(data)
        assert names(found) == ["eth", *["vlan"] * len(types), "ipv4", "udp"]
        assert found[-2].offset == 14 + 4 * len(types)


def test_case_19_a_stack_of_tags_deeper_than_the_bound_is_called_bad() -> None:
    data = bytes(12) + b"\x81\x00\x00\x01" * 100 + b"\x08\x00" + bytes(IP())
    found = layers(data)
    assert len(found) == MAX_LAYERS
    assert [bool(header.flags & LAYER_BAD) for header in found] == [False] * (MAX_LAYERS - 1) + [True]


@pytest.mark.parametrize("padding", [1, 6, 46, 1400, 60000])
def test_case_22_padding_of_any_length_is_not_payload(padding: int) -> None:
    segment = IP(src="10.0.0.1", dst="10.0.0.2") / TCP() / Raw(b"data")
    found = layers(bytes(ETHER / segment) + b"\xee" * padding)
    assert names(found) == ["eth", "ipv4", "tcp"]
    assert found[1].end == found[2].end == 14 + 44
    assert not any(header.flags for header in found)


def test_case_25_a_total_length_of_0_takes_the_frames_length() -> None:
    data = bytearray(bytes(ETHER / IP() / TCP() / Raw(b"x" * 30000)))
    data[16:18] = b"\0\0"
    found = layers(bytes(data))
    assert names(found) == ["eth", "ipv4", "tcp"]
    assert found[-1].end == len(data)
    assert not any(header.flags for header in found)


@pytest.mark.parametrize("total", [1, 19, 20, 23])
def test_case_26_a_total_length_below_the_headers_is_bad(total: int) -> None:
    data = bytearray(bytes(ETHER / IP(options=[stacks.IPOption_NOP()] * 4) / TCP()))
    data[16:18] = struct.pack(">H", total)
    found = layers(bytes(data))
    assert names(found) == ["eth", "ipv4"]
    assert found[-1].flags & LAYER_BAD
    assert found[-1].end == 14 + 24


def test_case_29_an_extension_chain_that_ends_with_the_capture_is_left_there(edge: Edge) -> None:
    packet = bytes(IPv6(nh=0, plen=1000) / IPv6ExtHdrHopByHop(nh=60) / IPv6ExtHdrDestOpt(nh=60))
    records = walked(edge, packet, 101)
    assert [layer.NAMES[kind] for kind in records["kind"]] == ["ipv6", "hopopts", "dstopts", "dstopts"]
    assert list(records["whole"]) == [1, 1, 1, 0]
    assert records["flags"][-1] == LAYER_CUT
    assert records["length"][-1] == 0


def test_case_29_an_option_that_ends_with_the_capture_before_its_length_is_left_there(edge: Edge) -> None:
    for options in (b"\x01\x03\0\0\0\xc2", b"\0\0\0\0\0\x05", b"\0\0\0\0\xc2\x04", b"\0\0\xc2\x04\0\0"):
        packet = bytes(IPv6(nh=0, plen=0)) + b"\x3b\0" + options
        records = walked(edge, packet, 101)
        assert list(records["kind"]) == [layer.IPV6, layer.HOPOPTS]
        assert records["end"][-1] == len(packet)


def test_case_31_the_transport_header_is_behind_the_last_extension_header() -> None:
    fragment = stacks.IPv6ExtHdrFragment(id=7)
    found = layers(bytes(ETHER / IPv6() / fragment / TCP(sport=1, dport=2)))
    assert names(found) == ["eth", "ipv6", "fragment", "tcp"]
    assert found[-1].offset == 14 + 40 + 8
    assert not found[2].flags


@pytest.mark.parametrize("length", [1, 4, 19])
def test_case_33_a_cut_transport_header_is_not_whole(length: int) -> None:
    data = bytes(ETHER / IP() / TCP())[: 34 + length]
    found = layers(data)
    assert names(found) == ["eth", "ipv4", "tcp"]
    assert [header.whole for header in found] == [True, True, False]
    assert found[-1].flags & LAYER_CUT


def test_case_37_a_type_below_0x600_is_a_length() -> None:
    stp = bytes.fromhex("424203") + bytes(35)
    data = bytes(12) + struct.pack(">H", len(stp)) + stp + b"\x08\x00" * 8
    found = layers(data)
    assert names(found) == ["eth", "llc"]
    assert found[0].end == 14 + len(stp)  # the padding behind is not the frame's


def test_case_37_the_length_of_a_tagged_frame_is_told_too() -> None:
    found = layers(bytes(12) + b"\x81\x00\x00\x05" + b"\x00\x08" + bytes.fromhex("aaaa030000009000") + bytes(38))
    assert names(found) == ["eth", "vlan", "llc", "snap"]
    assert found[1].end == 18 + 8


def test_novells_raw_frames_have_no_llc() -> None:
    assert names(layers(bytes(12) + b"\x00\x20" + b"\xff\xff" + bytes(40))) == ["eth"]


# Fragments


@pytest.mark.parametrize("offset", [1, 185, 8191])
def test_a_later_ipv4_fragment_has_no_transport_header(offset: int) -> None:
    found = layers(bytes(ETHER / IP(frag=offset, proto=17) / UDP()))
    assert names(found) == ["eth", "ipv4"]
    assert found[-1].flags == LAYER_LATER_FRAGMENT


def test_a_first_ipv4_fragment_has_its_transport_header() -> None:
    found = layers(bytes(ETHER / IP(flags="MF") / UDP(len=3000) / Raw(b"x" * 100)))
    assert names(found) == ["eth", "ipv4", "udp"]
    assert [header.flags for header in found] == [0, LAYER_FIRST_FRAGMENT, 0]


def test_ipv6_fragments_are_told_apart() -> None:
    for offset, more, flags, want in ((0, 1, LAYER_FIRST_FRAGMENT, True), (1, 1, LAYER_LATER_FRAGMENT, False),
                                      (9, 0, LAYER_LATER_FRAGMENT, False), (0, 0, 0, True)):  # fmt: skip
        header = stacks.IPv6ExtHdrFragment(nh=17, offset=offset, m=more)
        found = layers(bytes(ETHER / IPv6() / header / UDP()))
        assert (found[2].flags, "udp" in names(found)) == (flags, want)


# Extension headers, lengths beyond 64 kB


@pytest.mark.parametrize("number, name", [(PROTO_MOBILITY, "mobility"), (PROTO_HIP, "hip"), (PROTO_SHIM6, "shim6")])
def test_every_extension_header_of_the_common_form_is_passed(number: int, name: str) -> None:
    header = bytes([PROTO_TCP, 2]) + bytes(22)
    found = layers(bytes(IPv6(nh=number) / Raw(header + bytes(TCP()))), link=229)
    assert [(header.name, header.length) for header in found] == [("ipv6", 40), (name, 24), ("tcp", 20)]


@pytest.mark.parametrize("packet", [IP(proto=51), IPv6(nh=51)])
def test_an_authentication_header_counts_words_of_four_bytes(packet) -> None:
    header = bytes([PROTO_TCP, 4]) + bytes(22)
    found = layers(bytes(packet / Raw(header + bytes(TCP()))), link=101)
    assert [(header.name, header.length) for header in found][1:] == [("ah", 24), ("tcp", 20)]


def test_an_authentication_header_shorter_than_itself_is_bad() -> None:
    (_, found) = layers(bytes(IP(proto=PROTO_AH) / Raw(bytes([6, 0]) + bytes(30))), link=101)
    assert (found.whole, found.flags) == (False, LAYER_BAD)


def test_hop_by_hop_options_stand_behind_the_ipv6_header_only() -> None:
    found = layers(bytes(IPv6(nh=60) / IPv6ExtHdrDestOpt(nh=0) / IPv6ExtHdrHopByHop()), link=229)
    assert names(found) == ["ipv6", "dstopts"]
    assert found[-1].flags == LAYER_BAD


@pytest.mark.parametrize("number", [0, 43, 44, 60, 135, 139, 140])
def test_ipv4_has_no_extension_headers(number: int) -> None:
    assert names(layers(bytes(IP(proto=number) / Raw(bytes(40))), link=101)) == ["ipv4"]


@pytest.mark.parametrize("number", [50, 59])
def test_encryption_and_no_next_header_end_the_parse(number: int) -> None:
    found = layers(bytes(IPv6(nh=number) / Raw(bytes(TCP()))), link=101)
    assert names(found) == {50: ["ipv6", "esp"], 59: ["ipv6"]}[number]


def jumbogram(length: int, option: int | None = None) -> bytes:
    """A BIG TCP frame of ``length`` bytes behind IPv6 as Linux makes it: payload length 0 and a jumbo option."""
    segment = bytes(TCP()) + bytes(length - 28)
    hop = bytes([6, 0, 0xC2, 4]) + struct.pack(">I", length if option is None else option)
    return bytes(ETHER / IPv6(plen=0, nh=0)) + hop + segment


def test_a_jumbo_option_tells_the_length_of_a_frame_of_more_than_64_kb() -> None:
    frame = jumbogram(100_000)
    found = layers(frame + bytes(5))
    assert names(found) == ["eth", "ipv6", "hopopts", "tcp"]
    assert found[-1].end == len(frame)
    assert not any(header.flags for header in found)


def test_a_jumbo_option_beyond_the_captured_bytes_is_cut() -> None:
    found = layers(jumbogram(70_000, option=80_000))
    assert found[2].flags == LAYER_CUT
    assert found[2].end == 14 + 40 + 70_000


def test_a_jumbo_option_shorter_than_its_own_header_is_bad() -> None:
    found = layers(jumbogram(70_000, option=7))
    assert names(found) == ["eth", "ipv6", "hopopts"]
    assert found[-1].flags == LAYER_BAD


def test_a_payload_length_of_0_without_an_option_takes_the_frames_length() -> None:
    found = layers(bytes(ETHER / IPv6(plen=0) / TCP() / Raw(bytes(70_000))))
    assert found[-1].end == 14 + 40 + 20 + 70_000


def test_a_payload_length_of_0_with_no_next_header_is_empty() -> None:
    assert layers(bytes(ETHER / IPv6(plen=0, nh=59) / Raw(bytes(10))))[-1].end == 54


# Headers that are not what they should be


@pytest.mark.parametrize("first", [0x00, 0x40, 0x44, 0x55, 0x60, 0x65])
def test_a_wrong_version_or_header_length_of_ipv4_is_bad(first: int) -> None:
    found = layers(bytes(ETHER / Raw(bytes([first]) + bytes(IP() / TCP())[1:])).replace(b"\x90\x00", b"\x08\x00", 1))
    assert names(found) == ["eth", "ipv4"]
    assert (found[-1].whole, found[-1].flags) == (False, LAYER_BAD)


def test_a_tcp_header_length_below_5_words_is_bad_and_beyond_the_datagram_cut() -> None:
    assert [header.flags for header in layers(bytes(ETHER / IP() / TCP(dataofs=4)))] == [0, 0, LAYER_BAD]
    assert [header.flags for header in layers(bytes(ETHER / IP() / TCP(dataofs=6)))] == [0, 0, LAYER_CUT]


def test_udp_ends_where_its_own_length_says() -> None:
    found = layers(bytes(ETHER / IP() / UDP(len=12) / Raw(bytes(100))))
    assert found[-1].end == found[-1].offset + 12
    assert layers(bytes(ETHER / IP() / UDP(len=7) / Raw(bytes(9))))[-1].flags == LAYER_BAD
    assert layers(bytes(ETHER / IP() / UDP(len=0) / Raw(bytes(9))))[-1].end == 14 + 20 + 8 + 9


@pytest.mark.parametrize("other", [{"hwlen": 8}, {"plen": 16}, {"hwtype": 19}, {"ptype": 0x86DD}])
def test_arp_for_other_addresses_than_ethernet_and_ipv4_is_not_whole(other: dict[str, int]) -> None:
    data = bytes(stacks.ARP(**other)) + bytes(40)
    found = layers(bytes(12) + b"\x08\x06" + data)
    assert [(header.name, header.whole) for header in found] == [("eth", True), ("arp", False)]


# Tunnels


def test_gre_has_all_its_optional_fields() -> None:
    routes = struct.pack(">HBB", 0x0800, 0, 8) + bytes(8) + bytes(4)
    header = struct.pack(">HH", 0xF000, 0x0800) + bytes(12) + routes
    found = layers(bytes(IP(proto=47) / Raw(header + bytes(IP() / TCP()))), link=101)
    assert [(h.name, h.length) for h in found][1:] == [("gre", 16 + 16), ("ipv4", 20), ("tcp", 20)]


def test_gre_routes_without_an_end_are_bad() -> None:
    header = struct.pack(">HH", 0x4000, 0x0800) + bytes(4) + struct.pack(">HBB", 1, 0, 0) * 100
    (_, found) = layers(bytes(IP(proto=47) / Raw(header)), link=101)
    assert found.flags == LAYER_BAD


@pytest.mark.parametrize("flags, size, inner", [(0x3001, 12, True), (0x3081, 16, True), (0x2081, 12, False)])
def test_gre_of_version_1_carries_ppp(flags: int, size: int, inner: bool) -> None:
    header = struct.pack(">HH", flags, 0x880B) + bytes(size - 4)
    inside = b"\xff\x03\x00\x21" + bytes(IP() / TCP()) if inner else b""
    found = layers(bytes(IP(proto=47) / Raw(header + inside)), link=101)
    assert [(h.name, h.length) for h in found][:2] == [("ipv4", 20), ("gre", size)]
    assert names(found)[2:] == (["ppp", "ipv4", "tcp"] if inner else [])


def test_gre_of_an_unknown_version_is_bad() -> None:
    assert layers(bytes(IP() / GRE(version=2)), link=101)[-1].flags == LAYER_BAD


def test_geneve_options_are_passed_and_ip_may_follow() -> None:
    header = struct.pack(">BBHI", 2, 0, 0x0800, 5 << 8) + bytes(8)
    found = layers(bytes(IP() / UDP(dport=6081) / Raw(header + bytes(IP() / TCP()))), link=101)
    assert [(h.name, h.length) for h in found][2:] == [("geneve", 16), ("ipv4", 20), ("tcp", 20)]


def test_linuxs_own_vxlan_port_is_known() -> None:
    data = bytes(ETHER / IP() / UDP(dport=8472) / Raw(b"\x08" + bytes(7) + bytes(ETHER / IP() / TCP())))
    assert names(layers(data)) == ["eth", "ipv4", "udp", "vxlan", "eth", "ipv4", "tcp"]


def test_padding_behind_a_pppoe_session_is_not_its_payload() -> None:
    data = bytes(ETHER / stacks.PPPoE() / stacks.PPP() / IP() / TCP())
    found = layers(data + bytes(100))
    assert names(found) == ["eth", "pppoe", "ppp", "ipv4", "tcp"]
    assert found[1].end == len(data)


# Link types


@pytest.mark.parametrize(
    "link, header, name",
    [
        (0, struct.pack("<I", 2), "null"),
        (0, struct.pack(">I", 2), "null"),
        (108, struct.pack(">I", 2), "loop"),
        (9, b"\xff\x03\x00\x21", "ppp"),
        (9, b"\x00\x21", "ppp"),
        (9, b"\xff\x03\x21", "ppp"),
        (113, bytes(14) + b"\x08\x00", "sll"),
        (276, b"\x08\x00" + bytes(18), "sll2"),
    ],
)
def test_each_link_type_leads_to_ip(link: int, header: bytes, name: str) -> None:
    found = layers(header + bytes(IP() / UDP()), link)
    assert [(h.name, h.offset) for h in found] == [(name, 0), ("ipv4", len(header)), ("udp", len(header) + 20)]


@pytest.mark.parametrize("family", [10, 24, 28, 30])
@pytest.mark.parametrize("order", "<>")
def test_ipv6_on_loopback_has_another_number_on_each_system(family: int, order: str) -> None:
    assert names(layers(struct.pack(order + "I", family) + bytes(IPv6() / UDP()), 0)) == ["null", "ipv6", "udp"]


@pytest.mark.parametrize("link", [12, 14, 101])
def test_raw_ip_is_told_by_its_version(link: int) -> None:
    assert names(layers(bytes(IP() / UDP()), link)) == ["ipv4", "udp"]
    assert names(layers(bytes(IPv6() / UDP()), link)) == ["ipv6", "udp"]
    assert names(layers(b"\x00" * 40, link)) == []
    assert names(layers(b"", link)) == []


def test_other_link_types_have_no_layers() -> None:
    assert all(layers(bytes(ETHER / IP() / UDP()), link) == [] for link in (105, 127, 147, 253, 65535))


def test_no_more_records_than_there_is_room_for_are_written() -> None:
    data = bytes(ETHER / Dot1AD() / Dot1Q() / IP() / UDP())
    frame = np.frombuffer(data, np.uint8)
    for room in range(7):
        out = np.zeros(8, Layer.dtype)
        n = dissect(frame.ctypes.data, len(data), 1, out.ctypes.data, room)
        assert n == min(room, 5)
        assert not out[n:].view(np.uint8).any()
