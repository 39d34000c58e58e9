"""A run while it goes on: workers as threads, a control thread beside them, and a clean end whatever happens.

Theory of operation
-------------------
Making a :class:`Running` opens the graph's elements, makes a copy of the graph for each worker, compiles what is not
compiled, and starts a thread for each worker, which stays in one kernel without the GIL until the run ends.  A control
thread runs the elements' services (pumps of compressed files, say), watches heartbeats and the main thread, and closes
everything when the last worker has left.

Parts may want crews (:mod:`wirespeed.engine.crew`): more workers, with copies of graphs of their own.  Stopping a run
stops the first crew, the workers of the graph itself; they bring what is on its way to an end, in which their stages'
crews help.  Whoever is the last of a crew to leave stops the next one.

Thread rules: any thread may ask for reports, stop or wait.  Memory is unmapped only after every worker has left, and
not while a report is being taken.
"""

import contextlib
import logging
import os
import threading
import time
from typing import Any

from wirespeed.core.arena import Arena
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.stage import Part, Site
from wirespeed.engine.clock import CycleClock
from wirespeed.engine.crew import RunningCrew, open_crews
from wirespeed.engine.graph import Graph
from wirespeed.engine.heartbeat import Heartbeat
from wirespeed.engine.placement import GraphCopy
from wirespeed.engine.report import Report
from wirespeed.engine.services import Services
from wirespeed.engine.snapshot import drain, worker_report
from wirespeed.engine.worker import work
from wirespeed.errors import GraphError, PortError, WirespeedError
from wirespeed.jit.interrupt import deferred
from wirespeed.jit.libc import wake_promptly

log = logging.getLogger("wirespeed")
SPARE_PACKETS = 1024
CONTROL_S = 0.1  # the control thread looks at least so often


