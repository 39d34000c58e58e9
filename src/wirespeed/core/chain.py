"""Packets longer than one buffer: a chain of segments taken from the pool at once, bytes across them, one made of them.

What is read or written by offset and size is refused as a whole (:func:`read`) or done as far as there are bytes
(:func:`copy_in`); sums of the two are never formed, so none can wrap.
"""

import numpy as np

from wirespeed.core.free import free_segments
from wirespeed.core.history import LINEARIZE, note
from wirespeed.core.packet import HEADROOM, SHOWING, Packet, copy_out, data, reset, tailroom
from wirespeed.core.pool import alloc
from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import copy, move
from wirespeed.jit.kernel import kernel

u16, u32, i64 = np.uint16, np.uint32, np.int64
MOST_SEGMENTS = 0xFFFF  # what ``segments`` of a packet can count


@kernel
def _extend(cache, handle, length):
    """Chain segments behind a packet until ``length`` bytes fit; False, and all is freed, when none is left."""
    p = Packet(handle)
    segments, done, end = i64(1), i64(p.capacity) - HEADROOM, handle
    p.length = u32(done)
    while done < length:
        more = alloc(cache) if segments < MOST_SEGMENTS else i64(0)
        if more == 0:
            free_segments(cache, handle)
            return False
        q = Packet(more)
        run = min(i64(q.capacity), length - done)
        q.data = 0
        q.length = u32(run)
        q.total = u32(run)
        Packet(end).next = more
        done += run
        segments += 1
        end = more
    p.segments = u16(segments)
    return True


@kernel(inline=True)
def alloc_length(cache, length):
    """A packet with ``length`` bytes of data, whatever they are; 0, and nothing taken, when the pool has too few.

    The data begins behind the usual headroom; segments after the first use all of their buffer.
    """
    handle = alloc(cache)
    if handle != 0:
        p = Packet(handle)
        reset(p, length)
        if length > i64(p.capacity) - HEADROOM and not _extend(cache, handle, length):
            return i64(0)
    return handle


@kernel
def copy_in(handle, offset, size, src):
    """Copy up to ``size`` bytes from ``src`` to ``offset`` of a packet, across its segments; return how many."""
    done = i64(0)
    while handle != 0 and done < size:
        p = Packet(handle)
        length = i64(p.length)
        if offset < length:
            run = min(length - offset, size - done)
            copy(data(p) + offset, src + done, run)
            done += run
            offset = i64(0)
        else:
            offset -= length
        handle = p.next
    return done


@kernel
def read(handle, offset, size, buffer):
    """The address of ``size`` bytes from ``offset`` of a packet: in it when one segment has all, else in ``buffer``.

    ``buffer`` has room for ``size`` bytes and is only written to when the bytes lie in several segments.  0 when the
    packet has fewer bytes, whatever the two numbers are.
    """
    total = i64(Packet(handle).total)
    if offset < 0 or size < 0 or offset > total or size > total - offset:
        return i64(0)
    while offset >= i64(Packet(handle).length) and Packet(handle).next != 0:
        offset -= i64(Packet(handle).length)
        handle = Packet(handle).next
    p = Packet(handle)
    if size <= i64(p.length) - offset:
        return data(p) + offset
    return buffer if copy_out(handle, offset, size, buffer) == size else i64(0)


@kernel
def linearize(cache, handle):
    """Move the bytes of a chain into its first segment and free the others; False, and nothing changed, when it cannot.

    The first segment must have room for all, show its own buffer and be held by nobody else.  The data is moved to the
    front of the buffer when only then all of it fits.
    """
    p = Packet(handle)
    if p.segments == 1:
        return True
    rest = i64(p.total) - i64(p.length)
    if i64(p.total) > i64(p.capacity) or p.flags & SHOWING or load_acquire(p, "refcnt") != 1:
        return False
    if rest > tailroom(p):
        move(p.buffer, data(p), i64(p.length))
        p.data = 0
    copy_out(p.next, i64(0), rest, data(p) + i64(p.length))
    others = p.next
    p.next = 0
    p.segments = 1
    p.length = p.total
    free_segments(cache, others)
    note(handle, LINEARIZE)
    return True
