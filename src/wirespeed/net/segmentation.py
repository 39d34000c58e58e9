"""Segmentation in software: a super-frame is cut into the frames that its sender meant, each with all its headers.

Theory of operation
-------------------
Each frame is a packet of its own with a copy of the headers and its part of the payload, in one buffer where that has
room for it.  The copy is in the processor's cache when it is summed at once, so a second look at the super-frame's
bytes is not needed, and how these lie in segments does not matter.  Then the headers are mended, from the transport
header outwards: what a header says of lengths and numbers is that of the first frame, plus what each frame adds.

* TCP: the sequence number goes on; FIN and PSH are the last frame's, CWR is the first one's.
* UDP: each frame is a datagram of its own.
* IPv4: length, identification (one more for each), header checksum.  IPv6: length.
* Headers around these, as a tunnel has: IP likewise, UDP's length and, unless it is 0, checksum, the lengths of PPPoE
  and 802.3.

A jumbo option (RFC 2675), which the kernel writes into super-frames of more than 64 kB, is taken out; where other
options stand beside it, padding takes its place.

A datagram that is to be sent as IP fragments is completed and then cut by :mod:`wirespeed.net.fragmentation`.

*Source:* Linux, ``tcp_gso_segment``, ``__udp_gso_segment``, ``inet_gso_segment``, ``ipv6_gso_segment``.
"""

import numpy as np

