"""Packets as Python values, and their way from and to scapy."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.core.frame import Packet, as_packets
from wirespeed.errors import GraphError


@given(st.binary(max_size=200), st.integers(0, 1 << 62), st.integers(0, 0xFFFF))
def test_a_packet_is_its_bytes_and_its_length(data, time, port):
    packet = Packet(data, time, port)
    assert (bytes(packet), len(packet), packet.length, packet.wire) == (data, len(data), len(data), len(data))
    assert packet == Packet(bytearray(data), time, port) and hash(packet) == hash(Packet(data, time, port))


def test_the_bytes_do_not_follow_the_buffer_they_came_from():
    buffer = bytearray(b"abc")
    packet = Packet(buffer)
    buffer[0] = 0
    assert bytes(packet) == b"abc"


def test_a_packet_that_a_capture_cut_was_longer_on_the_wire():
    assert Packet(b"abc", wire=1500).wire == 1500


def test_a_packet_cannot_be_changed():
    with pytest.raises(AttributeError):
        Packet(b"a").time = 5


def test_whatever_has_bytes_becomes_a_packet_and_a_packet_keeps_its_own_time():
    class Built:
        def __bytes__(self):
            return b"built"

    mine = Packet(b"mine", 7)
    made = as_packets([b"a", bytearray(b"b"), memoryview(b"c"), Built(), mine], 5)
    assert [(bytes(p), p.time) for p in made] == [(b"a", 5), (b"b", 5), (b"c", 5), (b"built", 5), (b"mine", 7)]


@pytest.mark.parametrize("wrong", [5, "text", None, 1.5])
def test_what_has_no_bytes_is_refused(wrong):
    with pytest.raises(GraphError, match=f"got {type(wrong).__name__}, wanted bytes"):
        as_packets([wrong])


def test_a_scapy_packet_comes_in_with_its_bytes():
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    made = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(dst="10.0.0.1") / UDP(dport=53) / b"x"
    packet = Packet.from_scapy(made)
    assert (packet.data, packet.link, packet.time) == (bytes(made), 1, 0)
    assert packet.to_scapy()[UDP].dport == 53


@given(st.integers(0, 1 << 61))
def test_times_survive_the_way_through_scapy_to_the_nanosecond(time):
    packet = Packet(bytes(60), time, wire=90)
    assert Packet.from_scapy(packet.to_scapy()) == packet


@pytest.mark.parametrize("link, name", [(1, "Ethernet"), (113, "cooked linux"), (101, "IP"), (9999, "Raw")])
def test_the_link_type_says_which_scapy_class_dissects(link, name):
    ip = bytes.fromhex("450000140001000040007ce77f0000017f000001")
    assert Packet(ip if link == 101 else 20 * b"\x08\x00", link=link).to_scapy().name == name


def test_a_packet_needs_neither_numba_nor_scapy():
    code = (
        "import sys, wirespeed.core.frame as f; f.Packet(b'a'); print({'numba', 'scapy', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
