"""Packets that show the bytes of others, and packets with a copy of their bytes.

Theory of operation
-------------------
An *indirect* packet has flag INDIRECT, the buffer of another packet, its *owner*, and one hold of it.  ``data`` and
``length`` are its own: it can be cut and shown elsewhere without a byte being copied.  An owner is never indirect
itself: attaching to an indirect packet attaches to its owner, and attaching to one with external memory shares that.
When an owner's holders have freed it, it lives on until the last indirect packet goes.

The bytes of an indirect packet are for reading, and so are its owner's while there is one: a stage that writes takes a
copy (:func:`copy_packet`).

Thread rules: who attaches, clones or copies holds the packet it is done to; nobody else holds the new one yet.
"""

import numpy as np

from wirespeed.core.chain import alloc_length
from wirespeed.core.external import External
from wirespeed.core.free import free_segments, part
from wirespeed.core.history import ATTACH, CLONE, COPY, DETACH, note
from wirespeed.core.packet import EXTERNAL, INDIRECT, META, PARTIAL, SHOWING, SPECIAL, Packet, data
from wirespeed.core.pool import Pool, alloc
from wirespeed.jit.atomics import fetch_add, load_acquire
from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel

u16, u32, i64 = np.uint16, np.uint32, np.int64


@kernel(inline=True)
def _describe(p, source, shown):
    """Copy what is known about a packet; neither its bytes nor its options.  ``shown``: INDIRECT, EXTERNAL or 0."""
    p.time = source.time
    p.wire = source.wire
    p.hash = source.hash
    p.port = source.port
    p.flags = u16((source.flags & ~SPECIAL) | (p.flags & META) | shown)
    p.link = source.link
    p.mark = source.mark
    p.interface = source.interface
    if source.flags & PARTIAL:
        p.gso_size = source.gso_size
        p.gso_type = source.gso_type
        p.csum_tail = source.csum_tail
        p.csum_offset = source.csum_offset


@kernel
def attach(handle, to):
    """Have a packet show the bytes of the segment ``to``, and all that is known about it; False when it cannot.

    The packet must be one segment in its own buffer that nobody else holds, nor shows.  One of a pool that processes
    share cannot show external memory, which is of one process.
    """
    p, q = Packet(handle), Packet(to)
    if p.flags & SHOWING or p.next != 0 or load_acquire(p, "refcnt") != 1 or handle == to:
        return False
    if q.flags & EXTERNAL and Pool(p.pool).caches != 0:
        return False
    attached = q.attached if q.flags & SHOWING else to
    if q.flags & EXTERNAL:
        fetch_add(External(attached), "refcnt", u32(1))
    else:
        fetch_add(Packet(attached), "refcnt", u32(1))
    _describe(p, q, EXTERNAL if q.flags & EXTERNAL else INDIRECT)
    p.attached = attached
    p.buffer = q.buffer
    p.capacity = q.capacity
    p.data = q.data
    p.length = q.length
    p.total = q.length
    p.segments = 1
    note(handle, ATTACH)
    return True


@kernel
def detach(cache, handle):
    """Give a segment its own buffer back, empty, and let go of the bytes it showed; False when they were its own.

    Nobody else may hold it.  The first segment of a chain stands for that many bytes less.
    """
    p = Packet(handle)
    if p.flags & SHOWING == 0:
        return False
    rest = u32(i64(p.total) - i64(p.length))
    free_segments(cache, part(handle))
    p.total = rest
    note(handle, DETACH)
    return True


@kernel
def clone(cache, handle):
    """A packet that shows the same bytes, an indirect segment for each of its; 0, and nothing taken, if it cannot."""
    first, end, source = i64(0), i64(0), handle
    while source != 0:
        new = alloc(cache)
        if new == 0 or not attach(new, source):
            free_segments(cache, new)
            free_segments(cache, first)
            return i64(0)
        if first == 0:
            first = new
        else:
            Packet(end).next = new
        end = new
        source = Packet(source).next
    head, p = Packet(first), Packet(handle)
    head.segments = p.segments
    head.total = p.total
    note(first, CLONE)
    return first


@kernel
def _copy_bytes(source, offset, target):
    """Fill all segments of ``target`` with the bytes of ``source`` from ``offset``, of which there are enough."""
    p, q = Packet(source), Packet(target)
    done = i64(0)
    while True:
        if offset >= i64(p.length):
            if p.next == 0:
                return
            offset -= i64(p.length)
            p = Packet(p.next)
        elif done == i64(q.length):
            if q.next == 0:
                return
            done = i64(0)
            q = Packet(q.next)
        else:
            # Bounds: not more than is left in either segment.
            run = min(i64(p.length) - offset, i64(q.length) - done)
            copy(data(q) + done, data(p) + offset, run)
            offset += run
            done += run


@kernel
def copy_packet(cache, handle, offset, length):
    """A packet with bytes of its own, a copy of up to ``length`` from ``offset``, and what is known about the packet.

    0, and nothing taken, when there is no byte at ``offset``, ``length`` is negative, or the pool has too few packets.
    """
    p = Packet(handle)
    total = i64(p.total)
    if offset < 0 or offset >= total or length < 0:
        return i64(0)
    length = min(length, total - offset)
    new = alloc_length(cache, length)
    if new != 0:
        q = Packet(new)
        _describe(q, p, 0)
        if offset + length < total:
            q.flags = u16(q.flags & ~PARTIAL)  # what is left to do at its end has been cut off
        _copy_bytes(handle, offset, new)
        note(new, COPY)
    return new
