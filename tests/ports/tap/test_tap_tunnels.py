"""Super-frames that a virtio-net header cannot tell of: the kernel gets the frames that they stand for."""

import fcntl
import os

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN

from tests.lab import laboratory
from tests.ports.tap.wires import ethernet, quiet, raw, sink
from wirespeed.core.packet import PARTIAL
from wirespeed.core.packet import Packet as Record
from wirespeed.core.packet_pool import PacketPool
from wirespeed.net.virtio_net import GSO_TCPV4
from wirespeed.ports.tap.transmit import State

SIZE, PAYLOAD = 1000, bytes(i * 11 & 0xFF for i in range(2600))
INNER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.1.0.1", dst="10.1.0.2", id=7)
OUTER = Ether(src="02:00:00:00:00:03", dst="02:00:00:00:00:04") / IP(src="10.2.0.1", dst="10.2.0.2", id=70)


@pytest.fixture
def lab():
    with laboratory() as lab:
        yield lab


@pytest.fixture
def pool():
    with PacketPool(1000) as pool:
        yield pool


def tcp(payload, number=0, last=True):
    """A segment of the stream, with all its checksums."""
    return INNER / TCP(sport=1, dport=2, seq=5000 + number, ack=9, flags="PA" if last else "A") / payload


def tunnelled(frame):
    """The same in a tunnel, whose UDP has no checksum."""
    return OUTER / UDP(sport=4000, dport=4789, chksum=0) / VXLAN(vni=3) / frame


def super_frame(driver, frame):
    """A packet whose TCP is still to be cut and to be summed."""
    handle = driver.packet(bytes(frame))
    p = Record.at(handle)
    p.flags |= PARTIAL
    p.gso_size, p.gso_type, p.csum_tail, p.csum_offset = SIZE, GSO_TCPV4, 20 + len(PAYLOAD), 16
    return handle


def pieces(wrap):
    """The frames that are to come, but for IP's numbers, which go on in both headers."""
    found = []
    for k, at in enumerate(range(0, len(PAYLOAD), SIZE)):
        frame = tcp(PAYLOAD[at : at + SIZE], at, at + SIZE >= len(PAYLOAD))
        frame[IP].id = 7 + k
        whole = wrap(frame)
        whole[IP].id = whole[IP].id + k if wrap is tunnelled else 7 + k
        found.append(bytes(whole))
    return found


def plain(frame):
    return frame


@pytest.mark.parametrize("batched", [True, False])
def test_a_super_frame_in_a_tunnel_arrives_as_its_frames_between_those_beside_it(lab, pool, batched):
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0", 3) as s:
        if not batched:
            State.at(driver.placement.state).batch = 0
        wanted = [ethernet(1), *pieces(tunnelled), ethernet(2), *pieces(tunnelled), ethernet(3)]
        driver.burst[:5] = [
            driver.packet(ethernet(1)), super_frame(driver, tunnelled(tcp(PAYLOAD))), driver.packet(ethernet(2)),
            super_frame(driver, tunnelled(tcp(PAYLOAD))), driver.packet(ethernet(3)),
        ]  # fmt: skip
        assert driver.call(5) == 0
        assert [s.recv(1 << 16) for _ in wanted] == wanted
        assert driver.drops() == {} and driver.head.held == 0 and driver.part.counters()["segments"] == 6


def test_a_super_frame_that_others_hold_too_is_cut_and_no_byte_of_it_written(lab, pool):
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0", 3) as s:
        handle = super_frame(driver, tcp(PAYLOAD))
        p = Record.at(handle)
        for each in (handle, int(p.next)):
            Record.at(each).refcnt = 2
        before = driver.frame(handle).data
        driver.burst[0] = handle
        assert driver.call(1) == 0
        assert [s.recv(1 << 16) for _ in range(3)] == pieces(plain)
        assert driver.frame(handle).data == before and p.refcnt == 1
        driver.free([handle])


def test_frames_that_the_kernel_has_no_room_for_wait_before_all_others(lab, pool):
    """A pipe for one packet stands for a kernel without memory."""
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver:
        state = State.at(driver.placement.state)
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        state.fd, state.batch = writer, 0
        wanted = pieces(tunnelled)
        driver.burst[0] = super_frame(driver, tunnelled(tcp(PAYLOAD)))
        assert driver.call(1) == 0 and driver.head.held == 1
        assert driver.transmit([ethernet(1), ethernet(2)]) == 2
        for i in range(3):
            assert driver.head.held == (1 if i < 2 else 0)
            assert os.read(reader, 4096)[12:] == wanted[i]
            assert driver.call(0) == 0
        assert driver.transmit([ethernet(3), ethernet(4)]) == 1
        assert os.read(reader, 4096)[12:] == ethernet(3)
        driver.burst[0] = super_frame(driver, tunnelled(tcp(PAYLOAD)))
        assert driver.call(1) == 0 and driver.head.held == 1
        driver.part.close()
        assert driver.drops() == {"no_memory": 1} and driver.head.held == 0
        for fd in (reader, writer):
            os.close(fd)


def test_a_super_frame_that_the_pool_has_no_packets_to_be_cut_into_is_dropped_as_such(lab):
    space = quiet(lab, "a")
    with PacketPool(2) as pool, sink(f"tap:t0,netns={space}", pool) as driver:
        driver.burst[0] = super_frame(driver, tunnelled(tcp(PAYLOAD)))
        assert driver.call(1) == 0
        assert driver.drops() == {"no_packet": 1}


def test_frames_of_one_packet_that_a_device_is_down_for_are_one_drop(lab, pool):
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver:
        lab.ip("a", "link", "set", "t0", "down")
        driver.burst[:2] = [super_frame(driver, tunnelled(tcp(PAYLOAD))), driver.packet(ethernet(1))]
        assert driver.call(2) == 0
        assert driver.drops() == {"link_down": 2}
