"""Giving packets up: a hold is dropped, and the segments of what nobody holds any more return to their pools.

Thread rules: those of the cache that is given.  The hold count is atomic: the holders of one packet may be different
threads.
"""

import numpy as np

from wirespeed.core.packet import META, Packet
from wirespeed.core.pool import Cache, put_bulk, put_one
from wirespeed.jit.atomics import fetch_add
from wirespeed.jit.intrinsics import load_handle, store_i64
from wirespeed.jit.kernel import kernel

u32, i64 = np.uint32, np.int64


@kernel
def free_segments(cache, handle):
    """Give up one hold of a packet: its segments return to their pools when it was the last one."""
    while handle != 0:
        p = Packet(handle)
        following = p.next
        if p.refcnt == 1 or fetch_add(p, "refcnt", u32(0xFFFFFFFF)) == 1:
            if p.flags & META:  # the options that it carries are a packet too, and go with it
                Packet(p.meta).next = following
                following = p.meta
            p.refcnt = 1
            p.next = 0
            p.segments = 1
            p.flags = 0
            put_one(cache, handle)
        handle = following


@kernel
def _free_mixed(cache, handles, n):
    """:func:`free_bulk` when some are chains, held elsewhere, of another pool or with capture options."""
    pool = Cache(cache).pool
    plain = i64(0)
    for i in range(n):
        handle = load_handle(handles + 8 * i)
        p = Packet(handle)
        if p.next == 0 and p.refcnt == 1 and p.pool == pool and p.flags & META == 0:
            store_i64(handles + 8 * plain, handle)
            plain += 1
        else:
            free_segments(cache, handle)
    put_bulk(cache, handles, plain)


@kernel(inline=True)
def free_bulk(cache, handles, n):
    """Give up one hold of each of ``n`` packets, chains or not; the list at ``handles`` is used up.

    One pass without branches tells whether all are in their resting state, which nearly always they are.
    """
    pool = Cache(cache).pool
    odd = i64(0)
    for i in range(n):
        p = Packet(load_handle(handles + 8 * i))
        odd |= p.next | (p.pool ^ pool) | i64(p.refcnt ^ u32(1)) | i64(p.flags & META)
    if odd == 0:
        put_bulk(cache, handles, n)
    else:
        _free_mixed(cache, handles, n)


@kernel(inline=True)
def hold(handle):
    """Hold a packet once more, every segment of it; each hold is given up by a free of its own."""
    while handle != 0:
        fetch_add(Packet(handle), "refcnt", u32(1))
        handle = Packet(handle).next
