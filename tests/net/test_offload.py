"""Checksums that were left to be done, against scapy's, wherever the headers are and however the bytes lie."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import GRE, IP, TCP, UDP, Dot1Q, IPv6, IPv6ExtHdrRouting, IPv6ExtHdrSegmentRouting, Raw
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.layers.vxlan import VXLAN

from tests.core.test_packet import adjust, append, prepend, trim
from tests.net import stacks
from tests.net.stacks import ETHER
from tests.net.workshop import Workshop
from wirespeed.core.chain import copy_in
from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.jit import libc
from wirespeed.net.dissect import layers
from wirespeed.net.offload import announce, complete, unready
from wirespeed.net.virtio_net import VirtioNetHeader

PLACE = {"tcp": 16, "udp": 6, "sctp": 8}
V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}


@pytest.fixture(scope="module")
def shop():
    shop = Workshop(512)
    yield shop
    shop.close()


def without(frame: bytes, at: int, size: int = 2, value: bytes = b"\xab\xcd\xef\x01") -> bytes:
    """A frame with something else in its checksum field."""
    return frame[:at] + value[:size] + frame[at + size :]


def transports(frame: bytes) -> list[tuple[str, int]]:
    """Kind and offset of each transport header."""
    return [(h.name, h.offset) for h in layers(frame) if h.name in PLACE]


def cuts(generator: random.Random, frame: bytes) -> tuple[int, ...]:
    return tuple(generator.randrange(1, len(frame)) for _ in range(generator.choice([0, 1, 2, 7])))


def header(shop: Workshop, handle: int) -> dict[str, int] | None:
    """What :func:`announce` says, or None when it refuses."""
    memory = np.full(VirtioNetHeader.size, 0x55, np.uint8)
    good = announce(handle, memory.ctypes.data)
    said = VirtioNetHeader(memory)
    fields = {name: getattr(said, name) for name in VirtioNetHeader.fields}
    if not good:
        assert not any(fields.values())
        return None
    return fields


# Completing


@given(st.integers(0, 2**32))
def test_a_completed_checksum_is_the_right_one_in_any_stack_and_chain(shop, seed):
    generator = random.Random(seed)
    frame = stacks.assembled(stacks.frame(generator), generator.randbytes(generator.randrange(90)))
    for kind, at in transports(frame):
        place = at + PLACE[kind]
        size = 4 if kind == "sctp" else 2
        handle = shop.partial(without(frame, place, size), at, PLACE[kind], cuts=cuts(generator, frame))
        assert complete(handle)
        assert shop.bytes(handle) == frame
        assert not Packet.at(handle).flags & PARTIAL
        shop.free(handle)
    assert shop.whole()


def test_padding_behind_the_datagram_is_not_summed(shop):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(b"abc"))
    handle = shop.partial(without(frame, 50) + b"\xff" * 7, 34, 16)
    assert complete(handle)
    assert shop.bytes(handle) == frame + b"\xff" * 7
    shop.free(handle)


def test_case_38_a_udp_sum_of_zero_is_sent_as_all_ones(shop):
    for network in (IP(**V4), IPv6(**V6)):
        plain = bytes(ETHER / network / UDP(sport=1, dport=2, chksum=0) / Raw(b"\0\0"))
        at = len(plain) - 10
        handle = shop.partial(plain, at, 6)
        complete(handle)
        (value,) = struct.unpack_from("!H", shop.bytes(handle), at + 6)
        shop.free(handle)
        # With the sum of all the rest as payload the whole sum is all ones, and the checksum 0.
        zero = plain[:-2] + struct.pack("!H", value)
        handle = shop.partial(zero, at, 6)
        complete(handle)
        assert shop.bytes(handle)[at + 6 : at + 8] == b"\xff\xff"
        shop.free(handle)


def test_the_pseudo_header_is_that_of_the_addresses_as_they_are_now(shop):
    old = bytes(ETHER / IP(**V4) / UDP(sport=1, dport=2) / Raw(b"abc"))
    new = bytes(ETHER / IP(src="192.0.2.1", dst="10.0.0.2") / UDP(sport=77, dport=2) / Raw(b"abc"))
    handle = shop.partial(old, 34, 6)
    array = np.frombuffer(new[14:40], np.uint8)
    copy_in(handle, 14, 26, array.ctypes.data)
    assert complete(handle)
    assert shop.bytes(handle) == new
    shop.free(handle)


def test_tags_and_tunnels_put_before_it_change_nothing(shop):
    inner = bytes(ETHER / IPv6(**V6) / TCP(sport=1, dport=2) / Raw(b"abcde"))
    outer = bytes(ETHER / Dot1Q(vlan=7) / IP(**V4) / UDP(sport=9, dport=4789, chksum=0) / VXLAN(vni=3) / inner)
    handle = shop.partial(without(inner, 70), 54, 16)
    grown = len(outer) - len(inner)
    assert prepend(handle, grown)
    array = np.frombuffer(outer[:grown], np.uint8)
    copy_in(handle, 0, grown, array.ctypes.data)
    assert complete(handle)
    assert shop.bytes(handle) == outer
    shop.free(handle)
    handle = shop.partial(without(outer, grown + 70), grown + 54, 16)
    assert adjust(handle, grown)
    assert complete(handle)
    assert shop.bytes(handle) == inner
    shop.free(handle)


def test_bytes_put_to_the_end_or_cut_off_it_do_not_move_the_checksum(shop):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(b"abc"))
    for change in (lambda h: append(h, 6), lambda h: trim(h, 6)):
        handle = shop.partial(without(frame, 50) + b"\0" * 6, 34, 16)
        assert change(handle)
        assert complete(handle)
        assert shop.bytes(handle)[: len(frame)] == frame
        shop.free(handle)


@pytest.mark.parametrize(
    "routing",
    [
        IPv6ExtHdrRouting(addresses=["fd00::7", "fd00::9"]),
        IPv6ExtHdrRouting(type=2, addresses=["fd00::7"]),
        IPv6ExtHdrRouting(addresses=["fd00::7"], segleft=0),
        IPv6ExtHdrSegmentRouting(addresses=["fd00::9", "fd00::7"], segleft=1, lastentry=1),
    ],
)
def test_the_destination_is_the_last_one_of_a_routing_header(shop, routing):
    frame = bytes(ETHER / IPv6(**V6) / routing / TCP(sport=1, dport=2) / Raw(b"abc"))
    at = len(frame) - 23
    if not isinstance(routing, IPv6ExtHdrSegmentRouting) and routing.type == 2:  # scapy knows type 0 only
        plain = bytes(ETHER / IPv6(src=V6["src"], dst="fd00::7") / TCP(sport=1, dport=2) / Raw(b"abc"))
        frame = without(frame, at + 16, 2, plain[70:72])
    handle = shop.partial(without(frame, at + 16), at, 16)
    assert complete(handle)
    assert shop.bytes(handle) == frame
    shop.free(handle)


def test_what_is_no_transport_header_is_summed_over_what_stands_in_the_field(shop):
    frame = bytes(ETHER / IP(**V4) / GRE(chksum_present=1) / IP(**V4) / Raw(b"x"))
    partial = without(frame, 38, 2, b"\0\0")
    for place in ((), (39,), (20, 35)):
        handle = shop.partial(partial, 34, 4, cuts=place)
        said = header(shop, handle)
        assert (said["flags"], said["csum_start"], said["csum_offset"]) == (1, 34, 4)
        assert complete(handle)
        assert shop.bytes(handle) == frame
        shop.free(handle)


def test_a_frame_of_which_nobody_told_where_is_looked_through(shop):
    frame = bytes(ETHER / Dot1Q(vlan=3) / IPv6(**V6) / UDP(sport=1, dport=2) / Raw(b"abc"))
    handle = shop.packet(without(frame, 64))
    assert unready(handle)
    assert complete(handle)
    assert shop.bytes(handle) == frame
    shop.free(handle)
    handle = shop.packet(bytes(ETHER / Raw(b"no header here")))
    assert not unready(handle)
    assert not Packet.at(handle).flags & PARTIAL
    shop.free(handle)


# Describing: what a guest or the kernel says is checked


@pytest.mark.parametrize(
    "fields",
    [
        {"flags": 1, "csum_start": 0xFFFF, "csum_offset": 16},
        {"flags": 1, "csum_start": 34, "csum_offset": 0xFFFF},
        {"flags": 1, "csum_start": 58, "csum_offset": 0},
        {"flags": 1, "csum_start": 34, "csum_offset": 16, "gso_type": 1},
        {"flags": 1, "csum_start": 34, "csum_offset": 16, "gso_type": 1, "gso_size": 0xFFFF},
        {"flags": 1, "csum_start": 34, "csum_offset": 16, "gso_type": 2, "gso_size": 100},
        {"flags": 1, "csum_start": 34, "csum_offset": 16, "gso_type": 0x7F, "gso_size": 100},
        {"flags": 1, "csum_start": 34, "csum_offset": 16, "gso_type": 5, "gso_size": 100},
        {"flags": 1, "csum_start": 34, "csum_offset": 6, "gso_type": 1, "gso_size": 100},
        {"flags": 1, "csum_start": 30, "csum_offset": 16, "gso_type": 1, "gso_size": 100},
        {"flags": 0, "gso_type": 3, "gso_size": 100},
    ],
)
def test_case_44_a_header_that_does_not_fit_is_refused_and_the_frame_is_plain(shop, fields):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(b"abcd"))
    handle = shop.packet(frame)
    assert not shop.described(handle, **fields)
    assert not Packet.at(handle).flags & PARTIAL
    assert shop.bytes(handle) == frame
    shop.free(handle)


def test_a_header_that_is_cut_short_is_refused(shop):
    handle = shop.packet(bytes(60))
    assert not shop.described(handle, length=9)
    assert shop.described(handle, length=10)
    shop.free(handle)


def test_case_44_any_header_at_all_leaves_a_packet_that_can_be_completed_or_told_to_be_damaged(shop):
    generator = random.Random(44)
    for _ in range(800):
        frame = stacks.assembled(stacks.frame(generator))
        handle = shop.packet(frame, cuts(generator, frame))
        near = [0, 1, 14, 34, 54, len(frame) - 2, len(frame), 0xFFFF, generator.randrange(256)]
        shop.described(
            handle, flags=generator.randrange(4), gso_type=generator.choice([0, 1, 3, 4, 5, 0x81, 0x84, 77]),
            gso_size=generator.choice([0, 1, 8, 100, 1448, 0xFFFF]), hdr_len=generator.choice(near),
            csum_start=generator.choice(near), csum_offset=generator.choice([0, 6, 16, 0xFFFF, generator.randrange(64)]),
        )  # fmt: skip
        said = header(shop, handle)
        if said is not None:
            assert not said["flags"] or said["csum_start"] + said["csum_offset"] + 2 <= len(frame)
        done = complete(handle)
        assert len(shop.bytes(handle)) == len(frame)
        assert done or Packet.at(handle).flags & PARTIAL
        shop.free(handle)
    assert shop.whole()


def test_the_senders_length_of_headers_is_not_believed(shop):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(bytes(3000)))
    handle = shop.packet(frame)
    assert shop.described(handle, flags=1, csum_start=34, csum_offset=16, gso_type=1, gso_size=1000, hdr_len=9)
    said = header(shop, handle)
    assert said["hdr_len"] == 54
    shop.free(handle)


def test_a_super_frame_whose_checksum_is_said_to_be_right_is_one_all_the_same(shop):
    frame = bytes(ETHER / Dot1Q() / IPv6(**V6) / UDP(sport=1, dport=2) / Raw(bytes(3000)))
    handle = shop.packet(frame)
    assert shop.described(handle, flags=2, gso_type=5, gso_size=1200)
    p = Packet.at(handle)
    assert (p.flags & PARTIAL, p.csum_tail, p.csum_offset, p.gso_size, p.gso_type) == (PARTIAL, 3008, 6, 1200, 5)
    shop.free(handle)


# Announcing


@pytest.mark.parametrize(("network", "version"), [(IP(**V4), 4), (IPv6(**V6), 6)])
@pytest.mark.parametrize(("transport", "place"), [(TCP(sport=1, dport=2), 16), (UDP(sport=1, dport=2), 6)])
def test_what_is_announced_can_be_completed_by_a_plain_sum(shop, network, version, transport, place):
    frame = bytes(ETHER / network / transport / Raw(b"abc"))
    at = 34 if version == 4 else 54
    handle = shop.partial(without(frame, at + place), at, place, cuts=(at + place + 1, 20))
    said = header(shop, handle)
    assert (said["flags"], said["csum_start"], said["csum_offset"], said["gso_type"]) == (1, at, place, 0)
    sent = shop.bytes(handle)
    words = struct.unpack(f"!{len(sent[at:] + b'x') // 2}H", (sent[at:] + b"\0")[: (len(sent[at:]) + 1) // 2 * 2])
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert struct.unpack_from("!H", frame, at + place) == (total ^ 0xFFFF,)
    shop.free(handle)


def test_a_plain_packet_is_announced_by_zeros(shop):
    handle = shop.packet(bytes(ETHER / IP(**V4) / TCP()))
    assert not any(header(shop, handle).values())
    shop.free(handle)


def test_the_kind_of_segmentation_is_that_of_the_headers_as_they_are_now(shop):
    four = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2, flags="CA") / Raw(bytes(3000)))
    handle = shop.partial(four, 34, 16, 1000, 0x81)
    assert header(shop, handle)["gso_type"] == 0x81
    assert Packet.at(handle).gso_type == 1
    # A translator makes IPv6 of it, whose header is 20 bytes longer.
    six = bytes(ETHER / IPv6(**V6) / TCP(sport=1, dport=2, flags="A") / Raw(bytes(3000)))
    assert prepend(handle, 20)
    array = np.frombuffer(six[:74], np.uint8)
    copy_in(handle, 0, 74, array.ctypes.data)
    said = header(shop, handle)
    assert (said["gso_type"], said["csum_start"], said["hdr_len"], said["gso_size"]) == (4, 54, 74, 1000)
    shop.free(handle)


def test_a_super_frame_that_is_one_frame_is_announced_as_one(shop):
    handle = shop.partial(bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(bytes(700))), 34, 16, 700, 1)
    said = header(shop, handle)
    assert (said["flags"], said["gso_type"], said["gso_size"]) == (1, 0, 0)
    shop.free(handle)


def test_a_crc_is_computed_for_it_cannot_be_announced(shop):
    frame = bytes(ETHER / IP(**V4) / SCTP(sport=1, dport=2, tag=3) / SCTPChunkData(data=b"abcde"))
    handle = shop.partial(without(frame, 42, 4), 34, 8, cuts=(44,))
    assert not any(header(shop, handle).values())
    assert shop.bytes(handle) == frame
    assert not Packet.at(handle).flags & PARTIAL
    shop.free(handle)


def test_a_tunnel_around_has_its_checksum_completed_too_for_it_cannot_be_announced(shop):
    inner = bytes(ETHER / IPv6(**V6) / TCP(sport=1, dport=2) / Raw(b"abcde"))
    for outer in (UDP(sport=9, dport=4789) / VXLAN(vni=3), GRE(chksum_present=1, proto=0x6558)):
        frame = bytes(ETHER / IP(**V4) / outer / inner)
        at = len(frame) - len(inner) + 54
        stale = without(without(frame, at + 16), 40 if UDP in outer else 38)
        for act in (lambda h: header(shop, h) == dict.fromkeys(VirtioNetHeader.fields, 0), complete):
            handle = shop.partial(stale, at, 16, cuts=(at + 3,))
            assert act(handle)
            assert shop.bytes(handle) == frame
            assert not Packet.at(handle).flags & PARTIAL
            shop.free(handle)


def test_a_super_frame_in_a_tunnel_cannot_be_announced_and_is_left_as_it_is(shop):
    inner = ETHER / IPv6(**V6) / TCP(sport=1, dport=2) / Raw(bytes(3000))
    frame = bytes(ETHER / IP(**V4) / UDP(sport=9, dport=4789) / VXLAN(vni=3) / inner)
    handle = shop.partial(frame, 50 + 54, 16, 1000, 4)
    assert header(shop, handle) is None
    assert shop.bytes(handle) == frame
    assert Packet.at(handle).flags & PARTIAL
    shop.free(handle)


def test_a_super_frame_whose_headers_were_destroyed_is_refused(shop):
    handle = shop.partial(bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(bytes(3000))), 34, 16, 1000, 1)
    p = Packet.at(handle)
    libc.copy_in(p.buffer + p.data + 12, b"\x00\x00")
    assert header(shop, handle) is None
    shop.free(handle)
