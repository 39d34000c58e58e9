"""A stream as it arrives, against the obvious model that remembers every packet."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.jit.intrinsics import load_i64
from wirespeed.jit.kernel import kernel
from wirespeed.net.trailer import LOW_48
from wirespeed.ports.checker.result import of_stream
from wirespeed.ports.checker.stream import FARTHEST, Stream, arrive

WINDOW = 64


@kernel
def take(stream, sequences, times, nows, n):
    for i in range(n):
        arrive(Stream(stream), load_i64(sequences + 8 * i), load_i64(times + 8 * i), load_i64(nows + 8 * i), 64)


class Opened(NamedTuple):
    memory: np.ndarray
    bits: np.ndarray
    jumped: np.ndarray

    def take(self, sequences, times=None, nows=None):
        """Packets sent one nanosecond after the other, unless told otherwise, which arrive at once."""
        sequences = np.array(sequences, np.int64)
        times = np.array(sequences + 1000 if times is None else times, np.int64)
        nows = np.array(times if nows is None else nows, np.int64)
        take(self.memory.ctypes.data, sequences.ctypes.data, times.ctypes.data, nows.ctypes.data, len(sequences))
        return self.result

    @property
    def record(self):
        return Stream.at(self.memory.ctypes.data)

    @property
    def result(self):
        return of_stream(self.record)


def opened(window=WINDOW):
    made = Opened(np.zeros(Stream.size, np.uint8), np.zeros(window // 64, np.uint64), np.zeros(window, np.int64))
    record = made.record
    record.window, record.suspect = window, -1
    record.bits, record.jumped = made.bits.ctypes.data, made.jumped.ctypes.data
    return made


class Model:
    """Remembers everything."""

    def __init__(self, sequences):
        self.arrived = []
        self.lost = self.duplicates = self.too_late = self.before = 0
        self.extents = []
        for sequence in sequences:
            self.add(sequence)
        if self.arrived:
            self.lost = max(self.arrived) + 1 - min(self.first, *self.arrived) - len(self.arrived) + self.before

    def add(self, sequence):
        if not self.arrived:
            self.first = 0 if sequence < WINDOW else sequence
        largest = max(self.arrived, default=self.first - 1)
        if sequence > largest:
            self.arrived.append(sequence)
        elif sequence < largest + 1 - WINDOW:
            self.too_late += 1
            self.before += sequence < min(self.first, *self.arrived)
        elif sequence in self.arrived:
            self.duplicates += 1
        else:
            overtaker = next(i for i, other in enumerate(self.arrived) if other > sequence)
            self.extents.append(len(self.arrived) - overtaker)
            self.arrived.append(sequence)


steps = st.lists(st.one_of(st.just(1), st.integers(-80, 80), st.integers(-3, 3), st.integers(0, 500)), max_size=150)


@given(st.integers(0, 300), steps)
def test_loss_order_and_duplicates_are_those_of_the_model(first, steps):
    sequences = [first]
    for step in steps:
        sequences.append(max(0, sequences[-1] + step))
    found, model = opened().take(sequences), Model(sequences)
    assert found.received == len(model.arrived)
    assert (found.lost, found.duplicates, found.too_late) == (model.lost, model.duplicates, model.too_late)
    assert (found.reordered, found.extent) == (len(model.extents), max(model.extents, default=0))
    assert found.mean_extent == (sum(model.extents) / len(model.extents) if model.extents else 0)
    assert found.packets == found.received + found.duplicates + found.too_late + found.outliers


@pytest.mark.parametrize("base", [0, 2**31 - 5, 2**32 - 5, 2**33, LOW_48 - 40])
def test_numbers_go_on_beyond_31_and_32_bits(base):
    sequences = [base + k for k in (0, 1, 2, 4, 3, 5, 7, 8, 9, 9, 10, 11)]
    found = opened().take(sequences)
    assert (found.received, found.lost, found.duplicates, found.reordered) == (11, 1, 1, 1)


def test_what_is_missing_in_front_is_lost_where_the_beginning_is_within_the_window():
    assert opened().take([5, 6, 7]).lost == 5
    assert opened().take([1_000_005, 1_000_006]).lost == 0


def test_the_extent_is_how_many_came_since_the_first_that_should_have_come_later():
    """RFC 4737, 4.2.3: of 1 2 3 4 8 9 10 5 6 7, the packets 5, 6 and 7 are reordered, with extents 3, 4 and 5."""
    found = opened().take([1, 2, 3, 4, 8, 9, 10, 5, 6, 7])
    assert (found.reordered, found.extent, found.mean_extent) == (3, 5, 4.0)


def test_a_number_far_ahead_changes_nothing_by_itself():
    stream = opened()
    found = stream.take([0, 1, 2, FARTHEST + 50, 3, 4])
    assert (found.received, found.lost, found.outliers, found.restarts) == (5, 0, 1, 0)


def test_two_numbers_far_ahead_that_follow_each_other_are_a_new_beginning():
    far = FARTHEST + 50
    found = opened().take([0, 1, 3, far, far + 1, far + 3])
    assert (found.received, found.lost, found.outliers, found.restarts) == (6, 2, 0, 1)


def test_a_sender_that_begins_again_is_told_from_packets_that_are_late():
    stream = opened()
    sent = list(range(500))
    again = stream.take(sent + sent, times=[1000 + k for k in range(1000)])
    assert (again.received, again.lost, again.duplicates, again.restarts, again.too_late) == (1000, 0, 0, 1, 0)
    late = opened().take([*range(500), 3, 4, 5])
    assert (late.restarts, late.too_late) == (0, 3)


@pytest.mark.parametrize("order", [range(9999, -1, -1), [*range(5000, 10_000), *range(5000)]], ids=["back", "halves"])
def test_what_is_received_and_what_is_lost_are_together_what_was_sent(order):
    found = opened().take(list(order))
    assert (found.received + found.lost, found.duplicates, found.restarts) == (10_000, 0, 0)
    assert found.lost == found.too_late > 0


@given(st.integers(0, 300), st.permutations(range(200)))
def test_each_number_that_comes_once_in_whatever_order_is_received_or_lost(first, order):
    found = opened().take([first + k for k in order])
    assert found.received + found.lost in (200, 200 + first)  # a stream that is seen from its beginning begins at 0
    assert (found.received + found.too_late, found.duplicates, found.outliers) == (200, 0, 0)


def test_a_sender_that_begins_again_within_the_window_is_told_from_duplicates():
    """Two runs of one sender behind each other: the numbers are the same, the times go on."""
    found = opened().take([*range(50), *range(50)], times=range(1000, 1100))
    assert (found.received, found.lost, found.duplicates, found.reordered, found.restarts) == (100, 0, 0, 0, 1)
    again = opened().take([*range(50), *range(50)])
    assert (again.received, again.duplicates, again.restarts, again.outliers) == (50, 50, 0, 0)


def test_one_number_that_was_passed_though_sent_later_changes_nothing():
    found = opened().take([*range(50), 20, *range(50, 60)], times=range(1000, 1061))
    assert (found.received, found.lost, found.duplicates, found.outliers, found.restarts) == (60, 0, 0, 1, 0)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, LOW_48), st.sampled_from([0, LOW_48, FARTHEST, 2 * FARTHEST])),
            st.integers(0, LOW_48),
            st.integers(0, 1 << 62),
        ),
        max_size=100,
    )
)
def test_hostile_numbers_and_times_leave_the_books_right(packets):
    stream = opened()
    sequences, times, nows = ([p[k] for p in packets] for k in range(3))
    found = stream.take(sequences, times, nows)
    assert found.packets == len(packets)
    assert found.received + found.duplicates + found.too_late + found.outliers == len(packets)
    assert found.lost >= 0 and found.latency.count <= found.received
    assert 0 <= found.latency.minimum <= found.latency.maximum <= LOW_48
    assert found.jitter_ns >= 0


def test_latency_is_from_the_trailers_time_to_now_and_early_ones_count_as_none():
    found = opened().take([0, 1, 2], times=[100, 200, LOW_48], nows=[350, 500, LOW_48 + 41])
    assert found.latency.to_dict()["count"] == 3
    assert (found.latency.minimum, found.latency.maximum, found.early) == (41, 300, 0)
    early = opened().take([0], times=[100], nows=[90])
    assert (early.latency.maximum, early.early) == (0, 1)


def test_jitter_is_that_of_rfc_3550():
    transits = [100, 180, 60, 60, 1000, 40, 300]
    expected, jitter = transits[0], 0.0
    for transit in transits:
        jitter += (abs(transit - expected) - jitter) / 16
        expected = transit
    found = opened().take(range(7), times=[1000] * 7, nows=[1000 + t for t in transits])
    assert abs(found.jitter_ns - jitter) < 1
