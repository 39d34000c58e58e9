"""What the distributor holds for a worker: lines that are filled, sent and taken back, each until its return.

Theory of operation
-------------------
A worker's lines have numbers; ``done`` <= ``sent`` <= ``open``.  Those below ``done`` have come back.  From there to
``sent`` they are with the worker, up to ``open`` they are closed and wait until fewer than K are with it, and ``open``
is the one that is being filled.  Each has a *slot*, the image of the line, and the tags of its items, kept until the
line is back: it is what others are given should the worker die.  The lines that the worker reads are written only when
one is sent, in one go, so that a worker that looks for the next line does not fight for it.

What comes back is looked for late, when room is wanted: then several lines are there already, and nobody waits for a
cache line on its way.  It goes into the *returns*, a FIFO for the program to take them from; when there is no room in
it, the line stays where it is, and so, in the end, does everything behind it.  Nothing is overwritten.

Order pairs: as in :mod:`wirespeed.core.distributor.desk`.
Thread rules: the distributor's thread alone.
"""

import numpy as np

from wirespeed.core.distributor.desk import AHEAD, BACK, ITEMS, Desk, Line
from wirespeed.core.distributor.pins import Pins, Window, entry_of
from wirespeed.core.slots import copy_words
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_relaxed, store_release
from wirespeed.jit.intrinsics import copy, load_u64, prefetch_write, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import futex_wake

u32, i64, u64 = np.uint32, np.int64, np.uint64
COUNT = 0xFFFF << 32  # of a control word
LARGEST = 31  # items that a copy of a line may write
SIZES = 32  # bursts are counted by size, 0 to 31

Backlog = layout(
    "Backlog",
    [
        # All that a packet needs.
        ("window", Window),  # ``done``, and how many lines from it on are live: up to ``open``, none when not active
        ("fill", "u4"),  # items in the open line
        ("open", "u4"),
        ("sent", "u4"),
        ("entry", "u4"),  # of a tag in the open line
        ("slot", "i8"),  # of the open line
        ("slots", "i8"),
        ("places", "i8"),  # where the lines that pass to and fro lie
        ("desk", "i8"),
        (None, 8),
        # Its state and numbers.
        ("active", "u4"),
        ("stalled", "u4"),  # it was waited for in vain: what is for it is parked until it gives something back
        ("full", "u4"),  # its open line is full, and there is no slot for another
        ("epoch", "u4"),
        ("number", "u4"),
        ("call", "u4"),  # of process(), in which it was sent a line last
        ("packets", "u8"),  # items sent
        ("returned", "u8"),  # items that came back
        ("consumed", "u8"),  # items that a worker did not return
        ("added", "u8"),  # items that a worker returned beyond what it was given
        ("lost", "u8"),  # items counted lost by a fence, or with a dead worker
        ("taken_back", "u8"),  # items that were given to others
        ("takeovers", "u4"),
        ("fences", "u4"),
        ("malformed", "u4"),  # lines back that said more items than fit
        ("joins", "u4"),
        ("occupancy", "u8"),  # sum over all lines sent of how many were under way
        ("bursts", "u8", SIZES),  # lines sent, by how many items they had
        (None, 152),
    ],
    # Nine cache lines, not eight: the first lines of all workers are spread over all sets of the first cache.
    size=576,
)
BACKLOG = Backlog.size
assert Backlog.offset("window") == 0 and Backlog.offset("active") == 64

# One for each distributor, private to it.
Distributor = layout(
    "Distributor",
    [
        ("desks", "i8"),  # 0 when it is closed, or in a fork
        ("backlogs", "i8"),
        ("pins", Pins),
        ("workers", "i8"),
        ("burst", "i8"),
        ("lines", "u4"),  # K
        ("slots", "u4"),  # L: lines of a worker in all
        ("line_size", "i8"),
        ("slot_size", "i8"),
        ("current", "i8"),  # backlog of the worker that tags without one are given to, or 0: nobody has room
        ("turn", "i8"),  # place of it among the active
        ("active", "i8"),  # address of u4[workers], the numbers of active ones
        ("n_active", "i8"),
        ("looked", "i8"),  # whose turn it is to be looked at, among the active
        ("bell", "u4"),  # as last seen
        ("gained", "u4"),  # a worker that was full is not any more: what is parked must be offered before anything new
        ("in_hand", "u4"),  # what becomes of a line that a dead worker had begun: 1 done again, 0 lost
        (None, 4),
        # The returns: room for ``returns_mask`` + 1 items, and for a line beyond.
        ("returns", "i8"),
        ("returns_mask", "i8"),
        ("returns_head", "i8"),  # taken so far
        ("returns_tail", "i8"),  # put in so far
        ("keeps", "i8"),  # 0: what comes back is counted only
        # The parked: items and their tags.
        ("parked_items", "i8"),
        ("parked_tags", "i8"),
        ("parked_mask", "i8"),
        ("parked_head", "i8"),
        ("parked_tail", "i8"),
        ("parked_most", "i8"),  # how many process() parks
        # Numbers.
        ("outstanding", "i8"),  # taken, and neither back nor counted
        ("processed", "u8"),
        ("parked_ever", "u8"),
        ("reason", "i8"),  # why the last process() took no more
        ("call", "u4"),  # calls of process(), wrapping
        (None, 4),
        ("blocked", "i8"),  # number of the worker that had no room then, or -1
        ("out_of_place", "u8"),  # how often a tag found no place in the table
    ],
    size=512,
)


