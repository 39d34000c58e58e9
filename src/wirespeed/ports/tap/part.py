"""A tap or tun port in a run: the roles that share its device, and what each worker has of them.

Thread rules: the control thread calls ``service`` and ``close``, any thread may ask for ``counters``.
"""

import errno
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import ROOM
from wirespeed.core.stage import MAX_BURST, Placement, Site
from wirespeed.errors import GraphError, PortError
from wirespeed.ports.packet.box import room
from wirespeed.ports.tap import receive, transmit
from wirespeed.ports.tap.batch import Batch, BatchMemory
from wirespeed.ports.tap.device import Device
from wirespeed.ports.tap.queue import HEADER, drain, off_filter

LONG = 65536 + 128  # most bytes of a packet that is worth having segments ready for: what GSO makes, and its headers
SPARE = 8  # packets wait to be read into, beside the first, where the pool has so many times as many for each worker
if TYPE_CHECKING:
    from wirespeed.ports.filter.expression import Filter

Counters = dict[str, int | str]


class Shared(Protocol):
    """What a part needs of its port: who keeps the device, to be told when it is closed."""

    name: str
    link: int

    def closed(self, device: Device) -> None:
        """The last part of a device was closed."""


class TapPart:
    """One role of a port in a run."""

    role = ""

    def __init__(self, port: Shared, device: Device) -> None:
        if self.role in device.roles:
            raise GraphError(
                f"{port.name} is read or written by another run already; end that one, or use a port of its own"
            )
        self.port = port
        self.device = device
        self.link = port.link
        self._states: list[int] = []
        self._batches: list[BatchMemory] = []
        self._last: Counters | None = None
        device.roles.add(self.role)

    def service(self) -> float | None:
        """Attend to what has become of the device, which one of its roles does."""
        return self.device.look() if self.role == min(self.device.roles, default="") else None

    def counters(self) -> Counters:
        """What there is to tell beside packets, without what is 0."""
        told = self._counters() if self._last is None else self._last
        return {name: value for name, value in told.items() if value}

    def _counters(self) -> Counters:
        told = self.device.told
        return {
            "interface": told.interface if told.interface != self.port.name.partition(":")[2] else "",
            "link_changes": told.link_changes,
            "remakes": told.remakes,
            "trouble": told.trouble,
        }

    def _batch(self, fd: int) -> int:
        """A batch for a worker with this queue, 0 where there can be none."""
        batch = BatchMemory.open(fd)
        if batch is None:
            return 0
        self._batches.append(batch)
        return batch.address

    def _sum(self, state: Any, field: str) -> int:
        return sum(int(getattr(state.at(address), field)) for address in self._states)

    def close(self) -> None:
        """Let go of the device; the last one who does closes it."""
        if self._last is None:
            last = self.device.release(self.role)
            self._last = self._counters()
            self._states = []
            for batch in self._batches:
                batch.close()
            if last:
                self.port.closed(self.device)


def _pieces(site: Site, pieces: list[tuple[int, int]]) -> int:
    """The address of these pieces, each an address and a size."""
    address = site.arena.alloc(receive.PIECE * len(pieces))
    for i, (at, size) in enumerate(pieces):
        piece = receive.Piece.at(address + receive.PIECE * i)
        piece.address, piece.size = at, size
    return address


class SourcePart(TapPart):
    """Packets from the kernel."""

    role = "source"
    _filtered = False  # by the kernel, which counts what it keeps off as dropped

    @property
    def holds(self) -> int:
        """Packets that wait to be read into."""
        return self.device.n * (receive.ROWS + LONG // ROOM)

    def attach(self, filter: "Filter") -> bool:
        """Have the kernel give us only what a filter lets pass; whether it does.  What was there before is gone."""
        from wirespeed.ports.filter.attach import to_tap  # only a run with a filter needs it

        def prepare(fds: list[int]) -> None:
            if not all(to_tap(fd, filter, self.link) for fd in fds):
                raise PortError(errno.EINVAL, f"{self.port.name}: the kernel does not take the filter any more")

        try:
            prepare(self.device.fds)
        except PortError:
            off_filter(self.device.fds[0])
            return False
        self.device.prepare = prepare
        self._filtered = True
        drain(self.device.fds)
        return True

    def place(self, site: Site) -> Placement:
        """This worker's queue."""
        self.device.start()
        receive.give_up.compile("void(int64)")  # now, for the end is no time to compile
        fd = self.device.fds[site.worker]
        address = site.state(receive.State)
        state = receive.State.at(address)
        state.fd, state.link = fd, self.port.link
        state.room, state.span = site.pool.room - HEADROOM, site.pool.room
        roomy = SPARE * site.workers
        state.batch = self._batch(fd) if site.pool.size >= roomy * receive.ROWS else 0
        state.sizes = Batch.at(state.batch).results if state.batch else site.arena.alloc(8 * receive.ROWS)
        state.firsts = site.arena.alloc(8 * receive.ROWS)
        first = state.room + HEADER
        spill = np.zeros(receive.ROWS * receive.LARGEST, np.uint8)  # pages that are never touched cost nothing
        spills = spill.ctypes.data
        rows = [
            piece
            for i in range(receive.ROWS)
            for piece in ((0, first), (spills + i * receive.LARGEST, receive.LARGEST))
        ]
        state.rows = _pieces(site, rows)
        length = -(-(LONG - state.room) // state.span)
        state.length = state.missing = length if site.pool.size >= roomy * length else 0
        state.long = _pieces(site, [(0, first), *[(0, state.span)] * state.length, rows[1]])
        state.segments = site.arena.alloc(8 * max(1, state.length))
        self._states.append(address)
        return Placement(receive.receive.address, address, receive.DROPS, (fd,), keep=spill)

    def _counters(self) -> Counters:
        told = self.device.told
        return super()._counters() | {
            "kernel_drops and filtered" if self._filtered else "kernel_drops": told.kernel_drops,
            "bad_offload": self._sum(receive.State, "bad_offload"),
        }

    def close(self) -> None:
        """Give back the packets that waited to be filled, too."""
        for address in self._states:
            receive.give_up(address)
        if self._filtered and self._last is None:
            off_filter(self.device.fds[0])  # a persistent device would keep it
        super().close()


class SinkPart(TapPart):
    """Packets to the kernel."""

    role = "sink"

    def place(self, site: Site) -> Placement:
        """This worker's queue."""
        self.device.start()
        transmit.abandon.compile("void(int64)")  # now, and not at the end
        address = site.state(transmit.State)
        state = transmit.State.at(address)
        state.fd = self.device.fds[site.worker]
        state.pieces = site.arena.alloc(transmit.MOST_PIECES * receive.PIECE)
        state.header = site.arena.alloc(HEADER)
        state.batch = self._batch(state.fd)
        state.answers = Batch.at(state.batch).results if state.batch else site.arena.alloc(8 * MAX_BURST)
        state.taken = site.arena.alloc(8 * MAX_BURST)
        state.box.frames = room(site)
        self._states.append(address)
        return Placement(transmit.transmit.address, address, transmit.DROPS)

    def _counters(self) -> Counters:
        segments = sum(int(transmit.State.at(address).box.segments) for address in self._states)
        return super()._counters() | {"again": self._sum(transmit.State, "again"), "segments": segments}

    def close(self) -> None:
        """Drop what the kernel did not take, too."""
        for address in self._states:
            transmit.abandon(address)
        super().close()
