"""A spin lock: a word ``lock`` in any record, for what several workers share and hold for a moment.

Order pairs: L1, the exchange that takes it, pairs with L0, the releasing store that lets go.
"""

from wirespeed.jit.atomics import exchange, store_release
from wirespeed.jit.intrinsics import pause
from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import sys_yield

SPINS = 128  # how often a waiting thread pauses before it lets another one have the core


@kernel(inline=True)
def lock(record):
    """Take the lock of a record, a u4 field of that name."""
    spins = 0
    while exchange(record, "lock", 1) != 0:
        spins += 1
        if spins % SPINS == 0:
            sys_yield()
        pause()


@kernel(inline=True)
def unlock(record):
    """Let the next thread have it."""
    store_release(record, "lock", 0)
