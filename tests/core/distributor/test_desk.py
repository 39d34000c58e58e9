"""A desk step by step: who may have it, what a worker's call says in every state, and what passes in a line."""

import numpy as np
import pytest

from tests.core.distributor.plain_distributor import ADDED, MODES, PARKED, STARTS, Driven, makes
from wirespeed.core.distributor import calls, desk, process
from wirespeed.core.distributor.desk import (
    BACK,
    EPOCHS,
    HOLDING,
    IS_CLOSED,
    MOST_BURST,
    NOT_JOINED,
    NOT_YET,
    NOTHING,
    TOO_MANY,
    WAS_FENCED,
    Cursor,
    Desk,
    Line,
)
from wirespeed.core.distributor.process import ALL

every_mode = pytest.mark.parametrize("mode", MODES)


def started(mode, workers=2, **more):
    one = Driven(workers, **({"slots": 32} | MODES[mode] | more))
    one.start_all()
    return one


def at_desk(one, worker=0):
    return Desk.at(int(one.backlogs[worker].desk))


def test_a_desk_has_one_owner_until_it_is_let_go():
    one = Driven(2)
    first, second = 5 << 32 | 100, 9 << 32 | 100  # one thread's number, used twice
    assert one.own(0, first)
    assert not one.own(0, second) and not one.own(0, first)
    assert one.own(1, second)
    assert not one.disown(0, second)
    assert (at_desk(one).thread, at_desk(one).started) == (100, 5)
    assert one.disown(0, first)
    assert not one.disown(0, first)
    assert one.own(0, second)


@pytest.mark.parametrize("how", ["leave", "abandon"])
def test_who_has_left_gets_no_line_though_its_grant_still_stands(how):
    one = Driven(1, burst=7, lines=4)
    one.join(0)
    one.process([])
    one.process(makes(0, [1, 2, 3]))
    assert len(one.poll(0)) == 3
    if how == "leave":
        one.leave(0, [])
    else:
        desk.abandon(one.memory.cursor(0))
    assert one.poll(0) == NOT_JOINED  # before the distributor has looked at the wish,
    one.process([])
    assert one.poll(0) == NOT_JOINED  # and after


def test_to_wait_for_a_line_changes_nothing_of_the_worker():
    """It lets go of the GIL: another thread may have the worker leave meanwhile, and what was granted must stay over."""
    one = Driven(1, burst=7, lines=4)
    at = one.memory.cursor(0)
    one.join(0)
    one.process([])
    before = str(Cursor.at(at))
    assert calls.wait_for_line.function(at, 1, 0) == calls.READY  # the grant is there
    assert str(Cursor.at(at)) == before


def test_calls_say_what_state_a_worker_is_in():
    one = Driven(1, burst=7, lines=2)
    assert one.poll(0) == NOT_JOINED
    one.join(0)
    assert one.poll(0) == NOT_YET
    one.process([])
    assert one.poll(0) == NOTHING
    one.process(makes(0, [1] * 3))
    one.process([])
    assert one.poll(0) == makes(0, [1] * 3)
    assert one.poll(0) == one.poll(0) == HOLDING
    assert one.request(0, []) == 0
    assert one.poll(0) == NOTHING
    one.process(makes(3, [1] * 2))
    one.process([])
    assert isinstance(one.poll(0), list)
    assert one.fence(0) == 2
    assert one.poll(0) == HOLDING  # it works, and learns of it by and by
    assert one.request(0, []) == 0
    assert one.poll(0) == one.poll(0) == WAS_FENCED
    one.join(0)
    assert one.poll(0) == NOT_YET
    one.process([])
    assert one.poll(0) == NOTHING
    one.close()
    assert one.poll(0) == IS_CLOSED
    one.join(0)
    assert one.poll(0) == IS_CLOSED


def test_who_leaves_is_given_nothing_until_it_joins_again():
    one = started("burst", 1)
    assert one.leave(0) == 0
    one.process([])
    assert one.process(makes(0, [1])) == 0
    one.join(0)
    assert one.process(makes(0, [1])) == 1
    one.process([])
    assert one.poll(0) == makes(0, [1])


