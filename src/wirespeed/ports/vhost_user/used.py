"""The shadow of the used ring: what was used in a call is collected, and the guest sees all of it at once.

Theory of operation
-------------------
An entry is one word: the chain's id in 16 bits, of a packed ring how many descriptors it is in the next 16, and the
bytes written in the upper 32; of a split ring it is what the used ring gets, as it stands.  A split ring's entries are
copied in one run or two before its index says that they are there (U0, a release, for the driver's acquire).  Of a
packed ring each used descriptor says so itself; the driver looks at them in order, so all but the first are written
beforehand, and the first one last (U0 again).

With IN_ORDER the buffers that the driver of a packed ring transmitted are given back by one descriptor that has the last
one's id; those that it receives in have lengths, and get one each.  Entries of a split ring are an eighth of a line, so
there each is written, which needs nothing of the driver.

In flight is what a call has taken and not given back, and nothing between calls.  If the process dies in one, its
chains were not used, and whoever comes next finds them from the used index on; so of the memory for buffers in flight
(:mod:`wirespeed.ports.virtio.inflight`) only the used index is written, behind the ring.  A packed ring has it nowhere else.

Bounds: places in the rings are below ``size``, which the session checked to be what is mapped there.

*Source:* virtio 1.2, 2.7.8, 2.7.9, 2.8.6 and 2.8.9.
"""

import numpy as np

from wirespeed.core.slots import copy_words
from wirespeed.jit.atomics import store_release
from wirespeed.jit.intrinsics import load_u64, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.dirty import mark
from wirespeed.ports.virtio.inflight import PackedFlight, SplitFlight
from wirespeed.ports.virtio.packed import AVAIL, USED_FLAG, PackedDescriptor
from wirespeed.ports.virtio.queue import USED, Virtqueue
from wirespeed.ports.virtio.split import DESCRIPTOR, ENTRIES, WRITE, Ring

i64, u64, u16, u32 = np.int64, np.uint64, np.uint16, np.uint32


@kernel(inline=True)
def push(q, chain, count, size):
    """Note a chain as used: its id, its descriptors (0 of a split ring), the bytes written."""
    # Bounds: the shadow has room for the most chains of a packet, which the callers see to.
    store_u64(q.shadow + USED * q.filled, u64(chain | count << 16 | size << 32))
    q.filled += 1


@kernel(inline=True)
def set_length(q, entry, size):
    """Say anew how many bytes were written into a chain that was noted."""
    store_u32(q.shadow + USED * entry + 4, u32(size))


@kernel
def _log_entries(queue, first, n):
    q = Virtqueue(queue)
    mark(queue, q.used_guest + u64(ENTRIES + USED * first), USED * n)


@kernel
def publish_split(queue):
    """Give the guest a split ring's used chains; whether there were any."""
    q = Virtqueue(queue)
    n, size = min(q.filled, q.size), q.size
    if n == 0:
        return False
    at = q.last_used & (size - 1)
    entries = q.used + ENTRIES
    first = min(n, size - at)
    copy_words(entries + USED * at, q.shadow, USED * first)
    copy_words(entries, q.shadow + USED * first, USED * (n - first))
    q.last_used = (q.last_used + n) & 0xFFFF
    q.filled = 0
    store_release(Ring(q.used), "idx", u16(q.last_used))  # U0
    if q.inflight != 0:
        SplitFlight(q.inflight).used_idx = q.last_used
    if q.log_used != 0:
        _log_entries(queue, at, first)
        _log_entries(queue, i64(0), n - first)
        mark(queue, q.used_guest, i64(ENTRIES))
    return True


@kernel(inline=True)
def _used_word(chain, size, wrap):
    flags = i64(AVAIL | USED_FLAG) if wrap != 0 else i64(0)
    if size != 0:
        flags |= WRITE
    return u64(size | chain << 32 | flags << 48)


@kernel
def _note_packed(q):
    flight = PackedFlight(q.inflight)
    flight.used_idx = q.last_used
    flight.used_wrap_counter = q.used_wrap
    flight.old_used_idx = q.last_used
    flight.old_used_wrap_counter = q.used_wrap


@kernel
def publish_packed(queue, last_only):
    """Give the guest a packed ring's used chains; whether there were any."""
    q = Virtqueue(queue)
    n = q.filled
    if n == 0:
        return False
    at, wrap, size = q.last_used, q.used_wrap, q.size
    first_at, first_word, skipped = at, u64(0), i64(0)
    for i in range(n):
        entry = i64(load_u64(q.shadow + USED * i) & u64(0x7FFFFFFFFFFFFFFF))
        chain, count, length = entry & 0xFFFF, entry >> 16 & 0xFFFF, entry >> 32
        if last_only:
            skipped += count
            if i < n - 1:
                continue
            count = skipped % size
            wrap ^= skipped // size & 1
            first_word = _used_word(chain, i64(0), q.used_wrap)
        elif i == 0:
            first_word = _used_word(chain, length, wrap)
        else:
            store_u64(q.desc + DESCRIPTOR * at + 8, _used_word(chain, length, wrap))
        if q.log_used != 0:
            mark(queue, q.used_guest + u64(DESCRIPTOR * at), i64(DESCRIPTOR))
        at += count
        if at >= size:
            at -= size
            wrap ^= 1
    q.last_used = at
    q.used_wrap = wrap
    q.filled = 0
    store_release(PackedDescriptor(q.desc + DESCRIPTOR * first_at), "word", first_word)  # U0
    if q.inflight != 0:
        _note_packed(q)
    return True


@kernel(inline=True)
def publish(queue, last_only):
    """Give the guest what was used, by its ring's format; whether there was anything."""
    return publish_packed(queue, last_only) if Virtqueue(queue).packed != 0 else publish_split(queue)
