"""The memory of a classifier: chunks that are mapped when a kernel says that it lacks some."""

from collections.abc import Callable
from mmap import PAGESIZE

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError

FIRST = 64 << 10  # bytes of the first chunk; later ones are as large as all before, up to
MOST = 16 << 20


class Chunks:
    """Mapped memory of up to ``limit`` bytes, from which ``extend`` and ``give`` hand out more."""

    def __init__(self, limit: int, extend: Callable[[int, int], object], give: Callable[[int, int], object]) -> None:
        self.limit, self.size = limit, 0
        self.extend, self.give = extend, give
        self.arenas: list[Arena] = []

    def map(self, size: int) -> Arena:
        """Map another chunk; it must be within the limit."""
        if self.size + size > self.limit:
            raise GraphError(
                f"the classifier has {self.size} bytes and may have {self.limit}; {size} more were wanted: "
                f"allow more memory, or reclaim"
            )
        arena = Arena(size)
        self.size += arena.size
        self.arenas.append(arena)
        return arena

    def grow(self, wanted: int) -> None:
        """Have a block of so many bytes; one that is large beside a chunk is given by itself."""
        size = min(max(self.size, FIRST), MOST, (self.limit - self.size) // PAGESIZE * PAGESIZE)
        if 4 * wanted > size:
            self.give(self.map(wanted).alloc(wanted), wanted)
        else:
            arena = self.map(size)
            self.extend(arena.alloc(arena.size), arena.size)

    def close(self) -> None:
        """Unmap all."""
        for arena in self.arenas:
            arena.close()
        self.arenas.clear()
