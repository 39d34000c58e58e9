"""Every interleaving of workers with a change of the rules, stale reads included: what a burst reads, when memory is reused.

The step machines follow wirespeed.switch.publish, stage (``begin`` and ``end``), cache (``concerns``) and path (``fold``,
``collect``) access for access.  That a store is not moved before earlier loads holds for every machine here, so the
orders of ``passes`` at the end of a burst, and of the look at it, have no test.  A fence of acquire or release stands for
itself as a full one.
"""

from dataclasses import dataclass, fields

import pytest

from tests.core.interleave import ACQUIRE, RELAXED, RELEASE, Violation, explore, fence, load, store, wait

NEW, OLD, GIVEN_AWAY = "new", "old", "given away"


@dataclass(frozen=True)
class Orders:
    """What orders a burst against the control path; a test weakens one at a time."""

    entering: bool = True  # the fence between ``passes`` and the reads behind it, in begin
    published: bool = True  # the fence between ``version`` and the look at ``passes``, in publish
    version: str = RELEASE  # V1
    seen: str = ACQUIRE  # V2


def _fence(wanted):
    if wanted:
        yield fence()


def worker(o, bursts):
    """So many bursts; in each, what it found where the rule of its version lies: (version, content) pairs."""

    def program():
        found, passes = [], 0
        for _ in range(bursts):
            passes += 1
            yield store("passes", passes, RELEASE)
            yield from _fence(o.entering)
            version = yield load("version", o.seen)
            yield store("worker's version", version, RELAXED)
            # A rule of version 1 is in the old place, one of version 2 in the new one.
            content = yield load("old place" if version == 1 else "new place", RELAXED)
            found.append((version, content))
            passes += 1
            yield store("passes", passes, RELEASE)
        return tuple(found)

    return program


def control(o):
    """Put a rule in the place of another, and use the memory of the old one again once nobody can be in it."""

    def program():
        yield store("new place", NEW, RELAXED)
        yield store("version", 2, o.version)
        yield from _fence(o.published)
        version = yield load("worker's version", ACQUIRE)
        passes = yield load("passes", ACQUIRE)
        safe = min(2, version) if passes % 2 else 2
        if safe >= 2:
            yield store("old place", GIVEN_AWAY, RELAXED)
        return safe

    return program


MEMORY = {"version": 1, "passes": 0, "worker's version": 0, "old place": OLD, "new place": "nothing"}


def right(returned):
    for version, content in returned[0]:
        assert content == (OLD if version == 1 else NEW)


def run(o, bursts=2, check=right):
    return explore({"worker": worker(o, bursts), "control": control(o)}, MEMORY, check)


@pytest.mark.parametrize("bursts", [1, 2, 3])
def test_no_burst_reads_what_was_given_back_or_is_not_yet_written(bursts):
    run(Orders(), bursts)


def test_memory_is_given_back_in_some_orders_and_kept_in_others():
    seen = set()
    run(Orders(), 2, lambda returned: seen.add(returned[1]))
    assert seen == {0, 1, 2}


WEAK = [Orders(entering=False), Orders(published=False), Orders(version=RELAXED, published=False)]


def _names(o):
    return ",".join(f.name for f in fields(o) if getattr(o, f.name) != f.default)


@pytest.mark.parametrize("weak", [*WEAK, Orders(seen=RELAXED, entering=False)], ids=_names)
def test_without_one_of_its_orders_a_burst_may_read_what_is_not_its_own(weak):
    with pytest.raises(Violation, match="returned"):
        run(weak, 3)


def test_a_worker_that_begins_after_the_call_has_returned_sees_the_change():
    """The packet was pushed behind the change: its burst begins behind it."""

    def pushing():
        yield from control(Orders())()
        yield store("packet", 1, RELEASE)

    def polling():
        yield wait("packet", 1, ACQUIRE)
        return (yield from worker(Orders(), 1)())

    def check(returned):
        assert returned[0] == ((2, NEW),)

    explore({"worker": polling, "control": pushing}, MEMORY | {"packet": 0}, check)


# The log: an entry of it is written over while somebody reads it.


@dataclass(frozen=True)
class LogOrders:
    barred: bool = True  # whether the entry says that it is none before it is written over
    between: bool = True  # the fence behind that
    whole: str = RELEASE  # V3
    first: str = ACQUIRE  # V4
    fence: bool = True  # between what was read and the second look
    twice: bool = True  # whether there is a second look


