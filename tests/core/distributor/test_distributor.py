"""What a program does with a distributor and threads: flows stay whole, and everything comes back once."""

import threading
import time

import numpy as np
import pytest

import wirespeed as ws
from wirespeed.core.distributor import distributor

u64 = np.uint64
SHAPES = {
    "single": {"mode": "single"},
    "single, pipelined": {"mode": "single", "lines": 8},
    "burst": {"lines": 1, "burst": 7},
    "pipelined": {},
    "small": {"burst": 3, "lines": 2, "slots": 2, "returns": 4, "park": 2},
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
FLOWS = 37


class Board:
    """Who has which flow, and how far each is: what workers must find as they left it."""

    def __init__(self):
        self.holder = np.zeros(FLOWS, np.int64)
        self.next = np.zeros(FLOWS, np.int64)
        self.by = {}
        self.wrong = []

    def take(self, me, burst):
        """Note that a worker has a burst in hand."""
        for item in burst.tolist():
            flow, serial = item >> 32, item & 0xFFFFFFFF
            if self.holder[flow] not in (0, me):
                self.wrong.append(f"flow {flow} is with {self.holder[flow]} and {me}")
            if self.next[flow] != serial:
                self.wrong.append(f"flow {flow}: {serial} came, not {self.next[flow]}")
            self.holder[flow], self.next[flow] = me, serial + 1
            self.by[me] = self.by.get(me, 0) + 1

    def put(self, burst):
        """And that it has done with it."""
        self.holder[(burst >> u64(32)).astype(np.int64)] = 0

    def serve(self, worker, pause=0.0):
        me = threading.get_ident()
        try:
            for burst in worker:
                self.take(me, burst)
                if pause:
                    time.sleep(pause)
                self.put(burst)
        except BaseException as error:  # the test tells
            self.wrong.append(repr(error))
            raise


def flows_of(n, seed=1):
    """Items of several flows, each with its flow and its serial in it, and their tags."""
    flow = np.random.default_rng(seed).zipf(1.3, n) % FLOWS
    serial = np.zeros(n, np.int64)
    for k in range(FLOWS):
        serial[flow == k] = np.arange((flow == k).sum())
    return (flow.astype(u64) << u64(32)) | serial.astype(u64), (flow * 0x01234567 + 5).astype(np.uint32)


def in_order(items):
    """Whether each flow is whole and as it was given."""
    flow = items >> u64(32)
    return all((np.diff((items[flow == k] & u64(0xFFFFFFFF)).astype(np.int64)) == 1).all() for k in range(FLOWS))


def started(*works):
    threads = [threading.Thread(target=work[0], args=work[1:]) for work in works]
    for thread in threads:
        thread.start()
    return threads


def until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.001)


def joined(d, n):
    """So many workers, all of this thread, that are given items from now on."""
    workers = [d.worker() for _ in range(n)]
    for worker in workers:
        assert worker.poll() is None
    d.process((), ())
    assert len(d.active) == n
    return workers


@shapes
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_each_flow_is_on_one_worker_at_a_time_and_everything_comes_back_in_order(shape, workers):
    board = Board()
    items, tags = flows_of(20000 if shape.get("burst", 31) > 3 and "mode" not in shape else 4000)
    back = []
    with ws.Distributor(workers, **shape) as d:
        threads = started(*[(board.serve, d.worker()) for _ in range(workers)])
        at = 0
        while at < len(items):
            at += d.process(items[at : at + 64], tags[at : at + 64], timeout_s=0.05)
            back.append(d.returned(1000))
        assert d.flush() == 0 and d.outstanding == 0
        back.append(d.returned())
        assert d.statistics.balanced
    for thread in threads:
        thread.join()
    back = np.concatenate(back)
    assert not board.wrong, board.wrong[:3]
    assert np.array_equal(np.sort(back), np.sort(items)) and in_order(back)
    assert sum(board.by.values()) == len(items)


