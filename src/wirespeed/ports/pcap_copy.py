"""Copying frames in whole blocks, which is faster than to the byte for the sizes that frames have.

A copy writes and reads up to a block less one byte more than it is asked for; each caller argues why that is memory it
may touch.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel

i64 = np.int64
WHOLE = 64  # bytes of a block: two vector registers, or one, on most machines


@kernel(inline=True)
def copy_blocks(to, source, size):
    """Copy ``size`` bytes, and up to ``WHOLE`` - 1 more."""
    at = i64(0)
    while at < size:
        copy(to + at, source + at, WHOLE)
        at += WHOLE
