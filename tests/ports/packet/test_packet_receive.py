"""What a packet port receives: byte for byte, with tags, stamps and directions, longer than a slot, and cut."""

import os
import socket
import sys
import time
from typing import Any

import pytest

import wirespeed as ws
from tests.lab import laboratory, needs_root
from tests.ports.packet.rig import (
    QUIET,
    capturing,
    counter,
    drops,
    frame,
    ip_packet,
    near,
    pair,
    pulled,
    raw_socket,
    tun,
    wait_until,
    whole,
)
from wirespeed.errors import PortError

pytestmark = needs_root
SIZES = [18, 59, 60, 61, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 1000, 1513, 1514]
VLAN = bytes.fromhex("8100 2064")
FLOOD = """
import socket
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
sender.bind(("x0", 0))
while True:
    sender.send(bytes(12) + b"\\x88\\xb5" + bytes(50))
"""
SERVICE = bytes.fromhex("88a8 0065")


def test_frames_of_every_size_come_byte_for_byte_and_in_order() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab)) as (run, memory):
            sent = [frame(n, size) for n, size in enumerate(SIZES * 20)]
            for each in sent:
                sender.send(each)
            got = pulled(memory, len(sent))
            assert [p.data for p in got] == sent
            assert {(p.link, p.wire == len(p.data)) for p in got} == {(1, True)}
        report = whole(run)
        assert report.stage("packet:x1").bytes == sum(map(len, sent))


@pytest.mark.parametrize("pool", [1, 2, 4, 8, 16])
def test_a_pool_that_is_smaller_than_a_burst_gives_what_it_has(pool: int) -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        for burst in (32, 256):
            with capturing(near(lab), pool=pool, burst=burst) as (run, memory):
                sent = [frame(number, size) for number, size in enumerate([60, 1514] * 100)]
                for each in sent:
                    sender.send(each)
                assert [p.data for p in pulled(memory, len(sent))] == sent
            assert whole(run).stage("packet:x1").drops == {}


def test_long_frames_pass_through_a_pool_that_a_burst_would_empty() -> None:
    with laboratory() as lab:
        pair(lab, mtu=9000)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab), pool=8) as (run, memory):
            sent = [frame(number, size) for number, size in enumerate([60, 9000, 60, 60, 9000, 9000, 100] * 10)]
            for each in sent:
                sender.send(each)
            assert [p.data for p in pulled(memory, len(sent))] == sent
        assert whole(run).stage("packet:x1").drops == {}


def test_frames_that_are_in_the_ring_when_the_run_ends_are_counted() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        memory = ws.port("memory:", size=4096)  # from which nobody pulls
        with memory, ws.start(near(lab, slots=256) >> memory) as run:
            for number in range(1000):
                sender.send(frame(number))
            wait_until(lambda: counter(run, "kernel_packets") == 1000, "all came")
        stage = whole(run).stage("packet:x1")
        counts = stage.counters
        assert 0 < counts["unread"] <= 256 and counts["kernel_drops"] > 0
        assert stage.packets_out + counts["kernel_drops"] + counts["unread"] == counts["kernel_packets"] == 1000


def test_a_run_that_ends_in_a_flood_has_told_of_every_frame() -> None:
    with laboratory() as lab:
        pair(lab)
        with lab.background("far", sys.executable, "-c", FLOOD):
            for workers in (1, 2) * 10:
                with ws.start(near(lab, fanout="lb") >> ws.port("null:"), workers=workers) as run:
                    wait_until(lambda run=run: run.report().packets > 100, "frames came")
                stage = whole(run).stage("packet:x1")
                lost = stage.counters.get("kernel_drops", 0) + stage.counters.get("unread", 0)
                assert stage.packets_out + lost == stage.counters["kernel_packets"] and not stage.drops


def test_stamps_of_a_clock_that_the_interface_has_not_are_refused() -> None:
    with laboratory() as lab:
        pair(lab)
        with pytest.raises(PortError, match="x1: got timestamps=hardware, wanted an interface with a clock"):
            ws.start(near(lab, timestamps="hardware") >> ws.port("null:"))


def test_a_stamp_lies_between_before_and_after() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab)) as (run, memory):
            for number in range(20):
                before = time.time_ns()
                sender.send(frame(number))
                (packet,) = pulled(memory, 1)
                assert before <= packet.time <= time.time_ns()
        whole(run)


@pytest.mark.parametrize(
    "tags",
    [VLAN, SERVICE, SERVICE + VLAN, VLAN + VLAN, SERVICE + SERVICE + VLAN, bytes.fromhex("9100 0001") + VLAN],
    ids=["8100", "88a8", "88a8 8100", "8100 8100", "88a8 88a8 8100", "9100 8100"],
)
def test_case_71_tags_come_back_with_their_protocol_and_priority(tags: bytes) -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab)) as (run, memory):
            sent = [frame(n, size, tags=tags) for n, size in enumerate([60, 64, 200, 1500])]
            for each in sent:
                sender.send(each)
            got = pulled(memory, len(sent))
            assert [p.data.hex() for p in got] == [each.hex() for each in sent]
            assert [p.wire for p in got] == [len(each) for each in sent]
        whole(run)


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_the_direction_says_what_is_received(direction: str) -> None:
    with laboratory() as lab:
        pair(lab)
        comes, goes = raw_socket(lab, "far/x0"), raw_socket(lab, "near/x1")
        with capturing(near(lab, direction=direction)) as (run, memory):
            for number in range(0, 20, 2):
                comes.send(frame(number))
                goes.send(frame(number + 1))
            comes.send(frame(20))
            goes.send(frame(21))
            wanted = [n for n in range(22) if direction == "both" or n % 2 == (direction == "out")]
            got = sorted(p.data for p in pulled(memory, len(wanted)))
            assert got == [frame(n) for n in wanted]
            time.sleep(0.05)
            assert memory.pull() == []
        whole(run)


