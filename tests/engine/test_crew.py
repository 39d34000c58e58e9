"""Crews: graphs that run beside the main one, stopped after it, with books of their own that count nothing twice."""

import json
import logging
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import wirespeed as ws
from tests.elements import TestElement, deal, drop_odd, never_return, sink, source
from wirespeed.core import ring
from wirespeed.core.element import Element
from wirespeed.core.ring import MT, ST, dequeue, enqueue
from wirespeed.core.stage import FIRST_REASON, Crew, Head, Placement, Site, count_drops, drop
from wirespeed.jit.intrinsics import load_i64, store_i64
from wirespeed.jit.kernel import stage
from wirespeed.jit.layout import layout

i64 = np.int64
SLOTS = 64
State = layout("DetourState", [("head", Head), ("there", "i8"), ("back", "i8"), ("box", "i8", 512)])


@stage
def send_round(state, burst, n):
    """Send packets to the crew, as many as there is room for, and leave those that are back; 0 stands for a lost one."""
    s = State(state)
    for i in range(n):
        store_i64(s.box + 8 * (s.head.full + i), load_i64(burst + 8 * i))
    waiting = s.head.full + n
    gone = enqueue(s.there, s.box, waiting, 8, False, ST)
    for i in range(waiting - gone):
        store_i64(s.box + 8 * i, load_i64(s.box + 8 * (gone + i)))
    s.head.full = waiting - gone
    back = dequeue(s.back, burst, n if n > 0 else i64(16), 8, False, ST)
    kept = i64(0)
    for i in range(back):
        handle = load_i64(burst + 8 * i)
        if handle != 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
    count_drops(state, FIRST_REASON, back - kept)
    s.head.held += n - back
    return kept


@stage
def come(state, burst, n):
    """A source of what was sent."""
    return dequeue(State(state).there, burst, n, 8, False, MT)


@stage
def go_back(state, burst, n):
    """A sink that sends packets back."""
    # Bounds: the ring has room for all that can be under way.
    enqueue(State(state).back, burst, n, 8, True, MT)
    return i64(0)


@stage
def lose_odd(state, burst, n):
    """Drop the packets with odd places in their burst, and send a 0 back for each."""
    s = State(state)
    kept = i64(0)
    for i in range(n):
        handle = load_i64(burst + 8 * i)
        if i % 2 == 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
        else:
            drop(state, handle, i64(FIRST_REASON))
            store_i64(s.box, i64(0))
            enqueue(s.back, s.box, i64(1), 8, True, MT)
    return kept


@stage
def forget(state, burst, n):
    """Lose what comes without a word, and let nobody have it."""
    return i64(0)


