"""Checksums: against the loop of the RFC, at any alignment and length, at the edge of mapped memory."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.all import ICMP, IP, TCP, UDP, ICMPv6EchoRequest, IPOption_NOP, IPv6, Raw
from scapy.layers.sctp import SCTP, SCTPChunkData

from tests.net.frames import Edge, address, captured
from wirespeed.jit.libc import copy_in, copy_out
from wirespeed.net.checksum import (
    checksum,
    crc32c_bytes,
    fill_icmp,
    fill_ipv4,
    fill_sctp,
    fill_tcp,
    fill_udp,
    fold,
    ipv4_checksum,
    ipv4_sum,
    l4_checksum,
    l4_sum,
    ones_sum,
    pseudo_ipv4,
    pseudo_ipv6,
    sctp_checksum,
    sctp_right,
    udp_sent,
    udp_update16,
    udp_update32,
    update16,
    update32,
)
from wirespeed.net.headers import IPv4

WORD = st.integers(0, 0xFFFF)
LONG = st.integers(0, 0xFFFFFFFF)


def model_sum(data: bytes) -> int:
    """The loop of RFC 1071, section 4.1."""
    total = 0
    for i in range(0, len(data) - 1, 2):
        total += data[i] << 8 | data[i + 1]
    if len(data) % 2:
        total += data[-1] << 8
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def model_checksum(data: bytes) -> int:
    return ~model_sum(data) & 0xFFFF


@pytest.fixture(scope="module")
def edge() -> Edge:
    return Edge()


# RFC 1071


def test_the_example_of_rfc_1071_adds_up(edge: Edge) -> None:
    data = bytes.fromhex("0001f203f4f5f6f7")
    assert ones_sum(edge.high(data), len(data)) == 0xDDF2
    assert checksum(edge.high(data), len(data)) == 0x220D


@given(st.binary(max_size=600), st.integers(0, 70))
def test_case_43_a_sum_at_any_alignment_and_length_is_the_rfcs(edge: Edge, data: bytes, shift: int) -> None:
    wanted = model_sum(data)
    assert ones_sum(edge.high(data), len(data)) == wanted  # reads nothing behind
    assert ones_sum(edge.low(data), len(data)) == wanted  # reads nothing before
    at = edge.low(bytes(shift) + data + b"\xff" * 8)
    assert ones_sum(at + shift, len(data)) == wanted


def test_case_43_every_length_up_to_300_at_every_alignment_is_the_rfcs(edge: Edge) -> None:
    data = bytes((7 * i * i + 13 * i + 250) & 255 for i in range(300))
    for length in range(301):
        wanted = model_sum(data[:length])
        for shift in range(9):
            at = edge.low(bytes(shift) + data[:length] + b"\xff" * 8)
            assert ones_sum(at + shift, length) == wanted, (length, shift)


@pytest.mark.parametrize("length", [65535, 65536, 100_001])
def test_long_runs_of_ones_carry_as_they_should(edge: Edge, length: int) -> None:
    data = b"\xff" * length
    assert ones_sum(edge.high(data), length) == model_sum(data)


@given(st.integers(0, 2**63 - 1))
def test_fold_adds_every_carry_back(total: int) -> None:
    wanted = total % 0xFFFF
    assert fold(total) == (wanted if wanted or total == 0 else 0xFFFF)


# IPv4


def ip_header(words: int) -> bytes:
    """A header with a wrong checksum in its field."""
    options = [IPOption_NOP()] * (4 * words - 20)
    data = bytearray(bytes(IP(src="192.0.2.1", dst="198.51.100.7", id=0xBEEF, ttl=3, options=options)))
    data[10:12] = b"\xab\xcd"
    return bytes(data)


@pytest.mark.parametrize("ihl", range(5, 16))
def test_case_40_the_header_sum_has_the_options_in_it(edge: Edge, ihl: int) -> None:
    header = ip_header(ihl)
    right = model_checksum(header[:10] + b"\0\0" + header[12:])
    at = edge.high(header)
    assert ipv4_checksum(at, ihl) == right
    assert ipv4_sum(at, ihl) != 0xFFFF
    fill_ipv4(at, ihl)
    assert IPv4.at(at).chksum == right
    assert ipv4_sum(at, ihl) == 0xFFFF
    assert ipv4_checksum(at, ihl) == right


@given(st.binary(min_size=20, max_size=20))
def test_the_short_way_for_20_bytes_is_the_rfcs(edge: Edge, header: bytes) -> None:
    assert ipv4_sum(edge.high(header), 5) == model_sum(header)


# Transport


def parts(packet, edge: Edge) -> tuple[int, int, int, int]:
    """A packet of scapy's at an edge: addresses of IP and transport header, size of the latter, its pseudo sum."""
    data = bytes(packet)
    at = edge.high(data)
    if data[0] >> 4 == 4:
        return at, at + 20, len(data) - 20, pseudo_ipv4(at, data[9], len(data) - 20)
    return at, at + 40, len(data) - 40, pseudo_ipv6(at + 8, at + 24, data[6], len(data) - 40)


