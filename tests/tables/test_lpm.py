"""The prefix table against a list of prefixes that is looked through, under additions and removals."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.tables.lpm import Lpm4
from wirespeed.tables.prefix_trie import Lpm, Node

# Addresses near each other on every level, and at both ends.
KEYS = [0, 1, 0x0A000000, 0x0A000001, 0x0A000080, 0x0A0000FF, 0x0A000100, 0x0A00FFFF, 0x0A010000, 0x0AFFFFFF,
        0x0B000000, 0x80000000, 0xFFFFFF00, 0xFFFFFFFF]  # fmt: skip
LENGTHS = [0, 1, 7, 8, 15, 16, 17, 23, 24, 25, 31, 32]


def cut(key, length):
    return key >> 32 - length << 32 - length if length else 0


def best(model, key):
    """The value of the longest prefix that covers a key, by trying all."""
    covering = [(length, value) for (prefix, length), value in model.items() if cut(key, length) == prefix]
    return max(covering, default=(0, None))[1]


def agrees(table, model, keys):
    assert len(table) == len(model)
    assert {key: table.lookup(key) for key in keys} == {key: best(model, key) for key in keys}
    bulk = table.lookup_bulk(np.array(keys, np.uint32))
    assert [None if value < 0 else int(value) for value in bulk] == [best(model, key) for key in keys]


def around(prefix, length):
    """Keys at both ends of a prefix and beside them."""
    last = prefix | (1 << 32 - length) - 1
    return [key for key in (prefix - 1, prefix, last, last + 1) if 0 <= key < 1 << 32]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "reclaim"]),
        st.sampled_from(KEYS),
        st.sampled_from(LENGTHS),
        st.integers(0, 1 << 20),
    ),
    max_size=80,
)


@given(STEPS)
def test_it_finds_the_longest_of_all_prefixes_under_additions_and_removals(steps):
    model: dict[tuple[int, int], int] = {}
    with Lpm4(64, blocks=16) as table:
        for what, key, length, value in steps:
            prefix = cut(key, length)
            if what == "add":
                try:
                    table.add(prefix, length, value)
                    model[prefix, length] = value
                except GraphError:
                    assert (prefix, length) not in model
            elif what == "remove":
                assert table.remove(prefix, length) == (model.pop((prefix, length), None) is not None)
            else:
                table.reclaim()
            agrees(table, model, [key, *around(prefix, length)])
        agrees(table, model, KEYS)
        for prefix, length in list(model):
            assert table.remove(prefix, length)
        assert {table.lookup(key) for key in KEYS} == {None}


@pytest.mark.parametrize("order", list(itertools.permutations([0, 8, 24, 25, 32])))
def test_covering_prefixes_may_come_and_go_in_any_order(order):
    model = {}
    with Lpm4(5) as table:
        for length in order:
            table.add(cut(0x0A000001, length), length, length)
            model[cut(0x0A000001, length), length] = length
            agrees(table, model, KEYS)
        for length in reversed(order):
            table.remove(cut(0x0A000001, length), length)
            del model[cut(0x0A000001, length), length]
            agrees(table, model, KEYS)


def test_a_default_route_that_comes_first_is_below_what_comes_later():
    with Lpm4(2) as table:
        table.add(0, 0, 7)
        table.add(0x0A000000, 24, 8)
        assert [table.lookup(key) for key in (0, 0x09FFFFFF, 0x0A000000, 0x0A0000FF, 0x0A000100)] == [7, 7, 8, 8, 7]


def test_a_prefix_that_its_halves_cover_wholly_is_there_again_when_they_go():
    with Lpm4(8) as table:
        table.add(0, 0, 1)
        table.add(0x0A000000, 24, 2)
        table.add(0x0A000000, 25, 3)
        table.add(0x0A000080, 25, 4)
        table.add(0x0A000000, 8, 5)  # comes between the first two, neither of which shows
        table.remove(0, 0)
        table.remove(0x0A000000, 25)
        table.remove(0x0A000080, 25)
        assert [table.lookup(key) for key in (0x0A000000, 0x0A0000FF, 0x0A000100, 0x0B000000)] == [2, 2, 5, None]


def test_blocks_of_removed_prefixes_are_used_again_without_end():
    with Lpm4(4, blocks=2) as table:
        for round_ in range(1000):
            prefix = round_ * 0x01010101 & 0xFFFFFFFF
            table.add(prefix, 32, round_)
            assert table.lookup(prefix) == round_
            table.remove(prefix, 32)
            assert table.lookup(prefix) is None
            table.reclaim()
        record = Lpm.at(table.address)
        assert record.new_block == 2 and record.new_node == 1


def test_room_of_removed_prefixes_is_not_used_before_it_is_reclaimed():
    with Lpm4(1) as table:
        table.add(0, 32, 1)
        table.remove(0, 32)
        with pytest.raises(GraphError, match="no room for one more; make it larger, or reclaim"):
            table.add(0, 31, 1)
        table.reclaim()
        table.add(0, 31, 1)
        assert table.lookup(1) == 1


def test_a_full_table_keeps_what_it_has():
    with Lpm4(3, blocks=2) as table:
        table.add(0x0A000000, 32, 1)
        with pytest.raises(GraphError, match="for 3 prefixes and 2 blocks"):
            table.add(0x0B000000, 17, 2)
        table.add(0x0A000001, 32, 3)  # needs no block of its own
        table.add(0x0B000000, 16, 4)
        with pytest.raises(GraphError, match="no room"):
            table.add(0, 1, 5)
        table.add(0x0A000000, 32, 6)  # another value is not another prefix
        assert [table.lookup(key) for key in (0x0A000000, 0x0A000001, 0x0A000002, 0x0B000005)] == [6, 3, None, 4]


def test_a_thousand_keys_at_once_find_what_each_finds_alone():
    random = np.random.default_rng(5)
    with Lpm4(2000) as table:
        for _ in range(1000):
            length = int(random.integers(0, 33))
            table.add(cut(int(random.integers(1 << 32)), length), length, int(random.integers(1000)))
        keys = random.integers(0, 1 << 32, 1001, np.uint32)
        found = table.lookup_bulk(keys)
        assert found.tolist() == [-1 if (v := table.lookup(int(key))) is None else v for key in keys]
        assert table.lookup_bulk([]).size == 0


def test_parents_are_the_longest_prefixes_that_cover():
    random = np.random.default_rng(6)
    with Lpm4(500) as table:
        model = {}
        for _ in range(400):
            key, length = int(random.choice(KEYS)) ^ int(random.integers(4)), int(random.integers(0, 33))
            table.add(cut(key, length), length, 0)
            model[cut(key, length), length] = 0
        nodes = Node.array_at(Lpm.at(table.address).nodes, 501)
        for node in nodes[1 : len(model) + 1]:
            length = int(node["length"])
            above = [n for (p, n) in model if n < length and cut(int(node["prefix"]), n) == p]
            parent = nodes[int(node["parent"])]
            assert (int(parent["length"]) if node["parent"] else -1) == max(above, default=-1)


@pytest.mark.parametrize(
    ("prefix", "length", "value", "message"),
    [
        (0x0A000001, 24, 0, "has no others: got 0x0a000001"),
        (1 << 32, 32, 0, "has no others"),
        (-1, 32, 0, "has no others"),
        (0, 33, 0, "length of 0 to 32"),
        (0, 0, 1 << 31, "value must be 0 to"),
    ],
)
def test_a_prefix_that_cannot_be_is_refused(prefix, length, value, message):
    with Lpm4(2) as table, pytest.raises(GraphError, match=message):
        table.add(prefix, length, value)


def test_tables_that_cannot_be_are_refused():
    with pytest.raises(GraphError, match="capacity must be 1 to"):
        Lpm4(0)
    with pytest.raises(GraphError, match="2 to 4194304 blocks, got 1"):
        Lpm4(5, blocks=1)
    table = Lpm4(1)
    table.close()
    table.close()
    with pytest.raises(GraphError, match="closed"):
        table.lookup(0)
