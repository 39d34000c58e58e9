"""What every bench needs: pinned and timed processes, interleaved runs, medians, rows, a table and JSON.

*Theory of operation.* A figure is the median of several runs. All sides of a comparison are measured in turn, round by
round, on the same core, so that a drift of the machine meets all of them alike. What a program does once (start, load
libraries, compile) is taken out by subtraction: a long and a short run differ only in packets, so their difference in
time is the cost of those packets (:func:`steady`).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, TypeVar

T = TypeVar("T", bound=Hashable)

TIMEOUT_SECONDS = 900.0
MORE_IS_BETTER = {
    "Mpps": True, "x": True, "Mitems/s": True, "pairs in 0.1 s": True, "Gb/s": True, "kept": True, "k/s": True,
    "cycles/packet": False, "cycles/element": False, "cycles": False, "s": False, "ns": False, "MB": False, "us": False,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    peer: bool
    quick: bool
    runs: int
    core: int
    only: str = ""

    def wants(self, name: str) -> bool:
        """Whether rows of this name were asked for."""
        return self.only in name


class ToolFailed(Exception):
    """A measured program ended in error or did not do its work; the bench goes on and says so in its row."""


@dataclass(frozen=True)
class Figure:
    """The median of ``n`` runs, and their spread."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Figure":
        """Make the figure of some samples; at least one is needed."""
        return cls(median(samples), min(samples), max(samples), len(samples))


def steady(packets: tuple[int, int], short: Sequence[float], long: Sequence[float]) -> Figure | None:
    """Million packets a second, from the seconds of short and long runs of ``packets`` packets each.

    The value comes from the difference of the medians, which a single disturbed run cannot move; the spread comes from
    the runs paired as they were made. None when the runs do not differ: then the share was too short to tell.
    """
    more = (packets[1] - packets[0]) / 1e6
    difference = median(long) - median(short)
    if difference <= 0:
        return None
    pairs = [more / (b - a) for a, b in zip(short, long, strict=True) if b > a] or [more / difference]
    value = more / difference
    return Figure(value, min(value, *pairs), max(value, *pairs), len(long))


def speedup(unit: str, ours: float, theirs: float) -> float | None:
    """How many times better ours is: above 1 we are faster, or smaller, than they. None when nothing can be said."""
    above, below = (ours, theirs) if MORE_IS_BETTER[unit] else (theirs, ours)
    return above / below if above > 0 and below > 0 else None


@dataclass(frozen=True)
class Row:
    """One published figure: ours, the peer's, and how many times better ours is."""

    name: str
    unit: str
    ours: Figure | None
    peer: str | None = None
    theirs: Figure | None = None
    note: str = ""
    extra: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def speedup(self) -> float | None:
        if self.ours is None or self.theirs is None:
            return None
        return speedup(self.unit, self.ours.value, self.theirs.value)

    def record(self) -> dict[str, object]:
        """The row as it stands in the JSON file; absent figures are null, spreads and notes are further keys."""
        out: dict[str, object] = {
            "name": self.name,
            "unit": self.unit,
            "ours": _rounded(self.ours.value if self.ours else None),
            "peer": self.peer,
            "theirs": _rounded(self.theirs.value if self.theirs else None),
            "speedup": _rounded(self.speedup),
        }
        for side, figure in (("ours", self.ours), ("theirs", self.theirs)):
            if figure:
                out[f"{side}_min"], out[f"{side}_max"] = _rounded(figure.low), _rounded(figure.high)
                out[f"{side}_n"] = figure.n
        if self.note:
            out["note"] = self.note
        return out | dict(self.extra)


