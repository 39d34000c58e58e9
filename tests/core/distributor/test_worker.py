"""A worker's calls, one by one: what is in the hand, what goes back, and what others get."""

import signal
import threading
import time

import numpy as np
import pytest

import wirespeed as ws
from tests.core.distributor.test_distributor import joined, shapes, started, until
from wirespeed.core.distributor import calls
from wirespeed.jit.kernel import Entry


@pytest.fixture
def pair():
    """A distributor with one worker, of which a line is one burst."""
    with ws.Distributor(1, burst=4, lines=4, slots=16) as d:
        (w,) = joined(d, 1)
        yield d, w
        d.close()


def give(d, *items, tag=1):
    assert d.process(list(items), [tag] * len(items)) == len(items)


def back(d):
    d.process((), ())
    return d.returned().tolist()


@shapes
def test_poll_takes_what_is_there_and_request_gives_back_what_is_returned_of_it(shape):
    with ws.Distributor(1, **shape) as d:
        (w,) = joined(d, 1)
        assert w.poll() is None and w.active and w.in_hand == 0
        give(d, 7)
        burst = w.poll()
        assert burst.tolist() == [7] and w.in_hand == 1
        assert back(d) == [] and d.outstanding == 1
        w.request(burst)
        assert w.in_hand == 0 and back(d) == [7] and d.outstanding == 0


def test_a_burst_may_be_written_and_returned_in_part_or_not_at_all_or_with_more_or_other_items(pair):
    d, w = pair
    for returned, comes in [
        (lambda b: b, [1, 2, 3]), (lambda b: None, []), (lambda b: [], []), (lambda b: b[1:], [2, 3]),
        (lambda b: b[::-1], [3, 2, 1]), (lambda b: [9, 8, 7, 6], [9, 8, 7, 6]), (lambda b: b[:1] + np.uint64(40), [41]),
        (lambda b: (2**64 - 1,), [2**64 - 1]), (lambda b: np.array([5], np.int32), [5]),
    ]:  # fmt: skip
        give(d, 1, 2, 3)
        w.request(returned(w.poll()))
        assert back(d) == comes
    give(d, 1, 2, 3)
    burst = w.poll()
    burst[1] = 99
    w.request(burst)
    assert back(d) == [1, 99, 3]
    told = d.statistics.workers[0]
    assert (told.returned, told.consumed, told.added) == (18, 13, 1) and d.statistics.balanced


def test_more_than_a_line_holds_or_of_nothing_in_hand_is_not_returned_and_the_burst_stays(pair):
    d, w = pair
    with pytest.raises(
        ws.GraphError, match="1 items cannot be returned by this worker at once: it has no burst in hand"
    ):
        w.request([1])
    give(d, 1, 2)
    burst = w.poll()
    for call in (w.request, w.get, w.give_back):
        with pytest.raises(
            ws.GraphError, match="5 items cannot be returned by this worker at once: a burst has up to 4"
        ):
            call(range(5))
        with pytest.raises(ws.GraphError):
            call([1.5])
        with pytest.raises(ws.GraphError):
            call(5)
        with pytest.raises(ws.GraphError):
            call(np.ma.array([1, 2], np.uint64, mask=[0, 1]))
    with pytest.raises(ws.GraphError, match="has a burst in hand; give it back first"):
        w.poll()
    for wrong in (-1, "x", float("nan"), True):
        with pytest.raises(ws.GraphError, match="timeout_s must be"):
            w.get(burst, timeout_s=wrong)
    assert w.in_hand == 2
    w.request(burst)
    w.request()  # has asked already
    assert back(d) == [1, 2]


def test_get_is_request_and_waits(pair):
    d, w = pair
    begun = time.monotonic()
    assert w.get(timeout_s=0.03).tolist() == [] and time.monotonic() - begun >= 0.03
    give(d, 1)
    burst = w.get()
    give(d, 2)
    threads = started((lambda: (time.sleep(0.05), give(d, 3), d.process((), ())),))
    assert w.get(burst).tolist() == [2, 3] or w.in_hand == 1
    threads[0].join()
    assert back(d)[0] == 1


