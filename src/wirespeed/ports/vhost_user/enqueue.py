"""Packets to the guest: what a port's transmit stage calls."""

import numpy as np

from wirespeed.core.stage import MAX_BURST
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.dirty import write_marks
from wirespeed.ports.vhost_user.notify import notify
from wirespeed.ports.vhost_user.packed_enqueue import enqueue_packed
from wirespeed.ports.vhost_user.split_enqueue import enqueue_split
from wirespeed.ports.vhost_user.used import publish
from wirespeed.ports.virtio.queue import ALL_TAKEN, BROKEN, NO_BUFFERS, Virtqueue

i64, u64 = np.int64, np.uint64


@kernel
def enqueue(queue, cache, burst, n):
    """Copy packets to the guest; return how many, which are the first ones and the caller's to free into ``cache``.

    ``stop`` of the queue says why it was not all of them.
    """
    q = Virtqueue(queue)
    if q.size == 0 or q.broken != 0:
        q.stop = i64(BROKEN if q.broken != 0 else NO_BUFFERS)
        return i64(0)
    told, taken = False, i64(0)
    q.bad = i64(0)
    q.stop = i64(ALL_TAKEN)
    while taken < n and q.stop == ALL_TAKEN:
        wanted = min(n - taken, i64(MAX_BURST) if q.batch != 0 else i64(1))
        if q.packed != 0:
            taken += enqueue_packed(queue, burst + 8 * taken, wanted)
        else:
            taken += enqueue_split(queue, burst + 8 * taken, wanted)
        told |= publish(queue, False)
    if q.stop == NO_BUFFERS:
        q.empty += u64(1)
    if told:
        if q.marked != 0:
            write_marks(queue)
        notify(queue)
    return taken
