"""A pool of packets, with a cache of free ones for each worker.

Theory of operation
-------------------
The free packets lie in a ring that all share.  A worker takes and gives them through its own cache, a stack, so that
the packet it freed last (still in its processor's cache) is the one it gets next.  Half-flush rule: a put that would
overflow the cache moves the coldest half of its limit to the ring first; a get that finds too few takes what there is
and fills half of the limit from the ring for the rest, or takes the rest straight from the ring when that has fewer.
What is larger than half the limit and does not fit goes past the cache.

Order when a process dies: pools may be shared by processes, and one may be killed at any instruction. Then packets may
be lost with it (at most those of its cache and of its lists), but none is ever in two places, also when what it was
taking from the ring is still there. So a cache's length is lowered before its packets can be seen elsewhere and before
others are written over them, and raised after they are written down and the ring is done with them: C0, the releasing
store that raises it, keeps the handles before it, and the exchange with which the ring's claim begins (in a shared
pool the one that takes its lock) keeps the lowering before it. Both are ordinary stores to the processor (of x86;
Arm's is one that orders), so this costs nothing; only what the compiler may exchange is restricted.

A claim in a ring that many work on is what a dead process leaves behind for ever.  So in a pool that processes share
(:mod:`wirespeed.core.shared_pool`) the ring is worked on by one at a time, under a lock that knows its holder
(:mod:`wirespeed.core.owned_lock`), as a ring of one producer and one consumer: each operation is seen by one store,
and the ring is whole after every instruction.  That is for the rare path; the caches know nothing of it.

Thread rules: a cache belongs to one thread at a time; the ring is for all.  Freeing a packet of another pool puts it
into that pool's ring.  An exhausted pool is a count (``failures``), never an error.

Source of the rule: DPDK's mempool of 2026 (commit f5e1310f16).  Debug mode checks each packet that comes or goes, and
counts what is wrong with it (:data:`FAULTS`) instead of corrupting the pool.
"""

import numpy as np

from wirespeed.core import owned_lock, ring
from wirespeed.core.arena import LINE
from wirespeed.core.history import ALLOC, FREE, note
from wirespeed.core.packet import HEADROOM, SPECIAL, Packet
from wirespeed.core.slots import copy_words
from wirespeed.jit.atomics import compare_exchange, fetch_add, store_relaxed, store_release
from wirespeed.jit.intrinsics import copy, fill, load_handle, load_i64, move, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.machine import DEBUG

u32, i64, u64 = np.uint32, np.int64, np.uint64

# What debug mode finds: a packet freed that is free, a handle freed that is none of the pool's, and packets that came
# or went without the resting state (see wirespeed.core.packet), those that went having been written to while free.
FAULTS = ("double_free", "foreign", "unclean_free", "unclean_alloc")
DOUBLE_FREE, FOREIGN, UNCLEAN_FREE, UNCLEAN_ALLOC = range(4)
LOG = 8  # faults that are remembered one by one

