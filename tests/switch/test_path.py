"""Paths: what is the same is kept once, counts are exact whatever is folded when, and who reads meanwhile reads whole sums."""

import ctypes
import random
import threading
from collections import Counter

import numpy as np
import pytest

from tests.conftest import TORTURE
from wirespeed.core.arena import Arena
from wirespeed.jit.intrinsics import load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch import path as paths
from wirespeed.switch.path import NOT_SIMPLE, OPS_WORDS, PATH, PATH_COUNTERS, Path, Paths, path_of

i64, u64 = np.int64, np.uint64
COUNTERS = 64
STEPS = 200_000 if TORTURE else 6_000


class Bed:
    """A worker's paths, of so many at most and so many bytes of words."""

    def __init__(self, capacity: int = 32, size: int = 1 << 16) -> None:
        self.arena = Arena(Paths.size + PATH * capacity + size + 8 * capacity + 16 * COUNTERS + (1 << 15))
        self.address = self.arena.alloc(Paths.size)
        t = self.t = Paths.at(self.address)
        t.paths, t.capacity, t.length = self.arena.alloc(PATH * capacity), capacity, 1
        t.words, t.size = self.arena.alloc(size), size
        t.index, t.mask = self.arena.alloc(8 * capacity), 2 * capacity - 1
        t.totals, t.n_totals = self.arena.alloc(16 * COUNTERS), COUNTERS
        self.ops = (ctypes.c_uint64 * OPS_WORDS).from_address(self.arena.alloc(8 * OPS_WORDS))
        self.counters = (ctypes.c_uint32 * PATH_COUNTERS).from_address(self.arena.alloc(4 * PATH_COUNTERS))
        self.sums = np.zeros(2 * COUNTERS, np.uint64)

    def number(self, ops: list[int], counters: list[int], output: int = NOT_SIMPLE) -> int:
        self.ops[: len(ops)], self.counters[: len(counters)] = ops, counters
        at = ctypes.addressof
        return int(add(self.address, at(self.ops), len(ops), at(self.counters), len(counters), output))

    def path(self, number: int):
        return Path.at(int(self.t.paths) + PATH * number)

    def ops_of(self, number: int) -> tuple[list[int], list[int]]:
        p = self.path(number)
        ops = list((ctypes.c_uint64 * p.n_ops).from_address(p.ops))
        return ops, list((ctypes.c_uint32 * p.n_counters).from_address(p.counters))

    def take(self, number: int, packets: int, size: int) -> None:
        p = self.path(number)
        p.packets += packets
        p.bytes += size

    def collect(self) -> list[int]:
        self.sums[:] = 0
        assert gather(self.address, self.sums.ctypes.data, COUNTERS)
        return self.sums.tolist()


@kernel
def add(t, ops, n_ops, counters, n_counters, output):
    return paths.find_or_add(Paths(t), ops, n_ops, counters, n_counters, output, i64(3))


@kernel
def fold(t):
    paths.fold(Paths(t))


@kernel
def gather(t, totals, n):
    return paths.collect(t, totals, n)


@pytest.fixture
def bed():
    made = Bed()
    yield made
    made.arena.close()


def test_the_same_ops_and_counters_are_one_path(bed: Bed) -> None:
    kinds = [
        ([1, 2, 0], [5, 6]),
        ([1, 2, 0], [5]),
        ([1, 2, 0], []),
        ([0], [5, 6]),
        ([1, 3, 0], [5, 6]),
        ([1, 2, 0], [6, 5]),
    ]
    numbers = [bed.number(*kind) for kind in kinds]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]
    assert [bed.number(*kind) for kind in kinds] == numbers
    assert [bed.ops_of(number) for number in numbers] == kinds


def test_the_same_ops_for_a_port_with_a_mirror_are_another_path(bed: Bed) -> None:
    simple = bed.number([1, 2, 0], [5], 7)
    other = bed.number([1, 2, 0], [5], NOT_SIMPLE)
    assert simple != other
    assert (bed.path(simple).output, bed.path(other).output) == (7, NOT_SIMPLE)
    assert (bed.number([1, 2, 0], [5], NOT_SIMPLE), bed.number([1, 2, 0], [5], 7)) == (other, simple)


def test_paths_whose_digests_are_alike_are_told_apart(bed: Bed) -> None:
    first = bed.number([1, 2, 0], [5])
    digest = bed.path(first).digest
    second = bed.number([9, 9, 0], [5])
    bed.path(second).digest = digest
    assert bed.number([1, 2, 0], [5]) == first


def test_one_that_has_no_room_has_number_0_and_changes_nothing(bed: Bed) -> None:
    numbers = []
    while number := bed.number([len(numbers) + 1, 0], [1]):
        numbers.append(number)
    assert numbers == list(range(1, len(numbers) + 1))
    assert 0 < len(numbers) < bed.t.capacity
    assert bed.number([1, 0], [1]) == 1
    assert [bed.ops_of(n)[0][0] for n in numbers] == list(range(1, len(numbers) + 1))