TRANSPORTS = [(TCP(sport=1, dport=2), 16, fill_tcp), (UDP(sport=1, dport=2), 6, fill_udp)]
ADDRESSES = [IP(src="10.1.2.3", dst="10.255.0.1"), IPv6(src="2001:db8::1", dst="2001:db8:ffff::2")]


@pytest.mark.parametrize("header, place, fill", TRANSPORTS)
@pytest.mark.parametrize("network", ADDRESSES)
@given(payload=st.binary(max_size=80))
def test_tcp_and_udp_checksums_are_scapys(edge: Edge, network, header, place, fill, payload: bytes) -> None:
    packet = network / header / Raw(payload)
    _, l4, size, pseudo = parts(packet, edge)
    right = copy_out(l4, size)[place : place + 2]
    value = l4_checksum(l4, size, pseudo, place)
    assert struct.pack(">H", udp_sent(value) if place == 6 else value) == right
    spoil(l4 + place)
    fill(l4, size, pseudo)
    assert copy_out(l4, size)[place : place + 2] == right


def spoil(at: int) -> None:
    """Put another checksum where the right one was: filling must not depend on what is there."""
    copy_in(at, bytes(byte ^ 0x5A for byte in copy_out(at, 2)))


@given(payload=st.binary(max_size=80))
def test_icmp_checksums_are_scapys(edge: Edge, payload: bytes) -> None:
    for packet in (IP() / ICMP() / Raw(payload), IPv6() / ICMPv6EchoRequest(data=payload)):
        _, l4, size, pseudo = parts(packet, edge)
        right = copy_out(l4, size)[2:4]
        spoil(l4 + 2)
        fill_icmp(l4, size, pseudo if packet.version == 6 else 0)
        assert copy_out(l4, size)[2:4] == right


@pytest.mark.parametrize("size", [8, 9, 64])
@pytest.mark.parametrize("old", [0, 1, 0x00FF, 0xFFFF])
def test_an_icmp_message_of_zeros_has_a_checksum_of_all_ones(edge: Edge, size: int, old: int) -> None:
    at = edge.high(bytes(2) + old.to_bytes(2, "big") + bytes(size - 4))  # an echo reply, the first of its session
    fill_icmp(at, size, 0)
    assert copy_out(at, 4) == b"\0\0\xff\xff"
    assert ones_sum(at, size) == 0xFFFF


def test_the_pseudo_header_of_ipv6_has_a_length_of_32_bits(edge: Edge) -> None:
    at = edge.high(bytes(IPv6(src="2001:db8::1", dst="2001:db8::2")))
    for size in (0, 65535, 65536, 100_000, 2**32 - 1):
        header = copy_out(at + 8, 32) + struct.pack(">II", size, 6)
        assert l4_sum(at, 0, pseudo_ipv6(at + 8, at + 24, 6, size)) == model_sum(header)


def test_case_38_a_udp_sum_of_0_is_sent_as_all_ones(edge: Edge) -> None:
    payload = b"\xff\xff\x01\x6a"
    packet = IP(src="127.0.0.1", dst="127.0.0.1") / UDP(sport=53, dport=53) / Raw(payload)
    _, l4, size, pseudo = parts(packet, edge)
    assert l4_checksum(l4, size, pseudo, 6) == 0
    fill_udp(l4, size, pseudo)
    assert copy_out(l4 + 6, 2) == b"\xff\xff"
    assert l4_sum(l4, size, pseudo) == 0xFFFF  # right by the sum as well


