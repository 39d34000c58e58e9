"""The figures of DPDK's distributor are read for what they are; the program that plays its workers ends by itself."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.harness import ToolFailed
from bench.peers import distributor_perf, dpdk_distributor, dpdk_test
from bench.peers.distributor_perf import Figures
from bench.peers.dpdk_distributor import Cost
from bench.peers.limited import Ended

CORE = min(os.sched_getaffinity(0))

TABLE = """\
APP: HPET is not enabled, using TSC as default timer
RTE>>distributor_perf_autotest
==== Cache line switch test ===
Time for 1000 iterations = 169500 ticks
Ticks per iteration = 169

=== Performance test of distributor (single mode) ===
Time per burst:  11360
Time per packet: 177

Worker 0 handled 134217728 packets
Total packets: 134217728 (8000000)
=== Perf test done ===

=== Performance test of distributor (burst mode) ===
Time per burst:  2592
Time per packet: 40

Worker 0 handled 134217728 packets
Total packets: 134217728 (8000000)
=== Perf test done ===

Test OK
RTE>>"""

ROWS = """\
EAL: Detected CPU lcores: 2
workers 1 mode single traffic seq cycles/packet 42.2500
workers 63 mode burst traffic random cycles/packet 113.5000 match 45.1250
workers 63 mode burst traffic random cycles/pac"""


def test_the_three_figures_are_not_rounded_down_as_those_that_are_printed() -> None:
    assert distributor_perf.parse(TABLE) == Figures(line_switch=169.5, single=177.5, burst=40.5)


def test_figures_come_by_the_name_of_their_mode_not_by_their_place() -> None:
    swapped = TABLE.replace("(single", "(other").replace("(burst", "(single").replace("(other", "(burst")
    assert distributor_perf.parse(swapped) == Figures(line_switch=169.5, single=40.5, burst=177.5)


@pytest.mark.parametrize(
    ("before", "after", "absent"),
    [
        ("iterations = 169500 ticks", "iterations = none", "line switch"),
        ("(burst mode)", "(vector mode)", "burst"),
        ("Time per packet: 177", "Time per packet: 355", "single"),
        (TABLE, "Test OK", "line switch, single, burst"),
    ],
)
def test_a_figure_that_is_not_there_or_counts_otherwise_is_named(before: str, after: str, absent: str) -> None:
    with pytest.raises(ToolFailed, match=f"no figure that is known for: {absent}$"):
        distributor_perf.parse(TABLE.replace(before, after))


@pytest.mark.parametrize(
    ("ended", "complaint"),
    [
        (
            Ended(TABLE[: TABLE.index("=== Perf test")], "", False),
            "not end within 120 s; it had measured single, line switch",
        ),
        (Ended("", "EAL: Detected CPU lcores: 2", False), "it had measured nothing"),
        (Ended(TABLE.replace("Test OK", "Test Failed"), "Error creating distributor", True), "failed: Error creating"),
        (Ended("Test OK", "", True), "no figure that is known"),
    ],
)
def test_a_run_that_is_not_whole_is_not_taken(ended: Ended, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpdk_test, "autotest", lambda *_: ended)
    with pytest.raises(ToolFailed, match=complaint):
        distributor_perf.measure([0, 1])


def test_the_distributor_is_on_the_lower_of_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def autotest(*arguments: object) -> Ended:
        asked.append(arguments)
        return Ended(TABLE, "", True)

    monkeypatch.setattr(dpdk_test, "autotest", autotest)
    assert distributor_perf.measure([3, 1]).burst == 40.5
    assert asked == [("distributor_perf_autotest", [1, 3], distributor_perf.SECONDS)]
    with pytest.raises(ToolFailed, match="was given 1 cores, and takes two"):
        distributor_perf.measure([0])


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert distributor_perf.missing() == "not installed: dpdk-test"
    assert dpdk_distributor.missing() == "not installed: gcc"


def test_costs_are_read_and_a_line_that_was_cut_off_is_not() -> None:
    assert dpdk_distributor.parse(ROWS) == [
        Cost(1, "single", "seq", 42.25, None),
        Cost(63, "burst", "random", 113.5, 45.125),
    ]


@contextmanager
def no_huge_pages() -> Iterator[bool]:
    yield False


def test_every_row_is_measured_without_a_worker_that_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dpdk_distributor.missing():
        pytest.skip("libdpdk is not installed")
    monkeypatch.setenv("WIRESPEED_BENCH_DIR", str(tmp_path))
    monkeypatch.setattr(dpdk_distributor, "huge_pages", no_huge_pages)
    rows = dpdk_distributor.measure(CORE)
    assert [(row.workers, row.mode, row.traffic) for row in rows] == [
        (workers, mode, traffic)
        for workers in dpdk_distributor.WORKERS
        for mode in ("single", "burst")
        for traffic in ("seq", "random")
    ]
    assert all(row.cycles > 0 for row in rows)
    # The program counts what comes back itself, and ends in error if something is missing.
    archive = [row.match for row in rows if row.mode == "burst"]
    assert all(match is None for match in archive) or all(match and match > 0 for match in archive)
    assert all(row.match is None for row in rows if row.mode == "single")
