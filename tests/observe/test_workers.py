"""The table of a distributing stage's workers: its rates beside the obvious computation, and as it is drawn."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.observe.test_live import Steps
from tests.observe.test_rates import report, stage
from wirespeed.engine.distribute.part import DistributorShare, WorkerShare
from wirespeed.engine.report import Report, WorkerReport
from wirespeed.observe.workers import WorkersTable, distributing, summary, worker_rates, workers_picture


def spread(seconds: float, *shares: WorkerShare, idle: float = 0.5, parked: int = 0, blocked: str = "") -> Report:
    """A report of a run with a distributing stage."""
    counters = {f"worker {i}": share for i, share in enumerate(shares)}
    counters |= {"distributor": DistributorShare(parked, parked, blocked), "by.asked": 7}  # type: ignore[dict-item]
    threads = (WorkerReport(0, 0, 9, 0.0, "null:"), *(WorkerReport(i + 1, 1, 9, idle, "f") for i in range(len(shares))))
    packets = sum(share.packets for share in shares)
    return report(
        seconds,
        stage("source", packets, name="null:"),
        stage("stage", packets, name="distribute", counters=counters, held=3, drops={"dropped_by_worker": 2}),
        stage("sink", packets, name="pcap:out.pcap"),
        workers=threads,
    )


def drawn(now: Report, before: Report | None = None, width: int = 80) -> str:
    screen = Console(width=width, file=io.StringIO())
    screen.print(workers_picture(before, now))
    return screen.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@given(st.lists(st.tuples(*[st.integers(0, 10**9)] * 4), min_size=1, max_size=5), st.integers(1, 5000))
def test_rates_are_differences_between_two_reports(numbers: list[tuple[int, int, int, int]], time: int) -> None:
    old = [WorkerShare(packets, lines, 4.0) for packets, lines, _, _ in numbers]
    new = [WorkerShare(p + more, lines + some, 4.0) for p, lines, more, some in numbers]
    rates = worker_rates(spread(1.0, *old), spread(1 + time / 1000, *new))
    whole = sum(more for _, _, more, _ in numbers)
    for rate, (_, _, more, some) in zip(rates, numbers, strict=True):
        assert rate.packets_per_s == pytest.approx(more * 1000 / time, rel=1e-6)
        assert rate.share == (more / whole if whole else 0)
        assert rate.per_line == (more / some if some else 0)
        assert rate.under_way == (pytest.approx(4.0, rel=1e-6) if some else 0)


def test_lines_under_way_are_the_mean_of_those_sent_since() -> None:
    before, now = spread(1.0, WorkerShare(100, 10, 2.0)), spread(2.0, WorkerShare(200, 20, 5.0))
    assert worker_rates(before, now)[0].under_way == pytest.approx(8.0)


def test_without_an_earlier_report_the_rates_are_since_the_beginning() -> None:
    (rate,) = worker_rates(None, spread(2.0, WorkerShare(100, 10, 2.0)))
    assert (rate.packets_per_s, rate.per_line, rate.under_way, rate.share) == (50.0, 10.0, 2.0, 1.0)


def test_two_reports_of_one_moment_give_no_rate_and_no_error() -> None:
    now = spread(1.0, WorkerShare(100, 10, 2.0))
    assert worker_rates(now, now)[0].packets_per_s == 0.0


def test_a_worker_is_idle_as_its_thread_is_which_is_behind_those_of_the_graph() -> None:
    rates = worker_rates(None, spread(1.0, WorkerShare(1, 1, 1.0), WorkerShare(1, 1, 1.0), idle=0.25))
    assert [rate.idle_share for rate in rates] == [0.25, 0.25]


def test_what_is_kept_for_a_worker_counts_as_in_flight() -> None:
    (rate,) = worker_rates(None, spread(1.0, WorkerShare(100, 10, 2.0, {}, 31, 62, 5, 1, "stalled")))
    assert (rate.in_flight, rate.pinned, rate.takeovers, rate.state) == (93, 5, 1, "stalled")


def test_a_report_without_a_distributing_stage_is_refused() -> None:
    with pytest.raises(KeyError, match="no stage of this report has workers of its own"):
        distributing(report(1.0, stage("source", 1), stage("sink", 1)))


def test_each_worker_has_a_row() -> None:
    shares = WorkerShare(3_000_000, 100_000, 3.5), WorkerShare(1_000_000, 50_000, 1.0, {}, 31, 0, 7, 0, "stalled")
    lines = drawn(spread(2.0, *shares)).splitlines()
    assert lines[1] == "The workers of distribute; worker k below has the thread of worker k + 1 above"
    assert lines[2].split() == [
        "worker", "packets/s", "share", "a", "line", "lines", "in", "flight", "pinned", "taken", "over", "idle", "state",
    ]  # fmt: skip
    assert lines[3].split() == ["0", "1.50", "M", "75%", "30.0", "3.5", "0", "0", "0", "50%", "active"]
    assert lines[4].split() == ["1", "500", "k", "25%", "20.0", "1.0", "31", "7", "0", "50%", "stalled"]
    assert max(map(len, lines)) <= 80


def test_the_whole_says_what_is_parked_and_why_nothing_more_is_taken() -> None:
    share = WorkerShare(1_234, 100, 1.0)
    assert summary(spread(1.0, share)) == "in 1,234, out 1,234, dropped 2, here 3, of these parked 0"
    text = summary(spread(1.0, share, parked=12, blocked="worker 0 has no room"))
    assert text.endswith("here 3, of these parked 12; worker 0 has no room")


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_is_no_error(width: int) -> None:
    assert max(map(len, drawn(spread(1.0, WorkerShare(10, 1, 1.0)), width=width).splitlines())) <= width


def test_the_table_is_drawn_below_that_of_the_stages_with_the_rates_since_the_last_picture() -> None:
    screen = Console(width=100, height=40, file=io.StringIO(), force_terminal=True, color_system=None)
    steps = Steps(spread(1.0, WorkerShare(1_000, 100, 1.0)), spread(2.0, WorkerShare(4_000, 200, 1.0)))
    with WorkersTable(screen, every_s=0.0) as table:
        table(steps)  # type: ignore[arg-type]
        table(steps)  # type: ignore[arg-type]
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    _, first, second, *_ = (part.split() for part in text.split("The workers of distribute;"))
    assert "1.00 k" in " ".join(first) and "3.00 k" in " ".join(second) and "30.0" in second
    assert text.index("cycles/packet") < text.index("The workers of distribute;")
