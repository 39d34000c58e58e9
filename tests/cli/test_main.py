"""The command line as a whole: help, errors, exit codes."""

import errno
import os
import subprocess
import sys

import pytest

from tests.cli.terminal import ROOT, wirespeed
from wirespeed.cli import COMMANDS, main, sentence
from wirespeed.errors import GraphError, PortError

SLOW_TO_IMPORT = {"numba", "llvmlite", "numpy", "rich", "scapy", "pandas", "pyarrow"}


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], [], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_imports_nothing_that_is_slow(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "wirespeed", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-500:]
    assert "wirespeed" in done.stdout
    imported = {line.rsplit("|", 1)[1].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "argparse" in imported
    assert not SLOW_TO_IMPORT & imported


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n  {name} " not in shown] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert f"usage: wirespeed {name}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    import wirespeed as ws

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"wirespeed {ws.__version__}\n"


REFUSED = [
    (["rnu"], "there is no command 'rnu'; did you mean 'run'?"),
    (["zebra"], "there is no command 'zebra'; the commands are run, demo, "),
    (["--verson"], "there is no option '--verson'; did you mean '--version'?"),
    (["run"], "the following arguments are required: WORD; see wirespeed run --help"),
    (["run", "null:", "null:", "--burst", "0"], "option --burst: got '0', wanted a whole number from 1 to 256"),
    (["run", "null:", "null:", "--workers", "two"], "option --workers: got 'two', wanted a whole number from 1 to 256"),
    (["run", "null:", "null:", "--cores", "9999"], "cores: got [9999], wanted some of "),
    (["run", "null:", "null:", "--seconds", "0"], "option --seconds: got '0', wanted a time of more than 0"),
    (["run", "null:", "null:", "--pool", "0"], "option --pool: got '0', wanted a whole number from 1 to"),
    (["run", "null:", "null:", "--json=yes"], "--json"),
    (["run", "null:size=none", "null:"], "null option size: got 'none', wanted a number of bytes"),
    (["run", "null:", "null:", "--tap", "x=y"], "option --tap: got 'x=y', wanted STAGE=FILE"),
    (["run", "null:", "null:", "--tap", "null:"], "wanted a file too: null:=x.pcapng"),
    (["ports", "pcpa"], "there is no kind of port 'pcpa'; did you mean 'pcap'?"),
    (["layouts", "Ipv4"], "there is no layout 'Ipv4'; did you mean 'IPv4'?"),
    (["doctor", "me"], "got 'me', wanted no further word; see wirespeed doctor --help"),
    (["warm", "nosuch.py"], "nosuch.py: there is no such file"),
    (["demo", "--fast"], "there is no option '--fast'"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_cannot_be_done_is_one_sentence_and_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("wirespeed: ") and err.count("\n") == 1 and message in err


def test_a_refused_command_shows_no_traceback_unless_asked() -> None:
    plain, traced = (wirespeed("run", "zebra", "null:", env={"WIRESPEED_TRACE": trace}) for trace in ("", "1"))
    assert (plain.returncode, traced.returncode) == (2, 2)
    assert "Traceback" not in plain.stderr and "Traceback" in traced.stderr
    assert traced.stderr.endswith(plain.stderr)


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", "layouts"], stdout=writing, stderr=subprocess.PIPE, timeout=120, cwd=ROOT
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_errors_of_the_system_are_told_with_the_file_and_without_their_number() -> None:
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "in.pcap")
    assert sentence(missing) == "in.pcap: No such file or directory"
    assert sentence(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == "No space left on device"
    assert sentence(PortError("pcap:in.pcap: cut at byte 9")) == "pcap:in.pcap: cut at byte 9"
    assert sentence(GraphError()) == "GraphError"
