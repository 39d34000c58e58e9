"""``wirespeed throughput``: the rate at which a device, or a function, loses nothing, for each size of frames."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wirespeed.cli.parser import Parser, cores, seconds, whole
from wirespeed.errors import GraphError

if TYPE_CHECKING:
    from wirespeed.apps.throughput import Bench, Throughput, Trial
    from wirespeed.ports.options import Rate

EPILOG = """
words:
  kind:target,option=value   a port; `wirespeed ports` lists them
  file.py                    the function in that file that is decorated with @wirespeed.function
  file.py:name               one of several

With two ports, packets leave by the first one and are expected back at the second one: what lies between is measured.
Functions between the two words are run on what comes back, before it is checked. With functions alone, they are
measured themselves, in memory.

Each trial sends for --seconds (RFC 2544 wants 60) at one rate; the rate is halved towards the highest one that loses
no more than --tolerance. Sizes are those of frames with their check sequence; the packets are 4 bytes shorter in
memory, and carry a number and a time in their last 18 bytes, so their latency is known as well. The column limit says
what kept the rate from being higher: the device, the sender, or --max-rate.

examples:
  wirespeed throughput packet:tx0 packet:rx0
  wirespeed throughput packet:tx0 packet:rx0 --sizes 64,1518 --seconds 60 --max-rate 10Gbps
  wirespeed throughput packet:tx0 packet:rx0 --packets eth_dst=02:00:00:00:00:09,dst=10.0.2.1,flows=100 --json
  wirespeed throughput one_hop.py
"""
HEADINGS = ("size", "Mpps", "Gbps", "line", "loss", "limit", "trials", "lat. min", "p50", "p99", "p99.9", "max")


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
    """Find the throughput for each size, showing the trials meanwhile, and print the table."""
    from wirespeed.apps.throughput import SIZES, throughput

    if arguments.json and arguments.csv:
        raise GraphError("got --json and --csv, wanted one of them")
    most, line = rate(arguments.max_rate, "max-rate"), rate(arguments.line, "line")
    if line is not None and line.unit != "bps":
        raise GraphError(f"option --line: got {arguments.line!r}, wanted bits a second such as 10Gbps")
    if line is None and most is not None and most.unit == "bps":
        line = most
    sizes = sizes_of(arguments.sizes) if arguments.sizes else SIZES
    found = []
    with shown() as show:
        for one in throughput(
            bench(arguments),
            sizes=sizes,
            tolerance=arguments.tolerance,
            resolution=arguments.resolution,
            most=most,
            line_bps=None if line is None else float(line.value),
            progress=show,
        ):
            found.append(one)
    print(told(found, arguments))
    return 0


def bench(arguments: Any) -> "Bench":
    """What the words name."""
    from wirespeed.apps.throughput import Bench
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


@contextmanager
def shown() -> Iterator["Callable[[Trial], None] | None"]:
    """Within, a terminal's standard error shows the latest trial."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield None
        return
    with console.status("first trial") as status:
        yield lambda trial: status.update(line_of(trial))


def line_of(trial: "Trial") -> str:
    """A trial in one line."""
    from wirespeed.observe.live import si

    verdict = "no loss" if not trial.lost else f"lost {trial.lost:,} of {trial.sent:,} ({trial.loss:.2%})"
    return f"{trial.size} bytes at {si(trial.offered_pps)}pps: {verdict}, latency {trial.latency.summary()}"


def told(found: "list[Throughput]", arguments: Any) -> str:
    """The results as a table, as JSON or as comma-separated values."""
    if arguments.json:
        return json.dumps([one.to_dict() for one in found])
    if arguments.csv:
        return comma_separated(found)
    rows = [HEADINGS, *(row(one) for one in found)]
    widths = [max(len(line[i]) for line in rows) for i in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in rows)


def row(one: "Throughput") -> tuple[str, ...]:
    """A result as a row of the table."""
    from wirespeed.ports.checker.histogram import duration

    line = "-" if one.line is None else f"{one.line:.1%}"
    first = (str(one.size), f"{one.pps / 1e6:.3f}", f"{one.bps / 1e9:.3f}", line)
    if one.best is None:
        return (*first, "-", one.limit, str(len(one.trials)), *("-",) * 5)
    times = one.best.latency
    shown = (times.minimum, times.p50, times.p99, times.p999, times.maximum)
    return (*first, f"{one.best.loss:.3%}", one.limit, str(len(one.trials)), *(duration(t) for t in shown))


def comma_separated(found: "list[Throughput]") -> str:
    """A line of names and one for each result; times in nanoseconds."""
    names = ("size", "pps", "bps", "line", "limit", "sent", "received", "reordered", "duplicates", "jitter_ns")
    times = ("min", "mean", "p50", "p90", "p99", "p99.9", "max")
    lines = [",".join([*names, *(f"latency_{name}_ns" for name in times)])]
    for one in found:
        plain = one.to_dict()
        latency = plain.get("latency_ns", {})
        values = [plain.get(name) for name in names] + [latency.get(name) for name in times]
        lines.append(",".join("" if value is None else str(value) for value in values))
    return "\n".join(lines)
