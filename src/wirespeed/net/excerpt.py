"""Packets that are made of others' bytes: what is copied into them, and what is said of them.

Thread rules: who makes one holds the packet that it is made of, whose bytes are only read.
"""

import numpy as np

from wirespeed.core.chain import copy_in
from wirespeed.core.clone import copy_packet
from wirespeed.core.free import free_segments
from wirespeed.core.packet import PARTIAL, SHOWING, SPECIAL, Packet, refcnt
from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel

u16, u32, i64 = np.uint16, np.uint32, np.int64


@kernel(inline=True)
def is_alone(handle):
    """Whether nobody else holds or shows a packet's bytes, so that they may be written."""
    while handle != 0:
        p = Packet(handle)
        if refcnt(handle) != 1 or p.flags & SHOWING:
            return False
        handle = p.next
    return True


@kernel(inline=True)
def tell(new, handle):
    """Have a new packet say what is known about the one that it was made of, but that nothing is left to be done."""
    p, q = Packet(new), Packet(handle)
    p.time, p.hash, p.port, p.link, p.mark, p.interface = q.time, q.hash, q.port, q.link, q.mark, q.interface
    p.flags = u16(q.flags & ~(SPECIAL | PARTIAL))


@kernel
def copy_whole(cache, handle):
    """A copy of a packet, with what is still to be done to it; 0 when the pool has too few packets."""
    return copy_packet(cache, handle, i64(0), i64(Packet(handle).total))


@kernel(inline=True)
def seek(handle, offset):
    """The segment of a packet in which the byte at an offset lies, and where in it."""
    while offset >= i64(Packet(handle).length) and Packet(handle).next != 0:
        offset -= i64(Packet(handle).length)
        handle = Packet(handle).next
    return handle, offset


@kernel
def copy_range(target, at, source, offset, size):
    """Copy ``size`` bytes to an offset of a packet, which has them, from where a walk over another has come.

    Returns the segment and the offset in it where the walk goes on.
    """
    q = Packet(target)
    while size > 0 and source != 0:
        p = Packet(source)
        run = min(i64(p.length) - offset, size)
        if run > 0:
            origin = p.buffer + i64(p.data) + offset
            if q.segments == 1:
                # Bounds: the caller's packet has the bytes.
                copy(q.buffer + i64(q.data) + at, origin, run)
            else:
                copy_in(target, at, run, origin)
            at += run
            offset += run
            size -= run
        if offset >= i64(p.length):
            source, offset = p.next, i64(0)
    return source, offset


@kernel
def shorten(cache, handle, length):
    """Cut a packet down to ``length`` bytes, and free the segments that have none of them."""
    p = Packet(handle)
    if length >= i64(p.total):
        return
    end, left, segments = handle, length, i64(1)
    while left > i64(Packet(end).length):
        left -= i64(Packet(end).length)
        end = Packet(end).next
        segments += 1
    rest = Packet(end).next
    Packet(end).length = u32(left)
    Packet(end).next = 0
    p.segments = u16(segments)
    p.total = u32(length)
    if rest != 0:
        free_segments(cache, rest)


@kernel
def own(cache, handle, size):
    """The packet, or a copy in its place, that nobody else sees and whose first segment has its first ``size`` bytes.

    0, and the packet is as it was, when the pool has too few packets or no buffer has so many bytes.
    """
    if is_alone(handle) and i64(Packet(handle).length) >= size:
        return handle
    new = copy_whole(cache, handle)
    if new != 0 and i64(Packet(new).length) < size:
        free_segments(cache, new)
        return i64(0)
    if new != 0:
        free_segments(cache, handle)
    return new
