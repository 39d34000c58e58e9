"""Looks at items before they are taken, and rooms that are written in place: against a model, and used wrongly."""

import gc
import threading
import time
from collections import deque

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import wirespeed as ws
from wirespeed.core.ring import Ring as Record

u64 = np.uint64
HOLDING = ["st", "hts"]


def arange(*bounds):
    return np.arange(*bounds, dtype=u64)


class LookModel(RuleBasedStateMachine):
    @initialize(
        size=st.integers(1, 24),
        prod=st.sampled_from(HOLDING),
        cons=st.sampled_from(HOLDING),
        shared=st.booleans(),
        start=st.sampled_from([0, (1 << 32) - 7]),
    )
    def begin(self, size, prod, cons, shared, start):
        self.ring = ws.Ring(size, exact=True, prod=prod, cons=cons, shared=shared)
        record = Record.at(self.ring._memory.ring)
        for end in (record.prod, record.cons):
            end.tail = end.head = end.position = end.seen = start
        self.size, self.model, self.serial = size, deque(), 0

    def fits(self, n, there, exact):
        return (n if n <= there else 0) if exact else min(n, there)

    @rule(n=st.integers(0, 30), share=st.floats(0, 1), exact=st.booleans(), in_place=st.booleans())
    def write(self, n, share, exact, in_place):
        count = self.fits(n, self.size - len(self.model), exact)
        k = int(share * count)
        items = arange(self.serial, self.serial + k)
        with self.ring.reserve(n, exact=exact) as room:
            assert len(room) == count and sum(map(len, room.runs)) == count and len(room.runs) <= 2
            if in_place:
                done = 0
                for run in room.runs:
                    part = items[done : done + len(run)]
                    run[: len(part)] = part
                    done += len(part)
                room.commit(k)
            else:
                room.put(items)
            assert len(self.ring) == len(self.model), "nothing is shown before the block ends"
        self.model.extend(items.tolist())
        self.serial += k

    @rule(n=st.integers(0, 30), share=st.floats(0, 1), exact=st.booleans())
    def read(self, n, share, exact):
        count = self.fits(n, len(self.model), exact)
        k = int(share * count)
        with self.ring.peek(n, exact=exact) as look:
            assert look.items.tolist() == list(self.model)[:count]
            assert len(look.runs) <= 2
            look.take(k)
            assert len(self.ring) == len(self.model), "nothing is taken before the block ends"
        for _ in range(k):
            self.model.popleft()

    @rule(n=st.integers(1, 30))
    def plain_calls_go_on_beside(self, n):
        count = self.ring.enqueue_burst(arange(self.serial, self.serial + n))
        self.model.extend(range(self.serial, self.serial + count))
        self.serial += n
        assert self.ring.dequeue_burst(n // 2).tolist() == [
            self.model.popleft() for _ in range(min(n // 2, len(self.model)))
        ]

    @invariant()
    def length_is_right(self):
        if hasattr(self, "ring"):
            assert len(self.ring) == len(self.model)

    def teardown(self):
        if hasattr(self, "ring"):
            self.ring.close()


TestLook = LookModel.TestCase


@pytest.mark.parametrize("sync", HOLDING)
def test_what_is_not_taken_is_found_again(sync):
    with ws.Ring(8, cons=sync) as ring:
        ring.enqueue_bulk([1, 2, 3])
        with ring.peek(3):
            pass
        with pytest.raises(RuntimeError, match="mine"), ring.peek(3) as look:
            look.take()
            raise RuntimeError("mine")
        assert ring.dequeue_burst(9).tolist() == [1, 2, 3]


@pytest.mark.parametrize("sync", HOLDING)
def test_what_is_written_and_not_committed_is_never_seen(sync):
    with ws.Ring(8, prod=sync) as ring:
        with ring.reserve(3) as room:
            room.runs[0][:] = 7
        with pytest.raises(RuntimeError, match="mine"), ring.reserve(3) as room:
            room.put(arange(3))
            raise RuntimeError("mine")
        assert ring.dequeue() is None and ring.free_count == 7


@pytest.mark.parametrize("sync", ["mt", "rts"])
def test_an_end_that_cannot_hold_says_which_can(sync):
    with ws.Ring(8, prod=sync, cons=sync) as ring:
        with pytest.raises(ws.GraphError, match="cons='st' or 'hts'"):
            ring.peek(1)
        with pytest.raises(ws.GraphError, match="prod='st' or 'hts'"):
            ring.reserve(1)


def test_objects_are_not_looked_at_in_place():
    with ws.Ring(8, dtype=object, cons="st") as ring, pytest.raises(ws.GraphError, match="Python objects"):
        ring.peek(1)


def test_too_many_and_the_wrong_items_are_refused():
    with ws.Ring(8, prod="st", cons="st") as ring:
        ring.enqueue_bulk([1, 2])
        with ring.peek(9) as look:
            for k in (3, -1):
                with pytest.raises(ws.GraphError, match=f"{k} of 2 items cannot be taken"):
                    look.take(k)
        with ring.reserve(2) as room:
            for items, words in (
                (arange(3), "up to 2 items of uint64 go into this room, got 3"),
                (np.zeros(2), "got an array of float64"),
                (np.zeros((1, 1), u64), "shape"),
                ([1.5], "cannot hold 1.5"),
            ):
                with pytest.raises(ws.GraphError, match=words):
                    room.put(items)
            room.put([7, 8])
        assert ring.dequeue_burst(9).tolist() == [1, 2, 7, 8]


def test_a_look_is_over_when_its_block_is():
    with ws.Ring(8, prod="st", cons="st") as ring:
        ring.enqueue(1)
        with ring.peek(1) as look:
            pass
        for call in (lambda: look.items, lambda: look.runs, lambda: look.take()):
            with pytest.raises(ws.GraphError, match="over"):
                call()


def test_items_looked_at_cannot_be_written():
    with ws.Ring(8, cons="st") as ring:
        ring.enqueue(1)
        with ring.peek(1) as look, pytest.raises(ValueError, match="read-only"):
            look.runs[0][0] = 2


def test_an_array_over_the_slots_outlives_the_ring():
    ring = ws.Ring(8, prod="st", cons="st")
    with ring.reserve(3) as room:
        room.put(arange(5, 8))
        kept = room.runs[0]
    ring.close()
    assert kept.tolist() == [5, 6, 7]


def test_a_finalizer_in_a_cycle_of_garbage_finds_ring_and_slots_in_place():
    class Owner:
        def __init__(self):
            self.ring = ws.Ring(8, prod="st", cons="st")
            with self.ring.reserve(3) as room:
                room.put(arange(5, 8))
                self.kept = room.runs[0]
            self.me = self

        def __del__(self):
            seen.append((self.kept.tolist(), self.ring.dequeue_burst(9).tolist()))
            self.ring.close()

    seen = []
    for _ in range(10):
        Owner()
    gc.collect()
    assert seen == [([5, 6, 7], [5, 6, 7])] * 10


def test_a_thread_that_would_wait_for_its_own_look_is_told():
    with ws.Ring(8, cons="hts") as ring:
        ring.enqueue_bulk([1, 2])
        with ring.peek(1) as look:
            with pytest.raises(ws.GraphError, match="this thread looks at items"):
                ring.dequeue()
            assert ring.enqueue(3), "the other end is open"
            look.take()
        assert ring.dequeue_burst(9).tolist() == [2, 3]


def test_another_thread_waits_until_the_look_is_over():
    with ws.Ring(8, cons="hts") as ring:
        ring.enqueue_bulk([1, 2])
        got = []
        with ring.peek(1) as look:
            other = threading.Thread(target=lambda: got.append(ring.dequeue(timeout_s=None)))
            other.start()
            time.sleep(0.03)
            assert got == []
            look.take()
        other.join()
        assert got == [2]


def test_a_look_waits_when_it_may():
    with ws.Ring(8, cons="st") as ring:
        later = threading.Timer(0.03, lambda: ring.enqueue_bulk([1, 2]))
        later.start()
        with ring.peek(2, exact=True, timeout_s=None) as look:
            assert look.items.tolist() == [1, 2]
        later.join()
        with ring.peek(3, exact=True, timeout_s=0.02) as look:
            assert len(look) == 0 and look.items.tolist() == []
