"""A histogram of times that is written by kernels: buckets whose width is a 64th of their value, from 1 ns to 73 hours.

Theory of operation
-------------------
Values below 128 have a bucket each.  Above, each power of two is divided into 64 buckets of equal width, so a value is
known to 1.6 % whatever it is, the number of buckets is fixed, and finding one is a count of leading zeros.  What is
beyond the last bucket is counted there; the least and the largest value are kept exactly.

Thread rules: one thread writes at a time; a reader sees each count whole.
Source: the idea of HdrHistogram (Gil Tene), which has decimal precision and a range that is chosen.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from wirespeed.jit.intrinsics import leading_zeros, load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64
SUB = 64  # buckets for each power of two
SUB_BITS = 6
LARGEST = (1 << 48) - 1
BUCKETS = (48 - SUB_BITS) * SUB + SUB
ROWS = 16  # of a drawing, at most
BAR = 40  # characters of its longest bar
EIGHTHS = " ▏▎▍▌▋▊▉"

Buckets = layout(
    "Buckets",
    [
        ("count", "i8"),
        ("least", "i8"),
        ("most", "i8"),
        ("counts", "i8", BUCKETS),
    ],
)


@kernel(inline=True)
def bucket_of(value):
    """The number of the bucket of a value from 0 to LARGEST."""
    shift = max(i64(63 - SUB_BITS) - i64(leading_zeros(u64(value | 1))), i64(0))
    return shift * SUB + (value >> shift)


@kernel(inline=True)
def record(buckets, value):
    """Count a value; what is out of range counts as the nearest that is not."""
    b = buckets
    value = min(max(value, i64(0)), i64(LARGEST))
    b.least = value if b.count == 0 else min(b.least, value)
    b.most = max(b.most, value)
    b.count += 1
    at = b.counts + 8 * bucket_of(value)  # Bounds: a value of 48 bits has a bucket below BUCKETS.
    store_i64(at, load_i64(at) + 1)


def bounds(number: int) -> tuple[int, int]:
    """The least and the largest value of a bucket."""
    shift = max(0, number // SUB - 1)
    first = (number - shift * SUB) << shift
    return first, first + (1 << shift) - 1


@dataclass(frozen=True, eq=False)
class Histogram:
    """Times in nanoseconds, counted; ``print`` draws it.

    ``minimum`` and ``maximum`` are exact, percentiles are the upper bound of their bucket, at most 1.6 % too large.
    """

    counts: Any
    count: int = 0
    minimum: int = 0
    maximum: int = 0

    @classmethod
    def of(cls, b: Any) -> "Histogram":
        """A copy of a record of buckets."""
        return cls(np.array(b.counts), int(b.count), int(b.least), int(b.most))

    @classmethod
    def empty(cls) -> "Histogram":
        """One that has counted nothing."""
        return cls(np.zeros(BUCKETS, np.int64))

    def __add__(self, other: "Histogram") -> "Histogram":
        if not self.count or not other.count:
            return self if self.count else other
        least, most = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        return Histogram(self.counts + other.counts, self.count + other.count, least, most)

    @property
    def mean(self) -> float:
        """The mean, each value taken for the middle of its bucket; 0 without any."""
        if not self.count:
            return 0.0
        used = np.flatnonzero(self.counts)
        return sum(sum(bounds(int(k))) / 2 * int(self.counts[k]) for k in used) / self.count

    def percentile(self, percent: float) -> int:
        """The value that ``percent`` of all values do not exceed; 0 without any."""
        if not self.count:
            return 0
        rank = max(1, -int(-self.count * percent // 100))
        number = int(np.searchsorted(np.cumsum(self.counts), rank))
        return min(max(bounds(number)[1], self.minimum), self.maximum)

    @property
    def p50(self) -> int:
        return self.percentile(50)

    @property
    def p90(self) -> int:
        return self.percentile(90)

    @property
    def p99(self) -> int:
        return self.percentile(99)

    @property
    def p999(self) -> int:
        return self.percentile(99.9)

    def to_dict(self) -> dict[str, float]:
        """Its figures by name, in nanoseconds, without the buckets."""
        return {
            "count": self.count, "min": self.minimum, "mean": self.mean, "p50": self.p50, "p90": self.p90,
            "p99": self.p99, "p99.9": self.p999, "max": self.maximum,
        }  # fmt: skip

    def summary(self) -> str:
        """Its figures in a line."""
        if not self.count:
            return "none"
        named = {
            "min": self.minimum, "p50": self.p50, "p90": self.p90, "p99": self.p99, "p99.9": self.p999,
            "max": self.maximum,
        }  # fmt: skip
        return ", ".join(f"{name} {duration(value)}" for name, value in named.items())

    def __str__(self) -> str:
        """A bar for each of up to 16 ranges, of equal width as their values' logarithms go."""
        if not self.count:
            return "no packets"
        rows = self._rows()
        most = max(n for _, _, n in rows)
        width = max(len(duration(high)) for _, high, _ in rows)
        lines = []
        for low, high, n in rows:
            share = f"{n / self.count:7.2%}"
            lines.append(f"{duration(low):>{width}} - {duration(high):>{width}} {share} {bar(n, most)} {n:,}")
        return "\n".join([*lines, self.summary()])

    def _rows(self) -> list[tuple[int, int, int]]:
        """Ranges of neighbouring buckets, from the first that is used to the last, and how many values each has."""
        used = np.flatnonzero(self.counts)
        first, last = int(used[0]), int(used[-1])
        step = -(-(last - first + 1) // ROWS)
        rows = []
        for at in range(first, last + 1, step):
            end = min(at + step - 1, last)
            low, high = max(bounds(at)[0], self.minimum), min(bounds(end)[1], self.maximum)
            rows.append((low, high, int(self.counts[at : end + 1].sum())))
        return rows


def bar(n: int, most: int) -> str:
    """A bar for ``n``, where the longest is that of ``most``; what is not nothing shows."""
    eighths = max(round(8 * BAR * n / most), int(n > 0))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def duration(ns: float) -> str:
    """A time in three digits and its unit: ``1.25 us``."""
    value, unit = float(ns), "ns"
    for larger in ("us", "ms", "s"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    digits = 0 if value >= 99.95 or unit == "ns" else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"
