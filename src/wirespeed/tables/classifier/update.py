"""Changing a classifier: what its writer calls, each a step that readers see whole or not at all.

Theory of operation
-------------------
A new entry is not there for readers of earlier versions, so it can be linked at any time before its version is
published.  An entry that is given an end goes into a list; when no reader is so far behind as to see it any more it
is unlinked (:func:`reclaim`), and its memory is used again when no reader can be in it any more (``heap.py``).

What needs memory returns minus the bytes that are missing, having changed nothing that matters.

Thread rules: one thread calls these.
"""

import numpy as np

from wirespeed.jit.atomics import store_relaxed
from wirespeed.jit.intrinsics import load_u64, store_u64
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.types import int64
from wirespeed.tables.classifier import prefixes
from wirespeed.tables.classifier.entry import FOREVER, PART, SHAPE, VALUE, Entry, Part, Shape, tail_of
from wirespeed.tables.classifier.group import PREFIXES
from wirespeed.tables.classifier.heap import Node, alloc, release, retire, stamp
from wirespeed.tables.classifier.order import HEAP, Table, raise_bounds, sort
from wirespeed.tables.classifier.prefixes import Prefixes
from wirespeed.tables.classifier.slots import Tuple, add, digest_of, fits, make_room, remove
from wirespeed.tables.prefix_trie import settle

u32, i64, u64 = np.uint32, np.int64, np.uint64

FULL = -1  # as many entries as there may be
CROWDED = -2  # the group takes no more of this kind
MANY = 8  # changes to the order that are never worth sorting
MOST_LATER = 64  # entries whose end is yet to come that are looked at


@entry(int64(int64, int64, int64, int64, int64))
def insert(table, shape, priority, since, data):
    """Link a new entry with the value that stands in the table's buffer.

    Returns its address, FULL, CROWDED (the shape needs another group), or minus the bytes that are missing.
    """
    t, s, heap = Table(table), Shape(shape), table + HEAP
    if t.length >= t.limit:
        return i64(FULL)
    group = s.group
    place = room_in(heap, group, shape, t.value, priority)
    if place < 0:
        return place
    new = alloc(heap, s.size)
    if new < 0:
        return new
    _fill(new, shape, t.value)
    e = Entry(new)
    e.since, e.until, e.data, e.priority = since, i64(FOREVER), data, u32(priority)
    _enlist(s, new)
    g = Tuple(group)
    if priority > g.priority:
        g.priority, g.removed = priority, 0
        raise_bounds(table, group, priority)
    put_in(group, new, place)
    t.length += 1
    if t.changes > t.n_groups + MANY:
        # Without memory for it, the order stays as good as it is.
        sort(table)
    return new


@kernel
def room_in(heap, group, shape, value, priority):
    """What :func:`put_in` needs to add an entry, which is 0 or more; CROWDED, or minus the bytes that are missing."""
    if Tuple(group).kind == PREFIXES:
        if not prefixes.fits(group, shape, value, priority):
            return i64(CROWDED)
        number = prefixes.claim(group, shape, value)
        return i64(number) if number != 0 else i64(CROWDED)
    digest = digest_of(group, value)
    missing = make_room(heap, group, i64(1))
    if missing < 0:
        return missing
    return i64(digest) if fits(group, digest) else i64(CROWDED)


@kernel
def put_in(group, new, place):
    """Link an entry into a group that has room for it."""
    tail_of(new).group = group
    if Tuple(group).kind == PREFIXES:
        prefixes.add(group, new, u32(place))
    else:
        Entry(new).digest = u32(place)
        add(group, new)


@kernel
def take_out(group, old):
    """Unlink an entry from its group."""
    if Tuple(group).kind == PREFIXES:
        prefixes.remove(group, old)
    else:
        remove(group, old)


@kernel
def _fill(new, shape, value):
    """Write the words of a value that the shape has."""
    Entry(new).shape = shape
    part = shape + SHAPE
    for i in range(Shape(shape).words):
        store_u64(new + VALUE + 8 * i, load_u64(value + Part(part).offset) & Part(part).mask)
        part += PART


@kernel
def _enlist(s, new):
    """Put a new entry at the end of the list of its shape."""
    tail = tail_of(new)
    tail.expired = 0
    tail.older, tail.newer = s.newest, 0
    if s.newest != 0:
        tail_of(s.newest).newer = new
    else:
        s.oldest = new
    s.newest = new
    s.length += 1


@kernel
def _delist(s, old):
    """Take an entry out of the list of its shape."""
    tail = tail_of(old)
    if tail.older != 0:
        tail_of(tail.older).newer = tail.newer
    else:
        s.oldest = tail.newer
    if tail.newer != 0:
        tail_of(tail.newer).older = tail.older
    else:
        s.newest = tail.older
    s.length -= 1


@entry(int64(int64, int64, int64))
def expire(table, old, until):
    """Give an entry another end; FOREVER takes it back."""
    t, tail = Table(table), tail_of(old)
    store_relaxed(Entry(old), "until", until)
    if tail.expired == 0 and until != FOREVER:
        tail.expired = 1
        node = old + Shape(Entry(old).shape).tail
        tail.node.following, tail.node.block = 0, old
        if t.expired_last != 0:
            Node(t.expired_last).following = node
        else:
            t.expired = node
        t.expired_last = node
    return i64(0)


@entry(int64(int64, int64, int64))
def reclaim(table, safe, current):
    """Unlink what no reader at ``safe`` or later sees, and use again what none can be in; how many were unlinked."""
    t, heap = Table(table), table + HEAP
    node, before, done, later = t.expired, i64(0), i64(0), i64(0)
    # Ends mostly come in the order of their versions: behind many that are too late, the others are too.
    while node != 0 and later < MOST_LATER:
        following, old = Node(node).following, Node(node).block
        until = Entry(old).until
        if until > safe and until != FOREVER:
            before = node
            later += 1
        else:
            if before != 0:
                Node(before).following = following
            else:
                t.expired = following
            if following == 0:
                t.expired_last = before
            tail_of(old).expired = 0
            if until != FOREVER:
                _unlink(t, heap, node, old)
                done += 1
        node = following
    stamp(heap, current)
    release(heap, safe)
    group = t.groups
    while group != 0:
        if Tuple(group).kind == PREFIXES:
            settle(Prefixes(group).trie, safe, current)
        group = Tuple(group).following
    if t.fallen != 0:
        sort(table)
    return done


@kernel
def _unlink(t, heap, node, old):
    """Take an entry out of its group, and retire it."""
    shape = Entry(old).shape
    group = tail_of(old).group
    g = Tuple(group)
    take_out(group, old)
    _delist(Shape(shape), old)
    retire(heap, node, old, Shape(shape).size)
    t.length -= 1
    if i64(Entry(old).priority) == g.priority:
        g.removed += 1
    # When half of a group has gone, it is time to look for what is the highest now.
    if g.removed != 0 and 2 * g.removed >= g.length:
        t.fallen += 1
