"""A packet port that receives, in a run: for each worker a socket with a ring, all of them in one group.

Theory of operation
-------------------
Several workers' sockets share packets out among themselves (PACKET_FANOUT).  A socket gets everything from when it is
bound until it has joined the group, so each begins with a filter that lets nothing through, and gets the real one, or
none, when all are together.  A group cannot be bound anew: when the interface is back as another one, new sockets take
the places of the old ones, under the same descriptors, and each worker goes over to its new ring.

Thread rules: the control thread calls ``service`` and ``close``, any thread may ask for ``counters``; a lock keeps them
apart.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from threading import Lock
from typing import TYPE_CHECKING

from wirespeed.core.packet import HEADROOM
from wirespeed.core.stage import Placement, Site
from wirespeed.errors import PortError
from wirespeed.ports.packet import receive
from wirespeed.ports.packet.box import room
from wirespeed.ports.packet.clock import require_clock
from wirespeed.ports.packet.device import Device
from wirespeed.ports.packet.receive import PIECES, PLACE_AT, Piece, State
from wirespeed.ports.packet.ring_size import BEFORE, receiving_ring
from wirespeed.ports.packet.rings import Rings
from wirespeed.ports.packet.settings import Settings
from wirespeed.ports.packet.sink import SERVICE_S, told
from wirespeed.ports.packet.slots import OUTGOING
from wirespeed.ports.packet.socket import (
    COPY_THRESH,
    ETH_P_ALL,
    IGNORE_OUTGOING,
    MR_ALLMULTI,
    MR_PROMISC,
    RX_RING,
    VNET_HDR,
    PacketSocket,
    hardware_stamps,
    settle,
)
from wirespeed.ports.packet.statistics import READ_S, Statistics

if TYPE_CHECKING:
    from wirespeed.ports.filter.expression import Filter

SKIPPED = {"in": 1 << OUTGOING, "out": 0xFF & ~(1 << OUTGOING), "both": 0}
# include/uapi/linux/if_packet.h
FANOUT = {"hash": 0, "lb": 1, "cpu": 2, "rnd": 4, "qm": 5, "defrag": 0x8000}
UNIQUE, GROUP_IGNORES_OUTGOING = 0x2000, 0x4000


class SourcePart:
    """Packets that come in by an interface."""

    def __init__(self, settings: Settings, workers: int) -> None:
        self.settings = settings
        self.device = Device(settings.name, settings.netns)
        self.geometry = receiving_ring(settings, workers)
        self.statistics = Statistics()
        self._filter: Filter | None = None
        self._begun = False
        self._unread = 0
        self._lock = Lock()
        self._addresses: list[int] = []
        self._last_read = time.monotonic()
        self._sums: dict[str, int] = {}
        with ExitStack() as undo:
            undo.callback(self.device.close)
            self.device.find()
            if settings.hardware_time:
                require_clock(settings.name, settings.netns)
            self._rings = Rings(self._open(workers))
            undo.pop_all()

    @property
    def link(self) -> int:
        """The link type of the interface (LINKTYPE_*)."""
        return self.device.link

    def _open(self, n: int) -> list[PacketSocket]:
        """Sockets with their rings, not bound yet."""
        with ExitStack() as undo:
            made = []
            for _ in range(n):
                made.append(undo.enter_context(PacketSocket(self.settings.name, self.settings.netns)))
                self._set_up(made[-1])
            undo.pop_all()
        return made

    def _set_up(self, opened: PacketSocket) -> None:
        settings = self.settings
        opened.set(VNET_HDR, 1, "virtio-net headers")
        if settings.direction == "in":
            opened.offers(IGNORE_OUTGOING)  # where the kernel does not, the stage does
        if settings.hardware_time:
            hardware_stamps(opened)
        if settings.snaplen > self.geometry.size - BEFORE:
            opened.enlarge(settings.buffer)
            opened.set(COPY_THRESH, 1, "large frames")
        opened.map_ring(RX_RING, self.geometry)

    def attach(self, filter: "Filter") -> bool:
        """Have the kernel filter; whether it does."""
        self._filter = filter
        if not all(self._let_through(each) for each in self._rings.sockets):
            self._filter = None
            for each in self._rings.sockets:
                each.hear_all()
        return self._filter is not None

    def _begin(self, sockets: Sequence[PacketSocket]) -> None:
        """Bind sockets and, where they are several, bring them together in one group."""
        settings, index, several = self.settings, self.device.index, len(sockets) > 1
        word = FANOUT[settings.fanout] | UNIQUE
        if settings.direction == "in" and several:
            word |= GROUP_IGNORES_OUTGOING
        word <<= 16
        for each in sockets:
            each.be_deaf()
            if settings.promiscuous:
                each.join(index, MR_PROMISC)
            if settings.all_multicast:
                each.join(index, MR_ALLMULTI)
            each.bind(index, ETH_P_ALL)
            if several:
                word = each.fan_out(word) & ~(UNIQUE << 16)
        if not all(self._let_through(each) for each in sockets):
            raise PortError(f"{settings.name}: the kernel does not take the filter any more; run it without")

    def _let_through(self, opened: PacketSocket) -> bool:
        """Give a socket the filter that it is to have, or none; whether the kernel takes it."""
        if self._filter is None:
            opened.hear_all()
            return True
        from wirespeed.ports.filter import attach  # the compiler of filters is loaded where there is one

        return attach.to_socket(opened.fd, self._filter, self.link)

    def place(self, site: Site) -> Placement:
        """This worker's copy, with its own socket; the first one has all begin to receive."""
        receive.abandon.compile("(int64,)")  # now, and not at the end
        receive.unread.compile("(int64,)")
        if not self._begun:
            self._begin(self._rings.sockets)
            self._begun = True
        address = site.state(State)
        state = State.at(address)
        own = self._rings.place(site.worker, address + PLACE_AT)
        state.slots, state.slot_size, state.fd = self.geometry.slots, self.geometry.size, own.fd
        state.room, state.snaplen = site.pool.room - HEADROOM, self.settings.snaplen
        state.skip, state.link = SKIPPED[self.settings.direction], self.device.link
        state.pieces, state.offloads = site.arena.alloc(Piece.size * PIECES), int(self.settings.offloads)
        state.box.frames = room(site)
        self._addresses.append(address)
        return Placement(receive.receive.address, address, receive.DROPS, (own.fd,), keep=self)

    def service(self) -> float | None:
        """Follow the interface, and read the kernel's counters before they can wrap."""
        with self._lock:
            self._rings.tidy()
            if self.device.look():
                self._move()
            if not self.device.up:
                for each in self._rings.sockets:
                    each.clear_error()
            if time.monotonic() - self._last_read > READ_S:
                self._read()
        return SERVICE_S

    def _move(self) -> None:
        """Put new sockets, on the interface that there is now, into the places of the old ones."""
        with ExitStack() as undo:
            try:
                made = self._open(len(self._rings.sockets))
                for each in made:
                    undo.enter_context(each)
                self._begin(made)
            except PortError:  # it is gone again
                self.device.forget()
                return
            self._read()
            self._rings.replace(made)
        for address in self._addresses:
            State.at(address).link = self.device.link

    def _read(self) -> None:
        self._last_read = time.monotonic()
        for each in self._rings.sockets:
            self.statistics.read(each)

    def counters(self) -> dict[str, int | str]:
        """What the kernel dropped for want of a slot, and what became of the interface."""
        with self._lock:
            self._sum_up()
            said = {"kernel_packets": self.statistics.packets, "kernel_drops": self.statistics.drops} | self._sums
            said["unread"] = self._unread
            return {name: value for name, value in said.items() if value} | told(self.device)

    def _sum_up(self) -> None:
        """Bring all counters up to date, as long as there is something to read them from."""
        if self._addresses:
            self._read()
            states = [State.at(address) for address in self._addresses]
            self._sums["bad_offload"] = sum(int(state.bad_offload) for state in states)
            self._sums["segments"] = sum(int(state.box.segments) for state in states)
            self._sums["skipped"] = sum(int(state.skipped) for state in states)

    def close(self) -> None:
        """Close the sockets.  What is in their rings still is lost, and counted; what comes after the end is not."""
        with self._lock:
            self._stop_receiving()
            self._sum_up()
            for address in self._addresses:
                self._unread += receive.unread(address)
                receive.abandon(address)
            self._addresses = []
            self._rings.close()
            self.device.close()

    def _stop_receiving(self) -> None:
        """Have nothing more come into the rings; what came before is there, and counted."""
        if self._addresses:
            for each in self._rings.sockets:
                with suppress(OSError):
                    each.be_deaf()
            settle()
