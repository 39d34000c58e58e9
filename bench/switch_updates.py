"""Changes of rules while traffic flows: how many a second, what the traffic keeps of its rate, and the gaps between bursts.

``python -m bench.switch_updates JSON`` runs one switch with a worker on one core, changes its rules from the other one, and
prints what happened.  A gap is the time from one call of the source to the next (``switch_source.py``).
"""

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from bench.harness import run_timed
from bench.switch_frames import dotted
from bench.switch_ours import PART_CYCLES, Job

PACE = 1000  # changes a second, in portions of a hundredth of one
PORTION_S = 0.01
MANY = 20_000  # rules that are added at once


@dataclass(frozen=True)
class Gaps:
    """Of the times between two bursts, in microseconds: the 99th percentile, and the longest."""

    p99: float
    longest: float
    n: int


@dataclass(frozen=True)
class Updates:
    """Changes a second, by their kind; the share of the rate kept at 1,000 a second; gaps by what goes on meanwhile."""

    rates: dict[str, float]
    kept: float
    gaps: dict[str, Gaps]
    dropped: int
    compile_s: float


def run(job: Job, seconds: float) -> Updates:
    """Measure it in a process of its own."""
    words = [sys.executable, "-m", "bench.switch_updates", json.dumps(asdict(job)), str(seconds)]
    given = json.loads(run_timed(words, os.sched_getaffinity(0)).output.splitlines()[-1])
    return Updates(**given | {"gaps": {name: Gaps(**gaps) for name, gaps in given["gaps"].items()}})


def others(n: int) -> Iterator[str]:
    """Rules that no frame matches."""
    for number in range(n):
        yield f"priority=7,ip,nw_dst=78.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255},actions=output:2"


# From here on, what runs in the process.


class Changing:
    """A switch that runs, and changes that its traffic does not depend on."""

    def __init__(self, switch: Any, source: Any, running: Any) -> None:
        self.switch, self.source, self.running = switch, source, running
        self._numbers = count()

    def next_net(self) -> str:
        """Another address each time, of which no frame is."""
        number = next(self._numbers)
        return f"77.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def add(self) -> None:
        """Add a rule by its parts."""
        from wirespeed.switch import action

        match = {"eth_type": 0x0800, "ipv4_dst": self.next_net()}
        self.switch.add_flow(priority=7, match=match, actions=[action.output(2)])

    def text(self) -> None:
        """Add a rule by its text."""
        self.switch.add_flow(f"priority=7,ip,nw_dst={self.next_net()},actions=output:2")

    def modify(self) -> None:
        """Change what a rule does that is there."""
        self.switch.mod_flows(f"priority=7,ip,nw_dst=77.0.0.{random.randrange(200)},actions=output:2", strict=True)

    def delete_and_add(self) -> None:
        """Two changes: a rule goes and comes."""
        net = f"77.0.0.{random.randrange(200)}"
        self.switch.del_flows(f"priority=7,ip,nw_dst={net}", strict=True)
        self.switch.add_flow(f"priority=7,ip,nw_dst={net},actions=output:2")

    def rate(self, change: Callable[[], None], seconds: float, each: int = 1) -> float:
        """How many a second, one after the other."""
        done, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) - begin < seconds:
            for _ in range(50):
                change()
            done += 50
        return each * done / (now - begin)

    def pace(self, seconds: float) -> None:
        """So many changes a second, of a rule that is there; no faster."""
        begin = time.monotonic()
        for portion in range(int(seconds / PORTION_S)):
            for _ in range(int(PACE * PORTION_S)):
                self.modify()
            time.sleep(max(0.0, begin + (portion + 1) * PORTION_S - time.monotonic()))

    def mpps(self, seconds: float, what: Callable[[float], object]) -> float:
        """The rate of the traffic while something is done."""
        before = self.running.report()
        what(seconds)
        after = self.running.report()
        return (after.received - before.received) / (after.seconds - before.seconds) / 1e6

    @contextmanager
    def gaps(self, found: dict[str, Gaps], name: str) -> Iterator[None]:
        """Note the gaps within."""
        self.source.take_gaps()
        yield
        counts, longest = self.source.take_gaps()
        hz = self.running.report().tsc_hz
        total = int(counts.sum())
        place = int(counts.cumsum().searchsorted(0.99 * total))
        found[name] = Gaps((place + 1) * PART_CYCLES / hz * 1e6, longest / hz * 1e6, total)


def measure(job: Job, seconds: float) -> Updates:
    """Run, change, and tell."""
    import wirespeed as ws
    from bench.switch_ours import made

    switch, source = made(job)
    found: dict[str, Gaps] = {}
    rates: dict[str, float] = {}
    with ws.start(*switch.chains(), cores=[job.core], busy=True) as running:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {job.core} or {job.core})
        time.sleep(0.5)
        one = Changing(switch, source, running)
        for _ in range(200):
            one.text()
        one.modify()
        with one.gaps(found, "quiet"):
            alone = one.mpps(seconds, time.sleep)
        with one.gaps(found, "paced"):
            paced = one.mpps(seconds, one.pace)
        with one.gaps(found, "fast"):
            rates["api"] = one.rate(one.add, seconds)
            rates["text"] = one.rate(one.text, seconds)
            texts = list(others(MANY))
            begin = time.perf_counter()
            switch.add_flows(texts)
            rates["file"] = MANY / (time.perf_counter() - begin)
            rates["modify"] = one.rate(one.modify, seconds)
            rates["delete-add"] = one.rate(one.delete_and_add, seconds, 2)
        with one.gaps(found, "compile"):
            began = time.perf_counter()
            # A shape that no machine has seen yet, so that it is compiled.
            mask = dotted(random.getrandbits(32) | 1 << 31)
            switch.add_flow(f"priority=7,ip,nw_dst=77.1.2.3,nw_src=0.0.0.0/{mask},actions=output:2")
            compiling = threading.Thread(target=switch.specialise)
            compiling.start()
            compiling.join()
            took = time.perf_counter() - began
    report = running.report()
    if not report.balanced:
        raise SystemExit(f"the books do not balance:\n{report}")
    return Updates(rates, paced / alone, found, report.dropped, took)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    result = measure(Job(**given | {"sources": tuple(given["sources"])}), float(sys.argv[2]))
    print(json.dumps(asdict(result)))
