"""``ws.coalesce()``: TCP segments of a flow become super-frames; see :mod:`wirespeed.engine.transform.flows`."""

import os
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.element import Element
from wirespeed.core.number import whole
from wirespeed.core.stage import FIRST_REASON, MAX_BURST, Head, Placement, Site, count_drops
from wirespeed.engine.transform import backlog, shortage
from wirespeed.engine.transform.backlog import free_waiting, take, waiting
from wirespeed.engine.transform.flows import Coalescer, Flow, expire, let_go, receive
from wirespeed.engine.transform.shortage import Shortage, lacking
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns
from wirespeed.tables import pending
from wirespeed.tables.pending import oldest

i64 = np.int64
MOST_FLOWS = 1 << 16
SEGMENTS = 4096  # held by all flows of a worker
DROPS = {"stopped": "The run was stopped while it was held"}

State = layout(
    "CoalesceState", [("head", Head), ("burst", "i8"), ("shortage", Shortage), (None, 32), ("coalescer", Coalescer)]
)


@kernel
def _make_way(c, n):
    """Have the oldest flows' packets go on until they have ``n`` segments together, or all."""
    while n > 0 and c.table.length > 0:
        n -= c.segments
        let_go(c, oldest(c.table))
        n += c.segments


@stage
def coalesce_packets(state, burst, n):
    """Join what can be joined, and let go on what is ready."""
    s = State(state)
    c = s.coalescer
    now = monotonic_ns()
    for i in range(n):
        receive(c, s.head.cache, load_handle(burst + 8 * i), now)
    if c.table.length > 0:
        expire(c, now)
    if n > 0:
        s.shortage.came = 1
    elif c.table.length > 0:
        _make_way(c, lacking(s.shortage, s.head.cache))
    done = min(waiting(c.ready), n if n > 0 else s.burst)
    for i in range(done):
        store_i64(burst + 8 * i, take(c.ready))
    s.head.held = waiting(c.ready) + c.table.length
    return done


@kernel
def _wind_up(state):
    """After the last round, free what is held, and count it."""
    s = State(state)
    c = s.coalescer
    while c.table.length > 0:
        let_go(c, oldest(c.table))
    count_drops(state, i64(FIRST_REASON), free_waiting(s.head.cache, c.ready))
    s.head.held = 0


class Coalesce(Element):
    """Made by :func:`coalesce`."""

    MAKES = True  # packets of others

    def __init__(self, timeout_us: Any, flows: Any) -> None:
        self.name = "coalesce"
        if not isinstance(timeout_us, int | float) or isinstance(timeout_us, bool) or not 0 <= timeout_us <= 1e6:
            raise GraphError(f"coalesce: timeout_us must be 0 to 1000000, got {timeout_us!r}; 20 is usual")
        self.timeout_ns = int(timeout_us * 1000)
        self.flows = whole(flows, "coalesce: flows", 1)
        if self.flows > MOST_FLOWS:
            raise GraphError(f"coalesce: flows must be at most {MOST_FLOWS}, got {flows}; 256 is usual")

    def open(self, role: str, workers: int) -> "CoalescePart":
        """Ready for one run."""
        return CoalescePart(self, workers)


class CoalescePart:
    """The stage in a run; each worker holds flows of its own."""

    def __init__(self, element: Coalesce, workers: int) -> None:
        self.element = element
        self.ready = 1 << (element.flows + 2 * MAX_BURST - 1).bit_length()
        self.holds = (SEGMENTS + self.ready) * workers
        self._states: list[int] = []
        self._arenas: list[Arena] = []

    def place(self, site: Site) -> Placement:
        """This worker's state and table."""
        address = site.state(State)
        state = State.at(address)
        state.burst, c = site.burst, state.coalescer
        arena = Arena(pending.size(Flow, self.element.flows) + 8 * self.ready + 128, huge=False)
        self._arenas.append(arena)
        backlog.make(arena, c.ready, self.ready)
        table = address + State.offset("coalescer") + Coalescer.offset("table")
        pending.make(arena, table, Flow, self.element.flows)
        c.seeds[:] = np.frombuffer(os.urandom(64), np.uint64) | np.uint64(1)
        c.timeout_ns, c.most = self.element.timeout_ns, SEGMENTS
        state.shortage.reserve = shortage.reserve(site.pool.size)
        self._states.append(address)
        return Placement(coalesce_packets.address, address, DROPS)

    def made(self) -> int:
        """Less by the packets that became part of another."""
        return -sum(int(State.at(a).coalescer.joined) for a in self._states)

    def counters(self) -> dict[str, Any]:
        """Super-frames that were made."""
        return {"super_frames": sum(int(State.at(a).coalescer.super_frames) for a in self._states)}

    def close(self) -> None:
        """Free what is held."""
        for address in self._states:
            if State.at(address).head.cache:
                _wind_up(address)
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()


def coalesce(timeout_us: float = 20, *, flows: int = 256) -> Coalesce:
    """A stage behind which TCP segments of a flow that follow each other are one super-frame, of up to 64 kB.

    ``timeout_us`` is how long a segment is held for those that follow; with 0 it is until the end of its burst.
    ``flows`` is the most that are held at once by each worker; the oldest makes room.  Nothing is lost by it: a
    super-frame is cut into the same segments again, by :func:`segment` or by a port.
    """
    return Coalesce(timeout_us, flows)
