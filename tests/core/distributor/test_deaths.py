"""Workers that end without a word, and workers that only hang: what is known, what is guessed, and who gets their items."""

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import wirespeed as ws
from tests.core.distributor.test_distributor import flows_of, in_order, joined, started, until
from wirespeed.core.liveness import alive, owner_word


def test_a_thread_is_known_by_its_number_and_when_it_began():
    words, go = [], threading.Event()
    threads = started((lambda: (words.append(owner_word()), go.wait()),))
    until(lambda: words)
    assert alive(words[0]) and alive(owner_word()) and words[0] != owner_word()
    assert not alive(words[0] + (1 << 32)), "another thread of that number"
    assert not alive(0) and not alive(2**64 - 1) and owner_word(2**31 - 1) == 2**31 - 1
    go.set()
    threads[0].join()
    until(lambda: not alive(words[0]))


def test_a_process_that_has_ended_is_dead_though_nobody_has_waited_for_it():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    word = owner_word(process.pid)
    assert alive(word)
    process.kill()
    until(lambda: not alive(word))
    assert os.path.exists(f"/proc/{process.pid}")
    process.communicate()


def end_with_a_burst(w, got):
    """Take bursts, finish the first, and end with the second in hand."""
    burst = w.get()
    got.append(burst.tolist())
    got.append(w.get(burst).tolist())


@pytest.mark.parametrize("call", ["process", "returned", "flush"])
@pytest.mark.parametrize("redo", [True, False])
def test_a_thread_that_ends_with_a_burst_in_hand_is_noticed_by_any_call(call, redo):
    with ws.Distributor(2, burst=2, lines=4, slots=8, redo=redo, notice_s=0.05) as d:
        w, other, got = d.worker(), d.worker(), []
        threads = started((end_with_a_burst, w, got))
        until(lambda: d.process((), ()) == 0 and d.active)
        d.process(range(9), [5] * 9)
        threads[0].join()
        assert got == [[0, 1], [2, 3]]
        other.poll()
        begun, came = time.monotonic(), []
        while 0 in d.active:
            {
                "process": lambda: d.process((), ()),
                "returned": lambda: came.extend(d.returned().tolist()),
                "flush": lambda: d.flush(timeout_s=0.001),
            }[call]()
            assert time.monotonic() - begun < 5
        told = d.statistics.workers[w.number]
        assert time.monotonic() - begun < 2 and told.takeovers == 1
        assert (told.lost, told.taken_back) == ((0, 7) if redo else (2, 5))
        rest = []
        d.process((), ())
        while (burst := other.get(timeout_s=0.02)).size:
            rest += burst.tolist()
            other.request(burst)
            d.process((), ())
        assert rest == list(range(2 if redo else 4, 9))
        assert d.flush() == 0 and came + d.returned().tolist() == [0, 1, *rest] and d.statistics.balanced
        assert w.number == 0 and d.worker().number == 0, "its place is free"
        with pytest.raises(ws.PeerError, match="taken for dead"):
            w.poll()


def test_a_thread_that_ends_before_it_joined_makes_its_place_free():
    with ws.Distributor(1, notice_s=0) as d:
        made = []
        for thread in started((lambda: made.append(d.worker()),)):
            thread.join()
        until(lambda: d.check() == [0])
        assert d.worker().number == 0
        with pytest.raises(ws.PeerError, match="make another"):
            made[0].get()


def test_a_thread_that_ends_while_nobody_can_go_on_has_its_items_kept_until_somebody_comes():
    with ws.Distributor(1, burst=2, notice_s=0) as d:
        got = []
        threads = started((end_with_a_burst, d.worker(), got))
        until(lambda: d.process((), ()) == 0 and d.active)
        d.process(range(4), [1] * 4)
        threads[0].join()
        until(lambda: d.process((), ()) == 0 and not d.active)
        assert d.process([9], [1]) == 0 and d.reason == "no worker is active" and d.outstanding == 2
        w = d.worker()
        w.poll()
        assert d.process([9], [1]) == 1
        rest = []
        while d.outstanding:
            if (burst := w.poll()) is not None:
                rest += burst.tolist()
                w.request(burst)
            d.process((), ())
        assert rest == [2, 3, 9] and d.returned().tolist() == [0, 1, 2, 3, 9]


def test_threads_that_end_all_the_time_leave_every_flow_in_order():
    items, tags = flows_of(6000)
    held = np.zeros(64, np.int64)
    wrong, back, redone = [], [], []

    def mortal(seed):
        chance = np.random.default_rng(seed)
        try:
            w = d.worker()
        except ws.GraphError:  # those before it are not noticed yet
            return
        kept.append(w)
        for burst in w:
            flows = set((burst >> np.uint64(32)).tolist())
            if any(held[flow] for flow in flows):
                wrong.append(flows)
            for flow in flows:
                held[flow] = seed
            time.sleep(0)
            for flow in flows:
                held[flow] = 0
            if chance.random() < 0.05:
                redone.append(len(burst))
                return

    kept = []
    with ws.Distributor(4, burst=4, lines=2, notice_s=0.001) as d:
        threads, at, seed = [], 0, 0
        while at < len(items) or d.outstanding:
            threads = [thread for thread in threads if thread.is_alive()]
            while len(threads) < 3:
                seed += 1
                threads += started((mortal, seed))
            at += d.process(items[at : at + 40], tags[at : at + 40], timeout_s=0.002)
            back.append(d.returned())
        told = d.statistics
    for thread in threads:
        thread.join()
    back = np.concatenate(back)
    assert not wrong and np.array_equal(np.sort(back), np.sort(items)) and in_order(back)
    assert told.balanced and sum(w.takeovers for w in told.workers) > 10 and told.lost == 0


