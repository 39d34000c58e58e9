"""Completing a packet: the checksum that its sender left to be done is computed in place, however its bytes lie.

A machine's sum (see :mod:`wirespeed.net.checksum`) of bytes across segments is that of each piece, with the bytes of its
words exchanged where the piece begins at an odd place (RFC 1071, 2.B).

Thread rules: who completes a packet is alone with it.

*Source:* RFC 1071; RFC 768 (UDP's zero); RFC 9260, appendix A (SCTP); Linux, ``skb_checksum_help``.
"""

import numpy as np

from wirespeed.core.chain import copy_in
from wirespeed.core.packet import PARTIAL, Packet, copy_out
from wirespeed.jit.intrinsics import load_be16, load_u8, load_u16, stack, store_be16, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import crc32c_bytes, l4_sum, machine_sum, udp_sent
from wirespeed.net.layer import GRE, IPV4, IPV6, SCTP, UDP, Layer
from wirespeed.net.outline import LAYER, Outline, field_place, outline, pseudo_sum

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64


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


@kernel
def is_tunnelled(o):
    """Whether there is another IP header before the one around the transport header."""
    for i in range(o.count):
        layer = Layer(o.layers + LAYER * i)
        if i64(layer.offset) < o.l3 and (layer.kind == IPV4 or layer.kind == IPV6):
            return True
    return False


@kernel
def _complete_tunnels(handle, o):
    """:func:`complete_tunnels` for a packet that is in one."""
    l3, version, l4, kind, count, end = o.l3, o.version, o.l4, o.kind, o.count, o.end
    for j in range(1, count):
        o.count = count - j
        layer = Layer(o.layers + LAYER * (o.count - 1))
        o.l4, o.end = i64(layer.offset), end
        if layer.kind == GRE and load_u8(o.head + o.l4) & 0x80:
            write16(handle, o.l4 + 4, 0)
            write16(handle, o.l4 + 4, l4_sum(i64(0), i64(0), range_sum(handle, o.l4, end - o.l4)) ^ 0xFFFF)
        elif layer.kind == UDP and load_be16(o.head + o.l4 + 6) != 0:
            size = i64(load_be16(o.head + o.l4 + 4))
            fits = 8 <= size <= i64(Packet(handle).total) - o.l4
            o.kind, o.end = i64(UDP), o.l4 + size if fits else end
            for i in range(o.count):
                before = Layer(o.layers + LAYER * i)
                if before.kind == IPV4 or before.kind == IPV6:
                    o.l3, o.version = i64(before.offset), i64(4) if before.kind == IPV4 else i64(6)
            complete_found(handle, o)
    o.l3, o.version, o.l4, o.kind, o.count, o.end = l3, version, l4, kind, count, end


@kernel(inline=True)
def complete_tunnels(handle, o):
    """Write the checksums that are there (not 0) of UDP and GRE headers around a transport header that is complete now."""
    if o.count > 3 and is_tunnelled(o):  # link, IP and transport header are three
        _complete_tunnels(handle, o)


@kernel(inline=True)
def partial_start(p):
    """Where the sum of a packet with flag PARTIAL begins, negative if before its first byte."""
    return i64(p.total) - i64(p.csum_tail)


@kernel
def in_bounds(p):
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
        complete_tunnels(handle, o)
    elif in_bounds(p):
        total = range_sum(handle, start, i64(p.csum_tail))
        write16(handle, start + place, udp_sent(l4_sum(i64(0), i64(0), total) ^ 0xFFFF))
    else:
        return False
    p.flags = u16(p.flags & ~PARTIAL)
    return True
