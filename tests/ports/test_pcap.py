"""The capture port's words and options, and whole runs from capture to capture."""

import gzip
import os
import re
import socket
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from tests.net.capture import files, model
from tests.net.capture.files import FRAMES, SAMPLES
from tests.net.capture.test_writer import numbered_frames
from wirespeed.engine.run import run
from wirespeed.errors import GraphError, PortError
from wirespeed.net.capture.reader import CaptureReader
from wirespeed.net.capture.writer import CaptureWriter
from wirespeed.ports import port
from wirespeed.ports.options import Rate
from wirespeed.ports.pcap import CaptureTap, PcapPort


def frames_of(path) -> list[bytes]:
    found = model.read(Path(path).read_bytes())
    assert (found.damage, found.faults) == (None, 0)
    return [p.data for p in found.packets]


def conduct(source: str, sink: str, **how):
    report = run(port(source) >> port(sink), **how)
    assert report.balanced, str(report)
    return report


def test_a_word_becomes_a_port_with_its_options():
    made = port("pcap:in.pcap,loop=3,rate=1.5Mpps,count=2k,strict=yes,snaplen=96,ns=no,format=pcapng,rotate_size=100MB")
    assert isinstance(made, PcapPort)
    assert (made.name, made.target, made.passes, made.count, made.strict) == ("pcap:in.pcap", "in.pcap", 2, 2000, True)
    assert made.rate == Rate(Fraction(1_500_000), "pps")
    assert (made.form.snaplen, made.form.nanoseconds, made.form.pcapng) == (96, False, True)
    assert (made.form.rotate_size, made.form.rotate_ns) == (100_000_000, 0)
    assert port("pcap:in.pcap", loop="inf").passes == -1
    assert port("pcap:in.pcap,rotate_time=60s").form.rotate_ns == 60 * 10**9


@pytest.mark.parametrize(
    ("word", "times"),
    [
        ("max", None),
        ("original", 1),
        ("2.0", 2),
        ("0.1", Fraction(1, 10)),
        ("3x", 3),
        ("1/3", Fraction(1, 3)),
        ("1e-3", Fraction(1, 1000)),
    ],
)
def test_speeds_are_words_or_numbers_of_times(word, times):
    assert port(f"pcap:a,speed={word}").times == times


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("pcap:", "got no target, wanted a path, - or fd=N"),
        ("pcap:a,loop=0", r"pcap option loop: got '0', wanted inf or a whole number of 1 or more; try loop="),
        ("pcap:a,loop=-1", "option loop"),
        ("pcap:-,loop=2", "standard input is read only once"),
        ("pcap:a,speed=fast", "wanted max, original, or a number of times"),
        ("pcap:a,speed=0", "option speed"),
        ("pcap:a,speed=1e9", "option speed"),
        ("pcap:a,speed=1e999999999", "option speed"),
        ("pcap:a,speed=1/0", "option speed"),
        ("pcap:a,speed=nan", "option speed"),
        ("pcap:a,speed=2,rate=1pps", "wanted one of them; leave one out"),
        ("pcap:a,rate=10", "wanted a number with pps or bps"),
        ("pcap:a,snaplen=0", "option snaplen"),
        ("pcap:a,format=erf", "wanted one of pcap, pcapng"),
        ("pcap:a,rotate_size=1kB", "option rotate_size"),
        ("pcap:-,rotate_size=1MB", "rotation needs a file to number"),
        ("pcap:fd=1,rotate_time=1s", "rotation needs a file to number"),
        ("pcap:a,strict=perhaps", "wanted yes or no"),
        ("pcap:a,colour=red", "the options are loop, loop_gap, speed"),
    ],
)
def test_what_cannot_work_is_refused_at_once_in_a_sentence(word, message):
    with pytest.raises(GraphError, match=message):
        port(word)


def test_every_option_has_a_word_a_default_and_a_sentence():
    for name, option in PcapPort.OPTIONS.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert option.type and option.sentence[0].islower() and not option.sentence.endswith(".")
        if option.default is not None:
            option.parse(option.default)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*: No such file or directory; check the path"),
        (b"", "is empty; wanted pcap or pcapng, plain or compressed"),
        (b"PK\3\4 a zip", "begins with the bytes 504b0304, which no capture file does"),
    ],
)
def test_a_file_that_is_no_capture_is_refused_before_anything_runs(tmp_path, content, message):
    path = tmp_path / "a.pcap"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PortError, match=message):
        run(port(f"pcap:{path}") >> port("null:"))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_run_from_capture_to_pcapng_keeps_every_packet(tmp_path, name):
    (tmp_path / "in").write_bytes(SAMPLES[name])
    conduct(f"pcap:{tmp_path}/in", f"pcap:{tmp_path}/out.pcapng")
    expected, found = model.read(SAMPLES[name]), model.read((tmp_path / "out.pcapng").read_bytes())
    assert [p[:4] for p in found.packets] == [p[:4] for p in expected.packets]


