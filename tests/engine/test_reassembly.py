"""Reassembly: whatever order fragments come in, the datagram is whole; what contradicts itself is dropped, and why is counted."""

import random
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import (
    IP,
    UDP,
    Dot1Q,
    IPOption_NOP,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Raw,
)

import wirespeed as ws
from tests.driver import Driver
from tests.net.frames import captured
from tests.net.stacks import ETHER
from tests.net.test_fragmentation import divide
from tests.net.test_segmentation import hold, payload
from tests.net.workshop import Workshop
from wirespeed.core.frame import Packet as Frame
from wirespeed.core.packet import Packet
from wirespeed.engine.transform.datagram import MOST_FRAGMENTS
from wirespeed.engine.transform.reassemble import State
from wirespeed.net.flow import five_tuple
from wirespeed.net.hashing import flow_hash, symmetric_hash
from wirespeed.ports.memory import MemoryPort

V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}


class Bench(Driver):
    """A stage in a driver, and a workshop on the same pool."""

    def __init__(self, element: object, size: int = 4096) -> None:
        self.shop = Workshop(size)
        super().__init__(element.open("stage", 1), pool=self.shop.pool, burst=256)

    def send(self, *handles: int) -> list[bytes]:
        """Give the stage packets as one burst; the bytes of what it lets go on, which is freed."""
        self.burst[: len(handles)] = handles
        n = self.call(len(handles))
        self.out = self.burst[:n].tolist()
        found = [self.shop.bytes(h) for h in self.out]
        self.free(self.out)
        return found

    def frames(self, *frames: bytes) -> list[bytes]:
        """The same for frames."""
        return self.send(*(self.shop.packet(f) for f in frames))

    @property
    def inside(self):
        return State.at(self.placement.state).reassembler

    def balanced(self) -> bool:
        """Whether the pool misses exactly what the stage says that it holds."""
        return self.shop.pool.free_count + self.inside.segments == self.shop.pool.size


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench(ws.reassemble()) as bench:
        yield bench


def fragments(bench: Bench, frame: bytes, mtu: int) -> list[bytes]:
    """A frame in fragments, made by our own fragmenter, which has tests of its own."""
    n = divide(bench.shop, bench.shop.packet(frame), mtu)
    return bench.shop.frames(n)


