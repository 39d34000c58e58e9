"""Giving items to workers: the one loop that all modes of the distributor are.

Theory of operation
-------------------
An item goes to the worker on which its tag is live, else to the *current* one, which changes whenever a line of it is
full.  Who comes next is whoever of the next two among the active has fewer lines out.  A line that is not full waits for
more as long as its worker has something to do.

An item whose worker has no room ends the call, which says so; or, where that worker is *stalled*, for it was waited
for in vain, the item is *parked* and the others go on.  Parked items are offered first whenever a worker that was full
is not any more.  So a parked item's tag is live on a full worker, or on none while all are full, and no later packet of
its flow can overtake it.  Its lane in the table of tags stays its own: nothing new is placed between the moment in which
the tag's line ends there and the offer.

Nothing here waits.  Who can wait calls again; :func:`process_patiently` does so, for kernels.

Thread rules: the distributor's thread alone.
Source: what it must do is DPDK's rte_distributor_process.
"""

import numpy as np

from wirespeed.core.distributor.attendance import attend
from wirespeed.core.distributor.backlog import BACKLOG, Backlog, Distributor, close_line, is_back, take_lines
from wirespeed.core.distributor.desk import ITEMS, Desks
from wirespeed.core.distributor.pins import NEAR, WORKER_BITS, find, is_live_at, lane_of, word_of
from wirespeed.core.distributor.turns import active_at, backlog_of, choose
from wirespeed.core.slots import copy_words
from wirespeed.jit.atomics import load_acquire, load_relaxed
from wirespeed.jit.intrinsics import load_u32, load_u64, pause, prefetch, store_u32, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address

u32, i64, u64 = np.uint32, np.int64, np.uint64
ALL, NO_WORKER, NO_ROOM, RETURNS_FULL, NO_PLACE = 0, 1, 2, 3, 4  # why process() took no more
ANYBODY = -1
NOBODYS = -1  # not 0, which is the current worker's address when there is none
LOOKS = 4  # workers that a call looks at beyond those that it gives something to
GLANCES = 64  # at a worker that has no room: its answer is nearly always on its way
AHEAD = 16  # items whose bucket is asked for ahead of them, where the table is larger than the first cache


@kernel
def _line_is_full(d, at):
    """What follows when an item filled a line."""
    goes_on = close_line(d, Backlog(at))
    if at == d.current and (d.n_active > 1 or not goes_on):
        choose(d)


@kernel(inline=True)
def _give(d, items, tags, n, far):
    pins, table, mask, marks, multiplier = address(d.pins), d.pins.table, d.pins.mask, d.pins.marks, d.pins.multiplier
    backlogs, burst, line_size, current = d.backlogs, d.burst, d.line_size, d.current
    # The worker whose line is being filled: its record is written when it is another one's turn.
    at, fill, slot, entry = i64(NOBODYS), i64(0), i64(0), u32(0)
    for k in range(n):
        tag = load_u32(tags + 4 * k)
        if far and k + AHEAD < n:
            prefetch(lane_of(table, mask, multiplier, load_u32(tags + 4 * (k + AHEAD))))
        lane = lane_of(table, mask, multiplier, tag)
        word = load_u64(lane)
        if u32(word >> u64(32)) != tag:
            lane = find(pins, marks, lane, lane - table, tag, word, backlogs, BACKLOG)
            if lane == 0:
                d.out_of_place += u64(1)
                d.reason, d.blocked = NO_PLACE, ANYBODY
                n = k
                break
            word = load_u64(lane)
        worker = backlogs + BACKLOG * i64(u32(word) & u32(WORKER_BITS))
        if not is_live_at(u32(word), worker):
            worker = current
        if worker != at:
            if at > 0:
                Backlog(at).fill = fill
            at = worker
            if at == 0:
                d.reason, d.blocked = NO_WORKER if d.n_active == 0 else NO_ROOM, ANYBODY
                n = k
                break
            b = Backlog(at)
            fill, slot, entry = i64(b.fill), b.slot, b.entry
            if fill >= burst:
                d.reason, d.blocked = NO_ROOM, i64(b.number)
                n = k
                break
        # Bounds: a slot has room for a burst of items and tags.
        store_u64(slot + ITEMS + 8 * fill, load_u64(items + 8 * k))
        store_u32(slot + line_size + 4 * fill, tag)
        store_u64(lane, word_of(tag, entry))
        fill += 1
        if fill == burst:
            Backlog(at).fill = fill
            _line_is_full(d, at)
            at, current = i64(NOBODYS), d.current
    if at > 0:
        Backlog(at).fill = fill
    return n


