"""Stages that make packets out of others, in runs: which bytes come out, in which order, and the books."""

import pytest
from scapy.all import IP, TCP, UDP, Ether, IPv6, Raw

import wirespeed as ws
from tests.elements import State, TestElement
from tests.net.stacks import ETHER
from tests.net.test_fragmentation import joined4, joined6
from tests.net.test_segmentation import payload, pieces
from wirespeed.core.packet import Packet
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import stage
from wirespeed.net.offload import unready
from wirespeed.ports.memory import MemoryPort

V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}
SUPER = 2000  # frames longer than this are marked as super-frames


@stage
def leave_undone(state, burst, n):
    """Say of each packet that its checksum is to be computed, and of long ones that they are to be cut in ``k`` bytes."""
    s = State(state)
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        if unready(handle) and Packet(handle).total > 2000:
            Packet(handle).gso_size = s.k
            Packet(handle).gso_type = 1
    return n


def undone(size: int = 1000) -> TestElement:
    return TestElement("undone", leave_undone, k=size)


def through(frames: list[bytes], *stages: object, **how: object) -> tuple[list[bytes], ws.Report]:
    """What comes out of a chain of stages, and the report, whose books must balance."""
    with MemoryPort(size="64MB") as memory:
        assert memory.push(frames) == len(frames)
        memory.close_input()
        chain = memory >> stages[0]
        for element in stages[1:]:
            chain = chain >> element
        report = ws.run(chain >> memory, **how)
        assert report.balanced, report
        return [bytes(p) for p in memory.pull()], report


def tcp(data: bytes, number: int = 0, flow: int = 1, flags: str = "A", size: int = 1000) -> bytes:
    """The frame ``number`` of a flow whose frames have ``size`` bytes of payload."""
    header = TCP(sport=flow, dport=2, seq=number * size, flags=flags)
    return bytes(ETHER / IP(**V4, id=1 + number) / header / Raw(data))


# Cutting


def test_super_frames_become_frames_in_order_between_plain_ones():
    frames, wanted = [], []
    for i in range(200):
        data = payload(3000 + i) if i % 3 == 0 else payload(40 + i)
        frames.append(tcp(data, flow=i))
        wanted += [tcp(p, n, flow=i) for n, p in enumerate(pieces(data, 1000))] if i % 3 == 0 else [frames[-1]]
    found, report = through(frames, undone(), ws.segment())
    assert found == wanted
    row = report.stage("segment")
    assert (row.made, row.packets_out, row.counters["cut"]) == (len(wanted) - 200, len(wanted), 67)


@pytest.mark.parametrize("burst", [1, 7, 256])
def test_more_frames_than_a_burst_wait_for_their_turn(burst):
    data = payload(60_000)
    frames = [tcp(data, flow=flow, size=100) for flow in range(3)]
    found, report = through(frames, undone(100), ws.segment(), burst=burst)
    assert found == [tcp(p, n, flow, size=100) for flow in range(3) for n, p in enumerate(pieces(data, 100))]
    assert report.stage("segment").made == 3 * 599


def test_frames_longer_than_the_mtu_are_dropped_whole_or_not_yet_cut():
    frames = [tcp(payload(1460)), tcp(payload(1461)), tcp(payload(4000)), tcp(payload(2920))]
    found, report = through(frames, undone(1460), ws.segment(1500))
    assert [len(f) for f in found] == [1514, 1514, 1514, 14 + 40 + 4000 - 2920, 1514, 1514]
    assert report.stage("segment").drops == {"too_long": 1}
    found, report = through(frames, undone(1461), ws.segment(mtu=1500))
    assert found == frames[:1]
    assert report.stage("segment").drops == {"too_long": 3}


def test_datagrams_become_fragments_and_others_stay_as_they_are():
    long4 = bytes(ETHER / IP(**V4, id=9) / UDP(sport=1, dport=2) / Raw(payload(4000)))
    long6 = bytes(ETHER / IPv6(**V6) / UDP(sport=1, dport=2) / Raw(payload(4000)))
    short = bytes(ETHER / IP(**V4) / UDP(sport=1, dport=2) / Raw(payload(1472)))
    found, report = through([long4, short, long6, short], ws.fragment(1500))
    assert joined4(found[:3])[0] == long4[34:]
    assert found[3] == found[7] == short
    assert joined6(found[4:7]) == long6[54:]
    assert all(len(f) <= 1514 for f in found)
    assert (report.stage("fragment").made, report.stage("fragment").counters["cut"]) == (4, 2)


