"""The ring's kernels against a deque, with counters that begin near 2^32, and between real threads."""

import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wirespeed.core import ring
from wirespeed.core.arena import Arena
from wirespeed.core.ring import Ring, init, size_of
from wirespeed.jit.atomics import fetch_add, load_relaxed
from wirespeed.jit.intrinsics import store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64 = np.int64
Total = layout("TestTotal", [("count", "i8")])
EDGES = [0, 1, (1 << 31) - 2, (1 << 32) - 1, (1 << 32) - 3, (1 << 32) - 40]


@kernel
def enqueue(at, items, n, exact, alone):
    """The ring's enqueue with constant flags, as its users call it."""
    if exact:
        return ring.enqueue(at, items, n, True, True) if alone else ring.enqueue(at, items, n, True, False)
    return ring.enqueue(at, items, n, False, True) if alone else ring.enqueue(at, items, n, False, False)


@kernel
def dequeue(at, items, n, exact, alone):
    if exact:
        return ring.dequeue(at, items, n, True, True) if alone else ring.dequeue(at, items, n, True, False)
    return ring.dequeue(at, items, n, False, True) if alone else ring.dequeue(at, items, n, False, False)


@kernel
def length(at):
    return ring.length(at)


class PythonRing:
    """A ring whose items are Python integers; ``start`` is where its counters begin."""

    def __init__(self, slots, capacity, start):
        self.arena = Arena(size_of(slots) + 128)
        self.address = self.arena.alloc(size_of(slots))
        init(self.address, slots, capacity)
        record = Ring.at(self.address)
        for end in (record.prod, record.cons):
            end.head = end.tail = start

    def put(self, items, exact, alone):
        array = np.array([*items, 0], np.int64)
        return enqueue(self.address, array.ctypes.data, len(items), exact, alone)

    def take(self, n, exact, alone):
        array = np.full(n + 1, -1, np.int64)
        got = dequeue(self.address, array.ctypes.data, n, exact, alone)
        assert (array[got:] == -1).all(), "nothing is written behind what was taken"
        return array[:got].tolist()


class RingModel(RuleBasedStateMachine):
    @initialize(bits=st.integers(0, 5), spare=st.integers(0, 8), start=st.sampled_from(EDGES), alone=st.booleans())
    def begin(self, bits, spare, start, alone):
        slots = 1 << bits
        self.capacity = max(1, slots - 1 - spare)
        self.ring = PythonRing(slots, self.capacity, start)
        self.model = deque()
        self.alone = alone
        self.serial = 0

    @rule(n=st.integers(0, 40), exact=st.booleans())
    def put(self, n, exact):
        items = list(range(self.serial, self.serial + n))
        free = self.capacity - len(self.model)
        fits = (n if n <= free else 0) if exact else min(n, free)
        assert self.ring.put(items, exact, self.alone) == fits
        self.model.extend(items[:fits])
        self.serial += n

    @rule(n=st.integers(0, 40), exact=st.booleans())
    def take(self, n, exact):
        there = len(self.model)
        count = (n if n <= there else 0) if exact else min(n, there)
        assert self.ring.take(n, exact, self.alone) == [self.model.popleft() for _ in range(count)]

    @invariant()
    def length_is_right(self):
        if hasattr(self, "ring"):
            assert length(self.ring.address) == len(self.model)

    def teardown(self):
        if hasattr(self, "ring"):
            self.ring.arena.close()


TestRing = RingModel.TestCase


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_nothing_enqueued_or_dequeued_is_no_operation(exact, alone):
    one = PythonRing(4, 3, 7)
    assert (one.put([], exact, alone), one.take(0, exact, alone)) == (0, [])
    record = Ring.at(one.address)
    assert (record.prod.head, record.prod.tail, record.cons.head, record.cons.tail) == (7, 7, 7, 7)


def test_enqueue_on_a_full_ring_takes_nothing():
    one = PythonRing(4, 3, 0)
    assert one.put([1, 2, 3], True, True) == 3
    assert one.put([4], True, True) == one.put([4], False, True) == 0
    assert one.take(9, False, True) == [1, 2, 3]


def test_enqueue_all_or_nothing_takes_all_or_nothing():
    one = PythonRing(4, 3, 0)
    assert one.put([1, 2, 3, 4], True, True) == 0
    assert one.put([1, 2, 3, 4], False, True) == 3


@pytest.mark.parametrize("start", EDGES)
def test_a_ring_that_is_used_to_its_last_slot_keeps_order_over_the_wrap_of_its_counters(start):
    one = PythonRing(8, 7, start)
    for turn in range(30):
        assert one.put(range(7 * turn, 7 * turn + 7), True, True) == 7
        assert one.take(7, True, True) == list(range(7 * turn, 7 * turn + 7))


@kernel
def produce(at, first, n, burst, scratch, alone):
    """Put the numbers from ``first`` in, in bursts; done when all are in."""
    done = i64(0)
    while done < n:
        count = min(burst, n - done)
        for i in range(count):
            store_i64(scratch + 8 * i, first + done + i)
        put = i64(0)
        while put < count:
            put += enqueue(at, scratch + 8 * put, count - put, False, alone)
        done += count
    return done


@kernel
def consume(at, out, n, burst, total, alone):
    """Take numbers out to ``out`` until all consumers together, who count in ``total``, have ``n``."""
    done = i64(0)
    while load_relaxed(Total(total), "count") < n:
        got = dequeue(at, out + 8 * done, burst, False, alone)
        done += got
        if got > 0:
            fetch_add(Total(total), "count", got)
    return done


@pytest.mark.parametrize("producers, consumers", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("burst", [1, 5, 8])
def test_threads_pass_every_item_once_and_keep_each_producers_order(producers, consumers, burst):
    n = 20_000
    one = PythonRing(8, 7, (1 << 32) - 1000)
    total = np.zeros(1, np.int64)
    outs = [np.full(producers * n + burst, -1, np.int64) for _ in range(consumers)]
    scratch = [np.zeros(burst, np.int64) for _ in range(producers)]
    threads = [
        threading.Thread(target=produce, args=(one.address, k * n, n, burst, scratch[k].ctypes.data, producers == 1))
        for k in range(producers)
    ]
    threads += [
        threading.Thread(
            target=consume,
            args=(one.address, out.ctypes.data, producers * n, burst, total.ctypes.data, consumers == 1),
        )
        for out in outs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [out[: np.flatnonzero(out < 0)[0]] for out in outs]
    assert np.array_equal(np.sort(np.concatenate(got)), np.arange(producers * n))
    for taken in got:
        for k in range(producers):
            assert (np.diff(taken[taken // n == k]) > 0).all()


@given(st.integers(0, 20))
def test_size_of_holds_the_record_and_every_slot(bits):
    assert size_of(1 << bits) == Ring.size + 8 * (1 << bits)
