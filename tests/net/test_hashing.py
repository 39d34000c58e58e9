"""Flow hashes: equal for one flow, for both directions, for all fragments; different for others."""

import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import ICMP, IP, TCP, UDP, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, Raw, fragment, fragment6

from tests.net import stacks
from tests.net.frames import Edge, captured
from tests.net.stacks import ETHER, address4, address6
from wirespeed.net.flow import five_tuple
from wirespeed.net.hashing import flow_hash, symmetric_hash

SEEDS = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


def hashes(edge: Edge, packet: object) -> tuple[int, int]:
    """The plain and the symmetric hash of a frame."""
    frame = packet if isinstance(packet, bytes) else bytes(packet)  # type: ignore[call-overload]
    at = edge.high(frame)
    return int(flow_hash(at, len(frame), 1)), int(symmetric_hash(at, len(frame), 1))


def ends(seed: int) -> tuple[random.Random, list[dict[str, str]], list[dict[str, int]]]:
    """Two address pairs, of IPv4 and IPv6, and ports, by chance."""
    generator = random.Random(seed)
    four = {"src": address4(generator), "dst": address4(generator)}
    six = {"src": address6(generator), "dst": address6(generator)}
    if generator.random() < 0.2:  # a flow to itself: only the ports tell the ends apart
        four["dst"], six["dst"] = four["src"], six["src"]
    return generator, [four, six], [{"sport": generator.randrange(65536), "dport": generator.randrange(65536)}]


def turned(pair: dict) -> dict:
    first, last = pair
    return {first: pair[last], last: pair[first]}


@given(SEEDS)
def test_the_symmetric_hash_is_the_same_for_both_directions(edge: Edge, seed: int) -> None:
    _, (four, six), (ports,) = ends(seed)
    for network, addresses in ((IP, four), (IPv6, six)):
        for transport in (TCP, UDP):
            there = hashes(edge, ETHER / network(**addresses) / transport(**ports))
            back = hashes(edge, ETHER / network(**turned(addresses)) / transport(**turned(ports)))
            assert there[1] == back[1]
            same = addresses == turned(addresses) and ports == turned(ports)
            assert same or there[0] != back[0]


@given(SEEDS)
def test_the_hash_depends_on_the_flow_only(edge: Edge, seed: int) -> None:
    generator, (four, six), (ports,) = ends(seed)
    for network, addresses in ((IP, four), (IPv6, six)):
        one = hashes(edge, ETHER / network(**addresses) / TCP(seq=1, **ports) / Raw(b"x"))
        other = TCP(seq=2, flags="PA", **ports) / Raw(generator.randbytes(90))
        assert one == hashes(edge, ETHER / network(**addresses) / other)
        assert one == hashes(edge, ETHER / stacks.Dot1Q() / network(**addresses) / other)


@given(SEEDS)
def test_each_part_of_the_five_tuple_counts(edge: Edge, seed: int) -> None:
    _, (four, six), _ = ends(seed)
    for addresses in (four, six):
        network = IP if addresses is four else IPv6
        ports = {"sport": 1000, "dport": 2000}
        variants = [
            network(**addresses) / TCP(**ports),
            network(**addresses) / UDP(**ports),
            network(**addresses) / TCP(sport=1001, dport=2000),
            network(**addresses) / TCP(sport=1000, dport=2001),
            network(**{**addresses, "src": "10.77.0.1" if addresses is four else "2001:db8::77"}) / TCP(**ports),
            network(**{**addresses, "dst": "10.77.0.1" if addresses is four else "2001:db8::77"}) / TCP(**ports),
            network(**addresses) / ICMP(),
        ]
        for which in (0, 1):
            seen = {hashes(edge, ETHER / packet)[which] for packet in variants}
            assert len(seen) == len(variants)


@given(SEEDS)
def test_case_47_all_fragments_of_a_datagram_hash_alike(edge: Edge, seed: int) -> None:
    generator, (four, six), (ports,) = ends(seed)
    data = generator.randbytes(generator.randrange(1500, 5000))
    pieces = fragment(IP(**four) / UDP(**ports) / Raw(data), fragsize=generator.choice([8, 160, 1480]))
    assert len(pieces) > 1
    assert len({hashes(edge, ETHER / piece) for piece in pieces}) == 1
    extra = IPv6ExtHdrDestOpt() / UDP(**ports) if generator.random() < 0.5 else UDP(**ports)
    pieces = fragment6(IPv6(**six) / IPv6ExtHdrFragment() / extra / Raw(data), 1280)
    assert len(pieces) > 1
    assert len({hashes(edge, ETHER / piece) for piece in pieces}) == 1


