"""Making a classifier's shapes and groups, and telling what entries there are.

Groups are put at the end of the order, or aside (``rebuild.py``).

Thread rules: the writer calls these.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_u64, store_i64, store_u64
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.types import int64
from wirespeed.tables.classifier.entry import PART, SHAPE, VALUE, Entry, Part, Shape, Tail, tail_of
from wirespeed.tables.classifier.group import PREFIXES, TUPLE
from wirespeed.tables.classifier.heap import NODE, Heap, alloc, alloc_clear, free, retire
from wirespeed.tables.classifier.order import HEAP, Table, append, sort
from wirespeed.tables.classifier.prefixes import Prefixes
from wirespeed.tables.classifier.slots import LANE, LANES, Lane, Tuple, base_of, make_room, size_of_slots

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64

ENTRY, TAIL, NEXT0, NEXT1 = Entry.size, Tail.size, Entry.offset("next0"), Entry.offset("next1")
BOTH = NEXT0 + NEXT1  # less one link it is the other


@entry(int64(int64))
def begin(table):
    """Publish an order of no groups."""
    Table(table).link = i64(NEXT0)
    return sort(table)


@entry(int64(int64, int64, int64))
def extend(table, chunk, size):
    """Take blocks from another chunk from now on."""
    h = Heap(table + HEAP)
    h.at, h.end = chunk, chunk + size
    return i64(0)


@entry(int64(int64, int64, int64))
def give(table, block, size):
    """Add a block to the free ones."""
    free(table + HEAP, block, size)
    return i64(0)


@entry(int64(int64, int64))
def collect(shape, places):
    """Write the addresses of a shape's entries, the oldest first."""
    one = Shape(shape).oldest
    while one != 0:
        store_i64(places, one)
        places += 8
        one = tail_of(one).newer
    return i64(0)


@entry(int64(int64, int64, int64, int64))
def sample(table, shape, rows, most):
    """Write the priority and all words of the value of up to ``most`` entries of a shape, u8[1 + words] each."""
    t = Table(table)
    one, n = Shape(shape).oldest, i64(0)
    while one != 0 and n < most:
        spread(t, one)
        store_i64(rows, i64(Entry(one).priority))
        for i in range(t.words):
            store_u64(rows + 8 + 8 * i, load_u64(t.value + 8 * i))
        rows += 8 + 8 * t.words
        n += 1
        one = tail_of(one).newer
    return n


@kernel
def spread(t, one):
    """Write an entry's value to the table's buffer, as a flow has it."""
    for i in range(t.words):
        store_u64(t.value + 8 * i, u64(0))
    shape = Entry(one).shape
    part, value = shape + SHAPE, one + VALUE
    for _ in range(Shape(shape).words):
        store_u64(t.value + Part(part).offset, load_u64(value))
        part += PART
        value += 8


@entry(int64(int64, int64, int64, int64, int64))
def make_tuple(table, mask, n, most, aside):
    """A tuple for ``n`` chains of up to ``most`` entries, that looks at the bits of a mask, u8[words] at an address.

    It is at the end of the order, or, if ``aside``, among the groups that are built.  Or minus the bytes that are missing.
    """
    t, heap = Table(table), table + HEAP
    words = _used_words(t, mask)
    size = LANES + LANE * words
    made = alloc(heap, size)
    if made < 0:
        return made
    p = Tuple(made)
    p.priority, p.length, p.chains, p.used, p.removed = i64(-1), 0, 0, 0, 0
    p.most = u16(most)
    _name(t, p, TUPLE)
    p.tombstone, p.slots, p.words, p.seed = t.tombstone, u64(0), words, load_u64(t.seeds)
    p.link = BOTH - t.link if aside else t.link
    lane = made + LANES
    for i in range(t.words):
        word = load_u64(mask + 8 * i)
        if word != u64(0):
            l = Lane(lane)
            l.offset, l.mask = 8 * i, word
            l.low, l.high = load_u64(t.seeds + 16 * i + 8), load_u64(t.seeds + 16 * i + 16)
            lane += LANE
    missing = make_room(heap, made, n)
    if missing == 0:
        missing = _put_aside(t, made) if aside else append(table, made)
        if missing == 0:
            return made
        free(heap, base_of(p.slots), size_of_slots(p.slots))
    free(heap, made, size)
    return missing


@kernel
def _name(t, p, kind):
    t.number += 1
    p.number, p.kind = u32(2 * t.number + kind), u16(kind)


@kernel
def _used_words(t, mask):
    words = i64(0)
    for i in range(t.words):
        words += 1 if load_u64(mask + 8 * i) != u64(0) else 0
    return words


@kernel
def _put_aside(t, group):
    Tuple(group).following = t.aside
    t.aside = group
    t.n_aside += 1
    return i64(0)


@entry(int64(int64, int64))
def make_prefixes(table, size):
    """A set of prefixes of zeros, in so many bytes, among the groups that are built; or minus the bytes that are missing."""
    made = alloc_clear(table + HEAP, size)
    if made > 0:
        p = Prefixes(made)
        p.priority, p.size, p.link = i64(-1), size, BOTH - Table(table).link
        _name(Table(table), Tuple(made), PREFIXES)
        _put_aside(Table(table), made)
    return made


@entry(int64(int64, int64, int64, int64))
def make_shape(table, mask, group, bits):
    """The shape of a mask, u8[words] at an address, whose entries go into a group; or minus the bytes that are missing."""
    t = Table(table)
    words = _used_words(t, mask)
    shape = alloc(table + HEAP, SHAPE + PART * words)
    if shape < 0:
        return shape
    s = Shape(shape)
    s.words, s.tail = words, ENTRY + 8 * words
    s.size = s.tail + TAIL
    s.length, s.oldest, s.newest = 0, 0, 0
    s.group, s.bits = group, bits
    part = shape + SHAPE
    for i in range(t.words):
        word = load_u64(mask + 8 * i)
        if word != u64(0):
            Part(part).offset, Part(part).mask = 8 * i, word
            part += PART
    return shape


@entry(int64(int64, int64, int64))
def assign(shape, group, bits):
    """Have a shape's next entries go into another group, where ``bits`` is how long its prefixes are; its first entry."""
    s = Shape(shape)
    s.group, s.bits = group, bits
    return s.oldest


@entry(int64(int64, int64))
def retire_shape(table, shape):
    """Retire a shape without entries; 0, or minus the bytes that are missing."""
    node = alloc(table + HEAP, i64(NODE))
    if node < 0:
        return node
    retire(table + HEAP, node, shape, SHAPE + PART * Shape(shape).words)
    return i64(0)
