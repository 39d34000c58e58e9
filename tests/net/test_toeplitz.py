"""The Toeplitz hash: the specification's test values, and the loop over bits it is defined by."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import ICMP, IP, TCP, UDP, IPv6, Raw

from tests.net.frames import Edge
from tests.net.stacks import ETHER
from wirespeed.net.toeplitz import DEFAULT_KEY, MAX_INPUT, rss, table, toeplitz

# Microsoft, "Verifying the RSS hash calculation": destination, source, with ports and without.
VECTORS = [
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x51CCC178, 0x323E8FC2),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xC626B0EA, 0xD718262A),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0x5C2B394A, 0xD2D0A5DE),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0xAFC7327F, 0x82989176),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x10E828A2, 0x5D1809C5),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x40207D3D, 0x2CC18CD5),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0xDDE51BBF, 0x0F0C461C),
    ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x02D1FEEF, 0x4B61E985),
]


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


def model(key: bytes, data: bytes) -> int:
    """The hash as it is defined: bit by bit, the key one bit further for each."""
    bits, value = int.from_bytes(key, "big"), 0
    for i in range(8 * len(data)):
        if data[i // 8] & 0x80 >> i % 8:
            value ^= bits >> 8 * len(key) - 32 - i & 0xFFFFFFFF
    return value


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


@pytest.mark.parametrize("destination, dport, source, sport, with_ports, without", VECTORS)
def test_case_56_the_specifications_values(edge, destination, dport, source, sport, with_ports, without) -> None:
    keys = table()
    data = packed(source) + packed(destination) + struct.pack(">HH", sport, dport)
    at = edge.high(data)
    assert toeplitz(keys.ctypes.data, 0, at, len(data)) == with_ports
    assert toeplitz(keys.ctypes.data, 0, at, len(data) - 4) == without
    assert model(DEFAULT_KEY, data) == with_ports


@pytest.mark.parametrize("destination, dport, source, sport, with_ports, without", VECTORS)
def test_case_56_frames_hash_to_the_specifications_values(
    edge, destination, dport, source, sport, with_ports, without
) -> None:
    keys = table()
    network = IPv6 if ":" in source else IP
    ip = network(src=source, dst=destination)
    for packet, value in ((ip / TCP(sport=sport, dport=dport), with_ports), (ip / ICMP(), without)):
        frame = bytes(ETHER / packet)
        assert rss(keys.ctypes.data, edge.high(frame), len(frame), 1) == value


def test_case_47_fragments_hash_by_addresses(edge: Edge) -> None:
    keys = table()
    destination, dport, source, sport, _, without = VECTORS[0]
    ip = {"src": source, "dst": destination}
    for packet in (IP(flags="MF", **ip) / UDP(sport=sport, dport=dport), IP(frag=9, proto=17, **ip) / Raw(bytes(9))):
        frame = bytes(ETHER / packet)
        assert rss(keys.ctypes.data, edge.high(frame), len(frame), 1) == without


def test_a_frame_without_ip_hashes_to_0(edge: Edge) -> None:
    assert rss(table().ctypes.data, edge.high(bytes(60)), 60, 1) == 0


@given(st.binary(min_size=40, max_size=52), st.binary(max_size=MAX_INPUT))
def test_any_key_gives_the_hash_as_it_is_defined(edge: Edge, key: bytes, data: bytes) -> None:
    keys = table(key)
    assert toeplitz(keys.ctypes.data, 0, edge.high(data), len(data)) == model(key, data)


@given(st.binary(max_size=MAX_INPUT), st.integers(0, MAX_INPUT))
def test_parts_combine(edge: Edge, data: bytes, cut: int) -> None:
    keys = table()
    cut = min(cut, len(data))
    first = toeplitz(keys.ctypes.data, 0, edge.high(data[:cut]), cut)
    last = toeplitz(keys.ctypes.data, cut, edge.high(data[cut:]), len(data) - cut)
    assert first ^ last == model(DEFAULT_KEY, data)


def test_a_key_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 40 bytes, got 39"):
        table(bytes(39))
