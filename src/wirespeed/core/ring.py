"""The ring's algorithm: claim slots at one end, copy, publish.

Theory of operation
-------------------
Each end has a ``head`` (claimed up to here) and a ``tail`` (visible to the other end up to here).  All four are
free-running 32-bit counters; only the access to a slot is masked.  Claiming moves the own head, publishing moves the
own tail once every earlier claim of this end is published.

Order pairs: A1, the acquiring load of the other end's tail, pairs with R0, the releasing store that publishes it: a
slot is touched only after the other end is done with it.  A2, the acquiring load by which a thread waits for the
claims before its own, pairs with their R0, so that its own R0 shows what they wrote as well.  The exchange that moves
the head releases, so that a thread that consumed and then produces never shows the second without the first (a
negative count on weak machines).

Thread rules: any number of threads at each end, or one, which then says ``alone`` and does no atomic exchange.
Source: DPDK's ring (rte_ring_c11_pvt.h), of which this is the one algorithm for both ends.
"""

import numpy as np

from wirespeed.jit.atomics import compare_exchange, load_acquire, store_relaxed, store_release
from wirespeed.jit.intrinsics import copy, pause
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_yield

u32, i64 = np.uint32, np.int64
SPINS = 128  # how often a waiting thread pauses before it lets another one have the core

# One cache line for each end's writer.
End = layout("End", [("head", "u4"), ("tail", "u4")], size=64)
Ring = layout("Ring", [("capacity", "u4"), ("mask", "u4"), (None, 56), ("prod", End), ("cons", End)])
assert Ring.size == 192
SLOTS = 192  # the slots follow the record


@kernel(inline=True)
def claim(mine, theirs, limit, n, exact, alone):
    """Claim up to ``n`` slots at one end of a ring; return (how many, the first one's counter).

    Both ends are this one function: ``limit`` = capacity counts free slots (for a producer), ``limit`` = 0 filled
    ones (for a consumer).  ``exact`` claims all or nothing; ``alone`` says that no other thread works at this end.
    """
    while True:
        head = load_acquire(mine, "head")
        available = u32(limit + load_acquire(theirs, "tail") - head)  # A1 pairs with R0
        count = n if n <= available else u32(0) if exact else available
        if count == 0:
            return count, head
        if alone:
            store_relaxed(mine, "head", u32(head + count))
            return count, head
        if compare_exchange(mine, "head", head, u32(head + count)):
            return count, head


@kernel(inline=True)
def publish(mine, first, count, alone):
    """Show the claimed slots to the other end, after all that were claimed before them at this end."""
    if not alone:
        spins = 0
        while load_acquire(mine, "tail") != first:  # A2 pairs with R0
            spins += 1
            if spins % SPINS == 0:
                sys_yield()
            pause()
    store_release(mine, "tail", u32(first + count))  # R0


@kernel(inline=True)
def enqueue(ring, items, n, exact, alone):
    """Put up to ``n`` 64-bit items from the address ``items`` into the ring; return how many."""
    r = Ring(ring)
    mask = r.mask
    count, first = claim(r.prod, r.cons, r.capacity, u32(n), exact, alone)
    if count == 0:
        return i64(0)
    at, total = i64(first & mask), i64(count)
    run = min(i64(mask) + 1 - at, total)
    copy(ring + SLOTS + 8 * at, items, 8 * run)
    copy(ring + SLOTS, items + 8 * run, 8 * (total - run))
    publish(r.prod, first, count, alone)
    return total


@kernel(inline=True)
def dequeue(ring, items, n, exact, alone):
    """Take up to ``n`` 64-bit items out of the ring to the address ``items``; return how many."""
    r = Ring(ring)
    mask = r.mask
    count, first = claim(r.cons, r.prod, u32(0), u32(n), exact, alone)
    if count == 0:
        return i64(0)
    at, total = i64(first & mask), i64(count)
    run = min(i64(mask) + 1 - at, total)
    copy(items, ring + SLOTS + 8 * at, 8 * run)
    copy(items + 8 * run, ring + SLOTS, 8 * (total - run))
    publish(r.cons, first, count, alone)
    return total


@kernel(inline=True)
def length(ring):
    """How many items are in the ring; exact only while nobody works on it."""
    r = Ring(ring)
    return min(i64(u32(load_acquire(r.prod, "tail") - load_acquire(r.cons, "head"))), i64(r.capacity))


def size_of(slots: int) -> int:
    """Bytes that a ring with ``slots`` (a power of two) of 64-bit items takes."""
    return SLOTS + 8 * slots


def init(address: int, slots: int, capacity: int | None = None) -> None:
    """Make the zeroed memory at ``address`` an empty ring of ``slots`` (a power of two, more than its capacity)."""
    ring = Ring.at(address)
    ring.mask = slots - 1
    ring.capacity = slots - 1 if capacity is None else capacity