def test_a_worker_that_is_fenced_before_it_looked_once_learns_of_it():
    one = Driven(1)
    one.join(0)
    one.process([])
    assert one.fence(0) == 0
    assert one.poll(0) == WAS_FENCED


@every_mode
def test_more_than_a_line_holds_is_refused_and_changes_nothing(mode):
    one = started(mode, 1)
    burst = one.shape.burst
    assert one.request_in_place(0, 1) == TOO_MANY  # nothing in hand
    one.process(makes(0, [1]))
    one.process([])
    assert one.poll(0) == makes(0, [1])
    for n in (burst + 1, MOST_BURST + 1, 1 << 16, 1 << 40, -1, -(1 << 40)):
        assert one.request_in_place(0, n) == TOO_MANY
    assert one.poll(0) == HOLDING
    assert one.request_in_place(0, 1) == 0
    one.process([])
    assert one.returned() == makes(0, [1])


@every_mode
def test_a_worker_returns_fewer_others_or_more_than_it_was_given(mode):
    one = started(mode, 1)
    burst = one.shape.burst
    b = one.backlogs[0]
    wanted = []
    for n, answer in enumerate(("none", "all", "others", "more")):
        one.process(makes(n, [3]))
        one.process([])
        mine = one.poll(0)
        items = {
            "none": [],
            "all": mine,
            "others": [ADDED | 77],
            "more": mine + [ADDED | k for k in range(burst - 1)],
        }[answer]
        assert one.request(0, items) == 0
        wanted += items
    one.process([])
    assert one.returned() == wanted
    assert (b.returned, b.consumed, b.added) == (len(wanted), 1, burst - 1)
    assert one.record.outstanding == 0


@every_mode
@pytest.mark.parametrize("start", STARTS)
def test_items_pass_whole_and_in_order_in_lines_of_every_size(mode, start):
    one = started(mode, 1, start=start, slots=64)
    for n in [*range(1, one.shape.burst + 1)] * 2:
        items = [(1 << 64) - 1 - k if k % 3 else 1 << 63 | k for k in range(n)]
        assert one.process(items, [8] * n) == n
        one.process([])
        got = []
        while len(got) < n:
            mine = one.poll(0)
            assert one.request_in_place(0, len(mine)) == 0
            got += mine
            one.process([])
        assert got == items
        assert one.returned() == items


def test_a_line_that_says_more_than_it_can_hold_is_counted_and_its_items_too():
    """A worker of another process may write anything."""
    one = started("pipelined", 1)
    one.process(makes(0, [1] * 7))
    one.process([])
    assert len(one.poll(0)) == 7
    line = Line.at(int(one.backlogs[0].places) + (int(one.backlogs[0].window.done) & 3) * 64)
    line.control = BACK | 8 << 32 | int(one.backlogs[0].window.done)
    one.process([])
    assert one.backlogs[0].malformed == 1
    assert one.returned() == [] and one.record.outstanding == 0


@pytest.mark.parametrize("written", [0, BACK, (1 << 64) - 1, 1 << 48 | 7 << 32 | 12345, 3 << 48 | 1])
def test_what_is_no_answer_to_the_line_is_not_taken_for_one(written):
    one = started("pipelined", 1)
    one.process(makes(0, [1] * 7))
    b = one.backlogs[0]
    done = int(b.window.done)
    Line.at(int(b.places) + (done & 3) * 64).control = written
    for _ in range(3):
        one.process([])
    assert (b.window.done, one.record.outstanding) == (done, 7)


def test_a_count_of_the_distributor_that_is_too_large_does_not_lead_a_worker_astray():
    one = started("burst", 1)
    one.process(makes(0, [1] * 3))
    one.process([])
    line = Line.at(int(one.backlogs[0].places))
    line.control = 0xFFFF << 32 | int(one.backlogs[0].window.done)
    assert len(one.poll(0)) == one.shape.burst


