"""``wirespeed run`` from its words to its report and exit code, on pipes and on a terminal."""

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from pathlib import Path

import pytest
import scapy.contrib.mpls  # noqa: F401  (has scapy look behind labels)
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import RawPcapNgReader, RawPcapReader

from tests.cli.terminal import PATIENCE_S, ROOT, Terminal, wirespeed
from wirespeed.cli import main

DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"
ONE_HOP = str(ROOT / "examples" / "one_hop.py")
FAN_OUT = str(ROOT / "examples" / "fan_out.py")

# A stage that never looks at its stop word, whatever happens.
HANGS = '''
import numpy as np
from tests.elements import TestElement
from wirespeed.core.stage import Head
from wirespeed.jit.intrinsics import load_u64, pause
from wirespeed.jit.kernel import stage


@stage
def hang(state, burst, n):
    """Wait for a stop word that no engine writes."""
    while load_u64(Head(state).stop) != np.uint64(0xFFFF_FFFF_FFFF):
        pause()
    return n


f = TestElement("hang", hang)
'''


def test_a_run_ends_with_its_source_and_prints_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "null:count=1000", "null:"]) == 0
    out, err = capsys.readouterr()
    assert "1,000 packets" in out and "books balanced" in out
    assert err == ""


def test_json_is_all_that_standard_output_gets() -> None:
    done = wirespeed("run", "--json", "null:count=1000,size=100", "null:")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["packets"], report["balanced"], report["finished"]) == (1000, True, True)
    assert [s["bytes"] for s in report["stages"]] == [100_000, 100_000]


def test_workers_share_a_run_and_cores_pin_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "null:count=1001", "null:", "--json", "--workers", "3", "--cores", "0", "--burst", "7"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["packets"] == 1001
    assert [w["core"] for w in report["workers"]] == [0, 0, 0]


def test_as_many_workers_as_cores_unless_said_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "null:count=10", "null:", "--json", "--cores", "0"]) == 0
    assert [w["core"] for w in json.loads(capsys.readouterr().out)["workers"]] == [0]


