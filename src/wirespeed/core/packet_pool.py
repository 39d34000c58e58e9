"""The owner of a pool's memory, from Python: how large it is, its caches, and where its packets are.

Memory is a mapping of the pool's own, a part of an :class:`~wirespeed.core.arena.Arena`, or any memory that can be
written: a bytearray, an mmap, an array, or an address and a size.  :func:`bytes_for` says how much it takes.  A pool that
processes share has a segment (:mod:`wirespeed.core.shared_pool`).

Limits of caches: what lies in one worker's cache another cannot have.  So caches whose limit is not given keep at most
half of the pool together: an allocation of n can only fail while more than half of the packets, less n, are out.  With
``caches`` given, each of so many gets an equal part of that half (512 packets at most); without, or when more come,
each gets half of what the ones before it left, down to none, which works as well and goes to the ring each time.  A
shared pool has room for so many caches and no more, 16 unless ``caches`` says otherwise.

Unmapping: arrays over packets refer to one array over the whole of the pool, and what the pool mapped itself is unmapped
when it was closed and that array goes.  An array is no container to the garbage collector, so in a cycle of garbage it goes
after every finalizer of the cycle.  A pool that nobody closed keeps its memory, for threads and handles may be on it; it
leaves its members, if it is shared.
"""

import ctypes
import os
import sys
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from wirespeed.core import audit as walk
from wirespeed.core import ring
from wirespeed.core.arena import Arena
from wirespeed.core.cache import CacheStatistics, Handles, Opening, PoolCache, owned, statistics
from wirespeed.core.membership import Peer
from wirespeed.core.number import whole
from wirespeed.core.packet import HEADROOM
from wirespeed.core.pool import CACHE_LIMIT, FAULTS, HANDLES, RING, Cache, Pool, drain, enrol, init_packets, ring_length
from wirespeed.core.shared_pool import (
    ALIGN,
    CACHES,
    MOST_ROOM,
    MOST_SIZE,
    PoolRecovery,
    SharedPool,
    header,
    opened,
    stride,
)
from wirespeed.errors import GraphError

ROOM = HEADROOM + 2048
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_at: WeakValueDictionary[int, "PacketPool"] = WeakValueDictionary()  # open pools, by address