@kernel
def give(d, items, tags, n):
    """Put items where their tags belong, until one finds no room, of which ``reason`` and ``blocked`` tell; how many."""
    if d.pins.mask > NEAR:
        return _give(d, items, tags, n, True)
    return _give(d, items, tags, n, False)


@kernel
def relieve(d, b, glances):
    """Take back what a worker has done; whether one that was full is not any more."""
    for _ in range(glances):
        if is_back(d, b):
            break
        pause()
    take_lines(d, b, True)
    if b.full == 0 or not close_line(d, b):
        return False
    d.gained = 1
    if d.current == 0:
        choose(d)
    return True


@kernel
def offer_parked(d):
    """Give parked items to workers, in their order, each that has room.

    Lines are taken back meanwhile only of workers that have room, never of one that was found full: so no item finds
    room that one of its tag before it did not.
    """
    reason, blocked = d.reason, d.blocked  # of what is new
    d.gained = 0
    kept = d.parked_head
    for k in range(d.parked_head, d.parked_tail):
        at = k & d.parked_mask
        item, tag = d.parked_items + 8 * at, d.parked_tags + 4 * at
        if give(d, item, tag, i64(1)) == 0:
            at = kept & d.parked_mask  # Bounds: not beyond k.
            store_u64(d.parked_items + 8 * at, load_u64(item))
            store_u32(d.parked_tags + 4 * at, load_u32(tag))
            kept += 1
    d.parked_tail = kept
    d.reason, d.blocked = reason, blocked


@kernel(inline=True)
def parked(d):
    """How many items are parked."""
    return d.parked_tail - d.parked_head


@kernel
def _park(d, item, tag):
    """Park an item that is for a stalled worker; whether there is room."""
    if d.blocked < 0 or Backlog(backlog_of(d, d.blocked)).stalled == 0 or parked(d) >= d.parked_most:
        return False
    at = d.parked_tail & d.parked_mask
    store_u64(d.parked_items + 8 * at, item)
    store_u32(d.parked_tags + 4 * at, tag)
    d.parked_tail += 1
    d.parked_ever += u64(1)
    return True


@kernel
def _unblock(d):
    """Have room made for what found none; whether any was."""
    gained = False
    if d.reason == NO_PLACE:  # any line that comes back makes places free
        for turn in range(d.n_active):
            if take_lines(d, Backlog(active_at(d, turn)), True) > 0:
                gained = True
    if d.blocked >= 0:
        gained = relieve(d, Backlog(backlog_of(d, d.blocked)), i64(GLANCES))
    else:
        for turn in range(d.n_active):
            if relieve(d, Backlog(active_at(d, turn)), i64(0)):
                gained = True
    if gained and parked(d) > 0:
        offer_parked(d)
    return gained


@kernel
def _waits_for_returns(d):
    """Whether what has no room would have some, if the returns had."""
    if d.blocked >= 0:
        return is_back(d, Backlog(backlog_of(d, d.blocked)))
    for turn in range(d.n_active):
        if is_back(d, Backlog(active_at(d, turn))):
            return True
    return False


@kernel
def _look_at(d, at):
    """Take back what a worker has done, and send it what there is if it has nothing to do."""
    b = Backlog(at)
    if b.window.done != b.sent:
        relieve(d, b, i64(0))
    if b.window.done == b.sent and b.fill > u32(0):
        close_line(d, b)
        if at == d.current:
            choose(d)


