"""``wirespeed ports``: what it prints is what the classes declare."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import wirespeed as ws
from tests.lab import laboratory, needs_root
from wirespeed.cli import main
from wirespeed.cli.ports import WIDTH, text
from wirespeed.observe.interfaces import seen
from wirespeed.ports import COMMON, KINDS, kind_class

ASKS = """
import json
from wirespeed.observe.obstacles import obstacle
print(json.dumps({kind: obstacle(kind, object) for kind in ("null", "packet", "xdp", "tap")}))
"""


def test_every_kind_and_every_option_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports"]) == 0
    shown = capsys.readouterr().out
    for kind in KINDS:
        assert f"{kind}:  " in shown
        for option in kind_class(kind).OPTIONS:
            assert f"\n  {option}=" in shown
    kinds, _, _ = shown.partition("\ninterface  ")
    assert max(map(len, kinds.splitlines())) <= WIDTH


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [port["kind"] for port in listed] == list(KINDS)
    for port in listed:
        declared = kind_class(port["kind"]).OPTIONS
        assert [option["name"] for option in port["options"]] == list(declared)
        assert [option["sentence"] for option in port["options"]] == [option.sentence for option in declared.values()]


def test_kinds_may_be_chosen_with_or_without_their_colon(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports", "null:", "memory"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("null:  ") and "\n\nmemory:  " in shown
    assert "pcap:" not in shown


def test_long_words_and_sentences_are_broken_and_never_lost() -> None:
    sentence = "word " * 60 + "end"
    options = [
        {"name": "short", "type": "n", "default": None, "sentence": sentence},
        {"name": "a" * 40, "type": "n", "default": "7", "sentence": "what it is"},
        {"name": "bare", "type": "n", "default": None, "sentence": ""},
    ]
    lines = list(text({"kind": "odd", "summary": sentence, "needs": "", "obstacle": None, "options": options}))
    assert max(map(len, lines)) <= WIDTH
    joined = " ".join(" ".join(lines).split())
    assert joined.count("end") == 2 and joined.count("word") == 120
    assert f"{'a' * 40}=n what it is [7]" in joined and "bare=n" in joined


def test_a_kind_without_options_says_what_it_is_and_whether_it_can_be_opened() -> None:
    odd = {"kind": "odd", "summary": "nothing", "needs": "no privilege", "options": []}
    assert list(text({**odd, "obstacle": None})) == ["odd:  nothing", "  ready; it needs no privilege"]
    assert list(text({**odd, "obstacle": "no moon"})) == ["odd:  nothing", "  not here: no moon"]


def test_options_of_every_port_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports"]) == 0
    shown = capsys.readouterr().out
    for option in COMMON:
        assert shown.count(f"\n  {option}=") == 1


def test_who_has_no_rights_is_told_which_are_missing() -> None:
    words = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        words = []
    done = subprocess.run([*words, sys.executable, "-c", ASKS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["null"] is None
    if words:
        assert "CAP_NET_RAW is missing" in told["packet"] and "CAP_NET_RAW is missing" in told["xdp"]
        assert "CAP_NET_ADMIN is missing" in told["tap"]


@needs_root
def test_the_interfaces_of_a_namespace_are_shown_with_what_they_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    with laboratory() as lab:
        lab.veth("a/x0", "a/x1", mtu=1400)
        lab.ip("a", "link", "set", "x1", "down")
        lab.ip("a", "tuntap", "add", "mode", "tap", "t0", "multi_queue")
        assert main(["ports", "packet", "--json", "--netns", lab.space("a")]) == 0
        (told,) = json.loads(capsys.readouterr().out)
        assert main(["ports", "xdp", "--netns", lab.space("a")]) == 0
        shown = capsys.readouterr().out
    found = {one["name"]: one for one in told["interfaces"]}
    assert sorted(found) == ["lo", "t0", "x0", "x1"]
    assert (found["x0"]["driver"], found["x0"]["mtu"], found["x0"]["carries"]) == ("veth", 1400, True)
    assert "native" in found["x0"]["xdp"] and "tso" in found["x0"]["offloads"]
    assert found["t0"]["kind"] == "tun" and found["t0"]["driver"] == "tun"
    assert found["x0"]["queues"] == [1, 1]
    assert not any(one["up"] for name, one in found.items() if name.startswith("x")), "its other end is down"
    assert told["obstacle"] is None
    (line,) = [line for line in shown.splitlines() if line.startswith("x0 ")]
    assert "veth" in line and "1400" in line and "down" in line and "native" in line


@needs_root
def test_an_attached_program_is_told() -> None:
    with laboratory() as lab:
        lab.veth("a/x0", "a/x1")
        xdp = ws.port(f"xdp:x0,netns={lab.space('a')}")
        with ws.start(xdp >> ws.port("null:")):
            attached = {one.name: one.attached for one in seen(lab.space("a"))}
        left = {one.name: one.attached for one in seen(lab.space("a"))}
    assert attached == {"lo": "", "x0": "native", "x1": ""}
    assert left == {"lo": "", "x0": "", "x1": ""}


def test_a_namespace_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ports", "--netns", "no-such-space"]) == 2
    assert "no-such-space" in capsys.readouterr().err
