"""Captures read from Python: bursts, packets, descriptions, and how the end is told."""

import bz2
import gzip
import io
import logging
import lzma
import os
import socket
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
import zstandard

from tests.net.capture import files, model
from tests.net.capture.files import FRAMES, SAMPLES
from wirespeed.errors import PortError
from wirespeed.net.capture import scan
from wirespeed.net.capture.format import COMMENT
from wirespeed.net.capture.reader import CaptureReader

PACKERS = [gzip.compress, bz2.compress, lzma.compress, zstandard.compress]
each_sample = pytest.mark.parametrize("name", SAMPLES)
each_packer = pytest.mark.parametrize("pack", PACKERS, ids=["gzip", "bzip2", "xz", "zstd"])


def expected(data: bytes) -> list[tuple]:
    return [(p.data, p.time, p.wire, p.link, p.interface) for p in model.read(data).packets]


def read(source) -> list[tuple]:
    with CaptureReader(source) as reader:
        return [
            (burst.data(i), *(int(column[i]) for column in (burst.time, burst.wire, burst.link, burst.interface)))
            for burst in reader
            for i in range(len(burst))
        ]


@each_sample
def test_a_file_is_read_as_the_model_reads_it(name, tmp_path):
    path = tmp_path / "a capture without a suffix"
    path.write_bytes(SAMPLES[name])
    assert read(path) == read(str(path)) == expected(SAMPLES[name])


@each_sample
def test_an_open_file_is_read(name):
    assert read(io.BytesIO(SAMPLES[name])) == expected(SAMPLES[name])


@each_packer
@each_sample
def test_a_compressed_file_is_told_by_its_content(pack, name, tmp_path):
    path = tmp_path / "capture.pcap"
    path.write_bytes(pack(SAMPLES[name]))
    assert read(path) == expected(SAMPLES[name])
    assert read(io.BytesIO(path.read_bytes())) == expected(SAMPLES[name])


@each_packer
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_a_fifo_is_read_as_it_is_written(pack, piece, tmp_path):
    path, data = tmp_path / "fifo", pack(SAMPLES["pcapng of all blocks"])
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as fifo:
            for at in range(0, len(data), piece):
                fifo.write(data[at : at + piece])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read(path) == expected(SAMPLES["pcapng of all blocks"])
    finally:
        thread.join()


def test_a_socket_is_read_up_to_its_end():
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(SAMPLES["pcap"])
        theirs.close()
        assert read(ours.fileno()) == expected(SAMPLES["pcap"])


def test_packets_of_a_stream_are_given_before_it_ends():
    reader, writer = os.pipe()
    with CaptureReader(reader) as capture:
        os.write(writer, files.pcap(FRAMES[:3]) + b"\0\0")
        assert len(capture.read()) == 3
        os.write(writer, files.pcap_record(FRAMES[4])[2:])
        assert capture.read().data(0) == FRAMES[4]
        os.close(writer)
        assert capture.read() is None
        assert capture.damage is None
    os.close(reader)


def test_a_file_larger_than_the_window_is_read_whole():
    frames = [i.to_bytes(4, "big") * (i % 300) for i in range(5_000)]
    for data in (files.pcap(frames), files.pcapng(frames)):
        assert [p[0] for p in read(io.BytesIO(data))] == frames


def test_columns_are_numpy_arrays_over_the_entries():
    with CaptureReader(io.BytesIO(files.pcap(FRAMES))) as reader:
        burst = reader.read()
        assert burst.captured.tolist() == burst.wire.tolist() == [len(f) for f in FRAMES]
        assert burst.time.dtype == np.int64
        assert burst.time.tolist() == [i * 1_000_001_000 for i in range(8)]
        assert burst.address[1] - burst.address[0] == len(FRAMES[0]) + 16


def test_packets_are_values_that_stay_good():
    with CaptureReader(io.BytesIO(files.pcap(FRAMES * 1000, link=101))) as reader:
        packets = list(reader.packets())
    assert [p.data for p in packets] == FRAMES * 1000
    assert {p.link for p in packets} == {101}
    assert packets[3].time == 3_000_003_000


def test_sections_interfaces_and_comments_are_told():
    with CaptureReader(io.BytesIO(SAMPLES["pcapng of all blocks"])) as reader:
        comments = [burst.comments(i) for burst in reader for i in range(len(burst))]
        assert comments == [("größer",), (), (), ("an old one",), ("x",), (), ()]
        first, second, third = reader.sections
        assert (first.hardware, first.application, first.comments) == ("hardware", "this test", ("a section",))
        assert (first.swapped, second.swapped, third.swapped) == (False, True, False)
        assert first.version == (1, 0)
        lan, other, big, again = reader.interfaces
        assert (lan.name, lan.resolution, lan.comments, lan.link) == ("lan0", Fraction(1, 10**9), ("an interface",), 1)
        assert (other.link, other.snaplen, other.resolution, other.offset_s) == (113, 96, Fraction(1, 1 << 20), -3600)
        assert (big.number, big.resolution, again.number) == (2, Fraction(1, 10**6), 3)


