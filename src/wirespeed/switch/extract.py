"""A frame's flow: every field that a rule can match, taken from its bytes in one pass.

Theory of operation
-------------------
The pass goes forward from header to header and stops at the first that is not whole or contradicts itself; fields of
what it did not come to stay 0.  Two tags, three MPLS entries, IPv4, IPv6 with its extension headers, ARP, and the
transport headers are known; what stands behind a later fragment's IP header is payload.  What a header says of its own
length is believed as far as there are bytes.

Source: the pass of Open vSwitch's ``flow_extract`` as ovs-fields(7) describes its outcome, tested against it.
"""

import numpy as np

from wirespeed.core.packet import PARTIAL, Packet, copy_out, data
from wirespeed.jit.intrinsics import crc32c, fill, load_be16, load_be32, load_be64, load_u8, load_u64, stack, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.net.hashing import symmetric_hash
from wirespeed.net.link import LINKTYPE_ETHERNET
from wirespeed.switch.fields import (
    ARP,
    ETH_TYPE_SHIFT,
    FLOW_SIZE,
    FRAG_ANY,
    FRAG_LATER,
    FRAG_SHIFT,
    ICMP,
    ICMPV6,
    IP,
    IPV6,
    MPLS,
    MPLS_MULTICAST,
    MPLS_TTL_FLOOR_SHIFT,
    NEIGHBOR_ADVERT,
    NEIGHBOR_SOLICIT,
    PROTO_SHIFT,
    RARP,
    SCTP,
    TCI_PRESENT,
    TCP,
    TCP_FLAGS_SHIFT,
    TP_DST_SHIFT,
    TP_SRC_SHIFT,
    TPID2_SHIFT,
    TPID_SHIFT,
    TTL_FLOOR_MOST,
    TTL_FLOOR_SHIFT,
    TTL_SHIFT,
    UDP,
    W_ADDRESSES,
    W_DERIVED,
    W_DST,
    W_DST6,
    W_LABEL,
    W_MPLS,
    W_MPLS2,
    W_PORT,
    W_SHA,
    W_SRC,
    W_SRC6,
    W_TARGET,
    W_THA,
    W_TRANSPORT,
)
from wirespeed.switch.memory import PORT, PortRecord

i64, u32, u64 = np.int64, np.uint32, np.uint64
NO_ETH_TYPE = 0x05FF  # what stands for the type of a frame that has a length there, and no SNAP header
EXCERPT = 256  # bytes of a packet in many pieces that are looked at
TAG, TAG_SERVICE = 0x8100, 0x88A8
HOPOPTS, ROUTING, FRAGMENT, AH, DSTOPTS = 0, 43, 44, 51, 60
_MAC = ~0xFFFF & 0xFFFFFFFFFFFFFFFF
MAC_BITS = u64(_MAC)
MOST_HEADERS = 16


@kernel(inline=True)
def _put(flow, word, value):
    store_u64(flow + 8 * word, u64(value))


@kernel(inline=True)
def is_tag(number):
    """Whether a type announces a VLAN tag."""
    return number == TAG or number == TAG_SERVICE


@kernel(inline=True)
def is_whole_tcp(frame, at, end):
    """Whether a TCP header is there with all of its options."""
    header = i64(load_u8(frame + at + 12)) >> 4 << 2 if end - at >= 20 else i64(0)
    return header >= 20 and header <= end - at


@kernel(inline=True)
def _transport(flow, frame, at, end, proto):
    """The transport header; (value of the word that it shares with IP's fields)."""
    room = end - at
    word = u64(0)
    if proto == TCP:
        if is_whole_tcp(frame, at, end):
            word = u64(load_be32(frame + at)) << u64(TP_DST_SHIFT)
            word |= u64(load_be16(frame + at + 12) & 0x0FFF) << u64(TCP_FLAGS_SHIFT)
    elif (proto == UDP and room >= 8) or (proto == SCTP and room >= 12):
        word = u64(load_be32(frame + at)) << u64(TP_DST_SHIFT)
    elif proto == ICMP and room >= 8:
        word = u64(load_u8(frame + at)) << u64(TP_SRC_SHIFT) | u64(load_u8(frame + at + 1)) << u64(TP_DST_SHIFT)
    return word


