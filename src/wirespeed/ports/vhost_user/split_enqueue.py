"""Packets to the guest by a split ring."""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.chain import HALF, LOW, next_head
from wirespeed.ports.vhost_user.jobs import add_job, copy_to_guest, expect
from wirespeed.ports.vhost_user.scatter import scatter
from wirespeed.ports.vhost_user.split_available import available, expect_descriptors
from wirespeed.ports.vhost_user.used import push
from wirespeed.ports.virtio.queue import MOST_PIECES, NO_BUFFERS, Virtqueue
from wirespeed.ports.virtio.region import to_host
from wirespeed.ports.virtio.split import DESCRIPTOR, INDIRECT, NEXT, WRITE, SplitDescriptor

i64, u64 = np.int64, np.uint64
ODD, PLAIN = (NEXT | WRITE | INDIRECT) << 32, WRITE << 32


@kernel
def enqueue_split(queue, burst, n):
    """Copy up to ``n`` packets to the guest; return how many.  The shadow has room for one packet when it ends early."""
    q = Virtqueue(queue)
    size, header, regions = q.size, q.header, q.regions
    taken, jobs = i64(0), i64(0)
    expect_descriptors(q, available(queue, n))
    while taken < n and q.filled <= MOST_PIECES:
        handle = load_handle(burst + 8 * taken)
        if q.last_avail == q.seen and available(queue, i64(1)) == 0:
            if q.broken == 0:
                q.stop = i64(NO_BUFFERS)
            break
        p = Packet(handle)
        head = next_head(q)
        if head < size and p.segments == 1 and p.flags & PARTIAL == 0:
            d = SplitDescriptor(q.desc + DESCRIPTOR * head)
            word, guest = i64(load_relaxed(d, "word") & u64(0xFFFFFFFFFFFF)), load_relaxed(d, "address")
            need = header + i64(p.length)
            if word & ODD == PLAIN and word & LOW >= need:
                host, mapped = to_host(regions, guest, need)
                if mapped == need:
                    expect(q, host, True)
                    add_job(q, jobs, host, guest, handle, need - header)
                    push(q, head, i64(0), need)
                    q.last_avail = (q.last_avail + 1) & HALF
                    jobs += 1
                    taken += 1
                    continue
        if not scatter(queue, handle):
            break
        taken += 1
    copy_to_guest(queue, jobs)
    return taken
