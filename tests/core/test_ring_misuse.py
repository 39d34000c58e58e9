"""What people do to rings that was not meant: none of it may crash, hang, lose, double or change an item."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import wirespeed as ws
from wirespeed.core.ring import Ring as Record

u64 = np.uint64
RECORD = np.dtype([("a", "u4"), ("b", "u4")])


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ring_and_a_look_are_not_copied(how):
    with ws.Ring(8, cons="st") as ring:
        ring.enqueue(1)
        with pytest.raises(TypeError, match="attach"):
            how(ring)
        with ring.peek(1) as look, pytest.raises(TypeError, match="copy its items"):
            how(look)


@pytest.mark.parametrize(
    "dtype, items",
    [
        ("u8", [1.5]), ("i8", [-1.9]), ("f8", [2**53 + 1]), ("f4", [2**24 + 1]), ("S4", [b"toolong"]), ("U1", ["abc"]),
        ("u8", "123"), ("f8", [None]), (RECORD, [(1, 2.9)]), (RECORD, [1]), ("M8[s]", [np.datetime64("2020-01-01T00:00:00.5")]),
        ("f8", np.array([2**53 + 1])), ("i8", np.array([2**64 - 1], u64)), ("u8", np.array([-1])),
        ("i8", np.ma.array([1, 2], mask=[0, 1])),
        (RECORD, np.zeros(1, [("b", "u4"), ("a", "u4")])), ("i4", np.array([2**40])), ("u8", [[1], [2]]), ("u8", 5),
    ],
    ids=str,
)  # fmt: skip
def test_items_whose_values_would_change_are_refused_and_nothing_goes_in(dtype, items):
    with ws.Ring(8, dtype=dtype) as ring:
        for call in (ring.enqueue_bulk, ring.enqueue_burst):
            with pytest.raises(ws.GraphError):
                call(items)
        assert len(ring) == 0


@pytest.mark.parametrize(
    "dtype, items",
    [
        ("u8", [2**64 - 1, 0]), ("i8", [-(2**63)]), ("f8", [0.1, float("nan"), float("inf"), 2**53]), ("f4", [0.1]),
        ("f8", [1, True]), ("u8", [True, np.int8(3)]), (RECORD, [(1, 2), (3, 4)]), ("S4", [b"ab", b"abcd"]), ("U2", ["a", "bc"]),
        ("M8[s]", [np.datetime64("2020-01-01T00:00:01")]), ("M8[ns]", [np.datetime64("2020-01-01T00:00:01")]), (">u4", [1, 2]),
        ("c16", [1 + 2j]),
    ],
    ids=str,
)  # fmt: skip
def test_items_that_fit_go_in_and_come_out_as_they_were(dtype, items):
    with ws.Ring(8, dtype=dtype) as ring:
        assert ring.enqueue_bulk(items) == len(items)
        assert np.array_equal(ring.dequeue_burst(8), np.array(items, dtype), equal_nan=ring.dtype.kind in "fc")


def test_a_number_of_items_of_more_than_32_bits_is_not_cut_to_them():
    with ws.Ring(8, dtype="u4") as ring:
        ring.enqueue_bulk([1, 2, 3])
        assert len(ring.dequeue_bulk(2**32 + 3)) == 0 and len(ring) == 3
        assert ring.dequeue_burst(2**32).tolist() == [1, 2, 3]
        ring.enqueue_bulk([1, 2, 3])
        assert ring.dequeue_burst(10**15).tolist() == [1, 2, 3]
        with pytest.raises(ws.GraphError, match="waiting for"):
            ring.dequeue_bulk(2**40, timeout_s=None)


def test_a_burst_longer_than_the_ring_puts_in_what_fits():
    with ws.Ring(8) as ring, ws.Ring(8, dtype=object) as objects:
        assert ring.enqueue_burst(range(1000)) == 7 and ring.enqueue_burst(np.arange(9, dtype=np.int16)) == 0
        assert objects.enqueue_burst(list(range(1000))) == 7 and objects.dequeue_burst(10**12) == list(range(7))


def test_a_look_that_is_dropped_or_interrupted_gives_back_what_it_held():
    with ws.Ring(8, prod="hts", cons="hts") as ring:
        ring.enqueue_bulk([1, 2, 3])
        ring.peek(2)
        ring.reserve(2)
        gc.collect()
        assert ring.dequeue() == 1 and ring.enqueue(4)


def test_interrupts_at_any_moment_leave_no_end_closed():
    class Stop(Exception):
        pass

    armed = fired = False

    def stop(*_):
        nonlocal fired
        fired = True
        if armed:
            raise Stop

    before = signal.signal(signal.SIGVTALRM, stop)
    stops = 0
    try:
        with ws.Ring(8, prod="hts", cons="hts") as ring:
            ring.enqueue_bulk([1, 2, 3])
            with ring.peek(2) as look:  # all that is used is loaded now: numba's loader bears no exception
                look.take(0)
            ring.dequeue_bulk(7, timeout_s=1e-6)
            for turn in range(100):
                fired = False
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001 + turn * 1e-5)
                    while not fired:  # it may be raised where Python drops it, in a finalizer
                        with ring.peek(2) as look:
                            look.take(0)
                        ring.dequeue_bulk(7, timeout_s=1e-6)
                    armed = False
                except Stop:
                    armed = False
                    stops += 1
                    look = None  # a block whose end was interrupted may not have begun to end
                assert len(ring) == 3
            gc.collect()
            assert ring.dequeue_burst(9).tolist() == [1, 2, 3]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert stops > 0


def test_a_handler_may_close_the_ring_its_own_thread_waits_in():
    program = """
