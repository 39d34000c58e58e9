"""The source of a tap: packets that the kernel transmits by the interface, read straight into buffers of the pool.

Theory of operation
-------------------
One ``readv`` takes one packet.  Its pieces are a *row*: the first is the buffer of a packet that was taken from the pool
beforehand, from so far before the place of the data that the virtio-net header ends where the frame begins: nothing is
copied again, and the headroom stays.  That packet waits from call to call; it goes back when the port is closed.  No queue
is asked whether there is something: the first read that finds it empty ends the burst.

What is longer than a buffer, up to the 64 kB that the kernel hands out uncut, must have room, for the kernel cuts off
the rest without a word: it goes into the *spill*, the second piece, and is copied into segments from there.  While there
are long packets, segments of the pool stand before the spill in a *long row*, so these are not copied either; but thirty
pieces cost each read some hundred cycles, so after a while of short packets it is left alone.  Where the pool has no
segments left, what was read waits.

After a call that filled its burst more is expected: then several rows are read at once (:mod:`wirespeed.ports.tap.batch`).

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
from wirespeed.ports.tap.batch import READV, Batch, prepare, run
from wirespeed.ports.tap.queue import HEADER

i64, u64, u32, u16 = np.int64, np.uint64, np.uint32, np.uint16
NO_ROOM = FIRST_REASON
DROPS = {"no_room": "The packet needs more segments than the pool has packets"}

# struct iovec: readv(2).
Piece = layout("Piece", [("address", "i8"), ("size", "i8")])
PIECE = Piece.size
ROW = 2 * PIECE
ROWS = 16
# Most bytes of one packet behind its first buffer: an IP packet of 65,535 bytes, or with as many of payload, and a link
# header with tags.  The kernel's own limit for a tap is GSO_LEGACY_MAX_SIZE, 65,536.
LARGEST = (1 << 16) + 4096
SHORTS = 64  # after so many packets that fit into one buffer the long row is not used any more

State = layout(
    "TapReceive",
    [
        ("head", Head),
        ("fd", "i8"),
        ("link", "i8"),  # LINKTYPE_* of its packets
        ("batch", "i8"),  # address of its batch, or 0
        ("rows", "i8"),  # address of ROWS rows: a first buffer and a spill each
        ("firsts", "i8"),  # address of the handles of the packets whose first buffers these are, or 0
        ("sizes", "i8"),  # address of what was read into each row, header included, or minus errno
        ("next", "i8"),  # the row that is looked at next,
        ("filled", "i8"),  # and how many were read
        ("busy", "i8"),  # 1 when the last call filled its burst
        ("segmented", "i8"),  # 1 when the first row was read as the long one
        ("long", "i8"),  # address of the long row: the first buffer, those of the segments, the first row's spill
        ("segments", "i8"),  # address of the handles of these segments,
        ("length", "i8"),  # how many there are; 0 where the pool is too small to keep any
        ("missing", "i8"),  # and how many of them, the first ones, are still to be taken from the pool
        ("wanted", "i8"),  # packets to be read with the long row yet
        ("room", "i8"),  # bytes of a packet that go into the first buffer,
        ("span", "i8"),  # and into a segment
        ("waits", "i8"),  # 1 when the row that is looked at next was, and the pool had too few segments
        ("bad_offload", "u8"),  # packets whose virtio-net header made no sense
        (None, 40),
    ],
)


@kernel(inline=True)
def ready(s, n):
    """See that ``n`` rows have a packet to read into; return how many, from the first on, have one."""
    for i in range(n):
        if load_i64(s.firsts + 8 * i) == 0:
            handle = alloc(s.head.cache)
            if handle == 0:
                return i64(i)
            store_i64(s.firsts + 8 * i, handle)
            Piece(s.rows + ROW * i).address = Packet(handle).buffer + (HEADROOM - HEADER)
    return i64(n)


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
    Piece(s.long).address = Piece(s.rows).address
    return s.length > 0


@kernel
def read_many(s, n):
    """Read up to ``n`` rows at once; return how many were tried."""
    n = ready(s, min(n, i64(ROWS)))
    b = Batch(s.batch)
    for i in range(n):
        prepare(b, i64(i), i64(READV), s.fd, s.rows + ROW * i, i64(2))
    if n > 0:
        run(b)
    return n


@kernel(inline=True)
def read(s, n):
    """Read a row, or several of up to ``n`` where so many are expected; return how many were tried, 0 without a packet."""
    s.next = i64(0)
    s.segmented = i64(0)
    if s.busy != 0 and s.batch != 0 and s.wanted == 0 and n > 1:
        return read_many(s, n)
    if ready(s, i64(1)) == 0:
        return i64(0)
    if s.wanted > 0 and ready_segments(s):
        s.segmented = i64(1)
        store_i64(s.sizes, sys_readv(s.fd, s.long, s.length + 2))
    else:
        store_i64(s.sizes, sys_readv(s.fd, s.rows, i64(2)))
    return i64(1)


@kernel
def chain_segments(s, handle, rest):
    """Put the segments that ``rest`` bytes were read into behind the first; return how many are in the spill."""
    n, end = i64(0), handle
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
def chain_spill(s, handle, rest, spill):
    """Put segments with the ``rest`` bytes in a spill behind a packet; False when the pool has too few of them."""
    more = alloc_length(s.head.cache, rest)
    if more == 0:
        return False
    copy_in(more, i64(0), rest, spill)
    p = Packet(handle)
    p.segments = u16(i64(p.segments) + i64(Packet(more).segments))
    Packet(more).segments = u16(1)
    Packet(last(handle)).next = more
    return True


@kernel
def can_hold(s, length):
    """Whether the pool, but for the packets that wait to be read into, would have segments for so many bytes more."""
    pool = Pool(load_i64(s.head.cache))
    reserved = s.length + (ROWS if s.batch != 0 else 1)
    return length <= (pool.size - reserved) * pool.room - HEADROOM


@kernel
def complete(state, row, size):
    """Chain what a packet of ``size`` bytes has beside its first buffer; 0 when it must wait for that, -1 if for ever."""
    s = State(state)
    handle = load_i64(s.firsts + 8 * row)
    s.wanted = i64(SHORTS)
    rest = size - s.room
    if s.waits == 0:
        Packet(handle).length = u32(s.room)
        if s.segmented != 0:
            rest = chain_segments(s, handle, rest)
    elif s.segmented != 0:
        rest -= s.length * s.span  # these are chained already
    if rest <= 0 or chain_spill(s, handle, rest, Piece(s.rows + ROW * row + PIECE).address):
        return i64(1)
    return i64(0) if can_hold(s, rest) else i64(-1)


@stage
def receive(state, burst, n):
    """Give up to ``n`` packets that the kernel has for us."""
    s = State(state)
    got, total, now, empty = i64(0), i64(0), i64(0), False
    while got < n:
        if s.next == s.filled:
            if empty:
                break  # nothing more there, or no device; the port's service sees to that
            s.filled = read(s, n - got)
            if s.filled == 0:
                break
        row = s.next
        size = load_i64(s.sizes + 8 * row) - HEADER
        if size <= 0:
            empty = True
            s.next = row + 1
            continue
        handle = load_i64(s.firsts + 8 * row)
        p = Packet(handle)
        if s.waits == 0:
            reset(p, size)
        if size > s.room:
            done = complete(state, row, size)
            s.waits = i64(done == 0)
            if done == 0:
                break
            if done < 0:
                count_drops(state, NO_ROOM, 1)
                give_back(s, row)
                s.next = row + 1
                continue
        elif s.wanted > 0:
            s.wanted -= 1
        store_i64(s.firsts + 8 * row, i64(0))
        s.next = row + 1
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
    s.busy = i64(got == n)
    s.head.bytes += u64(total)
    return got


@kernel
def give_back(s, row):
    """Give back the packet that a row is read into, with all that it has."""
    handle = load_i64(s.firsts + 8 * row)
    if handle != 0:
        store_i64(s.firsts + 8 * row, i64(0))
        free_segments(s.head.cache, handle)


@kernel
def give_up(state):
    """Give back all packets that wait to be read into; the worker must have left."""
    s = State(state)
    for row in range(ROWS):
        give_back(s, i64(row))
    for i in range(s.missing, s.length):
        free_segments(s.head.cache, load_i64(s.segments + 8 * i))
    s.missing = s.length
