"""A worker of a switch that only executes: real packets, ports, a MAC table and meters; ops are given by hand."""

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import Packet, chain, copy_out
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import drain
from wirespeed.core.stage import COMMON_DROPS, OUTBOX, Outbox
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch.execute.events import Events
from wirespeed.switch.execute.reasons import DROPS
from wirespeed.switch.execute.run import SIZE, Execution, execute, make
from wirespeed.switch.fields import FIELDS
from wirespeed.switch.heap import Heap
from wirespeed.switch.memory import MIRROR, MOST_MIRRORS, MOST_PORTS, PORT, Shared
from wirespeed.switch.path import PATH, Path
from wirespeed.switch.ports import Mirror, Ports, SwitchPort
from wirespeed.switch.state import State
from wirespeed.tables.learning import MacTable
from wirespeed.tables.meter import Band, Meters

BOX = 1024  # packets that an outbox holds


@kernel
def take(cache, length):
    return alloc_length(cache, length)


@kernel
def link(head, tail):
    return chain(head, tail)


@kernel
def free(cache, handles, n):
    free_bulk(cache, handles, n)


@kernel
def run(state, execution, handle, path):
    execute(state, execution, handle, path)


def head(code: int, words: int, argument: int = 0) -> int:
    return code | words << 16 | argument << 32


def out(place: int, most: int = 0) -> list[int]:
    return [head(op.OUT, 2, place), most]


def edit(word: int, value: int, mask: int) -> list[int]:
    return [head(op.EDIT, 3, word), value & mask, mask]


def set_field(name: str, value: int, mask: int | None = None) -> list[int]:
    """The edits that give a field a value."""
    field = FIELDS[name]
    flow, bits = value << field.at, (field.ones if mask is None else mask) << field.at
    made: list[int] = []
    for word in range(40):
        if part := bits >> 64 * word & 0xFFFFFFFFFFFFFFFF:
            made += edit(word, flow >> 64 * word & 0xFFFFFFFFFFFFFFFF, part)
    return made


def clone(*ops: list[int]) -> list[int]:
    words = [word for one in ops for word in one]
    return [head(op.CLONE, 1 + len(words)), *words]


