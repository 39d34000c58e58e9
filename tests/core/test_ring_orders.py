"""Every interleaving of the ring's syncs, with stale reads: each order that it names is enough, and which are needed.

The step machines follow wirespeed.core.ring and wirespeed.core.peek access for access.
"""

from dataclasses import dataclass, field

import pytest

from tests.core.interleave import (
    ACQUIRE,
    BOTH,
    RELAXED,
    RELEASE,
    Violation,
    again,
    compare_exchange,
    explore,
    load,
    read,
    store,
    wait,
    write,
)
from wirespeed.core.ring import HTS, MT, RTS, ST

WRAP = 8  # counters are modulo 8 here, as they are modulo 2^32 there
START = WRAP - 1  # so that they wrap
SYNCS = {"ST": ST, "MT": MT, "RTS": RTS, "HTS": HTS}


@dataclass(frozen=True)
class Orders:
    """The orders in core/ring.py and core/peek.py; a test weakens one at a time."""

    head: str = ACQUIRE  # of the load of the own head: MT's and RTS's begun, HTS's word
    tail: str = ACQUIRE  # A1
    claim: str = BOTH  # of the exchange that moves the head
    publish: str = RELEASE  # R0, a store
    turn: str = ACQUIRE  # MT: A2
    limit: str = ACQUIRE  # RTS: A3, of the load of the own tail as a claim begins
    ended: str = ACQUIRE  # RTS: of the load of the own tail as a claim ends
    end: str = BOTH  # RTS: R0 and R1, the exchange that ends a claim


@dataclass(frozen=True)
class End:
    """One end of a ring, as one thread sees it."""

    name: str
    sync: int
    limit: int  # how far the head may run ahead of the tail in RTS
    at: int = START  # where its counters begin
    seen: list[int] = field(default_factory=lambda: [START])  # ST

    def memory(self):
        if self.sync == ST:
            return {f"{self.name}.tail": self.at}
        if self.sync == MT:
            return {f"{self.name}.tail": self.at, f"{self.name}.begun": (self.at, START)}  # with what was seen
        if self.sync == RTS:
            return {f"{self.name}.word": (self.at, START), f"{self.name}.begun": (self.at, START)}  # claims wrap too
        return {f"{self.name}.word": (self.at, self.at)}

    def load_tail(self, order):
        if self.sync in (ST, MT):
            return (yield load(f"{self.name}.tail", order))
        return (yield load(f"{self.name}.word", order))[0]


def counted(available, n, exact):
    return n if n <= available else 0 if exact else available


def claim(mine, theirs, limit, n, exact, insist, o):
    """(How many, the first one's counter); who insists tries until it is more than none."""
    if mine.sync == ST:
        head = yield from mine.load_tail(RELAXED)
        available = (limit + mine.seen[0] - head) % WRAP
        looks = available < n
        if looks:
            mine.seen[0] = yield from theirs.load_tail(o.tail)
            available = (limit + mine.seen[0] - head) % WRAP
        count = counted(available, n, exact)
        if insist and not count:
            yield again(1 + looks)
        return count, head
    loads = 2
    if mine.sync == MT:
        place = f"{mine.name}.begun"
        old = head, seen = yield load(place, o.head)
        available = (limit + seen - head) % WRAP
        if available < n:
            seen = yield from theirs.load_tail(o.tail)
            available = (limit + seen - head) % WRAP
        else:
            loads = 1
    elif mine.sync == RTS:
        place, loads = f"{mine.name}.begun", 3
        old = head, claims = yield load(place, o.head)
        if (head - (yield from mine.load_tail(o.limit))) % WRAP > mine.limit:
            yield again(2)
        available = (limit + (yield from theirs.load_tail(o.tail)) - head) % WRAP
    else:
        place = f"{mine.name}.word"
        old = tail, head = yield wait(place, lambda word: word[0] == word[1], o.head)
        available = (limit + (yield from theirs.load_tail(o.tail)) - head) % WRAP
    count = counted(available, n, exact)
    if not count:
        if insist:
            yield again(loads)
        return 0, head
    end = (head + count) % WRAP
    new = (end, seen) if mine.sync == MT else (end, (claims + 1) % WRAP) if mine.sync == RTS else (tail, end)
    if not (yield compare_exchange(place, old, new, o.claim)):
        yield again(loads + 1)
    return count, head


