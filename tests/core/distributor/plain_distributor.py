"""A distributor and its workers driven step by step from one thread, and a plain model of what is guaranteed.

:class:`Driven` calls the kernels and can look into everything: which item lies in which line of which worker, or is
parked.  :class:`PlainDistributor` knows only what was put in, taken by a worker, given back, lost, and came out; it
raises as soon as an item comes to a second worker, or out of its order, or twice.

An item is its serial number and, below, its tag.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass

import numpy as np

from wirespeed.core.distributor import attendance, desk, process
from wirespeed.core.distributor.backlog import Backlog, Distributor, place_of, slot_of
from wirespeed.core.distributor.desk import BACK, ITEMS
from wirespeed.core.distributor.memory import DistributorMemory, Shape
from wirespeed.core.distributor.pins import LINE_SHIFT
from wirespeed.core.distributor.turns import backlog_of
from wirespeed.jit.intrinsics import load_u32, load_u64, store_i64
from wirespeed.jit.kernel import kernel

u32, i64, u64 = np.uint32, np.int64, np.uint64
TAGS = (1 << 32) - 1
PARKED = -1
ADDED = 1 << 63  # in an item that a worker returns beyond what it was given
# The modes: DPDK's two handshakes, and several lines under way.
MODES = {
    "single": {"burst": 1, "lines": 1},
    "burst": {"burst": 15, "lines": 1},
    "pipelined": {"burst": 7, "lines": 4},
    "deep": {"burst": 31, "lines": 16},
}
# Line numbers near where the bits that are kept of them, or they themselves, begin again.
STARTS = [1, (1 << 20) - 3, (1 << 20) - 1, 1 << 20, (1 << 31) - 2, (1 << 32) - 40, (1 << 32) - 2, (1 << 32) - 1]


@kernel
def fence(distributor, number):
    d = Distributor(distributor)
    return attendance.fence(d, Backlog(backlog_of(d, number)))


@kernel
def bury(distributor, number, owner):
    d = Distributor(distributor)
    return attendance.bury(d, Backlog(backlog_of(d, number)), owner)


@kernel
def close(distributor):
    attendance.close(Distributor(distributor))


@kernel
def take_into(cursor, out):
    """Poll, and copy what there is out of the line."""
    n = desk.poll(cursor)
    for k in range(n):
        store_i64(out + 8 * k, i64(load_u64(desk.items_of(cursor) + 8 * k)))
    return n


@kernel
def give_back(cursor, items, n):
    return desk.request(cursor, items, n)


@kernel
def give_back_in_place(cursor, n):
    return desk.request(cursor, desk.items_of(cursor), n)


@kernel
def row(out, n, worker, line, back, item, tag):
    at = out + 40 * n
    store_i64(at, worker)
    store_i64(at + 8, line)
    store_i64(at + 16, back)
    store_i64(at + 24, item)
    store_i64(at + 32, tag)
    return n + 1


@kernel
def holdings(distributor, out):
    """All items that the distributor knows of, a row each: worker, line, whether it was given back, item, tag."""
    d = Distributor(distributor)
    n = i64(0)
    for number in range(d.workers):
        b = Backlog(backlog_of(d, number))
        line = b.window.done
        while True:
            slot = slot_of(d, b, line)
            control = load_u64(place_of(d, b, line))
            sent = u32(line - b.window.done) < u32(b.sent - b.window.done)
            back = i64(1) if sent and control & ~u64(0xFFFF << 32) == u64(BACK) | u64(line) else i64(0)
            count = i64(b.fill) if line == b.open else i64(load_u64(slot) >> u64(32))
            for k in range(count):
                item, tag = i64(load_u64(slot + ITEMS + 8 * k)), i64(load_u32(slot + d.line_size + 4 * k))
                n = row(out, n, i64(number), i64(line), back, item, tag)
            if line == b.open:
                break
            line = u32(line + u32(1))
    for k in range(d.parked_head, d.parked_tail):
        at = k & d.parked_mask
        item, tag = i64(load_u64(d.parked_items + 8 * at)), i64(load_u32(d.parked_tags + 4 * at))
        n = row(out, n, i64(PARKED), i64(0), i64(0), item, tag)
    return n


@dataclass(frozen=True)
class Held:
    """An item that is held for a worker, or parked."""

    worker: int
    line: int
    back: bool
    item: int
    tag: int


class Driven:
    """A distributor, and for each of its desks a worker that does what it is told."""

    def __init__(self, workers, *, start=1, multiplier=None, redo=True, **shape):
        self.shape = Shape(workers, **shape)
        self.memory = DistributorMemory(self.shape, redo=redo)
        self.record, self.at = self.memory.record, self.memory.address
        self.backlogs = [self.memory.backlog(number) for number in range(workers)]
        self.cursors = [self.memory.cursor(number) for number in range(workers)]
        if multiplier is not None:
            self.record.pins.multiplier = multiplier
        if start != 1:
            self._start(start)
        held = workers * self.shape.slots * self.shape.burst + self.record.parked_mask + 1
        self._rows = np.zeros((held, 5), np.int64)
        self._items, self._tags = np.zeros(4096, np.uint64), np.zeros(4096, np.uint32)
        self._out, self._line = np.zeros(4096, np.uint64), np.zeros(32, np.uint64)

    def _start(self, number):
        """Have the workers' lines be counted from a number on."""
        for worker, b in enumerate(self.backlogs):
            b.window.done = b.sent = b.open = desk.Desk.at(int(b.desk)).taken = number
            b.entry = (number << LINE_SHIFT | worker) & 0xFFFFFFFF
            b.slot = int(b.slots) + (number & (self.shape.slots - 1)) * int(self.record.slot_size)

    # The distributor's side.
    def process(self, items, tags=None):
        n = self._load(items, tags)
        return process.process(self.at, self._items.ctypes.data, self._tags.ctypes.data, n)

    def process_patiently(self, items, patience=2):
        n = self._load(items, None)
        return process.process_patiently(self.at, self._items.ctypes.data, self._tags.ctypes.data, n, patience)

    def _load(self, items, tags):
        n = len(items)
        self._items[:n] = items
        self._tags[:n] = [item & TAGS for item in items] if tags is None else tags
        return n

    def returned(self, n=4096):
        n = process.returned(self.at, self._out.ctypes.data, n)
        return [int(item) for item in self._out[:n]]

    def fence(self, worker):
        return fence(self.at, worker)

    def bury(self, worker, owner):
        return bury(self.at, worker, owner)

    def close(self):
        close(self.at)

    def held(self):
        """What is held for whom, the parked at the end; of each worker in the order of its lines."""
        n = holdings(self.at, self._rows.ctypes.data)
        return [
            Held(w, line, back != 0, item & (1 << 64) - 1, tag) for w, line, back, item, tag in self._rows[:n].tolist()
        ]

    def active(self):
        return {number for number, b in enumerate(self.backlogs) if b.active}

    def epoch(self, worker):
        """That of the stay that a worker wished last."""
        return desk.Cursor.at(self.cursors[worker]).epoch

    def is_full(self, worker):
        """Whether not one more item finds room with a worker."""
        b = self.backlogs[worker]
        out = (int(b.open) + 1 - int(b.window.done)) & 0xFFFFFFFF
        return b.fill == self.shape.burst and out >= self.shape.slots

    def is_back(self, worker):
        """Whether something that a worker gave back is not taken yet."""
        b = self.backlogs[worker]
        if b.window.done == b.sent:
            return False
        done, size = int(b.window.done), int(self.record.line_size)
        place = int(b.places) + (done & (self.shape.lines - 1)) * size
        line = desk.Line.at(place)
        return (line.seq, line.back) == (done, 1)

    # The workers' side.
    def own(self, worker, owner):
        return desk.own(self._desk(worker), owner)

    def disown(self, worker, owner):
        return desk.disown(self._desk(worker), owner)

    def _desk(self, worker):
        return int(self.backlogs[worker].desk)

    def join(self, *workers):
        for worker in workers:
            desk.join(self.cursors[worker])

    def poll(self, worker):
        """The items of the next line, or a code."""
        n = take_into(self.cursors[worker], self._line.ctypes.data)
        return n if n < 0 else [int(item) for item in self._line[:n]]

    def request(self, worker, items):
        self._line[: len(items)] = items
        return give_back(self.cursors[worker], self._line.ctypes.data, len(items))

    def request_in_place(self, worker, n):
        return give_back_in_place(self.cursors[worker], n)

    def leave(self, worker, items=()):
        self._line[: len(items)] = items
        return desk.leave(self.cursors[worker], self._line.ctypes.data, len(items))

    # Both.
    def start_all(self):
        """Have all workers join, and be active."""
        self.join(*range(self.shape.workers))
        self.process([])
        assert self.active() == set(range(self.shape.workers))

    def serve(self, workers=None):
        """Have workers take each line that is there and give it back whole; what each got."""
        got = defaultdict(list)
        for worker in range(self.shape.workers) if workers is None else workers:
            while isinstance(items := self.poll(worker), list):
                got[worker] += items
                assert self.request(worker, items) == 0
        return got

    def flush(self, workers=None):
        """Serve until nothing is outstanding; what each worker got, and what came back."""
        got, back = defaultdict(list), []
        for _ in range(10_000):
            for worker, items in self.serve(workers).items():
                got[worker] += items
            self.process([])
            back += self.returned()
            if self.record.outstanding == 0:
                return got, back
        raise AssertionError(f"flush does not end: {self.record.outstanding} are outstanding, {self.held()[:5]}")


