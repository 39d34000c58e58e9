"""DPDK's ring_perf_autotest: cycles of its ring on one core, between two, and on all at once.

What its figures mean, which the side that is compared with it has to do as well:

* One core: an enqueue and a dequeue that follows it, cycles of the two calls together, whatever their size. ``empty``
  is a lone dequeue that finds nothing.
* Two cores: one enqueues, the other dequeues, both retry after a pause. The cycles per element of the one and of the
  other are summed, so that the throughput is two elements in that time.
* All workers: every core enqueues and dequeues on one MP/MC ring for 100 ms and reads the clock after each pair; the
  figure counts the pairs of all cores, also those in which a call found no room or nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.harness import ToolFailed
from bench.peers import dpdk_test

TEST = "ring_perf_autotest"
SECONDS = 60.0  # It takes about five, where two cores are far apart some more.

Sync = Literal["spsc", "mpmc"]
Kind = Literal["single", "burst", "bulk", "empty", "two-core", "all-workers"]

missing = dpdk_test.missing


@dataclass(frozen=True)
class Measure:
    """Which figure of the table it is; ``size`` is the number of elements a call."""

    element_bytes: int
    sync: Sync
    kind: Kind
    size: int


# The older pointer API goes first, then the element API with 16 bytes; the totals of all workers do not say whose
# they are, and belong to the API of the rows before them.
_SECTION = re.compile(r"### Testing (?P<section>.+) ###")
_ROW = re.compile(
    r"(?P<api>legacy APIs|elem APIs: element size (?P<bytes>\d+)B): (?P<sync>SP/SC|MP/MC): "
    r"(?:single|(?:burst|bulk) \(size: (?P<size>\d+)\)): (?P<value>[\d.]+)"
)
_TOTAL = re.compile(r"Total count \(size: (?P<size>\d+)\): (?P<value>\d+)")
_KINDS: dict[str, Kind] = {
    "single element enq/deq": "single",
    "burst enq/deq": "burst",
    "bulk enq/deq": "bulk",
    "empty bulk deq": "empty",
    "using two hyperthreads": "two-core",
    "using two physical cores": "two-core",
    "using two NUMA nodes": "two-core",
    "using all worker nodes": "all-workers",
}


def parse(text: str) -> dict[Measure, float]:
    """The figures of a printed table.

    The two cores come as at most one of threads of one core, two cores and two nodes when it runs on two.
    """
    figures: dict[Measure, float] = {}
    kind: Kind | None = None
    element_bytes = 8
    for line in map(str.strip, text.splitlines()):
        if section := _SECTION.fullmatch(line):
            kind = _KINDS.get(section["section"])
        elif kind and (row := _ROW.fullmatch(line)):
            element_bytes = int(row["bytes"] or 8)
            sync: Sync = "spsc" if row["sync"] == "SP/SC" else "mpmc"
            figures[Measure(element_bytes, sync, kind, int(row["size"] or 1))] = float(row["value"])
        elif kind == "all-workers" and (total := _TOTAL.fullmatch(line)):
            figures[Measure(element_bytes, "mpmc", kind, int(total["size"]))] = float(total["value"])
    return figures


def measure(cores: Sequence[int]) -> dict[Measure, float]:
    """Run it once on two cores, the rows of one core on the first of them."""
    ended = dpdk_test.autotest(TEST, sorted(cores), SECONDS)
    figures = parse(ended.output)
    if not ended.in_time:
        raise ToolFailed(f"{TEST} did not end within {SECONDS:.0f} s, after {len(figures)} rows")
    if "Test OK" not in ended.output or not figures:
        raise ToolFailed(f"{TEST} failed, after {len(figures)} rows")
    return figures
