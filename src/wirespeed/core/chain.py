"""Packets longer than one buffer: a chain of segments taken from the pool at once, and bytes written across them."""

import numpy as np

from wirespeed.core.free import free_segments
from wirespeed.core.packet import HEADROOM, Packet, data, reset
from wirespeed.core.pool import alloc
from wirespeed.jit.intrinsics import copy
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
