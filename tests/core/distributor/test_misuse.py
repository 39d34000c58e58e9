"""What people do to distributors that was not meant: none of it may crash, hang, lose, double or change an item."""

import copy
import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import wirespeed as ws
from tests.core.distributor.test_distributor import joined, started, until
from tests.core.distributor.test_worker import interrupts  # noqa: F401
from wirespeed.core.distributor.desk import ACTIVE, BACK, DESK, ITEMS, Desk, Desks, Line

u64 = np.uint64
RECORD = np.dtype([("a", "u4"), ("b", "u4")])


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"workers": 1025}, "1 to 1024 workers, got 1025; use several"),
        ({"workers": 1.5}, "workers must be a whole number of at least 1, got 1.5"),
        ({"workers": True}, "workers must be a whole number"),
        ({"workers": None}, "workers must be a whole number"),
        ({"mode": "bursts"}, "mode must be 'burst' or 'single', got 'bursts'"),
        ({"mode": ["burst"]}, "mode must be"),
        ({"burst": 0}, "burst must be a whole number of at least 1"),
        ({"burst": 32}, "burst must be 1 to 31, what a line of 256 bytes holds, got 32"),
        ({"lines": 3}, "lines must be a power of two up to 1024, got 3; try 2"),
        ({"lines": 2048}, "lines must be a power of two up to 1024, got 2048; try 1024"),
        ({"lines": 2**70}, "lines must be a power of two"),
        ({"slots": 8}, "slots must be at least 16, for 16 lines with a worker and one that is filled, got 8"),
        ({"slots": 24}, "slots must be a power of two up to 2048, got 24; try 16"),
        ({"returns": 100}, "returns must be a power of two"),
        ({"returns": 16}, "returns must have room for a line of 31 items, got 16"),
        ({"returns": -1}, "returns must be a whole number"),
        ({"park": -1}, "park must be a whole number of at least 0, got -1"),
        ({"park": 2**25}, "park must be at most 16777216 items"),
        ({"dtype": None}, "8 bytes, got None; use numpy.uint64"),
        ({"dtype": "u4"}, "8 bytes, got 'u4'"),
        ({"dtype": object}, "8 bytes, got"),
        ({"dtype": "no such"}, "dtype must be one of NumPy's of 8 bytes, got 'no such'"),
        ({"dtype": [("a", "u4", 2)], "workers": 0}, "workers"),
        ({"dtype": np.dtype(("u4", 2))}, "8 bytes"),
        ({"notice_s": -1}, "notice_s must be a number of seconds, at least 0, got -1"),
        ({"stall_s": float("nan")}, "stall_s must be a number of seconds"),
        ({"stall_s": "1"}, "stall_s must be"),
        ({"name": "a/b"}, "the name of shared memory must be"),
        ({"name": 5}, "the name of shared memory must be"),
    ],
    ids=str,
)
def test_a_distributor_of_no_sense_is_refused(arguments, says):
    with pytest.raises(ws.GraphError, match=re.escape(says)):
        ws.Distributor(**{"workers": 2, **arguments})


