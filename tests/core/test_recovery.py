"""Recovery from every state that a death can leave, each written down as the dead one would have, against a model.

A scene is a ring in the middle of claims at both ends.  The slot of counter ``c`` of what was put in has ``c`` less the
counter at which the scene starts, plus 1000; slots that were claimed and not written have nonsense.
"""

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wirespeed as ws
from tests.conftest import TORTURE
from wirespeed.core import recovery
from wirespeed.core.member import (
    ABANDONED,
    ACTIVE,
    CLAIMED,
    CONS,
    DONE,
    FROZEN,
    HELD,
    IDLE,
    PROD,
    REWRITING,
    TAKEN,
    WAITING,
    Member,
)
from wirespeed.core.ring import SLOTS, SYNCS

WRAP = 1 << 32
CAPACITY = 15
NONSENSE = 0xDEAD
WIDE = np.dtype([("key", "u8"), ("value", "u8")])
# What a claim can be in the middle of, by sync: the state on record, and whether what it has is lost.
KINDS = {
    "st": {},
    "mt": {
        "dead claimed": (ACTIVE, True),
        "dead waiting": (WAITING, True),
        "alive waiting": (WAITING, False),
        "alive gave up": (ABANDONED, True),
    },
    "rts": {
        "dead claimed": (ACTIVE, True),
        "dead copying": (CLAIMED, True),
        "dead ended": (CLAIMED, True),
        "alive ended": (IDLE, False),
    },
    "hts": {"dead claimed": (ACTIVE, True), "dead holding": (HELD, True)},
}


@pytest.fixture(scope="module")
def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


