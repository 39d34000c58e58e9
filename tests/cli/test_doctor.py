"""``wirespeed doctor``: what it says of machines that are well and of ones that are not."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import wirespeed
from wirespeed.cli import doctor, main
from wirespeed.cli.doctor import Finding
from wirespeed.observe import machine
from wirespeed.ports import KINDS


def findings() -> dict[str, Finding]:
    return {f.topic: f for f in doctor.examine()}


def test_it_looks_at_cores_memory_compiler_cache_and_every_kind_of_port(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    listed = json.loads(capsys.readouterr().out)
    topics = [f["topic"] for f in listed]
    expected = ["system", "cores", "quota", "cycle counter", "huge pages", "transparent", "compiler", "kernel cache"]
    assert [t for t in expected if t not in topics] == []
    assert [t for t in topics if t.startswith("port ")] == [f"port {kind}:" for kind in KINDS]
    assert code == (1 if any(f["state"] == "bad" for f in listed) else 0)
    assert all(f["state"] in ("ok", "note", "bad") for f in listed)
    assert all(f["advice"] for f in listed if f["state"] == "bad")


def test_this_machine_can_do_the_main_job() -> None:
    done = wirespeed("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Nothing is in the way.\n")


def test_what_is_in_the_way_is_named_and_is_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.endswith("In the way: system.\n")
    assert "-> wirespeed runs on Linux only" in out


def test_only_cores_that_are_allowed_count() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, allowed[:1])
        text = findings()["cores"].text
    finally:
        os.sched_setaffinity(0, allowed)
    assert text == f"1 of {os.cpu_count()} allowed: {allowed[0]}"


@pytest.mark.parametrize(("share", "state", "words"), [
    (None, "ok", "no control group"), (2.5, "ok", "at most 2 workers"), (0.5, "note", "0.50 cores' worth"),
])  # fmt: skip
def test_a_quota_is_told_and_a_small_one_noted(
    share: float | None, state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "quota", lambda: share)
    found = findings()["quota"]
    assert found.state == state and words in found.text


def test_debug_and_portable_mode_are_noted() -> None:
    done = wirespeed("doctor", "--json", env={"WIRESPEED_PORTABLE": "1"})
    found = {f["topic"]: f for f in json.loads(done.stdout)}
    assert found["mode"]["state"] == "note" and "portable" in found["mode"]["text"]


def test_a_cache_that_cannot_be_written_is_noted_with_what_is_used_instead(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = wirespeed("doctor", "--json", env={"WIRESPEED_CACHE": str(tmp_path / "file" / "cache")})
    found = {f["topic"]: f for f in json.loads(done.stdout)}["kernel cache"]
    assert done.returncode == 0
    assert found["state"] == "note" and "WIRESPEED_CACHE" in found["advice"]


def test_a_port_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    class NeedsRoot:
        @staticmethod
        def obstacle() -> str:
            return "needs CAP_NET_RAW, which this process has not; try sudo"

    def kind_class(kind: str) -> Any:
        if kind == "null":
            return NeedsRoot
        raise ImportError("no such module")

    monkeypatch.setattr("wirespeed.ports.kind_class", kind_class)
    found = findings()
    assert found["port null:"].state == "note" and "CAP_NET_RAW" in found["port null:"].text
    assert found["port pcap:"].state == "bad" and "no such module" in found["port pcap:"].text


def test_the_table_is_aligned_with_advice_below() -> None:
    lines = doctor.table([Finding("a", "ok", "fine"), Finding("long topic", "bad", "broken", "mend it")]).splitlines()
    assert lines[0] == "a           ok    fine"
    assert lines[1] == "long topic  bad   broken"
    assert lines[2].strip() == "-> mend it"
    assert lines[3] == "In the way: long topic."