class PlainDistributor:
    """What must hold, whoever works on what and when."""

    def __init__(self, keeps=True):
        self.keeps = keeps
        self.waiting = defaultdict(deque)  # tag -> items that no worker has taken, in order
        self.hands = {}  # worker -> the items that it works on
        self.ghosts = {}  # the same, of workers that were fenced
        self.back = defaultdict(deque)  # tag -> items that were given back, in order
        self.added_back = defaultdict(deque)  # worker -> items of its own that it gave back
        self.taken, self.came, self.consumed, self.lost, self.added = 0, 0, 0, 0, 0
        self.got = defaultdict(list)  # worker -> all it ever took

    def take(self, items):
        """Items were taken by process()."""
        for item in items:
            self.waiting[item & TAGS].append(item)
        self.taken += len(items)

    def get(self, worker, items):
        """A worker took a line."""
        for item in items:
            tag = item & TAGS
            assert self.waiting[tag], f"item {item:#x} came to worker {worker} though none of its tag waits"
            first = self.waiting[tag].popleft()
            assert item == first, f"worker {worker} got {item:#x} before {first:#x} of the same tag"
            for other, hand in self.hands.items():
                assert tag not in {held & TAGS for held in hand}, f"tag {tag} is with {other} and with {worker}"
        assert worker not in self.hands
        self.hands[worker] = list(items)
        self.got[worker] += items

    def give_back(self, worker, items):
        """A worker gave its line back, with these items."""
        if worker in self.ghosts:
            del self.ghosts[worker]
            return
        hand = self.hands.pop(worker)
        self.consumed += max(0, len(hand) - len(items))
        self.added += max(0, len(items) - len(hand))
        if self.keeps:
            for item in items:
                (self.added_back[worker] if item & ADDED else self.back[item & TAGS]).append(item)

    def fence(self, worker, lost):
        """A worker is not expected to do anything any more, and these items are lost with it."""
        hand = self.hands.pop(worker, None)
        if hand is not None:
            self.ghosts[worker] = hand
        self.lose(worker, hand or [], lost)

    def die(self, worker, redo):
        """A worker was found dead; what was in its hand is done again, or lost."""
        self.ghosts.pop(worker, None)
        hand = self.hands.pop(worker, [])
        if redo:
            for item in reversed(hand):
                self.waiting[item & TAGS].appendleft(item)
        else:
            self.lost += len(hand)

    def lose(self, worker, hand, lost):
        assert lost[: len(hand)] == hand, f"worker {worker} had {hand} in its hand, and {lost} were lost"
        for item in lost[len(hand) :]:
            assert self.waiting[item & TAGS].popleft() == item
        self.lost += len(lost)

    def come(self, items):
        """Items came out of returned()."""
        for item in items:
            queues = self.added_back.values() if item & ADDED else [self.back[item & TAGS]]
            queue = next((queue for queue in queues if queue and queue[0] == item), None)
            assert queue is not None, f"{item:#x} came back, and should not, or not yet"
            queue.popleft()
        self.came += len(items)

    def check(self, held):
        """Compare what the distributor holds, items already given back left out, with what must be held."""
        holders, items = defaultdict(set), defaultdict(list)
        for one in held:
            assert one.tag == one.item & TAGS
            if not one.back:
                items[one.tag].append(one.item)
                if one.worker != PARKED:
                    holders[one.tag].add(one.worker)
        twice = {tag: workers for tag, workers in holders.items() if len(workers) > 1}
        assert not twice, f"tags on several workers: {twice}"
        wanted = {tag: list(waiting) for tag, waiting in self.waiting.items() if waiting}
        for worker, hand in self.hands.items():
            by_tag = defaultdict(list)
            for item in hand:
                by_tag[item & TAGS].append(item)
                assert holders[item & TAGS] == {worker}
            for tag, mine in by_tag.items():
                wanted[tag] = mine + wanted.get(tag, [])
        wrong = {
            tag: (items.get(tag), wanted.get(tag)) for tag in {*items, *wanted} if items.get(tag) != wanted.get(tag)
        }
        assert not wrong, f"items of a tag are held, and should be: {wrong}"

    def check_end(self):
        """Nothing is under way: all must be accounted for."""
        assert not any(self.waiting.values())
        assert not any(self.back.values()) and not any(self.added_back.values())
        assert not self.hands
        if self.keeps:
            assert self.taken + self.added == self.came + self.consumed + self.lost


def makes(first, tags):
    """Items with serial numbers from ``first`` on and these tags."""
    return [(first + k) << 32 | tag for k, tag in enumerate(tags)]


def counts(got):
    """How many items each worker got."""
    return Counter({worker: len(items) for worker, items in got.items() if items})
