"""The ring's kernels against a deque, in each sync, with counters that begin near 2^32, and between real threads."""

import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.conftest import TORTURE
from tests.core.plain_ring import EDGES, SIZES, SYNCS, PlainRing, dequeue, enqueue
from wirespeed.core import ring
from wirespeed.core.ring import HTS, MT, RTS, SLOTS, ST, Ring, init, size_of
from wirespeed.jit.atomics import fetch_add, load_relaxed
from wirespeed.jit.intrinsics import load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_yield

i64, u32 = np.int64, np.uint32
Total = layout("TestTotal", [("count", "i8")])
syncs = st.sampled_from([*SYNCS.values()])
# How many a step wants, of those that can be had.
amounts = st.sampled_from(
    [lambda n: (n + 1) // 2, lambda n: min(n, 1), lambda n: n, lambda n: n + 1, lambda n: 40, lambda n: 0]
)
every_sync = pytest.mark.parametrize("sync", SYNCS.values(), ids=SYNCS)


class RingModel(RuleBasedStateMachine):
    @initialize(
        bits=st.sampled_from([4, 5, 3, 2, 1, 0]),
        spare=st.integers(0, 8),
        size=st.sampled_from(SIZES),
        prod=syncs,
        cons=syncs,
        start=st.sampled_from(EDGES),
        claims=st.sampled_from(EDGES),
        shift=st.integers(0, 7),
        limit=st.sampled_from([0, 1, None]),
    )
    def begin(self, bits, spare, size, prod, cons, start, claims, shift, limit):
        slots = 1 << bits
        capacity = max(1, slots - 1 - spare) if bits else 0
        self.ring = PlainRing(
            slots, capacity, size=size, prod=prod, cons=cons, start=start, claims=claims, shift=shift, limit=limit
        )
        self.model = deque()
        self.serial = 0

    @rule(amount=amounts, exact=st.booleans())
    def put(self, amount, exact):
        free = self.ring.capacity - len(self.model)
        n = amount(free)
        items = list(range(self.serial, self.serial + n))
        fits = (n if n <= free else 0) if exact else min(n, free)
        count, left = self.ring.enqueue(items, exact)
        assert count == fits
        self.left_is_right(left, free - fits, count == n, self.ring.prod)
        self.model.extend(items[:fits])
        self.serial += n

    @rule(amount=amounts, exact=st.booleans())
    def take(self, amount, exact):
        there = len(self.model)
        n = amount(there)
        count = (n if n <= there else 0) if exact else min(n, there)
        items, left = self.ring.dequeue(n, exact)
        assert items == [self.model.popleft() for _ in range(count)]
        self.left_is_right(left, there - count, count == n, self.ring.cons)

    @staticmethod
    def left_is_right(left, there_are, done, sync):
        if sync in (ST, MT) and done:  # they may go by what was seen of the other end before
            assert 0 <= left <= there_are
        else:
            assert left == there_are

    @invariant()
    def used_is_right(self):
        if hasattr(self, "ring"):
            assert self.ring.used() == len(self.model)

    def teardown(self):
        if hasattr(self, "ring"):
            self.ring.close()


TestRing = RingModel.TestCase


@pytest.mark.parametrize("exact", [True, False])
@every_sync
def test_nothing_enqueued_or_dequeued_is_no_operation(sync, exact):
    one = PlainRing(4, prod=sync, cons=sync, start=7, claims=5)
    before = one.counters()
    assert one.enqueue([], exact) == (0, 3)
    assert one.dequeue(0, exact) == ([], 0)
    assert one.counters() == before


@every_sync
def test_enqueue_on_a_full_ring_takes_nothing(sync):
    one = PlainRing(4, prod=sync, cons=sync)
    assert one.enqueue([1, 2, 3]) == (3, 0)
    before = one.counters()
    assert one.enqueue([4]) == one.enqueue([4], False) == (0, 0)
    assert one.counters() == before
    assert one.dequeue(9, False) == ([1, 2, 3], 0)


@every_sync
def test_dequeue_on_an_empty_ring_takes_nothing(sync):
    one = PlainRing(4, prod=sync, cons=sync)
    before = one.counters()
    assert one.dequeue(1) == one.dequeue(1, False) == ([], 0)
    assert one.counters() == before


@every_sync
def test_all_or_nothing_is_all_or_nothing(sync):
    one = PlainRing(4, prod=sync, cons=sync)
    assert one.enqueue([1, 2, 3, 4]) == (0, 3)
    assert one.enqueue([1, 2, 3, 4], False) == (3, 0)
    assert one.dequeue(4) == ([], 3)
    assert one.dequeue(4, False) == ([1, 2, 3], 0)


@pytest.mark.parametrize("start", EDGES)
@every_sync
def test_a_ring_used_to_its_last_slot_keeps_order_over_the_wrap_of_its_counters(sync, start):
    one = PlainRing(8, size=20, prod=sync, cons=sync, start=start, claims=start, shift=3)
    for turn in range(30):
        items = [*range(7 * turn, 7 * turn + 7)]
        assert one.enqueue(items) == (7, 0)
        assert one.dequeue(7) == (items, 0)
    assert one.used() == 0


def test_a_single_thread_sees_at_once_what_was_put_and_taken_since_it_last_looked():
    one = PlainRing(4, prod=ST, cons=ST)
    assert one.dequeue(1, False) == ([], 0)
    assert one.enqueue([1, 2, 3]) == (3, 0)
    assert one.dequeue(1, False) == ([1], 2)
    assert one.enqueue([4]) == (1, 0)
    assert one.dequeue(9, False) == ([2, 3, 4], 0)


# A claim held open, as by a thread that was preempted between claim and publish.


@kernel
def claim(at, n, sync):
    r = Ring(at)
    count, first, _ = ring.claim(r.prod, r.cons, r.capacity, u32(n), True, sync)
    return i64(count), i64(first)


@kernel
def publish(at, first, n, sync):
    ring.publish(Ring(at).prod, u32(first), u32(n), sync)


def waits(work, release):
    """Whether ``work`` in another thread waits for ``release``; it is done in the end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.1)
    waited = thread.is_alive()
    release()
    thread.join()
    return waited


@pytest.mark.parametrize("sync, expected", [(MT, True), (RTS, False), (HTS, True)], ids=["MT", "RTS", "HTS"])
def test_an_open_claim_holds_up_the_next_one_except_in_rts(sync, expected):
    one = PlainRing(16, prod=sync, limit=8)
    _, first = claim(one.address, 2, sync)
    assert waits(lambda: one.enqueue([8, 9]), lambda: publish(one.address, first, 2, sync)) == expected
    assert one.used() == 4


@pytest.mark.parametrize("start", EDGES)
def test_in_rts_the_last_one_under_way_shows_what_all_have_put(start):
    one = PlainRing(16, prod=RTS, start=start, claims=start, limit=15)
    firsts = [claim(one.address, n, RTS)[1] for n in (1, 2, 3)]
    for k in (2, 0):
        publish(one.address, firsts[k], k + 1, RTS)
        assert one.used() == 0
    publish(one.address, firsts[1], 2, RTS)
    assert one.used() == 6


@pytest.mark.parametrize("limit, n, expected", [(0, 1, True), (1, 1, False), (2, 3, True), (3, 3, False)])
def test_the_limit_of_rts_holds_up_claims_that_find_more_than_it_under_way(limit, n, expected):
    one = PlainRing(16, prod=RTS, limit=limit)
    _, first = claim(one.address, n, RTS)
    assert waits(lambda: one.enqueue([7]), lambda: publish(one.address, first, n, RTS)) == expected
    assert one.used() == n + 1


# Between threads: an item is its number and the same again inverted, so that a torn one shows.


@kernel
def produce(at, first, n, burst, scratch, sync):
    """Put the numbers from ``first`` in, in bursts of changing length; done when all are in."""
    done = i64(0)
    while done < n:
        count = min(1 + done % burst, n - done)
        for i in range(count):
            store_i64(scratch + 16 * i, first + done + i)
            store_i64(scratch + 16 * i + 8, ~(first + done + i))
        put = i64(0)
        while put < count:
            got = enqueue(at, scratch + 16 * put, count - put, i64(16), False, sync)[0]
            put += got
            if got == 0:
                sys_yield()
        done += count
    return done


@kernel
def consume(at, out, n, burst, total, scratch, sync):
    """Take numbers out to ``out`` until all consumers together, who count in ``total``, have ``n``."""
    done = i64(0)
    while load_relaxed(Total(total), "count") < n:
        got = dequeue(at, scratch, 1 + done % burst, i64(16), False, sync)[0]
        for i in range(got):
            number = load_i64(scratch + 16 * i)
            store_i64(out + 8 * (done + i), number if load_i64(scratch + 16 * i + 8) == ~number else i64(-2))
        done += got
        if got > 0:
            fetch_add(Total(total), "count", got)
        else:
            sys_yield()
    return done


@pytest.mark.parametrize("cons", SYNCS.values(), ids=SYNCS)
@pytest.mark.parametrize("prod", SYNCS.values(), ids=SYNCS)
def test_threads_pass_every_item_once_and_keep_each_producers_order(prod, cons):
    n = 3_000_000 if TORTURE else 20_000
    burst = 8
    producers, consumers = (1 if sync == ST else 2 for sync in (prod, cons))
    one = PlainRing(8, size=16, prod=prod, cons=cons, start=(1 << 32) - n // 2, claims=(1 << 32) - n // 8, limit=4)
    total = np.zeros(1, np.int64)
    outs = [np.full(producers * n + burst, -1, np.int64) for _ in range(consumers)]
    scratch = [np.zeros(2 * burst, np.int64) for _ in range(producers + consumers)]
    threads = [
        threading.Thread(target=produce, args=(one.address, k * n, n, burst, scratch[k].ctypes.data, prod))
        for k in range(producers)
    ]
    threads += [
        threading.Thread(
            target=consume,
            args=(one.address, out.ctypes.data, producers * n, burst, total.ctypes.data, mine.ctypes.data, cons),
        )
        for out, mine in zip(outs, scratch[producers:], strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [out[: np.flatnonzero(out == -1)[0]] for out in outs]
    assert np.array_equal(np.sort(np.concatenate(got)), np.arange(producers * n))
    for taken in got:
        for k in range(producers):
            assert (np.diff(taken[taken // n == k]) > 0).all()
    assert one.used() == 0


@given(st.integers(0, 20), st.sampled_from(SIZES))
def test_size_of_holds_the_record_every_slot_and_a_free_pair_of_lines(bits, size):
    slots = 1 << bits
    assert size_of(slots, size) >= SLOTS + slots * size + 128
    assert size_of(slots, size) % 128 == 0


@pytest.mark.parametrize("capacity, held, limit", [(None, 63, 7), (5, 5, 1), (40, 40, 5)])
def test_a_new_ring_holds_one_less_than_its_slots_unless_told_and_limits_rts_to_an_eighth(capacity, held, limit):
    memory = np.zeros(size_of(64), np.uint8)
    init(memory.ctypes.data, 64, capacity)
    record = Ring.at(memory.ctypes.data)
    assert (record.capacity, record.mask) == (held, 63)
    assert (record.prod.limit, record.cons.limit) == (limit, limit)
