"""The bench of live ports: what its rows say of whom, and one of them measured, small, as it is published."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import kernel, kernel_calls, kernel_capture, kernel_tcp, namespaces
from bench.harness import Options
from bench.kernel import Case, Sample
from bench.kernel_tcp import Way
from bench.ours_live import Graph, Live
from bench.peers import ovs, testpmd_live
from tests.lab import needs_root

OPTIONS = Options(peer=True, quick=True, runs=1, core=max(os.sched_getaffinity(0)))


def test_a_case_has_a_row_of_its_rate_and_one_of_its_cycles_outside_the_kernel() -> None:
    case = Case("packet", "rx")
    samples = {
        (case, "ours"): [Sample(0.9, 1.0, 100.0), Sample(1.1, 1.0, 300.0), Sample(1.0, 1.0, None)],
        (case, "testpmd"): [Sample(0.5, 1.0, 400.0)],
    }
    rate, cycles = kernel._rows(OPTIONS, case, samples, {})
    assert (rate.name, rate.unit, rate.speedup) == ("kernel.packet.rx.64B.testpmd", "Mpps", 2.0)
    assert rate.note == "ours 100% of what was sent to it; testpmd 50% of what was sent to it"
    assert (cycles.name, cycles.unit, cycles.speedup) == ("kernel.packet.rx-cycles.64B.testpmd", "cycles/packet", 2.0)
    assert cycles.ours is not None and cycles.ours.n == 2


def test_a_side_that_failed_says_why_and_the_other_one_stands() -> None:
    case = Case("tap", "tx")
    rows = list(
        kernel._rows(OPTIONS, case, {(case, "ours"): [Sample(1.0, 0.0, 50.0)]}, {(case, "testpmd"): "not here"})
    )
    assert [row.ours is not None and row.theirs is None for row in rows] == [True, True]
    assert {row.note for row in rows} == {"testpmd: not here"}


def test_the_share_of_user_mode_is_that_of_the_core_that_is_measured() -> None:
    core = min(os.sched_getaffinity(0))
    user, busy = kernel._ticks(core)
    assert 0 <= user <= busy
    counted = iter([100, 600])
    mpps, offered, _ = kernel._window(lambda: next(counted), lambda: 0, core, 0.01)
    assert 0 < mpps <= 500 / 10_000 and offered == 0


def test_hosts_send_finished_frames_to_whoever_copes_with_nothing_else() -> None:
    assert set(kernel_tcp.COPES) == {"ours", "bridge"}
    assert kernel_tcp._name("tap", True, "ovs") == "kernel.tcp.tap-plain.ovs"
    assert Way("tap", "ours", False) != Way("tap", "ours", True)


def test_what_a_file_holds_is_told_by_the_size_of_a_record() -> None:
    assert kernel_capture.RECORD["tcpdump"](64) == kernel_capture.RECORD["ours"](64) == 80
    assert (kernel_capture.RECORD["dumpcap"](64), kernel_capture.RECORD["dumpcap"](61)) == (96, 96)


def test_absent_peers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert testpmd_live.missing() == "not installed: dpdk-testpmd"
    assert ovs.missing() == "not installed: ovs-vswitchd"
    assert kernel_tcp.missing() == "not installed: iperf3"


def test_without_root_a_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (row,) = kernel.run(OPTIONS)
    assert row.ours is None and "needs root" in row.note


@needs_root
def test_our_side_forwards_until_it_is_told_to_stop() -> None:
    with (
        namespaces.spaces("t") as (space,),
        Live(space, Graph([["generator:", "tap:t0"]], min(os.sched_getaffinity(0)))) as ours,
    ):
        ours.start()
        before = ours.received()
        while ours.received() == before:
            pass
        assert space.packets("t0", "rx") > 0
        cycles = ours.stop()
        assert cycles is not None and cycles > 0
    assert space.name not in namespaces.call("ip", "netns", "list")


@needs_root
def test_a_row_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    assert (
        command.main(["kernel", "--quick", "--runs", "1", "--only", "kernel.tap.tx", "--json", str(tmp_path / "rows")])
        == 0
    )
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows[0]["name"] == "kernel.tap.tx.64B"
    assert rows[0]["ours"] > 0 and rows[0]["peer"] is None
    assert "wsb" not in namespaces.call("ip", "netns", "list")


def test_cycles_outside_the_kernel_leave_out_its_time() -> None:
    assert kernel._outside(Case("packet", "rx"), 300.0, 0.9, None) == 300.0
    assert kernel._outside(Case("xdp", "tx"), 2000.0, 0.1, None) == 200.0
    assert kernel._outside(Case("tap", "forward"), 2000.0, None, None) is None
    assert kernel._outside(Case("packet", "forward"), 4000.0, 0.1, 3750.0) == 250.0
    assert kernel._outside(Case("xdp", "forward"), 4000.0, 0.1, None) is None


@pytest.mark.skipif(kernel_calls.missing() is not None, reason="calls are timed on x86, and gcc compiles what does it")
@pytest.mark.parametrize("word", ["send", "syscall"])
def test_the_time_of_calls_that_send_is_taken_and_of_no_others(word: str) -> None:
    by = {"send": "one.send(b'x')", "syscall": "libc.syscall(44, one.fileno(), b'x', 1, 0, None, 0)"}[word]
    script = """
import ctypes, socket
libc, (one, other) = ctypes.CDLL(None), socket.socketpair()
{}
libc.syscall(39); other.setblocking(False)
"""
    with kernel_calls.Calls() as calls:
        for doing, told in (("", False), (by, True)):
            with calls.preloaded():
                subprocess.run([sys.executable, "-c", script.format(doing)], check=True)
            assert (calls.cycles() > 0) == told
    assert "WIRESPEED_CALLS" not in os.environ
