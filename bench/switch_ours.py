"""Our side of the switch's bench, as a process of its own: ``python -m bench.switch_ours JSON``.

It says ``Done`` once its worker switches frames; then ``measure S`` has it tell what happened in so many seconds.  Between
two measures it is stopped (SIGSTOP), as the other side is, so that each has the core to itself.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.prompt import Prompt
from bench.switch_clock import cpu_ns

COMPILE_SECONDS = 600.0  # what a kernel cache that is empty may take to fill
WARM_SECONDS = 0.3
DEFAULT_CACHE = 1 << 17
PART_CYCLES = 1024


@dataclass(frozen=True)
class Job:
    """A switch with these rules, a port for each source, on a core.  Without ``rules``, the first port alone.

    ``cache`` is how many flows its exact match cache is for; ``specialised``: with the kernel for the shape of the rules.
    """

    rules: str
    sources: Sequence[str | None]
    core: int
    cache: int = DEFAULT_CACHE
    specialised: bool = True


@dataclass(frozen=True)
class Measured:
    """What happened meanwhile: packets received, and how many cycles of the worker's time on the core each took.

    ``stage`` are the cycles a packet in the switch itself, as the worker timed them since it began.
    """

    packets: int
    dropped: int
    cycles: float
    mpps: float
    stage: float | None
    counters: dict[str, int] = field(default_factory=dict)


class Ours(Prompt):
    """Our switch, or our port without one."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "bench.switch_ours", json.dumps(asdict(job))]
        super().__init__("wirespeed", command, patience_s=COMPILE_SECONDS)

    def measure(self, seconds: float) -> Measured:
        """Count for so long."""
        self.say(f"measure {seconds}")
        return Measured(**json.loads(self.wait(r"measured (.*)\n")[1]))

    def pause(self) -> None:
        """Stop all of it where it is, in no time."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self) -> None:
        self.go_on()
        super()._end()


# From here on, what runs in the process.


def made(job: Job) -> tuple[Any, Any]:
    """The switch, and the source of its first port."""
    import wirespeed as ws
    from bench.switch_source import Replay
    from wirespeed.switch.switch import Switch

    switch = Switch(cache=job.cache, mac_entries=1 << 16)
    first = None
    for number, path in enumerate(job.sources, 1):
        source = Replay(Path(path)) if path else None
        first = first or source
        switch.add_port(number, receive=source, transmit=ws.port("null:"))
    switch.add_flows(Path(job.rules).read_text().splitlines())
    if job.specialised:
        switch.specialise()
    return switch, first


def main(job: Job) -> None:
    """Run until told to stop."""
    import wirespeed as ws
    from bench.switch_source import Replay

    if job.rules:
        chains = made(job)[0].chains()
    else:
        chains = [Replay(Path(str(job.sources[0]))) >> ws.port("null:")]
    with ws.start(*chains, cores=[job.core], busy=True) as running:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {job.core} or {job.core})
        time.sleep(WARM_SECONDS)
        print("Done", flush=True)
        for line in sys.stdin:
            word, _, seconds = line.partition(" ")
            if word != "measure":
                break
            print("measured", json.dumps(asdict(measure(running, float(seconds)))), flush=True)
    if not running.report().balanced:
        print(f"the books do not balance:\n{running.report()}", flush=True)
        sys.exit(1)


def measure(running: Any, seconds: float) -> Measured:
    """What a run does in so long."""
    worker = next(thread.native_id for thread in threading.enumerate() if thread.name == "wirespeed-worker-0")
    before, ran = running.report(), cpu_ns(os.getpid(), worker)
    time.sleep(seconds)
    after, ran = running.report(), cpu_ns(os.getpid(), worker) - ran
    packets, took = after.received - before.received, after.seconds - before.seconds
    switch = next((stage for stage in after.stages if stage.name == "switch"), None)
    counters: dict[str, int] = {}
    if switch is not None:
        counters = {name: n - before.stage("switch").counters[name] for name, n in switch.counters.items()}
    return Measured(
        packets,
        after.dropped - before.dropped,
        ran / 1e9 * after.tsc_hz / packets if packets else 0.0,
        packets / took / 1e6,
        switch.cycles_per_packet if switch else None,
        counters,
    )


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Job(**given | {"sources": tuple(given["sources"])}))
