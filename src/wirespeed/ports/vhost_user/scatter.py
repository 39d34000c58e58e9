"""One packet into the guest's buffers, whatever it and they are: the way of those that are not plain.

Theory of operation
-------------------
Buffers are taken until the packet and its header fit: one chain, or with MRG_RXBUF as many as it needs.  Then the
header is written, with how many they were, and the packet behind it.  Neither needs to begin or end where a descriptor
does.

A chain that cannot be used is given back with length 0, and with it those that were taken for the packet before it,
for the driver takes the buffers of a packet one behind the other; then the packet is tried anew.  So a bad chain is
seen once.  Where there are too few buffers nothing was taken.

A driver without MRG_RXBUF gives buffers of one size: a packet too long for one is too long for all (``TOO_LONG``), and
the buffer stays for the next packet.  But one that does not even take an ordinary frame is a bad one.  That way no
buffer can be in the way for ever.

*Source:* virtio 1.2, 5.1.6.3 and 5.1.6.4.
"""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet, data
from wirespeed.jit.intrinsics import fill, stack
from wirespeed.jit.kernel import kernel
from wirespeed.net.excerpt import is_alone
from wirespeed.net.offload import HEADER, announce
from wirespeed.net.virtio_net import GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VirtioNetHeader1
from wirespeed.ports.vhost_user.chain import take
from wirespeed.ports.vhost_user.dirty import mark
from wirespeed.ports.vhost_user.notify import is_available_packed
from wirespeed.ports.vhost_user.pieces import put
from wirespeed.ports.vhost_user.split_available import available
from wirespeed.ports.vhost_user.used import set_length
from wirespeed.ports.virtio.queue import (
    LONG,
    MOST_PIECES,
    NO_BUFFERS,
    PIECE,
    SHORT,
    TO_CUT,
    TOO_LONG,
    Piece,
    Virtqueue,
    refuse,
)

i64, u64 = np.int64, np.uint64
MOST_BAD = 32  # chains that are refused in one call, lest a guest hold up a worker
FRAME = 1514  # bytes of the largest ordinary frame


@kernel
def can_say(queue, handle, header):
    """Write a packet's header; whether this guest takes what it says."""
    q, h = Virtqueue(queue), VirtioNetHeader1(header).header
    if Packet(handle).flags & PARTIAL == 0:
        fill(header, 0, i64(HEADER))
        return True
    if not is_alone(handle) or not announce(handle, header):
        return False
    gso = h.gso_type
    if h.flags & NEEDS_CSUM and q.guest_csum == 0:
        return False
    if gso & GSO_ECN and q.guest_ecn == 0:
        return False
    gso &= ~GSO_ECN
    if gso == GSO_TCPV4:
        return q.guest_tso4 != 0
    if gso == GSO_TCPV6:
        return q.guest_tso6 != 0
    if gso == GSO_UDP_L4:
        return q.guest_uso != 0
    return gso == GSO_NONE


@kernel
def is_available(queue):
    """Whether the guest has given a chain."""
    q = Virtqueue(queue)
    return is_available_packed(q) if q.packed != 0 else available(queue, i64(1)) != 0


@kernel
def _reserve_once(queue, size):
    """Take chains for ``size`` bytes; how many, or 0 when it is to be tried anew, -1 when not."""
    q = Virtqueue(queue)
    avail, wrap, filled = q.last_avail, q.avail_wrap, q.filled
    n, total, chains = i64(0), i64(0), i64(0)
    while total < size:
        if not is_available(queue) or chains == MOST_PIECES:
            if q.broken == 0:
                q.stop = i64(TOO_LONG if chains == q.size or chains == MOST_PIECES else NO_BUFFERS)
            break
        entry, first = q.filled, n
        n, room = take(queue, n, True)
        if q.broken != 0:
            return i64(-1)
        if n == -1 - LONG and first > 0:
            q.stop = i64(TOO_LONG)
            break
        reason = -1 - n
        if n >= 0 and (room == 0 or (q.mergeable == 0 and room < size)):
            if room >= q.header + FRAME:
                q.stop = i64(TOO_LONG)
                break
            reason = i64(SHORT)
        if n < 0 or reason == SHORT:
            refuse(queue, reason)
            q.bad += 1
            for i in range(filled, q.filled):
                set_length(q, i64(i), i64(0))
            return i64(0)
        set_length(q, entry, min(room, size - total))
        total += room
        chains += 1
    if total >= size:
        return chains
    q.last_avail = avail
    q.avail_wrap = wrap
    q.filled = filled
    return i64(-1)


@kernel
def reserve(queue, size):
    """Take chains for ``size`` bytes into the queue's pieces; how many, or 0, and ``stop`` says why.

    The shadow must have room for MOST_PIECES entries; so must what is left when bad chains took some of it.
    """
    q = Virtqueue(queue)
    while q.bad < MOST_BAD and q.filled <= MOST_PIECES:
        chains = _reserve_once(queue, size)
        if chains != 0:
            return max(chains, i64(0))
    q.stop = i64(NO_BUFFERS)
    return i64(0)


@kernel
def _log(queue, size):
    q, k = Virtqueue(queue), i64(0)
    while size > 0:
        piece = Piece(q.pieces + PIECE * k)
        mark(queue, piece.guest, min(piece.size, size))
        size -= piece.size
        k += 1


@kernel
def scatter(queue, handle):
    """Copy a packet to the guest; whether it was, and if not ``stop`` says why."""
    q = Virtqueue(queue)
    header = stack(16)
    size = q.header + i64(Packet(handle).total)
    if not can_say(queue, handle, header):
        q.stop = i64(TO_CUT)
        return False
    chains = reserve(queue, size)
    if chains == 0:
        return False
    VirtioNetHeader1(header).num_buffers = chains
    pieces = q.pieces
    at, offset = put(pieces, i64(0), i64(0), header, q.header)
    segment = handle
    while segment != 0:
        p = Packet(segment)
        at, offset = put(pieces, at, offset, data(p), i64(p.length))
        segment = p.next
    if q.log != 0:
        _log(queue, size)
    q.packets += u64(1)
    q.bytes += u64(size - q.header)
    return True
