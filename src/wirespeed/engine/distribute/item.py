"""What is sent to workers and comes back, as one word: a packet's handle, the output it left by, and its place in order.

A handle is the address of a record of two cache lines, so its lowest six bits are free: there stands the number of the
output.  Above the 48 bits that an address of a process has, there is room for a place among 65,536.  The handle 0 stands for a
packet that a worker dropped: its place in order is not waited for any more.

Thread rules: none; an item is a number.
"""

import numpy as np

from wirespeed.core.shared_pool import stride
from wirespeed.jit.kernel import kernel

i64, u64 = np.int64, np.uint64
OUTPUTS = 64
PLACES = 1 << 16
_HANDLE = (1 << 48) - OUTPUTS
assert stride(1) % OUTPUTS == 0  # so far apart are records, the first one of which is at a pair of lines


@kernel(inline=True)
def pack(handle, place):
    """The item of a packet that is to be sent."""
    return i64(u64(handle) | u64(place) << u64(48))


@kernel(inline=True)
def handle_of(item):
    """The handle in an item."""
    return item & _HANDLE


@kernel(inline=True)
def output_of(item):
    """The number of the output in an item."""
    return item & (OUTPUTS - 1)


@kernel(inline=True)
def place_of(item):
    """The place in order in an item."""
    return item >> 48 & (PLACES - 1)


@kernel(inline=True)
def without_packet(item):
    """An item of the same place, of a packet that was dropped."""
    return i64(u64(item) & ~u64((1 << 48) - 1))
