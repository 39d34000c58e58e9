"""The pin table: on which worker a tag is, found in the same time for one worker and for a thousand.

Theory of operation
-------------------
A bucket is a cache line: eight lanes, each a tag and an entry, which says the worker that the tag was last given to and
the number of the line.  A tag is looked for in the lane that its hash says first, for it nearly always is there, then
in all eight at once.  As long as that worker has not given that line back, the tag is *live* there, and its packets
must go there too.  Nothing is ever taken out: entries die when the line comes back, all those of a line at once, and
their places are used again.  So a packet costs one look at one bucket, whatever the number of workers, and what comes
back costs none.

A line is dead when its number is outside of the worker's window (:mod:`wirespeed.core.distributor.backlog`).  Twenty
bits of it are kept: an entry that is old enough may look live again, by which a tag is pinned that needed not be.
Lanes that were never used are of a worker beyond the last one, who is never active.

Where all eight are live the next bucket is looked at too, up to CHAIN of them; that a bucket has sent a tag on is
marked.  A tag that finds no place waits like one whose worker has no room.  The multiplier is drawn
for each distributor, so nobody can choose flows that all meet in one bucket.

The search is one source, whether eight lanes are compared at once or one by one (:mod:`wirespeed.jit.vector`).

Thread rules: the distributor's alone.
Source: multiply-shift hashing, Dietzfelbinger et al. 1997, "A reliable randomized algorithm for the closest-pair
problem".
"""

import numpy as np

from wirespeed.jit.intrinsics import load_u8, load_u64, store_u8, trailing_zeros
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.vector import LANES, upper_lanes

u32, i64, u64 = np.uint32, np.int64, np.uint64
MOST_WORKERS = 1024
WORKER_BITS, LINE_SHIFT = 0xFFF, 12
LINE_BITS = 0xFFFFF
NEAR = 1 << 17  # bytes of a table of which lanes need not be asked for ahead: the second cache holds it with ease
CHAIN = 4  # buckets that a tag may lie in

# A lane is one word, read and written at once; eight are a bucket.
Lane = layout("Lane", [("word", "u8", [("entry", "u4"), ("tag", "u4")])])
LANE, BUCKET = Lane.size, LANES * Lane.size
BUCKET_SHIFT = 6
assert BUCKET == 1 << BUCKET_SHIFT

# What says which of a worker's lines are live; a part of its backlog, and read for every packet.
Window = layout("Window", [("done", "u4"), ("length", "u4")])

# The table, and where the workers' windows lie.
Pins = layout(
    "Pins",
    [
        ("table", "i8"),
        ("mask", "i8"),  # lanes - 1, times the size of one
        ("marks", "i8"),  # u1 a bucket: it may have sent a tag on to the next
        ("multiplier", "u8"),
        ("windows", "i8"),  # one at the beginning of each worker's backlog,
        ("stride", "i8"),  # which are so many bytes apart
    ],
)


@kernel(inline=True)
def lane_of(table, mask, multiplier, tag):
    """The address of the lane in which a tag is looked for first."""
    return table + (i64((u64(tag) * multiplier) >> u64(32)) & mask)


@kernel(inline=True)
def word_of(tag, entry):
    """A lane's word."""
    return u64(tag) << u64(32) | u64(entry)


@kernel(inline=True)
def entry_of(worker, line):
    """The entry of a tag that is in a worker's line."""
    return u32(u32(line) << u32(LINE_SHIFT)) | u32(worker)


@kernel(inline=True)
def is_live_at(entry, window):
    """Whether an entry's line is still out, by the window of its worker."""
    w = Window(window)
    return (u32((entry >> u32(LINE_SHIFT)) - w.done) & u32(LINE_BITS)) < w.length


@kernel(inline=True)
def _is_live(p, entry):
    return is_live_at(entry, p.windows + p.stride * i64(entry & u32(WORKER_BITS)))


@kernel(inline=True)
def _search(bucket, tag):
    """The address of the lane of a bucket that has the tag, or 0."""
    lanes = upper_lanes(bucket, tag)
    return bucket + 4 * i64(trailing_zeros(u64(lanes)) - u64(1)) if lanes != 0 else i64(0)


@kernel(inline=True)
def _dead_lane(p, bucket, first):
    """The address of a lane of a bucket whose entry is dead, looked for from byte ``first`` on; 0 when all live."""
    for k in range(LANES):
        lane = bucket + ((first + LANE * k) & (BUCKET - 1))
        if not _is_live(p, u32(load_u64(lane))):
            return lane
    return i64(0)


@kernel(inline=True)
def _is_free(p, bucket):
    """Whether nothing in a bucket is live, and it has sent nothing on: then nothing was sent on to it either."""
    return load_u8(p.marks + (bucket - p.table) // BUCKET) == 0 and _count_live(p, bucket) == 0


@kernel(inline=True)
def _count_live(p, bucket):
    n = 0
    for k in range(LANES):
        if _is_live(p, u32(load_u64(bucket + LANE * k))):
            n += 1
    return n


@kernel
def _find_far(pins, first, tag):
    """:func:`find`, where the lane that comes first is another tag's."""
    p = Pins(pins)
    place = i64(0)
    at = first - ((first - p.table) & (BUCKET - 1))
    for _ in range(CHAIN):
        lane = _search(at, tag)
        if lane != 0:
            return lane
        if place == 0:
            place = _dead_lane(p, at, first - at if at <= first and first - at < BUCKET else i64(0))
        mark = p.marks + (at - p.table) // BUCKET
        at = p.table + ((at - p.table + BUCKET) & p.mask)
        if load_u8(mark) != 0 and _is_free(p, at):
            store_u8(mark, 0)
        if load_u8(mark) == 0:
            if place != 0:
                return place
            store_u8(mark, 1)
    return place


@kernel(inline=True)
def find(pins, marks, first, offset, tag, word, windows, stride):
    """The lane of a tag that is not in the first it is looked for in, or one to become its own; 0 when there is no room.

    ``word`` is what is in the first, which lies ``offset`` bytes into the table; what follows is as in the pins.  The
    lane's word is what is in it, of whatever tag.
    """
    lane = _search(first - (offset & (BUCKET - 1)), tag)
    if lane != 0:
        return lane
    # Nearly always the lane is free, and the bucket has not sent anything on.
    window = windows + stride * i64(u32(word) & u32(WORKER_BITS))
    if load_u8(marks + (offset >> BUCKET_SHIFT)) == 0 and not is_live_at(u32(word), window):
        return first
    return _find_far(pins, first, tag)
