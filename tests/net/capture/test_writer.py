"""What is written is read back, byte for byte and nanosecond for nanosecond, by us, by the model and by tshark."""

import contextlib
import os
import random
import resource
import shutil
import socket
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.capture import model
from tests.net.capture.files import FRAMES
from wirespeed.core.frame import Packet
from wirespeed.errors import GraphError, PortError
from wirespeed.net.capture.format import USUAL_SNAPLEN
from wirespeed.net.capture.heading import INTERFACES
from wirespeed.net.capture.outlet import CHUNK
from wirespeed.net.capture.reader import CaptureReader
from wirespeed.net.capture.writer import CaptureWriter, Form

each_suffix = pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
TIME = 1_700_000_000_123_456_789


def numbered_frames(count: int, seed: int = 1) -> list[bytes]:
    """Frames of random sizes, each with its number in front."""
    generator = random.Random(seed)
    return [i.to_bytes(4, "big") + bytes(generator.choice([0, 56, 60, 61, 62, 63, 1510])) for i in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


packets = st.lists(
    st.tuples(
        st.binary(max_size=200), st.integers(0, (1 << 32) * 10**9 - 1), st.integers(0, (1 << 32) - 1),
        st.sampled_from([1, 113, 65535]), st.integers(0, 3), st.text(max_size=10),
    ),
    max_size=20,
)  # fmt: skip


@given(packets)
def test_pcap_keeps_bytes_lengths_and_nanoseconds(folder, made):
    path = folder / "a.pcap"
    with CaptureWriter(path) as writer:
        for data, time, wire, *_ in made:
            writer.write(data, time=time, wire=wire, link=113)
    found = model.read(path.read_bytes())
    assert found.damage is None
    assert [(p.data, p.time, p.wire) for p in found.packets] == [(d, t, w) for d, t, w, *_ in made]
    assert {p.link for p in found.packets} <= {113}


@given(packets)
def test_pcapng_keeps_link_types_interfaces_and_comments_too(folder, made):
    path = folder / "a.pcapng"
    with CaptureWriter(path) as writer:
        for data, time, wire, link, interface, comment in made:
            writer.write(data, time=time, wire=wire, link=link, interface=interface, comment=comment)
    found = model.read(path.read_bytes())
    assert (found.damage, found.faults) == (None, 0)
    assert [(p.data, p.time, p.wire, p.link) for p in found.packets] == [(d, t, w, k) for d, t, w, k, *_ in made]
    pairs = list(dict.fromkeys((link, interface) for *_, link, interface, _ in made))
    assert [pairs[p.interface] for p in found.packets] == [(link, interface) for *_, link, interface, _ in made]
    with CaptureReader(path) as reader:
        comments = ["".join(burst.comments(i)) for burst in reader for i in range(len(burst))]
    assert comments == [comment for *_, comment in made]


@pytest.mark.parametrize("time", [0, 1, 999_999_999, 10**9, TIME, (1 << 32) * 10**9 - 1, -1, -(10**9), 1 << 62])
def test_pcapng_keeps_any_time_and_pcap_those_of_32_bits_of_seconds(tmp_path, time):
    for name in ("a.pcapng", "a.pcap"):
        with CaptureWriter(tmp_path / name) as writer:
            writer.write(b"x", time=time)
        (found,) = model.read((tmp_path / name).read_bytes()).packets
        seconds, rest = divmod(time, 10**9)
        assert found.time == (time if name == "a.pcapng" else seconds % (1 << 32) * 10**9 + rest)


def test_microseconds_are_written_when_asked_for(tmp_path):
    path = tmp_path / "a.pcap"
    with CaptureWriter(path, Form(nanoseconds=False)) as writer:
        writer.write(b"x", time=TIME)
    assert path.read_bytes()[:4] == b"\xd4\xc3\xb2\xa1"
    assert model.read(path.read_bytes()).packets[0].time == TIME // 1000 * 1000


def test_the_form_goes_before_the_suffix(tmp_path):
    with CaptureWriter(tmp_path / "a.pcap", Form(pcapng=True)) as writer:
        writer.write(b"x")
    assert (tmp_path / "a.pcap").read_bytes()[:4] == b"\n\r\r\n"


@each_suffix
def test_a_capture_without_packets_is_one(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    CaptureWriter(path).close()
    found = model.read(path.read_bytes())
    assert (found.packets, found.damage) == ([], None)


@each_suffix
def test_more_than_the_buffer_is_written_whole_and_in_order(tmp_path, suffix):
    path, frames = tmp_path / f"a.{suffix}", numbered_frames(8_000)
    assert sum(map(len, frames)) > 3 * CHUNK
    with CaptureWriter(path) as writer:
        for i, frame in enumerate(frames):
            writer.write(frame, time=TIME + i * 10**8)
    found = model.read(path.read_bytes())
    assert [p.data for p in found.packets] == frames
    assert [p.time for p in found.packets] == [TIME + i * 10**8 for i in range(len(frames))]


@each_suffix
def test_frames_of_every_size_are_written_whole(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    sizes = [1 << 20, 0, 65_536, CHUNK, CHUNK - 16, CHUNK - 40, 1, 1 << 20, CHUNK + 1, 3]
    with CaptureWriter(path, Form(snaplen=1 << 20)) as writer:
        for size in sizes:
            writer.write(os.urandom(16) * (size // 16) + b"e" * (size % 16))
    found = model.read(path.read_bytes())
    assert [len(p.data) for p in found.packets] == sizes
    assert all(p.data.endswith(b"e" * (len(p.data) % 16)) for p in found.packets)
    with pytest.raises(PortError, match="wanted at most"), CaptureWriter(path) as writer:
        writer.write(bytes((1 << 20) + 1))


@each_suffix
def test_a_flush_in_between_changes_nothing(tmp_path, suffix):
    path, frames = tmp_path / f"a.{suffix}", numbered_frames(3_000)
    with CaptureWriter(path) as writer:
        for i, frame in enumerate(frames):
            writer.write(frame)
            if i % 97 == 0:
                writer.flush()
                assert [p.data for p in model.read(path.read_bytes()).packets] == frames[: i + 1] or i > 500
    assert [p.data for p in model.read(path.read_bytes()).packets] == frames


@each_suffix
def test_packets_are_cut_to_the_snap_length_and_their_length_is_kept(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    with CaptureWriter(path, Form(snaplen=61)) as writer:
        for frame in FRAMES:
            writer.write(frame)
    found = model.read(path.read_bytes())
    assert [p.data for p in found.packets] == [f[:61] for f in FRAMES]
    assert [p.wire for p in found.packets] == [len(f) for f in FRAMES]
    with CaptureReader(path) as reader:
        list(reader)
        assert reader.interfaces[0].snaplen == 61


def test_the_usual_snap_length_is_what_other_programs_read(tmp_path):
    with CaptureWriter(tmp_path / "a.pcap") as writer:
        writer.write(bytes(USUAL_SNAPLEN + 1))
    (found,) = model.read((tmp_path / "a.pcap").read_bytes()).packets
    assert (len(found.data), found.wire) == (USUAL_SNAPLEN, USUAL_SNAPLEN + 1)


@pytest.mark.parametrize("snaplen", [0, -1, (1 << 20) + 1])
def test_a_snap_length_out_of_range_is_refused(snaplen):
    with pytest.raises(GraphError, match="snaplen must be"):
        Form(snaplen=snaplen)


def test_a_packet_of_another_link_type_is_refused_by_pcap(tmp_path):
    path = tmp_path / "a.pcap"
    with CaptureWriter(path) as writer:
        writer.write(b"first", link=113)
        with pytest.raises(PortError, match=r"link type 113 only; write a \.pcapng file"):
            writer.write(b"second", link=1)
        writer.write(b"third", link=113)
    assert [p.data for p in model.read(path.read_bytes()).packets] == [b"first", b"third"]


def test_more_interfaces_than_a_file_describes_share_one_of_their_link_type(tmp_path):
    path = tmp_path / "a.pcapng"
    with CaptureWriter(path) as writer:
        for i in range(INTERFACES + 10):
            writer.write(b"x", link=1 + i % 2, interface=i)
        with pytest.raises(PortError):
            writer.write(b"x", link=77)
    found = model.read(path.read_bytes())
    assert [p.link for p in found.packets] == [1 + i % 2 for i in range(INTERFACES + 10)]
    assert {p.interface for p in found.packets[INTERFACES:]} == {0, 1}


def test_a_packet_value_keeps_what_is_known_of_it(tmp_path):
    path = tmp_path / "a.pcap"
    packet = Packet(b"abc", TIME, wire=1500, link=101)
    with CaptureWriter(path) as writer:
        writer.write(packet)
    with CaptureReader(path) as reader:
        assert list(reader.packets()) == [packet]


def test_a_pipe_takes_a_capture_at_its_reader_s_pace():
    reader, writer = os.pipe()
    got = []
    thread = threading.Thread(target=lambda: got.append(os.fdopen(reader, "rb").read()))
    frames = numbered_frames(4_000)
    with CaptureWriter(f"fd={writer}") as capture:
        os.close(writer)
        thread.start()
        for frame in frames:
            capture.write(frame)
    thread.join()
    assert [p.data for p in model.read(got[0]).packets] == frames


def test_a_reader_that_goes_away_is_told():
    ours, theirs = socket.socketpair()
    with ours:
        writer = CaptureWriter(f"fd={ours.fileno()}")
        writer.write(b"x")
        theirs.close()
        with pytest.raises(PortError, match=r"could not be written: (Broken pipe|Connection reset)"):
            writer.close()
        writer.close()


def test_a_full_device_is_told():
    with pytest.raises(PortError, match="cannot write /dev/full: No space left on device"):
        CaptureWriter("/dev/full")


class FileLimit:
    """Lets no file grow beyond some bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *exc) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def write_within(path, frames: list[bytes], limit: int) -> int:
    """Write frames into a file that may not grow beyond ``limit``, then two more without one; how many were lost."""
    writer = CaptureWriter(path)
    with FileLimit(limit):
        for frame in frames:
            with contextlib.suppress(PortError):
                writer.write(frame)
        writer.flush()
    for frame in frames[:2]:
        with contextlib.suppress(PortError):  # it goes on telling of the error, and goes on writing
            writer.write(frame)
    lost = int(writer._memory.record.outlet.lost)
    with contextlib.suppress(PortError):
        writer.close()
    return lost


LIMITS = [0, 1, 23, 24, 25, 60, 100, 1000, 5_000, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 777, 2 * CHUNK, 600_000, 1 << 24]


@each_suffix
@pytest.mark.parametrize("limit", LIMITS)
def test_a_file_that_cannot_grow_stays_a_capture_and_goes_on_when_it_can(tmp_path, suffix, limit):
    path, frames = tmp_path / f"a.{suffix}", numbered_frames(2_500)
    lost = write_within(path, frames, limit)
    found = model.read(path.read_bytes())
    assert (found.damage, found.faults) == (None, 0)
    *got, last, very_last = [p.data for p in found.packets]
    assert [last, very_last] == frames[:2]
    assert len(got) + lost == len(frames)
    numbers = [int.from_bytes(data[:4], "big") for data in got]
    assert numbers == sorted(set(numbers)) and got == [frames[n] for n in numbers]
    assert (lost == 0) == (limit == 1 << 24)
    assert limit < CHUNK or len(got) > 500


def tshark_fields(path, *fields: str) -> list[list[str]]:
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    command = ["tshark", "-r", str(path), "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@each_suffix
def test_tshark_reads_what_we_write(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    with CaptureWriter(path) as writer:
        for i in range(50):
            writer.write(bytes(14 + i), time=TIME + i, wire=100 + i, comment=f"number {i}")
    rows = tshark_fields(path, "frame.time_epoch", "frame.len", "frame.cap_len", "frame.comment")
    comments = [f"number {i}" if suffix == "pcapng" else "" for i in range(50)]
    assert rows == [[f"1700000000.{123456789 + i}", str(100 + i), str(14 + i), comments[i]] for i in range(50)]
