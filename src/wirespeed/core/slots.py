"""Copying items between a ring's slots and other memory, in one straight run or two.

Why not the C library's memcpy: a burst is short, and the call alone takes as long as moving eight items.  What is
known when a kernel is compiled (the size of an item, a count of one) folds, so a single 64-bit item is one load and
one store.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel

i64 = np.int64


@kernel(inline=True)
def copy_words(dst, src, size):
    """Copy ``size`` bytes, a multiple of 4, to ``dst`` from ``src``; the two must not overlap."""
    while size >= 64:
        copy(dst, src, 64)
        dst += 64
        src += 64
        size -= 64
    if size & 32:
        copy(dst, src, 32)
        dst += 32
        src += 32
    if size & 16:
        # In two, for whoever reads a whole item right behind: a store to a general register's place is forwarded to
        # the load in half the time that one of a vector register takes.
        copy(dst, src, 8)
        copy(dst + 8, src + 8, 8)
        dst += 16
        src += 16
    if size & 8:
        copy(dst, src, 8)
        dst += 8
        src += 8
    if size & 4:
        copy(dst, src, 4)


@kernel(inline=True)
def put(slots, at, end, src, size, one=False):
    """Copy ``size`` bytes into the slots, from byte ``at`` of them on; those that reach ``end`` go on at the start.

    ``one`` says that they are one item, which never does: where that is known when it is compiled, nothing of it stays.
    """
    if one or at + size <= end:
        copy_words(slots + at, src, size)
    else:
        copy_words(slots + at, src, end - at)
        copy_words(slots, src + (end - at), size - (end - at))


@kernel(inline=True)
def take(slots, at, end, dst, size, one=False):
    """Copy ``size`` bytes out of the slots, from byte ``at`` of them on, to ``dst``; otherwise as :func:`put`."""
    if one or at + size <= end:
        copy_words(dst, slots + at, size)
    else:
        copy_words(dst, slots + at, end - at)
        copy_words(dst + (end - at), slots, size - (end - at))
