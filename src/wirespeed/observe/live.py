"""A running graph in the terminal: a table drawn again four times a second, or lines where there is no terminal.

Both are called with the :class:`~wirespeed.engine.running.Running` now and then, as ``wirespeed.run(live=...)`` does, and
look at the clock themselves; a call after the run's end takes the table away.  Before that, ``compiling`` may be called
with what is being compiled, from any thread.
"""

import atexit
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wirespeed.engine.report import Report
from wirespeed.engine.running import Running
from wirespeed.observe.rates import Rates, StageRate, between

TABLE_S = 0.25  # from one picture to the next
LINE_S = 1.0  # from one line to the next
HEADINGS = ("stage", "packets/s", "bits/s", "cycles/packet", "packets", "dropped")
SHORTEST_NAME = 8  # characters left of a stage's name on a narrow terminal
CREW_INSET = "  "  # before the stages of a crew


class LiveTable:
    """Draws on a terminal (standard error when none is given), in place; leaves nothing behind at the end."""

    def __init__(self, console: Console | None = None, *, every_s: float = TABLE_S) -> None:
        self.console = console or Console(stderr=True)
        self.every_s = every_s
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._next = 0.0
        self._closed = False
        self._before: Report | None = None

    def __call__(self, running: Running) -> None:
        """Draw, if it is time to."""
        if not running.alive:
            self.close()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every_s
            before, self._before = self._before, running.report()
            self.draw(between(before, self._before))

    def compiling(self, name: str) -> None:
        """Say what is being compiled, as long as there is nothing else to see."""
        if self._before is None and not self._closed:
            plain = name.rpartition("_ws_stage_")[2]  # of a user's function, what the user calls it
            self._draw(Text(f"compiling {plain} (kept for later runs)", "dim", no_wrap=True, overflow="ellipsis"))

    def draw(self, rates: Rates) -> None:
        """Draw one picture."""
        self._draw(picture(rates, self.console.width))

    def _draw(self, what: RenderableType) -> None:
        if not self._live.is_started:
            atexit.register(self.close)  # a run that ends by an exception calls us no more, and the cursor is hidden
            self._live.start()
        self._live.update(what, refresh=True)

    def close(self) -> None:
        """Take the table away and give the terminal back.  Closing twice is harmless."""
        self._closed = True
        self._live.stop()
        atexit.unregister(self.close)

    def __enter__(self) -> "LiveTable":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class LiveLines:
    """Writes a line a second, for files, pipes and terminals that cannot move their cursor."""

    def __init__(self, file: IO[str] | None = None, *, every_s: float = LINE_S) -> None:
        self.file = file or sys.stderr
        self.every_s = every_s
        self._next = time.monotonic() + every_s
        self._told = False
        self._before: Report | None = None

    def __call__(self, running: Running) -> None:
        """Write a line, if it is time to."""
        if running.alive and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every_s
            now = running.report()
            print(line(between(self._before, now)), file=self.file, flush=True)
            self._before = now

    def compiling(self, name: str) -> None:
        """Say, once, that something is being compiled."""
        if not self._told:
            self._told = True
            print("compiling for this processor; later runs take it from the cache", file=self.file, flush=True)

    def close(self) -> None:
        """Nothing to take away."""

    def __enter__(self) -> "LiveLines":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def view(*, lines: bool = False) -> LiveTable | LiveLines | None:
    """What suits standard error: the table on a terminal, else lines if these are wanted, else nothing."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveTable(console)
    return LiveLines() if lines or console.is_terminal else None


def line(rates: Rates) -> str:
    """A run in one line."""
    stages = ", ".join(f"{s.name} {s.cycles_per_packet:.1f}" for s in rates.stages if s.cycles_per_packet is not None)
    idle = " ".join(f"{w.idle_share:.0%}" for w in rates.workers)
    text = f"{rates.seconds:5.1f} s  {si(rates.packets_per_s)}pps  {rates.packets:,} packets, {rates.dropped:,} dropped"
    return f"{text}; cycles/packet: {stages or '-'}; idle {idle}"


def picture(rates: Rates, width: int) -> RenderableType:
    """A run as it is drawn: a row for each stage, one for each reason of its drops, and the workers and the pool.

    Where ``width`` is not enough, the names of stages are cut and the numbers stay whole.
    """
    rows = [list(_numbers(stage)) for stage in rates.stages]
    numbers = sum(1 + max(len(cell) for cell in column) for column in zip(HEADINGS[1:], *rows, strict=True))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column(HEADINGS[0], no_wrap=True, overflow="ellipsis")
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for stage, row in zip(rates.stages, rows, strict=True):
        inset = CREW_INSET if stage.crew else ""
        name = inset + shorten(stage.name, max(SHORTEST_NAME, width - numbers - len(inset)))
        table.add_row(Text(name, {"stage": "bold green"}.get(stage.kind, "cyan")), *row)
    reasons = [Text(f"  {name} dropped {n:,}: {words}", "yellow") for name, words, n in _drops(rates)]
    notes = [Text(f"  {note}", "red") for note in rates.notes]
    return Group(table, *reasons, *notes, Text(_footer(rates), "dim"))


def shorten(name: str, length: int) -> str:
    """A stage's name in at most ``length`` characters: what goes is the middle, for a path ends in what tells it."""
    if len(name) <= length:
        return name
    kind = name[: name.find(":") + 1]
    kept = length - len(kind) - 1
    return f"{kind}…{name[-kept:]}" if kept > 0 else name[:length]


def _numbers(stage: StageRate) -> Iterator[str | Text]:
    yield si(stage.packets_per_s)
    yield "" if stage.bits_per_s is None else si(stage.bits_per_s)
    yield "" if stage.cycles_per_packet is None else f"{stage.cycles_per_packet:.1f}"
    yield f"{stage.packets:,}"
    yield Text(f"{stage.dropped:,}", "yellow" if stage.dropped else "")


def _drops(rates: Rates) -> Iterator[tuple[str, str, int]]:
    for stage in rates.stages:
        for reason, words, n in stage.drops:
            yield stage.name, f"{words} ({reason})", n


def _footer(rates: Rates) -> str:
    workers = ", ".join(
        f"worker {w.number}{'' if w.core is None else f' on core {w.core}'} idle {w.idle_share:.0%}"
        for w in rates.workers
    )
    empty = f", found empty {rates.pool_failures:,} times" if rates.pool_failures else ""
    return f"{rates.seconds:.1f} s; {workers}; pool {rates.pool_free:,} of {rates.pool_size:,} free{empty}"


def si(value: float) -> str:
    """A number in three digits and the prefix of its thousands, as ``9.81 M``; the unit comes behind it."""
    units = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
    prefix, factor = next((unit for unit in units if value < 999.5 * unit[1]), units[-1])
    scaled = value / factor
    digits = 0 if scaled >= 99.95 or value == 0 else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{digits}f} {prefix}"