def test_more_workers_than_cores_all_get_something_to_do():
    board = Board()
    items, _ = flows_of(20000)
    with ws.Distributor(24, burst=4, lines=2) as d:
        threads = started(*[(board.serve, d.worker(), 0.0002) for _ in range(24)])
        until(lambda: d.process((), ()) == 0 and len(d.active) == 24)
        at = 0
        while at < len(items):
            at += d.process(items[at:], np.arange(at, len(items)), timeout_s=None)
            d.clear()
    for thread in threads:
        thread.join()
    assert len(board.by) == 24 and sum(board.by.values()) == len(items)


def test_workers_come_go_with_a_burst_in_hand_and_come_back_while_items_flow():
    board, stop = Board(), threading.Event()
    items, tags = flows_of(30000)

    def restless(worker, seed):
        chance, me = np.random.default_rng(seed), threading.get_ident()
        try:
            while not stop.is_set():
                for burst in worker:
                    if chance.random() < 0.1:
                        worker.abandon()  # nothing was done
                        break
                    board.take(me, burst)
                    board.put(burst)
                    if chance.random() < 0.1:
                        worker.give_back(burst)
                        break
        except BaseException as error:
            board.wrong.append(repr(error))
            raise

    back = []
    with ws.Distributor(4, burst=5, lines=4) as d:
        threads = started(*[(restless, d.worker(), k) for k in range(3)], (board.serve, d.worker()))
        at = 0
        while at < len(items):
            at += d.process(items[at : at + 50], tags[at : at + 50], timeout_s=0.05)
            back.append(d.returned())
        d.flush()
        back.append(d.returned())
        stop.set()
        told = d.statistics
    for thread in threads:
        thread.join()
    assert not board.wrong, board.wrong[:3]
    back = np.concatenate(back)
    assert np.array_equal(np.sort(back), np.sort(items)) and in_order(back)
    assert told.balanced and sum(w.joins for w in told.workers) > 20 and sum(w.taken_back for w in told.workers) > 0


def test_without_a_worker_nothing_is_taken_and_a_late_one_gets_all():
    with ws.Distributor(2) as d:
        assert d.process([1, 2], [1, 1]) == 0 and d.reason == "no worker is active"
        begun = time.monotonic()
        assert d.process([1, 2], [1, 1], timeout_s=0.05) == 0 and time.monotonic() - begun >= 0.05
        board = []
        threads = started((lambda w: board.extend(b.tolist() for b in w), d.worker()))
        assert d.process([1, 2], [1, 1], timeout_s=None) == 2 and d.reason == ""
        d.flush()
        assert d.returned().tolist() == [1, 2] and board == [[1, 2]]
    threads[0].join()


def test_what_finds_no_room_stays_the_callers_and_the_reason_says_why():
    with ws.Distributor(2, burst=2, lines=1, slots=2, returns=2, park=0) as d:
        a, b = joined(d, 2)
        assert d.process(np.arange(9), np.full(9, 7)) == 4
        assert d.reason in ("worker 0 has all that can be held for it", "worker 1 has all that can be held for it")
        mine = a if d.reason.startswith("worker 0") else b
        assert d.process(np.arange(9), np.arange(100, 109)) == 4
        assert d.reason == "every worker has all that can be held for it"
        mine.poll()
        mine.request([1, 2])
        assert d.process([5], [7]) == 1
        mine.poll()
        mine.request([3, 4])
        assert d.process([6], [7]) == 1  # the line was open
        assert d.process([6], [7]) == 0 and d.reason == "there is no room for what came back (2 items); take returned()"
        assert d.returned().tolist() == [1, 2, 3, 4]
        assert d.process([6], [7]) == 1
        assert len(d.close()) == 7


def test_what_came_back_is_taken_in_parts_into_arrays_and_forgotten():
    with ws.Distributor(1, burst=4) as d:
        (w,) = joined(d, 1)
        for first in range(0, 32, 4):
            d.process(np.arange(first, first + 4), np.zeros(4, int))
            w.request(w.poll())
        assert d.flush(timeout_s=0) == 0
        assert d.returned(0).tolist() == [] and d.returned(3).tolist() == [0, 1, 2]
        out = np.zeros(5, u64)
        assert d.returned_into(out) == 5 and out.tolist() == [3, 4, 5, 6, 7]
        assert d.returned_into(out[:0]) == 0
        assert d.clear() == 24 and d.clear() == 0 and d.returned().tolist() == []
        assert d.statistics.balanced


