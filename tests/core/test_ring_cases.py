"""The cases of DPDK's own ring tests, for each way to put and take, each sync and each size of an item.

====================================  ===============================================================================
DPDK's case                           test here
====================================  ===============================================================================
test_ring_basic_ex                    test_a_ring_is_filled_and_emptied_item_by_item
test_ring_with_exact_size             test_an_exact_ring_holds_what_it_was_asked_for_and_a_plain_one_one_less
burst_bulk_tests1                     test_a_ring_is_filled_and_emptied_wherever_its_wrap_lies
burst_bulk_tests2                     test_one_two_and_many_go_in_and_come_out
burst_bulk_tests3                     test_a_ring_goes_round_in_steps_of_32
burst_bulk_tests4                     test_at_the_edges_a_burst_is_partial_and_a_bulk_is_nothing
ring_stress: MT, MT_RTS, MT_HTS       test_objects_that_go_round_between_threads_stay_whole_and_none_is_lost[MT ...]
ring_stress: MT_PEEK, MT_PEEK_ZC      the same [HTS-peek], [HTS-in place]
ring_stress: ST_PEEK, ST_PEEK_ZC      the same [ST-peek], [ST-in place], under a lock as there
====================================  ===============================================================================

Its pairs of calls ({bulk, burst} x {default, SP/SC, MP/MC, RTS, HTS}, and zero-copy x {SP/SC, HTS}) are WAYS, where its
default is MT.  test_ring_negative_tests is about making rings, which is the queue's.
"""

import threading

import numpy as np
import pytest

from tests.conftest import TORTURE
from tests.core.plain_ring import (
    IN_PLACE,
    PEEK,
    PLAIN,
    SIZES,
    PlainRing,
    dequeue,
    dequeue_finish,
    dequeue_places,
    dequeue_start,
    enqueue,
    enqueue_commit,
    enqueue_finish,
    enqueue_places,
    enqueue_start,
)
from wirespeed.core.lock import lock, unlock
from wirespeed.core.ring import HTS, MT, RTS, ST
from wirespeed.core.slots import copy_words
from wirespeed.jit.intrinsics import load_i64, load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_yield

i64, u64 = np.int64, np.uint64
SLOTS = 4096  # as in DPDK's tests
BULK = 32
WAYS = [
    (ST, PLAIN), (MT, PLAIN), (RTS, PLAIN), (HTS, PLAIN), (ST, PEEK), (HTS, PEEK), (ST, IN_PLACE), (HTS, IN_PLACE),
]  # fmt: skip
NAMES = ["ST", "MT", "RTS", "HTS", "ST-peek", "HTS-peek", "ST-in place", "HTS-in place"]
every_way = pytest.mark.parametrize("sync, way", WAYS, ids=NAMES)
bulk_and_burst = pytest.mark.parametrize("exact", [True, False], ids=["bulk", "burst"])


def ring_of(size, sync, **more):
    return PlainRing(SLOTS, size=size, prod=sync, cons=sync, **more)


def numbers(first, n):
    return [*range(first, first + n)]


@pytest.mark.parametrize("size", SIZES)
@every_way
def test_a_ring_is_filled_and_emptied_item_by_item(sync, way, size):
    one = PlainRing(64, size=size, prod=sync, cons=sync)
    for first in (0, 100):  # the second time it wraps
        assert one.used() == 0
        for i in range(one.capacity):
            assert one.put([first + i], True, way) == 1
            assert one.used() == i + 1
        assert one.put([1], True, way) == one.put([1], False, way) == 0
        for i in range(one.capacity):
            assert one.take(1, True, way) == [first + i]
            assert one.used() == one.capacity - i - 1
        assert one.take(1, True, way) == one.take(1, False, way) == []
    assert one.put([1, 2], False, way) == 2
    assert one.take(2, False, way) == [1, 2]
    one.close()


@pytest.mark.parametrize("shift", [0, 1, 3, 6])
@every_way
def test_an_exact_ring_holds_what_it_was_asked_for_and_a_plain_one_one_less(sync, way, shift):
    plain = PlainRing(16, prod=sync, cons=sync, shift=shift)
    exact = PlainRing(32, 16, prod=sync, cons=sync, shift=shift)
    for one, capacity in ((plain, 15), (exact, 16)):
        assert one.capacity == capacity
        for turn in range(5):
            items = numbers(20 * turn, capacity)
            for item in items:
                assert one.put([item], True, way) == 1
            assert one.put([99], True, way) == 0
            assert one.take(16, False, way) == items
        assert one.put(numbers(0, 20), False, way) == capacity
        one.close()


@bulk_and_burst
@every_way
def test_a_ring_is_filled_and_emptied_wherever_its_wrap_lies(sync, way, exact):
    for size in SIZES:
        one = ring_of(size, sync)
        shifts = np.random.default_rng(size).integers(1, one.capacity, 4).tolist()
        for shift in shifts:
            assert one.put(numbers(1, shift), exact, way) == shift
            assert one.take(shift, exact, way) == numbers(1, shift)
            assert one.used() == 0
            assert one.put(numbers(7, one.capacity), exact, way) == one.capacity
            assert one.used() == one.capacity
            assert one.put([1], exact, way) == 0
            assert one.take(one.capacity, exact, way) == numbers(7, one.capacity)
            assert one.used() == 0
        one.close()


@bulk_and_burst
@every_way
def test_one_two_and_many_go_in_and_come_out(sync, way, exact):
    for size in SIZES:
        one = ring_of(size, sync)
        first = 0
        for n in (1, 2, BULK):
            assert one.put(numbers(first, n), exact, way) == n
            first += n
            assert one.used() == first
        taken = []
        for n in (1, 2, BULK):
            taken += one.take(n, exact, way)
            assert one.used() == first - len(taken)
        assert taken == numbers(0, first)
        one.close()