def test_one_that_must_not_be_fragmented_is_dropped_with_that_reason():
    frame = bytes(ETHER / IP(**V4, flags="DF") / UDP() / Raw(payload(2000)))
    found, report = through([frame, frame[:1000]], ws.fragment(1500))
    assert found == [frame[:1000]]
    assert report.stage("fragment").drops == {"needs_fragment": 1}


def test_a_frame_that_a_capture_cut_is_dropped_with_that_reason():
    whole = bytes(ETHER / IP(**V4) / UDP() / Raw(payload(3000)))
    long6 = bytes(ETHER / IPv6(**V6) / UDP() / Raw(payload(3000)))
    broken = bytes(ETHER / IP(**V4, len=19) / UDP() / Raw(payload(3000)))
    found, report = through([whole[:1000], long6[:1000], broken, whole[:590]], ws.fragment(576))
    assert found == [whole[:590]]
    assert report.stage("fragment").drops == {"truncated": 2, "damaged": 1}


def test_a_super_frame_becomes_frames_and_those_that_are_too_long_fragments():
    data = payload(4000)
    frame = tcp(data)
    found, report = through([frame], undone(1800), ws.fragment(1500))
    frames = [tcp(p, n, size=1800) for n, p in enumerate(pieces(data, 1800))]
    assert joined4(found[:2])[0] == frames[0][34:]
    assert joined4(found[2:4])[0] == frames[1][34:]
    assert found[4:] == frames[2:]
    assert report.stage("fragment").made == 4


def test_a_pool_without_packets_is_a_drop():
    frames = [tcp(payload(50_000))] * 3
    found, report = through(frames, undone(1), ws.segment())
    assert found == []
    assert report.stage("segment").drops == {"too_long": 3}


@pytest.mark.parametrize("mtu", [0, 67, 1.5, None])
def test_an_mtu_that_ip_cannot_use_is_refused(mtu):
    with pytest.raises(ws.GraphError, match="fragment: mtu"):
        ws.fragment(mtu)


def test_scapy_reads_what_comes_out():
    found, _ = through([tcp(payload(3000), flags="FA")], undone(), ws.segment())
    assert [str(Ether(f)[TCP].flags) for f in found] == ["A", "A", "FA"]


# Joining


def test_a_capture_with_fragments_is_whole_behind_reassembly_and_ends_when_one_is_lost():
    whole = [bytes(ETHER / IP(**V4, id=n) / UDP(sport=n, dport=2) / Raw(payload(3000 + n))) for n in range(1, 40)]
    parts, _ = through(whole, ws.fragment(1000))
    assert len(parts) == 4 * len(whole)
    found, report = through(parts, ws.reassemble())
    assert found == whole
    row = report.stage("reassemble")
    assert (row.made, row.counters["datagrams"]) == (-3 * len(whole), len(whole))
    found, report = through(parts[1:], ws.reassemble())
    assert found == whole[1:]
    assert report.stage("reassemble").drops == {"unfinished": 3}


def test_what_was_fragmented_is_whole_again():
    whole = [tcp(payload(100 + 37 * n), flow=n) for n in range(1, 60)]
    found, report = through(whole, ws.fragment(576), ws.reassemble())
    assert found == whole
    assert report.stage("fragment").made == -report.stage("reassemble").made > 0


@pytest.mark.parametrize("timeout_us", [0, 100, 1_000_000])
def test_what_was_coalesced_is_cut_into_the_same_frames(timeout_us):
    streams = [[tcp(payload(1000), n, flow) for n in range(150)] for flow in range(1, 5)]
    frames = [streams[i % 4][i // 4] for i in range(600)]
    joined, report = through(frames, ws.coalesce(timeout_us))
    assert len(joined) == 600 + report.stage("coalesce").made < 600
    found, report = through(frames, ws.coalesce(timeout_us), ws.segment())
    for flow, stream in enumerate(streams, 1):
        assert [f for f in found if f[34:36] == flow.to_bytes(2)] == stream
    assert report.stage("segment").made == -report.stage("coalesce").made > 0


def test_a_run_that_is_stopped_gives_back_what_was_held():
    with MemoryPort(size="8MB") as memory:
        memory.push([bytes(ETHER / IP(**V4, flags="MF") / Raw(bytes(80))), tcp(b"x" * 1000)])
        with ws.start(memory >> ws.reassemble() >> ws.coalesce(1_000_000) >> memory) as running:
            while running.report().stage("coalesce").packets_in < 1:
                pass
        report = running.report()
    assert report.balanced
    assert report.stage("reassemble").drops == {"unfinished": 1}
