"""VLAN tags and MPLS labels put on and taken off: the bytes before them move, the packet grows or shrinks in front.

Theory of operation
-------------------
All of it is done on a packet that is the caller's alone, with its headers in its first segment.  One without room in
front is copied into one that has it.  A checksum that is still to be computed is noted by its distance from the end, so
nothing of it changes.
"""

import numpy as np

from wirespeed.core.clone import copy_packet
from wirespeed.core.free import free_segments
from wirespeed.core.packet import Packet, adjust, data, prepend
from wirespeed.jit.intrinsics import (
    load_be16,
    load_be32,
    load_u32,
    load_u64,
    move,
    store_be16,
    store_be32,
    store_u32,
    store_u64,
)
from wirespeed.jit.kernel import kernel
from wirespeed.switch.execute.headers import network
from wirespeed.switch.extract import is_tag
from wirespeed.switch.fields import MPLS, MPLS_MULTICAST, TCI_PRESENT

i64 = np.int64


@kernel
def _copy_with_room(cache, handle, before):
    new = copy_packet(cache, handle, i64(0), i64(Packet(handle).total))
    if new != 0:
        free_segments(cache, handle)
        if i64(Packet(new).length) >= before:
            prepend(new, i64(4))  # a copy has the usual headroom
    return new


@kernel(inline=True)
def _grow(cache, handle, before):
    """The packet, or a copy in its place, with four bytes more in front; 0, and it is as it was, without a packet.

    A copy whose first segment has not the ``before`` bytes that are to move has no more bytes either.
    """
    if prepend(handle, i64(4)):
        return handle
    return _copy_with_room(cache, handle, before)


@kernel(inline=True)
def push_tag(cache, handle, tpid, tci):
    """Put a tag behind the addresses; the packet, or a copy in its place, or 0 when there was none."""
    if i64(Packet(handle).length) < 14:
        return handle
    handle = _grow(cache, handle, i64(14))
    if handle != 0 and i64(Packet(handle).length) >= 18:
        frame = data(Packet(handle))
        # Bounds: 18 bytes; the addresses move to the front by 8 and 4 bytes.
        store_u64(frame, load_u64(frame + 4))
        store_u32(frame + 8, load_u32(frame + 12))
        store_be16(frame + 12, tpid)
        store_be16(frame + 14, i64(tci) & ~TCI_PRESENT)
    return handle


@kernel(inline=True)
def pop_tag(handle):
    """Take the first tag off, if there is one."""
    p = Packet(handle)
    frame = data(p)
    if i64(p.length) < 18 or not is_tag(load_be16(frame + 12)):
        return
    # Bounds: within 16 of 18 bytes; the second half of the addresses first, for it is written over.
    store_u32(frame + 12, load_u32(frame + 8))
    store_u64(frame + 4, load_u64(frame))
    adjust(handle, i64(4))


@kernel(inline=True)
def _put_type(frame, net, kind):
    """Change the type: before what is behind the tags, or where the frame has no tags in its own place."""
    at = net - 2 if is_tag(load_be16(frame + 12)) else i64(12)
    store_be16(frame + at, kind)


@kernel
def push_label(cache, handle, kind, entry):
    """Put a label before what is behind the tags; the packet, or a copy in its place, or 0 when there was none."""
    p = Packet(handle)
    if i64(p.length) < 14:
        return handle
    _, net = network(data(p), i64(p.length))
    handle = _grow(cache, handle, net)
    if handle != 0 and i64(Packet(handle).length) >= net + 4:
        frame = data(Packet(handle))
        # Bounds: ``net`` bytes are there behind the four new ones.
        move(frame, frame + 4, net)
        _put_type(frame, net, kind)
        store_be32(frame + net, entry)
    return handle


@kernel
def pop_label(handle, kind):
    """Take the first label off, if there is one: what is behind it is of type ``kind``."""
    p = Packet(handle)
    if i64(p.length) < 14:
        return
    frame = data(p)
    found, net = network(frame, i64(p.length))
    if (found == MPLS or found == MPLS_MULTICAST) and i64(p.length) - net >= 4:
        _put_type(frame, net, kind)
        move(frame + 4, frame, net)
        adjust(handle, i64(4))


@kernel
def decrement_label_ttl(handle):
    """Take one from the time to live of the first label, if there is one that has any."""
    p = Packet(handle)
    if i64(p.length) < 14:
        return
    frame = data(p)
    found, net = network(frame, i64(p.length))
    if (found == MPLS or found == MPLS_MULTICAST) and i64(p.length) - net >= 4:
        entry = i64(load_be32(frame + net))
        if entry & 0xFF:
            store_be32(frame + net, entry - 1)
