"""Groups: which buckets a packet takes, and that each starts from the packet as it came to the group."""

import numpy as np

from wirespeed.jit.intrinsics import copy, load_i64, load_u16, load_u64, move, store_i64, store_u64
from wirespeed.jit.kernel import kernel
from wirespeed.switch import ops as op
from wirespeed.switch.fields import FLOW_SIZE, HEADER_WORDS, W_DERIVED
from wirespeed.switch.memory import (
    BUCKET as BUCKET_SIZE,
)
from wirespeed.switch.memory import (
    GROUP_ALL,
    GROUP_FAILOVER,
    GROUP_SELECT,
    LINK_DOWN,
    NO_PLACE,
    PORT,
    PORT_DOWN,
    BucketRecord,
    GroupRecord,
    PortRecord,
    Shared,
)
from wirespeed.switch.translate.edit import commit
from wirespeed.switch.translate.translation import (
    BUCKET,
    BUCKETS,
    FRAME,
    FRAMES,
    SAVED_FLOW,
    SAVED_KNOWN,
    SAVED_SIZE,
    SAVES,
    TOO_DEEP,
    Frame,
    count,
    put,
)

i64, u32, u64 = np.int64, np.uint32, np.uint64
NESTED = 16  # groups that watch groups


@kernel(inline=True)
def record_of(shared, place):
    """The address of a group's record; that of a group without buckets when there is none."""
    record = load_i64(shared.groups + 8 * place)
    return record if record != 0 else shared.no_group


@kernel
def _is_live(shared, bucket, nested):
    """Whether what a bucket watches is up; one that watches nothing is."""
    b = BucketRecord(bucket)
    if b.watch_port == NO_PLACE and b.watch_group == 0:
        return True
    if b.watch_port != NO_PLACE:
        port = PortRecord(shared.ports + PORT * i64(b.watch_port))
        if port.present != 0 and not port.flags & (PORT_DOWN | LINK_DOWN):
            return True
    place = i64(b.watch_group)
    while place != 0 and nested > 0:
        # A watched group is live when a bucket of it is; chains of groups are followed by their first buckets.
        g = GroupRecord(record_of(shared, place - 1))
        place = i64(0)
        for i in range(i64(g.n_buckets)):
            w = BucketRecord(g.buckets + BUCKET_SIZE * i)
            if w.watch_port == NO_PLACE and w.watch_group == 0:
                return True
            if w.watch_port != NO_PLACE:
                port = PortRecord(shared.ports + PORT * i64(w.watch_port))
                if port.present != 0 and not port.flags & (PORT_DOWN | LINK_DOWN):
                    return True
            if w.watch_group != 0 and place == 0:
                place = i64(w.watch_group)
        nested -= 1
    return False


@kernel
def _choose(t, g):
    """The bucket of a select group for this flow; -1 when none is live.

    A hash chooses a slot, and a slot a bucket; when that one is not live, the next live one of the slots behind it.
    """
    shared = Shared(t.shared)
    mask = i64(g.n_slots) - 1
    slot = i64(load_u64(t.flow + 8 * W_DERIVED)) & mask
    for step in range(mask + 1):
        bucket = i64(load_u16(g.slots + 2 * ((slot + step) & mask)))
        if bucket < i64(g.n_buckets) and _is_live(shared, g.buckets + BUCKET_SIZE * bucket, i64(NESTED)):
            return bucket
    return i64(-1)


@kernel
def begin_copy(t, pc, limit, kind, cookie):
    """Go on with other actions, from the packet and flow as they are now, which come back behind these."""
    if t.n_saves >= SAVES or t.n_frames >= FRAMES:
        t.gives_up = TOO_DEEP
        return
    commit(t)
    saved = t.saves + SAVED_SIZE * t.n_saves
    t.n_saves += 1
    copy(saved, t.flow, FLOW_SIZE)
    copy(saved + SAVED_FLOW, t.dirty, 8 * HEADER_WORDS)
    store_i64(saved + SAVED_KNOWN, t.ttl_steps)
    store_i64(saved + SAVED_KNOWN + 8, t.popped)
    store_i64(saved + SAVED_KNOWN + 16, t.unknown)
    f = Frame(t.frames + FRAME * t.n_frames)
    t.n_frames += 1
    f.pc, f.limit, f.kind, f.table, f.saved = pc, limit, u32(kind), u32(t.table), saved
    f.cookie, f.depth, f.clone_at, f.edits = cookie, t.depth, t.n_ops, t.edits
    put(t, op.CLONE | 1 << 16)


@kernel
def end_copy(t, frame):
    """Come back: the flow is as before.  Ops that change nothing need no copy of the packet."""
    f = Frame(frame)
    at, words = f.clone_at, t.effect - f.clone_at
    if words <= 1:  # nothing of it is seen
        t.n_ops = at
        t.effect = min(t.effect, at)
    elif t.edits == f.edits:
        move(t.ops + 8 * at, t.ops + 8 * (at + 1), 8 * (words - 1))
        t.n_ops = at + words - 1
        t.effect = t.n_ops
    else:
        t.n_ops = at + words
        store_u64(t.ops + 8 * at, u64(op.CLONE) | u64(words) << u64(16))
    copy(t.flow, f.saved, FLOW_SIZE)
    copy(t.dirty, f.saved + SAVED_FLOW, 8 * HEADER_WORDS)
    t.ttl_steps = load_i64(f.saved + SAVED_KNOWN)
    t.popped = load_i64(f.saved + SAVED_KNOWN + 8)
    t.unknown = load_i64(f.saved + SAVED_KNOWN + 16)
    t.n_saves -= 1
    t.depth = f.depth


@kernel
def _take(t, g, number, cookie):
    bucket = BucketRecord(g.buckets + BUCKET_SIZE * number)
    count(t, bucket.counter)
    begin_copy(t, bucket.program, i64(0), i64(BUCKET), cookie)


@kernel
def group(t, place, cookie):
    """Have a packet take the buckets of the group at a place.

    A group for all becomes a frame of its own, which begins each bucket when the one before it is over.
    """
    shared = Shared(t.shared)
    if place >= shared.n_groups or load_i64(shared.groups + 8 * place) == 0:
        return
    g = GroupRecord(record_of(shared, place))
    count(t, g.counter)
    kind = i64(g.kind)
    if g.n_buckets == 0:
        return
    if kind == GROUP_ALL:
        if t.n_frames >= FRAMES:
            t.gives_up = TOO_DEEP
            return
        f = Frame(t.frames + FRAME * t.n_frames)
        t.n_frames += 1
        f.pc, f.limit, f.kind, f.table, f.saved = place, i64(0), u32(BUCKETS), u32(t.table), i64(0)
        f.clone_at = record_of(shared, place)
        f.cookie, f.depth = cookie, t.depth
    elif kind == GROUP_SELECT:
        if t.n_saves == 0:
            t.kept = t.effect  # behind a select group Open vSwitch begins anew
        chosen = _choose(t, g)
        if chosen >= 0:
            _take(t, g, chosen, cookie)
    elif kind == GROUP_FAILOVER:
        for i in range(i64(g.n_buckets)):
            if _is_live(shared, g.buckets + BUCKET_SIZE * i, i64(NESTED)):
                _take(t, g, i, cookie)
                break
    else:
        _take(t, g, i64(0), cookie)


@kernel
def next_bucket(t, frame):
    """Begin the next bucket of a group for all; False when there is none."""
    f = Frame(frame)
    g = GroupRecord(f.clone_at)
    number = f.limit
    if number >= i64(g.n_buckets):
        return False
    f.limit = number + 1
    _take(t, g, number, f.cookie)
    return True
