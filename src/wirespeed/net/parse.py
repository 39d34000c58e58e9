"""Where the outer headers of a frame are: the parse on the hot path.

Theory of operation
-------------------
``locate(frame, length, link, want)`` is put into the caller's loop by the compiler, and ``want`` is a constant: what is
not wanted folds away, down to one comparison of the length for a function that names ``eth`` only.  (Write it as
``np.int64(ETH | IPV4)``: a bare literal's type has its value, and numba would compile all of this anew for each.)  The
common case, Ethernet with IPv4 without options and not a fragment (and, where ``ipv6`` is wanted, IPv6 without
extension headers), is told inline with no loop and no memory (:mod:`wirespeed.net.shortcut`).  Every other frame is
walked out of line (:mod:`wirespeed.net.walk`), by the same steps as in :mod:`wirespeed.net.dissect`, up to where a
tunnel's inner frame begins.

The result is nine integers ``(layers, vlan, vlan2, mpls, l3, fragment6, l4, payload, end)``.  ``layers`` has the bit of
each wanted header whose fixed part is whole in the captured bytes, and wanted flags.  The others are offsets from
``frame``: of the first and second tag (its control information), the first MPLS label, the IP or ARP header, the IPv6
fragment header, the transport or GRE header (a VXLAN or Geneve header begins 8 bytes behind it).  An offset means
something only where ``layers`` has its bit.  ``payload`` is the first byte behind the last of all these headers, with
its options, and ``end`` the end of the IP datagram by its own length, never beyond ``length``; both are worked out when
``want`` has PAYLOAD, and 0 otherwise.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be32, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.bits import (
    ARP,
    BAD,
    BITS,
    CUT,
    ETH,
    EVERYTHING,
    FIRST_FRAGMENT,
    FLAGS,
    FRAGMENT6,
    GENEVE,
    GRE,
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    LATER_FRAGMENT,
    MPLS,
    PAYLOAD,
    POSITION,
    SCTP,
    SHIFT,
    TCP,
    TRANSPORT,
    UDP,
    VLAN,
    VLAN2,
    VXLAN,
)
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.net.shortcut import plain_ipv4, plain_ipv6
from wirespeed.net.walk import walk

i64 = np.int64

__all__ = [
    "ARP",
    "BAD",
    "BITS",
    "CUT",
    "ETH",
    "EVERYTHING",
    "FIRST_FRAGMENT",
    "FLAGS",
    "FRAGMENT6",
    "GENEVE",
    "GRE",
    "ICMP",
    "ICMPV6",
    "IPV4",
    "IPV6",
    "LATER_FRAGMENT",
    "MPLS",
    "PAYLOAD",
    "POSITION",
    "SCTP",
    "SHIFT",
    "TCP",
    "TRANSPORT",
    "UDP",
    "VLAN",
    "VLAN2",
    "VXLAN",
    "find",
    "locate",
]


@kernel(inline=True)
def find(frame, length, link, want):
    """:func:`locate`'s nine integers and a tenth, the IP protocol behind all extension headers or -1."""
    frame, length, link, none = i64(frame), i64(length), i64(link), i64(0)
    if not want & ~ETH:
        found = i64(ETH) if link == LINKTYPE_ETHERNET and length >= 14 else none
        return found & want, none, none, none, none, none, none, none, none, i64(-1)
    if link == LINKTYPE_ETHERNET and length >= 34:
        if load_be32(frame + 12) >> 8 == 0x080045:
            bits, size, end = plain_ipv4(frame, i64(14), length, want)
            if bits >= 0:
                return bits & want, none, none, none, i64(14), none, i64(34), 34 + size, end, i64(load_u8(frame + 23))
        if want & IPV6 and length >= 54 and load_be32(frame + 12) >> 12 == 0x86DD6:
            bits, size, end = plain_ipv6(frame, i64(14), length, want)
            if bits >= 0:
                return bits & want, none, none, none, i64(14), none, i64(54), 54 + size, end, i64(load_u8(frame + 20))
    bits, vlan, vlan2, mpls, l3, fragment6, l4, payload, end, protocol = walk(frame, length, link)
    return bits & want, vlan, vlan2, mpls, l3, fragment6, l4, payload, end, protocol


@kernel(inline=True)
def locate(frame, length, link, want):
    """Find the headers that ``want``, a constant, has bits of; see the module's docstring for the nine integers."""
    bits, vlan, vlan2, mpls, l3, fragment6, l4, payload, end, _ = find(frame, length, link, want)
    if not want & PAYLOAD:
        payload, end = i64(0), i64(0)
    return bits, vlan, vlan2, mpls, l3, fragment6, l4, payload, end
