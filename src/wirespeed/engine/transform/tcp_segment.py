"""A TCP segment as it came: where its headers are, whose flow it is of, and whether it can be part of a super-frame.

A segment that can be has one buffer that nobody else sees, no IP options, extension headers or urgent data, no flags but
ACK and PSH, some payload, and right checksums, or one of TCP that is still to be computed.
"""

import numpy as np

from wirespeed.core.packet import BAD_CHECKSUM, PARTIAL, Packet
from wirespeed.jit.intrinsics import load_be16, load_be32, load_u16, load_u32, load_u64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.checksum import ipv4_sum, l4_sum, pseudo_ipv4, pseudo_ipv6
from wirespeed.net.excerpt import is_alone
from wirespeed.net.parse import BAD, CUT, FIRST_FRAGMENT, IPV4, IPV6, LATER_FRAGMENT, PAYLOAD, TCP, find
from wirespeed.net.protocol import PROTO_TCP

u16, i64, u64 = np.uint16, np.int64, np.uint64

WORDS = 6  # of a flow's key
PSH, ACK = 0x08, 0x10
_WANT = np.int64(IPV4 | IPV6 | TCP | FIRST_FRAGMENT | LATER_FRAGMENT | CUT | BAD | PAYLOAD)
_FRAGMENT = np.int64(FIRST_FRAGMENT | LATER_FRAGMENT)
_DAMAGED = np.int64(CUT | BAD)

# A TCP segment as it came: offsets from the packet's first byte.
Segment = layout(
    "TcpSegment",
    [("version", "i8"), ("l3", "i8"), ("l4", "i8"), ("payload", "i8"), ("end", "i8"), ("seq", "i8"), ("flags", "i8")],
)
assert Segment.size == 56  # kernels write it as a literal: stack(56)


@kernel
def write_key(p, at, s, key):
    """Write the key of a TCP segment's flow."""
    ip = at + s.l3
    if s.version == 4:
        for i in range(4):
            store_u64(key + 8 * i, u64(0))
        store_u64(key, u64(load_u32(ip + 12)) << u64(32) | u64(load_u32(ip + 16)))
    else:
        for i in range(4):
            store_u64(key + 8 * i, load_u64(ip + 8 + 8 * i))
    store_u64(key + 32, u64(load_u32(at + s.l4)) | u64(s.version) << u64(32))
    # The last tag, of which there may be more: those of a flow's packets are compared before they are joined.
    tag = load_u16(at + s.l3 - 4) if s.l3 >= 18 else u16(0)
    store_u64(key + 40, u64(tag) | u64(p.port) << u64(16))


@kernel
def look(p, at, s):
    """Find the TCP header of a packet; whether it has one, of its own flow, as far as its first segment tells."""
    layers, _, _, _, l3, _, l4, payload, end, _ = find(at, i64(p.length), i64(p.link), _WANT)
    if not layers & TCP or layers & _FRAGMENT:
        return False
    s.version = i64(4) if layers & IPV4 else i64(6)
    s.l3, s.l4, s.payload, s.end = l3, l4, payload, i64(0) if layers & _DAMAGED else end
    return True


@kernel
def _checksums_are_right(p, at, s):
    """Whether the checksums of a segment are right, or that of TCP is still to be computed."""
    ip, size = at + s.l3, s.end - s.l4
    if s.version == 4 and ipv4_sum(ip, i64(5)) != 0xFFFF:
        return False
    if p.flags & PARTIAL:
        return p.gso_size == 0
    if p.flags & BAD_CHECKSUM:
        return False
    if s.version == 4:
        pseudo = pseudo_ipv4(ip, i64(PROTO_TCP), size)
    else:
        pseudo = pseudo_ipv6(ip + 8, ip + 24, i64(PROTO_TCP), size)
    return l4_sum(at + s.l4, size, pseudo) == 0xFFFF


@kernel
def can_be_joined(handle, at, s):
    """Whether a segment is of the kind that can be part of a super-frame."""
    p = Packet(handle)
    around = i64(20) if s.version == 4 else i64(40)
    if p.segments != 1 or s.end <= s.payload or s.l4 - s.l3 != around or not is_alone(handle):
        return False
    tcp = at + s.l4
    s.seq, s.flags = i64(load_be32(tcp + 4)), i64(load_be16(tcp + 12)) & 0xFFF
    # An urgent pointer means something only with its flag, but is compared to nothing.
    if s.flags & ~PSH != ACK or load_u16(tcp + 18) != 0:
        return False
    if s.version == 4 and load_be16(at + s.l3 + 2) == 0:
        return False
    return _checksums_are_right(p, at, s)
