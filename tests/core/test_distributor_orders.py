"""Every interleaving of the distributor's handshake, with stale reads: which orders and rules it needs, each shown.

The machines are those of tests.core.distributor_machines.  A case is a small program of a distributor and of workers;
it must hold in all orders of events, and for each order or rule that is named beside it, not hold without that.
"""

from itertools import groupby

import pytest

from tests.core.distributor_machines import (
    Cursor,
    Rules,
    Shop,
    begin,
    explore,
    futex_wait,
    futex_wake,
    membarrier,
    turn,
    update,
)
from tests.core.interleave import ACQUIRE, RELAXED, RELEASE, Violation, fence, load, store, wait


def bursts(n, tags="a", words=1):
    """``n`` bursts of so many packets each, whose tags take turns."""
    return tuple(tuple(f"{tags[i % len(tags)]}{i}{'xy'[word]}" for word in range(words)) for i in range(n))


def of(tag, packets):
    return [packet for packet in packets if packet[0] == tag]


def served(shop, workers, mortal=(), more=None):
    """All orders of events: every packet is worked on and comes back once, and in order with the others of its tag.

    ``mortal`` workers may die at any step, and what they held then is worked on once more, but nothing else is.
    """
    sent = sum(shop.bursts, ())
    tags = sorted({packet[0] for packet in sent})

    def check(results):
        (returned, lost, flows), *rest = results
        got = [one for one in rest if isinstance(one, tuple)]
        died = [one for one in rest if isinstance(one, Cursor)]
        assert "lost its desk" not in sum(got, ()), "the desk of a living worker was given away"
        assert not lost and sorted(returned) == sorted(sent), "a packet came back twice, or not at all"
        again = [packet for packet in sent if flows.count(packet) > 1]
        assert len(again) <= len(mortal), "a packet was worked on twice"
        assert not set(again) & set(sum((one.got for one in died), ())), "a line that was given back was done again"
        for tag in tags:
            assert of(tag, returned) == of(tag, sent), "returned out of order"
            assert [packet for packet, _ in groupby(of(tag, flows))] == of(tag, sent), "worked on out of order"

    return explore({"distributor": shop.distributor} | workers | (more or {}), shop.memory(), check, mortal)


def one_worker(k, slots, n, words=2, returns=None, **weak):
    shop = Shop(Rules(**weak), bursts(n, words=words), k=k, slots=slots, steady=True)
    return served(shop, {"A": shop.worker("A", 0, hired=True)})


def two_workers(k, slots, n, tags="a", **weak):
    shop = Shop(Rules(**weak), bursts(n, tags), 2, (True, True), k=k, slots=slots, steady=True)
    return served(shop, {name: shop.worker(name, w, hired=True) for w, name in enumerate("AB")})


def leaving(k, took, tags="a", rings=0, room=99, n=None, **weak):
    """A leaves when it has taken some lines; somebody else may ring the bell meanwhile."""
    shop = Shop(Rules(**weak), bursts(n or k + 2, tags), 2, (True, True), k=k, slots=k + 1, first=0, room=room)
    workers = {"A": shop.worker("A", 0, (took,), hired=True), "B": shop.worker("B", 1, hired=True)}
    return served(shop, workers, more={"ringer": shop.ring} if rings else None)


def coming_back(k, n, stints, **weak):
    """A worker leaves and comes back at once, or gives up coming back, and then comes back."""
    shop = Shop(Rules(**weak), bursts(n), k=k, slots=k + 1)
    return served(shop, {"A": shop.worker("A", 0, stints, hired=True)})


def one_desk(n, first, hired=False, mortal=(), **weak):
    """A and C want the same desk; A has it for so many lines, or may die."""
    shop = Shop(Rules(**weak), bursts(n), hired=(hired,), names=("A", "C"))
    return served(shop, {"A": shop.worker("A", 0, first, hired=hired), "C": shop.worker("C", 0)}, mortal)


def dying(k, n, room=99, hired=True, tags="a", **weak):
    """A may die, B goes on."""
    shop = Shop(
        Rules(**weak), bursts(n, tags), 2, (hired, True), k=k, slots=k + 1, first=0, room=room, names=("A", "B")
    )
    return served(shop, {"A": shop.worker("A", 0, hired=hired), "B": shop.worker("B", 1, hired=True)}, ("A",))


