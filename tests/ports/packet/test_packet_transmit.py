"""What a packet port transmits, as the kernel's sockets at the other end get it, and what it does not, by reason."""

import os
import threading
import time

import pytest

import wirespeed as ws
from tests.lab import laboratory, needs_root
from tests.ports.packet.rig import (
    QUIET,
    await_running,
    drops,
    frame,
    ip_packet,
    near,
    pair,
    raw_socket,
    received,
    sending,
    tun,
    wait_until,
    whole,
)

pytestmark = needs_root
SIZES = [18, 59, 60, 63, 64, 65, 127, 128, 129, 256, 1000, 1513, 1514]
VLAN = bytes.fromhex("8100 2064")


@pytest.mark.parametrize("bypass", ["no", "yes"])
def test_frames_of_every_size_go_byte_for_byte_and_in_order(bypass: str) -> None:
    with laboratory() as lab:
        pair(lab)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab, qdisc_bypass=bypass)) as (run, memory):
            sent = [frame(n, size) for n, size in enumerate(SIZES * 20)]
            assert memory.push(sent) == len(sent)
            assert received(receiver, len(sent)) == sent
        report = whole(run)
        assert report.stage("packet:x1").bytes == sum(map(len, sent))
        assert report.packets == len(sent)


def test_case_72_long_frames_and_chains_go_in_order_with_short_ones() -> None:
    with laboratory() as lab:
        pair(lab, mtu=65000)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab)) as (run, memory):
            sizes = [64, 9000, 1514, 65014, 1780, 1800, 1821, 1822, 2047, 2048, 2049, 60, 30000, 64]
            sent = [frame(n, size) for n, size in enumerate(sizes * 3)]
            assert memory.push(sent) == len(sent)
            assert received(receiver, len(sent)) == sent
        whole(run)


def test_tagged_frames_may_be_four_bytes_longer() -> None:
    with laboratory() as lab:
        pair(lab)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab)) as (run, memory):
            fits = [frame(0, 1514), frame(1, 1518, tags=VLAN), frame(2, 64, tags=VLAN + VLAN)]
            too_long = [frame(3, 1515), frame(4, 1518), frame(5, 1519, tags=VLAN), frame(6, 9000)]
            last = frame(7)
            memory.push([*too_long, *fits, *too_long, last])
            assert received(receiver, 4) == [*fits, last]
            wait_until(lambda: drops(run) == {"too_long": 8}, "too_long")
        whole(run)


def test_what_is_no_frame_of_this_link_is_dropped_with_its_reason() -> None:
    with laboratory() as lab:
        pair(lab)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab)) as (run, memory):
            raw = [ws.Packet(ip_packet(n, 64), link=101) for n in range(3)]
            memory.push([frame(0), *raw, frame(1)[:13], frame(2)[:1], frame(3)])
            assert received(receiver, 2) == [frame(0), frame(3)]
            wait_until(lambda: drops(run) == {"wrong_link": 3, "refused": 2}, "reasons")
        whole(run)


def test_packets_without_a_link_header_go_out_by_a_tun() -> None:
    with laboratory() as lab:
        lab.do("near", "sysctl", "-qw", *QUIET)
        with tun(lab, "near", "x1") as device:
            with sending(near(lab)) as (run, memory):
                sent = [ip_packet(number, size) for number, size in enumerate([28, 64, 1000, 1500])]
                memory.push([ws.Packet(each, link=101) for each in (*sent, ip_packet(9, 1501))])
                assert [os.read(device, 2000) for _ in sent] == sent
                wait_until(lambda: drops(run) == {"too_long": 1}, "too_long")
            whole(run)