def row_name(*parts: str | None) -> str:
    """``capture.rewrite.64B.dpkt``: bench, case, variant and, where there is one, peer."""
    return ".".join(part for part in parts if part)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def write_json(path: Path, rows: Iterable[Row]) -> None:
    """Write one object a line; the file is whole after every call."""
    lines = [json.dumps(row.record(), allow_nan=False) + "\n" for row in rows]
    part = path.with_name(path.name + ".part")
    part.write_text("".join(lines), encoding="utf-8")
    part.replace(path)


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print the rows for people."""
    from rich.console import Console  # Measured programs import this module too, and need no tables.
    from rich.table import Table

    table = Table(title=title)
    for heading in ("row", "unit", "ours", "theirs", "speedup", "spread of ours", "of theirs", "note"):
        table.add_column(heading, justify="left" if heading in ("row", "unit", "note") else "right", overflow="fold")
    for row in rows:
        table.add_row(
            row.name,
            row.unit,
            _text(row.ours.value if row.ours else None),
            _text(row.theirs.value if row.theirs else None) if row.peer else "",
            _text(row.speedup) if row.peer else "",
            _spread(row.ours),
            _spread(row.theirs),
            row.note,
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _spread(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.low:.3g}..{figure.high:.3g} n={figure.n}"


def say(line: str) -> None:
    """Tell the user how far things are, beside the table."""
    print(line, file=sys.stderr, flush=True)


def interleave(things: Sequence[T], rounds: int, once: Callable[[T], None]) -> None:
    """Do ``once`` for each thing in turn, ``rounds`` times; every other round runs backwards, which cancels drifts."""
    for number in range(rounds):
        for thing in things if number % 2 == 0 else reversed(things):
            once(thing)


@contextmanager
def affinity(cores: Iterable[int]) -> Iterator[None]:
    """Keep this thread, and the processes it starts meanwhile, on ``cores``."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Finished:
    """A process that ended well."""

    seconds: float
    output: str


@dataclass(frozen=True)
class Memory:
    """The most a process held at once, in megabytes (10^6 bytes)."""

    anonymous: float
    mapped: float


def run_timed(command: Sequence[str], cores: Iterable[int]) -> Finished:
    """Run a command on ``cores`` and take the wall-clock time from its start to its end."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        start = time.perf_counter()
        process = _start(command, cores, output, errors)
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"{command[0]} did not end within {TIMEOUT_SECONDS:.0f} s") from error
        finally:
            _kill(process)
        seconds = time.perf_counter() - start
        _check(command, process.returncode, errors)
        output.seek(0)
        return Finished(seconds, output.read())


def run_sampled(command: Sequence[str], cores: Iterable[int], period_seconds: float = 0.005) -> Memory:
    """Run a command and sample what memory it holds; not for timing.

    The kernel's own peak (``ru_maxrss``) is no use here: a child begins with the peak of the process that started it.
    """
    peak = Memory(0.0, 0.0)
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        process = _start(command, cores, output, errors)
        try:
            while process.poll() is None:
                now = _memory(process.pid)
                peak = Memory(max(peak.anonymous, now.anonymous), max(peak.mapped, now.mapped))
                time.sleep(period_seconds)
        finally:
            _kill(process)
        _check(command, process.returncode, errors)
    return peak


def _start(command: Sequence[str], cores: Iterable[int], output: IO[str], errors: IO[str]) -> subprocess.Popen[bytes]:
    """Start a command; files take its words, for a pipe that nobody empties would hold it up."""
    with affinity(cores):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _check(command: Sequence[str], code: int, errors: IO[str]) -> None:
    if code != 0:
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["no message"])[-1]
        raise ToolFailed(f"{Path(command[0]).name} ended with {code}: {last[:200]}")


def _memory(pid: int) -> Memory:
    """What a process holds now (proc_pid_status(5)); huge pages of hugetlbfs are in none of the Rss lines."""
    held = dict.fromkeys(("RssAnon", "RssFile", "RssShmem", "HugetlbPages"), 0.0)
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in held:
                held[name] = int(rest.split()[0]) * 1024 / 1e6
    except (FileNotFoundError, ProcessLookupError):
        pass  # It ended meanwhile.
    return Memory(held["RssAnon"] + held["HugetlbPages"], held["RssFile"] + held["RssShmem"])
