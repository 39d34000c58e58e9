"""Workers that come, go, die or are fenced, as the distributor sees it: their grants, and what becomes of their lines.

Theory of operation
-------------------
Who leaves has given back what it held and takes no more, so all lines that have not come back go to others, in order
and before anything newer: they are put in front of what is parked.  Who is known dead is treated in the same way; the
line that it had begun is done once more by another, or counted lost, as the distributor was told.  Who hangs may wake
up at any moment, so nothing that was sent to it can be given to others: it is counted lost when the user fences it, and
only what was not sent is taken back.  Its desk stays its own until it has seen the fence, or is dead.

Returns that find no room keep a worker from leaving: they must be taken first.

Order pairs: D2, D3 as in :mod:`wirespeed.core.distributor.desk`.
Thread rules: the distributor's thread alone.
"""

import numpy as np

from wirespeed.core.distributor.backlog import Backlog, begin_line, collect, is_back, slot_of
from wirespeed.core.distributor.desk import (
    ACTIVE,
    CLOSED,
    EVERYBODY,
    FENCED,
    ITEMS,
    JOIN,
    LEAVE,
    NOBODY,
    STATE,
    Desk,
    Desks,
    Line,
)
from wirespeed.core.distributor.turns import backlog_of, list_active
from wirespeed.jit.atomics import compare_exchange, load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import load_u32, load_u64, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import futex_wake

u32, i64, u64 = np.uint32, np.int64, np.uint64
NEVER = 1 << 30  # lines from now: no worker waits for that one


@kernel
def grant(d, b, state):
    """Tell a worker its state, and wake it."""
    word = (u64(b.epoch) << u64(8) | u64(state)) << u64(32) | u64(b.open)
    store_release(Desk(b.desk), "grant", word)  # D3
    for k in range(i64(d.lines)):
        # Neither of an epoch before nor of this is any line with such a number; who sleeps on one finds it changed.
        number = u32(b.open - u32(1)) if state == ACTIVE else u32(b.open + u32(NEVER))
        store_release(Line(b.places + d.line_size * k), "control", u64(number))
        futex_wake(b.places + d.line_size * k, i64(EVERYBODY))
    futex_wake(b.desk + STATE, i64(EVERYBODY))


@kernel
def _park_line(d, slot, count):
    """Put the items of a slot in front of what is parked.

    Bounds: beside what process() parks there is room for all slots of all workers.
    """
    for k in range(count - 1, -1, -1):
        d.parked_head -= 1
        at = d.parked_head & d.parked_mask
        store_u64(d.parked_items + 8 * at, load_u64(slot + ITEMS + 8 * k))
        store_u32(d.parked_tags + 4 * at, load_u32(slot + d.line_size + 4 * k))


@kernel
def _count_of(d, b, line):
    """Items of a line that has not come back."""
    return i64(b.fill) if line == b.open else i64(load_u64(slot_of(d, b, line)) >> u64(32))


@kernel
def _release(d, b, kept, state):
    """Take all lines of a worker from ``kept`` on back for others, count those before it lost, and end its epoch."""
    line = b.open
    while line != u32(kept - u32(1)):
        count = _count_of(d, b, line)
        _park_line(d, slot_of(d, b, line), count)
        b.taken_back += u64(count)
        line = u32(line - u32(1))
    while line != u32(b.window.done - u32(1)):
        count = _count_of(d, b, line)
        b.lost += u64(count)
        d.outstanding -= count
        line = u32(line - u32(1))
    begin_line(d, b, u32(b.open + u32(1)))
    b.sent, b.window.done = b.open, b.open
    b.window.length, b.active, b.full, b.stalled = 0, 0, 0, 0
    grant(d, b, state)
    list_active(d)


@kernel
def take_back(d, b):
    """Have a worker that has left be gone; False while returns find no room."""
    collect(d, b)
    if is_back(d, b):
        return False
    _release(d, b, b.window.done, i64(NOBODY))
    return True


@kernel
def bury(d, b, owner):
    """Have a worker that is known to be dead be gone, and its desk nobody's: 1, or 0 when it is not its desk any more.

    Less than 0 while returns find no room.
    """
    if b.active != 0:
        collect(d, b)
        if is_back(d, b):
            return i64(-1)
    # What it wished last is dead with it.  Read first: behind the exchange, the wish can be the next owner's.
    epoch = u32(load_acquire(Desk(b.desk), "wish"))
    if not compare_exchange(Desk(b.desk), "owner", owner, 0):
        return i64(0)
    kept = b.window.done
    if (
        d.in_hand == 0
        and b.active != 0
        and kept != b.sent
        and load_relaxed(Desk(b.desk), "taken") == u32(kept + u32(1))
    ):
        kept = u32(kept + u32(1))
    b.epoch = epoch
    if b.active != 0:
        b.takeovers += u32(1)
        _release(d, b, kept, i64(NOBODY))
    else:
        grant(d, b, i64(NOBODY))
    return i64(1)


@kernel
def close(d):
    """Tell all workers that nothing comes any more."""
    for number in range(d.workers):
        grant(d, Backlog(backlog_of(d, number)), i64(CLOSED))


@kernel
def _admit(d, b, epoch):
    """Give lines to a worker that has asked for them."""
    b.epoch, b.active = epoch, 1
    b.window.length = 1
    b.joins += u32(1)
    grant(d, b, i64(ACTIVE))
    list_active(d)


@kernel
def _attend_to(d, b):
    """Do what a worker wishes; False when that must be looked at again."""
    wish = load_acquire(Desk(b.desk), "wish")  # D2 pairs with W2
    epoch, what = u32(wish), i64(wish >> u64(32))
    if b.active != 0 and (epoch != b.epoch or what == LEAVE) and not take_back(d, b):
        return False
    if what == JOIN and b.active == 0 and epoch != b.epoch:
        _admit(d, b, epoch)
    return True


@kernel
def fence(d, b):
    """Expect nothing more of a worker that hangs; what was sent to it is lost.  How many items that were.

    -1 when it is not active; -2 while returns find no room.
    """
    if not _attend_to(d, b):
        return i64(-2)
    if b.active == 0:
        return i64(-1)
    collect(d, b)
    if is_back(d, b):
        return i64(-2)
    before = b.lost
    b.fences += u32(1)
    _release(d, b, b.sent, i64(FENCED))
    return i64(b.lost - before)


@kernel
def attend(d):
    """Do what the workers wish."""
    bell = load_acquire(Desks(d.desks), "bell")
    done = True
    for number in range(d.workers):
        if not _attend_to(d, Backlog(backlog_of(d, number))):
            done = False
    if done:
        d.bell = bell
