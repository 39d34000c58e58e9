"""Bytes of a packet described as a flow, right to the last checksum, and the ways in which a frame can be wrong."""

import random
import struct
from collections.abc import Callable

from tests.switch.oracle.fields import Flow

ETH_P_IP, ETH_P_IPV6, ETH_P_MPLS = 0x0800, 0x86DD, (0x8847, 0x8848)
FIRST, LATER = 1, 3  # values of a flow's "frag"
LONGEST = 1400


def build(flow: Flow) -> bytes:
    """The frame of a flow.  What the flow does not say is zero, or what makes the frame right."""
    told = flow.get
    tags = b""
    for tpid, tci in ((told("tpid", 0), told("tci", 0)), (told("inner_tpid", 0), told("inner_tci", 0))):
        tags += struct.pack(">HH", tpid, tci) if tpid else b""
    ethertype = told("dl_type", 0)
    addresses = told("dl_dst", 0).to_bytes(6) + told("dl_src", 0).to_bytes(6)
    body = _body(flow, ethertype)
    # An EtherType below 0x600 would be a length: such a frame is of 802.3, with LLC and perhaps SNAP.
    kind = struct.pack(">H", len(body) if ethertype < 0x600 else ethertype)
    return (addresses + tags + kind + body + bytes(told("padding", 0)))[:LONGEST]


def _body(flow: Flow, ethertype: int) -> bytes:
    if ethertype in (0x0806, 0x8035):
        return _arp(flow)
    if ethertype == ETH_P_IP:
        return _ipv4(flow)
    if ethertype == ETH_P_IPV6:
        return _ipv6(flow)
    if ethertype in ETH_P_MPLS:
        return _mpls(flow)
    if ethertype < 0x600:
        snap = b"\xaa\xaa\x03\x00\x00\x00" + struct.pack(">H", flow["snap"]) if flow.get("snap") else b"\x42\x42\x03"
        return snap + payload(flow)
    return payload(flow)


def payload(flow: Flow) -> bytes:
    """The bytes behind all headers."""
    return bytes((i * 7 + flow.get("seed", 0)) & 0xFF for i in range(flow.get("payload", 0)))


def _arp(flow: Flow) -> bytes:
    told = flow.get
    fixed = struct.pack(">HHBBH", told("arp_hw", 1), 0x0800, 6, 4, told("arp_op", 1))
    sender = told("arp_sha", 0).to_bytes(6) + told("arp_spa", 0).to_bytes(4)
    return fixed + sender + told("arp_tha", 0).to_bytes(6) + told("arp_tpa", 0).to_bytes(4)


def _mpls(flow: Flow) -> bytes:
    told = flow.get
    labels = [told("mpls_label", 0) << 12 | told("mpls_tc", 0) << 9 | told("mpls_bos", 1) << 8 | told("mpls_ttl", 64)]
    labels += [told(name, 0) for name in ("mpls2", "mpls3") if name in flow]
    stack = b"".join(struct.pack(">I", label) for label in labels)
    inner = told("mpls_inner", 0)
    return stack + (_body(flow, inner) if inner in (ETH_P_IP, ETH_P_IPV6) else payload(flow))


def _ipv4(flow: Flow) -> bytes:
    told = flow.get
    options = bytes([1]) * (4 * told("options", 0))
    source, destination = told("nw_src", 0).to_bytes(4), told("nw_dst", 0).to_bytes(4)
    frag = told("frag", 0)
    field = {0: told("df", 0) << 14, FIRST: 0x2000, LATER: told("more", 0) << 13 | 185}[frag]
    pseudo = source + destination + struct.pack(">H", told("nw_proto", 0))
    body = _transport(flow, pseudo) if frag != LATER else payload(flow)
    length = 20 + len(options) + len(body)
    head = bytearray(
        struct.pack(
            ">BBHHHBBH4s4s",
            0x45 + len(options) // 4,
            told("tos", 0),
            length,
            told("ip_id", 0),
            field,
            told("nw_ttl", 64),
            told("nw_proto", 0),
            0,
            source,
            destination,
        )
        + options
    )
    head[10:12] = checksum(bytes(head)).to_bytes(2)
    return bytes(head) + body


