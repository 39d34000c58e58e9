"""``wirespeed run`` from its words to its report and exit code, on pipes and on a terminal."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, wirespeed
from wirespeed.cli import main

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_a_run_with_its_report(number: signal.Signals) -> None:
    with Terminal("run", "null:", "null:") as terminal:
        terminal.wait_for("packets/s")
        terminal.signal(number)
        code, out = terminal.end()
    assert code == 0
    assert "books balanced" in out
    assert "Traceback" not in terminal.shown


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
