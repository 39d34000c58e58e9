"""Looking up a flow in a classifier."""

import numpy as np

from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import load_i64, stack, store_i64
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.types import int64
from wirespeed.tables.classifier.entry import Entry
from wirespeed.tables.classifier.group import PREFIXES
from wirespeed.tables.classifier.order import MEMBER, ORDER, Member, Order, Table, bound_of
from wirespeed.tables.classifier.prefixes import longest
from wirespeed.tables.classifier.slots import digest_of, prefetch_entry, prefetch_slot, probe

u32, i64 = np.uint32, np.int64

BURST = 32
SPACE = 8 * BURST


@kernel(inline=True)
def search_member(member, flow, version, least):
    """The best visible entry above ``least`` of one group, or 0."""
    m = Member(member)
    if m.number & PREFIXES:
        return longest(m.group, flow, version, least)
    return probe(m.group, digest_of(m.group, flow), flow, version, least)


@kernel
def lookup(table, flow, version):
    """The entry of the highest priority that matches a flow, u8[words] at an address, at a version; its address, or 0.

    Of several with the same priority it is any.  The entry stays where it is until it is reclaimed.
    """
    order = load_acquire(Table(table), "order")
    member = order + ORDER
    end = member + MEMBER * load_acquire(Order(order), "length")
    best, priority = i64(0), i64(-1)
    while member < end and bound_of(member) > priority:
        found = search_member(member, flow, version, priority)
        if found != 0:
            best, priority = found, i64(Entry(found).priority)
        member += MEMBER
    return best


@kernel
def lookup_bulk(table, flows, stride, n, version, found):
    """:func:`lookup` for up to 32 flows, ``stride`` bytes apart, into i8[n]: all of them in one group after the other."""
    order = load_acquire(Table(table), "order")
    member = order + ORDER
    end = member + MEMBER * load_acquire(Order(order), "length")
    open_, digests, priorities = stack(SPACE), stack(SPACE), stack(SPACE)
    for i in range(n):
        store_i64(found + 8 * i, i64(0))
        store_i64(priorities + 8 * i, i64(-1))
    while member < end:
        group, bound = Member(member).group, bound_of(member)
        tuple_ = not Member(member).number & PREFIXES
        m = i64(0)
        for i in range(n):
            if load_i64(priorities + 8 * i) < bound:
                store_i64(open_ + 8 * m, i64(i))
                if tuple_:
                    digest = digest_of(group, flows + stride * i)
                    prefetch_slot(group, digest)
                    store_i64(digests + 8 * m, i64(digest))
                m += 1
        if m == 0:
            return
        if tuple_:
            for j in range(m):
                prefetch_entry(group, u32(load_i64(digests + 8 * j)))
        for j in range(m):
            i = load_i64(open_ + 8 * j)
            flow, least = flows + stride * i, load_i64(priorities + 8 * i)
            if tuple_:
                one = probe(group, u32(load_i64(digests + 8 * j)), flow, version, least)
            else:
                one = longest(group, flow, version, least)
            if one != 0:
                store_i64(found + 8 * i, one)
                store_i64(priorities + 8 * i, i64(Entry(one).priority))
        member += MEMBER


@entry(int64(int64, int64, int64))
def look(table, flow, version):
    """:func:`lookup`, for Python."""
    return lookup(table, flow, version)