def write_over(o):
    """The entry of version 1 becomes that of another one."""

    def program():
        if o.barred:
            yield store("version", -1, RELEASE)
        yield from _fence(o.between)
        yield store("mask", "theirs", RELAXED)
        yield store("value", "theirs", RELAXED)
        yield store("version", 2, o.whole)

    return program


def consult(o, version):
    """What the log says of a version: None when it cannot tell."""

    def program():
        if (yield load("version", o.first)) != version:
            return None
        mask = yield load("mask", RELAXED)
        value = yield load("value", RELAXED)
        yield from _fence(o.fence)
        if o.twice and (yield load("version", RELAXED)) != version:
            return None
        return mask, value

    return program


def said(o, version):
    results = set()
    explore(
        {"control": write_over(o), "worker": consult(o, version)},
        {"version": 1, "mask": "ours", "value": "ours"},
        lambda returned: results.add(returned[1]),
    )
    return results


def test_of_a_version_the_log_says_all_or_nothing():
    assert said(LogOrders(), 1) == {None, ("ours", "ours")}
    assert said(LogOrders(), 2) == {None, ("theirs", "theirs")}


@pytest.mark.parametrize(
    ("weak", "version"),
    [
        (LogOrders(barred=False), 1), (LogOrders(between=False), 1), (LogOrders(whole=RELAXED), 2),
        (LogOrders(first=RELAXED), 2), (LogOrders(fence=False), 1), (LogOrders(twice=False), 1),
    ],
    ids=lambda given: _names(given) if isinstance(given, LogOrders) else str(given),
)  # fmt: skip
def test_without_one_of_its_orders_the_log_may_say_what_is_of_two_versions(weak, version):
    mine = "ours" if version == 1 else "theirs"
    assert said(weak, version) - {None, (mine, mine)}


# Counts: a path's are folded into the sums while somebody adds both up.


@dataclass(frozen=True)
class FoldOrders:
    begun: bool = True  # the fence behind the first store of ``folds``
    ended: str = RELEASE  # V5
    first: str = ACQUIRE  # V6
    fence: bool = True  # before the second look
    twice: bool = True


def fold(o):
    def program():
        yield store("folds", 1, RELEASE)
        yield from _fence(o.begun)
        yield store("sum", 5, RELAXED)
        yield store("path", 0, RELAXED)
        yield store("folds", 2, o.ended)

    return program


def collect(o):
    """The sum and the path's count; None: again."""

    def program():
        before = yield load("folds", o.first)
        if before % 2:
            return None
        total = yield load("sum", RELAXED)
        total += yield load("path", RELAXED)
        yield from _fence(o.fence)
        if o.twice and (yield load("folds", RELAXED)) != before:
            return None
        return total

    return program


def collected(o):
    results = set()
    explore(
        {"worker": fold(o), "control": collect(o)},
        {"folds": 0, "sum": 0, "path": 5},
        lambda returned: results.add(returned[1]),
    )
    return results


def test_counts_that_are_collected_while_they_are_folded_are_whole():
    assert collected(FoldOrders()) == {None, 5}


@pytest.mark.parametrize(
    "weak",
    [FoldOrders(begun=False), FoldOrders(ended=RELAXED), FoldOrders(first=RELAXED), FoldOrders(fence=False), FoldOrders(twice=False)],
    ids=_names,
)  # fmt: skip
def test_without_one_of_its_orders_counts_may_be_lost_or_doubled(weak):
    assert collected(weak) - {None, 5}


# A shape: what matters of a flow is published before the rules that need it.


def test_a_burst_knows_all_that_the_rules_of_its_version_look_at():
    def widen():
        yield store("record", "wide", RELAXED)
        yield store("live", "wide", RELEASE)  # a fence, and then a store, which is no less
        yield store("version", 2, RELEASE)

    def burst():
        version = yield load("version", ACQUIRE)
        live = yield load("live", ACQUIRE)
        return version, live, (yield load("record", RELAXED)) if live == "wide" else "narrow"

    def check(returned):
        version, live, record = returned[1]
        assert live == "wide" or version == 1
        assert record == live

    explore({"control": widen, "worker": burst}, {"version": 1, "live": "narrow", "record": "narrow"}, check)