@kernel
def look(d, most, all):
    """Look at up to ``most`` of the active workers, those whose turn it is; unless ``all``, not at those just sent to."""
    for _ in range(min(most, d.n_active)):
        d.looked = d.looked + 1 if d.looked + 1 < d.n_active else i64(0)
        at = active_at(d, d.looked)
        # Who was sent something by this very call is not idle, and what it returns is taken when room is wanted.
        if all or Backlog(at).call != d.call:
            _look_at(d, at)
    if d.gained != 0:
        if parked(d) > 0:
            offer_parked(d)
        d.gained = 0


@kernel
def process(distributor, items, tags, n):
    """Give the ``n`` items at ``items``, whose tags (u4 each) are at ``tags``, to workers; how many, from the first on.

    What is not taken stays the caller's, and ``reason`` says why.  With none, all workers are looked at: what came back is
    taken, and what waits for company is sent.
    """
    d = Distributor(distributor)
    d.reason = ALL
    d.call = u32(d.call + u32(1))
    if load_relaxed(Desks(d.desks), "bell") != d.bell:
        attend(d)
    if d.gained != 0 and parked(d) > 0:
        offer_parked(d)
    if n <= 0:
        look(d, d.n_active, True)
        return i64(0)
    taken = i64(0)
    while True:
        taken += give(d, items + 8 * taken, tags + 4 * taken, n - taken)
        if taken == n:
            break
        if _unblock(d):
            continue
        if not _park(d, load_u64(items + 8 * taken), load_u32(tags + 4 * taken)):
            break
        taken += 1
        if taken == n:
            break
    if taken == n:
        d.reason = ALL
    elif d.reason == NO_ROOM and _waits_for_returns(d):
        d.reason = RETURNS_FULL
    d.processed += u64(taken)
    d.outstanding += taken
    if d.n_active > 1:
        choose(d)  # flows that are new in one call do not all meet those of the last
    look(d, i64(LOOKS), False)
    return taken


@kernel
def process_patiently(distributor, items, tags, n, patience):
    """:func:`process`, again and again as long as that helps, with up to ``patience`` pauses in a row in between.

    A worker that has nothing done in all that time is stalled from then on, until it gives something back.
    """
    d = Distributor(distributor)
    taken, spins = process(distributor, items, tags, n), i64(0)
    while taken < n and spins < patience:
        pause()
        spins += 1
        more = process(distributor, items + 8 * taken, tags + 4 * taken, n - taken)
        if more > 0:
            taken += more
            spins = i64(0)
    if taken < n and d.reason == NO_ROOM and d.blocked >= 0:
        Backlog(backlog_of(d, d.blocked)).stalled = 1
        taken += process(distributor, items + 8 * taken, tags + 4 * taken, n - taken)
    return taken


@kernel
def returned(distributor, out, n):
    """Take up to ``n`` of the items that came back, to ``out``; how many."""
    d = Distributor(distributor)
    n = max(i64(0), min(n, d.returns_tail - d.returns_head))
    at = d.returns_head & d.returns_mask
    straight = min(n, d.returns_mask + 1 - at)
    copy_words(out, d.returns + 8 * at, 8 * straight)
    copy_words(out + 8 * straight, d.returns, 8 * (n - straight))
    d.returns_head += n
    return n


@kernel
def forget_returned(distributor):
    """Forget all that came back and was not taken; how many items."""
    d = Distributor(distributor)
    n = d.returns_tail - d.returns_head
    d.returns_head = d.returns_tail
    return n


@kernel
def anything(distributor):
    """Whether there is anything to do: a line came back, for which there is room, or a worker wishes something."""
    d = Distributor(distributor)
    if load_acquire(Desks(d.desks), "bell") != d.bell:
        return True
    if d.keeps != 0 and d.returns_tail - d.returns_head + d.burst > d.returns_mask + 1:
        return False
    for turn in range(d.n_active):
        if is_back(d, Backlog(active_at(d, turn))):
            return True
    return False
