"""A set of prefixes: the entries that differ in one field and how many of its leading bits they look at.

Theory of operation
-------------------
Some words of a flow, the *fixed* ones, are the same for all entries, and are compared first.  The field, of up to 32 bits, is
then looked up in a trie (``wirespeed.tables.prefix_trie``), whose value is a node's number; the node's chain has the
entries with this very prefix.  Longer prefixes have priorities that are no lower, so the first entry that is visible is
the best; where a chain has none, the node's parent is next, the longest prefix that covers it.  That is rare: only
while entries come and go.

An entry that would break the rule is refused, and goes into a tuple.  What is known of the priorities of each
length only widens, until the set is built anew.

Thread rules and order pairs: as those of chains and of the trie.  A node's chain is read after its number, and is empty
until its first entry is published and after its last one has gone.
"""

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import load_i64, load_u64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables import prefix_trie as trie
from wirespeed.tables.classifier.chain import join, leave
from wirespeed.tables.classifier.entry import PART, SHAPE, VALUE, Entry, Link, Part, Shape, visible
from wirespeed.tables.classifier.group import GROUP
from wirespeed.tables.prefix_trie import Lpm

u32, i64, u64 = np.uint32, np.int64, np.uint64

Prefixes = layout(
    "ClassifierPrefixes",
    [
        *GROUP,
        # for readers
        ("slots", "i8"),  # the trie's
        ("heads", "i8"),  # the first entry of each node's chain, or 0: address of Link[nodes]
        ("offset", "i8"),  # in bytes from a flow to the word that the field is in
        ("shift", "u4"),  # the field's lowest bit in the word
        ("spare", "u4"),  # 32 less its bits
        ("link", "i8"),
        ("fixed", "i8"),  # how many words are fixed
        ("trie", "i8"),  # address of the Lpm
        ("size", "i8"),  # bytes of all this with the trie
        # for the writer: what priorities the entries of each length have; an empty range is upside down
        ("low", "i8", 33),
        ("high", "i8", 33),
        (None, 48),
    ],
)
Fixed = layout("ClassifierFixed", [("offset", "i8"), ("mask", "u8"), ("value", "u8")])
FIXED = Fixed.size
FIRST = Prefixes.size  # the fixed words follow
assert Prefixes.offset("slots") == LINE and FIRST % LINE == 0
_LOW, _HIGH = Prefixes.offset("low"), Prefixes.offset("high")
LENGTHS = 33


@kernel(inline=True)
def fixed_agree(prefixes, flow):
    """Whether the fixed words of a flow are those of the set."""
    odd = u64(0)
    at = prefixes + FIRST
    for _ in range(Prefixes(prefixes).fixed):
        f = Fixed(at)
        odd |= (load_u64(flow + load_relaxed(f, "offset")) & f.mask) ^ f.value  # relaxed: see matches
        at += FIXED
    return odd == u64(0)


@kernel(inline=True)
def key_of(p, flow):
    """The field of a flow, its highest bit the highest of 32."""
    return u32(u32(load_u64(flow + p.offset) >> u64(p.shift)) << p.spare)


@kernel(inline=True)
def longest(prefixes, flow, version, least):
    """The entry of the longest prefix that is visible, if its priority is above ``least``; or 0."""
    if not fixed_agree(prefixes, flow):
        return i64(0)
    p = Prefixes(prefixes)
    number = trie.find(p.slots, key_of(p, flow))
    while number != 0:
        entry = load_acquire(Link(p.heads + 8 * i64(number)), "to")
        while entry != 0:
            if visible(Entry(entry), version):
                return entry if i64(Entry(entry).priority) > least else i64(0)
            entry = load_acquire(Link(entry + p.link), "to")
        number = trie.node_of(Lpm(p.trie), number).parent
    return i64(0)


@kernel
def fits(prefixes, shape, flow, priority):
    """Whether an entry with this value may be in the set: fixed words the same, and no shorter prefix above it."""
    if not fixed_agree(prefixes, flow):
        return False
    length = Shape(shape).bits
    for n in range(LENGTHS):
        if n < length and load_i64(prefixes + _HIGH + 8 * n) > priority:
            return False
        if n > length and load_i64(prefixes + _LOW + 8 * n) < priority:
            return False
    return True


@kernel
def claim(prefixes, shape, flow):
    """The number of the node for a value's prefix, made if need be; or 0 when the trie is full."""
    p = Prefixes(prefixes)
    key, length = key_of(p, flow), Shape(shape).bits
    number, _ = trie.seek(Lpm(p.trie), key, length)
    if number == 0:
        number = u32(max(trie.add(p.trie, key, length, u32(0)), i64(0)))
        if number != 0:
            p.chains += 1
    return number


@kernel
def add(prefixes, entry, number):
    """Link an entry that fits into the chain of its node."""
    p = Prefixes(prefixes)
    head = Link(p.heads + 8 * i64(number))
    length, priority = Shape(Entry(entry).shape).bits, i64(Entry(entry).priority)
    store_i64(prefixes + _LOW + 8 * length, min(load_i64(prefixes + _LOW + 8 * length), priority))
    store_i64(prefixes + _HIGH + 8 * length, max(load_i64(prefixes + _HIGH + 8 * length), priority))
    p.length += 1
    if join(head.to, entry, p.link):
        store_release(head, "to", entry)


@kernel
def remove(prefixes, entry):
    """Take an entry out, and its prefix when it was the last one; readers may still be in it."""
    p = Prefixes(prefixes)
    p.length -= 1
    was_first, after = leave(entry, p.link)
    if was_first:
        key, length = _key_of_entry(p, entry), Shape(Entry(entry).shape).bits
        number, _ = trie.seek(Lpm(p.trie), key, length)
        store_release(Link(p.heads + 8 * i64(number)), "to", after)
        if after == 0:
            trie.remove(p.trie, key, length)
            p.chains -= 1


@kernel
def _key_of_entry(p, entry):
    """The prefix of an entry, from its own words."""
    shape = Entry(entry).shape
    part, value = shape + SHAPE, entry + VALUE
    for _ in range(Shape(shape).words):
        if Part(part).offset == p.offset:
            return u32(u32(load_u64(value) >> u64(p.shift)) << p.spare)
        part += PART
        value += 8
    return u32(0)  # a prefix of no bits, and nothing else in this word


@kernel
def highest(prefixes):
    """The highest priority of the entries, or -1."""
    p = Prefixes(prefixes)
    best = i64(-1)
    for number in range(1, i64(Lpm(p.trie).new_node) + 1):
        entry = Link(p.heads + 8 * number).to
        if entry != 0:
            best = max(best, i64(Entry(entry).priority))
    return best