def test_give_back_leaves_and_the_next_call_joins_again(pair):
    d, w = pair
    give(d, 1, 2)
    w.give_back(w.poll())
    assert not w.active and w.in_hand == 0
    w.give_back()
    with pytest.raises(ws.GraphError, match="no burst in hand"):
        w.give_back([1])
    assert back(d) == [1, 2] and d.active == () and d.process([3], [1]) == 0
    assert w.poll() is None
    give(d, 3)
    assert d.active == (0,) and w.poll().tolist() == [3]
    w.give_back()
    d.process((), ())
    w.request()  # asks, so it joins
    d.process((), ())
    assert d.active == (0,) and d.statistics.workers[0].joins == 3


def test_what_who_leaves_has_not_given_back_goes_to_others_in_order():
    with ws.Distributor(2, burst=2, lines=2, slots=4, park=0) as d:
        a, b = joined(d, 2)
        d.process(np.arange(6), np.full(6, 1))
        d.process((), ())
        first, other = (a, b) if a.poll() is not None else (b, a)
        if first is b:
            b.poll() if not b.in_hand else None
        first.abandon()
        d.process((), ())
        assert d.active == (other.number,)
        got = []
        while (burst := other.poll()) is not None:
            got += burst.tolist()
            other.request(burst)
            d.process((), ())
        assert got == list(range(6)) == d.returned().tolist()
        assert d.statistics.workers[first.number].taken_back == 6 and d.statistics.balanced


def test_a_loop_gives_each_burst_back_as_it_is_then(pair):
    d, w = pair
    give(d, 1, 2, 3)

    def work():
        for burst in w:
            burst += np.uint64(10)

    threads = started((work,))
    assert d.flush() == 0 and d.returned().tolist() == [11, 12, 13]
    d.close()
    threads[0].join()


def test_a_loop_may_do_what_it_wants_with_its_burst_on_its_own(pair):
    d, w = pair
    for first in range(0, 20, 4):
        give(d, *range(first, first + 4))
    loop = iter(w)
    assert next(loop).tolist() == [0, 1, 2, 3]
    w.request([100])
    assert next(loop).tolist() == [4, 5, 6, 7]
    assert w.get([101], timeout_s=1).tolist() == [8, 9, 10, 11]
    assert next(loop).tolist() == [12, 13, 14, 15], "and what get() took went back with it"
    w.give_back([102])
    threads = started((lambda: until(lambda: d.process((), ()) == 0 and d.active),))
    assert next(loop).tolist() == [16, 17, 18, 19]
    threads[0].join()
    assert back(d) == [100, 101, 8, 9, 10, 11, 102]


def test_a_loop_that_was_left_by_break_goes_on_with_another(pair):
    d, w = pair
    for first in range(0, 12, 4):
        give(d, *range(first, first + 4))
    for burst in w:
        if len(burst) == 4:
            break
    assert burst.tolist() == [0, 1, 2, 3] and w.in_hand == 4
    for burst in w:
        burst[:] = 7
        break
    assert back(d) == [0, 1, 2, 3]
    assert w.get(burst).tolist() == [8, 9, 10, 11] and back(d) == [7] * 4


def test_a_worker_made_by_one_thread_is_used_by_another_and_stays_when_the_first_ends(pair):
    d, w = pair
    give(d, 1)
    got = []
    for thread in started((lambda: got.append(w.poll().tolist()),)):
        thread.join()
    w.request([9])  # this thread has it again, before anybody looked
    assert d.check() == [] and got == [[1]] and back(d) == [9]