def test_a_run_from_nanoseconds_to_nanoseconds_gives_the_same_file(tmp_path):
    frames = numbered_frames(20_000)
    with CaptureWriter(tmp_path / "in.pcap") as writer:
        for i, frame in enumerate(frames):
            writer.write(frame, time=1_700_000_000_000_000_000 + i * 123_456_789, wire=len(frame) + i % 3)
    report = conduct(f"pcap:{tmp_path}/in.pcap", f"pcap:{tmp_path}/out.pcap")
    assert (tmp_path / "out.pcap").read_bytes() == (tmp_path / "in.pcap").read_bytes()
    assert report.stage(f"pcap:{tmp_path}/in.pcap").bytes == sum(map(len, frames))


def test_comments_and_other_options_go_from_pcapng_to_pcapng(tmp_path):
    source = (
        files.section(">")
        + files.interface(order=">")
        + b"".join(
            files.enhanced(
                FRAMES[i], i, extra=files.options((1, b"number %d" % i), (4, bytes(7) + b"\3"), order=">"), order=">"
            )
            for i in range(8)
        )
        + files.enhanced(b"none", 9, order=">")
    )
    (tmp_path / "in.pcapng").write_bytes(source)
    conduct(f"pcap:{tmp_path}/in.pcapng", f"pcap:{tmp_path}/out.pcapng", pool=64)
    with CaptureReader(tmp_path / "out.pcapng") as reader:
        got = [burst.options(i) for burst in reader for i in range(len(burst))]
    assert got == [[(1, b"number %d" % i), (4, b"\3" + bytes(7))] for i in range(8)] + [[]]


