"""Runs: every packet is where it should be, the books balance, and every end is clean."""

import asyncio
import json
import logging
import os
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed as ws
from tests.elements import (
    TestElement,
    TestPort,
    deal,
    drop_odd,
    drop_odd_and_take,
    fail,
    give_nothing,
    hold_some,
    never_return,
    sink,
    source,
)


def test_packets_pass_in_order_and_the_books_balance():
    out = sink()
    report = ws.run(source(10_000) >> out)
    assert out.numbers == list(range(10_000))
    assert report.finished and report.balanced
    assert report.packets == report.received == 10_000


@pytest.mark.parametrize("burst", [1, 3, 32, 256])
def test_each_output_gets_its_packets_in_order(burst):
    outs = [sink(name=f"out{k}") for k in range(4)]
    report = ws.run(source(5_000) >> TestElement("deal", deal, k=4) >> tuple(outs), burst=burst)
    for k, out in enumerate(outs):
        assert out.numbers == list(range(k, 5_000, 4))
    assert report.balanced
    assert report.stage("deal").outputs == (1250, 1250, 1250, 1250)


def test_a_verdict_without_an_output_is_a_drop_with_that_reason():
    out = sink()
    report = ws.run(source(4_000) >> TestElement("deal", deal, k=4) >> out)
    assert out.numbers == list(range(0, 4_000, 4))
    assert report.stage("deal").drops == {"no_output": 3_000}
    assert report.balanced


def test_drops_are_counted_by_reason_and_freed():
    out = sink()
    report = ws.run(source(10_000) >> TestElement("odd", drop_odd) >> out)
    assert out.numbers == list(range(0, 10_000, 2))
    assert report.stage("odd").drops == {"odd": 5_000}
    assert report.dropped == 5_000
    assert report.balanced and report.pool_free == report.pool_size


def test_what_a_sink_refuses_is_offered_again_in_order():
    slow = sink(k=3)
    report = ws.run(source(3_000) >> slow)
    assert slow.numbers == list(range(3_000))
    assert report.stage("sink").refused > 0
    assert report.balanced


def test_a_sink_that_drops_has_not_taken_what_it_dropped():
    class DroppingSink(TestPort):
        pass

    out = DroppingSink("out", drop_odd_and_take)
    report = ws.run(source(1_000) >> out)
    assert report.stage("out").packets_out == report.packets == 500
    assert report.stage("out").drops == {"odd": 500}
    assert report.balanced


def test_back_pressure_holds_one_group_only():
    slow, fast = sink(k=1, name="slow"), sink(name="fast")
    with ws.start(source(1_000, "a") >> slow, source(100_000, "b") >> fast) as running:
        assert running.wait(60)
    assert slow.numbers == list(range(1_000))
    assert fast.numbers == list(range(100_000))


def test_a_slow_output_behind_a_choice_loses_nothing():
    slow, fast = sink(k=1, name="slow"), sink(name="fast")
    report = ws.run(source(4_000) >> TestElement("deal", deal, k=2) >> (fast, slow))
    assert sorted(slow.numbers + fast.numbers) == list(range(4_000))
    assert slow.numbers == list(range(1, 4_000, 2))
    assert report.balanced and report.dropped == 0


def test_packets_that_a_stage_holds_come_out_by_ticks():
    out = sink()
    report = ws.run(source(1_000) >> TestElement("hold", hold_some, k=7) >> out)
    assert sorted(out.numbers) == list(range(1_000))
    assert report.balanced
    assert report.stage("hold").held == 0


def test_arrows_from_several_sources_meet_in_one_sink():
    out = sink()
    report = ws.run(source(700, "a") >> out, source(500, "b") >> out)
    assert sorted(out.numbers) == sorted([*range(700), *range(500)])
    assert report.balanced


def test_workers_have_a_copy_each():
    out = sink()
    report = ws.run(source(1_000) >> out, workers=3)
    assert sorted(out.numbers) == sorted(3 * list(range(1_000)))
    assert len(report.workers) == 3
    assert report.balanced


def test_a_stage_that_raises_loses_its_burst_under_its_own_reason():
    out = sink()
    report = ws.run(source(1_000) >> TestElement("fail", fail) >> out)
    assert out.numbers == []
    assert report.stage("fail").drops == {"function_error": 1_000}