class Machine:
    """``outputs`` ports, at places from 0 on with numbers from 1 on; a context manager that checks the books at its end."""

    def __init__(self, outputs: int = 4, *, packets: int = 600, room: int = 2176) -> None:
        self.pool = PacketPool(packets, room)
        self.arena = Arena(SIZE + (1 << 22), huge=False)
        self.cache = self.pool.cache(arena=self.arena)
        self.mac_table, self.meters = MacTable(1024), Meters(8)
        self.heap = Heap()
        self.shared = self._shared()
        self.ports = Ports(self.shared, self.heap)
        self._outboxes = self.arena.alloc(OUTBOX * (outputs + 1))
        self._slots = np.zeros((outputs + 2, BOX), np.int64)
        for i in range(outputs + 1):
            box = Outbox.at(self._outboxes + OUTBOX * i)
            box.address, box.capacity = self._slots[i].ctypes.data, BOX
        self._drops = self.arena.alloc(Outbox.size)
        box = Outbox.at(self._drops)
        box.address, box.capacity = self._slots[outputs + 1].ctypes.data, BOX
        self.names = [*COMMON_DROPS, *DROPS]
        self.reasons = np.zeros(len(self.names), np.uint64)
        self.state = self.arena.alloc(State.size)
        self.record = State.at(self.state)
        h = self.record.head
        h.outboxes, h.outputs, h.drops, h.cache = self._outboxes, outputs + 1, self._drops, self.cache
        h.reasons = self.reasons.ctypes.data
        self.record.passes = 1
        self.execution = make(self.arena, self.shared)
        self.events = Events(int(Execution.at(self.execution).events))
        self._path = self.arena.alloc(PATH)
        self._ops = self.arena.alloc(8 * 8192)
        self._keep: list[Any] | None = None
        self.outputs, self.entered, self.left = outputs, 0, 0
        for place in range(outputs):
            self.add_port(place)

    def _shared(self) -> int:
        address = self.arena.alloc(Shared.size)
        s = Shared.at(address)
        s.ports, s.port_places = self.arena.alloc(PORT * (MOST_PORTS + 1)), self.arena.alloc(65536)
        s.mirrors = self.arena.alloc(MIRROR * MOST_MIRRORS)
        s.meters, s.mac_table = self.meters.address, self.mac_table.address
        return address

    def add_port(self, place: int, **how: Any) -> None:
        """Make a port anew, with these VLANs and settings."""
        if place + 1 in self.ports.by_number:
            self.ports.remove(place + 1)
        how = {"output": place + 1} | how
        self.ports.add(SwitchPort(place + 1, f"p{place}", place, None, None, **how))

    def mirror(self, *mirrors: Mirror) -> None:
        self.ports.set_mirrors({mirror.name: mirror for mirror in mirrors}, 1)

    def meter(self, number: int, rate: int) -> None:
        self.meters.add(number, [Band(rate, rate)], packets=True)

    def packet(self, data: bytes, pieces: Sequence[int] = (), place: int = 0) -> int:
        """A packet, in segments of these lengths and one with the rest."""
        cuts, at = [], 0
        for size in pieces:
            cuts.append(data[at : at + size])
            at += size
        cuts.append(data[at:])
        first = 0
        for part in cuts:
            handle = int(take(self.cache, len(part)))
            assert handle, "the pool is empty"
            bytes_ = np.frombuffer(part or b"\0", np.uint8)
            copy_in(handle, 0, len(part), bytes_.ctypes.data)
            if first:
                assert link(first, handle)
            else:
                first = handle
        Packet.at(first).port = place
        return first

    def bytes_of(self, handle: int) -> bytes:
        total = int(Packet.at(handle).total)
        found = np.zeros(total + 1, np.uint8)
        assert copy_out(handle, 0, total, found.ctypes.data) == total
        return found[:-1].tobytes()

    def execute(self, handle: int, *ops: Iterable[int]) -> dict[int, list[bytes]]:
        """Do ops with a packet; what left, by place."""
        words = [word for one in ops for word in one] + [op.END]
        np.ctypeslib.as_array((ctypes.c_uint64 * len(words)).from_address(self._ops))[:] = words
        path = Path.at(self._path)
        path.ops, path.n_ops = self._ops, len(words)
        self.entered += 1
        run(self.state, self.execution, handle, self._path)
        found: dict[int, list[bytes]] = {}
        for output in range(1, self.outputs + 1):
            box = Outbox.at(self._outboxes + OUTBOX * output)
            n = int(box.length)
            if n:
                handles = self._slots[output, :n]
                if self._keep is not None:
                    self._keep += [Packet(bytearray(ctypes.string_at(int(one), Packet.size))) for one in handles]
                found[output - 1] = [self.bytes_of(int(one)) for one in handles]
                free(self.cache, handles.ctypes.data, n)
                self.left += n
            box.length = 0
        box = Outbox.at(self._drops)
        free(self.cache, box.address, box.length)
        box.length = 0
        return found

    def send(
        self, data: bytes, *ops: Iterable[int], pieces: Sequence[int] = (), place: int = 0
    ) -> dict[int, list[bytes]]:
        """Do ops with a frame."""
        return self.execute(self.packet(data, pieces, place), *ops)

    def execute_and_keep(self, handle: int, *ops: Iterable[int]) -> list[Any]:
        """Do ops that send one packet by place 1; its record, as it was before it was freed."""
        found: list[Any] = []
        self._keep = found
        self.execute(handle, *ops)
        self._keep = None
        return found

    def pool_size(self) -> int:
        """Packets that are in the pool."""
        drain(self.cache)
        return int(self.pool.free_count)

    def give_back(self, handle: int) -> None:
        """Free a packet that the test held."""
        kept = np.array([handle], np.int64)
        free(self.cache, kept.ctypes.data, 1)

    def edited(self, data: bytes, *ops: Iterable[int], pieces: Sequence[int] = ()) -> bytes:
        """The frame as it is after ops that change it."""
        (found,) = self.send(data, *ops, out(1), pieces=pieces)[1]
        return found

    def drops(self) -> dict[str, int]:
        """Drops by reason since the last time, without those that did not occur."""
        found = {name: int(n) for name, n in zip(self.names, self.reasons, strict=True) if n}
        self.left += sum(found.values())
        self.reasons[:] = 0
        return found

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        self.drops()
        made = int(Execution.at(self.execution).made)
        drain(self.cache)
        self.pool.close_cache(self.cache)
        whole = self.pool.whole
        self.pool.close()
        self.arena.close()
        self.heap.close()
        self.mac_table.close()
        self.meters.close()
        if kind is None:
            assert whole, "packets are missing from the pool"
            assert self.entered + made == self.left, "the books do not balance"