class Scene:
    """A shared ring whose ends are set by hand; ``prod`` and ``cons`` list what is under way, (kind, count) each."""

    def __init__(self, gone, prod="mt", cons="mt", puts=(), takes=(), there=0, start=0, size=8):
        self.gone, self.start, self.size = gone, start, size
        dtype = WIDE if size == 16 else np.uint64
        self.ring = ws.Ring(CAPACITY + 1, dtype=dtype, prod=prod, cons=cons, shared=True, members=12)
        self.record = self.ring._memory.record
        raw = (ctypes.c_uint64 * (16 * size // 8)).from_address(self.ring._memory.ring + SLOTS)
        self.slots = np.frombuffer(raw, np.uint64).reshape(16, -1)
        self.slots[:] = NONSENSE
        self.living = []
        self.dead = 0
        taken = sum(count for _, count in takes)
        put = start + taken + there
        self.record.cons.tail, self.record.prod.tail = start % WRAP, put % WRAP  # so that others can attach
        for counter in range(start, put):
            self.write(counter)
        returned = self.place(CONS, cons, takes, start, put)
        dropped = self.place(PROD, prod, puts, put, start)
        self.returned, self.dropped = len(returned), len(dropped)
        completed = [c for c in range(put, put + sum(count for _, count in puts)) if c not in dropped]
        self.expected = [self.value(c) for c in [*returned, *range(start + taken, put), *completed]]

    def value(self, counter):
        return counter - self.start + 1000

    def write(self, counter):
        self.slots[counter % 16] = self.value(counter)

    def place(self, side, sync, claims, tail, other):
        """Set an end and the records of who works there; the counters of what is lost."""
        end = self.record.prod if side == PROD else self.record.cons
        at, lost, running, serial = tail, [], 0, WRAP - 2
        for kind, count in claims:
            state, is_lost = KINDS[sync][kind]
            counters = range(at, at + count)
            if side == PROD and kind != "dead claimed":
                for counter in counters:
                    self.write(counter)
            if kind.startswith("dead"):
                self.add_dead(side, state, at, count)
            elif kind != "alive ended":
                self.add_living(side, state, at, count)
            running += kind not in ("dead ended", "alive ended")
            lost += counters if is_lost else ()
            at += count
        end.tail, end.position, end.seen = tail % WRAP, at % WRAP, other % WRAP
        end.head = at % WRAP if sync == "hts" else tail % WRAP
        if sync == "rts":
            end.seen, end.head = serial, (serial - running) % WRAP
        return lost

    def add_dead(self, side, state, first, count):
        """A member of a process that is gone."""
        record = self.free_record()
        record.pid, record.started = self.gone, 12345
        self.dead += 1
        return self.note(record, side, state, first, count)

    def add_living(self, side, state, first, count):
        """A member that lives: this process once more."""
        ring = ws.Ring.attach(fd=self.ring.fd)
        self.living.append(ring)
        return self.note(Member.at(ring._memory.members.own), side, state, first, count)

    def free_record(self):
        members = self.ring._memory.members
        return next(record for at in members._records() if (record := Member.at(at)).pid == 0)

    @staticmethod
    def note(record, side, state, first, count):
        intent = record.prod if side == PROD else record.cons
        intent.first, intent.count, intent.state = first % WRAP, count, state
        return intent

    def image(self):
        """All of the segment."""
        owner = self.ring._memory.owner
        return ctypes.string_at(owner.address, owner.size)

    def items(self, numbers):
        array = np.empty(len(numbers), self.ring.dtype)
        array.view(np.uint64).reshape(len(numbers), -1)[:] = np.array(numbers, np.uint64)[:, None]
        return array

    def take(self, ring, n):
        """Up to ``n`` items, as numbers; both halves of a wide one are the same."""
        got = ring.dequeue_burst(n).view(np.uint64).reshape(-1, self.size // 8)
        assert (got == got[:, :1]).all()
        return got[:, 0].tolist()

    def check(self, found):
        """The ring has what the model says, and all its members work on."""
        assert (found.returned, found.dropped, len(found.dead)) == (self.returned, self.dropped, self.dead)
        assert len(self.ring.peers()) == 1 + len(self.living)
        assert all(peer.alive and not peer.doing for peer in self.ring.peers())
        assert len(self.ring) == len(self.expected)
        serial = 5000
        rings = [self.ring, *self.living]
        for turn in range(6):
            ring = rings[turn % len(rings)]
            room = CAPACITY - len(self.expected)
            more = list(range(serial, serial + room))
            assert ring.enqueue_burst(self.items([*more, 1, 2])) == room
            assert ring.enqueue_burst(self.items([1])) == 0, "more fits than there is room for"
            self.expected += more
            serial += room
            n = (turn * 5 + 3) % 15 + 1
            assert self.take(rings[-1 - turn % len(rings)], n) == self.expected[:n]
            del self.expected[:n]
        assert self.take(self.ring, 99) == self.expected
        assert self.take(self.ring, 99) == []

    def close(self):
        del self.record
        for ring in [*self.living, self.ring]:
            ring.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


STARTS = [0, 7, WRAP - 1, WRAP - 9, (1 << 31) - 4]
ENDS = [
    pytest.param(sync, (kind,), id=f"{sync}-{kind}".replace(" ", "-")) for sync, kinds in KINDS.items() for kind in kinds
    if kind not in ("alive waiting", "alive ended", "dead ended")
] + [
    ("mt", ("dead claimed", "alive waiting")), ("mt", ("dead waiting", "alive waiting")),
    ("mt", ("dead claimed", "dead waiting")), ("mt", ("dead claimed", "alive waiting", "dead waiting", "alive waiting")),
    ("mt", ("dead claimed", "alive gave up", "alive waiting")), ("mt", ("alive gave up", "dead waiting")),
    ("rts", ("dead copying", "alive ended")), ("rts", ("alive ended", "dead copying", "alive ended")),
    ("rts", ("dead copying", "dead copying", "alive ended")), ("rts", ("dead copying", "dead ended", "alive ended")),
    ("rts", ("alive ended", "dead claimed", "alive ended")), ("rts", ("dead claimed", "dead copying")),
    ("rts", ("dead claimed", "dead claimed")), ("st", ()), ("rts", ()),
]  # fmt: skip


@pytest.mark.parametrize("side", ["prod", "cons"])
@pytest.mark.parametrize("sync, kinds", ENDS)
@pytest.mark.parametrize("start", STARTS)
def test_what_was_published_stays_and_what_the_dead_had_goes_where_it_must(gone, side, sync, kinds, start):
    claims = [(kind, 1 + (k + start) % 3) for k, kind in enumerate(kinds)]
    for size in (8, 16):
        for other in SYNCS:
            puts, takes = (claims, ()) if side == "prod" else ((), claims)
            syncs = (sync, other) if side == "prod" else (other, sync)
            with Scene(gone, *syncs, puts, takes, there=3, start=start, size=size) as scene:
                scene.check(scene.ring.recover())


def scenes(sync):
    """Lists of claims under way at an end."""
    kinds = sorted(KINDS[sync])
    if not kinds:
        return st.just([])
    most = 1 if sync == "hts" else 3
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 2)), max_size=most)


