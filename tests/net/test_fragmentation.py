"""Fragments: each fits, says where it belongs, and together they have every byte of the datagram."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import (
    ICMP,
    IP,
    TCP,
    UDP,
    Dot1Q,
    Ether,
    IPOption,
    IPOption_NOP,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Raw,
)

from tests.net.stacks import ETHER
from tests.net.test_segmentation import hold, payload
from tests.net.workshop import ROOM, Workshop
from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.net.fragmentation import DAMAGED, TRUNCATED, fragment
from wirespeed.net.offload import NEEDS_FRAGMENT, NO_PACKET, TOO_LONG
from wirespeed.net.segmentation import segment

V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}


@pytest.fixture(scope="module")
def shop():
    shop = Workshop(512)
    yield shop
    shop.close()


def divide(shop: Workshop, handle: int, mtu: int, force: bool = False, room: int = ROOM) -> int:
    return int(fragment(shop.cache, handle, mtu, force, shop.out.ctypes.data, room))


def fragments(shop: Workshop, frame: bytes, mtu: int, places: tuple[int, ...] = (), force: bool = False) -> list[bytes]:
    n = divide(shop, shop.packet(frame, places), mtu, force)
    assert n > 0, n
    return shop.frames(n)


def joined4(frames: list[bytes], link: int = 14) -> tuple[bytes, bytes]:
    """The data of IPv4 fragments put together, after a look at each header, and the first one's header."""
    data, total = {}, None
    for frame in frames:
        ip = IP(frame[link:])
        again = ip.copy()
        del again.chksum
        assert IP(bytes(again)).chksum == ip.chksum
        assert len(frame) == link + ip.len
        data[8 * ip.frag] = frame[link + 4 * ip.ihl : link + ip.len]
        if not ip.flags.MF:
            total = 8 * ip.frag + len(data[8 * ip.frag])
        else:
            assert len(data[8 * ip.frag]) % 8 == 0
    whole = b"".join(data[place] for place in sorted(data))
    assert total == len(whole)
    return whole, frames[0][link : link + 4 * IP(frames[0][link:]).ihl]


@given(
    st.integers(0, 3000), st.integers(68, 1500), st.integers(0, 2),
    st.lists(st.integers(1, 3000), max_size=5).map(tuple),
)  # fmt: skip
def test_ipv4_fragments_fit_and_make_up_the_datagram(shop, size, mtu, tags, places):
    link = ETHER.copy()
    for _ in range(tags):
        link = link / Dot1Q(vlan=5)
    at = 14 + 4 * tags
    frame = bytes(link / IP(**V4, id=77, ttl=9, tos=3) / UDP(sport=1, dport=2) / Raw(payload(size)))
    found = fragments(shop, frame + b"padding", mtu, places)
    if len(frame) - at <= mtu:
        assert found == [frame + b"padding"]
        return
    assert all(len(f) - at <= mtu for f in found)
    assert all(len(f) - at > mtu - 8 for f in found[:-1])
    assert joined4(found, at)[0] == frame[at + 20 :]
    assert all((IP(f[at:]).id, IP(f[at:]).ttl, IP(f[at:]).tos, f[:at]) == (77, 9, 3, frame[:at]) for f in found)
    assert shop.whole()


def test_case_53_offsets_are_of_the_data_whatever_options_the_header_has(shop):
    options = [
        IPOption_NOP(),
        IPOption(b"\x83\x07\x04\x0a\x00\x00\x09"),
        IPOption(b"\x07\x07\x04\0\0\0\0"),
        IPOption_NOP(),
    ]
    frame = bytes(ETHER / IP(**V4, options=options) / UDP() / Raw(payload(1000)))
    found = fragments(shop, frame, 300)
    data, header = joined4(found)
    assert data == frame[14 + 36 :]
    assert header[20:] == frame[34:50]
    # Source route has the flag that says so, record route and padding do not.
    assert {bytes(IP(f[14:]))[20 : 4 * IP(f[14:]).ihl] for f in found[1:]} == {b"\x83\x07\x04\x0a\x00\x00\x09\x00"}


@pytest.mark.parametrize(
    "options", [b"\x83\x00\x00\x00", b"\x83\x40\x00\x00", b"\x01\x01\x01\x83", b"\x00\x83\x03\x00"]
)
def test_options_that_do_not_end_are_left_out_of_later_fragments(shop, options):
    frame = bytearray(bytes(ETHER / IP(**V4, options=[IPOption_NOP()] * 4) / UDP() / Raw(payload(1000))))
    frame[34:38] = options
    found = fragments(shop, bytes(frame), 300)
    assert [IP(f[14:]).ihl for f in found] == [6] + [5] * (len(found) - 1)
    assert joined4(found)[0] == bytes(frame[38:])


