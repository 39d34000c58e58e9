"""The staged ring as Python programs use it: arrays, ``with``, waiting, and what is refused in which words."""

import copy
import gc
import math
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from wirespeed.core import staged, staged_ring
from wirespeed.core.arena import Arena
from wirespeed.core.ring import End
from wirespeed.core.staged import STAGE, STAGES, Staged
from wirespeed.core.staged_ring import StagedRing, StageLength
from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel

RECORD = np.dtype([("key", "u4"), ("mark", "u2"), ("more", "u2", 3)])
FIVE = np.dtype([("words", "u4", 5)])


@pytest.fixture
def ring():
    with StagedRing(8, 2) as ring:
        yield ring


def pass_stage(ring, stage, change=lambda items: items):
    with ring.acquire(stage, ring.size) as work:
        work.items[:] = change(work.items)
    return len(work)


@pytest.mark.parametrize(
    "options, wrong",
    [
        ({"size": 0}, "holds 1 to 1073741823 items, got 0; give"),
        ({"size": 1 << 30}, "holds 1 to 1073741823 items, got 1073741824"),
        ({"stages": 0}, "has 1 to 1048575 stages, got 0; for none use a plain ring"),
        ({"size": 8.0}, "size must be a whole number, got 8.0"),
        ({"size": True}, "size must be a whole number, got True"),
        ({"size": None}, "size must be a whole number, got None"),
        ({"stages": "2"}, "stages must be a whole number, got '2'"),
        ({"dtype": np.uint16}, "items: the size of an item must be a multiple of 4 bytes, got 2"),
        ({"dtype": ("u4", 2)}, "items: an item is one value or one record, not an array"),
        ({"dtype": "V0"}, "must be a multiple of 4 bytes, got 0"),
        ({"dtype": "nonsense"}, "dtype must be one of NumPy's, got 'nonsense'"),
        ({"dtype": object}, "items of type object hold Python objects"),
        ({"metadata": np.uint8}, "metadata: the size of an item must be a multiple of 4 bytes, got 1"),
        ({"metadata": "V0"}, "metadata: .*, got 0"),
        ({"metadata": ("u4", 2)}, "metadata: an item is one value or one record"),
        ({"metadata": object}, "metadata of type object hold Python objects"),
        ({"prod": "sp"}, "prod must be one of st, mt, rts, hts, got 'sp'"),
        ({"prod": ["mt"]}, r"prod must be one of st, mt, rts, hts, got \['mt'\]"),
        ({"cons": "MT"}, "cons must be one of st, mt, rts, hts, got 'MT'"),
    ],
)
def test_a_ring_that_cannot_be_is_refused_by_what_is_wrong(options, wrong):
    with pytest.raises(GraphError, match=wrong):
        StagedRing(**{"size": 8, **options})


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.float64, "M8[us]", FIVE, RECORD, "V20"])
@pytest.mark.parametrize("sync", ["st", "mt", "rts", "hts"])
def test_items_of_any_type_come_out_as_they_went_in(dtype, sync):
    with StagedRing(10, 1, dtype=dtype, prod=sync, cons=sync) as ring:
        items = np.frombuffer(np.random.default_rng(1).bytes(7 * np.dtype(dtype).itemsize), dtype)
        for _ in range(4):
            assert ring.enqueue_bulk(items) == 7
            assert ring.enqueue_bulk(items) == 0
            assert pass_stage(ring, 0) == 7
            out = ring.dequeue_bulk(7)
            assert out.dtype == items.dtype and out.shape == items.shape and out.tobytes() == items.tobytes()


def test_bulk_is_all_or_nothing_and_burst_what_there_is(ring):
    assert ring.enqueue_bulk(range(9)) == 0
    assert ring.enqueue_burst(range(9)) == 8
    assert ring.enqueue_burst([1]) == 0
    pass_stage(ring, 0)
    pass_stage(ring, 1)
    assert ring.dequeue_bulk(9).tolist() == []
    assert ring.dequeue_bulk(3).tolist() == [0, 1, 2]
    assert ring.dequeue_burst(1 << 40).tolist() == [3, 4, 5, 6, 7]
    assert ring.dequeue_burst(0).tolist() == ring.dequeue_burst(1).tolist() == []


