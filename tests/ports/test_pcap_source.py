"""A capture as a source: packets as the file has them, at the pace that is asked for, with any pool."""

import bz2
import contextlib
import gzip
import lzma
import os
import random
import time
from fractions import Fraction

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import TORTURE
from tests.driver import Driver, free
from tests.net.capture import files, fuzz, model
from tests.net.capture.files import FRAMES, SAMPLES
from tests.net.capture.test_writer import numbered_frames
from wirespeed.core.packet import HEADROOM, INTERFACE, META, Packet, copy_out
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import PortError
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture.options import parse
from wirespeed.net.capture.scan import Entry
from wirespeed.ports import pacing
from wirespeed.ports.options import rate as parse_rate
from wirespeed.ports.pcap import PcapPort
from wirespeed.ports.pcap_feed import FARTHEST_NS, Feed, due, pass_on, set_speed

PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstandard.compress}


@pytest.fixture(scope="module")
def pool():
    with PacketPool(256) as pool:
        yield pool


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.pcap"


def opened(path, pool, content: bytes | None = None, **options) -> Driver:
    if content is not None:
        path.write_bytes(content)
    return Driver(PcapPort(str(path), **options).open("source", 1), pool=pool)


def all_of(driver: Driver, calls: int = 100_000) -> list:
    """What a source gives, while its service runs as the control thread would run it."""
    frames = []
    for _ in range(calls):
        frames += driver.receive()
        if driver.head.done:
            return frames
        driver.part.service()
    raise AssertionError("it does not end")


@pytest.mark.parametrize("name", SAMPLES)
def test_packets_are_those_of_the_file(path, pool, name):
    with opened(path, pool, SAMPLES[name]) as source:
        got = all_of(source)
        expected = model.read(SAMPLES[name]).packets
        assert [(p.data, p.time, p.wire, p.link) for p in got] == [
            (p.data, p.time, p.wire or len(p.data), p.link) for p in expected
        ]
        assert source.head.bytes == sum(len(p.data) for p in expected)
        assert source.part.counters() == {}


@pytest.mark.parametrize("burst", [1, 2, 7, 256])
def test_bursts_of_any_size_give_the_same(path, pool, burst):
    frames = numbered_frames(1_000)
    path.write_bytes(files.pcap(frames))
    with Driver(PcapPort(str(path)).open("source", 1), pool=pool, burst=burst) as source:
        assert [p.data for p in all_of(source)] == frames


@pytest.mark.parametrize("room", [HEADROOM + 1, HEADROOM + 63, HEADROOM + 64, HEADROOM + 200, HEADROOM + 2048])
@pytest.mark.parametrize("name", ["pcap", "pcapng of all blocks"])
def test_buffers_of_any_room_hold_frames_as_chains(path, name, room):
    with PacketPool(4000, room) as pool, opened(path, pool, SAMPLES[name]) as source:
        assert [p.data for p in all_of(source)] == [p.data for p in model.read(SAMPLES[name]).packets]


def test_long_frames_are_chains_with_the_whole_told_in_their_first_segment(path, pool):
    frames = [bytes([i]) * size for i, size in enumerate([65_536, 2048, 2049, 200_000])]
    with opened(path, pool, files.pcap(frames)) as source:
        assert [p.data for p in all_of(source)] == frames


def test_a_frame_that_needs_more_than_half_of_the_pool_is_dropped_and_counted(path):
    data = files.pcap([b"a" * 5000, b"b" * 100, b"c" * 1600, b"d"])
    with PacketPool(16, HEADROOM + 64) as pool, opened(path, pool, data) as source:
        assert [p.data for p in all_of(source)] == [b"b" * 100, b"d"]
        assert source.drops() == {"too_long": 2}


def test_an_empty_pool_loses_nothing(path):
    frames = numbered_frames(300)
    with PacketPool(5) as pool, opened(path, pool, files.pcap(frames)) as source:
        kept, got = [], []
        while not source.head.done:
            n = source.call(32)
            got += [source.frame(int(h)).data for h in source.burst[:n]]
            kept += source.burst[:n].tolist()
            if n == 0:
                source.free(kept)
                kept = []
        assert got == frames
        assert pool.failures > 0


