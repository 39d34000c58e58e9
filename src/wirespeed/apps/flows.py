"""Counting packets and bytes by flow: an element that ends a chain or stands inside one.

Theory of operation
-------------------
A flow is what has the same addresses, protocol and ports (the five-tuple) in one direction.  Fragments have no ports
that all of their datagram share, so they are flows of their own, by addresses and protocol; what is neither IPv4 nor
IPv6 is one flow together.  A burst is looked up in three passes, so that the lines of the table that it needs are on
their way while the next key is made: keys and hashes, slots, entries.

The table has a fixed size chosen up front; packets of flows that found no room are counted as ``unlisted``.  Each
worker has its own table; they are added up when the run ends.
"""

import os
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.element import Element
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import Packet, data
from wirespeed.core.stage import MAX_BURST, Head, Placement, Site
from wirespeed.engine.run import run
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle, load_u64, store_u64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.net import flow
from wirespeed.net.capture.reader import CaptureReader
from wirespeed.net.capture.scan import ENTRIES, ENTRY, Entry, Scan
from wirespeed.net.capture.scanner import find
from wirespeed.net.hashing import hash_words
from wirespeed.ports import KINDS, port
from wirespeed.tables.exact import ExactTable, find_or_add, prefetch_entry, prefetch_slot, spread

i64, u64 = np.int64, np.uint64

KEY_WORDS = flow.Flow.size // 8
assert ENTRIES <= MAX_BURST
FRAGMENT = 1  # in the key's ``spare``: these are fragments, whose ports are not told

FlowRecord = layout(
    "FlowRecord",
    [
        ("key", flow.Flow),
        ("packets", "u8"),
        ("bytes", "u8"),  # on the wire
        ("last", "i8"),  # time of the last packet
    ],
)
assert FlowRecord.size == 64

State = layout(
    "FlowState",
    [
        ("head", Head),
        ("table", "i8"),
        ("sink", "i8"),  # whether the packets end here
        ("unlisted", "u8"),
        (None, 40),
        ("digests", "u8", MAX_BURST),
        ("keys", "u8", KEY_WORDS * MAX_BURST),
    ],
)


@kernel(inline=True)
def write_key(frame, length, link, key):
    """Write the five words of a frame's key; return its digest."""
    src_hi, src_lo, dst_hi, dst_lo, rest, flags = flow.five_tuple(frame, length, link)
    digest = spread(hash_words(src_hi, src_lo, dst_hi, dst_lo, rest, flags, False))
    if flags & flow.FRAGMENT:
        rest = rest & u64(0xFFFF) | u64(FRAGMENT << 16)
    store_u64(key, src_hi)
    store_u64(key + 8, src_lo)
    store_u64(key + 16, dst_hi)
    store_u64(key + 24, dst_lo)
    store_u64(key + 32, rest)
    return digest


@kernel(inline=True)
def enter_key(table, frame, length, link, i, keys, digests):
    """First pass: write the key and digest of frame ``i``, and ask for the line of the index that it needs."""
    digest = write_key(frame, length, link, keys + 8 * KEY_WORDS * i)
    store_u64(digests + 8 * i, digest)
    prefetch_slot(table, digest)


@kernel(inline=True)
def add(table, i, keys, digests, wire, time):
    """Last pass: count frame ``i``; whether its flow found room."""
    entry = find_or_add(table, keys + 8 * KEY_WORDS * i, load_u64(digests + 8 * i), KEY_WORDS)
    if entry == 0:
        return False
    record = FlowRecord(entry)
    record.packets += u64(1)
    record.bytes += u64(wire)
    record.last = time
    return True


@stage
def count(state, burst, n):
    """Count a burst; free it where it ends here, hand it on otherwise."""
    s = State(state)
    table, keys, digests = s.table, s.keys, s.digests
    size = i64(0)
    # Bounds: n is at most MAX_BURST, for which the state has room.
    for i in range(n):
        p = Packet(load_handle(burst + 8 * i))
        enter_key(table, data(p), i64(p.length), i64(p.link), i, keys, digests)
        size += i64(p.total)
    for i in range(n):
        prefetch_entry(table, u64(load_handle(digests + 8 * i)))
    for i in range(n):
        p = Packet(load_handle(burst + 8 * i))
        if not add(table, i, keys, digests, p.wire, p.time):
            s.unlisted += u64(1)
    s.head.bytes += u64(size)
    if s.sink == 0:
        return n
    free_bulk(s.head.cache, burst, n)
    return i64(0)


@kernel
def count_entries(state, scan, budget):
    """Count the packets that a scan finds, in place, up to about ``budget`` of them or until it finds none; how many.

    Nothing is copied: the frames are looked at where the reader has them.
    """
    s = State(state)
    table, keys, digests = s.table, s.keys, s.digests
    done = i64(0)
    while done < budget:
        n = find(scan)
        if n == 0:
            break
        entries = Scan(scan).entries
        # Bounds: a scan finds at most ENTRIES packets, which is less than MAX_BURST.
        for i in range(n):
            e = Entry(entries + ENTRY * i)
            enter_key(table, e.address, i64(e.captured), i64(e.link), i, keys, digests)
        for i in range(n):
            prefetch_entry(table, u64(load_handle(digests + 8 * i)))
        for i in range(n):
            e = Entry(entries + ENTRY * i)
            if not add(table, i, keys, digests, e.wire, e.time):
                s.unlisted += u64(1)
        done += n
    return done