def test_what_a_stage_changes_is_written_back_and_order_is_kept(ring):
    ring.enqueue_bulk(range(6))
    first, second = ring.acquire(0, 4), ring.acquire(0, 4)
    assert (first.items.tolist(), second.items.tolist()) == ([0, 1, 2, 3], [4, 5])
    second.items += 100
    second.release()
    assert len(ring.acquire(1, 8)) == 0, "the first ones are not through yet"
    first.items *= 10
    first.release()
    with ring.acquire(1, 8, exact=True) as none:
        assert len(none) == 0 and none.items.tolist() == []
    pass_stage(ring, 1)
    assert ring.dequeue_burst(8).tolist() == [0, 10, 20, 30, 104, 105]


def test_a_body_that_raises_releases_its_items_unchanged(ring):
    ring.enqueue_bulk([1, 2])
    with pytest.raises(ZeroDivisionError), ring.acquire(0, 2) as work:
        work.items[:] = 9
        raise ZeroDivisionError
    assert pass_stage(ring, 1) == 2
    assert ring.dequeue_burst(2).tolist() == [1, 2]


def test_metadata_go_beside_the_items():
    with StagedRing(4, 2, dtype=np.uint64, metadata=np.uint32) as ring:
        assert ring.enqueue_bulk([1, 2, 3], [10, 20, 30]) == 3
        with ring.acquire(0, 3) as work:
            assert work.metadata.tolist() == [10, 20, 30]
            work.metadata += 1
        work = ring.acquire(1, 3)
        assert ring.release(1, work.token, 3, metadata=work.metadata + 1) == 3
        out = np.zeros(5, np.uint32)
        assert ring.dequeue_burst(4, out).tolist() == [1, 2, 3]
        assert out.tolist() == [12, 22, 32, 0, 0]


def test_items_can_be_worked_on_in_place():
    with StagedRing(4, 1, dtype="u4", metadata="u4") as ring:
        for turn in range(3):
            ring.enqueue_bulk([0, 1, 2], [7, 8, 9])
            with ring.acquire(0, 3, in_place=True) as work:
                assert work.items is None and work.metadata is None
                assert [len(run) for run in work.runs] == [[3], [1, 2], [2, 1]][turn]
                assert [len(run) for run in work.metadata_runs] == [[3], [1, 2], [2, 1]][turn]
                assert np.concatenate(work.metadata_runs).tolist() == [7, 8, 9]
                for run in work.runs:
                    run += 100
            assert work.runs == ()
            assert ring.dequeue_bulk(3).tolist() == [100, 101, 102]
        with ring.acquire(0, 3, in_place=True) as nothing:
            assert nothing.runs == () and len(nothing) == 0


def test_a_wrong_release_is_refused_and_counted_and_the_right_one_still_works(ring):
    ring.enqueue_bulk([1, 2, 3])
    work = ring.acquire(0, 2)
    other = ring.acquire(0, 1)
    for stage, token, count in [(0, work.token + 1, 2), (0, work.token, 1), (0, work.token, 3), (1, work.token, 2)]:
        assert ring.release(stage, token, count) == 0
    for stage, token, count in [
        (-1, work.token, 2),
        (2, work.token, 2),
        (0, -1, 2),
        (0, 1 << 70, 2),
        (0, work.token, 0),
    ]:
        assert ring.release(stage, token, count) == 0
    assert ring.refused == 9
    assert ring.release(0, work.token, 2, [5, 6]) == 2
    assert ring.release(0, work.token, 2, [7, 8]) == 0
    with pytest.raises(GraphError, match=r"stage 0 does not know token \d+ with 2 items; it was released by its token"):
        work.release()
    other.release()
    with pytest.raises(GraphError, match="released already"):
        other.release()
    assert repr(other) == "<Work of stage 0, 1 items, released>"
    pass_stage(ring, 1)
    assert ring.dequeue_burst(8).tolist() == [5, 6, 3]


