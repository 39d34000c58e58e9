"""Where the headers of a frame are, for who changes them: one walk, as that by which its flow was made.

Theory of operation
-------------------
The walk goes by the same rules as :mod:`wirespeed.switch.extract`: what has no fields in the flow is not found here.
All offsets that it gives, and the bytes that it says are there, lie within the first segment.
"""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet, data
from wirespeed.jit.intrinsics import load_be16, load_be32, load_be64, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.switch.extract import AH, DSTOPTS, FRAGMENT, HOPOPTS, MOST_HEADERS, NO_ETH_TYPE, ROUTING, is_tag
from wirespeed.switch.fields import IP, IPV6

i64, u64 = np.int64, np.uint64
_SNAP = u64(0xAAAA03000000)

Headers = layout(
    "SwitchHeaders",
    [
        ("frame", "i8"),  # address of the first byte
        ("length", "i8"),  # bytes of the first segment
        ("whole", "i8"),  # bytes of the packet
        ("kind", "i8"),  # type of what is at ``net``
        ("net", "i8"),  # offset of what is behind the tags
        ("proto", "i8"),  # of an IP packet that is whole so far; of 0, Open vSwitch takes it for none
        ("l4", "i8"),  # offset of the transport header,
        ("room", "i8"),  # how many of its bytes are in the first segment: 0 for later fragments,
        ("size", "i8"),  # and how many there are by IP's length
        ("version", "i8"),  # 4 or 6, of an IP packet that is whole so far; else 0
        ("routed", "i8"),  # whether a routing header holds the destination that the checksum covers
        (None, 40),
    ],
)
HEADERS = Headers.size
assert HEADERS == 128


@kernel(inline=True)
def network(frame, length):
    """(type, offset) of what is behind at most two tags, of 14 bytes and more."""
    kind, at = i64(load_be16(frame + 12)), i64(14)
    # Bounds: four bytes are there before they are read.
    if is_tag(kind) and length >= at + 4:
        kind, at = i64(load_be16(frame + at + 2)), at + 4
        if is_tag(kind) and length >= at + 4:
            kind, at = i64(load_be16(frame + at + 2)), at + 4
    if kind < 0x600:
        named = length - at >= 8 and load_be64(frame + at) >> u64(16) == _SNAP
        kind, at = (i64(load_be16(frame + at + 6)), at + 8) if named else (i64(NO_ETH_TYPE), at)
        if kind < 0x600:
            kind = i64(NO_ETH_TYPE)
    return kind, at


@kernel(inline=True)
def whole_of(p):
    """How long a packet is as far as IP can tell."""
    whole = i64(p.total)
    return i64(0xFFFF) if whole > 0xFFFF and not p.flags & PARTIAL else whole


@kernel
def _ipv4(h):
    frame, at = h.frame, h.net
    if h.length - at < 20:
        return
    header = 4 * i64(load_u8(frame + at) & 15)
    total = i64(load_be16(frame + at + 2))
    if total == 0 and h.whole > 0xFFFF:
        total = h.whole - at
    if header < 20 or h.length - at < header or total > h.whole - at or header > total:
        return
    h.version, h.proto, h.l4 = 4, i64(load_u8(frame + at + 9)), at + header
    if not load_be16(frame + at + 6) & 0x1FFF:
        h.size = total - header
        h.room = min(at + total, h.length) - h.l4


@kernel
def _ipv6(h):
    frame, at = h.frame, h.net
    if h.length - at < 40:
        return
    payload = i64(load_be16(frame + at + 4))
    if payload == 0 and h.whole > 0xFFFF:
        payload = h.whole - at - 40
    if payload > h.whole - at - 40:
        return
    end = min(at + 40 + payload, h.length)
    proto, l4, later = i64(load_u8(frame + at + 6)), at + 40, False
    for _ in range(MOST_HEADERS):
        if not (proto == HOPOPTS or proto == ROUTING or proto == DSTOPTS or proto == AH or proto == FRAGMENT):
            break
        if end - l4 < 8:  # Bounds: of each header eight bytes are there before they are read.
            return
        if proto == FRAGMENT:
            size = i64(8)
            later = load_be16(frame + l4 + 2) & 0xFFF8 != 0
        elif proto == AH:
            size = 4 * (i64(load_u8(frame + l4 + 1)) + 2)
        else:
            size = 8 * (i64(load_u8(frame + l4 + 1)) + 1)
            if proto == ROUTING and load_u8(frame + l4 + 3) != 0:
                h.routed = 1
        if size > end - l4:
            return
        proto, l4 = i64(load_u8(frame + l4)), l4 + size
        if later:
            proto = i64(FRAGMENT)
            break
    h.version, h.proto, h.l4 = 6, proto, l4
    if not later:
        h.size, h.room = at + 40 + payload - l4, end - l4


@kernel
def find_headers(handle, headers):
    """Fill a Headers from a packet; False when it is no Ethernet frame."""
    p, h = Packet(handle), Headers(headers)
    h.frame, h.length, h.whole = data(p), i64(p.length), whole_of(p)
    h.kind, h.net, h.proto, h.l4, h.room, h.size, h.version, h.routed = (
        i64(0),
        i64(0),
        i64(0),
        i64(0),
        i64(0),
        i64(0),
        0,
        0,
    )
    if h.length < 14:
        return False
    kind, at = network(h.frame, h.length)
    h.kind, h.net = kind, at
    if kind == IP:
        _ipv4(h)
    elif kind == IPV6:
        _ipv6(h)
    return True


@kernel(inline=True)
def first_word(h):
    """The first 32 bits of an IP header that was found."""
    return load_be32(h.frame + h.net)
