"""The cases of DPDK's own distributor tests, for each handshake, and what was mended in its distributor later.

====================================  ===============================================================================
DPDK's case                           test here
====================================  ===============================================================================
sanity_test: one tag                  test_all_packets_of_one_tag_go_to_one_worker
sanity_test: two tags alternately     test_two_tags_that_alternate_stay_on_one_worker_each
sanity_test: all tags distinct        test_packets_of_many_flows_are_spread_over_all_workers
sanity_test: big burst                test_a_big_burst_comes_back_item_by_item
sanity_mark_test                      test_marks_say_which_worker_had_which_packet
sanity_test_with_mbuf_alloc           test_workers_may_keep_what_they_are_given
sanity_test_with_worker_shutdown      test_a_worker_that_quits_with_a_flow_in_hand_leaves_the_rest_to_others
test_flush_with_worker_shutdown       the same, which ends with a flush
test_error_distributor_create_*       test_impossible_shapes_are_refused
quit_workers                          test_each_worker_gets_one_packet_that_says_quit
====================================  ===============================================================================

Of what was mended later, 917f49cfd0 (one mode's flush fell into the other's) is that everything here runs in every
mode; 5283392482 (orders of memory) is what test_distributor_orders.py explores; 7c37da5a9a and the name that is missing
are about making one.
"""

from collections import defaultdict

import pytest

from tests.core.distributor.plain_distributor import MODES, PARKED, TAGS, Driven, counts, makes
from wirespeed.core.distributor import process
from wirespeed.core.distributor.desk import NOTHING
from wirespeed.core.distributor.memory import Shape
from wirespeed.core.distributor.pins import MOST_WORKERS
from wirespeed.core.distributor.process import ALL, NO_ROOM, NO_WORKER, RETURNS_FULL
from wirespeed.errors import GraphError

every_mode = pytest.mark.parametrize("mode", MODES)
WORKERS = 4


def started(mode, workers=WORKERS, **more):
    """A distributor whose workers are active, each with room for 64 lines."""
    one = Driven(workers, **({"slots": 64} | MODES[mode] | more))
    one.start_all()
    return one


def send(one, items, workers=None):
    """Process all, workers serving whenever there is no room; what each got, and what came back."""
    got, back, at = defaultdict(list), [], 0
    for _ in range(10_000):
        at += one.process(items[at:])
        if at == len(items):
            break
        for worker, mine in one.serve(workers).items():
            got[worker] += mine
        back += one.returned()
    assert at == len(items), f"{at} of {len(items)} were taken; {one.record}"
    more, rest = one.flush(workers)
    for worker, mine in more.items():
        got[worker] += mine
    return got, back + rest


def by_tag(got):
    """Which workers had each tag."""
    on = defaultdict(set)
    for worker, items in got.items():
        for item in items:
            on[item & TAGS].add(worker)
    return on


def in_order(items):
    """Whether the items of each tag are in the order of their serial numbers."""
    last = {}
    for item in items:
        if item <= last.get(item & TAGS, -1):
            return False
        last[item & TAGS] = item
    return True


def drive(one, items):
    """Process items of which all must find room."""
    assert one.process(items) == len(items)
    assert one.record.reason == ALL


# Its own tests.


@every_mode
def test_all_packets_of_one_tag_go_to_one_worker(mode):
    one = started(mode)
    items = makes(0, [0] * 32)
    drive(one, items)
    got, back = one.flush()
    assert sorted(counts(got).values()) == [32]
    assert back == items == next(mine for mine in got.values() if mine)


@every_mode
def test_two_tags_that_alternate_stay_on_one_worker_each(mode):
    one = started(mode)
    items = makes(0, [0, 0xFFFF] * 16)
    drive(one, items)
    got, back = one.flush()
    assert all(len(workers) == 1 for workers in by_tag(got).values())
    assert sorted(back) == items and in_order(back)
    for mine in got.values():
        assert in_order(mine)


@every_mode
def test_packets_of_many_flows_are_spread_over_all_workers(mode):
    one = started(mode)
    items = makes(0, range(240))
    drive(one, items)
    got, back = one.flush()
    assert set(counts(got)) == set(range(WORKERS))
    assert max(counts(got).values()) <= 240 // WORKERS + 2 * one.shape.burst
    assert sorted(back) == items


