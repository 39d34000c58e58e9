"""TCP flows under way: segments that follow each other become one super-frame, which can be cut into the same again.

Theory of operation
-------------------
A flow's entry holds one packet and what the next segment must be like to be joined to it.  Joined is what differs from
the one before in nothing but what segmentation makes by itself: the next sequence number, the next identification,
PSH, length and checksums.  So the same link header, addresses, traffic class, TTL, flags, acknowledgement, window
and TCP options, no IP options or extension headers, no fragment, the same number of bytes.  A segment with PSH, or with
fewer bytes, is the last of its super-frame.  All else that belongs to the flow lets go of what is held before it passes, so
packets of a flow keep their order.

A wrong checksum must not become a right one: segments are summed, unless theirs is not computed yet, and pass alone when
the sum is wrong.  Padding is taken off what is joined (and off what it is joined to); what passes alone keeps it.

The super-frame has flag PARTIAL and ``gso_size``, so that a port hands it on whole or cuts it.

Limits: as many flows as the table has entries, and so many segments held; the oldest flow makes room.

Thread rules: a coalescer belongs to one thread.

*Source of the idea:* Linux's GRO (net/core/gro.c, ``tcp_gro_receive``), which does not ask for the same window.
"""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet, adjust, data, last
from wirespeed.engine.transform.backlog import Backlog, put
from wirespeed.engine.transform.tcp_segment import PSH, WORDS, Segment, can_be_joined, look, write_key
from wirespeed.jit.intrinsics import (
    equal,
    load_be16,
    load_u8,
    load_u16,
    load_u32,
    stack,
    store_be16,
    store_u8,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import fill_ipv4
from wirespeed.net.excerpt import shorten
from wirespeed.net.segmentation import MOST_FRAMES
from wirespeed.net.virtio_net import GSO_TCPV4, GSO_TCPV6
from wirespeed.tables import pending
from wirespeed.tables.pending import add, digest_of, oldest, remove

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64

LONGEST = 0xFFFF  # what the length of an IP header can say

Coalescer = layout(
    "Coalescer",
    [
        ("table", pending.Table),
        ("ready", Backlog),  # what is to go on
        ("seeds", "u8", 8),  # multipliers of the hash, odd
        ("timeout_ns", "i8"),
        ("most", "i8"),  # segments held by flows, in all
        ("segments", "i8"),  # held by flows now
        ("joined", "i8"),  # packets that became part of another
        ("super_frames", "i8"),  # that these made
        (None, 24),
    ],
)

Flow = layout(
    "PendingFlow",
    [
        ("entry", pending.Entry),
        ("key", "u8", WORDS),
        ("handle", "i8"),  # the packet held
        ("end", "i8"),  # its last segment
        ("count", "i8"),  # packets that it was made of
        ("seq", "i8"),  # of the next one
        ("size", "i8"),  # bytes of payload of each
        ("bytes", "i8"),  # of the datagram, header included
        ("l3", "i8"),
        ("l4", "i8"),
        ("payload", "i8"),  # offset of its first byte
        ("psh", "i8"),  # of the last one
    ],
)


@kernel
def _goes_with(f, at, s):
    """Whether a segment is the next one of the packet that its flow holds."""
    size = s.end - s.payload
    if s.seq != f.seq or size > f.size or s.l3 != f.l3 or s.l4 != f.l4 or s.payload != f.payload:
        return False
    if f.bytes + size > LONGEST or f.count >= MOST_FRAMES:
        return False
    first = data(Packet(f.handle))
    a, b = first + f.l3, at + s.l3
    if not equal(first, at, f.l3):
        return False
    if f.l4 - f.l3 == 20:
        # Version, length and traffic class; flags and offset, TTL and protocol.
        same = load_u16(a) == load_u16(b) and load_u32(a + 6) == load_u32(b + 6)
        if not same or (i64(load_be16(a + 4)) + f.count) & 0xFFFF != load_be16(b + 4):
            return False
    elif load_u32(a) != load_u32(b) or load_u16(a + 6) != load_u16(b + 6):
        return False
    a, b = first + f.l4, at + s.l4
    # Acknowledgement and the length of the header; window; options.  The flags were looked at.
    if load_u32(a + 8) != load_u32(b + 8) or load_u8(a + 12) != load_u8(b + 12) or load_u16(a + 14) != load_u16(b + 14):
        return False
    return equal(a + 20, b + 20, f.payload - f.l4 - 20)


@kernel
def _finish(c, f):
    """Make the packet that a flow holds a super-frame, if it was made of several."""
    if f.count < 2:
        return
    p = Packet(f.handle)
    at = data(p)
    ip, tcp = at + f.l3, at + f.l4
    # Bounds: the headers are in the first segment.
    if f.l4 - f.l3 == 20:
        store_be16(ip + 2, f.bytes)
        fill_ipv4(ip, i64(5))
    else:
        store_be16(ip + 4, f.bytes - 40)
    if f.psh:
        store_u8(tcp + 13, load_u8(tcp + 13) | PSH)
    p.flags = u16(p.flags | PARTIAL)
    p.gso_size = u16(f.size)
    p.gso_type = GSO_TCPV4 if f.l4 - f.l3 == 20 else GSO_TCPV6
    p.csum_tail = u32(i64(p.total) - f.l4)
    p.csum_offset = 16
    p.wire = p.total
    c.super_frames += 1


@kernel
def let_go(c, entry):
    """Have what a flow holds go on."""
    f = Flow(entry)
    _finish(c, f)
    c.segments -= i64(Packet(f.handle).segments)
    put(c.ready, f.handle)
    remove(c.table, entry)


@kernel
def expire(c, now):
    """Let go of what has been held for long enough."""
    while True:
        entry = oldest(c.table)
        if entry == 0 or now - Flow(entry).entry.since < c.timeout_ns:
            break
        let_go(c, entry)


@kernel
def _join(c, cache, entry, handle, s):
    """Append a segment to what its flow holds, and let go of that when it was the last."""
    f = Flow(entry)
    head, size = Packet(f.handle), s.end - s.payload
    if f.count == 1:  # what stands behind the datagram is no part of it
        shorten(cache, f.handle, f.payload + f.size)
    shorten(cache, handle, s.end)
    adjust(handle, s.payload)
    Packet(f.end).next = handle
    f.end = handle
    head.segments = u16(i64(head.segments) + 1)
    head.total = u32(i64(head.total) + size)
    f.seq = (f.seq + size) & 0xFFFFFFFF
    f.bytes += size
    f.count += 1
    f.psh = s.flags & PSH
    c.segments += 1
    c.joined += 1
    if f.psh or size < f.size:
        let_go(c, entry)
    elif c.segments > c.most:
        let_go(c, oldest(c.table))


@kernel
def _hold(c, key, digest, handle, s, now):
    """Hold a segment as the first of its flow's next super-frame."""
    while c.table.free == 0 or c.segments >= c.most:
        let_go(c, oldest(c.table))
    f = Flow(add(c.table, key, digest, WORDS, now))
    f.handle, f.end, f.count, f.psh = handle, last(handle), i64(1), i64(0)
    f.size = s.end - s.payload
    f.seq = (s.seq + f.size) & 0xFFFFFFFF
    f.bytes, f.l3, f.l4, f.payload = s.end - s.l3, s.l3, s.l4, s.payload
    c.segments += 1


@kernel
def receive(c, cache, handle, now):
    """Take a packet: it is held, joined to one that is, or put behind what is ready, which its flow's own comes before."""
    p, s, key = Packet(handle), Segment(stack(56)), stack(48)
    at = data(p)
    if not look(p, at, s):
        put(c.ready, handle)
        return
    write_key(p, at, s, key)
    digest = digest_of(c.seeds, key, WORDS)
    entry = pending.find(c.table, key, digest, WORDS)
    joinable = can_be_joined(handle, at, s)
    if entry != 0:
        if joinable and _goes_with(Flow(entry), at, s):
            _join(c, cache, entry, handle, s)
            return
        let_go(c, entry)
    if joinable and not s.flags & PSH:
        _hold(c, key, digest, handle, s, now)
    else:
        put(c.ready, handle)
