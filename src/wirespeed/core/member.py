"""Ring operations by a member: who does what is on record, so that its death can be mended and its numbers read.

Theory of operation
-------------------
A member is one user of a ring that others use too: what a process has attached with, for all of its threads.  For
each side its record says in which state it is: IDLE; ACTIVE, in the middle of an operation (in RTS CLAIMED, once it has
its slots); WAITING, its items copied, for earlier claims to be published; HELD, between start and finish of a look at
the items.  A recovery (:mod:`wirespeed.core.recovery`) sets the ring's ``frozen``, waits until every living member is at
rest, and publishes for those that wait: they are TAKEN by it, and then DONE.  A call that was told that it waits for a
dead one has not happened: its claim is ABANDONED, and a recovery treats it as a dead one's.

A member never waits long: what cannot go on now is told to the caller (UNABLE, or that a claim is unfinished), which
waits without the GIL, looks whether the others live, and tries again.

Order pairs: M0, the exchange that makes a member ACTIVE, and M1, the load of ``frozen`` behind it, against the store
of ``frozen`` and the loads of the states in a recovery, with a full fence in each: at least one sees the other.  N0,
the exchange that makes it IDLE behind the store of a tail, and N1, the load of ``asleep``, against the sleeper's store
of ``asleep`` and its look at the tail, in the same way.

Thread rules: the threads of a process share a member; the exchange of the state keeps them apart, and holding the GIL
nearly always has.
"""

import numpy as np

from wirespeed.core.ring import (
    BUSY,
    MT,
    RTS,
    SLOTS,
    Intent,
    Ring,
    claim,
    publish,
    relax,
)
from wirespeed.core.segment import Header
from wirespeed.core.slots import put, take
from wirespeed.jit.atomics import (
    compare_exchange,
    exchange,
    fence_exchanged,
    fence_full,
    load_acquire,
    load_relaxed,
    store_release,
)
from wirespeed.jit.intrinsics import copy, load_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address, layout
from wirespeed.jit.libc import futex_wake, sys_thread

u32, i64, u64 = np.uint32, np.int64, np.uint64
IDLE, ACTIVE, WAITING, DONE, HELD, CLAIMED, ABANDONED = 0, 1, 2, 3, 4, 5, 6
TAKEN = 16  # plus the number of the member that recovers
FROZEN, REWRITING = 1, 2  # of the ring's ``frozen``
GONE, REST = 0, 1  # changes that a recovery makes to records, see mend(); TAKEN is another
PROD, CONS = 0, 1
UNABLE = -1  # nothing was done: the member has something unfinished, or the ring is frozen or busy
EVERYBODY = 0x7FFFFFFF
INTENT = Intent.size

Member = layout(
    "Member",
    [
        ("prod", Intent),
        ("cons", Intent),
        ("pid", "u4"),  # 0 while nobody is this member
        (None, 4),
        ("started", "u8"),  # when that process began, in clock ticks since the machine did
        # What it has done so far.
        ("enqueued", "u8"),  # items,
        ("enqueues", "u8"),  # calls that put any in
        ("refused", "u8"),  # and that found no room
        ("dequeued", "u8"),
        ("dequeues", "u8"),
        ("empty", "u8"),
        ("name", "u1", 32),
    ],
    size=128,
)
assert (Member.offset("prod"), Member.offset("cons")) == (0, Intent.size)


@kernel
def join(member, pid):
    """Make a free member's record that of a process; whether it was free."""
    return compare_exchange(Member(member), "pid", 0, pid)


@kernel
def inherit(member, dead, pid, started):
    """Make the record of a dead process that of another; whether it still was the dead one's."""
    if not compare_exchange(Member(member), "pid", dead, pid):
        return False
    Member(member).started = started
    return True


@kernel(inline=True)
def intent_of(member, side):
    """The address of what a member is doing at one side."""
    return member + INTENT * side


