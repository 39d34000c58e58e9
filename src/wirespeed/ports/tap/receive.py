"""The source of a tap: packets that the kernel transmits by the interface, read straight into buffers of the pool.

Theory of operation
-------------------
One ``readv`` takes one packet.  Its first piece is the buffer of a packet that was taken from the pool beforehand, from
so far before the place of the data that the virtio-net header ends where the frame begins: nothing is copied again, and
the headroom stays.  That packet waits from call to call (:func:`ready`); it goes back when the port is closed.  No queue
is asked whether there is something: the first read that finds it empty ends the burst.

What is longer than a buffer, up to the 64 kB that the kernel hands out uncut, must have room, for the kernel cuts off
the rest without a word.  After a long packet the pieces behind the first are segments of the pool too, ``long``, so
these are not copied either; but two dozen pieces cost each read some hundred cycles, so after a while of short packets
there is one piece instead, the ``spill``, and what ends up there is copied into segments.  Where the pool has none left
the packet waits in the spill.

Thread rule: one worker a queue.  *Source:* drivers/net/tun.c (tun_do_read, tun_put_user).
"""

import numpy as np

from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_segments
from wirespeed.core.packet import HEADROOM, Packet, data, last, reset
from wirespeed.core.pool import Pool, alloc
from wirespeed.core.stage import FIRST_REASON, Head, count_drops
from wirespeed.jit.intrinsics import load_i64, load_u64, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import realtime_ns, sys_readv
from wirespeed.net.offload import describe
from wirespeed.ports.tap.queue import HEADER

i64, u64, u32, u16 = np.int64, np.uint64, np.uint32, np.uint16
NO_ROOM = FIRST_REASON
DROPS = {"no_room": "The packet needs more segments than the pool has packets"}

# struct iovec: readv(2).
Piece = layout("Piece", [("address", "i8"), ("size", "i8")])
PIECE = Piece.size
# Most bytes of one packet: an IP packet of 65,535 (or of 65,536 of payload, as GSO makes them) behind a link header with
# tags, and room to spare.
LARGEST = 1 << 17

SHORTS = 64  # after so many packets that fit into one buffer there is one piece for the rest

State = layout(
    "TapReceive",
    [
        ("head", Head),
        ("fd", "i8"),
        ("link", "i8"),  # LINKTYPE_* of its packets
        ("short", "i8"),  # address of Piece[2]: the first buffer, the spill
        ("long", "i8"),  # address of Piece[length + 2]: the first buffer, those of segments, the spill
        ("segments", "i8"),  # address of the handles of these segments,
        ("length", "i8"),  # how many there are; 0 where the pool is too small to keep any
        ("missing", "i8"),  # and how many of them, the first ones, are still to be taken from the pool
        ("wanted", "i8"),  # packets to be read with the long row of pieces yet
        ("room", "i8"),  # bytes of a packet that go into the first buffer,
        ("span", "i8"),  # and into a segment
        ("first", "i8"),  # the packet that is read into next, or 0
        ("parked", "i8"),  # bytes of the spill that wait for segments, or 0: the first packet has the others
        ("bad_offload", "u8"),  # packets whose virtio-net header made no sense
        (None, 24),
    ],
)


@kernel(inline=True)
def ready(s):
    """See that there is a packet to read into; whether there is."""
    if s.first == 0:
        handle = alloc(s.head.cache)
        if handle == 0:
            return False
        s.first = handle
        address = Packet(handle).buffer + (HEADROOM - HEADER)
        Piece(s.short).address = address
        Piece(s.long).address = address
    return True


@kernel
def ready_segments(s):
    """See that all segments of the long row are there; whether they are."""
    while s.missing > 0:
        handle = alloc(s.head.cache)
        if handle == 0:
            return False
        s.missing -= 1
        # Bounds: missing is at most length.
        store_i64(s.segments + 8 * s.missing, handle)
        Piece(s.long + PIECE * (s.missing + 1)).address = Packet(handle).buffer
    return s.length > 0


