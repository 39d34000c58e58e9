"""Coalescing: what is joined can be cut into the same frames again, flows keep their order, and nothing wrong becomes right."""

import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import IP, TCP, UDP, Dot1Q, Ether, IPOption_NOP, IPv6, IPv6ExtHdrDestOpt, Raw

import wirespeed as ws
from tests.engine.test_reassembly import Bench as ReassemblyBench
from tests.net.stacks import ETHER
from tests.net.test_checksum import model_checksum
from tests.net.test_segmentation import cut, hold, payload
from wirespeed.core.packet import BAD_CHECKSUM, PARTIAL, Packet
from wirespeed.engine.transform.coalesce import State
from wirespeed.net.flow import PORTS, five_tuple
from wirespeed.net.segmentation import MOST_FRAMES


class Bench(ReassemblyBench):
    """A coalescing stage in a driver."""

    @property
    def inside(self):
        return State.at(self.placement.state).coalescer

    def give(self, *handles: int) -> list[int]:
        """Packets as one burst; those that come out of it, and of ticks until nothing is held."""
        self.burst[: len(handles)] = handles
        out = self.burst[: self.call(len(handles))].tolist()
        return out + self.rest()

    def rest(self) -> list[int]:
        """What comes out of ticks until nothing is held."""
        out: list[int] = []
        while self.head.held:
            out += self.burst[: self.call(0)].tolist()
        return out

    def joined(self, *frames: bytes) -> list[tuple[int, bytes]]:
        """Frames as one burst; of each packet that comes out, the size in which it is to be cut, or 0, and its bytes."""
        found = []
        for handle in self.give(*(self.shop.packet(f) for f in frames)):
            p = Packet.at(handle)
            found.append((p.gso_size if p.flags & PARTIAL else 0, self.shop.bytes(handle)))
            self.shop.free(handle)
        return found

    def again(self, handles: list[int]) -> list[bytes]:
        """Packets cut into frames."""
        found: list[bytes] = []
        for handle in handles:
            if Packet.at(handle).flags & PARTIAL:
                n = cut(self.shop, handle)
                assert n > 0
                found += self.shop.frames(n)
            else:
                found.append(self.shop.bytes(handle))
                self.shop.free(handle)
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench(ws.coalesce(0)) as bench:
        yield bench


@dataclass(frozen=True)
class Made:
    """A TCP segment that scapy need not make."""

    flow: int = 1
    seq: int = 0
    data: bytes = b""
    flags: int = 0x10
    ack: int = 5
    window: int = 100
    ident: int = 1
    ttl: int = 64
    options: bytes = b""
    tag: int | None = None
    six: bool = False
    dont: bool = True

    def __bytes__(self) -> bytes:
        size = 20 + len(self.options)
        tcp = struct.pack(
            "!HHIIHHHH",
            self.flow,
            80,
            self.seq & 0xFFFFFFFF,
            self.ack,
            size << 10 & 0xF000 | self.flags,
            self.window,
            0,
            0,
        )
        tcp += self.options + self.data
        link = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + (b"" if self.tag is None else struct.pack("!HH", 0x8100, self.tag))
        if self.six:
            ends = bytes.fromhex(
                "fd00000000000000000000000000000100000000fd000000" + "00000000000000000000000000000002"
            )[:32]
            ip = struct.pack("!IHBB", 0x60000000, len(tcp), 6, self.ttl) + ends
            link += b"\x86\xdd"
        else:
            ends = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
            flags = 0x4000 if self.dont else 0
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), self.ident & 0xFFFF, flags, self.ttl, 6, 0) + ends
            ip = ip[:10] + struct.pack("!H", model_checksum(ip)) + ip[12:]
            link += b"\x08\0"
        pseudo = ends + struct.pack("!II", len(tcp), 6)
        tcp = tcp[:16] + struct.pack("!H", model_checksum(pseudo + tcp)) + tcp[18:]
        return link + ip + tcp


def stream(count: int, size: int = 1000, **how: object) -> list[Made]:
    """Segments that follow each other."""
    data = payload(count * size)
    return [
        Made(seq=7 + i * size, ident=9 + i, data=data[i * size : (i + 1) * size], **how)  # type: ignore[arg-type]
        for i in range(count)
    ]


# Joining


