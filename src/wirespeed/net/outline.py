"""Where the headers of one packet are up to the transport header whose checksum is still to be computed.

Theory of operation
-------------------
A packet with flag PARTIAL says where the sum of its checksum begins.  :func:`outline` walks over the headers as they
are now (tags, tunnels and addresses may have been changed on the way), finds the transport header that begins there,
and the IP header around it, from which the pseudo header is made.  When none begins there (bytes were put to the end
of the packet or cut off it since), it is the innermost one whose checksum field is where the packet says.

Headers that lie in several segments are copied into the outline first; more than HEADERS bytes of them are not looked at.
"""

import numpy as np

from wirespeed.core.chain import read
from wirespeed.core.packet import Packet
from wirespeed.jit.intrinsics import load_be16, load_be32, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import pseudo_ipv4, pseudo_ipv6
from wirespeed.net.dissect import dissect
from wirespeed.net.internet import JUMBO_OPTION, find_option
from wirespeed.net.layer import (
    IPV4,
    IPV6,
    LAYER_BAD,
    LAYER_FIRST_FRAGMENT,
    MAX_LAYERS,
    ROUTING,
    SCTP,
    TCP,
    UDP,
    Layer,
)
from wirespeed.net.protocol import PROTO_SCTP, PROTO_TCP, PROTO_UDP

i64 = np.int64
HEADERS = 512
ANYWHERE = -1  # for ``start``: the transport header is not known yet, and is the outermost one
LAYER = Layer.size
# Types of routing header: those with a list of addresses in their order, and one where it is written backwards.
SOURCE_ROUTE, MOBILE_ROUTE, SEGMENT_ROUTING = 0, 2, 4  # RFC 2460, RFC 6275, RFC 8754

Outline = layout(
    "Outline",
    [
        ("head", "i8"),  # address of the packet's first bytes, in it or below
        ("known", "i8"),  # how many of them there are
        ("count", "i8"),  # layers up to the transport header
        ("l3", "i8"),  # offset of the IP header around it,
        ("version", "i8"),  # 4 or 6
        ("l4", "i8"),  # offset of the transport header,
        ("kind", "i8"),  # TCP, UDP or SCTP of wirespeed.net.layer
        ("payload", "i8"),  # of the first byte behind it,
        ("end", "i8"),  # and of the end of what it carries
        (None, 56),
        ("layers", "u8", MAX_LAYERS * LAYER // 8),
        ("buffer", "u8", HEADERS // 8),
    ],
)
OUTLINE = Outline.size
assert OUTLINE == 1152  # kernels write it as a literal: stack(1152)


@kernel(inline=True)
def field_place(kind):
    """Where a transport header has its checksum."""
    return i64(16) if kind == TCP else i64(6) if kind == UDP else i64(8)


@kernel(inline=True)
def _is_transport(kind):
    return kind == TCP or kind == UDP or kind == SCTP


@kernel
def _choose(o, n, start, place):
    """Find the transport header among ``n`` layers; whether there is one that is whole and no fragment's."""
    l3, version, fragment = i64(-1), i64(0), False
    found = False
    for i in range(n):
        layer = Layer(o.layers + LAYER * i)
        kind, offset = i64(layer.kind), i64(layer.offset)
        if kind == IPV4 or kind == IPV6:
            l3, version, fragment = offset, i64(4) if kind == IPV4 else i64(6), False
        if layer.flags & LAYER_FIRST_FRAGMENT:
            fragment = True
        if not _is_transport(kind) or l3 < 0:
            continue
        exact = offset == start
        fits = start == ANYWHERE or field_place(kind) == place
        if not fits and exact:
            return False
        if not fits:
            continue
        if layer.whole == 0 or layer.flags & LAYER_BAD or fragment or offset + i64(layer.length) > o.known:
            if exact:
                return False
            continue
        found = True
        o.count = i + 1
        o.l3, o.version, o.l4, o.kind, o.payload = l3, version, offset, kind, offset + i64(layer.length)
        if exact or start == ANYWHERE:
            break
    return found


@kernel(inline=True)
def jumbo_length(o):
    """The length that a jumbo option of the IPv6 header gives, or 0; the option's offset comes with it."""
    at = o.l3 + 40
    # Bounds: a transport header lies behind, so the bytes of the options header are among those known.
    if load_u8(o.head + o.l3 + 6) != 0:
        return i64(0), i64(0)
    stop = at + 8 * (i64(load_u8(o.head + at + 1)) + 1)
    place = find_option(o.head, at + 2, min(stop, o.l4), i64(JUMBO_OPTION), i64(4))
    return (i64(load_be32(o.head + place)) if place else i64(0)), place


@kernel
def _datagram_end(o, total):
    """Where the IP datagram ends by its own length; -1 where that is not in the packet."""
    if o.version == 4:
        length = i64(load_be16(o.head + o.l3 + 2))
        end = o.l3 + length if length else total
    else:
        length = i64(load_be16(o.head + o.l3 + 4))
        if length == 0:
            length = jumbo_length(o)[0]
        end = o.l3 + 40 + length if length else total
    return end if o.payload <= end <= total else i64(-1)


@kernel
def _transport_end(o, total):
    """Where the transport's data ends; -1 where the lengths contradict each other."""
    end = _datagram_end(o, total)
    if o.kind == UDP and end >= 0:
        length = i64(load_be16(o.head + o.l4 + 4))
        if length:
            end = o.l4 + length if 8 <= length <= end - o.l4 else i64(-1)
    return end


@kernel
def outline(handle, o, start, place, whole):
    """Fill an :data:`Outline`; whether the packet has a transport header that fits.

    ``start`` is the offset at which its sum begins, or ANYWHERE, and ``place`` from there to its field.  With ``whole``
    its data ends with the packet, whatever the lengths in its headers: those of what is to be cut may say anything.
    """
    p = Packet(handle)
    total = i64(p.total)
    o.known = min(total, i64(HEADERS))
    if i64(p.length) < o.known:
        o.head = read(handle, i64(0), o.known, o.buffer)
    else:
        o.head = p.buffer + i64(p.data)
    n = dissect(o.head, o.known, i64(p.link), o.layers, i64(MAX_LAYERS))
    if not _choose(o, n, start, place):
        return False
    o.end = total if whole else _transport_end(o, total)
    return o.end >= 0


@kernel
def _destination(o):
    """The address of the IPv6 destination that counts: the last one of a routing header that is not done with."""
    for i in range(o.count):
        layer = Layer(o.layers + LAYER * i)
        at = i64(layer.offset)
        if at < o.l3 or layer.kind != ROUTING or load_u8(o.head + at + 3) == 0:
            continue
        words, kind = i64(load_u8(o.head + at + 1)), load_u8(o.head + at + 2)
        # Bounds: the header is whole, for the transport header was found behind it.
        if words >= 2 and kind == SEGMENT_ROUTING:
            return o.head + at + 8
        if words >= 2 and (kind == SOURCE_ROUTE or kind == MOBILE_ROUTE):
            return o.head + at + 8 + 16 * (words // 2 - 1)
    return o.head + o.l3 + 24


@kernel
def pseudo_sum(o, size):
    """The machine's sum of the pseudo header for ``size`` bytes from the transport header on."""
    protocol = i64(PROTO_TCP) if o.kind == TCP else i64(PROTO_UDP) if o.kind == UDP else i64(PROTO_SCTP)
    ip = o.head + o.l3
    if o.version == 4:
        return pseudo_ipv4(ip, protocol, size)
    return pseudo_ipv6(ip + 8, _destination(o), protocol, size)