import signal, sys
import wirespeed as ws
from wirespeed.core.ring import Ring as Record
ring = ws.Ring(8)
signal.signal(signal.SIGTERM, lambda *_: (ring.close(), print("closed", flush=True)))
print("waiting", flush=True)
try:
    for burst in ring: pass
except ws.GraphError as error:
    print(error)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=30)[0]
        assert out.startswith("closed\nthis ring is closed") and process.returncode == 0


def test_objects_that_use_the_ring_as_they_go_do_not_keep_it_from_closing():
    class Again:
        def __del__(self):
            try:
                ring.enqueue(1)
            except ws.GraphError:
                told.append(1)

    class Closing:
        def __del__(self):
            ring.close()

    told = []
    ring = ws.Ring(8, dtype=object)
    ring.enqueue_bulk([Again(), Closing(), Again()])
    ring.close()
    gc.collect()
    assert len(told) == 2 and repr(ring) == "<Ring, closed>"


def test_no_memory_for_the_list_of_objects_is_an_error_and_loses_nothing():
    program = """
import resource, wirespeed as ws
ring = ws.Ring(1 << 22, dtype=object)
for _ in range(3): ring.enqueue_bulk([None] * 1_000_000)
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (8 << 20), -1))
try:
    ring.dequeue_burst(3_000_000)
except MemoryError:
    print("no memory", len(ring))
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(len(ring.dequeue_burst(3_000_000)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "no memory 3000000\n3000000\n", done.stderr


def test_a_ring_that_is_collected_leaves_and_its_place_is_free():
    with ws.Ring(64, shared=True, members=3) as ring:
        for _ in range(10):
            attached = ws.Ring.attach(fd=ring.fd)
            attached.enqueue(1)
            del attached
            gc.collect()
        assert len(ring.peers()) == 1 and len(ring) == 10


def test_a_process_that_ends_without_closing_leaves_and_one_that_is_killed_makes_room_for_the_next():
    program = """
