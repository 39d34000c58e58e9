"""Packets from the guest by a packed ring."""

import numpy as np

from wirespeed.core.stage import Head
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.chain import HALF, LOW, step
from wirespeed.ports.vhost_user.gather import gather, plain_room
from wirespeed.ports.vhost_user.jobs import add_job, copy_from_guest, expect
from wirespeed.ports.vhost_user.notify import is_available_packed
from wirespeed.ports.vhost_user.scatter import MOST_BAD
from wirespeed.ports.vhost_user.used import push
from wirespeed.ports.virtio.packed import PackedDescriptor
from wirespeed.ports.virtio.queue import Virtqueue
from wirespeed.ports.virtio.region import to_host
from wirespeed.ports.virtio.split import DESCRIPTOR, INDIRECT, NEXT, WRITE

i64, u64 = np.int64, np.uint64
ODD = NEXT | WRITE | INDIRECT


@kernel
def dequeue_packed(queue, state, burst, n, now):
    """Make packets of up to ``n`` chains, with the ``n`` at ``burst`` that are from the pool; (packets, bytes).

    Those that were not used are behind the packets then.
    """
    q, cache = Virtqueue(queue), Head(state).cache
    header, room, regions = q.header, plain_room(cache), q.regions
    got, jobs, total = i64(0), i64(0), i64(0)
    while got < n and is_available_packed(q):
        place = burst + 8 * got
        d = PackedDescriptor(q.desc + DESCRIPTOR * q.last_avail)
        word, guest = load_relaxed(d, "word"), load_relaxed(d, "address")
        length, flags = i64(word & u64(LOW)), i64(word >> u64(48))
        if flags & ODD == 0 and length > header and length - header <= room:
            host, mapped = to_host(regions, guest, length)
            if mapped == length:
                expect(q, host, False)
                add_job(q, jobs, host, guest, load_handle(place), length - header)
                push(q, i64(word >> u64(32)) & HALF, i64(1), i64(0))
                step(q)
                jobs += 1
                got += 1
                continue
        fresh = gather(queue, cache, place, now)
        if fresh < 0 or q.bad == MOST_BAD:
            break
        got += i64(fresh > 0)
        total += fresh
    return got, total + copy_from_guest(queue, jobs, now)
