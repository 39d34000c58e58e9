"""Step machines of a distributor and its workers: every access of the handshake, each order and rule of it a knob.

Theory of operation
-------------------
The machines do what wirespeed.core.distributor does, access for access, with the parts left out that only one thread
ever sees.  All items of a line have one tag, the first letter of their names, so a tuple of names is both a burst and
a line.  Line numbers are modulo :data:`WRAP` here, as they are modulo 2^32 there, and begin just before the wrap.

Whoever holds a line adds its items to the plain word ``flow`` of its tag.  So two workers that have one tag at once, or
one that does not see what the last one did, race; and at the end the word tells in which order its packets were worked on.

The explorer knows a few operations more than :class:`tests.core.interleave.Explorer`: a machine that forgets all but its
state each turn, which keeps the states few; a death at any step; a barrier on all threads; and what futexes are made of.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.core.interleave import (
    ACQUIRE,
    BOTH,
    RELAXED,
    RELEASE,
    Done,
    Explorer,
    Op,
    compare_exchange,
    join,
    load,
    read,
    store,
    visited,
    write,
)

WRAP = 16
START = WRAP - 1
NEVER = WRAP // 2
OUT, ACTIVE, FENCED, CLOSED = "out", "active", "fenced", "closed"
NO_WISH, JOIN, LEAVE = "no wish", "join", "leave"


def begin(first: Any) -> Op:
    """The first operation of a machine that turns: sends ``first``, or what it has turned to since."""
    return Op("again", "begin", first)


def turn(state: Any) -> Op:
    """Begin again, knowing nothing but ``state``; a program never comes back from it."""
    return Op("again", "turn", state)


def update(place: str, change: Callable[[Any], Any], order: str = BOTH) -> Op:
    """Replace a value by a function of it, once that is not None; sends what was there before."""
    return Op("update", place, change, order=order)


def membarrier() -> Op:
    """A barrier on all threads: each executes a fence at some moment during the call (membarrier(2))."""
    return Op("membarrier")


class Office(Explorer):
    """An explorer that knows the operations above; ``mortal`` names threads that may end at any step.

    The death of one is known by the place ``death`` of that name: nobody sees it before all that it has done.
    """

    mortal: tuple[str, ...] = ()

    def _steps(self, state, ops, trace):
        found = super()._steps(state, ops, trace)
        if any(op.kind in ("read", "write", "again") for op in ops if not isinstance(op, Done)):
            return found
        for i, op in enumerate(ops):
            if self.names[i] in self.mortal and not isinstance(op, Done):
                # It returns its state as its turn began.
                place = self.places[f"death {self.names[i]}"]
                died = self._stored(state, i, place, Op("store", value=True, order=RELEASE))
                told = (trace, (self.names[i], Op("store", f"death {self.names[i]}", True), None))
                found.append((self._with(died, i, (Done(state[0][i][0][0]),), self.blank), told))
        return found

    def _apply(self, state, i, op, trace):
        if op.kind == "again" and op.place:
            return [(self._with(state, i, (op.value,), state[0][i][1]), op.value)]
        if op.kind == "membarrier":
            mine = join(state[0][i][1], state[2])
            everybody = mine
            for _, view in state[0]:
                everybody = join(everybody, view)
            threads = tuple((sent, view if self._ended(sent) else join(view, mine)) for sent, view in state[0])
            sent = (*state[0][i][0], None)
            return [(self._with((threads, state[1], everybody), i, sent, everybody), None)]
        if op.kind == "update":
            place = self.places[op.place]
            last = len(state[1][place]) - 1
            loaded, old = self._loaded(state, i, place, last, op.order)
            if (new := op.value(old)) is None:
                return []
            changed = Op("store", op.place, new, order=op.order)
            return [(self._stored(loaded, i, place, changed, state[1][place][last][1]), old)]
        return super()._apply(state, i, op, trace)

    @staticmethod
    def _ended(sent):
        return bool(sent) and isinstance(sent[0], Done)


def futex_wait(word: str, seen: Any):
    """FUTEX_WAIT(2): look at the word once more, and go to sleep if it is as seen, under the lock of the bucket."""
    yield update("bucket", lambda state: None if state == "locked" else "locked")
    if (yield load(word, RELAXED)) == seen:
        yield store("bucket", "asleep", RELEASE)
        yield update("bucket", lambda state: "nobody" if state == "woken" else None)
    else:
        yield store("bucket", "nobody", RELEASE)


def futex_wake():
    yield update("bucket", {"nobody": "nobody", "asleep": "woken", "woken": "woken"}.get)


def explore(programs, memory, check, mortal=()):
    office = Office(programs, memory, check)
    office.mortal = mortal
    visited.append(office.run())
    return visited[-1]


@dataclass(frozen=True)
class Rules:
    """The orders that the protocol names, and its rules; a test breaks one at a time."""

    d0: str = RELEASE  # a line's control word, sent
    d1: str = ACQUIRE
    w0: str = RELEASE  # and back
    w1: str = ACQUIRE
    w2: str = RELEASE  # the wish
    d2: str = ACQUIRE
    d3: str = RELEASE  # the grant
    w3: str = ACQUIRE
    ring: str = BOTH  # the bell, which is counted up
    hear: str = ACQUIRE
    own: str = BOTH  # the exchange by which a thread gets a desk
    let_go: str = RELEASE
    window: bool = True  # at most K lines are with a worker
    numbers: bool = True  # lines begin, as memory does, with numbers that nobody waits for
    live_until_back: bool = True  # a tag stays where it is until its line is back, not until it is sent
    collects_again: bool = True  # who takes lines back looks for answers after it saw the wish
    waits_for_room: bool = True  # and does it later when there is no room for these
    gives_back_first: bool = True  # a worker gives back what it has, and only then wishes to leave
    to_the_front: bool = True  # lines taken back are placed before what was parked since
    bell_first: bool = True  # the distributor reads the bell before the wishes, not after
    ring_last: bool = True  # and the worker rings it after it has written its wish
    goes_on: bool = True  # lines taken back use up their numbers
    epoch_of_wish: bool = True  # a new epoch is one more than that of the last wish, not of the last grant
    knows_epoch: bool = True  # a worker begins when its epoch is granted, not when any is
    join_takes_back: bool = True  # who joins while the last one seems to be there still has left
    start_granted: bool = True  # the number of the first line is in the grant, not in a word before it
    looks_at_grant: bool = True  # a worker looks whether it may go on before it looks for a line
    spoils: bool = True  # whoever grants anything overwrites the numbers of all lines
    counts_sent_lost: bool = True  # and counts them lost, and does not place them again
    keeps_desk: bool = True  # a fenced desk is used again when its worker has let go
    exchanges_owner: bool = True  # the distributor clears the owner that is dead, not whoever owns the desk by then
    ends_wish: bool = True  # and what the dead one wished last is not granted any more
    reads_wish_first: bool = True  # that is what was there before the desk had no owner
    one_word: bool = True  # the owner's word says by itself which thread it is; no second word is written after it


@dataclass(frozen=True)
class Desk:
    """What the distributor knows of a worker: ``lines`` from number ``done`` on, of which so many are ``sent``."""

    state: str = OUT
    epoch: int = 0
    done: int = START
    sent: int = 0
    lines: tuple[Any, ...] = ()

    @property
    def open(self):
        return (self.done + len(self.lines)) % WRAP


@dataclass(frozen=True)
class Books:
    """All that the distributor knows."""

    desks: tuple[Desk, ...]
    rest: tuple[Any, ...]  # bursts to come
    parked: tuple[Any, ...] = ()
    pins: tuple[Any, ...] = ()  # (tag, (worker, line)) of each tag
    returned: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    kept: int = 0  # lines in the FIFO of returns
    bell: int = 0
    last: int = -1  # who was chosen last
    fenced: bool = False

    def at(self, w, **changes):
        return replace(self, desks=(*self.desks[:w], replace(self.desks[w], **changes), *self.desks[w + 1 :]))


@dataclass(frozen=True)
class Cursor:
    """All that a worker knows."""

    next: int = START
    epoch: int = 0
    phase: str = "away"
    stint: int = 0
    took: int = 0  # in this stint
    got: tuple[str, ...] = ()
    warned: bool = False  # it knows that it was fenced


@dataclass(frozen=True)
class Shop:
    """A distributor and some desks.

    ``slots`` are the lines that it has for a worker, K of them with it; ``room`` is that of the FIFO of returns, in
    lines; ``words`` of a line that are modelled as plain memory; ``returns(line)`` says how many of its items come back.
    """

    rules: Rules
    bursts: tuple[Any, ...]
    workers: int = 1
    hired: tuple[bool, ...] = (True,)  # who is at its desk as it begins
    k: int = 1
    slots: int = 2
    room: int = 99
    steady: bool = False  # nobody comes or leaves
    flows: bool = True  # whether holders add to ``flow``
    first: int | None = None  # whom a tag goes to whose last worker is done, if there is room; else somebody else
    fences: int | None = None  # whom it fences, when told to
    names: tuple[str, ...] = ()  # who may own the desks, when these have owners

    def memory(self):
        memory = {}
        for w, hired in enumerate(self.hired):
            memory[f"grant{w}"] = (ACTIVE, 1, START) if hired else (OUT, 0, 0)
            memory[f"wish{w}"] = (1, JOIN) if hired else (0, NO_WISH)
            memory[f"start{w}"] = START
            memory[f"owner{w}"] = memory[f"who{w}"] = self.names[w] if hired and self.names else ""
            for i in range(self.k):
                number = next(n for n in range(START - self.k, START) if n % self.k == i)
                memory[f"line{w}.{i}"] = (number if self.rules.numbers else 0, 0, False)
                memory |= {f"line{w}.{i}.{word}": None for word in range(max(map(len, self.bursts)))}
        memory |= {"bell": 0, "order": 0, "told": 0}
        memory |= {f"death {name}": False for name in self.names}
        return memory | {f"flow {burst[0][0]}": () for burst in self.bursts}

    # The distributor.

    def distributor(self):
        desks = tuple(Desk(ACTIVE, 1) if hired else Desk() for hired in self.hired)
        b = yield begin(Books(desks, self.bursts))
        if not self.steady:
            b = yield from self.hear(b)
        if self.fences is not None and not b.fenced and (yield load("order", RELAXED)):
            b = replace((yield from self.fence(b, self.fences)), fenced=True)
        if self.names:
            b = yield from self.bury(b)
        for w in range(self.workers):
            b, _ = yield from self.collect(b, w)
        if self.kept_up(b):
            b = replace(b, kept=0)  # the program takes what was returned
        b = self.place(b)
        for w in range(self.workers):
            b = yield from self.send(b, w)
        if b.rest or b.parked or any(desk.lines for desk in b.desks):
            yield turn(b)
        for w, desk in enumerate(b.desks):
            yield store(f"grant{w}", (CLOSED, desk.epoch, 0), self.rules.d3)
        flows = ()
        for tag in sorted({burst[0][0] for burst in self.bursts}) if self.flows else ():
            flows += yield read(f"flow {tag}")
        return b.returned, b.lost, flows

    def kept_up(self, b):
        """Late, so that the FIFO is full for a while."""
        return b.kept >= self.room and not b.rest

    def hear(self, b):
        bell = yield load("bell", self.rules.hear)
        if bell == b.bell:
            return b
        all_done = True
        for w in range(self.workers):
            epoch, what = yield load(f"wish{w}", self.rules.d2)
            desk = b.desks[w]
            if what == JOIN and epoch != desk.epoch:
                done = True
                if desk.state == ACTIVE and self.rules.join_takes_back:
                    b, done = yield from self.take_back(b, w)
                if done:
                    b = yield from self.grant(b, w, ACTIVE, epoch)
            elif what == LEAVE and epoch == desk.epoch and desk.state in (ACTIVE, FENCED):
                done = True
                if desk.state == ACTIVE:
                    b, done = yield from self.take_back(b, w)
                if done:
                    b = yield from self.grant(b, w, OUT, epoch)
            else:
                done = True
            all_done &= done
        if not self.rules.bell_first:
            bell = yield load("bell", self.rules.hear)
        return replace(b, bell=bell) if all_done else b

    def grant(self, b, w, state, epoch):
        start = b.desks[w].open
        if not self.rules.start_granted:
            yield store(f"grant{w}", (state, epoch, None), self.rules.d3)
            yield store(f"start{w}", start, self.rules.d3)
        else:
            yield store(f"grant{w}", (state, epoch, start), self.rules.d3)
        if self.rules.spoils:
            number = (start - 1 if state == ACTIVE else start + NEVER) % WRAP
            for i in range(self.k):
                yield store(f"line{w}.{i}", (number, 0, False), RELEASE)
        return b.at(w, state=state, epoch=epoch)

    def collect(self, b, w):
        """The books, and whether all answers that are there were taken."""
        while b.desks[w].sent and b.desks[w].state == ACTIVE:
            desk = b.desks[w]
            place = f"line{w}.{desk.done % self.k}"
            number, count, is_back = yield load(place, self.rules.w1)
            if number != desk.done or not is_back:
                break
            if b.kept == self.room:
                return b, False
            items = ()
            for word in range(count):
                items += ((yield read(f"{place}.{word}")),)
            b = replace(b, returned=b.returned + items, kept=b.kept + 1 if self.room < 99 else 0)
            b = b.at(w, done=(desk.done + 1) % WRAP, sent=desk.sent - 1, lines=desk.lines[1:])
        return b, True

    def take_back(self, b, w):
        """The lines of a worker that is gone, to be placed elsewhere; and whether that could be done."""
        if self.rules.collects_again:
            b, taken = yield from self.collect(b, w)
            if not taken and self.rules.waits_for_room:
                return b, False
        lines = b.desks[w].lines
        b = replace(b, parked=lines + b.parked if self.rules.to_the_front else b.parked + lines)
        return self.empty(b, w), True

    def empty(self, b, w):
        desk = b.desks[w]
        done = (desk.open + 1) % WRAP if self.rules.goes_on else desk.done
        return b.at(w, done=done, sent=0, lines=())

    def fence(self, b, w):
        desk = b.desks[w]
        if desk.state != ACTIVE:
            return b
        b, _ = yield from self.collect(b, w)
        desk = b.desks[w]
        sent, others = desk.lines[: desk.sent], desk.lines[desk.sent :]
        if not self.rules.counts_sent_lost:
            sent, others = (), desk.lines
        b = replace(b, lost=b.lost + sum(sent, ()), parked=others + b.parked)
        b = self.empty(b, w)
        if not self.rules.keeps_desk:
            return b.at(w, done=desk.done)
        b = yield from self.grant(b, w, FENCED, desk.epoch)
        yield store("told", 1, RELEASE)
        return b

    def bury(self, b):
        """Take over from those that own a desk and are dead."""
        for w in range(self.workers):
            owner = who = yield load(f"owner{w}", RELAXED)
            if owner and not self.rules.one_word:
                who = yield load(f"who{w}", ACQUIRE)
            if not owner or not who or not (yield load(f"death {who}", ACQUIRE)):
                continue
            if self.rules.collects_again and self.rules.waits_for_room:
                b, taken = yield from self.collect(b, w)
                if not taken:
                    continue
            epoch = b.desks[w].epoch
            if self.rules.reads_wish_first:
                epoch, _ = yield load(f"wish{w}", self.rules.d2)
            if not self.rules.exchanges_owner:
                yield store(f"owner{w}", "", RELEASE)
            elif not (yield compare_exchange(f"owner{w}", owner, "")):
                continue
            if not self.rules.reads_wish_first:
                epoch, _ = yield load(f"wish{w}", self.rules.d2)
            if b.desks[w].state == ACTIVE:
                b, _ = yield from self.take_back(b, w)
            b = yield from self.grant(b, w, OUT, epoch if self.rules.ends_wish else b.desks[w].epoch)
        return b

    def place(self, b):
        """Place what is parked, and then what comes; nothing before what came earlier with its tag."""
        parked = ()
        for burst in b.parked:
            b, placed = self.put(b, burst)
            parked += () if placed else (burst,)
        b = replace(b, parked=parked)
        while b.rest:
            burst = b.rest[0]
            b, placed = self.put(b, burst)
            b = replace(b, rest=b.rest[1:], parked=b.parked if placed else (*b.parked, burst))
        return b

    def put(self, b, burst):
        """The books, and whether there was room for a burst where it must go."""
        tag = burst[0][0]
        w, line = dict(b.pins).get(tag, (-1, 0))
        if w < 0 or not self.is_live(b.desks[w], line):
            order = [(b.last + 1 + i) % self.workers for i in range(self.workers)]
            if self.first is not None:
                order.sort(key=lambda worker: worker != self.first)
            w = next((i for i in order if b.desks[i].state == ACTIVE and self.has_room(b.desks[i])), -1)
            if w < 0:
                return b, False
        elif not self.has_room(b.desks[w]):
            return b, False
        desk = b.desks[w]
        pins = tuple(sorted((dict(b.pins) | {tag: (w, desk.open)}).items()))
        return replace(b.at(w, lines=(*desk.lines, burst)), pins=pins, last=w), True

    def is_live(self, desk, line):
        begin = 0 if self.rules.live_until_back else desk.sent
        return desk.state == ACTIVE and begin <= (line - desk.done) % WRAP <= len(desk.lines)

    def has_room(self, desk):
        return len(desk.lines) < self.slots

    def send(self, b, w):
        most = self.k if self.rules.window else self.slots
        while b.desks[w].state == ACTIVE and b.desks[w].sent < min(most, len(b.desks[w].lines)):
            desk = b.desks[w]
            number = (desk.done + desk.sent) % WRAP
            place, items = f"line{w}.{number % self.k}", desk.lines[desk.sent]
            for word, item in enumerate(items):
                yield write(f"{place}.{word}", item)
            yield store(place, (number, len(items), False), self.rules.d0)
            b = b.at(w, sent=desk.sent + 1)
        return b

    # A worker.

    def ring(self):
        yield update("bell", lambda n: n + 1, self.rules.ring)

    def wish(self, w, epoch, what):
        if not self.rules.ring_last:
            yield from self.ring()
        yield store(f"wish{w}", (epoch, what), self.rules.w2)
        if self.rules.ring_last:
            yield from self.ring()

    def worker(self, name, w, stints=(None,), hired=False, returns=None, listens=False):
        """A thread that works at a desk for some stints, each until it has taken so many lines, or until it may not.

        A stint of -1 gives up before it was let in.  The thread returns what it got, and how often it knew that it was
        fenced when it took a line.
        """
        owned = bool(self.names)
        first = Cursor(epoch=1, phase="in") if hired else Cursor()

        def let_go(c):
            if owned and not (yield compare_exchange(f"owner{w}", name, "", self.rules.let_go)):
                return replace(c, got=(*c.got, "lost its desk"))
            return c

        def go_out(c):
            yield from self.wish(w, c.epoch, LEAVE)
            return replace((yield from let_go(c)), phase="away", stint=c.stint + 1, took=0)

        def come(c):
            if owned and not (yield compare_exchange(f"owner{w}", "", name, self.rules.own)):
                if (yield load(f"grant{w}", RELAXED))[0] == CLOSED:
                    return replace(c, stint=len(stints))
                yield turn(c)
            if owned and not self.rules.one_word:
                yield store(f"who{w}", name, RELEASE)
            if self.rules.epoch_of_wish:
                epoch = (yield load(f"wish{w}", RELAXED))[0] + 1
            else:
                epoch = (yield load(f"grant{w}", ACQUIRE))[1] + 1
            yield from self.wish(w, epoch, JOIN)
            return replace(c, phase="waits", epoch=epoch)

        def give_back(number, items):
            place = f"line{w}.{number % self.k}"
            count = len(items) if returns is None else returns(items)
            for word, item in enumerate(items[:count]):
                yield write(f"{place}.{word}", item)
            yield store(place, (number, count, True), self.rules.w0)

        def take(c):
            """Look for the next line, and work on it; the cursor after it."""
            number, count, _ = yield load(f"line{w}.{c.next % self.k}", self.rules.d1)
            if number != c.next:
                return c
            items = ()
            for word in range(count):
                items += ((yield read(f"line{w}.{number % self.k}.{word}")),)
            if self.flows and items:
                flow = f"flow {items[0][0]}"
                yield write(flow, (yield read(flow)) + items)
            late = c.got if not c.warned else (*c.got, "taken in spite of the fence")
            c = replace(c, next=(c.next + 1) % WRAP, took=c.took + 1, got=late + items)
            if c.took == stints[c.stint] and not self.rules.gives_back_first:
                c = yield from go_out(c)
                yield from give_back(number, items)
                return c
            yield from give_back(number, items)
            return c

        def run():
            c = yield begin(first)
            if c.stint == len(stints):
                if owned:
                    yield store(f"death {name}", True, RELEASE)  # its end is as good as any
                return c.got
            if c.phase == "away":
                yield turn((yield from come(c)))
            if stints[c.stint] in (c.took, -1):
                yield turn((yield from go_out(c)))
            if listens and not c.warned and (yield load("told", ACQUIRE)):
                c = replace(c, warned=True)
            if c.phase == "waits" or self.rules.looks_at_grant:
                state, epoch, start = yield load(f"grant{w}", self.rules.w3)
                if state == CLOSED:
                    yield turn(replace((yield from let_go(c)), stint=len(stints)))
                if c.phase == "waits":
                    if state != ACTIVE or (epoch != c.epoch and self.rules.knows_epoch):
                        yield turn(c)
                    if not self.rules.start_granted:
                        start = yield load(f"start{w}", self.rules.w3)
                    c = replace(c, phase="in", next=start)
                elif state != ACTIVE:
                    yield turn((yield from go_out(replace(c, warned=False))))
            c = yield from take(c)
            if not self.rules.looks_at_grant and (yield load(f"grant{w}", self.rules.w3))[0] == CLOSED:
                return c.got
            yield turn(c)

        return run
