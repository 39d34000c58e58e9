"""The distributor's bench: what it compares, when a figure counts, and how it is drawn."""

import os
import xml.etree.ElementTree as xml

import pytest

from bench import distributor, plot_workers
from bench.distributor_loops import BURST, Core, Pair
from bench.harness import Options
from bench.machine import PlacementWatch
from bench.peers import distributor_perf


@pytest.mark.parametrize("traffic", ["seq", "random"])
@pytest.mark.parametrize("shape", [{}, {"burst": 1, "lines": 1}])
def test_a_core_takes_everything_and_its_match_is_a_part_of_that(traffic, shape):
    whole, match = Core(5, traffic, **shape).sample(64)
    assert 0 < match < whole


def test_what_goes_to_the_worker_of_the_other_core_comes_back():
    pair = Pair((min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))))
    try:
        assert pair.sample(64) > 0  # it raises when not all came back
    finally:
        pair.close()


def seen(*looks, end=10.0):
    watch = PlacementWatch(0, 0)
    watch._seen, watch._end = list(looks), end
    return watch


def test_a_figure_counts_for_the_placement_that_nearly_all_looks_saw():
    watch = seen(*((t / 10, "near" if t < 60 else "far") for t in range(100)))
    assert watch.word(0.0, 3.9, 0.9) == "far"
    assert watch.word(4.1, 10.0, 0.9) == "near"
    assert watch.word(0.0, 10.0, 0.9) is None
    assert watch.word(0.0, 4.2, 0.9) == "far"


def test_a_figure_without_any_look_counts_for_no_placement():
    assert seen().word(0.0, 5.0, 0.9) is None


def test_a_figure_of_the_peer_took_as_long_as_its_cycles_say():
    assert distributor_perf.seconds(200.0) == pytest.approx(2 * distributor_perf.seconds(100.0), rel=0.01)
    assert distributor_perf.seconds(100.0) > distributor_perf.CALLS * BURST * 100 / 10e9  # no clock counts faster


def test_without_the_peer_its_rows_on_one_core_are_ours_alone():
    core = min(os.sched_getaffinity(0))
    rows = list(distributor._core_rows(Options(peer=False, quick=True, runs=1, core=core, only="-4.seq"), core))
    assert {row.name for row in rows} == {
        "distributor.core-4.seq", "distributor.match-4.seq", "distributor.core-4.seq.own-single",
    }  # fmt: skip
    assert all(row.ours and row.ours.value > 0 for row in rows)


def test_the_drawing_has_a_line_for_each_side_and_what_is_measured_of_it():
    rows = [
        {"name": f"distributor.{case}-{workers}.seq.dpdk", "ours": ours, "theirs": theirs if workers < 64 else None}
        for case, ours, theirs in (("core", 14.0, 30.0), ("match", 6.0, 12.0))
        for workers in (1, 16, 63, 256)
    ]
    found = plot_workers.series(rows)
    assert found["core", "ours"] == [(1, 14.0), (16, 14.0), (63, 14.0), (256, 14.0)]
    assert found["match", "theirs"] == [(1, 12.0), (16, 12.0), (63, 12.0)]
    drawn = xml.fromstring(plot_workers.svg(rows))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 4
