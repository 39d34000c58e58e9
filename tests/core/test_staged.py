"""The staged ring's kernels: against an obvious model in any order of releases, and between real threads."""

import ctypes
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wirespeed.core.arena import Arena
from wirespeed.core.ring import HTS, MT, RTS, ST, End
from wirespeed.core.staged import (
    MOST,
    SPREAD,
    STAGE,
    STAGES,
    Staged,
    StageLock,
    State,
    acquire,
    dequeue,
    enqueue,
    init,
    release,
    runs,
    size_of,
    slots_of,
    used,
)
from wirespeed.errors import GraphError
from wirespeed.jit.atomics import fetch_add, load_relaxed
from wirespeed.jit.intrinsics import load_u32, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_yield

i64, u32, u64 = np.int64, np.uint32, np.uint64
EDGES = [0, 1, (1 << 31) - 2, (1 << 32) - 1, (1 << 32) - 3, (1 << 32) - 40]
SYNCS = [ST, MT, RTS, HTS]


class KernelRing:
    """The kernels over memory of their own, items and metadata as lists of integers; ``start`` is where counters begin."""

    def __init__(self, capacity, stages, size=8, metadata_size=0, start=0, sync=MT):
        self.arena = Arena(size_of(capacity, stages, size, metadata_size) + 128)
        self.at = self.arena.alloc(size_of(capacity, stages, size, metadata_size), 128)
        init(self.at, capacity, stages, size, metadata_size)
        self.size, self.metadata_size, self.sync, self.stages = size, metadata_size, sync, stages
        self.record = Staged.at(self.at)
        ends = [self.record.prod, self.record.cons]
        ends += [End.at(self.at + STAGES + STAGE * k) for k in range(stages)]
        for end in ends:
            end.head = end.tail = end.position = end.seen = start

    def _array(self, values, size):
        array = np.zeros((len(values) + 1, size // 4), np.uint32)
        array[:-1] = np.array(values, np.uint32).reshape(-1, 1)
        return array

    def _values(self, array, n):
        assert (array[:n] == array[:n, :1]).all(), "an item came torn"
        assert (array[n:] == 0xFFFFFFFF).all(), "something was written behind what was taken"
        return array[:n, 0].tolist() if array.size else []

    def put(self, items, exact=False, metadata=None):
        array = self._array(items, self.size)
        beside = None if metadata is None else self._array(metadata, self.metadata_size)
        where = 0 if beside is None else beside.ctypes.data
        return enqueue(self.at, array.ctypes.data, where, len(items), exact, self.sync)

    def _room(self, n):
        return (np.full((n + 1, size // 4), 0xFFFFFFFF, np.uint32) for size in (self.size, self.metadata_size))

    def take(self, n, exact=False):
        """Items, metadata, and how many more are ready."""
        array, beside = self._room(n)
        where = beside.ctypes.data if self.metadata_size else 0
        count, ready = dequeue(self.at, array.ctypes.data, where, n, exact, self.sync)
        return self._values(array, count), self._values(beside, count), ready

    def acquire(self, stage, n, exact=False):
        """Items, metadata, the token, and how many more wait."""
        array, beside = self._room(n)
        where = beside.ctypes.data if self.metadata_size else 0
        count, token, waiting = acquire(self.at, stage, array.ctypes.data, where, n, exact)
        return self._values(array, count), self._values(beside, count), token, waiting

    def release(self, stage, token, count, items=None, metadata=None):
        array = None if items is None else self._array(items, self.size)
        beside = None if metadata is None else self._array(metadata, self.metadata_size)
        where = (0 if a is None else a.ctypes.data for a in (array, beside))
        return release(self.at, stage, token, count, *where)

    def memory(self):
        return ctypes.string_at(self.at, self.record.items)

    def states(self):
        slots = self.record.mask + 1
        return State.array_at(self.at + self.record.states, slots)["word"]


@dataclass
class Item:
    value: int
    metadata: int
    stage: int = 0  # that it has to pass next
    status: str = "waiting"  # for it, "held" by a worker, or "finished" but behind some that are not


class StagedModel(RuleBasedStateMachine):
    """A list of items, oldest first, beside the ring; ``taken`` is what workers hold."""

    @initialize(
        capacity=st.integers(1, 40),
        stages=st.integers(1, 5),
        size=st.sampled_from([4, 8, 16, 20]),
        metadata_size=st.sampled_from([0, 4, 12]),
        start=st.sampled_from(EDGES),
        sync=st.sampled_from(SYNCS),
    )
    def begin(self, capacity, stages, size, metadata_size, start, sync):
        self.ring = KernelRing(capacity, stages, size, metadata_size, start, sync)
        self.capacity, self.stages = capacity, stages
        self.items = []
        self.taken = []  # (stage, token, items)
        self.serial = self.refused = 0

    def _waiting(self, stage):
        return [item for item in self.items if item.stage == stage and item.status == "waiting"]

    @rule(n=st.integers(0, 50), exact=st.booleans())
    def put(self, n, exact):
        values = list(range(self.serial, self.serial + n))
        self.serial += n
        free = self.capacity - len(self.items)
        fits = (n if n <= free else 0) if exact else min(n, free)
        metadata = [v ^ 0x5555 for v in values] if self.ring.metadata_size else None
        count, left = self.ring.put(values, exact, metadata)
        assert count == fits and 0 <= left <= free - fits
        self.items += [Item(v, v ^ 0x5555) for v in values[:fits]]

    @rule(n=st.integers(0, 50), exact=st.booleans())
    def take(self, n, exact):
        ready = self._waiting(self.stages)
        count = (n if n <= len(ready) else 0) if exact else min(n, len(ready))
        metadata = [item.metadata for item in ready[:count]] if self.ring.metadata_size else []
        items, beside, left = self.ring.take(n, exact)
        assert (items, beside) == ([item.value for item in ready[:count]], metadata)
        assert 0 <= left <= len(ready) - count
        assert self.items[:count] == ready[:count]
        del self.items[:count]

    @rule(stage=st.integers(0, 5), n=st.integers(0, 50), exact=st.booleans())
    def acquire(self, stage, n, exact):
        ready = self._waiting(stage) if stage < self.stages else []
        count = (n if n <= len(ready) else 0) if exact else min(n, len(ready))
        items, metadata, token, waiting = self.ring.acquire(stage, n, exact)
        assert items == [item.value for item in ready[:count]] and 0 <= waiting <= len(ready) - count
        assert metadata == [item.metadata for item in ready[:count]] or not self.ring.metadata_size
        if count:
            for item in ready[:count]:
                item.status = "held"
            self.taken.append((stage, token, ready[:count]))

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), writes=st.booleans(), marks=st.booleans())
    def release(self, data, writes, marks):
        stage, token, items = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        if writes:
            for item in items:
                item.value = (item.value * 7 + stage) & 0xFFFF
        marks = marks and self.ring.metadata_size > 0
        if marks:
            for item in items:
                item.metadata = (item.metadata * 5 + 1) & 0xFFFF
        values = [item.value for item in items] if writes else None
        metadata = [item.metadata for item in items] if marks else None
        assert self.ring.release(stage, token, len(items), values, metadata) == len(items)
        for item in items:
            item.status = "finished"
        for item in self.items:
            if item.stage <= stage:
                if (item.stage, item.status) != (stage, "finished"):
                    break
                item.stage, item.status = stage + 1, "waiting"

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), change=st.sampled_from(["token", "count", "stage", "again"]), by=st.integers(1, 1 << 20))
    def release_what_was_not_acquired_so(self, data, change, by):
        stage, token, items = self.taken[data.draw(st.integers(0, len(self.taken) - 1))]
        n = len(items)
        if change == "token":
            token = token + by & 0xFFFFFFFF
            if any(token == t and stage == s and n == len(i) for s, t, i in self.taken):
                return  # that is another one's, rightly
        elif change == "count":
            n = data.draw(st.sampled_from([-1, 0, n - 1, n + 1, n + (1 << 30), n + (1 << 32), MOST, 1 << 31]))
        elif change == "stage":
            stage = data.draw(st.sampled_from([-1, stage + 1, self.stages, stage + (1 << 32), *range(stage)]))
        else:
            token = token ^ 1 << 31
        assert self.ring.release(stage, token, n) == 0
        self.refused += 1

    @invariant()
    def the_books_are_right(self):
        if hasattr(self, "ring"):
            assert used(self.ring.at) == len(self.items)
            assert self.ring.record.refused == self.refused

    def teardown(self):
        if hasattr(self, "ring"):
            self.ring.arena.close()


TestStagedRing = StagedModel.TestCase


@pytest.mark.parametrize(
    "capacity, stages, size, metadata_size, wrong",
    [
        (0, 1, 8, 0, "holds 1 to 1073741823 items, got 0"),
        (-1, 1, 8, 0, "holds 1 to 1073741823 items, got -1"),
        (MOST + 1, 1, 8, 0, "holds 1 to 1073741823 items, got 1073741824"),
        (8, 0, 8, 0, "has 1 to 1048575 stages, got 0"),
        (8, -1, 8, 0, "has 1 to 1048575 stages, got -1"),
        (8, 1, 0, 0, "positive multiple of 4 bytes, got 0; pad it to 4"),
        (8, 1, 9, 0, "positive multiple of 4 bytes, got 9; pad it to 12"),
        (8, 1, 8, 3, "multiple of 4 bytes .* got 3;"),
        (8, 1, 8, -4, "multiple of 4 bytes .* got -4;"),
    ],
)
def test_a_ring_that_cannot_be_is_refused_by_what_is_wrong(capacity, stages, size, metadata_size, wrong):
    with pytest.raises(GraphError, match=wrong):
        size_of(capacity, stages, size, metadata_size)


@pytest.mark.parametrize("capacity", [1, 2, 3, 16, 17, 1000])
@pytest.mark.parametrize("size, metadata_size", [(4, 0), (8, 4), (20, 12)])
def test_the_parts_of_a_ring_do_not_overlap_and_lie_within_its_size(capacity, size, metadata_size):
    one = KernelRing(capacity, 3, size, metadata_size)
    record, slots = one.record, slots_of(capacity)
    assert capacity <= slots < 2 * capacity
    assert record.states >= STAGES + 3 * STAGE
    assert record.items >= record.states + 8 * slots
    assert record.metadata >= record.items + size * slots
    assert size_of(capacity, 3, size, metadata_size) >= record.metadata + metadata_size * slots + 128
    assert not any(part % 128 for part in (record.states, record.items, record.metadata))


def test_a_ring_of_the_most_items_can_be_reckoned_with():
    assert size_of(MOST, 1, 4) > 12 * MOST


def test_tokens_of_two_stages_never_meet_within_a_ring():
    apart = np.arange(1, 20_000, dtype=np.int64)
    distance = apart * SPREAD % (1 << 32)
    assert (np.minimum(distance, (1 << 32) - distance) * apart > 1 << 30).all()


@pytest.mark.parametrize("start", EDGES)
@pytest.mark.parametrize("sync", SYNCS)
def test_enqueue_and_dequeue_with_one_stage_between_go_round_to_the_last_slot(start, sync):
    one = KernelRing(7, 1, start=start, sync=sync)
    assert one.take(1) == ([], [], 0)
    for turn in range(20):
        items = list(range(7 * turn, 7 * turn + 7))
        assert one.put(items, exact=True) == (7, 0)
        assert one.put([1], exact=True) == one.put([1]) == (0, 0), "a call that did nothing looks afresh"
        assert one.take(7)[0] == []
        _, _, token, _ = one.acquire(0, 7, exact=True)
        assert one.take(7)[0] == []
        assert one.release(0, token, 7) == 7
        assert one.take(8, exact=True) == ([], [], 7)
        assert one.take(8) == (items, [], 0)


def test_nothing_asked_for_is_no_operation():
    one = KernelRing(4, 2)
    assert one.put([1, 2])[0] == 2
    before = one.memory()
    assert one.put([])[0] == 0 and one.take(0)[0] == [] and one.acquire(0, 0)[:3] == ([], [], 0)
    assert one.memory() == before


def test_items_that_are_released_last_first_come_out_in_order():
    one = KernelRing(16, 1, metadata_size=4)
    one.put(range(9), metadata=range(9))
    parts = [one.acquire(0, 3) for _ in range(3)]
    for items, metadata, token, _ in reversed(parts):
        assert one.take(9)[0] == []
        assert one.release(0, token, 3, [10 * i for i in items], [m + 1 for m in metadata]) == 3
    assert one.take(9) == ([10 * i for i in range(9)], [i + 1 for i in range(9)], 0)
    assert not one.states().any(), "a state was left behind"


def test_a_run_is_released_once_and_as_it_was_acquired():
    one = KernelRing(8, 2)
    one.put([1, 2, 3, 4])
    _, _, first, _ = one.acquire(0, 2)
    _, _, second, _ = one.acquire(0, 2)
    assert [one.release(*wrong) for wrong in ((0, first, 1), (0, first + 1, 2), (1, first, 2), (2, first, 2))] == [
        0
    ] * 4
    assert one.release(0, second, 2, [7, 8]) == 2
    assert one.release(0, second, 2, [9, 9]) == 0  # finished, but not passed yet
    assert one.release(0, first, 2) == 2
    assert one.release(0, first, 2, [9, 9]) == 0  # passed
    _, _, next_stage, _ = one.acquire(1, 4)
    assert one.release(0, first, 2, [9, 9]) == one.release(0, next_stage, 4) == 0
    assert one.release(1, next_stage, 4) == 4
    assert one.take(4)[0] == [1, 2, 7, 8]
    assert one.record.refused == 8


def test_a_token_is_good_for_its_own_stage_only():
    one = KernelRing(8, 2)
    one.put([1, 2])
    one.release(0, one.acquire(0, 1)[2], 1)
    tokens = [one.acquire(stage, 1)[2] for stage in (0, 1)]  # the second item in the first stage, the first beyond it
    assert [one.release(stage, tokens[1 - stage], 1) for stage in (0, 1)] == [0, 0]
    assert one.release(1 << 32, tokens[0], 1) == 0
    assert [one.release(stage, tokens[stage], 1) for stage in (0, 1)] == [1, 1]


def test_acquired_items_can_be_worked_on_in_place_on_both_sides_of_the_wrap():
    one = KernelRing(8, 1, metadata_size=4)
    one.put(range(6))
    one.release(0, one.acquire(0, 6)[2], 6)
    one.take(6)
    one.put(range(4), metadata=range(4))
    count, token, _ = acquire(one.at, 0, 0, 0, 4, True)
    address, straight, rest = runs(one.at, 0, token, count, False)
    assert (address, straight, rest) == (one.at + one.record.items + 6 * 8, 2, one.at + one.record.items)
    for at, value in ((address, 50), (address + 8, 51), (rest, 52), (rest + 8, 53)):
        State.array_at(at, 1)["token"], State.array_at(at, 1)["flags"] = value, value
    address, straight, rest = runs(one.at, 0, token, count, True)
    assert (address, straight, rest) == (one.at + one.record.metadata + 6 * 4, 2, one.at + one.record.metadata)
    assert runs(one.at, 0, token, 2, False)[1:] == (2, 0)
    assert one.release(0, token, 4) == 4
    assert one.take(4) == ([50, 51, 52, 53], [0, 1, 2, 3], 0)


def test_a_dequeue_does_what_a_worker_has_not_come_to_yet():
    one = KernelRing(8, 1)
    one.put([5, 6])
    one.acquire(0, 2)
    one.states()[0] |= np.uint64(0xC0000000 << 32)  # FINISHED, and the worker was preempted there
    StageLock.at(one.at + STAGES).lock = 1
    assert one.take(2)[0] == [], "whoever has the lock will do it"
    StageLock.at(one.at + STAGES).lock = 0
    assert one.take(2)[0] == [5, 6]


def test_ten_thousand_stages_are_passed_one_after_the_other():
    stages, n = 10_000, 4
    one = KernelRing(n, stages)
    one.put(range(n))
    for stage in range(stages):
        assert one.take(1)[0] == []
        items, _, token, _ = one.acquire(stage, n + 1)
        assert items == [i + stage for i in range(n)]
        assert one.acquire(stage, 1)[0] == []
        assert one.release(stage, token, n, [i + 1 for i in items]) == n
    assert one.take(n)[0] == [i + stages for i in range(n)]


# Threads: each puts, takes or works on stages, or all of these, with the moves of rte_soring's stress tests.

PUT, TAKE, STAGE_WORK = 1, 2, 4
ALL, ENDS = PUT | TAKE | STAGE_WORK, PUT | TAKE
MOST_AT_ONCE = 32

Total = layout("TestStagedTotal", [("count", "i8")])
Passing = layout("TestStagedItem", [("value", "u8"), ("passed", "u4"), ("check", "u4")])
ITEM = Passing.size
METADATA = ITEM * MOST_AT_ONCE  # metadata lie behind the room for items
Worker = layout(
    "TestStagedWorker",
    [
        ("ring", "i8"),
        ("total", "i8"),  # the address of a Total, of what all have taken
        ("all", "i8"),  # what that is at the end
        ("scratch", "i8"),  # room for two runs of items and of metadata
        ("out", "i8"),  # where the values go that it takes
        ("taken", "i8"),
        ("value", "u8"),  # the next one that it puts
        ("left", "i8"),  # how many it has still to put
        ("seed", "u8"),
        ("faults", "i8"),
        ("roles", "u4"),
        ("sync", "u4"),
    ],
)


@kernel
def put_some(w, n):
    """Enqueue up to ``n`` of the items that a worker has left; how many."""
    for k in range(n):
        item = Passing(w.scratch + ITEM * k)
        item.value = w.value + u64(k)
        item.passed = 0
        item.check = ~u32(item.value)
        store_u32(w.scratch + METADATA + 4 * k, 0)
    count, _ = enqueue(w.ring, w.scratch, w.scratch + METADATA, n, False, i64(w.sync))
    w.value += u64(count)
    w.left -= count
    return count


@kernel
def take_some(w, n, stages):
    """Dequeue up to ``n`` items, see that they have passed all stages once, and keep their values."""
    count, _ = dequeue(w.ring, w.scratch, w.scratch + METADATA, n, False, i64(w.sync))
    for k in range(count):
        item = Passing(w.scratch + ITEM * k)
        if item.passed != stages or item.check != ~u32(item.value) or load_u32(w.scratch + METADATA + 4 * k) != stages:
            w.faults += 1
        store_u64(w.out + 8 * (w.taken + k), item.value)
    w.taken += count
    fetch_add(Total(w.total), "count", count)
    return count


@kernel
def pass_on(w, items, stage, token, count):
    """See that acquired items have passed the stages before this one, note this one, and release them."""
    metadata = items + METADATA
    for k in range(count):
        item = Passing(items + ITEM * k)
        if item.passed != stage or item.check != ~u32(item.value) or load_u32(metadata + 4 * k) != stage:
            w.faults += 1
        item.passed = stage + 1
        store_u32(metadata + 4 * k, stage + 1)
    if count > 0 and release(w.ring, stage, token, count, items, metadata) != count:
        w.faults += 1


@kernel
def stress(at):
    """Do what the roles say until all items are taken; two runs a turn are acquired, and the second one released first."""
    w = Worker(at)
    stages = i64(Staged(w.ring).stages)
    while load_relaxed(Total(w.total), "count") < w.all:
        w.seed ^= w.seed << u64(13)
        w.seed ^= w.seed >> u64(7)
        w.seed ^= w.seed << u64(17)
        n = 1 + i64(w.seed % u64(MOST_AT_ONCE))
        did = i64(0)
        if w.roles & PUT and w.left > 0:
            did += put_some(w, min(n, w.left))
        if w.roles & TAKE:
            did += take_some(w, n, stages)
        if w.roles & STAGE_WORK:
            second = w.scratch + METADATA + 4 * MOST_AT_ONCE
            for stage in range(stages):
                count1, token1, _ = acquire(w.ring, stage, w.scratch, w.scratch + METADATA, n, False)
                count2, token2, _ = acquire(w.ring, stage, second, second + METADATA, MOST_AT_ONCE + 1 - n, True)
                pass_on(w, second, stage, token2, count2)
                pass_on(w, w.scratch, stage, token1, count1)
                did += count1 + count2
        if did == 0:
            sys_yield()


@pytest.mark.parametrize("n", [400_000, pytest.param(20_000_000, marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    "stages, sync, roles",
    [
        pytest.param(1, MT, [ALL] * 4, id="MT_DEQENQ-MT_STG1"),
        pytest.param(4, MT, [ALL] * 4, id="MT_DEQENQ-MT_STG4"),
        pytest.param(4, RTS, [ALL] * 4, id="MTRTS_DEQENQ-MT_STG4"),
        pytest.param(4, HTS, [ALL] * 4, id="MTHTS_DEQENQ-MT_STG4"),
        pytest.param(5, MT, [ENDS, STAGE_WORK] * 2, id="MT_DEQENQ-MT_STG5-1:1"),
        pytest.param(3, MT, [ENDS, STAGE_WORK, STAGE_WORK, STAGE_WORK], id="MT_DEQENQ-MT_STG3-1:3"),
        pytest.param(4, ST, [ALL, STAGE_WORK, STAGE_WORK, STAGE_WORK], id="ST_DEQENQ-MT_STG4"),
        pytest.param(2, ST, [PUT, TAKE, STAGE_WORK, STAGE_WORK], id="ST_ENQ-ST_DEQ-MT_STG2"),
    ],
)
def test_threads_pass_each_item_through_every_stage_once_and_in_order(stages, sync, roles, n):
    one = KernelRing(60, stages, ITEM, 4, start=(1 << 32) - 5000, sync=sync)
    total = np.zeros(1, np.int64)
    putters = sum(role & PUT for role in roles)
    workers, kept = [], []
    for number, role in enumerate(roles):
        out, scratch = np.zeros(putters * n if role & TAKE else 1, np.uint64), np.zeros(2048, np.uint64)
        memory = np.zeros(Worker.size, np.uint8)
        w = Worker(memory)
        w.ring, w.total, w.all, w.scratch, w.out = (
            one.at,
            total.ctypes.data,
            putters * n,
            scratch.ctypes.data,
            out.ctypes.data,
        )
        w.value, w.left = number << 32, n if role & PUT else 0
        w.seed, w.roles, w.sync = 88172645463325252 + number, role, sync
        workers.append(w)
        kept.append((memory, out, scratch))
    threads = [threading.Thread(target=stress, args=(memory.ctypes.data,)) for memory, *_ in kept]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [w.faults for w in workers] == [0] * len(roles)
    assert (one.record.refused, used(one.at), one.states().any()) == (0, 0, False)
    taken = [out[: w.taken] for w, (_, out, _) in zip(workers, kept)]
    for number, role in enumerate(roles):
        if role & PUT:
            mine = [values[values >> 32 == number] for values in taken]
            assert all((np.diff(values) > 0).all() for values in mine), "items of one thread overtook each other"
            assert np.array_equal(np.sort(np.concatenate(mine)), np.arange(n, dtype=np.uint64) + (number << 32))