@every_mode
def test_no_more_lines_are_under_way_than_there_are_places(mode):
    one = started(mode, 1)
    one.process(makes(0, [1] * 32 * one.shape.burst))
    b = one.backlogs[0]
    assert int(b.sent) - int(b.window.done) == one.shape.lines
    assert int(b.open) - int(b.window.done) == 31
    for _ in range(8):
        assert one.request_in_place(0, len(one.poll(0))) == 0
        one.process([])
        assert int(b.sent) - int(b.window.done) <= one.shape.lines


@every_mode
def test_beats_and_lines_are_counted_for_who_watches_a_worker(mode):
    one = started(mode, 1)
    beats = int(at_desk(one).beats)
    for _ in range(5):
        one.poll(0)
    assert at_desk(one).beats == beats + 5
    taken = int(at_desk(one).taken)
    one.process(makes(0, [1]))
    one.process([])
    one.poll(0)
    assert int(at_desk(one).taken) == int(Cursor.at(one.cursors[0]).next) != taken


@every_mode
def test_who_leaves_and_comes_back_before_anybody_looked_starts_anew(mode):
    one = started(mode, 2)
    items = makes(0, [1] * 20)
    assert one.process(items) == 20
    (worker,) = {held.worker for held in one.held()}
    mine = one.poll(worker)
    assert one.leave(worker, mine) == 0
    one.join(worker)
    assert one.poll(worker) == NOT_YET  # though lines of its last stay are there
    one.process([])
    got, back = one.flush()
    rest = [item for other in got.values() for item in other]
    assert mine + rest == items == back
    assert one.backlogs[worker].joins == 2


@every_mode
@pytest.mark.parametrize("start", STARTS)
def test_the_memory_tells_what_is_held_and_how_much_is_in_each_line(mode, start):
    one = started(mode, 3, start=start)
    for turn in range(3):
        one.process_patiently(makes(100 * turn, [k % 7 for k in range(64)]))
        held = one.held()
        assert one.memory.held().tolist() == [one_held.item for one_held in held]
        for worker, b in enumerate(one.backlogs):
            lines = [one_held.line for one_held in held if one_held.worker == worker]
            closed = [
                lines.count((int(b.window.done) + k) % 2**32) for k in range((int(b.open) - int(b.window.done)) % 2**32)
            ]
            assert one.memory.counts(worker, int(b.window.done), int(b.open)) == closed
        one.serve([turn])


def test_epochs_begin_again_and_are_still_told_apart():
    one = started("burst", 1)
    cursor, b = Cursor.at(one.cursors[0]), one.backlogs[0]
    at_desk(one).epoch = EPOCHS - 2
    epochs = []
    for turn in range(4):
        one.join(0)
        epochs.append(int(cursor.epoch))
        one.process([])
        assert one.poll(0) == NOTHING and b.epoch == cursor.epoch
        one.process(makes(turn, [1]))
        one.process([])
        assert one.poll(0) == makes(turn, [1])
        assert one.leave(0, makes(turn, [1])) == 0
    assert epochs == [EPOCHS - 1, 0, 1, 2]
    one.process([])
    assert one.returned() == [item for turn in range(4) for item in makes(turn, [1])]


# Death and fences.


@every_mode
@pytest.mark.parametrize("redo", [True, False])
def test_the_line_that_a_dead_worker_had_begun_is_done_again_or_lost(mode, redo):
    one = Driven(2, redo=redo, **({"slots": 32} | MODES[mode]))
    owner = 7 << 32 | 1
    assert one.own(0, owner) and one.own(1, owner + 1)
    one.start_all()
    items = makes(0, [1] * 31)
    assert one.process(items) == 31
    (worker,) = {held.worker for held in one.held()}
    first = one.poll(worker)
    one.request(worker, first)
    one.process([])
    begun = one.poll(worker) if len(first) < 31 else []
    assert one.bury(worker, 12345) == 0  # not that one
    assert one.bury(worker, owner + worker) == 1
    assert one.bury(worker, owner + worker) == 0
    got, back = one.flush([1 - worker])
    rest = items[len(first) :] if redo else items[len(first) + len(begun) :]
    assert got[1 - worker] == rest
    assert back == first + rest
    b = one.backlogs[worker]
    assert (b.takeovers, b.lost) == (1, 0 if redo else len(begun))
    # Its desk is free for another, who starts anew.
    assert one.own(worker, 999)
    assert one.poll(1 - worker) == NOTHING
    one.join(worker)
    one.process([])
    assert one.active() == {0, 1}