@given(
    st.data(),
    st.sampled_from(sorted(SYNCS)),
    st.sampled_from(sorted(SYNCS)),
    st.sampled_from(STARTS),
    st.integers(0, 3),
)
@settings(max_examples=2000 if TORTURE else 150)
def test_any_two_ends_full_of_deaths_come_out_right_or_are_said_to_be_undecidable(gone, data, prod, cons, start, there):
    puts, takes = data.draw(scenes(prod)), data.draw(scenes(cons))
    for sync, claims in ((prod, puts), (cons, takes)):
        kinds = [kind for kind, _ in claims]
        assume(not kinds or kinds[0] != "alive waiting")  # it would not wait
        # The last one to end moves the tail: something else is always under way.
        assume(not kinds or sync != "rts" or any(not kind.endswith("ended") for kind in kinds))
    with Scene(gone, prod, cons, puts, takes, there, start, data.draw(st.sampled_from([8, 16]))) as scene:
        # Some have noted what they never got, others have published it and not said so.
        for side, sync, end in ((PROD, prod, scene.record.prod), (CONS, cons, scene.record.cons)):
            if data.draw(st.booleans()):
                head = {"st": end.tail, "hts": end.head}.get(sync, end.position)
                scene.add_dead(side, ACTIVE, head, data.draw(st.integers(0, 3)))
            if data.draw(st.booleans()):
                scene.add_dead(side, CLAIMED if sync == "rts" else ACTIVE, end.tail - 2, 2)
        before = scene.image()
        try:
            found = scene.ring.recover()
        except ws.PeerError as error:
            assert "cannot be told" in str(error)
            doubtful = [[kind for kind, _ in claims] for sync, claims in ((prod, puts), (cons, takes)) if sync == "rts"]
            assert any("dead claimed" in kinds and len(kinds) > 1 for kinds in doubtful)
            assert scene.image() == before
            return
        scene.check(found)


def test_a_look_at_items_in_st_that_was_never_finished_takes_nothing(gone):
    with Scene(gone, "st", "st", there=5) as scene:
        scene.record.cons.head = 3
        scene.add_dead(CONS, HELD, 0, 3)
        scene.check(scene.ring.recover())


def test_slots_that_st_has_written_and_not_published_are_dropped(gone):
    with Scene(gone, "st", "st", there=5, start=WRAP - 3) as scene:
        scene.write(scene.start + 5)
        scene.add_dead(PROD, ACTIVE, 0, 0)
        scene.check(scene.ring.recover())


# RTS, where notes alone do not say whether a claim succeeded.


@pytest.mark.parametrize("side", [PROD, CONS])
def test_of_two_that_noted_the_same_slots_it_does_not_matter_which_got_them(gone, side):
    claims = [("dead claimed", 2), ("alive ended", 1)]
    puts, takes = (claims, ()) if side == PROD else ((), claims)
    with Scene(gone, "rts", "rts", puts, takes, there=2) as scene:
        end = scene.record.prod if side == PROD else scene.record.cons
        scene.add_dead(side, ACTIVE, end.tail, 2)
        scene.check(scene.ring.recover())


@pytest.mark.parametrize("side", [PROD, CONS])
def test_one_that_noted_what_another_got_has_nothing(gone, side):
    claims = [("dead copying", 2), ("alive ended", 1)]
    puts, takes = (claims, ()) if side == PROD else ((), claims)
    with Scene(gone, "rts", "rts", puts, takes, there=2) as scene:
        end = scene.record.prod if side == PROD else scene.record.cons
        scene.add_dead(side, ACTIVE, end.tail, 3)
        scene.check(scene.ring.recover())