@given(st.integers(100, 1000), st.integers(100, 600))
def test_a_fragment_is_divided_like_a_datagram(shop, first, second):
    frame = bytes(ETHER / IP(**V4, options=[IPOption_NOP()] * 4) / UDP() / Raw(payload(2500)))
    found = [piece for f in fragments(shop, frame, first) for piece in fragments(shop, f, second)]
    assert joined4(found)[0] == frame[38:]
    six = bytes(ETHER / IPv6(**V6) / UDP() / Raw(payload(2500)))
    found = [piece for f in fragments(shop, six, first) for piece in fragments(shop, f, second)]
    assert joined6(found) == six[54:]


def joined6(frames: list[bytes], unfragmentable: int = 40) -> bytes:
    """The data of IPv6 fragments put together, after a look at each header."""
    data, total, idents = {}, None, set()
    for frame in frames:
        assert struct.unpack_from("!H", frame, 18)[0] == len(frame) - 54
        at = 14 + unfragmentable
        word, ident = struct.unpack_from("!HI", frame, at + 2)
        idents.add((ident, frame[at]))
        data[word & 0xFFF8] = frame[at + 8 :]
        if word & 1:
            assert len(frame[at + 8 :]) % 8 == 0
        else:
            total = (word & 0xFFF8) + len(frame[at + 8 :])
    assert len(idents) == 1
    whole = b"".join(data[place] for place in sorted(data))
    assert total == len(whole)
    return whole


@given(st.integers(0, 3000), st.integers(96, 1500), st.lists(st.integers(1, 3000), max_size=5).map(tuple))
def test_case_53_ipv6_fragments_are_multiples_of_eight_and_fit(shop, size, mtu, places):
    frame = bytes(ETHER / IPv6(**V6, fl=3, tc=4) / UDP() / Raw(payload(size)))
    found = fragments(shop, frame, mtu, places)
    if len(frame) - 14 <= mtu:
        assert found == [frame]
        return
    assert all(len(f) - 14 <= mtu for f in found)
    assert all(len(f) - 14 > mtu - 8 for f in found[:-1])
    assert joined6(found) == frame[54:]
    assert all(f[:18] + f[21:54] == frame[:18] + frame[21:54] for f in found)
    assert {(f[20], f[54]) for f in found} == {(44, 17)}


@pytest.mark.parametrize(
    ("extensions", "unfragmentable"),
    [
        ([IPv6ExtHdrHopByHop()], 48),
        ([IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=["fd00::7"])], 80),
        ([IPv6ExtHdrDestOpt()], 40),
        ([IPv6ExtHdrDestOpt(), IPv6ExtHdrFragment(id=5, nh=17)], 48),
        ([IPv6ExtHdrRouting(addresses=["fd00::7"]), IPv6ExtHdrDestOpt()], 64),
    ],
)
def test_what_is_not_to_be_fragmented_is_in_each_fragment(shop, extensions, unfragmentable):
    packet = ETHER / IPv6(**V6)
    for extension in extensions:
        packet = packet / extension
    frame = bytes(packet / UDP() / Raw(payload(2000)))
    found = fragments(shop, frame, 500)
    own = 8 if any(isinstance(e, IPv6ExtHdrFragment) for e in extensions) else 0
    assert joined6(found, unfragmentable) == frame[14 + unfragmentable + own :]
    # Scapy finds its way through the first one.
    first = Ether(found[0])
    assert first[IPv6ExtHdrFragment].m == 1
    assert [type(e) for e in extensions if type(e) is not IPv6ExtHdrFragment] == [
        type(layer)
        for layer in first.iterpayloads()
        if type(layer) in {type(e) for e in extensions} - {IPv6ExtHdrFragment}
    ]


def test_datagrams_have_identifications_of_their_own(shop):
    frame = bytes(ETHER / IPv6(**V6) / UDP() / Raw(payload(2000)))
    idents = {struct.unpack_from("!I", fragments(shop, frame, 1280)[0], 58) for _ in range(50)}
    assert len(idents) == 50


def test_one_that_must_not_be_fragmented_is_not_unless_forced(shop):
    frame = bytes(ETHER / IP(**V4, flags="DF") / UDP() / Raw(payload(2000)))
    handle = shop.packet(frame)
    assert divide(shop, handle, 1500) == NEEDS_FRAGMENT
    assert shop.bytes(handle) == frame
    assert divide(shop, handle, 2028) == 1
    assert shop.out[0] == handle
    assert divide(shop, handle, 1500, force=True) == 2
    found = shop.frames(2)
    assert joined4(found)[0] == frame[34:]
    assert all(IP(f[14:]).flags.DF for f in found)


def test_the_checksum_is_completed_before(shop):
    for shared in (False, True):
        frame = bytes(ETHER / IP(**V4) / UDP(sport=1, dport=2) / Raw(payload(2000)))
        broken = frame[:40] + b"\xaa\xbb" + frame[42:]
        handle = shop.partial(broken, 34, 6)
        if shared:
            hold(handle)
        n = divide(shop, handle, 1500)
        assert not any(Packet.at(int(h)).flags & PARTIAL for h in shop.out[:n])
        assert joined4(shop.frames(n))[0] == frame[34:]
        if shared:
            assert shop.bytes(handle) == broken
            shop.free(handle)
    assert shop.whole()


