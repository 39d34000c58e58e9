"""An exact-match table: keys of whole 64-bit words, each found with one hash, in memory of fixed size.

Theory of operation
-------------------
Entries lie one behind the other in the order of their insertion: a key of ``words`` 64-bit words, then the value.  An
index of at least twice as many slots, each holding the upper half of a key's hash and the entry's number plus one, is
searched from the hash's place onward until the key or an empty slot is found (linear probing at most half full).
``words`` is a constant in each look-up, equal to that of the table, so that the loops over a key unroll.  Searching
costs one line of the index and one entry; who looks up a burst prefetches both (:func:`prefetch_slot`,
:func:`prefetch_entry`).  A table that is full takes no more keys and says so.

Thread rules: one thread writes; reading while it writes is not safe.
"""

from typing import Any

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_u64, prefetch, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import Layout, layout

i64, u64 = np.int64, np.uint64

Table = layout(
    "ExactTable",
    [
        ("slots", "i8"),  # address of the index, u8 each
        ("entries", "i8"),  # address of the first entry
        ("mask", "u8"),  # slots - 1, a power of two less one
        ("stride", "i8"),  # bytes of an entry
        ("key", "i8"),  # bytes of a key, a multiple of 8
        ("capacity", "i8"),  # most entries
        ("length", "i8"),  # entries
        ("refused", "u8"),  # insertions that found the table full
    ],
)
assert Table.size == LINE
_LOW = u64(0xFFFFFFFF)


@kernel(inline=True)
def spread(value):
    """A 64-bit digest of a 32-bit hash: its low bits choose the slot, its upper half is the tag."""
    product = (u64(value) + u64(1)) * u64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
    return product ^ (product >> u64(32))


@kernel(inline=True)
def same_words(a, b, words):
    """Whether ``words`` (a constant) 64-bit words at two addresses are the same; without a branch for each."""
    odd = u64(0)
    for i in range(words):
        odd |= load_u64(a + 8 * i) ^ load_u64(b + 8 * i)
    return odd == u64(0)


@kernel(inline=True)
def prefetch_slot(table, digest):
    """Ask for the line of the index in which the search for a hash begins."""
    t = Table(table)
    prefetch(t.slots + 8 * i64(digest & t.mask))


@kernel(inline=True)
def prefetch_entry(table, digest):
    """Ask for the entry that the first slot of a hash names, if any."""
    t = Table(table)
    slot = load_u64(t.slots + 8 * i64(digest & t.mask))
    prefetch(t.entries + t.stride * (i64(slot & _LOW) - 1))


@kernel(inline=True)
def find(table, key, digest, words):
    """The address of the entry with the key at ``key``, or 0; and the number of the slot where the search ended."""
    t = Table(table)
    slots, entries, mask, stride = t.slots, t.entries, t.mask, t.stride
    at = digest & mask
    while True:
        # The index has an empty slot at all times (it is at most half full), so the search ends.
        slot = load_u64(slots + 8 * i64(at))
        if slot == u64(0):
            return i64(0), at
        if slot >> u64(32) == digest >> u64(32):
            entry = entries + stride * (i64(slot & _LOW) - 1)
            if same_words(entry, key, words):
                return entry, at
        at = (at + u64(1)) & mask


@kernel(inline=True)
def find_or_add(table, key, digest, words):
    """The entry with the key at ``key``, added with a value of zeros if need be; 0 when the table is full."""
    entry, at = find(table, key, digest, words)
    return entry if entry != 0 else _add(table, key, digest, at)


@kernel
def _add(table, key, digest, at):
    """Write a new entry and its slot; out of line, for most look-ups find their key."""
    t = Table(table)
    length = t.length
    if length >= t.capacity:
        t.refused += u64(1)
        return i64(0)
    entry = t.entries + t.stride * length
    for i in range(t.key // 8):
        store_u64(entry + 8 * i, load_u64(key + 8 * i))
    t.length = length + 1
    store_u64(t.slots + 8 * i64(at), (digest >> u64(32) << u64(32)) | u64(length + 1))
    return entry


class ExactTable:
    """Up to ``capacity`` entries of the layout ``entry``, whose first ``words`` 64-bit words are the key."""

    def __init__(self, entry: Layout, words: int, capacity: int) -> None:
        if not 1 <= capacity <= 1 << 30:
            raise GraphError(f"table capacity must be 1 to {1 << 30}, got {capacity}; give the most keys it is to hold")
        if entry.size % 8 or 8 * words > entry.size:
            raise GraphError(
                f"a table's entry is whole 64-bit words, the key first; got {entry} with {words} words of key"
            )
        self.entry = entry
        slots = 2 << (capacity - 1).bit_length()
        size = Table.size + 8 * slots + capacity * entry.size
        self.arena = Arena(size + 3 * LINE)
        self.address = self.arena.alloc(Table.size)
        record = self.record
        record.slots, record.mask = self.arena.alloc(8 * slots), slots - 1
        record.entries, record.stride = self.arena.alloc(capacity * entry.size), entry.size
        record.key, record.capacity = 8 * words, capacity

    @property
    def record(self) -> Any:
        """The table's own record; ``length`` entries, ``refused`` insertions."""
        return Table.at(self.address)

    def entries(self) -> Any:
        """A copy of all entries as a NumPy structured array."""
        record = self.record
        length = record.length
        return self.entry.array_at(record.entries, length).copy() if length else np.empty(0, self.entry.dtype)

    def close(self) -> None:
        """Unmap the memory; nothing of the table may be used afterwards."""
        self.arena.close()
