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

from wirespeed.core.packet import PARTIAL, Packet, data
from wirespeed.jit.intrinsics import load_be16, load_u8, stack
from wirespeed.jit.kernel import kernel
from wirespeed.net.checksum import l4_sum, pseudo_ipv4, pseudo_ipv6
from wirespeed.net.dissect import dissect
from wirespeed.net.layer import IPV4, IPV6, MAX_LAYERS, TCP, UDP, Layer
from wirespeed.net.outline import HEADERS, LAYER, Outline, field_place, outline, pseudo_sum
from wirespeed.net.protocol import PROTO_TCP, PROTO_UDP
from wirespeed.net.virtio_net import GSO_TCPV4, GSO_TCPV6

u16, u32, i64 = np.uint16, np.uint32, np.int64
NO, YES, UNSURE = 0, 1, 2
ETHER_IPV4, ETHER_IPV6 = 0x0800, 0x86DD
# Types behind which a transport header can lie: tags, MPLS, PPPoE.
ETHER_TAG, ETHER_SERVICE_TAG, ETHER_MPLS, ETHER_PPPOE = 0x8100, 0x88A8, 0x8847, 0x8864
assert LAYER * MAX_LAYERS == 512  # kernels write it as a literal: stack(512)


@kernel(inline=True)
def _is_tunnel(protocol):
    """Whether a protocol of IP carries frames or packets: IPv4, IPv6 or GRE (IANA, protocol numbers)."""
    return protocol == 4 or protocol == 41 or protocol == 47


@kernel(inline=True)
def _is_tunnel_port(port):
    """Whether a port of UDP is that of a tunnel: VXLAN (RFC 7348) or Geneve (RFC 8926)."""
    return port == 4789 or port == 6081


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
        if protocol != PROTO_TCP and protocol != PROTO_UDP:
            return UNSURE if _is_tunnel(protocol) else NO
        if load_be16(at + 20) & 0x3FFF or length < place + 2:
            return NO
        if protocol == PROTO_UDP and _is_tunnel_port(i64(load_be16(at + 36))):
            return UNSURE
        # Bounds: 42 bytes and more, and two at ``place``.
        pseudo = pseudo_ipv4(at + 14, protocol, i64(load_be16(at + 16)) - 20)
        return _holds_sum(at + place, pseudo)
    if kind == ETHER_IPV6:
        protocol = i64(load_u8(at + 20))
        place = i64(70) if protocol == PROTO_TCP else i64(60)
        if length < place + 2 or (protocol != PROTO_TCP and protocol != PROTO_UDP):
            return UNSURE
        if protocol == PROTO_UDP and _is_tunnel_port(i64(load_be16(at + 56))):
            return UNSURE
        pseudo = pseudo_ipv6(at + 22, at + 38, protocol, i64(load_be16(at + 18)))
        return _holds_sum(at + place, pseudo)
    tagged = kind == ETHER_TAG or kind == ETHER_SERVICE_TAG or kind == ETHER_MPLS or kind == ETHER_PPPOE
    return UNSURE if tagged else NO


@kernel
def find(handle, o):
    """Fill the outline for the transport header with a partial checksum, in a tunnel too; whether there is one."""
    p, layers = Packet(handle), stack(512)
    n = dissect(data(p), min(i64(p.length), i64(HEADERS)), i64(p.link), layers, i64(MAX_LAYERS))
    for i in range(n):
        layer = Layer(layers + LAYER * i)
        kind, offset = i64(layer.kind), i64(layer.offset)
        if kind != TCP and kind != UDP:
            continue
        place = field_place(kind)
        if outline(handle, o, offset, place, False) and o.l4 == offset:
            # Bounds: the transport header is whole, so its field is among the bytes known.
            if i64(load_be16(o.head + offset + place)) == l4_sum(i64(0), i64(0), pseudo_sum(o, o.end - offset)):
                return True
    return False


@kernel
def outer(o):
    """Where the outermost IP header of an outline is."""
    for i in range(o.count):
        layer = Layer(o.layers + LAYER * i)
        if layer.kind == IPV4 or layer.kind == IPV6:
            return i64(layer.offset)
    return o.l3


@kernel
def leave_to_do(handle, mtu):
    """Say of a packet what is to be done, if anything is: its checksum, and that it is to be cut when it is too long.

    Only TCP's is cut: where datagrams were joined, nobody tells where one ends.
    """
    p, o = Packet(handle), Outline(stack(1152))
    if not find(handle, o):
        return
    p.flags = u16(p.flags | PARTIAL)
    p.csum_tail = u32(i64(p.total) - o.l4)
    p.csum_offset = u32(field_place(o.kind))
    p.gso_size = 0
    p.gso_type = 0
    room = mtu - (o.payload - outer(o))
    if i64(p.total) - outer(o) > mtu and o.kind == TCP and room > 0:
        p.gso_size = u16(room)
        p.gso_type = u16(GSO_TCPV4 if o.version == 4 else GSO_TCPV6)


@kernel(inline=True)
def mark_partial(handle, mtu):
    """Look whether a packet that came in has a partial checksum, and say so."""
    p = Packet(handle)
    if look(data(p), i64(p.length)) != NO:
        leave_to_do(handle, mtu)
