"""What a distributor lies in: the desks, which other processes may share, and what is its own."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.core.distributor.backlog import BACKLOG, Backlog, Distributor
from wirespeed.core.distributor.desk import DESK, DESKS, ITEMS, MOST_BURST, Cursor, Desk, Desks, Line
from wirespeed.core.distributor.pins import BUCKET, LANE, LINE_SHIFT, MOST_WORKERS, Lane
from wirespeed.core.mapping import Mapping, array_over
from wirespeed.core.number import whole
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.layout import layout

KIND = 3  # of segment
LAYOUTS = (Desks, Desk, Line)
MOST_LINES = 1024
PAGE = 4096
LEAST_LANES = 16384
DRAWS, STRIDES = 16, 17  # multipliers that are looked at, and powers of two that tags may be apart
SAMPLE = 4096  # tags that they are tried with
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


def _multiplier(lanes: int) -> int:
    """One that nobody can guess, of some that were drawn the one that spreads tags best that are evenly apart.

    A single one would now and then meet a pattern of tags that it puts into few lanes.
    """
    draw = random.SystemRandom()
    tags = np.arange(SAMPLE, dtype=np.uint64)
    best, most = 1, 0
    for _ in range(DRAWS):
        multiplier = draw.getrandbits(64) | 1
        least = len(tags)
        for shift in range(STRIDES):
            used = np.zeros(lanes, bool)
            used[(tags << np.uint64(shift)) * np.uint64(multiplier) >> np.uint64(32) & np.uint64(lanes - 1)] = True
            least = min(least, int(np.count_nonzero(used)))
            if least <= most:
                break
        if least > most:
            best, most = multiplier, least
        if most == len(tags):
            break
    return best


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
        self.returns = _power(returns, "returns", 1 << 24) if whole(returns, "returns", 0) else 0
        if 0 < self.returns < self.burst:
            raise GraphError(f"returns must have room for a line of {self.burst} items, got {self.returns}")
        self.park = whole(park, "park", 0)
        if self.park > 1 << 24:
            raise GraphError(f"park must be at most {1 << 24} items, got {self.park}")


class DeskMemory:
    """The desks at an address: their record, and where each lies.

    The numbers of their shape are kept here too: what lies in shared memory may be written by others at any time, so it
    is read once, by :meth:`check`.  ``keeper`` keeps the memory mapped.
    """

    def __init__(self, address: int, keeper: object = None) -> None:
        self.address, self.keeper = address, keeper
        self.workers = self.burst = self.lines = 0
        self._line_size = self._desk_size = 0

    @property
    def record(self) -> Any:
        """What all desks have in common."""
        return Desks.at(self.address)

    @property
    def owners(self) -> NDArray[np.uint64]:
        """Who has each desk, 0 where it is nobody's; an array over the desks themselves."""
        return self._column("owner")

    @property
    def beats(self) -> NDArray[np.uint64]:
        """How often each desk's workers have looked for a line; as :attr:`owners`."""
        return self._column("beats")

    def _column(self, field: str) -> NDArray[np.uint64]:
        size = self.workers * self._desk_size
        desks = array_over(self.keeper, self.address + DESKS, size, np.dtype(np.uint8))
        return np.ndarray((self.workers,), np.uint64, desks, Desk.offset(field), (self._desk_size,))

    def init(self, shape: Shape) -> None:
        """Make zeroed memory the desks of a new distributor."""
        record = self.record
        self._shape(shape.workers, shape.burst, shape.lines)
        record.workers, record.burst, record.lines = shape.workers, shape.burst, shape.lines
        record.line_size, record.desk_size = self._line_size, self._desk_size

    def _shape(self, workers: int, burst: int, lines: int) -> None:
        self.workers, self.burst, self.lines = workers, burst, lines
        self._line_size = line_size(burst)
        self._desk_size = -(-desk_size(burst, lines) // 128) * 128

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
        self._shape(*shape)

    def desk(self, number: int) -> int:
        """The address of a desk."""
        if not 0 <= number < self.workers:
            raise GraphError(f"the workers are 0 to {self.workers - 1}, got {number}")
        return self.address + DESKS + number * self._desk_size

    def fill_cursor(self, at: int, number: int) -> None:
        """Make zeroed memory at ``at`` a worker's cursor on a desk."""
        desk, cursor = self.desk(number), Cursor.at(at)
        cursor.desks, cursor.desk, cursor.line_size = self.address, desk, self._line_size
        cursor.lines = desk + DESK
        cursor.burst, cursor.mask = self.burst, self.lines - 1


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
        self.desks = desks or DeskMemory(places["desks"], self.mapping)
        self.desks.init(shape)
        self.address = places["distributor"]
        self._cursors = places["cursors"]
        for number in range(shape.workers):
            self.desks.fill_cursor(self.cursor(number), number)
        self.binding = places["binding"]
        self._init(places, redo)

    @staticmethod
    def _sizes(shape: Shape) -> dict[str, int]:
        held = shape.workers * shape.slots * shape.burst
        parked = 1 << (shape.park + held).bit_length()
        # At most half of the lanes are live; and thousands of flows that come and go find their own lanes again.
        lanes = max(2 * held, LEAST_LANES)
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
        pins.multiplier = _multiplier(sizes["table"] // LANE)
        Lane.array_at(pins.table, sizes["table"] // LANE)["entry"] = shape.workers
        pins.windows, pins.stride = places["backlogs"] + Backlog.offset("window"), BACKLOG
        record.burst, record.lines, record.slots = shape.burst, shape.lines, shape.slots
        record.line_size, record.slot_size = size, size * 3 // 2
        record.active, record.in_hand = places["active"], int(bool(redo))
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
                count = b.fill if line & 0xFFFFFFFF == b.open else Line.at(slot).count
                found.append(_Item.array_at(slot + ITEMS, int(count))["value"].copy())
        parked = np.arange(record.parked_head, record.parked_tail) & record.parked_mask
        found.append(_Item.array_at(record.parked_items, record.parked_mask + 1)["value"][parked])
        return np.concatenate(found)


_Item = layout("DistributorItem", [("value", "u8")])