@pytest.mark.parametrize(
    "call, wrong",
    [
        (lambda r: r.enqueue_bulk([[1, 2]]), "items: "),
        (lambda r: r.enqueue_bulk(5), "items: .*not iterable"),
        (lambda r: r.enqueue_bulk(np.zeros(2)), "items: .*int64, got an array of float64"),
        (lambda r: r.enqueue_bulk([0.5]), "items: "),
        (lambda r: r.enqueue_bulk([1 << 63]), "items: "),
        (lambda r: r.enqueue_bulk(np.array([1 << 63], np.uint64)), "items: "),
        (lambda r: r.release(0, 0, 1, [0.5]), "items: "),
        (lambda r: r.acquire(0.0, 1), "stage must be a whole number, got 0.0"),
        (lambda r: r.acquire(False, 1), "stage must be a whole number, got False"),
        (lambda r: r.acquire(0, 1.5), "n must be a whole number, got 1.5"),
        (lambda r: r.acquire(0, None), "n must be a whole number, got None"),
        (lambda r: r.dequeue_bulk("1"), "n must be a whole number, got '1'"),
        (lambda r: r.release(0, 1.0, 1), "token must be a whole number, got 1.0"),
        (lambda r: r.release(0, 1, True), "count must be a whole number, got True"),
        (lambda r: r.enqueue_bulk([1], [1]), "has no metadata; make it with metadata="),
        (lambda r: r.dequeue_burst(1, np.zeros(1)), "has no metadata"),
        (lambda r: r.dequeue_burst(-1), "must not be negative, got -1"),
        (lambda r: r.acquire(0, -1), "must not be negative, got -1"),
        (lambda r: r.acquire(2, 1), "has the stages 0 to 1, got 2"),
        (lambda r: r.acquire(-1, 1), "has the stages 0 to 1, got -1"),
        (lambda r: r.release(0, 0, 2, [1]), "2 items are released with values for 1"),
        (lambda r: r.dequeue_bulk(9, timeout_s=1), "9 items at once never fit a ring of 8"),
        (lambda r: r.enqueue_bulk(range(9), timeout_s=None), "9 items at once never fit a ring of 8"),
        (lambda r: r.enqueue_bulk([1], timeout_s=-1), "timeout_s must be a number of seconds, at least 0, got -1"),
        (lambda r: r.enqueue_burst([], timeout_s=math.nan), "timeout_s must be .* got nan; None is for ever"),
        (lambda r: r.dequeue_burst(0, timeout_s="1"), "timeout_s must be .* got '1'"),
        (lambda r: r.acquire(0, 0, timeout_s=-0.5), "timeout_s must be .* got -0.5"),
        (lambda r: r.acquire(0, 0, timeout_s=True), "timeout_s must be .* got True"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_named(ring, call, wrong):
    with pytest.raises(GraphError, match=wrong):
        call(ring)


def test_metadata_that_do_not_go_with_the_items_are_refused():
    with StagedRing(4, metadata="u4") as ring:
        with pytest.raises(GraphError, match="2 items came with metadata for 1"):
            ring.enqueue_bulk([1, 2], [1])
        with pytest.raises(GraphError, match="metadata: "):
            ring.enqueue_bulk([1], [-1])
        for room in (np.zeros(1, "u4"), np.zeros(2, "i8"), np.zeros(4, "u4")[::2], np.zeros((2, 2), "u4"), [0, 0]):
            with pytest.raises(GraphError, match="room for 2 metadata of type uint32 is wanted"):
                ring.dequeue_burst(2, room)


def test_whole_numbers_of_any_type_and_long_times_are_taken():
    with StagedRing(np.int64(8), np.uint8(2)) as ring:
        assert ring.enqueue_bulk(np.arange(3, dtype=np.uint8), timeout_s=np.float32(0.5)) == 3
        with ring.acquire(np.int32(0), np.uint16(2), timeout_s=math.inf) as work:
            assert len(work) == 2
        work = ring.acquire(np.int8(1), np.int64(2), timeout_s=10**400)
        assert ring.release(np.int8(1), np.uint32(work.token), np.int64(2)) == 2
        assert ring.dequeue_burst(np.int64(8)).tolist() == [0, 1]


def test_what_cannot_be_written_back_is_released_as_it_was(ring):
    ring.enqueue_bulk([1, 2])
    with pytest.raises(GraphError, match="items: "), ring.acquire(0, 2) as work:
        work.items = work.items * 0.5
    pass_stage(ring, 1)
    assert ring.dequeue_burst(2).tolist() == [1, 2]


def test_work_that_is_dropped_is_given_back_unchanged(ring):
    ring.enqueue_bulk([1, 2, 3])
    work = ring.acquire(0, 2)
    work.items[:] = 9
    del work
    ring.acquire(0, 1, in_place=True)
    assert ring.stage_lengths == [StageLength(0, 0), StageLength(3, 0)]
    work = ring.acquire(1, 3)
    assert ring.release(1, work.token, 3) == 3
    del work  # it was released by its token
    assert (ring.refused, ring.dequeue_burst(3).tolist()) == (0, [1, 2, 3])


def test_work_of_before_a_reset_leaves_that_of_after_it_alone(ring):
    ring.enqueue_bulk([1, 2])
    old = ring.acquire(0, 2)
    ring.reset()
    ring.enqueue_bulk([3, 4])
    new = ring.acquire(0, 2)
    assert new.token == old.token
    with pytest.raises(GraphError, match="the ring was reset after these items were acquired"):
        old.release()
    del old
    assert ring.stage_lengths[0] == StageLength(0, 2)
    new.release()


class Stop(Exception):
    """What a signal's handler raises."""


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("in_place", [False, True])
def test_an_exception_at_any_step_leaves_nothing_in_work(ring, in_place):
    """At each instruction of Python from before the acquiring to after the release, but for the last finalizer."""

    def passing():
        with ring.acquire(0, 1, in_place=in_place):
            pass

    def stopped_at(step):
        left = step

        def trace(frame, event, arg):
            nonlocal left
            frames, at = [], frame
            while at is not None:
                frames.append(at.f_code)
                at = at.f_back
            if passing.__code__ not in frames or any(code.co_name == "__del__" for code in frames):
                return None
            if frame.f_code is not passing.__code__ and frame.f_code.co_filename != staged_ring.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= 1
                if left == -1:
                    raise Stop
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            passing()
        except Stop:
            pass
        finally:
            sys.settrace(before)
        return left < 0

    passing()
    step = 0
    more = True
    while more:
        assert ring.enqueue_bulk([step]) == 1
        more = stopped_at(step)
        assert ring.stage_lengths[0].working == 0, step
        pass_stage(ring, 0)
        pass_stage(ring, 1)
        assert ring.dequeue_bulk(1).tolist() == [step]
        step += 1
    assert step > 100 and ring.refused == 0


def test_neither_a_ring_nor_work_is_copied_or_pickled(ring):
    ring.enqueue_bulk([1])
    with ring.acquire(0, 1) as work:
        for thing, why in ((ring, "staged ring cannot be copied"), (work, "acquired cannot be copied")):
            for way in (copy.copy, copy.deepcopy, pickle.dumps, lambda x: pickle.dumps(x, 0)):
                with pytest.raises(TypeError, match=why):
                    way(thing)


def run(code):
    """What another Python prints, which may crash."""
    code = "import numpy as np, threading, time\nimport wirespeed as ws\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_closing_ends_the_calls_that_wait():
    said = run("""
        calls = [
            lambda ring: ring.acquire(0, 1, timeout_s=None),
            lambda ring: ring.dequeue_burst(1, timeout_s=None),
            lambda ring: ring.enqueue_bulk(range(8), timeout_s=None),
        ]
        for call in calls:
            ring = ws.StagedRing(8)
            ring.enqueue_bulk([1])
            ring.acquire(0, 1).release()
            if call is calls[1]:
                ring.dequeue_bulk(1)
            def wait():
                try:
                    call(ring)
                except ws.GraphError as error:
                    print(error)
            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.02)
            ring.close()
            thread.join()
    """)
    assert said.count("this ring is closed") == 3


def test_closing_while_others_work_crashes_nobody():
    said = run("""
        def work(ring, step):
            try:
                while True:
                    step(ring)
            except ws.GraphError as error:
                ended.append(str(error))
        def stage(ring):
            with ring.acquire(0, 4096) as work:
                work.items += 1
        steps = [
            lambda ring: ring.enqueue_burst(np.arange(4096)), stage, lambda ring: ring.dequeue_burst(4096),
            lambda ring: (ring.stage_lengths, ring.ready, ring.dump(), ring.refused, ring.free, repr(ring)),
        ]
        ended = []
        for turn in range(30):
            ring = ws.StagedRing(1 << 14)
            threads = [threading.Thread(target=work, args=(ring, step)) for step in steps]
            for thread in threads:
                thread.start()
            time.sleep(0.01)
            ring.close()
            for thread in threads:
                thread.join()
        assert all("closed" in why for why in ended), ended
        print(len(ended))
    """)
    assert said == "120\n"


def test_arrays_over_the_slots_outlive_the_ring():
    said = run("""
        ring = ws.StagedRing(1 << 16, metadata="u4")
        ring.enqueue_bulk(np.arange(1 << 16), np.arange(1 << 16))
        work = ring.acquire(0, 1 << 16, in_place=True)
        run, beside = work.runs[0], work.metadata_runs[0][5:]
        ring.close()
        try:
            work.release()
        except ws.GraphError as error:
            print(error)
        del work, ring
        other = [ws.StagedRing(1 << 16) for _ in range(4)]
        run += 1
        print(int(run.sum()) == sum(range(1, (1 << 16) + 1)), int(beside[0]))
    """)
    assert said.endswith("or make another\nTrue 5\n")


def test_memory_goes_with_the_last_that_refers_to_it():
    def mapped():
        with open("/proc/self/smaps_rollup", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Rss:"))

    before = mapped()
    for _ in range(20):
        ring = StagedRing(1 << 20)
        ring.enqueue_bulk(np.arange(1 << 20))
        with ring.acquire(0, 1, in_place=True) as work:
            run = work.runs[0]
        del ring, work, run
        gc.collect()
    assert mapped() - before < 100_000


def test_a_fork_is_told_that_the_ring_is_its_parents():
    said = run("""
        import os
        ring = ws.StagedRing(8)
        ring.enqueue_bulk([1, 2])
        work = ring.acquire(0, 2)
        child = os.fork()
        if child == 0:
            for call in (lambda: ring.dequeue_burst(1), work.release, lambda: len(ring), ring.reset):
                try:
                    call()
                except ws.GraphError as error:
                    print(error)
            del work
            ring.close()
            raise SystemExit
        assert os.waitpid(child, 0)[1] == 0
        work.release()
        assert ring.dequeue_burst(2).tolist() == [1, 2]
    """)
    assert said.count("this ring belongs to process") == 4


def test_a_shared_arenas_ring_is_also_its_forks():
    with Arena(1 << 16, shared=True) as arena, StagedRing(8, arena=arena) as ring:
        child = os.fork()
        if child == 0:
            os._exit(0 if ring.enqueue_bulk([5]) == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert pass_stage(ring, 0) == 1 and ring.dequeue_burst(1).tolist() == [5]


def test_work_that_is_left_at_the_end_of_the_program_is_no_trouble():
    assert run("ring = ws.StagedRing(8); ring.enqueue_bulk([1]); work = ring.acquire(0, 1); work.me = work") == ""


def test_lengths_say_where_the_items_are(ring):
    ring.enqueue_bulk(range(7))
    a, b = ring.acquire(0, 2), ring.acquire(0, 3)
    a.release()
    c = ring.acquire(1, 1)
    assert (len(ring), ring.free, ring.ready) == (7, 1, 0)
    assert ring.stage_lengths == [StageLength(waiting=2, working=3), StageLength(waiting=1, working=1)]
    c.release()
    b.release()
    assert (ring.ready, ring.stage_lengths) == (1, [StageLength(2, 0), StageLength(4, 0)])
    text = ring.dump()
    assert "7 of 8 items of 8 bytes, 2 stages, 0 releases refused" in text
    assert "stage 0: acquired up to 5, finished up to 5, 2 wait" in text
    assert repr(ring) == "<StagedRing 7 of 8 items, 2 stages>"


def test_lengths_are_right_where_the_counters_wrap(ring):
    for at in [ring.address + Staged.offset("cons"), *(ring.address + STAGES + STAGE * k for k in (-1, 0, 1))]:
        End.at(at).tail = End.at(at).position = End.at(at).seen = (1 << 32) - 2
    ring.enqueue_bulk(range(7))
    with ring.acquire(0, 4):
        assert ring.stage_lengths[0] == StageLength(3, 4)
    pass_stage(ring, 1)
    assert (ring.ready, ring.dequeue_burst(7).tolist(), len(ring), ring.ready) == (4, [0, 1, 2, 3], 3, 0)


def test_a_reset_ring_is_as_new(ring):
    ring.enqueue_bulk(range(8))
    work = ring.acquire(0, 3)
    ring.acquire(0, 3).release()
    ring.reset()
    assert (len(ring), ring.free, ring.refused) == (0, 8, 0)
    assert ring.release(0, work.token, 3) == 0
    assert ring.enqueue_bulk(range(8)) == 8 and pass_stage(ring, 0) == pass_stage(ring, 1) == 8
    assert ring.dequeue_bulk(8).tolist() == list(range(8))


def test_a_closed_ring_says_so_and_an_arena_that_was_given_stays_open():
    with Arena(1 << 16) as arena:
        with StagedRing(8, arena=arena) as ring:
            ring.enqueue_bulk([1])
        assert arena.address
        ring.close()
        with pytest.raises(GraphError, match="this ring is closed"):
            ring.enqueue_bulk([1])
        assert repr(ring) == "<StagedRing, closed>"
        open_ring = StagedRing(8, arena=arena)
        with StagedRing(8, arena=arena) as another:
            assert len(another) == 0
    with pytest.raises(GraphError, match="this ring's arena is closed"):
        open_ring.enqueue_bulk([1])


def test_a_call_that_waits_gets_what_comes_and_gives_up_in_time(ring):
    assert ring.dequeue_burst(1, timeout_s=0.01).tolist() == []
    assert len(ring.acquire(0, 1, timeout_s=0.01)) == 0
    ring.enqueue_bulk(range(8))
    assert ring.enqueue_bulk([1], timeout_s=0.01) == 0
    assert ring.enqueue_bulk([], timeout_s=None) == 0

    def later():
        time.sleep(0.05)
        pass_stage(ring, 0)
        pass_stage(ring, 1)

    thread = threading.Thread(target=later)
    thread.start()
    assert ring.dequeue_bulk(8, timeout_s=None).tolist() == list(range(8))
    thread.join()


def test_threads_that_work_out_of_order_deliver_in_order():
    n = 3000
    with StagedRing(64, 2, cons="st", prod="st") as ring:
        done = threading.Event()

        def worker(stage):
            while not done.is_set():
                with ring.acquire(stage, 5, timeout_s=0.01) as work:
                    work.items[:] = work.items * 3 + stage

        workers = [threading.Thread(target=worker, args=(stage,)) for stage in (0, 0, 1, 1)]
        for thread in workers:
            thread.start()
        got, put = [], 0
        while len(got) < n:
            put += ring.enqueue_burst(range(put, min(n, put + 7)))
            got += ring.dequeue_burst(16).tolist()
        done.set()
        for thread in workers:
            thread.join()
    assert got == [9 * i + 1 for i in range(n)]


@kernel
def pass_first(ring):
    """Pass all items of the first stage on."""
    count, token, _ = staged.acquire(ring, 0, 0, 0, 8, False)
    return staged.release(ring, 0, token, count, 0, 0) if count else 0


def test_kernels_take_the_ring_by_its_address(ring):
    ring.enqueue_bulk([1, 2])
    assert pass_first(ring.address) == 2
    assert ring.stage_lengths == [StageLength(0, 0), StageLength(2, 0)]