def test_a_flush_needs_no_room_in_the_returns_and_hands_nothing_out_twice():
    board, seen = Board(), []
    items, tags = flows_of(5000)
    with ws.Distributor(2, burst=4, returns=4) as d:
        threads = started(*[(board.serve, d.worker()) for _ in range(2)])
        at = 0
        while at < len(items):
            at += d.process(items[at:], tags[at:], timeout_s=0.001)
            d.flush()
        assert d.statistics.ready == len(items)
        seen.append(d.returned(10))
        out = np.zeros(20, u64)
        assert d.returned_into(out) == 20
        seen += [out, d.returned()]
    for thread in threads:
        thread.join()
    assert in_order(np.concatenate(seen)) and len(np.unique(np.concatenate(seen))) == len(items)


def test_a_flush_that_takes_too_long_says_how_many_are_out():
    with ws.Distributor(1) as d:
        (_w,) = joined(d, 1)
        d.process([1, 2, 3], [1, 1, 2])
        assert d.flush(timeout_s=0.02) == 3 == d.outstanding
        assert sorted(d.close().tolist()) == [1, 2, 3]


def test_closing_gives_what_is_left_and_ends_the_loops_at_once():
    with ws.Distributor(2, burst=2, lines=1, slots=4, park=8) as d:
        a, b = joined(d, 2)
        threads = started((lambda: [list(burst) for burst in b],))
        d.process(np.arange(8), np.full(8, 1))
        one = a if a.poll() is not None else None
        if one:
            one.request([100])
        left = d.close()
        threads[0].join()
        assert (left.tolist() == [100, 2, 3, 4, 5, 6, 7]) if one else set(range(8)) >= set(left.tolist())
        assert a.closed and b.closed and d.closed and a.poll() is None and a.get().tolist() == []
        assert d.close().tolist() == [] and repr(d) == "<Distributor of 2 workers (closed)>"


def test_the_end_of_a_with_flushes_and_what_came_back_is_still_there():
    board = Board()
    items, tags = flows_of(1000)
    with ws.Distributor(2) as d:
        threads = started(*[(board.serve, d.worker()) for _ in range(2)])
        assert d.process(items, tags, timeout_s=None) == 1000
    for thread in threads:
        thread.join()
    assert len(d.returned(10)) == 10 and len(d.returned()) == 990 and d.returned().tolist() == []


def test_an_exception_in_a_with_ends_the_loops_without_waiting():
    with pytest.raises(KeyError), ws.Distributor(1) as d:
        (w,) = joined(d, 1)
        d.process([1], [1])
        raise KeyError
    assert w.closed and d.closed


def test_a_distributor_that_is_dropped_ends_its_workers_loops():
    ended = []
    d = ws.Distributor(1)
    threads = started((lambda w: ended.append([list(b) for b in w]), d.worker()))
    while not d.active:
        d.process((), ())
    del d
    threads[0].join(10)
    assert ended == [[]]


def test_returns_may_be_counted_only():
    board = Board()
    items, tags = flows_of(3000)
    with ws.Distributor(2, returns=0) as d:
        threads = started(*[(board.serve, d.worker()) for _ in range(2)])
        assert d.process(items, tags, timeout_s=None) == 3000 and d.flush() == 0
        assert d.returned().tolist() == [] and d.statistics.returned == 3000 and d.clear() == 0
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "dtype", [np.int64, np.float64, "M8[ns]", "m8[s]", "S8", "c8", ">u8", [("a", "u4"), ("b", "f4")]], ids=str
)
def test_items_of_any_8_bytes_pass_unchanged(dtype):
    dtype = np.dtype(dtype)
    items = (
        np.arange(1, 41, dtype=u64).view(dtype) if dtype.kind != "S" else np.array([f"i{k}" for k in range(40)], dtype)
    )
    with ws.Distributor(1, dtype=dtype, burst=8, lines=2, slots=8) as d:
        (w,) = joined(d, 1)
        d.process(items, np.zeros(40, int))
        got = []
        while (burst := w.poll()) is not None:
            got.append(burst.copy())
            w.request(burst)
            d.process((), ())
        assert np.array_equal(np.concatenate(got), items) and got[0].dtype == dtype
        out = np.zeros(5, np.dtype(dtype.descr) if dtype.names else dtype.str)
        assert d.returned_into(out) == 5 and np.array_equal(out, items[:5])
        d.flush()
        assert d.returned(3).dtype == dtype and np.array_equal(d.returned(), items[8:])
        d.process(items[:20], np.arange(20))
        left = d.close()
        assert left.dtype == dtype and np.array_equal(np.sort(left.view(u64)), np.sort(items[:20].view(u64)))