def publish(mine, first, count, o):
    end = (first + count) % WRAP
    if mine.sync == RTS:
        word = tail, ended = yield load(f"{mine.name}.word", o.ended)
        position, claims = yield load(f"{mine.name}.begun", RELAXED)
        ended = (ended + 1) % WRAP
        new = (position if ended == claims else tail, ended)
        if not (yield compare_exchange(f"{mine.name}.word", word, new, o.end)):
            yield again(3)
    elif mine.sync == HTS:
        yield store(f"{mine.name}.word", (end, end), o.publish)
    else:
        if mine.sync == MT:
            yield wait(f"{mine.name}.tail", first, o.turn)
        yield store(f"{mine.name}.tail", end, o.publish)


@dataclass(frozen=True)
class Run:
    """Some producers and consumers at one ring, and what each does; who insists goes on until all has gone through.

    ``keeps`` is for peek: how many a finish keeps, in each round; the rest of what was claimed is given back.
    """

    prod: int = MT
    cons: int = MT
    producers: int = 1
    consumers: int = 1
    capacity: int = 1
    n: int = 1  # items of a claim
    takes: int = 0  # of a consumer's claim, if that is another number
    rounds: int = 1
    exact: bool = False
    insist: bool = False
    limit: int = WRAP
    prod_keeps: tuple[int, ...] = ()
    cons_keeps: tuple[int, ...] = ()

    @property
    def slots(self):
        return 1 << self.capacity.bit_length()

    def ends(self):
        return End("prod", self.prod, self.limit), End("cons", self.cons, self.limit)

    def producer(self, k, o):
        def program():
            mine, theirs = self.ends()
            sent = ()
            for r in range(self.rounds):
                count, first = yield from claim(mine, theirs, self.capacity, self.n, self.exact, self.insist, o)
                items = tuple(f"{k}.{r}.{i}" for i in range(count))
                for i, item in enumerate(items):
                    yield write(f"slot{(first + i) % self.slots}", item)
                kept = min(count, self.prod_keeps[r]) if self.prod_keeps else count
                if count:
                    yield from publish(mine, first, kept, o)
                sent += items[:kept]
            return sent

        return program

    def consumer(self, o):
        def program():
            theirs, mine = self.ends()
            got = ()
            rounds = self.rounds * self.producers // self.consumers if self.insist else self.rounds
            for r in range(rounds):
                count, first = yield from claim(mine, theirs, 0, self.takes or self.n, self.exact, self.insist, o)
                items = ()
                for i in range(count):
                    items += ((yield read(f"slot{(first + i) % self.slots}")),)
                kept = min(count, self.cons_keeps[r]) if self.cons_keeps else count
                if count:
                    yield from publish(mine, first, kept, o)
                got += items[:kept]
            return got

        return program

    def check(self, results):
        sent, taken = results[: self.producers], results[self.producers :]
        got = [item for r in taken for item in r]
        assert len(set(got)) == len(got), "an item was taken twice"
        assert set(got) <= {item for r in sent for item in r}, "an item was taken that nobody put"
        for k, mine in enumerate(sent):
            passed = {item for item in got if item.startswith(f"{k}.")}
            assert passed == set(mine[: len(passed)]), "an item was lost"
            for r in taken:
                order = [item for item in r if item.startswith(f"{k}.")]
                assert order == sorted(order), "items of one producer overtook each other"
        left = sum(map(len, sent)) - len(got)
        assert left <= self.capacity, "there are more items than the ring has room for"
        assert not left or not self.insist, "items were left behind"

    def explore(self, **weak):
        o = Orders(**weak)
        programs = {f"producer {k}": self.producer(k, o) for k in range(self.producers)}
        programs |= {f"consumer {k}": self.consumer(o) for k in range(self.consumers)}
        prod, cons = self.ends()
        slots = {f"slot{i}": None for i in range(self.slots)}
        return explore(programs, prod.memory() | cons.memory() | slots, self.check)


