"""The owner of a pool's memory, from Python: how large it is, its caches, and whether every packet is back."""

from typing import Any

from wirespeed.core import ring
from wirespeed.core.arena import LINE, Arena
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.pool import CACHE_LIMIT, HANDLES, RING, Cache, Pool, init_packets, ring_length
from wirespeed.errors import GraphError


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
        return int(ring_length(self.address + RING) + sum(Cache.at(a).length for a in self._caches))

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
