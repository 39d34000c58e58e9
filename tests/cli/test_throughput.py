"""``wirespeed throughput``: its words, its forms of output, and what it says of wrong options."""

import csv
import io
import json

import pytest

from tests.cli.terminal import Terminal, wirespeed
from wirespeed.cli import throughput
from wirespeed.cli.parser import Parser
from wirespeed.errors import GraphError

FUNCTION = """
import wirespeed as ws

@ws.function
def onward(pkt):
    return ws.FORWARD
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
        (("{f}", "--sizes", "10"), "frame size must be 60 to 65536, got 10"),
        (("{f}", "--tolerance", "100%"), "wanted a part such as 0.1%"),
        (("{f}", "--resolution", "x"), "wanted a part such as 0.1%"),
        (("{f}", "--json", "--csv"), "wanted one of them"),
        (("{f}", "--packets", "size=64"), "option 'size' is given twice"),
    ],
)
def test_what_cannot_work_is_said(onward, words, message):
    with pytest.raises(GraphError) as error:
        throughput.main(arguments(*(word.format(f=onward) for word in words)))
    assert message in str(error.value)


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