@pytest.mark.parametrize(
    "items, tags, says",
    [
        ([1, 2], [1], "every item has its tag, got 2 items and 1 tags"),
        ([1], [2**32], "tags are numbers of 32 bits"),
        ([1], [-1], "tags are numbers of 32 bits"),
        ([1], [1.5], "tags are numbers of 32 bits"),
        ([1], np.array([1.0]), "tags are numbers of 32 bits"),
        ([1], np.array([-1]), "tags are numbers of 32 bits"),
        ([1], np.array([2**40]), "tags are numbers of 32 bits"),
        ([1], 7, "tags are numbers of 32 bits"),
        ([1], ["a"], "tags are numbers of 32 bits"),
        ([1], None, "tags are numbers of 32 bits"),
        ([1], np.zeros((1, 1), np.uint32), "tags are numbers of 32 bits"),
        ([-1], [1], "items are uint64"),
        ([1.5], [1], "items are uint64"),
        ([2**64], [1], "items are uint64"),
        (np.array([-1]), [1], "uint64"),
        (np.array([1.0]), [1], "items are uint64"),
        (np.zeros((2, 2), u64), [1, 2], "one dimension"),
        (np.ma.array([1, 2], u64, mask=[0, 1]), [1, 2], "masked"),
        (np.zeros(1, RECORD), [1], "items are uint64"),
        (5, [1], "items are uint64"),
        (None, None, "items are uint64"),
    ],
    ids=str,
)
def test_items_and_tags_whose_values_would_change_are_refused_and_nothing_is_taken(items, tags, says):
    with ws.Distributor(1) as d:
        (_w,) = joined(d, 1)
        with pytest.raises(ws.GraphError, match=says):
            d.process(items, tags)
        assert d.outstanding == 0


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda d: d.process([1], [1], timeout_s=-1), "timeout_s must be a number of seconds"),
        (lambda d: d.process([1], [1], timeout_s="soon"), "timeout_s must be"),
        (lambda d: d.flush(timeout_s=float("nan")), "timeout_s must be"),
        (lambda d: d.returned(-1), "n must be a whole number of at least 0, got -1"),
        (lambda d: d.returned(1.0), "n must be"),
        (lambda d: d.returned_into([0]), "writable contiguous array of uint64 of one dimension, got list"),
        (lambda d: d.returned_into(np.zeros(4)), "of uint64 of one dimension, got one of float64"),
        (lambda d: d.returned_into(np.zeros((2, 2), u64)), "got one of uint64 with shape"),
        (lambda d: d.returned_into(np.zeros(4, u64)[::2]), "not contiguous"),
        (lambda d: d.returned_into(np.frombuffer(bytes(32), u64)), "not writable"),
        (lambda d: d.worker(2), "the workers are 0 to 1, got 2"),
        (lambda d: d.worker(-1), "a worker's number must be a whole number of at least 0, got -1"),
        (lambda d: d.worker("1"), "a worker's number must be"),
        (lambda d: d.worker(name=5), "a worker's name must be a text, got 5"),
        (lambda d: d.fence(2), "the workers are 0 to 1, got 2"),
        (lambda d: d.fence(True), "a worker's number must be"),
        (lambda d: d.fence(1), "worker 1 is not active, so there is nothing to be fenced"),
        (lambda _: ws.DistributorWorker.attach(), "either a name or a descriptor, got name='', fd=-1"),
        (lambda _: ws.DistributorWorker.attach("x", fd=3), "either a name or a descriptor"),
        (lambda _: ws.DistributorWorker.attach(fd="3"), "fd must be a whole number"),
        (lambda _: ws.DistributorWorker.attach(5), "the name of shared memory must be"),
    ],
)
def test_arguments_of_no_sense_are_refused_and_change_nothing(call, says):
    with ws.Distributor(2) as d:
        w = d.worker(0)
        w.poll()
        d.process([1, 2, 3, 4], [1, 1, 1, 1])
        w.request(w.poll())
        d.process((), ())
        for _ in range(2):
            with pytest.raises(ws.GraphError, match=re.escape(says)):
                call(d)
            d.flush()  # what came back waits in another place now
        assert d.returned().tolist() == [1, 2, 3, 4] and d.outstanding == 0 and d.worker().number == 1


def test_a_name_of_any_letters_is_shown_as_far_as_it_fits():
    with ws.Distributor(1) as d:
        for name in ("\ud800", "ü" * 40, "a\0b", ""):
            with d.worker(name=name):
                assert len(d.statistics.workers[0].name) <= 33


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_neither_side_is_copied(how):
    with ws.Distributor(1) as d, d.worker() as w:
        for thing in (d, w):
            with pytest.raises(TypeError, match="attach"):
                how(thing)


