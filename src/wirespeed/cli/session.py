"""One run from the command line: its options, what is shown meanwhile, and its end.

Standard output gets the report, unless packets go there; all that is shown meanwhile goes to standard error.  The
first Ctrl-C (or SIGTERM) ends the run with its report; the second leaves at once, whatever is on its way.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser, cores, seconds, whole

if TYPE_CHECKING:
    from wirespeed.core.element import Chain
    from wirespeed.engine.report import Report


def configure(parser: Parser) -> None:
    """The options that every run has."""
    add = parser.add_argument
    add("--json", action="store_true", help="print the report as JSON")
    add("--seconds", type=seconds, metavar="S", help="end the run after so long: 3, 0.5, 250ms, 2min")
    add(
        "--workers",
        type=whole(1, 256),
        metavar="N",
        help="threads with a copy of the chain each (one; or one a core of --cores)",
    )
    add("--cores", type=cores, metavar="LIST", help="pin the workers to these cores in turn: 0, 0-1, 0,2,4-5")
    add("--burst", type=whole(1, 256), metavar="N", default=32, help="most packets that a stage sees at once (32)")
    add("--pool", type=whole(1, 1 << 30), metavar="N", help="packet buffers (as many as the chain may need)")
    add("--busy", action="store_true", help="never sleep while there is nothing to do")
    add("--no-live", action="store_true", help="show no table of rates while it runs")


def conduct(chain: "Chain", arguments: Any, *, taps: dict[str, Any] | None = None, lines: bool = False) -> "Report":
    """Run a chain to its end, or to its first interruption, showing how it goes; ``lines``: also without a terminal."""
    from wirespeed.engine.run import interrupted, run

    if os.environ.get("WIRESPEED_TRACE") != "1":
        # What the log would say stands in the report's notes.
        logging.getLogger("wirespeed").addHandler(logging.NullHandler())
    workers = arguments.workers or len(arguments.cores or [0])
    with ExitStack() as stack:
        stack.enter_context(second_interrupt_leaves())
        live = None
        if not arguments.no_live:
            stack.enter_context(compiling_shown())
            from wirespeed.observe.live import view

            live = view(lines=lines)
            if live:
                stack.enter_context(live)
        return run(
            chain,
            seconds=arguments.seconds,
            until=interrupted,
            live=live or False,
            workers=workers,
            cores=arguments.cores,
            burst=arguments.burst,
            pool=arguments.pool,
            busy=arguments.busy,
            taps=taps,
        )


def tell(report: "Report", arguments: Any, *, to_stderr: bool = False) -> int:
    """Print the report; the exit code says whether its books balance."""
    print(report.to_json() if arguments.json else report, file=sys.stderr if to_stderr else sys.stdout)
    return 0 if report.balanced else 1


@contextmanager
def second_interrupt_leaves() -> Iterator[None]:
    """Within, the first Ctrl-C is raised as usual and the second ends the process, even with a worker in an endless loop."""
    came = 0

    def interrupt(number: int, frame: Any) -> None:
        nonlocal came
        came += 1
        if came == 1:
            raise KeyboardInterrupt
        os.write(2, b"\nwirespeed: left at once; packets on their way are lost, and files may be incomplete\n")
        os._exit(130)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def compiling_shown() -> Iterator[None]:
    """Within, standard error tells what is being compiled: in place on a terminal, else that it is, once."""
    from wirespeed.jit.kernel import on_compile

    show, clear = _compile_line() if sys.stderr.isatty() else (_compile_once(), lambda: None)
    on_compile(show)
    try:
        yield
    finally:
        on_compile(None)
        clear()


def _compile_line() -> tuple[Callable[[str], None], Callable[[], None]]:
    shown = False

    def show(name: str) -> None:
        nonlocal shown
        shown = True
        sys.stderr.write(f"\r\x1b[Kcompiling {name[:60]} (kept for later runs)")
        sys.stderr.flush()

    def clear() -> None:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    return show, clear


def _compile_once() -> Callable[[str], None]:
    told = False

    def show(name: str) -> None:
        nonlocal told
        if not told:
            told = True
            print("compiling for this processor; later runs take it from the cache", file=sys.stderr, flush=True)

    return show
