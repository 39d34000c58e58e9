"""A running graph in the terminal: a table that is drawn again four times a second, or lines where there is no terminal.

Both are called with the :class:`~wirespeed.engine.run.Running` now and then, as ``wirespeed.run(live=...)`` does, and
look at the clock themselves; a call after the run's end takes the table away.
"""

import sys
import time
from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wirespeed.engine.report import Report
from wirespeed.engine.run import Running
from wirespeed.observe.rates import Rates, StageRate, between

TABLE_S = 0.25  # from one picture to the next
LINE_S = 1.0  # from one line to the next


class LiveTable:
    """Draws on a terminal (standard error when none is given), in place; leaves nothing behind at the end."""

    def __init__(self, console: Console | None = None, *, every_s: float = TABLE_S) -> None:
        self.console = console or Console(stderr=True)
        self.every_s = every_s
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._next = 0.0
        self._before: Report | None = None

    def __call__(self, running: Running) -> None:
        """Draw, if it is time to."""
        if not running.alive:
            self.close()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every_s
            now = running.report()
            self.draw(between(self._before, now))
            self._before = now

    def draw(self, rates: Rates) -> None:
        """Draw one picture."""
        self._live.start()
        self._live.update(picture(rates), refresh=True)

    def close(self) -> None:
        """Take the table away and give the terminal back.  Closing twice is harmless."""
        self._live.stop()

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
        self._before: Report | None = None

    def __call__(self, running: Running) -> None:
        """Write a line, if it is time to."""
        if running.alive and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every_s
            now = running.report()
            print(line(between(self._before, now)), file=self.file, flush=True)
            self._before = now

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


def picture(rates: Rates) -> RenderableType:
    """A run as it is drawn: a row for each stage, one for each reason of its drops, and the workers and the pool."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("stage", no_wrap=True, overflow="ellipsis", min_width=12)
    for heading in ("packets/s", "bits/s", "cycles/packet", "packets", "dropped"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stage in rates.stages:
        table.add_row(*_cells(stage))
    reasons = [Text(f"  {name} dropped {n:,}: {words}", "yellow") for name, words, n in _drops(rates)]
    notes = [Text(f"  {note}", "red") for note in rates.notes]
    return Group(table, *reasons, *notes, Text(_footer(rates), "dim"))


def _cells(stage: StageRate) -> Iterator[str | Text]:
    yield Text(stage.name, {"stage": "bold green"}.get(stage.kind, "cyan"))
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
    for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if value < 999.5 * factor:
            break
    scaled = value / factor
    digits = 0 if scaled >= 99.95 or value == 0 else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{digits}f} {prefix}"