@every_mode
def test_a_dead_worker_that_wished_something_is_not_waited_for(mode):
    one = Driven(2, **MODES[mode])
    assert one.own(0, 11)
    one.join(0)
    assert one.bury(0, 11) == 1  # before it was given anything
    one.process([])
    assert one.active() == set()
    assert one.own(0, 12)
    one.join(0)
    one.process([])
    assert one.active() == {0}
    assert one.poll(0) == NOTHING


@every_mode
def test_a_fence_loses_what_was_sent_and_nothing_else(mode):
    one = started(mode, 2)
    items = makes(0, [1] * 27)
    assert one.process(items) == 27
    (worker,) = {held.worker for held in one.held()}
    b = one.backlogs[worker]
    in_hand = one.poll(worker)
    sent = [held.item for held in one.held() if (held.line - int(b.window.done)) < int(b.sent) - int(b.window.done)]
    assert sent[: len(in_hand)] == in_hand
    assert one.fence(worker) == len(sent) == b.lost
    assert one.record.outstanding == 27 - len(sent)
    more = makes(27, [1] * 5)
    assert one.process(more) == 5  # behind those that were not sent
    got, back = one.flush([1 - worker])
    assert got[1 - worker] == back == items[len(sent) :] + more
    # It wakes up: what it writes is nobody's, and nothing changes.
    assert one.request(worker, in_hand) == 0
    for _ in range(3):
        one.process([])
    assert one.returned() == [] and one.record.outstanding == 0
    assert one.poll(worker) == WAS_FENCED
    one.join(worker)
    one.process([])
    assert one.active() == {0, 1}
    _, back = one.flush()
    assert back == []


@every_mode
def test_what_a_fenced_worker_writes_while_another_has_its_flow_is_not_read(mode):
    one = started(mode, 2)
    assert one.process(makes(0, [1] * 20)) == 20
    (ghost,) = {held.worker for held in one.held()}
    in_hand = one.poll(ghost)
    one.fence(ghost)
    assert one.process(makes(20, [1] * 10)) == 10
    one.process([])
    mine = one.poll(1 - ghost)
    assert one.request(ghost, in_hand) == 0
    one.process([])
    held = one.held()
    assert mine == [one_held.item for one_held in held][: len(mine)]
    assert {one_held.worker for one_held in held} <= {1 - ghost, PARKED}
    assert one.returned() == []


@every_mode
def test_who_has_left_cannot_be_fenced_and_loses_nothing(mode):
    one = started(mode, 2)
    items = makes(0, [1] * 20)
    assert one.process(items) == 20
    (worker,) = {held.worker for held in one.held()}
    assert one.leave(worker) == 0
    assert one.fence(worker) == -1
    _, back = one.flush([1 - worker])
    assert back == items and one.backlogs[worker].lost == 0


def test_leaving_waits_for_room_for_what_was_given_back():
    one = started("burst", 2, returns=16)
    assert one.process(makes(0, [1] * 30)) == 30
    (worker,) = {held.worker for held in one.held()}
    for _ in range(2):
        mine = one.poll(worker)
        assert one.request(worker, mine) == 0
        one.process([])
    assert one.leave(worker) == 0
    one.process([])
    assert worker in one.active()
    assert one.fence(worker) == -2
    first = one.returned()
    one.process([])
    assert worker not in one.active()
    _, back = one.flush([1 - worker])
    assert first + back == makes(0, [1] * 30)