@every_mode
@pytest.mark.parametrize("bound", [127, 1024])
def test_a_big_burst_comes_back_item_by_item(mode, bound):
    """1024 packets, as many of them outstanding at once as there may be."""
    one = started(mode)
    items, got, back, at = makes(0, [k % 60 for k in range(1024)]), defaultdict(list), [], 0
    while at < 1024:
        n = min(32, bound - one.record.outstanding)
        taken = one.process(items[at : at + n])
        at += taken
        if taken < 32:
            for worker, mine in one.serve().items():
                got[worker] += mine
            one.process([])
            back += one.returned(7)
    more, rest = one.flush()
    for worker, mine in more.items():
        got[worker] += mine
    back += rest
    assert sorted(back) == items and in_order(back)
    assert sum(counts(got).values()) == 1024


@every_mode
def test_marks_say_which_worker_had_which_packet(mode):
    one = started(mode)
    items = makes(0, [5] * 12 + [6] * 8 + [5] * 4)
    drive(one, items)
    got, _ = one.flush()
    marks = {item: worker for worker, mine in got.items() for item in mine}
    first, second = {marks[item] for item in items[:12] + items[20:]}, {marks[item] for item in items[12:20]}
    assert len(first) == len(second) == 1
    if mode == "single":
        assert first != second
    for mine in got.values():
        assert in_order(mine)


@every_mode
def test_workers_may_keep_what_they_are_given(mode):
    """They free every packet, so nothing comes back, and what came in is counted as theirs."""
    one = started(mode, returns=64)
    done = 0
    for first in range(0, 1 << 13, 64):
        items, at = makes(first, [(first + k) % 301 for k in range(64)]), 0
        while at < 64:
            at += one.process(items[at:])
            for worker in range(WORKERS):
                while isinstance(mine := one.poll(worker), list):
                    done += len(mine)
                    assert one.request(worker, []) == 0
            one.process([])
    while one.record.outstanding:
        for worker in range(WORKERS):
            while isinstance(mine := one.poll(worker), list):
                done += len(mine)
                one.request(worker, [])
        one.process([])
    assert done == 1 << 13
    assert one.returned() == []
    assert sum(int(b.consumed) for b in one.backlogs) == 1 << 13


@every_mode
@pytest.mark.parametrize("hand", ["returned", "kept", "empty", "never looked"])
def test_a_worker_that_quits_with_a_flow_in_hand_leaves_the_rest_to_others(mode, hand):
    """What it had in its hand it gave back or kept; everything else that was its own comes to another, in order."""
    one = started(mode)
    items = makes(0, [7] * 32)
    drive(one, items)
    (worker,) = {held.worker for held in one.held()}
    if hand != "never looked":
        mine = one.poll(worker)
        if hand == "empty":
            one.request(worker, mine)
            assert one.leave(worker) == 0
        else:
            assert one.leave(worker, mine if hand == "returned" else []) == 0
    else:
        mine = []
        assert one.leave(worker) == 0
    more = makes(32, [7] * 16)
    got, back = send(one, more, [number for number in range(WORKERS) if number != worker])
    assert worker not in one.active()
    assert sorted(counts(got).values()) == [48 - len(mine)]
    came = [item for other in got.values() for item in other]
    assert mine + came == items + more
    assert back == (came if hand == "kept" else items + more)
    assert one.backlogs[worker].taken_back == 32 - len(mine)


@every_mode
def test_a_worker_that_comes_back_gets_new_flows(mode):
    one = started(mode, 2)
    for turn in range(6):
        worker = turn % 2
        assert one.leave(worker) == 0
        got, _ = send(one, makes(100 * turn, range(60)), [1 - worker])
        assert set(counts(got)) == {1 - worker}
        one.join(worker)
        got, _ = send(one, makes(100 * turn + 60, range(40)))
        assert set(counts(got)) == {0, 1}
    assert [int(b.joins) for b in one.backlogs] == [4, 4]


