"""A state machine: whoever joins, leaves, dies or hangs, and however full things are, the plain model's rules hold.

After each step every item that the distributor holds is looked at, in every line and parked, so not the totals are
compared but which item is where: on which worker, behind which others of its tag.
"""

import random

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.core.distributor.plain_distributor import ADDED, PARKED, STARTS, TAGS, Driven, PlainDistributor, makes
from wirespeed.core.distributor.desk import HOLDING, NOT_YET, NOTHING, TOO_MANY, WAS_FENCED
from wirespeed.core.distributor.process import ALL, NO_PLACE, NO_ROOM, NO_WORKER, RETURNS_FULL

# burst, lines, slots, in which all handshakes and relations of the three are.
SHAPES = [
    (1, 1, 2), (1, 1, 8), (1, 4, 8), (2, 1, 2), (3, 2, 2), (7, 1, 2), (7, 4, 8), (8, 1, 2), (8, 2, 4), (15, 1, 2),
    (15, 4, 4), (16, 2, 2), (31, 1, 4), (31, 16, 16),
]  # fmt: skip
OUT, IN, DEAD = "out", "in", "dead"
COLLIDE = 1  # as a multiplier: all tags come to the same lane
SEEDS = st.integers(0, 1 << 16)
TAG_SETS = [[0], [0, TAGS], [*range(4)], [*range(40)], [k << 16 for k in range(64)]]


