"""DPDK's distributor_perf_autotest: cycles a packet from a distributor's core to a worker's and back, and of a line.

What its figures mean, which the side that is compared with it has to do as well:

* The distributor hands out 64 packets a call, 2,097,152 times, their flows numbered from 0; the worker does nothing but
  give them back with its next request. A call waits until the worker has room. The returned packets are not fetched.
* The line is switched by two cores that take turns at writing one word: two journeys of it, but no second line.

With two cores there is one worker. TSC cycles, all of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.harness import ToolFailed
from bench.peers import dpdk_test

TEST = "distributor_perf_autotest"
SECONDS = 120.0  # It takes 14 where the two cores are near, and up to 55 where they are far apart.
BURST = 64
CALLS = 1 << 21

missing = dpdk_test.missing


@dataclass(frozen=True)
class Figures:
    """What the test prints: cycles a switch of the line, and cycles a packet in each mode."""

    line_switch: float
    single: float
    burst: float


# Its own quotients are rounded down; they only tell here that it is still the same test.
_LINE = re.compile(r"^Time for (?P<iterations>\d+) iterations = (?P<ticks>\d+) ticks$", re.MULTILINE)
_MODE = re.compile(
    r"^=== Performance test of distributor \((?P<mode>single|burst) mode\) ===\n"
    r"Time per burst: +(?P<burst>\d+)\nTime per packet: +(?P<packet>\d+)$",
    re.MULTILINE,
)


NAMES = ("line switch", "single", "burst")


def parse(text: str) -> Figures:
    """The figures of a printed table; ToolFailed names those that are not there."""
    found = _found(text)
    if absent := [name for name in NAMES if name not in found]:
        raise ToolFailed(f"{TEST} printed no figure that is known for: {', '.join(absent)}")
    return Figures(*(found[name] for name in NAMES))


def _found(text: str) -> dict[str, float]:
    found = {mode["mode"]: int(mode["burst"]) / BURST for mode in _MODE.finditer(text) if _of_64(mode)}
    if line := _LINE.search(text):
        found["line switch"] = int(line["ticks"]) / int(line["iterations"])
    return found


def _of_64(mode: re.Match[str]) -> bool:
    return int(mode["burst"]) // BURST == int(mode["packet"])


def seconds(cycles: float) -> float:
    """How long it took for a figure of that many cycles a packet."""
    from wirespeed.engine.clock import CycleClock  # not to list the benches with: it compiles

    return cycles * BURST * CALLS / CycleClock().hz()


def measure(cores: Sequence[int]) -> Figures:
    """Run it once on two cores, the distributor on the lower one."""
    if len(cores) != 2:
        raise ToolFailed(f"{TEST} was given {len(cores)} cores, and takes two: a distributor's and a worker's")
    ended = dpdk_test.autotest(TEST, sorted(cores), SECONDS)
    if not ended.in_time:
        got = ", ".join(_found(ended.output)) or "nothing"
        raise ToolFailed(f"{TEST} did not end within {SECONDS:.0f} s; it had measured {got}")
    if "Test OK" not in ended.output:
        raise ToolFailed(f"{TEST} failed: {ended.last_words}")
    return parse(ended.output)