@pytest.mark.parametrize("tag", [None, 5])
@pytest.mark.parametrize("six", [False, True])
def test_segments_that_follow_each_other_are_one_super_frame(bench, six, tag):
    parts = stream(30, six=six, tag=tag, options=b"\x01\x01\x08\x0a\0\0\0\x05\0\0\0\x06")
    handles = [bench.shop.packet(bytes(p)) for p in parts]
    (handle,) = bench.give(*handles)
    p = Packet.at(handle)
    link = 14 if tag is None else 18
    head = link + (40 if six else 20)
    assert handle == handles[0]
    assert (p.gso_size, p.gso_type, p.csum_offset, p.segments) == (1000, 4 if six else 1, 16, 30)
    assert p.csum_tail == 32 + 30_000
    assert p.wire == p.total == head + 32 + 30_000
    whole = bench.shop.bytes(handle)
    assert whole[head + 32 :] == b"".join(part.data for part in parts)
    read = Ether(whole)
    assert (read[IPv6].plen if six else read[IP].len - 20) == 30_032
    if not six:
        del read[IP].chksum
        assert bytes(read[IP])[10:12] == whole[link + 10 : link + 12]
    assert bench.again([handle]) == [bytes(part) for part in parts]
    assert (bench.inside.joined, bench.inside.super_frames) == (29, 1)


def test_a_short_segment_or_one_with_push_is_the_last_one(bench):
    parts = stream(6)
    parts[2] = replace(parts[2], flags=0x18)
    frames = [bytes(p) for p in parts]
    assert [(size, len(f)) for size, f in bench.joined(*frames)] == [(1000, 3054), (1000, 3054)]
    short = [
        bytes(replace(parts[0])),
        bytes(replace(parts[1], data=b"abc")),
        bytes(replace(parts[1], seq=1010, ident=11)),
    ]
    assert [len(f) for _, f in bench.joined(*short)] == [1057, 1054]
    longer = [bytes(replace(parts[0], data=b"abc")), bytes(replace(parts[1], seq=10))]
    assert bench.joined(*longer) == [(0, f) for f in longer]


def test_a_segment_with_push_alone_is_not_held():
    with Bench(ws.coalesce(1_000_000)) as bench:
        frame = bytes(Made(data=b"x", flags=0x18))
        handle = bench.shop.packet(frame)
        bench.burst[0] = handle
        assert bench.call(1) == 1
        assert bench.head.held == 0
        bench.shop.free(handle)


