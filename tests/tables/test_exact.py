"""The exact-match table against a dict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables.exact import ExactTable, find, find_or_add, spread

i64, u64 = np.int64, np.uint64
Counted = layout("Counted", [("a", "u8"), ("b", "u8"), ("count", "u8")])


@kernel
def count(table, keys, n, mask):
    """Count ``n`` keys of two words; ``mask`` makes hashes collide; return how many found no room."""
    lost = i64(0)
    for i in range(n):
        key = keys + 16 * i
        entry = find_or_add(table, key, spread((load_u64(key) ^ load_u64(key + 8)) & mask), 2)
        if entry == 0:
            lost += 1
        else:
            Counted(entry).count += u64(1)
    return lost


@kernel
def look_up(table, key, mask):
    """The count of a key, or -1."""
    entry, _ = find(table, key, spread((load_u64(key) ^ load_u64(key + 8)) & mask), 2)
    return i64(-1) if entry == 0 else i64(Counted(entry).count)


def counted(table):
    return {(int(e["a"]), int(e["b"])): int(e["count"]) for e in table.entries()}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=300), st.sampled_from([0, 1, 7, 2**32 - 1]))
def test_it_counts_as_a_dict_does_however_hashes_collide(keys, mask):
    array = np.array(keys or [(0, 0)], np.uint64)[: len(keys)]
    table = ExactTable(Counted, 2, 100)
    assert count(table.address, array.ctypes.data, len(keys), u64(mask)) == 0
    model: dict[tuple[int, int], int] = {}
    for key in keys:
        model[key] = model.get(key, 0) + 1
    assert counted(table) == model
    assert list(counted(table)) == list(model)  # in the order of insertion
    for key in [(a, b) for a in range(21) for b in range(4)]:
        one = np.array(key, np.uint64)
        assert look_up(table.address, one.ctypes.data, u64(mask)) == model.get(key, -1)
    table.close()


def test_a_full_table_refuses_new_keys_and_goes_on_counting_old_ones():
    keys = np.array([(i, 0) for i in range(10)] * 2, np.uint64)
    table = ExactTable(Counted, 2, 4)
    assert count(table.address, keys.ctypes.data, len(keys), u64(2**32 - 1)) == 12
    assert counted(table) == {(i, 0): 2 for i in range(4)}
    assert table.record.refused == 12
    table.close()


@pytest.mark.parametrize("capacity", [1, 2, 3, 1000])
def test_every_key_up_to_the_capacity_finds_room(capacity):
    keys = np.array([(i * 7919, i) for i in range(capacity)], np.uint64)
    table = ExactTable(Counted, 2, capacity)
    assert count(table.address, keys.ctypes.data, capacity, u64(2**32 - 1)) == 0
    assert len(table.entries()) == capacity
    table.close()


def test_a_table_without_room_is_refused():
    with pytest.raises(GraphError, match="capacity must be 1 to"):
        ExactTable(Counted, 2, 0)


def test_an_entry_smaller_than_its_key_is_refused():
    with pytest.raises(GraphError, match="whole 64-bit words, the key first"):
        ExactTable(Counted, 4, 1)
