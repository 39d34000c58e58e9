"""Our side of the benches of live ports, as a process of its own: ``python -m bench.ours_live JSON``.

It says ``Done`` once its ports are open; ``count`` has it print the packets received so far, and ``stop`` ends the run
and prints its cycles a packet: those of all stages while they had packets, without the loop around them, as testpmd
counts its own.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench import kernel_calls
from bench.namespaces import Space
from bench.prompt import Prompt

COMPILE_SECONDS = 300.0  # what a kernel cache that is empty may take to fill


@dataclass(frozen=True)
class Graph:
    """Chains, each a list of port words, for one worker on a core; ``busy``: it never sleeps.

    Equal words are one port, which may stand at both ends.
    """

    chains: Sequence[Sequence[str]]
    core: int
    busy: bool = True


class Live(Prompt):
    """Our run in a namespace, on a core."""

    _timed = 0

    def __init__(self, space: Space, graph: Graph) -> None:
        super().__init__(
            "wirespeed",
            space.words(sys.executable, "-m", "bench.ours_live", json.dumps(asdict(graph))),
            patience_s=COMPILE_SECONDS,
        )

    def start(self) -> None:
        """It forwards since it is there."""

    def received(self) -> int:
        """Packets that its sources have received so far."""
        self.say("count")
        return int(self.wait(r"received (\d+)\n")[1])

    def stop(self) -> float | None:
        """End the run; its cycles a packet."""
        self.say("stop")
        found, timed = self.wait(r"cycles (\S+) of (\d+)\n").groups()
        self._timed = int(timed)
        return None if found == "None" else float(found)

    def timed(self) -> int:
        """Packets that its cycles are of, as its sink counts them: some rounds are timed only."""
        return self._timed


# From here on, what runs in the process.


def main(graph: Graph) -> None:
    """Run until told to stop."""
    import wirespeed as ws
    from wirespeed.engine.worker import SAMPLE, Worker

    ports = {word: ws.port(word) for words in graph.chains for word in words}
    chains = [ports[begin] >> ports[end] for begin, end in graph.chains]
    with ws.start(*chains, cores=[graph.core], busy=graph.busy) as running:
        (copy,) = running._copies
        kernel_calls.sample(copy.address + Worker.offset("loops"), SAMPLE)
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {graph.core} or {graph.core})
        print("Done", flush=True)
        for line in sys.stdin:
            if line.strip() == "count":
                print(f"received {running.report().received}", flush=True)
            else:
                break
        timed = [int(copy.record(node).timed) for node in copy.graph.nodes]
    report = running.report()
    cycles = [stage.cycles_per_packet for stage in report.stages if stage.cycles_per_packet is not None]
    if not report.balanced:
        print(f"the books do not balance:\n{report}", flush=True)
        sys.exit(1)
    print(f"cycles {sum(cycles) if cycles else None} of {timed[-1]}", flush=True)


if __name__ == "__main__":
    main(Graph(**json.loads(sys.argv[1])))
