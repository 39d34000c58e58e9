"""Checksums and segmentation that a sender left to be done: read from a virtio-net header, written into one, or done.

Theory of operation
-------------------
A packet with flag PARTIAL has a transport checksum that is still to be computed, and with ``gso_size`` it is a
super-frame that is still to be cut.  :func:`describe` makes one of what the kernel or a guest says in a virtio-net
header; all that it says is checked, for it may be hostile.  On the way such a packet is like any other.  A port whose
other side understands these headers says the same to it (:func:`announce`); one whose other side does not has it
done (:func:`complete` for one frame, :mod:`wirespeed.net.segmentation` for any).

What was said when the packet came in only tells *that* something is to be done and *where*.  Pseudo header and lengths
are taken from the headers as they are at the end, so functions may change addresses and ports, put tags and tunnels
before them, and lengthen or shorten what is behind.  What the checksum field holds meanwhile means nothing.

SCTP's checksum, which the kernel leaves to be done in the same way, is a CRC that no virtio-net header can ask for:
:func:`announce` does it itself.  Something else that is to be summed is neither TCP nor UDP nor SCTP: then the field
holds the sum of what is not covered, and is left alone until the sum is completed.

Thread rules: who completes or announces a packet is alone with it, for its bytes are written.

*Source:* virtio 1.2, 5.1.6.2 and 5.1.6.4; RFC 1071; Linux, ``skb_checksum_help``.
"""

import numpy as np

from wirespeed.core.chain import copy_in
from wirespeed.core.packet import PARTIAL, Packet, copy_out
from wirespeed.jit.intrinsics import copy, fill, load_be16, load_u8, load_u16, stack, store_be16, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import crc32c_bytes, l4_sum, machine_sum, udp_sent
from wirespeed.net.layer import SCTP, TCP, UDP
from wirespeed.net.outline import ANYWHERE, Outline, field_place, outline, pseudo_sum
from wirespeed.net.virtio_net import (
    GSO_ECN,
    GSO_NONE,
    GSO_TCPV4,
    GSO_TCPV6,
    GSO_UDP,
    GSO_UDP_L4,
    NEEDS_CSUM,
    VirtioNetHeader,
)

u8, u16, u32, i64, u64 = np.uint8, np.uint16, np.uint32, np.int64, np.uint64
HEADER = VirtioNetHeader.size
CWR = 0x80  # in TCP's byte of flags
BY_FRAGMENTS = 0xFFFF  # no size: the kernel's sign for something else, which it refuses

# What kernels that make several packets of one return when they made none: the packet is still the caller's.
NO_PACKET = 0  # the pool has too few packets
BAD_OFFLOAD = -1  # the headers do not have what is to be done
TOO_LONG = -2  # one that is made would be too long, or there would be too many
NEEDS_FRAGMENT = -3  # it would have to be fragmented and says that it must not be

DROPS = {
    "bad_offload": "A checksum or segmentation that was left to be done does not fit the packet's headers",
    "too_long": "The frame, or what it is to be cut into, is longer or more than can be sent",
    "no_packet": "The pool had no packets for the frames to be made",
}
"""Why a packet with flag PARTIAL may be dropped; ports take these into their own reasons."""


@kernel(inline=True)
def read16(handle, offset):
    """Two bytes at an offset of a packet, which has them, as a number in the machine's order."""
    p = Packet(handle)
    if offset + 2 <= i64(p.length):
        return load_u16(p.buffer + i64(p.data) + offset)
    at = stack(8)
    copy_out(handle, offset, i64(2), at)
    return load_u16(at)


@kernel(inline=True)
def write16(handle, offset, value):
    """Write a number of two bytes in network order at an offset of a packet, which has them."""
    p = Packet(handle)
    if offset + 2 <= i64(p.length):
        store_be16(p.buffer + i64(p.data) + offset, value)
    else:
        at = stack(8)
        store_be16(at, value)
        copy_in(handle, offset, i64(2), at)


