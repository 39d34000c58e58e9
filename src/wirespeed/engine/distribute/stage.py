"""The stage that sends packets to a crew and lets them go on when they are back.

Theory of operation
-------------------
Packets that arrive get their tags, and their places if they are to leave in order, and wait in a *box*; the distributor
takes them out of it as far as it has room.  While some are left, the stage is full and the sources before it wait.  The
burst then gets packets that are back, as many as came; at a tick, up to a burst of them.

A worker that has given nothing back for long while the first in the box is for it is marked as stalled: the distributor
then parks what is for it, up to a limit, and the other workers go on.

Thread rules: the stage's worker is the distributor's thread, until it has left; then :func:`wind_up` is for whoever
closes the run.
"""

import numpy as np

from wirespeed.core.distributor.backlog import Backlog, Distributor
from wirespeed.core.distributor.process import NO_ROOM, process, returned
from wirespeed.core.distributor.turns import backlog_of
from wirespeed.core.free import free_bulk
from wirespeed.core.stage import MAX_BURST, OUTBOX, OUTPUT_FULL, Head, Outbox, count_drops, drop, emit
from wirespeed.core.staged import used
from wirespeed.engine.distribute.hand import HAND, finish_lines
from wirespeed.engine.distribute.item import handle_of, output_of
from wirespeed.engine.distribute.order import Order, come_back, free_places, give_places, take_in_order
from wirespeed.engine.distribute.reasons import BY_WORKER, STOPPED
from wirespeed.engine.distribute.tags import flow_tags, function_tags
from wirespeed.jit.intrinsics import copy, load_i64, move, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64
BOX = 4096  # packets that can wait; more than the sources of any graph give in the round in which it fills
STUCK = 512  # looks in vain before a worker counts as stalled; most of them are a tenth of a millisecond apart
IN_VAIN = 3  # rounds without any change before what is left at the end of a run is left for good

State = layout(
    "DistributeState",
    [
        ("head", Head),
        ("distributor", "i8"),
        ("box", "i8"),  # items
        ("tags", "i8"),  # u4, of what is in the box
        ("waiting", "i8"),  # how many are in the box
        ("room", "i8"),  # i8[MAX_BURST]: where what is back is looked at
        ("burst", "i8"),  # most packets of a burst
        ("by_code", "i8"),  # the function that chooses tags, or 0
        ("by_state", "i8"),
        ("order", Order),
        ("in_vain", "i8"),  # looks in a row that found no room for the first in the box
        ("ended", "i8"),  # the run is over: whatever is back leaves by output 0
        (None, 32),
    ],
)


@kernel
def _arrive(s, state, burst, n):
    """Put packets into the box, with tags and places; what finds no room there is dropped and counted."""
    room = BOX - s.waiting
    if s.order.ring != 0:
        room = min(room, free_places(s.order))
    for i in range(room, n):
        drop(state, load_i64(burst + 8 * i), i64(OUTPUT_FULL))
    n = min(n, room)
    items, tags = s.box + 8 * s.waiting, s.tags + 4 * s.waiting
    copy(items, burst, 8 * n)
    if s.by_code != 0:
        n = function_tags(s.by_code, s.by_state, state, items, tags, n)
    else:
        flow_tags(items, tags, n)
    if s.order.ring != 0 and n > 0:
        give_places(s.order, items, n)
    s.waiting += n


@kernel
def _offer(s):
    """Have the distributor take what it has room for; with nothing, have it look at the workers."""
    taken = process(s.distributor, s.box, s.tags, s.waiting)
    if taken > 0 or s.waiting == 0:
        s.in_vain = 0
    else:
        d = Distributor(s.distributor)
        s.in_vain += 1
        if s.in_vain > STUCK and d.reason == NO_ROOM and d.blocked >= 0:
            Backlog(backlog_of(d, d.blocked)).stalled = 1
    s.waiting -= taken
    if s.waiting > 0 and taken > 0:
        move(s.box, s.box + 8 * taken, 8 * s.waiting)
        move(s.tags, s.tags + 4 * taken, 4 * s.waiting)


@kernel(inline=True)
def _room_behind(head, n):
    """Up to ``n``, how many packets can leave whatever their output is."""
    for k in range(1, head.outputs):
        box = Outbox(head.outboxes + OUTBOX * k)
        n = min(n, box.capacity - box.length)
    return n


@kernel
def _leave(s, state, burst, n):
    """Let up to ``n`` packets that are back go on; how many stay in the burst."""
    n = min(_room_behind(s.head, n), i64(MAX_BURST))
    if s.order.ring != 0:
        while True:
            back = returned(s.distributor, s.room, i64(MAX_BURST))
            for i in range(back):
                come_back(s.order, load_i64(s.room + 8 * i))
            if back == 0:
                break
        n = take_in_order(s.order, s.room, n)
    else:
        n = returned(s.distributor, s.room, n)
    kept = i64(0)
    dropped = i64(0)
    for i in range(n):
        item = load_i64(s.room + 8 * i)
        handle, output = handle_of(item), output_of(item)
        if handle == 0:
            dropped += 1
        elif output == 0 or s.ended != 0:
            store_i64(burst + 8 * kept, handle)
            kept += 1
        else:
            emit(state, output, handle)
    if dropped > 0:
        count_drops(state, i64(BY_WORKER), dropped)
    return kept


@kernel(inline=True)
def _settle(s):
    """Say how many packets are here, and whether more can come."""
    if s.order.ring != 0:
        s.head.held = used(s.order.ring)
        s.head.full = 1 if s.waiting > 0 or free_places(s.order) < BOX else 0
    else:
        d = Distributor(s.distributor)
        s.head.held = s.waiting + d.outstanding + d.returns_tail - d.returns_head
        s.head.full = 1 if s.waiting > 0 else 0


@stage
def spread(state, burst, n):
    """Send packets to the crew, and let those that are back go on."""
    s = State(state)
    if n > 0:
        _arrive(s, state, burst, n)
    _offer(s)
    kept = _leave(s, state, burst, n if n > 0 else s.burst)
    _settle(s)
    return kept


@kernel
def _empty_box(s, state):
    """Have what was never sent be back, or gone."""
    if s.order.ring != 0:
        for i in range(s.waiting):
            come_back(s.order, load_i64(s.box + 8 * i))
    else:
        free_bulk(s.head.cache, s.box, s.waiting)
        count_drops(state, i64(STOPPED), s.waiting)
    s.waiting = i64(0)


@kernel
def wind_up(state, hands, n):
    """After all workers have left, free what is on its way through the ``n`` hands, and count it; whether that was all."""
    s = State(state)
    s.ended = 1
    _empty_box(s, state)
    in_vain = 0
    while True:
        _settle(s)
        if s.head.held == 0 or in_vain == IN_VAIN:
            return s.head.held == 0
        before = s.head.held
        lines = i64(0)
        for i in range(n):
            lines += finish_lines(hands + HAND * i)
        _offer(s)
        kept = _leave(s, state, s.box, i64(MAX_BURST))
        free_bulk(s.head.cache, s.box, kept)
        count_drops(state, i64(STOPPED), kept)
        _settle(s)
        in_vain = 0 if lines > 0 or s.head.held < before else in_vain + 1
