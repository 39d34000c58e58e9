"""``wirespeed throughput``: its words, its forms of output, and what it says of wrong options."""

import csv
import hashlib
import io
import json
import signal
import subprocess
import sys
import time

import pytest

import wirespeed as ws
from tests.cli.terminal import PATIENCE_S, Terminal, wirespeed
from wirespeed.cli import rows, throughput
from wirespeed.cli.parser import Parser
from wirespeed.errors import GraphError

FUNCTION = """
import wirespeed as ws

@ws.function
def onward(pkt):
    return ws.FORWARD
"""

HALF = """
import wirespeed as ws

@ws.function
def half(pkt):
    return ws.DROP if pkt.payload[11] & 1 else ws.FORWARD  # of the number in the trailer
"""


@pytest.fixture
def onward(tmp_path):
    path = tmp_path / "onward.py"
    path.write_text(FUNCTION)
    return str(path)


def arguments(*words):
    parser = Parser("wirespeed throughput", "")
    throughput.configure(parser)
    return parser.parse_intermixed_args(list(words))


def run(capsys, *words):
    assert throughput.main(arguments(*words)) == 0
    return capsys.readouterr().out


FAST = ("--sizes", "64,128", "--seconds", "50ms")


def test_a_table_has_a_line_for_each_size(onward, capsys):
    head, *lines = run(capsys, onward, *FAST, "--line", "100Gbps").splitlines()
    assert head.split()[:6] == ["size", "Mpps", "Gbps", "line", "loss", "limit"]
    assert [line.split()[0] for line in lines] == ["64", "128"]
    assert all(line.split()[4:6] == ["0.000%", "sender"] for line in lines)


def test_json_has_every_trial(onward, capsys):
    found = json.loads(run(capsys, onward, *FAST, "--json"))
    assert [one["size"] for one in found] == [64, 128]
    assert all(one["sent"] == one["received"] == one["latency_ns"]["count"] > 0 for one in found)
    assert all(one["line"] is None and len(one["trials"]) == 1 for one in found)


def test_csv_has_one_line_of_names(onward, capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, onward, *FAST, "--csv", "--max-rate", "1Mbps"))))
    assert [row["size"] for row in rows] == ["64", "128"]
    assert all(float(row["line"]) <= 1.05 and int(row["latency_p99_ns"]) > 0 for row in rows)


def test_functions_between_two_ports_are_run_on_what_comes_back(onward):
    made = throughput.bench(arguments("packet:a", onward, "packet:b", "--cores", "0,1"))
    assert (made.sender.name, made.receiver.name) == ("packet:a", "packet:b")
    assert [f.name for f in made.functions] == ["onward"]


@pytest.mark.parametrize(
    "words, message",
    [
        (("null:",), "wanted two ports with functions between them, or functions alone"),
        (("null:", "null:", "null:"), "wanted two ports"),
        (("{f}", "null:"), "wanted two ports"),
        (("nul:",), "did you mean null"),
        (("{f}", "--max-rate", "fast"), "option --max-rate: got 'fast', wanted a number with pps or bps"),
        (("{f}", "--line", "1Mpps"), "wanted bits a second"),
        (("{f}", "--sizes", "64,big"), "option --sizes: got '64,big'"),
        (("{f}", "--sizes", "10"), "frame size must be 64 to 65536, got 10: headers"),
        (("{f}", "--tolerance", "100%"), "wanted a part such as 0.1%"),
        (("{f}", "--resolution", "x"), "wanted a part such as 0.1%"),
        (("{f}", "--json", "--csv"), "wanted one of them"),
        (
            ("{f}", "--packets", "size=64"),
            "got size=, wanted what they look like; the sizes of frames are given by --sizes",
        ),
        (("{f}", "--packets", "vlan=5", "--sizes", "64"), "frame size must be 68 to 65536, got 64"),
        (("{f}", "--resolution", "0"), "resolution must be a part of 1, more than 0, got 0.0"),
    ],
)
def test_what_cannot_work_is_said(onward, words, message):
    with pytest.raises(GraphError) as error:
        throughput.main(arguments(*(word.format(f=onward) for word in words)))
    assert message in str(error.value)