def test_while_the_link_is_down_packets_are_dropped_and_afterwards_they_go() -> None:
    with laboratory() as lab:
        pair(lab)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab)) as (run, memory):
            for end in ("near/x1", "far/x0"):
                space, name = end.split("/")
                before = drops(run).get("link_down", 0)
                lab.ip(space, "link", "set", name, "down")
                wait_until(lambda: "state UP" not in lab.ip("near", "link", "show", "x1"), "x1 has no carrier")
                time.sleep(0.1)
                memory.push([frame(n) for n in range(100)])
                wait_until(lambda before=before: drops(run).get("link_down", 0) == before + 100, f"{end} is down")
                lab.ip(space, "link", "set", name, "up")
                await_running(lab, "near/x1")
                time.sleep(0.2)
                receiver.close()
                receiver = raw_socket(lab, "far/x0", receiving=True)
                memory.push([frame(n) for n in range(100, 200)])
                assert received(receiver, 100) == [frame(n) for n in range(100, 200)]
        assert whole(run).stage("packet:x1").counters["link_changes"] >= 4


def test_an_mtu_that_was_lowered_drops_what_is_longer_and_a_raised_one_lets_it_go() -> None:
    with laboratory() as lab:
        pair(lab, mtu=9000)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab)) as (run, memory):
            memory.push([frame(0, 9000), frame(1, 1514)])
            assert received(receiver, 2) == [frame(0, 9000), frame(1, 1514)]
            lab.ip("near", "link", "set", "x1", "mtu", "1000")
            time.sleep(0.2)
            memory.push([frame(2, 9000), frame(3, 1015), frame(4, 1014), frame(5, 1015), frame(6, 60)])
            assert received(receiver, 2) == [frame(4, 1014), frame(6, 60)]
            lab.ip("near", "link", "set", "x1", "mtu", "9000")
            time.sleep(0.2)
            memory.push([frame(7, 9000)])
            assert received(receiver, 1) == [frame(7, 9000)]
            wait_until(lambda: drops(run) == {"too_long": 3}, "too_long")
        whole(run)


def test_frames_that_the_other_end_never_takes_hold_nobody_up_for_long() -> None:
    with laboratory() as lab:
        pair(lab, mtu=1500)
        lab.ip("far", "link", "set", "x0", "mtu", "500")
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab)) as (run, memory):
            sent = [frame(n, 1000 if n % 2 else 100) for n in range(400)]
            memory.push(sent)
            assert received(receiver, 200) == sent[::2]
            wait_until(lambda: drops(run) == {"no_room": 200}, "no_room")
        whole(run)


def test_a_queue_that_is_full_is_waited_for() -> None:
    with laboratory() as lab:
        pair(lab)
        lab.do("near", "ip", "link", "set", "x1", "txqueuelen", "10")
        receiver = raw_socket(lab, "far/x0", receiving=True)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(received(receiver, 20_000)))
        thread.start()
        with sending(near(lab)) as (run, memory):
            sent = [frame(n) for n in range(20_000)]
            taken = 0
            while taken < len(sent):
                taken += memory.push(sent[taken : taken + 500], timeout=5)
            thread.join()
            assert got == sent
        whole(run)


def test_one_element_is_a_source_and_a_sink_in_one_graph() -> None:
    with laboratory() as lab:
        pair(lab)
        there = raw_socket(lab, "far/x0", receiving=True)
        port = near(lab)

        @ws.function
        def turn(pkt):  # type: ignore[no-untyped-def]
            """Send it back to where it came from."""
            pkt.eth.src, pkt.eth.dst = pkt.eth.dst, pkt.eth.src
            return ws.FORWARD

        with ws.start(port >> turn >> port) as run:
            for number in range(50):
                sent = frame(number)
                there.send(sent)
                assert received(there, 1) == [sent[6:12] + sent[:6] + sent[12:]]
        whole(run)


def test_two_workers_send_by_sockets_of_their_own() -> None:
    with laboratory() as lab:
        pair(lab)
        receiver = raw_socket(lab, "far/x0", receiving=True)
        with sending(near(lab), workers=2) as (run, memory):
            sent = [frame(n) for n in range(2000)]
            memory.push(sent)
            assert sorted(received(receiver, len(sent))) == sorted(sent)
        whole(run)


def test_the_run_ends_while_the_interface_takes_nothing() -> None:
    with laboratory() as lab:
        pair(lab)
        lab.ip("far", "link", "set", "x0", "mtu", "68")
        with sending(near(lab)) as (run, memory):
            memory.push([frame(n, 1000) for n in range(1000)])
        report = whole(run)
        assert report.packets == 0 and report.dropped == report.received > 0