class DistributorMachine(RuleBasedStateMachine):
    """Drives a distributor and its workers, some of which hang or die."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        workers=st.integers(1, 5),
        returns=st.sampled_from([0, 32, 32, 64, 4096]),
        park=st.sampled_from([0, 1, 5, 64]),
        start=st.sampled_from(STARTS),
        multiplier=st.sampled_from([COLLIDE, 0x9E3779B97F4A7C15]),
        redo=st.booleans(),
        tags=st.sampled_from(TAG_SETS),
        joined=st.booleans(),
    )
    def begin(self, shape, workers, returns, park, start, multiplier, redo, tags, joined):
        burst, lines, slots = shape
        self.redo, self.tags, self.workers = redo, tags, workers
        self.d = Driven(
            workers, burst=burst, lines=lines, slots=slots, returns=returns, park=park, start=start,
            multiplier=multiplier, redo=redo,
        )  # fmt: skip
        self.model = PlainDistributor(returns > 0)
        self.states = [OUT] * workers
        self.fenced = [False] * workers  # and it has not noticed
        self.owners, self.births = [0] * workers, 0
        self.serial = 0
        if joined:
            for worker in range(workers):
                self.join(worker)
            self.process(0)

    # Helpers.

    def items(self, n, seed):
        tags = random.Random(seed).choices(self.tags, k=n)
        self.serial += n
        return makes(self.serial - n, tags)

    def pick(self, data, which):
        return data.draw(st.sampled_from(which))

    def someone(self, *states):
        return [worker for worker in range(self.workers) if self.states[worker] in states]

    def join(self, worker):
        if not self.owners[worker]:
            self.births += 1
            self.owners[worker] = self.births << 32 | 1000 + self.births
            assert self.d.own(worker, self.owners[worker])
        assert not self.d.own(worker, 77)
        self.states[worker] = IN
        self.fenced[worker] = False
        self.d.join(worker)

    def is_attended(self):
        """Whether every wish was heard."""
        return self.d.record.bell == self.d.memory.desks.record.bell

    def process(self, n, seed=0, patience=0):
        items = self.items(n, seed)
        before = {one.tag: one.worker for one in self.d.held() if not one.back and one.worker != PARKED}
        stays = [int(b.joins) for b in self.d.backlogs]
        taken = self.d.process_patiently(items, patience) if patience else self.d.process(items)
        assert 0 <= taken <= n
        self.model.take(items[:taken])
        note(f"process: {taken} of {n}, reason {int(self.d.record.reason)}")
        after = {one.item: one.worker for one in self.d.held()}
        for item in items[:taken]:
            # Where its flow was it went too, unless that worker has left.
            holder = before.get(item & TAGS, PARKED)
            if holder in self.d.active() and stays[holder] == self.d.backlogs[holder].joins:
                assert after[item] in (holder, PARKED)
            assert after[item] in self.d.active() | {PARKED}
        self.check_reason(items, taken)

    def check_reason(self, items, taken):
        d, record = self.d, self.d.record
        reason, blocked = record.reason, record.blocked
        active = d.active()
        assert record.n_active == len(active)
        if self.is_attended():
            wished = {w for w in range(self.workers) if self.states[w] in (IN, DEAD) and not self.fenced[w]}
            assert active <= wished
            assert {w for w in wished if self.states[w] == IN} <= active
        if taken == len(items):
            assert reason == ALL
            return
        tag = items[taken] & TAGS
        holders = {one.worker for one in d.held() if one.tag == tag and not one.back} - {PARKED}
        if not active:
            assert reason == NO_WORKER
            return
        which = {blocked} if blocked >= 0 else active
        assert reason in (NO_ROOM, RETURNS_FULL, NO_PLACE)
        if reason == NO_PLACE:
            assert record.out_of_place > 0 and not holders
            return
        assert all(d.is_full(worker) for worker in which)
        assert any(d.is_back(worker) for worker in which) == (reason == RETURNS_FULL)
        if reason == RETURNS_FULL:
            assert record.returns_tail - record.returns_head + d.shape.burst > record.returns_mask + 1 or any(
                b.added for b in d.backlogs
            )
        elif blocked >= 0:
            assert holders == {blocked}
            full_park = record.parked_tail - record.parked_head >= d.shape.park
            assert full_park or not d.backlogs[blocked].stalled
        else:
            assert not holders

    # The distributor's rules.

    @rule(n=st.one_of(st.integers(1, 8), st.integers(1, 100)), seed=SEEDS)
    def process_some(self, n, seed):
        self.process(n, seed)

    @rule()
    def look(self):
        self.process(0)

    @rule(n=st.integers(1, 100), seed=SEEDS)
    def process_patiently(self, n, seed):
        self.process(n, seed, patience=2)

    @rule(n=st.one_of(st.integers(0, 40), st.just(4096)))
    def returned(self, n):
        there = self.d.record.returns_tail - self.d.record.returns_head
        items = self.d.returned(n)
        assert len(items) == min(n, there)
        self.model.come(items)

    @precondition(lambda self: self.someone(DEAD))
    @rule(data=st.data())
    def bury(self, data):
        worker = self.pick(data, self.someone(DEAD))
        assert self.d.bury(worker, 99) in (0, -1)
        active = worker in self.d.active()
        code = self.d.bury(worker, self.owners[worker])
        if code == -1:
            assert active and self.d.is_back(worker)
            return
        assert code == 1
        self.model.die(worker, self.redo)
        self.states[worker], self.owners[worker], self.fenced[worker] = OUT, 0, False

    @rule(data=st.data())
    def fence(self, data):
        """Who hangs loses what it was sent; who has left meanwhile loses nothing."""
        worker = self.pick(data, range(self.workers))
        b = self.d.backlogs[worker]
        stays = worker in self.d.active() and self.states[worker] != OUT and self.d.epoch(worker) == b.epoch
        sent, done = int(b.sent), int(b.window.done)
        published = [
            one.item
            for one in self.d.held()
            if stays and one.worker == worker and not one.back and (one.line - done) % 2**32 < (sent - done) % 2**32
        ]
        lost = self.d.fence(worker)
        if lost == -2:
            assert self.d.is_back(worker)
        elif lost == -1:
            assert self.states[worker] == OUT or self.fenced[worker]
            assert worker not in self.d.active()
        else:
            assert lost == len(published)
            self.fenced[worker] = True
            self.model.fence(worker, published)

    # The workers' rules.

    @precondition(lambda self: self.someone(OUT))
    @rule(data=st.data())
    def join_one(self, data):
        self.join(self.pick(data, self.someone(OUT)))

    @precondition(lambda self: self.someone(IN))
    @rule(data=st.data())
    def poll(self, data):
        self.poll_of(self.pick(data, self.someone(IN)))

    def poll_of(self, worker):
        got = self.d.poll(worker)
        holds = worker in self.model.hands or worker in self.model.ghosts
        if isinstance(got, list):
            assert not holds and not self.fenced[worker]
            self.model.get(worker, got)
        elif got == HOLDING:
            assert holds
        elif got == WAS_FENCED:
            assert self.fenced[worker] and not holds
            self.states[worker], self.fenced[worker] = OUT, False
        else:
            assert got in (NOTHING, NOT_YET) and not holds
        return got

    @precondition(lambda self: self.model.hands or self.model.ghosts)
    @rule(data=st.data())
    def request(self, data):
        holding = [w for w in sorted({*self.model.hands, *self.model.ghosts}) if self.states[w] == IN]
        if holding:
            worker = self.pick(data, holding)
            items = self.give(data, worker)
            assert self.d.request(worker, items) == 0
            self.model.give_back(worker, items)

    @rule(most=st.integers(1, 6), who=st.integers(1, 31))
    def work(self, most, who):
        """Some workers turn over what they can get."""
        for worker in (worker for worker in self.someone(IN) if who >> worker & 1):
            for _ in range(most):
                got = self.poll_of(worker)
                if got == WAS_FENCED:
                    break
                if got != HOLDING and not isinstance(got, list):
                    break
                items = self.whole(worker)
                assert self.d.request(worker, items) == 0
                self.model.give_back(worker, items)

    def whole(self, worker):
        return list(self.model.hands.get(worker, self.model.ghosts.get(worker, [])))

    def give(self, data, worker):
        """What a worker gives back: all, a part, nothing, or more than it got."""
        hand = self.whole(worker)
        kind = data.draw(st.sampled_from(["all", "all", "part", "none", "more"]))
        if kind == "part":
            return hand[:: data.draw(st.integers(1, 3))]
        if kind == "none":
            return []
        if kind == "more":
            room = self.d.shape.burst - len(hand)
            for _ in range(data.draw(st.integers(0, room))):
                self.serial += 1
                hand.append(ADDED | self.serial << 32)
        return hand

    @precondition(lambda self: self.someone(IN))
    @rule(data=st.data())
    def request_too_many(self, data):
        worker = self.pick(data, self.someone(IN))
        if worker in self.model.hands or worker in self.model.ghosts:
            assert self.d.request_in_place(worker, self.d.shape.burst + 1) == TOO_MANY
        else:
            assert self.d.request(worker, [5]) == TOO_MANY
            assert self.d.request(worker, []) == 0

    @precondition(lambda self: self.someone(IN))
    @rule(data=st.data(), comes_back=st.booleans())
    def leave(self, data, comes_back):
        worker = self.pick(data, self.someone(IN))
        holds = worker in self.model.hands or worker in self.model.ghosts
        items = self.give(data, worker) if holds else []
        assert self.d.leave(worker, items) == 0
        if holds:
            self.model.give_back(worker, items)
        self.states[worker], self.fenced[worker] = OUT, False
        if comes_back:
            self.join(worker)
        elif data.draw(st.booleans()):
            assert self.d.disown(worker, self.owners[worker])
            self.owners[worker] = 0

    @precondition(lambda self: self.someone(IN))
    @rule(data=st.data())
    def die(self, data):
        self.states[self.pick(data, self.someone(IN))] = DEAD

    # What holds after each step.

    @invariant()
    def all_is_where_it_belongs(self):
        held = self.d.held()
        self.model.check(held)
        record = self.d.record
        assert record.outstanding == len(held)
        assert record.processed == self.model.taken
        lost = sum(int(b.lost) for b in self.d.backlogs)
        consumed = sum(int(b.consumed) for b in self.d.backlogs)
        if self.redo:
            assert lost == self.model.lost
        back = record.returns_tail - record.returns_head if self.model.keeps else 0
        if self.model.keeps:
            added = sum(int(b.added) for b in self.d.backlogs)
            assert self.model.taken + added == len(held) + self.model.came + back + consumed + lost
        active = self.d.active()
        assert {one.worker for one in held} <= active | {PARKED}
        for number, b in enumerate(self.d.backlogs):
            out = (int(b.open) - int(b.window.done)) % 2**32
            assert (int(b.sent) - int(b.window.done)) % 2**32 <= min(out, self.d.shape.lines)
            assert out < self.d.shape.slots
            assert b.window.length == (out + 1 if number in active else 0)

    def teardown(self):
        if not hasattr(self, "d"):
            return
        for _ in range(2000):
            self.model.come(self.d.returned())
            for worker in range(self.workers):
                if self.states[worker] == DEAD and self.d.bury(worker, self.owners[worker]) == 1:
                    self.model.die(worker, self.redo)
                    self.states[worker], self.owners[worker], self.fenced[worker] = OUT, 0, False
            if not self.someone(IN):
                self.join(self.someone(OUT)[0])
            for worker in self.someone(IN):
                got = self.poll_of(worker)
                if got == HOLDING or isinstance(got, list):
                    items = self.whole(worker)
                    assert self.d.request(worker, items) == 0
                    self.model.give_back(worker, items)
            self.d.process([])
            self.all_is_where_it_belongs()
            if self.d.record.outstanding == 0:
                break
        else:
            raise AssertionError(f"flush does not end: {self.d.held()[:9]} of workers {self.states}")
        self.model.come(self.d.returned())
        self.model.check_end()
        assert sum(int(b.lost) for b in self.d.backlogs) == self.model.lost
        assert sum(int(b.malformed) for b in self.d.backlogs) == 0


TestDistributorMachine = DistributorMachine.TestCase
TestDistributorMachine.settings = settings(stateful_step_count=60)
