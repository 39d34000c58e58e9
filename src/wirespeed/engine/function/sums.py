"""Checksums of a packet written anew, and addresses and ports written with the checksums that cover them.

*Source:* RFC 1071, RFC 1624 (checksums by difference), RFC 768 (UDP's zero), RFC 8200 (pseudo header).
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_be32, load_u8, store_be16, store_be32
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import (
    fill_icmp,
    fill_ipv4,
    fill_sctp,
    fill_tcp,
    fill_udp,
    fold,
    pseudo_ipv4,
    pseudo_ipv6,
    udp_sent,
)
from wirespeed.net.internet import find_option
from wirespeed.net.parse import BAD, CUT, EVERYTHING, FIRST_FRAGMENT, ICMP, ICMPV6, IPV4, IPV6, SCTP, TCP, UDP, locate
from wirespeed.net.protocol import (
    PROTO_AH,
    PROTO_DSTOPTS,
    PROTO_FRAGMENT,
    PROTO_ICMPV6,
    PROTO_ROUTING,
    PROTO_TCP,
    PROTO_UDP,
)

i64 = np.int64
HOME_ADDRESS_OPTION = 0xC9  # RFC 6275, 6.3


@kernel
def _fill_options(at, ihl):
    """Write the checksum of an IPv4 header with options, out of line."""
    fill_ipv4(at, ihl)


@kernel(inline=True)
def checksum_ipv4(at, end):
    """Write the checksum of the IPv4 header at an address; whether its options end before the address ``end``."""
    ihl = i64(load_u8(at) & 15)
    if ihl == 5:
        fill_ipv4(at, i64(5))
        return True
    if ihl < 5 or at + 4 * ihl > end:
        return False
    _fill_options(at, ihl)
    return True


@kernel
def _plain_addresses(frame, l3, l4):
    """Whether the addresses in an IPv6 header are those that count, which extension headers before ``l4`` can change.

    Bounds: the parser has walked these headers, each whole.
    """
    kind, at = load_u8(frame + l3 + 6), l3 + 40
    while at < l4:
        units = i64(load_u8(frame + at + 1))
        size = 4 * (units + 2) if kind == PROTO_AH else i64(8) if kind == PROTO_FRAGMENT else 8 * (units + 1)
        if kind == PROTO_ROUTING and load_u8(frame + at + 3):
            return False
        if kind == PROTO_DSTOPTS and find_option(frame, at + 2, at + size, i64(HOME_ADDRESS_OPTION), i64(16)):
            return False
        kind = load_u8(frame + at)
        at += size
    return True


@kernel(inline=True)
def _pseudo(frame, layers, l3, protocol, size):
    """The sum of the pseudo header in front of ``size`` bytes."""
    if layers & IPV4:
        return pseudo_ipv4(frame + l3, protocol, size)
    return pseudo_ipv6(frame + l3 + 8, frame + l3 + 24, protocol, size)


@kernel
def _checksum_other(frame, length, link):
    """:func:`checksum_l4` of whatever is not plain UDP or TCP over IPv4."""
    layers, _, _, _, l3, _, l4, _, end = locate(frame, length, link, i64(EVERYTHING))
    size, at = end - l4, frame + l4
    if layers & (CUT | BAD | FIRST_FRAGMENT) or not layers & (IPV4 | IPV6):
        return False
    if layers & IPV6 and l4 != l3 + 40 and not _plain_addresses(frame, l3, l4):
        return False
    # Bounds: a header that is said to be there is whole before ``end``, which is not beyond the captured bytes.
    if layers & UDP:
        size = _udp_size(at, size)
        if size == 0:
            return False
        fill_udp(at, size, _pseudo(frame, layers, l3, i64(PROTO_UDP), size))
    elif layers & TCP:
        fill_tcp(at, size, _pseudo(frame, layers, l3, i64(PROTO_TCP), size))
    elif layers & ICMP:
        fill_icmp(at, size, i64(0))
    elif layers & ICMPV6:
        fill_icmp(at, size, _pseudo(frame, layers, l3, i64(PROTO_ICMPV6), size))
    elif layers & SCTP:
        fill_sctp(at, size)
    else:
        return False
    return True


@kernel(inline=True)
def _udp_size(at, size):
    """The length of a UDP datagram that has ``size`` bytes of IP for it; 0 where it says something impossible."""
    length = i64(load_be16(at + 4))
    if length == 0:  # a jumbogram (RFC 2675, 4)
        return size
    return length if 8 <= length <= size else i64(0)


@kernel(inline=True)
def checksum_l4(frame, length, link, layers, l3, l4):
    """Write the checksum of what IP carries; whether all that it covers is there.

    Bounds: TCP and UDP headers that ``layers`` says are there are whole; ``size`` ends before the captured bytes.
    """
    ip, at = frame + l3, frame + l4
    size = l3 + i64(load_be16(ip + 2)) - l4
    plain = layers & IPV4 and load_be16(ip + 6) & 0x3FFF == 0 and l4 + size <= length
    if plain and layers & UDP and size >= 8 and i64(load_be16(at + 4)) == size:
        fill_udp(at, size, pseudo_ipv4(ip, i64(PROTO_UDP), size))
        return True
    if plain and layers & TCP and size >= 20 and load_u8(at + 12) >= 0x50:
        fill_tcp(at, size, pseudo_ipv4(ip, i64(PROTO_TCP), size))
        return True
    return _checksum_other(frame, length, link)


@kernel(inline=True)
def rewrite(frame, layers, l3, l4, which, src, dst, sport, dport):
    """Write addresses and ports of an IPv4 packet, by the bits of ``which`` (1 source, 2 destination, 4 and 8 ports).

    The checksums follow by difference.  False, and nothing changed, where there is no IPv4, or no TCP or UDP to have
    the ports.
    """
    ip, at = frame + l3, frame + l4
    if not layers & IPV4 or (which & 12 and not layers & (TCP | UDP)):
        return False
    change = i64(0)  # the sum of what is taken away, complemented, and of what is put there instead
    if which & 1:
        change += (i64(load_be32(ip + 12)) ^ 0xFFFFFFFF) + (src & 0xFFFFFFFF)
        store_be32(ip + 12, src)
    if which & 2:
        change += (i64(load_be32(ip + 16)) ^ 0xFFFFFFFF) + (dst & 0xFFFFFFFF)
        store_be32(ip + 16, dst)
    if which & 3:
        store_be16(ip + 10, fold((i64(load_be16(ip + 10)) ^ 0xFFFF) + change) ^ 0xFFFF)
    if which & 4:
        change += (i64(load_be16(at)) ^ 0xFFFF) + (sport & 0xFFFF)
        store_be16(at, sport)
    if which & 8:
        change += (i64(load_be16(at + 2)) ^ 0xFFFF) + (dport & 0xFFFF)
        store_be16(at + 2, dport)
    if layers & TCP:
        store_be16(at + 16, fold((i64(load_be16(at + 16)) ^ 0xFFFF) + change) ^ 0xFFFF)
    elif layers & UDP:
        sum = i64(load_be16(at + 6))
        if sum != 0:
            store_be16(at + 6, udp_sent(fold((sum ^ 0xFFFF) + change) ^ 0xFFFF))
    return True