@pytest.mark.parametrize("pack", [gzip.compress, pytest.param(lambda d: d, id="plain")])
def test_standard_input_and_output_are_captures(tmp_path, pack):
    program = "import wirespeed as ws; r = ws.run(ws.port('pcap:-') >> ws.port('pcap:-')); assert r.balanced, r"
    frames = numbered_frames(3_000)
    done = subprocess.run(
        [sys.executable, "-c", program], input=pack(files.pcap(frames)), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert [p.data for p in model.read(done.stdout).packets] == frames


def test_a_run_from_fifo_to_fifo_ends_with_its_writer(tmp_path):
    source, sink = tmp_path / "source", tmp_path / "sink"
    os.mkfifo(source)
    os.mkfifo(sink)
    frames, got = numbered_frames(5_000), []
    threads = [
        threading.Thread(target=lambda: source.write_bytes(files.pcap(frames))),
        threading.Thread(target=lambda: got.append(sink.read_bytes())),
    ]
    for thread in threads:
        thread.start()
    conduct(f"pcap:{source}", f"pcap:{sink}")
    for thread in threads:
        thread.join()
    assert [p.data for p in model.read(got[0]).packets] == frames


def test_a_slow_reader_slows_the_run_and_nothing_is_lost():
    ours, theirs = socket.socketpair()
    frames = numbered_frames(8_000)
    out = []

    def read() -> None:
        with theirs:
            while chunk := theirs.recv(4096):
                out.append(chunk)

    source_reader, source_writer = os.pipe()
    feeder = threading.Thread(target=lambda: os.fdopen(source_writer, "wb").write(files.pcap(frames)))
    thread = threading.Thread(target=read)
    feeder.start()
    thread.start()
    with ours:
        report = conduct(f"pcap:fd={source_reader}", f"pcap:fd={ours.fileno()}")
        assert report.packets == len(frames)
    thread.join()
    feeder.join()
    os.close(source_reader)
    assert [p.data for p in model.read(b"".join(out)).packets] == frames


def test_a_tap_writes_copies_and_lets_all_pass(tmp_path):
    frames = numbered_frames(4_000)
    (tmp_path / "in.pcap").write_bytes(files.pcap(frames))
    tap = CaptureTap(str(tmp_path / "tap.pcapng"))
    report = run(port(f"pcap:{tmp_path}/in.pcap") >> tap >> port(f"pcap:{tmp_path}/out.pcap"))
    assert report.balanced
    assert frames_of(tmp_path / "tap.pcapng") == frames_of(tmp_path / "out.pcap") == frames


def test_a_tap_that_cannot_write_lets_all_pass(tmp_path):
    reader, writer = os.pipe()
    (tmp_path / "in.pcap").write_bytes(files.pcap(numbered_frames(20_000)))
    tap = CaptureTap(f"fd={writer}")
    os.close(reader)
    report = run(port(f"pcap:{tmp_path}/in.pcap") >> tap >> port("null:"))
    os.close(writer)
    assert report.balanced and report.packets == 20_000
    counters = report.stage(tap.name).counters
    assert counters["missed"] > 0 and "Broken pipe" in counters["trouble"]


def test_two_workers_share_one_file_in_and_one_file_out(tmp_path):
    frames = numbered_frames(30_000)
    (tmp_path / "in.pcap").write_bytes(files.pcap(frames))
    conduct(f"pcap:{tmp_path}/in.pcap", f"pcap:{tmp_path}/out.pcap", workers=2)
    assert sorted(frames_of(tmp_path / "out.pcap")) == sorted(frames)


def test_two_runs_of_one_port_are_alike(tmp_path):
    (tmp_path / "in.pcap").write_bytes(files.pcap(FRAMES))
    graph = port(f"pcap:{tmp_path}/in.pcap") >> port(f"pcap:{tmp_path}/out.pcap")
    first = run(graph), frames_of(tmp_path / "out.pcap")
    second = run(graph), frames_of(tmp_path / "out.pcap")
    assert first[1] == second[1] == FRAMES
    assert first[0].packets == second[0].packets == 8


def test_damage_is_told_in_the_report_and_the_good_packets_go_on(tmp_path):
    (tmp_path / "cut.pcap").write_bytes(files.pcap(FRAMES)[:-1])
    report = conduct(f"pcap:{tmp_path}/cut.pcap", f"pcap:{tmp_path}/out.pcap")
    assert "ends in the middle of a record, at packet 8, byte" in str(report)
    assert frames_of(tmp_path / "out.pcap") == FRAMES[:-1]


@pytest.mark.parametrize("pack", [gzip.compress, pytest.param(lambda d: d, id="plain")])
def test_an_endless_loop_streams_with_few_buffers(tmp_path, pack):
    """DPDK bug 595: more packets in the file than buffers ended an endless replay silently."""
    frames = numbered_frames(4_096)
    (tmp_path / "in.pcap").write_bytes(pack(files.pcap(frames)))
    report = conduct(f"pcap:{tmp_path}/in.pcap,loop=inf,count=20000", f"pcap:{tmp_path}/out.pcap", pool=512)
    assert report.packets == 20_000
    assert frames_of(tmp_path / "out.pcap") == (frames * 5)[:20_000]


def test_memory_does_not_grow_with_the_length_of_a_run(tmp_path):
    program = (
        "import resource, sys, wirespeed as ws\n"
        "def peak(loop):\n"
        "    r = ws.run(ws.port('pcap:' + sys.argv[1], loop=loop) >> ws.port('null:'))\n"
        "    assert r.balanced and r.received == loop * 20_000, r\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(peak(1), peak(16))"
    )
    (tmp_path / "in.pcap").write_bytes(files.pcap([bytes(1500)] * 20_000))
    command = [sys.executable, "-c", program, str(tmp_path / "in.pcap")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    short, long = map(int, done.stdout.split())
    assert long - short < 32 << 10


def test_a_run_from_a_file_to_itself_is_refused_and_the_file_is_whole(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(files.pcap(FRAMES))
    with pytest.raises(PortError, match="is being read or written"):
        run(port(f"pcap:{path}") >> port(f"pcap:{path}"))
    assert frames_of(path) == FRAMES


@pytest.mark.parametrize("name", ["out.pcap.gz", "out.pcapng.zst", "out.pcap.bz2", "out.pcap.xz"])
def test_a_name_that_says_compressed_is_refused_for_output(name: str, tmp_path: Path) -> None:
    with pytest.raises(PortError, match="output is not compressed"):
        PcapPort(str(tmp_path / name)).open("sink", 1)
    assert not (tmp_path / name).exists()
