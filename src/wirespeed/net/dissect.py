"""The full parse: every header of a frame, through all its tunnels, as a list of bounded length.

*Theory of operation.*  :func:`step` is the one place that knows which header is parsed by which kernel; a walk calls it
until nothing follows.  What a header's own length leaves out, such as padding, is never looked at, and
nothing is read beyond the captured bytes, for each step is given the end that the header around it left.
"""

from typing import NamedTuple

import numpy as np

from wirespeed.jit.kernel import kernel
from wirespeed.net.internet import arp, authentication, extension, fragment, hopopts, ipv4, ipv6
from wirespeed.net.layer import (
    AH,
    ARP,
    ESP,
    ETH,
    FRAGMENT,
    GENEVE,
    GRE,
    HOPOPTS,
    IPV4,
    IPV6,
    LAYER_BAD,
    LLC,
    MAX_LAYERS,
    MPLS,
    NAMES,
    NONE,
    PPP,
    PPPOE,
    SCTP,
    SLL,
    SLL2,
    SNAP,
    TCP,
    UDP,
    VLAN,
    VXLAN,
    Layer,
)
from wirespeed.net.link import cooked, first_kind, llc, loopback, mpls, ppp, pppoe, snap, typed
from wirespeed.net.transport import fixed, geneve, gre, tcp, udp

i64 = np.int64
LAYER = Layer.size


@kernel(inline=True)
def link_step(kind, frame, at, end):
    """The step over a header of the link layer."""
    if kind == ETH or kind == VLAN:
        return typed(frame, at, end, i64(14) if kind == ETH else i64(4))
    if kind == MPLS:
        return mpls(frame, at, end)
    if kind == PPPOE:
        return pppoe(frame, at, end)
    if kind == PPP:
        return ppp(frame, at, end)
    if kind == LLC:
        return llc(frame, at, end)
    if kind == SNAP:
        return snap(frame, at, end)
    if kind == SLL or kind == SLL2:
        return cooked(frame, at, end, i64(16) if kind == SLL else i64(20), i64(14) if kind == SLL else i64(0))
    return loopback(frame, at, end)  # NULL and LOOP


@kernel(inline=True)
def network_step(kind, frame, at, end):
    """The step over a header of the network layer."""
    if kind == IPV4:
        return ipv4(frame, at, end)
    if kind == IPV6:
        return ipv6(frame, at, end)
    if kind == ARP:
        return arp(frame, at, end)
    if kind == HOPOPTS:
        return hopopts(frame, at, end)
    if kind == FRAGMENT:
        return fragment(frame, at, end)
    if kind == AH:
        return authentication(frame, at, end)
    return extension(frame, at, end)


@kernel(inline=True)
def step(kind, frame, at, end):
    """The step over a header of any kind."""
    if kind < ARP:
        return link_step(kind, frame, at, end)
    if kind < ESP:
        return network_step(kind, frame, at, end)
    if kind == TCP:
        return tcp(frame, at, end)
    if kind == UDP:
        return udp(frame, at, end)
    if kind == GRE:
        return gre(frame, at, end)
    if kind == GENEVE:
        return geneve(frame, at, end)
    # VXLAN carries Ethernet; SCTP has 12 bytes; ICMP, ICMPv6 and ESP have 8.
    return fixed(at, end, i64(12) if kind == SCTP else i64(8), i64(ETH) if kind == VXLAN else i64(NONE))


@kernel
def dissect(frame, length, link, out, room):
    """Write a :data:`Layer` for each header of the ``length`` bytes at ``frame`` to ``out``; return how many.

    At most ``room`` are written, and never more than MAX_LAYERS looked at; the last of so many is flagged LAYER_BAD
    when another would follow.
    """
    kind, at, end, n = first_kind(link, frame, length), i64(0), length, i64(0)
    while kind != NONE and n < room:
        size, after, stop, flags = step(kind, frame, at, end)
        if n + 1 == MAX_LAYERS and after != NONE:
            after, flags = i64(NONE), flags | LAYER_BAD
        layer = Layer(out + LAYER * n)
        layer.kind = kind
        layer.whole = size > 0
        layer.flags = flags
        layer.offset = at
        layer.length = size if size > 0 else max(end - at, i64(0))
        layer.end = stop
        n += 1
        kind, at, end = after, at + size, stop
    return n


class Header(NamedTuple):
    """One header of a frame, as :func:`layers` lists them."""

    name: str
    offset: int
    length: int
    end: int
    whole: bool
    flags: int


def layers(frame: bytes, link: int = 1) -> list[Header]:
    """Every header of a frame, tunnels included; ``link`` is the link type (LINKTYPE_*) of its first one."""
    data = np.frombuffer(frame, np.uint8) if frame else np.zeros(1, np.uint8)
    out = np.zeros(MAX_LAYERS, Layer.dtype)
    n = dissect(data.ctypes.data, len(frame), link, out.ctypes.data, MAX_LAYERS)
    return [
        Header(NAMES[r["kind"]], int(r["offset"]), int(r["length"]), int(r["end"]), bool(r["whole"]), int(r["flags"]))
        for r in out[:n]
    ]
