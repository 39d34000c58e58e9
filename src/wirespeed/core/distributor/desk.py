"""A worker's desk: the lines that pass between it and the distributor, and how a worker comes, goes and is told so.

Theory of operation
-------------------
A *line* is 64, 128 or 256 bytes: a control word and up to 7, 15 or 31 items.  The distributor writes line number s to
the place s modulo K, and its control word last: s, and how many items.  The worker waits for the number that comes
next.  When it is done, it writes what it returns into the same line, the control word last: s, how many, and BACK.
Every line tells by its number where it is, so neither side ever clears a flag of the other's: the distributor sends
line s only after it has taken back line s - K, and by then the worker has done with the place.  K lines are under way
at once: one, and each waits for the answer to the last; several, and the journey of a cache line between two cores is
hidden.

Both directions have one line because a line that is read and then written by one core after the other travels once
each way; with a line for each direction both cores first had to take it from the other before they wrote, and a round
took half as long again (docs/decisions.md).

A worker comes and goes by its *wish*, and the distributor answers by its *grant*; both carry an epoch, so that who
leaves and comes back before anybody looked is not taken for somebody who never left.  Only the desk's owner writes the
wish, so its epoch counts the stays at the desk exactly, whoever's they are.  The owner is one word, thread and when it
began: who died right behind taking a desk is told apart from who had it before.

Order pairs: D0, the releasing store of a line's control word, and D1, its acquiring load by the worker; W0 and W1, the
same on the way back.  W2, the release of the wish, and D2: what was given back before a worker left is seen by who sees
that it left.  D3, the release of the grant, and W3: the lines of the new epoch begin with the number in the grant.
S0, the store of ``asleep``, is followed by a full barrier and another look (S1); the load of ``asleep`` behind D0 or W0
has none, for that would cost more than the line.  So a sleeper can be missed: it looks again after
:data:`wirespeed.core.distributor.calls.NAP_NS`.

Thread rules: the kernels here are the worker's.  A cursor is of one thread; the desk's first pair of lines is the
distributor's to write, the second the worker's.
Source: the handshake of DPDK's distributor (rte_distributor.c), which has one line under way, with flags in it.
"""

import numpy as np

from wirespeed.core.slots import copy_words
from wirespeed.jit.atomics import compare_exchange, fetch_add, load_acquire, load_relaxed, store_relaxed, store_release
from wirespeed.jit.intrinsics import prefetch_write
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import futex_wake

u32, i64, u64 = np.uint32, np.int64, np.uint64
ITEMS = 8  # where a line's items begin
BACK = 1 << 48  # in a line's control word: the worker has given it back
MOST_BURST = 31
NOBODY, ACTIVE, FENCED, CLOSED = 0, 1, 2, 3  # states of a grant
JOIN, LEAVE = 1, 2  # wishes; 0 is none
EPOCHS = 1 << 24
AHEAD = 2  # lines that are asked for before they are looked at
# What a worker's call returns instead of a count.
NOTHING, NOT_YET, WAS_FENCED, IS_CLOSED, HOLDING, TOO_MANY, NOT_JOINED = -1, -2, -3, -4, -5, -6, -7
EVERYBODY = 0x7FFFFFFF

# A line's first word; the items follow.
Line = layout("Line", [("control", "u8", [("seq", "u4"), ("count", "u2"), ("back", "u2")])])

# What all desks have in common, and where they begin.
Desks = layout(
    "Desks",
    [
        ("workers", "u4"),
        ("burst", "u4"),  # most items of a line
        ("lines", "u4"),  # K, a power of two
        ("line_size", "u4"),
        ("desk_size", "u4"),
        ("asleep", "u4"),  # the distributor sleeps until the bell moves
        ("owner", "u8"),  # the thread that made it, as a desk's owner
        (None, 96),
        ("bell", "u4"),  # workers count it up when there is something to look at that is not in a line
        (None, 124),
    ],
    size=256,
)