@pytest.mark.parametrize("start", STARTS)
def test_where_it_cannot_be_told_the_ring_stays_as_it_was_and_can_be_begun_anew(gone, start):
    # Two that overlap, one of which got three slots, the other one none; a living one waits at the other end.
    takes = [("dead claimed", 1), ("alive waiting", 2)]
    with Scene(gone, "rts", "mt", [("dead claimed", 3), ("alive ended", 2)], takes, there=2, start=start) as scene:
        scene.add_dead(PROD, ACTIVE, scene.record.prod.tail, 1)
        before = scene.image()
        with pytest.raises(ws.PeerError, match=r"2 processes died at the very moment of a claim.*reset\(\) the ring"):
            scene.ring.recover()
        assert scene.image() == before
        (waiting,) = scene.living
        assert Member.at(waiting._memory.members.own).cons.state == WAITING
        Member.at(waiting._memory.members.own).cons.state = IDLE
        scene.ring.reset()
        scene.expected, scene.returned, scene.dropped, scene.dead = [], 0, 0, 0
        scene.check(scene.ring.recover())


# The living.


def test_nobody_dead_changes_nothing(gone):
    with Scene(gone, there=4) as scene:
        found = scene.ring.recover()
        assert str(found) == "nobody had died"
        scene.check(found)


@pytest.mark.parametrize("state", [ACTIVE, CLAIMED, HELD, WAITING])
@pytest.mark.parametrize("side", [PROD, CONS])
def test_a_living_member_in_the_middle_of_something_is_waited_for_and_nothing_is_changed(gone, state, side):
    with Scene(gone, "mt", "mt", [("dead claimed", 2)], (), there=4) as scene:
        end = scene.record.prod if side == PROD else scene.record.cons
        intent = scene.add_living(side, state, end.tail, 1)
        intent.thread = threading.get_native_id()
        before = scene.image()
        with pytest.raises(TimeoutError, match=f"process {os.getpid()} lives, and is in the middle"):
            scene.ring.recover(timeout_s=0.02)
        assert scene.image() == before
        timer = threading.Timer(0.05, setattr, (intent, "state", IDLE))
        timer.start()
        scene.check(scene.ring.recover(timeout_s=20))
        timer.join()


def test_the_hold_of_a_thread_that_has_ended_goes_back(gone):
    with Scene(gone, "hts", "hts", (), (), there=4) as scene:
        intent = scene.add_living(CONS, HELD, scene.record.cons.tail, 2)
        thread = threading.Thread(target=lambda: setattr(intent, "thread", threading.get_native_id()))
        thread.start()
        thread.join()
        scene.record.cons.head = scene.record.cons.tail + 2
        scene.returned = 2
        scene.check(scene.ring.recover())


def test_a_call_behind_a_dead_one_names_it_and_has_not_happened(gone):
    with Scene(gone, "mt", "mt", [("dead claimed", 2)], [("dead claimed", 1)], there=2) as scene:
        scene.free_record()
        for call in (
            lambda: scene.ring.enqueue_bulk([7, 8]),
            lambda: scene.ring.enqueue(9),
            lambda: scene.ring.dequeue(),
        ):
            with pytest.raises(ws.PeerError, match=rf"process {gone}, which is gone, and began .* recover\(\)"):
                call()
        scene.dropped += 2
        scene.returned += 1
        scene.check(scene.ring.recover())


def test_an_interrupted_call_is_finished_by_the_next_one(gone):
    with Scene(gone, "mt", "mt", there=1) as scene:
        (other,) = [ws.Ring.attach(fd=scene.ring.fd)]
        scene.living.append(other)
        scene.note(Member.at(other._memory.members.own), PROD, WAITING, scene.record.prod.tail, 1)
        scene.write(scene.start + 1)
        scene.record.prod.position += 1
        assert other.enqueue(7)
        scene.expected += [1001, 7]
        scene.check(scene.ring.recover())


def test_who_closes_with_a_claim_that_waits_counts_as_gone(gone):
    with Scene(gone, "mt", "mt", [("dead claimed", 1), ("alive waiting", 2)], there=1) as scene:
        scene.living.pop().close()
        doing = sorted(peer.doing for peer in scene.ring.peers() if not peer.alive)
        assert doing == ["began 1 items to put in", "copied, and waited for its turn, 2 items to put in"]
        scene.dead, scene.dropped = 2, 3
        scene.expected = [1000]
        scene.check(scene.ring.recover())


# Whoever recovers may die as well.


def recoverer_died(scene, frozen):
    record = scene.free_record()
    record.pid, record.started = scene.gone, 12345
    scene.dead += 1
    members = scene.ring._memory.members
    number = next(n for n in range(1, 13) if members.member(n) and members.member(n).pid == scene.gone)
    scene.ring._memory.owner.header.recoverer = number
    scene.record.frozen = frozen
    return number