@kernel(inline=True)
def slot_of(d, b, line):
    """The address of the slot of a line."""
    return b.slots + d.slot_size * i64(line & u32(d.slots - u32(1)))


@kernel(inline=True)
def place_of(d, b, line):
    """The address of the place in which a line passes to and fro."""
    return b.places + d.line_size * i64(line & u32(d.lines - u32(1)))


@kernel(inline=True)
def copy_line(dst, src, n):
    """Copy ``n`` items of a line, and what lies behind them in the same cache lines: that many moves are known."""
    if n <= 7:
        copy(dst, src, 56)
    elif n <= 15:
        copy(dst, src, 120)
    else:
        copy(dst, src, 248)


@kernel
def _wake(desk, out):
    store_relaxed(Desk(desk), "asleep", 0)  # one call for all the lines that are sent until it runs
    futex_wake(out, i64(1))


@kernel(inline=True)
def _send(d, b):
    """Send the first closed line; the caller knows that there is one and that fewer than K are with the worker."""
    line = b.sent
    slot = slot_of(d, b, line)
    out = place_of(d, b, line)
    control = load_u64(slot)
    count = i64(control >> u64(32))
    # Bounds: a line has room for a burst, and the worker has given back whatever was in this place.
    copy_line(out + ITEMS, slot + ITEMS, count)
    store_release(Line(out), "control", control)  # D0
    b.sent = u32(line + u32(1))
    b.call = d.call
    b.packets += u64(count)
    b.occupancy += u64(u32(b.sent - b.window.done))
    at = b.bursts + 8 * count
    store_u64(at, load_u64(at) + u64(1))
    if load_relaxed(Desk(b.desk), "asleep") != 0:
        _wake(b.desk, out)


@kernel(inline=True)
def _push(d, b):
    """Send what is closed, as far as fewer than K lines are with the worker."""
    while b.sent != b.open and u32(b.sent - b.window.done) < d.lines:
        _send(d, b)


@kernel(inline=True)
def _keep(d, items, n):
    """Put items that came back into the returns, where there is room for them."""
    at = d.returns_tail & d.returns_mask
    # Bounds: behind the last place there is room for a line.
    if d.returns_tail - d.returns_head + LARGEST <= d.returns_mask + 1:
        copy_line(d.returns + 8 * at, items, n)
    else:
        copy_words(d.returns + 8 * at, items, 8 * n)
    beyond = at + n - (d.returns_mask + 1)
    if beyond > 0:
        copy_words(d.returns, d.returns + 8 * (d.returns_mask + 1), 8 * beyond)
    d.returns_tail += n


@kernel(inline=True)
def take_lines(d, b, send):
    """Take what a worker has given back, and, if ``send``, send it what waited for that; how many lines came back."""
    lines = i64(0)
    while b.window.done != b.sent:
        done = b.window.done
        back = place_of(d, b, done)
        control = load_acquire(Line(back), "control")  # W1 pairs with W0
        if control & ~u64(COUNT) != u64(BACK) | u64(done):
            break
        if u32(b.sent - done) > u32(2 * AHEAD):
            # Likely it is back as well, and it is written next: asked for now, it is here when we come to it.
            ahead = place_of(d, b, u32(done + u32(AHEAD)))
            for k in range(0, d.line_size, 64):
                prefetch_write(ahead + k)
        n = i64(control & u64(COUNT)) >> 32
        if n > d.burst:
            b.malformed += u32(1)
            n = i64(0)
        if d.keeps != 0:
            if d.returns_tail - d.returns_head + n > d.returns_mask + 1:
                break
            _keep(d, back + ITEMS, n)
        b.window.done = u32(done + u32(1))
        b.window.length = u32(b.window.length - u32(1))
        if send and b.sent != b.open:  # at once, for the worker may have nothing else
            _send(d, b)
        given = i64(load_u64(slot_of(d, b, done)) >> u64(32))
        d.outstanding -= given
        b.returned += u64(n)
        if n < given:
            b.consumed += u64(given - n)
        elif n > given:
            b.added += u64(n - given)
        lines += 1
    if lines > 0:
        b.stalled = 0
    return lines


@kernel
def collect(d, b):
    """Take what a worker that is given no more has given back; how many lines came back."""
    return take_lines(d, b, False)


@kernel(inline=True)
def is_back(d, b):
    """Whether the first line that is out has come back, and is not taken yet."""
    control = load_acquire(Line(place_of(d, b, b.window.done)), "control")  # W1 pairs with W0
    return b.window.done != b.sent and control & ~u64(COUNT) == u64(BACK) | u64(b.window.done)


@kernel(inline=True)
def begin_line(d, b, line):
    """Have a line be the open one."""
    b.open, b.fill = line, 0
    b.entry = entry_of(b.number, line)
    b.slot = slot_of(d, b, line)


@kernel
def close_line(d, b):
    """Have the open line, which has items, sent, and begin the next, if a slot is free for it; whether one was."""
    if u32(b.sent - b.window.done) >= d.lines:
        take_lines(d, b, True)
    if u32(b.open + u32(1) - b.window.done) >= d.slots:
        if i64(b.fill) == d.burst:
            b.full = 1
        return False
    b.full = 0
    store_u64(b.slot, u64(b.fill) << u64(32) | u64(b.open))
    b.window.length = u32(b.window.length + u32(1))
    begin_line(d, b, u32(b.open + u32(1)))
    _push(d, b)
    return True