def test_a_closed_distributor_says_so():
    d = ws.Distributor(1)
    d.close()
    for call in (
        lambda: d.process([1], [1]), lambda: d.process((), ()), d.returned, lambda: d.returned_into(np.zeros(1, u64)),
        d.flush, d.clear, d.worker, lambda: d.fence(0), d.check, lambda: d.reason,
        lambda: d.outstanding, lambda: d.active,
    ):  # fmt: skip
        with pytest.raises(ws.GraphError, match="this distributor is closed; make another"):
            call()
    assert d.closed and d.fd == -1 and d.statistics.balanced


@pytest.mark.parametrize("shared", [False, True])
def test_in_a_fork_nothing_works_nothing_crashes_and_the_parent_does_not_notice(shared):
    with ws.Distributor(2, shared=shared) as d:
        a, b = joined(d, 2)
        d.process([1, 2], [5, 5])
        first, other = (a, b) if a.poll() is not None else (b, a)
        if first is b:
            assert b.poll() is not None
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            wrong = []
            try:
                calls = [
                    lambda: d.process([1], [1]), lambda: d.process((), ()), d.returned, d.flush, d.clear, d.worker, d.check,
                    lambda: d.returned_into(np.zeros(1, u64)), lambda: d.fence(0), lambda: d.statistics, lambda: d.reason,
                    lambda: d.active, lambda: d.outstanding, first.poll, first.request, lambda: first.get([1]),
                    lambda: first.get(timeout_s=0.01), lambda: next(iter(other)), lambda: first.give_back([1]), first.give_back,
                    first.abandon,
                ]  # fmt: skip
                for k, call in enumerate(calls):
                    try:
                        call()
                        wrong.append(f"{k} did nothing")
                    except ws.GraphError as error:
                        if "fork" not in str(error):
                            wrong.append(f"{k}: {error}")
                    except BaseException as error:
                        wrong.append(f"{k}: {error!r}")
                repr(d), repr(first), first.in_hand, first.active, first.closed
                first.close()
                d.__exit__(None, None, None)
                d.close()
                gc.collect()
            finally:  # whatever happens, it must not go on with the tests
                os.write(write, repr(wrong).encode())
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        os.close(write)
        with os.fdopen(read, "rb") as told:
            assert (status, told.read()) == (0, b"[]")
        first.request([7])
        assert d.flush() == 0 and d.returned().tolist() == [7] and len(d.active) == 2


def test_a_worker_in_a_cycle_of_garbage_leaves_and_its_place_is_free():
    class Node:
        def __del__(self):
            self.left.append(self.worker.in_hand)

    left = []
    with ws.Distributor(1) as d:
        for turn in (1, 2):
            node, other = Node(), Node()
            for one in (node, other):
                one.left = left
            node.other, other.other = other, node
            node.worker = other.worker = d.worker()
            node.worker.poll()
            d.process([1], [1])
            assert node.worker.get().tolist() == [1] * turn
            del node, other, one
            gc.collect()
            d.process((), ())
            assert d.active == ()
        assert left == [0] * 4
        d.close()


def test_a_distributor_in_a_cycle_with_its_workers_is_collected():
    class Whole:
        pass

    for shared in (False, True):
        whole = Whole()
        whole.me, whole.d = whole, ws.Distributor(1, shared=shared)
        whole.w = whole.d.worker()
        whole.w.poll()
        whole.d.process([1], [1])
        burst = whole.w.poll()
        del whole
        gc.collect()
        assert burst.tolist() == [1]


def test_a_burst_that_is_kept_after_everything_is_gone_can_be_read_and_written():
    d = ws.Distributor(1, shared=True)
    (w,) = joined(d, 1)
    d.process([1, 2], [1, 1])
    burst = w.poll()
    d.close()
    w.close()
    del d, w
    gc.collect()
    burst += u64(1)
    assert burst.tolist() == [2, 3]


