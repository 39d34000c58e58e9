"""Packets to the guest by a packed ring."""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.chain import HALF, LOW, step
from wirespeed.ports.vhost_user.jobs import add_job, copy_to_guest, expect
from wirespeed.ports.vhost_user.notify import is_available_packed
from wirespeed.ports.vhost_user.scatter import scatter
from wirespeed.ports.vhost_user.used import push
from wirespeed.ports.virtio.packed import PackedDescriptor
from wirespeed.ports.virtio.queue import MOST_PIECES, NO_BUFFERS, Virtqueue
from wirespeed.ports.virtio.region import to_host
from wirespeed.ports.virtio.split import DESCRIPTOR, INDIRECT, NEXT, WRITE

i64, u64 = np.int64, np.uint64
ODD = NEXT | WRITE | INDIRECT


@kernel
def enqueue_packed(queue, burst, n):
    """Copy up to ``n`` packets to the guest; return how many.  The shadow has room for one packet when it ends early."""
    q = Virtqueue(queue)
    header, regions = q.header, q.regions
    taken, jobs = i64(0), i64(0)
    while taken < n and q.filled <= MOST_PIECES:
        handle = load_handle(burst + 8 * taken)
        if not is_available_packed(q):
            q.stop = i64(NO_BUFFERS)
            break
        p = Packet(handle)
        if p.segments == 1 and p.flags & PARTIAL == 0:
            d = PackedDescriptor(q.desc + DESCRIPTOR * q.last_avail)
            word, guest = load_relaxed(d, "word"), load_relaxed(d, "address")
            need = header + i64(p.length)
            if i64(word >> u64(48)) & ODD == WRITE and i64(word & u64(LOW)) >= need:
                host, mapped = to_host(regions, guest, need)
                if mapped == need:
                    expect(q, host, True)
                    add_job(q, jobs, host, guest, handle, need - header)
                    push(q, i64(word >> u64(32)) & HALF, i64(1), need)
                    step(q)
                    jobs += 1
                    taken += 1
                    continue
        if not scatter(queue, handle):
            break
        taken += 1
    copy_to_guest(queue, jobs)
    return taken