def fenced(k, n, workers, hangs=False, **weak):
    """A is fenced at some moment, or never.  Alone, it lets go and comes back; beside B, it knows when it was fenced.

    If it may hang, it does so at any step and for ever; nobody waits for it, once it is fenced.

    What A still has in its hand may be worked on beside B's: no packet is on two workers, but a tag may be then.
    """
    shop = Shop(Rules(**weak), bursts(n), workers, (True,) * workers, k=k, slots=k + 1, first=0, fences=0, flows=False)
    alone = workers == 1
    programs = {"A": shop.worker("A", 0, (None, None) if alone else (None,), hired=True, listens=not alone)}
    if not alone:
        programs["B"] = shop.worker("B", 1, hired=True)

    def user():
        yield store("order", 1, RELAXED)

    def check(results):
        (returned, lost, _), *got, _ = results
        got = [one.got if isinstance(one, Cursor) else one for one in got]
        sent, taken = sum(shop.bursts, ()), sum(got, ())
        assert "taken in spite of the fence" not in taken, "taken in spite of the fence"
        assert sorted(returned + lost) == sorted(sent), "a packet came back and was lost, or neither"
        assert len(set(taken)) == len(taken), "two workers had a packet"
        assert set(taken) - set(lost) == set(returned), "a packet was returned by nobody"
        assert list(returned) == sorted(returned) and all(list(one) == sorted(one) for one in got), "out of order"

    programs = {"distributor": shop.distributor} | programs | {"user": user}
    return explore(programs, shop.memory() | {"death A": False}, check, ("A",) if hangs else ())


# Name: the program, what it is told, and what of Rules must be found when it is broken.
RACES = {"d0": RELAXED, "d1": RELAXED, "w0": RELAXED, "w1": RELAXED}
WISHES = ("collects_again", "gives_back_first", "to_the_front")
BELL = {"ring": RELAXED, "hear": RELAXED, "ring_last": False}
CASES = {
    "one worker, one line under way": (one_worker, (1, 3, 4), RACES | {"window": False}),
    "one worker, two lines": (one_worker, (2, 3, 4), RACES | {"window": False, "numbers": False}),
    "two workers and a tag": (two_workers, (1, 1, 3), RACES | {"live_until_back": False}),
    "two workers and a tag that waits": (two_workers, (2, 3, 4), RACES),
    "two workers and two tags": (two_workers, (1, 1, 4, "ab"), RACES | {"live_until_back": False}),
    "two workers and two tags in other orders": (two_workers, (2, 2, 4, "aab"), {}),
    "leaving before the first line": (leaving, (1, 0), {"to_the_front": False} | BELL),
    "leaving after a line": (leaving, (1, 1), dict.fromkeys(WISHES, False) | BELL),
    "leaving while two lines are under way": (leaving, (2, 1), dict.fromkeys(WISHES, False) | BELL),
    "leaving after two lines": (leaving, (2, 2), dict.fromkeys(WISHES, False) | BELL),
    "leaving with lines of two tags": (leaving, (2, 1, "ab"), dict.fromkeys(WISHES, False)),
    "leaving while others ring": (leaving, (1, 1, "a", 1), {"w2": RELAXED, "d2": RELAXED, "bell_first": False}),
    "leaving while others ring, two lines": (leaving, (2, 2, "a", 1), {"w2": RELAXED, "d2": RELAXED}),
    "leaving while there is no room for returns": (leaving, (2, 2, "a", 0, 1), {"waits_for_room": False}),
    "coming back": (
        coming_back,
        (1, 3, (1, None)),
        dict.fromkeys(("goes_on", "knows_epoch", "join_takes_back", "start_granted", "bell_first"), False) | BELL,
    ),
    "coming back, two lines": (
        coming_back,
        (2, 4, (1, None)),
        dict.fromkeys((*WISHES, "goes_on", "knows_epoch", "join_takes_back", "start_granted"), False),
    ),
    "coming back twice": (coming_back, (1, 3, (0, 1, None)), {"w2": RELAXED, "d2": RELAXED}),
    "giving up to come back": (coming_back, (1, 3, (1, -1, None)), {"epoch_of_wish": False}),
    "a desk changes hands": (one_desk, (2, (1,)), {"own": RELAXED, "let_go": RELAXED}),
    "a desk is given up": (one_desk, (1, (-1,)), {"epoch_of_wish": False}),
    "a desk of a dead worker": (
        one_desk,
        (1, (None,), False, ("A",)),
        dict.fromkeys(("epoch_of_wish", "reads_wish_first", "one_word", "collects_again"), False)
        | {"own": RELAXED, "let_go": RELAXED},
    ),
    "a desk of a worker that left and ended": (
        one_desk,
        (1, (0,), True, ("A",)),
        dict.fromkeys(("exchanges_owner", "one_word", "reads_wish_first"), False),
    ),
    "death": (dying, (1, 3), dict.fromkeys(("collects_again", "to_the_front"), False) | RACES),
    "death, two lines": (dying, (2, 3), {"collects_again": False} | RACES),
    "death while there is no room for returns": (dying, (2, 3, 1), {"waits_for_room": False}),
    "death of one that joins": (dying, (1, 3, 99, False, "abc"), {"ends_wish": False}),
    "fenced, and back": (
        fenced,
        (1, 2, 1),
        dict.fromkeys(("looks_at_grant", "counts_sent_lost", "keeps_desk", "goes_on"), False),
    ),
    "fenced with two lines, and back": (
        fenced,
        (2, 3, 1),
        dict.fromkeys(("looks_at_grant", "counts_sent_lost", "keeps_desk", "goes_on"), False),
    ),
    "fenced beside another": (fenced, (1, 3, 2), dict.fromkeys(("counts_sent_lost", "keeps_desk"), False)),
    "fenced because it hangs": (fenced, (1, 3, 2, True), dict.fromkeys(("counts_sent_lost", "keeps_desk"), False)),
}


