"""Our side of the pool's bench: the loops of ``bench/peers/pool.c`` over our pool, compiled.

A packet is taken as a port takes it, with its record reset, and given back as its holder gives it.  The number of a
burst is known at run time only, but in the row that says ``constant``, as there.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wirespeed.core.clone import clone
from wirespeed.core.free import free_bulk, free_segment, free_segments
from wirespeed.core.packet import HEADROOM, Packet, reset
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import alloc, alloc_bulk, put_bulk
from wirespeed.jit.atomics import fence_full
from wirespeed.jit.intrinsics import cycles, load_handle, store_i64
from wirespeed.jit.kernel import kernel

u16, u32, i64 = np.uint16, np.uint32, np.int64
PACKETS, LIMIT = 16383, 512
BURST, SEGMENTS, KEPT = 32, 4, 512
BULK, SINGLE, SEGMENT, CHAIN = range(4)
WAYS = {"bulk": BULK, "single": SINGLE, "segment": SEGMENT, "chain4": CHAIN}
SHARE = 320_000  # objects a sample, a multiple of every batch
LENGTH = 60

NOTES = {
    "mbuf.batch32.bulk.free": "one look at all, then one copy into the cache",
    "mbuf.batch32.single.free": "each by itself: its holders, its pool, its place in the cache",
    "mbuf.batch32.segment.free": "as single, and nothing is looked for behind it",
    "mbuf.batch32.chain4.free": "a segment of a chain of four: three of four by the way of the first",
}


@kernel
def get_put(cache, handles, n, calls):
    """Cycles of taking ``n`` handles and giving them back, so many times."""
    start = cycles()
    for _ in range(calls):
        if alloc_bulk(cache, handles, n) == 0:
            return i64(-1)
        put_bulk(cache, handles, n)
    return cycles() - start


@kernel
def get_put_constant(cache, handles, calls):
    """:func:`get_put` of 32, which is known when it is compiled."""
    start = cycles()
    for _ in range(calls):
        if alloc_bulk(cache, handles, i64(BURST)) == 0:
            return i64(-1)
        put_bulk(cache, handles, i64(BURST))
    return cycles() - start


@kernel(inline=True)
def _precise():
    """The clock when all that stands before is done, as DPDK's rte_rdtsc_precise."""
    fence_full()
    return cycles()


@kernel(inline=True)
def _take(cache, handles, n):
    """Packets as a port wants them."""
    if alloc_bulk(cache, handles, n) == 0:
        return False
    for i in range(n):
        reset(Packet(load_handle(handles + 8 * i)), LENGTH)
    return True


@kernel
def single(cache, calls):
    """Cycles of one packet taken and freed, so many times."""
    start = cycles()
    for _ in range(calls):
        handle = alloc(cache)
        if handle == 0:
            return i64(-1)
        reset(Packet(handle), LENGTH)
        free_segments(cache, handle)
    return cycles() - start


@kernel
def bulk(cache, handles, n, kept, batches):
    """Cycles of ``kept`` packets taken ``n`` at a time and then freed so, so many times."""
    start = cycles()
    for _ in range(batches):
        for at in range(0, kept, n):
            if not _take(cache, handles + 8 * at, n):
                return i64(-1)
        for at in range(0, kept, n):
            free_bulk(cache, handles + 8 * at, n)
    return cycles() - start


@kernel(inline=True)
def _link(handles):
    for chain in range(0, BURST, SEGMENTS):
        head = load_handle(handles + 8 * chain)
        for i in range(1, SEGMENTS):
            Packet(load_handle(handles + 8 * (chain + i - 1))).next = load_handle(handles + 8 * (chain + i))
        Packet(head).segments = u16(SEGMENTS)
        Packet(head).total = u32(SEGMENTS * LENGTH)


@kernel(inline=True)
def _free(cache, handles, way):
    if way == BULK:
        free_bulk(cache, handles, i64(BURST))
    elif way == SINGLE:
        for i in range(BURST):
            free_segments(cache, load_handle(handles + 8 * i))
    elif way == SEGMENT:
        for i in range(BURST):
            free_segment(cache, load_handle(handles + 8 * i))
    else:
        for i in range(0, BURST, SEGMENTS):
            free_segments(cache, load_handle(handles + 8 * i))


