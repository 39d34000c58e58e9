"""DPDK's own tests, ``dpdk-test``: one named test a run, its printed table as text."""

import shutil
from collections.abc import Sequence

from bench.harness import ToolFailed
from bench.peers.limited import Ended, run
from bench.peers.testpmd import huge_pages

PROGRAM = "dpdk-test"
NO_HUGE_PAGES = "no huge pages: this test needs them, and may not set /proc/sys/vm/nr_hugepages (run as root)"


def missing() -> str | None:
    """Why it cannot run, or None. (Debian has it in the package ``dpdk-dev``.)"""
    return None if shutil.which(PROGRAM) else f"not installed: {PROGRAM}"


def autotest(name: str, cores: Sequence[int], seconds: float) -> Ended:
    """Run a test on ``cores``, its main thread on the first; what it printed within so many seconds."""
    with huge_pages() as huge:
        if not huge:
            raise ToolFailed(NO_HUGE_PAGES)
        # It takes the test's name from the environment and leaves at the end of its input, which is empty.
        return run(
            [
                "stdbuf", "-oL", PROGRAM, "--no-pci", "--in-memory", "--no-telemetry",
                "-l", ",".join(map(str, cores)), "--main-lcore", str(cores[0]),
            ],
            cores,
            seconds,
            {"DPDK_TEST": name},
        )  # fmt: skip
