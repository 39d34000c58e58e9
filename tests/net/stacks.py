"""Random stacks of headers for tests, built by scapy, each with the names and sizes that a parser should find."""

import random
from typing import Any

from scapy.all import (
    ARP,
    GRE,
    ICMP,
    IP,
    LLC,
    SNAP,
    TCP,
    UDP,
    CookedLinux,
    Dot1AD,
    Dot1Q,
    Ether,
    ICMPv6EchoRequest,
    IPOption_NOP,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PPPoE,
    Raw,
)
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.ppp import PPP
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN

Stack = list[tuple[str, Any]]  # name as the parser has it, and scapy's layer

OUTERMOST = 2
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")  # with a destination, or scapy asks the network for one
IN_IP = ("tcp", "udp", "icmp", "sctp", "gre", "vxlan", "geneve", "ipip", "raw")


def address4(generator: random.Random) -> str:
    return f"10.{generator.randrange(256)}.{generator.randrange(256)}.{generator.randrange(1, 255)}"


def address6(generator: random.Random) -> str:
    return f"fd00::{generator.randrange(0x10000):x}:{generator.randrange(1, 0x10000):x}"


def ipv4(generator: random.Random) -> Stack:
    options = [IPOption_NOP()] * generator.choice([0, 0, 0, 4, 8, 40])
    return [("ipv4", IP(src=address4(generator), dst=address4(generator), options=options))]


def ipv6(generator: random.Random) -> Stack:
    extensions: dict[str, Any] = {
        "routing": lambda: IPv6ExtHdrRouting(addresses=[address6(generator)] * generator.randrange(3)),
        "dstopts": lambda: IPv6ExtHdrDestOpt(),
        "fragment": lambda: IPv6ExtHdrFragment(id=generator.randrange(1 << 32)),  # an atomic one
    }
    stack: Stack = [("ipv6", IPv6(src=address6(generator), dst=address6(generator)))]
    if generator.random() < 0.2:
        stack.append(("hopopts", IPv6ExtHdrHopByHop()))
    names = generator.sample(sorted(extensions), generator.choice([0, 0, 0, 1, 2, 3]))
    return stack + [(name, extensions[name]()) for name in names]


def transport(generator: random.Random, six: bool, depth: int) -> Stack:
    kind = generator.choice(IN_IP if depth else IN_IP[:4])
    port = generator.randrange(10000, 60000)
    if kind == "tcp":
        options = [("NOP", None)] * generator.choice([0, 0, 4, 12, 40])
        return [("tcp", TCP(sport=port, dport=80, options=options))]
    if kind == "icmp":
        return [("icmpv6", ICMPv6EchoRequest())] if six else [("icmp", ICMP())]
    if kind == "sctp":
        return [("sctp", SCTP(sport=port, dport=9))]
    if kind == "gre":
        flags = {name: generator.randrange(2) for name in ("chksum_present", "key_present", "seqnum_present")}
        inner = generator.choice(["eth", "ip"])
        header = GRE(proto=0x6558, **flags) if inner == "eth" else GRE(**flags)
        return [("gre", header)] + (frame(generator, depth - 1) if inner == "eth" else network(generator, depth - 1))
    if kind == "vxlan":
        return [("udp", UDP(sport=port, dport=4789)), ("vxlan", VXLAN(vni=generator.randrange(1 << 24)))] + frame(
            generator, depth - 1
        )
    if kind == "geneve":
        header = GENEVE(proto=0x6558, vni=generator.randrange(1 << 24), options=[])
        return [("udp", UDP(sport=port, dport=6081)), ("geneve", header)] + frame(generator, depth - 1)
    if kind == "ipip":
        return network(generator, depth - 1)
    return [("udp", UDP(sport=port, dport=53))]


def network(generator: random.Random, depth: int) -> Stack:
    six = generator.random() < 0.4
    return (ipv6(generator) if six else ipv4(generator)) + transport(generator, six, depth)


def frame(generator: random.Random, depth: int = OUTERMOST) -> Stack:
    """An Ethernet frame, with up to ``depth`` tunnels."""
    stack: Stack = [("eth", ETHER.copy())]
    for _ in range(generator.choice([0, 0, 0, 1, 1, 2, 3])):
        tag = generator.choice([Dot1Q, Dot1AD])
        stack.append(("vlan", tag(vlan=generator.randrange(4096), prio=generator.randrange(8))))
    what = generator.random()
    if what < 0.1:
        return stack + [("arp", ARP())]
    if what < 0.2:
        return stack + [("pppoe", PPPoE()), ("ppp", PPP())] + network(generator, depth)
    if what < 0.3:
        labels = generator.randrange(1, 4)
        stack += [("mpls", MPLS(label=16 + i, s=int(i == labels - 1), ttl=64)) for i in range(labels)]
        return stack + network(generator, depth)
    if what < 0.35 and len(stack) == 1 and depth == OUTERMOST:  # assembled() fills the length of this one only
        return [("eth", Ether(dst=ETHER.dst, src=ETHER.src, type=0)), ("llc", LLC()), ("snap", SNAP())] + network(
            generator, depth
        )
    return stack + network(generator, depth)


def cooked(generator: random.Random) -> Stack:
    return [("sll", CookedLinux())] + network(generator, 1)


def assembled(stack: Stack, payload: bytes = b"payload") -> bytes:
    """The bytes of a stack; an 802.3 frame gets its length."""
    packet: Any = None
    for _, header in stack:
        packet = header.copy() if packet is None else packet / header.copy()
    data = bytes(packet / Raw(payload))
    if len(stack) > 1 and stack[1][0] == "llc":
        data = data[:12] + (len(data) - 14).to_bytes(2, "big") + data[14:]
    return data
