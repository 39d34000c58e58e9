"""The ring as Python programs use it: what each call gives, what is refused and with which words, threads and waiting."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import wirespeed as ws
from wirespeed.core.queue import Ring
from wirespeed.core.ring import SYNCS
from wirespeed.core.ring import Ring as Record

u64 = np.uint64
PAIR = np.dtype([("key", "u8"), ("value", "u8")])
FIVE = np.dtype([("words", "u4", (5,))])


def arange(*bounds):
    return np.arange(*bounds, dtype=u64)


# Model: whatever is done, a deque says what must come of it.


class RingModel(RuleBasedStateMachine):
    @initialize(
        size=st.integers(1, 40),
        dtype=st.sampled_from([u64, np.int64, np.uint32, "f4", object]),
        prod=st.sampled_from(sorted(SYNCS)),
        cons=st.sampled_from(sorted(SYNCS)),
        start=st.sampled_from([0, 1, (1 << 31) - 2, (1 << 32) - 1, (1 << 32) - 20]),
    )
    def begin(self, size, dtype, prod, cons, start):
        self.ring = Ring(size, exact=True, dtype=dtype, prod=prod, cons=cons)
        record = Record.at(self.ring._memory.ring)
        for end in (record.prod, record.cons):
            end.tail = end.position = start
            end.head = end.seen = start
        self.size, self.dtype = size, dtype
        self.model = deque()
        self.serial = 0

    def items(self, n):
        self.serial += n
        whole = list(range(self.serial - n, self.serial))
        return [f"thing {i}" for i in whole] if self.dtype is object else whole

    def given(self, items, as_array):
        return np.array(items, self.dtype) if as_array and self.dtype is not object else items

    @rule(n=st.integers(0, 60), exact=st.booleans(), as_array=st.booleans())
    def put(self, n, exact, as_array):
        items = self.items(n)
        free = self.size - len(self.model)
        fits = (n if n <= free else 0) if exact else min(n, free)
        call = self.ring.enqueue_bulk_free if exact else self.ring.enqueue_burst_free
        count, left = call(self.given(items, as_array))
        assert count == fits
        if n:
            assert left == free - fits
        self.model.extend(items[:fits])

    @rule(n=st.integers(0, 60), exact=st.booleans())
    def take(self, n, exact):
        there = len(self.model)
        count = (n if n <= there else 0) if exact else min(n, there)
        call = self.ring.dequeue_bulk_used if exact else self.ring.dequeue_burst_used
        got, left = call(n)
        assert list(got) == [self.model.popleft() for _ in range(count)]
        if n:
            assert left == there - count

    @rule()
    def put_one(self):
        (item,) = self.items(1)
        fits = len(self.model) < self.size
        assert self.ring.enqueue(item) == fits
        if fits:
            self.model.append(item)

    @rule()
    def take_one(self):
        assert self.ring.dequeue("nothing") == (self.model.popleft() if self.model else "nothing")

    @rule()
    def reset(self):
        self.ring.reset()
        self.model.clear()

    @invariant()
    def counts_are_right(self):
        if hasattr(self, "ring"):
            there = len(self.model)
            assert (len(self.ring), self.ring.free_count) == (there, self.size - there)
            assert (self.ring.is_empty, self.ring.is_full) == (there == 0, there == self.size)

    def teardown(self):
        if hasattr(self, "ring"):
            self.ring.close()


TestRing = RingModel.TestCase


# What is made, and what is refused.


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"size": 0}, "1 to 1073741824, got 0"),
        ({"size": -4}, "got -4"),
        ({"size": 4097}, "power of two, got 4097; try 8192, which holds 8191, or exact=True"),
        ({"size": 1}, "got 1; try 2"),
        ({"size": 1 << 31}, "got 2147483648"),
        ({"size": 8.0}, "whole number, got 8.0"),
        ({"size": True}, "whole number, got True"),
        ({"size": 8, "dtype": "S23"}, "multiple of 4 bytes, got 23"),
        ({"size": 8, "dtype": "u2"}, "multiple of 4 bytes, got 2"),
        ({"size": 8, "dtype": "nonsense"}, "dtype must be one of NumPy's"),
        ({"size": 8, "dtype": ("u4", 5)}, "not an array"),
        ({"size": 8, "dtype": [("a", "u4"), ("b", object)]}, "not both in one"),
        ({"size": 8, "prod": "many"}, "prod must be one of 'st', 'mt', 'rts', 'hts', got 'many'"),
        ({"size": 8, "cons": None}, "cons must be one of"),
        ({"size": 8, "wait": "busy"}, "wait must be 'sleep' or 'spin', got 'busy'"),
        ({"size": 8, "shared": True, "dtype": object}, "cannot leave their process"),
        ({"size": 8, "shared": True, "members": 0}, "1 to 4096 members, got 0"),
        ({"size": 8, "name": "a/b"}, "letters, digits"),
        ({"size": 8, "name": ".."}, "letters, digits"),
    ],
)
def test_a_ring_that_cannot_be_says_what_was_got_and_what_is_wanted(arguments, words):
    with pytest.raises(ws.GraphError) as error:
        Ring(**arguments)
    assert words in str(error.value)


def test_a_ring_of_sixteen_holds_fifteen_and_an_exact_one_sixteen():
    with Ring(16) as ring, Ring(16, exact=True) as exact:
        assert (ring.size, ring.capacity, exact.size, exact.capacity) == (16, 15, 32, 16)
        assert [ring.enqueue(i) for i in range(16)] == [True] * 15 + [False]
        assert [exact.enqueue(i) for i in range(17)] == [True] * 16 + [False]
        assert len(exact.dequeue_burst(64)) == 16


@pytest.mark.parametrize("dtype", [np.uint32, u64, np.int64, PAIR, FIVE, "f8", "S12"])
def test_items_of_any_size_come_out_as_they_went_in(dtype):
    dtype = np.dtype(dtype)
    given = np.frombuffer(np.random.default_rng(1).bytes(7 * dtype.itemsize), dtype)
    with Ring(8, dtype=dtype) as ring:
        for turn in range(9):
            assert ring.enqueue_bulk(given) == 7, turn
            got = ring.dequeue_bulk(7)
            assert got.dtype == dtype and got.tobytes() == given.tobytes()


def test_a_misaligned_buffer_is_taken_as_well():
    raw = bytearray(8 * 10 + 1)
    given = np.frombuffer(raw, u64, 10, offset=1)
    given[:] = arange(10)
    with Ring(16) as ring:
        assert ring.enqueue_bulk(given) == 10
        out = np.frombuffer(bytearray(8 * 10 + 3), u64, 10, offset=3)
        assert ring.dequeue_bulk_into(out) == 10
        assert (out == given).all()


@pytest.mark.parametrize(
    "items, words",
    [
        ([1, -1], "cannot be made such"),
        ([1 << 64], "cannot be made such"),
        (["a"], "cannot be made such"),
        ([None], "cannot be made such"),
        (np.array([1, -1]), "values that uint64 does not hold"),
        (np.array([1.5]), "got an array of float64; convert it"),
        (np.zeros((2, 2), u64), "shape (2, 2)"),
    ],
)
def test_items_that_are_none_of_the_rings_are_refused_and_nothing_goes_in(items, words):
    with Ring(8) as ring:
        for call in (ring.enqueue_bulk, ring.enqueue_burst):
            with pytest.raises(ws.GraphError) as error:
                call(items)
            assert words in str(error.value)
        assert len(ring) == 0


def test_a_list_a_range_and_strided_or_other_integers_go_in_by_value():
    with Ring(64) as ring:
        for given in ([1, 2], (3, 4), range(5, 7), arange(7, 11)[::2], np.array([11, 12], np.int8), np.array([True])):
            assert ring.enqueue_bulk(given) == len(given)
        assert ring.dequeue_burst(64).tolist() == [1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 1]


@pytest.mark.parametrize("out", [np.zeros(4, np.uint32), np.zeros((4, 1), u64), np.zeros(8, u64)[::2], [0] * 4, None])
def test_an_output_that_does_not_fit_is_refused_and_nothing_is_taken(out):
    with Ring(8) as ring:
        ring.enqueue_burst(arange(4))
        with pytest.raises(ws.GraphError, match="writable contiguous array of uint64"):
            ring.dequeue_burst_into(out)
        assert len(ring) == 4


def test_an_output_that_cannot_be_written_is_refused():
    out = np.zeros(4, u64)
    out.flags.writeable = False
    with Ring(8) as ring:
        ring.enqueue_burst(arange(4))
        with pytest.raises(ws.GraphError, match="not writable"):
            ring.dequeue_burst_into(out)


@pytest.mark.parametrize("n", [-1, 1.5, True, None])
def test_a_burst_of_no_whole_number_is_refused(n):
    with Ring(8) as ring, Ring(8, dtype=object) as objects:
        for one in (ring, objects):
            with pytest.raises(ws.GraphError, match="n must be a whole number"):
                one.dequeue_burst(n)


def test_objects_are_kept_alive_and_let_go_of():
    class Thing:
        alive = 0

        def __init__(self):
            Thing.alive += 1

        def __del__(self):
            Thing.alive -= 1

    with Ring(8, dtype=object) as ring:
        assert ring.enqueue_bulk([Thing() for _ in range(5)]) == 5
        assert ring.enqueue(Thing())
        assert not ring.enqueue_bulk([Thing() for _ in range(5)])
        gc.collect()
        assert Thing.alive == 6
        got = ring.dequeue_burst(2)
        assert Thing.alive == 6
        del got
        assert Thing.alive == 4
        one = ring.dequeue()
        assert isinstance(one, Thing)
        del one
        assert Thing.alive == 3
        ring.reset()
        assert Thing.alive == 0
        ring.enqueue(Thing())
    assert Thing.alive == 0, "closing lets go of what is left"


def test_objects_in_a_ring_that_is_dropped_are_let_go_of():
    thing = object()
    before = sys.getrefcount(thing)
    ring = Ring(8, dtype=object)
    ring.enqueue_burst([thing] * 5)
    del ring
    gc.collect()
    assert sys.getrefcount(thing) == before


def test_one_object_many_times_keeps_its_count_of_references():
    thing = object()
    before = sys.getrefcount(thing)
    with Ring(64, dtype=object) as ring:
        for _ in range(100):
            ring.enqueue_burst([thing] * 40)
            ring.dequeue_burst(17)
            ring.enqueue(thing)
            ring.dequeue()
    assert sys.getrefcount(thing) == before


# Waiting.


def test_without_a_timeout_nothing_waits():
    with Ring(2) as ring:
        start = time.monotonic()
        assert ring.dequeue() is None and ring.enqueue(1) and not ring.enqueue(2)
        assert ring.enqueue_burst([3]) == 0 and len(ring.dequeue_bulk(2)) == 0
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("wait", ["sleep", "spin"])
def test_a_wait_ends_with_its_time(wait):
    with Ring(2, wait=wait) as ring:
        start = time.monotonic()
        assert ring.dequeue("none", timeout_s=0.05) == "none"
        ring.enqueue(1)
        assert not ring.enqueue(2, timeout_s=0.05)
        assert time.monotonic() - start >= 0.1


@pytest.mark.parametrize("wait", ["sleep", "spin"])
@pytest.mark.parametrize("dtype", [u64, object])
def test_a_waiting_consumer_gets_what_a_producer_puts_in_later_and_the_other_way_round(wait, dtype):
    with Ring(2, wait=wait, dtype=dtype) as ring:
        got = []
        consumer = threading.Thread(target=lambda: got.append(ring.dequeue(timeout_s=None)))
        consumer.start()
        time.sleep(0.03)
        assert ring.enqueue(7)
        consumer.join()
        assert got == [7]
        ring.enqueue(8)
        producer = threading.Thread(target=lambda: got.append(ring.enqueue(9, timeout_s=None)))
        producer.start()
        time.sleep(0.03)
        assert ring.dequeue() == 8
        producer.join()
        assert got == [7, True] and ring.dequeue() == 9


def test_a_bulk_waits_for_all_of_it_and_takes_nothing_before():
    with Ring(8) as ring:
        ring.enqueue_burst([1, 2])
        assert len(ring.dequeue_bulk(3, timeout_s=0.02)) == 0 and len(ring) == 2
        later = threading.Timer(0.03, lambda: ring.enqueue(3))
        later.start()
        assert ring.dequeue_bulk(3, timeout_s=None).tolist() == [1, 2, 3]
        later.join()


def test_waiting_for_more_than_fits_is_refused_where_it_would_never_end():
    with Ring(8) as ring:
        assert ring.enqueue_bulk(arange(9)) == 0
        with pytest.raises(ws.GraphError, match="waiting for 9 slots of a ring that holds 7"):
            ring.enqueue_bulk(arange(9), timeout_s=None)
        with pytest.raises(ws.GraphError, match="waiting for 8 items"):
            ring.dequeue_bulk(8, timeout_s=1)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_of_no_sense_is_refused(timeout):
    with Ring(8) as ring, pytest.raises(ws.GraphError, match="timeout_s must be a number of seconds, at least 0"):
        ring.dequeue(timeout_s=timeout)


def test_a_loop_over_bursts_ends_when_the_ring_is_shut_down_and_empty():
    with Ring(64) as ring:
        got = []

        def consume():
            for burst in ring:
                got.extend(burst.tolist())

        thread = threading.Thread(target=consume)
        thread.start()
        for first in range(0, 1000, 10):
            ring.enqueue_bulk(arange(first, first + 10), timeout_s=None)
        ring.shutdown()
        thread.join()
        assert got == list(range(1000))
        assert ring.is_shut_down
        for call in (lambda: ring.enqueue(1), lambda: ring.enqueue_burst([1]), lambda: ring.enqueue_bulk(arange(2))):
            with pytest.raises(ws.GraphError, match="shut down"):
                call()
        ring.reset()
        assert ring.enqueue(1)


def test_a_producer_that_waits_is_told_when_the_ring_is_shut_down():
    with Ring(2) as ring:
        ring.enqueue(1)
        later = threading.Timer(0.03, ring.shutdown)
        later.start()
        with pytest.raises(ws.GraphError, match="shut down"):
            ring.enqueue(2, timeout_s=None)
        later.join()


@pytest.mark.parametrize("dtype", [u64, object, PAIR])
def test_a_closed_ring_says_so_in_every_call(dtype):
    ring = Ring(8, dtype=dtype)
    ring.close()
    ring.close()
    assert repr(ring) == "<Ring, closed>" and len(ring) == 0
    out = np.zeros(1, u64 if dtype is object else dtype)
    calls = [
        lambda: ring.enqueue(out[0]), lambda: ring.enqueue_burst(list(out)), lambda: ring.enqueue_bulk(out),
        lambda: ring.dequeue(), lambda: ring.dequeue_burst(1), lambda: ring.dequeue_bulk(1), lambda: ring.dump(),
        lambda: ring.dequeue(timeout_s=1), lambda: list(ring), lambda: ring.reset(), lambda: ring.shutdown(),
        lambda: ring.statistics(), lambda: ring.peers(), lambda: ring.recover(), lambda: ring.is_shut_down,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ws.GraphError, match="closed"):
            call()


def test_closing_waits_for_threads_that_wait_and_tells_them():
    ring = Ring(8)
    errors = []

    def consume():
        try:
            ring.dequeue(timeout_s=None)
        except ws.GraphError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    ring.close()
    for thread in threads:
        thread.join()
    assert len(errors) == 3 and all("closed" in error for error in errors)


@pytest.mark.parametrize("call", ["ring.dequeue(timeout_s=None)", "list(ring)", "ring.dequeue_bulk(5, timeout_s=None)"])
@pytest.mark.parametrize("wait", ["sleep", "spin"])
def test_control_c_ends_a_wait(call, wait):
    program = f"""
