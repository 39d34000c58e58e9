"""Running graphs: workers as threads, a control thread beside them, and a clean end whatever happens.

Theory of operation
-------------------
:func:`start` checks the graph, opens its elements, makes a copy of it for each worker, compiles what is not compiled,
and starts a thread for each worker, which stays in one kernel without the GIL until the run ends.  A control thread
runs the elements' services (pumps of compressed files, say), watches heartbeats and the main thread, and closes
everything when the last worker has left.  Nothing is kept in this module: two runs in one process never meet.

An end comes when all sources are done, or by :meth:`Running.stop`, which ``with``, Ctrl-C, SIGTERM and the end of the
main thread all lead to.  Memory is unmapped only after every worker has left.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wirespeed.core.element import Chain, Element
from wirespeed.core.pool import drain as _drain
from wirespeed.core.stage import COMMON_DROPS, MAX_BURST, Part, Site
from wirespeed.engine import graph as graphs
from wirespeed.engine.clock import CycleClock
from wirespeed.engine.clock import read_cycles as _now
from wirespeed.engine.placement import GraphCopy, arena_for, pool_for
from wirespeed.engine.report import Report, StageReport, WorkerReport
from wirespeed.engine.worker import work
from wirespeed.errors import GraphError, WirespeedError

log = logging.getLogger("wirespeed")
STALL_S = 1.0  # a worker that makes no round for so long is named
CONTROL_S = 0.1  # the control thread looks at least so often


class Interrupted:
    """The value of ``until`` that means: until Ctrl-C or SIGTERM, after which the report is returned."""


interrupted = Interrupted()


def start(
    *chains: Chain | Element,
    workers: int = 1,
    burst: int = 32,
    cores: Sequence[int] | None = None,
    pool: int | None = None,
    busy: bool = False,
    taps: Mapping[str, Element] | None = None,
) -> "Running":
    """Start graphs and return at once; the :class:`Running` is a context manager that stops them.

    ``workers`` threads have a copy of the graph each; with ``cores``, worker i is pinned to ``cores[i % len(cores)]``.
    ``burst`` is the most packets that a stage sees at once, ``pool`` the number of packet buffers (a fitting one when
    not given), ``busy`` keeps idle workers from sleeping.  ``taps`` puts an element on the arrows that leave a stage
    (or reach a sink), by its name.  Raises :class:`GraphError`, :class:`FunctionError` or :class:`PortError` before
    anything runs.
    """
    if not 1 <= workers <= 256:
        raise GraphError(f"workers must be 1 to 256, got {workers}; a worker a core is the most that helps")
    if not 1 <= burst <= MAX_BURST:
        raise GraphError(f"burst must be 1 to {MAX_BURST}, got {burst}; 32 suits most machines")
    pinned = _cores(cores)
    return Running(graphs.build(chains, taps), workers, burst, pinned, pool, busy)


def _cores(cores: Sequence[int] | None) -> tuple[int, ...]:
    if cores is None:
        return ()
    allowed = os.sched_getaffinity(0)
    wrong = [c for c in cores if c not in allowed]
    if wrong or not cores:
        have = ", ".join(map(str, sorted(allowed)))
        raise GraphError(f"cores: got {list(cores)}, wanted some of {have}, which this process may run on")
    return tuple(cores)


def run(
    *chains: Chain | Element,
    seconds: float | None = None,
    until: Callable[["Running"], bool] | Interrupted | None = None,
    live: bool | Callable[["Running"], None] = False,
    **how: Any,
) -> Report:
    """Run graphs to their end and return the report; ``how`` is as for :func:`start`.

    The end is that of the sources, or ``seconds``, or when ``until(running)`` is true (asked about ten times a
    second).  Ctrl-C ends the run cleanly and is raised again; with ``until=wirespeed.interrupted``, it and SIGTERM
    are the usual end, and the report is returned.  ``live`` is called now and then with the Running, or True for a
    table in the terminal.
    """
    if seconds is not None and not seconds > 0:
        raise GraphError(f"seconds must be more than 0, got {seconds}; leave it out to run until the sources end")
    view = _live_table() if live is True else live or None
    with start(*chains, **how) as running, _sigterm(running) as signalled:
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while not running.wait(_step(deadline)):
                if view:
                    view(running)
                if deadline is not None and time.monotonic() >= deadline:
                    break
                if signalled or (callable(until) and until(running)):
                    break
        except KeyboardInterrupt:
            if not isinstance(until, Interrupted):
                raise
        running.stop()
        running.wait()
        if view:
            view(running)
        final = running.report()
    if signalled and not isinstance(until, Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)  # whoever handled it before us handles it now
    return final


def _step(deadline: float | None) -> float:
    return CONTROL_S if deadline is None else max(0.0, min(CONTROL_S, deadline - time.monotonic()))


def _live_table() -> Callable[["Running"], None]:
    raise GraphError(
        "live=True needs a terminal's table; pass live=wirespeed.observe.live.Table() or use the command line"
    )


@contextlib.contextmanager
def _sigterm(running: "Running") -> Iterator[list[int]]:
    """Let SIGTERM stop the run, where this is the main thread; yields a list that is not empty once it came."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, frame: Any) -> None:
        came.append(number)
        running.stop()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


