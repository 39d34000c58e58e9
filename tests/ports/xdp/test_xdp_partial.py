"""Partial checksums: which packets are taken for such, and that what goes out is right, in tags and tunnels too."""

import ctypes

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy.utils import checksum

from tests.driver import Driver
from tests.lab import laboratory
from tests.ports.xdp.wires import pair, raw, send, until, xdp
from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.jit.kernel import kernel
from wirespeed.net.completion import complete
from wirespeed.ports.xdp.partial import mark_partial

MTU = 1500


@kernel
def mark(handle, mtu):
    mark_partial(handle, mtu)


@kernel
def finish(handle):
    return complete(handle)


E4, E6 = (
    Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02"),
    Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02"),
)
I4, I6 = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="fd00::1", dst="fd00::2")
T, U, DATA = (
    TCP(sport=1000, dport=2000, flags="PA"),
    UDP(sport=1000, dport=2000),
    Raw(b"forty-two bytes of payload, more or less, odd"),
)
FRAMES = {
    "tcp4": E4 / I4 / T / DATA,
    "udp4": E4 / I4 / U / DATA,
    "tcp6": E6 / I6 / T / DATA,
    "udp6": E6 / I6 / U / DATA,
    "tagged": E4 / Dot1Q(vlan=5) / I4 / T / DATA,
    "qinq": E4 / Dot1Q(vlan=7) / Dot1Q(vlan=5) / I6 / U / DATA,
    "options": E4 / IP(src="10.0.0.1", dst="10.0.0.2", options=b"\1\1\1\0") / T / DATA,
    "vxlan": E4
    / I4
    / UDP(sport=5, dport=4789, chksum=0)
    / VXLAN(vni=9)
    / Ether(src="02:00:00:00:00:03")
    / I4
    / T
    / DATA,
    "gre": E4 / I4 / GRE() / IP(src="10.1.0.1", dst="10.1.0.2") / U / DATA,
    "ipip": E4 / I4 / IP(src="10.1.0.1", dst="10.1.0.2") / T / DATA,
}


def innermost(frame):
    """Where the innermost transport header is, where its checksum is, and the pseudo header's sum in the field."""
    whole = bytes(frame)
    layers = [frame.getlayer(i) for i in range(20) if frame.getlayer(i) is not None]
    transport = [layer for layer in layers if isinstance(layer, TCP | UDP)][-1]
    place = 16 if isinstance(transport, TCP) else 6
    start = len(whole) - len(bytes(transport))
    ip = [layer for layer in layers if isinstance(layer, IP | IPv6)][-1]
    size = len(whole) - start
    protocol = 6 if place == 16 else 17
    at = whole.index(bytes(ip)[:20], 14)
    addresses = whole[at + 12 : at + 20] if isinstance(ip, IP) else whole[at + 8 : at + 40]
    pseudo = addresses + size.to_bytes(4, "big") + protocol.to_bytes(4, "big")
    return whole, start + place, checksum(pseudo) ^ 0xFFFF


def partial(frame):
    """The frame as the kernel's stack hands it on, and as it should go out."""
    right, at, pseudo = innermost(frame)
    return right[:at] + pseudo.to_bytes(2, "big") + right[at + 2 :], right


@pytest.mark.parametrize("name", FRAMES)
def test_a_partial_checksum_is_seen_and_completed(name):
    given, right = partial(FRAMES[name])
    assert given != right
    with PacketPool(64) as pool:
        handle = packet(pool, given)
        mark(handle, MTU)
        assert Packet.at(handle).flags & PARTIAL
        assert Packet.at(handle).gso_size == 0
        assert finish(handle)
        assert content(handle, len(right)) == right
        pool.free([handle])


@pytest.mark.parametrize("name", FRAMES)
def test_a_right_checksum_is_no_partial_one(name):
    right = bytes(FRAMES[name])
    with PacketPool(64) as pool:
        handle = packet(pool, right)
        mark(handle, MTU)
        assert not Packet.at(handle).flags & PARTIAL
        pool.free([handle])


