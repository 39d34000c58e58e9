"""``wirespeed throughput``: the rate at which a device, or a function, loses nothing, for each size of frames.

A row is printed as soon as it is found.  Ctrl-C (or SIGTERM, or SIGHUP) breaks the search off; what was found stays.
"""

import signal
import sys
from typing import TYPE_CHECKING, Any, Self

from wirespeed.cli import session
from wirespeed.cli.parser import Parser, cores, listed, seconds, whole
from wirespeed.cli.rows import COLUMNS, aligned, always_lost, comma_separated, csv_heading, line_of, row
from wirespeed.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirespeed.apps.throughput import Throughput
    from wirespeed.apps.trial import Bench, Trial
    from wirespeed.ports.options import Rate

EPILOG = """
words:
  kind:target,option=value   a port; `wirespeed ports` lists them
  file.py                    the function in that file that is decorated with @wirespeed.function
  file.py:name               one of several

With two ports, packets leave by the first one and are expected back at the second one: what lies between is measured.
They are ports that lead somewhere: packet:, xdp:, tap:. To send a capture at a rate, `wirespeed run pcap:in.pcap,rate=...`.
Functions between the two words are run on what comes back, before it is checked. With functions alone, they are
measured themselves, in memory.

Each trial sends for --seconds (RFC 2544 wants 60) at one rate; the rate is halved towards the highest one that loses
no more than --tolerance. Sizes are those of frames with their check sequence; the packets are 4 bytes shorter in
memory, and carry a number and a time in their last 18 bytes, so their latency is known as well. The column limit says
what kept the rate from being higher: the device, the sender, or --max-rate. Rows are printed as they are found; Ctrl-C
ends the search. A rate of 0 means that packets were lost at every rate; the loss is then that at the lowest one.

examples:
  wirespeed throughput packet:tx0 packet:rx0
  wirespeed throughput packet:tx0 packet:rx0 --sizes 64,1518 --seconds 60 --max-rate 10Gbps
  wirespeed throughput packet:tx0 packet:rx0 --packets eth_dst=02:00:00:00:00:09,dst=10.0.2.1,flows=100 --json
  wirespeed throughput one_hop.py
"""


def configure(parser: Parser) -> None:
    """Declare the words and options."""
    parser.epilog = EPILOG
    parser.formatter_class = Parser.Verbatim
    add = parser.add_argument
    add("words", nargs="+", metavar="WORD", help="a port to send by, functions, a port to receive by; or functions")
    add("--sizes", metavar="LIST", help="sizes of frames, with their check sequence (64,128,256,512,1024,1280,1518)")
    add("--seconds", type=seconds, metavar="S", default=2.0, help="how long each trial sends (2)")
    add("--tolerance", type=percent, metavar="P", default=0.0, help="how much may be lost: 0.1%% (nothing)")
    add("--resolution", type=percent, metavar="P", default=0.01, help="how closely the rate is looked for (1%%)")
    add("--max-rate", metavar="RATE", help="the highest rate to try, in packets or in bits of a line: 1Mpps, 10Gbps")
    add("--line", metavar="RATE", help="the line's rate, of which the column line tells the part (--max-rate in bits)")
    add("--packets", metavar="OPTIONS", default="", help="options of generator: for the packets: dst=10.0.0.2,flows=9")
    add("--workers", type=whole(1, 256), metavar="N", default=1, help="threads that send, and as many that receive (1)")
    add("--cores", type=cores, metavar="LIST", help="pin the sender to the first, the receiver to the second of these")
    add("--json", action="store_true", help="print the results as JSON, every trial included")
    add("--csv", action="store_true", help="print the results as comma-separated values")


def main(arguments: Any) -> int:
    """Find the throughput for each size, showing the trials meanwhile, and print each row when it is found."""
    from wirespeed.apps.throughput import SIZES, throughput

    if arguments.json and arguments.csv:
        raise GraphError("got --json and --csv, wanted one of them")
    most, line = rate(arguments.max_rate, "max-rate"), rate(arguments.line, "line")
    if line is not None and line.unit != "bps":
        raise GraphError(f"option --line: got {arguments.line!r}, wanted bits a second such as 10Gbps")
    if line is None and most is not None and most.unit == "bps":
        line = most
    sizes = sizes_of(arguments.sizes) if arguments.sizes else SIZES
    tried = bench(arguments)
    with (
        session.second_interrupt_leaves(),
        session.relayed({signal.SIGTERM: signal.SIGINT, signal.SIGHUP: signal.SIGINT}),
        Search(sizes, arguments) as search,
    ):
        for one in throughput(
            tried,
            sizes=sizes,
            tolerance=arguments.tolerance,
            resolution=arguments.resolution,
            most=most,
            line_bps=None if line is None else float(line.value),
            progress=search.tried,
        ):
            search.found(one)
    return 0


