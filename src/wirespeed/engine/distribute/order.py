"""Packets in the order of their arrival, whatever order they come back in.

Theory of operation
-------------------
The packets of a burst are put into a staged ring of one stage and acquired from it at once, as one run.  Each is sent
away with the number of its slot.  What comes back is written into that slot; when all of a run are back, the run is
released, and the ring lets it go as soon as those before it are gone.

Thread rules: all here is of one thread, that of the distributing stage.
Source: :mod:`wirespeed.core.staged`.
"""

import numpy as np

from wirespeed.core.ring import ST
from wirespeed.core.staged import Staged, acquire, dequeue, enqueue, release, used
from wirespeed.engine.distribute.item import pack, place_of
from wirespeed.jit.intrinsics import load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u32 = np.int64, np.uint32

Order = layout("Order", [("ring", "i8"), ("runs", "i8")])  # 0 where order is of no interest
# One for each slot; all but ``first`` only in that of a run's first.
Run = layout("Run", [("first", "u4"), ("left", "u4"), ("count", "u4"), ("token", "u4")])
RUN = Run.size


@kernel(inline=True)
def free_places(o):
    """How many packets there is room for."""
    return i64(Staged(o.ring).capacity) - used(o.ring)


@kernel
def give_places(o, items, n):
    """Make items of the ``n`` handles at ``items``; the caller has seen that there is room for them, and n is not 0."""
    enqueue(o.ring, items, i64(0), n, True, ST)
    _, token, _ = acquire(o.ring, i64(0), i64(0), i64(0), n, True)
    mask = Staged(o.ring).mask
    first = token & mask  # the token of stage 0 is the position
    run = Run(o.runs + RUN * i64(first))
    run.left, run.count, run.token = u32(n), u32(n), token
    for i in range(n):
        place = u32(first + u32(i)) & mask
        Run(o.runs + RUN * i64(place)).first = first
        store_i64(items + 8 * i, pack(load_i64(items + 8 * i), place))


@kernel(inline=True)
def come_back(o, item):
    """Put what became of a packet into its place."""
    place = place_of(item)
    store_i64(o.ring + Staged(o.ring).items + 8 * place, item)  # Bounds: a place that was given.
    run = Run(o.runs + RUN * i64(Run(o.runs + RUN * place).first))
    run.left = u32(run.left - u32(1))
    if run.left == 0:
        release(o.ring, i64(0), run.token, i64(run.count), i64(0), i64(0))


@kernel(inline=True)
def take_in_order(o, out, n):
    """Take up to ``n`` items that have come back and whose turn it is; how many."""
    taken, _ = dequeue(o.ring, out, i64(0), n, False, ST)
    return taken