def test_a_right_checksum_that_looks_partial_stays_what_it_is():
    """The payload is chosen so that the checksum is the pseudo header's sum."""
    given, _ = partial(E4 / I4 / U / Raw(bytes(46)))
    size = 8 + 46
    # With the field at the pseudo sum P, the rest must add up to the complement of twice P.
    p = int.from_bytes(given[40:42], "big")
    body = given[34:40] + b"\0\0" + given[42:86]
    rest = checksum(body) ^ 0xFFFF
    wanted = (0xFFFF - p) + 0xFFFF - p - rest
    filler = (wanted % 0xFFFF).to_bytes(2, "big")
    frame = given[:86] + filler + given[88:]
    assert len(frame) == 34 + size
    with PacketPool(64) as pool:
        handle = packet(pool, frame)
        mark(handle, MTU)
        assert Packet.at(handle).flags & PARTIAL
        assert finish(handle)
        assert content(handle, len(frame)) == frame
        pool.free([handle])


@pytest.mark.parametrize("length", range(0, 90))
def test_a_frame_that_is_cut_anywhere_is_read_no_further(length):
    with PacketPool(64) as pool:
        for name in ("tcp4", "udp6", "vxlan", "tagged"):
            handle = packet(pool, partial(FRAMES[name])[0][:length])
            mark(handle, MTU)
            pool.free([handle])


def test_a_frame_longer_than_the_interface_carries_is_to_be_cut_when_it_is_tcp():
    with PacketPool(64, room=8192) as pool:
        tcp = packet(pool, partial(E4 / I4 / T / Raw(bytes(5000)))[0])
        udp = packet(pool, partial(E4 / I4 / U / Raw(bytes(5000)))[0])
        for handle in (tcp, udp):
            mark(handle, MTU)
            assert Packet.at(handle).flags & PARTIAL
        assert (Packet.at(tcp).gso_size, Packet.at(tcp).gso_type) == (1460, 1)
        assert Packet.at(udp).gso_size == 0, "where its datagrams end nobody knows"
        pool.free([tcp, udp])


def test_what_a_source_gives_goes_out_of_a_sink_completed():
    with laboratory() as lab:
        pair(lab)
        pair(lab, "near/x1", "far/y1")
        both = [partial(FRAMES[name]) for name in FRAMES]
        with (
            PacketPool(2000) as pool,
            raw(lab) as far,
            raw(lab, "far/y1") as beyond,
            Driver(xdp(lab, ring=64).open("source", 1), pool=pool) as source,
        ):
            sink = Driver(xdp(lab, "near/x1", ring=64).open("sink", 1), pool=pool)
            send(far, [given for given, _ in both])
            kept = []
            until(lambda: kept.extend(source.burst[: source.call(32)].tolist()) or len(kept) == len(both), "all came")
            sink.burst[: len(kept)] = kept
            assert sink.call(len(kept)) == 0
            got = [beyond.recv(2048) for _ in both]
            sink.part.close()
            sink.release()
        assert got == [without_tag(right) for _, right in both]


def without_tag(frame):
    """As a packet socket gives it: the kernel keeps the outer tag beside it."""
    return frame[:12] + frame[16:] if frame[12:14] == b"\x81\0" else frame


def packet(pool, frame):
    """A packet with these bytes."""
    handle = int(pool.alloc(1)[0])
    p = Packet.at(handle)
    p.length = p.total = p.wire = len(frame)
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * max(1, len(frame))).from_address(p.buffer + p.data))
    memory[: len(frame)] = np.frombuffer(frame, np.uint8)
    return handle


def content(handle, length):
    """The bytes of a packet of one segment."""
    p = Packet.at(handle)
    return ctypes.string_at(int(p.buffer) + int(p.data), length)
