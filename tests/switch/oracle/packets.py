"""Packets for the cases written by hand: a kind, and what is to be unlike the ordinary."""

import ipaddress
from typing import Any

from tests.switch.oracle import frames
from tests.switch.oracle.case import Send
from tests.switch.oracle.fields import KINDS

A, B, C, D = (f"02:00:00:00:00:0{n}" for n in "abcd")
BROADCAST = "ff:ff:ff:ff:ff:ff"

ORDINARY: dict[str, Any] = {
    "dl_src": A,
    "dl_dst": B,
    "nw_src": "10.0.0.1",
    "nw_dst": "10.0.0.2",
    "ipv6_src": "fd00::1",
    "ipv6_dst": "fd00::2",
    "arp_spa": "10.0.0.1",
    "arp_tpa": "10.0.0.2",
    "arp_sha": A,
    "nd_target": "fd00::2",
    "tp_src": 1000,
    "tp_dst": 80,
    "tcp_flags": 0x010,
    "nw_ttl": 64,
    "payload": 12,
}
OPAQUE = 0x88B6  # a local experimental EtherType


def frame(kind: str = "udp", *, vlan: int | None = None, inner: int | None = None, **numbers: Any) -> bytes:
    """A frame.  ``vlan`` and ``inner`` are the TCIs of a tag and of the one behind it; addresses are text or numbers."""
    ethertype, protocol = KINDS[kind]
    flow = {"dl_type": OPAQUE if ethertype is None else ethertype, "nw_proto": 61 if protocol is None else protocol}
    if kind == "icmp":
        flow |= {"tp_src": 8, "tp_dst": 0}
    if kind == "icmp6":
        flow |= {"tp_src": 135, "tp_dst": 0}
    if vlan is not None:
        flow |= {"tpid": 0x8100, "tci": vlan}
    if inner is not None:
        flow |= {"tpid": 0x88A8, "inner_tpid": 0x8100, "inner_tci": inner}
    return frames.build({name: number(value) for name, value in {**ORDINARY, **flow, **numbers}.items()})


def packet(kind: str = "udp", at: int = 1, **numbers: Any) -> Send:
    """The same, coming in at a port."""
    return Send(at, frame(kind, **numbers))


def number(value: int | str) -> int:
    """The number that a MAC, an IPv4 or an IPv6 address is."""
    if isinstance(value, int):
        return value
    if value.count(":") == 5 and all(len(part) == 2 for part in value.split(":")):
        return int(value.replace(":", ""), 16)
    return int(ipaddress.ip_address(value))