class Detour(Element):
    """A stage whose packets pass ``chain`` in ``workers`` threads; the rings are the run's that is open."""

    def __init__(self, *chain: Element, workers: int = 1) -> None:
        self.name = "detour"
        self.chain = chain
        self.workers = workers
        self.holds = 1000
        self.memory: list[Any] = []

    def open(self, role: str, workers: int) -> "Detour":
        if workers > 1:
            raise ws.GraphError(f"{self.name} has workers of its own; run with workers=1")
        self.memory = [np.zeros(ring.size_of(slots) // 8 + 16, np.uint64) for slots in (SLOTS, 4096)]
        self.there, self.back = (-(-array.ctypes.data // 128) * 128 for array in self.memory)
        ring.init(self.there, SLOTS)
        ring.init(self.back, 4096)
        return self

    def crews(self, outputs: int) -> list[Crew]:
        chain: Any = Rung(self, "come", come, port=True)
        for element in self.chain:
            chain = chain >> element
        return [Crew(chain >> Rung(self, "go_back", go_back, port=True), self.workers)]

    def place(self, site: Site) -> Placement:
        return Rung(self, self.name, send_round).place(site)

    def close(self) -> None:
        pass


class Rung(TestElement):
    """A stage at a detour's rings."""

    def __init__(self, detour: Detour, name: str, code: Any, port: bool = False) -> None:
        super().__init__(name, code)
        self.detour = detour
        if port:
            self.KIND = "test"

    def place(self, site: Site) -> Placement:
        address = site.state(State)
        State.at(address).there, State.at(address).back = self.detour.there, self.detour.back
        return Placement(self.code.address, address, {"lost": "The crew lost it"})

    def close(self) -> None:
        pass


def rows(report: ws.Report) -> dict[str, ws.StageReport]:
    return {s.name: s for s in report.stages}


@pytest.mark.parametrize("workers", [1, 3])
def test_packets_pass_the_threads_of_a_crew_and_are_counted_once(workers: int) -> None:
    out = sink()
    report = ws.run(source(20_000) >> Detour(TestElement("inner", deal, k=1), workers=workers) >> out)
    assert sorted(out.numbers) == list(range(20_000))
    assert workers > 1 or out.numbers == list(range(20_000))
    assert report.balanced
    assert (report.received, report.packets, report.dropped) == (20_000, 20_000, 0)
    assert [(s.name, s.crew) for s in report.stages] == [
        ("source", ""), ("detour", ""), ("sink", ""), ("come", "detour"), ("inner", "detour"), ("go_back", "detour"),
    ]  # fmt: skip
    assert {s.packets_out for s in report.stages} == {20_000}
    assert [w.number for w in report.workers] == list(range(1 + workers))


def test_what_a_crew_drops_is_counted_once_in_all_and_balances_in_both_places() -> None:
    out = sink()
    detour = Detour()
    detour.chain = (Rung(detour, "lossy", lose_odd),)
    report = ws.run(source(10_000) >> detour >> out)
    row = rows(report)
    lost = row["lossy"].dropped
    assert 0 < lost < 10_000 and row["detour"].dropped == lost == report.dropped
    assert len(out.numbers) == report.packets == 10_000 - lost
    assert report.balanced
    assert all(s.missing == 0 for s in report.stages)


def test_books_of_a_crew_that_do_not_balance_are_seen() -> None:
    detour = Detour(TestElement("liar", forget))
    with ws.start(source(100) >> detour >> sink()) as running:
        time.sleep(0.2)
    report = running.report()
    assert not report.balanced and rows(report)["liar"].missing > 0


def test_a_stopped_run_brings_what_its_crew_has_to_an_end() -> None:
    with ws.start(
        ws.port("null:") >> Detour(TestElement("inner", deal, k=1), workers=2) >> ws.port("null:")
    ) as running:
        while running.report().packets < 1000:
            time.sleep(0.01)
    report = running.report()
    assert report.balanced and report.dropped == 0
    assert report.received == report.packets


def test_the_workers_of_a_crew_are_numbered_and_pinned_behind_the_others() -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    threads: set[str] = set()
    with ws.start(ws.port("null:") >> Detour(workers=2) >> ws.port("null:"), cores=cores) as running:
        threads = {t.name for t in threading.enumerate() if t.name.startswith("wirespeed-worker")}
        report = running.report()
    assert threads == {"wirespeed-worker-0", "wirespeed-worker-1", "wirespeed-worker-2"}
    assert [w.core for w in report.workers] == [cores[i % len(cores)] for i in range(3)]


def test_a_stage_that_stalls_a_crew_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "wirespeed"):
        running = ws.start(source(100) >> Detour(TestElement("stuck", never_return)) >> sink())
        deadline = time.monotonic() + 20
        while not running.report().notes and time.monotonic() < deadline:
            time.sleep(0.05)
        running.stop()
        assert running.wait(20)
    assert any("worker 1 has been in stuck for" in note for note in running.report().notes)


def test_a_stage_that_is_full_holds_its_sources_back_and_loses_nothing() -> None:
    out = sink()
    report = ws.run(source(5_000) >> Detour(TestElement("inner", deal, k=1)) >> out, burst=256)
    assert out.numbers == list(range(5_000))
    assert report.balanced and report.dropped == 0


def test_a_crew_of_a_crew_ends_after_it() -> None:
    out = sink()
    inner = Detour(TestElement("inner", deal, k=1))
    inner.name = "inside"
    report = ws.run(source(5_000) >> Detour(inner) >> out)
    assert out.numbers == list(range(5_000))
    assert report.balanced
    assert [s.crew for s in report.stages if s.name == "inner"] == ["inside"]


def test_two_detours_one_after_the_other() -> None:
    out = sink()
    first, second = Detour(), Detour(TestElement("inner", deal, k=1))
    second.name = "second"
    report = ws.run(source(5_000) >> first >> second >> out)
    assert out.numbers == list(range(5_000)) and report.balanced
    assert len(report.workers) == 3


def test_an_element_that_stands_in_two_graphs_is_refused() -> None:
    f = TestElement("f", drop_odd)
    fds = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ws.GraphError, match=r"f stands in the crew of detour and in another place.*f\.bind\(\)"):
        ws.run(source(1) >> f >> Detour(f) >> sink())
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_chain_of_a_crew_that_cannot_work_is_refused_before_anything_runs() -> None:
    with pytest.raises(ws.GraphError, match="workers of its own"):
        ws.run(source(1) >> Detour() >> sink(), workers=2)


def test_a_report_shows_the_stages_of_a_crew_below_and_inset() -> None:
    report = ws.run(source(100) >> Detour(TestElement("inner", deal, k=1)) >> sink())
    lines = str(report).splitlines()
    assert [line.split()[0] for line in lines[:7]] == ["stage", "source", "detour", "sink", "come", "inner", "go_back"]
    assert lines[5].startswith("  inner") and lines[3].startswith("sink")
    assert json.loads(report.to_json())["stages"][4]["crew"] == "detour"


def test_nothing_is_left_behind() -> None:
    graph = source(10) >> Detour(workers=2) >> sink()
    ws.run(graph)
    fds, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):
        ws.run(graph)
    assert len(os.listdir("/proc/self/fd")) == fds
    assert threading.active_count() == threads