def test_a_worker_of_a_thread_that_ended_that_is_closed_late_does_not_send_its_successor_away():
    with ws.Distributor(1, notice_s=0) as d:
        made = []
        for thread in started((lambda: (made.append(d.worker()), made[0].poll()),)):
            thread.join()
        until(lambda: d.process((), ()) == 0 and made[0].closed is False and not d.active)
        successor = d.worker()
        successor.poll()
        d.process([1], [1])
        made[0].close()
        d.process((), ())
        assert d.active == (0,) and successor.poll().tolist() == [1]
        with pytest.raises(ws.GraphError, match="closed"):
            made[0].poll()
        successor.give_back()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("daemon", [False, True])
def test_a_program_that_ends_with_threads_inside_ends(shared, daemon):
    program = f"""
import threading, time
import wirespeed as ws
d = ws.Distributor(2, shared={shared})
def work(w):
    for burst in w: pass
threads = [threading.Thread(target=work, args=(d.worker(),), daemon={daemon}) for _ in range(2)]
for thread in threads: thread.start()
for k in range(100): d.process([k], [k], timeout_s=None)
def flush(d):
    try: d.flush(timeout_s=0.2)
    except ws.GraphError as error: assert "closed" in str(error), error  # by the program's end
waiting = threading.Thread(target=flush, args=(d,), daemon=True)
waiting.start()
if not {daemon}: del d
print("end", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_interrupts_of_the_distributors_calls_lose_and_double_nothing(interrupts):  # noqa: F811
    class Stopper:
        over = False

        def shoot(self):
            chance = np.random.default_rng(3)
            while not self.over:
                time.sleep(chance.uniform(0, 0.003))
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    stopper, back, stops, at, n, got = Stopper(), [], 0, 0, 20000, None
    items, tags = np.arange(n, dtype=u64), (np.arange(n) % 50).astype(np.uint32)
    with ws.Distributor(2, burst=4, lines=2, returns=64) as d:
        threads = started(*[(lambda w: [None for _ in w], d.worker()) for _ in range(2)], (stopper.shoot,))
        try:
            while at < n or d.outstanding or d.statistics.ready:
                try:
                    interrupts.append(1)
                    d.process(items[at:], tags[at:], timeout_s=0.002)
                    got = d.returned(33)
                    back.append(got)
                    got = None
                    d.flush(timeout_s=0.002)
                except Exception as error:
                    assert type(error).__name__ == "Interrupted"
                    stops += 1
                    if got is not None and (not back or back[-1] is not got):
                        back.append(got)
                interrupts.clear()
                got = None
                at = d.statistics.processed
        finally:
            stopper.over = True
            interrupts.clear()
        interrupts.append(1)
        left = None
        while left is None:
            try:
                left = d.close()
            except Exception:
                pass
        interrupts.clear()
    for thread in threads:
        thread.join()
    assert stops > 5 and len(left) == 0
    back = np.concatenate(back)
    assert np.array_equal(np.sort(back), items)


@pytest.mark.parametrize("call", ["flush", "process", "get", "loop"])
def test_ctrl_c_ends_a_wait(call):
    program = f"""
import threading
import wirespeed as ws
d = ws.Distributor(1)
w = d.worker()
w.poll(); d.process((), ())
try:
    if "{call}" in ("flush", "process"):
        d.process(range(10), [1] * 10)
        print("waiting", flush=True)
        d.flush() if "{call}" == "flush" else d.process(range(100000), [1] * 100000, timeout_s=None)
    else:
        print("waiting", flush=True)
        w.get() if "{call}" == "get" else [b for b in w]
except KeyboardInterrupt:
    n = d.statistics.processed
    print("stopped", len(d.close()) == n)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "stopped True\n" and process.returncode == 0


