"""Frames through AF_XDP: which arrive, whole and in order, and which go out."""

import socket

import pytest

import wirespeed as ws
from tests.lab import laboratory
from tests.ports.xdp.wires import WAIT_S, attached, balanced, frame, pair, pull, raw, received, send, until, xdp
from wirespeed.ports.memory import MemoryPort

C_TAG, S_TAG = bytes.fromhex("81000005"), bytes.fromhex("88a80007")
SIZES = [60, 61, 64, 127, 128, 1000, 1513, 1514]


@pytest.mark.parametrize("attach", ["native", "generic"])
def test_frames_that_arrive_are_given_whole_and_in_order(attach):
    with laboratory() as lab:
        pair(lab)
        sent = [frame(i, SIZES[i % len(SIZES)]) for i in range(500)]
        with received(xdp(lab, attach=attach)) as (memory, running), raw(lab) as far:
            send(far, sent)
            assert pull(memory, len(sent)) == sent
        source = running.report().stages[0]
        assert source.counters["program"] == attach
        assert "kernel_drops" not in source.counters


@pytest.mark.parametrize("attach", ["native", "generic"])
def test_frames_of_several_buffers_are_given_as_one_packet(attach):
    with laboratory() as lab:
        pair(lab, mtu=9000)
        sent = [frame(i, size) for i, size in enumerate([9014, 60, 2048, 2049, 4096, 4097, 6000, 9013, 9014])]
        with received(xdp(lab, attach=attach)) as (memory, _), raw(lab) as far:
            send(far, sent)
            assert pull(memory, len(sent)) == sent


def test_what_is_sent_arrives_whole_and_in_order():
    with laboratory() as lab:
        pair(lab, mtu=9000)
        sent = [frame(i, SIZES[i % len(SIZES)] if i % 10 else 9014) for i in range(500)]
        with raw(lab) as far, MemoryPort() as memory:
            with ws.start(memory >> xdp(lab)) as running:
                memory.push(sent, timeout=WAIT_S)
                assert [far.recv(65536) for _ in sent] == sent
            balanced(running)
            assert running.report().packets == len(sent)


def test_tagged_frames_keep_their_tags_from_port_to_port():
    with laboratory() as lab:
        pair(lab)
        sent = [
            frame(1, 100, C_TAG),
            frame(2, 100, S_TAG + C_TAG),
            frame(3, 1518, C_TAG),
            frame(4, 1518, S_TAG + C_TAG),
        ]
        with MemoryPort() as memory, received(xdp(lab, "far/y0")) as (there, _):
            with ws.start(memory >> xdp(lab)) as running:
                memory.push(sent)
                assert pull(there, 4) == sent
            balanced(running)


def test_a_sink_alone_attaches_no_program():
    with laboratory() as lab:
        pair(lab)
        with MemoryPort() as memory, raw(lab) as far, ws.start(memory >> xdp(lab)):
            memory.push([frame(1)])
            assert far.recv(2048) == frame(1)
            assert "xdp" not in lab.ip("near", "link", "show", "x0")


def test_one_element_as_source_and_as_sink_shares_a_socket():
    @ws.function
    def turn(pkt):
        """Send a frame back to where it came from."""
        pkt.eth.src, pkt.eth.dst = pkt.eth.dst, pkt.eth.src
        return ws.FORWARD

    with laboratory() as lab:
        pair(lab)
        port = xdp(lab)
        with raw(lab) as far, ws.start(port >> turn >> port) as running:
            send(far, [frame(i) for i in range(100)])
            back = [far.recv(2048) for _ in range(100)]
        assert back == [frame(i)[6:12] + frame(i)[:6] + frame(i)[12:] for i in range(100)]
        balanced(running)


def test_each_queue_has_a_worker_and_each_frame_comes_once(caplog):
    with laboratory() as lab:
        pair(lab, queues=2)
        sent = [udp(i) for i in range(200)]
        with received(xdp(lab), workers=2) as (memory, running), raw(lab) as far:
            send(far, sent)
            assert sorted(pull(memory, len(sent))) == sorted(sent)
        assert "queues_left" not in running.report().stages[0].counters
        assert not caplog.messages


def test_queues_that_no_worker_has_are_told_at_the_start_and_in_the_report(caplog):
    with laboratory() as lab:
        pair(lab, queues=3)
        with received(xdp(lab), workers=2) as (_, running):
            said = "1 of 3 queues is left to the kernel, with all frames that arrive there; run with 3 workers"
            assert [m.partition(" from queue 0 on")[0] for m in caplog.messages] == [f"xdp:x0: {said}"]
        assert running.report().stages[0].counters["queues_left"] == 1


def udp(number):
    """A datagram whose source port is of one of many flows."""
    body = number.to_bytes(4, "big") * 4
    head = (8 + len(body)).to_bytes(2, "big") + b"\0\0"
    ip = bytes.fromhex("4500") + (28 + len(body)).to_bytes(2, "big") + bytes.fromhex("000000004011") + b"\0\0"
    addresses = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
    ports = (1000 + number).to_bytes(2, "big") + (9).to_bytes(2, "big")
    return frame(0, 12) + b"\x08\0" + ip + addresses + ports + head + body


def test_frames_that_the_interface_does_not_carry_are_dropped_and_counted():
    with laboratory() as lab:
        pair(lab)
        with MemoryPort() as memory, raw(lab) as far, ws.start(memory >> xdp(lab)) as running:
            memory.push([frame(1, 1515), frame(2, 13), frame(3, 1518), frame(4, 4000), frame(5)])
            assert far.recv(2048) == frame(5)
        sink = running.report().stages[1]
        assert sink.drops == {"too_long": 3, "too_short": 1}
        balanced(running)


def test_a_long_frame_is_dropped_once_the_mtu_is_lowered_and_goes_again_when_it_is_raised():
    with laboratory() as lab:
        pair(lab, mtu=9000)
        with MemoryPort() as memory, raw(lab) as far, ws.start(memory >> xdp(lab)) as running:
            memory.push([frame(1, 9014)])
            assert far.recv(65536) == frame(1, 9014)
            lab.ip("near", "link", "set", "x0", "mtu", "1500")
            until(lambda: memory.push([frame(2, 9014)]) and running.report().stages[1].drops, "it is too long")
            lab.ip("near", "link", "set", "x0", "mtu", "9000")
            until(lambda: memory.push([frame(3, 9014)]) and far_has(far, frame(3, 9014)), "it goes again")
        assert set(running.report().stages[1].drops) == {"too_long"}
        balanced(running)


def far_has(far, wanted):
    """Whether the frame is among those that came."""
    far.settimeout(0.05)
    try:
        return far.recv(65536) == wanted
    except TimeoutError:
        return False
    finally:
        far.settimeout(WAIT_S)


def test_a_filter_lets_through_what_it_matches():
    with laboratory() as lab:
        pair(lab)
        port = xdp(lab, filter="ether proto 0x88b5 and ether[17] & 1 = 1")
        with received(port) as (memory, running), raw(lab) as far:
            send(far, [frame(i) for i in range(100)])
            assert pull(memory, 50) == [frame(i) for i in range(1, 100, 2)]
        assert running.report().stages[0].drops == {"filtered": 50}


@pytest.mark.parametrize("role", ["source", "sink"])
def test_a_filter_that_only_a_kernel_can_apply_is_refused_when_the_port_is_opened(role):
    with laboratory() as lab, MemoryPort() as memory:
        pair(lab)
        port = xdp(lab, filter="inbound")
        with pytest.raises(ws.GraphError, match="inbound"):
            ws.start(port >> memory if role == "source" else memory >> port)
        assert not attached(lab)
