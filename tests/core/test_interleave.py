"""Every interleaving of the lock-free algorithms, with stale reads: each order that they name is needed and enough."""

from dataclasses import dataclass

import pytest

from tests.core.interleave import (
    ACQUIRE,
    BOTH,
    RELAXED,
    RELEASE,
    Violation,
    compare_exchange,
    explore,
    fence,
    load,
    read,
    store,
    wait,
    write,
)

WRAP = 8  # counters are modulo 8 here, as they are modulo 2^32 there
START = WRAP - 1  # so that they wrap


# The explorer itself, on the classic examples whose outcomes are known.


def outcomes(memory, *programs):
    found = set()
    explore({str(i): p for i, p in enumerate(programs)}, memory, lambda results: found.add(tuple(results)))
    return found


def message_passing(release, acquire):
    def sender():
        yield store("data", 1, RELAXED)
        yield store("flag", 1, release)

    def receiver():
        flag = yield load("flag", acquire)
        return flag, (yield load("data", RELAXED))

    return {r for _, r in outcomes({"data": 0, "flag": 0}, sender, receiver)}


def test_a_message_is_seen_whole_with_release_and_acquire():
    assert message_passing(RELEASE, ACQUIRE) == {(0, 0), (0, 1), (1, 1)}


@pytest.mark.parametrize("release, acquire", [(RELAXED, ACQUIRE), (RELEASE, RELAXED)])
def test_a_message_may_be_seen_before_its_data_without_either(release, acquire):
    assert (1, 0) in message_passing(release, acquire)


def store_buffering(fenced):
    def thread(mine, other):
        def program():
            yield store(mine, 1, RELEASE)
            if fenced:
                yield fence()
            return (yield load(other, ACQUIRE))

        return program

    return outcomes({"x": 0, "y": 0}, thread("x", "y"), thread("y", "x"))


def test_two_stores_may_both_be_missed_without_full_fences():
    assert (0, 0) in store_buffering(False)
    assert store_buffering(True) == {(0, 1), (1, 0), (1, 1)}


def test_one_place_is_coherent():
    def writer():
        yield store("x", 1, RELAXED)
        yield store("x", 2, RELAXED)

    def reader():
        return (yield load("x", RELAXED)), (yield load("x", RELAXED))

    assert {r for _, r in outcomes({"x": 0}, writer, reader)} == {(a, b) for a in range(3) for b in range(a, 3)}


def test_exchanges_of_one_place_never_both_succeed():
    def program():
        return (yield compare_exchange("x", 0, 1, RELAXED))

    assert outcomes({"x": 0}, program, program) == {(True, False), (False, True)}


def test_an_exchange_carries_on_what_the_store_before_it_released():
    def sender():
        yield store("data", 1, RELAXED)
        yield store("flag", 1, RELEASE)

    def between():
        yield compare_exchange("flag", 1, 2, RELAXED)

    def receiver():
        flag = yield load("flag", ACQUIRE)
        return flag, (yield load("data", RELAXED))

    seen = {r for *_, r in outcomes({"data": 0, "flag": 0}, sender, between, receiver)}
    assert (2, 1) in seen and (2, 0) not in seen


def test_plain_accesses_that_nothing_orders_are_a_race():
    def writer():
        yield write("x", 1)

    def reader():
        yield read("x")

    for programs in ({"a": writer, "b": writer}, {"a": writer, "b": reader}):
        with pytest.raises(Violation, match="races"):
            explore(programs, {"x": 0}, lambda results: None)
    explore({"a": reader, "b": reader}, {"x": 0}, lambda results: None)


def test_threads_that_wait_for_each_other_are_found():
    def program(mine, other):
        def run():
            yield wait(other, 1)
            yield store(mine, 1, RELEASE)

        return run

    with pytest.raises(Violation, match="nobody can go on"):
        explore({"a": program("x", "y"), "b": program("y", "x")}, {"x": 0, "y": 0}, lambda results: None)


# The ring: wirespeed.core.ring, order for order.


@dataclass(frozen=True)
class Orders:
    """The orders that core/ring.py names; a test weakens one at a time."""

    head: str = ACQUIRE  # of the load of the own head
    tail: str = ACQUIRE  # A1
    exchange: str = BOTH
    publish: str = RELEASE  # R0
    turn: str = ACQUIRE  # A2


def claim(mine, theirs, limit, n, exact, alone, o):
    while True:
        head = yield load(f"{mine}.head", o.head)
        tail = yield load(f"{theirs}.tail", o.tail)
        available = (limit + tail - head) % WRAP
        count = n if n <= available else 0 if exact else available
        if count == 0:
            return 0, head
        if alone:
            yield store(f"{mine}.head", (head + count) % WRAP, RELAXED)
            return count, head
        if (yield compare_exchange(f"{mine}.head", head, (head + count) % WRAP, o.exchange)):
            return count, head


def publish(mine, first, count, alone, o):
    if not alone:
        yield wait(f"{mine}.tail", first, o.turn)
    yield store(f"{mine}.tail", (first + count) % WRAP, o.publish)


def enqueue(items, capacity, slots, exact, alone, o):
    count, first = yield from claim("prod", "cons", capacity, len(items), exact, alone, o)
    for i in range(count):
        yield write(f"slot{(first + i) % slots}", items[i])
    if count:
        yield from publish("prod", first, count, alone, o)
    return items[:count]


