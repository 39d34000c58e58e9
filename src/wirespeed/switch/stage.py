"""The switch's stage: keys, cache, tables for those that miss, and then each packet to where its path leads.

Theory of operation
-------------------
A burst goes through in two passes: all keys are made, and the lines of their buckets asked for; then each is looked up,
translated when it misses, and its packet takes its path.  :func:`generic` does it for any rules, with whole flows, and is
always there; :func:`switch` is what the engine calls, and it calls the code that is in force.
A specialised kernel (:mod:`wirespeed.switch.specialise`) does the first pass for the fields that are live now and has
the number of words of a key as a constant; everything behind is the same code.

The version is read once a burst.  ``passes`` is odd while the worker is inside: the control path gives memory back only
when it has seen every worker outside, or in another burst.  The fence puts the write of ``passes`` before all reads of
what may be given back (V2); on the other side the version is written, then a fence, then ``passes`` is read (V1).

Thread rules: one worker; the control path reads counters.
"""

import numpy as np

from wirespeed.core.packet import HASHED, Packet
from wirespeed.core.stage import OUTBOX, OUTPUT_FULL, Outbox, drop
from wirespeed.jit.atomics import exchange, fence_exchanged, load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import call_stage, load_i64, load_u32, load_u64, prefetch, stack, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.switch import cache as caches
from wirespeed.switch import path as paths
from wirespeed.switch.apart import take_path, translate_flow
from wirespeed.switch.extract import flow_of
from wirespeed.switch.fields import FLOW_SIZE, FRAG_ANY, FRAG_SHIFT, W_PORT
from wirespeed.switch.memory import LIVE_WORDS, ONE_OUTPUT, PORT, Live, PortRecord, RuleRecord, Shared, TableRecord
from wirespeed.switch.path import NOT_SIMPLE, PATH, Path, path_of
from wirespeed.switch.state import MEMO, MEMOS, Memo, State
from wirespeed.switch.translate.translation import Translation
from wirespeed.tables.classifier.entry import Entry
from wirespeed.tables.classifier.search import lookup

i64, u32, u64 = np.int64, np.uint32, np.uint64


@kernel
def _renew(s, shape, k, era):
    """Begin anew with an empty cache."""
    caches.clear(s.cache, k)
    s.shape = shape
    s.cache.era = era


@kernel
def _make_room(s, k):
    """Forget all paths."""
    paths.fold(s.paths)
    caches.clear(s.cache, k)


@kernel
def _widen(s, k):
    """Go on with a larger cache, which is empty."""
    s.cache.entries, s.cache.mask = load_acquire(s, "next_entries"), s.next_mask
    caches.clear(s.cache, k)
    store_release(s, "next_entries", i64(0))


@kernel(inline=True)
def begin(s, n):
    """Enter the switch for a burst; (version, address of the Live in force)."""
    exchange(s, "passes", s.passes + u64(1))  # with the fence, cheaper than a store and one of its own
    fence_exchanged()
    shared = Shared(s.shared)
    version = load_acquire(shared, "version")  # V2
    s.version = version
    live = load_acquire(shared, "live")
    if Live(live).shape != s.shape or version >> 31 != s.cache.era:
        _renew(s, Live(live).shape, Live(live).k, version >> 31)
    if load_relaxed(s, "next_entries") != 0:
        _widen(s, Live(live).k)
    if not paths.has_room(s.paths, n):
        _make_room(s, Live(live).k)
    return version, live


@kernel(inline=True)
def end(s):
    """Leave it."""
    store_release(s, "passes", s.passes + u64(1))


@kernel(inline=True)
def settle(s, i, handle, key, k, by_port_hash):
    """Note which bucket the key of packet ``i`` belongs to, and ask for it."""
    total = u64(0)
    if by_port_hash and Packet(handle).flags & HASHED:
        total = caches.flow_hash(Packet(handle).hash)
    else:
        total = caches.key_hash(s.cache.seeds, key, k)
    bucket = caches.bucket_of(s.cache, total, k)
    prefetch(bucket)
    store_i64(s.buckets + 8 * i, bucket)


