"""What is in a pool that processes share, while they go on: looked at when one attaches, and when packets are put back.

Order pairs: I0, two acquiring loads of the consumers' tail with one of the producers' in between.  When the first two are
equal, the ring was at that moment as they say.
"""

import numpy as np

from wirespeed.core import owned_lock, ring
from wirespeed.core.history import FREE, note
from wirespeed.core.packet import Packet
from wirespeed.core.pool import HANDLES, RECORD, RING, Cache, Pool
from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import load_handle, load_i64, load_u8, store_u8
from wirespeed.jit.kernel import kernel

u32, i64 = np.uint32, np.int64
TRIES = 10_000  # how often a ring that moves is looked at
SOUND, TOO_LONG, STRANGER = 0, 1, 2


@kernel
def look_at_ring(pool):
    """Whether what a shared pool's ring says can be; STRANGER: it has what is no packet.  Never waits for its lock.

    A ring that moves all the time is in use, and taken for SOUND.
    """
    q, r = Pool(pool), ring.Ring(pool + RING)
    for _ in range(TRIES):
        taken = load_acquire(r.cons, "tail")  # I0
        put = load_acquire(r.prod, "tail")  # I0
        if taken == load_acquire(r.cons, "tail"):  # I0
            length = i64(u32(put - taken))
            if length > q.size:
                return TOO_LONG
            for k in range(length):
                # Whoever writes a slot that was taken meanwhile writes a packet there.
                offset = load_i64(pool + RING + ring.SLOTS + 8 * i64(u32(taken + u32(k)) & r.mask)) - q.first
                if offset < 0 or offset >= q.size * q.stride or offset % q.stride != 0:
                    return STRANGER
            return SOUND
    return SOUND


@kernel
def _mark(pool, handle, marks):
    """Note that a packet is in the pool; what is none of its packets is passed over."""
    q = Pool(pool)
    offset = handle - q.first
    if offset >= 0 and offset < q.size * q.stride:
        store_u8(marks + offset // q.stride, 1)


@kernel
def put_back(pool, pid, handles, n, marks, caches, step):
    """Make ``n`` packets of a shared pool rest, and put them into its ring; -1, or which of them first was there.

    Then none is put back.  ``marks`` are as many zeroed bytes as the pool has packets, ``caches`` is where its caches
    lie, one every ``step`` bytes.  The pool's lock is held, so its ring does not move; what others take from their caches
    and put there meanwhile is seen in one place or not at all.  Who is killed at it has put back nothing.
    """
    q, r = Pool(pool), ring.Ring(pool + RING)
    owned_lock.take(q, pid)
    first = r.cons.tail
    for k in range(min(i64(u32(r.prod.tail - first)), q.size)):
        _mark(pool, load_i64(pool + RING + ring.SLOTS + 8 * i64(u32(first + u32(k)) & r.mask)), marks)
    for i in range(i64(q.caches)):
        c = Cache(caches + i * step)
        for k in range(min(c.length, c.limit)):
            _mark(pool, load_i64(caches + i * step + HANDLES + 8 * k), marks)
    there = i64(-1)
    for i in range(n):
        number = (load_handle(handles + 8 * i) - q.first) // q.stride
        if load_u8(marks + number) != 0:
            there = i64(i)
            break
        store_u8(marks + number, 1)
    if there < 0:
        for i in range(n):
            handle = load_handle(handles + 8 * i)
            p = Packet(handle)
            p.refcnt = 1
            p.next = 0
            p.segments = 1
            p.flags = 0
            p.buffer = handle + RECORD
            p.capacity = u32(q.room)
            p.owner = 1
            note(handle, FREE)
        ring.enqueue(pool + RING, handles, n, 8, True, ring.ST)
    owned_lock.let_go(q)
    return there
