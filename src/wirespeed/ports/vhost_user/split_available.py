"""How many chains the driver of a split ring has made available: its index, which is read again only when need be."""

import numpy as np

from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import prefetch
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.chain import HALF
from wirespeed.ports.virtio.queue import BAD_INDEX, Virtqueue, break_ring
from wirespeed.ports.virtio.split import DESCRIPTOR, ENTRIES, Entry, Ring

i64 = np.int64


@kernel(inline=True)
def available(queue, most):
    """Up to ``most`` chains that can be taken.  A driver that says it gave more than the ring holds breaks it."""
    q = Virtqueue(queue)
    n = (q.seen - q.last_avail) & HALF
    if n < most:
        seen = i64(load_acquire(Ring(q.avail), "idx"))
        # Those that were taken and not given back yet count as well.
        if (seen - q.last_used) & HALF > q.size:
            break_ring(queue, BAD_INDEX)
            return i64(0)
        q.seen = seen
        n = (seen - q.last_avail) & HALF
    return min(n, most)


@kernel(inline=True)
def expect_descriptors(q, n):
    """Ask for the descriptors of the next ``n`` chains; whatever the heads are, nothing is touched."""
    if q.prefetch != 0:
        mask = q.size - 1
        for i in range(n):
            at = q.avail + ENTRIES + 2 * ((q.last_avail + i) & mask)
            prefetch(q.desc + DESCRIPTOR * i64(Entry(at).id))
