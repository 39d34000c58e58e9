"""What every stage's state begins with, and how packets leave a stage.

Theory of operation
-------------------
A stage is ``(state, burst, n) -> n``: three integers.  ``burst`` is the address of handles, ``n`` how many of them are
packets (for a source: how much room there is).  What is returned stays at the front of ``burst`` and is output 0.
A packet for output k > 0 is appended to outbox k with :func:`emit`; a dropped one goes to the drop outbox with
:func:`drop`, which counts its reason; the worker frees them.  A sink returns what it refuses, at the front of
``burst``: it is offered again (back-pressure).  ``n = 0`` is the tick by which a stage that holds packets gets time; it
may then leave up to a burst of them.  One that wants no more for now says that it is ``full``: the sources before it wait.

``state`` is the address of a layout whose first field is ``("head", Head)``.  The engine fills the head's first part
when it places the stage; the second part is written by the stage.  No other thread writes either.

The Python side: an *element* of a graph has ``name`` and ``open(role, workers) -> part``; a part lives for one run and
has ``place(site) -> Placement`` (called once for each worker) and ``close()``, and may have ``counters() -> dict`` for
the report and ``service() -> float | None``, which the run's control thread calls: it does a little work and returns
seconds until it wants to be called again, or None for never.  A service that raises ``PortError`` ends the run.  A part
may have ``holds``, how many packets can be in it at once (the run's pool is larger by so many), and
``crews(outputs) -> [Crew]``: chains that run in threads of their own, in which its packets are for a time.  A part
whose stage makes packets out of others, or joins some, has ``made() -> int``: how many more there are by that.  A crew is
stopped only after the workers of the graph that its part stands in have left; then all parts are closed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.element import Chain
from wirespeed.core.free import free_bulk
from wirespeed.core.packet_pool import PacketPool
from wirespeed.jit.intrinsics import load_u64, store_i64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import Layout, layout

i64, u64 = np.int64, np.uint64
MAX_BURST = 256
WAITS = -1  # as ``full``
WORKED = 2  # as ``due_ns``, a time long past: the source had packets, and gave none of them

Outbox = layout(
    "Outbox",
    [
        ("address", "i8"),  # of its handles
        ("length", "i8"),  # packets in it
        ("capacity", "i8"),
        ("refused", "u8"),  # packets that the stage behind it did not take when they were offered, each time
    ],
)
OUTBOX = Outbox.size

Head = layout(
    "Head",
    [
        # filled by the engine
        ("outboxes", "i8"),  # address of Outbox[outputs]; number 0 is not used, for output 0 is the burst
        ("outputs", "i8"),  # how many outputs there are
        ("drops", "i8"),  # the worker's drop outbox
        ("cache", "i8"),  # the worker's cache of free packets
        ("reasons", "i8"),  # counters by drop reason: u8[reasons], this stage's own after the common ones
        ("scratch", "i8"),  # 4 kB of the worker's own: writes to absent headers go here
        ("zeros", "i8"),  # 4 kB of zeros: absent headers are read here
        ("stop", "i8"),  # address of the worker's stop word, u4
        # written by the stage
        ("held", "i8"),  # packets that it holds now
        ("done", "i8"),  # of a source: 1 when nothing more will come
        ("bytes", "u8"),  # of a port: bytes that it received or transmitted
        ("due_ns", "i8"),  # when it wants to be called next on the monotonic clock; 0: whenever there is work
        # of a stage that holds packets: above 0 while no source before it is to be asked for more, WAITS while what it
        # holds waits for more to come
        ("full", "i8"),
        ("asleep", "i8"),  # address of a u4 that the worker sets while it sleeps, for whoever has the packets, or 0,
        ("bell", "i8"),  # and of one which is changed, and woken by a futex, when that is so and they are back
        # of a port with a filter: address of the filter's record, or 0; filled when it is placed
        ("filter", "i8"),
    ],
)
assert Head.size == 128

# Reasons that any stage can have; a stage's own begin at FIRST_REASON.
COMMON_DROPS = {
    "output_full": "The output's outbox was full",
    "no_output": "The verdict names an output that is not there",
    "function_error": "The stage failed inside and lost its burst",
}
OUTPUT_FULL, NO_OUTPUT, FUNCTION_ERROR = 0, 1, 2
FIRST_REASON = 3


@kernel(inline=True)
def count_drops(state, reason, n):
    """Count ``n`` drops for a reason, by its number."""
    at = Head(state).reasons + 8 * reason
    store_u64(at, load_u64(at) + u64(n))


@kernel
def free_box(cache, box):
    """Free the packets in an outbox, at its address; out of line, for it is much code and seldom called."""
    b = Outbox(box)
    free_bulk(cache, b.address, b.length)
    b.length = 0


@kernel(inline=True)
def drop(state, handle, reason):
    """Give a packet to the worker to free, and count why.  ``reason``: FIRST_REASON + index among the stage's own."""
    count_drops(state, reason, i64(1))
    box = Outbox(Head(state).drops)
    if box.length >= box.capacity:
        free_box(Head(state).cache, Head(state).drops)
    length = box.length  # Bounds: below the capacity here.
    store_i64(box.address + 8 * length, handle)
    box.length = length + 1


@kernel(inline=True)
def emit(state, output, handle):
    """Append a packet to outbox ``output`` (1 and up); one that is full or not there drops it, with that reason."""
    h = Head(state)
    if output < 1 or output >= h.outputs:
        drop(state, handle, i64(NO_OUTPUT))
        return
    box = Outbox(h.outboxes + OUTBOX * output)
    length = box.length
    if length >= box.capacity:
        drop(state, handle, i64(OUTPUT_FULL))
        return
    store_i64(box.address + 8 * length, handle)
    box.length = length + 1


@dataclass(frozen=True)
class Site:
    """Where a stage is being placed: whose memory it uses, and how much of a graph is around it."""

    arena: Arena
    pool: PacketPool
    worker: int  # number of the worker, from 0
    workers: int  # how many there are; each has its own copy of the graph
    burst: int  # most packets in a burst
    outputs: int

    def state(self, declared: Layout) -> int:
        """Zeroed memory for a state; lives as long as the run."""
        return self.arena.alloc(declared.size)


@dataclass
class Placement:
    """A stage as placed for one worker."""

    code: int  # Stage.address
    state: int  # address of a layout that begins with Head
    drops: Mapping[str, str] = field(default_factory=dict)  # the stage's own reasons, in order, each with its sentence
    fds: tuple[int, ...] = ()  # readable when the stage has work; an idle worker sleeps on them
    keep: Any = None  # whatever must live as long as the placement


@dataclass(frozen=True)
class Crew:
    """Threads beside the workers: so many, each with a copy of the graph that a chain makes, of its own sources."""

    chain: Chain
    workers: int


class Part(Protocol):
    """An element that is open for one run."""

    def place(self, site: Site) -> Placement:
        """Make this worker's copy."""

    def close(self) -> None:
        """Called once after all workers have ended.  Errors that the data path met are raised or reported here."""
