"""The null port: a source of packets that nobody sent and a sink that forgets them, as DPDK's net_null.

As a source it takes packets from the worker's cache, resets each record and leaves the bytes of its buffer as they
are: zeros at first, then whatever was last written there.  As a sink it gives them back.  It measures everything else.
"""

from typing import Any, ClassVar

import numpy as np

from wirespeed.core.element import Element
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import HEADROOM, Packet, reset
from wirespeed.core.stage import Head, Placement, Site
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import stage
from wirespeed.jit.layout import layout
from wirespeed.ports import options
from wirespeed.ports.grab import grab
from wirespeed.ports.options import Option

i64, u64 = np.int64, np.uint64

State = layout(
    "NullState",
    [
        ("head", Head),
        ("size", "i8"),  # bytes of each packet
        ("left", "i8"),  # packets still to give, or negative for no end
        (None, 48),
    ],
)


@stage
def receive(state, burst, n):
    """Give up to ``n`` packets."""
    s = State(state)
    left = s.left
    if left >= 0:
        n = min(n, left)
        if n == 0:
            s.head.done = 1
            return i64(0)
    n = grab(s.head.cache, burst, n)
    size = s.size
    for i in range(n):
        reset(Packet(load_handle(burst + 8 * i)), size)
    s.head.bytes += u64(n * size)
    if left >= 0:
        s.left = left - n
    return n


@stage
def transmit(state, burst, n):
    """Free all that comes."""
    h = Head(state)
    size = i64(0)
    for i in range(n):
        size += i64(Packet(load_handle(burst + 8 * i)).total)
    h.bytes += u64(size)
    free_bulk(h.cache, burst, n)
    return i64(0)


class NullPort(Element):
    """``null:``, a source of ``count`` packets of ``size`` bytes, or a sink."""

    KIND = "null"
    SUMMARY = "packets that nobody sent, and a place to forget them"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "size": Option("bytes", "64", "bytes of each packet, as a source", options.size(1, 1 << 16, "64")),
        "count": Option("packets", None, "packets to give in all, as a source; no end when not set", options.count(0)),
    }

    def __init__(self, target: str = "", **given: Any) -> None:
        if target:
            raise GraphError(f"null: takes no target, got {target!r}; write null: or null:size=64")
        values = options.read(self.KIND, self.OPTIONS, given)
        self.name = "null:"
        self.size: int = values["size"]
        self.count: int | None = values["count"]

    def open(self, role: str, workers: int) -> "NullPart":
        """Ready for one run; nothing is held."""
        return NullPart(self, role)


class NullPart:
    """A null port in a run; several workers share the count as evenly as it goes."""

    def __init__(self, port: NullPort, role: str) -> None:
        self.port = port
        self.role = role

    def place(self, site: Site) -> Placement:
        """This worker's copy.  Raises GraphError when a packet would not fit a buffer."""
        address = site.state(State)
        if self.role == "sink":
            return Placement(transmit.address, address)
        room = site.pool.room - HEADROOM
        if self.port.size > room:
            raise GraphError(
                f"null option size: got {self.port.size}, wanted at most {room}, the room of a pool's buffer"
            )
        state = State.at(address)
        state.size = self.port.size
        count = self.port.count
        state.left = -1 if count is None else count // site.workers + (site.worker < count % site.workers)
        return Placement(receive.address, address)

    def close(self) -> None:
        """Nothing to close."""