def _ipv6(flow: Flow) -> bytes:
    told = flow.get
    source, destination = told("ipv6_src", 0).to_bytes(16), told("ipv6_dst", 0).to_bytes(16)
    protocol, frag = told("nw_proto", 0), told("frag", 0)
    pseudo = source + destination + struct.pack(">I", protocol)
    body = _transport(flow, pseudo) if frag != LATER else payload(flow)
    following = protocol
    if frag:
        place = 1 if frag == FIRST else 185 << 3 | told("more", 0)
        body, following = struct.pack(">BBHI", following, 0, place, told("ip_id", 0)) + body, 44
    for kind, bit in ((60, 1), (43, 2), (0, 4)):  # destination options, routing, hop by hop: the last is outermost
        if told("extensions", 0) & bit:
            body, following = bytes([following, 0]) + (b"\x01\x04\0\0\0\0" if kind != 43 else bytes(6)) + body, kind
    first = 6 << 28 | told("tos", 0) << 20 | told("ipv6_label", 0)
    return struct.pack(">IHBB", first, len(body), following, told("nw_ttl", 64)) + source + destination + body


def _transport(flow: Flow, pseudo: bytes) -> bytes:
    """The layer 4 header and the payload; ``pseudo`` is the pseudo header without the length."""
    told, protocol = flow.get, flow.get("nw_proto", 0)
    data = payload(flow)
    source, destination = told("tp_src", 0), told("tp_dst", 0)
    if protocol == 6:
        head = struct.pack(">HHIIHHHH", source, destination, 1, 2, 5 << 12 | told("tcp_flags", 0), 1000, 0, 0)
        return _summed(head + data, 16, pseudo)
    if protocol == 17:
        head = struct.pack(">HHHH", source, destination, 8 + len(data), 0)
        return head + data if told("no_checksum", 0) else _summed(head + data, 6, pseudo)
    if protocol == 132:
        body = struct.pack(">HHII", source, destination, 7, 0) + data
        return body[:8] + crc32c(body).to_bytes(4, "little") + body[12:]
    if protocol == 1:
        return _summed(struct.pack(">BBHI", source & 0xFF, destination & 0xFF, 0, told("seed", 0)) + data, 2, b"")
    if protocol == 58:
        body = struct.pack(">BBHI", source & 0xFF, destination & 0xFF, 0, 0)
        if source in (135, 136) and destination == 0:
            body += told("nd_target", 0).to_bytes(16)
            for kind, name in ((1, "nd_sll"), (2, "nd_tll")):
                body += bytes([kind, 1]) + told(name, 0).to_bytes(6) if name in flow else b""
        return _summed(body + data, 2, pseudo)
    return data


def _summed(body: bytes, at: int, pseudo: bytes) -> bytes:
    """``body`` with its Internet checksum at ``at``; with a pseudo header, whose length is added, unless it is empty."""
    before = pseudo + struct.pack(">H", len(body)) if pseudo else b""
    found = checksum(before + body) or 0xFFFF
    return body[:at] + found.to_bytes(2) + body[at + 2 :]


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071), the plain way."""
    data += bytes(len(data) % 2)
    total = sum(word for (word,) in struct.iter_unpack(">H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def crc32c(data: bytes) -> int:
    """The checksum of SCTP (RFC 9260 appendix A), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Ways in which a frame can be wrong. Nothing is cut below an Ethernet header: no port gives less to a switch.


def cut(rng: random.Random, frame: bytes) -> bytes:
    """The frame ends early, most often in a header."""
    return frame[: rng.randint(14, min(len(frame), rng.choice([20, 40, 80, len(frame)])))] if len(frame) > 14 else frame


def flipped(rng: random.Random, frame: bytes) -> bytes:
    """One bit behind the addresses is another: a type, a length, a version, a checksum."""
    wrong = bytearray(frame)
    if len(wrong) > 12:
        wrong[rng.randrange(12, min(len(wrong), 80))] ^= 1 << rng.randrange(8)
    return bytes(wrong)


def padded(rng: random.Random, frame: bytes) -> bytes:
    """The frame goes on behind its last header's end."""
    return frame + rng.randbytes(rng.randint(1, 20))


def scrambled(rng: random.Random, frame: bytes) -> bytes:
    """A few bytes anywhere are others."""
    wrong = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        wrong[rng.randrange(len(wrong))] = rng.randrange(256)
    return bytes(wrong)


FAULTS: list[Callable[[random.Random, bytes], bytes]] = [cut, flipped, padded, scrambled]