@bulk_and_burst
@every_way
def test_a_ring_goes_round_in_steps_of_32(sync, way, exact):
    for size in SIZES:
        one = ring_of(size, sync, start=(1 << 32) - 1000, claims=(1 << 32) - 7)
        steps = one.capacity // BULK
        for k in range(steps):
            assert one.put(numbers(BULK * k, BULK), exact, way) == BULK
        for k in range(steps):
            assert one.take(BULK, exact, way) == numbers(BULK * k, BULK)
        for k in range(2 * steps):
            assert one.put(numbers(BULK * k, BULK), exact, way) == BULK
            assert one.take(BULK, exact, way) == numbers(BULK * k, BULK)
        assert one.used() == 0
        one.close()


@every_way
def test_at_the_edges_a_burst_is_partial_and_a_bulk_is_nothing(sync, way):
    for size in SIZES:
        one = ring_of(size, sync, start=(1 << 32) - 1000)
        full = one.capacity - BULK + 1 + 2  # room for 29 is left
        assert one.put(numbers(0, full), True, way) == full
        assert one.put(numbers(full, BULK), True, way) == 0
        assert one.put(numbers(full, BULK), False, way) == BULK - 3
        assert one.put([0], False, way) == 0
        assert one.used() == one.capacity
        assert one.take(full, True, way) == numbers(0, full)
        assert one.take(BULK, True, way) == []
        assert one.take(BULK, False, way) == numbers(full, BULK - 3)
        assert one.take(1, False, way) == []
        one.close()


# Objects of a cache line, all ones at rest, go round through the ring; who has one out writes its own number into it.

OBJECT = 64
REST = u64(0xFFFFFFFFFFFFFFFF)
Locks = layout("TestLocks", [("lock", "u4")], size=128)
CONS_LOCK = Locks.size
CODES = {PLAIN: 0, PEEK: 1, IN_PLACE: 2}


@kernel
def take_some(at, items, n, sync, way):
    if way == 0:
        return dequeue(at, items, n, i64(8), True, sync)[0]
    if way == 1:
        count = dequeue_start(at, items, n, i64(8), True, sync)[0]
    else:
        count, first, run, rest = dequeue_places(at, n, i64(8), True, sync)
        copy_words(items, first, 8 * run)
        copy_words(items + 8 * run, rest, 8 * (count - run))
    return dequeue_finish(at, count) if count > 0 else i64(0)


@kernel
def put_back(at, items, n, sync, way):
    if way == 0:
        return enqueue(at, items, n, i64(8), True, sync)[0]
    if way == 1:
        count = enqueue_start(at, n, True, sync)[0]
        return enqueue_finish(at, items, count, i64(8)) if count > 0 else i64(0)
    count, first, run, rest = enqueue_places(at, n, i64(8), True, sync)
    copy_words(first, items, 8 * run)
    copy_words(rest, items + 8 * run, 8 * (count - run))
    return enqueue_commit(at, count) if count > 0 else i64(0)


@kernel
def stamp(items, n, expected, mark):
    """Write a mark into every word of the objects; return how many words did not hold what was expected."""
    wrong = i64(0)
    for i in range(n):
        at = load_i64(items + 8 * i)
        for offset in range(0, OBJECT, 8):
            wrong += load_u64(at + offset) != expected
            store_u64(at + offset, mark)
    return wrong


@kernel
def work(at, scratch, locks, me, rounds, sync, way):
    """Take 28 to 44 objects, mark them, look at them again, and put them back; return the words that were wrong."""
    wrong = i64(0)
    state = u64(me)
    for _ in range(rounds):
        state = state * u64(6364136223846793005) + u64(1442695040888963407)
        n = 28 + i64(state >> u64(33)) % 17
        count = i64(0)
        while count == 0:
            if sync == ST:
                lock(Locks(locks + CONS_LOCK))
            count = take_some(at, scratch, n, sync, way)
            if sync == ST:
                unlock(Locks(locks + CONS_LOCK))
            if count == 0:
                sys_yield()
        wrong += stamp(scratch, n, REST, u64(me)) + stamp(scratch, n, u64(me), REST) + (count != n)
        put = i64(0)
        while put == 0:
            if sync == ST:
                lock(Locks(locks))
            put = put_back(at, scratch, n, sync, way)
            if sync == ST:
                unlock(Locks(locks))
    return wrong


@every_way
def test_objects_that_go_round_between_threads_stay_whole_and_none_is_lost(sync, way):
    rounds = 5_000_000 if TORTURE else 30_000
    workers, objects = 3, 120  # so that some find too few, and the ring wraps within a few rounds
    memory = np.full(objects * OBJECT // 8, REST, np.uint64)
    addresses = memory.ctypes.data + OBJECT * np.arange(objects)
    one = PlainRing(128, prod=sync, cons=sync, start=(1 << 32) - 500_000, claims=(1 << 32) - 20_000)
    assert enqueue(one.address, addresses.ctypes.data, objects, 8, True, sync) == (objects, 127 - objects)
    locks = np.zeros(2 * Locks.size, np.uint8)
    scratch = [np.zeros(64, np.int64) for _ in range(workers)]
    wrong = []

    def worker(k):
        mine = scratch[k].ctypes.data
        wrong.append(work(one.address, mine, locks.ctypes.data, k + 1, rounds, sync, CODES[way]))

    threads = [threading.Thread(target=worker, args=(k,)) for k in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * workers
    out = np.zeros(objects + 1, np.int64)
    assert dequeue(one.address, out.ctypes.data, objects + 1, 8, False, sync) == (objects, 0)
    assert np.array_equal(np.sort(out[:objects]), addresses)
    assert (memory == REST).all()
