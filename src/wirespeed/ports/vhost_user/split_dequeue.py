"""Packets from the guest by a split ring."""

import numpy as np

from wirespeed.core.stage import Head
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.chain import HALF, LOW, next_head
from wirespeed.ports.vhost_user.gather import gather, plain_room
from wirespeed.ports.vhost_user.jobs import add_job, copy_from_guest, expect
from wirespeed.ports.vhost_user.scatter import MOST_BAD
from wirespeed.ports.vhost_user.used import push
from wirespeed.ports.virtio.queue import Virtqueue
from wirespeed.ports.virtio.region import to_host
from wirespeed.ports.virtio.split import DESCRIPTOR, INDIRECT, NEXT, WRITE, SplitDescriptor

i64, u64 = np.int64, np.uint64
ODD = (NEXT | WRITE | INDIRECT) << 32


@kernel
def dequeue_split(queue, state, burst, n, now):
    """Make packets of the next ``n`` chains, with the ``n`` at ``burst`` that are from the pool; (packets, bytes).

    Those that were not used are behind the packets then.
    """
    q, cache = Virtqueue(queue), Head(state).cache
    size, header, room, regions = q.size, q.header, plain_room(cache), q.regions
    got, jobs, total = i64(0), i64(0), i64(0)
    for _ in range(n):
        place = burst + 8 * got
        head = next_head(q)
        if head < size:
            d = SplitDescriptor(q.desc + DESCRIPTOR * head)
            word, guest = i64(load_relaxed(d, "word") & u64(0xFFFFFFFFFFFF)), load_relaxed(d, "address")
            length = word & LOW
            if word & ODD == 0 and length > header and length - header <= room:
                host, mapped = to_host(regions, guest, length)
                if mapped == length:
                    expect(q, host, False)
                    add_job(q, jobs, host, guest, load_handle(place), length - header)
                    push(q, head, i64(0), i64(0))
                    q.last_avail = (q.last_avail + 1) & HALF
                    jobs += 1
                    got += 1
                    continue
        fresh = gather(queue, cache, place, now)
        if fresh < 0 or q.bad == MOST_BAD:
            break
        got += i64(fresh > 0)
        total += fresh
    return got, total + copy_from_guest(queue, jobs, now)