def test_a_handler_may_close_what_its_own_thread_waits_in():
    told = []
    for wait in (lambda d, w: d.flush(), lambda d, w: w.get(), lambda d, w: list(w)):
        d = ws.Distributor(1, shared=True)
        (w,) = joined(d, 1)
        d.process([1], [1])
        before = signal.signal(signal.SIGUSR1, lambda *_, d=d: d.close())
        main = threading.main_thread().ident
        timer = threading.Timer(0.05, lambda main=main: signal.pthread_kill(main, signal.SIGUSR1))
        timer.start()
        try:
            w.poll()
            if len(told) == 2:
                w.request()
            told.append(wait(d, w))
        except ws.GraphError as error:
            told.append(str(error)[:26])
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)
    assert told[0] == "this distributor is closed" and len(told[1]) == 0 and told[2] == []


# What another process writes over the memory that it shares.


def test_desks_that_are_scribbled_on_neither_crash_the_distributor_nor_lose_what_it_has():
    chance = np.random.default_rng(11)
    for turn in range(40):
        with ws.Distributor(3, burst=5, lines=4, shared=True, notice_s=0, returns=256) as d:
            workers = joined(d, 3)
            items = np.arange(60)
            taken = d.process(items, items)
            base = d._memory.desks.address
            first, size = d._memory.desks.desk(0), d._memory.desks.desk(1) - d._memory.desks.desk(0)
            words = (np.ctypeslib.ctypes.c_uint64 * ((Desks.size + 3 * size) // 8)).from_address(base)
            if turn % 2:  # the words that mean something
                for number in range(3):
                    at = first + number * size
                    for record, field in ((Desk.at(at), "owner"), (Desk.at(at), "epoch"), (Desk.at(at), "what")):
                        setattr(record, field, int(chance.integers(0, 5)) if chance.random() < 0.5 else 0xFFFFFFFF)
                    for k in range(4):
                        line = Line.at(at + DESK + 64 * k)
                        line.count, line.back = int(chance.choice([6, 31, 65535])), 1
            else:
                for k in range(len(words)):
                    if chance.random() < 0.3:
                        words[k] = int(chance.integers(0, 2**64, dtype=u64))
            for _ in range(5):
                d._memory.desks.record.bell += 1
                d.process([7, 8], [1, 2])
                len(d.returned())
                d.check()
                assert d.statistics.balanced
            assert d.active is not None and d.reason is not None and taken
            d.flush(timeout_s=0.001)
            d.close()
            del workers


def test_a_line_that_says_more_items_than_fit_is_counted_malformed():
    with ws.Distributor(1, burst=5, shared=True) as d:
        (w,) = joined(d, 1)
        d.process([1, 2], [1, 1])
        w.poll()
        desk = d._memory.desks.desk(0)
        line = next(at for k in range(16) if (at := desk + DESK + 64 * k) and Line.at(at).count == 2)
        Line.at(line).count = 6
        Line.at(line).back = BACK >> 48
        d.process((), ())
        told = d.statistics
        assert (told.workers[0].malformed, told.workers[0].consumed, told.outstanding) == (1, 2, 0)
        assert told.balanced and d.returned().tolist() == [] and ITEMS == 8 and ACTIVE == 1


@pytest.mark.parametrize("field", ["workers", "burst", "lines", "line_size", "desk_size"])
@pytest.mark.parametrize("value", [0, 1, 3, 5000, 2**32 - 1])
def test_a_record_whose_sizes_do_not_fit_is_refused_and_its_maker_goes_on(field, value):
    with ws.Distributor(2, shared=True) as d:
        (w,) = joined(d, 1)
        record = d._memory.desks.record
        was = getattr(record, field)
        setattr(record, field, value)
        if not (field == "workers" and value == 1):
            with pytest.raises(ws.PeerError, match="does not fit its memory"):
                ws.DistributorWorker.attach(fd=d.fd)
        assert d.process([1], [1]) == 1 and w.poll().tolist() == [1] and d.check() == []
        assert d.statistics.balanced and d.worker().number == 1
        setattr(record, field, was)
        w.give_back()