@pytest.mark.parametrize("case", CASES)
def test_in_every_order_of_events_a_packet_is_where_it_must_be(case):
    program, told, _ = CASES[case]
    assert program(*told) > 100


@pytest.mark.parametrize("case, rule, broken", [(c, rule, to) for c in CASES for rule, to in CASES[c][2].items()])
def test_each_order_and_rule_of_the_handshake_is_needed(case, rule, broken):
    program, told, _ = CASES[case]
    with pytest.raises(Violation):
        program(*told, **{rule: broken})


def test_a_fenced_worker_takes_a_line_if_it_neither_looks_at_the_grant_nor_finds_other_numbers():
    with pytest.raises(Violation, match="in spite"):
        fenced(1, 3, 2, looks_at_grant=False, spoils=False)


@pytest.mark.parametrize(
    "weak, cases",
    [
        # The number of the first line is in the grant itself, and the lines that follow have orders of their own.
        (
            {"d3": RELAXED},
            ["coming back, two lines", "giving up to come back", "a desk changes hands", "fenced, and back"],
        ),
        (
            {"w3": RELAXED},
            ["coming back, two lines", "giving up to come back", "a desk changes hands", "fenced, and back"],
        ),
        # The bell releases and acquires as well, where nobody else rings it.
        ({"w2": RELAXED}, ["leaving after two lines"]),
        ({"d2": RELAXED}, ["leaving after two lines"]),
        # Who looks at the grant needs no other numbers; they are for one that sleeps.
        ({"spoils": False}, ["fenced, and back", "fenced beside another"]),
    ],
)
def test_some_orders_and_rules_are_more_than_these_programs_need(weak, cases):
    for case in cases:
        program, told, _ = CASES[case]
        program(*told, **weak)


# S0, S1: a worker sleeps on the control word of its next line.  The distributor has no barrier behind D0.


def sleeper(barrier=membarrier, looks_again=True, line_first=True):
    def run():
        yield begin(None)
        grant = yield load("grant", ACQUIRE)
        line = yield load("line", ACQUIRE)
        if line == "sent" or grant != "active":
            yield store("over", 1, RELEASE)
            return line, grant
        yield store("asleep", 1, RELAXED)  # S0
        if barrier:
            yield barrier()
        if looks_again:
            if not line_first:
                grant = yield load("grant", ACQUIRE)
            line = yield load("line", ACQUIRE)  # S1
            if line_first:  # It sleeps only while the line is as it was before it saw that it may go on.
                grant = yield load("grant", ACQUIRE)
        if line != "sent" and grant == "active":
            yield from futex_wait("line", line)
        yield store("asleep", 0, RELAXED)
        yield turn(None)

    return run