class PacketPool:
    """``size`` packets with buffers of ``room`` bytes (headroom included).

    The pool's ring has a power of two of slots, more than packets, so a size of 2^q - 1 wastes none.  ``memory`` is
    where it lies, ``caches`` how many caches are expected; see the module.  ``free_count`` says how many packets are
    in the pool and its caches; :meth:`close` reports how many never came back, and ``left`` then tells which.

    ``shared``, or a ``name``, makes a pool that other processes attach to, up to ``members`` of them, this one included;
    ``member_name`` is what the others call this process.  There, handles may be sent to any of them.

    Thread rules: one thread makes, closes and opens caches; :meth:`alloc` and :meth:`free` are for any thread, also in the
    middle of another call of its own (a finalizer, a signal's handler, a callback of external memory).
    """

    address = 0
    _shared: SharedPool | None = None
    _bytes: Any = None

    def __init__(
        self,
        size: int,
        room: int = ROOM,
        *,
        memory: Any = None,
        caches: int = 0,
        shared: bool = False,
        name: str = "",
        members: int = 16,
        member_name: str = "",
    ) -> None:
        size, room, caches = whole(size, "pool size"), whole(room, "buffer room"), whole(caches, "caches")
        members = whole(members, "members")
        if size < 1 or size > MOST_SIZE:
            raise GraphError(
                f"pool size must be 1 to {MOST_SIZE}, got {size}; give the packets that may be under way at once"
            )
        if room <= HEADROOM or room > MOST_ROOM:
            raise GraphError(
                f"buffer room must be {HEADROOM + 1} to {MOST_ROOM} bytes, got {room}; headroom is {HEADROOM}"
            )
        if caches < 0:
            raise GraphError(f"caches must be how many are expected, got {caches}; give 0 when that is not known")
        self._own = memory is None
        if not (shared or name):
            self.memory: Any = Arena(bytes_for(size, room)) if self._own else memory
            address, self._view = _place(self.memory, bytes_for(size, room))
            self._open(address, size, room, caches, None)
            self._fill()
            return
        if not self._own:
            raise GraphError("a pool that processes share has memory of its own; give a name or memory=, not both")
        there = SharedPool.create(size, room, name, caches or CACHES, members, member_name)
        try:
            self._open(there.address, size, room, caches, there)
            self._fill()
            there.publish(name)
        except BaseException:
            self.address, self._bytes = 0, None
            opened.discard(self)
            there.leave()
            there.unmap()
            raise

    @classmethod
    def attach(cls, name: str = "", *, fd: int = -1, member_name: str = "") -> "PacketPool":
        """The pool that another process made under ``name``, or has at descriptor ``fd`` (which stays yours).

        Raises :class:`PortError` when there is none, or its place in memory is taken here, and :class:`PeerError` when it
        is another release's, or none.
        """
        if bool(name) == (fd >= 0):
            raise GraphError(f"attach needs either a name or a descriptor, got name={name!r}, fd={fd}")
        there = SharedPool.attach(name, fd, member_name)
        pool = cls.__new__(cls)
        pool._own = True
        record = Pool.at(there.address)
        pool._open(there.address, int(record.size), int(record.room), 0, there)
        return pool

    def _open(self, address: int, size: int, room: int, caches: int, shared: SharedPool | None) -> None:
        """What every pool has, also one that others made."""
        self.address = address
        self.size = size
        self.room = room
        self.stride = stride(room)
        self._expected = caches
        self._shared = shared
        self.left: walk.Audit | None = None
        self._caches: dict[int, Opening] = {}
        self._names: dict[int, str] = {}
        self._arenas: dict[int, Arena] = {}
        self._failures = 0
        self._lock = RLock()
        self._python: PoolCache | None = None
        if shared is not None:
            self.memory = self._view = None
            opened.add(self)
        span = shared.size if shared is not None else bytes_for(size, room) - ALIGN
        raw: Any = (ctypes.c_uint8 * span).from_address(address)
        start = 0 if self._view is None else address - self._view.ctypes.data
        # Of a buffer that was given it is a part, so that it keeps that.
        self._bytes = np.frombuffer(raw, np.uint8) if self._view is None else self._view[start : start + span]
        _at[address] = self

    def _fill(self) -> None:
        slots = 1 << self.size.bit_length()
        ctypes.memset(self.address, 0, RING + ring.size_of(slots))
        record = Pool.at(self.address)
        record.size, record.stride, record.room = self.size, self.stride, self.room
        record.first = self.address + header(self.size)
        ring.init(self.address + RING, slots, self.size)
        init_packets(self.address)

    def cache(self, limit: int | None = None, *, arena: Arena | None = None, name: str = "") -> int:
        """A new cache of up to ``limit`` free packets, for one thread; its address.  ``name`` is for audits."""
        pool = self._live()
        limit = self._share() if limit is None else whole(limit, "a cache's limit")
        if not 0 <= limit <= min(CACHE_LIMIT, self.size):
            raise GraphError(
                f"a cache of this pool keeps 0 to {min(CACHE_LIMIT, self.size)} packets, got {limit}; what is kept in "
                "one cache no other can have"
            )
        if self._shared is not None:
            if arena is not None:
                raise GraphError("the caches of a shared pool lie with its packets; give no arena")
            address = self._shared.take_cache(limit, name)
            self._caches[address] = Opening(address)
            return address
        size = HANDLES + 8 * (limit + 1)
        memory = arena or Arena(size)
        address = memory.alloc(size, ALIGN)
        record = Cache.at(address)
        record.pool, record.limit, record.pid = pool, limit, os.getpid()
        enrol(address)
        self._caches[address] = Opening(address)
        self._names[int(record.number)] = f"cache {record.number}" + (f" ({name})" if name else "")
        if not arena:
            self._arenas[address] = memory
        return address

    def _share(self) -> int:
        """The limit of one more cache, when none is given."""
        if self._shared is not None:
            return self._shared.share()
        limits = [int(Cache.at(a).limit) for a in self._caches]
        rest = max(0, self.size // 2 - sum(limits))
        opened = sum(limit > 0 for limit in limits)
        return min(CACHE_LIMIT, rest // (self._expected - opened if opened < self._expected else 2))

    def open_cache(self, limit: int | None = None, *, name: str = "") -> PoolCache:
        """A cache of its own for a thread that is no worker; leave its ``with``, or close it."""
        return PoolCache(self, limit, name)

    def opening(self, cache: Any) -> Opening:
        """That a cache of this pool is open: a :class:`PoolCache`, or the address of one that :meth:`cache` made."""
        self._live()
        if isinstance(cache, PoolCache):
            cache = cache.opening
        found = cache if isinstance(cache, Opening) else self._caches.get(whole(cache, "a cache"))
        if found is None or self._caches.get(found.address) is not found:
            raise GraphError(
                "got what is no open cache of this pool, wanted one of open_cache() or cache(), until its close"
            )
        return found

    def close_cache(self, address: int) -> None:
        """Put what a cache holds into the pool and forget it; nobody may use it any more."""
        with self._lock:  # another thread may be in alloc() or free(), with a cache of the pool's own
            if address not in self._caches:
                raise GraphError(f"{address:#x} is no open cache of this pool; give what cache() returned, once")
            drain(address)
            self._failures += int(Cache.at(address).failures)
            self._caches.pop(address).address = 0
            if self._shared is not None:
                self._shared.give_cache(address)
            if address in self._arenas:
                self._arenas.pop(address).close()

    def alloc(self, n: int = 1) -> Handles:
        """As :meth:`PoolCache.alloc`, for any thread: straight from the pool, one thread at a time."""
        with self._lock:
            return self._own_cache().alloc(n)

    def free(self, handles: Any) -> None:
        """As :meth:`PoolCache.free`, for any thread: straight to the pool, one thread at a time."""
        with self._lock:
            self._own_cache().free(handles)

    def _own_cache(self) -> PoolCache:
        """The cache behind :meth:`alloc` and :meth:`free`.  It keeps nothing, so that it takes from nobody."""
        if self._python is None or not self._python.address:
            made = PoolCache(self, 0, "pool.alloc()", guarded=True)
            if self._python is not None and self._python.address:
                made.close()  # what a finalizer called meanwhile has made one
            else:
                self._python = made
        return self._python

    def _live(self) -> int:
        if not self.address:
            raise GraphError(
                "this pool is closed; make another (a fork of the process that opened it attaches by itself)"
            )
        return self.address

    def _there(self) -> SharedPool:
        self._live()
        if self._shared is None:
            raise GraphError("this pool is not shared; make it with shared=True or a name")
        return self._shared

    @property
    def fd(self) -> int:
        """The descriptor by which another process may attach; -1 when the pool is not shared."""
        return self._shared.fd if self._shared is not None and self.address else -1

    def peers(self) -> list[Peer]:
        """The processes that are attached, this one included, and whether they live."""
        return self._there().members.peers()

    def recover(self) -> PoolRecovery:
        """Take back what processes that are known to be gone had in their caches, and the pool's lock; what came back.

        The others may go on working meanwhile.  What the dead held outside of their caches stays out: see
        :meth:`audit`, and :meth:`reclaim`.
        """
        found = self._there().recover()
        self._names |= self._there().names
        return found

    def reclaim(self, handles: Any) -> None:
        """Put packets back that went with a dead process; all, or none and ``GraphError``.

        That each is of this pool, and out of it, is seen.  That nobody alive has it, nor gets it out of a ring, only you
        can know: such a packet would have two users.
        """
        self._there().reclaim(owned(self.address, handles))

    @property
    def free_count(self) -> int:
        """Packets in the pool and in its caches, 0 once it is closed.  Exact while no worker runs."""
        if not self.address:
            return 0
        if self._shared is not None:
            return int(ring_length(self.address + RING)) + self._shared.free_in_caches()
        return int(ring_length(self.address + RING) + sum(Cache.at(a).length for a in self._caches))

    @property
    def in_use(self) -> int:
        """Packets that are out, 0 once it is closed.  Exact while no worker runs."""
        return self.size - self.free_count if self.address else 0

    @property
    def whole(self) -> bool:
        """Whether every packet is back."""
        return self.free_count == self.size

    @property
    def is_full(self) -> bool:
        """Whether every packet is back, in DPDK's words."""
        return self.whole

    @property
    def is_empty(self) -> bool:
        """Whether every packet is out."""
        return self.free_count == 0

    @property
    def failures(self) -> int:
        """Allocations that found the pool empty, by this process."""
        return self._failures + sum(int(Cache.at(a).failures) for a in self._caches)

    def statistics(self) -> list[CacheStatistics]:
        """What each open cache, whosever, holds and has done."""
        return [statistics(address, name) for address, name in self._named().items()]

    def faults(self) -> dict[str, int]:
        """Debug mode's counts of what was wrong with packets that came and went: :data:`wirespeed.core.pool.FAULTS`."""
        return walk.faults(self.address) if self.address else dict.fromkeys(FAULTS, 0)

    def audit(self) -> walk.Audit:
        """Where every packet is, and who had those last that are out.  Exact while no worker runs."""
        return walk.audit(self._live(), self._named(), self._names)

    def _named(self) -> dict[int, str]:
        if self._shared is not None:
            named = self._shared.caches()
            self._names |= {int(Cache.at(address).number): name for address, name in named.items()}
            return named
        return {address: self._names[int(Cache.at(address).number)] for address in self._caches}

    def dump(self) -> str:
        """All that is known about the pool, for people to read."""
        record, own = ring.Ring.at(self._live() + RING), self._shared is None
        ends = [
            f"{name} {end.position if own else end.tail} to {end.tail}"
            for name, end in (("prod", record.prod), ("cons", record.cons))
        ]
        lines = [
            f"pool at {self.address:#x}: {self.size} packets of {self.room} bytes, {self.stride} bytes apart",
            f"ring of {record.mask + 1} slots: {', '.join(ends)}",
            *([] if own else [f"member: {peer}" for peer in self.peers()]),
            *map(str, self.statistics()),
            str(self.audit()),
        ]
        return "\n".join(lines)

    def holder(self, pool: int) -> Bytes | None:
        """All bytes of the open pool at an address, this one or another; ``None`` when there is none."""
        other = self if pool == self.address else _at.get(pool)
        return other._bytes if other is not None and other.address else None

    def close(self) -> int:
        """Give up the memory, and unmap it if it is the pool's own; return how many packets had not come back.

        A shared pool stays for the others, and they may have them.  While arrays over packets are left the memory stays,
        and a shared pool's name with it.
        """
        with self._lock:
            return self._close() if self.address else 0

    def _close(self) -> int:
        if self._shared is not None:
            self._close_caches()
        missing = self.in_use
        if missing and (self._shared is None or len(self.peers()) == 1):
            self.left = self.audit()
        self._failures = self.failures
        self._over()
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()
        packets, self._bytes = self._bytes, None
        if self._shared is not None:
            self._shared.leave()
            finalize(packets, self._shared.unmap).atexit = False
        elif self._own:
            finalize(packets, self.memory.close).atexit = False
        self.memory = self._view = None
        return missing

    def _close_caches(self) -> None:
        for cache in list(self._caches):
            self.close_cache(cache)

    def _over(self) -> None:
        """Have all that is done with this pool, its caches and its views from now on be an error."""
        if _at.get(self.address) is self:
            del _at[self.address]
        self.address = 0
        for opening in self._caches.values():
            opening.address = 0
        self._caches.clear()
        opened.discard(self)

    def __del__(self) -> None:
        if self._shared is None or not self.address or sys.is_finalizing():
            return  # what dies with its process is recovered from
        self._close_caches()
        self._over()
        self._shared.leave()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a PacketPool cannot be copied or pickled; another process attaches to a shared one, by its name or its fd"
        )

    def __enter__(self) -> "PacketPool":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self.address:
            return "<PacketPool, closed>"
        return f"<PacketPool {self.free_count} of {self.size} packets free, {self.room} bytes each>"


def bytes_for(size: int, room: int = ROOM) -> int:
    """Bytes of memory, however aligned, that hold a pool of ``size`` packets; its caches lie elsewhere."""
    return header(size) + size * stride(room) + ALIGN


def _place(memory: Any, size: int) -> tuple[int, Any]:
    """The address in ``memory``, aligned, of a pool that takes ``size`` bytes, and what keeps the memory in place."""
    view = None
    if isinstance(memory, Arena):
        return memory.alloc(size - ALIGN, ALIGN), view
    if isinstance(memory, tuple):
        if len(memory) != 2:
            raise GraphError(f"a pool's memory was given as {memory!r:.60}, wanted (address, size)")
        address, have = whole(memory[0], "the address of memory"), whole(memory[1], "the size of memory")
        if address <= 0:
            raise GraphError(f"got address {address} for a pool's memory, wanted that of memory of yours")
    else:
        try:
            view = np.frombuffer(memory, np.uint8)
        except (TypeError, ValueError) as error:
            raise GraphError(
                f"a pool's memory must be an Arena, a buffer in one piece or (address, size), got {memory!r:.60}: {error}"
            ) from None
        if not view.flags.writeable:
            raise GraphError(f"a pool's memory must be writable, got a {type(memory).__name__} that is not")
        address, have = view.ctypes.data, view.size
    start = -(-address // ALIGN) * ALIGN
    if start + size - ALIGN > address + have:
        raise GraphError(
            f"this pool takes {size} bytes (bytes_for tells), got {have}; give more memory or fewer packets"
        )
    return int(start), view
