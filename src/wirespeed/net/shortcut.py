"""The common case, told without a loop: IP without options or extension headers, and plain transport behind it.

Both kernels return (layer bits, size of the transport header, end of the datagram).  Bits of -1 say that there is more
to it (a fragment, a tunnel, a length that does not fit) and the frame is to be walked.  ``want`` is a constant: what it
does not ask for folds away.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.bits import (
    BAD,
    CUT,
    ETH,
    FLAGS,
    FRAGMENT6,
    GENEVE,
    GRE,
    ICMP,
    ICMPV6,
    IPV4,
    IPV6,
    PAYLOAD,
    SCTP,
    TCP,
    TRANSPORT,
    UDP,
    VXLAN,
)
from wirespeed.net.protocol import (
    PORT_GENEVE,
    PORT_VXLAN,
    PORT_VXLAN_LINUX,
    PROTO_AH,
    PROTO_ICMP,
    PROTO_ICMPV6,
    PROTO_TCP,
    PROTO_UDP,
)

i64 = np.int64
FAULTS = CUT | BAD  # flags that a plain transport header may call for; fragments never come so far


@kernel(inline=True)
def _transport(frame, at, end, protocol, want):
    """The plain transport header at ``at``: (its bit, its size), bit 0 when none is wanted, -1 to have it walked."""
    if want & (UDP | VXLAN | GENEVE | PAYLOAD | FAULTS) and protocol == PROTO_UDP:
        if end - at < 8:
            return i64(-1), i64(0)
        if want & (VXLAN | GENEVE | PAYLOAD | FAULTS):
            port = load_be16(frame + at + 2)
            if port == PORT_VXLAN or port == PORT_VXLAN_LINUX or port == PORT_GENEVE:
                return i64(-1), i64(0)
        if want & FAULTS and load_be16(frame + at + 4) < 8:
            return i64(-1), i64(0)
        return i64(UDP), i64(8)
    if want & (TCP | PAYLOAD | FAULTS) and protocol == PROTO_TCP:
        if end - at < 20:
            return i64(-1), i64(0)
        size = i64(20)
        if want & (PAYLOAD | FAULTS):
            size = i64(load_u8(frame + at + 12) >> 4) * 4
            if size < 20 or size > end - at:
                return i64(-1), i64(0)
        return i64(TCP), size
    if want & (ICMP | PAYLOAD | FAULTS) and protocol == PROTO_ICMP:
        return i64(ICMP) if end - at >= 8 else i64(-1), i64(8)
    if want & (ICMPV6 | PAYLOAD | FAULTS) and protocol == PROTO_ICMPV6:
        return i64(ICMPV6) if end - at >= 8 else i64(-1), i64(8)
    if (
        want & (SCTP | GRE | PAYLOAD | FAULTS) or protocol == PROTO_AH
    ):  # anything may be behind an authentication header
        return i64(-1), i64(0)
    return i64(0), i64(0)


@kernel(inline=True)
def plain_ipv4(frame, at, length, want):
    """The shortcut through an IPv4 header without options at ``at``, all 20 bytes of which are there."""
    if not want & (TRANSPORT | FLAGS | PAYLOAD | FRAGMENT6):
        return i64(ETH | IPV4), i64(0), i64(0)
    end = i64(load_be16(frame + at + 2)) + at
    # A fragment is walked, and so is a frame that was cut.  A length that is too small leaves no room for a transport
    # header, which has the frame walked too.
    if load_be16(frame + at + 6) & 0x3FFF or end > length:
        return i64(-1), i64(0), i64(0)
    bit, size = _transport(frame, at + 20, end, load_u8(frame + at + 9), want)
    return i64(ETH | IPV4) | bit, size, end


@kernel(inline=True)
def plain_ipv6(frame, at, length, want):
    """The shortcut through an IPv6 header at ``at``, all 40 bytes of which are there."""
    if not want & (TRANSPORT | FLAGS | PAYLOAD | FRAGMENT6):
        return i64(ETH | IPV6), i64(0), i64(0)
    end = i64(load_be16(frame + at + 4)) + at + 40
    protocol = load_u8(frame + at + 6)
    known = protocol == PROTO_TCP or protocol == PROTO_UDP or protocol == PROTO_ICMPV6
    if not known or end > length:
        return i64(-1), i64(0), i64(0)
    bit, size = _transport(frame, at + 40, end, protocol, want)
    return i64(ETH | IPV6) | bit, size, end
