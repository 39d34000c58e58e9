"""Packets from the guest: what a port's receive stage calls.

Theory of operation
-------------------
Packets are taken from the pool for as many chains as there are, filled, and those that were not needed put back.  The
guest gets its buffers back once the burst has been copied, and is told then.  When the pool is short fewer are taken,
and the others stay with the guest.
"""

import numpy as np

from wirespeed.core.pool import alloc_bulk, put_bulk
from wirespeed.core.stage import MAX_BURST, Head
from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import realtime_ns
from wirespeed.ports.vhost_user.dirty import write_marks
from wirespeed.ports.vhost_user.notify import is_available_packed, notify
from wirespeed.ports.vhost_user.packed_dequeue import dequeue_packed
from wirespeed.ports.vhost_user.split_available import available, expect_descriptors
from wirespeed.ports.vhost_user.split_dequeue import dequeue_split
from wirespeed.ports.vhost_user.used import publish
from wirespeed.ports.virtio.queue import Virtqueue

i64, u64 = np.int64, np.uint64


@kernel
def _dequeue_some(queue, state, burst, most):
    q, cache = Virtqueue(queue), Head(state).cache
    if q.packed != 0:
        wanted = most if is_available_packed(q) else i64(0)
    else:
        wanted = available(queue, most)
        expect_descriptors(q, wanted)
    n = i64(0)
    while wanted > 0 and n == 0:
        n = alloc_bulk(cache, burst, wanted)
        q.starved += u64(n == 0)
        wanted >>= 1
    if n == 0:
        return i64(0)
    now = realtime_ns()
    if q.packed != 0:
        got, size = dequeue_packed(queue, state, burst, n, now)
    else:
        got, size = dequeue_split(queue, state, burst, n, now)
    if got < n:
        put_bulk(cache, burst + 8 * got, n - got)
    q.bytes += u64(size)
    Head(state).bytes += u64(size)
    return got


@kernel
def dequeue(queue, state, burst, most):
    """Make packets of what the guest transmits, up to ``most`` of them, at ``burst``; return how many."""
    q = Virtqueue(queue)
    if q.size == 0 or q.broken != 0:
        return i64(0)
    most = min(most, i64(MAX_BURST))
    told, got = False, i64(0)
    q.bad = i64(0)
    while got < most:
        wanted = most - got if q.batch != 0 else i64(1)
        starved = q.starved
        n = _dequeue_some(queue, state, burst + 8 * got, wanted)
        told |= publish(queue, q.in_order != 0)
        got += n
        if n == 0 and q.starved != starved:
            # A long packet may find enough where none is kept for others.
            n = _dequeue_some(queue, state, burst + 8 * got, i64(1))
            told |= publish(queue, q.in_order != 0)
            got += n
        if n < wanted:
            break
    if told:
        if q.marked != 0:
            write_marks(queue)
        notify(queue)
    return got
