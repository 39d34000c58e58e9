"""Mending a ring whose users died in the middle of something.

Theory of operation
-------------------
The ring is frozen: nobody begins anything.  Living members are waited for until they are at rest; one that only waits
for earlier claims to be published is freed from that, its items are published here.  Then the ring stands still, and
its slots are told apart by the members' notes:

* what is published and not claimed by a consumer stays;
* what a dead consumer had claimed was not given to it, for a call publishes before it returns: it goes to the front;
* what a dead producer had claimed was not published: it is dropped;
* what living members have completed behind a dead one's claim (it could not be published before) stays.

A call that gave up, because it waited for a dead one, counts as a dead one's: its caller knows that it has not happened.

By sync: in ``st`` nothing is ever left behind.  In ``hts`` at most one claim is under way, and whatever lies between
tail and head is the dead one's.  In ``mt`` the living ones that wait know their parts, the rest between tail and head
is the dead ones'.  In ``rts`` nobody waits, so the notes of the dead must say what was theirs.  A note is written before
its claim is tried: whether one succeeded that died in between is told by the counts of claims, and by other claims that
overlap it.  When several died within those few instructions and their notes do not tell, :class:`PeerError` says so.

Nothing is changed before all that is known, and then one call into compiled code writes it: the ends, the slots in
order, and the members' records.  Whoever is killed in a recovery before that leaves the ring to the next one; in it, a
few microseconds, the ring is marked as lost.

Source of the idea that the notes of those who cannot finish let others do it for them: M. Herlihy, "Wait-free
synchronization", 1991.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from wirespeed.core import member
from wirespeed.core.member import (
    ABANDONED,
    ACTIVE,
    CONS,
    DONE,
    FROZEN,
    GONE,
    HELD,
    IDLE,
    INTENT,
    PROD,
    REST,
    REWRITING,
    TAKEN,
    WAITING,
    wake_consumers,
    wake_producers,
)
from wirespeed.core.membership import Peer
from wirespeed.core.ring import MT, RTS, SLOTS, End, Ring, claimed
from wirespeed.core.segment import Segment
from wirespeed.errors import PeerError
from wirespeed.jit import libc

if TYPE_CHECKING:
    from wirespeed.core.ring_memory import RingMemory

WRAP = 1 << 32
MOST_NOTES = 12  # of dead ones in the middle of a claim, of which all subsets are tried


@dataclass(frozen=True)
class Recovery:
    """What a recovery found: who was dead, and how many items it dropped or gave back because of them."""

    dead: tuple[Peer, ...]
    dropped: int
    returned: int

    def __str__(self) -> str:
        if not self.dead:
            return "nobody had died"
        what = f"{self.dropped} items never published were dropped, {self.returned} went back to the front"
        return f"{'; '.join(map(str, self.dead))}: {what}"


@dataclass(frozen=True)
class _Part:
    """Some successive slots that a member has claimed, or is about to."""

    first: int
    count: int

    def counters(self) -> list[int]:
        return [(self.first + i) % WRAP for i in range(self.count)]


def recover(memory: "RingMemory", timeout_s: float) -> Recovery:
    """See :meth:`wirespeed.core.queue.Ring.recover`."""
    if not isinstance(memory.owner, Segment):
        return _recover(memory, timeout_s)  # one process: no second one is at it
    with memory.members.recovering(memory.owner, "ring"):
        return _recover(memory, timeout_s)


def _recover(memory: "RingMemory", timeout_s: float) -> Recovery:
    record = memory.record
    if record.frozen == REWRITING:
        raise PeerError("a process died while it mended this ring, whose contents are unknown now; reset() it")
    member.freeze(memory.ring, FROZEN)
    still = _Still(memory)
    try:
        still.come_to_rest(time.monotonic() + timeout_s)
        found = _rewrite(memory, still)
    finally:
        still.give_back()
        record.frozen = 0
    wake_consumers(memory.ring)
    wake_producers(memory.ring)
    return found


class _Still:
    """A frozen ring when nobody works on it any more: what living members wait with, and what the dead ones had."""

    def __init__(self, memory: "RingMemory") -> None:
        self._memory = memory
        self.waiting: dict[int, list[_Part]] = {PROD: [], CONS: []}
        self.sure: dict[int, list[_Part]] = {PROD: [], CONS: []}  # claimed by dead ones,
        self.perhaps: dict[int, list[_Part]] = {PROD: [], CONS: []}  # or noted, and maybe claimed
        self.dead: list[tuple[Peer, int]] = []
        self.taken: list[int] = []  # intents of those that wait
        self.ended: list[int] = []  # and those that others are in the way of no more

    def come_to_rest(self, deadline: float) -> None:
        """Wait for the living.  Raises ``TimeoutError`` when one does not come to rest in time."""
        members = self._memory.members
        while True:
            seen = [(at, record, members.describe(record)) for at, record in members.records()]
            restless = self._restless(seen)
            if restless is None:
                break
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{restless} lives, and is in the middle of something; try again when it is done")
            time.sleep(0.0002)
        for at, record, peer in seen:
            for side, intent in ((PROD, record.prod), (CONS, record.cons)):
                self._sort(at + INTENT * side, side, intent, peer.alive)
            if not peer.alive:
                self.dead.append((peer, at))

    def _restless(self, seen: list[tuple[int, Any, Peer]]) -> Peer | None:
        """A living member that may still change something.

        One that waits cannot while its turn has not come, and turns come only by a tail that moves.
        """
        ring = self._memory.record
        tails = ring.prod.tail, ring.cons.tail
        for _, record, peer in seen:
            for intent, end in ((record.prod, ring.prod), (record.cons, ring.cons)):
                state = intent.state
                if not peer.alive or state in (IDLE, DONE, ABANDONED) or state >= TAKEN:
                    continue
                if state == WAITING and intent.first != end.tail:
                    continue
                if state == HELD and self._ended(peer, intent):
                    continue
                return peer
        return None if tails == (ring.prod.tail, ring.cons.tail) else seen[0][2]

    @staticmethod
    def _ended(peer: Peer, intent: Any) -> bool:
        """Whether a thread of ours held items and is no more."""
        return peer.pid == os.getpid() and not os.path.exists(f"/proc/self/task/{intent.thread}")

    def _sort(self, at: int, side: int, intent: Any, alive: bool) -> None:
        state, part = intent.state, _Part(intent.first, intent.count)
        if alive and (state == WAITING or state >= TAKEN):
            # A call that gives up at this moment wins, and counts as abandoned.
            if member.take_over(at, state, self._memory.members.number):
                self.taken.append(at)
                self.waiting[side].append(part)
                return
            state = intent.state
        if state in (IDLE, DONE):
            return
        if alive:  # abandoned, or held by a thread that is no more
            self.ended.append(at)
        if part.count:
            (self.perhaps if state == ACTIVE else self.sure)[side].append(part)

    def give_back(self) -> None:
        """Have those wait on that were not freed."""
        for at in self.taken:
            member.give_back(at, self._memory.members.number)

    def changes(self) -> list[tuple[int, int]]:
        """What to write into the members' records when the ring is mended."""
        return [
            *((at, TAKEN) for at in self.taken),
            *((at, REST) for at in self.ended),
            *((at, GONE) for _, at in self.dead),
        ]


