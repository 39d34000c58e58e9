"""The rates between two reports, beside the obvious computation."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.engine.report import Report, StageReport, WorkerReport
from wirespeed.observe.rates import between, passed


def stage(kind: str = "stage", packets: int = 0, **other: object) -> StageReport:
    values = {
        "name": "one_hop", "kind": kind, "packets_in": packets, "packets_out": packets, "outputs": (packets,),
        "bytes": 0, "held": 0, "refused": 0, "drops": {}, "sentences": {}, "cycles_per_packet": None,
    }  # fmt: skip
    return StageReport(**{**values, **other})  # type: ignore[arg-type]


def report(seconds: float, *stages: StageReport, idle: float = 0.0, **other: object) -> Report:
    values = {
        "seconds": seconds, "stages": stages, "workers": (WorkerReport(0, None, 1, idle, "one_hop"),), "pool_size": 64,
        "pool_free": 60, "pool_failures": 0, "notes": (), "tsc_hz": 1e9, "finished": False,
    }  # fmt: skip
    return Report(**{**values, **other})  # type: ignore[arg-type]


@given(st.integers(0, 1 << 63), st.integers(0, 1 << 40), st.integers(1, 10_000), st.integers(1, 10_000))
def test_packets_and_bits_a_second_are_differences_over_the_time_between(
    n: int, more: int, begin: int, time: int
) -> None:
    before = report(begin / 1000, stage("sink", n, bytes=64 * n))
    now = report((begin + time) / 1000, stage("sink", n + more, bytes=64 * (n + more)))
    (rate,) = between(before, now).stages
    assert rate.packets == n + more
    assert rate.packets_per_s == pytest.approx(more * 1000 / time, rel=1e-6)
    assert rate.bits_per_s == pytest.approx(8 * 64 * more * 1000 / time, rel=1e-6)


def test_without_an_earlier_report_the_rates_are_since_the_beginning() -> None:
    rates = between(None, report(2.0, stage("source", 100, bytes=1000), idle=0.25))
    assert (rates.stages[0].packets_per_s, rates.stages[0].bits_per_s) == (50.0, 4000.0)
    assert rates.workers[0].idle_share == 0.25


def test_two_reports_of_one_moment_give_no_rate_and_no_error() -> None:
    now = report(1.0, stage("sink", 10, bytes=640, cycles_per_packet=4.0))
    rates = between(now, now)
    assert (rates.stages[0].packets_per_s, rates.stages[0].bits_per_s) == (0.0, 0.0)
    assert rates.stages[0].cycles_per_packet == 4.0


def test_what_a_stage_dealt_with_is_what_came_in_and_of_a_port_what_went_through() -> None:
    counts = {"packets_in": 10, "packets_out": 7}
    assert [passed(stage(kind, **counts)) for kind in ("source", "stage", "sink")] == [7, 10, 7]


def test_a_function_has_no_bits_and_an_idle_port_has_none_a_second() -> None:
    now = report(1.0, stage("stage", 5), stage("sink", 0))
    assert [s.bits_per_s for s in between(None, now).stages] == [None, 0.0]


@given(
    st.floats(1, 1000), st.integers(1, 10**9), st.floats(1, 1000), st.integers(1, 10**9)
)  # cycles a packet and packets, before and since
def test_cycles_a_packet_are_those_since_the_earlier_report(old: float, n: int, new: float, more: int) -> None:
    mean = (old * n + new * more) / (n + more)
    before = report(1.0, stage("stage", n, cycles_per_packet=old))
    now = report(2.0, stage("stage", n + more, cycles_per_packet=mean))
    got = between(before, now).stages[0].cycles_per_packet
    assert got == pytest.approx(new, rel=1e-3, abs=1e-5 * (old * n / more + new))


def test_cycles_a_packet_stay_the_mean_when_no_packet_came() -> None:
    one = stage("stage", 5, cycles_per_packet=9.0)
    assert between(report(1.0, one), report(2.0, one)).stages[0].cycles_per_packet == 9.0
    assert between(None, report(1.0, stage())).stages[0].cycles_per_packet is None


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_idle_share_is_that_since_the_earlier_report(old: float, new: float) -> None:
    before, now = report(3.0, idle=old), report(5.0, idle=(3 * old + 2 * new) / 5)
    assert between(before, now).workers[0].idle_share == pytest.approx(new, abs=1e-9)


def test_drops_are_totals_by_reason_with_their_sentences() -> None:
    dropping = stage("stage", 9, drops={"ttl": 3, "never": 0, "odd": 1}, sentences={"ttl": "No hop left"})
    rates = between(None, report(1.0, dropping, stage("sink", 5)))
    assert rates.stages[0].drops == (("ttl", "No hop left", 3), ("odd", "odd", 1))
    assert (rates.dropped, rates.packets, rates.packets_per_s) == (4, 5, 5.0)


def test_what_is_no_rate_is_taken_over() -> None:
    now = dataclasses.replace(report(1.0), notes=("damaged",), pool_failures=7)
    rates = between(None, now)
    assert (rates.pool_size, rates.pool_free, rates.pool_failures, rates.notes) == (64, 60, 7, ("damaged",))


def test_what_passes_a_crew_is_counted_by_its_stage_only() -> None:
    drops = {"dropped": 3}
    now = report(
        2.0, stage("source", 10), stage("stage", 10, name="spread", drops={"dropped_by_worker": 3}), stage("sink", 7),
        stage("source", 10, crew="spread"), stage("stage", 10, drops=drops, crew="spread"),
        stage("sink", 7, crew="spread"),
    )  # fmt: skip
    rates = between(None, now)
    assert (rates.packets, rates.packets_per_s, rates.dropped) == (7, 3.5, 3)
    assert [s.crew for s in rates.stages] == ["", "", "", "spread", "spread", "spread"]
