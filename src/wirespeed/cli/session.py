"""One run from the command line: its options, what is shown meanwhile, and its end.

Standard output gets the report, unless packets go there; all that is shown meanwhile goes to standard error.  The
first Ctrl-C (or SIGTERM) ends the run with its report; the second leaves at once, whatever is on its way.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser, cores, seconds, whole

LONG_S = 10.0  # after so long, somebody who watches no table is told that something is being compiled
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
        live = None if arguments.no_live else stack.enter_context(shown(lines=lines, view=view))
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


def say(text: str) -> None:
    """Write a line to standard error, past all buffers."""
    os.write(2, f"\nwirespeed: {text}\n".encode())


@contextmanager
def shown(*, lines: bool = False, view: "View | None" = None) -> Iterator["LiveTable | LiveLines | None"]:
    """Within, standard error shows what is compiled and, where the view is called, how a run goes."""
    from wirespeed.jit.kernel import on_compile
    from wirespeed.observe import live as usual

    live = (view or usual.view)(lines=lines)
    on_compile(live.compiling if live is not None else LongCompilation())
    try:
        with live or nullcontext():
            yield live
    finally:
        on_compile(None)


class LongCompilation:
    """Told what is being compiled, says once that it takes long; a log that nobody asked for stays empty else."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._said = False

    def __call__(self, name: str) -> None:
        """One more kernel is about to be compiled."""
        now = time.monotonic()
        self._begin = now if self._begin is None else self._begin
        if not self._said and now - self._begin > LONG_S:
            self._said = True
            say("compiling for this processor, which takes a while; later runs take it from the cache")
