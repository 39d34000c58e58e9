"""Link types and steps over the link layer: Ethernet, tags, LLC, PPP, MPLS, loopback and Linux cooked captures.

*Source:* link types, https://www.tcpdump.org/linktypes.html; IEEE 802.3, 802.1Q and 802.2; RFC 1042 (SNAP), RFC 1661
and RFC 1662 (PPP), RFC 2516 (PPPoE), RFC 3032 (MPLS).
"""

import numpy as np

from wirespeed.jit.intrinsics import bswap32, load_be16, load_be32, load_u8, load_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.layer import (
    ARP,
    ETH,
    IPV4,
    IPV6,
    LAYER_BAD,
    LAYER_CUT,
    LLC,
    LOOP,
    MPLS,
    NONE,
    NULL,
    PPP,
    PPPOE,
    SLL,
    SLL2,
    SNAP,
    VLAN,
)
from wirespeed.net.protocol import (
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_MPLS,
    ETHERTYPE_MPLS_UPSTREAM,
    ETHERTYPE_PPP,
    ETHERTYPE_PPPOE,
    ETHERTYPE_QINQ,
    ETHERTYPE_QINQ_OLD,
    ETHERTYPE_TEB,
    ETHERTYPE_VLAN,
    LEAST_ETHERTYPE,
    PPP_IPV4,
    PPP_IPV6,
    PPP_MPLS,
)

i64 = np.int64

LINKTYPE_NULL = 0
LINKTYPE_ETHERNET = 1
LINKTYPE_PPP = 9
LINKTYPE_RAW_12 = 12  # DLT_RAW of most systems, written by programs that do not map it
LINKTYPE_RAW_14 = 14  # DLT_RAW of OpenBSD
LINKTYPE_RAW = 101
LINKTYPE_LOOP = 108
LINKTYPE_LINUX_SLL = 113
LINKTYPE_IPV4 = 228
LINKTYPE_IPV6 = 229
LINKTYPE_LINUX_SLL2 = 276


@kernel(inline=True)
def by_nibble(frame, at, end):
    """IPv4 or IPv6 by the version that the first byte names, as raw IP and MPLS leave it to be found; else NONE."""
    if at >= end:
        return i64(NONE)
    version = load_u8(frame + at) >> 4
    return i64(IPV4) if version == 4 else i64(IPV6) if version == 6 else i64(NONE)


@kernel(inline=True)
def first_kind(link, frame, length):
    """The kind of a frame's first header by its link type; NONE for link types that are not parsed."""
    if link == LINKTYPE_ETHERNET:
        return i64(ETH)
    if link == LINKTYPE_RAW or link == LINKTYPE_RAW_12 or link == LINKTYPE_RAW_14:
        return by_nibble(frame, i64(0), length)
    if link == LINKTYPE_IPV4:
        return i64(IPV4)
    if link == LINKTYPE_IPV6:
        return i64(IPV6)
    if link == LINKTYPE_NULL:
        return i64(NULL)
    if link == LINKTYPE_LOOP:
        return i64(LOOP)
    if link == LINKTYPE_LINUX_SLL:
        return i64(SLL)
    if link == LINKTYPE_LINUX_SLL2:
        return i64(SLL2)
    return i64(PPP) if link == LINKTYPE_PPP else i64(NONE)


@kernel(inline=True)
def by_ethertype(number):
    """The kind of header that an EtherType announces, or NONE."""
    if number == ETHERTYPE_IPV4:
        return i64(IPV4)
    if number == ETHERTYPE_IPV6:
        return i64(IPV6)
    if number == ETHERTYPE_ARP:
        return i64(ARP)
    if number == ETHERTYPE_VLAN or number == ETHERTYPE_QINQ or number == ETHERTYPE_QINQ_OLD:
        return i64(VLAN)
    if number == ETHERTYPE_MPLS or number == ETHERTYPE_MPLS_UPSTREAM:
        return i64(MPLS)
    if number == ETHERTYPE_PPPOE:
        return i64(PPPOE)
    if number == ETHERTYPE_TEB:
        return i64(ETH)
    return i64(PPP) if number == ETHERTYPE_PPP else i64(NONE)


