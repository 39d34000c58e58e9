"""Internet checksums, whole and by difference, and SCTP's CRC-32C.

Theory of operation
-------------------
The sum is over 16-bit words in network order, but a sum in the machine's order has the same bytes (RFC 1071, 2.B), and
words of 64 bits add up to the same sum as their quarters (2.C).  So :func:`ones_sum` adds 64-bit words, twice: as they
are, modulo 2^64, and their high halves.  From both the sum of the low halves is exact, and a loop of two additions and
a shift vectorises without any carry.  The bytes after the last word come with one load that overlaps it, so no byte
outside is read.

A *machine's sum* is such a sum before it is folded to 16 bits, a uint64; sums of several parts are added as they are
and folded once.  Folded sums and checksums are int64; a checksum is the value that the field ``chksum`` has.

*Source:* RFC 1071, RFC 1624 (differences), RFC 768 (UDP's zero), RFC 8200, 8.1 (pseudo header), RFC 9260, 6.8 (SCTP).
"""

import numpy as np

from wirespeed.jit.intrinsics import (
    CRC_TABLE,
    bswap16,
    bswap32,
    crc32c,
    item_u32,
    item_u64,
    load_be32,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_be16,
    store_be32,
)
from wirespeed.jit.kernel import kernel

i64, u16, u32, u64 = np.int64, np.uint16, np.uint32, np.uint64


@kernel(inline=True)
def fold(total):
    """A sum of up to 63 bits as 16 bits, each carry added back at the low end."""
    total = (total >> 32) + (total & 0xFFFFFFFF)
    total = (total >> 16) + (total & 0xFFFF)
    total = (total >> 16) + (total & 0xFFFF)
    return (total >> 16) + (total & 0xFFFF)


@kernel(inline=True)
def _swapped_fold(total):
    """A sum of 64 bits in words of the machine's order as 16 bits in network order.

    Adding a number to itself with its halves swapped leaves their folded sum in the high half, carry included.
    """
    total += total << u64(32) | total >> u64(32)
    half = u32(total >> u64(32))
    half = u32(half + u32(u32(half << u32(16)) | u32(half >> u32(16))))
    return i64(bswap16(u16(half >> u32(16))))


@kernel(inline=True)
def _tail(at, size):
    """The last ``size`` modulo 8 bytes, as the low bytes of a word."""
    rest = size & 7
    if rest == 0:
        return u64(0)
    if size >= 8:
        return load_u64(at + size - 8) >> u64(8 * (8 - rest))
    value, stop = u64(0), at + size
    if rest & 1:
        stop -= 1
        value = u64(load_u8(stop))
    if rest & 2:
        stop -= 2
        value = value << u64(16) | u64(load_u16(stop))
    if rest & 4:
        value = value << u64(32) | u64(load_u32(stop - 4))
    return value


@kernel(inline=True)
def machine_sum(at, size):
    """The plain sum of ``size`` bytes in words of the machine's order, of less than 63 bits."""
    total, high = u64(0), u64(0)
    for i in range(size >> 3):
        word = item_u64(at, i)
        total += word
        high += word >> u64(32)
    word = _tail(at, size)
    total += word
    high += word >> u64(32)
    return total - (high << u64(32)) + high


@kernel(inline=True)
def ones_sum(at, size):
    """The ones' complement sum of ``size`` bytes at ``at``; the odd last one is the high byte of its word."""
    return _swapped_fold(machine_sum(at, size))


@kernel(inline=True)
def checksum(at, size):
    """The checksum of ``size`` bytes: 0 where they hold a right one already."""
    return ones_sum(at, size) ^ 0xFFFF


@kernel(inline=True)
def ipv4_sum(at, ihl):
    """The sum of an IPv4 header of ``ihl`` words; 0xFFFF where its checksum is right."""
    if ihl != 5:
        return ones_sum(at, 4 * ihl)
    return _swapped_fold(_words(at, i64(5)))


@kernel(inline=True)
def ipv4_checksum(at, ihl):
    """The checksum that the IPv4 header of ``ihl`` words at ``at`` should have, whatever it has."""
    if ihl != 5:
        return l4_checksum(at, 4 * ihl, u64(0), 10)
    # The field is the second half of the third word.
    return _swapped_fold(_words(at, i64(2)) + u64(load_u16(at + 8)) + _words(at + 12, i64(2))) ^ 0xFFFF


@kernel(inline=True)
def _words(at, n):
    """The plain sum of a few 32-bit words in the machine's order."""
    total = u64(0)
    for i in range(n):
        total += u64(item_u32(at, i))
    return total


@kernel(inline=True)
def _in_machine_order(value):
    """A word of 32 bits, as a number, as it is read from a header in network order."""
    return u64(bswap32(u32(value)))


@kernel(inline=True)
def pseudo_ipv4(ip, protocol, size):
    """The machine's sum of the pseudo header for ``size`` bytes of ``protocol`` behind the IPv4 header at ``ip``."""
    return _words(ip + 12, i64(2)) + _in_machine_order(protocol) + _in_machine_order(size)


