"""A distributing stage in one run: its memory, its crew, and the elements at both ends of the crew's graph.

The distributor's memory is made when the stage is opened; the workers' hands, and the ring that keeps the order, lie in
the run's arena.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wirespeed.core import staged
from wirespeed.core.distributor import statistics
from wirespeed.core.distributor.desk import Desks
from wirespeed.core.distributor.memory import DistributorMemory
from wirespeed.core.distributor.process import NO_PLACE, NO_ROOM, NO_WORKER, RETURNS_FULL
from wirespeed.core.distributor.statistics import WorkerStatistics
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


# Why the first in the box found no room, where that is not a matter of one worker.
REASONS = {
    NO_WORKER: "no worker is there",
    NO_ROOM: "no worker has room",
    RETURNS_FULL: "what came back finds no room",
    NO_PLACE: "no place for another tag",
}


@dataclass(frozen=True)
class WorkerShare:
    """What one worker of a crew was given: ``sizes`` counts its lines by how many packets they had.

    ``under_way`` is how many lines were on average; ``in_flight`` packets are with it now, ``waiting`` are kept for it,
    ``pinned`` tags are on it.  ``state`` is active, stalled (waited for in vain) or away (not there yet, or no more).
    """

    packets: int
    lines: int
    under_way: float
    sizes: dict[int, int] = field(default_factory=dict)
    in_flight: int = 0
    waiting: int = 0
    pinned: int = 0
    takeovers: int = 0
    state: str = "active"

    @classmethod
    def of(cls, w: WorkerStatistics) -> "WorkerShare":
        """What the distributor says of a worker."""
        sizes = {size: n for size, n in enumerate(w.lines) if n}
        state = "away" if not w.active else "stalled" if w.stalled else "active"
        lines = sum(w.lines)
        return cls(w.packets, lines, w.occupancy, sizes, w.in_flight, w.waiting, w.pinned, w.takeovers, state)

    def __str__(self) -> str:
        each = self.packets / self.lines if self.lines else 0.0
        text = f"{self.packets:,} packets in {self.lines:,} lines of {each:.1f}; {self.under_way:.1f} lines under way"
        return text if self.state == "active" else f"{text}; {self.state}"


@dataclass(frozen=True)
class DistributorShare:
    """What all workers have in common: ``blocked`` says why nothing more is taken while something waits, or is empty."""

    parked: int
    parked_ever: int
    blocked: str

    def __str__(self) -> str:
        text = f"{self.parked:,} packets parked now, {self.parked_ever:,} in all"
        return f"{text}; {self.blocked}" if self.blocked else text


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
        """What each worker was given, what they have in common, and what the function of ``by`` counts."""
        numbers = statistics.read(self.memory)
        found: dict[str, Any] = {f"worker {w.number}": WorkerShare.of(w) for w in numbers.workers}
        found["distributor"] = DistributorShare(numbers.parked, numbers.parked_ever, self._blocked())
        return found | {f"by.{name}": n for name, n in getattr(self.tags, "counters", dict)().items()}

    def _blocked(self) -> str:
        if not self._state or State.at(self._state).waiting == 0:
            return ""
        record = self.memory.record
        reason, worker = int(record.reason), int(record.blocked)
        if reason == NO_ROOM and worker >= 0:
            return f"worker {worker} has no room"
        return REASONS.get(reason, "")

    def close(self) -> None:
        """Bring what is still on its way to an end."""
        if self._state and State.at(self._state).head.cache:
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
