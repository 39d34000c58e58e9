"""Every interleaving of what members do beside the ring itself: being frozen, and sleeping; each fence is needed."""

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
    store,
    wait,
    write,
)
from wirespeed.core.member import ACTIVE, IDLE, WAITING

# M0, M1: wirespeed.core.member.begin and end against freeze and the looks at states of a recovery.


def operation(name, fenced=True, leaves=BOTH):
    def run():
        yield compare_exchange(f"state {name}", IDLE, ACTIVE, BOTH)  # M0
        if fenced:
            yield fence()
        if (yield load("frozen", ACQUIRE)):  # M1
            yield store(f"state {name}", IDLE, RELEASE)
            return False
        yield write(f"slots {name}", name)  # all that an operation does to the ring
        yield compare_exchange(f"state {name}", ACTIVE, IDLE, leaves)
        return True

    return run


def recovery(names, fenced=True, looks=ACQUIRE):
    def run():
        yield compare_exchange("frozen", 0, 1, BOTH)
        if fenced:
            yield fence()
        for name in names:
            yield wait(f"state {name}", IDLE, looks)
        for name in names:
            yield write(f"slots {name}", "mended")
        yield store("frozen", 0, RELEASE)

    return run


def memory(names):
    places = {"frozen": 0}
    for name in names:
        places |= {f"state {name}": IDLE, f"slots {name}": 0}
    return places


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_recovery_has_the_ring_to_itself(names):
    seen = set()
    programs = {name: operation(name) for name in names} | {"recovery": recovery(names)}
    explore(programs, memory(names), lambda results: seen.add(tuple(results[:-1])))
    assert {True} < {one for results in seen for one in results}, "some begin before, some find it frozen"


@pytest.mark.parametrize(
    "weak",
    [
        {"member": {"fenced": False}},
        {"recovery": {"fenced": False}},
        {"member": {"leaves": RELAXED}},
        {"recovery": {"looks": RELAXED}},
    ],
    ids=str,
)
def test_without_an_order_a_member_and_a_recovery_are_at_the_ring_at_once(weak):
    programs = {"a": operation("a", **weak.get("member", {})), "recovery": recovery("a", **weak.get("recovery", {}))}
    with pytest.raises(Violation, match="races"):
        explore(programs, memory("a"), lambda results: None)


# N0, N1: wirespeed.core.calls.wait against wake.


def sleeper(fenced=True):
    def run():
        seen = 0
        yield store("asleep", 1, RELAXED)
        if fenced:
            yield fence()
        if (yield load("tail", RELAXED)) == seen:
            yield wait("woken", 1)  # the system call, which looks at the tail once more itself
        return (yield load("tail", ACQUIRE))

    return run


def waker(fenced=True):
    def run():
        yield store("tail", 1, RELEASE)
        if fenced:
            yield fence()
        if (yield load("asleep", RELAXED)):
            yield store("asleep", 0, RELAXED)
            yield store("woken", 1, RELEASE)

    return run


def test_nobody_sleeps_on_after_the_tail_has_moved():
    explore({"sleeper": sleeper(), "waker": waker()}, {"tail": 0, "asleep": 0, "woken": 0}, lambda results: None)


@pytest.mark.parametrize("which", ["sleeper", "waker"])
def test_without_a_fence_a_wake_is_missed(which):
    programs = {"sleeper": sleeper(which != "sleeper"), "waker": waker(which != "waker")}
    with pytest.raises(Violation):
        explore(programs, {"tail": 0, "asleep": 0, "woken": 0}, lambda results: None)


# wirespeed.core.member.finish, by two threads of one member; what one ends, and begins anew, the other may have looked at.


def finish(again=True):
    def run():
        if (yield load("state", ACQUIRE)) != WAITING:
            return None
        first = yield load("first", RELAXED)
        if (yield load("tail", ACQUIRE)) != first:
            return None
        if not (yield compare_exchange("state", WAITING, ACTIVE)):
            return None
        if again:
            first = yield load("first", RELAXED)
            if (yield load("tail", ACQUIRE)) != first:
                yield store("state", WAITING, RELEASE)
                return None
        tail = first + (yield load("count", RELAXED))
        yield store("tail", tail, RELEASE)
        yield compare_exchange("state", ACTIVE, IDLE)
        return tail

    return run


def finish_and_claim_anew():
    """Ends the member's claim and makes another, behind one that somebody else has not published."""
    tail = yield from finish()()
    if tail is None or not (yield compare_exchange("state", IDLE, ACTIVE)):
        return tail
    yield store("first", 2, RELAXED)
    yield store("count", 5, RELAXED)
    yield store("state", WAITING, RELEASE)
    return tail


START = {"state": WAITING, "first": 0, "count": 1, "tail": 0}


def test_a_claim_is_published_in_its_turn_and_as_it_is():
    seen = set()
    explore({"a": finish(), "b": finish_and_claim_anew}, START, lambda results: seen.add(tuple(results)))
    assert seen == {(1, None), (None, 1)}


def test_without_a_second_look_a_claim_is_published_that_has_no_turn():
    seen = set()
    explore({"a": finish(again=False), "b": finish_and_claim_anew}, START, lambda results: seen.add(tuple(results)))
    assert (5, 1) in seen, "the old place with the new count: the tail runs off"