def explore_workers(sync, items):
    """Two threads that take an item out of a full ring and put it back.

    In RTS they insist: the room shows when the other one is done as well.
    """
    o = Orders()
    slots = 1 << items.bit_length()

    def worker():
        cons, prod = End("cons", sync, WRAP), End("prod", sync, WRAP, (START + items) % WRAP)
        count, first = yield from claim(cons, prod, 0, 1, True, False, o)
        if not count:
            return "nothing"
        item = yield read(f"slot{first % slots}")
        yield from publish(cons, first, 1, o)
        count, first = yield from claim(prod, cons, items, 1, True, sync == RTS, o)
        assert count, "there is no room for what was taken out"
        yield write(f"slot{first % slots}", item)
        yield from publish(prod, first, 1, o)
        return item

    def check(results):
        assert results != ["nothing", "nothing"], "a full ring gave nothing"
        assert None not in results, "an item was taken that nobody put"
        assert items == 1 or results[0] != results[1], "an item was taken twice"

    memory = End("cons", sync, WRAP).memory() | End("prod", sync, WRAP, (START + items) % WRAP).memory()
    memory |= {f"slot{(START + i) % slots}": str(i) if i < items else None for i in range(slots)}
    return explore({"worker 0": worker, "worker 1": worker}, memory, check)


def threads(sync):
    return 1 if sync == ST else 2


def both(prod, cons, **more):
    """As many threads at each end as its sync allows, up to two."""
    return Run(prod, cons, threads(prod), threads(cons), **more)


def producing(sync, **more):
    return Run(sync, ST, producers=threads(sync), **{"rounds": 2} | more)


def consuming(sync, **more):
    return Run(ST, sync, consumers=threads(sync), **{"rounds": 2} | more)


def in_flight(sync):
    """Three claims under way at once at one end."""
    return Run(sync, ST, producers=3, capacity=3, takes=3)


every_pair = pytest.mark.parametrize("cons", SYNCS.values(), ids=SYNCS)
every_sync = pytest.mark.parametrize("sync", SYNCS.values(), ids=SYNCS)


@every_pair
@pytest.mark.parametrize("prod", SYNCS.values(), ids=SYNCS)
@pytest.mark.parametrize("exact", [False, True], ids=["burst", "bulk"])
def test_no_order_of_events_loses_or_doubles_an_item(prod, cons, exact):
    both(prod, cons, exact=exact).explore()
    Run(prod, cons, rounds=2, n=2, capacity=3, exact=exact).explore()


@every_pair
@pytest.mark.parametrize("prod", SYNCS.values(), ids=SYNCS)
def test_all_that_is_put_arrives_when_both_ends_insist(prod, cons):
    both(prod, cons, rounds=threads(cons) if prod == ST else 1, insist=True).explore()
    Run(prod, cons, rounds=3, insist=True).explore()


@pytest.mark.parametrize("sync", [MT, RTS, HTS], ids=["MT", "RTS", "HTS"])
def test_three_claims_are_under_way_at_once_in_any_order(sync):
    in_flight(sync).explore()


@every_sync
def test_an_end_goes_round_in_any_order(sync):
    producing(sync).explore()
    consuming(sync).explore()
    producing(sync, n=2, capacity=3, limit=1).explore()
    consuming(sync, n=2, takes=1, capacity=2).explore()


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("end", [producing, consuming])
def test_a_limit_of_rts_holds_nobody_up_for_ever(end, limit):
    end(RTS, limit=limit, insist=True).explore()
    end(RTS, limit=limit, n=2, capacity=3).explore()


