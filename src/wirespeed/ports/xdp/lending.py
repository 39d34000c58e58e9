"""Packets lent to the kernel to be sent: put into the transmit ring, sent, and freed when they come back.

A packet that is the pool's own and nobody else's is lent as it is, a chain as several descriptors where the socket may have
such packets; each segment then comes back by itself.

Thread rule: the worker whose socket it is.  X2, the releasing store of the transmit ring's producer, keeps the frames
and descriptors before it; X3, that of the completion ring's consumer, the reading of what stood there.
"""

import numpy as np

from wirespeed.core.free import free_bulk, free_segment
from wirespeed.core.packet import PARTIAL, SHOWING, SPECIAL, Packet, refcnt
from wirespeed.core.pool import RECORD
from wirespeed.jit.atomics import store_release
from wirespeed.jit.intrinsics import load_u8, load_u64, stack, store_i64, store_u8
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address
from wirespeed.jit.libc import sys_send
from wirespeed.ports.xdp.ring import (
    BATCH,
    CONTINUED,
    DESCRIPTOR,
    LAST,
    OFFSET_SHIFT,
    OURS,
    PART,
    SINGLE,
    Descriptor,
    Word,
    filled_slots,
    free_slots,
    handle_of,
    needs_wakeup,
    number_of,
)

u32, i64, u64 = np.uint32, np.int64, np.uint64
FRAME_LIMIT = 17  # frames of one packet: MAX_SKB_FRAGS, include/linux/skbuff.h


@kernel
def unsent(s):
    """How many packets stand in the ring that the kernel has not looked at yet."""
    q = s.tx
    n = i64(0)
    for i in range(q.length - free_slots(q)):
        d = Descriptor(q.entries + DESCRIPTOR * i64(u32(q.mine - u32(1 + i)) & q.mask))
        n += d.options & CONTINUED == 0
    return n


@kernel(inline=True)
def is_looked_at(s):
    """Whether what the kernel has for sending need not be waited for at the end: it was copied, and waits in a queue."""
    return s.zero_copy == 0 and free_slots(s.tx) == s.tx.length


@kernel
def reap(cache, s):
    """Free what the kernel has sent."""
    q = s.completion
    left = filled_slots(q)
    handles = stack(512)  # Bounds: BATCH handles
    mask, entries, marks, size = q.mask, q.entries, s.marks, u64(s.size)
    while left > 0:
        mine, n, singles = q.mine, min(left, i64(BATCH)), i64(0)
        for i in range(n):
            handle = handle_of(s, load_u64(entries + 8 * i64(u32(mine + u32(i)) & mask)))
            number = number_of(s, handle)
            # Bounds: the kernel's number is looked at first, so the mark is one of the table.
            mark = i64(load_u8(marks + i64(number))) if number < size else i64(OURS)
            if mark < SINGLE:
                s.invalid += u64(1)
                continue
            store_u8(marks + i64(number), OURS)
            if mark == SINGLE:
                store_i64(handles + 8 * singles, handle)
                singles += 1
            else:
                free_segment(cache, handle)
            s.sending -= i64(mark != PART)
        q.mine = u32(mine + u32(n))
        store_release(Word(q.consumer), "value", q.mine)  # X3
        free_bulk(cache, handles, singles)
        left -= n


@kernel(inline=True)
def put(s, slot, p, mark, options):
    """Write one descriptor, and note that the kernel has the frame."""
    handle = address(p)
    store_u8(s.marks + i64(number_of(s, handle)), mark)  # Bounds: a packet of the socket's pool
    q = s.tx
    d = Descriptor(q.entries + DESCRIPTOR * i64(slot & q.mask))
    d.address = u64(handle - s.base) | (u64(p.data) + u64(RECORD)) << u64(OFFSET_SHIFT)
    d.length = p.length
    d.options = options


@kernel
def put_chain(s, slot, handle):
    """Write the descriptors of a chain; for their number there is room."""
    while handle != 0:
        p = Packet(handle)
        following = p.next
        if following == 0:
            put(s, slot, p, LAST, u32(0))
        else:
            put(s, slot, p, PART, u32(CONTINUED))
        slot = u32(slot + u32(1))
        handle = following


@kernel(inline=True)
def is_plain(s, p):
    """Whether a packet can go as it is, as one frame."""
    odd = (p.next | (p.pool ^ s.pool)) != 0
    return not odd and p.refcnt == 1 and p.flags & (SPECIAL | PARTIAL) == 0


@kernel
def can_go(s, handle):
    """Whether each segment of a packet can be a frame: the pool's own, alone, not empty, and not too many of them."""
    n = i64(0)
    while handle != 0:
        p = Packet(handle)
        if p.pool != s.pool or refcnt(handle) != 1 or p.flags & SHOWING or p.length == 0:
            return False
        n += 1
        handle = p.next
    return n == 1 or (s.several != 0 and n <= FRAME_LIMIT)


@kernel
def send(s):
    """Have the kernel send what is in the ring, if it wants to be told, for as long as it takes something."""
    q = s.tx
    room = free_slots(q)
    while room < q.length and needs_wakeup(q):
        s.wakeups += u64(1)
        if sys_send(s.fd, i64(0), i64(0)) < 0:
            s.busy += u64(1)
        before, room = room, free_slots(q)
        if room == before:
            break
