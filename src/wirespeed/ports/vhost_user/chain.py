"""A chain of descriptors, of either format, into pieces of memory: each word read once, and checked before it is used.

Theory of operation
-------------------
:func:`take` takes the next available chain, notes it as used with all the room or bytes that it has, and appends its
pieces to those of the queue.  It always goes on by one chain, so a bad one is seen once and given back; the caller
says with which length.  What cannot be gone on from, a chain of a packed ring that has no end, breaks the ring.

A loop ends by a count: a chain has at most as many descriptors as the ring, and no more than MOST_PIECES, so that many
bad ones cannot hold up a worker.  An indirect table has at most as many entries as the ring.  The entries of one that
crosses from a region into the next are read one by one through :func:`to_host`.

The guest may change any of it meanwhile.  Words are read by relaxed atomic loads into locals, which the compiler does
not repeat.  A chain of direct descriptors is read as far as it goes whatever is wrong in it, where its end must be known.

*Source:* virtio 1.2, 2.7.5, 2.7.13, 2.8.5 to 2.8.8; CVE-2020-14374 and following.
"""

import numpy as np

from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import copy, stack
from wirespeed.jit.kernel import kernel
from wirespeed.ports.vhost_user.pieces import add
from wirespeed.ports.vhost_user.used import push
from wirespeed.ports.virtio.queue import (
    BAD_INDEX,
    DIRECTION,
    LONG,
    LOOP,
    MOST_PIECES,
    UNMAPPED,
    Virtqueue,
    break_ring,
)
from wirespeed.ports.virtio.queue import INDIRECT as BAD_INDIRECT
from wirespeed.ports.virtio.region import to_host
from wirespeed.ports.virtio.split import DESCRIPTOR, ENTRIES, INDIRECT, NEXT, WRITE, Entry, SplitDescriptor

i64, u64 = np.int64, np.uint64
LOW, HALF = 0xFFFFFFFF, 0xFFFF


@kernel
def _fetch(queue, guest, own):
    """Copy a descriptor of an indirect table, which may cross regions, to ``own``; whether all of it is mapped."""
    q, done = Virtqueue(queue), i64(0)
    while done < DESCRIPTOR:
        host, mapped = to_host(q.regions, guest + u64(done), DESCRIPTOR - done)
        if mapped == 0:
            return False
        copy(own + done, host, mapped)
        done += mapped
    return True


@kernel
def _walk_table(queue, guest, size, n, writable):
    """Append the buffers of an indirect table; (pieces there are now or -1 - reason, bytes).

    A packed ring's table is its entries in order; a split one's is a chain of its own.
    """
    q = Virtqueue(queue)
    length = size // DESCRIPTOR
    if q.indirect == 0 or size % DESCRIPTOR != 0 or length == 0 or length > q.size:
        return i64(-1 - BAD_INDIRECT), i64(0)
    host, mapped = to_host(q.regions, guest, size)
    own = stack(16)
    index, total = i64(0), i64(0)
    for hop in range(length):
        if hop == MOST_PIECES:
            return i64(-1 - LONG), i64(0)
        at = host + DESCRIPTOR * index  # Bounds: index is less than length.
        if mapped < size:
            at = own
            if not _fetch(queue, guest + u64(DESCRIPTOR * index), own):
                return i64(-1 - UNMAPPED), i64(0)
        word = load_relaxed(SplitDescriptor(at), "word")
        address = load_relaxed(SplitDescriptor(at), "address")
        buffer, flags = i64(word & u64(LOW)), i64(word >> u64(48) if q.packed != 0 else word >> u64(32)) & HALF
        if flags & INDIRECT:
            return i64(-1 - BAD_INDIRECT), i64(0)
        if (flags & WRITE != 0) != writable:
            return i64(-1 - DIRECTION), i64(0)
        n = add(queue, n, address, buffer)
        if n < 0:
            return n, i64(0)
        total += buffer
        if q.packed != 0:
            index += 1
        elif flags & NEXT:
            index = i64(word >> u64(48))
            if index >= length:
                return i64(-1 - BAD_INDEX), i64(0)
        else:
            return n, total
    return (n, total) if q.packed != 0 else (i64(-1 - LOOP), i64(0))