def test_options_that_find_no_packet_are_waited_for(path):
    data = files.section() + files.interface()
    data += b"".join(files.enhanced(FRAMES[0], i, extra=files.options((1, b"comment %d" % i))) for i in range(40))
    with PacketPool(3) as pool, opened(path, pool, data) as source:
        assert len(all_of(source)) == 40


def test_a_packet_carries_its_options_and_interface(path, pool):
    with opened(path, pool, SAMPLES["pcapng of all blocks"]) as source:
        n = source.call(32)
        handles = source.burst[:n].tolist()
        told = []
        for handle in handles:
            p = Packet.at(handle)
            carried = np.zeros(512, np.uint8)
            size = copy_out(p.meta, 0, 512, carried.ctypes.data) if p.flags & META else 0
            told.append((p.interface if p.flags & INTERFACE else 0, parse(carried[:size].tobytes())))
        source.free(handles)
        assert told == [
            (0, [(1, "größer".encode()), (2, b"\1\0\0\0")]), (1, []), (0, []), (1, [(1, b"an old one")]),
            (2, [(4, b"\2" + bytes(7)), (1, b"x")]), (2, []), (3, []),
        ]  # fmt: skip
        all_of(source)


def test_options_that_do_not_fit_a_packet_are_left_out_and_counted(path):
    extra = files.options((1, b"short"), (1, b"x" * 3000), (1, b"after"))
    data = files.section() + files.interface() + files.enhanced(b"x", extra=extra)
    with PacketPool(20, HEADROOM + 256) as pool, opened(path, pool, data) as source:
        assert [p.data for p in all_of(source)] == [b"x"]
        assert source.part.counters() == {"options cut": 1}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("loop", [1, 3])
def test_compressed_files_are_unpacked_by_the_service(path, pool, packer, loop):
    frames = numbered_frames(4_000)
    with opened(path, pool, PACKERS[packer](files.pcap(frames)), loop=loop) as source:
        assert [p.data for p in all_of(source)] == frames * loop
        assert source.part.counters() == {}


@pytest.mark.parametrize("packer", [None, *PACKERS])
def test_a_pipe_is_told_to_be_compressed_once_it_has_bytes(pool, packer):
    frames = numbered_frames(1_000)
    data = PACKERS[packer](files.pcap(frames)) if packer else files.pcap(frames)
    reader, writer = os.pipe()
    with Driver(PcapPort(f"fd={reader}").open("source", 1), pool=pool) as source:
        assert source.placement.fds
        got = []
        for at in range(0, len(data), 1000):
            got += source.receive()
            source.part.service()
            os.write(writer, data[at : at + 1000])
        os.close(writer)
        got += all_of(source)
    os.close(reader)
    assert [p.data for p in got] == frames


@pytest.mark.parametrize("packer", PACKERS)
def test_a_compressed_file_cut_short_gives_what_is_there(path, pool, packer):
    frames = [os.urandom(1000) for _ in range(2_000)]
    with opened(path, pool, PACKERS[packer](files.pcap(frames))[:-900_000]) as source:
        got = [p.data for p in all_of(source)]
        assert got == frames[: len(got)] and 500 < len(got) < 1_200
        assert "too early" in source.part.counters()["damage"]


@pytest.mark.parametrize("packer", [None, *PACKERS])
def test_a_damaged_file_is_looped_over_up_to_its_damage(path, pool, packer):
    data = files.pcap(FRAMES[:3]) + b"\xff" * 5_000_00
    with opened(path, pool, PACKERS[packer](data) if packer else data, loop=4) as source:
        assert [p.data for p in all_of(source)] == FRAMES[:3] * 4
        assert "claims a frame of 4294967295 bytes" in source.part.counters()["damage"]
        assert "at packet 4" in source.part.counters()["damage"]


@pytest.mark.parametrize("pack", [gzip.compress, pytest.param(lambda d: d, id="plain")])
def test_a_given_descriptor_is_looped_over_from_where_it_was(path, pool, pack):
    path.write_bytes(b"prefix" + pack(files.pcap(FRAMES)))
    with path.open("rb", buffering=0) as file:
        file.seek(6)
        with Driver(PcapPort(f"fd={file.fileno()}", loop=3).open("source", 1), pool=pool) as source:
            assert [p.data for p in all_of(source)] == FRAMES * 3


