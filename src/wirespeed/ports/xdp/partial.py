"""Checksums that the sender left to be computed, and frames that it left to be cut, of which a frame alone can tell.

Theory of operation
-------------------
The kernel's stack leaves the transport checksum of what it sends through virtual interfaces for later, and may leave the
cutting into frames as well.  A program of XDP sees the bytes only.  But the sender has written the sum of the pseudo
header into the field, so a field that holds exactly this is taken for such a *partial* checksum.  A right checksum that
happens to be this number is computed again on the way out, with the same result, so the guess harms nobody.  A frame
with a partial checksum that is longer than its interface may carry is one that is to be cut, into what fits.

*Source:* Linux, ``__tcp_v4_send_check``, ``udp_set_csum``: what is in the field.
"""

import numpy as np

from wirespeed.core.packet import Packet, data
from wirespeed.jit.intrinsics import load_be16, load_u8, stack
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import l4_sum, pseudo_ipv4, pseudo_ipv6
from wirespeed.net.layer import TCP
from wirespeed.net.offload import unready
from wirespeed.net.outline import ANYWHERE, Outline, field_place, outline, pseudo_sum
from wirespeed.net.protocol import PROTO_TCP, PROTO_UDP
from wirespeed.net.virtio_net import GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4

u16, i64 = np.uint16, np.int64
NO, YES, UNSURE = 0, 1, 2
ETHER_IPV4, ETHER_IPV6 = 0x0800, 0x86DD
# Types behind which a transport header can lie: tags, MPLS, PPPoE.
ETHER_TAG, ETHER_SERVICE_TAG, ETHER_MPLS, ETHER_PPPOE = 0x8100, 0x88A8, 0x8847, 0x8864


@kernel(inline=True)
def _holds_sum(field, pseudo):
    """Whether the 16 bits at ``field`` are the sum of a pseudo header."""
    return YES if i64(load_be16(field)) == l4_sum(i64(0), i64(0), pseudo) else NO


@kernel(inline=True)
def look(at, length):
    """Whether the frame of ``length`` bytes at an address has a partial checksum: NO, YES, or UNSURE, if it is not plain."""
    if length < 42:
        return NO
    kind = load_be16(at + 12)
    if kind == ETHER_IPV4:
        if load_u8(at + 14) != 0x45:
            return UNSURE
        protocol = i64(load_u8(at + 23))
        place = i64(50) if protocol == PROTO_TCP else i64(40)
        if (protocol != PROTO_TCP and protocol != PROTO_UDP) or load_be16(at + 20) & 0x3FFF or length < place + 2:
            return NO
        # Bounds: 42 bytes and more, and two at ``place``.
        pseudo = pseudo_ipv4(at + 14, protocol, i64(load_be16(at + 16)) - 20)
        return _holds_sum(at + place, pseudo)
    if kind == ETHER_IPV6:
        protocol = i64(load_u8(at + 20))
        place = i64(70) if protocol == PROTO_TCP else i64(60)
        if length < place + 2 or (protocol != PROTO_TCP and protocol != PROTO_UDP):
            return UNSURE
        pseudo = pseudo_ipv6(at + 22, at + 38, protocol, i64(load_be16(at + 18)))
        return _holds_sum(at + place, pseudo)
    tagged = kind == ETHER_TAG or kind == ETHER_SERVICE_TAG or kind == ETHER_MPLS or kind == ETHER_PPPOE
    return UNSURE if tagged else NO


@kernel
def look_closely(handle):
    """:func:`look` for any packet, in several segments too."""
    o = Outline(stack(1152))
    if not outline(handle, o, i64(ANYWHERE), i64(0), False):
        return False
    place = o.l4 + field_place(o.kind)
    # Bounds: the transport header is whole, so its field is among the bytes known.
    expected = l4_sum(i64(0), i64(0), pseudo_sum(o, o.end - o.l4))
    return i64(load_be16(o.head + place)) == expected


@kernel
def leave_to_do(handle, mtu):
    """Say of a packet with a partial checksum what is to be done, also that it is to be cut when it is too long."""
    if not unready(handle):
        return
    p, o = Packet(handle), Outline(stack(1152))
    if not outline(handle, o, i64(ANYWHERE), i64(0), False) or i64(p.total) - o.l3 <= mtu:
        return
    p.gso_size = u16(mtu - (o.payload - o.l3))
    tcp = i64(GSO_TCPV4) if o.version == 4 else i64(GSO_TCPV6)
    p.gso_type = u16(tcp if o.kind == TCP else i64(GSO_UDP_L4))


@kernel(inline=True)
def mark_partial(handle, mtu):
    """Look whether a packet that came in has a partial checksum, and say so."""
    p = Packet(handle)
    found = look(data(p), i64(p.length))
    if found == UNSURE and look_closely(handle):
        found = YES
    if found == YES:
        leave_to_do(handle, mtu)
