"""A cache of free packets that any thread may open for itself: allocation and freeing from Python.

``with pool.open_cache() as cache: packets = cache.alloc(32); ...; cache.free(packets)``.

Thread rules: one thread at a time.  Debug mode holds a cache for the thread that used it first, until ``flush`` or the
end; every other one that uses it is told so.  A pool may have any number of caches.  What the thread itself calls while
it is in a call (a collected object's ``__del__``, a signal's handler, what external memory runs when it is let go of) may
use its cache as well, but not close it.
"""

from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wirespeed.core.free import free_bulk
from wirespeed.core.number import whole
from wirespeed.core.packet import Packet, reset
from wirespeed.core.pool import Cache, Pool, alloc_bulk, drain
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel
from wirespeed.jit.machine import DEBUG

if TYPE_CHECKING:
    from wirespeed.core.packet_pool import PacketPool

i64 = np.int64
Handles = npt.NDArray[np.int64]


@kernel
def take(cache, handles, n):
    """Take ``n`` packets, or none, and make each an empty frame; return how many."""
    n = alloc_bulk(cache, handles, n)
    for i in range(n):
        reset(Packet(load_handle(handles + 8 * i)), i64(0))
    return n


@kernel
def give(cache, handles, n):
    """Give up one hold of each of ``n`` packets; the list is used up."""
    free_bulk(cache, handles, n)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache holds and has done; the last four are counted in debug mode only."""

    name: str
    number: int
    length: int
    limit: int
    failures: int
    refills: int
    flushes: int
    past: int
    gets: int
    got: int
    puts: int
    gave: int


def statistics(address: int, name: str) -> CacheStatistics:
    """The statistics of the cache at an address."""
    c = Cache.at(address)
    counts = (c.failures, c.refills, c.flushes, c.past, c.gets, c.got, c.puts, c.gave)
    return CacheStatistics(name, int(c.number), int(c.length), int(c.limit), *map(int, counts))


def owned(pool: int, handles: Any) -> Handles:
    """A copy of ``handles`` as int64, each seen to be that of a packet of the pool; else ``GraphError``."""
    given = np.asarray(handles)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu" or given.ndim > 1:
        raise GraphError(
            f"handles must be integers in one dimension, got {given.ndim} of {given.dtype}; give what alloc() returned"
        )
    q = Pool.at(pool)
    first, stride, size = int(q.first), int(q.stride), int(q.size)
    # A handle of uint64 above the range of int64 becomes negative, which is below the first.
    numbers, rest = np.divmod(np.atleast_1d(given).astype(np.int64) - first, stride)
    bad = (numbers < 0) | (numbers >= size) | (rest != 0)
    if bad.any():
        at = int(np.argmax(bad))
        raise GraphError(
            f"handle {at} of {len(bad)} is {int(np.atleast_1d(given)[at]):#x}, which is no packet of this pool ({size} of "
            f"them, {stride} bytes apart from {first:#x} on); nothing was freed"
        )
    return np.atleast_1d(given).astype(np.int64)


class Opening:
    """That a cache is open: ``address`` is the cache's, and 0 when that has been closed, whoever is there then."""

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address = address


class PoolCache:
    """A cache of a pool, for one thread at a time; ``address`` is what kernels take, ``number`` what audits show."""

    def __init__(self, pool: "PacketPool", limit: int | None, name: str, *, guarded: bool = False) -> None:
        self.pool = pool
        self.opening = pool.opening(pool.cache(limit, name=name))
        record = Cache.at(self.address)
        self.number, self.limit = int(record.number), int(record.limit)
        self._guarded = guarded  # by a lock of the caller's, so that any thread may use it
        self._user = RLock()
        self._used = False

    @property
    def address(self) -> int:
        """Where the cache is; 0 when it, or its pool, is closed."""
        return self.opening.address if self.pool.address else 0

    def alloc(self, n: int = 1) -> Handles:
        """The handles of ``n`` empty packets; an empty array, and one more of ``failures``, when the pool is short.

        Packets come as :func:`wirespeed.core.packet.reset` leaves them: no bytes, behind the usual headroom.
        """
        self._enter()
        n = whole(n, "packets to allocate")
        if not 0 <= n <= self.pool.size:
            raise GraphError(f"a pool of {self.pool.size} packets cannot give {n}; ask for 0 to {self.pool.size}")
        handles = np.empty(n, np.int64)
        return handles[: take(self.address, handles.ctypes.data, n)]

    def free(self, handles: Any) -> None:
        """Give up one hold of each packet; those that nobody holds any more, with their chains, are free again.

        ``handles`` may be any sequence of integers; none is touched unless all are packets of this pool.  That one of
        them is free already only debug mode sees.
        """
        self._enter()
        packets = owned(self.pool.address, handles)
        give(self.address, packets.ctypes.data, len(packets))

    def flush(self) -> None:
        """Give the pool all free packets that this cache holds.  Another thread may use the cache then."""
        self._enter()
        drain(self.address)
        if self._used:
            self._used = False
            self._user.release()

    def close(self) -> None:
        """Flush, and take the cache from the pool.  Closing twice, or after the pool, is harmless."""
        if address := self.address:
            self.pool.close_cache(address)

    @property
    def failures(self) -> int:
        """Allocations that found the pool short of packets."""
        return int(Cache.at(self._live()).failures)

    def __len__(self) -> int:
        """Free packets in the cache."""
        return int(Cache.at(self._live()).length)

    def _live(self) -> int:
        address = self.address
        if not address:
            raise GraphError("this cache, or its pool, is closed; open another with open_cache()")
        return address

    def _enter(self) -> None:
        """See that the cache is open and, in debug mode, that it is the thread that has used it so far."""
        self._live()
        if not DEBUG or self._guarded:
            return
        if not self._user.acquire(blocking=False):
            raise GraphError(
                f"cache {self.number} is used by two threads; open one for each, or flush() it before it is handed on"
            )
        if self._used:
            self._user.release()
        self._used = True

    def __reduce__(self) -> Any:
        raise TypeError("a PoolCache is one thread's and cannot be copied or pickled; open another with open_cache()")

    def __enter__(self) -> "PoolCache":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self.address:
            return "<PoolCache, closed>"
        return f"<PoolCache {self.number}: {len(self)} of {self.limit} packets>"
