"""One IP datagram under way: which fragments of it there are, whether another one goes with them, and all of them joined.

A datagram's entry lists its fragments in the order of their offsets.  A fragment is held without what is not data, the
first one with its headers; when all are there these are mended to say that it is the whole datagram.

*Source:* RFC 791, 3.2; RFC 8200, 4.5; RFC 5722 (overlaps).
"""

import numpy as np

from wirespeed.core.packet import HASHED, Packet, adjust, data, last
from wirespeed.jit.intrinsics import load_be16, load_be32, load_be64, load_u8, move, store_be16, store_u8, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import fill_ipv4
from wirespeed.net.excerpt import shorten
from wirespeed.net.fragmentation import DONT, MOST_PLACE
from wirespeed.net.layer import VLAN
from wirespeed.net.link import by_ethertype
from wirespeed.tables import pending

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64

MOST_FRAGMENTS = 128  # of one datagram
WORDS = 6  # of a key
LONGEST = 0xFFFF  # what the length of an IP header can say

Datagram = layout(
    "PendingDatagram",
    [
        ("entry", pending.Entry),
        ("key", "u8", WORDS),
        ("total", "i8"),  # bytes of data in all, or -1 while that is not known
        ("bytes", "i8"),  # that have come
        ("count", "i8"),  # fragments held
        ("segments", "i8"),  # of them
        ("source", "i8"),  # number of its source's count
        ("rejected", "i8"),  # 1: whatever comes is dropped
        # of the first fragment's headers
        ("version", "i8"),
        ("l3", "i8"),
        ("field", "i8"),
        ("pointer", "i8"),
        ("around", "i8"),  # bytes that count in the IP header's length beside the data
        ("fragments", "u8", 2 * MOST_FRAGMENTS),
    ],
)

Held = layout("HeldFragment", [("handle", "i8"), ("begin", "u4"), ("end", "u4")])
HELD = Held.size


@kernel
def write_key(handle, d, key):
    """Write the key of a fragment's datagram."""
    p, ip = Packet(handle), d.template + d.l3
    if d.version == 4:
        store_u64(key, u64(load_be32(ip + 12)))
        store_u64(key + 8, u64(0))
        store_u64(key + 16, u64(load_be32(ip + 16)))
        store_u64(key + 24, u64(0))
        store_u64(key + 32, u64(load_be16(ip + 4)) | u64(load_u8(ip + 9)) << u64(32) | u64(4) << u64(40))
    else:
        for i in range(4):
            store_u64(key + 8 * i, load_be64(ip + 8 + 8 * i))
        store_u64(key + 32, u64(load_be32(d.template + d.field + 4)) | u64(6) << u64(40))
    tags, at = u64(p.port), i64(12)
    while at + 4 <= d.l3 and p.link == 1 and by_ethertype(i64(load_be16(d.template + at))) == VLAN:
        tags = tags << u64(12) | u64(load_be16(d.template + at + 2) & 0xFFF)
        at += 4
    store_u64(key + 40, tags)


@kernel(inline=True)
def around(d):
    """Bytes that count in the IP header's length beside the data, in the whole datagram."""
    return d.begin - d.l3 if d.version == 4 else d.field - d.l3 - 40


@kernel
def is_sound(d):
    """Whether a fragment can be part of a datagram."""
    size = d.end - d.begin
    if d.more and size & 7:
        return False
    return size > 0 and d.place <= MOST_PLACE and around(d) + d.place + size <= LONGEST


@kernel
def place(g, begin, end, more):
    """Where in the list a fragment belongs; -1 when it is there already, -2 when it does not go with the others."""
    i = g.count
    while i > 0 and i64(Held(g.fragments + HELD * (i - 1)).begin) > begin:
        i -= 1
    if i > 0:
        before = Held(g.fragments + HELD * (i - 1))
        if i64(before.begin) == begin and i64(before.end) == end and (more == 0) == (g.total == end):
            return i64(-1)
        if i64(before.end) > begin:
            return i64(-2)
    if i < g.count and i64(Held(g.fragments + HELD * i).begin) < end:
        return i64(-2)
    if g.total >= 0 and (end > g.total or (end == g.total) == (more != 0)):
        return i64(-2)
    if more == 0 and i < g.count:
        return i64(-2)
    return i


@kernel
def strip(cache, g, handle, d):
    """Leave of a fragment what is data, of the first one also its headers, and note where these are."""
    shorten(cache, handle, d.end)
    if d.place == 0:
        g.version, g.l3, g.field, g.pointer, g.around = d.version, d.l3, d.field, d.pointer, around(d)
    else:
        adjust(handle, d.begin)


@kernel
def _mend_headers(g, handle):
    """Have the headers of the first fragment say that it is all of the datagram."""
    p = Packet(handle)
    at = data(p)
    ip = at + g.l3
    # Bounds: the headers are in the first segment, which was made sure of when it came.
    if g.version == 4:
        size = 4 * i64(load_u8(ip) & 15)
        store_be16(ip + 2, size + g.total)
        store_be16(ip + 6, i64(load_be16(ip + 6)) & (DONT | 0x8000))
        fill_ipv4(ip, size // 4)
    else:
        store_u8(at + g.pointer, load_u8(at + g.field))
        move(at + 8, at, g.field)
        adjust(handle, i64(8))
        store_be16(data(p) + g.l3 + 4, g.field - g.l3 - 40 + g.total)


@kernel
def join(g):
    """Make one packet of the fragments of a datagram that is whole; its handle."""
    first = Held(g.fragments).handle
    p, end = Packet(first), last(first)
    segments, total = i64(p.segments), i64(p.total)
    for i in range(1, g.count):
        handle = Held(g.fragments + HELD * i).handle
        q = Packet(handle)
        segments += i64(q.segments)
        total += i64(q.total)
        q.segments = 1
        q.total = q.length
        Packet(end).next = handle
        end = last(handle)
    p.segments = u16(segments)
    p.total = u32(total)
    _mend_headers(g, first)
    p.wire = p.total
    p.flags = u16(p.flags & ~HASHED)
    return first
