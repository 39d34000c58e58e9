"""DPDK's testpmd on interfaces of the kernel: net_af_packet, net_af_xdp and net_tap, one forwarding core.

It is also the traffic of these benches, for both sides: ``txonly`` over net_af_xdp, the fastest sender there is here.

* net_af_packet gets a ring of 2048 frames a direction, and sends past the queueing discipline (a veth has none).
* net_af_xdp copies (``force_copy=1``): no virtual interface can do without.
* net_tap makes its interfaces itself and knows no virtio-net headers.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from bench.namespaces import Space
from bench.peers.testpmd import PROGRAM, missing
from bench.prompt import Prompt

__all__ = ["Live", "device", "missing"]

MEMORY = Path("/proc/meminfo")
PAGES_EACH = 200  # of 2 MB, for its pool of 155,456 buffers
MODES = {"rx": "rxonly", "tx": "txonly", "forward": "io"}


def free_pages() -> int:
    """Huge pages that nobody has taken: another program on the machine may give back those that we asked for."""
    return next(
        (int(line.split()[1]) for line in MEMORY.read_text().splitlines() if line.startswith("HugePages_Free:")), 0
    )


def device(kind: str, number: int, name: str) -> str:
    """What names a port of a kind over an interface (of a tap, the one it makes)."""
    if kind == "packet":
        return f"net_af_packet{number},iface={name},qpairs=1,framesz=2048,framecnt=2048,blocksz=4096,qdisc_bypass=1"
    return f"net_af_xdp{number},iface={name},force_copy=1" if kind == "xdp" else f"net_tap{number},iface={name}"


class Live(Prompt):
    """A testpmd in a namespace, with ports; it forwards between :meth:`start` and :meth:`stop`."""

    def __init__(self, space: Space, job: str, devices: Sequence[str], core: int, huge: bool, size: int = 64) -> None:
        """``size`` is that of the frames that it makes, for the job ``tx``; without ``huge`` pages it gets ordinary ones."""
        plain = ["--no-huge", "--no-shconf", "-m", "1024"]
        memory = ["--in-memory"] if huge and free_pages() >= PAGES_EACH else plain
        main_core = next((other for other in sorted(os.sched_getaffinity(0)) if other != core), core)
        vdevs = [word for device in devices for word in ("--vdev", device)]
        super().__init__(
            PROGRAM,
            space.words(
                "stdbuf", "-oL", PROGRAM, "--no-pci", "--no-telemetry", *memory, "--lcores", f"0@{main_core},1@{core}",
                *vdevs, "--", "--interactive", "--nb-cores=1", "--no-flush-rx", "--record-core-cycles",
                f"--forward-mode={MODES[job]}", f"--txpkts={size}",
            ),
        )  # fmt: skip
        self._mode = MODES[job]

    def start(self) -> None:
        """Begin to forward, from counters of 0."""
        self.say("clear port stats all", "start")
        self.wait(rf"{self._mode} packet forwarding packets/burst=.*\n")

    def received(self) -> int:
        """Packets that its first port has received since the start."""
        self.say("show port stats 0")
        return int(self.wait(r"RX-packets: (\d+)")[1])

    def stop(self) -> float | None:
        """Stop to forward; its cycles a packet while there were packets, as it counts them."""
        self.say("stop")
        counted = self.wait(r"CPU cycles/packet=[\d.]+ \(total cycles=(\d+) / total \S+ packets=(\d+)\)|Done\.")
        return int(counted[1]) / int(counted[2]) if counted[1] and int(counted[2]) else None