@kernel
def _neighbor(flow, frame, at, end):
    """Target and link-layer addresses of a neighbour solicitation or advertisement.

    Options behind one with an impossible length are not looked at; an address that is there twice makes all of it void.
    """
    if end - at < 24:
        return
    high, low = load_be64(frame + at + 8), load_be64(frame + at + 16)
    source, target = u64(0), u64(0)
    option = at + 24
    while end - option >= 8:
        size = 8 * i64(load_u8(frame + option + 1))
        if size == 0 or size > end - option:
            break
        kind = load_u8(frame + option)
        if size == 8 and kind == 1:
            if source != 0:
                return
            source = load_be64(frame + option) << u64(16)
        elif size == 8 and kind == 2:
            if target != 0:
                return
            target = load_be64(frame + option) << u64(16)
        option += size
    _put(flow, i64(W_TARGET), low)
    _put(flow, i64(W_TARGET + 1), high)
    _put(flow, i64(W_SHA), source)
    _put(flow, i64(W_THA), target)


@kernel(inline=True)
def ttl_floor(ttl):
    """A time to live as far as actions can tell one from another, in its place in the word of what is derived."""
    return u64(min(i64(ttl), i64(TTL_FLOOR_MOST))) << u64(TTL_FLOOR_SHIFT)


@kernel
def _ipv4(flow, frame, at, length, whole):
    """IPv4 and what is behind it; ``whole`` is the length of the packet, ``length`` what may be read."""
    if length - at < 20:
        return
    header = 4 * i64(load_u8(frame + at) & 15)
    total = i64(load_be16(frame + at + 2))
    if total == 0 and whole > 0xFFFF:
        total = whole - at  # a frame of BIG TCP, whose length has no room there
    if header < 20 or length - at < header or total > whole - at or header > total:
        return
    part = load_be16(frame + at + 6)
    proto = i64(load_u8(frame + at + 9))
    frag = i64(0)
    if part & 0x3FFF:
        frag = i64(FRAG_ANY | FRAG_LATER) if part & 0x1FFF else i64(FRAG_ANY)
    ttl = load_u8(frame + at + 8)
    word = u64(load_u8(frame + at + 1)) | u64(ttl) << u64(TTL_SHIFT)
    if not frag & FRAG_LATER:
        word |= _transport(flow, frame, at + header, min(at + total, length), proto)
    _put(flow, i64(W_PORT), load_u64(flow + 8 * W_PORT) | u64(proto) << u64(PROTO_SHIFT) | u64(frag) << u64(FRAG_SHIFT))
    _put(flow, i64(W_ADDRESSES), load_be64(frame + at + 12))
    _put(flow, i64(W_TRANSPORT), word)
    _put(flow, i64(W_DERIVED), ttl_floor(ttl))


