"""IP fragmentation: a datagram that is too long for a link becomes fragments that are not.

Theory of operation
-------------------
Each fragment is a packet of its own with a copy of the link header, the IP headers that every fragment has, and its
part of the rest.

* IPv4: flags and offset, length, header checksum.  The first fragment has all options, the others those that are to be
  copied, padded to whole words; so their headers may be shorter.  A fragment is cut like a whole datagram: offsets go
  on from its own, and the last one has more fragments behind it if it had.  One that must not be fragmented is not.
* IPv6: behind the unfragmentable part (the header, hop-by-hop options, and what precedes a routing header that is there)
  a fragment header is put in.  A fragment is cut in two like IPv4's, its header taken over.
* Payload in multiples of 8 bytes, in all but the last.

The transport checksum is in the bytes that are cut, so a packet with flag PARTIAL is completed first.

*Source:* RFC 791, 3.2 and its "Option Type"; RFC 8200, 4.5.
"""

import numpy as np

from wirespeed.core.chain import alloc_length, copy_in, read
from wirespeed.core.free import free_bulk, free_segments
from wirespeed.core.packet import HASHED, PARTIAL, Packet
from wirespeed.jit.intrinsics import (
    copy,
    crc32c,
    cycles,
    fill,
    load_be16,
    load_u8,
    stack,
    store_be16,
    store_be32,
    store_i64,
    store_u8,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import fill_ipv4
from wirespeed.net.completion import complete
from wirespeed.net.dissect import dissect
from wirespeed.net.excerpt import copy_range, copy_whole, is_alone, seek, tell
from wirespeed.net.layer import DSTOPTS, ETH, FRAGMENT, HOPOPTS, IPV4, IPV6, MAX_LAYERS, ROUTING, Layer
from wirespeed.net.offload import BAD_OFFLOAD, NEEDS_FRAGMENT, NO_PACKET, TOO_LONG
from wirespeed.net.outline import HEADERS, LAYER
from wirespeed.net.protocol import PROTO_FRAGMENT

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64

TRUNCATED, DAMAGED = -4, -5
MOST_PLACE = 0xFFF8  # that a fragment can say
DONT, MORE, PLACE = 0x4000, 0x2000, 0x1FFF  # the word of an IPv4 header that has flags and offset
COPIED = 0x80  # of an option's type: it is in all fragments
END, NO_OPERATION = 0, 1

Division = layout(
    "Division",
    [
        ("l3", "i8"),  # offset of the IP header
        ("version", "i8"),  # 4, 6, or 0 where there is none
        ("first", "i8"),  # bytes of all headers of the fragment with offset 0,
        ("later", "i8"),  # and of the others
        ("begin", "i8"),  # offset in the packet of what is divided,
        ("end", "i8"),  # and of its end
        ("place", "i8"),  # offset of that in the whole datagram
        ("more", "i8"),  # 1 when the packet is a fragment that others follow
        ("dont", "i8"),  # the flag that forbids it, in its place
        ("field", "i8"),  # IPv6: offset of the fragment header in the headers,
        ("pointer", "i8"),  # and where it is named
        (None, 40),
        ("template", "u8", (HEADERS + 64) // 8),  # the headers of the next fragment
        ("layers", "u8", MAX_LAYERS * LAYER // 8),
    ],
)
assert Division.size == 1216  # kernels write it as a literal: stack(1216)


@kernel
def _divide4(d, known, total):
    """What is to be known of an IPv4 packet; whether its header is sound."""
    ip = d.template + d.l3
    size = 4 * i64(load_u8(ip) & 15)
    if size < 20 or d.l3 + size > known:
        return False
    length = i64(load_be16(ip + 2))
    word = i64(load_be16(ip + 6))
    d.first = d.l3 + size
    d.begin, d.end = d.first, d.l3 + length if length else total
    d.place, d.more, d.dont = 8 * (word & PLACE), 1 if word & MORE else 0, word & DONT
    return d.begin <= d.end <= total


@kernel
def _divide6(d, n, number, known, total):
    """What is to be known of an IPv6 packet, whose header is layer ``number`` of ``n``; whether its headers are sound.

    The fragment header's place in the template is made, and filled with what all fragments have in common.
    """
    ip = d.template + d.l3
    length = i64(load_be16(ip + 4))
    d.end = d.l3 + 40 + length if length else total
    d.field, d.place, d.more, d.dont = d.l3 + 40, i64(0), i64(0), i64(0)
    d.pointer = d.l3 + 6
    before = d.pointer  # where the layer that is looked at is named
    existing = False
    for i in range(number + 1, n):
        layer = Layer(d.layers + LAYER * i)
        at, kind = i64(layer.offset), i64(layer.kind)
        if layer.whole == 0 or (kind != HOPOPTS and kind != ROUTING and kind != DSTOPTS and kind != FRAGMENT):
            break
        if kind == FRAGMENT:
            d.field, d.pointer, existing = at, before, True
            break
        before = at
        if kind == HOPOPTS or kind == ROUTING:
            d.field, d.pointer = at + i64(layer.length), at
    d.begin = d.field + 8 if existing else d.field
    if d.begin > d.end or d.end > total or d.begin > known:
        return False
    header = d.template + d.field
    if existing:
        word = i64(load_be16(header + 2))
        d.place, d.more = word & 0xFFF8, word & 1
    else:
        store_u8(header, load_u8(d.template + d.pointer))
        store_u8(header + 1, 0)
        store_be32(header + 4, crc32c(u32(0xFFFFFFFF), u64(cycles()) ^ u64(ip) << u64(32)))
        store_u8(d.template + d.pointer, PROTO_FRAGMENT)
    d.first = d.later = d.field + 8
    return True


@kernel
def divide(handle, d):
    """Fill the :data:`Division` of a packet; whether its headers are sound.  One without IP has version 0."""
    p = Packet(handle)
    total = i64(p.total)
    known = min(total, i64(HEADERS))
    head = read(handle, i64(0), known, d.template)
    if head != d.template:
        copy(d.template, head, known)
    n = dissect(d.template, known, i64(p.link), d.layers, i64(MAX_LAYERS))
    d.version, d.end = 0, total
    d.l3 = i64(14) if n > 0 and Layer(d.layers).kind == ETH else i64(0)  # where there is no IP, what a link carries
    for i in range(n):
        layer = Layer(d.layers + LAYER * i)
        if layer.whole != 0 and (layer.kind == IPV4 or layer.kind == IPV6):
            d.l3, d.version = i64(layer.offset), i64(4) if layer.kind == IPV4 else i64(6)
            return _divide4(d, known, total) if layer.kind == IPV4 else _divide6(d, n, i, known, total)
    return True


@kernel
def _keep_copied_options(d):
    """Leave in the template those options that later fragments have, and pad them to whole words."""
    ip = d.template + d.l3
    at, kept = d.l3 + 20, d.l3 + 20
    while at < d.first:
        option = load_u8(d.template + at)
        if option == END:
            break
        size = i64(1)
        if option != NO_OPERATION:
            size = i64(load_u8(d.template + at + 1)) if at + 1 < d.first else i64(0)
            if size < 2 or size > d.first - at:
                break  # nothing behind it can be told apart
        if option & COPIED:
            # Bounds: what is kept is never ahead of what is looked at.
            for i in range(size):
                store_u8(d.template + kept + i, load_u8(d.template + at + i))
            kept += size
        at += size
    d.later = kept + (-(kept - d.l3) & 3)
    fill(d.template + kept, END, d.later - kept)
    store_u8(ip, 0x40 | (d.later - d.l3) // 4)


@kernel(inline=True)
def _mend(d, head, place, run, more):
    """Write into the template what the fragment of ``run`` bytes at ``place`` of the datagram says."""
    ip = d.template + d.l3
    if d.version == 4:
        store_be16(ip + 2, head - d.l3 + run)
        store_be16(ip + 6, d.dont | more * MORE | place >> 3)
        fill_ipv4(ip, (head - d.l3) // 4)
    else:
        store_be16(ip + 4, head - d.l3 - 40 + run)
        store_be16(d.template + d.field + 2, place | more)


@kernel
def _make(cache, handle, d, mtu, out, room):
    """Make the fragments of a packet that was divided; how many, or NO_PACKET or TOO_LONG with nothing taken."""
    source, offset = seek(handle, d.begin)
    done, left, n = d.place, d.end - d.begin, i64(0)
    head = d.first
    if done != 0 and d.version == 4:
        d.later = d.first  # its options are those of a later fragment
    while left > 0:
        most = (mtu - (head - d.l3)) & ~7
        run, more = left, d.more
        if left > mtu - (head - d.l3):
            run, more = most, i64(1)
        new = i64(0)
        fits = run > 0 and n < room and done <= MOST_PLACE
        if fits:
            new = alloc_length(cache, head + run)
        if new == 0:
            free_bulk(cache, out, n)
            return i64(NO_PACKET) if fits else i64(TOO_LONG)
        _mend(d, head, done, run, more)
        copy_in(new, i64(0), head, d.template)
        source, offset = copy_range(new, head, source, offset, run)
        tell(new, handle)
        Packet(new).flags = u16(Packet(new).flags & ~HASHED)  # its ports are not in the hash of a fragment
        store_i64(out + 8 * n, new)
        n += 1
        done += run
        left -= run
        if n == 1 and d.version == 4 and d.place == 0:
            _keep_copied_options(d)
        head = d.later
    return n


@kernel
def fragment(cache, handle, mtu, force, out, room):
    """Make fragments of at most ``mtu`` bytes, IP header included, of a packet that is longer; write them to ``out``.

    Returns how many, at least 1, and the packet is the caller's no more; one that fits is the only one at ``out``,
    whatever is left to be done to it.  Else nothing was done but for its checksum, and the packet is still the caller's:

    * NO_PACKET (0): the pool has too few packets;
    * BAD_OFFLOAD (-1): its headers do not have what is left to be done;
    * TOO_LONG (-2): it is too long and not IP, no fragment could be so short, or there would be more than ``room``;
    * NEEDS_FRAGMENT (-3): its IPv4 header forbids it, and ``force`` is not set;
    * TRUNCATED (-4): its IP header says more bytes than there are, and nothing is left to be done to it;
    * DAMAGED (-5): its IP headers are not whole or contradict themselves, and nothing is left to be done to it.
    """
    p, d = Packet(handle), Division(stack(1216))
    sound = divide(handle, d)
    size = d.end - d.l3 if sound else i64(p.total) - d.l3
    if size <= mtu:
        store_i64(out, handle)
        return i64(1)
    if not sound and p.flags & PARTIAL:
        return i64(BAD_OFFLOAD)
    if not sound:
        return i64(TRUNCATED) if d.end > i64(p.total) else i64(DAMAGED)
    if d.version == 0:
        return i64(TOO_LONG)
    if d.dont and not force:
        return i64(NEEDS_FRAGMENT)
    source = handle
    if p.flags & PARTIAL:
        if not is_alone(handle):
            source = copy_whole(cache, handle)
            if source == 0:
                return i64(NO_PACKET)
        n = i64(BAD_OFFLOAD)
        if complete(source):
            n = _make(cache, source, d, mtu, out, room)
        if source != handle:
            free_segments(cache, source)
    else:
        n = _make(cache, source, d, mtu, out, room)
    if n > 0:
        free_segments(cache, handle)
    return n
