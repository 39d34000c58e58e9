"""A pool of packets, with a cache of free ones for each worker.

Theory of operation
-------------------
The free packets lie in a ring that all share.  A worker takes and gives them through its own cache, a stack, so that
the packet it freed last (still in its processor's cache) is the one it gets next.  Half-flush rule: a put that would
overflow the cache moves the coldest half to the ring; a get that finds too few fills half of it from there; what is
larger than half the cache goes past it.

Thread rules: a cache belongs to one thread at a time; the ring is for all.  Freeing a packet of another pool puts it
into that pool's ring.  An exhausted pool is a count (``failures``), never an error.

Source of the rule: DPDK's mempool of 2026 (commit f5e1310f16).  Debug mode marks each packet as in or out, and counts
``double_free`` and ``foreign`` handles instead of corrupting the pool.
"""

import numpy as np

from wirespeed.core import ring
from wirespeed.core.arena import LINE
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.jit.atomics import fetch_add
from wirespeed.jit.intrinsics import copy, load_handle, load_i64, move, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.machine import DEBUG

u32, i64, u64 = np.uint32, np.int64, np.uint64

Pool = layout(
    "Pool",
    [
        ("size", "i8"),  # packets
        ("stride", "i8"),  # bytes from one record to the next
        ("first", "i8"),  # handle of the first packet
        ("room", "i8"),  # bytes of each buffer, headroom included
        ("double_free", "u8"),  # debug mode
        ("foreign", "u8"),  # debug mode
        (None, 16),
        ("ring", ring.Ring),
    ],
)
RING = Pool.offset("ring")
assert RING % LINE == 0

Cache = layout(
    "Cache",
    [
        ("pool", "i8"),
        ("length", "i8"),  # free packets in it
        ("limit", "i8"),  # most that it keeps
        ("failures", "u8"),  # allocations that found the pool empty
        (None, 32),
    ],
)
HANDLES = Cache.size  # the handles follow the record
assert HANDLES == LINE
CACHE_LIMIT = 512
RECORD = Packet.size  # a packet's buffer follows its record


@kernel(inline=True)
def _check_out(pool, handles, n):
    """Debug mode: note that packets leave the pool."""
    for i in range(n):
        Packet(load_handle(handles + 8 * i)).owner = 0


@kernel
def _check_in(pool, handles, n):
    """Debug mode: take what does not belong here out of the list; return how many stay."""
    kept = i64(0)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        q = Pool(pool)
        offset = handle - q.first
        if offset < 0 or offset >= q.size * q.stride or offset % q.stride != 0:
            fetch_add(q, "foreign", 1)
        elif Packet(handle).owner != 0:
            fetch_add(q, "double_free", 1)
        else:
            Packet(handle).owner = 1
            store_i64(handles + 8 * kept, handle)
            kept += 1
    return kept


@kernel
def _refill(cache, n):
    """Fill half of a cache from the ring; whether ``n`` are there now."""
    c = Cache(cache)
    # Bounds: n is at most the limit, so there is room for what is missing.
    half = min(max(c.limit // 2, n - c.length), c.limit - c.length)
    c.length += ring.dequeue(c.pool + RING, cache + HANDLES + 8 * c.length, half, False, False)
    return c.length >= n


@kernel(inline=True)
def alloc_bulk(cache, handles, n):
    """Take ``n`` packets to the address ``handles``, in their resting state; return n, or 0 and take none."""
    c = Cache(cache)
    length = c.length
    if length < n:
        if n > c.limit // 2 and ring.dequeue(c.pool + RING, handles, n, True, False) == n:
            if DEBUG:
                _check_out(c.pool, handles, n)
            return n
        if n > c.limit or not _refill(cache, n):
            c.failures += u64(1)
            return i64(0)
        length = c.length
    # Bounds: length >= n here, so the source lies inside the cache's handles.
    copy(handles, cache + HANDLES + 8 * (length - n), 8 * n)
    c.length = length - n
    if DEBUG:
        _check_out(c.pool, handles, n)
    return n


@kernel(inline=True)
def alloc(cache):
    """One packet in its resting state, or 0 when the pool is empty."""
    c = Cache(cache)
    if c.length == 0 and not _refill(cache, i64(1)):
        c.failures += u64(1)
        return i64(0)
    length = c.length - 1
    c.length = length
    if DEBUG:
        _check_out(c.pool, cache + HANDLES + 8 * length, 1)
    return load_i64(cache + HANDLES + 8 * length)


@kernel
def _flush(cache, n):
    """Make room for ``n`` more in a cache: its coldest half, or all of it, goes to the ring."""
    c = Cache(cache)
    out = c.length if n > c.limit // 2 else min(c.length, max(c.limit // 2, c.length + n - c.limit))
    ring.enqueue(c.pool + RING, cache + HANDLES, out, True, False)
    move(cache + HANDLES, cache + HANDLES + 8 * out, 8 * (c.length - out))
    c.length -= out


@kernel(inline=True)
def put_bulk(cache, handles, n):
    """Give back ``n`` packets that are in their resting state and belong to this cache's pool."""
    c = Cache(cache)
    if DEBUG:
        n = _check_in(c.pool, handles, n)
    if n > c.limit // 2:
        # The ring has a slot for every packet of the pool, so this cannot fail.
        ring.enqueue(c.pool + RING, handles, n, True, False)
        return
    if c.length + n > c.limit:
        _flush(cache, n)
    length = c.length
    copy(cache + HANDLES + 8 * length, handles, 8 * n)
    c.length = length + n


@kernel
def put_one(cache, handle):
    """Put one packet in its resting state into the cache, or into its own pool's ring when that is another."""
    # The slot behind the last one of the cache is kept for this.
    slot = cache + HANDLES + 8 * Cache(cache).limit
    store_i64(slot, handle)
    pool = Packet(handle).pool
    if pool == Cache(cache).pool:
        put_bulk(cache, slot, i64(1))
    elif not DEBUG or _check_in(pool, slot, 1) == 1:
        ring.enqueue(pool + RING, slot, i64(1), True, False)


@kernel
def drain(cache):
    """Put all that a cache holds into the ring."""
    c = Cache(cache)
    ring.enqueue(c.pool + RING, cache + HANDLES, c.length, True, False)
    c.length = 0


@kernel
def init_packets(pool):
    """Write the resting state of every packet of a new pool and put all into its ring."""
    q = Pool(pool)
    for i in range(q.size):
        handle = q.first + i * q.stride
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
    ring.Ring(pool + RING).prod.head = u32(q.size)
    ring.Ring(pool + RING).prod.tail = u32(q.size)


@kernel
def ring_length(address):
    """How many items a ring holds."""
    return ring.length(address)