@kernel
def range_sum(handle, offset, size):
    """The machine's sum of ``size`` bytes from an offset of a packet, which has them, across its segments."""
    total, done = u64(0), i64(0)
    while handle != 0 and done < size:
        p = Packet(handle)
        length = i64(p.length)
        if offset < length:
            run = min(length - offset, size - done)
            part = machine_sum(p.buffer + i64(p.data) + offset, run)
            part = (part >> u64(32)) + (part & u64(0xFFFFFFFF))  # of 33 bits, so that 65,535 of them, shifted, fit
            total += part << u64(8) if done & 1 else part  # a byte further on, its words have their bytes exchanged
            done += run
            offset = i64(0)
        else:
            offset -= length
        handle = p.next
    return total


@kernel
def range_crc(handle, offset, size):
    """CRC-32C, not inverted, of ``size`` bytes from an offset of a packet, across its segments."""
    value, done = u32(0xFFFFFFFF), i64(0)
    while handle != 0 and done < size:
        p = Packet(handle)
        length = i64(p.length)
        if offset < length:
            run = min(length - offset, size - done)
            value = crc32c_bytes(value, p.buffer + i64(p.data) + offset, run)
            done += run
            offset = i64(0)
        else:
            offset -= length
        handle = p.next
    return value


@kernel
def _complete_crc(handle, o):
    """Write the checksum of an SCTP packet."""
    at = stack(8)
    store_u32(at, u32(0))
    copy_in(handle, o.l4 + 8, i64(4), at)
    store_u32(at, u32(~range_crc(handle, o.l4, o.end - o.l4)))  # lowest byte first: RFC 9260, appendix A
    copy_in(handle, o.l4 + 8, i64(4), at)


@kernel
def complete_found(handle, o):
    """Write the transport checksum of a packet by its :data:`Outline`."""
    if o.kind == SCTP:
        _complete_crc(handle, o)
        return
    place, size = o.l4 + field_place(o.kind), o.end - o.l4
    without = u64(read16(handle, place) ^ u16(0xFFFF))  # as in l4_checksum: the field counts as 0
    total = range_sum(handle, o.l4, size) + pseudo_sum(o, size) + without
    value = l4_sum(i64(0), i64(0), total) ^ 0xFFFF
    write16(handle, place, udp_sent(value) if o.kind == UDP else value)


@kernel(inline=True)
def partial_start(p):
    """Where the sum of a packet with flag PARTIAL begins, negative if before its first byte."""
    return i64(p.total) - i64(p.csum_tail)


@kernel
def _in_bounds(p):
    """Whether the field that a packet names lies in it, and behind where the sum begins."""
    start = partial_start(p)
    return start >= 0 and i64(p.csum_offset) + 2 <= i64(p.csum_tail)


@kernel
def complete(handle):
    """Compute the checksum of one frame, and clear its flag; False, and nothing changed, when the packet is damaged.

    ``gso_size`` is not looked at: what is to be cut is for :func:`wirespeed.net.segmentation.segment`.
    """
    p, o = Packet(handle), Outline(stack(1152))
    if not p.flags & PARTIAL:
        return True
    start, place = partial_start(p), i64(p.csum_offset)
    if outline(handle, o, start, place, False):
        complete_found(handle, o)
    elif _in_bounds(p):
        total = range_sum(handle, start, i64(p.csum_tail))
        write16(handle, start + place, udp_sent(l4_sum(i64(0), i64(0), total) ^ 0xFFFF))
    else:
        return False
    p.flags = u16(p.flags & ~PARTIAL)
    return True


@kernel
def unready(handle):
    """Say of a frame that its transport checksum is not there yet, where nobody told which; whether it has one."""
    p, o = Packet(handle), Outline(stack(1152))
    if not outline(handle, o, i64(ANYWHERE), i64(0), False):
        return False
    _set_partial(p, o.l4, field_place(o.kind), i64(0), i64(GSO_NONE))
    return True


@kernel(inline=True)
def _set_partial(p, start, place, size, kind):
    p.flags = u16(p.flags | PARTIAL)
    p.csum_tail = u32(i64(p.total) - start)
    p.csum_offset = u32(place)
    p.gso_size = u16(size)
    p.gso_type = u16(kind)


