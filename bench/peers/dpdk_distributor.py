"""What DPDK's distributor costs its own core by the number of workers: ``distributor.c`` beside this, compiled here."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from bench.harness import ToolFailed
from bench.peers import dpdk_program
from bench.peers.testpmd import huge_pages

SOURCE = Path(__file__).with_name("distributor.c")
SECONDS = 30.0  # A run takes less than one.
# Linked from its archive, or the match could not be called alone.
LIBRARY = "rte_distributor"

WORKERS = (1, 4, 8, 12, 16, 63)  # It allows no more than 63.

Mode = Literal["single", "burst"]
Traffic = Literal["seq", "random"]

missing = dpdk_program.missing


@dataclass(frozen=True)
class Cost:
    """TSC cycles a packet on the distributor's core, and those of them that are the match, if that can be told."""

    workers: int
    mode: Mode
    traffic: Traffic
    cycles: float
    match: float | None


def measure(core: int) -> list[Cost]:
    """Every row of ``distributor.c``, measured once on ``core``."""
    program = dpdk_program.compiled(SOURCE, archives=[LIBRARY])
    with huge_pages() as huge:
        rows = parse(dpdk_program.output(program, core, SECONDS, huge))
    if not rows:
        raise ToolFailed(f"{program.name} printed no rows")
    return rows


def parse(text: str) -> list[Cost]:
    """The rows ``distributor.c`` prints."""
    return [
        Cost(
            int(row["workers"]),
            cast(Mode, row["mode"]),
            cast(Traffic, row["traffic"]),
            float(row["cycles"]),
            float(row["match"]) if row["match"] else None,
        )
        for row in _ROW.finditer(text)
    ]


_ROW = re.compile(
    r"^workers (?P<workers>\d+) mode (?P<mode>single|burst) traffic (?P<traffic>seq|random) "
    r"cycles/packet (?P<cycles>[\d.]+)(?: match (?P<match>[\d.]+))?$",
    re.MULTILINE,
)
