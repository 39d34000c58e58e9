"""Operations on a ring in two halves: start looks at items or reserves slots, finish takes or shows as many as it will.

Theory of operation
-------------------
Start claims as :mod:`wirespeed.core.ring` does and leaves the claim in the end's ``head``; finish compares it with the
``tail`` and moves both at once to where the caller wants them, which may be short of what was claimed, or back.  That
is possible only where nobody claims behind an open claim, so in the syncs ``ST`` and ``HTS`` and no other: in ``HTS``
the threads of that end wait from start to finish, in ``ST`` there is nobody else.  The other end reads only the tail
and is never held up.

Copying: :func:`enqueue_start`, :func:`enqueue_finish`, :func:`dequeue_start`, :func:`dequeue_finish`.  Without a copy:
:func:`enqueue_places`, :func:`enqueue_commit`, :func:`dequeue_places`, :func:`dequeue_finish`; the caller reads or
writes the slots in place, which lie in one run or two.

Order pairs: R0, the store of a finish, releases as a ring's publish does, and pairs with the other end's A1.  In
``HTS`` it pairs with A4 as well, the exchange of the next claim at the same end: what was given back has been read or
written in place, and the next one to claim it does so after that.  The load before that exchange is not enough, for
after a finish of nothing the word is what it was.

Thread rules: who started finishes, and in ``HTS`` only who got something from a start may finish, for a claim does not
say whose it is.
Source: DPDK's ring (rte_ring_peek_elem_pvt.h, rte_ring_peek_zc.h).
"""

import numpy as np

from wirespeed.core.ring import SLOTS, ST, Ring, claim
from wirespeed.core.slots import put, take
from wirespeed.jit.atomics import load_relaxed, store_relaxed, store_release
from wirespeed.jit.kernel import kernel

u32, i64, u64 = np.uint32, np.int64, np.uint64


@kernel(inline=True)
def _start(mine, theirs, limit, n, exact, sync, intent):
    """Claim, and leave in the head how far; (how many, the first one's counter, how many there were)."""
    count, first, available = claim(mine, theirs, limit, u32(n), exact, sync, intent)
    if sync == ST:
        store_relaxed(mine, "head", u32(first + count))  # in HTS the claim did
    return count, first, available


@kernel(inline=True)
def _kept(mine, k):
    """How many a finish of ``k`` keeps, how many were claimed, and the first one's counter."""
    first = load_relaxed(mine, "tail")  # nobody else writes either while a claim is open
    claimed = u32(load_relaxed(mine, "head") - first)
    return u32(k) if u32(k) <= claimed else u32(0), claimed, first


@kernel(inline=True)
def _finish(mine, count, claimed, first):
    """End a claim: so many are done, the rest is given back; return how many."""
    if claimed != 0:  # without a claim the word is another thread's to change
        end = u32(first + count)
        store_release(mine, "word", u64(end) << u64(32) | u64(end))  # R0
    return i64(count)


@kernel(inline=True)
def _places(r, ring, count, first, size):
    """Where claimed slots are; (how many, the first one's address, how many from there on, where the others are)."""
    at = i64(first & r.mask)
    return i64(count), ring + SLOTS + at * size, min(i64(count), i64(r.mask) + 1 - at), ring + SLOTS


@kernel(inline=True)
def enqueue_start(ring, n, exact, sync, intent=0):
    """Reserve slots for up to ``n`` items; (how many, slots left free besides).  None reserved: nothing to finish."""
    r = Ring(ring)
    count, _, free = _start(r.prod, r.cons, r.capacity, n, exact, sync, intent)
    return i64(count), i64(free - count)


@kernel(inline=True)
def enqueue_finish(ring, items, k, size):
    """Put ``k`` items from the address ``items`` into the reserved slots, show them and give back the other slots.

    Returns ``k``, or 0 if that is more than were reserved.
    """
    r = Ring(ring)
    slots = i64(r.mask) + 1
    count, claimed, first = _kept(r.prod, k)
    # Bounds: no more than were claimed, modulo the number of slots, and the caller's memory has k items.
    put(ring + SLOTS, i64(first & r.mask) * size, slots * size, items, i64(count) * size)
    return _finish(r.prod, count, claimed, first)


@kernel(inline=True)
def enqueue_places(ring, n, size, exact, sync, intent=0):
    """Reserve slots for up to ``n`` items, to be written in place and finished by :func:`enqueue_commit`.

    Returns how many, the address of the first, how many lie from there on, and the address of those that remain.
    """
    r = Ring(ring)
    count, first, _ = _start(r.prod, r.cons, r.capacity, n, exact, sync, intent)
    return _places(r, ring, count, first, size)


@kernel(inline=True)
def enqueue_commit(ring, k):
    """Show the first ``k`` of the reserved slots and give back the others; return ``k``, or 0 if it was too many."""
    mine = Ring(ring).prod
    count, claimed, first = _kept(mine, k)
    return _finish(mine, count, claimed, first)


@kernel(inline=True)
def dequeue_start(ring, items, n, size, exact, sync, intent=0):
    """Copy up to ``n`` items to the address ``items`` and leave them in the ring; (how many, how many remain besides).

    No item: nothing to finish.
    """
    r = Ring(ring)
    slots = i64(r.mask) + 1
    count, first, used = _start(r.cons, r.prod, u32(0), n, exact, sync, intent)
    # Bounds: the claim lies inside the slots modulo their number, and the caller's memory has room for n items.
    take(ring + SLOTS, i64(first & r.mask) * size, slots * size, items, i64(count) * size)
    return i64(count), i64(used - count)


@kernel(inline=True)
def dequeue_places(ring, n, size, exact, sync, intent=0):
    """Up to ``n`` items, to be read in place and finished by :func:`dequeue_finish`; returns as enqueue_places does."""
    r = Ring(ring)
    count, first, _ = _start(r.cons, r.prod, u32(0), n, exact, sync, intent)
    return _places(r, ring, count, first, size)


@kernel(inline=True)
def dequeue_finish(ring, k):
    """Take the first ``k`` of the items that were looked at; return ``k``, or 0 if that is more than there were."""
    mine = Ring(ring).cons
    count, claimed, first = _kept(mine, k)
    return _finish(mine, count, claimed, first)
