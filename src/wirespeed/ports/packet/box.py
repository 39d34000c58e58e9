"""A box of frames that one packet was made into, because whoever is to have them knows nothing of super-frames."""

import numpy as np

from wirespeed.core.free import free_bulk
from wirespeed.core.stage import Site
from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.segmentation import MOST_FRAMES, segment

i64, u64 = np.int64, np.uint64

Box = layout(
    "PacketBox",
    [
        ("frames", "i8"),  # address of MOST_FRAMES handles
        ("begin", "i8"),  # number of the first that is still in it,
        ("end", "i8"),  # and of the one behind the last
        ("segments", "u8"),  # frames that it has held so far
    ],
)


@kernel
def unpack(cache, handle, box, limit):
    """Make a packet into frames of up to ``limit`` bytes, in an empty box; return how many, or why not as ``segment``."""
    b = Box(box)
    n = segment(cache, handle, limit, b.frames, i64(MOST_FRAMES))
    if n > 0:
        b.begin = 0
        b.end = n
        b.segments += u64(n)
    return n


@kernel(inline=True)
def in_box(box):
    """How many frames are in a box."""
    return Box(box).end - Box(box).begin


@kernel
def take_out(box, burst, n):
    """Move up to ``n`` frames from a box to a burst; return how many."""
    b = Box(box)
    n = min(n, b.end - b.begin)
    copy(burst, b.frames + 8 * b.begin, 8 * n)
    b.begin += n
    return n


@kernel
def empty_box(cache, box):
    """Free the frames in a box."""
    b = Box(box)
    free_bulk(cache, b.frames + 8 * b.begin, b.end - b.begin)
    b.begin = b.end


def room(site: Site) -> int:
    """Memory for the frames of a box."""
    return site.arena.alloc(8 * MOST_FRAMES)
