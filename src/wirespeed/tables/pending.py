"""A table of what is under way: found by a key of whole 64-bit words, let go of in the order in which it began.

Theory of operation
-------------------
Entries are places in an array.  Those in use are in two lists at once: that of their bucket, which is searched for a
key, and that of all in the order in which they were added, whose first is the one to time out or to make room.  Those
that are free are in a third.  Lists are chained by the entries' numbers plus one; 0 ends them.  There are at least as
many buckets as entries.

An entry begins with the layout :data:`Entry`; its key follows, then what the table is for.

Thread rules: a table is for one thread.
"""

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_u32, load_u64, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import Layout, layout
from wirespeed.tables.exact import same_words

i64, u32, u64 = np.int64, np.uint32, np.uint64

Table = layout(
    "PendingTable",
    [
        ("buckets", "i8"),  # address of the first entry's number plus one of each, u4
        ("entries", "i8"),  # address of the first entry
        ("mask", "u8"),  # buckets less one, a power of two less one
        ("stride", "i8"),  # bytes of an entry
        ("capacity", "i8"),  # most entries
        ("length", "i8"),  # entries in use
        ("free", "u4"),  # the first free one,
        ("oldest", "u4"),  # and the first and last in use
        ("newest", "u4"),
        (None, 4),
    ],
)
assert Table.size == LINE

Entry = layout(
    "PendingEntry",
    [
        ("following", "u4"),  # the next one in its bucket, or the next free one
        ("older", "u4"),
        ("newer", "u4"),
        ("bucket", "u4"),
        ("since", "i8"),  # when it was added, as the caller says
    ],
)
KEY = Entry.size


@kernel(inline=True)
def place_of(t, number):
    """The address of an entry by its number plus one; 0 for 0."""
    return t.entries + t.stride * (i64(number) - 1) if number != 0 else i64(0)


@kernel(inline=True)
def _number_of(t, entry):
    return u32((entry - t.entries) // t.stride + 1)


@kernel(inline=True)
def digest_of(seeds, key, words):
    """A hash of a key by the multipliers at ``seeds``, random odd u8[words], so that nobody can aim at one bucket."""
    total = u64(0)
    for i in range(words):
        word = load_u64(key + 8 * i)
        total += (word ^ word >> u64(32)) * load_u64(seeds + 8 * i)
    return total >> u64(32)


@kernel(inline=True)
def find(t, key, digest, words):
    """The address of the entry with the key at ``key``, or 0; ``words`` is a constant, how many the key has."""
    entry = place_of(t, load_u32(t.buckets + 4 * i64(digest & t.mask)))
    while entry != 0 and not same_words(entry + KEY, key, words):
        entry = place_of(t, Entry(entry).following)
    return entry


@kernel(inline=True)
def oldest(t):
    """The address of the entry that was added first, or 0."""
    return place_of(t, t.oldest)


@kernel
def add(t, key, digest, words, now):
    """The address of a new entry with a key that is not there yet; 0 when there is no room.  Its value is not cleared."""
    number = t.free
    if number == 0:
        return i64(0)
    entry = place_of(t, number)
    e = Entry(entry)
    t.free = e.following
    bucket = u32(digest & t.mask)
    e.bucket = bucket
    e.following = load_u32(t.buckets + 4 * i64(bucket))
    store_u32(t.buckets + 4 * i64(bucket), number)
    e.since = now
    e.older, e.newer = t.newest, u32(0)
    if t.newest != 0:
        Entry(place_of(t, t.newest)).newer = number
    else:
        t.oldest = number
    t.newest = number
    for i in range(words):
        store_u64(entry + KEY + 8 * i, load_u64(key + 8 * i))
    t.length += 1
    return entry


@kernel
def remove(t, entry):
    """Take an entry out."""
    e, number = Entry(entry), _number_of(t, entry)
    at = t.buckets + 4 * i64(e.bucket)
    if load_u32(at) == number:
        store_u32(at, e.following)
    else:
        before = place_of(t, load_u32(at))
        while Entry(before).following != number:
            before = place_of(t, Entry(before).following)
        Entry(before).following = e.following
    if e.older != 0:
        Entry(place_of(t, e.older)).newer = e.newer
    else:
        t.oldest = e.newer
    if e.newer != 0:
        Entry(place_of(t, e.newer)).older = e.older
    else:
        t.newest = e.older
    e.following = t.free
    t.free = number
    t.length -= 1


@kernel
def init(t):
    """Put all entries of a new table into the list of free ones, the first one first."""
    for i in range(t.capacity):
        Entry(t.entries + t.stride * i).following = u32(i + 2) if i + 1 < t.capacity else u32(0)
    t.free = 1


@kernel
def _init(table):
    init(Table(table))


def make(arena: Arena, table: int, entry: Layout, capacity: int) -> None:
    """Make the zeroed record at ``table`` one of up to ``capacity`` entries of a layout that begins with :data:`Entry`.

    Its memory is the arena's, and lives as long.  The key follows the first field of the layout.
    """
    if not 1 <= capacity <= 1 << 24:
        raise GraphError(f"table capacity must be 1 to {1 << 24}, got {capacity}; give the most that is under way")
    buckets = 1 << (capacity - 1).bit_length()
    record = Table.at(table)
    record.buckets, record.mask = arena.alloc(4 * buckets), buckets - 1
    record.entries, record.stride = arena.alloc(capacity * entry.size), entry.size
    record.capacity = capacity
    _init(table)


def size(entry: Layout, capacity: int) -> int:
    """Bytes of an arena that :func:`make` takes, at most."""
    return 8 * capacity + capacity * entry.size + 2 * LINE
