"""How a throughput is told: a trial in a line, a result as a row of a table or of comma-separated values."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed.apps.throughput import Throughput
    from wirespeed.apps.trial import Trial

# Headings and how wide their columns are, at least: rows are printed before the next one is known.
COLUMNS = {
    "size": 5, "Mpps": 7, "Gbps": 7, "line": 6, "loss": 7, "limit": 6, "trials": 6, "lat. min": 8, "p50": 7, "p99": 7,
    "p99.9": 7, "max": 7,
}  # fmt: skip
CSV_NAMES = ("size", "pps", "bps", "line", "limit", "sent", "received", "reordered", "duplicates", "jitter_ns")
CSV_TIMES = ("min", "mean", "p50", "p90", "p99", "p99.9", "max")


def line_of(trial: "Trial") -> str:
    """A trial in one line."""
    from wirespeed.observe.live import si

    verdict = "no loss" if not trial.lost else f"lost {trial.lost:,} of {trial.sent:,} ({trial.loss:.2%})"
    return f"{trial.size} bytes at {si(trial.offered_pps)}pps: {verdict}, latency {trial.latency.summary()}"


def always_lost(one: "Throughput") -> str:
    """What is said of a size that has no throughput."""
    from wirespeed.observe.live import si

    least = min(trial.offered_pps for trial in one.trials)
    return (
        f"wirespeed: {one.size} bytes: packets were lost at every rate, {one.loss:.3%} of them at {si(least)}pps; "
        "--tolerance says how much may be"
    )


def aligned(cells: "Iterable[str]") -> str:
    """Cells of a row of the table below each other."""
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, COLUMNS.values(), strict=True))


def row(one: "Throughput") -> tuple[str, ...]:
    """A result as a row of the table."""
    from wirespeed.ports.checker.histogram import duration

    line = "-" if one.line is None else f"{one.line:.1%}"
    first = (str(one.size), digits(one.pps / 1e6), digits(one.bps / 1e9), line, f"{one.loss:.3%}", one.limit)
    if one.best is None:
        return (*first, str(len(one.trials)), *("-",) * 5)
    times = one.best.latency
    shown = (times.minimum, times.p50, times.p99, times.p999, times.maximum)
    return (*first, str(len(one.trials)), *(duration(t) for t in shown))


def digits(value: float) -> str:
    """A number with three places behind the point, or as many more as it takes to show three digits of it."""
    places = 3 if value <= 0 or value >= 0.1 else 2 - math.floor(math.log10(value))
    return f"{value:.{places}f}"


def csv_heading() -> list[str]:
    """The names of what :func:`comma_separated` gives."""
    return [*CSV_NAMES, *(f"latency_{name}_ns" for name in CSV_TIMES)]


def comma_separated(one: "Throughput") -> str:
    """A result as a line of values with commas; times in nanoseconds."""
    plain = one.to_dict()
    latency = plain.get("latency_ns", {})
    values = [plain.get(name) for name in CSV_NAMES] + [latency.get(name) for name in CSV_TIMES]
    return ",".join("" if value is None else str(value) for value in values)