DIFFERENT = {
    "seq": {"seq": 1008}, "ack": {"ack": 6}, "window": {"window": 101}, "ident": {"ident": 12}, "ttl": {"ttl": 63},
    "options": {"options": b"\x01\x01\x01\x01"}, "tag": {"tag": 3}, "flow": {"flow": 2}, "dont": {"dont": False},
    "fin": {"flags": 0x11}, "syn": {"flags": 0x12}, "rst": {"flags": 0x14}, "urg": {"flags": 0x30}, "ece": {"flags": 0x50},
    "cwr": {"flags": 0x90}, "ns": {"flags": 0x110}, "reserved": {"flags": 0x210}, "no ack": {"flags": 0}, "empty": {"data": b""},
    "longer": {"data": bytes(1001)},
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_segmentation_would_not_make_is_not_joined(bench, what):
    first, second = stream(2)
    frames = [bytes(first), bytes(replace(second, **DIFFERENT[what]))]
    assert bench.joined(*frames) == [(0, f) for f in frames]


def test_ipv6_headers_that_differ_are_not_joined(bench):
    first, second = stream(2, six=True)
    for place, value in ((15, 0x10), (17, 1), (21, 63)):  # traffic class, flow label, hop limit
        frame = bytearray(bytes(second))
        frame[place] = value
        assert [size for size, _ in bench.joined(bytes(first), bytes(frame))] == [0, 0]
    assert [size for size, _ in bench.joined(bytes(first), bytes(second))] == [1000]


def test_other_addresses_of_the_link_are_not_joined(bench):
    first, second = stream(2)
    frame = b"\x02\0\0\0\0\x09" + bytes(second)[6:]
    assert [size for size, _ in bench.joined(bytes(first), frame)] == [0, 0]


def test_a_wrong_checksum_does_not_become_a_right_one(bench):
    first, second, third = (bytes(p) for p in stream(3))
    for place in (24, 51, 60):  # of IPv4, of TCP, and in the data
        broken = second[:place] + bytes([second[place] ^ 1]) + second[place + 1 :]
        assert bench.joined(first, broken, third) == [(0, first), (0, broken), (0, third)]
        assert bench.joined(broken, third) == [(0, broken), (0, third)]
    handles = [bench.shop.packet(f) for f in (first, second)]
    Packet.at(handles[1]).flags |= BAD_CHECKSUM
    assert bench.give(*handles) == handles
    bench.shop.free(*handles)


def test_segments_whose_checksum_is_not_computed_yet_are_joined(bench):
    frames = [bytes(p) for p in stream(3)]
    handles = [bench.shop.partial(f[:50] + b"\xaa\xbb" + f[52:], 34, 16) for f in frames]
    (handle,) = bench.give(*handles)
    assert bench.again([handle]) == frames


def test_a_super_frame_passes_and_ends_what_is_held(bench):
    frames = [bytes(p) for p in stream(2)]
    handles = [bench.shop.packet(frames[0]), bench.shop.partial(frames[1], 34, 16, 500, 1)]
    assert bench.give(*handles) == handles
    bench.shop.free(*handles)


def test_case_67_padding_is_no_payload(bench):
    parts = [replace(p, data=p.data[:3], seq=7 + 3 * i) for i, p in enumerate(stream(4))]
    frames = [bytes(p) + b"\xff\xee\xdd" for p in parts]
    ((size, whole),) = bench.joined(*frames)
    assert (size, whole[54:]) == (3, b"".join(p.data for p in parts))
    assert bench.joined(frames[0]) == [(0, frames[0])]


def test_case_67_a_header_cut_short_or_a_length_that_lies_is_no_segment(bench):
    first, second = (bytes(p) for p in stream(2))
    damaged = [
        second[:40], second[:53], second[:1000],
        second[:16] + b"\x00\x10" + second[18:], second[:16] + b"\xff\xff" + second[18:], second[:16] + b"\0\0" + second[18:],
        second[:46] + b"\x10" + second[47:], second[:46] + b"\xf0" + second[47:], second[:14] + b"\x44" + second[15:],
    ]  # fmt: skip
    for frame in damaged:
        # What cannot be told to be of the flow passes at once, before what is held.
        assert sorted(bench.joined(first, frame)) == sorted([(0, first), (0, frame)])


def test_case_67_fragments_are_no_segments(bench):
    first, second = (bytes(p) for p in stream(2))
    for word in (b"\x20\x00", b"\x00\x05", b"\x60\x00"):
        frame = second[:20] + word + second[22:]
        assert sorted(bench.joined(first, frame)) == sorted([(0, first), (0, frame)])


@pytest.mark.parametrize(
    "frame",
    [
        bytes(
            ETHER
            / IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_NOP()] * 4)
            / TCP(sport=1, dport=80, flags="A")
            / Raw(b"x")
        ),
        bytes(
            ETHER
            / IPv6(src="fd00::1", dst="fd00::2")
            / IPv6ExtHdrDestOpt()
            / TCP(sport=1, dport=80, flags="A")
            / Raw(b"x")
        ),
        bytes(
            ETHER
            / IP(src="10.0.0.1", dst="10.0.0.2")
            / TCP(sport=1, dport=80, flags="A")
            / Raw(b"x")
            / Raw(bytes(3000))
        ),
    ],
    ids=["options", "extension", "chain"],
)
def test_what_has_other_headers_passes_alone_and_in_its_place(bench, frame):
    assert bench.joined(frame, frame) == [(0, frame)] * 2
    first = stream(1)[0]
    if b"\x86\xdd" not in frame[:14]:
        assert bench.joined(bytes(first), frame) == [(0, bytes(first)), (0, frame)]


def test_what_is_not_tcp_passes(bench):
    others = [bytes(ETHER / IP() / UDP() / Raw(b"x")), bytes(ETHER / Dot1Q() / Raw(b"hello")), b"x", bytes(60)]
    assert bench.joined(*others) == [(0, f) for f in others]


def test_a_segment_that_others_hold_is_not_joined(bench):
    handles = [bench.shop.packet(bytes(p)) for p in stream(3)]
    hold(handles[1])
    assert bench.give(*handles) == handles
    bench.shop.free(*handles, handles[1])


# Limits


def test_no_super_frame_is_longer_than_64_kilobytes(bench):
    parts = stream(90, 1448)
    handles = bench.give(*(bench.shop.packet(bytes(p)) for p in parts))
    assert [Packet.at(h).total for h in handles] == [54 + 45 * 1448] * 2
    assert bench.again(handles) == [bytes(p) for p in parts]


def test_no_super_frame_is_of_more_frames_than_a_port_cuts():
    with Bench(ws.coalesce(1_000_000), 8192) as bench:
        parts = stream(MOST_FRAMES + 100, 2)
        out = []
        for i in range(0, len(parts), 250):
            handles = [bench.shop.packet(bytes(p)) for p in parts[i : i + 250]]
            bench.burst[: len(handles)] = handles
            out += bench.burst[: bench.call(len(handles))].tolist()
        assert [Packet.at(h).segments for h in out] == [MOST_FRAMES]
        bench.inside.timeout_ns = 0
        assert bench.again(out + bench.rest()) == [bytes(p) for p in parts]