def test_a_recovery_whose_process_died_is_named_and_taken_up(gone):
    with Scene(gone, "mt", "mt", there=3) as scene:
        number = recoverer_died(scene, FROZEN)
        for call in (scene.ring.dequeue, lambda: scene.ring.enqueue(1)):
            with pytest.raises(ws.PeerError, match=r"recovered the ring has died at it; recover\(\)"):
                call()
        # It had taken a living one's claim, behind a dead one's.
        scene.note(next(r for _, r in scene.ring._memory.members.records() if r.pid == gone), PROD, ACTIVE, 3, 2)
        scene.add_living(PROD, TAKEN + number, 5, 1)
        scene.write(5)
        scene.record.prod.position += 3
        scene.expected.append(1005)
        scene.dropped = 2
        scene.check(scene.ring.recover())


def test_a_claim_that_a_dead_recoverer_had_taken_can_be_given_up(gone):
    with Scene(gone, "mt", "mt", [("dead claimed", 1)], there=3) as scene:
        with pytest.raises(ws.PeerError):
            scene.ring.enqueue(1)
        own = Member.at(scene.ring._memory.members.own).prod
        own.state = TAKEN + recoverer_died(scene, FROZEN)
        with pytest.raises(ws.PeerError):
            scene.ring._waiting.settle(-2, PROD)
        assert own.state == ABANDONED
        scene.dropped += 1
        scene.check(scene.ring.recover())


def test_one_that_died_while_it_wrote_leaves_a_ring_that_must_be_begun_anew(gone):
    with Scene(gone, "hts", "rts", there=3) as scene:
        recoverer_died(scene, REWRITING)
        with pytest.raises(ws.PeerError, match=r"contents are unknown now; reset\(\) it"):
            scene.ring.recover()
        with pytest.raises(ws.PeerError):
            scene.ring.enqueue(1)
        scene.ring.reset()
        scene.expected, scene.dead = [], 0
        scene.check(scene.ring.recover())


def test_two_recoveries_at_once_do_not_meet(gone):
    with Scene(gone, there=3) as scene:
        other = ws.Ring.attach(fd=scene.ring.fd, member_name="other")
        scene.living.append(other)
        scene.ring._memory.owner.header.recoverer = other._memory.members.number
        with pytest.raises(ws.PeerError, match=rf"process {os.getpid()} \(other\) is at recovering this ring"):
            scene.ring.recover()
        scene.ring._memory.owner.header.recoverer = 0
        scene.check(scene.ring.recover())


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_recovery_that_is_interrupted_changes_nothing(gone, error, monkeypatch):
    with Scene(gone, "mt", "mt", [("dead claimed", 1), ("alive waiting", 2)], there=1) as scene:
        before = scene.image()

        def interrupted(*_):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(recovery, "_rewrite", interrupted)
            with pytest.raises(error):
                scene.ring.recover()
        assert scene.image() == before
        scene.check(scene.ring.recover())


def test_the_freed_claim_of_a_living_one_is_through(gone):
    with Scene(gone, "mt", "mt", [("dead claimed", 1), ("alive waiting", 2)], there=1) as scene:
        (living,) = scene.living
        found = scene.ring.recover()
        assert Member.at(living._memory.members.own).prod.state == DONE
        assert living._waiting.settle(-3, PROD) == 2
        scene.check(found)


def test_a_large_ring_of_many_items_is_recovered(gone):
    with ws.Ring(1 << 16, shared=True, prod="rts", cons="rts") as ring:
        ring.enqueue_bulk(np.arange(60000, dtype=np.uint64))
        ring.dequeue_bulk(50000)
        ring.enqueue_bulk(np.arange(60000, 100000, dtype=np.uint64))
        record, own = ring._memory.record, Member.at(ring._memory.members.own)
        record.prod.position += 5
        record.prod.seen += 1
        own.prod.first, own.prod.count, own.prod.state, own.pid = record.prod.tail, 5, CLAIMED, gone
        with ws.Ring.attach(fd=ring.fd) as other:
            assert other.recover().dropped == 5
            assert np.array_equal(other.dequeue_burst(1 << 16), np.arange(50000, 100000, dtype=np.uint64))