def dequeue(n, slots, exact, alone, o):
    count, first = yield from claim("cons", "prod", 0, n, exact, alone, o)
    items = []
    for i in range(count):
        items.append((yield read(f"slot{(first + i) % slots}")))
    if count:
        yield from publish("cons", first, count, alone, o)
    return tuple(items)


def run_ring(producers, consumers, *, capacity=1, slots=2, exact=False, rounds=1, n=1, takes=None, orders=None):
    """All orders of producers and consumers, each with some operations of ``n`` items (or ``takes``, of a consumer)."""
    o = orders or Orders()

    def producer(k):
        def program():
            taken = ()
            for r in range(rounds):
                items = tuple(f"{k}.{r}.{i}" for i in range(n))
                taken += yield from enqueue(items, capacity, slots, exact, producers == 1, o)
            return taken

        return program

    def consumer():
        got = ()
        for _ in range(rounds):
            got += yield from dequeue(takes or n, slots, exact, consumers == 1, o)
        return got

    def check(results):
        sent = [item for r in results[:producers] for item in r]
        got = [item for r in results[producers:] for item in r]
        assert len(set(got)) == len(got), "an item was taken twice"
        assert set(got) <= set(sent), "an item was taken that nobody put"
        assert len(sent) - len(got) <= capacity, "an item was lost"
        for taken in results[producers:]:
            for k in range(producers):
                mine = [item for item in taken if item.startswith(f"{k}.")]
                assert mine == sorted(mine), "items of one producer overtook each other"

    programs = {f"producer {k}": producer(k) for k in range(producers)}
    programs |= {f"consumer {k}": consumer for k in range(consumers)}
    memory = dict.fromkeys(("prod.head", "prod.tail", "cons.head", "cons.tail"), START)
    memory |= {f"slot{i}": None for i in range(slots)}
    return explore(programs, memory, check)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    "producers, consumers, capacity, rounds, n",
    [
        (1, 1, 1, 3, 1),
        (1, 1, 3, 2, 2),
        (2, 1, 1, 1, 1),
        (1, 2, 1, 1, 1),
        (2, 2, 1, 1, 1),
        (2, 2, 3, 1, 2),
        (2, 1, 3, 1, 3),
    ],
)
def test_the_ring_loses_and_doubles_nothing_in_any_order(producers, consumers, capacity, rounds, n, exact):
    slots = 2 if capacity == 1 else 4
    run_ring(producers, consumers, capacity=capacity, slots=slots, exact=exact, rounds=rounds, n=n)


def test_the_ring_goes_round_in_any_order():
    assert run_ring(2, 1, rounds=2) > 1000


@pytest.mark.parametrize(
    "weak, setting",
    [
        ({"tail": RELAXED}, {"producers": 1, "consumers": 1, "rounds": 2}),
        ({"publish": RELAXED}, {"producers": 1, "consumers": 1}),
        ({"tail": RELAXED}, {"producers": 2, "consumers": 2}),
        ({"publish": RELAXED}, {"producers": 2, "consumers": 2}),
        ({"turn": RELAXED}, {"producers": 2, "consumers": 1, "capacity": 3, "slots": 4, "n": 2}),
        ({"turn": RELAXED}, {"producers": 1, "consumers": 2, "capacity": 2, "n": 2, "takes": 1, "rounds": 2}),
        ({"head": RELAXED, "exchange": RELAXED}, {"producers": 2, "consumers": 1, "rounds": 2}),
        ({"exchange": ACQUIRE}, {"producers": 2, "consumers": 1, "rounds": 2}),
    ],
)
def test_each_order_of_the_ring_is_needed(weak, setting):
    with pytest.raises(Violation):
        run_ring(**setting, orders=Orders(**weak))


# The sleep of wirespeed.ports.frame_ring: a reader that finds nothing says so and looks again.


def frame_ring(fenced):
    def writer():
        yield write("frame", "data")
        yield store("position", 1, RELEASE)  # F0
        if fenced:
            yield fence()
        if (yield load("sleep", RELAXED)):
            yield store("signal", 1, RELEASE)
            yield store("sleep", 0, RELEASE)

    def reader():
        if not (yield load("position", ACQUIRE)):  # F1
            yield compare_exchange("sleep", 0, 1)
            if fenced:
                yield fence()
            if not (yield load("position", ACQUIRE)):
                yield wait("signal", 1, ACQUIRE)
        yield wait("position", 1, ACQUIRE)
        return (yield read("frame"))

    def check(results):
        assert results[1] == "data"

    return explore({"writer": writer, "reader": reader}, {"frame": None, "position": 0, "sleep": 0, "signal": 0}, check)


def test_a_sleeper_is_always_woken_by_what_it_did_not_see():
    frame_ring(True)


def test_without_its_fences_a_sleeper_may_sleep_for_ever():
    with pytest.raises(Violation, match="nobody can go on"):
        frame_ring(False)


def spin_lock(release):
    def thread():
        while not (yield compare_exchange("lock", 0, 1)):
            yield wait("lock", 0)
        count = yield read("count")
        yield write("count", count + 1)
        yield store("lock", 0, release)
        return count

    def check(results):
        assert sorted(results) == [0, 1, 2]

    return explore({str(i): thread for i in range(3)}, {"lock": 0, "count": 0}, check)


def test_the_spin_lock_lets_one_thread_in_at_a_time():
    spin_lock(RELEASE)
    with pytest.raises(Violation, match="races"):
        spin_lock(RELAXED)
