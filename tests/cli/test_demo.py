"""``wirespeed demo``: what it shows, and the capture that it leaves."""

import inspect
import json
import re
from pathlib import Path

import pytest

from tests.cli.terminal import ROOT, Terminal, wirespeed
from tests.cli.test_run import frames
from wirespeed.cli import main
from wirespeed.cli.one_hop import one_hop

DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"


def test_it_shows_the_function_the_report_and_where_the_changed_capture_is(tmp_path: Path) -> None:
    done = wirespeed("demo", "--seconds", "1.5", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "@ws.function" in done.stdout and "ws.decrement_ttl(pkt.ipv4)" in done.stdout
    assert "pcap:demo.pcap" in done.stdout and "books balanced" in done.stdout
    found = re.search(r"(\d,\d+) of its 5,342 packets, changed: (.*)$", done.stdout, re.M)
    assert found and Path(found[2]).is_relative_to(tmp_path)
    assert len(frames(Path(found[2]))) == int(found[1].replace(",", ""))
    assert "Mpps" in done.stderr or "kpps" in done.stderr, "a line a second, where there is no terminal"
    assert "\x1b" not in done.stdout + done.stderr


def test_on_a_terminal_the_table_is_live() -> None:
    with Terminal("demo", "--seconds", "1") as terminal:
        terminal.wait_for("cycles/packet")
        code, out = terminal.end()
    assert code == 0 and "books balanced" in out
    assert "one_hop dropped" in terminal.shown and terminal.shown.rstrip().endswith("\x1b[2K")


def test_the_capture_goes_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", "0.1", "--json", "--output", str(tmp_path / "mine.pcap")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in report["stages"]] == ["pcap:demo.pcap", "one_hop", "null:"]
    before, after = frames(DEMO), frames(tmp_path / "mine.pcap")
    assert 4_000 < len(after) < len(before)
    assert after == [changed for verdict, changed in map(one_hop, before) if verdict == 0]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", "0.1", "--output", str(tmp_path / "nowhere" / "x.pcap")]) == 2
    assert "nowhere/x.pcap" in capsys.readouterr().err


def test_its_function_is_the_one_of_the_example() -> None:
    body = inspect.getsource(one_hop.python).split('"""', 2)[2]
    example = (ROOT / "examples" / "one_hop.py").read_text()
    readme = (ROOT / "README.md").read_text()
    assert body in example
    assert " ".join(body.split()) in " ".join(readme.split())
