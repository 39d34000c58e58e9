"""A capture as a sink and as a tap: what is written is what came, and what cannot be written is counted."""

import contextlib
import os
import socket

import pytest

from tests.driver import Driver
from tests.net.capture import model
from tests.net.capture.files import FRAMES
from tests.net.capture.test_writer import FileLimit, numbered_frames
from wirespeed.core.frame import Packet
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet import Packet as Record
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import PortError
from wirespeed.jit.libc import copy_in
from wirespeed.net.capture.outlet import CHUNK
from wirespeed.ports.pcap import CaptureTap, PcapPort

each_suffix = pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
TIME = 1_700_000_000_123_456_789


@pytest.fixture(scope="module")
def pool():
    with PacketPool(256) as pool:
        yield pool


def sink(target, pool, **options) -> Driver:
    return Driver(PcapPort(str(target), **options).open("sink", 1), pool=pool)


def tap(target, pool, **options) -> Driver:
    return Driver(CaptureTap(str(target), **options).open("stage", 1), pool=pool)


def bursts(frames: list, size: int = 32) -> list[list]:
    return [frames[i : i + size] for i in range(0, len(frames), size)]


def written(path) -> list[bytes]:
    found = model.read(path.read_bytes())
    assert (found.damage, found.faults) == (None, 0)
    return [p.data for p in found.packets]


@each_suffix
@pytest.mark.parametrize("size", [1, 3, 32])
def test_packets_are_written_in_order_with_all_that_is_known(tmp_path, pool, suffix, size):
    path = tmp_path / f"a.{suffix}"
    packets = [Packet(f, TIME + i * 10**9, wire=len(f) + i, link=113) for i, f in enumerate(numbered_frames(5_000))]
    with sink(path, pool) as driver:
        for burst in bursts(packets, size):
            assert driver.transmit(burst) == 0
        assert driver.head.bytes == sum(map(len, packets))
        assert driver.drops() == {}
    found = model.read(path.read_bytes())
    assert found.damage is None
    assert [(p.data, p.time, p.wire, p.link) for p in found.packets] == [
        (p.data, p.time, p.wire, p.link) for p in packets
    ]


@each_suffix
@pytest.mark.parametrize("room", [1, 63, 64, 100, 2048])
def test_chains_are_written_whole(tmp_path, suffix, room):
    frames = [os.urandom(size) for size in (0, 1, 63, 64, 65, 100, 101, 700, 2048, 3000)]
    path = tmp_path / f"a.{suffix}"
    with PacketPool(4000, HEADROOM + room) as pool, sink(path, pool) as driver:
        for frame in frames:
            assert driver.transmit([frame]) == 0
    assert written(path) == frames


@pytest.mark.parametrize("shift", [0, 1, 63, 100])
def test_data_anywhere_in_the_buffer_is_written_exactly(tmp_path, pool, shift):
    """A copy in whole blocks must not run beyond the buffer: data that ends with it is copied to the byte."""
    path = tmp_path / "a.pcapng"
    with sink(path, pool) as driver:
        for size in (0, 1, 60, 64, 100):
            handle = driver.packet(bytes([size]) * size)
            p = Record.at(handle)
            data = bytes([size]) * size
            p.data = p.capacity - size - shift
            copy_in(p.buffer + p.data, data)
            driver.burst[0] = handle
            assert driver.call(1) == 0
    assert written(path) == [bytes([size]) * size for size in (0, 1, 60, 64, 100)]


def test_pcap_drops_packets_of_another_link_type_and_counts_them(tmp_path, pool):
    path = tmp_path / "a.pcap"
    with sink(path, pool) as driver:
        burst = [Packet(bytes([i]), link=113 if i % 3 else 1) for i in range(1, 12)]
        assert driver.transmit(burst) == 0
        assert driver.drops() == {"wrong_link": 3}
    assert written(path) == [bytes([i]) for i in range(1, 12) if i % 3]


def test_a_file_that_cannot_grow_drops_what_does_not_fit_and_goes_on(tmp_path, pool):
    path, frames = tmp_path / "a.pcap", numbered_frames(3_000)
    with sink(path, pool) as driver:
        with FileLimit(CHUNK + 100_000):
            for burst in bursts(frames):
                assert driver.transmit(burst) == 0
            driver.part.service()
        assert driver.transmit(frames[:5]) == 0
        lost = driver.drops()["write_error"]
        assert driver.part.counters()["trouble"].endswith("File too large")
    got = written(path)
    assert got[-5:] == frames[:5]
    assert len(got) - 5 + lost == len(frames)
    assert lost > 500


def test_what_is_lost_at_the_very_end_is_counted_too(tmp_path, pool):
    driver = sink(tmp_path / "a.pcap", pool)
    with FileLimit(50):
        assert driver.transmit(FRAMES) == 0
        assert driver.drops() == {}
        driver.part.close()
    assert driver.drops() == {"write_error": 8}
    assert driver.part.counters() == {"trouble": f"{tmp_path}/a.pcap could not be written: File too large"}
    driver.release()


