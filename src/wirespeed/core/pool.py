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

from typing import Any

import numpy as np

from wirespeed.core import ring
from wirespeed.core.arena import LINE, Arena
from wirespeed.core.packet import HEADROOM, META, Packet
from wirespeed.errors import GraphError
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
def _put_one(cache, handle):
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
def free_segments(cache, handle):
    """Give up one hold of a packet: its segments return to their pools when it was the last one."""
    while handle != 0:
        p = Packet(handle)
        following = p.next
        if p.refcnt == 1 or fetch_add(p, "refcnt", u32(0xFFFFFFFF)) == 1:
            if p.flags & META:  # the options that it carries are a packet too, and go with it
                Packet(p.meta).next = following
                following = p.meta
            p.refcnt = 1
            p.next = 0
            p.segments = 1
            p.flags = 0
            _put_one(cache, handle)
        handle = following


@kernel
def _free_mixed(cache, handles, n):
    """:func:`free_bulk` when some are chains, held elsewhere, of another pool or with capture options."""
    pool = Cache(cache).pool
    plain = i64(0)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        p = Packet(handle)
        if p.next == 0 and p.refcnt == 1 and p.pool == pool and p.flags & META == 0:
            store_i64(handles + 8 * plain, handle)
            plain += 1
        else:
            free_segments(cache, handle)
    put_bulk(cache, handles, plain)


@kernel(inline=True)
def free_bulk(cache, handles, n):
    """Give up one hold of each of ``n`` packets, chains or not; the list at ``handles`` is used up.

    One pass without branches tells whether all are in their resting state, which nearly always they are.
    """
    pool = Cache(cache).pool
    odd = i64(0)
    for i in range(n):
        p = Packet(load_handle(handles + 8 * i))
        odd |= p.next | (p.pool ^ pool) | i64(p.refcnt ^ u32(1)) | i64(p.flags & META)
    if odd == 0:
        put_bulk(cache, handles, n)
    else:
        _free_mixed(cache, handles, n)


@kernel(inline=True)
def hold(handle):
    """Hold a packet once more, every segment of it; each hold is given up by a free of its own."""
    while handle != 0:
        fetch_add(Packet(handle), "refcnt", u32(1))
        handle = Packet(handle).next


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


class PacketPool:
    """``size`` packets with buffers of ``room`` bytes (headroom included).

    Memory of its own unless ``arena`` is given.  ``free_count`` says how many are in the pool and its caches;
    :meth:`close` reports how many never came back.
    """

    def __init__(self, size: int, room: int = HEADROOM + 2048, *, arena: Arena | None = None) -> None:
        if size < 1 or size > 1 << 30:
            raise GraphError(
                f"pool size must be 1 to {1 << 30}, got {size}; give the packets that may be under way at once"
            )
        if room <= HEADROOM or room > 1 << 24:
            raise GraphError(
                f"buffer room must be {HEADROOM + 1} to {1 << 24} bytes, got {room}; headroom is {HEADROOM}"
            )
        self.size = size
        self.room = room
        slots = 1 << size.bit_length()
        self.stride = stride(room)
        self._own = arena is None
        header = RING + ring.size_of(slots)
        self.arena = arena or Arena(header + size * self.stride + 4096)
        self.address = self.arena.alloc(header)
        record = Pool.at(self.address)
        record.size, record.stride, record.room = size, self.stride, room
        record.first = self.arena.alloc(size * self.stride)
        ring.init(self.address + RING, slots, size)
        init_packets(self.address)
        self._caches: list[int] = []

    def cache(self, limit: int = CACHE_LIMIT, *, arena: Arena | None = None) -> int:
        """A new cache of up to ``limit`` free packets, for one thread; its address."""
        limit = max(2, min(limit, self.size))
        address = (arena or self.arena).alloc(HANDLES + 8 * (limit + 8))
        record = Cache.at(address)
        record.pool, record.limit = self.address, limit
        self._caches.append(address)
        return address

    @property
    def free_count(self) -> int:
        """Packets in the pool and in its caches, 0 once it is closed.  Exact while no worker runs."""
        if not self.address:
            return 0
        return int(ring_length(self.address + RING)) + sum(Cache.at(a).length for a in self._caches)

    @property
    def failures(self) -> int:
        """Allocations that found the pool empty."""
        return sum(Cache.at(a).failures for a in self._caches)

    @property
    def whole(self) -> bool:
        """Whether every packet is back."""
        return self.free_count == self.size

    def faults(self) -> dict[str, int]:
        """Debug mode's counts of frees that were refused: ``double_free`` and ``foreign`` handles."""
        if not self.address:
            return {"double_free": 0, "foreign": 0}
        record = Pool.at(self.address)
        return {"double_free": record.double_free, "foreign": record.foreign}

    def close(self) -> int:
        """Unmap the memory if it is the pool's own; return how many packets had not come back."""
        if not self.address:
            return 0
        missing = self.size - self.free_count
        self.address = 0
        self._caches.clear()
        if self._own:
            self.arena.close()
        return missing

    def __enter__(self) -> "PacketPool":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self.address:
            return "<PacketPool, closed>"
        return f"<PacketPool {self.free_count} of {self.size} packets free, {self.room} bytes each>"


def stride(room: int) -> int:
    """Bytes from one record to the next: whole cache lines, an odd number of them, so that records spread over sets."""
    lines = -(-(Packet.size + room) // LINE)
    return LINE * (lines | 1)


def bytes_for(size: int, room: int) -> int:
    """Bytes of an arena that hold a pool of ``size`` packets."""
    return RING + ring.size_of(1 << size.bit_length()) + size * stride(room) + 4096


@kernel
def ring_length(address):
    """How many items a ring holds."""
    return ring.length(address)
