"""``ws.reassemble()``: fragments become the datagrams that they are of; see :mod:`wirespeed.engine.transform.datagrams`.

A packet that is no fragment passes at once.  A datagram that is whole goes on in the place of the fragment that made it so.
"""

import os
from typing import Any

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.core.chain import read
from wirespeed.core.element import Element
from wirespeed.core.number import whole
from wirespeed.core.packet import Packet, data
from wirespeed.core.stage import WAITS, Head, Placement, Site, free_box
from wirespeed.engine.transform import shortage
from wirespeed.engine.transform.datagram import BLOCKS, HELD, Datagram
from wirespeed.engine.transform.datagrams import (
    DROPS,
    SOURCES,
    UNFINISHED,
    Reassembler,
    expire,
    init,
    let_go,
    make_way,
    receive,
)
from wirespeed.engine.transform.shortage import Shortage, lacking
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle, stack, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns
from wirespeed.net.parse import FIRST_FRAGMENT, IPV4, IPV6, LATER_FRAGMENT, find
from wirespeed.tables import pending

i64 = np.int64
_FRAGMENT = np.int64(FIRST_FRAGMENT | LATER_FRAGMENT)
_WANT = np.int64(IPV4 | IPV6 | FIRST_FRAGMENT | LATER_FRAGMENT)
HEADERS = 256  # bytes in which an IP header is looked for where the first segment has fewer

MOST_DATAGRAMS = 1 << 14  # under way at once
USUAL = 64  # segments: a source's share is no less, for nearly so many are a datagram of 64 kB in frames of 1,500 bytes

State = layout("ReassembleState", [("head", Head), ("reassembler", Reassembler), ("shortage", Shortage)])


@kernel(inline=True)
def _is_fragment(handle):
    p = Packet(handle)
    at, size = data(p), i64(p.length)
    if p.segments > 1 and size < HEADERS:
        size = min(i64(p.total), i64(HEADERS))
        at = read(handle, i64(0), size, stack(256))
    return find(at, size, i64(p.link), _WANT)[0] & _FRAGMENT != 0


@stage
def reassemble_packets(state, burst, n):
    """Hold fragments, and let datagrams go on that are whole."""
    s = State(state)
    r = s.reassembler
    now, kept = i64(0), i64(0)
    if r.table.length > 0:
        now = monotonic_ns()
        expire(state, r, now)
    if n > 0:
        s.shortage.came = 1
    elif r.held > 0:
        make_way(state, r, lacking(s.shortage, s.head.cache))
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        if _is_fragment(handle):
            if now == 0:
                now = monotonic_ns()
            handle = receive(state, r, handle, now)
        if handle != 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
    s.head.held = r.held
    s.head.full = WAITS
    return kept


@kernel
def _wind_up(state):
    """After the last round, drop what is not whole."""
    s = State(state)
    while let_go(state, s.reassembler, i64(UNFINISHED)):
        pass
    free_box(s.head.cache, s.head.drops)
    s.head.held = 0


class Reassemble(Element):
    """Made by :func:`reassemble`."""

    MAKES = True  # packets of others

    def __init__(self, timeout_s: Any, fragments: Any, per_source: Any) -> None:
        self.name = "reassemble"
        if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not 0 < timeout_s <= 3600:
            raise GraphError(f"reassemble: timeout_s must be above 0 and at most 3600, got {timeout_s!r}; 30 is usual")
        self.timeout_ns = int(timeout_s * 1e9)
        self.fragments = whole(fragments, "reassemble: fragments", 2)
        if self.fragments > 1 << 20:
            raise GraphError(f"reassemble: fragments must be at most {1 << 20}, got {fragments}; 4096 is usual")
        share = max(self.fragments // 2, min(self.fragments, USUAL))
        self.per_source = share if per_source is None else whole(per_source, "reassemble: per_source", 2)

    def open(self, role: str, workers: int) -> "ReassemblePart":
        """Ready for one run."""
        return ReassemblePart(self, workers)


class ReassemblePart:
    """The stage in a run; each worker holds fragments of its own."""

    def __init__(self, element: Reassemble, workers: int) -> None:
        self.element = element
        self.holds = element.fragments * workers
        self._states: list[int] = []
        self._arenas: list[Arena] = []

    def place(self, site: Site) -> Placement:
        """This worker's state and table."""
        address = site.state(State)
        state = State.at(address)
        r, fragments = state.reassembler, self.element.fragments
        datagrams = min(max(16, fragments // 2), MOST_DATAGRAMS)
        beside = 4 * SOURCES + 4 * BLOCKS + HELD * fragments + 3 * LINE
        arena = Arena(pending.size(Datagram, datagrams) + beside, huge=False)
        self._arenas.append(arena)
        table = address + State.offset("reassembler") + Reassembler.offset("table")
        pending.make(arena, table, Datagram, datagrams)
        r.seeds[:] = np.frombuffer(os.urandom(64), np.uint64) | np.uint64(1)
        r.sources = arena.alloc(4 * SOURCES)
        r.order, r.fragments = arena.alloc(4 * BLOCKS), arena.alloc(HELD * fragments)
        r.timeout_ns, r.most, r.share = self.element.timeout_ns, fragments, self.element.per_source
        init(address + State.offset("reassembler"))
        state.shortage.reserve = shortage.reserve(site.pool.size)
        self._states.append(address)
        return Placement(reassemble_packets.address, address, DROPS)

    def made(self) -> int:
        """Datagrams, less the fragments that they were made of."""
        return sum(int(State.at(a).reassembler.made) for a in self._states)

    def counters(self) -> dict[str, Any]:
        """Datagrams that were made, and that are under way."""
        parts = [State.at(address).reassembler for address in self._states]
        return {"datagrams": sum(int(r.whole) for r in parts), "under_way": sum(int(r.table.length) for r in parts)}

    def close(self) -> None:
        """Drop what is not whole."""
        for address in self._states:
            if State.at(address).head.cache:
                _wind_up(address)
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()


def reassemble(timeout_s: float = 30.0, *, fragments: int = 4096, per_source: int | None = None) -> Reassemble:
    """A stage behind which IPv4 and IPv6 fragments are whole datagrams again, each a chain of what they carried.

    ``timeout_s`` is how long a datagram is waited for from its first fragment that came; ``fragments`` the most that
    are held at once by each worker (those of more than one buffer count as so many), and ``per_source`` those of one
    address, half of them when it is None.  Fewer are held while the pool has too few packets for others.  Fragments of
    one datagram must come to the same worker, as they do by their flow hash.
    """
    return Reassemble(timeout_s, fragments, per_source)
