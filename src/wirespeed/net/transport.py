"""Steps over what IP carries: TCP, UDP, ICMP, SCTP, and the tunnels GRE, VXLAN and Geneve.

*Source:* RFC 9293, RFC 768, RFC 792, RFC 4443, RFC 9260; RFC 2784 and RFC 2890 (GRE), RFC 1701 (its routing field),
RFC 2637 (its version 1, PPTP), RFC 7637 (NVGRE), RFC 7348 (VXLAN), RFC 8926 (Geneve).
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net.layer import GENEVE, LAYER_BAD, LAYER_CUT, NONE, PPP, VXLAN
from wirespeed.net.link import by_ethertype
from wirespeed.net.protocol import ETHERTYPE_PPP, PORT_GENEVE, PORT_VXLAN, PORT_VXLAN_LINUX

i64 = np.int64
MAX_ROUTES = 16  # source route entries that are looked at in one GRE header


@kernel(inline=True)
def tcp(frame, at, end):
    """TCP with its options."""
    if end - at < 20:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    size = 4 * i64(load_u8(frame + at + 12) >> 4)
    if size < 20:
        return i64(20), i64(NONE), end, i64(LAYER_BAD)
    return size, i64(NONE), end, i64(LAYER_CUT) if size > end - at else i64(0)


@kernel(inline=True)
def tunnel(dport):
    """The kind of tunnel header that a UDP destination port announces, or NONE."""
    if dport == PORT_VXLAN or dport == PORT_VXLAN_LINUX:
        return i64(VXLAN)
    return i64(GENEVE) if dport == PORT_GENEVE else i64(NONE)


@kernel(inline=True)
def udp(frame, at, end):
    """UDP.  Its length ends what it carries; 0 is a jumbogram's (RFC 2675, 4), less than 8 is wrong."""
    if end - at < 8:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    length = i64(load_be16(frame + at + 4))
    if 0 < length < 8:
        return i64(8), i64(NONE), end, i64(LAYER_BAD)
    stop = min(at + length, end) if length else end
    return i64(8), tunnel(i64(load_be16(frame + at + 2))), stop, i64(0)


@kernel(inline=True)
def fixed(at, end, size, after):
    """A header without variable parts, and what is always behind it."""
    if end - at < size:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    return size, after, end, i64(0)


@kernel(inline=True)
def _gre_routes(frame, at, end):
    """The bytes of the source route entries at ``at``, or -1 when they do not end in time (RFC 1701)."""
    start = at
    for _ in range(MAX_ROUTES):
        if end - at < 4:
            return i64(-1)
        family, length = load_be16(frame + at), i64(load_u8(frame + at + 3))
        at += 4 + length
        if family == 0 and length == 0:
            return at - start
    return i64(-1)


@kernel(inline=True)
def gre(frame, at, end):
    """GRE of version 0 with its optional words, or of version 1 as PPTP uses it."""
    if end - at < 4:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    bits = i64(load_be16(frame + at))
    protocol = i64(load_be16(frame + at + 2))
    version = bits & 7
    if version > 1 or (version == 1 and (protocol != ETHERTYPE_PPP or bits & 0xE000 != 0x2000)):
        return i64(4), i64(NONE), end, i64(LAYER_BAD)
    # One word each for checksum and offset (either flag brings both), key, sequence, and version 1's acknowledgement.
    size = i64(4)
    if bits & 0xC000:
        size += 4
    if bits & 0x2000:
        size += 4
    if bits & 0x1000:
        size += 4
    if version == 1 and bits & 0x0080:
        size += 4
    if bits & 0x4000:
        routes = _gre_routes(frame, at + size, end)
        if routes < 0:
            return size, i64(NONE), end, i64(LAYER_BAD)
        size += routes
    if size > end - at:
        return size, i64(NONE), end, i64(LAYER_CUT)
    if version == 1:  # without a sequence number it is an acknowledgement alone, which carries nothing
        return size, i64(PPP) if bits & 0x1000 else i64(NONE), end, i64(0)
    return size, by_ethertype(protocol), end, i64(0)


@kernel(inline=True)
def geneve(frame, at, end):
    """Geneve with its options; any EtherType may follow."""
    if end - at < 8:
        return i64(0), i64(NONE), end, i64(LAYER_CUT)
    first = i64(load_u8(frame + at))
    if first >> 6:
        return i64(0), i64(NONE), end, i64(LAYER_BAD)
    size = 8 + 4 * first
    if size > end - at:
        return size, i64(NONE), end, i64(LAYER_CUT)
    return size, by_ethertype(i64(load_be16(frame + at + 2))), end, i64(0)