from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_bulk, free_segments
from wirespeed.core.packet import Packet
from wirespeed.jit.intrinsics import (
    copy,
    load_be16,
    load_be32,
    load_u8,
    move,
    stack,
    store_be16,
    store_be32,
    store_i64,
    store_u8,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import fill_ipv4
from wirespeed.net.completion import complete, complete_found, complete_tunnels, partial_start
from wirespeed.net.excerpt import copy_range, copy_whole, is_alone, seek, tell
from wirespeed.net.fragmentation import fragment
from wirespeed.net.layer import ETH, IPV4, IPV6, LLC, PPPOE, SCTP, TCP, UDP, VLAN, Layer
from wirespeed.net.link import LINKTYPE_ETHERNET, by_ethertype
from wirespeed.net.offload import BAD_OFFLOAD, NO_PACKET, TOO_LONG
from wirespeed.net.outline import LAYER, OUTLINE, Outline, jumbo_length, outline
from wirespeed.net.virtio_net import GSO_UDP

u8, u16, u32, i64 = np.uint8, np.uint16, np.uint32, np.int64

MOST_FRAMES = 2048
"""Frames of one packet, for which a port has room: 64 kB in frames of 48 bytes of payload, 1 MB in those of 536."""
# TCP's byte of flags
FIN, PSH, CWR = 0x01, 0x08, 0x80
MOST_LENGTH = 0xFFFF  # that the length of an IP header can say

Cut = layout(
    "Cut",
    [
        ("outline", Outline),  # of the frames; its bytes are the template that is written for each
        ("source", "i8"),  # segment of the super-frame that is copied from next,
        ("offset", "i8"),  # and where in it
        ("total", "i8"),  # bytes of payload
        ("size", "i8"),  # of each frame but the last
        ("seq", "i8"),  # of the super-frame
        ("flags", "i8"),
        (None, 16),
    ],
)
assert Cut.size == OUTLINE + 64 == 1216  # kernels write it as a literal: stack(1216)


@kernel(inline=True)
def link_size(handle):
    """Bytes of the Ethernet header and tags of a packet, what a link adds to its MTU; 0 where it has none."""
    p = Packet(handle)
    if p.link != LINKTYPE_ETHERNET:
        return i64(0)
    size, at = i64(14), p.buffer + i64(p.data)
    while size <= i64(p.length) and by_ethertype(i64(load_be16(at + size - 2))) == VLAN:
        size += 4
    return size


@kernel
def _take_jumbo_out(o):
    """Remove a jumbo option from the template: with its header where it is alone, else padding takes its place."""
    length, place = jumbo_length(o)
    if length == 0:
        return
    at = o.l3 + 40
    if place != at + 4 or load_u8(o.head + at + 1) != 0:
        store_u8(o.head + place - 2, 1)  # PadN, of as many bytes: RFC 8200, 4.2
        store_be32(o.head + place, 0)
        return
    store_u8(o.head + o.l3 + 6, load_u8(o.head + at))
    move(o.head + at, o.head + at + 8, o.payload - at - 8)
    o.l4 -= 8
    o.payload -= 8
    for i in range(o.count):
        layer = Layer(o.layers + LAYER * i)
        if i64(layer.offset) == at:
            layer.kind = 0
        elif i64(layer.offset) > at:
            layer.offset = u32(i64(layer.offset) - 8)


@kernel
def _mend_lengths(o, end, first):
    """Write into each header of the template how long a frame of ``end`` bytes makes it; ``first``: the first one."""
    for j in range(o.count):
        i = o.count - 1 - j
        layer = Layer(o.layers + LAYER * i)
        kind, offset = i64(layer.kind), i64(layer.offset)
        at = o.head + offset
        if kind == IPV4:
            store_be16(at + 2, end - offset)
            if not first:
                store_be16(at + 4, (i64(load_be16(at + 4)) + 1) & 0xFFFF)
            fill_ipv4(at, i64(layer.length) // 4)
        elif kind == IPV6:
            store_be16(at + 4, end - offset - 40)
        elif kind == UDP:
            store_be16(at + 4, end - offset)
        elif kind == PPPOE:
            store_be16(at + 4, end - offset - 6)
        elif (kind == ETH or kind == VLAN) and i + 1 < o.count and Layer(o.layers + LAYER * (i + 1)).kind == LLC:
            size = i64(layer.length)
            store_be16(at + size - 2, end - offset - size)


@kernel
def _mend_transport(c, number, last):
    """Write into the template what the transport header of frame ``number`` says, but for lengths and checksum."""
    o = c.outline
    if o.kind == TCP:
        flags = c.flags if number == 0 else c.flags & ~CWR
        at = o.head + o.l4
        store_be32(at + 4, (c.seq + number * c.size) & 0xFFFFFFFF)
        store_u8(at + 13, flags if last else flags & ~(FIN | PSH))


@kernel
def _frame(cache, handle, c, number, done):
    """Make the next frame, ``done`` bytes of payload being in those before it; its handle, or 0."""
    o = c.outline
    run = min(c.size, c.total - done)
    o.end = o.payload + run
    new = alloc_length(cache, o.end)
    if new == 0:
        return new
    _mend_transport(c, number, done + run == c.total)
    _mend_lengths(o, o.end, number == 0)
    copy_in(new, i64(0), o.payload, o.head)
    c.source, c.offset = copy_range(new, o.payload, c.source, c.offset, run)
    tell(new, handle)
    complete_found(new, o)
    complete_tunnels(new, o)
    return new


@kernel
def _prepare(handle, c):
    """Find out how a super-frame is to be cut; whether its headers allow it."""
    p, o = Packet(handle), c.outline
    start = partial_start(p)
    if not outline(handle, o, start, i64(p.csum_offset), True) or o.kind == SCTP:
        return False
    c.size, c.total = i64(p.gso_size), o.end - o.payload
    c.source, c.offset = seek(handle, o.payload)
    if o.head != o.buffer:
        copy(o.buffer, o.head, o.payload)
        o.head = o.buffer
    if o.kind == TCP:
        c.seq, c.flags = i64(load_be32(o.head + o.l4 + 4)), i64(load_u8(o.head + o.l4 + 13))
    if o.version == 6:
        _take_jumbo_out(o)
    return o.payload + c.size <= MOST_LENGTH


@kernel
def _cut(cache, handle, c, out, n):
    """Make ``n`` frames of a super-frame; n, or NO_PACKET with nothing taken."""
    done = i64(0)
    for i in range(n):
        new = _frame(cache, handle, c, i, done)
        if new == 0:
            free_bulk(cache, out, i)
            return i64(NO_PACKET)
        store_i64(out + 8 * i, new)
        done += c.size
    free_segments(cache, handle)
    return n


@kernel
def _one(cache, handle, limit, out):
    """A packet that is one frame, with its checksum."""
    if i64(Packet(handle).total) > limit:
        return i64(TOO_LONG)
    if is_alone(handle):
        store_i64(out, handle)
        return i64(1) if complete(handle) else i64(BAD_OFFLOAD)
    new = copy_whole(cache, handle)
    if new == 0:
        return i64(NO_PACKET)
    if not complete(new):
        free_segments(cache, new)
        return i64(BAD_OFFLOAD)
    free_segments(cache, handle)
    store_i64(out, new)
    return i64(1)


@kernel
def _fragments(cache, handle, c, limit, out, room):
    """A datagram that is to be sent as IP fragments of ``gso_size`` bytes behind the headers that each has."""
    o = c.outline
    mtu = o.l4 - o.l3 + c.size + (8 if o.version == 6 else 0)
    if o.l3 + mtu > limit:
        return i64(TOO_LONG)
    return fragment(cache, handle, mtu, True, out, room)


@kernel
def segment(cache, handle, limit, out, room):
    """Make the frames that a packet with flag PARTIAL stands for, with their checksums, and write their handles to ``out``.

    Returns how many, at least 1, and the packet is the caller's no more; it may be one of those at ``out``.  Else
    nothing was done, and the packet is still the caller's, to be dropped:

    * NO_PACKET (0): the pool has too few packets;
    * BAD_OFFLOAD (-1): its headers do not have what it says is to be done;
    * TOO_LONG (-2): a frame would be longer than ``limit`` bytes, link header included, or there would be more than
      ``room`` of them.
    """
    p, c = Packet(handle), Cut(stack(1216))
    if p.gso_size == 0:
        return _one(cache, handle, limit, out)
    if not _prepare(handle, c):
        return i64(BAD_OFFLOAD)
    if p.gso_type == GSO_UDP:
        return _fragments(cache, handle, c, limit, out, room)
    n = (c.total + c.size - 1) // c.size
    if n <= 1:
        return _one(cache, handle, limit, out)
    if n > room or c.outline.payload + c.size > limit:
        return i64(TOO_LONG)
    return _cut(cache, handle, c, out, n)
