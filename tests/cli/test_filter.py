"""``wirespeed filter`` and ``wirespeed run --filter``: programs as tcpdump prints them, counts, and errors with their place."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import wirespeed
from tests.ports.test_filter_option import ALL, BACK, RAW, WEB, memory, through
from wirespeed.cli import main
from wirespeed.cli.filter import written
from wirespeed.core.frame import Packet
from wirespeed.engine.run import run
from wirespeed.net.filter import Instruction, Program
from wirespeed.ports import port

EXPRESSION = "tcp port 80 and not vlan"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """One of each frame, and two of raw IP."""
    file = tmp_path / "in.pcapng"
    raw = [Packet(frame[14:], link=RAW) for frame in (WEB, ALL[1])]
    through(memory("in"), port(f"pcap:{file}"), [*ALL, *raw])
    return file


@pytest.mark.parametrize(("form", "option"), [("listing", "-d"), ("c", "-dd"), ("bytes", "-ddd")])
def test_a_program_is_written_as_tcpdump_writes_it(form: str, option: str) -> None:
    if not shutil.which("tcpdump"):
        pytest.skip("tcpdump is not installed")

    def tcpdump(*words: str) -> str:
        return subprocess.run(["tcpdump", "-y", "EN10MB", *words], capture_output=True, text=True, check=True).stdout

    for expression in ("ip", "tcp port 80 and not vlan", "vlan and udp[4:2] > 100 and len < 1000"):
        numbers = [tuple(map(int, line.split())) for line in tcpdump("-ddd", expression).splitlines()[1:]]
        program = Program(tuple(Instruction(*step) for step in numbers), expression, 1, 262144)
        assert written(program, form) == tcpdump(option, expression).rstrip("\n")


def test_a_program_can_be_had_as_json_and_as_machine_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", EXPRESSION, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["expression"] == EXPRESSION and told["link"] == 1
    assert all(len(step) == 4 for step in told["steps"])
    assert main(["filter", EXPRESSION, "--format", "llvm"]) == 0
    assert "define" in capsys.readouterr().out
    assert main(["filter", EXPRESSION, "--format", "asm"]) == 0
    assert "ret" in capsys.readouterr().out


def test_the_program_for_the_kernel_asks_it_for_the_tag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", "vlan 7", "--kernel", "--format", "json"]) == 0
    assert any(k >= 0xFFFFF000 for _, _, _, k in json.loads(capsys.readouterr().out)["steps"])
    assert main(["filter", "vlan 7", "--format", "json"]) == 0
    assert all(k < 0xFFFFF000 for _, _, _, k in json.loads(capsys.readouterr().out)["steps"])


def test_matches_in_captures_are_counted_each_packet_by_its_link_type(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["filter", "tcp port 80", str(capture), str(capture)]) == 0
    assert capsys.readouterr().out == 2 * f"{capture}: 3 of 7 packets match\n"
    assert main(["filter", "tcp port 80", str(capture), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(capture), "matching": 3, "packets": 7}


def test_what_could_not_be_judged_is_told_on_standard_error(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", "ether host 02:00:00:00:00:01", str(capture)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{capture}: 5 of 7 packets match\n"
    assert "filter on RAW" in err


@pytest.mark.parametrize("words", [["filter", "tcp portt 80"], ["run", "null:", "null:", "--filter", "tcp portt 80"]])
def test_an_error_shows_its_place_and_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    _, shown, under = err.splitlines()
    assert out == "" and err.startswith("wirespeed: ")
    assert shown[under.index("^") : under.rindex("^") + 1] == "portt"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "EN10M"], "there is no link type 'EN10M'; did you mean 'EN10MB'?"),
        (["--link", "EN10MB", "in.pcap"], "option --link: it has no meaning for captures"),
        (["--kernel", "in.pcap"], "option --kernel: it has no meaning for captures"),
        (["--format", "c", "in.pcap"], "wanted listing or json"),
        (["no-such-file.pcap"], "no-such-file.pcap"),
        (["--format", "hex"], "--format"),
    ],
)
def test_what_cannot_be_done_is_told(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", "tcp", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err


def test_an_expression_that_the_shell_took_apart_is_told_to_be_one_word(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["filter", "tcp", "port", "80"]) == 2
    assert (
        capsys.readouterr().err == "wirespeed: the expression must be one word; write wirespeed filter 'tcp port 80'\n"
    )
    assert main(["filter", "tcp", "port", "80", str(capture)]) == 2
    assert f"write wirespeed filter 'tcp port 80' {capture}" in capsys.readouterr().err
    assert main(["filter"]) == 2
    assert "got no expression, wanted one such as 'tcp port 80'; see wirespeed filter --help" in capsys.readouterr().err


def test_a_long_expression_is_told_to_take_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", "tcp" + " " * 30_000]) == 0
    assert capsys.readouterr().err == "wirespeed: compiling 30,003 characters takes seconds\n"


def test_a_run_filters_at_its_first_port(capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.pcapng"
    assert main(["run", f"pcap:{capture}", f"pcap:{out}", "--filter", "tcp port 80", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["stages"][0]["drops"] == {"filtered": 4} and report["packets"] == 3
    sink = memory()
    run(port(f"pcap:{out}") >> sink)
    assert [p.data for p in sink.pull()] == [WEB, BACK, WEB[14:]]
    assert main(["run", f"pcap:{capture},filter=tcp", "null:", "--filter", "udp"]) == 2
    assert "has a filter already, tcp" in capsys.readouterr().err


def test_it_answers_as_a_command_of_its_own() -> None:
    done = wirespeed("filter", "ip")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 4
