"""Groups of buckets, in the form that workers read: one block a group, replaced as a whole when it changes."""

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch.actions.instructions import order_action_set
from wirespeed.switch.counters import Counters
from wirespeed.switch.fields import W_DERIVED
from wirespeed.switch.heap import Heap
from wirespeed.switch.memory import (
    BUCKET,
    GROUP,
    GROUP_ALL,
    GROUP_FAILOVER,
    GROUP_INDIRECT,
    GROUP_SELECT,
    MOST_SLOTS,
    NO_PLACE,
)

KINDS = {"all": GROUP_ALL, "select": GROUP_SELECT, "indirect": GROUP_INDIRECT, "ff": GROUP_FAILOVER}
LEAST_SLOTS = 16
MOST_BUCKETS = 1024
MOST_ID = 0xFFFFFF00
_GROUP, _BUCKET = struct.Struct("<qIIIIqI4x"), struct.Struct("<qIIII")
assert _GROUP.size == GROUP and _BUCKET.size == BUCKET


@dataclass(frozen=True)
class Bucket:
    """One way through a group: its actions are an action set.  ``watch_port`` and ``watch_group`` are numbers."""

    actions: tuple[Any, ...] = ()
    weight: int = 1
    watch_port: int | None = None
    watch_group: int | None = None
    id: int | None = None


@dataclass(frozen=True)
class Group:
    """A group: ``kind`` is all, select, indirect or ff."""

    id: int
    kind: str
    buckets: tuple[Bucket, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.id < MOST_ID:
            raise GraphError(f"a group's number must be 0 to {MOST_ID - 1}, got {self.id}")
        if self.kind not in KINDS:
            raise GraphError(f"a group's type must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.kind == "indirect" and len(self.buckets) != 1:
            raise GraphError(f"group {self.id}: an indirect group has one bucket, got {len(self.buckets)}")
        if len(self.buckets) > MOST_BUCKETS:
            raise GraphError(f"group {self.id}: at most {MOST_BUCKETS} buckets, got {len(self.buckets)}")
        for i, bucket in enumerate(self.buckets):
            if self.kind == "ff" and bucket.watch_port is None and bucket.watch_group is None:
                raise GraphError(
                    f"group {self.id}: bucket {i} of a fast failover group watches nothing; give watch_port"
                )
            if self.kind == "select" and not 0 <= bucket.weight <= 0xFFFF:
                raise GraphError(f"group {self.id}: the weight of bucket {i} must be 0 to 65535, got {bucket.weight}")

    @property
    def slots(self) -> int:
        """How many slots its hash chooses among; 0 when it has no hash."""
        if self.kind != "select":
            return 0
        wanted = max(LEAST_SLOTS, 4 * len(self.buckets))
        return min(1 << (wanted - 1).bit_length(), MOST_SLOTS)

    @property
    def reads(self) -> int:
        """Bits of a flow that decide what it does."""
        reads = (self.slots - 1) << 64 * W_DERIVED if self.slots else 0
        for bucket in self.buckets:
            for action in bucket.actions:
                reads |= action.reads
        return reads

    @property
    def writes(self) -> int:
        """Bits of a flow that it may change; of a copy, for what is behind a group sees the flow as it was."""
        writes = 0
        for bucket in self.buckets:
            for action in bucket.actions:
                writes |= action.writes
        return writes

    def names(self, number: int) -> bool:
        """Whether one of its buckets leads to another group, or watches it."""
        return any(
            bucket.watch_group == number or any(number in getattr(action, "groups", ()) for action in bucket.actions)
            for bucket in self.buckets
        )


def fill_slots(weights: Sequence[int], n: int) -> list[int]:
    """The bucket of each of ``n`` slots, as near to the weights as whole numbers are, spread evenly.

    Each slot goes to the bucket that is furthest behind its share (Webster's method of highest averages).
    """
    if not any(weights):
        return [0xFFFF] * n
    shares = [(-float(weight), i, 1) for i, weight in enumerate(weights)]
    heapify(shares)
    slots = []
    for _ in range(n):
        _, best, odd = shares[0]
        heapreplace(shares, (-weights[best] / (odd + 2), best, odd + 2))
        slots.append(best)
    return slots


@dataclass
class Placed:
    """A group as workers have it; ``bases`` are the packets and bytes that its counters began with."""

    group: Group
    place: int
    numbers: list[int]
    bases: list[tuple[int, int]]
    created: float
    address: int = 0
    size: int = 0


def numbers_for(group: Group, counters: Counters) -> tuple[list[int], list[tuple[int, int]]]:
    """Counters for a group and each of its buckets."""
    taken = [counters.take() for _ in range(1 + len(group.buckets))]
    return [t[0] for t in taken], [(t[1], t[2]) for t in taken]


def write(placed: Placed, heap: Heap, places: Any) -> None:
    """Write the block of a group; ``places`` resolves ports, groups and meters."""
    group = placed.group
    programs = []
    for bucket in group.buckets:
        words = [word for action in order_action_set(bucket.actions) for word in action.encode(places)]
        programs.append(struct.pack(f"<{len(words) + 1}Q", *words, 0))
    slots = fill_slots([b.weight for b in group.buckets], group.slots) if group.slots else []
    head = GROUP + BUCKET * len(programs)
    placed.size = head + sum(map(len, programs)) + 2 * len(slots)
    address = placed.address = heap.alloc(placed.size)
    at, content = address + head, b""
    for i, (bucket, program) in enumerate(zip(group.buckets, programs, strict=True)):
        port = NO_PLACE if bucket.watch_port is None else places.port(bucket.watch_port)
        watched = 0 if bucket.watch_group is None else places.watched_group(bucket.watch_group) + 1
        content += _BUCKET.pack(at, bucket.weight, port, watched, placed.numbers[1 + i])
        at += len(program)
    first = _GROUP.pack(
        address + GROUP, len(programs), KINDS[group.kind], group.id, placed.numbers[0], at if slots else 0, len(slots)
    )
    content = first + content + b"".join(programs) + struct.pack(f"<{len(slots)}H", *slots)
    ctypes.memmove(address, content, len(content))
