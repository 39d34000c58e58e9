"""Steps over the network layer: ARP, IPv4, IPv6 and its extension headers.

*Source:* RFC 826, RFC 791, RFC 8200, RFC 2675 (jumbograms), RFC 4302 (AH); for the extension headers that there are,
IANA's "IPv6 Extension Header Types".
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_be32, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.layer import (
    AH,
    DSTOPTS,
    ESP,
    FRAGMENT,
    GRE,
    HIP,
    HOPOPTS,
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    LAYER_BAD,
    LAYER_CUT,
    LAYER_FIRST_FRAGMENT,
    LAYER_LATER_FRAGMENT,
    MOBILITY,
    MPLS,
    NONE,
    ROUTING,
    SCTP,
    SHIM6,
    TCP,
    UDP,
)
from wirespeed.net.protocol import (
    PROTO_AH,
    PROTO_DSTOPTS,
    PROTO_ESP,
    PROTO_FRAGMENT,
    PROTO_GRE,
    PROTO_HIP,
    PROTO_HOPOPTS,
    PROTO_ICMP,
    PROTO_ICMPV6,
    PROTO_IPIP,
    PROTO_IPV6,
    PROTO_MOBILITY,
    PROTO_MPLS,
    PROTO_NONE,
    PROTO_ROUTING,
    PROTO_SCTP,
    PROTO_SHIM6,
    PROTO_TCP,
    PROTO_UDP,
)

i64 = np.int64
JUMBO_OPTION = 0xC2  # RFC 2675, 2


def _by_protocol(extensions: bool) -> np.ndarray:
    """The kind of header for each IP protocol number, with or without those that exist in IPv6 only."""
    kinds = np.zeros(256, np.uint8)
    known = {
        PROTO_ICMP: ICMP, PROTO_IPIP: IPV4, PROTO_TCP: TCP, PROTO_UDP: UDP, PROTO_IPV6: IPV6, PROTO_GRE: GRE,
        PROTO_ESP: ESP, PROTO_AH: AH, PROTO_ICMPV6: ICMPV6, PROTO_SCTP: SCTP, PROTO_MPLS: MPLS,
    }  # fmt: skip
    if extensions:
        known |= {PROTO_ROUTING: ROUTING, PROTO_FRAGMENT: FRAGMENT, PROTO_DSTOPTS: DSTOPTS, PROTO_MOBILITY: MOBILITY,
                  PROTO_HIP: HIP, PROTO_SHIM6: SHIM6}  # fmt: skip
    for number, kind in known.items():
        kinds[number] = kind
    return kinds


# Hop-by-hop options are in neither: they stand directly behind the IPv6 header or nowhere (RFC 8200, 4.1).
AFTER_IPV4 = _by_protocol(False)
AFTER_IPV6 = _by_protocol(True)


@kernel(inline=True)
def arp(frame, at, end):
    """ARP between Ethernet and IPv4 addresses; any other kind is not whole, for its fields lie elsewhere."""
    if end - at < 28:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    # Hardware type 1 and EtherType 0800, with addresses of 6 and 4 bytes; ATM's form has other fields at these places.
    if load_be32(frame + at) != 0x0001_0800 or load_be16(frame + at + 4) != 0x0604:
        return i64(0), i64(NONE), end, i64(0)
    return i64(28), i64(NONE), end, i64(0)


@kernel(inline=True)
def ipv4(frame, at, end):
    """IPv4 with its options.  A total length of 0 is a frame that is yet to be segmented: it goes to the end."""
    if end - at < 20:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    first = i64(load_u8(frame + at))
    if first < 0x45 or first > 0x4F:
        return i64(0), i64(NONE), end, i64(LAYER_BAD)
    size = 4 * (first & 15)
    total = i64(load_be16(frame + at + 2))
    if 0 < total < size:
        return size, i64(NONE), min(at + size, end), i64(LAYER_BAD)
    flags = i64(0)
    if total == 0:
        total = end - at
    if total > end - at:
        flags = i64(LAYER_CUT)
        total = end - at
    if size > total:
        return size, i64(NONE), end, i64(LAYER_CUT)
    fragment = i64(load_be16(frame + at + 6))
    if fragment & 0x1FFF:
        return size, i64(NONE), at + total, flags | LAYER_LATER_FRAGMENT
    if fragment & 0x2000:
        flags |= LAYER_FIRST_FRAGMENT
    return size, i64(AFTER_IPV4[i64(load_u8(frame + at + 9))]), at + total, flags


@kernel(inline=True)
def ipv6(frame, at, end):
    """IPv6.  A payload length of 0 says that a jumbo option, or else the end of the frame, tells the length."""
    if end - at < 40:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    if load_u8(frame + at) >> 4 != 6:
        return i64(0), i64(NONE), end, i64(LAYER_BAD)
    flags = i64(0)
    room = end - at - 40
    payload = i64(load_be16(frame + at + 4))
    protocol = i64(load_u8(frame + at + 6))
    if payload == 0 and protocol != PROTO_NONE:
        payload = room
    if payload > room:
        flags = i64(LAYER_CUT)
        payload = room
    after = i64(HOPOPTS) if protocol == PROTO_HOPOPTS else i64(AFTER_IPV6[protocol])
    return i64(40), after, at + 40 + payload, flags


@kernel(inline=True)
def _after_extension(protocol):
    """The kind behind an extension header, and a flag when it may not stand there."""
    if protocol == PROTO_HOPOPTS:
        return i64(NONE), i64(LAYER_BAD)
    return i64(AFTER_IPV6[protocol]), i64(0)


@kernel(inline=True)
def extension(frame, at, end):
    """An extension header of the common form: next header, length in 8 bytes beyond the first 8 (RFC 6564)."""
    if end - at < 8:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    size = 8 * (i64(load_u8(frame + at + 1)) + 1)
    if size > end - at:
        return size, i64(NONE), end, i64(LAYER_CUT)
    after, flags = _after_extension(i64(load_u8(frame + at)))
    return size, after, end, flags


@kernel(inline=True)
def find_option(frame, at, stop, wanted, size):
    """The offset of the data of the option ``wanted``, of ``size`` bytes, among options up to ``stop``; 0 for none."""
    while at + 1 < stop:
        option = load_u8(frame + at)
        if option == 0:  # Pad1, the one option without a length
            at += 1
            continue
        length = i64(load_u8(frame + at + 1))
        if option == wanted and length == size and at + 2 + size <= stop:
            return at + 2
        at += 2 + length
    return i64(0)


@kernel(inline=True)
def hopopts(frame, at, end):
    """Hop-by-hop options.  They are reached from an IPv6 header only, whose payload length stands 36 bytes before."""
    size, after, end, flags = extension(frame, at, end)
    if 0 < size <= end - at and load_be16(frame + at - 36) == 0:
        place = find_option(frame, at + 2, at + size, i64(JUMBO_OPTION), i64(4))
        length = i64(load_be32(frame + place)) if place else i64(0)
        if 0 < length < size:
            return size, i64(NONE), at + size, i64(LAYER_BAD)
        if length > end - at:
            flags |= LAYER_CUT
        elif length > 0:
            end = at + length
    return size, after, end, flags


@kernel(inline=True)
def fragment(frame, at, end):
    """The IPv6 fragment header.  One with offset 0 and none to follow is atomic: no fragment (RFC 6946)."""
    if end - at < 8:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    place = load_be16(frame + at + 2)
    if place >> 3:
        return i64(8), i64(NONE), end, i64(LAYER_LATER_FRAGMENT)
    after, flags = _after_extension(i64(load_u8(frame + at)))
    if place & 1:
        flags |= LAYER_FIRST_FRAGMENT
    return i64(8), after, end, flags


@kernel(inline=True)
def authentication(frame, at, end):
    """The authentication header, whose length counts words of 4 bytes beyond the first two (RFC 4302, 2.2)."""
    if end - at < 12:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    size = 4 * (i64(load_u8(frame + at + 1)) + 2)
    if size < 12:
        return i64(0), i64(NONE), end, i64(LAYER_BAD)
    if size > end - at:
        return size, i64(NONE), end, i64(LAYER_CUT)
    after, flags = _after_extension(i64(load_u8(frame + at)))
    return size, after, end, flags
