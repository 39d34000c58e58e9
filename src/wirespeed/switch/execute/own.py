"""Making a packet's bytes the switch's own to write, its headers in one piece."""

import numpy as np

from wirespeed.core.chain import linearize
from wirespeed.core.clone import copy_packet
from wirespeed.core.free import free_segments
from wirespeed.core.packet import SHOWING, Packet
from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.kernel import kernel
from wirespeed.switch.extract import EXCERPT

i64 = np.int64


@kernel
def _own_odd(cache, handle):
    """:func:`own` for a packet that is shared, shows other bytes, or begins with a short segment."""
    p = Packet(handle)
    if not p.flags & SHOWING and load_acquire(p, "refcnt") == 1 and linearize(cache, handle):
        return handle
    new = copy_packet(cache, handle, i64(0), i64(p.total))
    if new != 0:
        free_segments(cache, handle)
    return new


@kernel(inline=True)
def own(cache, handle):
    """The packet, or a copy that takes its place, of which the headers may be written; 0 when there is none for that.

    With 0 the packet is as it was.
    """
    p = Packet(handle)
    whole = p.segments == 1 or i64(p.length) >= EXCERPT
    if whole and not p.flags & SHOWING and load_acquire(p, "refcnt") == 1:
        return handle
    return _own_odd(cache, handle)
