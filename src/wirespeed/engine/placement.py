"""A worker's copy of the graph: every node placed, its state's head filled, and the record that its kernel reads.

Memory comes from the run's arena and lives as long as the run.
"""

from collections.abc import Sequence
from typing import Any

from wirespeed.core.stage import COMMON_DROPS, MAX_BURST, OUTBOX, Head, Outbox, Part, Placement, Site
from wirespeed.engine import worker as w
from wirespeed.engine.graph import Graph, Node
from wirespeed.errors import GraphError
from wirespeed.jit.layout import layout

PAGE = 4096
BOX = 4 * MAX_BURST  # handles in an outbox, four of the largest bursts
DROP_BOX = 2 * MAX_BURST
ROLES = {"source": w.SOURCE, "stage": w.STAGE, "sink": w.SINK}
POLLIN = 1  # include/uapi/asm-generic/poll.h


class GraphCopy:
    """One worker's copy; ``number`` is the worker's among all of the run, whatever graph they have a copy of.

    ``address`` is the record for :func:`wirespeed.engine.worker.work`.
    """

    def __init__(self, graph: Graph, parts: dict[Node, Part], site: Site, number: int, wake: int, busy: bool) -> None:
        self.graph = graph
        self.site = site
        self.number = number
        arena = site.arena
        self.numbers = {node: i for i, node in enumerate(graph.nodes)}
        self.drop_box = self._box(DROP_BOX)
        self.cache = site.pool.cache(arena=arena)
        self.scratch, self.zeros = arena.alloc(PAGE, PAGE), arena.alloc(PAGE, PAGE)
        self.nodes = arena.alloc(w.NODE * len(graph.nodes))
        self.address = arena.alloc(w.Worker.size)
        self.outboxes: dict[tuple[Node, int], int] = {}
        self.reasons: dict[Node, int] = {}
        self.placements: dict[Node, Placement] = {}
        for node in graph.nodes:
            self._place(node, parts[node])
        edges = [(n, k) for n in graph.nodes for k in sorted(n.targets) if k > 0]
        self.edges = {key: i for i, key in enumerate(edges)}
        self.edge_records = arena.alloc(w.EDGE * max(1, len(edges)))
        for (node, output), i in self.edges.items():
            edge = w.Edge.at(self.edge_records + w.EDGE * i)
            edge.box, edge.target = self.outboxes[node, output], self.numbers[node.targets[output]]
        self._fill_worker(wake, busy)

    def _box(self, capacity: int) -> int:
        address = self.site.arena.alloc(OUTBOX)
        box = Outbox.at(address)
        box.address, box.capacity = self.site.arena.alloc(8 * capacity), capacity
        return address

    def _place(self, node: Node, part: Part) -> None:
        first = getattr(node.element, "FIRST_OUTPUT", 0)  # 1 for a stage that leaves nothing in its burst
        outputs = first + len(node.targets)
        site = Site(self.site.arena, self.site.pool, self.site.worker, self.site.workers, self.site.burst, outputs)
        if sorted(node.targets) != list(range(first, outputs)):
            raise GraphError(f"{node.name} has outputs {sorted(node.targets)}; number them from {first} without a gap")
        placed = part.place(site)
        self.placements[node] = placed
        self.reasons[node] = self.site.arena.alloc(8 * (len(COMMON_DROPS) + len(placed.drops)))
        table = self.site.arena.alloc(OUTBOX * max(1, outputs))
        for output in range(1, outputs):
            self.outboxes[node, output] = table + OUTBOX * output
            box = Outbox.at(table + OUTBOX * output)
            box.address, box.capacity = self.site.arena.alloc(8 * BOX), BOX
        head = Head.at(placed.state)
        head.outboxes, head.outputs = table, outputs
        head.drops, head.cache = self.drop_box, self.cache
        head.reasons, head.scratch, head.zeros = self.reasons[node], self.scratch, self.zeros
        head.stop = self.address + w.Worker.offset("stop")
        record = self.record(node)
        record.code, record.state, record.role = placed.code, placed.state, ROLES[node.role]
        record.next = self.numbers[node.targets[0]] if 0 in node.targets else -1
        record.group = node.group
        if node.role == "sink":
            record.pending.address, record.pending.capacity = self.site.arena.alloc(8 * BOX), BOX

    def _fill_worker(self, wake: int, busy: bool) -> None:
        record = self.worker
        record.nodes, record.n_nodes = self.nodes, len(self.graph.nodes)
        record.edges, record.n_edges = self.edge_records, len(self.edges)
        record.burst, record.burst_size = self.site.arena.alloc(8 * MAX_BURST), self.site.burst
        record.drops, record.cache = self.drop_box, self.cache
        record.blocked, record.groups = self.site.arena.alloc(8 * self.graph.groups), self.graph.groups
        record.busy = busy
        record.n_sources = sum(node.role == "source" for node in self.graph.nodes)
        fds = [wake, *(fd for p in self.placements.values() for fd in p.fds)]
        record.fds, record.n_fds = self.site.arena.alloc(w.POLLFD * len(fds)), len(fds)
        for i, fd in enumerate(fds):
            entry = w.PollFd.at(record.fds + w.POLLFD * i)
            entry.fd, entry.events = fd, POLLIN
        at = record.fds + w.POLLFD
        for node, placed in self.placements.items():
            self.record(node).fds, self.record(node).n_fds = at, len(placed.fds)
            at += w.POLLFD * len(placed.fds)

    @property
    def worker(self) -> Any:
        """The worker's record."""
        return w.Worker.at(self.address)

    def record(self, node: Node) -> Any:
        """The record of a node."""
        return w.Node.at(self.nodes + w.NODE * self.numbers[node])

    def edge(self, node: Node, output: int) -> Any:
        """The record of an output that is not number 0."""
        return w.Edge.at(self.edge_records + w.EDGE * self.edges[node, output])

    def head(self, node: Node) -> Any:
        """The head of a node's state."""
        return Head.at(self.placements[node].state)

    def waiting(self, node: Node) -> int:
        """Packets in a node's pending box and outboxes."""
        pending = self.record(node).pending.length
        return int(pending) + sum(int(Outbox.at(self.outboxes[node, k]).length) for k in node.targets if k > 0)

    def stage_name(self) -> str:
        """The name of the stage the worker is in, or was in last."""
        return self.graph.nodes[int(self.worker.at)].name

    def drops(self, node: Node) -> dict[str, int]:
        """Drops of a node by reason, those that occurred."""
        names = [*COMMON_DROPS, *self.placements[node].drops]
        counts = _words(self.reasons[node], len(names))
        return {name: n for name, n in zip(names, counts, strict=True) if n}


_Word = layout("Word", [("value", "u8")])


def _words(address: int, length: int) -> Sequence[int]:
    return [int(v) for v in _Word.array_at(address, length)["value"]]


def arena_bytes(graph: Graph, workers: int) -> int:
    """Memory that the copies of a graph may take; pages that are never touched cost nothing."""
    return workers * ((8 << 20) + _boxes(graph) * (16 * BOX + (1 << 20)))


def pool_size(graph: Graph, workers: int) -> int:
    """Packets by which every box of the copies can be full and every cache warm."""
    return workers * (2048 + 512 * _boxes(graph))


def _boxes(graph: Graph) -> int:
    return sum(max(1, len(n.targets)) for n in graph.nodes)
