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

SCTP's checksum, which the kernel leaves to be done in the same way, is a CRC that no virtio-net header can ask for, and
neither can one ask for those of a tunnel and of what is in it: :func:`announce` has both done.  Something else that is
to be summed is neither TCP nor UDP nor SCTP: then the field holds the sum of what is not covered, and is left alone
until the sum is completed.

Thread rules: who completes or announces a packet is alone with it, for its bytes are written.

*Source:* virtio 1.2, 5.1.6.2 and 5.1.6.4; RFC 1071; Linux, ``skb_checksum_help``.
"""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.jit.intrinsics import copy, fill, load_be16, load_u8, stack
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import l4_sum
from wirespeed.net.completion import complete, in_bounds, is_tunnelled, partial_start, write16
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
        if cut or not in_bounds(p):
            return False
        h.flags = NEEDS_CSUM
        h.csum_start = u16(start)
        h.csum_offset = u16(place)
        return start <= 0xFFFF and place <= 0xFFFF
    if cut and not _suits(o.kind, i64(p.gso_type)):
        return False
    cut = cut and o.end - o.payload > i64(p.gso_size)
    if o.kind == SCTP or is_tunnelled(o):
        return not cut and complete(handle)
    size = o.end - o.l4
    place = field_place(o.kind)
    write16(handle, o.l4 + place, l4_sum(i64(0), i64(0), pseudo_sum(o, size)))
    h.flags = NEEDS_CSUM
    h.csum_start = u16(o.l4)
    h.csum_offset = u16(place)
    if cut:
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
    """Write the 10 bytes of a virtio-net header that say what is still to be done; False when they cannot say it.

    The checksum field of a packet with flag PARTIAL gets the pseudo header's sum, and the packet keeps its flag; what a
    header cannot say of one frame is done at once.  After False the header says that nothing is to be done, which is not
    so: the packet is a super-frame in a tunnel, or damaged, which :func:`wirespeed.net.segmentation.segment` tells apart.
    """
    fill(header, 0, i64(HEADER))
    if not Packet(handle).flags & PARTIAL:
        return True
    if _announce(handle, VirtioNetHeader(header)):
        return True
    fill(header, 0, i64(HEADER))
    return False
