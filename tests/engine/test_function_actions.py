"""What actions do to packets, against scapy and against whole recomputation; both forms at once."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, fragment
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrRouting
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData

import wirespeed as ws
from wirespeed.engine.function import Function

MAC = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def run(f: Function, frame: Any, **record: int) -> tuple[int, bytes]:
    """What both forms of a function do to a frame."""
    interpreted, compiled = f(frame, **record), f(frame, compiled=True, **record)
    assert interpreted == compiled
    return compiled


@ws.function
def hop(pkt: ws.Pkt) -> int:
    return ws.decrement_ttl(pkt.ipv4) if pkt.ipv4 else ws.decrement_ttl(pkt.ipv6)


@ws.function
def header_sum(pkt: ws.Pkt) -> int:
    return int(ws.checksum_ipv4(pkt.ipv4))


@ws.function
def transport_sum(pkt: ws.Pkt) -> int:
    return int(ws.checksum_l4(pkt))


@ws.function
def translate(pkt: ws.Pkt) -> int:
    """New addresses and ports, from the time and the mark."""
    return int(ws.rewrite(pkt, src=pkt.time, dst=pkt.time >> 32, sport=pkt.mark, dport=pkt.mark >> 16))


@ws.function
def new_source(pkt: ws.Pkt) -> int:
    return int(ws.rewrite(pkt, src=0xC0000201))


@ws.function
def tag(pkt: ws.Pkt) -> int:
    return int(ws.push_vlan(pkt, pkt.mark, prio=pkt.mark >> 13, type=0x88A8)) + 10 * int(ws.push_vlan(pkt, 7))


@ws.function
def untag(pkt: ws.Pkt) -> int:
    return int(ws.pop_vlan(pkt))


# ---------------------------------------------------------------------------------------------------------------------
# Hops


@given(st.integers(0, 255), st.binary(min_size=20, max_size=20), st.integers(0, 10))
def test_a_hop_less_leaves_the_checksum_that_recomputation_gives(ttl: int, header: bytes, options: int) -> None:
    ip = IP(header[:0] or bytes(IP(ttl=ttl, id=header[0] << 8 | header[1], tos=header[2], proto=header[3],
                                   src=".".join(map(str, header[4:8])), dst=".".join(map(str, header[8:12])),
                                   options=[IPOption_NOP()] * options)))  # fmt: skip
    left, data = run(hop, MAC / ip)
    assert left == max(ttl - 1, 0)
    wanted = ip.copy()
    wanted.ttl = left
    del wanted.chksum
    assert data == bytes(MAC / (wanted if ttl else ip))


def test_a_hop_less_where_the_checksum_wraps_round() -> None:
    ip = IP(src="1.2.3.4", dst="5.6.7.8", ttl=9, id=0)
    # With this identification the checksum is 0xFEFF, and with one hop less 0, not its twin 0xFFFF.
    ip.id = (IP(bytes(ip)).chksum - 0xFEFF) % 0xFFFF
    assert IP(bytes(ip)).chksum == 0xFEFF
    _, data = run(hop, MAC / ip)
    ip.ttl = 8
    assert data == bytes(MAC / ip) and data[24:26] == b"\0\0"


def test_a_hop_less_of_ipv6_and_of_nothing() -> None:
    assert run(hop, MAC / IPv6(hlim=9)) == (8, bytes(MAC / IPv6(hlim=8)))
    assert run(hop, MAC / IPv6(hlim=0)) == (0, bytes(MAC / IPv6(hlim=0)))
    assert run(hop, b"\1" * 40) == (0, b"\1" * 40)


# ---------------------------------------------------------------------------------------------------------------------
# Checksums


def with_wrong_sums(packet: Any) -> bytes:
    """The frame with every checksum of its outer headers made wrong."""
    for kind in (IP, TCP, UDP, ICMP, ICMPv6EchoRequest, SCTP):
        if kind in packet:
            name = "cksum" if kind is ICMPv6EchoRequest else "chksum"
            setattr(packet[kind], name, 0x1234)
    return bytes(packet)


@pytest.mark.parametrize("words", range(11))
def test_an_ipv4_header_is_summed_with_its_options(words: int) -> None:
    """Bug case 40: the sum over IHL words, not over 20 bytes."""
    ip = IP(src="1.2.3.4", dst="9.8.7.6", options=[IPOption_NOP()] * (4 * words))
    damaged = bytearray(bytes(MAC / ip / b"data"))
    damaged[24:26] = b"\xab\xcd"
    assert run(header_sum, damaged) == (1, bytes(MAC / ip / b"data"))


def test_an_ipv4_header_whose_options_are_cut_is_left_alone() -> None:
    frame = bytes(MAC / IP(options=[IPOption_NOP()] * 8))[:-5]
    assert run(header_sum, frame) == (0, frame)
    assert run(header_sum, b"") == (0, b"")


L4 = [
    IP() / UDP(sport=1, dport=2) / b"odd",
    IP() / UDP(),
    IP() / TCP(flags="S", options=[("MSS", 1460)]) / b"12345",
    IP(options=[IPOption_NOP()] * 4) / TCP(),
    IP() / ICMP() / b"ping",
    IP() / SCTP(sport=1, dport=2) / SCTPChunkData(data=b"chunk"),
    IPv6(dst="ff02::1") / UDP() / b"six",
    IPv6(src="2001:db8::1") / TCP() / bytes(range(100)),
    IPv6() / ICMPv6EchoRequest(data=b"abc"),
    IPv6() / IPv6ExtHdrDestOpt() / UDP() / b"behind an extension header",
    IPv6() / IPv6ExtHdrRouting(addresses=["::1"], segleft=0) / UDP() / b"all segments visited",
    IP() / UDP() / bytes(1401),
]


@pytest.mark.parametrize("packet", L4, ids=lambda p: "/".join(layer.__name__ for layer in p.layers()))
@pytest.mark.parametrize(
    "front", [MAC, MAC / Dot1Q(vlan=5), MAC / Dot1AD(vlan=1) / Dot1Q(vlan=2)], ids=["", "1q", "ad"]
)
def test_a_transport_checksum_is_the_one_that_scapy_computes(packet: Any, front: Any) -> None:
    right = front / packet
    damaged = with_wrong_sums(right.copy())
    if IP in right:  # its own checksum is not what is written here
        at = len(front) + 10
        damaged = damaged[:at] + bytes(right)[at : at + 2] + damaged[at + 2 :]
    padding = bytes(18)  # what follows the datagram is not summed
    assert run(transport_sum, damaged + padding) == (1, bytes(right) + padding)


def test_a_udp_checksum_that_comes_out_as_zero_is_sent_as_ones() -> None:
    """Bug case 38."""
    packet = IP(src="1.2.3.4", dst="5.6.7.8") / UDP(sport=0, dport=0, chksum=0) / b"\0\0"
    rest = 0xFFFF - sum(struct.unpack(">9H", bytes.fromhex("01020304050607080011000a00000000000a")))
    while rest < 0:
        rest += 0xFFFF
    packet[UDP].payload.load = struct.pack(">H", rest)
    _, data = run(transport_sum, MAC / packet)
    assert data[40:42] == b"\xff\xff"


def test_what_is_not_whole_is_not_summed() -> None:
    first, later = fragment(IP() / UDP() / bytes(3000), 1480)[:2]
    begun = fragment(IP() / TCP(dataofs=5) / bytes(3000), 1480)[0]
    cut = bytes(MAC / IP() / TCP() / b"some data")[:-1]
    routed = IPv6() / IPv6ExtHdrRouting(addresses=["::1"], segleft=1) / UDP(chksum=1)
    part = IPv6() / IPv6ExtHdrFragment(m=1, id=1) / UDP(chksum=1) / b"12345678"
    short = bytearray(bytes(MAC / IP() / UDP() / b"abc"))
    short[38:40] = b"\0\7"  # a UDP length that is less than the header's
    long = bytearray(short)
    long[38:40] = b"\0\xff"  # and one that is more than IP has
    for frame in (
        MAC / first,
        MAC / begun,
        MAC / later,
        cut,
        MAC / routed,
        MAC / part,
        short,
        long,
        MAC / Ether(type=0x88B5),
        b"",
        b"\1" * 60,
    ):
        assert run(transport_sum, frame) == (0, bytes(frame))


# ---------------------------------------------------------------------------------------------------------------------
# Addresses and ports


@given(
    packet=st.sampled_from(L4),
    addresses=st.one_of(st.integers(0, (1 << 63) - 1), st.sampled_from([0, (1 << 63) - 1, 0xFFFFFFFF])),
    ports=st.integers(0, (1 << 32) - 1),
)
def test_rewriting_leaves_the_checksums_that_recomputation_gives(packet: Any, addresses: int, ports: int) -> None:
    before = bytes(MAC / packet)
    done, data = run(translate, before, time=addresses, mark=ports)
    if IP not in packet or not (TCP in packet or UDP in packet):
        assert (done, data) == (0, before)
        return
    wanted = packet.copy()
    wanted[IP].src, wanted[IP].dst = (
        ".".join(map(str, struct.pack(">I", a & 0xFFFFFFFF))) for a in (addresses, addresses >> 32)
    )
    kind = TCP if TCP in packet else UDP
    wanted[kind].sport, wanted[kind].dport = ports & 0xFFFF, ports >> 16
    assert (done, data) == (1, bytes(MAC / wanted))


def test_a_udp_checksum_that_is_not_there_stays_away() -> None:
    packet = MAC / IP(src="1.1.1.1") / UDP(chksum=0) / b"x"
    done, data = run(new_source, packet)
    wanted = packet.copy()
    wanted[IP].src = "192.0.2.1"
    assert (done, data) == (1, bytes(wanted))


def test_a_udp_checksum_that_becomes_zero_is_sent_as_ones() -> None:
    packet = IP(src="192.0.2.1", dst="5.6.7.8") / UDP(sport=1, dport=2) / b"\0\0"
    packet[UDP].payload.load = struct.pack(">H", IP(bytes(packet))[UDP].chksum)  # the sum is then all ones, and sent so
    assert IP(bytes(packet))[UDP].chksum == 0xFFFF
    before = packet.copy()
    before[IP].src = "1.1.1.1"
    assert run(new_source, MAC / before) == (1, bytes(MAC / packet))


def test_an_address_can_be_rewritten_where_there_are_no_ports() -> None:
    later = fragment(IP(src="1.1.1.1") / UDP() / bytes(3000), 1480)[1]
    for packet in (IP(src="1.1.1.1") / ICMP(), later):
        wanted = packet.copy()
        wanted.src = "192.0.2.1"
        del wanted.chksum
        assert run(new_source, MAC / packet) == (1, bytes(MAC / wanted))


# ---------------------------------------------------------------------------------------------------------------------
# Tags


@given(st.binary(min_size=14, max_size=1514), st.integers(0, 0xFFFF).map(lambda n: n & 0xEFFF))
def test_a_tag_makes_the_frame_four_bytes_longer_and_changes_nothing_else(frame: bytes, tci: int) -> None:
    """Bug case 21: nothing is cut off at the end."""
    assert run(tag, frame, mark=tci)[0] == 11
    both = frame[:12] + b"\x81\x00\x00\x07" + b"\x88\xa8" + struct.pack(">H", tci) + frame[12:]
    assert run(tag, frame, mark=tci)[1] == both
    once = run(untag, both)
    assert once == (1, frame[:12] + both[16:])
    assert run(untag, once[1]) == (1, frame)


@ws.function
def resize(pkt: ws.Pkt) -> int:
    """Changes the size in one way, by the mark, and returns both lengths."""
    if pkt.mark == 0:
        ws.push_vlan(pkt, 5)
    elif pkt.mark == 1:
        ws.pop_vlan(pkt)
    elif pkt.mark == 2:
        pkt.prepend(10)
    elif pkt.mark == 3:
        pkt.append(10)
    elif pkt.mark == 4:
        pkt.adjust(10)
    else:
        pkt.trim(10)
    return pkt.length * 10000 + pkt.wire


def test_the_length_on_the_wire_follows_that_of_the_packet() -> None:
    frame = b"\1" * 12 + b"\x81\x00\x00\x05\x08\x00" + bytes(30)
    for mark, change in enumerate((4, -4, 10, 10, -10, -10)):
        assert run(resize, frame, mark=mark)[0] == (48 + change) * 10001
        assert run(resize, frame, mark=mark, wire=1500)[0] == (48 + change) * 10000 + 1500 + change


@ws.function
def blank(pkt: ws.Pkt) -> int:
    """Cuts off both ends and puts them back."""
    pkt.trim(5)
    pkt.adjust(3)
    pkt.append(5)
    pkt.prepend(3)
    return pkt.length


def test_new_bytes_are_zeros() -> None:
    assert run(blank, b"\1" * 20) == (20, bytes(3) + b"\1" * 12 + bytes(5))
    assert run(resize, b"\1" * 20, mark=2)[1] == bytes(10) + b"\1" * 20
    assert run(resize, b"\1" * 20, mark=3)[1] == b"\1" * 20 + bytes(10)
    assert run(resize, b"\1" * 9 + b"\2" * 11, mark=4)[1] == b"\2" * 10
    assert run(resize, b"\1" * 9 + b"\2" * 11, mark=5)[1] == b"\1" * 9 + b"\2"


def test_a_tag_is_the_one_that_scapy_reads() -> None:
    _, data = run(tag, MAC / IP() / UDP() / b"abc", mark=5 << 13 | 99)
    seen = Ether(data)
    assert (seen.type, seen[Dot1Q].vlan, seen[Dot1Q].type) == (0x8100, 7, 0x88A8)
    inner = seen[Dot1Q].payload
    assert (inner.vlan, inner.prio) == (99, 5)
    assert bytes(inner.payload)[:20] == bytes(IP() / UDP() / b"abc")[:20]


def test_what_is_no_tag_is_not_taken_out() -> None:
    for frame in (MAC / IP(), b"", b"\1" * 13, b"\1" * 12 + b"\x81\x00\x00"):
        assert run(untag, frame) == (0, bytes(frame))
    tagged = b"\1" * 12 + b"\x81\x00\x00\x05\x08\x00"
    assert run(untag, tagged, link=101) == (0, tagged), "there are tags on Ethernet only"
    assert run(tag, b"\1" * 13) == (0, b"\1" * 13)
    assert run(tag, b"\1" * 40, link=228) == (0, b"\1" * 40)


# ---------------------------------------------------------------------------------------------------------------------
# Hashes


@ws.function
def hashes(pkt: ws.Pkt) -> int:
    return pkt.hash if pkt.mark else ws.symmetric_hash(pkt)


def test_the_symmetric_hash_is_the_same_both_ways_and_the_other_is_not() -> None:
    there = MAC / IP(src="1.2.3.4", dst="5.6.7.8") / TCP(sport=1, dport=2)
    back = MAC / IP(src="5.6.7.8", dst="1.2.3.4") / TCP(sport=2, dport=1)
    assert run(hashes, there)[0] == run(hashes, back)[0] != 0
    assert run(hashes, there, mark=1)[0] != run(hashes, back, mark=1)[0]
    assert run(hashes, MAC / b"no IP")[0] == 0