def test_seconds_end_a_run_that_has_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "null:", "null:", "--seconds", "50ms", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["packets"] > 0 and report["balanced"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_ends_a_run_with_its_report(number: signal.Signals) -> None:
    with Terminal("run", "null:", "null:") as terminal:
        terminal.wait_for("packets/s")
        terminal.signal(number)
        code, out = terminal.end()
    assert code == 0
    assert "books balanced" in out
    assert "Traceback" not in terminal.shown


def test_a_terminal_that_goes_away_ends_a_run_with_its_files_whole_and_its_report_in_a_file(tmp_path: Path) -> None:
    """The terminal is the process's own, as of a shell over ssh; its other side is closed as when the line is cut."""
    master, slave = pty.openpty()
    words = ["run", "generator:rate=10kpps", "pcap:out.pcap"]
    with open(tmp_path / "report.txt", "w") as report:
        process = subprocess.Popen(
            [sys.executable, "-m", "wirespeed", *words], stdin=slave, stdout=report, stderr=slave, cwd=tmp_path,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )  # fmt: skip
    os.close(slave)
    try:
        shown = b""
        while b"packets/s" not in shown:
            shown += os.read(master, 65536)
        os.close(master)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    said = (tmp_path / "report.txt").read_text()
    assert "books balanced" in said
    (written,) = [line.split()[1] for line in said.splitlines() if line.startswith("pcap:out.pcap  ")]
    assert len(frames(tmp_path / "out.pcap")) == int(written.replace(",", "")) > 0


def test_a_run_that_is_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    """As nohup has it: the signal is ignored before the run begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", "run", "null:", "pcap:out.pcap"], stdout=subprocess.PIPE, text=True,
        cwd=tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    try:
        while not (tmp_path / "out.pcap").exists() or (tmp_path / "out.pcap").stat().st_size < 10_000:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0 and "books balanced" in out


def test_a_second_interrupt_leaves_even_a_stage_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    with Terminal("run", "null:", "hangs.py", "null:", cwd=tmp_path) as terminal:
        terminal.wait_for("packets/s")
        terminal.signal(signal.SIGINT)
        terminal.wait_for("still stopping; Ctrl-C again leaves at once")
        terminal.signal(signal.SIGINT)
        code, _ = terminal.end()
    assert code == 130
    assert "left at once; packets on their way are lost" in terminal.shown


def test_the_table_is_shown_on_a_terminal_and_taken_away() -> None:
    with Terminal("run", "null:", "null:", "--seconds", "1") as terminal:
        code, out = terminal.end()
    assert code == 0 and "books balanced" in out
    assert "cycles/packet" in terminal.shown and terminal.shown.rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize("how", [{"words": ["--no-live"]}, {"env": {"TERM": "dumb"}}], ids=["no-live", "dumb"])
def test_no_table_where_it_is_not_wanted_or_cannot_be(how: dict[str, object]) -> None:
    words = how.pop("words", [])
    with Terminal("run", "null:", "null:", "--seconds", "1.5", *words, **how) as terminal:  # type: ignore[misc, arg-type]
        code, _ = terminal.end()
    assert code == 0
    assert "\x1b" not in terminal.shown and "cycles/packet  " not in terminal.shown


# ---------------------------------------------------------------------------------------------------------------------
# Captures


def frames(path: Path) -> list[bytes]:
    """The frames of a capture, as scapy reads it."""
    reader = RawPcapNgReader if path.suffix == ".pcapng" else RawPcapReader
    with reader(str(path)) as capture:
        return [data for data, *_ in capture]


def hops(packet: Packet) -> int | None:
    """The time to live in the packet's first IPv4 header, before any tunnel or error message."""
    return packet[IP].ttl if IP in packet else None


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with an ``in.pcap``."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO, "in.pcap")
    return tmp_path


def test_the_main_command_writes_each_packet_that_has_hops_left_with_one_less(desk: Path) -> None:
    assert main(["run", "pcap:in.pcap", ONE_HOP, "pcap:out.pcap"]) == 0
    sent = [Ether(f) for f in frames(desk / "in.pcap") if (hops(Ether(f)) or 0) > 1]
    got = [Ether(f) for f in frames(desk / "out.pcap")]
    assert [hops(p) for p in got] == [(hops(p) or 0) - 1 for p in sent]
    for before, after in zip(sent, got, strict=True):
        before[IP].ttl -= 1
        del before[IP].chksum
        assert bytes(before) == bytes(after)


def test_further_outputs_get_what_the_function_sends_there(desk: Path) -> None:
    words = ["run", "pcap:in.pcap", FAN_OUT, "pcap:tcp.pcap", "--output", "1=pcap:udp.pcap"]
    assert main([*words, "--output", "by_protocol.2=pcap:other.pcap", "--no-live"]) == 0
    parts = [frames(desk / f"{name}.pcap") for name in ("tcp", "udp", "other")]
    assert Counter(f for part in parts for f in part) == Counter(frames(desk / "in.pcap"))
    assert [all(Ether(f).haslayer(kind) for f in part) for kind, part in zip(("TCP", "UDP"), parts, strict=False)]
    assert min(map(len, parts)) > 0


def test_outputs_with_one_word_meet_in_one_file(desk: Path) -> None:
    words = ["run", "pcap:in.pcap", FAN_OUT, "pcap:some.pcap", "--output", "1=pcap:some.pcap", "--output", "2=null:"]
    assert main(words) == 0
    carried = [f for f in frames(desk / "in.pcap") if Ether(f).haslayer("TCP") or Ether(f).haslayer("UDP")]
    assert abs(len(frames(desk / "some.pcap")) - len(carried)) < 40  # scapy sees ports in tunnels and fragments, too


def test_a_tap_captures_what_passes_a_stage(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taps = ["--tap", "in.pcap=before.pcapng", "--tap", "one_hop=after.pcapng"]
    assert main(["run", "pcap:in.pcap", ONE_HOP, "pcap:out.pcap", *taps]) == 0
    assert frames(desk / "before.pcapng") == frames(desk / "in.pcap")
    assert frames(desk / "after.pcapng") == frames(desk / "out.pcap")
    assert "books balanced" in capsys.readouterr().out


def test_a_tap_with_an_equals_sign_in_its_file_is_read_from_the_stage_on(desk: Path) -> None:
    assert main(["run", "pcap:in.pcap", ONE_HOP, "null:", "--tap", "one_hop=a=b.pcapng"]) == 0
    assert (desk / "a=b.pcapng").exists()


TAPS = [
    (["x=y.pcapng"], "wanted STAGE=FILE such as pcap:in.pcap=x.pcapng; the stages are pcap:in.pcap, one_hop and null:"),
    (["one_hpo=y.pcapng"], "did you mean 'one_hop'?"),
    (["one_hop"], "wanted a file too: one_hop=x.pcapng"),
    (["one_hop=a.pcapng", "one_hop=b.pcapng"], "one_hop is tapped twice"),
    (["one_hop=nowhere/a.pcapng"], "nowhere/a.pcapng"),
    (["one_hop="], "pcap"),
]


@pytest.mark.parametrize(("words", "message"), TAPS, ids=[" ".join(words) for words, _ in TAPS])
def test_a_tap_that_cannot_be_is_told(
    words: list[str], message: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [part for word in words for part in ("--tap", word)]
    assert main(["run", "pcap:in.pcap", ONE_HOP, "null:", *options]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_packets_on_standard_output_keep_the_report_off_it(desk: Path) -> None:
    command = [sys.executable, "-m", "wirespeed", "run", "pcap:-", ONE_HOP, "pcap:-"]
    with open("in.pcap", "rb") as capture:
        done = subprocess.run(command, stdin=capture, capture_output=True, timeout=PATIENCE_S)
    (desk / "piped.pcap").write_bytes(done.stdout)
    assert done.returncode == 0
    assert b"books balanced" in done.stderr
    assert main(["run", "pcap:in.pcap", ONE_HOP, "pcap:out.pcap"]) == 0
    assert frames(desk / "piped.pcap") == frames(desk / "out.pcap")


def test_a_chain_of_commands_is_a_pipe(desk: Path) -> None:
    wirespeed_ = f"{sys.executable} -m wirespeed run --json"
    line = f"cat in.pcap | {wirespeed_} pcap:- {ONE_HOP} pcap:- 2>first | {wirespeed_} pcap:- null: >second"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((desk / name).read_text()) for name in ("first", "second"))
    assert second["received"] == first["packets"] > 0


def test_a_reader_of_packets_that_goes_away_ends_a_run_that_has_no_end(desk: Path) -> None:
    command = [sys.executable, "-m", "wirespeed", "run", "pcap:in.pcap,loop=inf", "pcap:-"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout
        assert len(process.stdout.read(1000)) == 1000
        process.stdout.close()
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert b"Traceback" not in err
    assert b"books balanced" in err


FILES = [
    (["pcap:nosuch.pcap", "null:"], "nosuch.pcap"),
    (["pcap:.", "null:"], "is a directory"),
    (["pcap:in.pcap", "pcap:nowhere/out.pcap"], "nowhere/out.pcap"),
    (["pcap:text.pcap", "null:"], "text.pcap"),
    (["pcap:empty.pcap", "null:"], "empty.pcap"),
    (["pcap:", "null:"], "got no target"),
    (["pcap:in.pcap,looop=3", "null:"], "looop"),
    (["pcap:in.pcap,loop=none", "null:"], "pcap option loop: got 'none'"),
    (["pcap:in.pcap", "generator:"], "generator"),
]


@pytest.mark.parametrize(("words", "message"), FILES, ids=[" ".join(words) for words, _ in FILES])
def test_a_port_that_cannot_be_opened_is_told_in_a_sentence(
    words: list[str], message: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "text.pcap").write_text("this is no capture, whatever its name may be\n" * 10)
    (desk / "empty.pcap").write_bytes(b"")
    assert main(["run", *words, "--seconds", "5"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("wirespeed: ") and err.count("\n") == 1 and message in err


def test_a_capture_is_not_written_over_while_it_is_read(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (desk / "in.pcap").read_bytes()
    assert main(["run", "pcap:in.pcap", "pcap:./in.pcap"]) == 2
    assert (desk / "in.pcap").read_bytes() == before
    assert capsys.readouterr().err.count("\n") == 1


def test_damage_is_told_and_the_good_packets_are_kept(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "cut.pcap").write_bytes((desk / "in.pcap").read_bytes()[:100_000])
    main(["run", "pcap:cut.pcap", "pcap:out.pcap", "--json"])
    report = json.loads(capsys.readouterr().out)
    kept = frames(desk / "out.pcap")
    assert kept == frames(desk / "in.pcap")[: len(kept)] and len(kept) > 500
    assert "byte 99947" in report["stages"][0]["counters"]["damage"]


def test_a_function_that_does_not_compile_is_told_with_its_line(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "f.py").write_text("import wirespeed as ws\n\n@ws.function\ndef f(pkt):\n    return pkt.ipv4.tll\n")
    assert main(["run", "pcap:in.pcap", "f.py", "null:"]) == 2
    err = capsys.readouterr().err
    assert "f, line 5: no field 'tll' in IPv4" in err and "ttl" in err and "Traceback" not in err


def test_a_signal_in_the_middle_of_a_report_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(
        "import sys, wirespeed as ws\n"
        "def live(running):\n"
        "    sys.stdout.write('up\\n')\n"
        "    sys.stdout.flush()\n"
        "    for _ in range(3000):\n"
        "        running.report()\n"
        "print(ws.run(ws.port('null:') >> ws.port('null:'), live=live, until=ws.interrupted).balanced)\n"
    )
    process = subprocess.Popen([sys.executable, "busy.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout as out:
        assert out.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
        assert out.read().splitlines()[-1] == "True"


def test_as_many_cores_as_the_affinity_mask_allows(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    spec = ",".join(map(str, allowed))
    assert main(["run", "pcap:in.pcap", "null:", "--cores", spec, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [w["core"] for w in report["workers"]] == allowed and report["packets"] == len(frames(desk / "in.pcap"))
