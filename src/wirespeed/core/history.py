"""What was done with a packet last: in debug mode each one carries its latest sixteen events.

Theory of operation
-------------------
An event is four bits of the packet's ``trail``, the latest one lowest; noting one moves the others up.  Beside it
``holder`` is the number of the cache that the packet last went through.  Without debug mode :func:`note` compiles to
nothing, and the trail stays empty.

Thread rules: whoever holds the packet notes.  Of two holders that note in the same moment one may be lost: the trail is
for people to read, nothing depends on it.

Source of the idea: DPDK's mbuf history of 2025 (rte_mbuf_history.h).
"""

import numpy as np

from wirespeed.core.packet import Packet
from wirespeed.jit.kernel import kernel
from wirespeed.jit.machine import DEBUG

u64 = np.uint64

# An event's number is its place here; 0, which a new packet's trail is full of, is none.
EVENTS = (
    "", "alloc", "free", "hold", "receive", "transmit", "enqueue", "dequeue",
    "clone", "copy", "attach", "detach", "chain", "linearize", "drop", "user",
)  # fmt: skip
ALLOC, FREE, HOLD, RECEIVE, TRANSMIT, ENQUEUE, DEQUEUE = 1, 2, 3, 4, 5, 6, 7
CLONE, COPY, ATTACH, DETACH, CHAIN, LINEARIZE, DROP, USER = 8, 9, 10, 11, 12, 13, 14, 15
assert len(EVENTS) == USER + 1 == 16


@kernel(inline=True)
def note(handle, event):
    """Debug mode: add an event to a packet's trail; otherwise nothing."""
    if DEBUG:
        p = Packet(handle)
        p.trail = p.trail << u64(4) | u64(event)


def events(trail: int) -> tuple[str, ...]:
    """The names of the events in a trail, the latest first."""
    numbers = [trail >> shift & 15 for shift in range(0, 64, 4)]
    return tuple(EVENTS[number] for number in numbers if number)
