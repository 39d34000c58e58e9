"""A crew of a run: the workers that have copies of one graph, and the parts that they share.

The workers of the graph that a run was started with are its first crew.  A part may want more: each is the crew of that
part's stage, which gives it packets and takes them back.  Crews are in an order in which a stage's crew comes after the
one that the stage works in; so one that is stopped when those before it have left gets nothing any more.
"""

import os
from collections.abc import Iterator

from wirespeed.core.element import Element
from wirespeed.core.stage import Crew, Part, Site
from wirespeed.engine import graph as graphs
from wirespeed.engine.graph import Graph, Node
from wirespeed.engine.placement import GraphCopy, arena_bytes, pool_size
from wirespeed.engine.report import StageReport
from wirespeed.engine.snapshot import stage_report
from wirespeed.errors import GraphError


class RunningCrew:
    """Workers with a copy of one graph each; ``stage`` is the name of the one whose crew they are, "" for the first."""

    def __init__(self, graph: Graph, workers: int, stage: str = "") -> None:
        self.graph = graph
        self.workers = workers
        self.stage = stage
        self.parts: dict[Node, Part] = {}
        self.copies: list[GraphCopy] = []
        self.left = workers  # how many still run
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def open_parts(self) -> None:
        """Open each element once in each role, whatever number of nodes it has."""
        opened: dict[tuple[Element, str], Part] = {}
        for node in self.graph.nodes:
            key = (node.element, node.role)
            if key not in opened:
                opened[key] = node.element.open(node.role, self.workers)
            self.parts[node] = opened[key]

    def wanted(self) -> Iterator[tuple[Graph, int, str]]:
        """The crews that its parts want: graph, workers, and the name of the stage."""
        for node, part in self.parts.items():
            wanted: list[Crew] = getattr(part, "crews", lambda outputs: [])(len(node.targets))
            for crew in wanted:
                yield graphs.build([crew.chain]), crew.workers, node.name

    @property
    def arena_bytes(self) -> int:
        """Memory that its copies may take."""
        return arena_bytes(self.graph, self.workers)

    @property
    def pool_size(self) -> int:
        """Packets that it may have at once."""
        held = sum(getattr(part, "holds", 0) for part in dict.fromkeys(self.parts.values()))
        return pool_size(self.graph, self.workers) + held

    def place(self, site: Site, first: int, busy: bool) -> None:
        """Make the copies, numbered from ``first`` on; ``site`` is the first one's."""
        for i in range(self.workers):
            own = Site(site.arena, site.pool, i, self.workers, site.burst, 0)
            self.copies.append(GraphCopy(self.graph, self.parts, own, first + i, self._wake, busy))

    def stop(self) -> None:
        """Tell the workers to leave."""
        for copy in self.copies:
            copy.worker.stop = 1
        os.eventfd_write(self._wake, 1)

    def reports(self) -> Iterator[StageReport]:
        """What each of its stages did."""
        return (stage_report(node, self.parts[node], self.copies, self.stage) for node in self.graph.nodes)

    def close(self) -> None:
        """After the last worker has left and the parts are closed."""
        os.close(self._wake)


def open_crews(crews: list[RunningCrew], graph: Graph, workers: int) -> None:
    """Append the first crew and all that parts want, each with its parts open; also when it fails, all are to be closed."""
    waiting = [(graph, workers, "")]
    where: dict[Element, RunningCrew] = {}
    while waiting:
        crew = RunningCrew(*waiting.pop(0))
        crews.append(crew)
        for node in crew.graph.nodes:
            if where.setdefault(node.element, crew) is not crew:
                raise GraphError(
                    f"{node.name} stands in the crew of {crew.stage} and in another place; an element has one place in"
                    f" a graph: make another one, for a function with {node.name}.bind()"
                )
        crew.open_parts()
        waiting += crew.wanted()
