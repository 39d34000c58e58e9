"""Small elements that tests put into graphs: each does one odd thing that a real stage may do."""

from typing import Any

import numpy as np

from wirespeed.core.element import Element
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import Packet, data, reset
from wirespeed.core.pool import alloc_bulk
from wirespeed.core.stage import FIRST_REASON, Head, Placement, Site, drop, emit
from wirespeed.jit.atomics import compare_exchange, store_release
from wirespeed.jit.intrinsics import load_i64, load_u64, pause, store_i64, store_u64
from wirespeed.jit.kernel import Stage, kernel, stage
from wirespeed.jit.layout import layout

u32, i64, u64 = np.uint32, np.int64, np.uint64

State = layout(
    "TestState",
    [
        ("head", Head),
        ("count", "i8"),
        ("limit", "i8"),
        ("array", "i8"),
        ("k", "i8"),
        ("kept", "i8", 256),
    ],
)


@stage
def number_packets(state, burst, n):
    """A source of ``limit`` packets that carry the numbers 0, 1, 2 and so on in their first eight bytes."""
    s = State(state)
    n = min(n, s.limit - s.count)
    if n == 0:
        s.head.done = 1
        return i64(0)
    n = alloc_bulk(s.head.cache, burst, n)
    for i in range(n):
        p = Packet(load_i64(burst + 8 * i))
        reset(p, 64)
        store_u64(data(p), u64(s.count + i))
    s.count += n
    return n


@stage
def record_packets(state, burst, n):
    """A sink that writes each packet's number down in ``array``; of each call it takes at most ``k`` packets."""
    s = State(state)
    take = min(n, s.k) if s.k > 0 else n
    for i in range(take):
        store_u64(s.array + 8 * s.count, load_u64(data(Packet(load_i64(burst + 8 * i)))))
        s.count += 1
    free_bulk(s.head.cache, burst, take)
    for i in range(n - take):
        store_i64(burst + 8 * i, load_i64(burst + 8 * (i + take)))
    return n - take


@stage
def deal(state, burst, n):
    """Packet number i goes to output i modulo ``k``."""
    s = State(state)
    kept = i64(0)
    for i in range(n):
        handle = load_i64(burst + 8 * i)
        output = i64(load_u64(data(Packet(handle))) % u64(s.k))
        if output == 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
        else:
            emit(state, output, handle)
    return kept


@stage
def drop_odd(state, burst, n):
    """Drop the packets with odd numbers."""
    kept = i64(0)
    for i in range(n):
        handle = load_i64(burst + 8 * i)
        if load_u64(data(Packet(handle))) & u64(1):
            drop(state, handle, FIRST_REASON)
        else:
            store_i64(burst + 8 * kept, handle)
            kept += 1
    return kept


@stage
def drop_odd_and_take(state, burst, n):
    """A sink that drops the packets with odd numbers and takes the others."""
    for i in range(n):
        handle = load_i64(burst + 8 * i)
        if load_u64(data(Packet(handle))) & u64(1):
            drop(state, handle, FIRST_REASON)
        else:
            free_bulk(Head(state).cache, burst + 8 * i, 1)
    return i64(0)


@stage
def hold_some(state, burst, n):
    """Hold up to ``k`` packets of each burst until the next tick."""
    s = State(state)
    if n == 0:
        out = s.head.held
        for i in range(out):
            store_i64(burst + 8 * i, load_i64(s.kept + 8 * i))
        s.head.held = 0
        return out
    keep = min(n, s.k - s.head.held)
    for i in range(keep):
        store_i64(s.kept + 8 * (s.head.held + i), load_i64(burst + 8 * (n - keep + i)))
    s.head.held += keep
    return n - keep


@stage
def fail(state, burst, n):
    """Raise, as no stage of ours may."""
    if n > 0:
        raise ValueError
    return n


@stage
def give_nothing(state, burst, n):
    """A source that has nothing now and may have something later."""
    return i64(0)


@stage
def never_return(state, burst, n):
    """Stay here until the stop word is set."""
    while load_u64(Head(state).stop) & u64(0xFFFFFFFF) == u64(0):
        pause()
    return n


class TestElement(Element):
    """One of the stages above as an element; ``k`` is its parameter."""

    __test__ = False  # not a class of tests, whatever its name

    def __init__(self, name: str, code: Stage, k: int = 0, limit: int = 0) -> None:
        self.name = name
        self.code = code
        self.k = k
        self.limit = limit
        self.closed = 0
        self.arrays: list[Any] = []
        self.states: list[int] = []
        self.numbers: list[int] = []

    def open(self, role: str, workers: int) -> "TestElement":
        self.role = role
        self.arrays, self.states = [], []
        return self

    def place(self, site: Site) -> Placement:
        address = site.state(State)
        state = State.at(address)
        state.k = self.k
        state.limit = self.limit
        array = np.zeros(self.limit or 1 << 20, np.uint64)
        state.array = array.ctypes.data
        self.arrays.append(array)
        self.states.append(address)
        return Placement(self.code.address, address, {"odd": "The number is odd"})

    def close(self) -> None:
        self.closed += 1
        counts = [State.at(a).count for a in self.states]
        self.numbers = [int(v) for array, n in zip(self.arrays, counts, strict=True) for v in array[:n]]


class TestPort(TestElement):
    """The same as a port."""

    KIND = "test"
    OPTIONS: dict[str, Any] = {}  # noqa: RUF012


def source(limit: int, name: str = "source") -> TestPort:
    return TestPort(name, number_packets, limit=limit)


def sink(k: int = 0, name: str = "sink") -> TestPort:
    return TestPort(name, record_packets, k=k)


SEATS = 16  # flows that can be told apart
Seat = layout("TestSeat", [("worker", "u4"), (None, 60)])
SEAT = Seat.size


@kernel(inline=True)
def sit(s, flow):
    """Have a flow be on this worker; it is counted in ``limit`` when another one has it."""
    seat = Seat(s.array + SEAT * flow)
    me = u32(s.k + 1)
    if not compare_exchange(seat, "worker", 0, me) and seat.worker != me:
        s.limit += 1


@kernel(inline=True)
def rise(s, flow):
    """Have a flow be on no worker."""
    store_release(Seat(s.array + SEAT * flow), "worker", 0)


class Seated(TestElement):
    """A stage of a crew that notes which worker has which flow, with :func:`sit`; ``clashes`` counts those on two at once."""

    def __init__(self, name: str, code: Stage) -> None:
        super().__init__(name, code)
        self.seats = np.zeros(SEAT // 8 * (SEATS + 1), np.uint64)
        self.clashes = 0

    def place(self, site: Site) -> Placement:
        placed = super().place(site)
        state = State.at(placed.state)
        state.k, state.limit = site.worker, 0
        state.array = -(-self.seats.ctypes.data // SEAT) * SEAT
        return placed

    def close(self) -> None:
        self.clashes = sum(int(State.at(a).limit) for a in self.states)
