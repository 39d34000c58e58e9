"""Which flow a frame belongs to: the five-tuple of its outer headers.

A five-tuple is five 64-bit words: the halves of source and destination (an IPv4 address is in the low half), and ports,
IP version and protocol in one.  The protocol is the one behind all IPv6 extension headers.  Where there are no ports
(protocols without, later fragments, a transport header cut short) they are 0 and the flag PORTS is not set; they are
never read out of something else.  A frame without IP is of version 0 and all words are 0.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be32, load_be64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.parse import FIRST_FRAGMENT, IPV4, IPV6, LATER_FRAGMENT, SCTP, TCP, UDP, find

i64, u64 = np.int64, np.uint64

Flow = layout(
    "Flow",
    [
        ("src_hi", "u8"),
        ("src_lo", "u8"),
        ("dst_hi", "u8"),
        ("dst_lo", "u8"),
        # One word, written in one go: from its lowest byte up.
        ("proto", "u1"),
        ("version", "u1"),  # 4, 6, or 0 where there is no IP
        ("spare", "u2"),
        ("dport", "u2"),
        ("sport", "u2"),
    ],
)
assert Flow.size == 40

# Flags of a flow.
PORTS = 1  # the ports are there
FRAGMENT = 2  # the frame holds a fragment, the first one included

_WANT = np.int64(IPV4 | IPV6 | TCP | UDP | SCTP | FIRST_FRAGMENT | LATER_FRAGMENT)


@kernel(inline=True)
def five_tuple(frame, length, link):
    """(src_hi, src_lo, dst_hi, dst_lo, rest, flags) of a frame; ``rest`` is the last word of :data:`Flow`."""
    layers, _, _, _, l3, _, l4, _, _, protocol = find(frame, length, link, _WANT)
    none, flags, ports = u64(0), i64(0), u64(0)
    ip = frame + l3
    if layers & (TCP | UDP | SCTP):
        flags = i64(PORTS)
        ports = u64(load_be32(frame + l4)) << u64(32)
    if layers & (FIRST_FRAGMENT | LATER_FRAGMENT):
        flags |= FRAGMENT
    if layers & IPV4:
        rest = ports | u64(protocol) | u64(4 << 8)
        return none, u64(load_be32(ip + 12)), none, u64(load_be32(ip + 16)), rest, flags
    if layers & IPV6:
        rest = ports | u64(protocol) | u64(6 << 8)
        return load_be64(ip + 8), load_be64(ip + 16), load_be64(ip + 24), load_be64(ip + 32), rest, flags
    return none, none, none, none, none, i64(0)
