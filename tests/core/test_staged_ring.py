"""The staged ring as Python programs use it: arrays, ``with``, waiting, and what is refused in which words."""

import threading
import time

import numpy as np
import pytest

from wirespeed.core import staged
from wirespeed.core.arena import Arena
from wirespeed.core.ring import End
from wirespeed.core.staged import STAGE, STAGES, Staged
from wirespeed.core.staged_ring import StagedRing, StageLength
from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel

RECORD = np.dtype([("key", "u4"), ("mark", "u2"), ("more", "u2", 3)])


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
        ({"dtype": np.uint16}, "positive multiple of 4 bytes, got 2; pad it to 4"),
        ({"dtype": ("u1", 6)}, "positive multiple of 4 bytes, got 6; pad it to 8"),
        ({"dtype": "V0"}, "positive multiple of 4 bytes, got 0"),
        ({"dtype": object}, "items of type object hold Python objects"),
        ({"metadata": np.uint8}, "metadata's size must be a multiple of 4 bytes .* got 1; pad it to 4"),
        ({"metadata": "V0"}, "has 0 bytes; give None"),
        ({"metadata": object}, "metadata of type object hold Python objects"),
        ({"prod": "sp"}, "prod must be one of st, mt, rts, hts, got 'sp'"),
        ({"cons": "MT"}, "cons must be one of st, mt, rts, hts, got 'MT'"),
    ],
)
def test_a_ring_that_cannot_be_is_refused_by_what_is_wrong(options, wrong):
    with pytest.raises(GraphError, match=wrong):
        StagedRing(**{"size": 8, **options})


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.float64, ("u4", 4), ("u4", 5), RECORD, "V20"])
@pytest.mark.parametrize("sync", ["st", "mt", "rts", "hts"])
def test_items_of_any_type_come_out_as_they_went_in(dtype, sync):
    with StagedRing(10, 1, dtype=dtype, prod=sync, cons=sync) as ring:
        like = np.zeros(0, dtype)
        items = np.frombuffer(np.random.default_rng(1).bytes(7 * np.dtype(dtype).itemsize), like.dtype)
        items = items.reshape(7, *like.shape[1:])
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
    with StagedRing(4, 1, dtype=("u4", 2), metadata="u4") as ring:
        for turn in range(3):
            ring.enqueue_bulk(np.arange(6, dtype="u4").reshape(3, 2), [7, 8, 9])
            with ring.acquire(0, 3, in_place=True) as work:
                assert work.items is None and work.metadata is None
                assert [len(run) for run in work.runs] == [[3], [1, 2], [2, 1]][turn]
                assert [len(run) for run in work.metadata_runs] == [[3], [1, 2], [2, 1]][turn]
                assert np.concatenate(work.metadata_runs).tolist() == [7, 8, 9]
                for run in work.runs:
                    run += 100
            assert work.runs == ()
            assert ring.dequeue_bulk(3).tolist() == [[100, 101], [102, 103], [104, 105]]
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
        (lambda r: r.enqueue_bulk([[1, 2]]), r"items came in the shape \(1, 2\), wanted \(n\)"),
        (lambda r: r.enqueue_bulk(5), r"items came in the shape \(\), wanted \(n\)"),
        (lambda r: r.enqueue_bulk(np.zeros(2)), "items came as float64, wanted int64; convert them with astype"),
        (lambda r: r.enqueue_bulk([1], [1]), "has no metadata; make it with metadata="),
        (lambda r: r.dequeue_burst(1, np.zeros(1)), "has no metadata"),
        (lambda r: r.dequeue_burst(-1), "must not be negative, got -1"),
        (lambda r: r.acquire(0, -1), "must not be negative, got -1"),
        (lambda r: r.acquire(2, 1), "has the stages 0 to 1, got 2"),
        (lambda r: r.acquire(-1, 1), "has the stages 0 to 1, got -1"),
        (lambda r: r.release(0, 0, 2, [1]), "2 items are released with values for 1"),
        (lambda r: r.dequeue_bulk(9, timeout_s=1), "9 items at once never fit a ring of 8"),
        (lambda r: r.enqueue_bulk(range(9), timeout_s=None), "9 items at once never fit a ring of 8"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_named(ring, call, wrong):
    with pytest.raises(GraphError, match=wrong):
        call(ring)


def test_metadata_that_do_not_go_with_the_items_are_refused():
    with StagedRing(4, metadata="u4") as ring:
        with pytest.raises(GraphError, match="2 items came with metadata for 1"):
            ring.enqueue_bulk([1, 2], [1])
        for room in (np.zeros(1, "u4"), np.zeros(2, "i8"), np.zeros(4, "u4")[::2]):
            with pytest.raises(GraphError, match="room for 2 metadata of type uint32 is wanted"):
                ring.dequeue_burst(2, room)


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
        with StagedRing(8, arena=arena) as another:
            assert len(another) == 0


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
