"""Telling the guest that there is something, if it wants to be told; and being told by it, or not.

Order pair: N0, the full fence between publishing used entries and looking at what the guest wants, pairs with the
driver's between saying that it wants to be told and looking for used entries once more; N1, the same the other way
round in :func:`want_kicks`.  Without them both could go to sleep.

*Source:* virtio 1.2, 2.7.7, 2.7.10, 2.8.10 and 2.8.14.
"""

import numpy as np

from wirespeed.jit.atomics import fence_full, load_acquire, load_relaxed, store_relaxed
from wirespeed.jit.intrinsics import stack, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import sys_write
from wirespeed.ports.vhost_user.dirty import mark
from wirespeed.ports.virtio.events import is_passed, is_passed_packed
from wirespeed.ports.virtio.packed import AT_DESCRIPTOR, DISABLE, ENABLE, Event, PackedDescriptor
from wirespeed.ports.virtio.queue import USED, Virtqueue
from wirespeed.ports.virtio.split import DESCRIPTOR, ENTRIES, NO_INTERRUPT, NO_NOTIFY, Entry, Ring

i64, u64, u16, u32 = np.int64, np.uint64, np.uint16, np.uint32


@kernel(inline=True)
def _split_wants(q, old, new, valid):
    if q.event_idx == 0:
        return load_relaxed(Ring(q.avail), "flags") & NO_INTERRUPT == 0
    event = i64(load_relaxed(Entry(q.avail + ENTRIES + 2 * q.size), "id"))
    return not valid or is_passed(event, new, old)


@kernel(inline=True)
def _packed_wants(q, old, new, valid):
    word = i64(load_relaxed(Event(q.avail), "word"))
    flags = word >> 16
    if flags != AT_DESCRIPTOR:
        return flags != DISABLE
    return not valid or is_passed_packed(word & 0xFFFF, new, q.used_wrap, old, q.size)


@kernel
def _ring_bell(q):
    one = stack(8)
    store_u64(one, u64(1))
    if sys_write(q.call, one, i64(8)) == 8:
        q.notified += u64(1)
    else:
        q.notify_failed += u64(1)


@kernel
def notify(queue):
    """Tell the guest of used entries that were published, if it wants that."""
    q = Virtqueue(queue)
    fence_full()  # N0
    old, new, valid = q.signalled, q.last_used, q.signalled_valid != 0
    q.signalled = new
    q.signalled_valid = 1
    wants = _packed_wants(q, old, new, valid) if q.packed != 0 else _split_wants(q, old, new, valid)
    if wants and q.call >= 0:
        _ring_bell(q)
    else:
        q.suppressed += u64(1)


@kernel(inline=True)
def is_available_packed(q):
    """Whether the guest has given a chain of a packed ring."""
    flags = i64(load_acquire(PackedDescriptor(q.desc + DESCRIPTOR * q.last_avail), "flags"))
    return (flags >> 7 & 1) == q.avail_wrap and flags >> 15 != q.avail_wrap


@kernel
def waiting(queue):
    """Whether the guest has given something that was not taken yet."""
    q = Virtqueue(queue)
    if q.size == 0 or q.broken != 0:
        return False
    if q.packed != 0:
        return is_available_packed(q)
    return i64(load_acquire(Ring(q.avail), "idx")) != q.last_avail


@kernel
def want_kicks(queue, wanted):
    """Have the guest ring when it gives something, or not; whether something is there already."""
    q = Virtqueue(queue)
    if q.size == 0 or q.broken != 0:
        return False
    if q.packed != 0:
        store_relaxed(Event(q.used), "word", u32((ENABLE if wanted else DISABLE) << 16))
    elif q.event_idx != 0:
        # One that lies as far back as can be is not passed for a long time.
        event = q.last_avail if wanted else q.last_avail - 1
        at = q.used + ENTRIES + USED * q.size
        store_relaxed(Entry(at), "id", u16(event & 0xFFFF))
        if q.log_used != 0:
            mark(queue, q.used_guest + u64(ENTRIES + USED * q.size), i64(2))
    else:
        store_relaxed(Ring(q.used), "flags", u16(0 if wanted else NO_NOTIFY))
    fence_full()  # N1
    return waiting(queue)
