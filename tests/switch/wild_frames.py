"""Frames of all sorts, whole and damaged, for what takes headers apart; the same for the same seed."""

import random
from functools import cache

from scapy.all import (
    ARP,
    GRE,
    ICMP,
    IP,
    LLC,
    SCTP,
    SNAP,
    TCP,
    UDP,
    Dot1AD,
    Dot1Q,
    Dot3,
    Ether,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Packet,
    PadN,
    Raw,
)
from scapy.contrib.mpls import MPLS

ETHER = {"dst": "02:00:00:00:00:01", "src": "02:00:00:00:00:02"}
FOUR = {"src": "10.1.2.3", "dst": "10.4.5.6"}
SIX = {"src": "2001:db8::1:2:3", "dst": "2001:db8:ffff::7"}


def _transports(six: bool) -> list[Packet]:
    data = Raw(b"payload of it")
    found = [
        TCP(sport=1234, dport=80, flags="SEC") / data,
        TCP(sport=1, dport=2, reserved=5, options=[("MSS", 1400)]) / data,
        UDP(sport=53, dport=4000) / data,
        SCTP(sport=7, dport=9) / data,
        GRE() / data,
        data,
    ]
    if six:
        own = ICMPv6NDOptSrcLLAddr(lladdr="02:00:00:00:00:03")
        other = ICMPv6NDOptDstLLAddr(lladdr="02:00:00:00:00:04")
        found += [ICMPv6EchoRequest(data=b"ping"), ICMPv6ND_NS(tgt="fe80::5") / own, ICMPv6ND_NA(tgt="fe80::6") / other]
        found += [ICMPv6ND_NS(tgt="fe80::7") / own / other, ICMPv6ND_NA(tgt="fe80::8") / other / other]
        return found
    return [*found, ICMP(type=8) / data, ICMP(type=3, code=4) / data]


def _networks() -> list[Packet]:
    found = []
    for transport in _transports(False):
        found += [IP(**FOUR, tos=0x2D, ttl=3) / transport, IP(**FOUR, options=b"\x01" * 4, ttl=200) / transport]
    found += [IP(**FOUR, flags="MF") / UDP(sport=5, dport=6) / b"12345678", IP(**FOUR, frag=9) / UDP(sport=5, dport=6)]
    found += [IP(**FOUR, flags="DF") / TCP(), IP(**FOUR) / b""]
    for transport in _transports(True):
        found.append(IPv6(**SIX, tc=0x5E, fl=0x12345, hlim=14) / transport)
    options = [PadN(optdata=b"\0" * 4)]
    udp = UDP(sport=5, dport=6) / b"abc"
    found += [
        IPv6(**SIX) / IPv6ExtHdrHopByHop(options=options) / udp,
        IPv6(**SIX) / IPv6ExtHdrRouting(addresses=["::1", "::2"]) / udp,
        IPv6(**SIX) / IPv6ExtHdrDestOpt(options=options) / IPv6ExtHdrDestOpt(options=options) / udp,
        IPv6(**SIX, nh=51) / Raw(bytes([17, 4]) + bytes(22)) / udp,
        IPv6(**SIX) / IPv6ExtHdrFragment(offset=0, m=1) / udp,
        IPv6(**SIX) / IPv6ExtHdrFragment(offset=0, m=0) / udp,
        IPv6(**SIX) / IPv6ExtHdrFragment(offset=3, m=1) / udp,
        IPv6(**SIX) / IPv6ExtHdrHopByHop(options=options) / IPv6ExtHdrFragment(offset=0, m=1) / udp,
        IPv6(**SIX, nh=59),
        ARP(psrc="10.0.0.1", pdst="10.0.0.2", op=2),
        ARP(op=256),
        ARP(hwtype=6),
        MPLS(label=5, cos=3, s=1, ttl=9) / IP(**FOUR) / UDP(),
        MPLS(label=5, s=0, ttl=9) / MPLS(label=6, s=0, ttl=20) / MPLS(label=7, s=0) / MPLS(label=8, s=1) / IP(**FOUR),
        MPLS(label=5, s=0, ttl=9) / MPLS(label=6, s=1, ttl=20) / IPv6(**SIX),
    ]
    return found


@cache
def whole_frames() -> list[bytes]:
    """A few hundred frames whose headers are as they should be."""
    found = []
    for network in _networks():
        heads = [
            Ether(**ETHER),
            Ether(**ETHER) / Dot1Q(vlan=5, prio=3),
            Ether(**ETHER) / Dot1AD(vlan=9) / Dot1Q(vlan=4095),
        ]
        found += [bytes(head / network) for head in heads]
    tags = Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3)
    found += [bytes(Ether(**ETHER) / tags / IP(**FOUR) / UDP()), bytes(Ether(**ETHER, type=0x8035) / ARP(op=3))]
    for code in (0x0800, 0x86DD, 0x0806, 0x0500, 0x8847):
        inside = IPv6(**SIX) if code == 0x86DD else IP(**FOUR)
        found.append(bytes(Dot3(**ETHER) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=code) / inside / UDP()))
    found.append(bytes(Dot3(**ETHER) / LLC() / Raw(b"x" * 20)))
    found.append(bytes(Ether(**ETHER) / Dot1Q(vlan=1, type=40) / Raw(b"x" * 40)))
    return found


def damaged_frames(seed: int, n: int) -> list[bytes]:
    """``n`` frames, some of them whole; in others bytes of headers are changed, taken out or put in, or the end is cut."""
    rng = random.Random(seed)
    frames = whole_frames()
    return [_damage(rng, bytearray(rng.choice(frames))) for _ in range(n)]


def _damage(rng: random.Random, frame: bytearray) -> bytes:
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        at = rng.randrange(12, len(frame))
        how = rng.random()
        if how < 0.35:
            frame[at] = rng.choice((0, 1, 4, 6, 17, 44, 58, 0x45, 0x81, 0xFF, rng.randrange(256)))
        elif how < 0.65:
            frame[at] ^= 1 << rng.randrange(8)
        elif how < 0.8:
            del frame[max(14, at) :]
        elif how < 0.9:
            del frame[at]
        else:
            frame[at:at] = rng.randbytes(rng.randrange(1, 9))
        if len(frame) < 14:
            frame += bytes(14 - len(frame))
    return bytes(frame)
