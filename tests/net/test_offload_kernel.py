"""Offloads against Linux: what it leaves to be done is done right, and what is announced to it, it does."""

import itertools
import socket
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from scapy.all import IP, TCP, UDP, Ether, IPv6, Raw

from tests.lab import Lab, laboratory
from tests.net.test_segmentation import cut, payload, pieces
from tests.net.workshop import Workshop
from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.net.offload import announce, describe
from wirespeed.net.virtio_net import VirtioNetHeader
from wirespeed.ports.link.namespace import inside

ETH_P_ALL, SOL_PACKET, PACKET_VNET_HDR = 3, 263, 15  # include/uapi/linux/if_packet.h
UDP_SEGMENT = 103  # include/uapi/linux/udp.h
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
SIZE = VirtioNetHeader.size
Wire = tuple[Lab, socket.socket, socket.socket]


@pytest.fixture
def shop() -> Iterator[Workshop]:
    shop = Workshop(512)
    yield shop
    shop.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A veth between namespaces a and b with addresses, and a packet socket with virtio-net headers at each end."""
    with laboratory() as lab:
        lab.veth("a/x0", "b/x1", up=False)
        ends = []
        for name, device, mac in (("a", "x0", A), ("b", "x1", B)):
            lab.ip(name, "link", "set", device, "address", mac)
            lab.ip(name, "link", "set", device, "up")
        for name, device, number, other, mac in (("a", "x0", 1, 2, B), ("b", "x1", 2, 1, A)):
            lab.address(f"{name}/{device}", f"10.9.0.{number}/24", f"fd09::{number}/64")
            for address in (f"10.9.0.{other}", f"fd09::{other}"):
                lab.ip(name, "neigh", "replace", address, "lladdr", mac, "dev", device)
            with inside(lab.space(name)):
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            end.bind((device, ETH_P_ALL))
            end.settimeout(5)
            ends.append(end)
        yield lab, *ends
        for end in ends:
            end.close()


def come(shop: Workshop, end: socket.socket, layer: type, total: int) -> list[int]:
    """Packets with so many bytes of payload in all, as a packet socket gives them, described."""
    handles, got = [], 0
    while got < total:
        data = end.recv(1 << 17)
        frame = Ether(data[SIZE:])
        if layer not in frame or Raw not in frame or frame.src != A:
            continue
        handle = shop.packet(data[SIZE:])
        header = np.frombuffer(data[:SIZE], np.uint8)
        assert describe(handle, header.ctypes.data, SIZE)
        handles.append(handle)
        got += len(frame[Raw].load)
    return handles


def right(frame: bytes) -> bool:
    """Whether scapy would have made the same checksums."""
    again = Ether(frame)
    for layer in (IP, TCP, UDP):
        if layer in again:
            del again[layer].chksum
    return bytes(again) == frame


def send(shop: Workshop, end: socket.socket, handle: int) -> None:
    """Announce a packet to the kernel, as a packet socket's sink does."""
    memory = np.zeros(SIZE, np.uint8)
    assert announce(handle, memory.ctypes.data)
    end.send(memory.tobytes() + shop.bytes(handle))
    shop.free(handle)


def listener(lab: Lab, family: int) -> socket.socket:
    with inside(lab.space("b")):
        end = socket.socket(family, socket.SOCK_DGRAM)
    end.bind(("10.9.0.2" if family == socket.AF_INET else "fd09::2", 5000))
    end.settimeout(5)
    return end


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_datagrams_that_the_kernel_left_joined_are_cut_as_it_would(shop, wire, family):
    lab, _, b = wire
    data = payload(6000)
    with inside(lab.space("a")):
        sender = socket.socket(family, socket.SOCK_DGRAM)
    with sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1100)
        sender.sendto(data, ("10.9.0.2" if family == socket.AF_INET else "fd09::2", 5000))
    (handle,) = come(shop, b, UDP, 6000)
    p = Packet.at(handle)
    assert (p.flags & PARTIAL, p.gso_size, p.gso_type) == (PARTIAL, 1100, 5)
    frames = shop.frames(cut(shop, handle))
    assert all(map(right, frames))
    assert [Ether(f)[Raw].load for f in frames] == pieces(data, 1100)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_stream_that_the_kernel_left_joined_is_cut_as_it_would(shop, wire, family):
    lab, _, b = wire
    data = payload(60_000)
    with inside(lab.space("b")):
        server = socket.create_server(("10.9.0.2" if family == socket.AF_INET else "fd09::2", 5001), family=family)
    with inside(lab.space("a")):
        client = socket.socket(family, socket.SOCK_STREAM)
    with server, client:
        client.connect(server.getsockname()[:2])
        client.sendall(data)
        handles = come(shop, b, TCP, 60_000)
    assert any(Packet.at(h).gso_size for h in handles)
    frames = [frame for handle in handles for frame in shop.frames(cut(shop, handle, 1514))]
    assert all(map(right, frames))
    sequence = [Ether(f)[TCP].seq for f in frames]
    assert b"".join(Ether(f)[Raw].load for f in frames) == data
    assert [(b - a) & 0xFFFFFFFF for a, b in itertools.pairwise(sequence)] == [
        len(Ether(f)[Raw].load) for f in frames[:-1]
    ]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_does_what_is_announced_to_it(shop, wire, family):
    lab, a, _ = wire
    four = family == socket.AF_INET
    network = IP(src="10.9.0.1", dst="10.9.0.2") if four else IPv6(src="fd09::1", dst="fd09::2")
    at, data = 34 if four else 54, payload(6000)
    with listener(lab, family) as receiver:
        # One frame with its checksum to be computed; with the old addresses' sum in it, so a wrong one would be dropped.
        frame = bytes(Ether(src=A, dst=B) / network / UDP(sport=7, dport=5000, chksum=0x1234) / Raw(b"hello"))
        send(shop, a, shop.partial(frame, at, 6))
        assert receiver.recv(100) == b"hello"
        # Datagrams that were joined.
        frame = bytes(Ether(src=A, dst=B) / network / UDP(sport=7, dport=5000, chksum=0x1234) / Raw(data))
        send(shop, a, shop.partial(frame, at, 6, 1100, 5))
        assert [receiver.recv(2000) for _ in range(6)] == pieces(data, 1100)
        # And the same cut by us.
        handle = shop.partial(frame, at, 6, 1100, 5)
        for one in shop.frames(cut(shop, handle)):
            a.send(bytes(SIZE) + one)
        assert [receiver.recv(2000) for _ in range(6)] == pieces(data, 1100)
        # One datagram in IP fragments, which the kernel puts together.
        handle = shop.partial(frame, at, 6, 1448, 3)
        for one in shop.frames(cut(shop, handle)):
            a.send(bytes(SIZE) + one)
        assert receiver.recv(8000) == data


def test_a_stream_that_is_announced_to_the_kernel_arrives(shop, wire):
    """A super-frame of TCP to a port where nobody listens is answered by a reset for its last byte."""
    _, a, b = wire
    data = payload(20_000)
    frame = bytes(
        Ether(src=A, dst=B)
        / IP(src="10.9.0.1", dst="10.9.0.2")
        / TCP(sport=7, dport=9, seq=100, flags="A", ack=5, chksum=1)
        / Raw(data)
    )
    send(shop, a, shop.partial(frame, 34, 16, 1000, 1))
    while True:
        answer = b.recv(2000)
        found = Ether(answer[SIZE:])
        if TCP in found and found.src == B:
            break
    assert found[TCP].flags.R
    assert struct.unpack_from("!I", bytes(found[TCP]), 4) == (5,)
