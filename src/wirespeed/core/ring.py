"""The ring's algorithm: claim slots at one end, copy, publish; four ways for the threads of an end to agree.

Theory of operation
-------------------
Each end has a ``head`` (claimed up to here) and a ``tail`` (visible to the other end up to here).  All are
free-running 32-bit counters; only the access to a slot is masked.  Claiming moves the own head, publishing moves the
own tail.  How the threads of one end keep out of each other's way is the end's *sync*, chosen for each end by itself:

``ST``   one thread works here.  It needs no exchange, and it looks at the other end's tail only when what it saw there
         last (``seen``) does not suffice: the line in which the other end writes is fetched once for many calls.
``MT``   a claim is an exchange of the head, and of ``seen`` with it, so that the other tail is looked at as rarely as in
         ST; it is published when all earlier claims are, so a thread that is preempted in between holds up those
         behind it.
``RTS``  relaxed tail: nobody waits for a turn.  Head and tail count claims beside positions, and whoever ends as the
         last one under way moves the tail for all.  ``limit`` bounds how far the head may run ahead of the tail.
``HTS``  head and tail are one word, and a claim is possible only while they are equal: one operation at a time.
         That is what allows looking at items before they are taken (:mod:`wirespeed.core.peek`).

Order pairs: A1, the acquiring load of the other end's tail, pairs with R0, the releasing store that publishes it: a
slot is touched only after the other end is done with it.  A2, the acquiring load by which a thread waits for the
claims before its own, pairs with their R0, so that its own R0 shows what they wrote as well.  The exchange that moves
the head releases, so that a thread that consumed and then produces never shows the second without the first (a
negative count on weak machines).  In RTS, R1, the exchange that ends a claim, pairs with A3, the acquiring load of
the word with which a later one ends: whoever moves the tail has seen all that it shows, and every claim that is counted
as ended among those that have begun.  In HTS, A4, the acquiring half of the exchange that claims, is for items that are
used in place: they were given back before.

A *member* is who works at the ends of a ring that must outlive its users: what it is about to claim is noted in its
record, and its waits are short (:mod:`wirespeed.core.member`).  Kernels inside one process need none and say 0.

Thread rules: as the syncs say.  Kernels that only read (:func:`used`) may run anywhere.
Source: DPDK's ring (rte_ring_c11_pvt.h, rte_ring_rts_elem_pvt.h, rte_ring_hts_elem_pvt.h), of which this is the one
algorithm for both ends; ``seen`` is from Lee, Bu and Chandranmenon, "A lock-free, cache-efficient multi-core
synchronization mechanism", IPDPS 2010.
"""

from typing import Any

import numpy as np

from wirespeed.core.slots import put, take
from wirespeed.jit.atomics import compare_exchange, load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import pause, prefetch_write
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_yield

u32, i64, u64 = np.uint32, np.int64, np.uint64
ST, MT, RTS, HTS = 0, 1, 2, 3
SYNCS = {"st": ST, "mt": MT, "rts": RTS, "hts": HTS}  # by the names that Python programs give
SPINS = 128  # how often a waiting thread pauses before it lets another one have the core
BACK_OFF = 16  # pauses after a lost race for a claim: who won it can do several operations on lines that it has
AHEAD = 256  # most bytes of slots that are asked for before they are written
PATIENCE = 1024  # how often a member pauses before it gives up for now
BUSY = 0xFFFFFFFF  # what is available when a member gave up

# What the other end reads lies apart from what only this end's threads touch.  Lines come in pairs, for the processor
# fetches them so.
End = layout(
    "End",
    [
        ("word", "u8", [("tail", "u4"), ("head", "u4")]),  # the head of HTS; RTS counts the ended claims there
        (None, 120),
        (
            "begun",
            "u8",
            [("position", "u4"), ("seen", "u4")],
        ),  # the head of MT and RTS; RTS counts claims where seen is
        ("limit", "u4"),  # RTS: most that the head may be ahead of the tail
    ],
    size=256,
)
Ring = layout(
    "Ring",
    [
        ("capacity", "u4"),
        ("mask", "u4"),
        # What follows is for rings that Python programs and other processes use; it is written rarely.
        ("size", "u4"),  # bytes of an item
        ("prod_sync", "u4"),
        ("cons_sync", "u4"),
        ("frozen", "u4"),  # a recovery is under way: nobody begins anything
        ("closed", "u4"),  # nothing more will be put in
        ("prod_asleep", "u4"),  # somebody sleeps until the consumers' tail moves,
        ("cons_asleep", "u4"),  # or the producers'
        (None, 92),
        ("prod", End),
        ("cons", End),
    ],
)
SLOTS = Ring.size  # the slots follow the record
assert SLOTS == 640 and Ring.offset("prod") == 128