import wirespeed as ws
ring = ws.Ring(8, wait={wait!r})
print("waiting", flush=True)
try:
    {call}
except KeyboardInterrupt:
    ring.close()
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == "interrupted\n"
        assert process.returncode == 0


def test_a_fork_is_told_that_the_ring_is_not_its_own():
    with Ring(8) as ring:
        ring.enqueue(1)
        child = os.fork()
        if child == 0:
            try:
                ring.enqueue(2)
            except ws.GraphError as error:
                os._exit(7 if "not to its fork" in str(error) else 8)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ring.dequeue_burst(9).tolist() == [1]


# Threads.


@pytest.mark.parametrize("prod, cons", [("st", "st"), ("mt", "mt"), ("rts", "rts"), ("hts", "hts"), ("mt", "hts")])
def test_threads_get_every_item_once_and_in_each_producers_order(prod, cons):
    producers, consumers = (1, 1) if prod == "st" else (2, 2)
    n = 30_000
    with Ring(256, prod=prod, cons=cons) as ring:
        got = [[] for _ in range(consumers)]

        def produce(k):
            at, end = k * n, (k + 1) * n
            while at < end:
                at += ring.enqueue_burst(arange(at, min(at + 37, end)), timeout_s=None)

        def consume(k):
            for burst in ring.bursts(29):
                got[k].append(burst.copy())

        workers = [threading.Thread(target=consume, args=(k,)) for k in range(consumers)]
        feeders = [threading.Thread(target=produce, args=(k,)) for k in range(producers)]
        for thread in workers + feeders:
            thread.start()
        for thread in feeders:
            thread.join()
        ring.shutdown()
        for thread in workers:
            thread.join()
        taken = [np.concatenate(bursts) if bursts else arange(0) for bursts in got]
        assert np.array_equal(np.sort(np.concatenate(taken)), arange(producers * n))
        for one in taken:
            for k in range(producers):
                own = one[one // n == k]
                assert (np.diff(own.astype(np.int64)) > 0).all()
        counted = ring.statistics()
        assert (counted.enqueued, counted.dequeued) == (producers * n, producers * n)


def test_the_dump_and_the_statistics_say_what_happened():
    with Ring(8, prod="rts", cons="hts") as ring:
        ring.enqueue_bulk([1, 2, 3])
        ring.enqueue_bulk(arange(9))
        ring.dequeue()
        ring.dequeue_bulk(5)
        text = ring.dump()
        assert "8 slots, 7 usable" in text and "used 2, free 5" in text
        assert "prod RTS: head 3, tail 3, 1 claims begun, 1 ended" in text and "cons HTS: head 1, tail 1" in text
        assert f"process {os.getpid()}" in text
        counted = ring.statistics()
        assert (counted.enqueued, counted.enqueues, counted.refused) == (3, 1, 1)
        assert (counted.dequeued, counted.dequeues) == (1, 1) and counted.empty >= 1


@given(st.integers(1, 1 << 12))
def test_an_exact_ring_holds_what_was_asked_for(size):
    with Ring(size, exact=True, dtype=np.uint32) as ring:
        assert ring.capacity == size < ring.size