def piece(begin: int, size: int, more: bool, ident: int = 7, source: str = "10.0.0.1", fill: bytes = b"x") -> bytes:
    """A fragment of an IPv4 datagram; ``begin`` a multiple of 8."""
    ip = IP(src=source, dst="10.0.0.2", id=ident, flags="MF" if more else 0, frag=begin // 8, proto=17)
    return bytes(ETHER / ip / Raw(fill * size))


def piece6(begin: int, size: int, more: bool, ident: int = 7) -> bytes:
    fragment = IPv6ExtHdrFragment(id=ident, m=int(more), offset=begin // 8, nh=17)
    return bytes(ETHER / IPv6(**V6) / fragment / Raw(b"x" * size))


# Whole again


@given(st.integers(0, 2**32))
def test_fragments_in_any_order_are_the_datagram_again(seed):
    generator = random.Random(seed)
    with Bench(ws.reassemble(), 2048) as bench:
        wanted, pieces = [], []
        for number in range(generator.randrange(1, 5)):
            link = ETHER.copy()
            for _ in range(generator.randrange(3)):
                link = link / Dot1Q(vlan=5)
            data = UDP(sport=1, dport=2) / Raw(generator.randbytes(generator.randrange(500, 4000)))
            if generator.random() < 0.5:
                options = [IPOption_NOP()] * generator.choice([0, 0, 7, 40])
                frame = bytes(link / IP(**V4, id=number, options=options) / data)
            else:
                extensions = generator.sample([IPv6ExtHdrHopByHop(), IPv6ExtHdrRouting(addresses=["fd00::7"])], 1)
                head = link / IPv6(**V6)
                for extension in extensions if generator.random() < 0.5 else []:
                    head = head / extension
                frame = bytes(head / data)
            wanted.append(frame)
            parts = fragments(bench, frame, generator.randrange(150, 600))
            parts = [p for part in parts for p in fragments(bench, part, generator.randrange(130, 600))]
            pieces += [part + bytes(generator.randrange(9)) for part in parts]  # with padding
        generator.shuffle(pieces)
        found = []
        while pieces:
            n = generator.randrange(1, 40)
            cuts = [
                tuple(generator.randrange(1, len(p)) for _ in range(generator.choice([0, 0, 1, 3]))) for p in pieces[:n]
            ]
            found += bench.send(*(bench.shop.packet(p, c) for p, c in zip(pieces[:n], cuts, strict=True)))
            assert bench.head.held == bench.inside.held
            assert bench.balanced()
            del pieces[:n]
        assert sorted(found) == sorted(wanted)
        assert bench.drops() == {}
        assert bench.head.held == 0
        assert bench.inside.whole == len(wanted)


def test_what_is_no_fragment_passes_in_its_place(bench):
    plain = [bytes(ETHER / IP(**V4) / UDP() / Raw(bytes([i]))) for i in range(4)]
    atomic = bytes(ETHER / IPv6(**V6) / IPv6ExtHdrFragment(nh=17) / UDP() / Raw(b"x"))
    whole = bytes(ETHER / IP(**V4, id=3) / UDP(sport=1, dport=2) / Raw(payload(1500)))
    a, b = fragments(bench, whole, 1000)
    assert bench.frames(plain[0], a, plain[1], atomic, b, plain[2]) == [plain[0], plain[1], atomic, whole, plain[2]]


def test_what_is_known_about_the_first_fragment_is_known_about_the_datagram(bench):
    whole = bytes(ETHER / IP(**V4, id=3) / UDP(sport=1, dport=2) / Raw(payload(1500)))
    first, second = (bench.shop.packet(f) for f in fragments(bench, whole, 1000))
    p = Packet.at(first)
    p.time, p.port, p.hash, p.flags = 55, 3, 9, 1
    Packet.at(second).port = 3
    bench.burst[:2] = [second, first]
    assert bench.call(2) == 1
    frame = bench.frame(int(bench.burst[0]))
    q = Packet.at(int(bench.burst[0]))
    assert (frame.data, frame.time, frame.port, frame.wire) == (whole, 55, 3, len(whole))
    assert not q.flags & 1, "the hash of a fragment is not that of the datagram"
    bench.free([int(bench.burst[0])])


def test_datagrams_with_the_same_identification_are_told_apart(bench):
    kinds = [
        ETHER / IP(**V4, id=5), ETHER / IP(**V4, id=5, proto=99), ETHER / IP(src="10.0.0.3", dst="10.0.0.2", id=5),
        ETHER / IP(src="10.0.0.1", dst="10.0.0.9", id=5), ETHER / Dot1Q(vlan=3) / IP(**V4, id=5),
        ETHER / Dot1Q(vlan=3) / Dot1Q(vlan=3) / IP(**V4, id=5), ETHER / Dot1Q(vlan=4) / IP(**V4, id=5),
    ]  # fmt: skip
    whole = [bytes(kind / UDP(sport=n, dport=2) / Raw(payload(900 + n))) for n, kind in enumerate(kinds)]
    split = [fragments(bench, frame, 600) for frame in whole]
    assert bench.frames(*(parts[0] for parts in split)) == []
    assert bench.frames(*(parts[1] for parts in split)) == whole


def test_fragments_of_one_that_others_hold_are_copied(bench):
    whole = bytes(ETHER / IP(**V4, id=3) / UDP(sport=1, dport=2) / Raw(payload(1500)))
    handles = [bench.shop.packet(f) for f in fragments(bench, whole, 1000)]
    before = [bench.shop.bytes(h) for h in handles]
    for handle in handles:
        hold(handle)
    assert bench.send(*handles) == [whole]
    assert [bench.shop.bytes(h) for h in handles] == before
    bench.shop.free(*handles)


def test_after_it_all_packets_of_a_flow_have_one_hash(bench):
    short = bytes(ETHER / IP(**V4) / UDP(sport=1, dport=2) / Raw(b"short"))
    long = bytes(ETHER / IP(**V4) / UDP(sport=1, dport=2) / Raw(payload(3000)))
    found = bench.frames(short, *fragments(bench, long, 600))
    hashes = set()
    for frame in found:
        array = np.frombuffer(frame, np.uint8)
        hashes.add(int(flow_hash(array.ctypes.data, len(frame), 1)))
    assert len(hashes) == 1


# Row 47: before it, all fragments of a datagram have one hash too


def flow_hashes(frame: bytes, link: int = 1) -> tuple[int, int]:
    array = np.frombuffer(frame, np.uint8)
    at = array.ctypes.data
    return int(flow_hash(at, len(frame), link)), int(symmetric_hash(at, len(frame), link))


@given(st.integers(0, 2**32))
def test_case_47_the_fragments_of_a_datagram_hash_alike(seed):
    generator = random.Random(seed)
    with Bench(ws.reassemble(), 2048) as bench:
        tags = [ETHER, ETHER / Dot1Q(vlan=3), ETHER / Dot1Q() / Dot1Q()]
        extension = generator.choice(
            [None, IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=["::7"])]
        )
        network = generator.choice([IP(**V4, options=[IPOption_NOP()] * generator.choice([0, 4])), IPv6(**V6)])
        head = generator.choice(tags) / network
        if extension is not None and isinstance(network, IPv6):
            head = head / extension
        frame = bytes(head / UDP(sport=generator.randrange(65536), dport=2) / Raw(payload(2000)))
        parts = fragments(bench, frame, generator.randrange(200, 1500))
        assert len(parts) > 1
        assert len({flow_hashes(f) for f in parts}) == 1


def test_case_47_captured_fragments_hash_alike(captures):
    """Over all captures whose names say that there are fragments: those of a datagram have one hash."""
    datagrams: dict[tuple[str, bytes], set[tuple[int, int]]] = {}
    for path in captures.rglob("*frag*.pcap*"):
        for link, frame, _ in captured(path):
            if link == 1 and len(frame) >= 34 and frame[12:15] == b"\x08\x00\x45":
                (word,) = struct.unpack_from("!H", frame, 20)
                if word & 0x3FFF:
                    key = (str(path), frame[18:20] + frame[23:24] + frame[26:34])
                    datagrams.setdefault(key, set()).add(flow_hashes(frame))
    assert len(datagrams) > 10
    assert all(len(found) == 1 for found in datagrams.values())


# What contradicts itself


def test_case_49_the_four_fragments_that_corrupted_another_reassembler_are_rejected(bench):
    # Offsets and lengths as they were given; 100 is no multiple of 8, and one has no data.
    assert bench.frames(piece(0, 100, True), piece(96, 100, True), piece(200, 0, True), piece(200, 100, False)) == []
    assert bench.drops() == {"bad_fragment": 3}
    assert bench.head.held == 1


def test_case_49_the_same_with_lengths_that_can_be_are_rejected_for_their_overlap(bench):
    assert bench.frames(piece(0, 104, True), piece(96, 104, True), piece(200, 0, True), piece(200, 100, False)) == []
    assert bench.drops() == {"bad_fragment": 1, "overlap": 3}
    assert bench.head.held == 0


@pytest.mark.parametrize("make", [piece, piece6])
@pytest.mark.parametrize(
    "second",
    [(0, 200, True), (0, 96, True), (0, 112, True), (96, 8, True), (96, 200, False), (8, 88, True), (48, 400, False)],
)
def test_overlapping_fragments_end_their_datagram(bench, make, second):
    assert bench.frames(make(0, 104, True), make(*second)) == []
    assert bench.drops() == {"overlap": 2}
    # What comes of it later is dropped too, and datagrams of others are not touched.
    assert bench.frames(make(104, 104, True), make(208, 10, False), make(0, 8, True, ident=8)) == []
    assert bench.drops() == {"overlap": 4}
    assert len(bench.frames(make(8, 8, False, ident=8))) == 1


@pytest.mark.parametrize("make", [piece, piece6])
@pytest.mark.parametrize(
    "pieces",
    [
        [(208, 10, False), (208, 16, True)],  # more behind the last one
        [(208, 10, False), (400, 10, False)],  # two last ones
        [(400, 16, True), (208, 10, False)],  # a last one before others
        [(208, 16, False), (104, 120, True)],
        [(104, 16, False), (104, 16, True)],
        [(208, 16, False), (216, 8, True)],
    ],
)
def test_fragments_that_disagree_about_the_end_end_their_datagram(bench, make, pieces):
    assert bench.frames(*(make(*p) for p in pieces)) == []
    assert bench.drops() in ({"overlap": 2}, {"overlap": 1, "duplicate": 1})
    assert bench.balanced()


def test_a_fragment_that_comes_twice_counts_once(bench):
    whole = bytes(ETHER / IP(**V4, id=3) / UDP(sport=1, dport=2) / Raw(payload(1500)))
    a, b, c = fragments(bench, whole, 600)
    assert bench.frames(a, a, c, c, a) == []
    assert bench.frames(b) == [whole]
    assert bench.drops() == {"duplicate": 3}


@pytest.mark.parametrize("size", [1, 7, 9, 1001])
def test_a_length_that_is_no_multiple_of_eight_is_for_the_last_only(bench, size):
    assert bench.frames(piece(0, size, True), piece6(0, size, True)) == []
    assert bench.drops() == {"bad_fragment": 2}


def test_no_datagram_is_longer_than_its_header_can_say(bench):
    assert bench.frames(piece(65528, 7, False), piece(65512, 8, True), piece6(65528, 8, False)) == []
    assert bench.drops() == {"bad_fragment": 3}
    ends = piece(64_000, 65_535 - 20 - 64_000, False, ident=9)
    parts = [piece(i, min(1600, 64_000 - i), True, ident=9) for i in range(0, 64_000, 1600)]
    (whole,) = bench.frames(ends, *parts)
    assert len(whole) == 14 + 65_535
    assert struct.unpack_from("!H", whole, 16) == (65_535,)


def test_a_first_fragment_with_longer_headers_counts_too(bench):
    options = [IPOption_NOP()] * 40
    first = bytes(ETHER / IP(**V4, id=9, flags="MF", proto=17, options=options) / Raw(bytes(1600)))
    parts = [piece(i, min(1600, 64_000 - i), True, ident=9) for i in range(1600, 64_000, 1600)]
    ends = piece(64_000, 65_535 - 20 - 64_000, False, ident=9)
    assert bench.frames(first, *parts, ends) == []
    assert bench.drops() == {"bad_fragment": 41}
    assert bench.head.held == 0


def test_more_fragments_than_are_kept_end_their_datagram(bench):
    for i in range(MOST_FRAGMENTS):
        assert bench.frames(piece(8 * i, 8, True)) == []
    assert bench.head.held == MOST_FRAGMENTS
    for i in range(MOST_FRAGMENTS, MOST_FRAGMENTS + 40):
        assert bench.frames(piece(8 * i, 8, True)) == []
    assert bench.frames(piece(8 * MOST_FRAGMENTS + 320, 8, False)) == []
    assert bench.drops() == {"too_many": MOST_FRAGMENTS + 41}, "what comes later is told under the same reason"
    assert bench.head.held == 0


def least_fragments(ip: IP | IPv6, mtu: int, seed: int | None = None) -> tuple[list[bytes], bytes]:
    """The longest datagram there is as fragments for a small MTU, in a random order with a seed; and itself."""
    head = len(bytes(ip)) if isinstance(ip, IP) else 0
    frame = bytes(ETHER / ip / UDP(sport=1, dport=2) / Raw(payload(65_535 - 8 - head)))
    with MemoryPort(size="8MB") as memory:
        memory.push([frame])
        memory.close_input()
        ws.run(memory >> ws.fragment(mtu) >> memory)
        parts = [bytes(p) for p in memory.pull()]
    if seed is not None:
        random.Random(seed).shuffle(parts)
    return parts, frame


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(
    "ip, mtu, pieces", [(IP(**V4, id=9), 68, 1365), (IPv6(**V6), 80, 2048), (IP(**V4, id=9), 1500, 45)]
)
def test_the_longest_datagram_in_the_shortest_fragments_that_are_made_is_whole_again(bench, ip, mtu, pieces, seed):
    parts, frame = least_fragments(ip, mtu, seed)
    assert len(parts) == pieces
    if seed is None:
        parts.reverse()
    assert [found for part in parts for found in bench.frames(part)] == [frame]
    assert bench.drops() == {}
    assert (bench.head.held, bench.inside.segments) == (0, 0)


@given(st.integers(0, 2**32))
def test_what_a_fragment_is_to_others_is_what_a_plain_model_says(seed):
    generator = random.Random(seed)
    with Bench(ws.reassemble()) as bench:
        held: set[tuple[int, int, bool]] = set()
        counts = {"duplicate": 0, "overlap": 0}
        for _ in range(60):
            begin = 8 * generator.randrange(200)
            size = 8 * generator.choice([1, 2, 3, 8, 60, 64, 65, 130])
            more = generator.random() < 0.9
            size -= 0 if more else generator.randrange(8)
            one = (begin, begin + size, more)
            whole = bench.frames(piece(begin, size, more))
            last = next((end for _, end, more in held if not more), None)
            beyond = max((end for _, end, _ in held), default=0)
            if one in held:
                counts["duplicate"] += 1
            elif (
                any(begin < end and start < begin + size for start, end, _ in held)
                or (last is not None and (begin + size > last or (begin + size == last) == more))
                or (not more and beyond > begin + size)
            ):
                counts["overlap"] = len(held) + 1
                assert whole == []
                break
            else:
                held.add(one)
                done = not more or last is not None
                if done and sum(end - start for start, end, _ in held) == (begin + size if not more else last):
                    assert len(whole) == 1
                    break
            assert whole == []
        assert bench.drops() == {name: n for name, n in counts.items() if n}


def test_fragments_with_damaged_headers_are_dropped(bench):
    frame = piece(0, 80, True)
    assert bench.frames(frame[:16] + b"\x40\x00" + frame[18:]) == []
    assert bench.drops() == {"bad_fragment": 1}


# Limits


def test_a_datagram_whose_time_is_over_is_dropped():
    with Bench(ws.reassemble(timeout_s=10)) as bench:
        a, b = piece(0, 80, True), piece(80, 80, False)
        bench.frames(a, piece(0, 80, True, ident=8))
        bench.inside.timeout_ns = 0
        assert bench.send() == []
        assert bench.drops() == {"timeout": 2}
        assert (bench.head.held, bench.inside.segments) == (0, 0)
        bench.inside.timeout_ns = 10**12
        assert bench.frames(b) == []
        assert len(bench.frames(a)) == 1


def test_one_source_has_no_more_than_its_share():
    with Bench(ws.reassemble(fragments=64, per_source=8)) as bench:
        for i in range(20):
            bench.frames(piece(0, 8, True, ident=i))
        assert (bench.head.held, bench.drops()) == (8, {"source_share": 12})
        others = [piece(0, 8, True, source=f"10.0.1.{i}") for i in range(4)]
        assert bench.frames(*others, *(piece(8, 8, False, source=f"10.0.1.{i}") for i in range(4))) != []
        assert bench.drops() == {"source_share": 12}


def test_when_all_is_used_the_oldest_datagram_makes_room():
    with Bench(ws.reassemble(fragments=20, per_source=20)) as bench:
        sources = [f"10.0.{i}.1" for i in range(30)]
        for i, source in enumerate(sources):
            bench.frames(piece(0, 8, True, source=source), piece(16, 8, True, source=source))
            assert bench.inside.segments <= 20, i
        held = bench.head.held
        assert bench.drops() == {"evicted": 60 - held}
        newest = [bench.frames(piece(8, 8, True, source=s), piece(24, 8, False, source=s)) for s in sources[-3:]]
        assert [len(found) for found in newest] == [1, 1, 1]


def test_a_datagram_that_needs_more_than_there_is_gets_nothing_of_its_own_evicted():
    with Bench(ws.reassemble(fragments=4, per_source=100)) as bench:
        for i in range(8):
            assert bench.frames(piece(8 * i, 8, True)) == []
        assert bench.drops() == {"evicted": 4}
        assert bench.head.held == 4


@pytest.mark.parametrize("how", [{"fragments": 2}, {"per_source": 2}, {"fragments": 2, "per_source": 2}])
def test_with_the_least_that_is_accepted_two_fragments_go_together(how):
    with Bench(ws.reassemble(**how)) as bench:
        for i in range(20):
            assert len(bench.frames(piece(0, 8, True, ident=i), piece(8, 8, False, ident=i))) == 1
        assert bench.drops() == {}


def test_a_source_whose_datagrams_were_all_rejected_has_a_share_too():
    with Bench(ws.reassemble(fragments=64, per_source=8)) as bench:
        for i in range(20):
            bench.frames(piece(0, 8, True, ident=i), piece(0, 16, True, ident=i))
        # Seven of them and the first fragment of one more are its share.
        assert (bench.inside.table.length, bench.head.held) == (8, 1)
        assert bench.drops() == {"overlap": 14, "source_share": 25}
        assert len(bench.frames(*(piece(i, 8, i == 0, source="10.0.9.9") for i in (0, 8)))) == 1


def test_sources_counts_return_to_zero():
    with Bench(ws.reassemble(fragments=64, per_source=8)) as bench:
        for i in range(200):
            parts = [piece(0, 8, True, ident=i), piece(8, 8, False, ident=i)]
            assert len(bench.frames(*parts)) == 1
        assert bench.drops() == {}


def test_any_fragments_at_all_keep_the_books():
    generator = random.Random(49)
    with Bench(ws.reassemble(fragments=300, per_source=150)) as bench:
        given = passed = 0
        for _ in range(600):
            handles = []
            for _ in range(generator.randrange(1, 20)):
                make = generator.choice([piece, piece6])
                begin, size = 8 * generator.randrange(8), generator.choice([8, 8, 16, 24, 7, 0, 100])
                frame = bytearray(make(begin, size, generator.random() < 0.7, generator.randrange(6)))
                if generator.random() < 0.1:
                    frame[generator.randrange(12, len(frame))] = generator.randrange(256)
                handles.append(bench.shop.packet(bytes(frame), tuple(generator.sample(range(1, 50), 2))))
            given += len(handles)
            passed += len(bench.send(*handles))
            assert bench.balanced()
        inside = bench.inside
        assert given + inside.made == passed + bench.head.held + sum(bench.drops().values())


def test_five_tuples_of_datagrams_have_their_ports(bench):
    whole = bytes(ETHER / IP(**V4, id=3) / UDP(sport=77, dport=2) / Raw(payload(1500)))
    (found,) = bench.frames(*fragments(bench, whole, 700))
    array = np.frombuffer(found, np.uint8)
    assert five_tuple(array.ctypes.data, len(found), 1)[4] >> 48 == 77
    assert Frame(found).length == len(whole)


@pytest.mark.parametrize(
    "how",
    [
        {"timeout_s": 0},
        {"timeout_s": "1"},
        {"timeout_s": True},
        {"fragments": 1},
        {"fragments": 1 << 21},
        {"per_source": 0},
    ],
)
def test_what_cannot_be_is_refused(how):
    with pytest.raises(ws.GraphError, match="reassemble"):
        ws.reassemble(**how)