@kernel(inline=True)
def begin(ring, at):
    """Whether the member with the intent ``at`` may work on the ring now; it is ACTIVE then."""
    intent = Intent(at)
    if not compare_exchange(intent, "state", IDLE, ACTIVE):  # M0
        return False
    fence_exchanged()
    if load_acquire(Ring(ring), "frozen") != 0:  # M1
        store_release(intent, "state", IDLE)
        return False
    return True


@kernel(inline=True)
def end(at):
    """The operation of the intent ``at`` is over."""
    Intent(at).count = 0  # a note of the past must not be taken for one of the present
    exchange(Intent(at), "state", IDLE)  # N0
    fence_exchanged()


@kernel
def wake_consumers(ring):
    """Wake whoever sleeps until something is put in."""
    exchange(Ring(ring), "cons_asleep", 0)
    futex_wake(address(Ring(ring).prod), i64(EVERYBODY))  # an end begins with its tail


@kernel
def wake_producers(ring):
    """Wake whoever sleeps until something is taken out."""
    exchange(Ring(ring), "prod_asleep", 0)
    futex_wake(address(Ring(ring).cons), i64(EVERYBODY))


@kernel(inline=True)
def wake(ring, side):
    """Wake the other side's sleepers, if there are any."""
    if side == PROD:
        if load_relaxed(Ring(ring), "cons_asleep") != 0:  # N1
            wake_consumers(ring)
    elif load_relaxed(Ring(ring), "prod_asleep") != 0:  # N1
        wake_producers(ring)


@kernel
def finish(ring, at, side, patience):
    """Publish a claim that waits for its turn; whether it is done, by us or by another."""
    intent = Intent(at)
    spins = i64(0)
    while True:
        state = load_acquire(intent, "state")
        if state == DONE:  # a recovery published it
            intent.count = 0
            compare_exchange(intent, "state", DONE, IDLE)
            return True
        if state != WAITING and state < TAKEN:
            return True
        mine = Ring(ring).prod if side == PROD else Ring(ring).cons
        if state == WAITING and load_acquire(mine, "tail") == intent.first:  # A2 pairs with R0
            if compare_exchange(intent, "state", WAITING, ACTIVE):
                # Looked at again: another thread may have ended that claim meanwhile, and begun this one.
                first = intent.first
                if load_acquire(mine, "tail") == first:  # A2 pairs with R0
                    store_release(mine, "tail", u32(first + intent.count))  # R0
                    end(at)
                    wake(ring, side)
                    return True
                store_release(intent, "state", WAITING)
        elif spins >= patience:
            return False
        else:
            spins = relax(spins)


@kernel(inline=True)
def complete(ring, at, mine, first, count, sync, side, patience):
    """Publish what a member has copied; the count, or less than UNABLE when it must be finished later."""
    if sync == MT and load_acquire(mine, "tail") != first:  # A2 pairs with R0
        Intent(at).thread = sys_thread()
        store_release(Intent(at), "state", WAITING)
        if not finish(ring, at, side, patience):
            return i64(UNABLE) - i64(count)
        return i64(count)
    publish(mine, first, count, sync)
    end(at)
    wake(ring, side)
    return i64(count)


@kernel
def enqueue_by(ring, member, items, n, exact, patience):
    """:func:`wirespeed.core.ring.enqueue` by a member; how many.

    It is UNABLE when nothing could be done for now, and ``UNABLE - count`` when ``count`` items are in their
    slots but :func:`finish` must be called until they are published: with less than endless ``patience``, how often it
    pauses, that can happen in MT.
    """
    at = intent_of(member, i64(PROD))
    if not begin(ring, at):
        return i64(UNABLE)
    r, m = Ring(ring), Member(member)
    sync, size, slots = r.prod_sync, i64(r.size), i64(r.mask) + 1
    count, first, free = claim(r.prod, r.cons, r.capacity, u32(n), exact, sync, at)
    if count == 0:
        end(at)
        if free == BUSY:
            return i64(UNABLE)
        m.refused += u64(1)
        return i64(0)
    if sync == RTS:
        store_release(m.prod, "state", CLAIMED)
    m.enqueued += u64(count)
    m.enqueues += u64(1)
    # Bounds: as in wirespeed.core.ring.enqueue_free.
    put(ring + SLOTS, i64(first & r.mask) * size, slots * size, items, i64(count) * size)
    return complete(ring, at, r.prod, first, count, sync, i64(PROD), patience)