def test_options_of_packets_are_told_with_their_codes():
    with CaptureReader(io.BytesIO(SAMPLES["pcapng of all blocks"])) as reader:
        burst = reader.read()
        assert burst.options(0) == [(COMMENT, "größer".encode()), (2, b"\1\0\0\0")]


def test_a_pcap_file_has_one_interface():
    with CaptureReader(io.BytesIO(files.pcap(FRAMES, magic=0xA1B23C4D, link=0x34000065))) as reader:
        list(reader)
        (only,) = reader.interfaces
        assert (only.link, only.snaplen, only.resolution) == (101, 65535, Fraction(1, 10**9))
        assert reader.sections == ()


def test_damage_ends_the_reading_and_is_told_and_logged(caplog):
    data = files.pcap(FRAMES)
    with CaptureReader(io.BytesIO(data[:-5])) as reader, caplog.at_level(logging.WARNING):
        assert sum(len(burst) for burst in reader) == 7
        assert (reader.damage.what, reader.damage.offset, reader.damage.packet) == (scan.CUT_SHORT, len(data) - 144, 8)
        assert reader.read() is None
    (message,) = caplog.messages
    assert message.endswith(
        f"ends in the middle of a record, at packet 8, byte {len(data) - 144}; the 7 packets before are good"
    )


def test_damage_is_raised_after_the_good_packets_when_strict(tmp_path):
    path = tmp_path / "cut.pcap"
    path.write_bytes(files.pcap(FRAMES)[:-5])
    with CaptureReader(path, strict=True) as reader:
        assert len(reader.read()) == 7
        with pytest.raises(PortError, match="ends in the middle of a record, at packet 8"):
            reader.read()


def test_faults_are_counted_and_passed_over():
    data = files.section(version=(2, 0)) + files.interface() + files.enhanced(b"x")
    with CaptureReader(io.BytesIO(data)) as reader:
        assert sum(len(burst) for burst in reader) == 1
        assert (reader.faults, reader.fault.what, reader.damage) == (1, scan.VERSION, None)


@each_packer
def test_a_compressed_file_cut_short_gives_what_is_there(pack, tmp_path, caplog):
    path = tmp_path / "cut"
    frames = [os.urandom(1000) for _ in range(3000)]
    path.write_bytes(pack(files.pcap(frames))[:-1_000_000])
    with CaptureReader(path) as reader:
        got = [p.data for p in reader.packets()]
        assert got == frames[: len(got)]
        assert 1000 < len(got) < 3000 - 900
        assert "too early" in str(reader.damage)


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"", scan.EMPTY), (b"\xd4\xc3", scan.CUT_SHORT), (b"PK\3\4 and more", scan.NOT_A_CAPTURE), (b"\xd4\xc3\xb2\xa1", scan.CUT_SHORT)],
)  # fmt: skip
def test_what_is_no_capture_is_damage_in_its_first_bytes(data, what):
    with CaptureReader(io.BytesIO(data)) as reader:
        assert list(reader) == []
        assert (reader.damage.what, reader.damage.offset, reader.damage.packet) == (what, 0, 1)
        assert str(reader.damage)


def test_a_file_object_that_gives_short_reads_is_read_whole():
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.data = io.BytesIO(gzip.compress(SAMPLES["pcapng"]))

        def read(self, size: int = -1) -> bytes:
            return self.data.read(min(size, 7))

    assert read(Slow()) == expected(SAMPLES["pcapng"])


def test_a_reader_gives_back_descriptors_and_memory(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(SAMPLES["pcap"])
    before = set(os.listdir("/proc/self/fd"))
    for source in (path, "/no/such/file", tmp_path):
        for _ in range(3):
            try:
                with CaptureReader(source) as reader:
                    reader.read()
            except PortError:
                pass
    assert set(os.listdir("/proc/self/fd")) == before
    reader.close()
    assert reader.read() is None


def test_two_readers_in_one_process_never_meet():
    with CaptureReader(io.BytesIO(SAMPLES["pcap"])) as one, CaptureReader(io.BytesIO(SAMPLES["pcapng"])) as other:
        first, second = one.read(), other.read()
        assert first.data(0) == second.data(0) == FRAMES[0]
        assert (one.interfaces[0].snaplen, other.interfaces[0].snaplen) == (65535, 0)


def test_memory_stays_bounded_whatever_comes_through_a_pipe():
    reader, writer = os.pipe()
    record = files.pcap_record(bytes(1400)) * 700

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(files.pcap_header())
            for _ in range(100):
                pipe.write(record)

    thread = threading.Thread(target=write)
    thread.start()
    with CaptureReader(reader) as capture:
        capture.read()
        before = resident()
        total = sum(len(burst) for burst in capture)
        after = resident()
    thread.join()
    os.close(reader)
    assert total > 69_000
    assert after - before < 20 << 20


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_stream_that_pauses_is_waited_for():
    reader, writer = os.pipe()

    def write() -> None:
        for piece in (SAMPLES["pcap"][:30], SAMPLES["pcap"][30:]):
            time.sleep(0.02)
            os.write(writer, piece)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    assert read(reader) == expected(SAMPLES["pcap"])
    thread.join()
    os.close(reader)