Desk = layout(
    "Desk",
    [
        # written by the distributor
        ("grant", "u8", [("start", "u4"), ("state", "u4")]),  # number of the first line; epoch and state
        (None, 120),
        # written by the worker, rarely
        ("wish", "u8", [("epoch", "u4"), ("what", "u4")]),
        # The worker's thread, and when it began in clock ticks since the machine did; 0 while the desk is nobody's.
        ("owner", "u8", [("thread", "u4"), ("started", "u4")]),
        ("asleep", "u4"),  # it sleeps until the control word of its next line changes
        (None, 12),
        ("name", "u1", 32),
        (None, 64),
        # written by the worker, for every line
        ("taken", "u4"),  # number of the line that it takes next
        (None, 4),
        ("beats", "u8"),  # calls that looked for a line
        (None, 112),
    ],
    size=384,
)
DESKS, DESK = Desks.size, Desk.size
BELL, STATE = Desks.offset("bell"), Desk.offset("grant") + 4  # words that are slept on
assert (Desk.offset("wish"), Desk.offset("taken"), Desks.offset("bell")) == (128, 256, 128)

# A worker's own place in its lines; private to it.
Cursor = layout(
    "Cursor",
    [
        ("desks", "i8"),  # 0 when it is closed, or in a fork
        ("desk", "i8"),
        ("lines", "i8"),
        ("line_size", "i8"),
        ("burst", "u4"),
        ("mask", "u4"),  # K - 1
        ("next", "u4"),  # number of the line to take next
        ("hand", "u4"),  # whether it has the line before that
        ("count", "u4"),  # items of it
        ("epoch", "u4"),
        ("joined", "u4"),  # whether it has wished to join, and not to leave
        ("waited", "u4"),  # it looked in vain since the last line
        (None, 4),
        ("grant", "u8"),  # by which it gets lines, or 0
        ("owner", "u8"),  # of the desk, as it is there while the desk is this worker's
    ],
    size=128,
)


@kernel(inline=True)
def state_of(grant):
    """The state in a grant, or in the upper half of its word."""
    return i64(grant >> u64(32)) & 0xFF


@kernel(inline=True)
def epoch_of(grant):
    """The epoch in a grant."""
    return u32(grant >> u64(40))


@kernel(inline=True)
def ring_bell(desks):
    """Have the distributor look at the wishes, and wake it if it sleeps."""
    fetch_add(Desks(desks), "bell", 1)
    wake_distributor(desks)


@kernel(inline=True)
def wake_distributor(desks):
    """Wake the distributor if it sleeps."""
    if load_relaxed(Desks(desks), "asleep") != 0:
        _wake(desks)


@kernel
def _wake(desks):
    d = Desks(desks)
    store_relaxed(d, "asleep", 0)
    fetch_add(d, "bell", 1)  # it sleeps on this word
    futex_wake(desks + BELL, i64(EVERYBODY))


@kernel
def own(desk, owner):
    """Have a desk that is nobody's; whether it was."""
    return compare_exchange(Desk(desk), "owner", 0, owner)


@kernel
def join(cursor):
    """Ask to be given lines; :func:`poll` says NOT_YET until the distributor has agreed."""
    c = Cursor(cursor)
    d = Desk(c.desk)
    c.epoch = u32((i64(d.epoch) + 1) % EPOCHS)
    c.hand, c.joined = 0, 1
    c.grant = u64(0)
    store_release(d, "wish", u64(i64(JOIN)) << u64(32) | u64(c.epoch))  # W2
    ring_bell(c.desks)


@kernel
def refused(c, grant):
    """Why a worker gets no line by a grant, or 0 when it does."""
    state = state_of(grant)
    if state == CLOSED:
        return i64(IS_CLOSED)
    if c.joined == 0:  # what was granted is over
        return i64(NOT_JOINED)
    if epoch_of(grant) == c.epoch:
        if state == ACTIVE:
            return i64(0)
        if c.grant != u64(0) or state == FENCED:
            return i64(WAS_FENCED)
    return i64(NOT_YET)


