"""The order in which a classifier's groups are searched, and the classifier's record.

Theory of operation
-------------------
The *order* is an array of groups, each with a *bound*: no entry of this group, or of any behind it, has a higher priority.
So a search that has found that much is over.  When an entry of a higher priority comes into a group, the bounds up
to it are raised where they are: no reader of an earlier version looks for that entry.  A new group is put at the
end.  After as many of these changes as there are groups, and when priorities have gone, the order is
sorted aside, the highest first, and published.

Thread rules: one thread writes, any number read.  Order pairs: ``order`` and ``length`` are stored with release and
loaded with acquire, so a reader sees whole members and whole groups.
"""

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.jit.atomics import load_relaxed, store_relaxed, store_release
from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables.classifier import prefixes, slots
from wirespeed.tables.classifier.group import PREFIXES
from wirespeed.tables.classifier.heap import NODE, Heap, alloc, free, retire
from wirespeed.tables.classifier.slots import Tuple

i32, i64 = np.int32, np.int64

Table = layout(
    "Classifier",
    [
        # for readers
        ("order", "i8"),  # address of the Order
        (None, 56),
        # for the writer
        ("length", "i8"),  # entries that take memory, those that wait to be reclaimed included
        ("limit", "i8"),  # most of these
        ("words", "i8"),  # of a flow
        ("groups", "i8"),  # the first of all groups, or 0
        ("n_groups", "i8"),
        ("changes", "i8"),  # to the order since it was sorted
        ("fallen", "i8"),  # groups whose priority may be lower than it says
        ("expired", "i8"),  # the first Node of the entries with an end, or 0
        ("expired_last", "i8"),
        ("tombstone", "i8"),
        ("seeds", "i8"),  # u8[1 + 2 * words]: what the sum of a digest begins with, and multipliers
        ("value", "i8"),  # u8[words]: where Python writes the value of an entry
        ("flow", "i8"),  # and a flow
        ("number", "i8"),  # the last group's
        ("link", "i8"),  # offset in an entry of the link that the groups' chains use
        # while other groups are built
        ("aside", "i8"),  # the first of them, or 0
        ("n_aside", "i8"),
        ("resume", "i8"),  # the next entry to link
        ("old", "i8"),  # the first of the groups that are to go, or 0
        (None, 40),
        ("heap", Heap),
    ],
)
HEAP = Table.offset("heap")
assert HEAP % LINE == 0
# A member's number is its group's, for code that knows some groups.
Order = layout("ClassifierOrder", [("length", "i8"), ("capacity", "i8")])
ORDER = Order.size
Member = layout("ClassifierMember", [("group", "i8"), ("bound", "i4"), ("number", "u4")])
MEMBER = Member.size


@kernel
def raise_bounds(table, group, priority):
    """An entry of this priority is about to come into a group."""
    t = Table(table)
    t.changes += 1
    at = t.order + ORDER
    while True:
        # The group is among the members, for every group is.
        m = Member(at)
        if i64(m.bound) < priority:
            store_relaxed(m, "bound", i32(priority))
        if m.group == group:
            return
        at += MEMBER


@kernel
def append(table, group):
    """Have another group, without entries, at the end; 0, or minus the bytes that are missing."""
    t = Table(table)
    o = Order(t.order)
    if o.length == o.capacity:
        missing = sort(table)
        if missing < 0:
            return missing
        o = Order(t.order)
    m = Member(t.order + ORDER + MEMBER * o.length)
    m.group, m.bound, m.number = group, i32(-1), Tuple(group).number
    store_release(o, "length", o.length + 1)
    Tuple(group).following = t.groups
    t.groups = group
    t.n_groups += 1
    t.changes += 1
    return i64(0)


@kernel
def sort(table):
    """Publish the groups in the order of their highest priorities; 0, or minus the bytes that are missing."""
    t = Table(table)
    heap = table + HEAP
    capacity = 2 * t.n_groups + 2
    node = alloc(heap, i64(NODE))
    if node < 0:
        return node
    block = alloc(heap, ORDER + MEMBER * capacity)
    if block < 0:
        free(heap, node, i64(NODE))
        return block
    members, n = block + ORDER, i64(0)
    group = t.groups
    while group != 0:
        _settle(group)
        priority = i32(Tuple(group).priority)
        # The list of groups has the order of the last time, so most places are near the end.
        at = members + MEMBER * n
        while at > members and Member(at - MEMBER).bound < priority:
            copy(at, at - MEMBER, i64(MEMBER))
            at -= MEMBER
        m = Member(at)
        m.group, m.bound, m.number = group, priority, Tuple(group).number
        n += 1
        group = Tuple(group).following
    _relink(t, members, n)
    o = Order(block)
    o.length, o.capacity = n, capacity
    old = t.order
    store_release(t, "order", block)
    t.changes, t.fallen = 0, 0
    if old == 0:
        free(heap, node, i64(NODE))
    else:
        retire(heap, node, old, ORDER + MEMBER * Order(old).capacity)
    return i64(0)


@kernel
def _settle(group):
    """Make a group's priority exact, if looking at all of it is no more than what has changed since."""
    t = Tuple(group)
    if t.length == 0:
        t.priority, t.removed = i64(-1), 0
    elif 2 * t.removed >= t.length:
        t.priority = prefixes.highest(group) if t.kind == PREFIXES else slots.highest(group)
        t.removed = 0


@kernel
def _relink(t, members, n):
    """Have the list of all groups in the order of the members."""
    following = i64(0)
    for i in range(n):
        group = Member(members + MEMBER * (n - 1 - i)).group
        Tuple(group).following = following
        following = group
    t.groups = following


@kernel(inline=True)
def bound_of(member):
    """The bound of a member, which the writer may be raising."""
    return i64(load_relaxed(Member(member), "bound"))