import os, sys
import wirespeed as ws
from wirespeed.core.ring import Ring as Record
ring = ws.Ring.attach(sys.argv[1])
ring.enqueue(int(sys.argv[2]))
if sys.argv[3] == "killed": os.kill(os.getpid(), 9)
"""
    name = f"misuse-{os.getpid()}"
    with ws.Ring(64, name=name, members=2) as ring:
        for turn, how in enumerate(["ends", "killed", "killed", "ends"]):
            subprocess.run([sys.executable, "-c", program, name, str(turn), how], timeout=60)
        assert ring.dequeue_burst(64).tolist() == [0, 1, 2, 3]
        assert len(ring.peers()) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda ring: ring.recover(float("nan")), lambda ring: ring.dequeue(timeout_s="x"), lambda ring: ring.peek(1.5),
        lambda ring: ws.Ring.attach(fd=-1), lambda ring: ws.Ring(8, dtype=None), lambda ring: ws.Ring(8, prod=["x"]),
        lambda ring: ws.Ring(8, shared=True, members=1.5), lambda ring: ws.Ring(8, shared=True, member_name=5),
    ],
)  # fmt: skip
def test_arguments_of_no_sense_are_refused(call):
    with ws.Ring(8, cons="st") as ring, pytest.raises(ws.GraphError):
        call(ring)


@pytest.mark.parametrize("call", [lambda: ws.Ring.attach(fd=2**40), lambda: ws.Ring(2**30, dtype="V2147483644")])
def test_what_the_system_does_not_have_is_a_port_error(call):
    with pytest.raises(ws.PortError):
        call()


def test_a_shut_down_ring_takes_nothing_and_says_so_even_of_nothing():
    with ws.Ring(8) as ring:
        ring.shutdown()
        for call in (ring.enqueue_bulk, ring.enqueue_burst):
            with pytest.raises(ws.GraphError, match="shut down"):
                call([])


def test_closing_while_many_threads_work_tells_each():
    for _ in range(20):
        ring, ends = ws.Ring(64), []

        def work(ring=ring, ends=ends):
            try:
                while True:
                    ring.enqueue_burst([1, 2, 3], timeout_s=0.001)
                    ring.dequeue_burst(4, timeout_s=0.001)
            except ws.GraphError as error:
                ends.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.005)
        ring.close()
        for thread in threads:
            thread.join()
        assert len(ends) == 4 and all("closed" in end for end in ends)


def test_closing_while_threads_look_after_many_peers_tells_them():
    with ws.Ring(64, shared=True, members=64) as maker:
        others = [ws.Ring.attach(fd=maker.fd) for _ in range(30)]
        told = []
        for _ in range(100):
            ring = ws.Ring.attach(fd=maker.fd)

            def work(ring=ring):
                try:
                    while True:
                        ring.dequeue_burst(4, timeout_s=0.0005)
                except ws.GraphError as error:
                    told.append(str(error))

            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(0.002)
            ring.close()
            for thread in threads:
                thread.join()
        assert len(told) == 200 and all("closed" in words for words in told)
        for other in others:
            other.close()


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupt():
    """Have Interrupted raised in this thread after some seconds; SIGALRM and its timer are pytest's meanwhile."""

    def raise_it(*_):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raise_it)
    main = threading.main_thread().ident
    yield lambda seconds: threading.Timer(seconds, lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
    signal.signal(signal.SIGUSR1, before)


def test_what_an_interrupted_call_had_taken_out_comes_with_the_next(interrupt):
    with ws.Ring(64, shared=True, dtype="i8") as ring:
        ring.enqueue_bulk(np.arange(20))
        ends = Record.at(ring.address)
        ends.cons.seen, ends.cons.position = 20, 2  # somebody has claimed two, and takes his time
        interrupt(0.1)
        with pytest.raises(Interrupted):
            ring.dequeue_bulk(5)
        ends.cons.tail = 2
        assert ring.dequeue_burst(3).tolist() == [2, 3, 4]
        assert ring.dequeue_burst(9).tolist() == [5, 6]
        assert ring.dequeue_burst(99).tolist() == list(range(7, 20))
        assert (ring.statistics().dequeued, len(ring)) == (18, 0)


def test_an_interrupted_close_can_be_done_again(interrupt):
    name = f"misuse-{os.getpid()}"
    ring = ws.Ring(64, name=name)
    ends = []

    def work():
        try:
            ring.dequeue(timeout_s=None)
        except ws.GraphError as error:
            ends.append(error)

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.03)
        try:
            interrupt(0.002)  # inside, for it may come while the timer's thread is waited for
            ring.close()
            while True:  # it may come behind the close, and late on a busy machine
                time.sleep(0.01)
        except Interrupted:
            pass
        ring.close()
        thread.join()
        ring = ws.Ring(64, name=name)
    ring.close()
    assert len(ends) == 20


def test_a_call_that_finds_nothing_or_no_room_is_counted_once():
    with ws.Ring(2) as ring:
        ring.dequeue_burst(4)
        ring.dequeue_bulk(1)
        assert ring.statistics().empty == 2
        ring.enqueue(1)
        ring.enqueue(2)
        ring.enqueue_burst(np.array([3], u64))
        assert ring.statistics().refused == 2


def test_a_float_that_would_become_infinite_is_refused():
    with ws.Ring(8, dtype="f4") as ring:
        with pytest.raises(ws.GraphError, match="cannot hold 1e\\+300"):
            ring.enqueue(1e300)
        assert ring.enqueue(float("inf")) and ring.enqueue(0.1)
