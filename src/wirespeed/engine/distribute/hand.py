"""What stands before and behind the functions of a crew: a source of what the distributor sends, sinks for what goes back.

Theory of operation
-------------------
A worker of the crew has one *hand*: the line that the distributor sent it last, and the line that goes back, item for
item.  The source takes a line and gives its packets to what stands behind it; each sink, one for each output, finds the
place of a packet in the line and writes it there with its output.  A round moves every packet to a sink, so when the
source is called again, all have arrived; those that have not were dropped, and the line goes back with a gap in their
places.  As long as a stage in between holds packets, the line is kept, for while its packets are here, no other worker
may have their flows.

A source that finds nothing for a while sleeps on the line that comes next, where the distributor wakes it.  Its worker must
not sleep besides: nothing would wake that.

Order pairs: those of :mod:`wirespeed.core.distributor.desk`; for want of a barrier behind D0, a sleeper can be missed, and
wakes after :data:`NAP_NS`.
Thread rules: a hand is its worker's.  When that has left, :func:`finish_lines` is for whoever winds up the run.
"""

import numpy as np

from wirespeed.core.distributor.desk import MOST_BURST, NOTHING, Cursor, Desk, Line, items_of, join, poll, request
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.engine.distribute.item import handle_of, without_packet
from wirespeed.engine.worker import SLEEP_NS, SPIN_ROUNDS, Worker, waiting
from wirespeed.jit.atomics import load_relaxed, store_relaxed
from wirespeed.jit.intrinsics import load_i64, prefetch, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import futex_wait

i64, u32 = np.int64, np.uint32
AT_ONCE = 1  # a time that is always past
NAP_NS = SLEEP_NS
SURPLUS = FIRST_REASON
SINK_DROPS = {"surplus": "More packets came out of the crew's stages than went in"}
STOP = Worker.offset("stop")

Hand = layout(
    "Hand",
    [
        ("cursor", "i8"),
        ("joined", "i8"),  # whether it has asked for lines
        ("count", "i8"),  # items of the line in hand
        ("given", "i8"),  # of these, how many the source has given
        ("idle", "i8"),  # looks in a row that found nothing
        ("items", "i8", 32),
        ("back", "i8", 32),  # in the same order; those without a packet are of packets that have not arrived
        (None, 88),
    ],
    size=640,
)
HAND = Hand.size
assert MOST_BURST <= 32

SourceState = layout("CrewSourceState", [("head", Head), ("hand", "i8"), (None, 56)])
SinkState = layout(
    "CrewSinkState",
    [
        ("head", Head),
        ("hand", "i8"),
        ("output", "i8"),
        ("at", "i8"),  # where in the line the next packet is most likely to be
        (None, 40),
    ],
)


@kernel
def _nap(h):
    """Sleep until the next line comes, or for a while."""
    c = Cursor(h.cursor)
    d, line = Desk(c.desk), c.lines + c.line_size * i64(c.next & c.mask)
    store_relaxed(d, "asleep", 1)
    seen = u32(load_relaxed(Line(line), "control"))
    if seen != c.next:
        futex_wait(line, i64(seen), i64(NAP_NS))  # which looks again, behind a barrier
    store_relaxed(d, "asleep", 0)


@kernel
def _next_line(h):
    """Take the next line into the hand; whether there was one."""
    if h.joined == 0:
        join(h.cursor)
        h.joined = 1
    count = poll(h.cursor)
    if count < 0:
        h.idle = h.idle + 1 if count == NOTHING else i64(0)
        return False
    h.idle = i64(0)
    items = items_of(h.cursor)
    for i in range(count):
        item = load_i64(items + 8 * i)
        prefetch(handle_of(item))
        prefetch(handle_of(item) + 256)  # where the data of a packet that came in by a port begins
        store_i64(h.items + 8 * i, item)
        store_i64(h.back + 8 * i, without_packet(item))
    h.count, h.given = count, i64(0)
    return True


@kernel(inline=True)
def _give_back(h):
    request(h.cursor, h.back, h.count)
    h.count, h.given = i64(0), i64(0)


@stage
def take_lines(state, burst, n):
    """A source of the packets of one line after the other."""
    h = Hand(SourceState(state).hand)
    if h.given == h.count:
        w = Worker(Head(state).stop - STOP)
        if Cursor(h.cursor).hand != 0:
            if waiting(w) > 0:
                return i64(0)
            _give_back(h)
        if not _next_line(h):
            if h.idle >= SPIN_ROUNDS and w.busy == 0:
                _nap(h)
            return i64(0)
    n = min(n, h.count - h.given)
    for i in range(n):
        store_i64(burst + 8 * i, handle_of(load_i64(h.items + 8 * (h.given + i))))
    h.given += n
    return n


@kernel(inline=True)
def _find(h, handle, start):
    """The place of a packet in the line: its own or, of one that took another's place, the first that is free; or -1."""
    for k in range(h.count):
        at = start + k
        if at >= h.count:
            at -= h.count
        if handle_of(load_i64(h.items + 8 * at)) == handle and handle_of(load_i64(h.back + 8 * at)) == 0:
            return at
    for at in range(h.count):
        if handle_of(load_i64(h.back + 8 * at)) == 0:
            return at
    return i64(-1)


@stage
def collect_output(state, burst, n):
    """A sink for one output: puts packets into the line that goes back."""
    s = SinkState(state)
    h = Hand(s.hand)
    for i in range(n):
        handle = load_i64(burst + 8 * i)
        at = _find(h, handle, s.at if s.at < h.count else i64(0))
        if at < 0:
            drop(state, handle, i64(SURPLUS))
            continue
        store_i64(h.back + 8 * at, load_i64(h.back + 8 * at) | handle | s.output)  # Bounds: within the line.
        s.at = at + 1
    return i64(0)


@kernel
def finish_lines(hand):
    """Give back what a worker that has left had in hand, and all that was sent to it, as it is; how many lines."""
    h = Hand(hand)
    lines = i64(0)
    if Cursor(h.cursor).hand == 0 and (h.joined == 0 or not _next_line(h)):
        return lines
    while True:
        for i in range(h.given, h.count):
            store_i64(h.back + 8 * i, load_i64(h.items + 8 * i))
        _give_back(h)
        lines += 1
        if not _next_line(h):
            return lines