@every_mode
def test_each_worker_gets_one_packet_that_says_quit(mode):
    one = started(mode)
    gone = []
    for k in range(WORKERS):
        assert one.process(makes(k, [1000 + k])) == 1
        one.process([])
        for worker in set(range(WORKERS)) - set(gone):
            if isinstance(mine := one.poll(worker), list):
                assert mine == makes(k, [1000 + k])
                one.leave(worker, mine)
                gone.append(worker)
        one.process([])
    assert sorted(gone) == [*range(WORKERS)]
    assert one.active() == set() and one.record.outstanding == 0
    assert one.process(makes(9, [1])) == 0
    assert one.record.reason == NO_WORKER


@pytest.mark.parametrize(
    "workers, more, says",
    [
        (0, {}, "workers"),
        (-1, {}, "workers"),
        (MOST_WORKERS + 1, {}, "1 to 1024 workers"),
        ("two", {}, "workers"),
        (2, {"burst": 0}, "burst"),
        (2, {"burst": 32}, "burst must be 1 to 31"),
        (2, {"lines": 3}, "power of two"),
        (2, {"lines": 4096}, "power of two"),
        (2, {"lines": 4, "slots": 2}, "slots must be at least 4"),
        (2, {"burst": 15, "returns": 8}, "room for a line of 15"),
        (2, {"returns": 100}, "power of two"),
        (2, {"park": 1 << 25}, "park"),
    ],
)
def test_impossible_shapes_are_refused(workers, more, says):
    with pytest.raises((GraphError, TypeError), match=says):
        Shape(workers, **more)


# What was mended in it later, by the commit.


@pytest.mark.parametrize("workers", [1, 63, 64, 65, 256, MOST_WORKERS])
def test_acc6e5503e_ecb6c4559e_9699b09803_every_worker_has_a_bit_of_its_own(workers):
    """Masks were too narrow for many workers: here each gets a flow, and what follows comes to the same one."""
    one = Driven(workers, burst=1, lines=1, slots=8)
    one.start_all()
    tags = [3 + 97 * k for k in range(workers)]
    for turn in range(3):
        for first in range(0, workers, 512):
            drive(one, makes(turn * 2048 + first, tags[first : first + 512]))
    got, back = one.flush()
    assert len(got) >= workers - 2
    assert {len(workers_of) for workers_of in by_tag(got).values()} == {1}
    assert all(in_order(mine) for mine in got.values())
    assert len(set(back)) == len(back) == 3 * workers


@every_mode
def test_96c343868d_flush_services_what_comes_back_however_full_its_place_is(mode):
    one = started(mode, 2, returns=32, slots=16)
    sent, back = 0, []
    while (n := one.process(makes(sent, [k % 5 for k in range(sent, sent + 40)]))) > 0:
        sent += n
        one.serve()
    for _ in range(20):  # nobody takes what came back: nothing is overwritten, and it does not turn in vain either
        one.serve()
        one.process([])
    assert one.record.returns_tail - one.record.returns_head > 32 - one.shape.burst
    assert one.record.reason in (ALL, RETURNS_FULL)
    for _ in range(1000):
        back += one.returned(5)
        one.serve()
        one.process([])
        if one.record.outstanding == 0:
            break
    back += one.returned()
    assert sorted(back) == makes(0, [k % 5 for k in range(sent)])
    assert in_order(back)


@every_mode
def test_bea84d5592_a_worker_gives_back_line_after_line_before_anybody_looks(mode):
    """It wrote over what it had given back and nobody had taken yet; here it is given no more than there is room for."""
    one = started(mode, 1)
    items = makes(0, range(40))
    drive(one, items)
    mine = []
    while isinstance(line := one.poll(0), list):
        mine += line
        one.request(0, line)
    assert len(mine) == min(40, one.shape.burst * one.shape.lines) if mode != "deep" else 31
    assert [one.poll(0) for _ in range(3)] == [NOTHING] * 3
    assert one.returned() == []  # nobody has looked
    one.process([])
    assert one.returned() == mine
    got, back = one.flush()
    assert mine + got[0] == items and mine + back == items


@every_mode
def test_5acce079e7_process_takes_what_came_back_when_it_wants_room(mode):
    """The distributor waited for the worker to ask, and the worker for its returns to be taken."""
    one = started(mode, 1, slots=16)
    sent = 0
    while (n := one.process(makes(sent, [9] * 16))) > 0:
        sent += n
    assert one.record.reason == NO_ROOM and one.record.blocked == 0
    mine = one.poll(0)
    assert one.request(0, mine) == 0
    assert one.process(makes(sent, [9] * len(mine))) == len(mine)
    got, back = one.flush()
    assert mine + got[0] == mine + back[len(mine) :]
    assert len(back) == sent + len(mine) and in_order(back)