def test_a_fence_sends_nothing_more_to_who_hangs():
    """What came back made room for more lines, and they were sent and lost at once."""
    one = started("pipelined", 2)
    assert one.process(makes(0, [1] * 100)) == 100
    (worker,) = {held.worker for held in one.held()}
    for _ in range(3):
        mine = one.poll(worker)
        assert one.request(worker, mine) == 0
    assert one.fence(worker) == 7  # four lines were sent, and three are back
    assert len(one.returned()) == 21
    got, back = one.flush([1 - worker])
    assert got[1 - worker] == back == makes(28, [1] * 72)


# Waiting for stalled workers.


@every_mode
def test_what_is_for_a_stalled_worker_is_parked_and_the_others_go_on(mode):
    one = started(mode, 3, slots=max(8, MODES[mode]["lines"]), park=50)
    sent, blocked = [], makes(0, [1] * 600)
    sent += blocked[: one.process(blocked)]
    assert len(sent) < 500
    (worker,) = {held.worker for held in one.held()}
    taken = one.process_patiently(blocked[len(sent) :])
    assert taken == 50
    sent += blocked[len(sent) :][:taken]
    assert one.record.blocked == worker and one.backlogs[worker].stalled
    others = makes(600, [k % 2 + 2 for k in range(8)])
    assert one.process(others) == 8
    assert {held.worker for held in one.held() if held.tag != 1}.isdisjoint({worker, PARKED})
    got, back = one.flush()
    assert [item for item in back if item & 0xFFFFFFFF == 1] == sent
    assert got[worker][: len(sent) - 50] == sent[:-50]


@every_mode
def test_parked_items_come_before_later_ones_of_their_flow(mode):
    one = started(mode, 2, slots=max(8, MODES[mode]["lines"]), park=8)
    items = makes(0, [1] * 512)
    sent = one.process(items)
    sent += one.process_patiently(items[sent:])
    (worker,) = {held.worker for held in one.held()} - {PARKED}
    assert [held.worker for held in one.held()].count(PARKED) == 8
    for _ in range(3):  # one line comes back each time, and those that follow want its place
        mine = one.poll(worker)
        one.request(worker, mine)
        sent += one.process(items[sent : sent + len(mine)])
    _, back = one.flush()
    assert back == items[:sent]


def test_what_is_parked_does_not_change_why_process_took_no_more():
    one = started("single", 2, slots=8)
    assert one.process_patiently(makes(0, [7] * 12)) == 12
    (worker,) = {held.worker for held in one.held()} - {PARKED}
    for turn in range(2):
        one.request(worker, one.poll(worker))
        n = 1 - turn
        assert one.process(makes(100, [8] * n)) == n
        assert one.record.reason == ALL
    (other,) = {held.worker for held in one.held() if held.tag == 8}
    assert other == 1 - worker
    assert not one.backlogs[other].stalled


@every_mode
def test_there_is_something_to_do_when_a_line_is_back_or_a_worker_wishes(mode):
    one = Driven(2, returns=32, **MODES[mode])
    assert not process.anything(one.at)
    one.join(0)
    assert process.anything(one.at)
    one.process([])
    assert not process.anything(one.at)
    one.process(makes(0, [1] * one.shape.burst))
    assert not process.anything(one.at)
    mine = one.poll(0)
    assert not process.anything(one.at)
    one.request(0, mine)
    assert process.anything(one.at)
    one.process([])
    assert not process.anything(one.at)
    one.leave(0)
    assert process.anything(one.at)


@every_mode
def test_a_lone_item_is_sent_by_calls_for_other_items(mode):
    """It waits for company only as long as its worker has something to do, or until it was that worker's turn."""
    one = started(mode, 31, slots=64)
    assert one.process(makes(0, [1])) == 1
    (held,) = one.held()
    for call in range(1, 32):
        one.process(makes(call, [2]))
    assert one.poll(held.worker) == makes(0, [1])


def test_the_cache_lines_of_the_two_sides_are_apart():
    assert Desk.offset("wish") // 128 > Desk.offset("grant") // 128
    assert Desk.offset("taken") // 128 > Desk.offset("wish") // 128
    assert np.dtype(Line.dtype).itemsize == 8 == desk.ITEMS
