"""A distributing stage in one run: its memory, its crew, and the elements at both ends of the crew's graph.

The distributor's memory is made when the stage is opened; the workers' hands, and the ring that keeps the order, lie in
the run's arena.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wirespeed.core import staged
from wirespeed.core.distributor.desk import Desks
from wirespeed.core.distributor.memory import DistributorMemory
from wirespeed.core.element import Chain, Element
from wirespeed.core.stage import COMMON_DROPS, MAX_BURST, OUTBOX, Crew, Head, Outbox, Part, Placement, Site
from wirespeed.engine.distribute.hand import (
    AT_ONCE,
    HAND,
    SINK_DROPS,
    Hand,
    SinkState,
    SourceState,
    collect_output,
    take_lines,
)
from wirespeed.engine.distribute.item import OUTPUTS, PLACES
from wirespeed.engine.distribute.order import RUN
from wirespeed.engine.distribute.reasons import DROPS
from wirespeed.engine.distribute.stage import BOX, State, spread, wind_up
from wirespeed.engine.function.runtime import DROPS as FUNCTION_DROPS
from wirespeed.errors import GraphError

if TYPE_CHECKING:
    from wirespeed.engine.distribute.element import Distribute

LEAST_PLACES = 2 * BOX


@dataclass(frozen=True)
class WorkerShare:
    """What one worker of a crew was given: ``sizes`` counts its lines by how many packets they had."""

    packets: int
    lines: int
    under_way: float
    sizes: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        each = self.packets / self.lines if self.lines else 0.0
        return f"{self.packets:,} packets in {self.lines:,} lines of {each:.1f}; {self.under_way:.1f} lines under way"


class DistributePart:
    """A distributing stage in one run."""

    def __init__(self, element: "Distribute") -> None:
        self.element = element
        self.memory = DistributorMemory(element.shape)
        self.holds = element.held + element.shape.returns + element.shape.park
        if element.ordered:  # then those that are back wait for those that are not
            self.places = min(PLACES, 1 << (max(LEAST_PLACES, self.holds + BOX) - 1).bit_length())
            self.holds = self.places
        self.tags: Part | None = None if element.by is None else element.by.open("stage", 1)
        self.hands = 0
        self._state = 0
        self._shares: dict[str, WorkerShare] = {}
        self._has_crew = False

    def crews(self, outputs: int) -> list[Crew]:
        """The workers' graph."""
        if self._has_crew:
            raise GraphError(f"{self.element.name} stands in several places; make another one for each")
        if outputs > OUTPUTS:
            raise GraphError(f"{self.element.name} has {outputs} outputs; it can have {OUTPUTS}")
        self._has_crew = True
        chain = Chain(LineSource(self))
        if self.element.work is not None:
            chain = chain >> self.element.work
        return [Crew(chain >> tuple(LineSink(self, k) for k in range(outputs)), self.element.workers)]

    def place(self, site: Site) -> Placement:
        """The stage's state, and the hands of its crew."""
        arena, self._state = site.arena, site.state(State)
        self.hands = arena.alloc(HAND * self.element.workers, 128)
        for i in range(self.element.workers):
            Hand.at(self.hands + HAND * i).cursor = self.memory.cursor(i)
        state = State.at(self._state)
        state.distributor, state.burst = self.memory.address, site.burst
        state.head.asleep = self.memory.desks.address + Desks.offset("asleep")
        state.head.bell = self.memory.desks.address + Desks.offset("bell")
        state.box, state.tags, state.room = arena.alloc(8 * BOX), arena.alloc(4 * BOX), arena.alloc(8 * MAX_BURST)
        if self.element.ordered:
            self._keep_order(state.order, arena)
        if self.tags is not None:
            self._place_tags(state, site)
        return Placement(spread.address, self._state, DROPS, keep=self)

    def _keep_order(self, order: Any, arena: Any) -> None:
        order.ring = arena.alloc(staged.size_of(self.places, 1, 8), 128)
        order.runs = arena.alloc(RUN * self.places)
        staged.init(order.ring, self.places, 1, 8)

    def _place_tags(self, state: Any, site: Site) -> None:
        """The function of ``by`` as a stage without outputs and with a drop outbox for one packet."""
        assert self.tags is not None
        placed = self.tags.place(site)
        state.by_code, state.by_state = placed.code, placed.state
        head = Head.at(placed.state)
        head.outputs, head.drops = 1, site.arena.alloc(OUTBOX)
        head.reasons = site.arena.alloc(8 * (len(COMMON_DROPS) + len(FUNCTION_DROPS)))
        box = Outbox.at(head.drops)
        box.address, box.capacity = site.arena.alloc(8), 1

    def counters(self) -> dict[str, Any]:
        """What each worker was given, and what the function of ``by`` counts."""
        if not self._shares or self._state:
            self._shares = {f"worker {i}": self._share(i) for i in range(self.element.workers)}
        return self._shares | {f"by.{name}": n for name, n in getattr(self.tags, "counters", dict)().items()}

    def _share(self, number: int) -> WorkerShare:
        backlog = self.memory.backlog(number)
        sizes = {size: int(n) for size, n in enumerate(backlog.bursts) if n}
        lines = sum(sizes.values())
        return WorkerShare(int(backlog.packets), lines, int(backlog.occupancy) / lines if lines else 0.0, sizes)

    def close(self) -> None:
        """Bring what is still on its way to an end."""
        if self._state and State.at(self._state).head.cache:
            self.counters()
            wind_up(self._state, self.hands, self.element.workers)
        self._state = 0
        if self.tags is not None:
            self.tags.close()


class LineSource(Element):
    """Where packets come from, for the crew of a distributing stage."""

    KIND = "crew"

    def __init__(self, part: DistributePart) -> None:
        self.name = f"from {part.element.name}"
        self.part = part

    def open(self, role: str, workers: int) -> "LineSource":
        """It belongs to one run."""
        return self

    def place(self, site: Site) -> Placement:
        """For one worker, with its hand."""
        address = site.state(SourceState)
        state = SourceState.at(address)
        state.hand, state.head.due_ns = self.part.hands + HAND * site.worker, AT_ONCE
        return Placement(take_lines.address, address)

    def close(self) -> None:
        """Nothing to close."""


class LineSink(Element):
    """Where packets with one output go back to, for the crew of a distributing stage."""

    KIND = "crew"

    def __init__(self, part: DistributePart, output: int) -> None:
        self.name = f"to {part.element.name}" + (f" output {output}" if output else "")
        self.part = part
        self.output = output

    def open(self, role: str, workers: int) -> "LineSink":
        """It belongs to one run."""
        return self

    def place(self, site: Site) -> Placement:
        """For one worker, with its hand."""
        address = site.state(SinkState)
        state = SinkState.at(address)
        state.hand, state.output = self.part.hands + HAND * site.worker, self.output
        return Placement(collect_output.address, address, SINK_DROPS)

    def close(self) -> None:
        """Nothing to close."""