@kernel
def batch(cache, handles, way, batches):
    """Cycles of 32 segments taken and freed in one way, so many times; and those of the freeing alone."""
    start = cycles()
    for _ in range(batches):
        if not _take(cache, handles, i64(BURST)):
            return i64(-1), i64(-1)
        if way == CHAIN:
            _link(handles)
        _free(cache, handles, way)
    whole = cycles() - start
    freed = i64(0)
    for _ in range(batches):
        if not _take(cache, handles, i64(BURST)):
            return i64(-1), i64(-1)
        if way == CHAIN:
            _link(handles)
        middle = _precise()
        _free(cache, handles, way)
        freed += _precise() - middle
    return whole, freed


@kernel
def clones(cache, handle, calls):
    """Cycles of a packet of one segment cloned and the clone freed."""
    start = cycles()
    for _ in range(calls):
        copy = clone(cache, handle)
        if copy == 0:
            return i64(-1)
        free_segments(cache, copy)
    return cycles() - start


@kernel
def clock(scratch, calls):
    """Cycles between two readings of the clock."""
    least = i64(1 << 40)
    for _ in range(calls):
        middle = _precise()
        store_i64(scratch, middle)
        least = min(least, _precise() - middle)
    return least


class Loops:
    """A pool with a cache of 512, one whose handles go to the ring each time, and the loops over them."""

    def __init__(self, quick: bool) -> None:
        self._pool = PacketPool(PACKETS, HEADROOM + 2048)
        self._cached, self._bare = self._pool.cache(LIMIT), self._pool.cache(0)
        self._handles = np.zeros(KEPT, np.int64)
        self._share = SHARE // 8 if quick else SHARE
        for _ in self.measure(BURST * KEPT):
            pass  # compiled, and the cache warm
        self._clock = int(clock(self._handles.ctypes.data, i64(1000)))

    def __enter__(self) -> "Loops":
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.close()

    def measure(self, share: int = 0) -> Iterator[tuple[str, float]]:
        """Cycles an object of every row, measured once."""
        share = share or self._share
        at = self._handles.ctypes.data
        for name, cache in (("cache512", self._cached), ("nocache", self._bare)):
            for n in (1, 8, BURST):
                calls = share // n
                yield f"mempool.{name}.bulk{n}", _per(get_put(cache, at, i64(n), i64(calls)), calls * n)
            calls = share // BURST
            yield f"mempool.{name}.bulk32.constant", _per(get_put_constant(cache, at, i64(calls)), calls * BURST)
        cache = self._cached
        yield "mbuf.single", _per(single(cache, i64(share)), share)
        for name, kept in (("mbuf.bulk32", BURST), ("mbuf.bulk32.keep512", KEPT)):
            batches = share // kept
            yield name, _per(bulk(cache, at, i64(BURST), i64(kept), i64(batches)), batches * kept)
        for name, way in WAYS.items():
            batches = share // BURST
            whole, freed = batch(cache, at, i64(way), i64(batches))
            yield f"mbuf.batch32.{name}", _per(whole, batches * BURST)
            overhead = batches * getattr(self, "_clock", 0)
            yield f"mbuf.batch32.{name}.free", _per(max(0, freed - overhead), batches * BURST)
        yield "mbuf.clone", self._cloned(share)

    def _cloned(self, share: int) -> float:
        def one(function: Callable[..., Any], *rest: Any) -> Any:
            return function(self._cached, *rest)

        handle = one(_one_packet)
        value = _per(one(clones, handle, i64(share)), share)
        one(_give, handle)
        return value


@kernel
def _one_packet(cache):
    handle = alloc(cache)
    reset(Packet(handle), LENGTH)
    return handle


@kernel
def _give(cache, handle):
    free_segments(cache, handle)


def _per(total: int, objects: int) -> float:
    if total < 0:
        raise RuntimeError("the pool was empty: a loop kept packets that it should have given back")
    return float(total) / objects
