"""Every interleaving of the staged ring's stages, with stale reads: each order that it names is needed and enough.

The programs are those of :mod:`wirespeed.core.staged`, order for order; the two ends are those of the ring, which
test_interleave.py explores.  Here they are one thread each, and counters are modulo 8, so that they wrap.
"""

from dataclasses import dataclass
from functools import partial

import pytest

from tests.core.interleave import (
    ACQUIRE,
    BOTH,
    RELAXED,
    RELEASE,
    Explorer,
    Op,
    Violation,
    again,
    compare_exchange,
    load,
    read,
    store,
    visited,
    wait,
    write,
)

WRAP = 8
START = WRAP - 1
STARTED, WRITING, FINISHED = "started", "writing", "finished"
NOTHING = (None, None, 0)


def add(place, value, order):
    """Sends what was there before."""
    return Op("add", place, value, order=order)


class Counting(Explorer):
    """An explorer that knows one more operation."""

    def _apply(self, state, i, op, trace):
        if op.kind != "add":
            return super()._apply(state, i, op, trace)
        place = self.places[op.place]
        last = len(state[1][place]) - 1
        loaded, old = self._loaded(state, i, place, last, op.order)
        changed = Op("store", op.place, old + op.value, order=op.order)
        return [(self._stored(loaded, i, place, changed, state[1][place][last][1]), old)]


@dataclass(frozen=True)
class Orders:
    """The orders that core/staged.py names; a test weakens one at a time."""

    tail: str = ACQUIRE  # A1
    moved: str = RELEASE  # G0
    finished: str = RELEASE  # G1
    seen: str = ACQUIRE  # G2
    ask: str = BOTH  # G3
    leave: str = BOTH  # G4
    again: str = ACQUIRE  # G4, when the exchange has failed
    asks_after: bool = True  # FINISHED is stored before the lock is asked for, not after
    looks_again: bool = True  # whoever leaves the lock is told when somebody asked
    zeroes: bool = True  # the walk zeroes the states that it has passed
    knows_stages: bool = True  # it looks whose stage's a finished state is


