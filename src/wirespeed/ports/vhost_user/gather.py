"""One packet out of the guest's buffers, whatever they are: the way of those that are not plain.

The header may be a descriptor of its own, as drivers before virtio 1 have it, or lie in as many as the guest likes; it
is copied before it is looked at.  What is longer than a packet's buffer goes into a chain of segments.

A chain that cannot be used is given back and counted.  Where the pool has too few packets now, nothing was taken; where
it never could have as many, the packet is dropped.
"""

import numpy as np

from wirespeed.core.chain import alloc_length
from wirespeed.core.packet import HEADROOM, Packet, data, reset
from wirespeed.core.pool import Cache, Pool, put_own
from wirespeed.jit.intrinsics import load_u64, stack, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.chain import take
from wirespeed.ports.vhost_user.jobs import look_at
from wirespeed.ports.vhost_user.pieces import get
from wirespeed.ports.virtio.queue import LONG, NO_ROOM, SHORT, Virtqueue, refuse

i64, u64 = np.int64, np.uint64
# Most bytes of one packet: an IP packet of 65,535 bytes, or with as many of payload, and a link header with tags.
LARGEST = (1 << 16) + 4096


@kernel(inline=True)
def plain_room(cache):
    """The longest packet that one buffer of the pool takes."""
    return Pool(Cache(cache).pool).room - HEADROOM


@kernel
def _packet(cache, spare, size):
    """A packet of ``size`` bytes: the one that is there already where that is enough, and if not, that goes back."""
    if size <= plain_room(cache):
        reset(Packet(spare), size)
        return spare
    handle = alloc_length(cache, size)
    if handle != 0:
        put_own(cache, spare)
    return handle


@kernel
def gather(queue, cache, place, now):
    """Make a packet of the next chain.

    At ``place`` is the handle of a packet from the pool, and then that of the new one.  Returns its bytes, 0 when the
    chain was given back and the packet is still there, -1 when nothing was taken and the burst is at its end.
    """
    q = Virtqueue(queue)
    avail, wrap, filled = q.last_avail, q.avail_wrap, q.filled
    n, total = take(queue, i64(0), False)
    if q.broken != 0:
        return i64(-1)
    size, reason = total - q.header, -1 - n
    if n >= 0 and (size <= 0 or size > LARGEST):
        reason = i64(SHORT if size <= 0 else LONG)
    handle = i64(0)
    if reason < 0:
        handle = _packet(cache, i64(load_u64(place)), size)
        pool = Pool(Cache(cache).pool)
        if handle == 0 and size <= (pool.size - 1) * pool.room:
            q.last_avail = avail
            q.avail_wrap = wrap
            q.filled = filled
            q.starved += u64(1)
            return i64(-1)
        if handle == 0:
            reason = i64(NO_ROOM)
    if reason >= 0:
        refuse(queue, reason)
        q.bad += 1
        return i64(0)
    store_i64(place, handle)
    _copy(queue, handle)
    Packet(handle).time = now
    q.packets += u64(1)
    return size


@kernel
def _copy(queue, handle):
    q = Virtqueue(queue)
    header = stack(16)
    at, offset = get(q.pieces, i64(0), i64(0), header, q.header)
    segment = handle
    while segment != 0:
        p = Packet(segment)
        at, offset = get(q.pieces, at, offset, data(p), i64(p.length))
        segment = p.next
    if load_u64(header) != u64(0):
        look_at(queue, handle, header)
