"""Whether a packet's record can be right; debug mode asks on every free, other modes only where a test or user does.

Source of the checks: DPDK's rte_mbuf_sanity_check; a walk along a chain ends here even when it is a circle.
"""

import numpy as np

from wirespeed.core.packet import EXTERNAL, INDIRECT, SHOWING, Packet
from wirespeed.core.pool import Pool
from wirespeed.jit.kernel import kernel

u32, i64 = np.uint32, np.int64

NULL, NO_POOL, NO_BUFFER, NOT_HELD, HELD_TOO_OFTEN, NOT_ATTACHED, DATA_OUTSIDE, LENGTH_OUTSIDE = range(1, 9)
LENGTH_OVER_TOTAL, WRONG_SEGMENTS, WRONG_TOTAL = range(9, 12)
REASONS = {
    NULL: "the handle is 0",
    NO_POOL: "it belongs to no pool",
    NO_BUFFER: "it has no buffer",
    NOT_HELD: "its hold count is 0",
    HELD_TOO_OFTEN: "its hold count is below 0, or absurd",
    NOT_ATTACHED: "it shows bytes of another, but whose is not said, or both of a packet's and external ones",
    DATA_OUTSIDE: "its data begins behind the end of its buffer",
    LENGTH_OUTSIDE: "its data ends behind the end of its buffer",
    LENGTH_OVER_TOTAL: "its first segment has more bytes than all of it",
    WRONG_SEGMENTS: "it has more or fewer segments than it says",
    WRONG_TOTAL: "its segments have more or fewer bytes than it says",
}
MOST_HOLDS = 1 << 31  # a count that was taken below 0 is above it


@kernel
def check(handle, head):
    """Why a packet cannot be right, a key of :data:`REASONS`, or 0; of a segment alone unless it is the ``head``."""
    if handle == 0:
        return NULL
    p = Packet(handle)
    if p.pool == 0:
        return NO_POOL
    if p.buffer == 0:
        return NO_BUFFER
    if p.refcnt == 0:
        return NOT_HELD
    if p.refcnt >= MOST_HOLDS:
        return HELD_TOO_OFTEN
    showing = p.flags & SHOWING
    if showing == INDIRECT | EXTERNAL or (showing != 0 and p.attached == 0):
        return NOT_ATTACHED
    if head and p.length > p.total:
        return LENGTH_OVER_TOTAL
    segments, total = i64(0), i64(0)
    while handle != 0:
        q = Packet(handle)
        if q.data > q.capacity:
            return DATA_OUTSIDE
        if i64(q.data) + i64(q.length) > i64(q.capacity):
            return LENGTH_OUTSIDE
        segments += 1
        total += i64(q.length)
        handle = q.next if head and segments <= i64(p.segments) else i64(0)
    if head and segments != i64(p.segments):
        return WRONG_SEGMENTS
    return WRONG_TOTAL if head and total != i64(p.total) else 0


@kernel
def is_damaged(handle):
    """Debug mode: whether a segment must not go back to its pool; notes why in ``fault``.

    What is no packet of the pool, or is in it, is left to the pool, which counts these.
    """
    p = Packet(handle)
    if p.pool != 0:
        pool = Pool(p.pool)
        offset = handle - pool.first
        if offset < 0 or offset >= pool.size * pool.stride or offset % pool.stride != 0 or p.owner != 0:
            return False
    p.fault = check(handle, False)
    return p.fault != 0


def why(handle: int, head: bool = True) -> str:
    """In words, why a packet cannot be right; "" when it can."""
    return REASONS.get(check(int(handle), head), "")