# RFC 1624


def test_the_example_of_rfc_1624_is_not_minus_zero() -> None:
    assert update16(0xDD2F, 0x5555, 0x3285) == 0x0000


@given(st.binary(min_size=20, max_size=20).filter(any), st.integers(0, 9), WORD)
def test_a_16_bit_difference_is_the_whole_sum_again(edge: Edge, data: bytes, place: int, new: int) -> None:
    old = int.from_bytes(data[2 * place : 2 * place + 2], "big")
    changed = data[: 2 * place] + new.to_bytes(2, "big") + data[2 * place + 2 :]
    updated, whole = update16(model_checksum(data), old, new), model_checksum(changed)
    # Data of zeros alone is the one case in which a difference cannot tell the two zeros of ones' complement apart.
    assert updated == whole or (not any(changed) and {updated, whole} == {0, 0xFFFF})


@given(st.binary(min_size=20, max_size=20).filter(any), st.integers(0, 4), LONG)
def test_a_32_bit_difference_is_the_whole_sum_again(data: bytes, place: int, new: int) -> None:
    old = int.from_bytes(data[4 * place : 4 * place + 4], "big")
    changed = data[: 4 * place] + new.to_bytes(4, "big") + data[4 * place + 4 :]
    updated, whole = update32(model_checksum(data), old, new), model_checksum(changed)
    assert updated == whole or (not any(changed) and {updated, whole} == {0, 0xFFFF})


@given(WORD, WORD, WORD)
def test_a_udp_difference_keeps_none_and_makes_none(old_checksum: int, old: int, new: int) -> None:
    updated = udp_update16(old_checksum, old, new)
    assert updated == (0 if old_checksum == 0 else update16(old_checksum, old, new) or 0xFFFF)


@given(WORD, LONG, LONG)
def test_a_long_udp_difference_keeps_none_and_makes_none(old_checksum: int, old: int, new: int) -> None:
    updated = udp_update32(old_checksum, old, new)
    assert updated == (0 if old_checksum == 0 else update32(old_checksum, old, new) or 0xFFFF)


# CRC-32C


def test_crc32c_has_the_check_values_of_rfc_3720(edge: Edge) -> None:
    for data, value in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
                        (b"123456789", 0xE3069283)):  # fmt: skip
        assert crc32c_bytes(0xFFFFFFFF, edge.high(data), len(data)) ^ 0xFFFFFFFF == value


def model_crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@given(st.binary(max_size=100))
def test_crc32c_of_any_length_is_the_bitwise_one(edge: Edge, data: bytes) -> None:
    assert crc32c_bytes(0xFFFFFFFF, edge.high(data), len(data)) ^ 0xFFFFFFFF == model_crc32c(data)


@given(st.binary(max_size=60))
def test_sctp_checksums_are_scapys(edge: Edge, data: bytes) -> None:
    packet = bytes(SCTP(sport=1, dport=2, tag=3) / SCTPChunkData(data=data))
    at = edge.high(packet)
    assert struct.pack(">I", sctp_checksum(at, len(packet))) == packet[8:12]
    assert sctp_right(at, len(packet))
    spoil(at + 8)
    assert not sctp_right(at, len(packet))
    fill_sctp(at, len(packet))
    assert copy_out(at, len(packet)) == packet


def test_an_sctp_packet_of_its_header_alone_has_a_checksum(edge: Edge) -> None:
    packet = bytes(SCTP(sport=9, dport=9))
    assert struct.pack("<I", model_crc32c(packet[:8] + bytes(4))) == packet[8:12]
    assert sctp_right(edge.high(packet), 12)


def test_a_captured_sctp_packet_is_right(captures) -> None:
    frames = [frame for _, frame, _ in captured(captures / "community-id/sctp.pcap")]
    assert frames
    for frame in frames:
        at, keep = address(frame)
        assert sctp_right(at + 34, int.from_bytes(frame[16:18], "big") - 20)
        del keep
