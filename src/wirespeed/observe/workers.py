"""The workers of a distributing stage in the terminal: a row for each, below the table of the stages, once a second."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from wirespeed.engine.distribute.part import DistributorShare, WorkerShare
from wirespeed.engine.report import Report, StageReport
from wirespeed.observe.live import LiveLines, LiveTable, picture, si
from wirespeed.observe.rates import Rates, between

EVERY_S = 1.0
# Packets a line and lines under way are means of what was sent since the last picture; the rest is as it is now.
HEADINGS = ("worker", "packets/s", "share", "a line", "lines", "in flight", "pinned", "taken over", "idle", "state")
STYLES = {"active": "green", "stalled": "red"}


@dataclass(frozen=True)
class WorkerRate:
    """What one worker did between two reports.

    ``share`` is its part of all packets sent, ``per_line`` how many a line had, ``under_way`` how many lines were on
    their way to it and back (0 where none was sent); ``in_flight`` packets are with it now or kept for it.
    """

    number: int
    packets_per_s: float
    share: float
    per_line: float
    under_way: float
    in_flight: int
    pinned: int
    takeovers: int
    idle_share: float
    state: str


class WorkersTable(LiveTable):
    """The live table with the workers below it."""

    def __init__(self, console: Console | None = None, *, every_s: float = EVERY_S) -> None:
        super().__init__(console, every_s=every_s)
        self._drawn: Report | None = None

    def draw(self, rates: Rates) -> None:
        """Draw one picture."""
        before, self._drawn = self._drawn, self._before
        assert self._drawn is not None, "it is drawn from a report"
        self._draw(Group(picture(rates, self.console.width), workers_picture(before, self._drawn)))


def view(*, lines: bool = False) -> LiveTable | LiveLines | None:
    """What suits standard error, as :func:`wirespeed.observe.live.view` decides it, with the workers."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return WorkersTable(console)
    return LiveLines() if lines or console.is_terminal else None


def distributing(report: Report) -> StageReport:
    """The stage of a report that has workers of its own; raises :class:`KeyError` where there is none."""
    for stage in report.stages:
        if any(isinstance(counter, WorkerShare) for counter in stage.counters.values()):
            return stage
    raise KeyError("no stage of this report has workers of its own")


def shares(stage: StageReport | None) -> list[WorkerShare]:
    """What each of its workers was given, in order."""
    return [c for c in (stage.counters.values() if stage else ()) if isinstance(c, WorkerShare)]


def worker_rates(before: Report | None, now: Report) -> list[WorkerRate]:
    """A rate for each worker, from one report to a later one of the same run; from its beginning without ``before``."""
    new = shares(distributing(now))
    old = shares(distributing(before)) if before else [WorkerShare(0, 0, 0.0)] * len(new)
    elapsed = now.seconds - (before.seconds if before else 0.0)
    whole = sum(b.packets - a.packets for a, b in zip(old, new, strict=True))
    crew = between(before, now).workers[-len(new) :]  # the threads of a crew are numbered after those of its graph
    rates = []
    for number, (a, b, thread) in enumerate(zip(old, new, crew, strict=True)):
        packets, lines = b.packets - a.packets, b.lines - a.lines
        rates.append(
            WorkerRate(
                number,
                packets / elapsed if elapsed > 0 else 0.0,
                packets / whole if whole else 0.0,
                packets / lines if lines else 0.0,
                (b.under_way * b.lines - a.under_way * a.lines) / lines if lines else 0.0,
                b.in_flight + b.waiting,
                b.pinned,
                b.takeovers,
                thread.idle_share,
                b.state,
            )
        )
    return rates


def workers_picture(before: Report | None, now: Report) -> RenderableType:
    """The workers as they are drawn, and the whole in a line."""
    rates = worker_rates(before, now)
    first = len(now.workers) - len(rates)
    title = f"The workers of {distributing(now).name}; worker k below has the thread of worker k + {first} above"
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for heading in HEADINGS[:-1]:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(HEADINGS[-1], no_wrap=True)
    for rate in rates:
        table.add_row(*_cells(rate), Text(rate.state, STYLES.get(rate.state, "yellow")))
    return Group(Text(), Text(title, "dim"), table, Text(summary(now), "dim"))


def _cells(rate: WorkerRate) -> Iterator[str]:
    yield str(rate.number)
    yield si(rate.packets_per_s)
    yield f"{rate.share:.0%}"
    yield f"{rate.per_line:.1f}"
    yield f"{rate.under_way:.1f}"
    yield f"{rate.in_flight:,}"
    yield f"{rate.pinned:,}"
    yield f"{rate.takeovers:,}"
    yield f"{rate.idle_share:.0%}"


def summary(now: Report) -> str:
    """What came in and what became of it, so far; and why nothing more is taken, where that is so."""
    stage = distributing(now)
    text = f"in {stage.packets_in:,}, out {stage.packets_out:,}, dropped {stage.dropped:,}, here {stage.held:,}"
    for counter in stage.counters.values():
        if isinstance(counter, DistributorShare):
            text += f", of these parked {counter.parked:,}" + (f"; {counter.blocked}" if counter.blocked else "")
    return text