# What a member is doing at one end; ``thread`` is who holds items between start and finish.
Intent = layout("Intent", [("state", "u4"), ("first", "u4"), ("count", "u4"), ("thread", "u4")])


@kernel(inline=True)
def _count(available, n, exact):
    """How many of ``available`` a claim of ``n`` gets."""
    return n if n <= available else u32(0) if exact else available


@kernel(inline=True)
def _note(intent, first, count):
    """Write down what a member is about to claim, before it does: should it die, its part of the slots is known."""
    if intent != 0:
        Intent(intent).first = first
        Intent(intent).count = count


@kernel(inline=True)
def relax(spins):
    """One turn of a wait loop; return the turns so far."""
    spins += 1
    if spins % SPINS == 0:
        sys_yield()
    pause()
    return spins


@kernel(inline=True)
def _claim_alone(mine, theirs, limit, n, exact):
    head = load_relaxed(mine, "tail")
    available = u32(limit + mine.seen - head)
    if available < n:
        mine.seen = load_acquire(theirs, "tail")  # A1 pairs with R0
        available = u32(limit + mine.seen - head)
    return _count(available, n, exact), head, available


@kernel(inline=True)
def _claim_many(mine, theirs, limit, n, exact, intent):
    while True:
        begun = load_acquire(mine, "begun")
        head, seen = u32(begun), u32(begun >> u64(32))
        available = u32(limit + seen - head)
        if available < n:
            seen = load_acquire(theirs, "tail")  # A1 pairs with R0
            available = u32(limit + seen - head)
        count = _count(available, n, exact)
        _note(intent, head, count)
        if count == 0 or compare_exchange(mine, "begun", begun, u64(seen) << u64(32) | u64(u32(head + count))):
            return count, head, available
        for _ in range(BACK_OFF):
            pause()


@kernel(inline=True)
def _claim_relaxed(mine, theirs, limit, n, exact, intent):
    spins = 0
    while True:
        begun = load_acquire(mine, "begun")
        head = u32(begun)
        if u32(head - load_acquire(mine, "tail")) > mine.limit:
            if intent != 0 and spins == PATIENCE:
                return u32(0), head, u32(BUSY)
            spins = relax(spins)
            continue
        available = u32(limit + load_acquire(theirs, "tail") - head)  # A1 pairs with R0
        count = _count(available, n, exact)
        _note(intent, head, count)
        claims = u64(u32((begun >> u64(32)) + u64(1)))
        if count == 0 or compare_exchange(mine, "begun", begun, claims << u64(32) | u64(u32(head + count))):
            return count, head, available


@kernel(inline=True)
def _claim_in_turn(mine, theirs, limit, n, exact, intent):
    spins = 0
    while True:
        word = load_acquire(mine, "word")
        tail, head = u32(word), u32(word >> u64(32))
        if head != tail:
            if intent != 0 and spins == PATIENCE:
                return u32(0), head, u32(BUSY)
            spins = relax(spins)
            continue
        available = u32(limit + load_acquire(theirs, "tail") - head)  # A1 pairs with R0
        count = _count(available, n, exact)
        _note(intent, head, count)
        if count == 0 or compare_exchange(mine, "word", word, u64(u32(head + count)) << u64(32) | u64(tail)):  # A4
            return count, head, available


@kernel(inline=True)
def claim(mine, theirs, limit, n, exact, sync, intent=0):
    """Claim up to ``n`` slots at one end of a ring; return (how many, the first one's counter, how many there were).

    Both ends are this one function: ``limit`` = capacity counts free slots (for a producer), ``limit`` = 0 filled
    ones (for a consumer).  ``exact`` claims all or nothing.  A member, whose ``intent``
    is given, does not wait long: it may find the end BUSY.
    """
    if sync == ST:
        return _claim_alone(mine, theirs, limit, n, exact)
    if sync == MT:
        return _claim_many(mine, theirs, limit, n, exact, intent)
    if sync == RTS:
        return _claim_relaxed(mine, theirs, limit, n, exact, intent)
    return _claim_in_turn(mine, theirs, limit, n, exact, intent)