@every_mode
def test_6bd951b482_nothing_is_looked_at_where_there_is_nothing(mode):
    """Counts of 0, with no memory behind them."""
    one = started(mode)
    assert process.process(one.at, 0, 0, 0) == 0
    assert process.process_patiently(one.at, 0, 0, 0, 8) == 0
    assert process.returned(one.at, 0, 0) == 0
    assert one.record.reason == ALL
    assert one.request(0, []) == 0
    assert one.leave(0, []) == 0
    one.process([])
    assert one.active() == {1, 2, 3}
    assert one.record.outstanding == one.record.processed == 0


@every_mode
def test_480d5a7c81_what_is_under_way_and_what_is_not_sent_yet_both_go_to_others(mode):
    one = started(mode, 2)
    items = makes(0, [4] * 60)
    drive(one, items)
    (worker,) = {held.worker for held in one.held()}
    b = one.backlogs[worker]
    assert b.sent != b.window.done and (b.open != b.sent or b.fill > 0)  # some of both
    assert one.leave(worker) == 0
    one.process([])
    assert {held.worker for held in one.held()} <= {1 - worker, PARKED}
    assert [held.item for held in one.held()] == items
    got, back = one.flush([1 - worker])
    assert got[1 - worker] == back == items


@every_mode
def test_f25fe0d5e3_a_worker_leaves_with_nothing_in_hand(mode):
    one = started(mode, 3)
    assert one.poll(1) == NOTHING
    assert one.leave(1) == 0
    one.process([])
    assert one.active() == {0, 2}
    got, back = send(one, makes(0, range(50)), [0, 2])
    assert set(counts(got)) <= {0, 2} and len(back) == 50


@every_mode
@pytest.mark.parametrize("workers", [2, 8, 31])
def test_626ceefbf4_each_flow_is_matched_with_its_own_worker(mode, workers):
    """Indices were swapped, and tests that only looked at totals passed for years."""
    one = started(mode, workers)
    tags = [*range(10, 10 + 8 * workers + 2 * one.shape.burst)]
    drive(one, makes(0, tags))
    where = {held.tag: held.worker for held in one.held()}
    assert len(set(where.values())) > 1
    for turn, order in enumerate((tags, tags[::-1], tags[::3] + tags[1::3] + tags[2::3]), 1):
        drive(one, makes(1000 * turn, order))
        assert {held.tag: held.worker for held in one.held()} == where
        assert sorted(held.tag for held in one.held()) == sorted(tags * (turn + 1))
    got, back = one.flush()
    assert {tag: min(on) for tag, on in by_tag(got).items()} == where
    assert all(len(on) == 1 for on in by_tag(got).values())
    assert in_order(back)


@every_mode
def test_91d6b8235e_outstanding_is_all_that_has_not_come_back(mode):
    one = started(mode, 2)
    drive(one, makes(0, [1] * 25))
    (worker,) = {held.worker for held in one.held()}
    assert one.record.outstanding == 25
    mine = one.poll(worker)
    assert one.record.outstanding == 25
    one.request(worker, mine)
    assert one.record.outstanding == 25
    one.process([])
    assert one.record.outstanding == 25 - len(mine)
    assert one.returned() == mine
    got, back = one.flush()
    assert mine + got[worker] == mine + back == makes(0, [1] * 25)
    assert one.record.outstanding == 0


@every_mode
def test_20fa39d230_what_is_forgotten_does_not_come_back(mode):
    """Clearing left the counters, and could wipe out that a worker had asked for something."""
    one = started(mode, 2)
    for turn in range(3):
        drive(one, makes(100 * turn, range(30)))
        while one.record.outstanding:
            one.serve()
            one.process([])
        assert process.forget_returned(one.at) == 30
        assert process.forget_returned(one.at) == 0
        assert one.returned() == []
    fresh = Driven(2, **MODES[mode])
    fresh.join(0, 1)
    assert process.forget_returned(fresh.at) == 0  # before anybody has seen that they ask
    got, back = send(fresh, makes(0, range(60)))
    assert set(counts(got)) == {0, 1} and len(back) == 60