class Machine:
    """The kernels over one ring that is full; stages have a head, a tail and a lock each, ``prod`` and ``cons`` a tail."""

    def __init__(self, slots, stages, o):
        self.slots, self.stages, self.o = slots, stages, o

    def memory(self):
        names = ["prod", "cons"] + [f"{k}.{end}" for k in range(self.stages) for end in ("head", "tail")]
        memory = dict.fromkeys(names, START)
        memory |= {f"{k}.lock": 0 for k in range(self.stages)}
        memory |= {f"state{i}": NOTHING for i in range(self.slots)}
        memory["prod"] = (START + self.slots) % WRAP
        return memory | {self.slot(START + i): ((START + i) % WRAP,) for i in range(self.slots)}

    def before(self, stage):
        return "prod" if stage == 0 else f"{stage - 1}.tail"

    def state(self, position):
        return f"state{position % self.slots}"

    def slot(self, position):
        return f"slot{position % self.slots}"

    def acquire(self, stage, n):
        """All or nothing, until there are so many."""
        head = yield load(f"{stage}.head", ACQUIRE)
        ready = ((yield load(self.before(stage), self.o.tail)) - head) % WRAP
        if ready < n:
            yield again(2)
        if not (yield compare_exchange(f"{stage}.head", head, (head + n) % WRAP)):
            yield again(3)
        yield store(self.state(head), ((head, stage), STARTED, n), RELAXED)
        return head

    def release(self, stage, first, count):
        state = self.state(first)
        assert (yield compare_exchange(state, ((first, stage), STARTED, count), ((first, stage), WRITING, count)))
        for i in range(count):
            item = yield read(self.slot(first + i))
            yield write(self.slot(first + i), (*item, stage))
        if self.o.asks_after:
            yield store(state, ((first, stage), FINISHED, count), self.o.finished)
            yield from self.finalize(stage)
        else:
            yield from self.finalize(stage)
            yield store(state, ((first, stage), FINISHED, count), self.o.finished)

    def finalize(self, stage):
        asked = (yield add(f"{stage}.lock", 1, self.o.ask)) + 1
        if asked != 1:
            return
        while True:
            yield from self.walk(stage)
            if not self.o.looks_again:
                yield store(f"{stage}.lock", 0, RELEASE)
                return
            if (yield compare_exchange(f"{stage}.lock", asked, 0, self.o.leave)):
                return
            asked = yield load(f"{stage}.lock", self.o.again)

    def walk(self, stage):
        start = tail = yield load(f"{stage}.tail", RELAXED)
        while True:
            token, flags, count = yield load(self.state(tail), self.o.seen)
            if flags != FINISHED or (self.o.knows_stages and token != (tail, stage)):
                break
            if self.o.zeroes:
                yield store(self.state(tail), NOTHING, RELAXED)
            tail = (tail + count) % WRAP
        if tail != start:
            yield store(f"{stage}.tail", tail, self.o.moved)

    def dequeue(self, first, n, helps):
        """One consumer, so it needs no exchange; how many items it took, and they."""
        last = self.stages - 1
        count = min(n, ((yield load(f"{last}.tail", self.o.tail)) - first) % WRAP)
        if count == 0 and helps:
            tail = yield load(f"{last}.tail", RELAXED)
            token, flags, _ = yield load(self.state(tail), RELAXED)
            if flags == FINISHED and token == (tail, last) and (yield load(f"{last}.lock", RELAXED)) == 0:
                yield from self.finalize(last)
                count = min(n, ((yield load(f"{last}.tail", self.o.tail)) - first) % WRAP)
        items = []
        for i in range(count):
            items.append((yield read(self.slot(first + i))))
        if count:
            yield store("cons", (first + count) % WRAP, RELEASE)
        return tuple(items)

    def enqueue(self, position):
        """One producer."""
        yield wait("cons", lambda taken: (position - taken) % WRAP < self.slots, ACQUIRE)
        yield write(self.slot(position), (position % WRAP,))
        yield store("prod", (position + 1) % WRAP, RELEASE)


def counted(program):
    """What a program returns, and how many results it was sent."""
    results, result = 0, None
    try:
        while True:
            op = program.send(result)
            result = yield op
            results += 1
    except StopIteration as stop:
        return stop.value, results


def run(*workers, stages=1, slots=2, more=0, helps=False, orders=None):
    """All orders of workers and of a consumer, who ends when it has all items, so that it hangs if no tail is moved.

    A worker is a list of turns (stage, runs, n): it acquires so many runs of ``n`` items and releases the last one first.
    The slots are full at the start; ``more`` items come from a producer as they get free.
    """
    one = Machine(slots, stages, orders or Orders())

    def worker(turns):
        def program():
            for stage, runs, n in turns:
                taken = []
                for _ in range(runs):
                    taken.append((yield from one.acquire(stage, n)))
                for first in reversed(taken):
                    yield from one.release(stage, first, n)

        return program

    def producer():
        for i in range(more):
            yield from one.enqueue(START + slots + i)

    def consumer():
        got = ()
        while len(got) < slots + more:
            items, results = yield from counted(one.dequeue((START + len(got)) % WRAP, slots, helps))
            if not items:
                yield again(results)
            got += items
        return got

    def check(results):
        wanted = tuple(((START + i) % WRAP, *range(stages)) for i in range(slots + more))
        assert results[-1] == wanted, "items left out of order, or before they had passed each stage once"

    programs = {f"worker {k}": worker(turns) for k, turns in enumerate(workers)}
    if more:
        programs["producer"] = producer
    return explore({**programs, "consumer": consumer}, one.memory(), check)


