"""Memory for what readers reach by an address: given back only when no reader can be in it.

Blocks are of powers of two bytes, each size with its own list of free ones.  What is let go of waits with the version
from which on nobody reaches it; :meth:`Heap.reclaim` makes it free once every reader is at that version or later.
"""

import ctypes
from collections import deque

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError

LEAST = 32
FIRST_CHUNK, MOST_CHUNK = 256 << 10, 16 << 20


class Heap:
    """Blocks of bytes; for one thread.  ``memory`` is the most bytes that it maps."""

    def __init__(self, memory: int = 1 << 32) -> None:
        self.memory = memory
        self.mapped = 0
        self._chunks: list[Arena] = []
        self._free: dict[int, list[int]] = {}
        self._waiting: deque[tuple[int, int, int]] = deque()

    def write(self, content: bytes) -> int:
        """The address of a copy of ``content``, aligned to 32 bytes."""
        address = self.alloc(len(content))
        ctypes.memmove(address, content, len(content))
        return address

    def alloc(self, size: int) -> int:
        """The address of a block of at least ``size`` bytes, whatever is in it."""
        rounded = LEAST if size <= LEAST else 1 << (size - 1).bit_length()
        free = self._free.get(rounded)
        if free:
            return free.pop()
        if not self._chunks or self._chunks[-1].used + rounded > self._chunks[-1].size - LEAST:
            self._grow(rounded)
        return self._chunks[-1].alloc(rounded, LEAST)

    def _grow(self, rounded: int) -> None:
        size = max(min(max(self.mapped, FIRST_CHUNK), MOST_CHUNK), rounded + LEAST)
        if self.mapped + size > self.memory:
            raise GraphError(
                f"rules take {self.mapped} bytes and may take {self.memory}; remove some, or allow the switch more memory"
            )
        self._chunks.append(Arena(size, huge=False))
        self.mapped += self._chunks[-1].size

    def free(self, address: int, size: int, version: int) -> None:
        """Let go of a block that no reader at ``version`` or later reaches."""
        rounded = LEAST if size <= LEAST else 1 << (size - 1).bit_length()
        self._waiting.append((version, address, rounded))

    def reclaim(self, safe: int) -> None:
        """Have blocks used again that nobody at version ``safe`` or later reaches."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= safe:
            _, address, rounded = waiting.popleft()
            self._free.setdefault(rounded, []).append(address)

    def close(self) -> None:
        """Unmap everything.  Closing twice is harmless."""
        for chunk in self._chunks:
            chunk.close()
        self._chunks.clear()
        self._free.clear()
        self._waiting.clear()