class Running:
    """Graphs that run; made by :func:`start`.  Any thread may ask for reports or stop it.

    Leaving its ``with`` stops it and waits until the workers have left.  In a forked child it is not usable.
    """

    def __init__(
        self, graph: graphs.Graph, workers: int, burst: int, cores: tuple[int, ...], pool: int | None, busy: bool
    ) -> None:
        self._pid = os.getpid()
        self._graph = graph
        self._cores = cores
        self._clock = CycleClock()
        self._notes: list[str] = []
        self._final: Report | None = None
        self._ended = threading.Event()
        self._finished_workers = threading.Event()
        self._begin, self._end = time.perf_counter(), 0.0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._parts: dict[graphs.Node, Part] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, self._wake)
            self._arena = undo.enter_context(arena_for(graph, workers))
            self._pool = undo.enter_context(pool_for(pool, workers, graph))
            undo.callback(self._close_parts)  # while their memory is still mapped
            self._open_parts(workers)
            self._copies = [
                GraphCopy(graph, self._parts, Site(self._arena, self._pool, i, workers, burst, 0), self._wake, busy)
                for i in range(workers)
            ]
            work.compile("int64(int64)")
            self._undo = undo.pop_all()
        self._left = workers
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(i,), name=f"wirespeed-worker-{i}") for i in range(workers)
        ]
        self._control = threading.Thread(target=self._run_control, name="wirespeed-control")
        self._begin = time.perf_counter()
        for thread in [*self._threads, self._control]:
            thread.start()

    def _open_parts(self, workers: int) -> None:
        """Open each element once in each role, whatever number of nodes it has."""
        opened: dict[tuple[Element, str], Part] = {}
        for node in self._graph.nodes:
            key = (node.element, node.role)
            if key not in opened:
                opened[key] = node.element.open(node.role, workers)
            self._parts[node] = opened[key]

    def _close_parts(self) -> None:
        for part in dict.fromkeys(self._parts.values()):
            try:
                part.close()
            except OSError as error:
                self._note(str(error))
            except Exception as error:
                # Whatever a part's author did not foresee, the run ends and its memory is given back.
                log.exception("closing a part failed")
                self._note(f"closing a part failed: {error!r}")

    # What the threads run.

    def _work(self, number: int) -> None:
        if self._cores:
            os.sched_setaffinity(0, {self._cores[number % len(self._cores)]})
        try:
            work(self._copies[number].address)
        finally:
            with self._lock:
                self._left -= 1
                last = self._left == 0
            if last:
                self._end = time.perf_counter()
                self._finished_workers.set()

    def _run_control(self) -> None:
        services = [s for p in dict.fromkeys(self._parts.values()) if (s := getattr(p, "service", None))]
        heartbeat = Heartbeat(self)
        due = dict.fromkeys(services, 0.0)
        try:
            while not self._finished_workers.wait(self._next_look(due)):
                heartbeat.look()
                if not threading.main_thread().is_alive():
                    self.stop()
                for service in [s for s, at in due.items() if at <= time.monotonic()]:
                    again = service()
                    due[service] = float("inf") if again is None else time.monotonic() + again
        except Exception as error:
            log.exception("a port's service failed; the run is stopped")
            self._note(f"a port's service failed: {error}")
            self.stop()
            self._finished_workers.wait()
        for thread in self._threads:
            thread.join()
        self._finish()

    @staticmethod
    def _next_look(due: Mapping[Any, float]) -> float:
        nearest = min(due.values(), default=float("inf"))
        return max(0.0, min(CONTROL_S, nearest - time.monotonic()))

    def _finish(self) -> None:
        """After the last worker: close the parts, take the final report, give the memory back."""
        self._close_parts()
        with self._lock:  # a report that another thread is taking reads memory that is unmapped below
            self._final = self._snapshot(finished=True)
        self._parts.clear()
        if not self._final.balanced:
            log.error("the books do not balance:\n%s", self._final)
        self._undo.close()
        self._ended.set()

    def _note(self, text: str) -> None:
        if text not in self._notes:
            log.warning("%s", text)
            self._notes.append(text)

    # What users call.

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return not self._ended.is_set()

    def stop(self) -> None:
        """Tell the workers to leave; what is on its way is delivered first.  Returns at once; :meth:`wait` waits."""
        self._own()
        with self._lock:
            if self._left > 0:
                for copy in self._copies:
                    copy.worker.stop = 1
                os.eventfd_write(self._wake, 1)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it came within ``timeout`` seconds.  Ctrl-C is raised out of it."""
        self._own()
        if timeout is not None:
            return self._ended.wait(timeout)
        while not self._ended.wait(CONTROL_S):
            pass
        return True

    def report(self) -> Report:
        """What was done so far; after the end, in all."""
        self._own()
        with self._lock:
            return self._final or self._snapshot(finished=False)

    def _own(self) -> None:
        if os.getpid() != self._pid:
            raise WirespeedError(
                "this run belongs to the process that started it, not to its fork; start a new one here"
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()
        self.wait()

    # Reports.

    def _snapshot(self, finished: bool) -> Report:
        if finished:
            for copy in self._copies:
                _drain(copy.cache)
        stages = tuple(self._stage(i, node) for i, node in enumerate(self._graph.nodes))
        workers = tuple(self._worker(i, copy) for i, copy in enumerate(self._copies))
        return Report(
            (self._end or time.perf_counter()) - self._begin, stages, workers, self._pool.size, self._pool.free_count,
            self._pool.failures, tuple(self._notes), self._clock.hz(), finished,
        )  # fmt: skip

    def _stage(self, number: int, node: graphs.Node) -> StageReport:
        records = [copy.record(number) for copy in self._copies]
        edges = [[copy.edge(node, k).packets for copy in self._copies] for k in sorted(node.targets) if k > 0]
        first = sum(r.packets_out for r in records)
        outputs = (first, *(sum(e) for e in edges))
        heads = [copy.head(node) for copy in self._copies]
        drops: dict[str, int] = {}
        for copy in self._copies:
            for reason, n in copy.drops(node).items():
                drops[reason] = drops.get(reason, 0) + n
        timed = sum(r.timed for r in records)
        counters = getattr(self._parts[node], "counters", dict)
        waiting = sum(copy.waiting(node) for copy in self._copies)
        return StageReport(
            node.name, node.role, sum(r.packets_in for r in records), sum(outputs), outputs,
            sum(h.bytes for h in heads), sum(h.held for h in heads) + waiting, sum(r.refused for r in records), drops,
            {**COMMON_DROPS, **self._copies[0].placements[node].drops},
            sum(r.cycles for r in records) / timed if timed else None, counters(),
        )  # fmt: skip

    def _worker(self, number: int, copy: GraphCopy) -> WorkerReport:
        record = copy.worker
        now = record.end or int(_now())
        total = max(1, now - record.begin) if record.begin else 1
        idle = record.idle_cycles + (now - record.idle_since if record.idle_since else 0)
        core = self._cores[number % len(self._cores)] if self._cores else None
        return WorkerReport(number, core, record.loops, min(1.0, max(0.0, idle / total)), copy.stage_name())


class Heartbeat:
    """Notices a worker that makes no round, and names the stage it is in."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._seen: dict[int, tuple[int, float]] = {}
        self._named: set[tuple[int, str]] = set()

    def look(self) -> None:
        """Compare each worker's rounds with those of the last look."""
        now = time.monotonic()
        for number, copy in enumerate(self._running._copies):
            record = copy.worker
            loops, since = self._seen.get(number, (-1, now))
            if record.loops != loops or record.end:
                self._seen[number] = (record.loops, now)
            elif now - since >= STALL_S and (number, copy.stage_name()) not in self._named:
                self._named.add((number, copy.stage_name()))
                self._running._note(f"worker {number} has been in {copy.stage_name()} for {now - since:.1f} s")