@pytest.mark.parametrize("data", [files.pcap([]), files.section(), files.pcap([])[:24] + b"x"])
def test_an_endless_loop_over_no_packets_ends(path, pool, data):
    with opened(path, pool, data, loop="inf") as source:
        assert all_of(source, 100) == []


@pytest.mark.parametrize("count", [0, 1, 5, 8, 9, 20])
def test_a_count_ends_it(path, pool, count):
    with opened(path, pool, files.pcap(FRAMES), loop=2, count=count) as source:
        assert [p.data for p in all_of(source)] == (FRAMES * 2)[:count]


@pytest.mark.parametrize("start", [2**31 - 5, 2**32 - 5])
def test_counts_go_on_beyond_31_and_32_bits(path, pool, start):
    with opened(path, pool, files.pcap(FRAMES), loop="inf", count=16) as source:
        feed = Feed.at(source.part.feed)
        feed.left += start
        feed.scan.packets = start
        assert len(source.receive()) == 8
        assert feed.left == start + 8
        assert feed.scan.packets == start + 8
        feed.left = 8
        assert len(all_of(source)) == 8


def test_several_workers_share_one_file(path, pool):
    frames = numbered_frames(500)
    path.write_bytes(files.pcap(frames))
    part = PcapPort(str(path)).open("source", 2)
    first, second = (Driver(part, pool=pool, worker=i, workers=2, burst=10) for i in range(2))
    got = []
    while not (first.head.done and second.head.done):
        got += first.receive() + second.receive()
    assert [p.data for p in got] == frames
    first.release()
    second.close()


def test_damage_is_raised_at_the_end_when_strict(path, pool):
    source = opened(path, pool, files.pcap(FRAMES)[:-1], strict=True)
    assert len(all_of(source)) == 7
    with pytest.raises(PortError, match="ends in the middle of a record, at packet 8"):
        source.part.close()
    assert "at packet 8" in source.part.counters()["damage"]
    source.release()


def test_a_pipe_cannot_be_looped_over(pool):
    reader, writer = os.pipe()
    with pytest.raises(PortError, match="can be read only once, got a loop"):
        PcapPort(f"fd={reader}", loop=2).open("source", 1)
    os.close(reader)
    os.close(writer)


def test_a_part_that_is_closed_leaves_no_descriptor(path, pool):
    before = set(os.listdir("/proc/self/fd"))
    for content in (files.pcap(FRAMES), gzip.compress(files.pcap(FRAMES)), b"PK\3\4"):
        with contextlib.suppress(PortError):
            source = opened(path, pool, content)
            source.receive()
            source.close()
            source.part.close()
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_mutated_captures_lose_no_packet_of_the_pool(path, kind):
    generator, seeds = random.Random(3), fuzz.seeds()
    with PacketPool(24, HEADROOM + 100) as pool:
        for _ in range(20_000 if TORTURE else 150):
            data = fuzz.mutated(generator.choice(seeds), generator)
            content = gzip.compress(data, 1) if kind == "gzip" else data
            with contextlib.suppress(PortError), opened(path, pool, content, loop=generator.randint(1, 2)) as source:
                all_of(source)
                assert source.head.done
            assert pool.whole


# The pace.


@kernel
def schedule(feed, entries, n, out):
    """Write the due time of each of ``n`` entries."""
    f = Feed(feed)
    for i in range(n):
        e = Entry(entries + 48 * i)
        out[i] = due(f, e)
        pass_on(f, e)


def scheduled(times: list[int], times_as_fast: Fraction, anchor: int = 1000) -> list[int]:
    feed = np.zeros(Feed.size, np.uint8)
    Feed(feed).anchor = anchor
    set_speed(feed.ctypes.data, times_as_fast)
    entries = np.zeros(len(times), Entry.dtype)
    entries["time"] = times
    out = np.zeros(len(times), np.int64)
    schedule(feed.ctypes.data, entries.ctypes.data, len(times), out)
    return out.tolist()


gaps = st.lists(st.integers(-(10**11), 10**11), max_size=20)
speeds = st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6).filter(lambda f: f.numerator <= 10**6)


