"""The staged ordered ring: items pass stages in place, workers finish them out of order, they leave in order.

Theory of operation
-------------------
One ring takes the place of a queue a stage and of what sorts behind them.  Each of the stages 0, 1, ... has a head
(acquired up to here) and a tail (finished up to here) between those of the producers and of the consumers: a stage may
acquire up to the tail of the one before it, the first one up to the producers', and consumers up to the last stage's.
All are claims of :mod:`wirespeed.core.ring`; ``prod`` lies in memory where a stage -1 would, so that stage ``k`` finds
what is before it at ``k - 1``.

Each slot has a state word beside it.  Who acquires a run of items writes ``{token, STARTED | count}`` into that of the
first one; who releases it exchanges that for WRITING, writes the items back, and stores FINISHED.  The token holds the
run's position and its stage, mixed so that a release with a wrong token, count or stage, or the same one again, even
by two threads at once, does not find what it expects and is refused: it is counted and touches nothing else.  (Two
stages of one ring never share a token while slots x stages is below 2^30; beyond, a *wrong* release may find a
stranger's run once in a few thousand million.)

*Finalizing* walks from a stage's tail over the runs that are finished, zeroes their states (a finished state that
stayed would be taken for a new one when the counters come round) and moves the tail over them all.  One thread at a
time does it, and none waits for it: ``lock`` counts who asked.  Whoever finds it 0 does the walk, for everybody; whoever
does not leaves at once.  None of them is forgotten: an asker stores FINISHED first and adds to ``lock`` then, and the
walker leaves only by an exchange of the count that it had seen *before* its last walk for 0.  Either the asker's
addition came before that look, so that the walk saw what he finished, or the exchange fails and there is another walk.
All is decided by the order of changes of one word, so no full fence is needed.  No more than ``capacity`` runs can be
finished during one walk, so the count never wraps.  Every release finalizes its own stage; a dequeue that finds nothing
does it for the last one when it sees that the thread that should has not come to it yet.

Order pairs: G0, the releasing store of a stage's tail, pairs with A1, the acquiring load by which the next stage or a
consumer claims: items and states are touched only after this stage is done with them.  G1, the releasing store of
FINISHED, pairs with G2, the walker's acquiring load of it: what G0 shows has been written.  G3, the addition to ``lock``
(acquires and releases), pairs with G4, the exchange by which a walker leaves (releases) or, when it fails, the load after
it (acquires): the next walk, by the same thread or another, sees what it was asked for, and the tail where the last walk
left it.

What the calls return last, how many more there are, is what was seen last: it can be too low, never too high.

Thread rules: as the syncs of the two ends say; ``acquire`` and ``release`` may be called from any thread, and a run
may be released by another one than acquired it.  A run that is never released stops all that is behind it.
Source: DPDK's rte_soring, which lets go of its lock without looking again; that the last count decides is from here.
"""

import numpy as np

from wirespeed.core.ring import MT, End, claim, publish
from wirespeed.core.slots import put, take
from wirespeed.errors import GraphError
from wirespeed.jit.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
)
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

u32, i64, u64 = np.uint32, np.int64, np.uint64

MOST = (1 << 30) - 1  # items, for a run's count shares a word with two bits
STARTED, WRITING, FINISHED = 1 << 30, 2 << 30, 3 << 30
# 2^32 over the golden ratio: its multiples keep apart as no other number's do, those of d stages by more than 2^30 / d.
SPREAD = 0x9E3779B9

