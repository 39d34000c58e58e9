"""The stage that reads trailers, and what all workers of a checker share.

Theory of operation
-------------------
There is one set of streams for all workers, under a lock that each takes once for a burst: packets of a stream that
are spread over workers are put together in the order in which the workers get to them, so that loss and duplicates are
exact whoever got them, and order is that in which they came to be looked at.  Workers whose order matters should have
a stream each.

A stream has its memory from the first packet that names it, as long as there is some; packets of further ones are
counted.  Which memory a stream has stands in an index with a place for every number that a trailer can name.
"""

import numpy as np

from wirespeed.core.chain import read
from wirespeed.core.free import free_bulk
from wirespeed.core.lock import lock, unlock
from wirespeed.core.packet import Packet, data
from wirespeed.core.stage import Head
from wirespeed.jit.intrinsics import load_handle, load_u16, store_u16
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import realtime_ns
from wirespeed.net.trailer import CORRUPT, FOREIGN, TRAILER, read_trailer
from wirespeed.ports.checker.stream import Stream, arrive

i64, u64 = np.int64, np.uint64
STREAM = Stream.size

Streams = layout(
    "Streams",
    [
        ("lock", "u4"),
        ("shared", "u4"),  # 1: there are several workers
        # filled when opened
        ("index", "i8"),  # address of u2[65536]: one more than the place of each stream, or 0
        ("streams", "i8"),  # address of Stream[capacity]
        ("bits", "i8"),  # addresses of what they have,
        ("jumped", "i8"),  # end to end
        ("window", "i8"),
        ("capacity", "i8"),
        ("stamped", "i8"),  # 1: a packet arrived when its port says so; 0: when it gets here
        # moving
        ("length", "i8"),
        ("packets", "i8"),
        ("foreign", "i8"),  # without a trailer
        ("corrupt", "i8"),
        ("unlisted", "i8"),  # of streams that found no memory
    ],
)

State = layout(
    "CheckerState",
    [
        ("head", Head),
        ("streams", "i8"),  # address of the Streams
        ("sink", "i8"),  # whether the packets end here
        ("scratch", "u1", 24),  # for a trailer that lies in several segments
        (None, 24),
    ],
)


@kernel
def enlist(c, number):
    """The place of a stream that was not met before, plus one; 0 when there is no memory left."""
    at = c.length
    if at == c.capacity:
        return i64(0)
    s = Stream(c.streams + STREAM * at)
    s.number = number
    s.window = c.window
    s.bits = c.bits + (c.window >> 3) * at
    s.jumped = c.jumped + 8 * c.window * at
    s.suspect = -1
    c.length = at + 1
    store_u16(c.index + 2 * number, at + 1)
    return at + 1


@kernel(inline=True)
def examine(c, handle, now, scratch):
    """Look at the end of a packet."""
    p = Packet(handle)
    total = i64(p.total)
    if p.segments == 1 and total >= TRAILER:
        at = data(p) + total - TRAILER
    else:
        at = read(handle, total - TRAILER, i64(TRAILER), scratch)
    if at == 0:
        c.foreign += 1
        return
    kind, number, sequence, time = read_trailer(at)
    if kind == FOREIGN:
        c.foreign += 1
        return
    if kind == CORRUPT:
        c.corrupt += 1
        return
    place = i64(load_u16(c.index + 2 * number))  # Bounds: a number has 16 bits.
    if place == 0:
        place = enlist(c, number)
    if place == 0:
        c.unlisted += 1
        return
    if c.stamped != 0 and p.time != 0:
        now = p.time
    arrive(Stream(c.streams + STREAM * (place - 1)), sequence, time, now, total)


@stage
def check(state, burst, n):
    """Look at a burst; free it where it ends here, hand it on otherwise."""
    s = State(state)
    c = Streams(s.streams)
    now, scratch, size = realtime_ns(), s.scratch, i64(0)
    if c.shared != 0:
        lock(c)
    c.packets += n
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        size += i64(Packet(handle).total)
        examine(c, handle, now, scratch)
    if c.shared != 0:
        unlock(c)
    s.head.bytes += u64(size)
    if s.sink == 0:
        return n
    free_bulk(s.head.cache, burst, n)
    return i64(0)
