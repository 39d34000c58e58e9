"""``wirespeed distribute`` from its words to its report and exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

from tests.cli.terminal import PATIENCE_S, ROOT, Terminal, wirespeed
from wirespeed.cli import main

DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"
ONE_HOP = str(ROOT / "examples" / "one_hop.py")
FAN_OUT = str(ROOT / "examples" / "fan_out.py")

FUNCTIONS = """
import wirespeed as ws

@ws.function
def udp_port(pkt):
    return pkt.udp.dport

@ws.function
def no_udp(pkt):
    return ws.DROP if pkt.udp else ws.FORWARD

@ws.function
def pass_on(pkt):
    return ws.FORWARD
"""


def frames(path: Path) -> list[bytes]:
    """The frames of a capture, as scapy reads it."""
    with RawPcapReader(str(path)) as capture:
        return [data for data, *_ in capture]


def by_flow(path: Path) -> dict[object, list[bytes]]:
    """The frames of plain TCP and UDP in a capture, by flow and in order."""
    flows: dict[object, list[bytes]] = defaultdict(list)
    for data in frames(path):
        packet = Ether(data)
        if packet.haslayer(IP) and (packet.haslayer(TCP) or packet.haslayer(UDP)) and not packet[IP].frag:
            ports = packet[TCP] if packet.haslayer(TCP) else packet[UDP]
            flows[packet[IP].src, packet[IP].dst, packet[IP].proto, ports.sport, ports.dport].append(data)
    return flows


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with an ``in.pcap`` and functions in ``f.py``."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO, "in.pcap")
    (tmp_path / "f.py").write_text(FUNCTIONS)
    return tmp_path


# ---------------------------------------------------------------------------------------------------------------------
# What comes out


def test_what_comes_out_is_what_a_run_writes_and_each_flow_has_its_order(desk: Path) -> None:
    assert main(["run", "pcap:in.pcap", ONE_HOP, "pcap:run.pcap"]) == 0
    assert main(["distribute", "pcap:in.pcap", ONE_HOP, "pcap:out.pcap", "--workers", "3"]) == 0
    assert Counter(frames(desk / "out.pcap")) == Counter(frames(desk / "run.pcap"))
    assert by_flow(desk / "out.pcap") == by_flow(desk / "run.pcap")


@pytest.mark.parametrize(
    "how", [[], ["--mode", "single"], ["--per-line", "7", "--lines", "4"], ["--by", "f.py:udp_port"]]
)
def test_in_order_the_file_is_the_same_that_a_run_writes(how: list[str], desk: Path) -> None:
    assert main(["run", "pcap:in.pcap", ONE_HOP, "pcap:run.pcap"]) == 0
    assert main(["distribute", "pcap:in.pcap", ONE_HOP, "pcap:out.pcap", "--workers", "2", "--ordered", *how]) == 0
    assert (desk / "out.pcap").read_bytes() == (desk / "run.pcap").read_bytes()


def test_without_a_function_the_workers_hand_packets_through(desk: Path) -> None:
    assert main(["distribute", "pcap:in.pcap", "pcap:out.pcap"]) == 0
    assert Counter(frames(desk / "out.pcap")) == Counter(frames(desk / "in.pcap"))


def test_several_functions_run_one_after_the_other_in_the_workers(desk: Path) -> None:
    words = ["pcap:in.pcap", "f.py:no_udp", ONE_HOP, "pcap:out.pcap", "--ordered", "--workers", "2"]
    assert main(["distribute", *words]) == 0
    assert main(["run", "pcap:in.pcap", "f.py:no_udp", ONE_HOP, "pcap:run.pcap"]) == 0
    assert frames(desk / "out.pcap") == frames(desk / "run.pcap") != []


def test_further_outputs_get_what_the_function_sends_there(desk: Path) -> None:
    words = ["pcap:in.pcap", FAN_OUT, "pcap:tcp.pcap", "--output", "1=pcap:udp.pcap", "--output", "2=pcap:other.pcap"]
    assert main(["distribute", *words, "--workers", "2"]) == 0
    parts = [frames(desk / f"{name}.pcap") for name in ("tcp", "udp", "other")]
    assert Counter(f for part in parts for f in part) == Counter(frames(desk / "in.pcap"))
    assert [all(Ether(f).haslayer(kind) for f in part) for kind, part in zip(("TCP", "UDP"), parts, strict=False)]


def test_a_tap_captures_what_leaves_the_workers(desk: Path) -> None:
    words = ["pcap:in.pcap", ONE_HOP, "pcap:out.pcap", "--tap", "distribute=after.pcap", "--tap", "in.pcap=before.pcap"]
    assert main(["distribute", *words]) == 0
    assert frames(desk / "before.pcap") == frames(desk / "in.pcap")
    assert frames(desk / "after.pcap") == frames(desk / "out.pcap")


WORKER = """
from tests.apps.test_distributor import Stamper
f = Stamper()
"""


def test_each_worker_had_the_packets_that_the_report_says_it_had(desk: Path) -> None:
    (desk / "worker.py").write_text(WORKER)
    words = ["generator:flows=16,count=20000", "worker.py", "pcap:out.pcap", "--workers", "3", "--json"]
    done = wirespeed("distribute", *words, cwd=desk)
    assert done.returncode == 0, done.stderr
    counters = json.loads(done.stdout)["stages"][1]["counters"]
    had = Counter(int.from_bytes(f[50:58], "little") for f in frames(desk / "out.pcap"))
    assert {f"worker {i}": n for i, n in had.items()} == {
        name: c["packets"] for name, c in counters.items() if c.get("packets")
    }
    assert sum(had.values()) == 20_000


# ---------------------------------------------------------------------------------------------------------------------
# The report


def test_json_has_the_statistics_of_each_worker_and_balanced_books() -> None:
    done = wirespeed("distribute", "null:count=10000,size=100", "null:", "--workers", "1", "--json", "--per-line", "7")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["packets"], report["balanced"], report["finished"]) == (10_000, True, True)
    counters = next(s for s in report["stages"] if s["name"] == "distribute")["counters"]
    share = counters["worker 0"]
    assert share["packets"] == 10_000 == sum(int(size) * n for size, n in share["sizes"].items())
    assert set(map(int, share["sizes"])) <= set(range(1, 8)) and sum(share["sizes"].values()) == share["lines"]
    assert (share["in_flight"], share["waiting"], share["pinned"], share["takeovers"]) == (0, 0, 0, 0)
    assert counters["distributor"]["parked"] == 0 and counters["distributor"]["blocked"] == ""
    assert len(report["workers"]) == 2


def test_the_report_has_a_line_for_each_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distribute", "generator:flows=64,count=20000", "null:", "--workers", "2"]) == 0
    out = capsys.readouterr().out
    assert "books balanced" in out
    assert "distribute worker 0: " in out and "distribute worker 1: " in out and "lines under way" in out


def test_packets_on_standard_output_keep_the_report_off_it(desk: Path) -> None:
    command = [sys.executable, "-m", "wirespeed", "distribute", "pcap:-", ONE_HOP, "pcap:-", "--ordered"]
    with open("in.pcap", "rb") as capture:
        done = subprocess.run(command, stdin=capture, capture_output=True, timeout=PATIENCE_S)
    (desk / "piped.pcap").write_bytes(done.stdout)
    assert done.returncode == 0 and b"books balanced" in done.stderr
    assert main(["run", "pcap:in.pcap", ONE_HOP, "pcap:run.pcap"]) == 0
    assert frames(desk / "piped.pcap") == frames(desk / "run.pcap")


def test_a_reader_of_packets_that_goes_away_ends_the_run_and_the_books_balance() -> None:
    command = [sys.executable, "-m", "wirespeed", "distribute", f"pcap:{DEMO},loop=inf", "pcap:-", "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout
        assert len(process.stdout.read(1000)) == 1000
        process.stdout.close()
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert b"Traceback" not in err and b"books balanced" in err


@pytest.mark.parametrize(("words", "cores"), [([], [0, 0]), (["--workers", "2"], [0, 0, 0])], ids=["one", "two"])
def test_with_one_core_the_workers_have_that_of_the_distributor(
    words: list[str], cores: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["distribute", "null:count=1000", "null:", "--json", "--cores", "0", *words]) == 0
    assert [w["core"] for w in json.loads(capsys.readouterr().out)["workers"]] == cores


def test_with_several_cores_the_first_is_the_distributors_and_each_other_has_a_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert main(["distribute", "null:count=1000", "null:", "--json", "--cores", ",".join(map(str, allowed))]) == 0
    placed = [w["core"] for w in json.loads(capsys.readouterr().out)["workers"]]
    assert placed == (allowed if len(allowed) > 1 else allowed * 2)


# ---------------------------------------------------------------------------------------------------------------------
# While it runs, and its end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_it_with_its_report_and_all_packets_delivered(number: signal.Signals) -> None:
    with Terminal("distribute", "generator:,flows=99", ONE_HOP, "null:", "--workers", "2", "--json") as terminal:
        terminal.wait_for("pinned")
        terminal.signal(number)
        code, out = terminal.end()
    assert code == 0 and "Traceback" not in terminal.shown
    report = json.loads(out)
    assert report["balanced"] and report["received"] == report["packets"] > 0 and report["dropped"] == 0


def test_the_table_has_a_row_for_each_worker_once_a_second_and_is_taken_away() -> None:
    with Terminal("distribute", "generator:,flows=99", "null:", "--workers", "2", "--seconds", "2.5") as terminal:
        code, out = terminal.end()
    assert code == 0 and "books balanced" in out
    assert 2 <= terminal.shown.count("pinned") < 8, "the usual table would have been drawn ten times"
    assert "active" in terminal.shown and "parked 0" in terminal.shown
    assert terminal.shown.rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize("how", [{"words": ["--no-live"]}, {"env": {"TERM": "dumb"}}], ids=["no-live", "dumb"])
def test_no_table_where_it_is_not_wanted_or_cannot_be(how: dict[str, object]) -> None:
    words = how.pop("words", [])
    with Terminal("distribute", "null:", "null:", "--seconds", "1.5", *words, **how) as terminal:  # type: ignore[misc, arg-type]
        code, _ = terminal.end()
    assert code == 0
    assert "\x1b" not in terminal.shown and "pinned" not in terminal.shown


# ---------------------------------------------------------------------------------------------------------------------
# What is refused

REFUSED = [
    ([], "the following arguments are required: WORD"),
    (["null:"], "got 'null:' alone, wanted a port to read and one to write"),
    (["null:", "null:", "--workers", "0"], "option --workers: got '0', wanted a whole number from 1 to 256"),
    (["null:", "null:", "--workers", "257"], "option --workers: got '257', wanted a whole number from 1 to 256"),
    (["null:", "null:", "--per-line", "32"], "option --per-line: got '32', wanted a whole number from 1 to 31"),
    (["null:", "null:", "--lines", "3"], "lines must be a power of two up to 1024, got 3; try 2"),
    (["null:", "null:", "--mode", "bulk"], "mode must be 'burst' or 'single', got 'bulk'"),
    (["null:", "null:", "--mode", "single", "--per-line", "7"], "mode 'single' sends one packet in a line, got 7"),
    (["null:", "null:", "--by", "flwo"], "option --by: got 'flwo', wanted flow, or a function such as file.py:name"),
    (["null:", "null:", "--by", "f.py:udp_prt"], "no function 'udp_prt'; did you mean 'udp_port'?"),
    (["null:", "null:", "--by", "nosuch.py"], "nosuch.py: there is no such file"),
    (["null:", "f.py", "null:"], "say which, as in f.py:udp_port"),
    (["null:", "nosuch.py", "null:"], "nosuch.py: there is no such file"),
    (["null:", "null:", "null:"], "got the port 'null:' inside the chain, wanted functions"),
    (["pcap:in.pcap", "pcap:./in.pcap"], "would write over the file that pcap:in.pcap reads"),
    (["pcap:nosuch.pcap", "null:"], "nosuch.pcap"),
    (["null:", "null:", "--output", "1=null:"], "wanted a function in the chain, which has outputs"),
    (["null:", "f.py:no_udp", "f.py:pass_on", "null:", "--output", "no_udp.1=null:"], "only the last function has outputs"),
    (["null:", "null:", "--tap", "one_hop=x.pcap"], "the stages are null: and distribute"),
    (["null:", "null:", "--cores", "9999"], "cores: got [9999], wanted some of "),
    (["null:", "null:", "--seconds", "0"], "option --seconds: got '0', wanted a time of more than 0"),
    (["null:", "null:", "--worker", "2"], "there is no option '--worker'; did you mean '--workers'?"),
    (["null:", "null:", "--pool", "16"], "pool must be at least twice the burst of 32, got 16"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_cannot_be_done_is_one_sentence_and_code_2(
    words: list[str], message: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (desk / "in.pcap").read_bytes()
    assert main(["distribute", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("wirespeed: ") and err.count("\n") == 1 and message in err
    assert (desk / "in.pcap").read_bytes() == before