def waker(*stores, barrier=None):
    def run():
        for place, value in stores:
            yield store(place, value, RELEASE)
        if barrier:
            yield barrier()
        if (yield load("asleep", RELAXED)):
            yield from futex_wake()
        yield wait("over", 1)  # a barrier reaches threads that go on

    return run


def sleep(one, other):
    memory = {"line": "old", "grant": "active", "asleep": 0, "over": 0, "bucket": "nobody"}
    return explore({"sleeper": one, "waker": other}, memory, lambda results: None)


SEND = (("line", "sent"),)
CLOSE = (("grant", "closed"), ("line", "spoilt"))


@pytest.mark.parametrize(
    "one, other",
    [
        (sleeper(), waker(*SEND)),
        (sleeper(fence), waker(*SEND, barrier=fence)),
        (sleeper(), waker(*CLOSE)),
        (sleeper(looks_again=False), waker(*SEND)),  # for the system call does
    ],
    ids=["a barrier on all threads", "a fence on both sides", "a change of the grant", "one look"],
)
def test_no_wake_is_lost(one, other):
    assert sleep(one, other) > 50


@pytest.mark.parametrize(
    "one, other",
    [
        (sleeper(fence), waker(*SEND)),
        (sleeper(None), waker(*SEND, barrier=fence)),
        (sleeper(), waker(CLOSE[0])),
        (sleeper(), waker(*reversed(CLOSE))),
        (sleeper(looks_again=False), waker(*CLOSE)),
        (sleeper(line_first=False), waker(*CLOSE)),
    ],
    ids=[
        "a fence of the sleeper alone",
        "none of the sleeper",
        "no change of the line",
        "the line changed before the grant",
        "one look",
        "a look at the grant before the line",
    ],
)
def test_without_them_a_wake_is_lost_and_only_the_time_limit_helps(one, other):
    with pytest.raises(Violation, match="nobody can go on"):
        sleep(one, other)


# The distributor sleeps on the bell, which whoever gives a line back rings only when it is asleep.


def sleeping_distributor(workers, bell="before", order=ACQUIRE, barrier=membarrier):
    """``bell`` says when it is read: before it is known that the distributor sleeps, after that, or after the looks."""

    def run():
        seen = yield begin(())

        def look():
            new = ()
            for w in range(workers):
                if w not in seen and (yield load(f"back{w}", ACQUIRE)):
                    new += (w,)
            return new

        new = yield from look()
        if not new and len(seen) < workers:
            if bell == "before":
                rung = yield load("bell", order)
            yield store("asleep", 1, RELAXED)  # S0
            yield barrier()
            if bell == "between":
                rung = yield load("bell", order)
            new = yield from look()  # S1
            if bell == "after":
                rung = yield load("bell", order)
            if not new:
                yield from futex_wait("bell", rung)
            yield store("asleep", 0, RELAXED)
        if len(seen) < workers:
            yield turn(tuple(sorted(seen + new)))
        yield store("over", 1, RELEASE)

    return run


def giver(w):
    def run():
        yield store(f"back{w}", 1, RELEASE)  # W0
        if (yield load("asleep", RELAXED)):
            yield store("asleep", 0, RELAXED)
            yield update("bell", lambda n: n + 1)
            yield from futex_wake()
        yield wait("over", 1)

    return run


def sleep_on_the_bell(workers, **weak):
    memory = {"bell": 0, "asleep": 0, "over": 0, "bucket": "nobody"} | {f"back{w}": 0 for w in range(workers)}
    programs = {f"worker {w}": giver(w) for w in range(workers)}
    return explore({"distributor": sleeping_distributor(workers, **weak)} | programs, memory, lambda results: None)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_distributor_does_not_sleep_while_a_line_is_back(workers):
    assert sleep_on_the_bell(workers) > 50


@pytest.mark.parametrize(
    "workers, weak",
    [
        (1, {"bell": "after"}),
        (1, {"bell": "between", "order": RELAXED}),
        (2, {"bell": "between"}),  # One worker finds that another one has cleared ``asleep``, and rung before.
        (1, {"barrier": fence}),
    ],
    ids=["after", "relaxed", "between", "own barrier"],
)
def test_it_does_if_it_reads_the_bell_later_or_its_barrier_is_its_own(workers, weak):
    with pytest.raises(Violation, match="nobody can go on"):
        sleep_on_the_bell(workers, **weak)