@kernel
def _ipv6(flow, frame, at, length, whole):
    """IPv6, its extension headers, and what is behind them."""
    if length - at < 40:
        return
    payload = i64(load_be16(frame + at + 4))
    if payload == 0 and whole > 0xFFFF:
        payload = whole - at - 40
    if payload > whole - at - 40:
        return
    end = min(at + 40 + payload, length)
    _put(flow, i64(W_SRC6), load_be64(frame + at + 16))
    _put(flow, i64(W_SRC6 + 1), load_be64(frame + at + 8))
    _put(flow, i64(W_DST6), load_be64(frame + at + 32))
    _put(flow, i64(W_DST6 + 1), load_be64(frame + at + 24))
    proto = i64(load_u8(frame + at + 6))
    frag = i64(0)
    l4 = at + 40
    for _ in range(MOST_HEADERS):
        if proto == HOPOPTS or proto == ROUTING or proto == DSTOPTS:
            if end - l4 < 8:
                return
            size = 8 * (i64(load_u8(frame + l4 + 1)) + 1)
        elif proto == AH:
            if end - l4 < 8:
                return
            size = 4 * (i64(load_u8(frame + l4 + 1)) + 2)
        elif proto == FRAGMENT:
            if end - l4 < 8:
                return
            size = i64(8)
        else:
            break
        if size > end - l4:
            return
        if proto == FRAGMENT:
            offset = load_be16(frame + l4 + 2)
            if offset & 0xFFF8:  # its protocol stays that of the header itself, as in Open vSwitch
                frag = i64(FRAG_ANY | FRAG_LATER)
                break
            if offset:
                frag = i64(FRAG_ANY)
            proto = i64(load_u8(frame + l4))
            l4 += 8
        else:
            proto = i64(load_u8(frame + l4))
            l4 += size
    first = load_be32(frame + at)
    ttl = load_u8(frame + at + 7)
    word = u64(first >> 20 & 0xFF) | u64(ttl) << u64(TTL_SHIFT)
    if not frag & FRAG_LATER:
        if proto == ICMPV6:
            if end - l4 >= 8:
                kind, code = load_u8(frame + l4), load_u8(frame + l4 + 1)
                word |= u64(kind) << u64(TP_SRC_SHIFT) | u64(code) << u64(TP_DST_SHIFT)
                if (kind == NEIGHBOR_SOLICIT or kind == NEIGHBOR_ADVERT) and code == 0:
                    _neighbor(flow, frame, l4, end)
        else:
            word |= _transport(flow, frame, l4, end, proto)
    _put(flow, i64(W_PORT), load_u64(flow + 8 * W_PORT) | u64(proto) << u64(PROTO_SHIFT) | u64(frag) << u64(FRAG_SHIFT))
    _put(flow, i64(W_LABEL), load_u64(flow + 8 * W_LABEL) | u64(first & 0xFFFFF))
    _put(flow, i64(W_TRANSPORT), word)
    _put(flow, i64(W_DERIVED), ttl_floor(ttl))


@kernel
def _arp(flow, frame, at, length):
    """ARP or RARP for Ethernet and IPv4."""
    if length - at < 28 or load_be64(frame + at) >> u64(16) != u64(0x000108000604):
        return
    operation = i64(load_be16(frame + at + 6))
    if operation <= 0xFF:
        _put(flow, i64(W_PORT), load_u64(flow + 8 * W_PORT) | u64(operation) << u64(PROTO_SHIFT))
    _put(flow, i64(W_ADDRESSES), u64(load_be32(frame + at + 14)) << u64(32) | u64(load_be32(frame + at + 24)))
    _put(flow, i64(W_SHA), load_be64(frame + at + 8) & MAC_BITS)
    _put(flow, i64(W_THA), load_be64(frame + at + 18) & MAC_BITS)


@kernel
def _mpls(flow, frame, at, length):
    """Up to three entries of a label stack; of one whose end is not among them, those that are not 0 count."""
    count, named, ended = i64(0), i64(0), False
    while length - at >= 4 and count < 3:
        entry = u64(load_be32(frame + at))
        if count == 0:
            _put(flow, i64(W_MPLS), entry)
            floor = min(i64(entry & u64(0xFF)), i64(TTL_FLOOR_MOST))
            _put(flow, i64(W_DERIVED), u64(floor) << u64(MPLS_TTL_FLOOR_SHIFT))
        elif count == 1:
            _put(flow, i64(W_MPLS), load_u64(flow + 8 * W_MPLS) | entry << u64(32))
        else:
            _put(flow, i64(W_MPLS2), entry)
        count += 1
        named += i64(1) if entry != u64(0) else i64(0)
        at += 4
        if entry & u64(0x100):
            ended = True
            break
    _put(flow, i64(W_MPLS2), load_u64(flow + 8 * W_MPLS2) | u64(count if ended else named) << u64(32))


