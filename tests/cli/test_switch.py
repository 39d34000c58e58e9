"""``wirespeed switch`` and the commands that talk to it, as a user runs them."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wirespeed as ws
from tests.cli.terminal import PATIENCE_S, ROOT, Terminal, wirespeed
from wirespeed.cli.switch import Watch, _ends, _numbered
from wirespeed.errors import GraphError

DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"
RULES = "priority=20,udp,actions=output:2\npriority=10,ip,actions=output:3 # all else\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(DEMO, tmp_path / "in.pcap")
    (tmp_path / "flows.txt").write_text(RULES)
    return tmp_path


def behind_tags(frame: bytes) -> bytes:
    """A frame from its type on, that behind tags."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8") and at < 20:
        at += 4
    return frame[at:]


def is_udp(frame: bytes) -> bool:
    return behind_tags(frame)[11] == 17


def test_a_capture_is_switched_into_files_by_the_rules_of_a_file(folder: Path) -> None:
    done = wirespeed(
        "switch", "--port", "1=pcap:in.pcap", "--port", "2=pcap:udp.pcap", "--port", "3=pcap:rest.pcap",
        "--flows", "flows.txt", "--control", "none", "--json", "report.json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    frames = [bytes(packet) for packet in ws.read(folder / "in.pcap").packets()]
    ip = [frame for frame in frames if behind_tags(frame)[:2] == b"\x08\x00"]
    assert [bytes(p) for p in ws.read(folder / "udp.pcap").packets()] == [f for f in ip if is_udp(f)]
    assert [bytes(p) for p in ws.read(folder / "rest.pcap").packets()] == [f for f in ip if not is_udp(f)]
    assert "port 1: pcap:in.pcap receives" in done.stderr and "port 2: pcap:udp.pcap sends" in done.stderr
    assert "books balanced" in done.stdout and "no_rule" in done.stdout
    assert json.loads((folder / "report.json").read_text())["finished"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a switch needs ports"),
        (["--port", "a=null:"], "option --port: got 'a=null:', wanted a port's number"),
        (["--port", "1=null:", "--port", "1=null:"], "option --port: port 1 is given twice"),
        (["--port", "1=null:", "--tag", "2=5"], "option --tag: there is no port 2"),
        (["--port", "1=null:", "--tag", "1=4096"], "option --tag: got 1=4096, wanted VLANs from 0 to 4095"),
        (["--port", "1=nul:"], "got kind 'nul'"),
        (["--port", "0=null:"], "a port's number must be 1 to"),
        (["--port", "1=null:", "--flows", "ipp,actions=drop"], "no field 'ipp'"),
        (["--port", "1=null:", "--name", "a b"], "letters, digits"),
        (["--port", "1=null:", "--control", "none"], "has no port that packets come in by"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(words: list[str], said: str) -> None:
    done = wirespeed("switch", *words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_which_ways_a_port_goes_follows_from_its_kind_and_from_what_is_there(folder: Path) -> None:
    there, absent = ws.port(f"pcap:{folder}/in.pcap"), ws.port(f"pcap:{folder}/out.pcap")
    assert list(_ends("1", {"port": there})) == ["receive"]
    assert list(_ends("1", {"port": absent})) == ["transmit"]
    assert list(_ends("1", {"port": ws.port("generator:")})) == ["receive"]
    assert list(_ends("1", {"port": ws.port("null:")})) == ["transmit"]
    assert sorted(_ends("1", {"port": ws.port("packet:lo")})) == ["receive", "transmit"]
    assert _ends("1", {"port": there, "transmit": absent}) == {"receive": there, "transmit": absent}
    assert _ends("1", {"receive": there}) == {"receive": there}
    with pytest.raises(GraphError, match="wanted two of them"):
        _ends("1", {"port": there, "receive": there, "transmit": absent})
    assert _numbered(["1=a=b", "LOCAL=c"], "port") == {"1": "a=b", "LOCAL": "c"}


def test_code_is_specialised_once_and_only_when_a_run_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running:
        alive = True

    times, began = iter([0.0, 0.0, 0.1, 0.7, 0.8]), []
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    watch = Watch(lambda running: None, lambda: began.append(1))
    watch(Running())
    assert began == []
    watch(Running())
    watch(Running())
    assert began == [1]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a switch that runs, with packets of ten flows."""
    folder = tmp_path_factory.mktemp("switch")
    path = str(folder / "s.sock")
    words = (
        "switch", "--name", "lab", "--control", path, "--port", "1=generator:,rate=1kpps,flows=10", "--port", "2=null:",
        "--port", "3=null:", "--flows", "priority=10,ip,actions=output:2", "--no-specialise",
    )  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not Path(path).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        yield path
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 and "books balanced" in out
    assert not Path(path).exists()


def ask(running: str, *words: str) -> str:
    """Standard output of a command for the switch."""
    done = wirespeed(*words, "--name", running)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rules_of_a_running_switch_are_added_shown_and_removed(running: str) -> None:
    assert ask(running, "flow", "add", "table=3,arp,actions=drop", "table=3,udp,actions=output:3") == "2 rules added\n"
    assert (
        ask(running, "flow", "dump", "table=3", "--no-stats")
        == " table=3, arp actions=drop\n table=3, udp actions=output:3\n"
    )
    assert ask(running, "flow", "mod", "table=3,arp,actions=output:2") == "1 rule changed\n"
    assert "n_packets=0, n_bytes=0" in ask(running, "flow", "dump", "table=3")
    assert ask(running, "flow", "del", "table=3") == "2 rules removed\n"


def test_groups_meters_macs_and_ports_are_shown_as_they_are_changed(running: str) -> None:
    group = "group_id=1,type=all,bucket=bucket_id:0,actions=output:2"
    assert ask(running, "group", "add", group) == "1 group added\n"
    assert ask(running, "group", "dump") == f" {group}\n"
    assert ask(running, "group", "del", "group_id=1") == "1 group removed\n"
    assert ask(running, "meter", "add", "meter=1 pktps bands=type=drop rate=10") == "1 meter added\n"
    assert ask(running, "meter", "dump") == "meter=1 pktps bands=\ntype=drop rate=10\n"
    assert ask(running, "meter", "del", "1") == "1 meter removed\n"
    assert ask(running, "fdb", "add", "2", "02:00:00:00:00:01", "--vlan", "7") == ""
    assert ask(running, "fdb", "show").split("\n")[1].split() == ["2", "7", "02:00:00:00:00:01", "static"]
    assert ask(running, "fdb", "del", "02:00:00:00:00:01", "--vlan", "7") == ""
    assert ask(running, "fdb", "flush") == "0 entries forgotten\n"
    ask(running, "port", "mod", "3", "no-flood")
    assert ask(running, "port", "show").splitlines()[2].endswith("[no-flood]")
    ask(running, "port", "mod", "3", "flood")


def test_the_numbers_of_a_running_switch_are_told_as_text_and_as_json(running: str) -> None:
    assert ask(running, "stats").startswith("lab: version ")
    found = json.loads(ask(running, "stats", "--json"))
    assert [port["port"] for port in found["ports"]] == ["1", "2", "3"] and found["rules"] == 1


def test_a_trace_through_a_running_switch_says_where_a_flow_goes(running: str) -> None:
    assert "result: out port 2" in ask(running, "trace", "in_port=1,udp,nw_dst=10.0.0.1")
    shown = ask(running, "trace", "--pcap", str(DEMO), "--packet", "1", "--in-port", "1")
    assert shown.startswith("flow: ") and "result: " in shown


def test_a_trace_needs_no_switch_where_the_rules_are_a_file(folder: Path) -> None:
    done = wirespeed("trace", "in_port=1,udp", "--flows", "flows.txt", "--ports", "2", cwd=folder)
    assert done.returncode == 0 and "-> out port 2 (port 2)" in done.stdout
    done = wirespeed("trace", "in_port=1,arp", "--flows", "flows.txt", cwd=folder)
    assert "result: dropped: No rule of the table matches" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flow", "frob"], "invalid choice: 'frob'"),
        (["flow", "add"], "flow add: got no flow"),
        (["flow", "add", "./none.txt"], "./none.txt: there is no such file"),
        (["flow", "add", "--strict", "a=b"], "option --strict: it is for mod and del"),
        (["flow", "dump", "--name", "nobody"], "no switch listens at"),
        (["port", "mod", "1", "fast"], "no setting 'fast'"),
        (["fdb", "add", "1"], "wanted a port and a MAC"),
        (["trace"], "got none or both of a flow and --pcap"),
        (["trace", "--pcap", str(DEMO)], "add --in-port 1"),
        (["trace", "--pcap", str(DEMO), "--packet", "9999999", "--in-port", "1"], "has no packet 9999999"),
    ],
)
def test_what_these_commands_cannot_do_is_said_in_a_sentence(words: list[str], said: str) -> None:
    done = wirespeed(*words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_on_a_terminal_the_busiest_rules_are_shown_and_ctrl_c_ends_it_with_a_report(tmp_path: Path) -> None:
    with Terminal(
        "switch", "--control", str(tmp_path / "s.sock"), "--port", "1=generator:,rate=1kpps", "--port", "2=null:",
        "--flows", "priority=7,ip,actions=output:2", "--no-specialise",
    ) as terminal:  # fmt: skip
        terminal.wait_for("look-ups hit")
        assert "priority" in terminal.shown
        terminal.signal(signal.SIGINT)
        code, out = terminal.end()
    assert code == 0 and "books balanced" in out and "1 rule" in out
