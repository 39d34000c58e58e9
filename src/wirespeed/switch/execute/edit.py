"""EDIT: header bits of a packet become those of a word of the flow, and its checksums stay as right as they were.

Theory of operation
-------------------
Each word of the flow has its own function, which finds the header again in the bytes as they are now; a header that is
not there, or not whole, swallows the change.  The packet is the caller's alone and its headers are in its first segment
(:mod:`wirespeed.switch.execute.own`).

Bounds: :mod:`wirespeed.switch.execute.headers` says how many bytes of each header there are.
Source: what Open vSwitch's userspace datapath does with set actions, tested against it.
"""

import numpy as np

from wirespeed.core.packet import HASHED, Packet, data
from wirespeed.jit.intrinsics import (
    load_be16,
    load_be32,
    load_be64,
    load_u8,
    stack,
    store_be16,
    store_be32,
    store_be64,
    store_u8,
)
from wirespeed.jit.kernel import kernel
from wirespeed.switch.execute.headers import HEADERS, Headers, find_headers
from wirespeed.switch.execute.sums import covered_changed, ipv4_sum_changed, own_changed
from wirespeed.switch.extract import MAC_BITS, is_tag, is_whole_tcp
from wirespeed.switch.fields import (
    ARP,
    ICMP,
    ICMPV6,
    MPLS,
    MPLS_MULTICAST,
    PROTO_SHIFT,
    SCTP,
    TCI_PRESENT,
    TCP,
    UDP,
    W_ADDRESSES,
    W_DST,
    W_DST6,
    W_LABEL,
    W_MPLS,
    W_MPLS2,
    W_PORT,
    W_SHA,
    W_SRC,
    W_SRC6,
    W_TARGET,
    W_THA,
    W_TRANSPORT,
)

i64, u16, u32, u64 = np.int64, np.uint16, np.uint32, np.uint64
_LOW = u64(0xFFFFFFFF)
_TCI = u64(0xFFFF)
_ETHERNET_IPV4 = u64(0x000108000604)


@kernel(inline=True)
def _mixed(old, value, mask):
    return u64(old) & ~mask | value & mask


@kernel(inline=True)
def _put_tci(frame, length, value, mask):
    """The first tag's control information.  Who changes it clears the bit that the flow says "present" with."""
    if length >= 18 and is_tag(load_be16(frame + 12)):
        bits = i64(mask & _TCI & ~u64(TCI_PRESENT))
        old = i64(load_be16(frame + 14))
        new = old & ~bits | i64(value) & bits
        if new != old:
            store_be16(frame + 14, new & ~TCI_PRESENT)


@kernel(inline=True)
def _put_32(p, h, at, value, mask):
    """Change 32 bits at an offset that the transport checksum covers; (old, new)."""
    old = i64(load_be32(h.frame + at))
    new = i64(_mixed(u64(old), value, mask) & _LOW)
    store_be32(h.frame + at, new)
    return old, new


@kernel
def _addresses(p, h, value, mask):
    if h.version == 4 and h.proto != 0:
        for i in range(2):
            shift = u64(32 - 32 * i)
            old, new = _put_32(p, h, h.net + 12 + 4 * i, value >> shift, mask >> shift & _LOW)
            if old != new:
                covered_changed(p, h, old, new)
                ipv4_sum_changed(h.frame, h.net, old, new)
    else:
        if _is_arp(h, 18):
            _put_32(p, h, h.net + 14, value >> u64(32), mask >> u64(32))
        if _is_arp(h, 28):
            _put_32(p, h, h.net + 24, value, mask & _LOW)


@kernel(inline=True)
def _is_arp(h, end):
    """Whether there is ARP for IPv4 of at least ``end`` bytes, 8 or more; all that is written lies before that."""
    # RARP's fields can be matched but are never written.
    return h.kind == ARP and h.length - h.net >= end and load_be64(h.frame + h.net) >> u64(16) == _ETHERNET_IPV4


@kernel(inline=True)
def _operation(h, value, mask):
    """ARP's operation, of which a flow has the low byte; the other one is 0 then."""
    at = h.frame + h.net + 6
    store_be16(at, i64(_mixed(u64(load_be16(at)), value, mask) & u64(0xFF)))


@kernel
def _address6(p, h, at, value, mask, covered):
    """Half an IPv6 address at an offset."""
    for i in range(2):
        shift = u64(32 - 32 * i)
        old, new = _put_32(p, h, at + 4 * i, value >> shift, mask >> shift & _LOW)
        if covered:
            covered_changed(p, h, old, new)


@kernel
def _ip_bytes(h, value, mask):
    """Type of service and time to live."""
    at = h.frame + h.net
    if h.version == 4:
        old = i64(load_be16(at))
        new = old & ~i64(mask & u64(0xFF)) | i64(value & mask & u64(0xFF))
        if old != new:
            store_be16(at, new)
            ipv4_sum_changed(h.frame, h.net, old, new)
        old = i64(load_be16(at + 8))
        new = old & ~i64(mask & u64(0xFF00)) | i64(value & mask & u64(0xFF00))
        if old != new:
            store_be16(at + 8, new)
            ipv4_sum_changed(h.frame, h.net, old, new)
    else:
        first, bits = u64(load_be32(at)), (mask & u64(0xFF)) << u64(20)
        store_be32(at, first & ~bits | value << u64(20) & bits)
        bits = mask >> u64(8) & u64(0xFF)
        store_u8(at + 7, u64(load_u8(at + 7)) & ~bits | value >> u64(8) & bits)


