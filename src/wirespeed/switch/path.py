"""What workers keep of a translation: its ops, and which counters a packet that takes it adds to.

Theory of operation
-------------------
A *path* is a record of one line beside words in the worker's own memory: ops, then the numbers of counters.  Paths with
the same ops and counters are one (an index by their digest finds it), so there are about as many as ways through the
rules, not as many as flows.  A path counts its packets and bytes; when its counters are read, every path's counts
are added up (:func:`collect`), which makes a rule's count exact at any moment.  When there is no room for more paths
all are folded into the worker's own counters and forgotten (:func:`fold`), between two bursts; ``folds`` is odd
meanwhile (V5, V6), and who has read counts before and after throws them away.

A path that does nothing but send the packet to one port has that output in its record, so that nobody reads its ops.

Thread rules: one worker writes; others read counts through :func:`collect`, which tries again when a fold came between.
"""

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.jit.atomics import fence_acquire, fence_release, load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import copy, crc32c, load_u32, load_u64, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.switch import ops as op

i64, u32, u64 = np.int64, np.uint32, np.uint64
OPS_WORDS = 512  # most words of the ops of one path
PATH_COUNTERS = 256  # most counters of one path
NOT_SIMPLE = -1

Path = layout(
    "SwitchPath",
    [
        ("packets", "u8"),
        ("bytes", "u8"),
        ("output", "i8"),  # of a simple path: the stage's output; else NOT_SIMPLE
        ("ops", "i8"),  # address of its words
        ("counters", "i8"),  # address of u4[n_counters]
        ("n_counters", "u4"),
        ("n_ops", "u4"),  # words
        ("digest", "u8"),
        ("place", "u4"),  # of the port of a simple path
        (None, 4),
    ],
)
assert Path.size == LINE
PATH = Path.size

Paths = layout(
    "SwitchPaths",
    [
        ("paths", "i8"),  # address of Path[capacity]; number 0 is not used
        ("capacity", "i8"),
        ("words", "i8"),  # address of the memory for ops and counters
        ("size", "i8"),  # bytes of it
        ("index", "i8"),  # u4[mask + 1], numbers of paths or 0
        ("mask", "u8"),
        ("totals", "i8"),  # u8[2 * n_totals]: packets and bytes of each counter, from paths that are gone
        ("n_totals", "i8"),
        # written by the worker
        ("used", "i8"),  # bytes of words
        ("folds", "u8"),  # odd while a fold goes on
        ("length", "i8"),  # numbers in use are below this
        ("forgotten", "u8"),  # paths that a fold did away with
        ("lost", "u8"),  # counts for which there is no counter
        (None, 24),
    ],
)
assert Paths.size == 2 * LINE


@kernel(inline=True)
def path_of(t, number):
    """The address of a path by its number."""
    return t.paths + PATH * i64(number)


@kernel
def _digest(ops, n_ops, counters, n_counters):
    value = u32(n_ops)
    for i in range(n_ops):
        value = crc32c(value, load_u64(ops + 8 * i))
    other = u32(n_counters)
    for i in range(n_counters):
        other = crc32c(other, u64(load_u32(counters + 4 * i)))
    return u64(value) << u64(32) | u64(other)


@kernel
def same(path, ops, n_ops, counters, n_counters):
    """Whether a path has these ops and counters."""
    p = Path(path)
    if i64(p.n_ops) != n_ops or i64(p.n_counters) != n_counters:
        return False
    for i in range(n_ops):
        if load_u64(p.ops + 8 * i) != load_u64(ops + 8 * i):
            return False
    for i in range(n_counters):
        if load_u32(p.counters + 4 * i) != load_u32(counters + 4 * i):
            return False
    return True


@kernel(inline=True)
def has_room(t, n):
    """Whether ``n`` more paths of the largest size would fit."""
    return t.length + n <= t.capacity and t.used + n * (8 * OPS_WORDS + 4 * PATH_COUNTERS) <= t.size


