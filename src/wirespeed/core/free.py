"""Giving packets up: a hold is dropped, and the segments of what nobody holds any more return to their pools.

Theory of operation
-------------------
Each segment is held for itself.  Who gives up the last hold of one also gives up what it had hold of in turn: the
packet or the external memory whose bytes it showed, the packet with its capture options.  It is then in its resting
state and goes on top of the cache, which is as cheap one by one as a copy of many.  Segments of another pool go into
its ring, up to ``BATCH`` at once when they are freed one after the other.

:func:`free_bulk` is for the data path and wants packets; :func:`free_mixed` is the same without the fast way, and
skips handles that are 0, as :func:`free_segments` and :func:`free_segment` do.

Thread rules: those of the cache that is given.  The holders of one packet may be different threads.
Order pairs: H1, the acquiring load of a hold count that finds 1 (or the exchange that takes it from there), pairs with
H0, the exchange by which another holder gave up his: what he read and wrote is done before the packet is used anew.
:func:`free_bulk` looks by plain loads, for what depends on them are stores: those into the packet stay behind the look,
and the packet is given on behind a release of the cache or the ring.
Debug mode leaves a damaged packet out of its pool and notes why (see :mod:`wirespeed.core.sanity`).
"""

import sys

import numpy as np

from wirespeed.core.external import release_external
from wirespeed.core.history import HOLD, note
from wirespeed.core.packet import EXTERNAL, HEADROOM, META, SHOWING, SPECIAL, Packet, refcnt
from wirespeed.core.pool import RECORD, Cache, Pool, put_bulk, put_elsewhere, put_one, put_own
from wirespeed.core.sanity import is_damaged
from wirespeed.jit.atomics import fetch_add, load_acquire
from wirespeed.jit.intrinsics import load_handle, load_i64, stack, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address
from wirespeed.jit.machine import DEBUG

u16, u32, i64 = np.uint16, np.uint32, np.int64
BATCH = 64  # segments that go back to another pool in one put

# ``refcnt``, ``segments`` and ``flags`` are one word, so one load tells whether a packet is held once, is one segment
# and has hold of nothing.
STATE = Packet.offset("refcnt")


def _state(refcnt: int, segments: int, flags: int) -> int:
    """The word at STATE of a packet with these three fields."""
    memory = bytearray(Packet.size)
    record = Packet(memory)
    record.refcnt, record.segments, record.flags = refcnt, segments, flags
    return int.from_bytes(memory[STATE : STATE + 8], sys.byteorder, signed=True)


RESTING, STATE_MASK = _state(1, 1, 0), _state(0xFFFFFFFF, 0xFFFF, SPECIAL)


@kernel(inline=True)
def drop_hold(p):
    """Give up one hold of a segment; whether it was the last, and the segment is the caller's alone."""
    # H1, H0.  The last holder needs no exchange, for nobody else can come to hold the segment but through him.
    return load_acquire(p, "refcnt") == 1 or fetch_add(p, "refcnt", u32(0xFFFFFFFF)) == 1


@kernel
def part(handle):
    """Give a segment its own buffer again, empty; return what it was the last to hold, one segment with one hold, or 0.

    The segment must be the caller's alone and show other bytes.
    """
    p = Packet(handle)
    attached, external = p.attached, p.flags & EXTERNAL
    p.flags = u16(p.flags & ~SHOWING)
    p.attached = 0
    p.buffer = handle + RECORD
    p.capacity = u32(Pool(p.pool).room)
    p.data = HEADROOM
    p.length = 0
    p.total = 0
    if external:
        release_external(attached)  # last of all, for it may run a program of the user's
    elif drop_hold(Packet(attached)):
        # Who freed it before left ``next`` as it was, for others held it; what stood there is not its any more.
        Packet(attached).next = 0
        Packet(attached).refcnt = 1
        return attached
    return i64(0)


@kernel
def _unload(handle, following):
    """Put what a segment has hold of before ``following`` in the list of what is freed next; return its new first."""
    p = Packet(handle)
    if p.flags & SHOWING:
        owner = part(handle)
        if owner != 0:  # nobody else has it now, so its ``next`` is free to use
            Packet(owner).next = following
            following = owner
    if p.flags & META:  # the options are one segment that nobody else holds
        Packet(p.meta).next = following
        following = p.meta
    return following


@kernel(inline=True)
def _rest(p):
    """Restore the resting invariant; ``segments`` even where ``next`` is 0, as a chain may have been cut by hand."""
    p.refcnt = 1
    p.next = 0
    p.segments = 1
    p.flags = 0