@pytest.mark.parametrize("sync", [ST, HTS], ids=["ST", "HTS"])
@pytest.mark.parametrize("keeps", [(0, 1), (1, 0), (1, 2)])
def test_what_is_given_back_is_claimed_again_in_any_order(sync, keeps):
    more = {"n": max(keeps), "capacity": 2 * max(keeps) - 1}
    producing(sync, prod_keeps=keeps, **more).explore()
    consuming(sync, cons_keeps=keeps, **more).explore()
    Run(sync, sync, producers=threads(sync), rounds=2, prod_keeps=keeps, cons_keeps=keeps, **more).explore()


@pytest.mark.parametrize("items", [1, 2, 3])
@pytest.mark.parametrize("sync", [MT, RTS, HTS], ids=["MT", "RTS", "HTS"])
def test_who_takes_an_item_out_of_a_full_ring_finds_room_for_it(sync, items):
    explore_workers(sync, items)


@pytest.mark.parametrize(
    "weak, run",
    [
        ({"tail": RELAXED}, producing(ST)),
        ({"publish": RELAXED}, producing(ST)),
        ({"tail": RELAXED}, producing(MT)),
        ({"publish": RELAXED}, producing(MT)),
        ({"turn": RELAXED}, producing(MT, n=2, capacity=3)),
        ({"turn": RELAXED}, consuming(MT, n=3, takes=1, capacity=3)),
        ({"head": RELAXED}, producing(MT)),
        ({"head": RELAXED}, consuming(MT)),
        ({"claim": ACQUIRE}, producing(MT)),
        ({"claim": ACQUIRE}, consuming(MT)),
        ({"tail": RELAXED}, producing(RTS)),
        ({"end": ACQUIRE}, producing(RTS)),
        ({"end": ACQUIRE}, consuming(RTS, rounds=3)),
        ({"ended": RELAXED}, in_flight(RTS)),
        ({"head": RELAXED}, producing(RTS)),
        ({"head": RELAXED}, consuming(RTS)),
        ({"claim": ACQUIRE}, producing(RTS)),
        ({"claim": ACQUIRE}, consuming(RTS)),
        ({"tail": RELAXED}, producing(HTS)),
        ({"publish": RELAXED}, producing(HTS)),
        ({"head": RELAXED}, producing(HTS)),
        ({"head": RELAXED}, consuming(HTS)),
        ({"claim": RELEASE}, producing(HTS, prod_keeps=(0, 1))),  # A4
        ({"publish": RELAXED}, producing(HTS, prod_keeps=(0, 1))),
        ({"publish": RELAXED}, consuming(HTS, cons_keeps=(0, 1))),
    ],
)
def test_each_order_is_needed(weak, run):
    with pytest.raises(Violation):
        run.explore(**weak)


@pytest.mark.parametrize(
    "weak, runs",
    [
        # What the exchange replaces was acquired by the load before it, and no value comes back to a head or a word.
        ({"claim": RELEASE}, [producing(MT), consuming(MT), producing(RTS), consuming(RTS)]),
        # Who may claim has acquired the word of the one before, whose view shows where the other end was.
        ({"claim": RELAXED}, [producing(HTS), consuming(HTS)]),
        # The word that gives back is released, and so is what is shown: only taking it over is needed (A4).
        ({"claim": ACQUIRE}, [producing(HTS, prod_keeps=(0, 1)), consuming(HTS, cons_keeps=(0, 1))]),
        # It only says how far the others are, and the load with which the claim ends acquires.
        ({"limit": RELAXED}, [producing(RTS, n=2, capacity=3, limit=1), consuming(RTS)]),
        ({"end": RELEASE}, [producing(RTS, n=2, capacity=3, limit=1), consuming(RTS)]),
    ],
)
def test_some_orders_are_stronger_than_these_programs_need(weak, runs):
    for run in runs:
        run.explore(**weak)