@given(st.integers(0, 3_000), st.integers(1, 64), st.integers(0, 5), st.integers(1, 8))
def test_any_graph_of_odd_stages_keeps_its_books(limit, burst, k, hold):
    outs = [sink(k=k, name=f"out{i}") for i in range(3)]
    chain = source(limit) >> TestElement("hold", hold_some, k=hold) >> TestElement("deal", deal, k=3)
    report = ws.run(chain >> (outs[0], TestElement("odd", drop_odd) >> outs[1], outs[2]), burst=burst)
    assert report.balanced
    assert sorted(outs[0].numbers) == list(range(0, limit, 3))
    assert sorted(outs[1].numbers) == [n for n in range(1, limit, 3) if n % 2 == 0]


def test_a_pool_that_is_too_small_slows_a_run_and_loses_nothing():
    out = sink()
    report = ws.run(source(2_000) >> TestElement("hold", hold_some, k=20) >> out, pool=33)
    assert sorted(out.numbers) == list(range(2_000))
    assert report.balanced


def test_a_run_ends_after_its_seconds():
    report = ws.run(ws.port("null:") >> ws.port("null:"), seconds=0.2)
    assert report.packets > 0
    assert report.balanced


def test_a_run_ends_when_until_says_so():
    report = ws.run(ws.port("null:") >> ws.port("null:"), until=lambda running: running.report().packets > 1000)
    assert report.packets > 1000


def test_a_running_graph_can_be_read_and_stopped():
    with ws.start(ws.port("null:") >> ws.port("null:")) as running:
        while running.report().packets == 0:
            time.sleep(0.01)
        first = running.report()
        assert running.alive and not first.finished
    assert not running.alive
    last = running.report()
    assert last.finished and last.balanced
    assert last.packets >= first.packets


def test_stopping_twice_and_waiting_twice_is_harmless():
    running = ws.start(source(10) >> sink())
    assert running.wait(60)
    running.stop()
    running.stop()
    assert running.wait(1)


def test_two_runs_at_the_same_time_never_meet():
    a, b = sink(name="a"), sink(name="b")
    first = ws.start(source(50_000) >> a)
    second = ws.start(source(30_000) >> b)
    assert first.wait(60) and second.wait(60)
    assert a.numbers == list(range(50_000))
    assert b.numbers == list(range(30_000))
    assert first.report().balanced and second.report().balanced


def test_one_description_runs_twice():
    out = sink()
    graph = source(1_000) >> out
    assert ws.run(graph).packets == 1_000
    assert ws.run(graph).packets == 1_000


def test_a_run_works_in_another_thread_and_under_asyncio():
    async def main():
        return await asyncio.gather(*(asyncio.to_thread(ws.run, source(1_000) >> sink()) for _ in range(2)))

    assert [r.packets for r in asyncio.run(main())] == [1_000, 1_000]


def test_the_parts_are_closed_once():
    out = sink()
    ws.run(source(10) >> out, workers=2)
    assert out.closed == 1


def test_a_stalled_stage_is_named_and_the_run_still_stops(caplog):
    with caplog.at_level(logging.WARNING, "wirespeed"):
        running = ws.start(source(100) >> TestElement("stuck", never_return) >> sink())
        deadline = time.monotonic() + 20
        while not running.report().notes and time.monotonic() < deadline:
            time.sleep(0.05)
        running.stop()
        assert running.wait(20)
    assert any("worker 0 has been in stuck for" in note for note in running.report().notes)
    assert running.report().balanced


def test_ctrl_c_ends_a_run_and_is_raised_again():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        ws.run(ws.port("null:") >> ws.port("null:"), seconds=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_with_until_interrupted_a_signal_is_the_usual_end(number):
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
    report = ws.run(ws.port("null:") >> ws.port("null:"), until=ws.interrupted)
    assert report.finished and report.balanced


def test_a_forked_child_is_told_that_the_run_is_not_its_own():
    with ws.start(ws.port("null:") >> ws.port("null:")) as running:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                running.report()
            except ws.WirespeedError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
    assert b"belongs to the process that started it" in os.read(reader, 200)
    os.close(reader)
    os.close(writer)


def test_a_service_is_called_when_it_asked_to_be():
    class Serving(TestElement):
        called = 0

        def open(self, role, workers):
            self.called = 0
            return super().open(role, workers)

        def service(self):
            self.called += 1
            return 0.01 if self.called < 5 else None

    serving = Serving("serving", deal, k=1)
    ws.run(ws.port("null:") >> serving >> ws.port("null:"), seconds=0.5)
    assert serving.called == 5


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (ws.PortError("the reader went away"), "the reader went away"),
        (ValueError("x"), "service failed: ValueError('x')"),
    ],
)
def test_a_service_that_raises_ends_the_run(error, note):
    class Failing(TestElement):
        def service(self):
            raise error

    report = ws.run(ws.port("null:") >> Failing("failing", deal, k=1) >> ws.port("null:"), seconds=60)
    assert report.seconds < 60
    assert any(note in text for text in report.notes)
    assert report.balanced