State = layout("SlotState", [("word", "u8", [("token", "u4"), ("flags", "u4")])])
# A stage is an End, as claims know it; in room that an End leaves in the line of its tail is the count of who asked for
# the tail to be moved.
_LOCK = next(
    at for at in range(0, 64, 4) if all(f.offset + f.size <= at or at + 4 <= f.offset for f in End.fields.values())
)
StageLock = layout("StageLock", [(None, _LOCK), ("lock", "u4")])
Staged = layout(
    "StagedRing",
    [
        ("capacity", "u4"),
        ("mask", "u4"),
        ("stages", "u4"),
        ("size", "u4"),  # bytes of an item
        ("metadata_size", "u4"),  # bytes of what goes with an item, 0 for none
        (None, 4),
        ("states", "i8"),  # where the slots' states begin, in bytes from the ring; so in another process too
        ("items", "i8"),
        ("metadata", "i8"),
        ("refused", "u8"),  # releases that did not fit what was acquired; written by whoever does that
        (None, 72),
        ("cons", End),
        ("prod", End),
    ],
)
STAGES, STAGE = Staged.size, End.size  # the stages follow the record, behind prod
assert Staged.offset("prod") + STAGE == STAGES and STAGES % 128 == 0


@kernel(inline=True)
def _stage(ring, stage):
    return End(ring + STAGES + STAGE * i64(stage))


@kernel(inline=True)
def _lock(ring, stage):
    return StageLock(ring + STAGES + STAGE * i64(stage))


@kernel(inline=True)
def _token(first, stage):
    return u32(u64(first) + u64(u32(stage)) * u64(SPREAD))


@kernel(inline=True)
def _first(token, stage):
    """The position that a token is of, if it is one of this stage."""
    return u32(u64(token) - u64(u32(stage)) * u64(SPREAD))


@kernel(inline=True)
def _word(token, flags, count):
    return (u64(flags) | u64(count)) << u64(32) | u64(token)


@kernel(inline=True)
def _state(ring, position):
    r = Staged(ring)
    return State(ring + r.states + 8 * i64(position & r.mask))


@kernel(inline=True)
def _finished(ring, stage, position, word):
    """How many items a state word says are finished from ``position`` of this stage on."""
    is_finished = word >> u64(32) >= u64(FINISHED) and u32(word) == _token(position, stage)
    return u32(word >> u64(32)) & u32(MOST) if is_finished else u32(0)


@kernel(inline=True)
def _walk(ring, stage):
    """Move the tail of a stage over all that is finished; the caller is alone in this."""
    s = _stage(ring, stage)
    start = load_relaxed(s, "tail")
    tail = start
    while True:
        state = _state(ring, tail)
        count = _finished(ring, stage, tail, load_acquire(state, "word"))  # G2 pairs with G1
        if count == 0:
            break
        store_relaxed(state, "word", 0)
        tail = u32(tail + count)
    if tail != start:
        store_release(s, "tail", tail)  # G0


@kernel
def finalize(ring, stage):
    """Have the tail of a stage moved over all that is finished, by this thread or by the one that is at it."""
    s = _lock(ring, stage)
    asked = u32(fetch_add(s, "lock", 1) + 1)  # G3
    if asked != 1:
        return
    while True:
        _walk(ring, stage)
        if compare_exchange(s, "lock", asked, 0):  # G4 pairs with G3
            return
        asked = load_acquire(s, "lock")  # G4 pairs with G3


@kernel(inline=True)
def _help(ring, stage):
    """Finalize a stage when a run at its tail is finished and nobody is at it; return whether that was so."""
    tail = load_relaxed(_stage(ring, stage), "tail")
    if (
        _finished(ring, stage, tail, load_relaxed(_state(ring, tail), "word")) == 0
        or load_relaxed(_lock(ring, stage), "lock") != 0
    ):
        return False
    finalize(ring, stage)
    return True


@kernel(inline=True)
def _write(ring, first, count, items, metadata):
    """Copy items and metadata in, where the address is not 0; what is claimed lies inside the slots modulo them."""
    r = Staged(ring)
    at, slots, n = i64(first & r.mask), i64(r.mask) + 1, i64(count)
    if items != 0:
        put(ring + r.items, at * i64(r.size), slots * i64(r.size), items, n * i64(r.size))
    if metadata != 0:
        size = i64(r.metadata_size)
        put(ring + r.metadata, at * size, slots * size, metadata, n * size)


