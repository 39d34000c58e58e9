"""Operations in two halves: against a deque with whole, partial and empty finishes, and between threads."""

import threading
from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.core.plain_ring import EDGES, IN_PLACE, PEEK, PLAIN, SIZES, PlainRing
from wirespeed.core.ring import HTS, ST

SYNCS = {"ST": ST, "HTS": HTS}
syncs = st.sampled_from([*SYNCS.values()])
# How many a step wants, of those that can be had.
amounts = st.sampled_from(
    [lambda n: (n + 1) // 2, lambda n: min(n, 1), lambda n: n, lambda n: n + 1, lambda n: 40, lambda n: 0]
)
every_sync = pytest.mark.parametrize("sync", SYNCS.values(), ids=SYNCS)


class PeekModel(RuleBasedStateMachine):
    """Between a start and its finish at one end, the other end goes on."""

    @initialize(
        bits=st.sampled_from([4, 5, 3, 2, 1]),
        spare=st.integers(0, 8),
        size=st.sampled_from(SIZES),
        prod=syncs,
        cons=syncs,
        start=st.sampled_from(EDGES),
        shift=st.integers(0, 7),
    )
    def begin(self, bits, spare, size, prod, cons, start, shift):
        capacity = max(1, (1 << bits) - 1 - spare)
        self.ring = PlainRing(1 << bits, capacity, size=size, prod=prod, cons=cons, start=start, shift=shift)
        self.model = deque()
        self.serial = 0
        self.reserved = self.looked = 0
        self.in_place = False

    def items(self, n):
        self.serial += n
        return [*range(self.serial - n, self.serial)]

    def fits(self, n, available, exact):
        return (n if n <= available else 0) if exact else min(n, available)

    @precondition(lambda self: not self.reserved)
    @rule(amount=amounts, exact=st.booleans(), in_place=st.booleans())
    def start(self, amount, exact, in_place):
        free = self.ring.capacity - len(self.model)
        n = amount(free)
        self.in_place = in_place
        self.reserved = self.fits(n, free, exact)
        if in_place:
            assert self.ring.places(n, exact) == self.reserved
        else:
            count, left = self.ring.start(n, exact)
            assert count == self.reserved
            assert left <= free - count if self.ring.prod == ST else left == free - count

    @precondition(lambda self: self.reserved)
    @rule(amount=amounts)
    def finish(self, amount):
        k = amount(self.reserved)
        items = self.items(min(k, self.reserved) if self.in_place else k)
        kept = k if k <= self.reserved else 0
        assert (self.ring.commit(items, k) if self.in_place else self.ring.finish(items)) == kept
        self.model.extend(items[:kept])
        self.reserved = 0

    @precondition(lambda self: not self.reserved)
    @rule(amount=amounts, exact=st.booleans())
    def put(self, amount, exact):
        free = self.ring.capacity - len(self.model)
        items = self.items(amount(free))
        count = self.fits(len(items), free, exact)
        assert self.ring.put(items, exact) == count
        self.model.extend(items[:count])

    @precondition(lambda self: not self.looked)
    @rule(amount=amounts, exact=st.booleans(), in_place=st.booleans())
    def look(self, amount, exact, in_place):
        there = len(self.model)
        n = amount(there)
        self.looked = self.fits(n, there, exact)
        expected = [*self.model][: self.looked]
        if in_place:
            assert self.ring.look_in_place(n, exact) == expected
        else:
            items, left = self.ring.look(n, exact)
            assert items == expected
            assert left <= there - self.looked if self.ring.cons == ST else left == there - self.looked

    @precondition(lambda self: self.looked)
    @rule(amount=amounts)
    def drop(self, amount):
        k = amount(self.looked)
        kept = k if k <= self.looked else 0
        assert self.ring.drop(k) == kept
        for _ in range(kept):
            self.model.popleft()
        self.looked = 0

    @precondition(lambda self: not self.looked)
    @rule(amount=amounts, exact=st.booleans())
    def take(self, amount, exact):
        n = amount(len(self.model))
        count = self.fits(n, len(self.model), exact)
        assert self.ring.take(n, exact) == [self.model.popleft() for _ in range(count)]

    @invariant()
    def nothing_half_done_shows(self):
        if hasattr(self, "ring"):
            assert self.ring.used() == len(self.model)

    def teardown(self):
        if hasattr(self, "ring"):
            self.ring.close()


TestPeek = PeekModel.TestCase


@pytest.mark.parametrize("start", EDGES)
@every_sync
def test_a_finish_may_keep_none_a_part_or_all(sync, start):
    one = PlainRing(8, prod=sync, cons=sync, start=start)
    for kept in (0, 2, 5):
        assert one.start(5)[0] == 5
        assert one.finish([*range(kept)]) == kept
        assert one.used() == kept
        for taken in (0, kept // 2, kept - kept // 2):
            before = one.used()
            assert one.look(7)[0] == [*range(kept)][kept - before :]
            assert one.drop(taken) == taken
            assert one.used() == before - taken


@every_sync
def test_a_finish_of_more_than_was_claimed_keeps_nothing(sync):
    one = PlainRing(8, prod=sync, cons=sync)
    assert one.start(3) == (3, 4)
    assert one.finish([1, 2, 3, 4]) == 0
    assert one.put([1, 2, 3]) == 3
    assert one.look(2)[0] == [1, 2]
    assert one.drop(3) == 0
    assert one.take(7, False) == [1, 2, 3]


@every_sync
def test_a_finish_without_a_start_does_nothing(sync):
    one = PlainRing(8, prod=sync, cons=sync, start=5)
    assert one.finish([1]) == one.drop(1) == 0
    assert one.put([1, 2]) == 2
    before = one.counters()
    assert one.finish([3]) == one.drop(1) == one.drop(0) == 0
    assert one.counters() == before


@every_sync
def test_a_second_finish_does_nothing(sync):
    one = PlainRing(8, prod=sync, cons=sync)
    assert one.start(3) == (3, 4)
    assert (one.finish([1, 2]), one.finish([3])) == (2, 0)
    assert one.look(2)[0] == [1, 2]
    assert (one.drop(1), one.drop(1)) == (1, 0)
    assert one.take(7, False) == [2]


@every_sync
def test_a_start_that_gets_nothing_leaves_nothing_to_finish(sync):
    one = PlainRing(4, prod=sync, cons=sync)
    assert one.look(1) == ([], 0)
    assert one.drop(0) == one.drop(1) == 0
    assert one.put([1, 2, 3]) == 3
    assert one.start(1) == one.start(1, True) == (0, 0)
    assert one.finish([4]) == 0
    assert one.take(4, False) == [1, 2, 3]


def test_in_st_a_start_or_a_whole_operation_forgets_the_start_before():
    one = PlainRing(8, prod=ST, cons=ST)
    assert one.start(5) == (5, 2)
    assert one.start(2) == (2, 5)
    assert one.finish([1, 2, 3]) == 0
    assert one.start(5) == (5, 2)
    assert one.put([1]) == 1
    assert one.finish([2]) == 0
    assert one.take(7, False) == [1]


@pytest.mark.parametrize("at, n, run", [(0, 5, 5), (5, 3, 3), (5, 4, 3), (7, 7, 1)])
@every_sync
def test_places_are_one_run_or_two(sync, at, n, run):
    one = PlainRing(8, size=20, prod=sync, cons=sync, start=at)
    assert one.places(n) == n
    first, length, rest = one.runs
    assert (first - rest, length) == (at * 20, run)
    assert one.commit([*range(n)]) == n
    assert one.take(n, way=IN_PLACE) == [*range(n)]


@pytest.mark.parametrize("way", [PLAIN, PEEK, IN_PLACE])
def test_in_hts_a_start_holds_up_every_other_claim_at_its_end_until_it_is_finished(way):
    one = PlainRing(8, prod=HTS, cons=HTS)
    assert one.put([1, 2, 3]) == 3
    assert one.look(2)[0] == [1, 2]
    taken = []
    thread = threading.Thread(target=lambda: taken.extend(one.take(1, way=way)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive() and not taken
    assert one.put([4]) == 1  # the other end goes on
    assert one.drop(1) == 1
    thread.join()
    assert taken == [2]
