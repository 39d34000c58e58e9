"""Super-frames cut into frames: each is what the sender would have sent, by scapy's sums, whatever is around it."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import GRE, IP, TCP, UDP, Dot1Q, Ether, IPOption_NOP, IPv6, IPv6ExtHdrDestOpt, PPPoE, Raw
from scapy.layers.ppp import PPP
from scapy.layers.vxlan import VXLAN

from tests.core.test_packet import prepend
from tests.net import stacks
from tests.net.frames import mutated
from tests.net.stacks import ETHER, assembled
from tests.net.workshop import ROOM, Workshop
from wirespeed.core import free as core_free
from wirespeed.core.clone import clone
from wirespeed.core.packet import MARKED, PARTIAL, Packet
from wirespeed.jit import libc
from wirespeed.jit.kernel import kernel
from wirespeed.net.dissect import layers
from wirespeed.net.segmentation import BAD_OFFLOAD, MOST_FRAMES, NO_PACKET, TOO_LONG, segment

V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}
ANY_LENGTH = 1 << 30
PLACE = {"tcp": 16, "udp": 6}


@kernel
def hold(handle):
    core_free.hold(handle)


@pytest.fixture(scope="module")
def shop():
    shop = Workshop(1024)
    yield shop
    shop.close()


def cut(shop: Workshop, handle: int, limit: int = ANY_LENGTH, room: int = ROOM) -> int:
    return int(segment(shop.cache, handle, limit, shop.out.ctypes.data, room))


def segments(shop: Workshop, frame: bytes, start: int, place: int, size: int, kind: int, places=()) -> list[bytes]:
    """The frames that a super-frame is cut into."""
    n = cut(shop, shop.partial(frame, start, place, size, kind, places))
    assert n > 0
    return shop.frames(n)


def pieces(payload: bytes, size: int) -> list[bytes]:
    return [payload[i : i + size] for i in range(0, len(payload), size)]


def payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("tags", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [1, 999, 1000, 1448, 2999])
def test_tcp_over_ipv4_is_cut_as_its_sender_would_have(shop, tags, size):
    data = payload(3001) if size > 1 else payload(50)
    options = [("Timestamp", (5, 6)), ("NOP", None), ("NOP", None)]
    head = ETHER.copy()
    for vlan in range(tags):
        head = head / Dot1Q(vlan=vlan + 1)

    def made(part: bytes, number: int, flags: str) -> bytes:
        ip = IP(**V4, id=(0xFFFE + number) & 0xFFFF, options=[IPOption_NOP()] * 4)
        tcp = TCP(sport=1, dport=2, seq=(0xFFFFFF00 + number * size) & 0xFFFFFFFF, flags=flags, options=options, ack=9)
        return bytes(head / ip / tcp / Raw(part))

    at = 14 + 4 * tags + 24
    found = segments(shop, made(data, 0, "CEUAPF"), at, 16, size, 0x81, (at + 3, at + 41, 1000, 1501))
    parts = pieces(data, size)
    wanted = [
        made(p, i, ("C" if i == 0 else "") + "EUA" + ("PF" if i == len(parts) - 1 else "")) for i, p in enumerate(parts)
    ]
    assert found == wanted


@pytest.mark.parametrize("size", [1000, 1448])
def test_tcp_over_ipv6_with_extension_headers_is_cut(shop, size):
    data = payload(4000)

    def made(part: bytes, number: int) -> bytes:
        tcp = TCP(sport=1, dport=2, seq=7 + number * size, flags="A")
        return bytes(ETHER / Dot1Q() / IPv6(**V6, fl=5, tc=3) / IPv6ExtHdrDestOpt() / tcp / Raw(part))

    found = segments(shop, made(data, 0), 66, 16, size, 4, (67, 3000))
    assert found == [made(p, i) for i, p in enumerate(pieces(data, size))]


@pytest.mark.parametrize("version", [4, 6])
def test_udp_datagrams_that_were_joined_are_datagrams_again(shop, version):
    data = payload(4000)

    def made(part: bytes, number: int) -> bytes:
        ip = IP(**V4, id=number) if version == 4 else IPv6(**V6)
        return bytes(ETHER / ip / UDP(sport=1, dport=2) / Raw(part))

    found = segments(shop, made(data, 0), 34 if version == 4 else 54, 6, 1200, 5)
    assert found == [made(p, i) for i, p in enumerate(pieces(data, 1200))]


def test_a_super_frame_of_64_kilobytes_is_cut_into_46_frames(shop):
    data = payload(65495)
    found = segments(shop, bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2, flags="A") / Raw(data)), 34, 16, 1448, 1)
    assert [len(f) for f in found] == [1502] * 45 + [54 + 65495 - 45 * 1448]
    assert b"".join(f[54:] for f in found) == data


def test_big_tcp_over_ipv4_has_no_length_and_is_cut_all_the_same(shop):
    data = payload(150_000)
    frame = bytearray(bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2, flags="A")) + data)
    frame[16:18] = b"\0\0"
    found = segments(shop, bytes(frame), 34, 16, 8000, 1)
    wanted = [
        bytes(ETHER / IP(**V4, id=1 + i) / TCP(sport=1, dport=2, flags="A", seq=8000 * i) / Raw(p))
        for i, p in enumerate(pieces(data, 8000))
    ]
    assert found == wanted


@pytest.mark.parametrize("jumbo", [True, False])
def test_big_tcp_over_ipv6_loses_its_jumbo_option(shop, jumbo):
    data = payload(150_000)
    tcp = bytes(TCP(sport=1, dport=2, flags="A"))
    option = bytes([6, 0, 0xC2, 4]) + struct.pack("!I", 8 + 20 + len(data)) if jumbo else b""
    ip = bytes(IPv6(**V6, plen=0, nh=0 if jumbo else 6))
    frame = bytes(ETHER)[:12] + b"\x86\xdd" + ip + option + tcp + data
    found = segments(shop, frame, 54 + len(option), 16, 8000, 4)
    wanted = [
        bytes(ETHER / IPv6(**V6) / TCP(sport=1, dport=2, flags="A", seq=8000 * i) / Raw(p))
        for i, p in enumerate(pieces(data, 8000))
    ]
    assert found == wanted


def test_other_options_beside_a_jumbo_option_stay_and_padding_takes_its_place(shop):
    data = payload(70_000)
    other = bytes([5, 2, 0, 0])  # router alert
    for order in (0, 1):
        jumbo = b"\xc2\x04" + struct.pack("!I", 16 + 20 + len(data))
        options = bytes([6, 1]) + (other + jumbo if order else jumbo + other) + bytes([1, 2, 0, 0])
        padded = (
            bytes([6, 1])
            + (other + b"\x01\x04\0\0\0\0" if order else b"\x01\x04\0\0\0\0" + other)
            + bytes([1, 2, 0, 0])
        )
        head = bytes(ETHER)[:12] + b"\x86\xdd" + bytes(IPv6(**V6, plen=0, nh=0))
        frame = head + options + bytes(TCP(sport=1, dport=2, flags="A")) + data
        found = segments(shop, frame, 70, 16, 60_000, 4)
        assert [f[54:70] for f in found] == [padded] * 2
        assert [struct.unpack_from("!H", f, 18)[0] for f in found] == [60036, 10036]
        assert b"".join(f[90:] for f in found) == data


@given(st.integers(0, 2**32))
def test_every_header_around_is_mended_in_any_stack(shop, seed):
    generator = random.Random(seed)
    while True:
        stack = stacks.frame(generator)
        size, data = generator.randrange(20, 700), generator.randbytes(generator.randrange(1, 3000))
        frame = assembled(stack, data)
        found = [h for h in layers(frame) if h.name in PLACE and not h.flags]
        if found and not any(name == "gre" and header.seqnum_present for name, header in stack):
            break
    last = found[-1]
    if last.offset + last.length + len(data) != len(frame):
        return  # something else is behind it
    kind = 5 if last.name == "udp" else 1

    def made(part: bytes, number: int) -> bytes:
        again = [(name, header.copy()) for name, header in stack]
        for name, header in again:
            if name == "ipv4":
                header.id = (1 + number) & 0xFFFF
            if name == "tcp":
                header.seq = number * size
        final = number == len(pieces(data, size)) - 1
        assert final or len(part) == size
        return assembled(again, part)

    places = tuple(generator.randrange(1, len(frame)) for _ in range(generator.choice([0, 2, 5])))
    frames = segments(shop, frame, last.offset, PLACE[last.name], size, kind, places)
    assert frames == [made(p, i) for i, p in enumerate(pieces(data, size))]
    assert shop.whole()


def test_a_tunnel_put_around_a_super_frame_is_around_each_frame(shop):
    data = payload(4000)

    def made(part: bytes, number: int, **outer: int) -> bytes:
        inner = ETHER / IPv6(**V6) / TCP(sport=1, dport=2, seq=1000 * number, flags="A") / Raw(part)
        return bytes(ETHER / IP(**V4, id=number) / UDP(sport=9, dport=4789, **outer) / VXLAN(vni=3) / inner)

    for outer in ({}, {"chksum": 0}):
        whole = made(data, 0, **outer)
        handle = shop.partial(whole[50:], 54, 16, 1000, 4)
        assert prepend(handle, 50)
        p = Packet.at(handle)
        libc.copy_in(p.buffer + p.data, whole[:50])
        n = cut(shop, handle)
        assert shop.frames(n) == [made(p, i, **outer) for i, p in enumerate(pieces(data, 1000))]


def test_pppoe_and_gre_around_it_have_lengths_and_sums_of_their_own(shop):
    data = payload(2500)

    def made(part: bytes, number: int) -> bytes:
        inner = IP(**V4, id=number) / TCP(sport=1, dport=2, seq=1000 * number, flags="A") / Raw(part)
        return bytes(ETHER / PPPoE() / PPP() / IP(**V4, id=number) / GRE(chksum_present=1, key_present=1) / inner)

    whole = made(data, 0)
    at = len(whole) - 2520
    assert segments(shop, whole, at, 16, 1000, 1) == [made(p, i) for i, p in enumerate(pieces(data, 1000))]


# Who owns what


def test_what_is_known_about_the_super_frame_is_known_about_each_frame(shop):
    handle = shop.partial(bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(bytes(2500))), 34, 16, 1000, 1)
    p = Packet.at(handle)
    p.time, p.port, p.mark, p.flags, p.hash = 123, 7, 99, p.flags | MARKED | 1, 0xABCD
    assert cut(shop, handle) == 3
    for new in shop.out[:3]:
        q = Packet.at(int(new))
        assert (q.time, q.port, q.mark, q.hash, q.flags) == (123, 7, 99, 0xABCD, MARKED | 1)
        assert q.wire == q.total
    shop.free(*shop.out[:3])


def test_one_frame_is_completed_in_place(shop):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(b"abc"))
    for size in (0, 3, 1000):
        handle = shop.partial(frame[:50] + b"\xaa\xaa" + frame[52:], 34, 16, size, 1 if size else 0)
        assert cut(shop, handle) == 1
        assert shop.out[0] == handle
        assert shop.frames(1) == [frame]


def test_one_frame_whose_bytes_others_see_is_copied_first(shop):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(b"abc"))
    partial = frame[:50] + b"\xaa\xaa" + frame[52:]
    handle = shop.partial(partial, 34, 16)
    hold(handle)
    assert cut(shop, handle) == 1
    assert shop.out[0] != handle
    assert shop.frames(1) == [frame]
    assert shop.bytes(handle) == partial
    shown = int(clone(shop.cache, handle))
    q, p = Packet.at(shown), Packet.at(handle)
    q.csum_tail, q.csum_offset, q.gso_size = p.csum_tail, p.csum_offset, 0
    assert cut(shop, shown) == 1
    assert shop.frames(1) == [frame]
    assert shop.bytes(handle) == partial
    shop.free(handle)
    assert shop.whole()


def test_a_super_frame_that_others_hold_is_left_as_it_is(shop):
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(bytes(2500)))
    handle = shop.partial(frame, 34, 16, 1000, 1)
    hold(handle)
    assert cut(shop, handle) == 3
    shop.frames(3)
    assert shop.bytes(handle) == frame
    assert Packet.at(handle).flags & PARTIAL
    shop.free(handle)
    assert shop.whole()


# What cannot be


def refused(shop: Workshop, handle: int, code: int, **how: int) -> None:
    """Nothing is done, and the packet is as it was."""
    before, free = shop.bytes(handle), shop.pool.free_count
    assert cut(shop, handle, **how) == code
    assert (shop.bytes(handle), shop.pool.free_count) == (before, free)
    assert Packet.at(handle).flags & PARTIAL
    shop.free(handle)


def super_frame(shop: Workshop, size: int, length: int = 2500) -> int:
    return shop.partial(bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2)) + bytes(length), 34, 16, size, 1)


def test_frames_that_are_too_long_or_too_many_are_refused(shop):
    refused(shop, super_frame(shop, 1000), TOO_LONG, limit=1053)
    refused(shop, super_frame(shop, 1000), TOO_LONG, room=2)
    refused(shop, super_frame(shop, 1, MOST_FRAMES + 1), TOO_LONG, room=MOST_FRAMES)
    refused(shop, shop.partial(bytes(ETHER / IP(**V4) / TCP() / Raw(b"abc")), 34, 16), TOO_LONG, limit=56)
    assert cut(shop, super_frame(shop, 1000), limit=1054, room=3) == 3
    shop.frames(3)


def test_headers_that_do_not_say_what_is_to_be_done_are_refused(shop):
    handle = super_frame(shop, 1000)
    p = Packet.at(handle)
    libc.copy_in(p.buffer + p.data + 12, b"\x12\x34")
    refused(shop, handle, BAD_OFFLOAD)
    big = super_frame(shop, 0xFFFE, 70_000)
    refused(shop, big, BAD_OFFLOAD)  # no IP length says so much


def test_an_empty_pool_takes_nothing():
    shop = Workshop(6)
    handle = super_frame(shop, 500, 2400)  # two segments; five frames are one more than are left
    refused(shop, handle, NO_PACKET)
    frame = bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2) / Raw(b"abc"))
    kept = [shop.packet(b"x") for _ in range(5)]
    handle = shop.partial(frame, 34, 16)
    hold(handle)
    assert cut(shop, handle) == NO_PACKET
    shop.free(handle, handle, *kept)
    shop.close()


def test_frames_longer_than_a_buffer_are_chains():
    shop = Workshop(64, 256)
    data = payload(3000)
    found = segments(shop, bytes(ETHER / IP(**V4) / TCP(sport=1, dport=2, flags="A") / Raw(data)), 34, 16, 1001, 1)
    assert found == [
        bytes(ETHER / IP(**V4, id=1 + i) / TCP(sport=1, dport=2, flags="A", seq=1001 * i) / Raw(p))
        for i, p in enumerate(pieces(data, 1001))
    ]
    assert Ether(found[0])[TCP].seq == 0
    shop.close()


def test_any_wish_at_all_is_cut_or_refused_and_no_packet_is_lost(shop):
    generator = random.Random(11)
    outcomes = set()
    for _ in range(800):
        frame = mutated(stacks.assembled(stacks.frame(generator), generator.randbytes(400)), generator) or b"x"
        handle = shop.packet(frame, tuple(generator.randrange(1, 200) for _ in range(generator.choice([0, 1, 3]))))
        p = Packet.at(handle)
        found = [h.offset for h in layers(frame) if h.name in PLACE] or [0]
        starts = [generator.choice(found), generator.choice(found), generator.randrange(len(frame) + 9)]
        p.flags |= PARTIAL
        p.csum_tail = (len(frame) - generator.choice(starts)) & 0xFFFFFFFF
        p.csum_offset = generator.choice([6, 16, 16, 8, generator.randrange(1 << 32)])
        p.gso_size, p.gso_type = generator.choice([0, 1, 8, 100, 300, 0xFFFF]), generator.choice([0, 1, 3, 4, 5, 77])
        n = cut(shop, handle, generator.choice([60, 300, 1 << 30]), generator.choice([1, 5, ROOM]))
        outcomes.add(min(n, 2))
        if n > 0:
            assert all(len(f) <= len(frame) + 8 for f in shop.frames(n))
        else:
            shop.free(handle)
    assert outcomes == {2, 1, BAD_OFFLOAD, TOO_LONG}
    assert shop.whole()