@kernel
def find_or_add(t, ops, n_ops, counters, n_counters, output, place):
    """The number of the path with these ops and counters; 0 when there is no room.

    ``output`` is that of a path that only sends the packet to the port at ``place``, else NOT_SIMPLE.
    """
    digest = _digest(ops, n_ops, counters, n_counters)
    slot = digest * u64(0x9E3779B97F4A7C15) >> u64(32) & t.mask
    while True:
        # The index has twice as many slots as there can be paths, so the search ends.
        number = load_u32(t.index + 4 * i64(slot))
        if number == 0:
            break
        path = path_of(t, number)
        # A mirror of the port makes of the same ops a path that is not simple.
        p = Path(path)
        if p.digest == digest and p.output == output and same(path, ops, n_ops, counters, n_counters):
            return i64(number)
        slot = (slot + u64(1)) & t.mask
    if not has_room(t, i64(1)):
        return i64(0)
    fresh = t.length
    p = Path(path_of(t, fresh))
    p.packets, p.bytes = u64(0), u64(0)
    p.output, p.place = output, u32(place)
    p.digest = digest
    p.n_ops, p.n_counters = u32(n_ops), u32(n_counters)
    p.ops = t.words + t.used
    copy(p.ops, ops, 8 * n_ops)
    p.counters = p.ops + 8 * n_ops
    copy(p.counters, counters, 4 * n_counters)
    t.used += 8 * n_ops + 8 * ((n_counters + 1) // 2)
    store_u32(t.index + 4 * i64(slot), u32(fresh))
    store_release(t, "length", fresh + 1)
    return fresh


@kernel(inline=True)
def add(t, counter, packets, size):
    """Add to a counter directly."""
    if i64(counter) >= t.n_totals:
        t.lost += packets
        return
    at = t.totals + 16 * i64(counter)
    store_u64(at, load_u64(at) + packets)
    store_u64(at + 8, load_u64(at + 8) + size)


@kernel
def fold(t):
    """Add all paths' counts to the counters and forget the paths; the cache must be emptied with it."""
    store_release(t, "folds", t.folds + u64(1))  # V5
    fence_release()
    for number in range(1, t.length):
        p = Path(path_of(t, number))
        if p.packets > 0:
            for i in range(i64(p.n_counters)):
                add(t, load_u32(p.counters + 4 * i), p.packets, p.bytes)
    t.forgotten += u64(t.length - 1)
    for slot in range(i64(t.mask) + 1):
        store_u32(t.index + 4 * slot, u32(0))
    t.used = i64(0)
    t.length = i64(1)
    store_release(t, "folds", t.folds + u64(1))  # V5


@kernel
def collect(paths, totals, n):
    """Add every counter's packets and bytes, of ``n`` counters at most, to u8[2 n] at ``totals``; False: try again.

    What was added before False is returned must be thrown away.
    """
    t = Paths(paths)
    before = load_acquire(t, "folds")  # V6
    if before & u64(1):
        return False
    for i in range(2 * min(n, t.n_totals)):
        store_u64(totals + 8 * i, load_u64(totals + 8 * i) + load_u64(t.totals + 8 * i))
    for number in range(1, load_acquire(t, "length")):
        p = Path(path_of(t, number))
        packets, size = p.packets, p.bytes
        if packets > 0:
            for i in range(i64(p.n_counters)):
                counter = i64(load_u32(p.counters + 4 * i))
                if counter < n:
                    at = totals + 16 * counter
                    store_u64(at, load_u64(at) + packets)
                    store_u64(at + 8, load_u64(at + 8) + size)
    fence_acquire()
    return load_relaxed(t, "folds") == before  # V6


@kernel(inline=True)
def only_output(ops, n_ops):
    """The place of the port when these ops are: send the whole packet to it; else -1."""
    if n_ops == 3 and load_u64(ops + 16) == u64(op.END) and load_u64(ops + 8) == u64(0):
        first = load_u64(ops)
        if first & u64(0xFFFF) == u64(op.OUT):
            return i64(first >> u64(32))
    return i64(-1)
