"""What a distributor lies in: the desks, which other processes may share, and what is its own."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.core.distributor.backlog import BACKLOG, Backlog, Distributor
from wirespeed.core.distributor.desk import DESK, DESKS, ITEMS, MOST_BURST, Cursor, Desk, Desks, Line
from wirespeed.core.distributor.pins import BUCKET, LANE, LINE_SHIFT, MOST_WORKERS, NEAR, Lane
from wirespeed.core.mapping import Mapping
from wirespeed.core.number import whole
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.layout import layout

KIND = 3  # of segment
LAYOUTS = (Desks, Desk, Line)
MOST_LINES = 1024
PAGE = 4096
FEW = 16  # workers whose lines fit into a core's own caches when each has many


def line_size(burst: int) -> int:
    """Bytes of a line: one, two or four cache lines."""
    return 64 if burst <= 7 else 128 if burst <= 15 else 256


def desk_size(burst: int, lines: int) -> int:
    """Bytes of a desk with its lines."""
    return DESK + lines * line_size(burst)


def desks_size(workers: int, burst: int, lines: int) -> int:
    """Bytes of all desks, a free pair of cache lines behind them."""
    return DESKS + workers * -(-desk_size(burst, lines) // 128) * 128 + 128


def _power(value: Any, what: str, most: int) -> int:
    number = whole(value, what, 1)
    if number > most or number & (number - 1):
        below = 1 << (min(number, most).bit_length() - 1)
        raise GraphError(f"{what} must be a power of two up to {most}, got {number}; try {below}")
    return number


class Shape:
    """The numbers that a distributor is made with, checked."""

    def __init__(
        self, workers: Any, *, burst: Any = None, lines: Any = None, slots: Any = None, returns: Any = 8192,
        park: Any = 1024,
    ) -> None:  # fmt: skip
        self.workers = whole(workers, "workers", 1)
        if self.workers > MOST_WORKERS:
            raise GraphError(f"a distributor has 1 to {MOST_WORKERS} workers, got {self.workers}; use several of them")
        few = self.workers <= FEW
        self.burst = whole((MOST_BURST if few else 15) if burst is None else burst, "burst", 1)
        if self.burst > MOST_BURST:
            raise GraphError(f"burst must be 1 to {MOST_BURST}, what a line of 256 bytes holds, got {self.burst}")
        usual = 16 if few else 4
        self.lines = _power(usual if lines is None else lines, "lines", MOST_LINES)
        least = 8 if self.burst == 1 else 2
        self.slots = _power(max(least, self.lines) if slots is None else slots, "slots", 2 * MOST_LINES)
        if self.slots < max(2, self.lines):
            raise GraphError(
                f"slots must be at least {max(2, self.lines)}, for {self.lines} lines with a worker and one that is "
                f"filled, got {self.slots}"
            )
        self.returns = _power(returns, "returns", 1 << 24) if returns else 0
        if 0 < self.returns < self.burst:
            raise GraphError(f"returns must have room for a line of {self.burst} items, got {self.returns}")
        self.park = whole(park, "park", 0)
        if self.park > 1 << 24:
            raise GraphError(f"park must be at most {1 << 24} items, got {self.park}")


class DeskMemory:
    """The desks at an address: their record, and where each lies."""

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    def record(self) -> Any:
        """What all desks have in common."""
        return Desks.at(self.address)

    def init(self, shape: Shape) -> None:
        """Make zeroed memory the desks of a new distributor."""
        record = self.record
        record.workers, record.burst, record.lines = shape.workers, shape.burst, shape.lines
        record.line_size = line_size(shape.burst)
        record.desk_size = -(-desk_size(shape.burst, shape.lines) // 128) * 128

    def check(self, size: int) -> None:
        """Raise :class:`PeerError` unless the record fits the ``size`` bytes that there are."""
        record = self.record
        shape = int(record.workers), int(record.burst), int(record.lines)
        fits = (
            1 <= shape[0] <= MOST_WORKERS
            and 1 <= shape[1] <= MOST_BURST
            and 1 <= shape[2] <= MOST_LINES
            and shape[2] & (shape[2] - 1) == 0
            and record.line_size == line_size(shape[1])
            and record.desk_size == -(-desk_size(*shape[1:]) // 128) * 128
            and desks_size(*shape) <= size
        )
        if not fits:
            raise PeerError(
                f"the distributor's record does not fit its memory: {shape[0]} workers, bursts of {shape[1]}, "
                f"{shape[2]} lines in {size} bytes; have its maker make it anew"
            )

    def desk(self, number: int) -> int:
        """The address of a desk."""
        record = self.record
        if not 0 <= number < record.workers:
            raise GraphError(f"the workers are 0 to {record.workers - 1}, got {number}")
        return self.address + DESKS + number * int(record.desk_size)

    def fill_cursor(self, at: int, number: int) -> None:
        """Make zeroed memory at ``at`` a worker's cursor on a desk."""
        record, desk, cursor = self.record, self.desk(number), Cursor.at(at)
        cursor.desks, cursor.desk, cursor.line_size = self.address, desk, record.line_size
        cursor.lines = desk + DESK
        cursor.burst, cursor.mask = record.burst, record.lines - 1


