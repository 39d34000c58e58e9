"""A capture in several files: no packet is lost, doubled or out of order between them."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.capture import model
from tests.net.capture.test_writer import FileLimit, numbered_frames
from wirespeed.errors import PortError
from wirespeed.jit.libc import copy_in
from wirespeed.net.capture.heading import Writer
from wirespeed.net.capture.writer import CaptureWriter, Form, numbered

each_suffix = pytest.mark.parametrize("suffix", ["pcap", "pcapng"])


def write(folder, name: str, form: Form, frames, times=None) -> list[model.Read]:
    """Write frames in several files; what each file holds, in order of their names."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    with CaptureWriter(folder / name, form) as writer:
        for i, frame in enumerate(frames):
            writer.write(frame, time=times[i] if times else i)
    return [model.read(path.read_bytes()) for path in sorted(folder.iterdir())]


def all_frames(paths) -> list[bytes]:
    return [frame for part in frames_of([model.read(path.read_bytes()) for path in paths]) for frame in part]


def frames_of(found: list[model.Read]) -> list[list[bytes]]:
    assert all((f.damage, f.faults) == (None, 0) for f in found)
    return [[p.data for p in f.packets] for f in found]


@each_suffix
@pytest.mark.parametrize("size", [4096, 10_000, 262_144, 300_000, 700_000])
def test_files_are_as_large_as_is_allowed_and_not_larger(tmp_path, suffix, size):
    frames = numbered_frames(4_000)
    found = write(tmp_path / "out", f"a.{suffix}", Form(rotate_size=size), frames)
    parts = frames_of(found)
    assert [frame for part in parts for frame in part] == frames
    assert len(parts) > 1
    for part, path in zip(parts, sorted((tmp_path / "out").iterdir())):
        assert path.stat().st_size <= size + (32 if suffix == "pcapng" else 0)  # an interface may be described last
        following = frames[sum(len(p) for p in parts[: parts.index(part) + 1]) :]
        assert not following or path.stat().st_size + len(following[0]) + 40 > size


def test_files_are_numbered_from_one_before_the_suffix(tmp_path):
    write(tmp_path / "out", "a.b.pcap", Form(rotate_size=4096), numbered_frames(30))
    names = sorted(os.listdir(tmp_path / "out"))
    assert names == [f"a.b-{i + 1:05}.pcap" for i in range(len(names))]
    assert len(names) > 2


@given(gaps=st.lists(st.integers(-5, 30), min_size=1, max_size=30), period=st.integers(1, 40))
def test_files_are_as_long_in_time_as_is_allowed(tmp_path_factory, gaps, period):
    times = [sum(gaps[: i + 1]) + 1000 for i in range(len(gaps))]
    frames = [bytes([i]) for i in range(len(gaps))]
    parts = frames_of(write(tmp_path_factory.getbasetemp() / "timed", "a.pcap", Form(rotate_ns=period), frames, times))
    expected: list[list[bytes]] = []
    begin = None
    for frame, time in zip(frames, times):
        if begin is None or time - begin >= period:
            expected.append([])
            begin = time
        expected[-1].append(frame)
    assert parts == expected


def test_a_packet_larger_than_the_limit_has_a_file_of_its_own(tmp_path):
    frames = [b"a" * 10, b"b" * 9000, b"c" * 10]
    assert frames_of(write(tmp_path / "out", "a.pcap", Form(rotate_size=4096), frames)) == [[f] for f in frames]


def test_every_file_of_pcapng_describes_the_interfaces_anew(tmp_path):
    with CaptureWriter(tmp_path / "a.pcapng", Form(rotate_size=4096)) as writer:
        for i in range(500):
            writer.write(i.to_bytes(2, "big"), link=1 + i % 3)
    packets = [p for path in sorted(tmp_path.iterdir()) for p in model.read(path.read_bytes()).packets]
    assert [p.link for p in packets] == [1 + i % 3 for i in range(500)]


def test_a_next_file_that_cannot_be_opened_loses_no_packet(tmp_path):
    (tmp_path / "a-00002.pcap").mkdir()
    frames = numbered_frames(40)
    with pytest.raises(PortError, match="Is a directory"):
        writer = CaptureWriter(tmp_path / "a.pcap", Form(rotate_size=4096))
        for frame in frames:
            try:
                writer.write(frame)
            except PortError:
                pass  # said each time, and the packet is written all the same
        writer.close()
    names = [p for p in sorted(tmp_path.iterdir()) if p.is_file()]
    assert [p.name for p in names[:2]] == ["a-00001.pcap", "a-00003.pcap"]
    assert all_frames(names) == frames


def test_numbers_end_without_writing_over_the_first_file(tmp_path):
    writer = CaptureWriter(tmp_path / "a.pcap", Form(rotate_size=4096))
    record = writer._memory.record
    copy_in(record.digits, b"99998")
    frames = numbered_frames(60)
    for frame in frames:
        try:
            writer.write(frame)
        except PortError:
            pass
    with pytest.raises(PortError):
        writer.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-00001.pcap", "a-99999.pcap"]
    assert all_frames(sorted(tmp_path.iterdir())) == frames


def test_rotation_goes_on_after_a_write_that_failed(tmp_path):
    frames = numbered_frames(2_000)
    writer = CaptureWriter(tmp_path / "a.pcapng", Form(rotate_size=1 << 20))
    with FileLimit(300_000):
        for frame in frames:
            try:
                writer.write(frame)
            except PortError:
                pass
        writer.flush()
    lost = Writer.at(writer._memory.address).outlet.lost
    with pytest.raises(PortError):
        writer.close()
    parts = frames_of([model.read(path.read_bytes()) for path in sorted(tmp_path.iterdir())])
    assert lost > 0
    assert sum(map(len, parts)) == len(frames) - lost


def test_rotation_needs_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "fifo-00001")
    reader = os.open(tmp_path / "fifo-00001", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(PortError, match="not a regular file, which rotation needs"):
        CaptureWriter(tmp_path / "fifo", Form(rotate_size=4096))
    os.close(reader)


def test_a_name_that_is_too_long_is_refused():
    assert numbered("a/b.pcap") == ("a/b-00001.pcap", 4)
    with pytest.raises(PortError, match="shorten it"):
        numbered("x" * 9000)