@kernel
def parse(flow, frame, length, whole):
    """Fill a flow of zeros, but for its port, with what ``length`` bytes of an Ethernet frame of ``whole`` say."""
    if length < 14:
        return
    dst, src = load_be64(frame) & MAC_BITS, load_be64(frame + 6) & MAC_BITS
    kind, at = i64(load_be16(frame + 12)), i64(14)
    if is_tag(kind) and length >= at + 4:
        dst |= u64(load_be16(frame + at) | TCI_PRESENT)
        _put(flow, i64(W_LABEL), u64(kind) << u64(TPID_SHIFT))
        kind, at = i64(load_be16(frame + at + 2)), at + 4
        if is_tag(kind) and length >= at + 4:
            src |= u64(load_be16(frame + at) | TCI_PRESENT)
            _put(flow, i64(W_LABEL), load_u64(flow + 8 * W_LABEL) | u64(kind) << u64(TPID2_SHIFT))
            kind, at = i64(load_be16(frame + at + 2)), at + 4
    if kind < 0x600:
        named = length - at >= 8 and load_be64(frame + at) >> u64(16) == u64(0xAAAA03000000)
        kind, at = (i64(load_be16(frame + at + 6)), at + 8) if named else (i64(NO_ETH_TYPE), at)
        if kind < 0x600:
            kind = i64(NO_ETH_TYPE)
    _put(flow, i64(W_DST), dst)
    _put(flow, i64(W_SRC), src)
    _put(flow, i64(W_PORT), load_u64(flow + 8 * W_PORT) | u64(kind) << u64(ETH_TYPE_SHIFT))
    if kind == IP:
        _ipv4(flow, frame, at, length, whole)
    elif kind == IPV6:
        _ipv6(flow, frame, at, length, whole)
    elif kind == ARP or kind == RARP:
        _arp(flow, frame, at, length)
    elif kind == MPLS or kind == MPLS_MULTICAST:
        _mpls(flow, frame, at, length)


@kernel
def parse_behind(flow, frame, length, whole, labels, kind):
    """Fill in what is behind the first ``labels`` labels of an MPLS frame, of type ``kind``; fields of it are 0 before."""
    at = i64(14)
    while length >= at and is_tag(i64(load_be16(frame + at - 2))):
        at += 4
    at += 4 * max(labels, i64(0))
    if length < at:
        return
    if kind == IP:
        _ipv4(flow, frame, at, length, whole)
    elif kind == IPV6:
        _ipv6(flow, frame, at, length, whole)
    elif kind == ARP or kind == RARP:
        _arp(flow, frame, at, length)
    elif kind == MPLS or kind == MPLS_MULTICAST:
        _mpls(flow, frame, at, length)


@kernel
def packet_hash(frame, length, seed):
    """A hash of a frame's flow, the same for both directions: by its addresses when there is no IP."""
    value = symmetric_hash(frame, length, i64(LINKTYPE_ETHERNET))
    if value == u32(0) and length >= 14:
        value = crc32c(u32(1), (load_be64(frame) ^ load_be64(frame + 6)) >> u64(16))
    return crc32c(u32(seed), u64(value))


@kernel
def flow_of(handle, ports, flow, seed, hashed):
    """Fill ``flow`` from a packet, whose ``port`` is its port's place; with ``hashed``, its hash too.

    Of a packet whose first piece is short only the first EXCERPT bytes are looked at, from a copy.
    """
    p = Packet(handle)
    fill(flow, 0, FLOW_SIZE)
    place = min(i64(p.port), i64(255))
    _put(flow, i64(W_PORT), u64(PortRecord(ports + PORT * place).number))
    if p.link != LINKTYPE_ETHERNET:
        return
    frame, length, whole = data(p), i64(p.length), i64(p.total)
    if p.segments > 1 and length < EXCERPT:
        frame = stack(EXCERPT)
        length = copy_out(handle, i64(0), i64(EXCERPT), frame)
    if whole > 0xFFFF and not p.flags & PARTIAL:
        whole = i64(0xFFFF)
    parse(flow, frame, length, whole)
    if hashed:
        value = u64(packet_hash(frame, length, seed))
        _put(flow, i64(W_DERIVED), load_u64(flow + 8 * W_DERIVED) | value)