@every_mode
def test_ed4be82d9e_nothing_and_no_items_are_told_apart(mode):
    one = started(mode, 1)
    assert one.poll(0) == NOTHING == -1
    drive(one, makes(0, [1]))
    one.process([])
    assert one.poll(0) == makes(0, [1])


@every_mode
def test_de8606bf73_lines_lie_on_cache_lines(mode):
    one = started(mode)
    size = int(one.record.line_size)
    assert size % 64 == 0
    assert all(int(b.places) % min(size, 128) == 0 for b in one.backlogs)
    assert all(int(b.places) % 64 == int(b.desk) % 64 == 0 for b in one.backlogs)
    assert int(one.record.pins.table) % 64 == 0


# What was seen when reading it.


@every_mode
def test_two_distributors_share_nothing(mode):
    """Whose turn it was belonged to a function, and so to all distributors."""

    def alone():
        one = started(mode, 3, multiplier=0x9E3779B97F4A7C15)
        return [dict(send(one, makes(100 * turn, range(35)))[0]) for turn in range(4)]

    wanted = alone()
    first, second = (started(mode, 3, multiplier=0x9E3779B97F4A7C15) for _ in range(2))
    for turn in range(4):
        items = makes(100 * turn, range(35))
        assert dict(send(first, items)[0]) == wanted[turn]
        assert dict(send(second, items)[0]) == wanted[turn]


@every_mode
def test_more_than_127_come_back_before_anybody_takes_them(mode):
    one = started(mode, 2)
    items = makes(0, [k % 40 for k in range(3000)])
    at = 0
    while at < 3000:
        at += one.process(items[at : at + 300])
        one.serve()
    while one.record.outstanding:
        one.serve()
        one.process([])
    back = one.returned()
    assert sorted(back) == items and in_order(back)


@every_mode
def test_a_worker_that_quits_in_a_call_takes_nothing_from_what_came_back(mode):
    """The returns were counted twice when packets were processed anew in the same call."""
    one = started(mode, 3)
    drive(one, makes(0, [k % 6 for k in range(36)]))
    given = []
    for worker in range(3):
        if isinstance(mine := one.poll(worker), list):
            one.request(worker, mine)
            given += mine
    assert one.leave(0) == 0
    drive(one, makes(36, [k % 6 for k in range(36, 60)]))
    got, back = one.flush([1, 2])
    assert sorted(given + got[1] + got[2]) == sorted(back) == makes(0, [k % 6 for k in range(60)])
    assert in_order(back)


@every_mode
def test_process_says_so_when_no_worker_is_active_and_goes_on_when_one_is(mode):
    one = Driven(2, **MODES[mode])
    items = makes(0, range(8))
    assert one.process(items) == 0
    assert (one.record.reason, one.record.outstanding) == (NO_WORKER, 0)
    one.join(1)  # late
    got, back = send(one, items, [1])
    assert got[1] == items and sorted(back) == items


@every_mode
def test_tags_are_told_apart_in_all_their_32_bits(mode):
    """Only 15 bits of a tag were looked at."""
    one = started(mode, 8)
    tags = [0, 1, *(1 << bit for bit in range(1, 32)), *(TAGS ^ 1 << bit for bit in range(32)), TAGS]
    drive(one, makes(0, tags * 2))
    held = one.held()
    assert sorted(held_one.tag for held_one in held) == sorted(tags * 2)
    got, back = one.flush()
    assert all(len(on) == 1 for on in by_tag(got).values())
    assert in_order(back) and len(back) == 2 * len(tags)
    assert len(counts(got)) > 1


@every_mode
@pytest.mark.parametrize("start", [(1 << 20) - 2, (1 << 32) - 2])
def test_nothing_changes_where_line_numbers_begin_again(mode, start):
    one = started(mode, 3, start=start)
    for turn in range(12):
        items = makes(1000 * turn, [k % 20 for k in range(60)])
        got, back = send(one, items)
        assert sorted(back) == items and in_order(back)
        assert all(in_order(mine) for mine in got.values())
    assert one.record.out_of_place == 0
