"""Linking all entries of a classifier into other groups, beside those that are searched, and then having these searched.

Theory of operation
-------------------
The new groups use that link of the entries that the present ones do not, so readers see nothing of them until
:func:`exchange` publishes an order of them.  The old groups are retired then; their chains stay as they are until the
next such change, which must not come before no reader can be in them.  What the writer knows of an entry (its group, the
one before it) is of the new groups while these are built; :func:`abandon` puts it back.

Thread rules: the writer calls these.
"""

import numpy as np

from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.types import int64
from wirespeed.tables.classifier.build import BOTH, spread
from wirespeed.tables.classifier.entry import Entry, Link, Shape, tail_of
from wirespeed.tables.classifier.group import PREFIXES
from wirespeed.tables.classifier.heap import NODE, alloc, free, retire
from wirespeed.tables.classifier.order import HEAP, Table, sort
from wirespeed.tables.classifier.prefixes import Prefixes
from wirespeed.tables.classifier.slots import (
    LANE,
    LANES,
    Slot,
    Tuple,
    base_of,
    digest_of,
    first_in,
    mask_of,
    size_of_slots,
)
from wirespeed.tables.classifier.update import CROWDED, put_in, room_in
from wirespeed.tables.prefix_trie import Lpm

i64 = np.int64


@entry(int64(int64, int64, int64), nogil=True)
def relink(table, shape, spare):
    """Link a shape's entries from ``resume`` on into the shape's group, or those that it does not take into ``spare``.

    ``resume`` is where it stopped: at the end, 0; CROWDED, when there is no spare group; or minus the bytes that are
    missing.
    """
    t, heap = Table(table), table + HEAP
    while t.resume != 0:
        one = t.resume
        group, priority = Shape(shape).group, i64(Entry(one).priority)
        spread(t, one)
        place = room_in(heap, group, shape, t.value, priority)
        if place == CROWDED and spare != 0:
            group = spare
            place = room_in(heap, group, shape, t.value, priority)
        if place < 0:
            return place
        put_in(group, one, place)
        Tuple(group).priority = max(Tuple(group).priority, priority)
        t.resume = tail_of(one).newer
    return i64(0)


@entry(int64(int64, int64))
def resume(table, one):
    """Have :func:`relink` begin with an entry, or with none."""
    Table(table).resume = one
    return i64(0)


@entry(int64(int64))
def exchange(table):
    """Have the groups that were built searched, and the others be old; 0, or minus the bytes that are missing."""
    t = Table(table)
    groups, n_groups = t.groups, t.n_groups
    t.groups, t.n_groups = t.aside, t.n_aside
    missing = sort(table)
    if missing < 0:
        t.groups, t.n_groups = groups, n_groups
        return missing
    t.old, t.aside, t.n_aside = groups, 0, 0
    t.link = BOTH - t.link
    return i64(0)


@entry(int64(int64))
def retire_old(table):
    """Retire the groups that are no longer searched; 0, or minus the bytes that are missing."""
    t, heap = Table(table), table + HEAP
    while t.old != 0:
        first, second = alloc(heap, i64(NODE)), alloc(heap, i64(NODE))
        if first < 0 or second < 0:
            if first > 0:
                free(heap, first, i64(NODE))
            return second
        old = t.old
        t.old = Tuple(old).following
        retire(heap, first, old, _size_of(old))
        if Tuple(old).kind == PREFIXES:
            free(heap, second, i64(NODE))
        else:
            retire(heap, second, base_of(Tuple(old).slots), size_of_slots(Tuple(old).slots))
    return i64(0)


@kernel
def _size_of(group):
    """How many bytes a group's own block has."""
    if Tuple(group).kind == PREFIXES:
        return Prefixes(group).size
    return LANES + LANE * Tuple(group).words


@entry(int64(int64))
def abandon(table):
    """Forget the groups that were built aside, and have the writer know of all entries what was."""
    t, heap = Table(table), table + HEAP
    group = t.groups
    while group != 0:
        p = Tuple(group)
        if p.kind == PREFIXES:
            s = Prefixes(group)
            for number in range(1, i64(Lpm(s.trie).new_node) + 1):
                _restore(t, group, Link(s.heads + 8 * number).to, s.link)
        else:
            for i in range(i64(mask_of(p.slots)) + 1):
                first = first_in(p, Slot(base_of(p.slots) + 8 * i).word)
                _restore(t, group, first, p.link)
                if first != 0:
                    _restore_digest(t, group, first, p.link)
        group = p.following
    while t.aside != 0:
        group = t.aside
        t.aside = Tuple(group).following
        if Tuple(group).kind != PREFIXES:
            free(heap, base_of(Tuple(group).slots), size_of_slots(Tuple(group).slots))
        free(heap, group, _size_of(group))
    t.n_aside = 0
    return i64(0)


@kernel
def _restore(t, group, first, link):
    before, one = i64(0), first
    while one != 0:
        tail_of(one).group, tail_of(one).previous = group, before
        before, one = one, Link(one + link).to


@kernel
def _restore_digest(t, group, first, link):
    spread(t, first)
    digest = digest_of(group, t.value)
    while first != 0:
        Entry(first).digest = digest
        first = Link(first + link).to