@pytest.mark.parametrize("network", [IP(**V4, flags="DF"), IPv6(**V6)])
def test_a_super_frame_of_a_datagram_becomes_its_fragments(shop, network):
    frame = bytes(ETHER / network / UDP(sport=1, dport=2) / Raw(payload(4000)))
    at = len(frame) - 4008
    handle = shop.partial(frame[: at + 6] + b"\xaa\xbb" + frame[at + 8 :], at, 6, 1480, 3)
    assert segment(shop.cache, handle, 1513, shop.out.ctypes.data, ROOM) == TOO_LONG
    n = int(segment(shop.cache, handle, 14 + 48 + 1480, shop.out.ctypes.data, ROOM))
    found = shop.frames(n)
    assert (joined4(found)[0] if at == 34 else joined6(found)) == frame[at:]
    assert n == 3


# What cannot be


def refused(shop: Workshop, frame: bytes, code: int, mtu: int = 500, **how: int) -> None:
    handle = shop.packet(frame)
    free = shop.pool.free_count
    assert divide(shop, handle, mtu, **how) == code
    assert (shop.bytes(handle), shop.pool.free_count) == (frame, free)
    shop.free(handle)


def test_what_is_not_ip_passes_where_it_fits_and_is_refused_where_not(shop):
    assert fragments(shop, bytes(ETHER / Raw(bytes(500))), 500) == [bytes(ETHER / Raw(bytes(500)))]
    refused(shop, bytes(ETHER / Raw(bytes(501))), TOO_LONG)


def test_a_limit_that_leaves_no_room_for_data_is_refused(shop):
    refused(shop, bytes(ETHER / IP(**V4) / UDP() / Raw(bytes(600))), TOO_LONG, mtu=27)
    refused(shop, bytes(ETHER / IPv6(**V6) / UDP() / Raw(bytes(600))), TOO_LONG, mtu=55)
    assert len(fragments(shop, bytes(ETHER / IPv6(**V6) / UDP() / Raw(bytes(600))), 56)) == 76
    options = [IPOption_NOP()] * 40  # the later ones have room
    refused(shop, bytes(ETHER / IP(**V4, options=options) / UDP() / Raw(bytes(600))), TOO_LONG, mtu=67)
    refused(shop, bytes(ETHER / IP(**V4) / UDP() / Raw(bytes(600))), TOO_LONG, room=1)


def test_headers_that_are_damaged_are_refused(shop):
    frame = bytes(ETHER / IP(**V4) / UDP() / Raw(bytes(600)))
    refused(shop, frame[:14] + b"\x44" + frame[15:], TOO_LONG)  # no IPv4 header at all
    refused(shop, frame[:16] + b"\x40\x00" + frame[18:], TRUNCATED)
    refused(shop, frame[:16] + b"\x00\x13" + frame[18:], DAMAGED)
    refused(shop, frame[:20] + b"\x1f\xff" + frame[22:], TOO_LONG)  # it goes beyond what a datagram can be
    six = bytes(ETHER / IPv6(**V6) / IPv6ExtHdrHopByHop() / UDP() / Raw(bytes(600)))
    refused(shop, six[:55] + b"\xff" + six[56:], DAMAGED)
    refused(shop, six[:18] + b"\x40\x00" + six[20:], TRUNCATED)


def test_any_bytes_at_all_are_fragmented_or_refused(shop):
    generator = random.Random(53)
    layers = [IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(), IPv6ExtHdrFragment()]
    for _ in range(600):
        packet = generator.choice(
            [ETHER / IP(**V4, options=[IPOption_NOP()] * generator.randrange(40)), ETHER / IPv6(**V6)]
        )
        for _ in range(generator.randrange(4)):
            packet = packet / generator.choice(layers) if IPv6 in packet else packet
        frame = bytearray(bytes(packet / generator.choice([UDP, ICMP, TCP])() / Raw(bytes(200))))
        for _ in range(generator.randrange(5)):
            frame[generator.randrange(12, 100)] = generator.choice([0, 1, 0xFF, 44, 43, 60, generator.randrange(256)])
        handle = shop.packet(bytes(frame), (generator.randrange(300), generator.randrange(300)))
        n = divide(shop, handle, generator.randrange(20, 300))
        if n > 0:
            assert all(f[:12] == bytes(frame[:12]) for f in shop.frames(n))
        else:
            shop.free(handle)
    assert shop.whole()


def test_an_empty_pool_takes_nothing():
    shop = Workshop(4)
    refused(shop, bytes(ETHER / IP(**V4) / UDP() / Raw(bytes(2000))), NO_PACKET, mtu=600)
    shop.close()
