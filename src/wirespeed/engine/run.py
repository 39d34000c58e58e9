"""Running graphs to their end: ``run``, ``start``, and what ends a run from outside.

An end comes when all sources are done, or by :meth:`Running.stop`, which ``with``, Ctrl-C, SIGTERM and the end of the
main thread all lead to.  Nothing is kept in this module: two runs in one process never meet.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wirespeed.core.element import Chain, Element
from wirespeed.core.stage import MAX_BURST
from wirespeed.engine import graph as graphs
from wirespeed.engine.report import Report
from wirespeed.engine.running import CONTROL_S, Running
from wirespeed.errors import GraphError

MOST_PACKETS = 1 << 24  # in a pool: 40 GB, which no run needs and few machines have


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
) -> Running:
    """Start graphs and return at once; the :class:`Running` is a context manager that stops them.

    ``workers`` threads have a copy of the graph each; with ``cores``, worker i is pinned to ``cores[i % len(cores)]``.
    The workers of :func:`wirespeed.distribute` are numbered behind them.
    ``burst`` is the most packets that a stage sees at once, ``pool`` the number of packet buffers (a fitting one when
    not given), ``busy`` keeps idle workers from sleeping.  ``taps`` puts an element on the arrows that leave a stage
    (or reach a sink), by its name.  Raises :class:`GraphError`, :class:`FunctionError` or :class:`PortError` before
    anything runs.
    """
    _check("workers", workers, 256, "a worker a core is the most that helps")
    _check("burst", burst, MAX_BURST, "32 suits most machines")
    if pool is not None:
        _check("pool", pool, MOST_PACKETS, "leave it out for one that fits")
    pinned = _cores(cores)
    return Running(graphs.build(chains, taps), workers, burst, pinned, pool, busy)


def _check(name: str, value: Any, most: int, advice: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise GraphError(f"{name} must be a whole number from 1 to {most}, got {value!r}; {advice}")


def _cores(cores: Sequence[int] | None) -> tuple[int, ...]:
    if cores is None:
        return ()
    if isinstance(cores, int | str):
        raise GraphError(f"cores: got {cores!r}, wanted a list of core numbers such as [0, 1]")
    allowed = os.sched_getaffinity(0)
    wrong = [c for c in cores if c not in allowed]
    if wrong or not cores:
        have = ", ".join(map(str, sorted(allowed)))
        raise GraphError(f"cores: got {list(cores)}, wanted some of {have}, which this process may run on")
    return tuple(cores)


def run(
    *chains: Chain | Element,
    seconds: float | None = None,
    until: Callable[[Running], bool] | Interrupted | None = None,
    live: Callable[[Running], None] | None = None,
    **how: Any,
) -> Report:
    """Run graphs to their end and return the report; ``how`` is as for :func:`start`.

    The end is that of the sources, or ``seconds``, or when ``until(running)`` is true (asked about ten times a
    second).  Ctrl-C ends the run cleanly and is raised again; with ``until=wirespeed.interrupted``, it and SIGTERM
    are the usual end, and the report is returned.  ``live`` is called about ten times a second with the Running, and
    once after its end: ``wirespeed.LiveTable()`` draws a table in the terminal.
    """
    if seconds is not None and not _positive(seconds):
        raise GraphError(
            f"seconds must be a number above 0, got {seconds!r}; leave it out to run until the sources end"
        )
    if not (until is None or callable(until) or isinstance(until, Interrupted)):
        raise GraphError(f"until: got {until!r}, wanted a function of the Running, or wirespeed.interrupted")
    if live is not None and not callable(live):
        raise GraphError(
            f"live: got {live!r}, wanted something to call with the Running, such as wirespeed.LiveTable()"
        )
    with start(*chains, **how) as running, _sigterm(running) as signalled:
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while not running.wait(_step(deadline)):
                if live:
                    live(running)
                if deadline is not None and time.monotonic() >= deadline:
                    break
                if signalled or (callable(until) and until(running)):
                    break
        except KeyboardInterrupt:
            if not isinstance(until, Interrupted):
                raise
        running.stop()
        running.wait()
        if live:
            live(running)
        final = running.report()
    if signalled and not isinstance(until, Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)  # whoever handled it before us handles it now
    return final


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def _step(deadline: float | None) -> float:
    return CONTROL_S if deadline is None else max(0.0, min(CONTROL_S, deadline - time.monotonic()))


@contextlib.contextmanager
def _sigterm(running: Running) -> Iterator[list[int]]:
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