def test_a_reader_that_goes_away_ends_the_run_and_what_comes_until_then_is_dropped(pool):
    ours, theirs = socket.socketpair()
    with ours, sink(f"fd={ours.fileno()}", pool) as driver:
        assert driver.transmit(FRAMES) == 0
        theirs.close()
        with pytest.raises(PortError, match=r"could not be written: (Broken pipe|Connection reset)"):
            driver.part.service()
        assert driver.transmit(FRAMES[:3]) == 0
        assert driver.drops() == {"write_error": 11}
        trouble = driver.part.counters()["trouble"]
        assert "Broken pipe" in trouble or "Connection reset" in trouble


def test_a_pipe_that_is_full_refuses_and_takes_the_rest_later(pool):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    frames = numbered_frames(3_000)
    got, refused, waiting = b"", 0, list(frames)
    with sink(f"fd={writer}", pool) as driver:
        os.close(writer)
        while waiting:
            left = driver.transmit(waiting[:32])
            waiting = waiting[32 - left if len(waiting) >= 32 else len(waiting) - left :]
            refused += left
            if left:
                got += os.read(reader, 10_000)
        while driver.part._memory.record.outlet.used:
            driver.part.service()
            with contextlib.suppress(BlockingIOError):
                got += os.read(reader, 10_000)
        assert driver.drops() == {}
    got += os.read(reader, 1 << 20)
    os.close(reader)
    assert refused > 0
    assert [p.data for p in model.read(got).packets] == frames


def test_a_reader_that_takes_nothing_any_more_does_not_hold_up_the_end(pool, monkeypatch):
    monkeypatch.setattr("wirespeed.net.capture.writer.PATIENCE_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        driver = sink(f"fd={ours.fileno()}", pool)
        taken = 0
        while (left := driver.transmit(numbered_frames(32))) == 0:
            taken += 32
        driver.part.close()
        assert 0 < driver.drops()["write_error"] <= taken + 32 - left
        assert "timed out" in driver.part.counters()["trouble"]
        driver.release()


def test_the_service_writes_what_waits(tmp_path, pool):
    path = tmp_path / "a.pcap"
    with sink(path, pool) as driver:
        driver.transmit(FRAMES)
        assert path.read_bytes() == b""
        assert driver.part.service() == pytest.approx(0.1)
        assert written(path) == FRAMES
        driver.transmit(FRAMES[:1])
    assert written(path) == [*FRAMES, FRAMES[0]]


def test_several_workers_write_one_file_burst_by_burst(tmp_path, pool):
    path, frames = tmp_path / "a.pcap", numbered_frames(640)
    part = PcapPort(str(path)).open("sink", 2)
    first, second = (Driver(part, pool=pool, worker=i, workers=2) for i in range(2))
    for i, burst in enumerate(bursts(frames)):
        assert (second if i % 3 else first).transmit(burst) == 0
    first.release()
    second.close()
    assert written(path) == frames


def test_a_tick_and_an_empty_burst_change_nothing(tmp_path, pool):
    with sink(tmp_path / "a.pcap", pool) as driver:
        assert driver.call(0) == 0
        assert driver.transmit([]) == 0
    assert written(tmp_path / "a.pcap") == []


def test_files_are_counted_when_there_are_several(tmp_path, pool):
    with sink(tmp_path / "a.pcap", pool, rotate_size="4096B", snaplen=50) as driver:
        for burst in bursts(numbered_frames(100)):
            driver.transmit(burst)
        counters = driver.part.counters()
    assert counters["files"] == len(list(tmp_path.iterdir())) > 1
    assert counters["cut to snaplen"] > 0
    assert driver.part.counters() == counters


@each_suffix
def test_a_tap_lets_pass_what_it_copies(tmp_path, pool, suffix):
    path, frames = tmp_path / f"a.{suffix}", numbered_frames(2_000)
    with tap(path, pool) as driver:
        for burst in bursts(frames):
            handles = [driver.packet(frame) for frame in burst]
            driver.burst[: len(handles)] = handles
            assert driver.call(len(handles)) == len(handles)
            assert driver.burst[: len(handles)].tolist() == handles
            assert [driver.frame(h).data for h in handles] == burst
            driver.free(handles)
        assert driver.part.counters() == {}
    assert written(path) == frames


def test_a_tap_counts_the_copies_that_it_cannot_write(tmp_path, pool):
    with tap(tmp_path / "a.pcap", pool) as driver, FileLimit(10):
        handles = [driver.packet(frame) for frame in FRAMES]
        driver.burst[:8] = handles
        assert driver.call(8) == 8
        driver.part.service()
        assert driver.call(8) == 8
        assert driver.part.counters()["missed"] == 8
        assert driver.drops() == {}
        driver.free(handles)
