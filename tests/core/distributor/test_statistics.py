"""The numbers of a distributor in situations that were made on purpose: each exact, and balanced."""

import gc

import numpy as np

import wirespeed as ws
from tests.core.distributor.test_distributor import joined


def of(d, number=0):
    return d.statistics.workers[number]


def test_a_new_distributor_has_done_nothing():
    with ws.Distributor(2, burst=5) as d:
        told = d.statistics
        assert isinstance(told, ws.DistributorStatistics) and told.balanced
        assert (told.processed, told.outstanding, told.ready, told.parked, told.parked_ever, told.no_place) == (0,) * 6
        assert (told.returned, told.lost) == (0, 0)
        for number, w in enumerate(told.workers):
            assert (w.number, w.name, w.active, w.stalled, w.lines, w.occupancy) == (
                number,
                "",
                False,
                False,
                (0,) * 6,
                0,
            )


def test_lines_are_counted_by_size_and_by_how_many_are_under_way():
    with ws.Distributor(1, burst=4, lines=4, slots=8) as d:
        (w,) = joined(d, 1)
        d.process(range(1), [0])  # nothing to do: sent at once
        d.process(range(10), [0] * 10)  # two full lines, and two items wait for company
        told = of(d)
        assert (told.packets, told.lines, told.in_flight, told.waiting) == (9, (0, 1, 0, 0, 2), 9, 2)
        assert told.occupancy == (1 + 2 + 3) / 3
        d.process(range(14), [0] * 14)
        told = of(d)
        assert (told.packets, told.lines, told.in_flight, told.waiting) == (13, (0, 1, 0, 0, 3), 13, 12)
        for _ in range(4):
            w.request(w.poll())
        d.process((), ())
        assert d.statistics.ready == 13 and d.statistics.outstanding == 12
        assert of(d).lines == (0, 1, 0, 0, 6) and of(d).waiting == 0
        d.close()


def test_pinned_counts_the_tags_that_are_on_a_worker():
    with ws.Distributor(2, burst=4, lines=1, slots=2) as d:
        a, b = joined(d, 2)
        assert d.process(range(14), [1, 1, 2, 3, 4, 5, 6, 7, 1, 1, 1, 4, 4, 8]) > 8
        told = d.statistics
        assert sum(w.pinned for w in told.workers) == len(
            {1, 2, 3, 4, 5, 6, 7} | ({8} if told.processed == 14 else set())
        )
        while d.outstanding:
            for w in (a, b):
                if w.poll() is not None:
                    w.request()
            d.process((), ())
        assert [w.pinned for w in d.statistics.workers] == [0, 0]
        assert sum(w.consumed for w in d.statistics.workers) == told.processed and d.statistics.balanced


def test_what_is_parked_for_a_stalled_worker_is_counted_and_goes_on_when_it_does():
    with ws.Distributor(2, burst=1, lines=1, slots=2, park=3, stall_s=0) as d:
        a, b = joined(d, 2)
        taken = d.process([1, 2, 3, 4, 5, 6, 7], [9] * 7, timeout_s=0.05)
        told = d.statistics
        assert (taken, told.parked, told.parked_ever, told.outstanding) == (5, 3, 3, 5)
        one, other = (told.workers[0], told.workers[1]) if told.workers[0].stalled else told.workers[1::-1]
        assert one.stalled and not other.stalled and one.in_flight == 1 and one.waiting == 1 and one.pinned == 1
        assert f"worker {one.number} has all that can be held for it, and has given nothing back for " in d.reason
        assert d.reason.endswith(f"; fence({one.number}) gives it up")
        assert d.process([100], [8]) == 1, "others go on"
        hung, quick = (a, b) if one.number == 0 else (b, a)
        quick.request(quick.poll())
        order = []
        while (burst := hung.poll()) is not None:
            order += burst.tolist()
            hung.request(burst)
            d.process((), ())
        assert order == [1, 2, 3, 4, 5] and sorted(d.returned().tolist()) == [1, 2, 3, 4, 5, 100]
        told = d.statistics
        assert (told.parked, told.parked_ever, told.outstanding) == (0, 3, 0) and told.balanced
        assert not any(w.stalled for w in told.workers)


def test_a_fence_counts_what_was_sent_lost_and_gives_the_rest_to_others():
    with ws.Distributor(2, burst=2, lines=1, slots=4) as d:
        a, b = joined(d, 2)
        d.process(range(6), [3] * 6)
        hung, other = (a, b) if d.statistics.workers[0].packets else (b, a)
        assert hung.poll().tolist() == [0, 1]
        assert d.fence(hung.number) == 2
        told = d.statistics
        assert (told.lost, told.outstanding, of(d, hung.number).fences, of(d, hung.number).taken_back) == (2, 4, 1, 4)
        assert not of(d, hung.number).active and told.balanced
        got = []
        while (burst := other.poll()) is not None:
            got += burst.tolist()
            other.request(burst)
            d.process((), ())
        assert got == [2, 3, 4, 5] == d.returned().tolist() and d.statistics.balanced
        assert (of(d, other.number).returned, d.statistics.processed) == (4, 6)


def test_leaving_and_joining_are_counted_and_beats_tell_who_works():
    with ws.Distributor(1) as d:
        w = d.worker(name="first")
        for _ in range(3):
            w.poll()
            d.process((), ())
            w.give_back()
            d.process((), ())
        told = of(d)
        assert (told.joins, told.name, told.active, told.takeovers, told.fences) == (3, "first", False, 0, 0)
        before = told.beats
        w.poll()
        w.poll()
        assert of(d).beats == before + 2
        w.close()
        assert of(d).name == ""
        del w
        gc.collect()


def test_counts_stay_balanced_in_a_long_random_run_of_one_thread():
    chance = np.random.default_rng(7)
    with ws.Distributor(3, burst=3, lines=2, slots=4, returns=16, park=8, stall_s=0) as d:
        workers = joined(d, 3)
        items = taken = 0
        for _ in range(3000):
            w = workers[chance.integers(3)]
            match chance.integers(6):
                case 0 | 1:
                    n = int(chance.integers(1, 12))
                    taken += d.process(range(items, items + n), chance.integers(0, 9, n))
                    items += n
                case 2 | 3:
                    if not w.in_hand:
                        w.poll()
                    w.request(range(chance.integers(0, 4)) if w.in_hand else None)
                case 4:
                    d.returned(int(chance.integers(0, 20)))
                case 5 if chance.random() < 0.1:
                    w.abandon()
            told = d.statistics
            assert told.balanced and told.processed == taken
            assert told.outstanding == told.parked + sum(w.in_flight + w.waiting for w in told.workers)
        assert sum(w.added for w in told.workers) > 0 and told.parked_ever > 0
        assert len(d.close()) >= told.outstanding