@pytest.mark.parametrize(
    "items, tags",
    [
        ([1, 2, 3], [0, 2**32 - 1, 7]), (range(3), (1, 2, 3)), (np.arange(6)[::2], np.arange(6, dtype=np.uint32)[::2]),
        (np.arange(3, dtype=np.int8), np.array([1, 2, 3], np.int64)), (iter([1, 2, 3]), iter([1, 1, 1])),
        ([np.uint64(1), 2, True], [True, False, np.int8(3)]), (np.arange(3, dtype=">u8"), np.arange(3, dtype=">u4")),
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_items_and_tags_of_many_forms_are_taken(items, tags):
    with ws.Distributor(1) as d:
        (_w,) = joined(d, 1)
        assert d.process(items, tags) == 3
        d.close()


def test_a_million_items_in_one_call_and_no_item_at_all():
    with ws.Distributor(2) as d:
        threads = started(*[(lambda w: [None for _ in w], d.worker()) for _ in range(2)])
        items = np.arange(1_000_000, dtype=u64)
        total, at = 0, 0
        for empty in ((), [], np.empty(0, int), np.empty(0, u64)):
            assert d.process(empty, ()) == 0 and d.reason == ""
        while at < len(items):
            at += d.process(items[at:], (items[at:] % u64(1000)).astype(np.uint32), timeout_s=0.01)
            total += int(d.returned().sum())
        d.flush()
        total += int(d.returned().sum())
        assert total == 999_999 * 500_000
    for thread in threads:
        thread.join()


def test_two_distributors_do_not_meet():
    with ws.Distributor(1) as one, ws.Distributor(1) as other:
        (a,), (b,) = joined(one, 1), joined(other, 1)
        one.process([1], [9])
        assert b.poll() is None and a.poll().tolist() == [1]
        a.request([1])
        assert one.flush(timeout_s=0) == 0 and other.returned().tolist() == [] and one.returned().tolist() == [1]


def test_a_worker_whose_number_is_given_has_it_and_no_other_can():
    with ws.Distributor(3) as d:
        w = d.worker(1, name="middle")
        assert w.number == 1 and (first := d.worker()).number == 0 and (last := d.worker()).number == 2
        assert d.statistics.workers[1].name == "middle" and repr(w) == "<DistributorWorker 1>"
        with pytest.raises(ws.GraphError, match="worker 1 is there already; leave the number out"):
            d.worker(1)
        with pytest.raises(ws.GraphError, match="all 3 workers are there already; give the distributor more"):
            d.worker()
        w.close()
        assert d.worker().number == 1
        assert not first.active and not last.closed


def test_behind_a_block_that_an_exception_ended_what_was_left_can_be_had_and_the_numbers_be_read():
    with pytest.raises(KeyError), ws.Distributor(1, burst=2, lines=1, slots=4) as d:
        (w,) = joined(d, 1)
        d.process([1, 2, 3], [1, 1, 1])
        w.request(w.poll())
        d.process((), ())
        raise KeyError("the program's own")
    told = d.statistics
    assert (told.processed, told.outstanding, told.ready, told.balanced) == (3, 1, 2, True)
    assert d.returned().tolist() == [1, 2]
    assert d.close().tolist() == [3]
    assert d.close().tolist() == [] and d.statistics == told


def test_a_close_that_was_interrupted_can_be_done_again(monkeypatch):
    d = ws.Distributor(1)
    (w,) = joined(d, 1)
    d.process([1, 2], [1, 1])
    end = distributor._end
    with monkeypatch.context() as patched:
        patched.setattr(distributor, "_end", lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            d.close()
    assert not d.closed and distributor._end is end
    assert d.close().tolist() == [1, 2] and d.closed and w.closed
