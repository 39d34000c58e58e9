"""Our side of every comparison, as a process of its own: the only file of the benches that runs wirespeed.

``python -m bench.ours count IN OUT``, ``rewrite IN OUT`` or ``forward JSON`` prints a JSON object; times come from the
run's own report, or, for whole processes, from the harness.
"""

import importlib
import importlib.util
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.harness import ToolFailed, run_timed
from bench.peers import Command, Tool

SOURCE, SINK = "null:size=64", "null:"


@dataclass(frozen=True)
class Chain:
    """A graph between null ports: the functions in it, and how it is run.

    A null port leaves a buffer's bytes as they are, zeros at first. So functions that parse get ``frames``: a capture
    that runs through the worker's buffers first, which then go round with its frames in them (as with testpmd).
    """

    functions: tuple[str, ...] = ()
    burst: int = 32
    cores: tuple[int, ...] = (0,)
    outputs: int = 1
    seconds: float = 1.0
    frames: str = ""


@dataclass(frozen=True)
class Forwarded:
    """What a chain did, by its report; ``cycles`` are those of all workers, their loops and all else included."""

    packets: int
    seconds: float
    tsc_hz: float
    cores: int

    @property
    def cycles_per_packet(self) -> float:
        return self.seconds * self.tsc_hz * self.cores / self.packets

    @property
    def mpps(self) -> float:
        return self.packets / self.seconds / 1e6


def missing() -> str | None:
    """Why our side cannot run, or None."""
    return None if importlib.util.find_spec("wirespeed") else "not installed: wirespeed"


def run_chain(chain: Chain) -> Forwarded:
    """Run a chain in a fresh process and read its report."""
    finished = run_timed([sys.executable, "-m", "bench.ours", "forward", json.dumps(asdict(chain))], chain.cores)
    return Forwarded(**json.loads(finished.output))


def tool() -> Tool:
    """Ours beside the tools that read and write captures."""

    def command(job: str) -> Command:
        return lambda source, target: [sys.executable, "-m", "bench.ours", job, str(source), str(target)]

    return Tool(
        "wirespeed",
        "python:wirespeed",
        {job: command(job) for job in ("count", "rewrite")},
        repeats=3,
        reports=True,
    )


# From here on, what runs in the fresh process.


def count(source: Path) -> dict[str, float]:
    """Read, parse and count by flow."""
    import wirespeed as ws

    flows = ws.count_flows(f"pcap:{source}")
    return {"packets": int(flows["packets"].sum()), "flows": len(flows)}


def rewrite(source: Path, target: Path) -> dict[str, float]:
    """Read, change and write."""
    import wirespeed as ws
    from bench.functions import one_hop

    report = ws.run(ws.port(f"pcap:{source}") >> one_hop >> ws.port(f"pcap:{target}"))
    _balanced(report)
    return {"packets": report.packets, "seconds": report.seconds}


def forward(chain: Chain) -> dict[str, float]:
    """Forward between null ports, for a moment to warm up and then for the time asked for."""
    import wirespeed as ws

    for seconds in (0.1, chain.seconds):
        report = _run(ws, chain, seconds)
    return asdict(Forwarded(report.packets, report.seconds, report.tsc_hz, len(chain.cores)))


def _run(ws: Any, chain: Chain, seconds: float) -> Any:
    graph = ws.port(SOURCE)
    for name in chain.functions:
        graph = graph >> getattr(importlib.import_module("bench.functions"), name).bind()  # it may occur several times
    sinks = tuple(ws.port(SINK) for _ in range(chain.outputs))
    graphs = [graph >> (sinks if chain.outputs > 1 else sinks[0])]
    if chain.frames:
        graphs.insert(0, ws.port(f"pcap:{chain.frames}") >> ws.port(SINK))
    cores = list(chain.cores)
    report = ws.run(*graphs, seconds=seconds, cores=cores, workers=len(cores), burst=chain.burst)
    _balanced(report)
    return report


def _balanced(report: Any) -> None:
    if not report.balanced:
        raise ToolFailed("the books do not balance: packets in are not packets out, held and dropped")


def share_of_udp(frames: str, core: int) -> float:
    """How much of what our null port hands out is UDP with a checksum; in the rest a parser would find nothing."""
    chain = Chain(("only_udp",), cores=(core,), seconds=0.2, frames=frames)
    command = [sys.executable, "-m", "bench.ours", "frames", json.dumps(asdict(chain))]
    return float(json.loads(run_timed(command, chain.cores).output)["udp"])


def _share_of_udp(chain: Chain) -> dict[str, float]:
    import wirespeed as ws

    report = _run(ws, chain, chain.seconds)
    return {"udp": report.packets / report.received}


def main(job: str, *arguments: str) -> dict[str, float]:
    """Do one job and return what it printed."""
    if job == "count":
        return count(Path(arguments[0]))
    if job == "rewrite":
        return rewrite(Path(arguments[0]), Path(arguments[1]))
    given = json.loads(arguments[0])
    chain = Chain(**given | {"functions": tuple(given["functions"]), "cores": tuple(given["cores"])})
    return forward(chain) if job == "forward" else _share_of_udp(chain)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