@kernel
def _count(s, path, packets, size):
    """Add to the counters of a path that is not kept."""
    p = Path(path)
    for i in range(i64(p.n_counters)):
        paths.add(s.paths, load_u32(p.counters + 4 * i), packets, size)


@kernel
def _known_rule(s, shared, version, place):
    """The path of a flow whose first rule has one output, when a packet of that port took it before; else 0.

    Most rules of many are such, so that a flow that the cache has not got costs a look-up, not a translation.
    """
    s.memo = i64(0)
    if load_u64(s.flow + 8 * W_PORT) & u64(FRAG_ANY << FRAG_SHIFT):
        return i64(0)  # for translation to look up, without its ports
    classifier = TableRecord(shared.tables).classifier
    entry = lookup(classifier, s.flow, version) if classifier != 0 else i64(0)
    if entry == 0:
        return i64(0)
    r = RuleRecord(Entry(entry).data)
    if r.flags & ONE_OUTPUT == 0:
        return i64(0)
    s.memo, s.instance = s.memos + MEMO * i64(r.instance & (MEMOS - 1)), r.instance
    m = Memo(s.memo)
    same = m.instance == r.instance and i64(m.place) == place and m.path != 0
    return m.path if same and m.config == shared.config and m.folds == s.paths.folds else i64(0)


@kernel
def _note_rule(s, place, path, config):
    """Keep the path of a rule with one output."""
    m = Memo(s.memo)
    m.instance, m.place, m.path = s.instance, u32(place), path
    m.config, m.folds = config, s.paths.folds


@kernel
def resolve(s, state, handle, key, bucket, version, live, k):
    """The path of a key that the cache has not got in this version; 0 when the packet has been dealt with."""
    shared, words = Shared(s.shared), live + LIVE_WORDS
    number = caches.look_again(s.cache, bucket, key, version, shared.log, words, k)
    if number != 0:
        return path_of(s.paths, number)
    s.cache.misses += u64(1)
    caches.scatter(words, k, key, s.flow)
    came_by, config = i64(Packet(handle).port), shared.config
    number = _known_rule(s, shared, version, came_by)
    if number != 0:
        caches.insert(s.cache, bucket, key, number, version, k)
        return path_of(s.paths, number)
    s.translated += u64(1)
    t = Translation(s.translation)
    t.flow, t.version, t.handle, t.place = s.flow, version, handle, came_by
    translate_flow(s)
    place = paths.only_output(t.ops, t.n_ops)
    output = i64(NOT_SIMPLE)
    if place >= 0 and t.mirrored == 0:
        output = i64(PortRecord(shared.ports + PORT * place).output)
    if t.cacheable != 0:
        number = paths.find_or_add(s.paths, t.ops, t.n_ops, t.counters, t.n_counters, output, place)
        if number != 0:
            if s.memo != 0:
                _note_rule(s, came_by, number, config)
            caches.insert(s.cache, bucket, key, number, version, k)
            return path_of(s.paths, number)
    s.uncached += u64(1)
    path = path_of(s.paths, i64(0))  # number 0 is for paths that are used once
    p = Path(path)
    p.ops, p.n_ops = t.ops, u32(t.n_ops)
    p.counters, p.n_counters = t.counters, u32(t.n_counters)
    _count(s, path, u64(1), u64(Packet(handle).total))
    take_path(s, state, handle, path)
    return i64(0)


@kernel(inline=True)
def _settle_counts(path, packets, size):
    if packets > u64(0):
        p = Path(path)
        p.packets += packets
        p.bytes += size