@pytest.mark.parametrize("name", ["ipv4/fragmented-1", "ipv4/fragmented-2", "ipv4/fragmented-3", "ipv4/fragmented-4"])
def test_case_47_captured_fragments_of_a_datagram_hash_alike(edge: Edge, captures, name: str) -> None:
    datagrams: dict[tuple, set] = {}
    for _, frame, _ in captured(captures / f"zeek/{name}.pcap"):
        if (len(frame) >= 34 and frame[20] & 0x3F) or frame[21]:
            datagrams.setdefault((frame[26:34], frame[18:20]), set()).add(hashes(edge, frame))
    assert datagrams
    assert all(len(found) == 1 for found in datagrams.values())


def test_case_47_fragments_amid_whole_datagrams_hash_by_their_addresses(edge: Edge, captures) -> None:
    by_addresses: dict[bytes, list] = {}
    for _, frame, _ in captured(captures / "bulk/PcapPlusPlus-ip-frag.pcap"):
        if frame[12:14] == b"\x08\x00" and (frame[20] & 0x3F or frame[21]):
            by_addresses.setdefault(frame[26:34], []).append(hashes(edge, frame))
    assert sum(map(len, by_addresses.values())) > 1000
    assert all(len(set(found)) == 1 for found in by_addresses.values())


def test_a_frame_without_ip_hashes_to_0(edge: Edge) -> None:
    assert hashes(edge, ETHER / stacks.ARP()) == (0, 0)
    assert hashes(edge, b"") == (0, 0)


def test_flows_spread_over_queues(edge: Edge) -> None:
    generator = random.Random(3)
    counts = [[0] * 8, [0] * 8]
    n = 2000
    for i in range(n):
        addresses = {"src": f"10.0.{i >> 8}.{i & 255}", "dst": "192.0.2.1"}
        frame = bytes(ETHER / IP(**addresses) / UDP(sport=generator.randrange(1024, 65536), dport=53))
        for which, value in enumerate(hashes(edge, frame)):
            counts[which][value & 7] += 1
    # 250 are expected in each; five standard deviations are 74.
    assert all(abs(count - n / 8) < 74 for queue in counts for count in queue)


def test_the_words_of_a_flow_are_what_is_hashed(edge: Edge) -> None:
    frame = bytes(ETHER / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2))
    a, b, c, d, rest, _ = five_tuple(edge.high(frame), len(frame), 1)
    assert (a, b, c, d, rest) == (0, 0x0A000001, 0, 0x0A000002, 1 << 48 | 2 << 32 | 4 << 8 | 17)


def model_crc32c(seed: int, word: int) -> int:
    """CRC-32C of eight bytes, bit by bit."""
    value = seed ^ word
    for _ in range(64):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


@given(SEEDS)
def test_the_hash_is_the_same_on_every_machine(edge: Edge, seed: int) -> None:
    """It is made of CRC-32C steps over words of the five-tuple: here they are, in Python."""
    _, (four, six), (ports,) = ends(seed)
    source, destination = (int(ipaddress.ip_address(four[end])) for end in ("src", "dst"))
    words = [source << 16 | ports["sport"], destination << 16 | ports["dport"] | (4 << 8 | 6) << 48]
    assert hashes(edge, ETHER / IP(**four) / TCP(**ports))[0] == chained(words)
    halves = [half for end in ("src", "dst") for half in divmod(int(ipaddress.ip_address(six[end])), 1 << 64)]
    last = ports["sport"] << 48 | ports["dport"] << 32 | 6 << 8 | 17
    assert hashes(edge, ETHER / IPv6(**six) / UDP(**ports))[0] == chained([*halves, last])


def chained(words: list[int]) -> int:
    value = 0xFFFFFFFF
    for word in words:
        value = model_crc32c(value, word)
    return value
