"""Whose turn it is: which worker is given tags that are on none.

Thread rules: the distributor's thread alone.
"""

import numpy as np

from wirespeed.core.distributor.backlog import BACKLOG, Backlog
from wirespeed.jit.intrinsics import load_u32, store_u32
from wirespeed.jit.kernel import kernel

u32, i64 = np.uint32, np.int64


@kernel(inline=True)
def backlog_of(d, number):
    """The address of a worker's backlog."""
    return d.backlogs + BACKLOG * number


@kernel(inline=True)
def active_at(d, turn):
    """The address of the backlog of an active worker, by its place among them."""
    return backlog_of(d, i64(load_u32(d.active + 4 * turn)))


@kernel
def choose(d):
    """Make another worker the current one: of the next two that have room, who has fewer lines out; 0 when none has."""
    best, fewest, seen = i64(0), u32(0), 0
    turn = d.turn
    for _ in range(d.n_active):
        turn = turn + 1 if turn + 1 < d.n_active else i64(0)
        at = active_at(d, turn)
        b = Backlog(at)
        if b.full != 0:
            continue
        if best == 0 or u32(b.open - b.window.done) < fewest:
            best, fewest = at, u32(b.open - b.window.done)
            d.turn = turn
        seen += 1
        if seen == 2:
            break
    d.current = best


@kernel
def list_active(d):
    """Note anew who is active, and whose turn it is."""
    n = i64(0)
    for number in range(d.workers):
        if Backlog(backlog_of(d, number)).active != 0:
            store_u32(d.active + 4 * n, u32(number))
            n += 1
    d.n_active = n
    d.turn, d.looked = i64(0), i64(0)
    d.gained = 1
    choose(d)