def run_releases(releases, orders=None):
    """All orders of so many threads that release a run each, all of them acquired, and of one that reads what comes out."""
    one = Machine(4, 1, orders or Orders())
    end = (START + releases) % WRAP
    memory = one.memory() | {"0.head": end}
    memory |= {one.state(START + k): (((START + k) % WRAP, 0), STARTED, 1) for k in range(releases)}

    def reader():
        yield wait("0.tail", end, ACQUIRE)
        items = []
        for k in range(releases):
            items.append((yield read(one.slot(START + k))))
        return items

    def check(results):
        assert results[-1] == [((START + k) % WRAP, 0) for k in range(releases)]

    programs = {f"worker {k}": partial(one.release, 0, (START + k) % WRAP, 1) for k in range(releases)}
    return explore({**programs, "reader": reader}, memory, check)


def explore(programs, memory, check):
    visited.append(Counting(programs, memory, check).run())
    return visited[-1]


ONE = [(0, 1, 1)]
TWO = [(0, 2, 1)]
# Around all eight positions: the last ones are those of the first again, after runs that began elsewhere.
ROUND = [(0, 2, 1), (0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 1), (0, 1, 1)]


@pytest.mark.parametrize(
    "workers, setting",
    [
        ([TWO], {}),
        ([TWO], {"helps": True}),
        ([ONE, ONE], {}),
        ([[(0, 1, 2)], TWO], {"slots": 4}),
        ([[(0, 1, 3)], ONE], {"slots": 4}),
        ([ONE, ONE, [(1, 1, 2)]], {"stages": 2}),
        ([ONE, ONE, [(1, 2, 1)]], {"stages": 2}),
        ([TWO, [(1, 1, 1)], [(1, 1, 1)]], {"stages": 2}),
        ([ONE, ONE + ONE], {"slots": 1, "more": 2}),
        ([ROUND], {"more": 8}),
    ],
)
def test_items_leave_in_order_after_every_stage_and_no_release_is_forgotten(workers, setting):
    run(*workers, **setting)


@pytest.mark.parametrize("releases", [1, 2, 3])
def test_whoever_walks_finishes_what_others_release_meanwhile(releases):
    run_releases(releases)


@pytest.mark.torture
@pytest.mark.parametrize(
    "workers, setting",
    [
        ([ONE, ONE], {"helps": True}),
        ([[(0, 1, 1), (1, 1, 1)], [(0, 1, 1), (1, 1, 1)]], {"stages": 2}),
    ],
)
def test_items_leave_in_order_in_larger_programs_too(workers, setting):
    run(*workers, **setting)


@pytest.mark.parametrize(
    "weak, workers, setting",
    [
        ({"tail": RELAXED}, [ONE, ONE], {}),
        ({"moved": RELAXED}, [ONE, ONE], {}),
        ({"finished": RELAXED}, [ONE, ONE], {}),
        ({"seen": RELAXED}, [ONE, ONE], {}),
        ({"ask": ACQUIRE}, [ONE, ONE], {}),
        ({"ask": RELEASE}, [ONE, ONE], {}),
        ({"leave": ACQUIRE}, [ONE, ONE], {}),
        ({"asks_after": False}, [ONE, ONE], {}),
        ({"looks_again": False}, [ONE, ONE], {}),
        ({"knows_stages": False}, [ONE, ONE, [(1, 1, 2)]], {"stages": 2}),
        ({"zeroes": False}, [ROUND], {"more": 8}),
    ],
)
def test_each_order_and_rule_of_the_staged_ring_is_needed(weak, workers, setting):
    with pytest.raises(Violation):
        run(*workers, **setting, orders=Orders(**weak))


def test_the_walker_must_acquire_what_it_saw_when_its_exchange_failed():
    with pytest.raises(Violation):
        run_releases(3, Orders(again=RELAXED))


def test_the_exchange_that_ends_a_walk_need_not_acquire():
    run(ONE, ONE, orders=Orders(leave=RELEASE))
    run_releases(3, Orders(leave=RELEASE))
