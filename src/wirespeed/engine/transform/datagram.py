"""One IP datagram under way: which fragments of it there are, whether another one goes with them, and all of them joined.

Theory of operation
-------------------
A fragment begins at a multiple of 8 bytes, so a datagram has at most :data:`BLOCKS` blocks.  Two maps with a bit for
each say which have come and at which a fragment begins.  So what another fragment is to those that are there takes no
search, in whatever order they come and however many they are.  They are listed in the order in which they came, and put
into theirs once, when all are there.  The maps of a datagram of which nothing is held are empty: those bits are
taken back that were set, for they are few beside all.

A fragment is held without what is not data, the first one with its headers; at the end these are mended to say that it
is the whole datagram.

*Source:* RFC 791, 3.2; RFC 8200, 4.5; RFC 5722 (overlaps).
"""

import numpy as np

from wirespeed.core.packet import HASHED, Packet, adjust, data, last
from wirespeed.jit.intrinsics import (
    load_be16,
    load_be32,
    load_be64,
    load_u8,
    load_u32,
    load_u64,
    move,
    store_be16,
    store_u8,
    store_u32,
    store_u64,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import fill_ipv4
from wirespeed.net.excerpt import shorten
from wirespeed.net.fragmentation import DONT, MOST_PLACE
from wirespeed.net.layer import VLAN
from wirespeed.net.link import by_ethertype
from wirespeed.tables import pending

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64

MOST_FRAGMENTS = 2048  # of one datagram, as many as a stage makes of one
WORDS = 6  # of a key
LONGEST = 0xFFFF  # what the length of an IP header can say
BLOCKS = 8192  # of 8 bytes, in the longest datagram
MAP = BLOCKS // 64 + 1  # words of a map, one more so that the block behind the last one may be asked for
STEP = 16  # bytes from one word of a map to the next, for the other map's lie between

Datagram = layout(
    "PendingDatagram",
    [
        ("entry", pending.Entry),
        ("key", "u8", WORDS),
        ("total", "i8"),  # bytes of data in all, or -1 while that is not known
        ("reach", "i8"),  # where the furthest fragment that has come ends
        ("bytes", "i8"),  # that have come
        ("count", "i8"),  # fragments held
        ("segments", "i8"),  # of them
        ("newest", "i8"),  # number of the last fragment that came, which begins the list; 0: none
        ("eldest", "i8"),  # and of the first one, which ends it
        ("source", "i8"),  # number of its source's count
        ("rejected", "i8"),  # why whatever comes is dropped, or 0
        # of the first fragment's headers
        ("version", "i8"),
        ("l3", "i8"),
        ("field", "i8"),
        ("pointer", "i8"),
        ("around", "i8"),  # bytes that count in the IP header's length beside the data
        # u8[MAP] in turn with u8[MAP]: the blocks that have come, and those with which a fragment begins
        ("maps", "u8", 2 * MAP),
    ],
)

# A fragment of some datagram; its number is its place plus one, so that 0 is none.
Held = layout("HeldFragment", [("handle", "i8"), ("begin", "u4"), ("end", "u4"), ("following", "i8")])
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
def clear(g):
    """Make a datagram one of which nothing has come; its maps are empty already."""
    g.total = i64(-1)
    g.reach, g.bytes, g.count, g.segments = i64(0), i64(0), i64(0), i64(0)
    g.newest, g.eldest, g.rejected = i64(0), i64(0), i64(0)


@kernel(inline=True)
def begins(g):
    """The address of the map of blocks with which a fragment begins."""
    return g.maps + 8


@kernel(inline=True)
def _bits(word, begin, end):
    """Those bits of a map's word that stand for blocks from ``begin`` on and before ``end``; there must be some."""
    low, high = max(begin - 64 * word, i64(0)), min(end - 64 * word, i64(64))
    return (~u64(0) >> u64(64 - (high - low))) << u64(low)


@kernel(inline=True)
def _any(blocks, begin, end):
    """Whether a map has a bit for some of the blocks from ``begin`` on and before ``end``."""
    # Bounds: ``end`` is at most a map's bits.
    word = begin >> 6
    while 64 * word < end:
        if load_u64(blocks + STEP * word) & _bits(word, begin, end) != u64(0):
            return True
        word += 1
    return False


@kernel(inline=True)
def _all(blocks, begin, end):
    """Whether a map has a bit for each of them."""
    word = begin >> 6
    while 64 * word < end:
        bits = _bits(word, begin, end)
        if load_u64(blocks + STEP * word) & bits != bits:
            return False
        word += 1
    return True


@kernel(inline=True)
def _set(blocks, begin, end):
    """Set the bit of each of them."""
    word = begin >> 6
    while 64 * word < end:
        at = blocks + STEP * word
        store_u64(at, load_u64(at) | _bits(word, begin, end))
        word += 1


@kernel
def _is_held(g, first, beyond):
    """Whether a fragment of just these blocks has come."""
    if not _any(begins(g), first, first + 1) or not _all(g.maps, first, beyond):
        return False
    if first + 1 < beyond and _any(begins(g), first + 1, beyond):
        return False
    return not _any(g.maps, beyond, beyond + 1) or _any(begins(g), beyond, beyond + 1)


@kernel
def goes_with(g, begin, end, more):
    """Whether a fragment goes with the others: 1, or -1 when it has come already, -2 when it contradicts them."""
    if g.total >= 0 and (end > g.total or (end == g.total) == (more != 0)):
        return i64(-2)
    if more == 0 and g.reach > end:
        return i64(-2)
    first, beyond = begin >> 3, (end + 7) >> 3
    if begin >= g.reach or not _any(g.maps, first, beyond):  # the former, when they come in order
        return i64(1)
    same = (more == 0) == (g.total == end) and _is_held(g, first, beyond)
    return i64(-1) if same else i64(-2)


@kernel
def insert(g, fragments, number, handle, begin, end):
    """Note that a fragment has come, and hold it under a number."""
    h = Held(fragments + HELD * (number - 1))
    h.handle, h.begin, h.end, h.following = handle, u32(begin), u32(end), g.newest
    if g.newest == 0:
        g.eldest = number
    g.newest = number
    g.bytes += end - begin
    g.reach = max(g.reach, end)
    first = begin >> 3
    _set(g.maps, first, (end + 7) >> 3)
    _set(begins(g), first, first + 1)


@kernel(inline=True)
def take_back(g, h):
    """Empty the maps where a fragment's bits are; what others' bits are lost by it is to be taken back as well."""
    word, last_word = i64(h.begin) >> 9, (i64(h.end) + 7) >> 9
    while word <= last_word:
        # Bounds: it ends in the datagram, so the last word is at most the one more that a map has.
        store_u64(g.maps + STEP * word, u64(0))
        store_u64(g.maps + STEP * word + 8, u64(0))
        word += 1


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
def join(g, fragments, order):
    """Make one packet of the fragments of a datagram that is whole; its handle.

    ``order`` is the address of u4[BLOCKS], in which their numbers are noted by the block with which they begin.
    """
    number = g.newest
    while number != 0:
        h = Held(fragments + HELD * (number - 1))
        store_u32(order + 4 * (i64(h.begin) >> 3), u32(number))
        take_back(g, h)
        number = h.following
    h = Held(fragments + HELD * (i64(load_u32(order)) - 1))
    first, at = h.handle, i64(h.end)
    p, end = Packet(first), last(first)
    segments, total = i64(p.segments), i64(p.total)
    for _ in range(1, g.count):
        # Bounds: they do not overlap and leave no gap, so where one ends another begins, whose number was noted above.
        h = Held(fragments + HELD * (i64(load_u32(order + 4 * (at >> 3))) - 1))
        handle, at = h.handle, i64(h.end)
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
