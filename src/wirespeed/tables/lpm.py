"""Longest-prefix match over 32-bit keys: routes, for example.

The structure, and how it changes under its readers, is in ``prefix_trie.py``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_u32, store_u32
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.types import int64
from wirespeed.tables.prefix_trie import FULL, MOST_BLOCKS, MOST_NODES, Lpm, add, find, lay_out, remove, settle, size

u32, i64 = np.uint32, np.int64

MOST_VALUE = (1 << 31) - 2


@kernel
def find_bulk(lpm, keys, values, n):
    """:func:`find` for each of u4[n] keys, into u4[n].

    A core has many of these look-ups under way at once, for none needs another's answer; written in passes with prefetches
    it took longer with any number of prefixes up to 400,000.
    """
    slots = Lpm(lpm).slots
    for i in range(n):
        store_u32(values + 4 * i, find(slots, load_u32(keys + 4 * i)))


@entry(int64(int64, int64, int64, int64))
def _add(lpm, prefix, length, value):
    return add(lpm, u32(prefix), length, u32(value))


@entry(int64(int64, int64, int64))
def _remove(lpm, prefix, length):
    return remove(lpm, u32(prefix), length)


@entry(int64(int64, int64))
def _find(lpm, key):
    return i64(find(Lpm(lpm).slots, u32(key)))


@entry(int64(int64, int64, int64, int64), nogil=True)
def _find_bulk(lpm, keys, values, n):
    find_bulk(lpm, keys, values, n)
    return n


@entry(int64(int64))
def _settle(lpm):
    settle(lpm, i64(1), i64(0))
    return i64(0)


class Lpm4:
    """Up to ``capacity`` prefixes of 32-bit keys, each with a value of 0 to 2^31 - 2; the longest one is found.

    ``blocks`` is how many blocks of 256 slots it may have: one for each 16 bits under which there are longer prefixes, and
    for each 24 bits likewise.  Kernels look up with ``find(Lpm(address).slots, u32(key))``, which returns the value plus
    one, or 0; so does :func:`find_bulk`.  One thread may change it while any number look up.
    """

    def __init__(self, capacity: int, *, blocks: int | None = None) -> None:
        if not 1 <= capacity <= MOST_NODES:
            raise GraphError(f"a prefix table's capacity must be 1 to {MOST_NODES}, got {capacity}")
        if blocks is None:
            blocks = min(2 * capacity, capacity // 4 + (1 << 16))
        if not 2 <= blocks <= MOST_BLOCKS:
            raise GraphError(
                f"a prefix table has 2 to {MOST_BLOCKS} blocks, got {blocks}; 2 for each prefix are always enough"
            )
        self.capacity, self.blocks = capacity, blocks
        self.arena = Arena(size(capacity, blocks))
        self.address = self.arena.alloc(self.arena.size)
        lay_out(self.address, capacity, blocks)

    def add(self, prefix: int, length: int, value: int) -> None:
        """Add a prefix, given as the 32-bit number that its keys begin with, or give it another value."""
        _check(prefix, length)
        if not 0 <= value <= MOST_VALUE:
            raise GraphError(f"a prefix's value must be 0 to {MOST_VALUE}, got {value}")
        if _add.function(self._open(), prefix, length, value + 1) == FULL:
            raise GraphError(
                f"a prefix table for {self.capacity} prefixes and {self.blocks} blocks has no room for one more; "
                f"make it larger, or reclaim what was removed"
            )

    def remove(self, prefix: int, length: int) -> bool:
        """Take a prefix out; return whether it was there.  Its room is used again after :meth:`reclaim`."""
        _check(prefix, length)
        return bool(_remove.function(self._open(), prefix, length))

    def lookup(self, key: int) -> int | None:
        """The value of the longest prefix of a key, or None."""
        if not 0 <= key < 1 << 32:
            raise GraphError(f"a key has 32 bits, got {key:#x}")
        found = int(_find.function(self._open(), key))
        return found - 1 if found else None

    def lookup_bulk(self, keys: np.ndarray[Any, np.dtype[np.uint32]] | Sequence[int]) -> Any:
        """The value of each of many keys, as an array of int64; -1 where there is none."""
        wanted = np.ascontiguousarray(keys, np.uint32)
        found = np.empty(wanted.shape, np.uint32)
        _find_bulk.function(self._open(), wanted.ctypes.data, found.ctypes.data, wanted.size)
        return found.astype(np.int64) - 1

    def reclaim(self) -> None:
        """Use the room of removed prefixes again; every look-up that is under way has begun after their removal."""
        _settle.function(self._open())

    def close(self) -> None:
        """Unmap the memory; nothing of the table may be used afterwards.  Closing twice is harmless."""
        self.address = 0
        self.arena.close()

    def _open(self) -> int:
        if not self.address:
            raise GraphError("this prefix table is closed; use it before it is, or make another")
        return self.address

    def __len__(self) -> int:
        return int(Lpm.at(self._open()).length)

    def __enter__(self) -> "Lpm4":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def _check(prefix: int, length: int) -> None:
    if not 0 <= length <= 32:
        raise GraphError(f"a prefix has a length of 0 to 32 bits, got {length}")
    if not 0 <= prefix < 1 << 32 or prefix & (1 << 32 - length) - 1:
        raise GraphError(f"a prefix of {length} bits has no others: got {prefix:#010x}, set those to 0")
