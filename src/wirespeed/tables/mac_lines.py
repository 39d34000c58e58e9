"""The lines of a MAC table: an address of a VLAN and what is known of it, found without a lock.

Theory of operation
-------------------
A line has 64 bytes: a head and three pairs, each of a key (the address, the VLAN and a bit that says that it is one) and
a value (the port, a stamp, and the second in which it was last seen).  A key's line is chosen by a multiplication with
a random odd number; when it is full, the key goes to the next one that is not, and each full line that it passed counts
it, so that who searches goes on only where somebody did.  There is half as much room again as entries, or more.  Nearly
every search touches one line.

Who searches reads the key, the value, and both again.  A place in a line gets a new stamp whenever it gets a new key, so
a value that is the same both times was that key's in between, even when the place was given to others and back meanwhile
(unless 65,536 times).  Writers hold the table's lock.

Thread rules: what writes is for holders of the lock; the rest is for all.
Order pairs: K1, the second look at a key, pairs with K0, the store that releases it behind its value; K3, the first look
at a value, pairs with K2, the store that releases it behind the removal of the key that was there before.
"""

import os

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_relaxed, store_release
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables import shares
from wirespeed.tables.shares import Shares, fullest, oldest

i64, u32, u64 = np.int64, np.uint32, np.uint64

Table = layout(
    "MacTable",
    [
        # Read by all, written before the start; age at any time.
        ("lines", "i8"),  # address of the first line
        ("mask", "i8"),  # lines less one, a power of two less one
        ("shift", "u8"),  # of a 64-bit hash, so that the line's number is left
        ("multiplier", "u8"),  # random and odd
        ("age", "i8"),  # seconds until what is not seen is forgotten
        ("capacity", "u4"),  # most entries
        (None, 20),
        # For holders of the lock.
        ("lock", "u4"),
        ("length", "u4"),  # entries, static ones included
        ("static", "u4"),
        (None, 4),
        ("learned", "u8"),
        ("moved", "u8"),
        ("expired", "u8"),
        ("evicted", "u8"),
        ("refused", "u8"),  # new ones that found only static entries
        (None, 8),
        ("shares", Shares),
    ],
)
assert Table.size == 3 * LINE

# A line is a head and three pairs, each of 16 bytes: the pair with the number 4 * line + i (i from 1) is 16 bytes times
# its number from the first line on, and no pair has the number 0.
Line = layout("MacLine", [("passed", "u4"), (None, 60)])  # how many keys found it full and went on
Pair = layout("MacPair", [("key", "u8"), ("value", "u8")])
PAIR = Pair.size
assert Line.size == LINE == 4 * PAIR

USED = u64(1 << 63)
MAC = u64((1 << 48) - 1)
SEEN = u64(0xFFFF_FFFF)
STATIC = SEEN  # seen at the end of time


@kernel(inline=True)
def key_of(mac, vlan):
    """The key of an address, a 48-bit integer whose first byte is the highest, in a VLAN."""
    return USED | (u64(vlan) & u64(0xFFF)) << u64(48) | u64(mac) & MAC


@kernel(inline=True)
def pack(port, stamp, seen):
    """A value."""
    return u64(port) << u64(48) | (u64(stamp) & u64(0xFFFF)) << u64(32) | u64(seen)


@kernel(inline=True)
def port_of(value):
    """The port of a value."""
    return i64(value >> u64(48))


@kernel(inline=True)
def seen_of(value):
    """The second in which a value was last seen."""
    return i64(value & SEEN)


@kernel(inline=True)
def is_static(value):
    """Whether a value is that of a static entry."""
    return value & SEEN == STATIC


@kernel(inline=True)
def stamp_of(value):
    """The stamp of a value."""
    return value >> u64(32) & u64(0xFFFF)


@kernel(inline=True)
def pair_of(t, number):
    """The pair of a number."""
    return Pair(t.lines + PAIR * number)


@kernel(inline=True)
def home_of(t, key):
    """The number of the line in which the search for a key begins."""
    return i64(key * t.multiplier >> t.shift)