class FlowCounter(Element):
    """Counts by flow, up to ``capacity`` flows in each worker.

    It may end a chain, or stand inside one and pass everything on.  After the run :meth:`table` has the flows.
    """

    ENDS = True

    def __init__(self, capacity: int = 1 << 17) -> None:
        if not 1 <= capacity <= 1 << 28:
            raise GraphError(f"flow capacity must be 1 to {1 << 28}, got {capacity}; give the most flows you expect")
        self.name = "flows"
        self.capacity = capacity
        self.unlisted = 0
        self._flows: Any = np.empty(0, FlowRecord.dtype)

    def open(self, role: str, workers: int) -> "FlowPart":
        """Ready for one run; what an earlier run counted stays until this one ends."""
        return FlowPart(self, role)

    def table(self) -> Any:
        """The flows of the last run, most packets first, as a NumPy structured array of the layout ``FlowRecord``."""
        return self._flows

    def keep(self, tables: list[Any], unlisted: int) -> None:
        """Called at the end of a run with the flows of each worker."""
        self._flows, self.unlisted = _added_up(tables), unlisted


def _added_up(tables: list[Any]) -> Any:
    """One row for each flow, the most packets first."""
    flows = np.empty(sum(map(len, tables)), FlowRecord.dtype)  # np.concatenate would close the layout's gap
    at = 0
    for table in tables:
        flows[at : at + len(table)] = table
        at += len(table)
    if not len(flows):
        return flows
    keys = flows.view(np.uint8).reshape(len(flows), FlowRecord.size)[:, : 8 * KEY_WORDS]
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    merged = flows[first].copy()
    for name in ("packets", "bytes"):
        merged[name] = 0
        np.add.at(merged[name], place.ravel(), flows[name])
    np.maximum.at(merged["last"], place.ravel(), flows["last"])
    return merged[np.argsort(merged["packets"], kind="stable")[::-1]]


class FlowPart:
    """A flow counter in a run."""

    def __init__(self, counter: FlowCounter, role: str) -> None:
        self.counter = counter
        self.sink = role == "sink"
        self.tables: list[ExactTable] = []
        self.states: list[int] = []
        self.flows = self.unlisted = 0

    def place(self, site: Site) -> Placement:
        """This worker's table."""
        address = site.state(State)
        table = ExactTable(FlowRecord, KEY_WORDS, self.counter.capacity)
        state = State.at(address)
        state.table, state.sink = table.address, self.sink
        self.tables.append(table)
        self.states.append(address)
        return Placement(count.address, address, keep=table)

    def counters(self) -> dict[str, int]:
        """Flows so far, and packets of flows that found no room."""
        if self.tables:
            self.unlisted = sum(int(State.at(a).unlisted) for a in self.states)
            self.flows = sum(int(t.record.length) for t in self.tables)
        return {"flows": self.flows} | ({"unlisted": self.unlisted} if self.unlisted else {})

    def close(self) -> None:
        """Hand the flows to the element."""
        self.counters()
        self.counter.keep([t.entries() for t in self.tables], self.unlisted)
        for table in self.tables:
            table.close()
        self.tables.clear()


def count_flows(source: str | os.PathLike[str] | Element, *, capacity: int = 1 << 17, **how: Any) -> Any:
    """The flows of a capture file, or of any port, most packets first: see :meth:`FlowCounter.table`.

    A file by its path, or as ``pcap:path`` without options, is read and counted in one kernel with nothing copied.
    Anything else is run into a :class:`FlowCounter`, and ``how`` is as for :func:`wirespeed.run`.
    """
    counter = FlowCounter(capacity)
    if isinstance(source, Element):
        run(source >> counter, **how)
    elif isinstance(source, str) and (how or "," in source or source.partition(":")[0] in set(KINDS) - {"pcap"}):
        run(port(source if ":" in source else f"pcap:{source}") >> counter, **how)
    else:
        _count_file(os.fspath(source).removeprefix("pcap:"), counter)
    return counter.table()


ROUND = 1 << 18  # packets that are counted in one call, a few milliseconds, so that Ctrl-C works


def _count_file(path: str, counter: FlowCounter) -> None:
    table = ExactTable(FlowRecord, KEY_WORDS, counter.capacity)
    try:
        with CaptureReader(path) as reader, Arena(State.size) as arena:
            address = arena.alloc(State.size)
            state = State.at(address)
            state.table = table.address
            while count_entries(address, reader.address, ROUND) or reader.go_on():
                pass
            counter.keep([table.entries()], int(state.unlisted))
    finally:
        table.close()
