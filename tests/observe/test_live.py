"""The live table and lines, as a person sees them: drawn on consoles of several kinds and read back."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.cli.terminal import Terminal
from tests.observe.test_rates import report, stage
from wirespeed.engine.report import Report, WorkerReport
from wirespeed.observe.live import LiveLines, LiveTable, line, picture, shorten, si
from wirespeed.observe.rates import between


class Steps:
    """Stands where a Running would: its reports are those given, one after the other; then it has ended."""

    def __init__(self, *reports: Report) -> None:
        self.reports = list(reports)

    @property
    def alive(self) -> bool:
        return bool(self.reports)

    def report(self) -> Report:
        return self.reports.pop(0)


BUSY = report(
    1.5,
    stage("source", 12_345_678, name="pcap:/var/captures/a-rather-long-name-of-a-capture.pcap", bytes=1 << 40,
          cycles_per_packet=14.2),
    stage("stage", 12_345_678, cycles_per_packet=9.06, drops={"ttl": 1_234}, sentences={"ttl": "No hop left"}),
    stage("sink", 12_344_444, name="pcap:out.pcap", bytes=1 << 40),
    workers=(WorkerReport(0, 1, 9, 0.031, "one_hop"), WorkerReport(1, None, 9, 0.5, "one_hop")),
    pool_failures=3,
    notes=("pcap:in.pcap is cut at byte 99",),
)  # fmt: skip


def drawn(width: int, now: Report = BUSY, **console: Any) -> str:
    screen = Console(width=width, file=io.StringIO(), **console)
    screen.print(picture(between(None, now), width))
    return screen.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_table_has_every_stage_with_its_rates_drops_and_totals() -> None:
    lines = drawn(120).splitlines()
    assert lines[0].split() == ["stage", "packets/s", "bits/s", "cycles/packet", "packets", "dropped"]
    assert lines[2].split() == ["one_hop", "8.23", "M", "9.1", "12,345,678", "1,234"]
    assert lines[3].split() == ["pcap:out.pcap", "8.23", "M", "5.86", "T", "12,344,444", "0"]
    assert lines[4].strip() == "one_hop dropped 1,234: No hop left (ttl)"
    assert lines[5].strip() == "pcap:in.pcap is cut at byte 99"


def test_the_table_ends_with_the_workers_and_the_pool() -> None:
    text = " ".join(drawn(120).split())
    assert "1.5 s; worker 0 on core 1 idle 3%, worker 1 idle 50%; pool 60 of 64 free, found empty 3 times" in text


def test_the_table_fits_eighty_columns_by_cutting_names_only() -> None:
    text = drawn(80)
    assert max(map(len, text.splitlines())) <= 80
    first = text.splitlines()[1]
    assert first.startswith("pcap:…") and "of-a-capture.pcap " in first and "12,345,678" in first and "14.2" in first


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_is_no_error(width: int) -> None:
    assert max(map(len, drawn(width).splitlines())) <= width


@given(st.text("abc:/.", max_size=40), st.integers(1, 40))
def test_a_shortened_name_is_never_too_long_and_unchanged_where_it_fits(name: str, length: int) -> None:
    assert len(shorten(name, length)) == min(len(name), length)
    assert len(name) > length or shorten(name, length) == name


def test_the_stages_of_a_crew_are_inset() -> None:
    now = report(1.0, stage("sink", 7, name="null:"), stage("stage", 7, name="inside", crew="spread"))
    assert [line[:8] for line in drawn(100, now).splitlines()[1:3]] == ["null:   ", "  inside"]
    long = report(1.0, stage("stage", 7, name="a-name-that-does-not-fit-into-the-width-that-there-is", crew="spread"))
    assert max(map(len, drawn(80, long).splitlines())) <= 80


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[3" in drawn(100, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in drawn(100, force_terminal=True)


def test_names_with_brackets_are_shown_as_they_are() -> None:
    odd = report(1.0, stage("sink", 1, name="pcap:[bold]x[/bold].pcap"), notes=("[red]odd[/red]",))
    assert "pcap:[bold]x[/bold].pcap" in drawn(100, odd) and "[red]odd[/red]" in drawn(100, odd)


def test_a_report_of_nothing_yet_is_drawn() -> None:
    assert "0.0 s" in drawn(80, report(0.0, stage("source"), stage("sink")))


def test_the_live_table_is_drawn_on_the_terminal_and_taken_away_at_the_end() -> None:
    screen = Console(width=100, height=30, file=io.StringIO(), force_terminal=True, color_system=None)
    steps = Steps(BUSY, BUSY)
    with LiveTable(screen, every_s=0.0) as table:
        table.compiling("engine.worker.work")
        compiling = screen.file.getvalue()  # type: ignore[attr-defined]
        table(steps)  # type: ignore[arg-type]
        table.compiling("core.pool.drain")
        table(steps)  # type: ignore[arg-type]
        before = screen.file.getvalue()  # type: ignore[attr-defined]
        table(steps)  # type: ignore[arg-type]
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "compiling engine.worker.work" in compiling
    assert "core.pool.drain" not in text, "what is compiled while packets run is not worth the table's place"
    assert before.count("pool 60 of 64 free") == 2
    assert text.endswith("\x1b[2K"), "the last that is done is to clear a line"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"


def test_the_live_table_waits_between_two_pictures() -> None:
    screen = Console(width=100, file=io.StringIO(), force_terminal=True)
    steps = Steps(BUSY, BUSY, BUSY)
    with LiveTable(screen, every_s=1e9) as table:
        for _ in range(3):
            table(steps)  # type: ignore[arg-type]
    assert len(steps.reports) == 2


def test_closing_the_live_table_twice_is_harmless() -> None:
    table = LiveTable(Console(file=io.StringIO(), force_terminal=True))
    table.close()
    table.close()
    table.compiling("late")
    assert "late" not in table.console.file.getvalue()  # type: ignore[attr-defined]


PROGRAM = """
import wirespeed as ws
def live(running):
    table(running)
    if running.report().packets > 1_000_000:
        raise RuntimeError("by the way")
