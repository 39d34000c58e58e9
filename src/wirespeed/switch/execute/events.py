"""What the switch tells a controller: a ring of records of any length, written by a worker, drained by Python.

Theory of operation
-------------------
``head`` and ``tail`` count bytes and never wrap; a record lies in one piece, so what does not fit before the end of the
ring is put at its beginning, and a record of no event fills the rest.  A ring that is full takes nothing: the data path
never waits.

Thread rules: one worker writes, one thread at a time drains.  Order pairs: Q1, the acquiring load of ``tail`` by who
drains, pairs with Q0, its release behind the record; the same of ``head`` for the room that is free again.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.core.packet import Packet, copy_out
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.types import int64

i64, u32, u64 = np.int64, np.uint32, np.uint64
CAPACITY = 1 << 20

EventRing = layout(
    "SwitchEvents",
    [
        ("records", "i8"),
        (None, 56),
        # written by the worker
        ("tail", "i8"),
        (None, 56),
        # written by who drains
        ("head", "i8"),
        (None, 56),
    ],
)
RING_SIZE = EventRing.size + CAPACITY + LINE

EventRecord = layout(
    "SwitchEvent",
    [
        ("size", "u4"),  # bytes to the next record
        ("kind", "u1"),  # 1, or 0 for what only fills the end of the ring
        ("reason", "u1"),
        ("table", "u1"),
        (None, 1),
        ("in_port", "u4"),
        ("extra", "u4"),
        ("length", "u4"),  # bytes of data behind this
        ("total", "u4"),  # bytes of the packet
        ("cookie", "u8"),
        ("metadata", "u8"),
    ],
)
assert EventRecord.size == 40
RECORD = EventRecord.size


def make_ring(arena: Arena) -> int:
    """The address of an empty ring."""
    address = arena.alloc(EventRing.size)
    EventRing.at(address).records = arena.alloc(CAPACITY)
    return address


@kernel
def tell(ring, handle, most, what, cookie, metadata):
    """Put a copy of a packet's first ``most`` bytes into the ring, with ``what``: reason | table << 8 | extra << 32,
    and the number of its port << 16 in ``most``'s upper bits; False when there is no room.
    """
    r, total = EventRing(ring), i64(Packet(handle).total)
    in_port = most >> 32
    length = min(most & 0xFFFFFFFF, total)
    size = (RECORD + length + 7) & ~7
    tail = r.tail
    at = tail & (CAPACITY - 1)
    left = CAPACITY - at
    skipped = left if size > left else i64(0)
    if size + skipped > CAPACITY - (tail - load_acquire(r, "head")):
        return False
    if skipped:
        # Records are multiples of eight bytes, so these eight are there.
        e = EventRecord(r.records + at)
        e.size, e.kind = u32(skipped), 0
        at = i64(0)
    e = EventRecord(r.records + at)
    e.size, e.kind = u32(size), 1
    e.reason, e.table = what & u64(0xFF), what >> u64(8) & u64(0xFF)
    e.in_port, e.extra = u32(in_port), u32(what >> u64(32))
    e.length, e.total = u32(length), u32(total)
    e.cookie, e.metadata = cookie, metadata
    copy_out(handle, i64(0), length, r.records + at + RECORD)
    store_release(r, "tail", tail + skipped + size)  # Q0
    return True


@entry(int64(int64))
def _tail(ring):
    """How far the worker has come."""
    return load_acquire(EventRing(ring), "tail")  # Q1


@entry(int64(int64, int64))
def _release(ring, head):
    """Give back what was read."""
    store_release(EventRing(ring), "head", head)
    return head


@dataclass(frozen=True)
class Event:
    """A packet that a controller is told about.

    ``reason`` is one of :mod:`wirespeed.switch.ops`; ``extra`` the number of what else the action says; ``data`` the
    packet's first bytes as it was then, ``total`` how many it had; ``in_port`` the number of its port.
    """

    reason: int
    table: int
    extra: int
    cookie: int
    metadata: int
    in_port: int
    total: int
    data: bytes


class Events:
    """The reading end of one worker's ring."""

    def __init__(self, ring: int) -> None:
        self.ring = ring
        self._records = int(EventRing.at(ring).records)

    def drain(self) -> list[Event]:
        """All that was told since the last time."""
        head, tail = int(EventRing.at(self.ring).head), int(_tail.function(self.ring))
        found = []
        while head < tail:
            at = self._records + head % CAPACITY
            record = EventRecord.at(at)
            if record.kind:
                found.append(_event(record, at + RECORD))
            head += int(record.size)
        _release.function(self.ring, head)
        return found


def _event(r: Any, at: int) -> Event:
    return Event(
        int(r.reason), int(r.table), int(r.extra), int(r.cookie), int(r.metadata), int(r.in_port), int(r.total),
        ctypes.string_at(at, int(r.length)),
    )  # fmt: skip