@kernel(inline=True)
def _search(t, key):
    """The address of the pair with a key, or 0."""
    lines, mask = t.lines, t.mask
    home = home_of(t, key)
    line = home
    while True:
        at = lines + LINE * line
        # A sum, for which of the three it is cannot be foretold, so that branches would cost more.
        i = (
            i64(load_relaxed(Pair(at + PAIR), "key") == key)
            + 2 * i64(load_relaxed(Pair(at + 2 * PAIR), "key") == key)
            + 3 * i64(load_relaxed(Pair(at + 3 * PAIR), "key") == key)
        )
        if i != 0:
            return at + PAIR * i
        if load_relaxed(Line(at), "passed") == 0:
            return i64(0)
        line = (line + 1) & mask
        if line == home:
            return i64(0)


@kernel(inline=True)
def number_of(t, key):
    """The number of the pair with a key, or 0; under the lock."""
    at = _search(t, key)
    return (at - t.lines) >> 4 if at != 0 else i64(0)  # PAIR is 16


@kernel(inline=True)
def read(at, key):
    """The value of a key found at a pair, and whether it was that key's indeed."""
    pair = Pair(at)
    value = load_acquire(pair, "value")  # K3
    return value, load_acquire(pair, "key") == key and load_relaxed(pair, "value") == value  # K1


@kernel(inline=True)
def look_up(t, key):
    """Whether a key is there, and its value."""
    while True:
        at = _search(t, key)
        if at == 0:
            return False, u64(0)
        value, sure = read(at, key)
        if sure:
            return True, value


@kernel
def insert(t, key, port, seen):
    """Put in a key that is not there, when there are less than the most entries; its number."""
    line = home_of(t, key)
    number = i64(0)
    while number == 0:  # ends: there is more room than entries
        for i in range(1, 4):
            if number == 0 and pair_of(t, 4 * line + i).key == 0:
                number = 4 * line + i
        if number == 0:
            head = Line(t.lines + LINE * line)
            store_relaxed(head, "passed", u32(head.passed + u32(1)))
            line = (line + 1) & t.mask
    pair = pair_of(t, number)
    store_release(pair, "value", pack(port, stamp_of(pair.value) + u64(1), seen))  # K2
    store_release(pair, "key", key)  # K0
    t.length = u32(t.length + u32(1))
    return number


@kernel
def remove(t, number):
    """Take out the entry of a number; its value stays, for the stamp."""
    pair = pair_of(t, number)
    key, value = pair.key, pair.value
    store_relaxed(pair, "key", u64(0))
    line = home_of(t, key)
    while line != number >> 2:
        head = Line(t.lines + LINE * line)
        store_relaxed(head, "passed", u32(head.passed - u32(1)))
        line = (line + 1) & t.mask
    t.length = u32(t.length - u32(1))
    if is_static(value):
        t.static = u32(t.static - u32(1))
    else:
        shares.remove(t.shares, number, port_of(value))


@kernel
def make_room(t, port):
    """Have the port with most entries lose one if the table is full; whether there is room now."""
    if t.length < t.capacity:
        return True
    victim = fullest(t.shares, port)
    if victim < 0:
        return False
    remove(t, oldest(t.shares, victim))
    t.evicted += u64(1)
    return True


def make(arena: Arena, table: int, entries: int) -> None:
    """Make the zeroed record at ``table`` one of so many entries, in the arena's memory."""
    lines = _lines(entries)
    record = Table.at(table)
    record.lines, record.mask = arena.alloc(LINE * lines), lines - 1
    record.shift = 65 - lines.bit_length()
    record.multiplier = int.from_bytes(os.urandom(8), "little") | 1
    record.capacity = entries
    shares.make(arena, table + Table.offset("shares"), 4 * lines, entries)


def size(entries: int) -> int:
    """Bytes of an arena that a table and :func:`make` take, at most."""
    lines = _lines(entries)
    return Table.size + LINE * lines + shares.size(4 * lines, entries)


def _lines(entries: int) -> int:
    """A power of two, half of ``entries`` or more, and 2 or more so that a hash is shifted by less than its width."""
    return max(2, 1 << ((entries - 1) // 2).bit_length())
