"""One run from the command line: its options, what is shown meanwhile, and its end.

Standard output gets the report, unless packets go there; all that is shown meanwhile goes to standard error.  The
first Ctrl-C (or SIGTERM, or SIGHUP) ends the run with its report; the second leaves at once, whatever is on its way.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser, cores, seconds, whole

LONG_S = 2.0  # after so long, somebody who watches no table is told that something is being compiled
PATIENCE_S = 1.0  # after so long, somebody who waits for a run to stop is told how to leave

if TYPE_CHECKING:
    from wirespeed.core.element import Chain
    from wirespeed.engine.report import Report
    from wirespeed.observe.live import LiveLines, LiveTable

    View = Callable[..., LiveTable | LiveLines | None]


def configure(
    parser: Parser, *, workers: str = "threads with a copy of the chain each (one; or one a core of --cores)"
) -> None:
    """The options that every run has; ``workers`` says what these are."""
    add = parser.add_argument
    add("--json", action="store_true", help="print the report as JSON")
    add("--seconds", type=seconds, metavar="S", help="end the run after so long: 3, 0.5, 250ms, 2min")
    add("--workers", type=whole(1, 256), metavar="N", help=workers)
    add("--cores", type=cores, metavar="LIST", help="pin the workers to these cores in turn: 0, 0-1, 0,2,4-5")
    add("--burst", type=whole(1, 256), metavar="N", default=32, help="most packets that a stage sees at once (32)")
    add("--pool", type=whole(1, 1 << 30), metavar="N", help="packet buffers (as many as the chain may need)")
    add("--busy", action="store_true", help="never sleep while there is nothing to do")
    add("--no-live", action="store_true", help="show no table of rates while it runs")


def conduct(
    chain: "Chain",
    arguments: Any,
    *,
    further: Sequence["Chain"] = (),
    taps: dict[str, Any] | None = None,
    lines: bool = False,
    crew: int = 0,
    view: "View | None" = None,
) -> "Report":
    """Run a chain to its end, or to its first interruption, showing how it goes; ``lines``: also without a terminal.

    ``further`` chains run beside it.  ``crew`` is how many threads its stages have of their own, ``view`` how it is shown,
    where not by the usual table.
    """
    from wirespeed.engine.run import interrupted, run
    from wirespeed.observe.machine import crowding

    if os.environ.get("WIRESPEED_TRACE") != "1":
        # What the log would say stands in the report's notes.
        logging.getLogger("wirespeed").addHandler(logging.NullHandler())
    workers = arguments.workers or len(arguments.cores or [0])
    if crowded := crowding(workers + crew):
        print(f"wirespeed: {crowded}", file=sys.stderr)
    with ExitStack() as stack:
        stack.enter_context(second_interrupt_leaves())
        stack.enter_context(relayed({signal.SIGHUP: signal.SIGTERM}))
        live = stack.enter_context(shown(lines=lines, view=untold if arguments.no_live else view))
        return run(
            chain,
            *further,
            seconds=arguments.seconds,
            until=interrupted,
            live=live,
            workers=workers,
            cores=arguments.cores,
            burst=arguments.burst,
            pool=arguments.pool,
            busy=arguments.busy,
            taps=taps,
        )


def tell(report: "Report", arguments: Any, *, to_stderr: bool = False) -> int:
    """Print the report; the exit code says whether its books balance and no port failed."""
    print(report.to_json() if arguments.json else report, file=sys.stderr if to_stderr else sys.stdout)
    return 0 if report.balanced and not report.errors else 1


@contextmanager
def second_interrupt_leaves() -> Iterator[None]:
    """Within, the first Ctrl-C is raised as usual; the second ends the process, even one with a worker that hangs."""
    patience = threading.Timer(PATIENCE_S, say, ("still stopping; Ctrl-C again leaves at once",))
    patience.daemon = True

    def interrupt(number: int, frame: Any) -> None:
        if not patience.is_alive() and not patience.finished.is_set():
            patience.start()
            raise KeyboardInterrupt
        say("left at once; packets on their way are lost, and files may be incomplete")
        os._exit(130)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        patience.cancel()
        signal.signal(signal.SIGINT, before)


def say(text: str, before: str = "\n") -> None:
    """Write a line to standard error, past all buffers; ``before`` it, a new one, for there may be a ``^C``."""
    os.write(2, f"{before}wirespeed: {text}\n".encode())


@contextmanager
def relayed(signals: dict[signal.Signals, signal.Signals]) -> Iterator[None]:
    """Within, one signal counts as another: the terminal's going, say, as the end of the run.

    One that is ignored (as by nohup) stays so.  A terminal that has gone takes no text; what is meant for it is then
    thrown away, so that a report still goes to a file.
    """
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def relay(number: int, frame: Any) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in terminals:
            if not os.isatty(fd):
                os.dup2(nowhere, fd)
        os.close(nowhere)
        signal.raise_signal(signals[signal.Signals(number)])

    found = {number: signal.getsignal(number) for number in signals}
    before = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, relay)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shown(*, lines: bool = False, view: "View | None" = None) -> Iterator["LiveTable | LiveLines | Announcement"]:
    """Within, standard error shows what is compiled and, where the view is called, how a run goes."""
    from wirespeed.jit.kernel import on_compile
    from wirespeed.observe import live as usual

    with (view or usual.view)(lines=lines) or Announcement() as live:
        on_compile(live.compiling)
        try:
            yield live
        finally:
            on_compile(None)


def untold(*, lines: bool) -> None:
    """The view of who wants none."""


class Announcement:
    """Says once that something is being compiled, if it takes long, and then that it is done; a log stays empty else."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._said = False
        self._begun = False

    def compiling(self, name: str) -> None:
        """One more kernel is about to be compiled."""
        if self._timer is None and not self._begun:
            self._timer = threading.Timer(LONG_S, self._say)
            self._timer.daemon = True
            self._timer.start()

    def _say(self) -> None:
        self._said = True
        say("compiling for this processor, once: later runs take it from the cache", before="")

    def __call__(self, running: object = None) -> None:
        """Something runs, so all that it needs is there."""
        from wirespeed.jit.kernel import compiled

        self.close()
        if self._said and not self._begun:
            say(f"running; {len(compiled())} kernels were compiled", before="")
        self._begun = True

    def close(self) -> None:
        """Say nothing more of compiling."""
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> "Announcement":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
