"""The bench of filters: both sides judge the same frames alike."""

import os

import pytest

from bench import filter as bench
from bench.harness import Options
from bench.peers import libpcap


def test_both_sides_match_the_same_frames() -> None:
    if reason := libpcap.missing():
        pytest.skip(f"libpcap is not installed: {reason}")
    options = Options(peer=True, quick=True, runs=1, core=max(os.sched_getaffinity(0)))
    rows = list(bench.run(options))
    assert [row.name for row in rows] == [
        f"filter.{case}.{variant}.libpcap" for case in bench.CASES for variant in ("64B", "mixed")
    ]
    assert [row.note for row in rows] == [""] * len(rows)
    assert all(row.theirs is not None and row.theirs.value > 0 for row in rows)


def test_the_peer_is_left_out_when_it_was_not_asked_for() -> None:
    options = Options(peer=False, quick=True, runs=1, core=max(os.sched_getaffinity(0)), only="filter.complex.64B")
    (row,) = bench.run(options)
    assert (row.name, row.peer, row.theirs) == ("filter.complex.64B", None, None)