@kernel(inline=True)
def gives_lines(c, grant):
    """Whether a grant is the one by which a worker gets lines already."""
    return grant == c.grant and grant != u64(0)


@kernel(inline=True)
def _ask_for(c, line):
    """Ask for a line that will be read and then written."""
    at = c.lines + c.line_size * i64(line & c.mask)
    for k in range(0, c.line_size, 64):
        prefetch_write(at + k)


@kernel(inline=True)
def poll(cursor):
    """Take the next line into the hand; how many items it has, or NOTHING, or why there will not be any.

    The items are at :func:`items_of` until the line is given back.
    """
    c = Cursor(cursor)
    d = Desk(c.desk)
    if c.hand != 0:
        return i64(HOLDING)
    d.beats += u64(1)
    grant = load_acquire(d, "grant")  # W3 pairs with D3
    if not gives_lines(c, grant):
        code = refused(c, grant)
        if code != 0:
            return code
        c.grant, c.next = grant, u32(grant)
    control = load_acquire(Line(c.lines + c.line_size * i64(c.next & c.mask)), "control")  # D1 pairs with D0
    if u32(control) != c.next:
        c.waited = 1
        return i64(NOTHING)
    if c.waited == 0:
        # The distributor is ahead of us: lines that come next are likely there, and on their way while we work.
        _ask_for(c, u32(c.next + u32(AHEAD)))
    c.waited = 0
    count = min(i64(control >> u64(32)) & 0xFFFF, i64(c.burst))
    c.count = count
    c.hand = 1
    c.next = u32(c.next + u32(1))
    store_relaxed(d, "taken", c.next)
    return count


@kernel(inline=True)
def line_in_hand(c):
    """The address of the line in hand."""
    return c.lines + c.line_size * i64(u32(c.next - u32(1)) & c.mask)


@kernel(inline=True)
def items_of(cursor):
    """The address of the items of the line in hand: it may be written, for what is returned is written there."""
    return line_in_hand(Cursor(cursor)) + ITEMS


@kernel(inline=True)
def request(cursor, items, n):
    """Give the line in hand back, with the ``n`` items at ``items`` to be returned, and so ask for more; 0 or a code.

    Without a line in hand there is nothing to do: the worker has asked already.  Where ``items`` is what
    :func:`items_of` says, nothing is copied.
    """
    c = Cursor(cursor)
    if n > i64(c.burst) or n < 0 or (c.hand == 0 and n > 0):
        return i64(TOO_MANY)
    if c.hand == 0:
        return i64(0)
    line = line_in_hand(c)
    if items != line + ITEMS:
        copy_words(line + ITEMS, items, 8 * n)  # Bounds: a line has room for a burst.
    store_release(Line(line), "control", u64(BACK) | u64(n) << u64(32) | u64(u32(c.next - u32(1))))  # W0
    c.hand = 0
    wake_distributor(c.desks)
    return i64(0)


@kernel
def abandon(cursor):
    """Leave as one is: the line in hand goes to another worker too, as if it had not been taken."""
    c = Cursor(cursor)
    c.hand, c.joined = 0, 0
    c.grant = u64(0)
    store_release(Desk(c.desk), "wish", u64(i64(LEAVE)) << u64(32) | u64(c.epoch))  # W2
    ring_bell(c.desks)


@kernel
def leave(cursor, items, n):
    """Give back what is in the hand, with ``n`` items, and ask for no more; 0 or a code.

    What the distributor had sent beyond that it gives to other workers: :func:`poll` says NOT_JOINED until the next
    :func:`join`.
    """
    code = request(cursor, items, n)
    if code == 0:
        abandon(cursor)
    return code


@kernel
def disown(desk, owner):
    """Let go of a desk; whether it was that owner's."""
    return compare_exchange(Desk(desk), "owner", owner, 0)


@kernel
def hand_over(desk, owner, other):
    """Make a desk another thread's; whether it was that owner's."""
    return compare_exchange(Desk(desk), "owner", owner, other)
