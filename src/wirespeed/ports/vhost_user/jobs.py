"""The copies of a burst's plain packets, which are made together once all of their descriptors were looked at.

By then the buffers, which were asked for one after the other, have come; a copy at once would wait for each.  Plain is
a packet of one segment for which nothing is left to be done, with a buffer of the guest's that takes all of it and its
header; all others are copied at once (:mod:`wirespeed.ports.vhost_user.scatter` and ``gather``).

Bounds: who adds a job has checked that ``header + size`` bytes from ``host`` lie in one region.
"""

import numpy as np

from wirespeed.core.packet import HEADROOM, Packet, data, reset
from wirespeed.jit.intrinsics import copy, load_u64, prefetch, prefetch_write, stack, store_u16, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.net.offload import HEADER, describe
from wirespeed.ports.vhost_user.dirty import mark
from wirespeed.ports.vhost_user.pieces import copy_frame
from wirespeed.ports.virtio.queue import BAD_HEADER, JOB, Job, Virtqueue, refuse

i64, u64, u32 = np.int64, np.uint64, np.uint32
LINE = 64
ONE_BUFFER = 1 << 16  # the last four bytes of a header of 12: ``csum_offset`` 0, ``num_buffers`` 1


@kernel(inline=True)
def add_job(q, n, host, guest, handle, size):
    """Have a plain packet copied later, as job number ``n``, which is below the most packets of a burst."""
    j = Job(q.jobs + JOB * n)
    j.host = host
    j.guest = guest
    j.handle = handle
    j.size = size


@kernel(inline=True)
def expect(q, host, writing):
    """Ask for the first lines of a buffer."""
    if q.prefetch != 0:
        if writing:
            prefetch_write(host)
            prefetch_write(host + LINE)
        else:
            prefetch(host)
            prefetch(host + LINE)


@kernel
def look_at(queue, handle, header):
    """Take what a header that says something asks for into its packet, or count that it cannot be done."""
    own = stack(16)
    copy(own, header, HEADER)
    if not describe(handle, own, i64(HEADER)):
        refuse(queue, BAD_HEADER)


@kernel
def copy_to_guest(queue, n):
    """Make ``n`` jobs of an enqueue."""
    q = Virtqueue(queue)
    header, jobs, log, total = q.header, q.jobs, q.log != 0, i64(0)
    for i in range(n):
        j = Job(jobs + JOB * i)
        host, size = j.host, j.size
        store_u64(host, u64(0))
        if header == HEADER:
            store_u16(host + 8, 0)
        else:
            store_u32(host + 8, ONE_BUFFER)
        copy_frame(host + header, data(Packet(j.handle)), size)
        if log:
            mark(queue, j.guest, header + size)
        total += size
    q.packets += u64(n)
    q.bytes += u64(total)


@kernel
def copy_from_guest(queue, n, now):
    """Make ``n`` jobs of a dequeue; the bytes that they were."""
    q = Virtqueue(queue)
    header, jobs, total = q.header, q.jobs, i64(0)
    for i in range(n):
        j = Job(jobs + JOB * i)
        host, handle, size = j.host, j.handle, j.size
        p = Packet(handle)
        reset(p, size)
        p.time = now
        copy_frame(p.buffer + HEADROOM, host + header, size)
        if load_u64(host) != u64(0):
            look_at(queue, handle, host)
        total += size
    q.packets += u64(n)
    return total