@kernel
def _ports(p, h, value, mask):
    """Ports, or type and code, when their header is whole."""
    proto, room = h.proto, h.room
    message = (proto == ICMP and h.version == 4) or (proto == ICMPV6 and h.version == 6)
    if not (
        (proto == TCP and is_whole_tcp(h.frame, h.l4, h.l4 + room))
        or (proto == UDP and room >= 8)
        or (proto == SCTP and room >= 12)
        or (message and room >= 8)
    ):
        return
    value, mask = value >> u64(32), mask >> u64(32)
    if message:
        value = (value >> u64(16) & u64(0xFF)) << u64(24) | (value & u64(0xFF)) << u64(16)
        mask = (mask >> u64(16) & u64(0xFF)) << u64(24) | (mask & u64(0xFF)) << u64(16)
    old, new = _put_32(p, h, h.l4, value, mask)
    if old != new:
        own_changed(p, h, old, new)


@kernel
def _transport(p, h, value, mask):
    if h.proto == 0:
        return
    if mask & u64(0xFFFF):
        _ip_bytes(h, value, mask)
    if mask >> u64(32) != u64(0):
        _ports(p, h, value, mask)


@kernel
def _labels(h, first, value, mask):
    """Two entries of a label stack, as far as they are there."""
    if h.kind != MPLS and h.kind != MPLS_MULTICAST:
        return
    for i in range(2):
        at = h.net + 4 * (first + i)
        shift = u64(32 * i)
        if h.length - at >= 4 and mask >> shift & _LOW != u64(0):
            old = u64(load_be32(h.frame + at))
            store_be32(h.frame + at, _mixed(old, value >> shift, mask >> shift & _LOW))


@kernel(inline=True)
def _is_neighbor(h):
    # Of which type it is, its flow said when the change was made; the packet may get that type later, or have had it.
    return h.version == 6 and h.proto == ICMPV6 and h.room >= 24


@kernel
def _neighbor_option(p, h, kind, value, mask):
    """The link-layer address in the first option that has one, if it is of this kind."""
    at, end = h.l4 + 24, h.l4 + h.room
    while end - at >= 8:
        size = 8 * i64(load_u8(h.frame + at + 1))
        found = load_u8(h.frame + at)
        if size == 0 or size > end - at:
            return
        if size == 8 and (found == 1 or found == 2):
            if found == kind:
                # Kind and length stand before the six bytes, so that these begin in the middle of a word of 32 bits.
                _address6(p, h, at, value >> u64(16), mask >> u64(16), True)
            return
        at += size


@kernel
def _hardware(p, h, word, value, mask):
    """A hardware address of ARP, or of a neighbour solicitation or advertisement."""
    if _is_arp(h, 28):
        at = h.frame + h.net + (8 if word == W_SHA else 18)
        store_be64(at, _mixed(load_be64(at), value, mask & MAC_BITS))
    elif _is_neighbor(h):
        _neighbor_option(p, h, 1 if word == W_SHA else 2, value, mask & MAC_BITS)


@kernel
def _header(handle, word, value, mask):
    p = Packet(handle)
    headers = stack(HEADERS)
    if not find_headers(handle, headers):
        return
    p.flags = u16(p.flags & ~HASHED)
    h = Headers(headers)
    if word == W_ADDRESSES:
        _addresses(p, h, value, mask)
    elif word == W_TRANSPORT:
        _transport(p, h, value, mask)
    elif word == W_SRC6 or word == W_SRC6 + 1:
        if h.version == 6 and h.proto != 0:
            _address6(p, h, h.net + (16 if word == W_SRC6 else 8), value, mask, True)
    elif word == W_DST6 or word == W_DST6 + 1:
        if h.version == 6 and h.proto != 0:
            _address6(p, h, h.net + (32 if word == W_DST6 else 24), value, mask, h.routed == 0)
    elif word == W_LABEL:
        if h.version == 6 and h.proto != 0:
            _put_32(p, h, h.net, value, mask & u64(0xFFFFF))
    elif word == W_MPLS:
        _labels(h, i64(0), value, mask)
    elif word == W_MPLS2:
        _labels(h, i64(2), value, mask & _LOW)
    elif word == W_PORT:
        if _is_arp(h, 8):
            _operation(h, value >> u64(PROTO_SHIFT), mask >> u64(PROTO_SHIFT))
    elif word == W_SHA or word == W_THA:
        _hardware(p, h, word, value, mask)
    elif word == W_TARGET or word == W_TARGET + 1:
        if _is_neighbor(h):
            _address6(p, h, h.l4 + (16 if word == W_TARGET else 8), value, mask, True)


@kernel(inline=True)
def edit(handle, word, value, mask):
    """Have the bits ``mask`` of a word of the flow be those of ``value`` in the packet's headers."""
    if word != W_DST and word != W_SRC:
        _header(handle, word, value, mask)
        return
    p = Packet(handle)
    frame = data(p)
    if i64(p.length) < 14:
        return
    at = frame if word == W_DST else frame + 6
    # Bounds: the eight bytes at 0 and at 6 are within 14; the two behind each address stay.
    store_be64(at, _mixed(load_be64(at), value, mask & MAC_BITS))
    if word == W_DST and mask & _TCI:
        _put_tci(frame, i64(p.length), value, mask)
