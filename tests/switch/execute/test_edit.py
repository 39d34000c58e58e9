"""EDIT and DEC_TTL on real packets: what changes, and that a checksum stays exactly as right or wrong as it was."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.packet import Raw

from tests.switch.execute.machine import Machine, head, set_field
from wirespeed.core.packet import HASHED, PARTIAL, Packet
from wirespeed.switch import ops as op
from wirespeed.switch.extract import TAG

A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
DATA = b"abcdefghijklm"
DEC_TTL = [head(op.DEC_TTL, 1)]
TRANSPORTS = {
    "tcp": TCP(sport=1000, dport=2000),
    "udp": UDP(sport=1000, dport=2000),
    "sctp": SCTP(sport=1000, dport=2000) / SCTPChunkData(data=b"xyz"),
}
PREFIXES = {
    "plain": Ether(src=A, dst=B),
    "tagged": Ether(src=A, dst=B) / Dot1Q(vlan=5, prio=2),
    "two tags": Ether(src=A, dst=B, type=0x88A8) / Dot1Q(vlan=5) / Dot1Q(vlan=9),
}
V4, V6 = {"src": "1.2.3.4", "dst": "5.6.7.8"}, {"src": "fe80::1", "dst": "fe80::2"}
NEW4, NEW6 = 0x0A090807, 0x20010DB8000000001111222233334444
TEXT4, TEXT6 = "10.9.8.7", "2001:db8::1111:2222:3333:4444"


@pytest.fixture(scope="module")
def machine():
    with Machine() as made:
        yield made


def where(frame, transport):
    """Where the checksum of a frame's transport is, and how long."""
    found, size = {"tcp": (16, 2), "udp": (6, 2), "sctp": (8, 4), "icmp": (2, 2)}[transport]
    offset = bytes(frame).rindex(bytes(frame.getlayer({"tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP}[transport])))
    return offset + found, size


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("version", [4, 6])
def test_addresses_and_ports_change_as_if_scapy_had_made_the_packet_with_them(machine, prefix, transport, version):
    ip = IP(**V4) if version == 4 else IPv6(**V6)
    before = PREFIXES[prefix] / ip / TRANSPORTS[transport] / Raw(DATA)
    after = before.copy()
    name, new, text = ("nw", NEW4, TEXT4) if version == 4 else ("ipv6", NEW6, TEXT6)
    after[type(ip)].src, after[type(ip)].dst = text, text
    after[type(TRANSPORTS[transport])].sport, after[type(TRANSPORTS[transport])].dport = 7, 9
    ops = [set_field(f"{name}_src", new), set_field(f"{name}_dst", new)]
    ops += [set_field(f"{transport}_src", 7), set_field(f"{transport}_dst", 9)]
    assert machine.edited(bytes(before), *ops).hex() == bytes(after).hex()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_wrong_checksum_stays_wrong_by_the_same_difference(machine, transport):
    right = Ether(src=A, dst=B) / IP(**V4) / TRANSPORTS[transport] / Raw(DATA)
    wrong = bytearray(bytes(right))
    at, _ = where(Ether(bytes(right)), transport)
    wrong[at : at + 2] = b"\x12\x34"
    error = (0x1234 - int.from_bytes(bytes(right)[at : at + 2])) % 0xFFFF
    ops = [set_field("nw_src", NEW4), set_field(f"{transport}_dst", 4242)]
    good, bad = machine.edited(bytes(right), *ops), machine.edited(bytes(wrong), *ops)
    assert bad[:at] + bad[at + 2 :] == good[:at] + good[at + 2 :]
    assert (int.from_bytes(bad[at : at + 2]) - int.from_bytes(good[at : at + 2])) % 0xFFFF == error


def test_udp_without_a_checksum_gets_none_and_one_that_comes_out_as_zero_is_sent_as_its_twin(machine):
    none = Ether(src=A, dst=B) / IP(**V4) / UDP(sport=1, dport=2, chksum=0) / Raw(DATA)
    assert Ether(machine.edited(bytes(none), set_field("nw_src", NEW4), set_field("udp_src", 9)))[UDP].chksum == 0
    some = Ether(src=A, dst=B) / IP(**V4) / UDP(sport=1, dport=2) / Raw(DATA)
    found = Ether(bytes(some))[UDP].chksum
    # Adding the checksum to a word of the sum makes it zero.
    twin = machine.edited(bytes(some), set_field("udp_src", 1 + found))
    assert Ether(twin)[UDP].chksum == 0xFFFF


def test_a_wrong_sctp_checksum_differs_by_the_same_bits(machine):
    right = bytes(Ether(src=A, dst=B) / IP(**V4) / TRANSPORTS["sctp"] / Raw(DATA))
    at, _ = where(Ether(right), "sctp")
    wrong = right[:at] + (int.from_bytes(right[at : at + 4]) ^ 0x5A).to_bytes(4) + right[at + 4 :]
    ops = set_field("sctp_src", 4242)
    good, bad = machine.edited(right, ops), machine.edited(wrong, ops)
    assert int.from_bytes(bad[at : at + 4]) == int.from_bytes(good[at : at + 4]) ^ 0x5A


@pytest.mark.parametrize("prefix", PREFIXES)
def test_type_of_service_and_time_to_live_keep_the_header_checksum_right(machine, prefix):
    for ip, names in (
        (IP(**V4, ttl=9, tos=3, options=[IPOption(b"\x07\x07\x04\0\0\0\0\0")]), ("tos", "ttl")),
        (IPv6(**V6, hlim=9, tc=3, fl=0x12345), ("tc", "hlim")),
    ):
        before = PREFIXES[prefix] / ip / UDP() / Raw(DATA)
        after = before.copy()
        setattr(after[type(ip)], names[0], 33 << 2 | 3)
        setattr(after[type(ip)], names[1], 76)
        assert machine.edited(bytes(before), set_field("ip_dscp", 33), set_field("nw_ttl", 77), DEC_TTL) == bytes(after)


def test_a_time_to_live_of_zero_stays(machine):
    frame = bytes(Ether(src=A, dst=B) / IP(**V4, ttl=0) / UDP())
    assert machine.edited(frame, DEC_TTL) == frame


def test_the_label_of_ipv6_changes_alone(machine):
    before = Ether(src=A, dst=B) / IPv6(**V6, tc=0xFF, fl=1) / UDP()
    after = before.copy()
    after[IPv6].fl = 0xABCDE
    assert machine.edited(bytes(before), set_field("ipv6_label", 0xABCDE)) == bytes(after)


def test_bits_outside_of_the_mask_stay(machine):
    before = Ether(src=A, dst=B) / IP(**V4) / TCP() / Raw(DATA)
    after = before.copy()
    after[IP].dst = "10.6.8.8"
    after[Ether].src = "02:00:00:00:ff:01"
    ops = [set_field("nw_dst", 0x0A0B080C, 0xFF00FF00), set_field("dl_src", 0xFF00, 0xFF00)]
    assert machine.edited(bytes(before), *ops) == bytes(after)


def test_addresses_of_ethernet_and_the_first_tag_change_in_place(machine):
    before = Ether(src=A, dst=B) / Dot1Q(vlan=5, prio=3) / IP(**V4)
    after = Ether(src="02:aa:bb:cc:dd:ee", dst="02:11:22:33:44:55") / Dot1Q(vlan=7, prio=3) / IP(**V4)
    ops = [
        set_field("dl_src", 0x02AABBCCDDEE),
        set_field("dl_dst", 0x021122334455),
        set_field("vlan_tci", 0x1007, 0x1FFF),
    ]
    assert machine.edited(bytes(before), *ops) == bytes(after)


def test_icmp_and_its_version_for_ipv6_keep_their_checksums(machine):
    before = Ether(src=A, dst=B) / IP(**V4) / ICMP(type=8, code=0, id=5) / Raw(DATA)
    after = Ether(src=A, dst=B) / IP(**V4) / ICMP(type=0, code=3, id=5) / Raw(DATA)
    assert machine.edited(bytes(before), set_field("icmp_type", 0), set_field("icmp_code", 3)) == bytes(after)
    before = Ether(src=A, dst=B) / IPv6(**V6) / ICMPv6EchoRequest(id=5, data=DATA)
    after = Ether(src=A, dst=B) / IPv6(**V6) / ICMPv6EchoRequest(type=128, code=4, id=5, data=DATA)
    after[IPv6].dst = TEXT6
    assert machine.edited(bytes(before), set_field("icmpv6_code", 4), set_field("ipv6_dst", NEW6)) == bytes(after)


def test_arp_changes_and_rarp_does_not(machine):
    before = Ether(src=A, dst=B) / ARP(op=1, hwsrc=A, psrc="1.2.3.4", hwdst=B, pdst="5.6.7.8")
    after = before.copy()
    after[ARP].psrc, after[ARP].pdst, after[ARP].hwsrc, after[ARP].hwdst = (
        TEXT4,
        TEXT4,
        "02:aa:bb:cc:dd:ee",
        "02:aa:bb:cc:dd:ee",
    )
    ops = [set_field(f"arp_{name}", NEW4) for name in ("spa", "tpa")]
    ops += [set_field(f"arp_{name}", 0x02AABBCCDDEE) for name in ("sha", "tha")]
    assert machine.edited(bytes(before), *ops) == bytes(after)
    reverse = bytes(before).replace(b"\x08\x06", b"\x80\x35", 1)
    assert machine.edited(reverse, *ops) == reverse


def test_targets_and_options_of_neighbour_messages_change_with_their_checksum(machine):
    for message, option, field in (
        (ICMPv6ND_NS(tgt="fe80::5"), ICMPv6NDOptSrcLLAddr, "nd_sll"),
        (ICMPv6ND_NA(tgt="fe80::5"), ICMPv6NDOptDstLLAddr, "nd_tll"),
    ):
        before = Ether(src=A, dst=B) / IPv6(**V6) / message / option(lladdr="02:03:04:05:06:07")
        after = before.copy()
        after[type(message)].tgt, after[option].lladdr = TEXT6, "02:aa:bb:cc:dd:ee"
        ops = [set_field("nd_target", NEW6), set_field(field, 0x02AABBCCDDEE)]
        assert machine.edited(bytes(before), *ops).hex() == bytes(after).hex()
        other = set_field("nd_tll" if field == "nd_sll" else "nd_sll", 0x02AABBCCDDEE)
        assert machine.edited(bytes(before), other) == bytes(before), "that option is not there"


def test_the_destination_behind_a_routing_header_is_not_what_the_checksum_covers(machine):
    before = (
        Ether(src=A, dst=B)
        / IPv6(**V6)
        / IPv6ExtHdrRouting(addresses=["fe80::9"], segleft=1)
        / UDP(sport=1, dport=2)
        / Raw(DATA)
    )
    after = before.copy()
    after[IPv6].dst, after[IPv6].src = TEXT6, TEXT6
    assert machine.edited(bytes(before), set_field("ipv6_dst", NEW6), set_field("ipv6_src", NEW6)) == bytes(after)


def test_extension_headers_are_stepped_over(machine):
    before = (
        Ether(src=A, dst=B)
        / IPv6(**V6)
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrFragment(m=1, id=3)
        / UDP(sport=1, dport=2)
        / Raw(DATA)
    )
    after = before.copy()
    after[UDP].sport = 7
    assert machine.edited(bytes(before), set_field("udp_src", 7)) == bytes(after)


def test_what_stands_behind_the_header_of_a_later_fragment_is_left_alone(machine):
    inside = bytes(UDP(sport=1, dport=2) / Raw(DATA))
    before = Ether(src=A, dst=B) / IP(**V4, frag=7, proto=17) / inside
    after = Ether(src=A, dst=B) / IP(src=TEXT4, dst="5.6.7.8", frag=7, proto=17) / inside
    assert machine.edited(bytes(before), set_field("nw_src", NEW4), set_field("udp_src", 7)) == bytes(after)
    before = Ether(src=A, dst=B) / IPv6(**V6) / IPv6ExtHdrFragment(m=1, offset=7, id=3, nh=17) / inside
    after = (
        Ether(src=A, dst=B) / IPv6(src=TEXT6, dst="fe80::2") / IPv6ExtHdrFragment(m=1, offset=7, id=3, nh=17) / inside
    )
    assert machine.edited(bytes(before), set_field("ipv6_src", NEW6), set_field("udp_src", 7)) == bytes(after)


def test_a_checksum_that_is_still_to_be_computed_is_left_alone(machine):
    frame = bytes(Ether(src=A, dst=B) / IP(**V4) / TCP(chksum=0x1234) / Raw(DATA))
    handle = machine.packet(frame)
    p = Packet.at(handle)
    p.flags |= PARTIAL | HASHED
    p.csum_tail, p.csum_offset = len(frame) - 34, 16
    copied = machine.execute(handle, set_field("nw_src", NEW4), set_field("tcp_src", 7), [head(op.OUT, 2, 1), 0])[1][0]
    assert Ether(copied)[TCP].chksum == 0x1234
    assert (
        Ether(copied)[IP].src == TEXT4
        and IP(bytes(Ether(copied)[IP])[:20]).chksum
        == IP(bytes(IP(src=TEXT4, dst="5.6.7.8", len=20 + 20 + len(DATA), proto=6))).chksum
    )


CUTS = bytes(PREFIXES["tagged"] / IPv6(**V6) / ICMPv6ND_NS(tgt="fe80::5") / ICMPv6NDOptSrcLLAddr(lladdr=A))
EVERYTHING = [
    set_field("nd_target", NEW6), set_field("nd_sll", 1), set_field("ipv6_src", NEW6), set_field("ipv6_dst", NEW6),
    set_field("icmpv6_type", 7), set_field("nw_ttl", 1), set_field("nw_src", NEW4), set_field("mpls_label", 9), DEC_TTL,
]  # fmt: skip


@pytest.mark.parametrize("size", range(len(CUTS)))
def test_frames_that_end_anywhere_are_not_written_beyond_their_end(machine, size):
    pieces = machine.edited(CUTS[:size] or b"\0", *EVERYTHING)
    assert len(pieces) == max(size, 1)
    if size < len(CUTS):
        assert pieces == (CUTS[:size] or b"\0"), "IPv6 says that there is more, so its header is not whole"


@pytest.mark.parametrize("pieces", [(1,), (14, 3), (20, 20, 1), (60,)])
def test_headers_that_lie_in_several_pieces_are_changed_all_the_same(machine, pieces):
    before = PREFIXES["tagged"] / IP(**V4) / TCP(sport=1, dport=2) / Raw(DATA * 20)
    after = before.copy()
    after[IP].src, after[TCP].dport, after[IP].ttl = TEXT4, 9, 63
    assert machine.edited(
        bytes(before), set_field("nw_src", NEW4), set_field("tcp_dst", 9), DEC_TTL, pieces=pieces
    ) == bytes(after)


def test_a_packet_that_others_hold_is_copied_before_it_is_changed(machine):
    frame = bytes(Ether(src=A, dst=B) / IP(**V4) / UDP())
    handle = machine.packet(frame)
    Packet.at(handle).refcnt = 2
    found = machine.execute(handle, set_field("dl_dst", 1), [head(op.OUT, 2, 1), 0])[1][0]
    assert found[:6] == (1).to_bytes(6) and machine.bytes_of(handle) == frame
    machine.give_back(handle)


def test_an_edit_of_a_header_that_is_not_there_changes_nothing(machine):
    frame = bytes(Ether(src=A, dst=B, type=TAG) / Dot1Q(vlan=1, type=0x88B5) / Raw(b"x" * 60))
    assert machine.edited(frame, *EVERYTHING) == frame
