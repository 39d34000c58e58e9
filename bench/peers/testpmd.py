"""DPDK's testpmd between two null ports, one forwarding core: one session, in which modes are measured one by one.

Three things decide what its figures mean:

* A null port hands out whatever is in its buffers. At first these are zeros, so that a mode which parses finds no
  protocol: ``csum`` then computes no checksum at all. :meth:`Session.fill` lets a capture run through the buffers
  first; the ones in use go round between the ports and keep its frames.
* At each start testpmd would empty its ports, from its main core and for a second each as a null port is never empty,
  and so exchange the buffers: ``--no-flush-rx`` keeps it from that.
* Its cycles a packet leave out the loop around the work, so the packets by the clock are a little fewer.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import affinity
from bench.prompt import Prompt

PROGRAM = "dpdk-testpmd"
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
PAGES_NEEDED = 512  # 1 GB of 2 MB pages; its pool of 155,456 buffers takes 400 MB.
NULL_PORTS, CAPTURE_PORT = "0,1", 2
FILL_SECONDS = 0.2


def missing() -> str | None:
    """Why it cannot run, or None. (Debian has it in the package ``dpdk-dev``.)"""
    return None if shutil.which(PROGRAM) else f"not installed: {PROGRAM}"


@dataclass(frozen=True)
class Forwarded:
    """What one mode did: the cycles testpmd itself counts, and packets by the clock."""

    cycles_per_packet: float
    mpps: float


@contextmanager
def huge_pages() -> Iterator[bool]:
    """Give the machine the huge pages testpmd wants, and take them back; false when that is not ours to do."""
    before = int(HUGE_PAGES.read_text())
    if before < PAGES_NEEDED:
        try:
            HUGE_PAGES.write_text(str(PAGES_NEEDED))
        except PermissionError:
            yield False
            return
    try:
        yield int(HUGE_PAGES.read_text()) >= PAGES_NEEDED
    finally:
        if before < PAGES_NEEDED:
            HUGE_PAGES.write_text(str(before))


class Session(Prompt):
    """A testpmd between null ports, which forwards on ``core`` when told to. Between two measures it sleeps."""

    def __init__(self, core: int, main_core: int, frames: Path, huge: bool, size: int = 64) -> None:
        """``frames`` is the capture for :meth:`fill`; without ``huge`` pages it gets ordinary ones."""
        # Both leave no files behind; --in-memory does not go together with --no-huge.
        memory = ["--in-memory"] if huge else ["--no-huge", "--no-shconf", "-m", "1024"]
        super().__init__(
            PROGRAM,
            [
                "stdbuf", "-oL", PROGRAM, "--no-pci", "--no-telemetry", *memory,
                "--lcores", f"0@{main_core},1@{core}",
                "--vdev", f"net_null0,size={size}", "--vdev", f"net_null1,size={size}",
                "--vdev", f"net_pcap0,rx_pcap={frames}",
                "--", "--interactive", "--nb-cores=1", "--no-flush-rx", "--record-core-cycles",
            ],
        )  # fmt: skip

    def fill(self) -> None:
        """Let the capture's frames run through the buffers that are in use."""
        self._forward("io", f"{CAPTURE_PORT},0", FILL_SECONDS)

    def measure(self, mode: str, seconds: float) -> Forwarded:
        """Forward between the null ports in a mode for so long."""
        return self._forward(mode, NULL_PORTS, seconds)

    def _forward(self, mode: str, ports: str, seconds: float) -> Forwarded:
        self.say(f"set portlist {ports}", f"set fwd {mode}", "start")
        self.wait(rf"{re.escape(mode)} packet forwarding packets/burst=.*\n")
        start = time.perf_counter()
        time.sleep(seconds)
        self.say("stop")
        seconds = time.perf_counter() - start
        counted = self.wait(r"CPU cycles/packet=([\d.]+) \(total cycles=(\d+) / total \S+ packets=(\d+)\)")
        self.wait(r"MHz Clock\n")
        return Forwarded(int(counted[2]) / int(counted[3]), int(counted[3]) / seconds / 1e6)


@contextmanager
def session(core: int, frames: Path) -> Iterator[Session]:
    """A session on ``core``, its main thread elsewhere if there is an elsewhere, with huge pages if they can be had."""
    cores = sorted(os.sched_getaffinity(0))
    main_core = next((other for other in cores if other != core), core)
    with affinity(cores), huge_pages() as huge, Session(core, main_core, frames, huge) as running:
        yield running
