"""Pools smaller than a burst, or than what stages may hold: every run makes progress, or is refused before it begins."""

from functools import cache

import pytest
from scapy.all import IP, TCP, UDP, Raw

import wirespeed as ws
from tests.lab import laboratory, needs_root
from tests.net.capture import files
from tests.net.stacks import ETHER
from tests.net.test_segmentation import payload
from tests.ports.packet.rig import frame, pair, raw_socket, wait_until
from wirespeed.engine.transform import shortage
from wirespeed.ports import port
from wirespeed.ports.memory import MemoryPort

V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
SIZES = [1, 2, 3, 8, 16, 31, 32, 33]
COUNT = 200
LIMIT_S = 60.0  # a run that stands still is ended, and then has not given what it should


def numbered(size: int) -> list[bytes]:
    return [i.to_bytes(2) * (size // 2) for i in range(COUNT)]


def collected(source: object, pool: int, *stages: object, **how: object) -> tuple[list[bytes], ws.Report]:
    """What a run gives whose pool is so small, and its report, whose books must balance."""
    with MemoryPort(size="4MB") as memory:
        chain = source
        for element in (*stages, memory):
            chain = chain >> element
        report = ws.run(chain, pool=pool, seconds=LIMIT_S, **how)
        assert report.balanced, report
        assert report.pool_free == report.pool_size == pool
        return [bytes(p) for p in memory.pull()], report


# Row 13: every source, with what there is


@pytest.mark.parametrize("pool", SIZES)
@pytest.mark.parametrize("options", ["", ",flows=7", ",rate=1Mpps", ",size=64,1500,vary=ipv4.id=count:1-9"])
def test_case_13_a_generator_gives_the_same_packets_whatever_the_pool(pool, options):
    wanted, _ = collected(port(f"generator:count={COUNT}{options}"), 4096)
    found, _ = collected(port(f"generator:count={COUNT}{options}"), pool)
    assert found == wanted
    assert len(found) == COUNT


@pytest.mark.parametrize("pool", SIZES)
def test_case_13_no_number_is_missing_in_a_stream_of_trailers(pool):
    check = ws.checker()
    report = ws.run(port(f"generator:count={COUNT},flows=7,trailer=yes") >> check, pool=pool, seconds=LIMIT_S)
    assert report.balanced
    assert (check.received, check.lost, check.duplicates) == (COUNT, 0, 0)


@pytest.mark.parametrize("pool", SIZES)
def test_case_13_frames_of_several_buffers_come_or_are_refused(pool):
    if pool < 5:
        with pytest.raises(ws.GraphError, match=f"9000 bytes is too large for a pool of {pool} buffers"):
            collected(port(f"generator:count={COUNT},size=9000"), pool)
    else:
        found, _ = collected(port(f"generator:count={COUNT},size=9000"), pool)
        assert [len(f) for f in found] == [9000] * COUNT


def test_case_13_a_frame_that_needs_what_other_workers_may_have_is_refused():
    source = port("generator:count=1,size=80000", template="02" * 14)
    collected(source, 64, burst=16)
    with pytest.raises(ws.GraphError, match="80000 bytes is too large for a pool of 64"):
        collected(source, 64, burst=16, workers=2)


@pytest.mark.parametrize("pool", SIZES)
def test_case_13_the_null_port_gives_its_count_whatever_the_pool(pool):
    found, _ = collected(port(f"null:count={COUNT}"), pool)
    assert [len(f) for f in found] == [64] * COUNT


@pytest.mark.parametrize("pool", SIZES)
def test_case_13_a_capture_comes_whole_whatever_the_pool(tmp_path, pool):
    frames = numbered(100)
    (tmp_path / "in.pcap").write_bytes(files.pcap(frames))
    assert collected(port(f"pcap:{tmp_path}/in.pcap"), pool)[0] == frames


@pytest.mark.parametrize("pool", SIZES)
def test_case_13_frames_of_a_program_come_whole_whatever_the_pool(pool):
    frames = numbered(100)
    with MemoryPort(size="1MB") as memory:
        memory.push(frames)
        memory.close_input()
        assert collected(memory, pool)[0] == frames


@pytest.mark.parametrize("size", SIZES)
def test_case_13_a_capture_with_longer_frames_drops_those_that_can_never_fit(tmp_path, size):
    frames = [bytes(100), bytes(9000), bytes(101)] * 10
    (tmp_path / "in.pcap").write_bytes(files.pcap(frames))
    found, report = collected(port(f"pcap:{tmp_path}/in.pcap"), size)
    fits = size // 2 >= 5
    assert [len(f) for f in found] == [100, 9000, 101] * 10 if fits else [100, 101] * 10
    assert report.stages[0].drops == ({} if fits else {"too_long": 10})


@needs_root
@pytest.mark.parametrize("pool", [1, 8, 31, 33])
@pytest.mark.parametrize("kind", ["packet", "xdp", "tap"])
def test_case_13_frames_of_an_interface_come_whatever_the_pool(kind, pool):
    with laboratory() as lab, MemoryPort(size="1MB") as memory:
        pair(lab)
        name = "t0" if kind == "tap" else "x1"
        with ws.start(port(f"{kind}:{name}", netns=lab.space("near")) >> memory, pool=pool) as run:
            if kind == "tap":
                lab.ip("near", "link", "set", name, "up")
            frames = [frame(number) for number in range(40)]
            with raw_socket(lab, "near/t0" if kind == "tap" else "far/x0") as sender:
                for number, each in enumerate(frames, 1):
                    sender.send(each)
                    wait_until(lambda number=number: memory.waiting == number, f"frame {number} is there")
            assert [p.data for p in memory.pull()] == frames
        report = run.report()
        assert report.balanced
        assert report.pool_free == pool


# Packets that are held leave enough for others


@cache
def lone(number: int) -> bytes:
    """The first fragment of a datagram, of a source of its own, of which nothing more comes."""
    source = f"10.0.{number >> 8}.{number & 255}"
    return bytes(ETHER / IP(src=source, dst="10.0.0.2", id=1, flags="MF", proto=17) / Raw(bytes(8)))


@cache
def plain(number: int, size: int = 40) -> bytes:
    return bytes(ETHER / IP(**V4, id=number) / UDP(sport=number, dport=2) / Raw(payload(size)))


def through(frames: list[bytes], stage: object, pool: int, **how: object) -> tuple[list[bytes], ws.Report]:
    with MemoryPort(size="16MB") as memory:
        assert memory.push(frames) == len(frames)
        memory.close_input()
        return collected(memory, pool, stage, **how)


@pytest.mark.parametrize("pool", [*SIZES, 1000, 1024])
def test_first_fragments_of_many_datagrams_do_not_stop_what_is_behind_them(pool):
    firsts, good = [lone(i) for i in range(3000)], [plain(i) for i in range(1000)]
    found, report = through(firsts + good, ws.reassemble(), pool)
    assert found == good
    row = report.stage("reassemble")
    assert set(row.drops) <= {"evicted", "unfinished"}
    assert sum(row.drops.values()) == 3000
    assert row.drops.get("unfinished", 0) < pool


def test_no_datagram_is_evicted_while_the_pool_is_as_large_as_it_is_by_itself():
    with MemoryPort(size="16MB") as memory:
        memory.push([lone(i) for i in range(2048)])
        memory.close_input()
        report = ws.run(memory >> ws.reassemble() >> port("null:"))
    assert report.stage("reassemble").drops == {"unfinished": 2048}


@pytest.mark.parametrize("pool", [4, 40])
def test_a_datagram_of_more_fragments_than_the_pool_has_does_not_stop_the_run(pool):
    pieces = [bytes(ETHER / IP(**V4, id=5, flags="MF", frag=i, proto=17) / Raw(bytes(8))) for i in range(100)]
    good = [plain(i) for i in range(100)]
    found, report = through(pieces + good, ws.reassemble(), pool)
    assert found == good
    assert sum(report.stage("reassemble").drops.values()) == 100


def test_datagrams_are_put_together_in_a_small_pool_as_far_as_it_goes():
    whole = [plain(i, 2900) for i in range(100)]
    with MemoryPort(size="16MB") as memory:
        memory.push(whole)
        memory.close_input()
        ws.run(memory >> ws.fragment(1500) >> memory)
        pieces = [bytes(p) for p in memory.pull()]
    assert len(pieces) == 200
    for pool in (8, 16, 64):
        assert through(pieces, ws.reassemble(), pool)[0] == whole


def test_a_frame_that_needs_most_of_the_pool_comes_past_fragments_that_are_held():
    big = plain(1, 60_000)
    found, _ = through([lone(i) for i in range(40)] + [big], ws.reassemble(), 40)
    assert found == [big]


@pytest.mark.parametrize("pool", SIZES)
def test_flows_that_are_held_for_long_do_not_stop_what_is_behind_them(pool):
    segments = [bytes(ETHER / IP(**V4, id=1) / TCP(sport=i, dport=2, flags="A") / Raw(bytes(100))) for i in range(400)]
    found, report = through(segments, ws.coalesce(1_000_000, flows=1024), pool)
    assert sorted(found) == sorted(segments)
    assert report.stage("coalesce").drops == {}


def test_each_worker_has_room_for_all_that_it_may_hold():
    for stage in (ws.reassemble(fragments=1000), ws.coalesce()):
        one, four = (stage.open("stage", workers) for workers in (1, 4))
        assert four.holds == 4 * one.holds
        one.close()
        four.close()


def test_what_is_left_to_others_is_an_eighth_of_a_small_pool():
    assert [shortage.reserve(n) for n in (1, 3, 8, 16, 1000, 1 << 20)] == [1, 1, 1, 2, 125, 256]