@kernel(inline=True)
def _suits(kind, gso):
    """Whether a transport header is what a kind of segmentation cuts."""
    return kind == TCP if gso == GSO_TCPV4 or gso == GSO_TCPV6 else kind == UDP


@kernel
def _describe(handle, h):
    """:func:`describe` for a header that says that something is to be done."""
    p, o = Packet(handle), Outline(stack(1152))
    gso = i64(h.gso_type) & ~GSO_ECN
    cut = gso != GSO_NONE
    known = gso == GSO_TCPV4 or gso == GSO_TCPV6 or gso == GSO_UDP or gso == GSO_UDP_L4
    if cut and (not known or h.gso_size == 0 or h.gso_size == BY_FRAGMENTS):
        return False
    start, place = i64(ANYWHERE), i64(0)
    if h.flags & NEEDS_CSUM:
        start, place = i64(h.csum_start), i64(h.csum_offset)
        if start + place + 2 > i64(p.total):
            return False
    if cut:
        if not outline(handle, o, start, place, True) or not _suits(o.kind, gso):
            return False
        if start != ANYWHERE and o.l4 != start:
            return False
        start, place = o.l4, field_place(o.kind)
    _set_partial(p, start, place, i64(h.gso_size) if cut else i64(0), gso)
    return True


@kernel(inline=True)
def describe(handle, header, size):
    """Take what a virtio-net header of ``size`` bytes says into the packet; False, and nothing changed, if it cannot be.

    The header's address may be that of memory which somebody else writes to: it is copied first.
    """
    p = Packet(handle)
    p.flags = u16(p.flags & ~PARTIAL)
    if size < HEADER:
        return False
    if not load_u8(header) & NEEDS_CSUM and load_u8(header + 1) == GSO_NONE:
        return True
    return _describe_copy(handle, header)


@kernel
def _describe_copy(handle, header):
    own = stack(16)
    copy(own, header, i64(HEADER))
    h = VirtioNetHeader(own)
    if not h.flags & NEEDS_CSUM and h.gso_type == GSO_NONE:
        return True
    return _describe(handle, h)


@kernel
def _announce(handle, h):
    """:func:`announce` for a packet with flag PARTIAL."""
    p, o = Packet(handle), Outline(stack(1152))
    cut = p.gso_size != 0
    start, place = partial_start(p), i64(p.csum_offset)
    if not outline(handle, o, start, place, cut):
        if cut or not _in_bounds(p):
            return False
        h.flags = NEEDS_CSUM
        h.csum_start = u16(start)
        h.csum_offset = u16(place)
        return start <= 0xFFFF and place <= 0xFFFF
    if cut and not _suits(o.kind, i64(p.gso_type)):
        return False
    if o.kind == SCTP:
        return complete(handle)
    size = o.end - o.l4
    place = field_place(o.kind)
    write16(handle, o.l4 + place, l4_sum(i64(0), i64(0), pseudo_sum(o, size)))
    h.flags = NEEDS_CSUM
    h.csum_start = u16(o.l4)
    h.csum_offset = u16(place)
    if cut and o.end - o.payload > i64(p.gso_size):
        h.gso_size = p.gso_size
        h.hdr_len = u16(o.payload)
        h.gso_type = u8(_gso_type(o, i64(p.gso_type)))
    return True


@kernel
def _gso_type(o, gso):
    """How the kind of segmentation is called for the headers as they are now."""
    if o.kind == UDP:
        return gso
    kind = i64(GSO_TCPV4) if o.version == 4 else i64(GSO_TCPV6)
    return kind | GSO_ECN if load_be16(o.head + o.l4 + 12) & CWR else kind


@kernel(inline=True)
def announce(handle, header):
    """Write the 10 bytes of a virtio-net header that say what is still to be done; False when the packet is damaged.

    The checksum field of a packet with flag PARTIAL gets the pseudo header's sum, and the packet keeps its flag.  After
    False the header says that nothing is to be done, which is not so: the packet is to be dropped as bad_offload.
    """
    fill(header, 0, i64(HEADER))
    if not Packet(handle).flags & PARTIAL:
        return True
    if _announce(handle, VirtioNetHeader(header)):
        return True
    fill(header, 0, i64(HEADER))
    return False
