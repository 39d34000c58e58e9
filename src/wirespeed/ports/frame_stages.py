"""The stages at a ring of frames: one makes packets of frames, the other frames of packets.

Several workers may share a ring; each takes the lock of its end for one burst.
"""

import numpy as np

from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_bulk
from wirespeed.core.lock import lock, unlock
from wirespeed.core.packet import HEADROOM, Packet, data, mark, set_mark
from wirespeed.core.pool import Pool
from wirespeed.core.stage import FIRST_REASON, Head, count_drops, drop
from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import load_handle, load_i64, move, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.ports.frame_ring import (
    UNIT,
    FrameRing,
    info_at,
    publish,
    read,
    rest,
    room,
    span,
    wake,
    write,
)

i64, u64 = np.int64, np.uint64
NO_ROOM = TOO_LARGE = FIRST_REASON
SOURCE_DROPS = {"no_room": "The frame needs more segments than the pool has packets"}
SINK_DROPS = {"too_large": "The packet is larger than the ring it should have waited in"}

State = layout("FrameState", [("head", Head), ("ring", "i8"), (None, 56)])


@kernel(inline=True)
def take(cache, ring, position):
    """A new packet with the frame at a position of the ring; 0 when the pool has too few left."""
    info = info_at(ring, position)
    length = i64(info.length)
    handle = alloc_length(cache, length)
    if handle == 0:
        return handle
    p = Packet(handle)
    if p.next == 0:
        read(ring, position + u64(UNIT), data(p), length)
    else:
        offset = position + u64(UNIT) & ring.size - u64(1)
        run = min(i64(ring.size - offset), length)
        copy_in(handle, i64(0), run, ring.data + i64(offset))
        copy_in(handle, run, length - run, ring.data)
    p.time = info.time
    p.wire = info.wire
    p.port = info.port
    p.link = info.link
    if info.mark != 0:
        set_mark(p, info.mark)
    return handle


@kernel(inline=True)
def can_hold(cache, length):
    """Whether the whole pool, empty, would have segments for so many bytes."""
    pool = Pool(load_i64(cache))
    return length <= pool.room - HEADROOM + (pool.size - 1) * pool.room


@stage
def receive(state, burst, n):
    """Turn frames of the ring into packets."""
    s = State(state)
    ring = FrameRing(s.ring)
    lock(ring.cons)
    closed = load_acquire(ring, "closed")  # F3, before the look at the position: what comes before the end is seen
    position, end = ring.cons.position, load_acquire(ring.prod, "position")  # F1
    if position == end:
        rest(ring)
        end = load_acquire(ring.prod, "position")  # F1
    done, seen, total = i64(0), i64(0), i64(0)
    while done < n and position != end:
        length = i64(info_at(ring, position).length)
        handle = take(s.head.cache, ring, position)
        if handle != 0:
            store_i64(burst + 8 * done, handle)
            done += 1
            total += length
        elif can_hold(s.head.cache, length):
            break  # the pool is empty at the moment
        else:
            count_drops(state, NO_ROOM, 1)
        position += span(length)
        seen += 1
    if seen > 0:
        publish(ring.cons, position, seen)
        wake(ring.prod)
    elif closed != 0 and position == end:
        s.head.done = 1
    unlock(ring.cons)
    s.head.bytes += u64(total)
    return done


@kernel(inline=True)
def put(ring, position, handle):
    """Write a packet into the ring, at a position behind which there is room for it."""
    p = Packet(handle)
    info = info_at(ring, position)
    info.time = p.time
    info.length = p.total
    info.wire = p.wire
    info.mark = mark(p)
    info.port = p.port
    info.link = p.link
    at = position + u64(UNIT)
    while handle != 0:
        p = Packet(handle)
        write(ring, at, data(p), i64(p.length))
        at += u64(p.length)
        handle = p.next


@stage
def transmit(state, burst, n):
    """Turn packets into frames of the ring; what does not fit is refused."""
    if n == 0:
        return i64(0)
    s = State(state)
    ring = FrameRing(s.ring)
    lock(ring.prod)
    position, free = ring.prod.position, room(ring)
    done, kept, total = i64(0), i64(0), i64(0)
    while done < n:
        handle = load_handle(burst + 8 * done)
        size = Packet(handle).total
        need = span(size)
        if need > ring.size:
            drop(state, handle, TOO_LARGE)
        elif need > free:
            break
        else:
            put(ring, position, handle)
            position += need
            free -= need
            total += i64(size)
            store_i64(burst + 8 * kept, handle)
            kept += 1
        done += 1
    publish(ring.prod, position, kept)
    unlock(ring.prod)
    wake(ring.cons)
    s.head.bytes += u64(total)
    free_bulk(s.head.cache, burst, kept)
    move(burst, burst + 8 * done, 8 * (n - done))
    return n - done
