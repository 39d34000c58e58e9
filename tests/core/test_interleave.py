"""Every interleaving of the lock-free algorithms, with stale reads: each order that they name is needed and enough."""

import pytest

from tests.core.interleave import (
    ACQUIRE,
    RELAXED,
    RELEASE,
    Violation,
    again,
    compare_exchange,
    explore,
    fence,
    load,
    read,
    store,
    wait,
    write,
)

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


def test_a_loop_that_begins_again_needs_no_bound():
    def sender():
        yield store("flag", 1, RELEASE)

    def receiver():
        if not (yield load("flag", ACQUIRE)):
            yield again(1)
        return "seen"

    assert outcomes({"flag": 0}, sender, receiver) == {(None, "seen")}


def test_loops_that_wait_for_each_other_are_found():
    def program(mine, other):
        def run():
            if not (yield load(other, ACQUIRE)):
                yield again(1)
            yield store(mine, 1, RELEASE)

        return run

    with pytest.raises(Violation, match="nobody can go on"):
        explore({"a": program("x", "y"), "b": program("y", "x")}, {"x": 0, "y": 0}, lambda results: None)


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