@kernel
def dequeue_by(ring, member, items, n, exact, patience):
    """:func:`wirespeed.core.ring.dequeue` by a member; what it returns is as in :func:`enqueue_by`."""
    at = intent_of(member, i64(CONS))
    if not begin(ring, at):
        return i64(UNABLE)
    r, m = Ring(ring), Member(member)
    sync, size, slots = r.cons_sync, i64(r.size), i64(r.mask) + 1
    count, first, used = claim(r.cons, r.prod, u32(0), u32(n), exact, sync, at)
    if count == 0:
        end(at)
        if used == BUSY:
            return i64(UNABLE)
        m.empty += u64(1)
        return i64(0)
    if sync == RTS:
        store_release(m.cons, "state", CLAIMED)
    m.dequeued += u64(count)
    m.dequeues += u64(1)
    # Bounds: as in wirespeed.core.ring.enqueue_free.
    take(ring + SLOTS, i64(first & r.mask) * size, slots * size, items, i64(count) * size)
    return complete(ring, at, r.cons, first, count, sync, i64(CONS), patience)


@kernel
def freeze(ring, how):
    """Have members begin nothing; those that are at something are seen in what they note."""
    exchange(Ring(ring), "frozen", how)
    fence_full()  # M0, M1


@kernel
def abandon(at, thread, gone):
    """Have a thread's claim that waits treated as a dead one's; False when it is through, or a recovery has taken it.

    ``gone`` is the number of a recoverer that is known to be dead, or 0.  To be called with the GIL held: no other
    thread of the member can begin anything in between.
    """
    intent = Intent(at)
    if i64(intent.thread) != thread:
        return False
    if gone != 0 and compare_exchange(intent, "state", TAKEN + gone, ABANDONED):
        return True
    return compare_exchange(intent, "state", WAITING, ABANDONED)


@kernel
def take_over(at, state, number):
    """Have the recoverer complete a claim that waits; whether it still did."""
    return compare_exchange(Intent(at), "state", state, TAKEN + number)


@kernel
def give_back(at, number):
    """Have a claim that was taken wait on."""
    compare_exchange(Intent(at), "state", TAKEN + number, WAITING)


@kernel
def mend(ring, image, size, changes, n, number):
    """Write a ring's ends and slots anew, and what follows from it into the members' records.

    ``image`` has the ``size`` bytes from the producers' end on; ``changes`` are ``n`` pairs: the address of an intent
    that was taken or comes to REST, or of the record of a member that is GONE.
    """
    r = Ring(ring)
    exchange(r, "frozen", REWRITING)
    copy(address(r.prod), image, size)
    for i in range(n):
        at, what = load_i64(changes + 16 * i), load_i64(changes + 16 * i + 8)
        if what == TAKEN:
            compare_exchange(Intent(at), "state", TAKEN + number, DONE)
        else:
            for side in range(2 if what == GONE else 1):
                Intent(intent_of(at, side)).count = 0
                store_release(Intent(intent_of(at, side)), "state", IDLE)
            if what == GONE:
                Member(at).started = 0
                store_release(Member(at), "pid", 0)
    exchange(r, "frozen", FROZEN)


@kernel
def become_recoverer(segment, number):
    """Make a member the one that recovers; whether no other is."""
    return compare_exchange(Header(segment), "recoverer", 0, number)


@kernel
def no_more_recoverer(segment, number):
    """Take that from a member that died at it."""
    compare_exchange(Header(segment), "recoverer", number, 0)
