"""Meters against exact fractions, packet by packet; and by themselves: clocks, rates, several threads."""

import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel
from wirespeed.tables.meter import MOST, Band, Counts, Meters, Statistics, meter, meter_one

i64, u32, u64 = np.int64, np.uint32, np.uint64

SECOND = 1_000_000_000
LARGEST = (1 << 32) - 1


@pytest.fixture
def meters():
    meters = Meters(8)
    yield meters
    meters.close()


def passing(meters, number, sizes, now_ns):
    """The places of the packets that pass."""
    array = np.array(sizes, np.uint32)
    mask = int(meter(meters.address, i64(number), array.ctypes.data, i64(len(sizes)), i64(now_ns)))
    assert mask >> len(sizes) == 0
    return [i for i in range(len(sizes)) if mask >> i & 1]


@kernel
def pass_one(table, number, size, now_ns):
    return meter_one(table, number, size, now_ns)


def test_a_bucket_of_packets_is_full_at_first_and_gets_its_rate_a_second(meters):
    meters.add(3, [Band(rate=2, burst=3)], packets=True)
    assert passing(meters, 3, [60] * 5, 7 * SECOND) == [0, 1, 2]
    assert passing(meters, 3, [60] * 5, 7 * SECOND + SECOND // 2 - 1) == []
    assert passing(meters, 3, [60] * 5, 7 * SECOND + SECOND // 2) == [0]
    assert passing(meters, 3, [60] * 5, 9 * SECOND) == [0, 1, 2]
    assert meters.statistics(3) == Statistics(Counts(20, 1200), [Counts(13, 780)])


def test_a_bucket_of_kilobits_counts_the_bits_of_each_packet(meters):
    meters.add(0, [Band(rate=8, burst=8)])  # a kilobyte, and one a second
    assert passing(meters, 0, [600, 600, 60, 400, 340], 0) == [0, 2, 4]  # what is too large leaves room for the smaller
    assert passing(meters, 0, [1, 0], 0) == [1]
    assert passing(meters, 0, [1], SECOND // 1000) == [0]
    assert meters.statistics(0) == Statistics(Counts(8, 2002), [Counts(3, 1001)])


def test_a_burst_that_is_not_given_is_one_second_of_the_rate(meters):
    meters.add(0, [Band(4)], packets=True)
    assert passing(meters, 0, [60] * 6, 0) == [0, 1, 2, 3]


def test_the_highest_rate_that_is_exceeded_counts_the_drop(meters):
    meters.add(0, [Band(1, 4), Band(9, 2), Band(5, 2)], packets=True)
    # The third and fourth packet exceed both of the smaller buckets, all later ones exceed all.
    assert passing(meters, 0, [60] * 6, 0) == [0, 1]
    assert meters.statistics(0).bands == [Counts(0, 0), Counts(4, 240), Counts(0, 0)]
    meters.modify(0, [Band(1, 1), Band(9, 2)], packets=True)
    assert passing(meters, 0, [60, 61, 62], 0) == [0]
    assert meters.statistics(0).bands == [
        Counts(1, 61),
        Counts(1, 62),
    ]  # who drops takes from the other bands all the same


def test_of_equal_rates_the_first_that_is_exceeded_counts_the_drop(meters):
    meters.add(0, [Band(1, 2), Band(1, 1)])
    assert passing(meters, 0, [62] * 10, 0) == [0, 1]
    assert meters.statistics(0).bands == [Counts(6, 372), Counts(2, 124)]


def test_case_63_a_clock_that_is_behind_brings_no_tokens_and_does_not_turn_back_the_meter(meters):
    meters.add(0, [Band(1, 1)], packets=True)
    assert passing(meters, 0, [60], 100 * SECOND) == [0]
    assert passing(meters, 0, [60], 100 * SECOND - 1) == []
    assert passing(meters, 0, [60], 0) == []
    assert passing(meters, 0, [60], 101 * SECOND - 1) == []  # it would pass had the time been turned back
    assert passing(meters, 0, [60], 101 * SECOND) == [0]


def test_a_rate_of_nothing_lets_its_burst_pass_and_nothing_more(meters):
    meters.add(0, [Band(0, 2)], packets=True)
    meters.add(1, [Band(0)], packets=True)
    assert passing(meters, 0, [60] * 3, 0) == [0, 1]
    assert passing(meters, 0, [60] * 3, 1 << 62) == []
    assert passing(meters, 1, [60] * 3, 1 << 62) == []
    assert meters.statistics(1).bands == [Counts(3, 180)]


def test_the_largest_rates_bursts_and_times_do_not_overflow(meters):
    meters.add(0, [Band(LARGEST, LARGEST), Band(1, LARGEST), Band(LARGEST, 1)])
    for now in (0, 1, (1 << 62), (1 << 62) + 1, (1 << 63) - 1):
        assert passing(meters, 0, [LARGEST], now) == []  # exceeds the last one only
    assert meters.statistics(0).bands == [Counts(0, 0), Counts(0, 0), Counts(5, 5 * LARGEST)]
    meters.add(1, [Band(1, LARGEST)], packets=True)
    assert passing(meters, 1, [60], 0) == [0]
    assert passing(meters, 1, [60], 1 << 62) == [0]


def test_a_bucket_is_full_after_a_long_time_however_its_rate_divides_its_burst(meters):
    meters.add(0, [Band(3, 1)], packets=True)
    assert passing(meters, 0, [60], 0) == [0]
    assert passing(meters, 0, [60], 333_333_333) == []
    assert passing(meters, 0, [60], 333_333_334) == [0]
    assert passing(meters, 0, [60], 10 * SECOND) == [0]


def test_a_rate_above_a_packet_a_nanosecond_is_exact_too(meters):
    meters.add(0, [Band(2 * SECOND, 4)], packets=True)
    assert passing(meters, 0, [60] * 5, 0) == [0, 1, 2, 3]
    assert passing(meters, 0, [60] * 5, 1) == [0, 1]


def test_a_number_without_a_meter_lets_everything_pass(meters):
    for number in (-1, 0, 7, 8, 1 << 40, -(1 << 63)):
        assert passing(meters, number, [60] * 64, 0) == list(range(64))
    meters.add(0, [], packets=True)
    assert passing(meters, 0, [60] * 3, 0) == [0, 1, 2]
    assert meters.statistics(0) == Statistics(Counts(3, 180), [])


def test_bursts_of_none_and_of_sixty_four_are_taken(meters):
    meters.add(0, [Band(1, 63)], packets=True)
    assert passing(meters, 0, [], 0) == []
    assert passing(meters, 0, [60] * 64, 0) == list(range(63))
    assert meters.statistics(0) == Statistics(Counts(64, 3840), [Counts(1, 60)])


def test_a_packet_alone_is_metered_as_in_a_burst(meters):
    meters.add(0, [Band(1, 1)])
    assert [bool(pass_one(meters.address, 0, size, 0)) for size in (126, 125, 1, 0)] == [False, True, False, True]
    assert meters.statistics(0) == Statistics(Counts(4, 252), [Counts(2, 127)])


def test_meters_do_not_touch_each_other(meters):
    meters.add(1, [Band(1, 1)], packets=True)
    meters.add(2, [Band(1, 2)], packets=True)
    assert passing(meters, 2, [60] * 3, 0) == [0, 1]
    assert passing(meters, 1, [60] * 3, 0) == [0]
    assert [number in meters for number in range(-1, 9)] == [False, False, True, True] + [False] * 6


def test_a_modified_meter_begins_anew_and_a_deleted_one_is_gone(meters):
    meters.add(0, [Band(1, 1)], packets=True)
    passing(meters, 0, [60] * 3, 5)
    meters.modify(0, [Band(1, 2), Band(2, 1)])
    assert meters.statistics(0) == Statistics(Counts(0, 0), [Counts(0, 0)] * 2)
    assert passing(meters, 0, [60] * 3, 0) == [0, 1]
    assert meters.delete(0) == Statistics(Counts(3, 180), [Counts(0, 0), Counts(1, 60)])
    assert 0 not in meters
    assert passing(meters, 0, [60] * 3, 0) == [0, 1, 2]
    meters.add(0, [Band(1, 1)], packets=True)
    assert meters.statistics(0) == Statistics(Counts(0, 0), [Counts(0, 0)])


def test_what_cannot_be_is_refused(meters):
    for capacity in (0, MOST + 1):
        with pytest.raises(GraphError, match="room for 1 to"):
            Meters(capacity)
    with pytest.raises(GraphError, match="numbers 0 to 7, got 8"):
        meters.add(8, [Band(1)])
    with pytest.raises(GraphError, match="up to 8 bands, got 9"):
        meters.add(0, [Band(1)] * 9)
    for band in (Band(-1), Band(1 << 32), Band(1, 1 << 32), Band(1, -1)):
        with pytest.raises(GraphError, match="rate and burst are from 0"):
            meters.add(0, [band])
    for call in (meters.delete, meters.statistics, lambda number: meters.modify(number, [])):
        for number in (0, -1, 8):
            with pytest.raises(GraphError, match="there is no meter"):
                call(number)
    meters.add(0, [Band(1)] * 8)
    with pytest.raises(GraphError, match="there is a meter 0 already"):
        meters.add(0, [Band(1)])


class Model:
    """The same with fractions of what a rate counts, one packet after the other."""

    def __init__(self, bands, packets):
        self.packets, self.rates = packets, [rate for rate, _ in bands]
        self.bursts = [Fraction(burst or rate) for rate, burst in bands]
        self.levels = list(self.bursts)
        self.time = 0
        self.total = [0, 0]
        self.dropped = [[0, 0] for _ in bands]

    def run(self, sizes, now_ns):
        if now_ns > self.time:
            seconds = Fraction(now_ns - self.time, SECOND)
            for i, rate in enumerate(self.rates):
                self.levels[i] = min(self.bursts[i], self.levels[i] + rate * seconds)
            self.time = now_ns
        return [i for i, size in enumerate(sizes) if self.passes(size)]

    def passes(self, size):
        cost = Fraction(1) if self.packets else Fraction(8 * size, 1000)
        exceeded = [i for i, level in enumerate(self.levels) if level < cost]
        for i in range(len(self.levels)):
            self.levels[i] -= 0 if i in exceeded else cost
        add(self.total, size)
        if exceeded:
            add(self.dropped[max(exceeded, key=lambda i: self.rates[i])], size)
        return not exceeded


def add(counts, size):
    counts[0] += 1
    counts[1] += size


SMALL = st.tuples(st.integers(0, 20), st.integers(0, 20))
LARGE = st.tuples(st.integers(0, LARGEST), st.integers(0, LARGEST))
BURSTS = st.tuples(
    st.lists(st.integers(0, 1500) | st.sampled_from([60, 1514, 65535, LARGEST]), max_size=64),
    st.sampled_from([0, 1, 1_000_000, 333_333_333, SECOND, 3 * SECOND, 1 << 55]) | st.integers(-SECOND, SECOND),
)


@given(st.lists(SMALL | LARGE, max_size=8), st.booleans(), st.lists(BURSTS, max_size=20))
def test_it_does_what_exact_fractions_do(bands, packets, bursts):
    meters, model, now = Meters(1), Model(bands, packets), 1 << 40
    meters.add(0, [Band(*band) for band in bands], packets=packets)
    for sizes, elapsed in bursts:
        now += elapsed
        assert passing(meters, 0, sizes, now) == model.run(sizes, now)
        counted = meters.statistics(0)
        assert (list(counted.total), [list(band) for band in counted.bands]) == (model.total, model.dropped)
    meters.close()


@kernel
def push(table, number, sizes, n, times, step_ns):
    """Meter a burst so many times, the clock going on; return how many packets passed."""
    passed = i64(0)
    for i in range(times):
        bits = meter(table, number, sizes, n, i64(i) * step_ns)
        while bits != 0:
            bits &= bits - u64(1)
            passed += 1
    return passed


def run(*calls):
    results = [None] * len(calls)

    def call(i, function, *arguments):
        results[i] = function(*arguments)

    threads = [threading.Thread(target=call, args=(i, *one)) for i, one in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def one_burst():
    sizes = np.full(7, 100, np.uint32)
    return sizes, (sizes.ctypes.data, i64(7))


def test_several_threads_share_one_bucket_to_the_last_packet(meters, one_burst):
    meters.add(0, [Band(1, 100_001)], packets=True)
    call = (push, meters.address, i64(0), *one_burst[1], i64(10_000), i64(0))
    passed = run(*[call] * 4)
    assert sum(passed) == 100_001
    assert meters.statistics(0) == Statistics(
        Counts(280_000, 28_000_000), [Counts(280_000 - 100_001, 100 * (280_000 - 100_001))]
    )


def test_threads_whose_clocks_differ_get_no_more_than_the_time_brings(meters, one_burst):
    meters.add(0, [Band(1000, 1)], packets=True)
    times, step = 10_000, 1_000_000  # ten seconds
    passed = run(*[(push, meters.address, i64(0), *one_burst[1], i64(times), i64(step))] * 3)
    assert 0 < sum(passed) <= 10_000
    total, (dropped,) = meters.statistics(0)
    assert total.packets - dropped.packets == sum(passed)


def test_meters_change_and_are_read_while_threads_use_them(meters, one_burst):
    # Both meters let one packet pass; any mixture of them would let more pass, or none.
    one, other = [Band(0, 1), Band(0, 5)], [Band(0, 7), Band(0, 6), Band(0, 1)]
    meters.add(0, one, packets=True)
    count = 300
    push(meters.address, i64(0), *one_burst[1], i64(0), i64(0))

    def change():
        for i in range(count):
            counted = meters.statistics(0)
            dropped = sum(band.packets for band in counted.bands)
            assert counted.total.packets - dropped == min(1, counted.total.packets)
            assert counted.total.bytes == 100 * counted.total.packets
            meters.modify(0, other if i % 2 == 0 else one, packets=True)
        return True

    call = (push, meters.address, i64(0), *one_burst[1], i64(100_000), i64(1))
    *passed, changed = run(call, call, (change,))
    assert changed
    assert 1 <= sum(passed) <= count + 1