Count = layout("Count", [("n", "u8")])
Fault = layout("Fault", [("handle", "i8"), ("kind", "u4"), ("cache", "u4")])
FAULT = Fault.size
Pool = layout(
    "Pool",
    [
        ("size", "i8"),  # packets
        ("stride", "i8"),  # bytes from one record to the next
        ("first", "i8"),  # handle of the first packet
        ("room", "i8"),  # bytes of each buffer, headroom included
        ("numbers", "u4"),  # caches that there have been; their numbers begin with 1
        ("faulted", "u4"),  # faults so far, modulo 2^32
        ("faults", "u8", len(FAULTS)),  # how many of each kind
        # of a pool that processes share; 0 in others
        ("caches", "u4"),  # caches that lie behind its packets
        ("debug", "u4"),  # 1 when its packets are noted as debug mode wants it
        ("lock", "u4"),  # process that works on the ring, or 0
        (None, 44),
        ("log", "i8", LOG * FAULT // 8),  # the latest of them, at their number modulo LOG
        ("ring", ring.Ring),
    ],
)
RING = Pool.offset("ring")
assert RING % (2 * LINE) == 0

Cache = layout(
    "Cache",
    [
        ("pool", "i8"),
        ("length", "i8"),  # free packets in it
        ("limit", "i8"),  # most that it keeps
        ("failures", "u8"),  # allocations that found the pool empty
        ("refills", "u8"),  # times that it was filled from the ring
        ("flushes", "u8"),  # times that its coldest half went there
        ("past", "u8"),  # times that packets came from the ring or went there past it
        ("number", "u4"),  # of the pool's caches; what Packet.holder says
        ("pid", "u4"),  # the process that works with it
        # second line: debug mode
        ("gets", "u8"),  # calls, and the packets that they moved
        ("got", "u8"),
        ("puts", "u8"),
        ("gave", "u8"),
        # in a pool that processes share
        ("member", "u4"),  # number of the member whose it is, or 0
        ("name", "u1", 28),
    ],
    size=2 * LINE,
)
assert Cache.offset("gets") == LINE
HANDLES = Cache.size  # the handles follow the record, and behind the last of them is one slot to put one down
CACHE_LIMIT = 512
RECORD = Packet.size  # a packet's buffer follows its record


@kernel
def to_shared_ring(pool, pid, handles, n):
    """Put packets into the ring of a pool that processes share."""
    owned_lock.take(Pool(pool), pid)
    ring.enqueue(pool + RING, handles, n, 8, True, ring.ST)
    owned_lock.let_go(Pool(pool))


@kernel
def _from_shared_ring(pool, pid, handles, n):
    owned_lock.take(Pool(pool), pid)
    n = ring.dequeue(pool + RING, handles, n, 8, True, ring.ST)
    owned_lock.let_go(Pool(pool))
    return n


@kernel(inline=True)
def _to_ring(pool, pid, handles, n):
    """Put packets into a pool's ring, which has a slot for every packet of the pool, so that this cannot fail."""
    if Pool(pool).caches != 0:
        to_shared_ring(pool, pid, handles, n)
    else:
        ring.enqueue(pool + RING, handles, n, 8, True, ring.MT)


@kernel(inline=True)
def _from_ring(pool, pid, handles, n):
    """Take ``n`` packets from a pool's ring, or none; return how many."""
    if Pool(pool).caches != 0:
        return _from_shared_ring(pool, pid, handles, n)
    return ring.dequeue(pool + RING, handles, n, 8, True, ring.MT)


@kernel
def _fault(pool, number, handle, kind):
    """Debug mode: count a fault and remember it."""
    q = Pool(pool)
    fetch_add(Count(q.faults + 8 * kind), "n", 1)
    entry = Fault(q.log + FAULT * i64(fetch_add(q, "faulted", u32(1)) % u32(LOG)))
    entry.handle = handle
    entry.kind = u32(kind)
    entry.cache = number


@kernel(inline=True)
def _rests(pool, handle):
    """Whether a packet is in its resting state."""
    p = Packet(handle)
    alone = p.refcnt == 1 and p.next == 0 and p.segments == 1 and p.flags & SPECIAL == 0
    return alone and p.buffer == handle + RECORD and p.capacity == Pool(pool).room


@kernel
def _settle(pool, number, handle, kind):
    """Debug mode: see that a packet is in its resting state, and restore that when it is not."""
    if not _rests(pool, handle):
        _fault(pool, number, handle, kind)
        p = Packet(handle)
        p.refcnt = 1
        p.next = 0
        p.segments = 1
        p.flags = 0
        p.buffer = handle + RECORD
        p.capacity = u32(Pool(pool).room)


@kernel
def _check_out(cache, handles, n):
    """Debug mode: look at packets that leave the pool."""
    c = Cache(cache)
    c.gets += u64(1)
    c.got += u64(n)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        p = Packet(handle)
        _settle(c.pool, c.number, handle, i64(UNCLEAN_ALLOC))
        p.owner = 0
        p.holder = c.number
        note(handle, ALLOC)


@kernel
def _check_in(pool, handles, n, number):
    """Debug mode: take what does not belong here, and came by cache ``number``, off the list; return how many stay."""
    q = Pool(pool)
    kept = i64(0)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        offset = handle - q.first
        if offset < 0 or offset >= q.size * q.stride or offset % q.stride != 0:
            _fault(pool, number, handle, i64(FOREIGN))
        elif Packet(handle).owner != 0:
            _fault(pool, number, handle, i64(DOUBLE_FREE))
        else:
            _settle(pool, number, handle, i64(UNCLEAN_FREE))
            Packet(handle).owner = 1
            Packet(handle).holder = number
            note(handle, FREE)
            store_i64(handles + 8 * kept, handle)
            kept += 1
    return kept


@kernel
def _get(cache, handles, n):
    """Take ``n`` packets, more than the cache has: those, and the rest from the ring; n, or 0 when it has too few."""
    c = Cache(cache)
    length, half = c.length, c.limit // 2
    rest = n - length
    # Bounds: n is more than length, so the list has room.  A call that fails writes over nothing in the cache.
    copy(handles, cache + HANDLES, 8 * length)
    store_relaxed(c, "length", 0)
    if rest <= half and _from_ring(c.pool, c.pid, cache + HANDLES, half) == half:
        copy(handles + 8 * length, cache + HANDLES + 8 * (half - rest), 8 * rest)
        store_release(c, "length", half - rest)  # C0
        c.refills += u64(1)
        return n
    if _from_ring(c.pool, c.pid, handles + 8 * length, rest) == rest:
        c.past += u64(1)
        return n
    store_release(c, "length", length)  # C0
    c.failures += u64(1)
    return i64(0)


@kernel(inline=True)
def alloc_bulk(cache, handles, n):
    """Take ``n`` packets to the address ``handles``, in their resting state; return n, or 0 and take none.

    What stands at ``handles`` after a 0 is nothing to rely on.
    """
    c = Cache(cache)
    left = c.length - n
    if left >= 0:
        # Bounds: the last n of the cache's length handles.
        copy_words(handles, cache + HANDLES + 8 * left, 8 * n)
        c.length = left
    else:
        n = _get(cache, handles, n)
    if DEBUG:
        _check_out(cache, handles, n)
    return n


@kernel(inline=True)
def alloc(cache):
    """One packet in its resting state, or 0 when the pool is empty."""
    c = Cache(cache)
    at = cache + HANDLES + 8 * (c.length - 1)
    if c.length > 0:
        c.length -= 1
    else:
        at = cache + HANDLES + 8 * c.limit
        if _get(cache, at, i64(1)) == 0:
            return i64(0)
    if DEBUG:
        _check_out(cache, at, i64(1))
    return load_i64(at)


@kernel
def _put(cache, handles, n):
    """Put ``n`` packets that do not fit into the cache: past it, or into it once its coldest half is in the ring."""
    c = Cache(cache)
    half = c.limit // 2
    if n > half:
        _to_ring(c.pool, c.pid, handles, n)
        c.past += u64(1)
        return
    # Bounds: length + n is more than the limit and n at most half of it, so length is at least half of it.
    kept = c.length - half
    store_relaxed(c, "length", 0)
    _to_ring(c.pool, c.pid, cache + HANDLES, half)
    move(cache + HANDLES, cache + HANDLES + 8 * half, 8 * kept)
    copy(cache + HANDLES + 8 * kept, handles, 8 * n)
    store_release(c, "length", kept + n)  # C0
    c.flushes += u64(1)


@kernel(inline=True)
def put_bulk(cache, handles, n):
    """Give back ``n`` packets that are in their resting state and belong to this cache's pool."""
    c = Cache(cache)
    if DEBUG:
        n = _check_in(c.pool, handles, n, c.number)
        c.puts += u64(1)
        c.gave += u64(n)
    length = c.length
    if length + n <= c.limit:
        copy_words(cache + HANDLES + 8 * length, handles, 8 * n)
        store_release(c, "length", length + n)  # C0
    else:
        _put(cache, handles, n)


@kernel
def put_elsewhere(pool, cache, handles, n):
    """Put ``n`` packets in their resting state into the ring of their own pool, which is not this cache's."""
    if DEBUG:
        n = _check_in(pool, handles, n, Cache(cache).number)
    _to_ring(pool, Cache(cache).pid, handles, n)


@kernel
def put_one(cache, handle):
    """Put one packet in its resting state into the cache, or into its own pool's ring when that is another."""
    slot = cache + HANDLES + 8 * Cache(cache).limit
    store_i64(slot, handle)
    pool = Packet(handle).pool
    if pool == Cache(cache).pool:
        put_bulk(cache, slot, i64(1))
    else:
        put_elsewhere(pool, cache, slot, i64(1))


@kernel(inline=True)
def put_own(cache, handle):
    """Put one packet in its resting state, of the cache's own pool, into the cache."""
    c = Cache(cache)
    length = c.length
    if DEBUG or length >= c.limit:
        put_one(cache, handle)
    else:
        # Bounds: length is less than the limit.
        store_i64(cache + HANDLES + 8 * length, handle)
        store_release(c, "length", length + 1)  # C0


@kernel
def drain(cache):
    """Put all that a cache holds into the ring."""
    c = Cache(cache)
    n = c.length
    store_relaxed(c, "length", 0)
    _to_ring(c.pool, c.pid, cache + HANDLES, n)


@kernel
def free_lock(pool, holder):
    """Take the lock of a shared pool from a process that is known to be gone; whether that had it."""
    return owned_lock.take_from(Pool(pool), holder)


@kernel
def claim(cache, member):
    """Make a free cache of a shared pool a member's; whether it was free."""
    return compare_exchange(Cache(cache), "member", 0, member)


@kernel
def give_up(cache):
    """Have an emptied cache of a shared pool be nobody's."""
    store_release(Cache(cache), "member", 0)


@kernel
def enrol(cache):
    """Give a new cache its number."""
    c = Cache(cache)
    c.number = u32(fetch_add(Pool(c.pool), "numbers", u32(1)) + u32(1))


@kernel
def init_packets(pool):
    """Write the resting state of every packet of a new pool and put all into its ring."""
    q = Pool(pool)
    for i in range(q.size):
        handle = q.first + i * q.stride
        fill(handle, 0, RECORD)
        p = Packet(handle)
        p.buffer = handle + RECORD
        p.pool = pool
        p.data = HEADROOM
        p.refcnt = 1
        p.segments = 1
        p.link = 1
        p.capacity = u32(q.room)
        p.owner = 1
        store_i64(pool + RING + ring.SLOTS + 8 * i, handle)
    ring.Ring(pool + RING).prod.position = u32(q.size)
    ring.Ring(pool + RING).prod.tail = u32(q.size)


@kernel
def ring_length(address):
    """How many items a ring holds."""
    return ring.used(address)