@kernel(inline=True)
def pseudo_ipv6(source, destination, protocol, size):
    """The same over the IPv6 addresses at ``source`` and ``destination``; ``size`` has up to 32 bits.

    The destination is the last one, which a routing header may hold (RFC 8200, 8.1).
    """
    addresses = _words(source, i64(4)) + _words(destination, i64(4))
    return addresses + _in_machine_order(protocol) + _in_machine_order(size)


@kernel(inline=True)
def l4_sum(at, size, pseudo):
    """The sum of ``size`` bytes and a pseudo header's sum; 0xFFFF where the checksum in them is right."""
    return _swapped_fold(machine_sum(at, size) + u64(pseudo))


@kernel(inline=True)
def l4_checksum(at, size, pseudo, place):
    """The checksum of the ``size`` bytes at ``at`` with a pseudo header's sum; its field at ``place`` counts as 0.

    Something besides the field must not be 0 (a pseudo header, the version of IP), for a sum of 0 would come out as its
    twin, all ones.
    """
    without = u64(load_u16(at + place) ^ u16(0xFFFF))
    return _swapped_fold(machine_sum(at, size) + u64(pseudo) + without) ^ 0xFFFF


@kernel(inline=True)
def udp_sent(value):
    """What UDP sends for a checksum: 0 would say that there is none, so it is sent as its twin 0xFFFF (RFC 768)."""
    return i64(0xFFFF) if value == 0 else value


@kernel(inline=True)
def update16(old_checksum, old, new):
    """The checksum after a 16-bit word of what it covers has changed; equation 3 of RFC 1624."""
    return fold((i64(old_checksum) ^ 0xFFFF) + (i64(old) ^ 0xFFFF) + i64(new)) ^ 0xFFFF


@kernel(inline=True)
def update32(old_checksum, old, new):
    """The checksum after 32 aligned bits have changed."""
    return fold((i64(old_checksum) ^ 0xFFFF) + (i64(old) ^ 0xFFFFFFFF) + i64(new)) ^ 0xFFFF


@kernel(inline=True)
def udp_update16(old_checksum, old, new):
    """As :func:`update16` for UDP, where 0 says that there is no checksum: it stays 0, and no other becomes 0."""
    return i64(0) if old_checksum == 0 else udp_sent(update16(old_checksum, old, new))


@kernel(inline=True)
def udp_update32(old_checksum, old, new):
    """As :func:`update32` for UDP."""
    return i64(0) if old_checksum == 0 else udp_sent(update32(old_checksum, old, new))


@kernel(inline=True)
def crc32c_byte(seed, byte):
    """CRC-32C of one byte, continuing ``seed``."""
    return u32(u32(seed >> u32(8)) ^ CRC_TABLE[i64(seed ^ u32(byte)) & 255])


@kernel(inline=True)
def crc32c_bytes(seed, at, size):
    """CRC-32C of ``size`` bytes, continuing ``seed``, which is all ones to begin with; the result is not inverted."""
    value = u32(seed)
    for i in range(size >> 3):
        value = crc32c(value, load_u64(at + 8 * i))
    for i in range(size & ~7, size):
        value = crc32c_byte(value, load_u8(at + i))
    return value


@kernel(inline=True)
def sctp_checksum(at, size):
    """The checksum that the SCTP packet of ``size`` bytes (12 and more) should have; its own field counts as 0."""
    value = crc32c(u32(0xFFFFFFFF), load_u64(at))
    for _ in range(4):
        value = crc32c_byte(value, 0)
    return i64(bswap32(u32(~crc32c_bytes(value, at + 12, size - 12))))


@kernel(inline=True)
def fill_ipv4(ip, ihl):
    """Write the checksum of the IPv4 header of ``ihl`` words."""
    store_be16(ip + 10, ipv4_checksum(ip, ihl))


@kernel(inline=True)
def fill_tcp(at, size, pseudo):
    """Write the checksum of a TCP segment."""
    store_be16(at + 16, l4_checksum(at, size, pseudo, 16))


@kernel(inline=True)
def fill_udp(at, size, pseudo):
    """Write the checksum of a UDP datagram."""
    store_be16(at + 6, udp_sent(l4_checksum(at, size, pseudo, 6)))


@kernel(inline=True)
def fill_icmp(at, size, pseudo):
    """Write the checksum of an ICMPv6 message, or of an ICMP message, whose ``pseudo`` is 0.

    The field is cleared first: an echo reply of nothing but zeros has the checksum 0xFFFF.
    """
    store_be16(at + 2, 0)
    store_be16(at + 2, l4_sum(at, size, pseudo) ^ 0xFFFF)


@kernel(inline=True)
def fill_sctp(at, size):
    """Write the checksum of an SCTP packet."""
    store_be32(at + 8, sctp_checksum(at, size))


@kernel(inline=True)
def sctp_right(at, size):
    """Whether an SCTP packet's checksum is right."""
    return i64(load_be32(at + 8)) == sctp_checksum(at, size)