@kernel
def _free_list(cache, handles, n, whole):
    """Give up one hold of each of ``n`` packets, or of the first segment of each unless ``whole``."""
    batch, slot = stack(512), stack(8)  # Bounds: BATCH handles of 8 bytes
    own = Cache(cache).pool
    other, length = i64(0), i64(0)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        following = Packet(handle).next if whole and handle != 0 else i64(0)
        while handle != 0:
            p = Packet(handle)
            if DEBUG and is_damaged(handle):
                break  # nor is its ``next`` to be trusted
            if drop_hold(p):
                if p.flags & SPECIAL:
                    following = _unload(handle, following)
                _rest(p)
                if p.pool == own:
                    store_i64(slot, handle)
                    put_bulk(cache, slot, i64(1))
                else:
                    if length == BATCH or (p.pool != other and length != 0):
                        put_elsewhere(other, cache, batch, length)
                        length = i64(0)
                    other = p.pool
                    store_i64(batch + 8 * length, handle)
                    length += 1
            handle = following
            if handle != 0:
                following = Packet(handle).next
    if length != 0:
        put_elsewhere(other, cache, batch, length)


@kernel
def _free_one(cache, handle, whole):
    """Give up one hold of a packet, or of a segment alone unless ``whole``."""
    slot = stack(8)
    store_i64(slot, handle)
    _free_list(cache, slot, i64(1), whole)


@kernel(inline=True)
def _is_usual(p, own):
    """Whether a segment is held once, has hold of nothing and is of the pool ``own``."""
    return p.pool == own and refcnt(address(p)) == 1 and p.flags & SPECIAL == 0 and not DEBUG


@kernel
def _free_chain(cache, handle):
    """:func:`free_segments` for any packet."""
    own = Cache(cache).pool
    while handle != 0 and _is_usual(Packet(handle), own):
        following = Packet(handle).next
        _rest(Packet(handle))
        put_own(cache, handle)
        handle = following
    if handle != 0:
        _free_one(cache, handle, True)


@kernel(inline=True)
def _rests(p, own):
    """Whether a packet is at rest but for what it was filled with, and of the pool ``own``: it can go back as it is."""
    state = load_i64(address(p) + STATE) ^ RESTING
    return (p.next | (p.pool ^ own) | (state & STATE_MASK)) == 0 and not DEBUG


@kernel(inline=True)
def free_segments(cache, handle):
    """Give up one hold of a packet: its segments return to their pools when it was the last one."""
    if handle != 0 and _rests(Packet(handle), Cache(cache).pool):
        put_own(cache, handle)
    else:
        _free_chain(cache, handle)


@kernel(inline=True)
def free_segment(cache, handle):
    """Give up one hold of one segment alone; what follows it in its chain is the caller's to keep."""
    if handle != 0 and _rests(Packet(handle), Cache(cache).pool):
        put_own(cache, handle)
    else:
        _free_segment(cache, handle)


@kernel
def _free_segment(cache, handle):
    """:func:`free_segment` for any segment."""
    if handle != 0 and _is_usual(Packet(handle), Cache(cache).pool):
        _rest(Packet(handle))
        put_one(cache, handle)
    elif handle != 0:
        _free_one(cache, handle, False)


@kernel
def prefree(cache, handle):
    """Give up one hold of one segment; return it in its resting state, for a raw put, when it was the last, else 0."""
    p = Packet(handle)
    if not drop_hold(p):
        return i64(0)
    if p.flags & SPECIAL:
        free_segments(cache, _unload(handle, i64(0)))
    _rest(p)
    return handle


@kernel
def free_mixed(cache, handles, n):
    """Give up one hold of each of ``n`` packets; a handle may be 0, which is skipped.  The list stays as it is."""
    _free_list(cache, handles, n, True)


@kernel(inline=True)
def free_bulk(cache, handles, n):
    """Give up one hold of each of ``n`` packets, chains or not; none of the handles may be 0 (see :func:`free_mixed`).

    One pass without branches tells whether all are in their resting state, which nearly always they are.
    """
    pool = Cache(cache).pool
    odd = i64(0)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        p = Packet(handle)
        odd |= p.next | (p.pool ^ pool) | ((load_i64(handle + STATE) ^ RESTING) & STATE_MASK)
    if odd == 0 and not DEBUG:
        put_bulk(cache, handles, n)
    else:
        free_mixed(cache, handles, n)


@kernel(inline=True)
def hold(handle):
    """Hold a packet once more, every segment of it; each hold is given up by a free of its own."""
    while handle != 0:
        fetch_add(Packet(handle), "refcnt", u32(1))
        note(handle, HOLD)
        handle = Packet(handle).next
