"""Groups in the memory that workers read: slots as the weights say, and what is written of a group's buckets."""

import ctypes
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.switch import action as a
from wirespeed.switch.groups import MOST_BUCKETS, Bucket, Group, fill_slots
from wirespeed.switch.memory import BUCKET, MOST_SLOTS, NO_PLACE, BucketRecord, GroupRecord, Shared
from wirespeed.switch.program import OUTPUT, steps
from wirespeed.switch.switch import Switch


def webster(weights: list[int], n: int) -> list[int]:
    """Each slot to the bucket that is furthest behind its share; of several, to the first."""
    given_out = [0] * len(weights)
    slots = []
    for _ in range(n):
        shares = [Fraction(weight, 2 * count + 1) for weight, count in zip(weights, given_out, strict=True)]
        best = shares.index(max(shares))
        given_out[best] += 1
        slots.append(best)
    return slots


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any), st.sampled_from((16, 32, 64)))
def test_slots_are_given_out_by_highest_averages(weights: list[int], n: int) -> None:
    slots = fill_slots(weights, n)
    assert slots == webster(weights, n)
    for bucket, weight in enumerate(weights):
        assert abs(slots.count(bucket) - n * weight / sum(weights)) < max(2, len(weights) / 2)
        assert weight or bucket not in slots


def test_a_group_whose_weights_are_all_0_chooses_nothing() -> None:
    assert fill_slots([0, 0], 16) == [0xFFFF] * 16


@pytest.mark.parametrize(("buckets", "slots"), [(1, 16), (4, 16), (5, 32), (1000, 4096), (MOST_BUCKETS, 4096)])
def test_there_are_some_slots_for_each_bucket(buckets: int, slots: int) -> None:
    assert Group(1, "select", (Bucket(),) * buckets).slots == slots <= MOST_SLOTS
    assert Group(1, "all", (Bucket(),) * buckets).slots == 0


def test_what_workers_read_of_a_group_is_what_it_says() -> None:
    with Switch() as switch:
        for n in (1, 2, 3):
            switch.add_port(n)
        switch.add_group(Group(4, "indirect", (Bucket((a.output(1),)),)))
        buckets = (Bucket((a.output(1),), 3, watch_port=2), Bucket((a.output(3),), 1, watch_group=4), Bucket((), 0))
        switch.add_group(Group(9, "select", buckets))
        placed = switch.groups[9]
        record = GroupRecord.at(placed.address)
        assert (record.n_buckets, record.id, record.n_slots) == (3, 9, 16)
        table = (ctypes.c_int64 * 4).from_address(Shared.at(switch.shared).groups)
        assert table[placed.place] == placed.address
        slots = list((ctypes.c_uint16 * 16).from_address(record.slots))
        assert (slots.count(0), slots.count(1), slots.count(2)) == (12, 4, 0)
        found = [BucketRecord.at(record.buckets + BUCKET * i) for i in range(3)]
        assert [b.watch_port for b in found] == [switch.port(2), NO_PLACE, NO_PLACE]
        assert [b.watch_group for b in found] == [0, switch.group(4) + 1, 0]
        assert [b.counter for b in found] == placed.numbers[1:]
        words = [list((ctypes.c_uint64 * 8).from_address(b.program)) for b in found]
        assert [[(code, argument) for code, argument, _ in steps(one)] for one in words] == [
            [(OUTPUT, 1)],
            [(OUTPUT, 3)],
            [],
        ]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((1, "some"), "must be one of"),
        ((-1, "all"), "must be 0 to"),
        ((1, "indirect"), "has one bucket"),
        ((1, "ff", (Bucket(),)), "watches nothing"),
        ((1, "select", (Bucket(weight=1 << 16),)), "weight of bucket 0"),
        ((1, "all", (Bucket(),) * (MOST_BUCKETS + 1)), "at most 1024"),
    ],
)
def test_a_group_that_cannot_be_is_refused(given: tuple, wanted: str) -> None:
    with pytest.raises(GraphError, match=wanted):
        Group(*given)


def test_a_group_that_fails_half_way_leaves_nothing_behind() -> None:
    with Switch() as switch:
        with pytest.raises(GraphError, match="no port 7"):
            switch.add_group(Group(1, "ff", (Bucket((a.output(1),), watch_port=7),)))
        with pytest.raises(GraphError, match="no group 5"):
            switch.add_group(Group(1, "all", (Bucket((a.group(5),)),)))
        assert switch.groups == {}
        switch.add_group(Group(1, "all", (Bucket((a.output(1),)),)))
        with pytest.raises(GraphError, match="no group 5"):
            switch.mod_group(Group(1, "all", (Bucket((a.group(5),)),)))
        with pytest.raises(GraphError, match="there already"):
            switch.add_group(Group(1, "all"))
        assert switch.groups[1].group.buckets[0].actions == (a.output(1),)
        assert switch.groups[1].place == 0