class DistributorMemory:
    """A distributor of one process, with desks in it or elsewhere: ``address`` is its record, for kernels.

    With ``redo``, a line that a dead worker had begun is done again; else it is lost.
    """

    def __init__(self, shape: Shape, desks: DeskMemory | None = None, *, redo: bool = True) -> None:
        self.shape = shape
        own_desks = desks is None
        sizes = self._sizes(shape) | (
            {"desks": desks_size(shape.workers, shape.burst, shape.lines)} if own_desks else {}
        )
        offsets, total = {}, 0
        for name, size in sizes.items():
            offsets[name] = total
            total += -(-size // 128) * 128 + 128  # a free pair of lines behind each
        self.mapping = Mapping(-(-total // PAGE) * PAGE, own=True)
        base = self.mapping.address
        places = {name: base + offset for name, offset in offsets.items()}
        if desks is None:
            desks = DeskMemory(places["desks"])
            desks.init(shape)
        self.desks = desks
        self.address = places["distributor"]
        self._cursors = places["cursors"]
        for number in range(shape.workers):
            desks.fill_cursor(self.cursor(number), number)
        self.binding = places["binding"]
        self._init(places, redo)

    @staticmethod
    def _sizes(shape: Shape) -> dict[str, int]:
        held = shape.workers * shape.slots * shape.burst
        parked = 1 << (shape.park + held).bit_length()
        # At most half of the lanes are live, and fewer where the first cache holds them all.
        lanes = max(2 * held, min(8 * held, NEAR // LANE), 4 * BUCKET // LANE)
        buckets = (1 << (lanes - 1).bit_length()) * LANE // BUCKET
        return {
            "binding": 64,
            "distributor": Distributor.size,
            "backlogs": BACKLOG * (shape.workers + 1),  # the one beyond is never active: empty lanes are its
            "cursors": Cursor.size * shape.workers,
            "table": BUCKET * buckets,
            "marks": buckets,
            "slots": shape.workers * shape.slots * (line_size(shape.burst) * 3 // 2),
            "active": 4 * shape.workers,
            "returns": 8 * (shape.returns + MOST_BURST),
            "parked_items": 8 * parked,
            "parked_tags": 4 * parked,
        }

    def _init(self, places: dict[str, int], redo: bool) -> None:
        shape, record, size = self.shape, self.record, line_size(self.shape.burst)
        sizes = self._sizes(shape)
        record.desks, record.backlogs, record.workers = self.desks.address, places["backlogs"], shape.workers
        pins = record.pins
        pins.table, pins.mask, pins.marks = places["table"], sizes["table"] - LANE, places["marks"]
        pins.multiplier = random.SystemRandom().getrandbits(64) | 1
        Lane.array_at(pins.table, sizes["table"] // LANE)["entry"] = shape.workers
        pins.windows, pins.stride = places["backlogs"] + Backlog.offset("window"), BACKLOG
        record.burst, record.lines, record.slots = shape.burst, shape.lines, shape.slots
        record.line_size, record.slot_size = size, size * 3 // 2
        record.active, record.in_hand = places["active"], int(redo)
        record.returns, record.returns_mask = places["returns"], max(shape.returns, 1) - 1
        record.keeps = shape.returns > 0
        record.parked_items, record.parked_tags = places["parked_items"], places["parked_tags"]
        record.parked_mask, record.parked_most = sizes["parked_items"] // 8 - 1, shape.park
        record.blocked = -1
        for number in range(shape.workers):
            b, cursor = self.backlog(number), Cursor.at(self.cursor(number))
            b.number, b.desk, b.places = number, cursor.desk, cursor.lines
            b.window.done = b.sent = b.open = 1  # an entry of zeros is dead
            b.entry = 1 << LINE_SHIFT | number
            b.slots = places["slots"] + number * shape.slots * record.slot_size
            b.slot = b.slots + (1 & (shape.slots - 1)) * record.slot_size

    @property
    def record(self) -> Any:
        """The distributor's record."""
        return Distributor.at(self.address)

    def backlog(self, number: int) -> Any:
        """What is held for a worker."""
        return Backlog.at(int(self.record.backlogs) + BACKLOG * number)

    def cursor(self, number: int) -> int:
        """The address of a cursor, for a worker that is a kernel or thread of this process."""
        return self._cursors + Cursor.size * number

    def counts(self, number: int, first: int, end: int) -> list[int]:
        """How many items the closed lines of a worker from ``first`` on and before ``end`` have."""
        b, size = self.backlog(number), int(self.record.slot_size)
        lines = range(first, first + (end - first) % (1 << 32))
        return [int(Line.at(b.slots + (k & (self.shape.slots - 1)) * size).count) for k in lines]

    def held(self) -> NDArray[np.uint64]:
        """The items that have neither come back nor been counted: those that workers have first, then the parked."""
        record, found = self.record, []
        for number in range(self.shape.workers):
            b = self.backlog(number)
            for line in range(b.window.done, b.window.done + b.window.length):
                slot = b.slots + (line & (self.shape.slots - 1)) * record.slot_size
                count = b.fill if line == b.open else Line.at(slot).count
                found.append(_Item.array_at(slot + ITEMS, int(count))["value"].copy())
        for k in range(record.parked_head, record.parked_tail):
            found.append(_Item.array_at(record.parked_items + 8 * (k & record.parked_mask), 1)["value"].copy())
        return np.concatenate(found) if found else np.empty(0, np.uint64)


_Item = layout("DistributorItem", [("value", "u8")])
