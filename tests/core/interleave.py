"""Runs small concurrent programs in every order that threads and a weakly ordered memory can produce.

Theory of operation
-------------------
A thread is a generator that yields an operation on shared memory and is sent its result.  Memory keeps, for each
place, all messages ever written, in modification order.  A thread has a *view*: for each place, the oldest message that
it may still read.  A relaxed load may return any message from there on, so stale values are tried as well; an acquiring
load also takes over the view that a releasing store left in the message.  Plain reads and writes must be ordered by
such views against each other, else they race, and that is an error, as is a state from which no way leads to the end.

All states that can be reached are visited once.  What a thread has been sent so far is its local state; a loop that
begins again forgets what its turn was sent, so loops need no bound.  :class:`StateCounts` has pytest print how many
states each test visited.  Source:
Kang, Hur, Lahav, Vafeiadis and Dreyer, "A promising semantics for relaxed-memory concurrency", POPL 2017, without
promises: stores are not moved before earlier loads, which no order of the algorithms here depends on.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

RELAXED, ACQUIRE, RELEASE, BOTH = "relaxed", "acquire", "release", "both"


class Violation(AssertionError):
    """Some order of events goes wrong; the message has the order."""


@dataclass(frozen=True)
class Op:
    """One operation of a thread."""

    kind: str
    place: str = ""
    value: Any = None
    expected: Any = None
    order: str = RELAXED


def load(place: str, order: str) -> Op:
    return Op("load", place, order=order)


def store(place: str, value: Any, order: str) -> Op:
    return Op("store", place, value, order=order)


def compare_exchange(place: str, expected: Any, value: Any, order: str = BOTH) -> Op:
    """Sends whether it did; a failed one still reads the last message, as the order says."""
    return Op("exchange", place, value, expected, order)


def wait(place: str, value: Any, order: str = RELAXED) -> Op:
    """A loop of loads until the value is there, or until ``value``, if that is a function, says yes to it."""
    return Op("wait", place, value, order=order)


def again(results: int) -> Op:
    """Go back to before the last so many results, as a loop does that begins its turn again; what was seen stays seen.

    A program never comes back from it: it is where it was then.
    """
    return Op("again", value=results)


def fence() -> Op:
    """A sequentially consistent fence."""
    return Op("fence")


def read(place: str) -> Op:
    """A plain read."""
    return Op("read", place)


def write(place: str, value: Any) -> Op:
    """A plain write."""
    return Op("write", place, value)


@dataclass(frozen=True)
class Done:
    """The end of a program."""

    result: Any

    def __hash__(self) -> int:
        return hash(repr(self.result))  # it may be a list


Program = Callable[[], Generator[Op, Any, Any]]
View = tuple[int, ...]
Message = tuple[Any, View]  # a value, and the view that an acquiring load takes over
Thread = tuple[tuple[Any, ...], View]  # what it was sent, and its view
State = tuple[tuple[Thread, ...], tuple[tuple[Message, ...], ...], View]  # threads, memory, the view of fences


def join(a: View, b: View) -> View:
    return tuple(map(max, a, b))


def at_least(view: View, place: int, stamp: int) -> View:
    return (*view[:place], max(view[place], stamp), *view[place + 1 :])


class Explorer:
    """Visits every state of some threads; ``check`` sees what all have returned, in each end state."""

    def __init__(
        self, programs: Mapping[str, Program], memory: Mapping[str, Any], check: Callable[[list[Any]], None]
    ) -> None:
        self.names, self.programs = list(programs), list(programs.values())
        # Behind each place is its shadow, a place that plain reads write to, so that writes can be ordered after them.
        self.places = {name: 2 * i for i, name in enumerate(memory)}
        self.blank: View = (0,) * (2 * len(memory))
        cells = tuple(((value, self.blank),) for value in memory.values() for _ in range(2))
        self.first: State = (tuple(((), self.blank) for _ in programs), cells, self.blank)
        self.check = check
        self._next: dict[tuple[int, tuple[Any, ...]], Any] = {}

    def next(self, thread: int, sent: tuple[Any, ...]) -> Any:
        """The operation that a thread does after it was sent so much, or that it is Done."""
        if sent and isinstance(sent[0], Done):
            return sent[0]
        key = (thread, sent)
        if key not in self._next:
            program = self.programs[thread]()
            try:
                op = program.send(None)
                for result in sent:
                    op = program.send(result)
                self._next[key] = op
            except StopIteration as stop:
                self._next[key] = Done(stop.value)
        return self._next[key]

    def run(self) -> int:
        """Visit all states; return how many there are."""
        number = {self.first: 0}
        traces: list[Any] = [None]  # how each state was first reached
        before: list[list[int]] = [[]]  # from which states each can be reached
        ends = []
        todo = [self.first]
        while todo:
            state = todo.pop()
            here = number[state]
            ops = [self.next(i, thread[0]) for i, thread in enumerate(state[0])]
            if all(isinstance(op, Done) for op in ops):
                self._end([op.result for op in ops], traces[here])
                ends.append(here)
            for following, trace in self._steps(state, ops, traces[here]):
                there = number.setdefault(following, len(traces))
                if there == len(traces):
                    traces.append(trace)
                    before.append([])
                    todo.append(following)
                before[there].append(here)
        finishing = set(ends)
        while ends:
            new = [earlier for earlier in before[ends.pop()] if earlier not in finishing]
            finishing.update(new)
            ends += new
        for here, trace in enumerate(traces):
            if here not in finishing:
                raise Violation("nobody can go on: " + self._story(trace))
        return len(traces)

    def _end(self, results: list[Any], trace: Any) -> None:
        try:
            self.check(results)
        except AssertionError as e:
            raise Violation(f"{e}; returned {results} after {self._story(trace)}") from e

    def _steps(self, state: State, ops: list[Any], trace: Any) -> list[tuple[State, Any]]:
        """The states that can follow.  A plain access is seen by nobody but by its races, so it need not wait."""
        found: list[tuple[State, Any]] = []
        for i, op in enumerate(ops):
            if isinstance(op, Done):
                continue
            made = [(self._rested(s, i), (trace, (self.names[i], op, r))) for s, r in self._apply(state, i, op, trace)]
            if op.kind in ("read", "write", "again"):
                return made
            found += made
        return found

    def _rested(self, state: State, i: int) -> State:
        """The same, with all forgotten of thread ``i`` but its result if it has ended."""
        op = self.next(i, state[0][i][0])
        return self._with(state, i, (op,), self.blank) if isinstance(op, Done) else state

    def _apply(self, state: State, i: int, op: Op, trace: Any) -> list[tuple[State, Any]]:
        """Each (state, result) that one operation of thread ``i`` can lead to."""
        if op.kind == "fence":
            sent, view = state[0][i]
            view = join(view, state[2])
            return [(self._with(state, i, (*sent, None), view, fences=view), None)]
        if op.kind == "again":
            sent, view = state[0][i]
            return [(self._with(state, i, sent[: len(sent) - op.value], view), None)]
        place = self.places[op.place]
        if op.kind in ("read", "write"):
            return [self._plain(state, i, op, place, trace)]
        if op.kind in ("load", "wait"):
            first = state[0][i][1][place]
            messages = state[1][place]
            awaited = op.value if callable(op.value) else lambda value: op.kind == "load" or value == op.value
            return [
                self._loaded(state, i, place, stamp, op.order)
                for stamp in range(first, len(messages))
                if awaited(messages[stamp][0])
            ]
        if op.kind == "exchange":
            last = len(state[1][place]) - 1
            loaded, value = self._loaded(state, i, place, last, op.order)
            if value != op.expected:
                return [(self._resent(loaded, i, False), False)]
            return [(self._stored(self._resent(loaded, i, True), i, place, op, state[1][place][last][1]), True)]
        sent, view = state[0][i]
        return [(self._stored(self._with(state, i, (*sent, None), view), i, place, op), None)]

    def _loaded(self, state: State, i: int, place: int, stamp: int, order: str) -> tuple[State, Any]:
        value, left = state[1][place][stamp]
        sent, view = state[0][i]
        view = at_least(view, place, stamp)
        if order in (ACQUIRE, BOTH):
            view = join(view, left)
        return self._with(state, i, (*sent, value), view), value

    def _stored(self, state: State, i: int, place: int, op: Op, kept: View | None = None) -> State:
        """Append a message; ``kept`` is the view in the message that an exchange replaces (its release sequence)."""
        sent, view = state[0][i]
        stamp = len(state[1][place])
        view = at_least(view, place, stamp)
        left = view if op.order in (RELEASE, BOTH) else at_least(self.blank, place, stamp)
        left = join(left, kept) if kept else left
        memory = self._appended(state[1], place, (op.value, left))
        return self._with((state[0], memory, state[2]), i, sent, view)

    def _plain(self, state: State, i: int, op: Op, place: int, trace: Any) -> tuple[State, Any]:
        sent, view = state[0][i]
        cells, shadow = state[1], place + 1
        unseen = view[place] < len(cells[place]) - 1 or (op.kind == "write" and view[shadow] < len(cells[shadow]) - 1)
        if unseen:
            raise Violation(
                f"{self.names[i]} races with another thread at its {op.kind} of {op.place}: {self._story(trace)}"
            )
        where = place if op.kind == "write" else shadow
        value = cells[place][-1][0] if op.kind == "read" else None
        memory = self._appended(cells, where, (op.value, self.blank))
        view = at_least(view, where, len(cells[where]))
        return self._with((state[0], memory, state[2]), i, (*sent, value), view), value

    @staticmethod
    def _appended(cells: tuple[Any, ...], place: int, message: Message) -> tuple[Any, ...]:
        return (*cells[:place], (*cells[place], message), *cells[place + 1 :])

    @staticmethod
    def _with(state: State, i: int, sent: tuple[Any, ...], view: View, fences: View | None = None) -> State:
        threads = (*state[0][:i], (sent, view), *state[0][i + 1 :])
        return threads, state[1], state[2] if fences is None else fences

    @staticmethod
    def _resent(state: State, i: int, result: Any) -> State:
        """The same, with ``result`` in place of what thread ``i`` was sent last."""
        sent, view = state[0][i]
        return Explorer._with(state, i, (*sent[:-1], result), view)

    @staticmethod
    def _story(trace: Any) -> str:
        steps = []
        while trace is not None:
            trace, (name, op, result) = trace
            told = f" -> {result}" if op.kind in ("load", "read", "exchange", "wait") else f" {op.value}"
            steps.append(f"{name}: {op.kind} {op.place}{told}")
        return "; ".join(reversed(steps)) or "the start"


visited: list[int] = []  # how many states each exploration of this process had


def explore(programs: Mapping[str, Program], memory: Mapping[str, Any], check: Callable[[list[Any]], None]) -> int:
    """Run programs in all orders from a memory of named places; return how many states there are.

    ``check`` gets what the programs returned, in the order of their names.  Raises :class:`Violation`.
    """
    visited.append(Explorer(programs, memory, check).run())
    return visited[-1]


class StateCounts:
    """A pytest plugin: prints how many states each test function visited.

    A count travels in its test's report, so that those of xdist's workers arrive.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        before = len(visited)
        result = yield
        if visited[before:]:
            item.user_properties.append(("states", (len(visited) - before, sum(visited[before:]))))
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        programs: Counter[str] = Counter()
        states: Counter[str] = Counter()
        for report in terminalreporter.getreports("passed"):
            for name, value in report.user_properties:
                if name == "states":
                    function = report.nodeid.partition("[")[0].rpartition("::")[2]
                    programs[function] += value[0]
                    states[function] += value[1]
        if states:
            terminalreporter.section("interleavings")
            for function, count in states.items():
                terminalreporter.line(f"{count:9,} states of {programs[function]:4,} programs: {function}")
            terminalreporter.line(f"{states.total():9,} states of {programs.total():4,} programs in all")