@kernel
def chain_segments(s, handle, size):
    """Put the segments that a packet of ``size`` bytes was read into behind its first; return bytes in the spill."""
    rest, n = size - s.room, i64(0)
    Packet(handle).length = u32(s.room)
    end = handle
    while rest > 0 and n < s.length:
        more = load_i64(s.segments + 8 * n)
        q = Packet(more)
        run = min(rest, s.span)
        q.data = u32(0)
        q.length = u32(run)
        q.total = u32(run)
        Packet(end).next = more
        end = more
        rest -= run
        n += 1
    Packet(handle).segments = u16(n + 1)
    s.missing = n
    return rest


@kernel
def chain_spill(s, handle, rest):
    """Put segments with the ``rest`` bytes in the spill behind a packet; False when the pool has too few of them."""
    more = alloc_length(s.head.cache, rest)
    if more == 0:
        return False
    copy_in(more, i64(0), rest, Piece(s.short + PIECE).address)
    p = Packet(handle)
    p.segments = u16(i64(p.segments) + i64(Packet(more).segments))
    Packet(more).segments = u16(1)
    Packet(last(handle)).next = more
    return True


@kernel
def can_hold(cache, length):
    """Whether the whole pool, empty, would have segments for so many bytes more."""
    pool = Pool(load_i64(cache))
    return length <= (pool.size - 1) * pool.room - HEADROOM


@kernel
def complete_long(state, size, segmented):
    """Chain what a packet that is longer than its buffer has elsewhere; return how much of it waits for segments yet."""
    s = State(state)
    handle, rest = s.first, s.parked
    s.wanted = i64(SHORTS)
    if rest == 0:
        rest = size - s.room
        if segmented:
            rest = chain_segments(s, handle, size)
        else:
            Packet(handle).length = u32(s.room)
    if rest > 0 and not chain_spill(s, handle, rest):
        s.parked = rest
        return rest
    s.parked = i64(0)
    return i64(0)


@stage
def receive(state, burst, n):
    """Give up to ``n`` packets that the kernel has for us."""
    s = State(state)
    got, total, now = i64(0), i64(0), i64(0)
    while got < n and ready(s):
        handle = s.first
        p = Packet(handle)
        if s.parked == 0:
            segmented = s.wanted > 0 and ready_segments(s)
            if segmented:
                size = sys_readv(s.fd, s.long, s.length + 2) - HEADER
            else:
                size = sys_readv(s.fd, s.short, i64(2)) - HEADER
            if size <= 0:
                break  # nothing there, or no device; the port's service sees to that
            reset(p, size)
        else:
            size, segmented = i64(p.total), False
        if size > s.room:
            waits = complete_long(state, size, segmented)
            if waits > 0:
                if can_hold(s.head.cache, waits):
                    break
                count_drops(state, NO_ROOM, 1)
                give_back(state)
                continue
        elif s.wanted > 0:
            s.wanted -= 1
        s.first = i64(0)
        if now == 0:
            now = realtime_ns()
        p.time = now
        p.link = s.link
        header = data(p) - HEADER
        if load_u64(header) != u64(0) and not describe(handle, header, i64(HEADER)):
            s.bad_offload += u64(1)
        store_i64(burst + 8 * got, handle)
        got += 1
        total += size
    s.head.bytes += u64(total)
    return got


@kernel
def give_back(state):
    """Give back the packet that is read into next, with all that it has."""
    s = State(state)
    s.parked = i64(0)
    if s.first != 0:
        free_segments(s.head.cache, s.first)
        s.first = i64(0)


@kernel
def give_up(state):
    """Give back all packets that wait to be read into; the worker must have left."""
    s = State(state)
    give_back(state)
    for i in range(s.missing, s.length):
        free_segments(s.head.cache, load_i64(s.segments + 8 * i))
    s.missing = s.length
