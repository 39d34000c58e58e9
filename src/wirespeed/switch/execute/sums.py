"""Checksums of a packet of which bits change: brought up to date by the difference, so that a wrong one stays wrong.

Theory of operation
-------------------
A change is told as an old and a new value of up to 32 bits, aligned as the sum is.  What stands for "no checksum" (0 in
UDP) stays, and a packet whose checksum is still to be computed (flag PARTIAL) needs none.  SCTP's CRC is linear: its
difference is the CRC, begun with 0, of the bytes' difference and as many zeros as bytes follow them, so that nothing
but these bytes is read.

Source: RFC 1624, equation 3; RFC 768 (UDP's zero); RFC 9260, 6.8 (SCTP).
"""

import numpy as np

from wirespeed.core.packet import PARTIAL
from wirespeed.jit.intrinsics import bswap32, crc32c, load_be16, load_be32, store_be16, store_be32
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import crc32c_byte, udp_update32, update32
from wirespeed.switch.fields import ICMP, ICMPV6, SCTP, TCP, UDP

i64, u32, u64 = np.int64, np.uint32, np.uint64


@kernel(inline=True)
def ipv4_sum_changed(frame, net, old, new):
    """Bits of an IPv4 header that was found at ``net`` have changed."""
    store_be16(frame + net + 10, update32(load_be16(frame + net + 10), old, new))


@kernel
def covered_changed(p, h, old, new):
    """Bits that the transport checksum covers have changed: addresses of the pseudo header, or its own words.

    Bounds: each field is in a header of which all bytes are there.
    """
    if old == new or p.flags & PARTIAL:
        return
    at = h.frame + h.l4
    if h.proto == TCP and h.room >= 20:
        store_be16(at + 16, update32(load_be16(at + 16), old, new))
    elif h.proto == UDP and h.room >= 8:
        store_be16(at + 6, udp_update32(load_be16(at + 6), old, new))
    elif h.proto == ICMPV6 and h.version == 6 and h.room >= 8:
        store_be16(at + 2, update32(load_be16(at + 2), old, new))


@kernel
def own_changed(p, h, old, new):
    """The first 32 bits of the transport header itself have changed, of which ``room`` says that they are there."""
    if h.proto == SCTP:
        if h.room >= 12 and not p.flags & PARTIAL:
            _sctp_changed(h, old ^ new)
    elif h.proto == ICMP and h.version == 4:
        if h.room >= 8 and not p.flags & PARTIAL and old != new:
            # Type and code stand before the sum, so the lower half of these 32 bits is the sum itself.
            at = h.frame + h.l4
            store_be16(at + 2, update32(load_be16(at + 2), old >> 16, new >> 16))
    elif h.proto == ICMPV6:
        covered_changed(p, h, old >> 16, new >> 16)
    else:
        covered_changed(p, h, old, new)


@kernel
def _sctp_changed(h, difference):
    value = crc32c_byte(u32(0), difference >> 24 & 0xFF)
    for shift in range(16, -1, -8):
        value = crc32c_byte(value, difference >> shift & 0xFF)
    rest = h.size - 4
    for _ in range(rest >> 3):
        value = crc32c(value, u64(0))
    for _ in range(rest & 7):
        value = crc32c_byte(value, 0)
    at = h.frame + h.l4 + 8
    store_be32(at, load_be32(at) ^ bswap32(value))