def test_two_threads_that_call_one_worker_neither_crash_nor_lose():
    wrong = []
    with ws.Distributor(1, burst=4) as d:
        w = d.worker()

        def work():
            while not d.closed:
                try:
                    burst = w.get(timeout_s=0.001)
                    assert len(burst) <= 4
                except ws.GraphError:
                    pass
                except BaseException as error:
                    wrong.append(error)

        threads = started(*[(work,)] * 3)
        at = 0
        while at < 3000:
            at += d.process(np.arange(at, min(at + 10, 3000)), np.zeros(min(10, 3000 - at)).astype(int), timeout_s=1)
        d.flush()
        assert d.statistics.balanced and d.statistics.processed == 3000
        d.close()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_thread_that_waits_is_told_when_another_has_its_worker_leave(pair):
    d, w = pair
    for leave in (w.give_back, w.abandon):
        told = []

        def work(told=told):
            try:
                w.get()
            except ws.GraphError as error:
                told.append(str(error))

        threads = started((work,))
        time.sleep(0.05)
        leave()
        threads[0].join()
        assert "another thread has had this worker leave" in told[0]
        d.process((), ())
        assert d.active == () and w.poll() is None
        d.process((), ())


def test_a_closed_worker_says_so_and_what_it_had_goes_to_another():
    with ws.Distributor(2) as d:
        a, b = joined(d, 2)
        d.process([1, 2], [5, 5])
        first, other = (a, b) if a.poll() is not None else (b, a)
        if first is b:
            assert b.poll() is not None
        with first:
            pass
        first.close()
        assert first.closed and not first.active and first.in_hand == 0
        for call in (first.poll, first.get, first.request, lambda: next(iter(first))):
            with pytest.raises(ws.GraphError, match="this worker is closed; make another"):
                call()
        assert repr(first) == f"<DistributorWorker {first.number} (closed)>"
        d.process((), ())
        assert other.poll().tolist() == [1, 2]
        other.give_back()


def test_closing_a_worker_whose_thread_waits_ends_its_wait():
    told = []
    with ws.Distributor(1, shared=True) as d:
        for _ in range(20):
            w = d.worker()

            def work(w=w):
                try:
                    w.get()
                except ws.GraphError as error:
                    told.append(str(error))

            threads = started((work,))
            time.sleep(0.002)
            w.close()
            del w
            threads[0].join()
    assert len(told) == 20 and all("closed" in words for words in told)


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupts():
    """Have Interrupted raised in this thread, again and again, while ``armed`` has something in it."""
    armed = []

    def stop(*_):
        if armed:
            armed.clear()
            raise Interrupted

    # An interrupt ends the loading of an entry too: on a busy machine that takes longer than it is to the next.
    assert all(one.function for one in vars(calls).values() if isinstance(one, Entry))
    signal.signal(signal.SIGUSR1, stop)
    yield armed
    # Not as before: by default the signal ends the process, and one that is late, or a thread that a failed test left
    # behind, would take the whole run with it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def test_an_interrupt_of_a_worker_at_any_moment_loses_nothing_and_hides_nothing(interrupts):
    main, over = threading.main_thread().ident, threading.Event()
    chance = np.random.default_rng(5)
    n, seen, back, stops = 3000, [], [], 0

    def feed(d):
        at = 0
        while len(back) < n:
            if at < n:
                at += d.process(np.arange(at, min(at + 3, n)), np.zeros(min(3, n - at), int), timeout_s=0.001)
            d.process((), ())
            back.extend(d.returned().tolist())
        d.close()
        over.set()

    def shoot():
        while not over.is_set():
            time.sleep(chance.uniform(0, 0.002))
            signal.pthread_kill(main, signal.SIGUSR1)

    with ws.Distributor(1, burst=4, lines=2) as d:
        w = d.worker()
        threads = started((feed, d), (shoot,))
        burst, how = None, 0
        while not over.is_set():
            how += 1
            try:
                interrupts.append(1)
                if how % 2:
                    for burst in w:
                        interrupts.clear()
                        seen += burst.tolist()
                        interrupts.append(1)
                else:
                    held = burst if w.in_hand and burst is not None else None
                    burst = w.get(held, timeout_s=0.01)
                    interrupts.clear()
                    seen += burst.tolist()
            except Interrupted:
                stops += 1
            interrupts.clear()
        for thread in threads:
            thread.join()
    assert stops > 10
    assert sorted(set(seen)) == list(range(n)), "each was handed out"