@kernel
def _walk_split(queue, head, n, writable):
    """Append the buffers of a split ring's chain; (pieces there are now or -1 - reason, bytes)."""
    q = Virtqueue(queue)
    index, total = head, i64(0)
    for hop in range(q.size):
        if index >= q.size:
            return i64(-1 - BAD_INDEX), i64(0)
        if hop == MOST_PIECES:
            return i64(-1 - LONG), i64(0)
        d = SplitDescriptor(q.desc + DESCRIPTOR * index)
        word, address = load_relaxed(d, "word"), load_relaxed(d, "address")
        buffer, flags = i64(word & u64(LOW)), i64(word >> u64(32)) & HALF
        if flags & INDIRECT:
            if flags & NEXT:
                return i64(-1 - BAD_INDIRECT), i64(0)
            n, more = _walk_table(queue, address, buffer, n, writable)
            return n, total + more
        if (flags & WRITE != 0) != writable:
            return i64(-1 - DIRECTION), i64(0)
        n = add(queue, n, address, buffer)
        if n < 0:
            return n, i64(0)
        total += buffer
        if flags & NEXT == 0:
            return n, total
        index = i64(word >> u64(48))
    return i64(-1 - LOOP), i64(0)


@kernel(inline=True)
def next_head(q):
    """The next head that a split ring's driver made available, which may be any number of 16 bits."""
    return i64(load_relaxed(Entry(q.avail + ENTRIES + 2 * (q.last_avail & (q.size - 1))), "id"))


@kernel
def _take_split(queue, n, writable):
    q = Virtqueue(queue)
    head = next_head(q)
    n, total = _walk_split(queue, head, n, writable)
    push(q, head, i64(0), i64(0))
    q.last_avail = (q.last_avail + 1) & HALF
    return n, total


@kernel(inline=True)
def step(q):
    """Go on by one descriptor of a packed ring."""
    at = q.last_avail + 1
    if at == q.size:
        at = i64(0)
        q.avail_wrap ^= 1
    q.last_avail = at


@kernel
def _take_packed(queue, n, writable):
    q = Virtqueue(queue)
    index, wrap, total, chain = q.last_avail, q.avail_wrap, i64(0), i64(0)
    for hop in range(q.size):
        d = SplitDescriptor(q.desc + DESCRIPTOR * index)
        word, address = load_relaxed(d, "word"), load_relaxed(d, "address")
        buffer, chain, flags = i64(word & u64(LOW)), i64(word >> u64(32)) & HALF, i64(word >> u64(48))
        index += 1
        if index == q.size:
            index = i64(0)
            wrap ^= 1
        if n >= 0:
            if flags & INDIRECT:
                if flags & NEXT or hop != 0:
                    n = i64(-1 - BAD_INDIRECT)
                else:
                    n, total = _walk_table(queue, address, buffer, n, writable)
            elif (flags & WRITE != 0) != writable:
                n = i64(-1 - DIRECTION)
            elif hop == MOST_PIECES:
                n = i64(-1 - LONG)
            else:
                n = add(queue, n, address, buffer)
                total += buffer
        if flags & NEXT == 0:
            q.last_avail = index
            q.avail_wrap = wrap
            push(q, chain, hop + 1, i64(0))
            return n, total
    break_ring(queue, i64(LOOP))
    return i64(-1 - LOOP), i64(0)


@kernel
def take(queue, n, writable):
    """Take the next chain and append its pieces to the first ``n``; (pieces there are now or -1 - reason, bytes).

    The guest must have made one available.  It is noted as used, with length 0, unless the ring is broken by it.
    """
    if Virtqueue(queue).packed != 0:
        return _take_packed(queue, n, writable)
    return _take_split(queue, n, writable)