def test_no_file_descriptor_or_thread_is_left_behind():
    ws.run(source(10) >> sink())
    fds, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):
        ws.run(source(10) >> sink())
    assert len(os.listdir("/proc/self/fd")) == fds
    assert threading.active_count() == threads


def test_a_failing_open_leaves_nothing_behind():
    class Broken(TestElement):
        def place(self, site):
            raise ws.PortError("no such device")

    fds = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ws.PortError, match="no such device"):
        ws.run(source(10) >> Broken("broken", drop_odd) >> sink())
    assert len(os.listdir("/proc/self/fd")) == fds


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"workers": 0}, "workers must be a whole number from 1 to 256, got 0"),
        ({"burst": 257}, "burst must be a whole number from 1 to 256, got 257"),
        ({"cores": [4096]}, "cores: got"),
        ({"cores": []}, "cores: got"),
        ({"seconds": 0}, "seconds must be a number above 0"),
        ({"pool": -1}, "pool must be a whole number"),
        ({"pool": 1.5}, "pool must be a whole number"),
        ({"workers": 1.5}, "workers must be a whole number"),
        ({"burst": "x"}, "burst must be a whole number"),
        ({"seconds": "1"}, "seconds must be a number"),
        ({"cores": 3}, "wanted a list of core numbers"),
        ({"until": 5}, "until: got 5"),
        ({"live": 5}, "live: got 5"),
    ],
)
def test_an_argument_out_of_range_is_refused(how, message):
    with pytest.raises(ws.GraphError, match=message):
        ws.run(source(1) >> sink(), **how)


def test_workers_are_pinned_to_the_cores_they_are_given():
    core = min(os.sched_getaffinity(0))
    report = ws.run(source(10) >> sink(), cores=[core])
    assert report.workers[0].core == core
    assert os.sched_getaffinity(0) >= {core}


def test_cycles_and_idle_shares_are_there():
    report = ws.run(ws.port("null:") >> ws.port("null:"), seconds=0.2)
    assert all(s.cycles_per_packet > 0 for s in report.stages)
    assert 0 <= report.workers[0].idle_share <= 1
    assert report.tsc_hz > 1e6


def test_an_idle_worker_sleeps():
    quiet = TestPort("quiet", give_nothing)
    before = time.process_time()
    report = ws.run(quiet >> ws.port("null:"), seconds=0.5)
    assert report.workers[0].idle_share > 0.9
    assert time.process_time() - before < 0.4


def test_a_report_reads_the_same_in_all_its_forms():
    report = ws.run(source(1_000) >> TestElement("odd", drop_odd) >> sink())
    plain = json.loads(report.to_json())
    assert plain["packets"] == report.packets == 500
    assert plain["balanced"] is True
    assert plain["stages"][1]["drops"] == {"odd": 500}
    for form in (str(report), report._repr_html_()):
        assert "500" in form and "The number is odd" in form and "books balanced" in form


def test_a_thread_that_cannot_be_started_leaves_none_behind(monkeypatch):
    start, left = threading.Thread.start, [1]

    def limited(thread):
        if thread.name.startswith("wirespeed") and not left:
            raise RuntimeError("can't start new thread")
        left[:] = left[1:] if thread.name.startswith("wirespeed") else left
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    threads, fds = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ws.WirespeedError, match="can't start new thread; run with fewer workers"):
        ws.run(ws.port("null:") >> ws.port("null:"), workers=2)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == fds


def test_what_a_port_reports_at_the_end_is_an_error_of_the_report():
    class Failing(TestElement):
        def close(self):
            raise ws.PortError("the file was damaged")

    report = ws.run(source(10) >> Failing("failing", deal, k=1) >> sink())
    assert report.errors == ("the file was damaged",)
    assert report.finished and report.balanced