def test_a_capture_is_no_port_to_send_by_and_stays_as_it_is(tmp_path, onward):
    capture = tmp_path / "in.pcap"
    ws.run(ws.port("generator:count=10") >> ws.port(f"pcap:{capture}"))
    before = hashlib.sha256(capture.read_bytes()).digest()
    for words in ((f"pcap:{capture}", f"pcap:{tmp_path}/out.pcap"), (f"pcap:{capture}", onward, "null:")):
        with pytest.raises(GraphError) as error:
            throughput.main(arguments(*words, "--seconds", "50ms", "--sizes", "64"))
        assert f"write: wirespeed run pcap:{capture},rate=1Mpps packet:tx0" in str(error.value)
    assert hashlib.sha256(capture.read_bytes()).digest() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.pcap", "onward.py"]


def test_a_size_that_always_loses_is_told_with_its_loss(tmp_path, capsys):
    (tmp_path / "half.py").write_text(HALF)
    head, line = run(capsys, str(tmp_path / "half.py"), "--sizes", "64", "--seconds", "20ms").splitlines()
    told = dict(zip(head.split(), line.split(), strict=False))
    assert (told["Mpps"], told["limit"], told["trials"]) == ("0.000", "device", "12")
    assert abs(float(told["loss"].rstrip("%")) - 50) < 1


def test_small_rates_are_told_in_digits_that_say_something():
    assert [rows.digits(v) for v in (0.0, 12.3456, 0.1, 0.0123456, 0.000012)] == [
        "0.000", "12.346", "0.100", "0.0123", "0.0000120",
    ]  # fmt: skip


def begun(*words):
    """The command, with its standard output to be read line by line."""
    command = [sys.executable, "-m", "wirespeed", "throughput", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_row_is_there_when_it_is_found_and_stays_when_the_search_is_broken_off(onward, number):
    with begun(onward, "--sizes", "64,128,256", "--seconds", "3") as process:
        try:
            assert process.stdout.readline().split()[0] == "size"
            assert process.stdout.readline().split()[0] == "64"
            time.sleep(0.3)  # the next trial has begun by then, most likely, and goes on for much longer
            process.send_signal(number)
            rest, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "broken off while 128 bytes were tried" in said and "256 were not tried" in said
    assert "Traceback" not in said
    assert rest == ""


def test_json_that_is_broken_off_has_what_was_found(onward):
    with Terminal("throughput", onward, "--sizes", "64,128", "--seconds", "1", "--json") as terminal:
        terminal.wait_for("64 bytes at")
        terminal.signal(signal.SIGINT)
        code, out = terminal.end()
    assert code == 130
    assert [one["size"] for one in json.loads(out)] == [64]


def test_on_a_terminal_the_rows_go_to_standard_output_nevertheless(onward):
    with Terminal("throughput", onward, "--sizes", "64,128", "--seconds", "100ms") as terminal:
        code, out = terminal.end()
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["size", "64", "128"]


def test_on_a_terminal_the_trials_are_shown_while_they_go_on(onward):
    with Terminal("throughput", onward, "--sizes", "64,128", "--seconds", "500ms", "--json") as terminal:
        terminal.wait_for("64 bytes at")
        code, out = terminal.end()
        assert "no loss" in terminal.shown
    assert code == 0
    assert [one["size"] for one in json.loads(out)] == [64, 128]


def test_the_checker_is_a_port_at_the_end_of_a_command_line():
    done = wirespeed("run", "generator:,trailer=yes,count=1000", "checker:", "--json")
    assert done.returncode == 0, done.stderr
    (end,) = [s for s in json.loads(done.stdout)["stages"] if s["name"] == "checker:"]
    assert (end["counters"]["received"], end["counters"]["lost"]) == (1000, 0)
