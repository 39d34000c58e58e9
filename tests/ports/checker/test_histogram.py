"""Histograms of times: every value has a bucket that is narrow enough, and percentiles are those of the values."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.jit.intrinsics import load_i64
from wirespeed.jit.kernel import kernel
from wirespeed.ports.checker import histogram
from wirespeed.ports.checker.histogram import BUCKETS, LARGEST, Buckets, Histogram, bounds, duration

values = st.one_of(st.integers(0, 300), st.integers(0, LARGEST), st.integers(0, 48).map(lambda k: (1 << k) - 1))


@kernel
def fill(at, values, n):
    for i in range(n):
        histogram.record(Buckets(at), load_i64(values + 8 * i))


@kernel
def bucket(value):
    return histogram.bucket_of(value)


def of(values):
    memory = np.zeros(Buckets.size, np.uint8)
    array = np.array(values, np.int64)
    fill(memory.ctypes.data, array.ctypes.data, len(array))
    return Histogram.of(Buckets.at(memory.ctypes.data))


@given(values)
def test_a_value_lies_in_its_bucket_which_is_a_64th_of_it_wide(value):
    number = bucket(value)
    first, last = bounds(number)
    assert 0 <= number < BUCKETS
    assert first <= value <= last
    assert last - first <= value / 64


def test_buckets_lie_side_by_side_up_to_the_last():
    edges = [bounds(k) for k in range(BUCKETS)]
    assert edges[0] == (0, 0)
    assert all(a[1] + 1 == b[0] for a, b in pairwise(edges))
    assert edges[-1][1] == LARGEST


@given(st.lists(values, min_size=1, max_size=60), st.floats(0, 100))
def test_a_percentile_is_the_value_of_that_rank_rounded_up_within_its_bucket(values, percent):
    found = of(values)
    rank = max(1, -int(-len(values) * percent // 100))
    exact = sorted(values)[rank - 1]
    assert exact <= found.percentile(percent) <= max(exact + exact / 64, exact)
    assert (found.minimum, found.maximum, found.count) == (min(values), max(values), len(values))


@given(st.lists(values, min_size=1, max_size=60))
def test_the_mean_is_within_a_percent(values):
    exact = sum(values) / len(values)
    assert abs(of(values).mean - exact) <= exact / 100 + 1e-6


@given(st.lists(values, max_size=30), st.lists(values, max_size=30))
def test_two_added_are_the_histogram_of_all(a, b):
    both, together = of(a) + of(b), of(a + b)
    assert (both.counts == together.counts).all()
    assert both.to_dict() == together.to_dict()


@pytest.mark.parametrize("value, kept", [(-5, 0), (1 << 60, LARGEST), (-(1 << 62), 0)])
def test_what_is_out_of_range_counts_as_the_nearest_that_is_not(value, kept):
    found = of([value])
    assert (found.minimum, found.maximum, found.p50) == (kept, kept, kept)


def test_a_drawing_has_all_values_in_at_most_sixteen_bars():
    found = of([100] * 70 + [1000] * 25 + [10**6] * 5)
    *bars, summary = str(found).splitlines()
    assert len(bars) <= 16
    assert bars[0].startswith(" 100 ns") and "70.00%" in bars[0] and "█" * 40 in bars[0]
    assert sum(int(line.rpartition(" ")[2].replace(",", "")) for line in bars) == 100
    assert summary == found.summary()
    assert summary.startswith("min 100 ns, p50 100 ns, p90 1.01 us")


def test_nothing_counted_draws_nothing():
    assert str(Histogram.empty()) == "no packets"
    assert Histogram.empty().to_dict()["p99"] == 0


@pytest.mark.parametrize(
    "ns, text", [(0, "0 ns"), (999, "999 ns"), (1000, "1.00 us"), (12_345, "12.3 us"), (2.5e9, "2.50 s")]
)
def test_times_are_told_in_three_digits(ns, text):
    assert duration(ns) == text
