"""A packet port that transmits, in a run: for each worker a socket with a ring, and one without for what fits no slot.

Thread rules: the control thread calls ``service`` and ``close``, any thread may ask for ``counters``; a lock keeps them
apart.
"""

from contextlib import ExitStack
from threading import Lock
from typing import Any

from wirespeed.core.stage import Placement, Site
from wirespeed.errors import PortError
from wirespeed.ports.packet import transmit
from wirespeed.ports.packet.box import room
from wirespeed.ports.packet.device import Device
from wirespeed.ports.packet.receive import PIECES, Piece
from wirespeed.ports.packet.rings import Rings
from wirespeed.ports.packet.settings import Settings
from wirespeed.ports.packet.slots import Geometry
from wirespeed.ports.packet.socket import QDISC_BYPASS, TX_RING, VNET_HDR, PacketSocket
from wirespeed.ports.packet.transmit import BEFORE, PLACE_AT, State

SLOTS, SLOT = 512, BEFORE + 1518 + 8  # an Ethernet frame of 1,500 bytes with three tags
SERVICE_S = 0.02
OVERHEAD = {1: 14, 101: 0}  # bytes of a frame that the MTU does not count, by link type


class SinkPart:
    """Packets that go out by an interface."""

    def __init__(self, settings: Settings, workers: int) -> None:
        self.settings = settings
        self.device = Device(settings.name, settings.netns)
        self.geometry = Geometry.of(SLOTS, SLOT)
        self._lock = Lock()
        self._addresses: list[int] = []
        self._segments = 0
        with ExitStack() as undo:
            undo.callback(self.device.close)
            self.device.find()
            rings, others = self._open(workers)
            self._rings, self._others = Rings(rings), others
            undo.pop_all()

    def _open(self, n: int) -> tuple[list[PacketSocket], list[PacketSocket]]:
        """Sockets with rings and as many without, on the interface that there is."""
        with ExitStack() as undo:
            made = [undo.enter_context(PacketSocket(self.settings.name, self.settings.netns)) for _ in range(2 * n)]
            for each in made:
                each.set(VNET_HDR, 1, "virtio-net headers")
                if self.settings.bypass:
                    each.set(QDISC_BYPASS, 1, "going past the queueing discipline (qdisc_bypass)")
                each.enlarge(self.settings.buffer, sending=True)
            for each in made[:n]:
                each.map_ring(TX_RING, self.geometry)
            for each in made:
                each.bind(self.device.index)
            undo.pop_all()
        return made[:n], made[n:]

    @property
    def link(self) -> int:
        """The link type of the interface (LINKTYPE_*)."""
        return self.device.link

    def place(self, site: Site) -> Placement:
        """This worker's copy, with its own two sockets."""
        transmit.abandon.compile("(int64,)")  # now, and not at the end
        address = site.state(State)
        state = State.at(address)
        state.fd = self._rings.place(site.worker, address + PLACE_AT).fd
        state.other = self._others[site.worker].fd
        state.slots, state.slot_size = self.geometry.slots, self.geometry.size
        state.pieces, state.offloads = site.arena.alloc(Piece.size * PIECES), int(self.settings.offloads)
        state.box.frames = room(site)
        self._addresses.append(address)
        self._tell(state)
        return Placement(transmit.transmit.address, address, transmit.DROPS, keep=self)

    def _tell(self, state: Any) -> None:
        device = self.device
        state.link, state.overhead, state.mtu = device.link, OVERHEAD[device.link], device.mtu
        state.up = int(device.up)

    def service(self) -> float | None:
        """Follow the interface."""
        with self._lock:
            self._rings.tidy()
            if self.device.look():
                self._move()
            for address in self._addresses:
                self._tell(State.at(address))
        return SERVICE_S

    def _move(self) -> None:
        """Put new sockets, on the interface that there is now, into the places of the old ones."""
        try:
            rings, others = self._open(len(self._others))
        except PortError:  # it is gone again
            self.device.forget()
            return
        self._rings.replace(rings)
        for own, new in zip(self._others, others, strict=True):
            own.become(new)

    def counters(self) -> dict[str, int | str]:
        """What was made of super-frames here, and what became of the interface."""
        with self._lock:
            segments = self._count_segments()
            return ({"segments": segments} if segments else {}) | told(self.device)

    def _count_segments(self) -> int:
        return self._segments + sum(int(State.at(address).box.segments) for address in self._addresses)

    def close(self) -> None:
        """Close the sockets; what the kernel has of their rings is transmitted all the same."""
        with self._lock:
            for address in self._addresses:
                transmit.abandon(address)
            self._segments = self._count_segments()
            self._addresses = []
            self._rings.close()
            for each in self._others:
                each.close()
            self.device.close()


def told(device: Device) -> dict[str, int | str]:
    """The counters of an interface, those that there is something to tell of."""
    said: dict[str, int | str] = {"link_changes": device.link_changes, "returns": device.returns}
    if device.called != device.name:
        said["renamed"] = device.called
    return {name: value for name, value in said.items() if value}
