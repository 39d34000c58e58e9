"""Packets that a stage has and cannot hand on yet, in the order in which they are to go.

A stage returns at most as many packets as it was given (or a burst, when it is given none), but may make more.  What is
left waits here.  A backlog is a ring of handles; one that is filled at once, when it is empty, is a plain list.

Thread rules: it belongs to its stage.
"""

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.free import free_segments
from wirespeed.jit.intrinsics import load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64 = np.int64

Backlog = layout(
    "Backlog",
    [
        ("items", "i8"),  # address of the handles
        ("mask", "i8"),  # capacity less one; the capacity is a power of two
        ("begin", "i8"),  # number of the next one to go; numbers only grow
        ("end", "i8"),  # and behind the last
    ],
)


@kernel(inline=True)
def waiting(b):
    """How many there are."""
    return b.end - b.begin


@kernel(inline=True)
def put(b, handle):
    """Append a packet; whether there was room."""
    end = b.end
    if end - b.begin > b.mask:
        return False
    store_i64(b.items + 8 * (end & b.mask), handle)
    b.end = end + 1
    return True


@kernel(inline=True)
def take(b):
    """The next packet; there must be one."""
    begin = b.begin
    b.begin = begin + 1
    return load_i64(b.items + 8 * (begin & b.mask))


@kernel(inline=True)
def fill_list(b, n):
    """Say that the first ``n`` handles at ``items`` were written, while it is empty."""
    b.begin, b.end = i64(0), n


@kernel
def free_waiting(cache, b):
    """Free all; return how many."""
    n = waiting(b)
    while waiting(b) > 0:
        free_segments(cache, take(b))
    return n


def make(arena: Arena, backlog: object, capacity: int) -> None:
    """Give a backlog memory for so many handles, a power of two."""
    record = backlog
    record.items, record.mask = arena.alloc(8 * capacity), capacity - 1  # type: ignore[attr-defined]