@kernel(inline=True)
def _read(ring, first, count, items, metadata):
    """Copy items and metadata out, where the address is not 0."""
    r = Staged(ring)
    at, slots, n = i64(first & r.mask), i64(r.mask) + 1, i64(count)
    if items != 0:
        take(ring + r.items, at * i64(r.size), slots * i64(r.size), items, n * i64(r.size))
    if metadata != 0:
        size = i64(r.metadata_size)
        take(ring + r.metadata, at * size, slots * size, metadata, n * size)


@kernel(inline=True)
def enqueue(ring, items, metadata, n, exact, sync):
    """Put up to ``n`` items in, with their metadata unless that is 0; return (how many, free slots left)."""
    r = Staged(ring)
    count, first, free = claim(r.prod, r.cons, r.capacity, u32(n), exact, sync)
    if count == 0:
        return i64(0), i64(free)
    _write(ring, first, count, items, metadata)
    publish(r.prod, first, count, sync)
    return i64(count), i64(free - count)


@kernel(inline=True)
def dequeue(ring, items, metadata, n, exact, sync):
    """Take up to ``n`` items out that have passed all stages; return (how many, how many more have)."""
    r = Staged(ring)
    last = i64(r.stages) - 1
    helped = False
    while True:
        count, first, ready = claim(r.cons, _stage(ring, last), u32(0), u32(n), exact, sync)
        if count != 0:
            break
        if n == 0 or helped or not _help(ring, last):
            return i64(0), i64(ready)
        helped = True
    _read(ring, first, count, items, metadata)
    publish(r.cons, first, count, sync)
    return i64(count), i64(ready - count)


@kernel(inline=True)
def acquire(ring, stage, items, metadata, n, exact):
    """Take up to ``n`` items into a stage's work; return (how many, the token to release them with, how many wait).

    They are copied to ``items`` and ``metadata``; with 0 for these they can be worked on in place, see :func:`runs`.
    """
    if stage < 0 or stage >= i64(Staged(ring).stages):
        return i64(0), u32(0), i64(0)
    count, first, ready = claim(_stage(ring, stage), _stage(ring, stage - 1), u32(0), u32(n), exact, MT)
    if count == 0:
        return i64(0), u32(0), i64(ready)
    token = _token(first, stage)
    store_relaxed(_state(ring, first), "word", _word(token, STARTED, count))
    _read(ring, first, count, items, metadata)
    return i64(count), token, i64(ready - count)


@kernel(inline=True)
def release(ring, stage, token, count, items, metadata):
    """Give back what was acquired, all of it, after writing ``items`` and ``metadata`` back unless they are 0.

    Returns ``count``, or 0 when nothing that was acquired fits: that is counted in ``refused`` and changes nothing.
    """
    r = Staged(ring)
    first = _first(u32(token), stage)
    state = _state(ring, first)
    fits = stage >= 0 and stage < i64(r.stages) and count > 0 and count <= i64(r.capacity)
    if not fits or not compare_exchange(
        state, "word", _word(u32(token), STARTED, count), _word(u32(token), WRITING, count)
    ):
        fetch_add(r, "refused", 1)
        return i64(0)
    _write(ring, first, count, items, metadata)
    store_release(state, "word", _word(u32(token), FINISHED, count))  # G1
    finalize(ring, stage)
    return i64(count)


@kernel
def acquire_noted(ring, stage, items, metadata, n, exact, note):
    """:func:`acquire`, for who can be stopped before the result is looked at: what is acquired stands in a note as well.

    The note is 8 bytes, in the form of the state of a slot that is in work, or 0 for nothing.
    """
    count, token, _ = acquire(ring, stage, items, metadata, n, exact)
    State(note).word = _word(token, STARTED, count) if count != 0 else u64(0)
    return count