def test_the_longest_paths_stay_within_their_memory() -> None:
    bed = Bed(32, 40_000)
    made = 0
    while bed.number([made, *[7] * (OPS_WORDS - 1)], [1] * PATH_COUNTERS):
        made += 1
        assert bed.t.used <= bed.t.size
    assert made >= 4
    bed.arena.close()


def test_counts_are_exact_whatever_is_folded_when() -> None:
    bed, rng = Bed(16, 1 << 16), random.Random(5)
    packets, size = Counter(), Counter()
    for step in range(STEPS):
        ops, counters = [rng.randrange(6), 0], [rng.randrange(COUNTERS) for _ in range(rng.randrange(4))]
        number = bed.number(ops, counters)
        if number == 0:
            fold(bed.address)
            assert bed.t.folds % 2 == 0
            number = bed.number(ops, counters)
        n, length = rng.randrange(3), rng.randrange(100)
        bed.take(number, n, length if n else 0)
        for counter in counters:
            packets[counter] += n
            size[counter] += length if n else 0
        if step % 97 == 0:
            wanted = [one for c in range(COUNTERS) for one in (packets[c], size[c])]
            assert bed.collect() == wanted
    assert bed.t.folds > 10
    assert bed.t.lost == 0
    bed.arena.close()


def test_a_counter_that_is_not_there_is_counted_as_lost(bed: Bed) -> None:
    bed.take(bed.number([1, 0], [1, COUNTERS, 1 << 31]), 3, 30)
    fold(bed.address)
    assert bed.collect()[2:4] == [3, 30]
    assert bed.t.lost == 6


def test_counts_beyond_32_bits_are_kept(bed: Bed) -> None:
    bed.take(bed.number([1, 0], [1]), 1 << 33, 1 << 43)
    fold(bed.address)
    bed.take(bed.number([1, 0], [1]), 5, 6)
    assert bed.collect()[2:4] == [(1 << 33) + 5, (1 << 43) + 6]


@kernel
def count_and_fold(t, ops, counters, turns, done):
    """Two counters that every path adds to, in one step each; a fold now and then.  ``done`` is told how many."""
    for turn in range(turns):
        store_u64(ops, u64(turn % 23))
        number = paths.find_or_add(Paths(t), ops, i64(2), counters, i64(2), i64(NOT_SIMPLE), i64(3))
        if number == 0:
            fold(t)
            number = paths.find_or_add(Paths(t), ops, i64(2), counters, i64(2), i64(NOT_SIMPLE), i64(3))
        p = Path(path_of(Paths(t), number))
        p.packets += u64(1)
        store_u64(done, load_u64(done) + u64(1))


def test_who_collects_while_another_thread_counts_never_loses_or_doubles() -> None:
    bed = Bed(16, 1 << 16)
    bed.counters[:2] = [5, 6]
    done, at = np.zeros(1, np.uint64), ctypes.addressof
    turns = 30_000_000 if TORTURE else 3_000_000
    arguments = [i64(x) for x in (bed.address, at(bed.ops), at(bed.counters), 1, done.ctypes.data)]
    count_and_fold(*arguments)
    arguments[3] = i64(turns)
    thread = threading.Thread(target=count_and_fold, args=arguments)
    thread.start()
    looks, last = 0, 0
    while thread.is_alive():
        low = int(done[0])
        sums = np.zeros(2 * COUNTERS, np.uint64)
        if not gather(bed.address, sums.ctypes.data, COUNTERS):
            continue
        high = int(done[0])
        # Each path adds to both; what was done before the look is in it, and no more than what was done after it.
        for counter in (5, 6):
            assert low <= int(sums[2 * counter]) <= high + 1
        assert last <= int(sums[10])
        last = int(sums[10])
        looks += 1
    thread.join()
    assert looks > 0
    assert bed.collect()[10:14] == [turns + 1, 0, turns + 1, 0]
    assert bed.t.folds > 2
    bed.arena.close()


@pytest.mark.parametrize(
    ("ops", "place"),
    [
        ([op.OUT | 2 << 16 | 7 << 32, 0, op.END], 7),
        ([op.OUT | 2 << 16 | 7 << 32, 60, op.END], -1),
        ([op.OUT | 2 << 16 | 7 << 32, 0, op.OUT | 2 << 16], -1),
        ([op.NORMAL | 1 << 16 | 7 << 32, 0, op.END], -1),
        ([op.END], -1),
        ([op.OUT | 2 << 16 | 7 << 32, 0, op.OUT | 2 << 16 | 8 << 32, 0, op.END], -1),
    ],
)
def test_a_path_that_only_sends_to_one_port_is_known(bed: Bed, ops: list[int], place: int) -> None:
    bed.ops[: len(ops)] = ops
    assert paths.only_output(i64(ctypes.addressof(bed.ops)), i64(len(ops))) == place