class Running:
    """Graphs that run; made by :func:`start`.  Any thread may ask for reports or stop it.

    Leaving its ``with`` stops it and waits until the workers have left.  In a forked child it is not usable.
    """

    def __init__(
        self, graph: Graph, workers: int, burst: int, cores: tuple[int, ...], pool: int | None, busy: bool
    ) -> None:
        self._pid = os.getpid()
        self._cores = cores
        self._clock = CycleClock()
        self._notes: list[str] = []
        self._errors: list[str] = []
        self._final: Report | None = None
        self._ended = threading.Event()
        self._finished_workers = threading.Event()
        self._begin, self._end = time.perf_counter(), 0.0
        self._crews: list[RunningCrew] = []
        with contextlib.ExitStack() as undo:
            memory = undo.enter_context(contextlib.ExitStack())
            undo.callback(self._close_crews)  # while their memory is still mapped
            open_crews(self._crews, graph, workers)
            threads = sum(crew.workers for crew in self._crews)
            if pool is not None and threads > 1 and pool < 2 * burst:
                raise GraphError(
                    f"pool must be at least twice the burst of {burst}, got {pool}: what lies in the caches of {threads}"
                    " workers, half of the pool at most, the others cannot have; leave it out for one that fits"
                )
            self._arena = memory.enter_context(Arena(sum(crew.arena_bytes for crew in self._crews), huge=False))
            self._pool = memory.enter_context(PacketPool(pool or self._fitting_pool(), caches=threads))
            self._place(min(burst, self._pool.size), busy)
            work.prepare()
            self._undo = undo.pop_all()
        self._copies = [copy for crew in self._crews for copy in crew.copies]
        self._lock = threading.RLock()  # a signal's handler may stop the run while its thread takes a report
        self._threads = [
            threading.Thread(target=self._work, args=(crew, copy), name=f"wirespeed-worker-{copy.number}")
            for crew in self._crews
            for copy in crew.copies
        ]
        self._control = threading.Thread(target=self._run_control, name="wirespeed-control")
        self._begin = time.perf_counter()
        try:
            with deferred:  # raised between two threads' starts, Ctrl-C would leave workers that nobody stops
                self._start_threads()
        except KeyboardInterrupt:
            self.stop()
            self.wait()
            raise

    def _start_threads(self) -> None:
        """Start all threads or none: where the system has no more of them, those that run are stopped again."""
        started: list[threading.Thread] = []
        try:
            for thread in [*self._threads, self._control]:
                thread.start()
                started.append(thread)
        except RuntimeError as error:
            for crew in self._crews:
                crew.stop()
            for thread in started:
                thread.join()
            self._undo.close()
            raise WirespeedError(f"{error}; run with fewer workers, or raise the limit on processes") from error

    def _place(self, burst: int, busy: bool) -> None:
        """Make all copies; the workers are numbered in the order of the crews."""
        first = 0
        for crew in self._crews:
            crew.place(Site(self._arena, self._pool, 0, crew.workers, burst, 0), first, busy)
            first += crew.workers

    def _fitting_pool(self) -> int:
        """Packets for the whole run to have at once, and some to spare."""
        return sum(crew.pool_size for crew in self._crews) + SPARE_PACKETS

    def _parts(self) -> dict[Part, None]:
        return dict.fromkeys(part for crew in self._crews for part in crew.parts.values())

    def _close_crews(self) -> None:
        self._close_parts()
        for crew in self._crews:
            crew.close()

    def _close_parts(self) -> None:
        for part in self._parts():
            try:
                part.close()
            except OSError as error:
                self._note(str(error))
                self._errors.append(str(error))
            except Exception as error:
                # Whatever a part's author did not foresee, the run ends and its memory is given back.
                log.exception("closing a part failed")
                self._note(f"closing a part failed: {error!r}")
                self._errors.append(repr(error))

    # What the threads run.

    def _work(self, crew: RunningCrew, copy: GraphCopy) -> None:
        if self._cores:
            os.sched_setaffinity(0, {self._cores[copy.number % len(self._cores)]})
        wake_promptly()
        try:
            work.function(copy.address)
        finally:
            with self._lock:
                crew.left -= 1
                last = self._stop_next() is None
            if last:
                self._end = time.perf_counter()
                self._finished_workers.set()

    def _stop_next(self) -> RunningCrew | None:
        """Stop the first crew that has not left, unless it is that of the graph itself; return it."""
        crew = next((crew for crew in self._crews if crew.left > 0), None)
        if crew is not None and crew is not self._crews[0]:
            crew.stop()
        return crew

    def _run_control(self) -> None:
        services = Services(getattr(part, "service", None) for part in self._parts())
        heartbeat = Heartbeat(self._copies, self._note)
        while not self._finished_workers.wait(min(CONTROL_S, services.wait_s())):
            heartbeat.look()
            if not threading.main_thread().is_alive():
                self.stop()
            try:
                services.run_due()
            except PortError as error:  # a port that can do nothing more ends the run, as a reader does that went away
                self._note(str(error))
                self.stop()
            except Exception as error:
                log.exception("a port's service failed; the run is stopped")
                self._note(f"a port's service failed: {error!r}")
                self.stop()
        for thread in self._threads:
            thread.join()
        self._finish()

    def _finish(self) -> None:
        """After the last worker: close the parts, take the final report, give the memory back."""
        self._close_parts()
        with self._lock:  # a report that another thread is taking reads memory that is unmapped below
            self._final = self._snapshot(finished=True)
        for crew in self._crews:
            crew.parts.clear()
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
            if self._crews[0].left > 0:
                self._crews[0].stop()

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

    def _snapshot(self, finished: bool) -> Report:
        if finished:
            drain(self._copies)
        return Report(
            seconds=(self._end or time.perf_counter()) - self._begin,
            stages=tuple(report for crew in self._crews for report in crew.reports()),
            workers=tuple(worker_report(copy, self._cores) for copy in self._copies),
            pool_size=self._pool.size,
            pool_free=self._pool.free_count,
            pool_failures=self._pool.failures,
            notes=tuple(self._notes),
            errors=tuple(self._errors),
            tsc_hz=self._clock.hz(),
            finished=finished,
        )