@kernel(inline=True)
def publish(mine, first, count, sync):
    """Show the claimed slots to the other end; in MT, after all that were claimed before them at this end."""
    end = u32(first + count)
    if sync == ST or sync == HTS:
        # All of the word: a claim that loads all of it would wait for a store to a part to reach the cache.
        store_release(mine, "word", u64(end) << u64(32) | u64(end))  # R0
    elif sync == RTS:
        while True:
            word = load_acquire(mine, "word")  # A3 pairs with R1
            begun = load_relaxed(mine, "begun")
            ended = u64(u32((word >> u64(32)) + u64(1)))
            # Nobody else is under way: what all have claimed so far can be seen.
            tail = u64(u32(begun)) if ended == begun >> u64(32) else u64(u32(word))
            if compare_exchange(mine, "word", word, ended << u64(32) | tail):  # R0, R1
                break
    else:
        if sync == MT:
            spins = 0
            while load_acquire(mine, "tail") != first:  # A2 pairs with R0
                spins = relax(spins)
        store_release(mine, "tail", end)  # R0


@kernel(inline=True)
def _prepare(at, size):
    """Ask for lines that a call to come will write, for the consumer's core has them.

    In ST that is the next call.  Elsewhere its exchange waits until this call's stores are through, and it would come
    too late for the next: it is the one after it.
    """
    for k in range(0, min(size, i64(AHEAD)), 64):
        prefetch_write(at + k)


@kernel(inline=True)
def enqueue_free(ring, items, n, size, exact, sync):
    """Put up to ``n`` items of ``size`` bytes from the address ``items`` into the ring; (how many, slots left free).

    More may be free, where this end has not looked at the other for a while; so too in :func:`dequeue_used`.
    """
    r = Ring(ring)
    slots = i64(r.mask) + 1
    count, first, free = claim(r.prod, r.cons, r.capacity, u32(n), exact, sync)
    if count == 0:
        return i64(0), i64(free)
    ahead = u32(first + (count if sync == ST else u32(2) * count))
    _prepare(ring + SLOTS + i64(ahead & r.mask) * size, i64(count) * size)
    put(ring + SLOTS, i64(first & r.mask) * size, slots * size, items, i64(count) * size, count == 1)
    publish(r.prod, first, count, sync)
    return i64(count), i64(free - count)


@kernel(inline=True)
def dequeue_used(ring, items, n, size, exact, sync):
    """Take up to ``n`` items of ``size`` bytes out of the ring to the address ``items``; (how many, how many remain)."""
    r = Ring(ring)
    slots = i64(r.mask) + 1
    count, first, used = claim(r.cons, r.prod, u32(0), u32(n), exact, sync)
    if count == 0:
        return i64(0), i64(used)
    take(ring + SLOTS, i64(first & r.mask) * size, slots * size, items, i64(count) * size, count == 1)
    publish(r.cons, first, count, sync)
    return i64(count), i64(used - count)


@kernel(inline=True)
def enqueue(ring, items, n, size, exact, sync):
    """:func:`enqueue_free`, when only how many is of interest."""
    return enqueue_free(ring, items, n, size, exact, sync)[0]


@kernel(inline=True)
def dequeue(ring, items, n, size, exact, sync):
    """:func:`dequeue_used`, when only how many is of interest."""
    return dequeue_used(ring, items, n, size, exact, sync)[0]


@kernel(inline=True)
def used(ring):
    """How many items are in the ring; exact only while nobody works on it."""
    r = Ring(ring)
    taken = load_acquire(r.cons, "tail")  # first: what is taken was put, so the difference is never negative
    return min(i64(u32(load_acquire(r.prod, "tail") - taken)), i64(r.capacity))


def size_of(slots: int, size: int = 8) -> int:
    """Bytes that a ring with ``slots`` (a power of two) of items of ``size`` bytes takes, a free pair of lines behind it.

    That pair keeps what lies behind the ring out of the lines that the processor fetches with the last slots.
    """
    return SLOTS + -(-slots * size // 128) * 128 + 128


def init(address: int, slots: int, capacity: int | None = None) -> None:
    """Make the zeroed memory at ``address`` an empty ring of ``slots`` (a power of two, more than its capacity)."""
    ring = Ring.at(address)
    ring.mask = slots - 1
    ring.capacity = slots - 1 if capacity is None else capacity
    for end in (ring.prod, ring.cons):
        end.limit = max(1, ring.capacity // 8)


def claimed(end: Any, sync: int) -> int:
    """Up to where an end has claimed, by its record; to look at items of an ST end is no claim."""
    if sync == ST:
        return int(end.tail)
    return int(end.head if sync == HTS else end.position)
