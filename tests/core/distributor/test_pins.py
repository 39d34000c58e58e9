"""The pin table beside a dictionary: which tags are live, on whom, however many of them meet in one place."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.distributor.plain_distributor import STARTS, TAGS, Driven
from wirespeed.core.distributor.pins import (
    BUCKET,
    CHAIN,
    LANE,
    LINE_BITS,
    LINE_SHIFT,
    MOST_WORKERS,
    Lane,
    Pins,
    Window,
    entry_of,
    find,
    is_live_at,
    lane_of,
    word_of,
)
from wirespeed.core.distributor.process import NO_PLACE
from wirespeed.jit.intrinsics import load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.vector import LANES

u32, u64 = np.uint32, np.uint64
ODD = 0x9E3779B97F4A7C15
BOX = layout("TestPinsBox", [("pins", Pins)], size=64)


@kernel
def look_up(pins, tag):
    """The lane of a tag, as the distributor asks for it; 0 when it has no place."""
    p = Pins(pins)
    tag = u32(tag)
    lane = lane_of(p.table, p.mask, p.multiplier, tag)
    word = load_u64(lane)
    if u32(word >> u64(32)) != tag:
        lane = find(pins, p.marks, lane, lane - p.table, tag, word, p.windows, p.stride)
    return lane


@kernel
def put(lane, tag, worker, line):
    store_u64(lane, word_of(u32(tag), entry_of(u32(worker), u32(line))))


@kernel
def is_live(entry, window):
    return is_live_at(u32(entry), window)


class Table:
    """A pin table over plain memory, and the dictionary that it must agree with."""

    def __init__(self, buckets=8, workers=4, multiplier=ODD, start=1):
        self._memory = np.zeros(BUCKET * (buckets + 1) + buckets + Window.size * (workers + 1) + 256, np.uint8)
        base = -(-self._memory.ctypes.data // BUCKET) * BUCKET
        box = np.zeros(BOX.size, np.uint8)
        self._box, self.at = box, box.ctypes.data
        self.pins = Pins.at(self.at)
        self.pins.table, self.pins.mask, self.pins.multiplier = base, buckets * BUCKET - LANE, multiplier
        self.pins.marks = base + buckets * BUCKET
        self.pins.windows, self.pins.stride = -(-(self.pins.marks + buckets) // 8) * 8, Window.size
        self.lanes = Lane.array_at(base, buckets * LANES)
        self.lanes["entry"] = workers  # who is never active
        self.marks = np.ndarray(buckets, np.uint8, self._memory, int(self.pins.marks) - self._memory.ctypes.data)
        self.windows = [Window.at(self.pins.windows + Window.size * worker) for worker in range(workers + 1)]
        for window in self.windows[:workers]:
            window.done, window.length = start, 1
        self.live = {}  # tag -> worker, line
        self.buckets, self.workers = buckets, workers

    def open(self, worker):
        window = self.windows[worker]
        return (int(window.done) + int(window.length) - 1) & TAGS

    def home(self, tag):
        """The bucket in which a tag is looked for first."""
        hashed = (tag * int(self.pins.multiplier) & (1 << 64) - 1) >> 32
        return (hashed & int(self.pins.mask)) // BUCKET

    def live_lanes(self, bucket):
        """How many lanes of a bucket are live, by the dictionary."""
        words = self.lanes[bucket % self.buckets * LANES :][:LANES]
        return sum(self.is_live(one) for one in words)

    def is_live(self, lane):
        window = int(self.pins.windows) + Window.size * (int(lane["entry"]) & 0xFFF)
        assert is_live(int(lane["entry"]), window) == (self.says(lane) == self.live.get(int(lane["tag"]), ()))
        return is_live(int(lane["entry"]), window)

    def says(self, lane):
        worker, line = int(lane["entry"]) & 0xFFF, int(lane["entry"]) >> LINE_SHIFT
        if worker >= self.workers:
            return None
        done = int(self.windows[worker].done)
        return worker, (done + ((line - done) & LINE_BITS)) & TAGS

    def give(self, tag, worker):
        """Put a tag into the open line of the worker on which it is live, or else of ``worker``; whom, or None."""
        lane = look_up(self.at, tag)
        if lane == 0:
            assert tag not in self.live
            home = self.home(tag)
            assert all(self.live_lanes(home + k) == LANES for k in range(min(CHAIN, self.buckets)))
            return None
        one = self.lanes[(lane - int(self.pins.table)) // LANE]
        assert (lane - int(self.pins.table)) % LANE == 0
        if tag in self.live:
            assert int(one["tag"]) == tag and self.says(one) == self.live[tag]
            worker = self.live[tag][0]
        else:
            assert not self.is_live(one)
        put(lane, tag, worker, self.open(worker))
        self.live[tag] = worker, self.open(worker)
        return worker

    def close(self, worker):
        """Begin a worker's next line."""
        self.windows[worker].length += 1

    def give_back(self, worker, lines):
        """Have a worker give lines back."""
        window = self.windows[worker]
        lines = min(lines, int(window.length) - 1)
        gone = {(int(window.done) + k) & TAGS for k in range(lines)}
        window.done = (int(window.done) + lines) & TAGS
        window.length -= lines
        self.live = {tag: where for tag, where in self.live.items() if where[0] != worker or where[1] not in gone}

    def check(self):
        """Every live tag is found where the dictionary says, and is live once."""
        for tag, where in self.live.items():
            lane = look_up(self.at, tag)
            one = self.lanes[(lane - int(self.pins.table)) // LANE]
            assert lane and int(one["tag"]) == tag and self.says(one) == where
        assert sum(self.live_lanes(bucket) for bucket in range(self.buckets)) == len(self.live)

    def of_bucket(self, bucket, n):
        """``n`` tags that are looked for in a bucket first."""
        tags = np.arange(1 << 16, dtype=np.uint64)
        hashed = (tags * np.uint64(self.pins.multiplier)) >> np.uint64(32)
        found = tags[(hashed & np.uint64(self.pins.mask)) // np.uint64(BUCKET) == bucket]
        return [int(tag) for tag in found[:n]]


@given(
    st.integers(0, 1 << 32),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([1, ODD, 0xD1342543DE82EF95]),
    st.sampled_from(STARTS),
    st.sampled_from([10, 60, 400]),
)
def test_the_table_says_of_every_tag_what_a_dictionary_says(seed, buckets, multiplier, start, kinds):
    rng = random.Random(seed)
    table = Table(buckets, 3, multiplier, start)
    tags = [0, TAGS, 1 << 31, *(rng.getrandbits(32) for _ in range(kinds))]
    refused = 0
    for _ in range(150):
        worker = rng.randrange(3)
        what = rng.random()
        if what < 0.75:
            refused += table.give(rng.choice(tags), worker) is None
        elif what < 0.85:
            table.close(worker)
        else:
            table.close(worker)
            table.give_back(worker, rng.randint(1, 3))
        if rng.random() < 0.1:
            table.check()
    table.check()
    for worker in range(3):
        table.close(worker)
        table.give_back(worker, 1 << 20)
    assert not table.live
    assert table.give(tags[0], 2) == 2


def test_tags_that_meet_in_one_bucket_go_on_to_the_next_ones_and_are_found_there():
    table = Table(16)
    tags = table.of_bucket(14, LANES * CHAIN + 1)  # the chain wraps round the end of the table
    for n, tag in enumerate(tags[:-1], 1):
        assert table.give(tag, n % 4) == n % 4
        used = [table.live_lanes(14 + k) for k in range(CHAIN)]
        assert used == [min(LANES, max(0, n - LANES * k)) for k in range(CHAIN)]
    table.check()
    assert table.give(tags[-1], 0) is None
    table.check()
    # They stay where they are whoever else comes and goes.
    for worker in range(3):
        table.close(worker)
        table.give_back(worker, 1)
        table.check()
    assert table.give(tags[-1], 3) == 3
    table.check()


def test_a_mark_is_taken_away_when_nothing_that_was_sent_on_is_live():
    table = Table(16)
    tags = table.of_bucket(5, 2 * LANES + 1)
    for tag in tags[: LANES + 1]:
        table.give(tag, 0)
    assert list(np.flatnonzero(table.marks)) == [5]
    table.close(0)
    table.give_back(0, 1)
    for tag in tags[LANES + 1 :]:
        table.give(tag, 1)
    assert not table.marks.any()
    assert table.live_lanes(5) == LANES
    # A mark is not forgotten while a tag that went on is live, though the bucket between is free.
    far = table.of_bucket(5, 4 * LANES)[2 * LANES + 1 :]
    for tag in far[:4]:
        table.give(tag, 2)
    assert table.marks[5] == 1 and table.live_lanes(6) == 4
    table.close(1)
    table.give_back(1, 1)
    assert table.live_lanes(5) == 0
    for tag in far[:4]:
        assert table.give(tag, 3) == 2
    table.check()


@pytest.mark.parametrize("tag", [0, 1, TAGS - 1, TAGS])
def test_the_first_and_the_last_tag_are_like_any_other(tag):
    table = Table()
    assert not table.live
    assert table.give(tag, 2) == 2
    assert table.give(tag, 0) == 2
    table.close(2)
    table.give_back(2, 1)
    assert table.give(tag, 0) == 0
    table.check()


@pytest.mark.parametrize("start", STARTS)
def test_lines_are_told_apart_where_their_numbers_begin_again(start):
    table = Table(start=start)
    for turn in range(50):
        for worker in range(4):
            for k in range(3):
                assert table.give(100 * worker + turn % 4 * 10 + k, worker) == worker
            table.close(worker)
            if turn >= 2:
                table.give_back(worker, 1)
        table.check()


@pytest.mark.parametrize("done", [0, 1, LINE_BITS - 1, LINE_BITS, LINE_BITS + 1, TAGS - 1, TAGS])
def test_a_window_has_exactly_its_lines(done):
    window = np.array([done, 0], np.uint32)
    for length in (0, 1, 2, 5, 2048):
        window[1] = length
        for distance in (-2048, -2, -1, 0, 1, 4, 5, 2047, 2048, LINE_BITS - 2048):
            entry = ((done + distance) & LINE_BITS) << LINE_SHIFT | 3
            assert is_live(entry, window.ctypes.data) == (0 <= distance < length)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("workers", [1, 3, MOST_WORKERS])
def test_a_new_table_has_room_for_all_that_can_be_held(workers, start):
    """Lanes that were never used are nobody's, whatever the lines' numbers are."""
    one = Driven(workers, start=start, burst=1, lines=1, slots=2, multiplier=ODD)
    one.start_all()
    n = min(2 * workers, 512)
    tags = random.Random(1).sample(range(1 << 32), n)
    assert one.process(list(range(n)), tags) == n
    assert one.record.reason != NO_PLACE
    assert one.record.out_of_place == 0


def test_every_worker_is_told_apart_in_the_table():
    one = Driven(MOST_WORKERS, burst=1, lines=1, slots=8, multiplier=ODD)
    one.start_all()
    for turn in range(4):
        for first in range(0, MOST_WORKERS, 256):
            tags = list(range(first, first + 256))
            items = [(turn << 16 | tag) << 32 | tag for tag in tags]
            assert one.process(items) == 256
    on = {}
    for held in one.held():
        on.setdefault(held.tag, set()).add(held.worker)
    assert all(len(workers) == 1 for workers in on.values())
    assert len({min(workers) for workers in on.values()}) > MOST_WORKERS // 2
