"""How a source takes packets from a pool that may have fewer than it wants: a pool may be smaller than a burst."""

from wirespeed.core.pool import alloc_bulk
from wirespeed.jit.kernel import kernel


@kernel
def grab(cache, burst, n):
    """Take ``n`` packets from the pool, or as many as it has, in halves; return how many."""
    while n > 0 and alloc_bulk(cache, burst, n) == 0:
        n = n // 2
    return n