def test_a_worker_that_hangs_blocks_its_tags_alone_and_can_be_fenced():
    wake, told, got = threading.Event(), [], []
    with ws.Distributor(2, burst=2, lines=2, slots=4, park=4, stall_s=0.02) as d:

        def hang(w):
            burst = w.get()
            got.append(burst.tolist())
            wake.wait()
            try:
                w.get(burst)
            except ws.PeerError as error:
                told.append(str(error))

        w = d.worker(name="hangs")
        threads = started((hang, w))
        until(lambda: d.process((), ()) == 0 and d.active)
        d.process([0, 1], [7, 7])
        until(lambda: got)
        threads += started((lambda o: [None for _ in o], d.worker(name="works")))
        until(lambda: d.process((), ()) == 0 and len(d.active) == 2)
        assert d.process(range(2, 40), [7] * 38, timeout_s=0.2) == 10
        assert d.reason.startswith(
            f"worker {w.number} has all that can be held for it, and has given nothing back for 0."
        )
        beats = d.statistics.workers[w.number].beats
        at = 0
        while at < 300:  # the others go on
            at += d.process(range(100 + at, 400), np.arange(at, 300) + 1000, timeout_s=0.2)
        until(lambda: d.process((), ()) == 0 and d.outstanding == 12)
        assert sorted(d.returned().tolist()) == list(range(100, 400))
        assert d.statistics.workers[w.number].beats == beats and d.statistics.workers[w.number].stalled
        assert d.fence(w.number) == 4
        assert d.flush() == 0 and d.returned().tolist() == list(range(4, 12)), "what it was not sent is done by another"
        assert d.statistics.lost == 4 and d.statistics.balanced
        with pytest.raises(ws.GraphError, match="all 2 workers are there"):
            d.worker()
        wake.set()
        threads[0].join()
        assert "was fenced" in told[0] and "counted lost" in told[0]
        assert d.worker().number == w.number and d.returned().tolist() == []
    threads[1].join()


@pytest.mark.parametrize("call", ["request", "get", "poll", "give_back", "abandon"])
def test_who_was_fenced_is_told_by_the_next_call_whichever(call):
    with ws.Distributor(1) as d:
        (w,) = joined(d, 1)
        d.process([1], [1])
        if call != "poll":
            w.poll()
        assert d.fence(0) == 1
        with pytest.raises(ws.PeerError, match="was fenced"):
            getattr(w, call)()
        assert w.closed and d.worker().number == 0 and d.returned().tolist() == []


def test_who_was_fenced_before_it_looked_is_told():
    with ws.Distributor(1) as d:
        w = d.worker()
        w.poll()
        d.process((), ())
        assert d.active == (0,) and d.fence(0) == 0
        with pytest.raises(ws.PeerError, match="was fenced"):
            w.get(timeout_s=1)


def test_who_was_fenced_and_then_ends_makes_its_place_free():
    with ws.Distributor(1, notice_s=0) as d:
        made, go = [], threading.Event()
        threads = started((lambda: (made.append(d.worker()), made[0].get(), go.wait()),))
        until(lambda: d.process((), ()) == 0 and d.active)
        d.process([1, 2], [1, 1])
        until(lambda: made[0].in_hand)
        assert d.fence(0) == 2 and d.check() == []
        go.set()
        threads[0].join()
        until(lambda: d.check() == [0])
        w = d.worker()
        w.poll()
        assert d.process([3], [1]) == 1 and w.poll().tolist() == [3]
        w.give_back()
        assert d.statistics.workers[0].takeovers == 0 and d.statistics.balanced


def test_a_worker_cannot_be_fenced_while_what_it_gave_back_has_no_room():
    with ws.Distributor(1, burst=2, lines=2, slots=4, returns=2) as d:
        (w,) = joined(d, 1)
        d.process(range(4), [1] * 4)
        w.request(w.poll())
        w.request(w.poll())
        d.process((), ())
        with pytest.raises(
            ws.GraphError, match=r"worker 0 has given back items for which there is no room; take returned\(\)"
        ):
            d.fence(0)
        assert d.returned().tolist() == [0, 1, 2, 3] and d.fence(0) == 0


def test_whom_nothing_can_be_told_of_is_not_taken_for_dead():
    here = owner_word()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        assert alive(here)
        assert alive(1 << 33 | 1)  # of which, if it could be read, the beginning would be another
        with pytest.raises(ws.PortError, match="cannot be told"):
            owner_word()
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not alive(1 << 33 | 1)
