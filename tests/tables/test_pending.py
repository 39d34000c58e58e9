"""The table of what is under way against an ordered dictionary: keys found, the oldest first, all room used again."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables import pending
from wirespeed.tables.pending import Entry, Table, digest_of

WORDS = 2
CAPACITY = 5
Thing = layout("TestPendingThing", [("entry", Entry), ("key", "u8", WORDS), ("value", "i8")])


@kernel
def find(table, key, digest):
    return pending.find(Table(table), key, digest, WORDS)


@kernel
def add(table, key, digest, now, value):
    entry = pending.add(Table(table), key, digest, WORDS, now)
    if entry != 0:
        Thing(entry).value = value
    return entry


@kernel
def remove(table, entry):
    pending.remove(Table(table), entry)


@kernel
def oldest(table):
    return pending.oldest(Table(table))


@kernel
def digest(seeds, key):
    return digest_of(seeds, key, WORDS)


# Whether to add, remove, or remove the oldest; a key of few, and a digest of fewer, so that buckets are shared.
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "oldest"]), st.integers(0, 7), st.integers(0, 1)), max_size=60
)


@given(STEPS)
def test_it_does_what_an_ordered_dictionary_does(steps):
    model: OrderedDict[tuple[int, int], int] = OrderedDict()
    with Arena(1 << 16, huge=False) as arena:
        table = arena.alloc(Table.size)
        pending.make(arena, table, Thing, CAPACITY)
        for now, (what, low, high) in enumerate(steps):
            key = np.array([low, high], np.uint64)
            at, hashed = key.ctypes.data, np.uint64(low % 3)
            entry = int(find(table, at, hashed))
            assert (entry != 0) == ((low, high) in model)
            if entry:
                assert Thing.at(entry).value == model[low, high]
            if what == "add" and not entry:
                new = int(add(table, at, hashed, now, now))
                assert (new != 0) == (len(model) < CAPACITY)
                if new:
                    model[low, high] = now
                    assert (Thing.at(new).entry.since, Thing.at(new).key.tolist()) == (now, [low, high])
            elif what == "remove" and entry:
                remove(table, entry)
                del model[low, high]
            elif what == "oldest":
                first = int(oldest(table))
                assert (first != 0) == bool(model)
                if first:
                    assert Thing.at(first).value == next(iter(model.values()))
                    remove(table, first)
                    model.popitem(last=False)
            assert Table.at(table).length == len(model)


def test_a_digest_depends_on_every_word_and_on_the_multipliers():
    seeds, others = np.array([3, 5], np.uint64), np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], np.uint64)
    keys = [np.array(k, np.uint64) for k in ([1 << 40, 2], [1 << 41, 2], [1 << 40, 3 << 33], [2 << 40, 2 << 33])]
    for multipliers in (seeds, others):
        assert len({int(digest(multipliers.ctypes.data, k.ctypes.data)) for k in keys}) == len(keys)
    assert int(digest(seeds.ctypes.data, keys[0].ctypes.data)) != int(digest(others.ctypes.data, keys[0].ctypes.data))


@pytest.mark.parametrize("capacity", [0, (1 << 24) + 1])
def test_a_capacity_that_cannot_be_is_refused(capacity):
    with Arena(4096, huge=False) as arena, pytest.raises(GraphError, match="table capacity"):
        pending.make(arena, arena.alloc(Table.size), Thing, capacity)


def test_it_fits_into_what_it_says_that_it_takes():
    for capacity in (1, 2, 3, 1000):
        with Arena(Table.size + pending.size(Thing, capacity), huge=False) as arena:
            pending.make(arena, arena.alloc(Table.size), Thing, capacity)