def _between(first: int, last: int) -> list[int]:
    return _Part(first, (last - first) % WRAP).counters()


def _lost(end: Any, sync: int, still: _Still, side: int) -> list[int]:
    """The slots between an end's tail and head that the dead had claimed, in order."""
    under_way = _between(end.tail, claimed(end, sync))
    if sync == MT:
        kept = {c for part in still.waiting[side] for c in part.counters()}
        return [c for c in under_way if c not in kept]
    if sync != RTS:
        return under_way
    inside = set(under_way)
    sure = [part.counters() for part in still.sure[side] if part.first in inside]
    theirs = {c for counters in sure for c in counters}
    perhaps = [c for part in still.perhaps[side] if inside.issuperset(c := part.counters()) and theirs.isdisjoint(c)]
    # Claims begun and not ended, where others have seen and head.  One that died behind the end of its claim still
    # says that it has it.
    open_claims = (end.seen - end.head) % WRAP
    answers = set(_possible(perhaps, range(open_claims - len(sure), open_claims + 1)))
    if len(answers) != 1:
        raise PeerError(
            f"{len(perhaps)} processes died at the very moment of a claim, and whether they succeeded cannot be told, so "
            f"neither which items are whole; take out what can be, then reset() the ring"
        )
    theirs |= answers.pop()
    return [c for c in under_way if c in theirs]


def _possible(notes: list[list[int]], succeeded: Sequence[int]) -> Iterator[frozenset[int]]:
    """What those may have claimed together of whom as many ``succeeded``: of two notes that overlap, one did not."""
    if len(notes) > MOST_NOTES:
        return
    for n in range(len(notes) + 1):
        if n not in succeeded:
            continue
        for some in combinations(notes, n):
            union = frozenset(c for counters in some for c in counters)
            if len(union) == sum(map(len, some)):
                yield union


def _rewrite(memory: "RingMemory", still: _Still) -> Recovery:
    """Bring the slots and both ends into order; then the dead are no members any more."""
    ring = memory.record
    prod_sync, cons_sync = ring.prod_sync, ring.cons_sync
    returned = _lost(ring.cons, cons_sync, still, CONS)
    dropped = set(_lost(ring.prod, prod_sync, still, PROD))
    last = claimed(ring.prod, prod_sync)
    there = _between(claimed(ring.cons, cons_sync), ring.prod.tail)
    completed = [c for c in _between(ring.prod.tail, last) if c not in dropped]
    kept = [*returned, *there, *completed]
    first = (last - len(kept)) % WRAP
    places = _between(first, last)
    ends = 2 * End.size
    # Where nothing has to move, only the ends are written.
    size = ends if kept == places else ends + memory.slots * memory.dtype.itemsize
    at = memory.ring + Ring.offset("prod")
    image = np.frombuffer(libc.copy_out(at, size), np.uint8).copy()
    _set(End(image), prod_sync, last, seen=first)
    _set(End(image, End.size), cons_sync, first, seen=last)
    if size > ends:
        slots = image[ends:].reshape(memory.slots, -1)
        whole = slots[[c & ring.mask for c in kept]]  # a copy, for the new places overlap the old ones
        slots[[c & ring.mask for c in places]] = whole
    changes = np.array(still.changes(), np.int64).reshape(-1, 2)
    member.mend(memory.ring, image.ctypes.data, size, changes.ctypes.data, len(changes), memory.members.number)
    return Recovery(tuple(peer for peer, _ in still.dead), len(dropped), len(returned))


def _set(end: Any, sync: int, position: int, seen: int) -> None:
    count = end.seen  # of claims
    end.word = position | (count if sync == RTS else position) << 32
    end.begun = position | (count if sync == RTS else seen) << 32


assert Ring.offset("cons") == Ring.offset("prod") + End.size and Ring.offset("cons") + End.size == SLOTS