@kernel(inline=True)
def typed(frame, at, end, size):
    """Ethernet (14 bytes) or a tag (4): its last two are the next type or, below 0x600, an 802.3 frame's length."""
    if end - at < size:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    number = i64(load_be16(frame + at + size - 2))
    if number >= LEAST_ETHERTYPE:
        return size, by_ethertype(number), end, i64(0)
    if number > end - at - size:
        return size, i64(LLC), end, i64(LAYER_CUT)
    # 0xFFFF where LLC has its addresses is Novell's "raw" 802.3, IPX without any LLC.
    raw = number >= 2 and load_be16(frame + at + size) == 0xFFFF
    return size, i64(NONE) if raw else i64(LLC), at + size + number, i64(0)


@kernel(inline=True)
def llc(frame, at, end):
    """802.2 logical link control: its control field has one byte in unnumbered frames, two in all others."""
    if end - at < 3:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    size = i64(3) if load_u8(frame + at + 2) & 3 == 3 else i64(4)
    if size > end - at:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    if load_be16(frame + at) == 0xAAAA and size == 3:
        return size, i64(SNAP), end, i64(0)
    if load_be16(frame + at) == 0x0606 and size == 3:  # the service access point of IP
        return size, i64(IPV4), end, i64(0)
    return size, i64(NONE), end, i64(0)


@kernel(inline=True)
def snap(frame, at, end):
    """SNAP: an organisation and its type, which is an EtherType for organisation 0 (RFC 1042) and 0000F8 (802.1H)."""
    if end - at < 5:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    organisation = load_be32(frame + at) >> 8
    known = organisation == 0 or organisation == 0x0000F8
    return i64(5), by_ethertype(i64(load_be16(frame + at + 3))) if known else i64(NONE), end, i64(0)


@kernel(inline=True)
def loopback(frame, at, end):
    """BSD loopback: an address family, in an order that is told by where its small number lies.

    That of the capturing machine in NULL, network order in LOOP.  IPv6 has another number on each system.
    """
    if end - at < 4:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    family = load_u32(frame + at)
    if family > 0xFFFF:
        family = bswap32(family)
    if family == 2:
        return i64(4), i64(IPV4), end, i64(0)
    if family == 24 or family == 28 or family == 30 or family == 10:  # NetBSD and OpenBSD, FreeBSD, macOS, Linux
        return i64(4), i64(IPV6), end, i64(0)
    return i64(4), i64(NONE), end, i64(0)


@kernel(inline=True)
def cooked(frame, at, end, size, place):
    """A Linux cooked header of ``size`` bytes with its protocol at ``place``; 4 stands for 802.2."""
    if end - at < size:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    number = i64(load_be16(frame + at + place))
    return size, i64(LLC) if number == 4 else by_ethertype(number), end, i64(0)


@kernel(inline=True)
def ppp(frame, at, end):
    """PPP: the address and control bytes may be left out, and so may the first byte of a protocol below 256."""
    size = i64(2) if end - at >= 2 and load_be16(frame + at) == 0xFF03 else i64(0)
    if end - at <= size:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    number = i64(load_u8(frame + at + size))
    size += 1
    if number & 1 == 0:  # the first of two bytes is even, the last one odd (RFC 1661, 2)
        if end - at <= size:
            return i64(0), i64(NONE), end, i64(LAYER_CUT)
        number = number << 8 | i64(load_u8(frame + at + size))
        size += 1
    after = i64(IPV4) if number == PPP_IPV4 else i64(IPV6) if number == PPP_IPV6 else i64(NONE)
    return size, i64(MPLS) if number == PPP_MPLS else after, end, i64(0)


@kernel(inline=True)
def pppoe(frame, at, end):
    """A PPPoE session's header; its length ends the PPP frame, so that padding is not taken for payload."""
    if end - at < 6:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    if load_be16(frame + at) != 0x1100:  # version 1, type 1, code 0 for session data
        return i64(6), i64(NONE), end, i64(LAYER_BAD)
    length = i64(load_be16(frame + at + 4))
    if length > end - at - 6:
        return i64(6), i64(PPP), end, i64(LAYER_CUT)
    return i64(6), i64(PPP), at + 6 + length, i64(0)


@kernel(inline=True)
def mpls(frame, at, end):
    """One MPLS label; behind the bottom of the stack the version of an IP header tells what follows."""
    if end - at < 4:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    if load_u8(frame + at + 2) & 1 == 0:
        return i64(4), i64(MPLS), end, i64(0)
    return i64(4), by_nibble(frame, at + 4, end), end, i64(0)
