"""Taps burst by burst: which frames come in and go out, how long ones are chained, and what the kernel says of others."""

import random
import socket
import struct
import time
from collections import defaultdict

import pytest

from tests.driver import Driver
from tests.lab import laboratory
from tests.ports.tap.wires import ethernet, quiet, raw, sink, source
from wirespeed.core.packet import HEADROOM, PARTIAL
from wirespeed.core.packet import Packet as Record
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.stage import FIRST_REASON
from wirespeed.jit import libc
from wirespeed.ports import port
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.tap import batch, receive, transmit
from wirespeed.ports.tap.queue import HEADER


@pytest.fixture(params=["at once", "one by one"])
def lab(request, monkeypatch):
    """A lab for system calls of either kind."""
    if request.param == "one by one":
        monkeypatch.setattr(batch, "SETUP", 1 << 20)  # no system call, as where io_uring is forbidden
    with laboratory() as lab:
        yield lab


@pytest.fixture(scope="module")
def pool():
    with PacketPool(1000) as pool:
        yield pool


def test_what_the_kernel_transmits_is_received_in_order_with_time_and_link(lab, pool):
    space = quiet(lab, "a")
    frames = [ethernet(i, 60 + i) for i in range(100)]
    with source(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        before = time.time_ns()
        for frame in frames:
            s.send(frame)
        got = [driver.receive() for _ in range(5)]
        assert [len(burst) for burst in got] == [32, 32, 32, 4, 0]
        packets = [p for burst in got for p in burst]
        assert [p.data for p in packets] == frames
        assert all(before <= p.time <= time.time_ns() and p.link == 1 and p.wire == len(p) for p in packets)
        assert driver.head.bytes == sum(map(len, frames))


def test_what_is_transmitted_the_kernel_receives_in_order(lab, pool):
    space = quiet(lab, "a")
    frames = [ethernet(i, 14 + 50 * i) for i in range(32)]
    with sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        assert driver.transmit(frames) == 0
        assert [s.recv(1 << 16) for _ in frames] == frames
        assert driver.head.bytes == sum(map(len, frames)) and not driver.drops()
    assert pool.free_count == pool.size


def test_bursts_of_any_length_pass_in_order_with_frames_among_them_that_need_calls_of_their_own(lab):
    space = quiet(lab, "a")
    sizes = [9000 if i % 50 == 7 else 3 if i % 50 == 8 else 60 for i in range(200)]
    frames = [ethernet(i, size) for i, size in enumerate(sizes)]
    good = [frame for frame in frames if len(frame) > 3]
    with PacketPool(2000) as pool:
        tap = port(f"tap:t0,netns={space},mtu=9000")
        parts = [tap.open(role, 1) for role in ("source", "sink")]
        source, sink = (Driver(part, pool=pool, burst=256) for part in parts)
        with raw(space, "t0") as s:
            assert sink.transmit(frames) == 0
            assert [s.recv(1 << 16) for _ in good] == good
            assert sink.drops() == {"bad_frame": 4}
            for n in (1, 15, 16, 17, 200):
                receive.State.at(source.placement.state).busy = 1
                for frame in good[:n]:
                    s.send(frame)
                assert [p.data for _ in range(3) for p in source.receive()] == good[:n]
        for part, driver in zip(parts, (source, sink), strict=True):
            part.close()
            driver.release()
        assert pool.free_count == pool.size


@pytest.mark.parametrize("room", [HEADROOM + 2048, HEADROOM + 500])
def test_frames_up_to_64_kb_are_chained_and_whole(lab, room):
    space = quiet(lab, "a")
    sizes = [60, 499, 500, 501, 2047, 2048, 2049, 9014, 65000, 65535, 60, 60, 30000, 4224, 4225]
    frames = [ethernet(i, size) for i, size in enumerate(sizes)]
    with (
        PacketPool(1 << 12, room) as pool,
        source(f"tap:t0,netns={space},mtu=65521", pool) as driver,
        raw(space, "t0") as s,
    ):
        for again in range(2):  # with one piece for the rest at first, and with segments that are ready
            for frame in frames:
                s.send(frame)
            assert [p.data for p in driver.receive()] == frames, again
        state = receive.State.at(driver.placement.state)
        assert state.wanted > 0 and state.length > 0
        for i in range(receive.SHORTS):
            s.send(ethernet(i))
        assert [p.data for _ in range(2) for p in driver.receive()] == [ethernet(i) for i in range(64)]
        assert state.wanted == 0, "after so many short packets the long row is not used any more"


def test_chains_and_packets_without_headroom_leave_whole(lab, pool):
    space = quiet(lab, "a")
    frames = [ethernet(i, size) for i, size in enumerate([2000, 2048, 2049, 9014, 65000])]
    with sink(f"tap:t0,netns={space},mtu=65521", pool) as driver, raw(space, "t0") as s:
        assert driver.transmit(frames) == 0
        assert [s.recv(1 << 17) for _ in frames] == frames
        handle = driver.packet(ethernet(7, 1000))
        move_data(Record.at(handle), HEADER - 1)
        driver.burst[0] = handle
        assert driver.call(1) == 0
        assert s.recv(2048) == ethernet(7, 1000)


def move_data(p, place):
    """Move the bytes of a packet of one segment to another place of its buffer."""
    libc.copy_in(p.buffer + place, libc.copy_out(p.buffer + int(p.data), int(p.length)))
    p.data = place


@pytest.mark.parametrize("size", [300, 2000])
def test_frames_of_any_size_come_in_order_whatever_the_pool_has_left(lab, size):
    space, chance = quiet(lab, "a"), random.Random(size)
    with (
        PacketPool(size, HEADROOM + 500) as pool,
        source(f"tap:t0,netns={space},mtu=65521", pool) as driver,
        raw(space, "t0") as s,
    ):
        assert (receive.State.at(driver.placement.state).length > 0) == (size == 2000), "segments are ready"
        sent, got, kept = [], [], []
        for number in range(300):
            sent.append(ethernet(number, chance.choice([60, 500, 501, chance.randrange(14, 65535)])))
            s.send(sent[-1])
            if chance.random() < 0.3:
                driver.free([kept.pop() for _ in range(len(kept)) if chance.random() < 0.7])
                got += driver.receive()
                kept += [driver.packet(b"") for _ in range(chance.randrange(min(size // 4, pool.free_count // 2) + 1))]
        driver.free(kept)
        while burst := driver.receive():
            got += burst
        assert [p.data for p in got] == sent


def test_a_packet_that_others_hold_too_leaves_without_a_byte_being_written(lab, pool):
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        handle = driver.packet(ethernet(1))
        p = Record.at(handle)
        p.refcnt = 2
        before = libc.copy_out(p.buffer, HEADROOM + 60)
        driver.burst[0] = handle
        assert driver.call(1) == 0
        assert s.recv(2048) == ethernet(1)
        assert libc.copy_out(p.buffer, HEADROOM + 60) == before and p.refcnt == 1
        driver.free([handle])


def test_a_small_pool_has_long_frames_wait_and_drops_what_it_can_never_hold(lab):
    space = quiet(lab, "a")
    with (
        PacketPool(8, HEADROOM + 500) as pool,
        source(f"tap:t0,netns={space},mtu=9000", pool) as driver,
        raw(space, "t0") as s,
    ):
        held = [driver.packet(b"x") for _ in range(6)]
        s.send(ethernet(1, 2000))
        s.send(ethernet(2, 100))
        assert driver.receive() == [] == driver.receive(), "there are segments for a part of it only"
        driver.free(held)
        assert [p.data for p in driver.receive()] == [ethernet(1, 2000), ethernet(2, 100)]
        s.send(ethernet(3, 6000))
        s.send(ethernet(4, 100))
        assert [p.data for p in driver.receive()] == [ethernet(4, 100)]
        assert driver.drops() == {"no_room": 1}


def test_rows_that_were_read_at_once_wait_for_segments_and_keep_their_order(lab):
    space = quiet(lab, "a")
    with (
        PacketPool(200, HEADROOM + 500) as pool,
        source(f"tap:t0,netns={space},mtu=9000", pool) as driver,
        raw(space, "t0") as s,
    ):
        receive.State.at(driver.placement.state).busy = 1
        frames = [ethernet(i, size) for i, size in enumerate([60, 9014, 60, 5000, 60])]
        for frame in frames:
            s.send(frame)
        held = [driver.packet(b"x") for _ in range(200 - 10)]
        first = driver.receive()
        assert [p.data for p in first] == frames[:1]
        assert driver.receive() == []
        driver.free(held)
        assert [p.data for p in driver.receive()] == frames[1:]


def test_an_empty_pool_takes_nothing_and_loses_nothing(lab):
    space = quiet(lab, "a")
    with PacketPool(4) as pool, source(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        frames = [ethernet(i) for i in range(6)]
        for frame in frames:
            s.send(frame)
        driver.call(32)
        kept = driver.burst[:4].tolist()
        assert [driver.frame(h).data for h in kept] == frames[:4]
        assert driver.receive() == []
        driver.free(kept)
        assert [p.data for p in driver.receive()] == frames[4:]


@pytest.mark.parametrize("tags", ["8100 0007", "88a8 0009 8100 0007", "8100 0001 8100 0002 8100 0003"])
def test_tagged_frames_pass_as_they_are(lab, pool, tags):
    space = quiet(lab, "a")
    plain = ethernet(1, 1500)
    tagged = plain[:12] + bytes.fromhex(tags) + plain[12:]
    with source(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0", 3) as s:
        s.send(tagged)
        assert [p.data for p in driver.receive()] == [tagged]


def test_packets_that_are_none_are_dropped_and_counted_and_the_others_go_on(lab, pool):
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        assert driver.transmit([b"", ethernet(1), b"too short", ethernet(2)]) == 0
        assert [s.recv(2048) for _ in range(2)] == [ethernet(1), ethernet(2)]
        assert driver.drops() == {"bad_frame": 2}
    with sink(f"tun:n0,netns={space}", pool) as driver, raw(space, "n0", 3) as s:
        packet = bytes.fromhex("45000014000000004011000001010101020202020000")[:20]
        assert driver.transmit([b"\x15 no version of IP", packet, b""]) == 0
        assert s.recv(2048) == packet
        assert driver.drops() == {"bad_frame": 2}


def test_a_packet_that_the_kernel_has_no_pages_for_is_too_long(lab, pool):
    space = quiet(lab, "a")
    with PacketPool(2000) as pool, sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        assert driver.transmit([ethernet(1), ethernet(2, 3_000_000), ethernet(3)]) == 0
        assert [s.recv(2048) for _ in range(2)] == [ethernet(1), ethernet(3)]
        assert driver.drops() == {"too_long": 1}


def test_a_tun_tells_the_link_type_of_packets_without_a_link_header(lab, pool):
    space = quiet(lab, "a")
    with source(f"tun:n0,netns={space},address=10.9.0.1/24", pool) as driver, inside(space):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"hello", ("10.9.0.2", 4000))
        (packet,) = driver.receive()
        assert packet.link == 101 and packet.data[:1] == b"\x45" and packet.data.endswith(b"hello")


def test_without_offloads_the_kernel_completes_checksums_and_with_them_it_says_what_is_to_be_done(lab, pool):
    space = quiet(lab, "a")
    for offloads in (False, True):
        word = (
            f"tun:n{offloads:d},netns={space},offloads={'yes' if offloads else 'no'},address=10.{8 + offloads}.0.1/24"
        )
        with source(word, pool) as driver, inside(space):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.sendto(b"hello!", (f"10.{8 + offloads}.0.2", 4000))
            assert driver.call(32) == 1
            handle = int(driver.burst[0])
            assert bool(Record.at(handle).flags & PARTIAL) == offloads
            assert (checksum(driver.frame(handle).data) == 0) != offloads
            driver.free([handle])


def checksum(packet):
    """What a receiver's sum over an IPv4 packet of UDP gives: 0 when the checksum is right."""
    segment = packet[20:]
    data = packet[12:20] + struct.pack("!HH", 17, len(segment)) + segment + b"\0" * (len(segment) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def test_a_checksum_left_to_be_done_that_fits_no_header_is_dropped(lab, pool):
    space = quiet(lab, "a")
    with sink(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        handles = [driver.packet(ethernet(i)) for i in range(2)]
        p = Record.at(handles[0])
        p.flags |= PARTIAL
        p.gso_size, p.gso_type, p.csum_tail, p.csum_offset = 0, 0, 4, 100
        driver.burst[:2] = handles
        assert driver.call(2) == 0
        assert s.recv(2048) == ethernet(1)
        assert driver.drops() == {"bad_offload": 1}


def test_flows_stay_on_a_queue_and_follow_the_one_that_answers_them(lab, pool):
    space = quiet(lab, "a")
    ports = range(4000, 4032)
    with (
        source(f"tun:n0,netns={space},address=10.9.0.1/24", pool, workers=2) as drivers,
        inside(space),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s,
    ):

        def ask():
            where = defaultdict(set)
            for _ in range(8):
                for number in ports:
                    s.sendto(number.to_bytes(4, "big"), ("10.9.0.2", number))
                for k, driver in enumerate(drivers):
                    for packet in driver.receive(256):
                        where[int.from_bytes(packet.data[-4:], "big")].add(k)
            return where

        first = ask()
        assert set(first) == set(ports) and all(len(queues) == 1 for queues in first.values())
        assert set.union(*first.values()) == {0, 1}, "both workers have some"


def test_one_port_is_source_and_sink_of_one_device(lab, pool):
    space = quiet(lab, "a")
    tap = port(f"tap:t0,netns={space}")
    parts = [tap.open(role, 1) for role in ("source", "sink")]
    assert parts[0].device is parts[1].device
    drivers = [Driver(part, pool=pool) for part in parts]
    with raw(space, "t0") as s:
        s.send(ethernet(1))
        assert [p.data for p in drivers[0].receive()] == [ethernet(1)]
        drivers[1].transmit([ethernet(2)])
        assert s.recv(2048) == ethernet(2)
        parts[0].close()
        drivers[1].transmit([ethernet(3)])
        assert s.recv(2048) == ethernet(3), "the device is there until the last role is closed"
        parts[1].close()
        parts[1].close()
    assert "t0" not in lab.ip("a", "link", "show")
    for driver in drivers:
        driver.release()
    assert pool.free_count == pool.size


def test_a_filter_is_the_kernels_and_what_waited_before_is_gone(lab, pool):
    space = quiet(lab, "a")
    lab.ip("a", "tuntap", "add", "t0", "mode", "tap")
    lab.ip("a", "link", "set", "t0", "up")
    with source(f"tap:t0,netns={space},filter=ether[17] & 1 == 1", pool) as driver, raw(space, "t0") as s:
        assert driver.placement.code == receive.receive.address, "no stage of a filter's is before it"
        for i in range(10):
            s.send(ethernet(i))
        assert [p.data for p in driver.receive()] == [ethernet(i) for i in range(1, 10, 2)]
    with source(f"tap:t0,netns={space}", pool) as driver, raw(space, "t0") as s:
        s.send(ethernet(0))
        assert [p.data for p in driver.receive()] == [ethernet(0)], "the filter went with its run"


def test_a_tun_is_filtered_by_a_stage(lab, pool):
    space = quiet(lab, "a")
    with (
        source(f"tun:n0,netns={space},address=10.9.0.1/24,filter=udp dst port 4001", pool) as driver,
        inside(space),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s,
    ):
        for number in (4000, 4001, 4002):
            s.sendto(number.to_bytes(4, "big"), ("10.9.0.2", number))
        assert [p.data[-2:] for p in driver.receive()] == [(4001).to_bytes(2, "big")]


def test_what_the_kernel_has_no_room_for_is_told(lab, pool):
    space = quiet(lab, "a")
    part = port(f"tap:t0,netns={space}").open("source", 1)
    driver = Driver(part, pool=pool)
    with raw(space, "t0") as s:
        lost = 0
        for i in range(1500):
            try:
                s.send(ethernet(i))
            except OSError:
                lost += 1
        assert part.service() == pytest.approx(0.1)
        counted = part.counters()["kernel_drops"]
        got = [p for _ in range(60) for p in driver.receive()]
        assert [p.data for p in got] == [ethernet(i) for i in range(len(got))]
        assert counted == 1500 - len(got)
    part.close()
    assert part.counters() == {"kernel_drops": counted}
    driver.release()


def test_each_reason_has_its_number():
    names = ("LINK_DOWN", "TOO_LONG", "BAD_FRAME", "NO_OFFLOAD", "NO_PACKET", "NO_MEMORY")
    numbers = [getattr(transmit, name) for name in names]
    assert [list(transmit.DROPS)[n - FIRST_REASON] for n in numbers] == list(transmit.DROPS)
