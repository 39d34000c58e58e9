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
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    LAYER_BAD,
    LLC,
    LOOP,
    MAX_LAYERS,
    MPLS,
    NAMES,
    NONE,
    NULL,
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
from wirespeed.net.link import eth, first_kind, llc, loop, mpls, null, ppp, pppoe, sll, sll2, snap, vlan
from wirespeed.net.transport import fixed, geneve, gre, tcp, udp, vxlan

i64 = np.int64
LAYER = Layer.size


@kernel(inline=True)
def link_step(kind, frame, at, end):
    """The step over a header of the link layer."""
    if kind == ETH:
        return eth(frame, at, end)
    if kind == VLAN:
        return vlan(frame, at, end)
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
    if kind == NULL:
        return null(frame, at, end)
    if kind == LOOP:
        return loop(frame, at, end)
    if kind == SLL:
        return sll(frame, at, end)
    return sll2(frame, at, end)


@kernel(inline=True)
def step(kind, frame, at, end):
    """The step over a header of any kind."""
    if kind < ARP:
        return link_step(kind, frame, at, end)
    if kind == ARP:
        return arp(frame, at, end)
    if kind == IPV4:
        return ipv4(frame, at, end)
    if kind == IPV6:
        return ipv6(frame, at, end)
    if kind == HOPOPTS:
        return hopopts(frame, at, end)
    if kind == FRAGMENT:
        return fragment(frame, at, end)
    if kind == AH:
        return authentication(frame, at, end)
    if kind < ESP:
        return extension(frame, at, end)
    if kind == TCP:
        return tcp(frame, at, end)
    if kind == UDP:
        return udp(frame, at, end)
    if kind == GRE:
        return gre(frame, at, end)
    if kind == VXLAN:
        return vxlan(frame, at, end)
    if kind == GENEVE:
        return geneve(frame, at, end)
    return fixed(at, end, 12 if kind == SCTP else 8)  # SCTP; ICMP, ICMPv6 and ESP


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