@kernel(inline=True)
def forward(s, state, burst, n, version, live, k):
    """Have every packet take its path: that of its key in the cache, else the one that the tables give.

    Counts, and an outbox's length, are kept in registers over packets of one path that follow each other.
    """
    now = u64(version) & u64(0xFFFFFFFF)
    keys, buckets, first = s.keys, s.buckets, s.paths.paths
    outboxes, misses = s.head.outboxes, i64(0)
    previous, packets, size = i64(0), u64(0), u64(0)
    output, box, length, capacity, slots = i64(NOT_SIMPLE), i64(0), i64(0), i64(0), i64(0)
    for i in range(n):
        handle, key, bucket = load_i64(burst + 8 * i), keys + 8 * k * i, load_i64(buckets + 8 * i)
        number = caches.look(bucket, key, now, k)
        path = first + PATH * number
        if number == 0:
            misses += 1
            _settle_counts(previous, packets, size)
            if output != NOT_SIMPLE:
                Outbox(box).length = length  # what follows may send packets by the same output
            previous, packets, size, output = i64(0), u64(0), u64(0), i64(NOT_SIMPLE)
            path = resolve(s, state, handle, key, bucket, version, live, k)
            if path == 0:
                continue
        if path != previous:
            _settle_counts(previous, packets, size)
            previous, packets, size = path, u64(0), u64(0)
            following = Path(path).output
            if following != output:
                if output != NOT_SIMPLE:
                    Outbox(box).length = length
                output = following
                if output != NOT_SIMPLE:
                    box = outboxes + OUTBOX * output
                    length, capacity, slots = Outbox(box).length, Outbox(box).capacity, Outbox(box).address
        packets += u64(1)
        size += u64(Packet(handle).total)
        if output == NOT_SIMPLE:
            take_path(s, state, handle, path)
        elif length < capacity:
            store_i64(slots + 8 * length, handle)
            length += 1
        else:
            drop(state, handle, i64(OUTPUT_FULL))
    _settle_counts(previous, packets, size)
    if output != NOT_SIMPLE:
        Outbox(box).length = length
    s.cache.hits += u64(n - misses)


@kernel
def slow_key(s, handle, key, live):
    """The key of any packet, by way of its whole flow."""
    shared = Shared(s.shared)
    flow_of(handle, shared.ports, s.flow, shared.seed, Live(live).hashed != 0)
    caches.gather(live + LIVE_WORDS, Live(live).k, s.flow, key)


@kernel
def _differs(s, handle, key, bucket, version, live):
    """Whether a key, or the path that the cache has for it, is another one than the tables give now."""
    k = Live(live).k
    own = stack(FLOW_SIZE)
    slow_key(s, handle, own, live)
    for j in range(k):
        if load_u64(own + 8 * j) != load_u64(key + 8 * j):
            return True
    number = caches.look(bucket, key, u64(version) & u64(0xFFFFFFFF), k)
    if number == 0:
        return False
    caches.scatter(live + LIVE_WORDS, k, key, s.flow)
    t = Translation(s.translation)
    t.flow, t.version, t.handle, t.place = s.flow, version, handle, i64(Packet(handle).port)
    translate_flow(s)
    return not paths.same(path_of(s.paths, number), t.ops, t.n_ops, t.counters, t.n_counters)


@kernel
def check(s, burst, n, version, live):
    """Compare keys, and what the cache has for them, with what the generic way makes of it; count what differs."""
    k = Live(live).k
    for i in range(n):
        s.checked += u64(1)
        if _differs(s, load_i64(burst + 8 * i), s.keys + 8 * k * i, load_i64(s.buckets + 8 * i), version, live):
            s.differences += u64(1)


@kernel
def by_any_rules(s, state, burst, n, version, live):
    """Switch a burst whose version is known, whatever the rules are."""
    k, by_port_hash = Live(live).k, Live(live).by_port_hash != 0
    for i in range(n):
        handle, key = load_i64(burst + 8 * i), s.keys + 8 * k * i
        slow_key(s, handle, key, live)
        settle(s, i, handle, key, k, by_port_hash)
    if s.check != 0:
        check(s, burst, n, version, live)
    forward(s, state, burst, n, version, live, k)
    end(s)


@stage
def generic(state, burst, n):
    """Switch a burst, whatever the rules are."""
    s = State(state)
    version, live = begin(s, n)
    by_any_rules(s, state, burst, n, version, live)
    return i64(0)


@stage
def switch(state, burst, n):
    """Switch a burst by the code that is in force; a tick is nothing to it."""
    if n == 0:
        return i64(0)
    return call_stage(load_relaxed(State(state), "code"), state, burst, n)