class Search:
    """What is told of a search: a terminal's standard error shows the latest trial, standard output gets the results.

    Leaving its ``with`` tells what was left to tell: of JSON everything, and where a search was broken off.
    """

    def __init__(self, sizes: "Sequence[int]", arguments: Any) -> None:
        from rich.console import Console

        console = Console(stderr=True)
        drawn = console.is_terminal and not console.is_dumb_terminal
        self._status = console.status("first trial") if drawn else None
        self._announcement = session.Announcement()
        self._sizes = sizes
        self._arguments = arguments
        self._results: list[Throughput] = []
        self._trials: list[Trial] = []  # of the size at hand

    def tried(self, trial: "Trial") -> None:
        """One more trial was made."""
        self._trials.append(trial)
        self._announcement()
        if self._status:
            self._status.update(line_of(trial))

    def found(self, one: "Throughput") -> None:
        """One more size is done."""
        self._trials.clear()
        self._results.append(one)
        if self._arguments.csv:
            self._print([*([",".join(csv_heading())] if len(self._results) == 1 else []), comma_separated(one)])
        elif not self._arguments.json:
            self._print([*([aligned(COLUMNS)] if len(self._results) == 1 else []), aligned(row(one))])
        if one.best is None:
            self._print([always_lost(one)], sys.stderr)

    def _print(self, lines: list[str], file: Any = None) -> None:
        # A status that is shown takes what is printed to where it is itself.
        if self._status:
            self._status.stop()
        print(*lines, sep="\n", file=file, flush=True)
        if self._status:
            self._status.start()

    def _compiling(self, name: str) -> None:
        if self._status and not self._trials:
            self._status.update(f"compiling {name} (kept for later runs)")
        elif not self._status:
            self._announcement.compiling(name)

    def __enter__(self) -> Self:
        from wirespeed.jit.kernel import on_compile

        on_compile(self._compiling)
        if self._status:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        import json

        from wirespeed.jit.kernel import on_compile

        on_compile(None)
        self._announcement.close()
        if self._status:
            self._status.stop()
        if self._arguments.json and (self._results or kind is None or kind is KeyboardInterrupt):
            print(json.dumps([one.to_dict() for one in self._results]), flush=True)
        if kind is KeyboardInterrupt:
            session.say(self._broken_off())

    def _broken_off(self) -> str:
        """Where a search ended before its end, and what it had found of the size at hand."""
        from wirespeed.observe.live import si

        size = self._sizes[min(len(self._results), len(self._sizes) - 1)]
        said = f"broken off while {size} bytes were tried, after {len(self._trials)} trials"
        lossless = [t.offered_pps for t in self._trials if t.loss <= self._arguments.tolerance]
        if lossless:
            said += f", of which {si(max(lossless))}pps was the fastest that lost no more than is tolerated"
        left = [str(size) for size in self._sizes[len(self._results) + 1 :]]
        return said + (f"; {listed(left)} were not tried" if left else "")


def bench(arguments: Any) -> "Bench":
    """What the words name."""
    from wirespeed.apps.trial import Bench
    from wirespeed.cli.words import function_of, port_of
    from wirespeed.ports import KINDS

    words = arguments.words
    ports = [word.partition(":")[0] in KINDS for word in words]
    if any(ports[1:-1]) or (len(words) > 1 and ports[0] != ports[-1]) or ports == [True]:
        raise GraphError(
            f"got {' '.join(words)}, wanted two ports with functions between them, or functions alone; "
            "write for example packet:tx0 packet:rx0, or one_hop.py"
        )
    if not ports[0] and not words[0].partition(":")[0].endswith(".py"):
        port_of(words[0])  # raises, and says what may have been meant
    sender, receiver = (port_of(words[0]), port_of(words[-1])) if ports[0] else (None, None)
    functions = [function_of(word) for word in (words[1:-1] if ports[0] else words)]
    return Bench(sender, receiver, functions, arguments.seconds, arguments.packets, arguments.workers, arguments.cores)


def rate(text: str | None, name: str) -> "Rate | None":
    """The rate that an option names, or None."""
    from wirespeed.ports.options import Wanted
    from wirespeed.ports.options import rate as parse

    try:
        return None if text is None else parse(text)
    except Wanted as error:
        raise GraphError(f"option --{name}: got {text!r}, {error}") from None


def percent(text: str) -> float:
    """A part of 1, below 1: ``0.1%``, ``0.001``."""
    import argparse

    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a part such as 0.1% or 0.001")
    return value


def sizes_of(text: str) -> list[int]:
    """The sizes in a list with commas."""
    words = text.split(",")
    if not all(word.isdecimal() and len(word) < 6 for word in words):
        raise GraphError(f"option --sizes: got {text!r}, wanted sizes such as 64,512,1518")
    return [int(word) for word in words]