def test_the_interface_is_promiscuous_as_long_as_the_port_is_open() -> None:
    def state(lab: Any) -> tuple[bool, bool]:
        shown = lab.ip("near", "-d", "link", "show", "x1")
        return "promiscuity 1" in shown, "allmulti 1" in shown

    with laboratory() as lab:
        pair(lab)
        for options, wanted in (({}, (True, False)), ({"promisc": "no", "allmulti": "yes"}, (False, True))):
            assert state(lab) == (False, False)
            with capturing(near(lab, **options)) as (run, _):
                assert state(lab) == wanted
            whole(run)
            assert state(lab) == (False, False)


def test_case_72_frames_longer_than_a_slot_come_whole_in_order_with_others() -> None:
    with laboratory() as lab:
        pair(lab, mtu=65000)
        sender = raw_socket(lab, "far/x0")
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with capturing(near(lab)) as (run, memory):
            sizes = [64, 9000, 1514, 2000, 65014, 60, 1780, 1781, 1800, 1860, 4096, 64, 64, 30000]
            sent = [frame(n, size, tags=VLAN if n % 3 == 0 else b"") for n, size in enumerate(sizes * 4)]
            for each in sent:
                sender.send(each)
            got = pulled(memory, len(sent))
            assert [(len(p.data), p.data) for p in got] == [(len(each), each) for each in sent]
        whole(run)


def test_a_frame_for_which_the_buffer_has_no_room_is_counted_as_cut() -> None:
    with laboratory() as lab:
        pair(lab, mtu=65000)
        sender = raw_socket(lab, "far/x0")
        memory = ws.port("memory:", size="64kB")
        with memory, ws.start(near(lab, buffer=4096) >> memory) as run:
            # The program pulls nothing, so that ring, boxes and buffer fill.
            for number in range(300):
                sender.send(frame(number, 30000))
            got = 0
            while (packets := memory.pull(timeout=0.5)) or got == 0:
                for p in packets:
                    assert p.data == frame(int.from_bytes(p.data[14:18], "big"), 30000)
                got += len(packets)
            assert 0 < got < 300
            assert drops(run) == {"cut": 300 - got}
            for number in range(3):
                sender.send(frame(number, 1000))
            assert [p.data for p in pulled(memory, 3)] == [frame(n, 1000) for n in range(3)]
        whole(run)


def test_a_capture_may_want_the_beginning_of_frames_only() -> None:
    with laboratory() as lab:
        pair(lab, mtu=9000)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab, snaplen=100)) as (run, memory):
            sent = [
                frame(n, size, tags=VLAN if n % 2 else b"")
                for n, size in enumerate([60, 99, 100, 104, 105, 1500, 9000])
            ]
            for each in sent:
                sender.send(each)
            got = pulled(memory, len(sent))
            # What is cut is what the kernel has of the frame, and it has the tag beside it.
            assert [p.data for p in got] == [each[: 104 if n % 2 else 100] for n, each in enumerate(sent)]
            assert [p.wire for p in got] == [len(each) for each in sent]
        whole(run)


def test_what_finds_the_ring_full_is_counted_by_the_kernel() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        memory = ws.port("memory:", size=4096)
        with memory, ws.start(near(lab, slots=64) >> memory) as run:
            for number in range(5000):
                sender.send(frame(number))
            got: list[Any] = []
            wait_until(lambda: got.extend(memory.pull(timeout=0.2)) or counter(run, "kernel_drops") > 0, "drops")
            while packets := memory.pull(timeout=0.3):
                got += packets
            numbers = [int.from_bytes(p.data[14:18], "big") for p in got]
            assert numbers == sorted(set(numbers)) and numbers[0] == 0
            assert all(p.data == frame(n) for n, p in zip(numbers, got, strict=True))
            assert len(got) + counter(run, "kernel_drops") == counter(run, "kernel_packets") == 5000
        whole(run)


def test_a_filter_is_attached_in_the_kernel_and_lets_only_what_matches_through() -> None:
    with laboratory() as lab:
        pair(lab)
        sender = raw_socket(lab, "far/x0")
        with capturing(near(lab, filter="ether proto 0x88b5 and ether[17] & 1 = 1")) as (run, memory):
            for number in range(100):
                sender.send(frame(number))
            got = pulled(memory, 50)
            assert [p.data for p in got] == [frame(n) for n in range(1, 100, 2)]
            assert counter(run, "kernel_packets") == 50
        whole(run)


def test_packets_of_a_tun_are_received_without_a_link_header() -> None:
    with laboratory() as lab:
        lab.do("near", "sysctl", "-qw", *QUIET)
        with tun(lab, "near", "x1") as device, capturing(near(lab)) as (run, memory):
            sent = [ip_packet(number, size) for number, size in enumerate([28, 29, 64, 1000, 1500])]
            for each in sent:
                os.write(device, each)
            got = pulled(memory, len(sent))
            assert [p.data for p in got] == sent
            assert {p.link for p in got} == {101}
        whole(run)