table = ws.LiveTable()
ws.run(ws.port("null:") >> ws.port("null:"), live=live)
"""


def test_a_program_that_ends_by_an_error_leaves_the_terminal_as_it_was() -> None:
    with Terminal(program=("-c", PROGRAM)) as terminal:
        code, _ = terminal.end()
    assert code == 1 and "by the way" in terminal.shown
    assert "packets/s" in terminal.shown
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l"), "the cursor is shown again"


def test_lines_have_no_escapes_and_rates_since_the_line_before() -> None:
    out = io.StringIO()
    later = report(2.5, *(stage(s.kind, s.packets_out + 2_000_000, name=s.name) for s in BUSY.stages))
    steps = Steps(BUSY, later)
    with LiveLines(out, every_s=0.0) as lines:
        lines.compiling("a")
        lines.compiling("b")
        for _ in range(4):
            lines(steps)  # type: ignore[arg-type]
    told, first, second = out.getvalue().splitlines()
    assert told == "compiling for this processor; later runs take it from the cache"
    assert "\x1b" not in out.getvalue()
    assert "8.23 Mpps" in first and "12,344,444 packets, 1,234 dropped" in first and "idle 3% 50%" in first
    assert "2.00 Mpps" in second and "14,344,444 packets" in second


def test_a_line_without_cycles_says_so() -> None:
    assert "cycles/packet: -" in line(between(None, report(1.0, stage("sink", 1))))


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 "), (0.5, "0.50 "), (9.994, "9.99 "), (9.996, "10.0 "), (99.94, "99.9 "), (99.96, "100 "), (999.4, "999 "),
    (999.6, "1.00 k"), (1e3, "1.00 k"), (999_499, "999 k"), (999_500, "1.00 M"), (9.81e6, "9.81 M"), (1.2e13, "12.0 T"),
    (1e18, "1000000 T"),
])  # fmt: skip
def test_numbers_have_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert si(value) == text


@given(st.floats(0, 9.99e14))
def test_a_number_reads_back_within_half_of_its_last_digit(value: float) -> None:
    number, _, prefix = si(value).partition(" ")
    assert len(number) <= 4
    got = float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[prefix]
    assert got == pytest.approx(value, rel=0.0051, abs=0.0051)