@kernel
def release_noted(ring, stage, note, items, metadata):
    """:func:`release` what stands in a note, and strike it out there."""
    word = State(note).word
    count = release(ring, stage, u32(word), i64(word >> u64(32)) & MOST, items, metadata)
    State(note).word = u64(0)
    return count


@kernel
def give_back(ring, stage, note):
    """Release what stands in a note as it is, unless somebody has by its token: that is nothing to be counted."""
    word = State(note).word
    if word != u64(0) and load_relaxed(_state(ring, _first(u32(word), stage)), "word") == word:
        release(ring, stage, u32(word), i64(word >> u64(32)) & MOST, 0, 0)
    State(note).word = u64(0)


@kernel(inline=True)
def runs(ring, stage, token, count, metadata):
    """Where the slots (or, if so asked, the metadata) of acquired items lie: (address, how many of them, address of the rest).

    The rest lies at the start of the slots, and its address is 0 when there is none.
    """
    r = Staged(ring)
    slot = i64(_first(u32(token), stage) & r.mask)
    base, size = (ring + r.metadata, i64(r.metadata_size)) if metadata else (ring + r.items, i64(r.size))
    straight = min(count, i64(r.mask) + 1 - slot)
    return base + slot * size, straight, base if straight < count else i64(0)


@kernel
def used(ring):
    """How many items are in the ring, in whatever stage; exact only while nobody works on it."""
    r = Staged(ring)
    taken = load_acquire(r.cons, "tail")  # first: what is taken was put, so the difference is never negative
    return min(i64(u32(load_acquire(r.prod, "tail") - taken)), i64(r.capacity))


def slots_of(capacity: int) -> int:
    """The slots of a ring of so many items: the next power of two."""
    return 1 << (capacity - 1).bit_length()


def size_of(capacity: int, stages: int, size: int, metadata_size: int = 0) -> int:
    """Bytes that a ring takes, a free pair of lines behind it; raises GraphError for what no ring can be."""
    if not 1 <= capacity <= MOST:
        raise GraphError(
            f"a staged ring holds 1 to {MOST} items, got {capacity}; give the items that may be under way at once"
        )
    if not 1 <= stages < 1 << 20:
        raise GraphError(f"a staged ring has 1 to {(1 << 20) - 1} stages, got {stages}; for none use a plain ring")
    if size <= 0 or size % 4:
        raise GraphError(
            f"an item's size must be a positive multiple of 4 bytes, got {size}; pad it to {_padded(size)}"
        )
    if metadata_size < 0 or metadata_size % 4:
        raise GraphError(
            f"metadata's size must be a multiple of 4 bytes (0 for none), got {metadata_size};"
            f" pad it to {_padded(metadata_size)}"
        )
    return _parts(capacity, stages, size, metadata_size)[3] + 128


def _padded(size: int) -> int:
    return max(4, -(-size // 4) * 4)


def _parts(capacity: int, stages: int, size: int, metadata_size: int) -> tuple[int, int, int, int]:
    """Where states, items and metadata begin and end, each at a pair of lines of its own."""
    slots = slots_of(capacity)
    states = STAGES + stages * STAGE
    items = states + -(-8 * slots // 128) * 128
    metadata = items + -(-size * slots // 128) * 128
    return states, items, metadata, metadata + -(-metadata_size * slots // 128) * 128


def init(address: int, capacity: int, stages: int, size: int, metadata_size: int = 0) -> None:
    """Make the zeroed memory at ``address``, of :func:`size_of` bytes, an empty ring."""
    ring = Staged.at(address)
    ring.capacity, ring.mask, ring.stages = capacity, slots_of(capacity) - 1, stages
    ring.size, ring.metadata_size = size, metadata_size
    ring.states, ring.items, ring.metadata, _ = _parts(capacity, stages, size, metadata_size)
    for end in (ring.prod, ring.cons):
        end.limit = max(1, capacity // 8)
