"""The switch in a graph: a port's packets come in by its ingress, and leave by as many outputs as there are ports.

Output 0 is not used: what the stage leaves in its burst is nothing, and every port has an outbox of its own, so a burst
leaves in one piece for each port.
"""

import threading
from typing import TYPE_CHECKING, Any

from wirespeed.core.element import Chain, Element
from wirespeed.core.stage import Placement, Site
from wirespeed.errors import GraphError
from wirespeed.jit import ahead
from wirespeed.switch import apart, stage
from wirespeed.switch.execute.execution import Execution
from wirespeed.switch.execute.reasons import DROPS as EXECUTE_DROPS
from wirespeed.switch.ingress import DROPS, IngressState, arrive
from wirespeed.switch.memory import PORT, Shared
from wirespeed.switch.state import State
from wirespeed.switch.worker import WorkerMemory

if TYPE_CHECKING:
    from wirespeed.switch.switch import Switch


class Core(Element):
    """The stage itself, of one switch; it has one place in a graph at a time."""

    FIRST_OUTPUT = 1

    def __init__(self, switch: "Switch") -> None:
        self.name = switch.name
        self.switch = switch

    def open(self, role: str, workers: int) -> "CorePart":
        """Ready for one run."""
        return CorePart(self.switch, workers)


class CorePart:
    """A switch in one run."""

    def __init__(self, switch: "Switch", workers: int) -> None:
        self.switch = switch
        self.memories: list[WorkerMemory] = []
        self.placements: list[Placement] = []
        self._made = 0
        self._completing: threading.Thread | None = None
        self._lock = threading.Lock()  # on the memories, with the thread that completes them
        ahead.begin([apart.translation, apart.execution])
        switch.enter(self)

    def place(self, site: Site) -> Placement:
        """A worker's copy."""
        memory = WorkerMemory(
            site.state(State), self.switch.shared, self.switch.code, self.switch.cache, self.switch.insert
        )
        self.memories.append(memory)
        self.switch.add_state(memory.address)
        placed = Placement(stage.switch.address, memory.address, EXECUTE_DROPS, keep=self)
        self.placements.append(placed)
        if not ahead.is_under_way(apart.execution):
            memory.complete()
        elif self._completing is None:
            self._completing = threading.Thread(target=self._complete, name="wirespeed switch's code", daemon=True)
            self._completing.start()
        return placed

    def _complete(self) -> None:
        """Give all workers the code that they have begun without; the run may be over when it is there."""
        ahead.wait_for(apart.execution)
        with self._lock:
            for memory in self.memories:
                memory.complete()

    def counters(self) -> dict[str, Any]:
        """What the caches did, over all workers."""
        return self.switch.worker_counters()

    def made(self) -> int:
        """How many more packets there are by copies."""
        return self._made + sum(int(Execution.at(State.at(m.address).execution).made) for m in self.memories)

    def service(self) -> float | None:
        """What is done beside the data path: timeouts, ageing, memory to be given back."""
        for memory in self.memories:
            memory.grow(self.switch.cache_most if self.switch.cache else 0)
        return self.switch.look_after()

    def close(self) -> None:
        """Keep what was counted, and give the workers' memory back."""
        self._made = self.made()
        for memory in self.memories:
            self.switch.end_state(memory.address)
        self.switch.leave(self)
        with self._lock:
            for memory in self.memories:
                memory.close()
            self.memories.clear()


class Ingress(Element):
    """Before the switch, on one port."""

    def __init__(self, switch: "Switch", number: int) -> None:
        self.switch, self.number = switch, number
        self.name = f"{switch.name} port {switch.port_name(number)}"

    def open(self, role: str, workers: int) -> "IngressPart":
        """Ready for one run."""
        return IngressPart(self)


class IngressPart:
    """A port's ingress in one run."""

    def __init__(self, element: Ingress) -> None:
        self.element = element
        self.states: list[int] = []

    def place(self, site: Site) -> Placement:
        """A worker's copy."""
        address = site.state(IngressState)
        state = IngressState.at(address)
        port = self.element.switch.ports.get(self.element.number)
        state.port = int(Shared.at(self.element.switch.shared).ports) + PORT * port.place
        state.place = port.place
        return Placement(arrive.address, address, DROPS)

    def close(self) -> None:
        """Nothing to close."""


def chains_of(switch: "Switch") -> list[Chain]:
    """The graph that a switch makes with its ports."""
    core = switch.core
    ports = sorted(switch.ports.by_number.values(), key=lambda port: port.place)
    if not any(port.receive for port in ports):
        raise GraphError(
            f"{switch.name} has no port that packets come in by; add one: switch.add_port(1, wirespeed.port(...))"
        )
    if not any(port.transmit for port in ports):
        raise GraphError(
            f"{switch.name} has no port that packets leave by; add one: switch.add_port(2, wirespeed.port(...))"
        )
    chains = []
    output = Core.FIRST_OUTPUT
    for port in ports:
        if port.receive is not None:
            chains.append(Chain(port.receive) >> Ingress(switch, port.number) >> core)
        if port.transmit is not None:
            leaving = Chain(core)
            leaving.links = ((core, output, port.transmit),)
            chains.append(leaving)
            switch.set_output(port, output)
            output += 1
        else:
            switch.set_output(port, -1)
    return chains
