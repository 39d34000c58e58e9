"""The outer headers of any frame, step by step, out of line.

It takes the same steps as :mod:`wirespeed.net.dissect`, up to where a tunnel's inner frame begins, and remembers where
the headers are that have bits.  Frames with one or two tags and plain IP behind them are told without a loop.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_be32, load_u8
from wirespeed.jit.kernel import kernel
from wirespeed.net import layer
from wirespeed.net.bits import (
    ARP,
    BITS,
    CUT,
    EVERYTHING,
    FRAGMENT6,
    GENEVE,
    IPV4,
    IPV6,
    MPLS,
    TRANSPORT,
    VLAN,
    VLAN2,
    VXLAN,
)
from wirespeed.net.dissect import step
from wirespeed.net.layer import LAST_NETWORK, LAYER_BAD, MAX_LAYERS, NONE
from wirespeed.net.link import LINKTYPE_ETHERNET, by_ethertype, first_kind
from wirespeed.net.shortcut import plain_ipv4, plain_ipv6

i64 = np.int64
NETWORK = ARP | IPV4 | IPV6
AT_L4 = TRANSPORT & ~(VXLAN | GENEVE)  # VXLAN and Geneve are found behind the UDP header


def _bits() -> np.ndarray:
    """The bit of each kind of layer, 0 for those that have none."""
    bits = np.zeros(len(layer.NAMES), np.int64)
    for name, bit in BITS.items():
        if name != "vlan2":
            bits[layer.NAMES.index(name)] = bit
    return bits


KIND_BIT = _bits()


@kernel(inline=True)
def _is_tag(number):
    return by_ethertype(number) == layer.VLAN


@kernel(inline=True)
def _tagged(frame, length):
    """A frame with one or two tags and plain IP behind them, as :func:`walk` returns it; bits -1 for any other."""
    none, at, vlan2, bits, size, end = i64(0), i64(18), i64(0), i64(-1), i64(0), i64(0)
    if length >= 42 and _is_tag(i64(load_be16(frame + 16))):
        at, vlan2 = i64(22), i64(18)
    protocol = i64(-1)
    if length >= at + 20 and load_be32(frame + at - 2) >> 8 == 0x080045:
        bits, size, end = plain_ipv4(frame, at, length, EVERYTHING)
        protocol, size = i64(load_u8(frame + at + 9)), size + 20
    elif length >= at + 40 and load_be32(frame + at - 2) >> 12 == 0x86DD6:
        bits, size, end = plain_ipv6(frame, at, length, EVERYTHING)
        protocol, size = i64(load_u8(frame + at + 6)), size + 40
    l4 = at + 20 if bits & IPV4 else at + 40
    bits |= VLAN | VLAN2 if vlan2 else VLAN
    return bits, i64(14), vlan2, none, at, none, l4, at + size, end, protocol


@kernel(inline=True)
def _protocol(frame, kind, at, before):
    """The IP protocol that a header names, or the one named ``before`` when it names none."""
    if kind == layer.IPV4:
        return i64(load_u8(frame + at + 9))
    if kind == layer.IPV6:
        return i64(load_u8(frame + at + 6))
    if layer.HOPOPTS <= kind < layer.ESP:
        return i64(load_u8(frame + at))
    return before


@kernel(inline=True)
def _tag_bit(layers):
    """The bit of the next tag: the first two have one."""
    if not layers & VLAN:
        return i64(VLAN)
    return i64(0) if layers & VLAN2 else i64(VLAN2)


@kernel
def walk(frame, length, link):
    """:func:`wirespeed.net.parse.find` for any frame and all headers."""
    if link == LINKTYPE_ETHERNET and length >= 38 and _is_tag(i64(load_be16(frame + 12))):
        plain = _tagged(frame, length)
        if plain[0] >= 0:
            return plain
    layers, flags, n, protocol = i64(0), i64(0), i64(0), i64(-1)
    vlan, vlan2, mpls, l3, fragment6, l4 = i64(0), i64(0), i64(0), i64(0), i64(0), i64(0)
    kind, at, end, datagram = first_kind(link, frame, length), i64(0), length, length
    while kind != NONE:
        if kind <= LAST_NETWORK and layers & NETWORK:
            break  # the inner frame of a tunnel
        if n == MAX_LAYERS:
            flags |= LAYER_BAD
            break
        size, after, stop, found = step(kind, frame, at, end)
        flags |= found
        if size == 0:
            break
        bit = _tag_bit(layers) if kind == layer.VLAN else KIND_BIT[kind]
        vlan = at if bit == VLAN else vlan
        vlan2 = at if bit == VLAN2 else vlan2
        mpls = at if bit & MPLS & ~layers else mpls
        l3 = at if bit & NETWORK else l3
        fragment6 = at if bit & FRAGMENT6 & ~layers else fragment6
        l4 = at if bit & AT_L4 else l4
        layers |= bit
        protocol = _protocol(frame, kind, at, protocol)
        datagram = stop if kind < layer.TCP else datagram
        at, end, kind = min(at + size, end), stop, after
        n += 1
    return layers | flags * CUT, vlan, vlan2, mpls, l3, fragment6, l4, at, datagram, protocol