@given(gaps, speeds)
def test_times_are_scaled_once_from_the_anchor(gaps, speed):
    clock = [1_700_000_000 * 10**9]
    for gap in gaps:
        clock.append(clock[-1] + gap)
    elapsed, expected = 0, []
    for before, now in zip([clock[0], *clock], clock):
        elapsed += max(0, now - before)
        expected.append(1000 + int(elapsed / speed))
    assert scheduled(clock, speed) == expected


@pytest.mark.parametrize("speed", [Fraction(1), Fraction(1, 10**6), Fraction(10**6), Fraction(999_999, 10**6)])
def test_times_centuries_apart_are_due_decades_from_now(speed):
    early, late = scheduled([1, 1 << 62], speed)
    assert early == 1000
    assert late == 1000 + (int((1 << 62) / speed) if speed == 10**6 else late - 1000)
    assert late > 1000 + FARTHEST_NS // 2 or speed == 10**6


def test_packets_without_a_time_have_no_gap():
    assert scheduled([0, 10**18, 0, 10**18 + 5, 0], Fraction(1)) == [1000, 1000, 1000, 1005, 1005]


def test_time_that_goes_back_has_no_gap_and_goes_on_from_there():
    assert scheduled([100, 200, 50, 60, 300], Fraction(1)) == [1000, 1100, 1100, 1110, 1350]


def test_gaps_of_ten_kpps_are_held_over_eight_billion_packets():
    """scapy #1246: a gap below a millisecond was none."""
    hundred_us = parse_rate("10kpps")
    for k in (1, 10, 2**31, 2**32 + 1, 2**33):
        assert pacing.due(hundred_us, k) == k * 100_000
    anchor = 1_000_000_000_000_000_000
    assert scheduled([i * 100_000 + anchor for i in range(1000)], Fraction(1)) == [
        1000 + i * 100_000 for i in range(1000)
    ]
    years = 10 * 365 * 86400 * 10**9
    assert scheduled([anchor, anchor + years, anchor + years + 1], Fraction(1)) == [1000, 1000 + years, 1001 + years]


@pytest.mark.parametrize("options", [{"rate": "2kpps"}, {"rate": "1.024mbps"}, {"speed": "original"}])
def test_no_packet_comes_before_its_time(path, pool, options):
    frames = [bytes(64)] * 60
    data = files.pcap_header() + b"".join(files.pcap_record(f, 5, i * 500) for i, f in enumerate(frames))
    with opened(path, pool, data, **options) as source:
        before = time.monotonic_ns()
        got = 0
        while not source.head.done:
            n = len(source.receive())
            now = time.monotonic_ns()
            got += n
            assert (got - 1) * 500_000 <= now - before
            if got < 60:
                due_ns = source.head.due_ns
                assert due_ns == 0 or due_ns >= before + got * 500_000 - pacing.WAKING_NS
        assert got == 60


def test_the_worker_is_told_when_the_next_packet_is_due(path, pool):
    with opened(path, pool, files.pcap(FRAMES), rate="0.001pps") as source:
        assert len(source.receive()) == 1
        assert source.receive() == []
        anchor = Feed.at(source.part.feed).anchor
        assert source.head.due_ns == anchor + 1_000 * 10**9 - pacing.WAKING_NS
        assert source.receive() == []
        free(source.cache, source.burst.ctypes.data, 0)


def test_a_pass_that_follows_waits_for_the_gap(path, pool):
    with opened(path, pool, files.pcap([b"x"]), loop=2, loop_gap="1000s", speed="original") as source:
        assert len(source.receive()) == 1
        for _ in range(3):
            assert source.receive() == []
        assert source.head.due_ns == Feed.at(source.part.feed).anchor - pacing.WAKING_NS
        assert source.head.due_ns > time.monotonic_ns() + 900 * 10**9


def test_a_packet_that_waits_for_the_pool_is_on_the_schedule_once(path):
    frames = [bytes(3000)] * 6
    with PacketPool(4) as pool, opened(path, pool, files.pcap(frames), rate="1Gpps") as source:
        got = 0
        while not source.head.done:
            n = source.call(32)
            for _ in range(3):
                source.call(0)
            got += n
            free(source.cache, source.burst.ctypes.data, n)
        feed = Feed.at(source.part.feed)
        assert got == 6
        assert feed.pacer.due == feed.pacer.anchor + 6
