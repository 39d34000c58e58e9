"""Where the outer headers of a frame are: the parse on the hot path.

Theory of operation
-------------------
``locate(frame, length, link, want)`` is put into the caller's loop by the compiler, and ``want`` is a constant: what is
not wanted folds away, down to one comparison of the length for a function that names ``eth`` only.  (Write it as
``np.int64(ETH | IPV4)``: a bare literal's type has its value, and numba would compile all of this anew for each.)  The
common case, Ethernet with IPv4 without options and not a fragment (and, where ``ipv6`` is wanted, IPv6 without
extension headers), is told inline with no loop and no memory.  Every other frame goes to :func:`walk`, out of line,
which knows the same behind one or two tags and else takes the same steps as :mod:`wirespeed.net.dissect`, up to where a
tunnel's inner frame begins.

The result is nine integers ``(layers, vlan, vlan2, mpls, l3, fragment6, l4, payload, end)``.  ``layers`` has the bit of
each wanted header whose fixed part is whole in the captured bytes, and wanted flags.  The others are offsets from
``frame``: of the first and second tag (its control information), the first MPLS label, the IP or ARP header, the IPv6
fragment header, the transport or GRE header (a VXLAN or Geneve header begins 8 bytes behind it).  An offset means
something only where ``layers`` has its bit.  ``payload`` is the first byte behind the last of all these headers, with
its options, and ``end`` the end of the IP datagram by its own length, never beyond ``length``; both are worked out when
``want`` has PAYLOAD, and 0 otherwise.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_be32, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net import layer
from wirespeed.net.dissect import step
from wirespeed.net.layer import (
    LAST_NETWORK,
    LAYER_BAD,
    LAYER_CUT,
    LAYER_FIRST_FRAGMENT,
    LAYER_LATER_FRAGMENT,
    MAX_LAYERS,
    NONE,
)
from wirespeed.net.link import LINKTYPE_ETHERNET, by_ethertype, first_kind
from wirespeed.net.protocol import (
    PORT_GENEVE,
    PORT_VXLAN,
    PORT_VXLAN_LINUX,
    PROTO_ICMP,
    PROTO_ICMPV6,
    PROTO_TCP,
    PROTO_UDP,
)

i64 = np.int64

ETH = 1 << 0
VLAN = 1 << 1
VLAN2 = 1 << 2
MPLS = 1 << 3
ARP = 1 << 4
IPV4 = 1 << 5
IPV6 = 1 << 6
FRAGMENT6 = 1 << 7
TCP = 1 << 8
UDP = 1 << 9
ICMP = 1 << 10
ICMPV6 = 1 << 11
SCTP = 1 << 12
GRE = 1 << 13
VXLAN = 1 << 14
GENEVE = 1 << 15
# Flags.
LATER_FRAGMENT = 1 << 16  # no transport header here: the middle or end of a datagram
FIRST_FRAGMENT = 1 << 17  # the transport header is here, the rest of the datagram is not
CUT = 1 << 18  # a header or the datagram was cut short
BAD = 1 << 19  # a header contradicts itself; nothing behind it is believed
PAYLOAD = 1 << 20  # only in ``want``: payload and end are wanted, whatever the headers are

EVERYTHING = np.int64((1 << 21) - 1)
TRANSPORT = TCP | UDP | ICMP | ICMPV6 | SCTP | GRE | VXLAN | GENEVE
FLAGS = LATER_FRAGMENT | FIRST_FRAGMENT | CUT | BAD

BITS = {
    "eth": ETH, "vlan": VLAN, "vlan2": VLAN2, "mpls": MPLS, "arp": ARP, "ipv4": IPV4, "ipv6": IPV6,
    "fragment": FRAGMENT6, "tcp": TCP, "udp": UDP, "icmp": ICMP, "icmpv6": ICMPV6, "sctp": SCTP, "gre": GRE,
    "vxlan": VXLAN, "geneve": GENEVE,
}  # fmt: skip
"""The bit of each header, by its attribute in ``HEADERS``."""

POSITION = {
    "vlan": 1, "vlan2": 2, "mpls": 3, "arp": 4, "ipv4": 4, "ipv6": 4, "fragment": 5, "tcp": 6, "udp": 6, "icmp": 6,
    "icmpv6": 6, "sctp": 6, "gre": 6, "vxlan": 6, "geneve": 6,
}  # fmt: skip
"""Where in :func:`locate`'s result a header's offset is; ``eth`` is always at 0.  SHIFT is to be added."""

SHIFT = {"vxlan": 8, "geneve": 8}
"""Bytes to be added to the offset that POSITION names: the size of the UDP header before it."""


def _bits() -> np.ndarray:
    """The bit of each kind of layer, 0 for those that have none."""
    bits = np.zeros(len(layer.NAMES), np.int64)
    for name, bit in BITS.items():
        if name != "vlan2":
            bits[layer.NAMES.index(name)] = bit
    return bits


KIND_BIT = _bits()


@kernel(inline=True)
def _transport(frame, at, end, protocol, want):
    """The plain transport header at ``at``: (its bit, its size), bit 0 when none is wanted, -1 to have it walked."""
    if want & (UDP | VXLAN | GENEVE | PAYLOAD | FLAGS) and protocol == PROTO_UDP:
        if end - at < 8:
            return i64(-1), i64(0)
        if want & (VXLAN | GENEVE | PAYLOAD | FLAGS):
            port = load_be16(frame + at + 2)
            if port == PORT_VXLAN or port == PORT_VXLAN_LINUX or port == PORT_GENEVE:
                return i64(-1), i64(0)
        if want & FLAGS and load_be16(frame + at + 4) < 8:
            return i64(-1), i64(0)
        return i64(UDP), i64(8)
    if want & (TCP | PAYLOAD | FLAGS) and protocol == PROTO_TCP:
        if end - at < 20:
            return i64(-1), i64(0)
        size = i64(20)
        if want & (PAYLOAD | FLAGS):
            size = i64(load_u8(frame + at + 12) >> 4) * 4
            if size < 20 or size > end - at:
                return i64(-1), i64(0)
        return i64(TCP), size
    if want & (ICMP | PAYLOAD | FLAGS) and protocol == PROTO_ICMP:
        return i64(ICMP) if end - at >= 8 else i64(-1), i64(8)
    if want & (ICMPV6 | PAYLOAD | FLAGS) and protocol == PROTO_ICMPV6:
        return i64(ICMPV6) if end - at >= 8 else i64(-1), i64(8)
    if want & (SCTP | GRE | PAYLOAD | FLAGS):
        return i64(-1), i64(0)
    return i64(0), i64(0)


@kernel(inline=True)
def _plain_ipv4(frame, at, length, want):
    """IPv4 at ``at``, without options: (layer bits, transport size, end); bits -1 to have the frame walked."""
    if not want & (TRANSPORT | FLAGS | PAYLOAD):
        return i64(ETH | IPV4), i64(0), i64(0)
    end = i64(load_be16(frame + at + 2)) + at
    if load_be16(frame + at + 6) & 0x3FFF or end > length or end < at + 20:  # a fragment, or a length to look into
        return i64(-1), i64(0), i64(0)
    bit, size = _transport(frame, at + 20, end, load_u8(frame + at + 9), want)
    return i64(ETH | IPV4) | bit, size, end


@kernel(inline=True)
def _plain_ipv6(frame, at, length, want):
    """IPv6 at ``at``, without extension headers, likewise."""
    if not want & (TRANSPORT | FLAGS | PAYLOAD | FRAGMENT6):
        return i64(ETH | IPV6), i64(0), i64(0)
    end = i64(load_be16(frame + at + 4)) + at + 40
    protocol = load_u8(frame + at + 6)
    known = protocol == PROTO_TCP or protocol == PROTO_UDP or protocol == PROTO_ICMPV6
    if not known or end == at + 40 or end > length:
        return i64(-1), i64(0), i64(0)
    bit, size = _transport(frame, at + 40, end, protocol, want)
    return i64(ETH | IPV6) | bit, size, end


@kernel(inline=True)
def _is_tag(number):
    return by_ethertype(number) == layer.VLAN


@kernel(inline=True)
def _tagged(frame, length):
    """A frame with one or two tags and plain IP behind them, as :func:`walk` returns it; bits -1 for any other."""
    none, at, vlan2, bits, size, end = i64(0), i64(18), i64(0), i64(-1), i64(0), i64(0)
    if length >= 42 and _is_tag(i64(load_be16(frame + 16))):
        at, vlan2 = i64(22), i64(18)
    protocol = i64(-1)
    if length >= at + 20 and load_be32(frame + at - 2) >> 8 == 0x080045:
        bits, size, end = _plain_ipv4(frame, at, length, EVERYTHING)
        protocol, size = i64(load_u8(frame + at + 9)), size + 20
    elif length >= at + 40 and load_be32(frame + at - 2) >> 12 == 0x86DD6:
        bits, size, end = _plain_ipv6(frame, at, length, EVERYTHING)
        protocol, size = i64(load_u8(frame + at + 6)), size + 40
    l4 = at + 20 if bits & IPV4 else at + 40
    bits |= VLAN | VLAN2 if vlan2 else VLAN
    return bits, i64(14), vlan2, none, at, none, l4, at + size, end, protocol


@kernel
def walk(frame, length, link):
    """All outer headers of any frame, step by step: :func:`locate`'s nine integers, and the IP protocol behind all
    extension headers (-1 where there is no IP)."""
    if link == LINKTYPE_ETHERNET and length >= 38 and _is_tag(i64(load_be16(frame + 12))):
        plain = _tagged(frame, length)
        if plain[0] >= 0:
            return plain
    layers, flags, n = i64(0), i64(0), i64(0)
    vlan, vlan2, mpls, l3, fragment6, l4, protocol = i64(0), i64(0), i64(0), i64(0), i64(0), i64(0), i64(-1)
    kind, at, end, datagram = first_kind(link, frame, length), i64(0), length, length
    while kind != NONE:
        if kind <= LAST_NETWORK and layers & (ARP | IPV4 | IPV6):
            break  # the inner frame of a tunnel
        if n == MAX_LAYERS:
            flags |= LAYER_BAD
            break
        size, after, stop, found = step(kind, frame, at, end)
        flags |= found
        if size == 0:
            break
        bit = KIND_BIT[kind]
        if bit == VLAN and layers & VLAN:
            bit = i64(0) if layers & VLAN2 else i64(VLAN2)
            vlan2 = at if bit else vlan2
        elif bit == VLAN:
            vlan = at
        elif bit == MPLS:
            mpls = mpls if layers & MPLS else at
        elif bit & (ARP | IPV4 | IPV6):
            l3 = at
        elif bit == FRAGMENT6:
            fragment6 = at
        elif bit & (TRANSPORT & ~(VXLAN | GENEVE)):
            l4 = at
        layers |= bit
        if kind == layer.IPV4:
            protocol = i64(load_u8(frame + at + 9))
        elif kind == layer.IPV6:
            protocol = i64(load_u8(frame + at + 6))
        elif layer.HOPOPTS <= kind < layer.ESP:
            protocol = i64(load_u8(frame + at))
        if kind < layer.TCP:
            datagram = stop
        at, end, kind = min(at + size, end), stop, after
        n += 1
    if flags & LAYER_CUT:
        layers |= CUT
    if flags & LAYER_BAD:
        layers |= BAD
    if flags & LAYER_FIRST_FRAGMENT:
        layers |= FIRST_FRAGMENT
    if flags & LAYER_LATER_FRAGMENT:
        layers |= LATER_FRAGMENT
    return layers, vlan, vlan2, mpls, l3, fragment6, l4, at, datagram, protocol


@kernel(inline=True)
def find(frame, length, link, want):
    """:func:`locate`'s nine integers and a tenth, the IP protocol behind all extension headers or -1."""
    frame, length, link, none = i64(frame), i64(length), i64(link), i64(0)
    if not want & ~ETH:
        found = i64(ETH) if link == LINKTYPE_ETHERNET and length >= 14 else none
        return found & want, none, none, none, none, none, none, none, none, i64(-1)
    if link == LINKTYPE_ETHERNET and length >= 34:
        if load_be32(frame + 12) >> 8 == 0x080045:
            bits, size, end = _plain_ipv4(frame, i64(14), length, want)
            if bits >= 0:
                return bits & want, none, none, none, i64(14), none, i64(34), 34 + size, end, i64(load_u8(frame + 23))
        if want & IPV6 and length >= 54 and load_be32(frame + 12) >> 12 == 0x86DD6:
            bits, size, end = _plain_ipv6(frame, i64(14), length, want)
            if bits >= 0:
                return bits & want, none, none, none, i64(14), none, i64(54), 54 + size, end, i64(load_u8(frame + 20))
    bits, vlan, vlan2, mpls, l3, fragment6, l4, payload, end, protocol = walk(frame, length, link)
    return bits & want, vlan, vlan2, mpls, l3, fragment6, l4, payload, end, protocol


@kernel(inline=True)
def locate(frame, length, link, want):
    """Find the headers that ``want``, a constant, has bits of; see the module's docstring for the nine integers."""
    bits, vlan, vlan2, mpls, l3, fragment6, l4, payload, end, _ = find(frame, length, link, want)
    if not want & PAYLOAD:
        payload, end = i64(0), i64(0)
    return bits, vlan, vlan2, mpls, l3, fragment6, l4, payload, end