def test_the_oldest_flow_makes_room():
    with Bench(ws.coalesce(1_000_000, flows=2)) as bench:
        frames = [bytes(replace(stream(1)[0], flow=flow)) for flow in range(1, 4)]
        handles = [bench.shop.packet(f) for f in frames]
        bench.burst[:3] = handles
        assert bench.call(3) == 1
        assert bench.burst[0] == handles[0]
        assert bench.head.held == 2
        bench.shop.free(handles[0])
        bench.inside.most = 2
        more = bench.shop.packet(bytes(replace(stream(2)[1], flow=2)))
        bench.burst[0] = more
        assert bench.call(1) == 1
        assert bench.burst[0] == handles[1]
        bench.shop.free(handles[1])
        bench.inside.timeout_ns = 0
        assert bench.rest() == [handles[2]]
        bench.shop.free(handles[2])


def test_what_is_held_goes_on_when_its_time_is_over():
    with Bench(ws.coalesce(1_000_000)) as bench:
        first, second, third = (bench.shop.packet(bytes(p)) for p in stream(3))
        bench.burst[0] = first
        assert bench.call(1) == 0
        assert bench.call(0) == 0
        bench.burst[0] = second
        assert bench.call(1) == 0
        bench.inside.timeout_ns = 0
        assert bench.call(0) == 1
        assert (bench.burst[0], Packet.at(first).gso_size, Packet.at(first).segments) == (first, 1000, 2)
        bench.shop.free(first, third)


# Any streams


def by_flow(frames: list[bytes]) -> dict[tuple[int, ...], list[bytes]]:
    """The TCP frames of each flow in their order, without fragments, whose flow nobody can tell."""
    found: dict[tuple[int, ...], list[bytes]] = {}
    for frame in frames:
        array = np.frombuffer(frame, np.uint8)
        *key, flags = five_tuple(array.ctypes.data, len(frame), 1)
        if flags == PORTS and key[4] & 0xFF == 6:
            tag = int.from_bytes(frame[14:16]) if frame[12] == 0x81 else -1
            found.setdefault((tag, *map(int, key)), []).append(frame)
    return found


def moved(generator: random.Random, part: Made) -> Made:
    """A segment in which something is different."""
    change = generator.choice([
        {"flags": 0x18}, {"flags": 0x11}, {"flags": 0x14}, {"data": b""}, {"data": part.data[: len(part.data) // 2]},
        {"seq": part.seq + 1}, {"ident": part.ident + 3}, {"ttl": 3}, {"ack": 77}, {"window": 3}, {"options": b"\x01" * 8},
        {"tag": 9}, {"flags": 0x90},
    ])  # fmt: skip
    return replace(part, **change)


@given(st.integers(0, 2**32), st.sampled_from([0, 1_000_000]), st.integers(1, 40))
def test_case_67_any_streams_come_out_as_they_came_flow_by_flow(seed, timeout_us, burst):
    generator = random.Random(seed)
    with Bench(ws.coalesce(timeout_us, flows=generator.choice([1, 3, 100]))) as bench:
        given: list[bytes] = []
        streams = []
        for flow in range(1, generator.randrange(2, 6)):
            size = generator.choice([1, 3, 100, 536])
            streams.append(stream(generator.randrange(1, 60), size, flow=flow, six=generator.random() < 0.4))
        while streams:
            parts = generator.choice(streams)
            for part in parts[: generator.choice([1, 1, 5, 20])]:
                parts.remove(part)
                part = moved(generator, part) if generator.random() < 0.1 else part
                frame = bytearray(bytes(part))
                if generator.random() < 0.03:
                    frame[generator.randrange(14, len(frame))] ^= 1 << generator.randrange(8)
                given.append(bytes(frame))
                if generator.random() < 0.03:
                    given.append(bytes(frame))  # sent again
            streams = [s for s in streams if s]
        out = []
        for i in range(0, len(given), burst):
            handles = [bench.shop.packet(f) for f in given[i : i + burst]]
            bench.burst[: len(handles)] = handles
            out += bench.burst[: bench.call(len(handles))].tolist()
        bench.inside.timeout_ns = 0
        out += bench.rest()
        assert len(out) == len(given) - bench.inside.joined
        found = bench.again(out)
        assert sorted(found) == sorted(given)
        assert by_flow(found) == by_flow(given)


@pytest.mark.parametrize(
    "how", [{"timeout_us": -1}, {"timeout_us": "1"}, {"timeout_us": True}, {"flows": 0}, {"flows": 1 << 17}]
)
def test_what_cannot_be_is_refused(how):
    with pytest.raises(ws.GraphError, match="coalesce"):
        ws.coalesce(**how)
