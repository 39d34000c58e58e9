"""Eight lanes at once: the vector and its portable twin say the same, and what a plain loop says."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jit.inspection import fresh, intermediate
from wirespeed.jit.kernel import kernel
from wirespeed.jit.vector import LANES, _upper_lanes_vector, upper_lanes, upper_lanes_portable

MOST = (1 << 32) - 1
# Values whose bytes, halves and signs are easily taken for each other's.
EDGES = [0, 1, 2, 0xFF, 0x100, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001, MOST - 1, MOST]
words = st.one_of(st.sampled_from(EDGES), st.integers(0, MOST))


@kernel
def by_vector(at, value):
    return _upper_lanes_vector(at, np.uint32(value))


@kernel
def lane_by_lane(at, value):
    return upper_lanes_portable(at, np.uint32(value))


@kernel
def as_used(at, value):
    return upper_lanes(at, np.uint32(value))


class Lanes:
    """Eight lanes on a cache line, whose neighbours would match."""

    def __init__(self, upper, lower, value):
        self._memory = np.full(64, (value << 32 | value), np.uint64)
        first = -self._memory.ctypes.data % 64 // 8 + 8
        self._memory[first : first + LANES] = [u << 32 | v for u, v in zip(upper, lower)]
        self.at = self._memory.ctypes.data + 8 * first
        self.wanted = sum(2 << 2 * k for k, u in enumerate(upper) if u == value)


def check(upper, lower, value):
    lanes = Lanes(upper, lower, value)
    assert by_vector(lanes.at, value) == lanes.wanted
    assert lane_by_lane(lanes.at, value) == lanes.wanted
    assert as_used(lanes.at, value) == lanes.wanted


@given(st.lists(words, min_size=8, max_size=8), st.lists(words, min_size=8, max_size=8), words, st.integers(0, 255))
def test_both_find_a_value_in_the_upper_halves_and_nowhere_else(upper, lower, value, where):
    check([value if where >> k & 1 else u for k, u in enumerate(upper)], lower, value)


@pytest.mark.parametrize("value", EDGES)
def test_both_tell_every_lane_apart_and_never_look_at_lower_halves(value):
    for bits in range(1 << LANES):
        upper = [value if bits >> k & 1 else value ^ 1 << k * 4 for k in range(LANES)]
        check(upper, [value] * LANES, value)


@pytest.mark.parametrize("bit", range(32))
def test_one_bit_of_difference_is_a_difference(bit):
    for value in EDGES:
        check([value ^ 1 << bit] * LANES, [value] * LANES, value)
        check([value ^ 1 << bit, value] * 4, [0] * LANES, value)


def test_the_vector_is_one_comparison_of_the_whole_line():
    kernel_of_here = fresh(by_vector)
    kernel_of_here(Lanes([1] * LANES, [1] * LANES, 1).at, 1)
    assert len(re.findall(r"icmp eq <16 x i32>", intermediate(kernel_of_here))) == 1
