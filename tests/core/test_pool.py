"""The pool: which packets come and go, against its rule in Python; holds, chains and other pools against sets."""

import ctypes
import itertools
import threading
from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wirespeed.core.arena import Arena
from wirespeed.core.free import free_bulk, free_segments, hold
from wirespeed.core.packet import HEADROOM, META, Packet, chain
from wirespeed.core.packet_pool import PacketPool, bytes_for, stride
from wirespeed.core.pool import HANDLES, RING, Cache, Pool, alloc, alloc_bulk, drain
from wirespeed.core.ring import SLOTS, Ring
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel

i64 = np.int64


@kernel
def take_bulk(cache, handles, n):
    return alloc_bulk(cache, handles, n)


@kernel
def take_one(cache):
    return alloc(cache)


@kernel
def give_bulk(cache, handles, n):
    free_bulk(cache, handles, n)


@kernel
def hold_one(handle):
    hold(handle)


@kernel
def join(head, tail):
    return chain(head, tail)


@kernel
def churn(cache, scratch, rounds, seed):
    """Take and give bursts of changing sizes, mark each packet while it is out; return marks that were not ours."""
    clashes = i64(0)
    state = np.uint64(seed)
    for _ in range(rounds):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        n = i64(state >> np.uint64(59)) + 1
        if alloc_bulk(cache, scratch, n) == 0:
            continue
        for i in range(n):
            p = Packet(load_handle(scratch + 8 * i))
            p.mark = seed
            p.interface = i
        for i in range(n):
            p = Packet(load_handle(scratch + 8 * i))
            if p.mark != seed or p.interface != i:
                clashes += 1
        free_bulk(cache, scratch, n)
    return clashes


def array(values=(), n=0):
    return np.array([*values, *([0] * n)], np.int64)


def take(cache, n):
    """Allocate ``n`` packets; their handles, or an empty list."""
    out = array(n=n + 1)
    got = take_bulk(cache, out.ctypes.data, n)
    assert got in (0, n)
    return out[:got].tolist()


def give(cache, handles):
    packets = array(handles, 1)
    give_bulk(cache, packets.ctypes.data, len(handles))


def handle_of(pool, i):
    """The handle of packet number ``i`` of a pool."""
    return Pool.at(pool.address).first + i * pool.stride


RESTING = {"refcnt": 1, "next": 0, "segments": 1}


def rests(handle):
    """Whether a packet is in its resting state; read without a Record, for that takes most of a test's time."""
    raw = ctypes.string_at(handle, Packet.size)
    fields = {name: int.from_bytes(raw[f.offset : f.offset + f.size], "little") for name, f in PARTS.items()}
    return all(fields[name] == value for name, value in RESTING.items()) and not fields["flags"] & META


PARTS = {name: Packet.fields[name] for name in (*RESTING, "flags")}


def words(address, n):
    return (ctypes.c_int64 * n).from_address(address)


def stack_of(cache):
    """The handles in a cache, coldest first."""
    return list(words(cache + HANDLES, Cache.at(cache).length))


def ring_of(pool):
    """The handles in a pool's ring, oldest first."""
    at = pool.address + RING
    record = Ring.at(at)
    slots = words(at + SLOTS, record.mask + 1)
    n = (record.prod.tail - record.cons.tail) % (1 << 32)
    return [slots[(record.cons.tail + i) & record.mask] for i in range(n)]


class Rule:
    """A cache of ``limit`` packets before a ring, by the sentence that the pool's module says."""

    def __init__(self, ring, limit):
        self.ring, self.limit, self.half, self.stack = ring, limit, limit // 2, []
        self.counts = dict.fromkeys(("failures", "refills", "flushes", "past"), 0)

    def take(self, n):
        rest = n - len(self.stack)
        if rest <= 0:
            taken, self.stack = self.stack[len(self.stack) - n :], self.stack[: len(self.stack) - n]
        elif rest <= self.half <= len(self.ring):
            self.counts["refills"] += 1
            fresh = [self.ring.popleft() for _ in range(self.half)]
            taken, self.stack = self.stack + fresh[self.half - rest :], fresh[: self.half - rest]
        elif rest <= len(self.ring):
            self.counts["past"] += 1
            taken, self.stack = self.stack + [self.ring.popleft() for _ in range(rest)], []
        else:
            self.counts["failures"] += 1
            taken = []
        return taken

    def give(self, handles):
        if len(self.stack) + len(handles) <= self.limit:
            self.stack = self.stack + handles
        elif len(handles) <= self.half:
            self.counts["flushes"] += 1
            self.ring.extend(self.stack[: self.half])
            self.stack = self.stack[self.half :] + handles
        else:
            self.counts["past"] += 1
            self.ring.extend(handles)


EDGES = [0, 1, (1 << 31) - 2, (1 << 32) - 1, (1 << 32) - 3, (1 << 32) - 40]


def start_ring(pool, start, handles=None):
    """Have the counters of a pool's ring begin at ``start``, and what is in it be ``handles``, or what it was."""
    handles, record = ring_of(pool) if handles is None else handles, Ring.at(pool.address + RING)
    slots = words(pool.address + RING + SLOTS, record.mask + 1)
    for i, handle in enumerate(handles):
        slots[(start + i) & record.mask] = handle
    end = (start + len(handles)) % (1 << 32)
    record.cons.position = record.cons.tail = record.prod.seen = start
    record.prod.position = record.prod.tail = record.cons.seen = end


class WhichPackets(RuleBasedStateMachine):
    """Plain packets: each handle is where the rule puts it, in the caches, in the ring, or out."""

    @initialize(
        size=st.integers(1, 60),
        limits=st.lists(st.one_of(st.integers(0, 6), st.integers(0, 24)), min_size=1, max_size=3),
        start=st.sampled_from(EDGES),
    )
    def begin(self, size, limits, start):
        self.pool = PacketPool(size, HEADROOM + 64)
        start_ring(self.pool, start)
        self.ring = deque(handle_of(self.pool, i) for i in range(size))
        limits = [min(limit, size) for limit in limits]
        self.caches = [self.pool.cache(limit) for limit in limits]
        self.rules = [Rule(self.ring, limit) for limit in limits]
        self.out = []

    def size(self, model, data):
        """A burst's size: any, or close to where the rule turns."""
        edges = [
            model.half,
            model.limit,
            len(model.stack),
            len(model.stack) + model.half,
            model.limit - len(model.stack),
        ]
        near = st.builds(int.__add__, st.sampled_from(edges), st.integers(-1, 1)).map(lambda n: max(n, 0))
        return data.draw(st.one_of(st.integers(0, 30), near))

    @rule(which=st.integers(0, 2), data=st.data())
    def take(self, which, data):
        cache, model = self.pick(which)
        n = self.size(model, data)
        got = take(cache, n)
        assert got == model.take(n)
        self.out += got

    @rule(which=st.integers(0, 2))
    def take_one(self, which):
        cache, model = self.pick(which)
        got = take_one(cache)
        assert [got] == (model.take(1) or [0])
        self.out += [got] if got else []

    @rule(which=st.integers(0, 2), data=st.data())
    def give(self, which, data):
        cache, model = self.pick(which)
        n = self.size(model, data)
        back, self.out = self.out[:n], self.out[n:]
        give(cache, back)
        model.give(back)

    @rule(which=st.integers(0, 2), data=st.data())
    def give_one(self, which, data):
        """By the way that segments and packets of other pools take."""
        cache, model = self.pick(which)
        if self.out:
            back = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
            free_segments(cache, back)
            model.give([back])

    @rule(which=st.integers(0, 2))
    def drain(self, which):
        cache, model = self.pick(which)
        drain(cache)
        self.ring.extend(model.stack)
        model.stack = []

    def pick(self, which):
        which %= len(self.caches)
        return self.caches[which], self.rules[which]

    @invariant()
    def every_handle_is_where_the_rule_puts_it(self):
        if hasattr(self, "pool"):
            assert ring_of(self.pool) == list(self.ring)
            for cache, model in zip(self.caches, self.rules, strict=True):
                assert stack_of(cache) == model.stack
                assert len(model.stack) <= model.limit
                record = Cache.at(cache)
                assert {name: getattr(record, name) for name in model.counts} == model.counts
            assert self.pool.free_count == self.pool.size - len(self.out)

    def teardown(self):
        if hasattr(self, "pool"):
            assert self.pool.close() == len(self.out)


TestWhichPackets = WhichPackets.TestCase


@pytest.mark.parametrize("limit", range(8))
def test_each_burst_finds_each_fill_of_cache_and_ring_as_the_rule_says(limit):
    with PacketPool(28, HEADROOM + 64) as pool:
        cache = pool.cache(limit)
        handles = [handle_of(pool, i) for i in range(28)]
        for length, in_ring, n in itertools.product(range(limit + 1), range(limit + 3), range(limit + 3)):
            stack, ring, out = (handles[10 * k : 10 * k + m] for k, m in enumerate((length, in_ring, 8)))
            for rule in (Rule.take, Rule.give):
                start_ring(pool, (1 << 32) - 3, ring)
                words(cache + HANDLES, length)[:] = stack
                Cache.at(cache).length = length
                model = Rule(deque(ring), limit)
                model.stack = list(stack)
                if rule is Rule.take:
                    assert take(cache, n) == model.take(n)
                else:
                    give(cache, out[:n])
                    model.give(out[:n])
                assert (stack_of(cache), ring_of(pool)) == (model.stack, list(model.ring)), (length, in_ring, n)


class Holds(RuleBasedStateMachine):
    """Two pools with a cache each: packets are held more than once, chained, carry options, are freed elsewhere."""

    @initialize()
    def begin(self):
        self.pools = [PacketPool(12, HEADROOM + 64) for _ in range(2)]
        self.caches = [pool.cache(8) for pool in self.pools]
        self.held = Counter()  # holds of each packet that stands for itself
        self.parts = {}  # the handles that are freed with it

    @rule(which=st.integers(0, 1), n=st.integers(1, 8))
    def take(self, which, n):
        for handle in take(self.caches[which], n):
            assert rests(handle), "it comes in its resting state"
            assert handle not in {h for parts in self.parts.values() for h in parts}, "it was free"
            self.held[handle], self.parts[handle] = 1, [handle]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def hold(self, data):
        handle = data.draw(st.sampled_from(sorted(self.held)))
        hold_one(handle)
        self.held[handle] += 1

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data())
    def chain(self, data):
        single = [h for h in sorted(self.held) if self.held[h] == 1]
        if len(single) > 1:
            head, tail = data.draw(st.permutations(single).map(lambda p: p[:2]))
            assert join(head, tail)
            self.parts[head] += self.parts.pop(tail)
            del self.held[tail]

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data())
    def carry_options(self, data):
        plain = [h for h in sorted(self.held) if self.held[h] == 1 and self.parts[h] == [h]]
        if len(plain) > 1:
            head, options = plain[:2]
            Packet.at(head).meta = options
            Packet.at(head).flags |= META
            self.parts[head] += self.parts.pop(options)
            del self.held[options]

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 1), data=st.data())
    def give(self, which, data):
        back = data.draw(st.lists(st.sampled_from(sorted(self.held)), max_size=8, unique=True))
        give(self.caches[which], back)
        for handle in back:
            self.held[handle] -= 1
            if not self.held[handle]:
                del self.held[handle], self.parts[handle]

    @invariant()
    def what_is_not_held_is_free_in_its_own_pool_and_rests(self):
        if hasattr(self, "pools"):
            out = {h for parts in self.parts.values() for h in parts}
            for pool, cache in zip(self.pools, self.caches, strict=True):
                mine = {handle_of(pool, i) for i in range(pool.size)}
                free = ring_of(pool) + stack_of(cache)
                assert len(free) == len(set(free))
                assert set(free) == mine - out
                assert all(rests(handle) for handle in free)

    def teardown(self):
        if hasattr(self, "pools"):
            while self.held:
                self.give_all()
            assert all(pool.whole for pool in self.pools)
            for pool in self.pools:
                assert pool.close() == 0

    def give_all(self):
        back = sorted(self.held)
        give(self.caches[0], back)
        self.held -= Counter(back)


TestHolds = Holds.TestCase


def test_an_exhausted_pool_is_a_count_and_nothing_is_taken():
    with PacketPool(4, HEADROOM + 64) as pool:
        cache = pool.cache()
        kept = take(cache, 3)
        assert (len(kept), pool.failures) == (3, 0)
        assert (take(cache, 2), pool.failures) == ([], 1)
        assert len(take(cache, 1)) == 1
        assert (take_one(cache), pool.failures) == (0, 2)


def test_the_packet_that_was_freed_last_is_the_next_one():
    with PacketPool(64, HEADROOM + 64) as pool:
        cache = pool.cache()
        packets = take(cache, 8)
        give(cache, packets)
        assert take_one(cache) == packets[-1]


def test_a_put_that_overflows_sends_the_coldest_half_to_the_ring():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache(8)
        out = take(cache, 10)
        give(cache, out[:7])
        assert (stack_of(cache), ring_of(pool)[6:]) == (out[:7], [])
        give(cache, out[7:9])
        assert (stack_of(cache), ring_of(pool)[6:]) == (out[4:9], out[:4])


def test_a_put_of_more_than_half_that_does_not_fit_goes_past_the_cache():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache(8)
        out = take(cache, 11)
        give(cache, out[:6])
        assert stack_of(cache) == out[:6], "it fits, so it stays, large or not"
        give(cache, out[6:11])
        assert (stack_of(cache), ring_of(pool)[5:]) == (out[:6], out[6:])


def test_a_get_takes_what_is_cached_and_fills_half_for_the_rest():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache(8)
        first = take(cache, 2)
        cached = stack_of(cache)
        following = ring_of(pool)[:4]
        assert take(cache, 3) == cached + following[3:]
        assert (stack_of(cache), len(first)) == (following[:3], 2)


def test_a_get_finds_the_last_packet_when_the_ring_cannot_fill_half_a_cache():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache(8)
        out = take(cache, 13)
        give(cache, out[:2])
        assert (len(stack_of(cache)), len(ring_of(pool))) == (2, 3)
        assert len(take(cache, 5)) == 5
        assert pool.failures == 0


def test_a_get_that_fails_leaves_the_cache_as_it_was():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache(8)
        out = take(cache, 13)
        give(cache, out[:2])
        before = stack_of(cache), ring_of(pool)
        assert take(cache, 6) == []
        assert (stack_of(cache), ring_of(pool)) == before
        assert pool.failures == 1


def test_freeing_a_packet_of_another_pool_puts_it_into_that_pools_ring():
    with PacketPool(8, HEADROOM + 64) as mine, PacketPool(8, HEADROOM + 64) as other:
        here, there = mine.cache(), other.cache()
        (packet,) = take(there, 1)
        give(here, [packet])
        assert ring_of(other)[-1] == packet
        assert mine.whole and other.whole


def test_a_chain_is_freed_whole_by_one_free():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache()
        packets = take(cache, 5)
        for tail in packets[1:]:
            join(packets[0], tail)
        assert Packet.at(packets[0]).segments == 5
        free_segments(cache, packets[0])
        assert pool.whole


def test_options_of_every_segment_are_freed_with_a_chain():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache()
        packets = take(cache, 4)
        for head, options in ((packets[0], packets[2]), (packets[1], packets[3])):
            Packet.at(head).meta = options
            Packet.at(head).flags = META
        join(packets[0], packets[1])
        give(cache, packets[:1])
        assert pool.whole


def test_two_threads_never_have_the_same_packet():
    with PacketPool(48, HEADROOM + 64) as pool, Arena(1 << 16) as arena:
        found = {}

        def run(seed, cache, scratch):
            found[seed] = churn(cache, scratch, 30_000, seed)

        jobs = [(seed, pool.cache(20), arena.alloc(8 * 64)) for seed in (1, 2, 3)]
        threads = [threading.Thread(target=run, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {1: 0, 2: 0, 3: 0}
        assert pool.whole


@given(st.integers(1, 1 << 20), st.integers(HEADROOM + 1, 1 << 20))
def test_records_are_whole_cache_lines_apart_and_hold_record_and_buffer(size, room):
    step = stride(room)
    assert step % 64 == 0 and (step // 64) % 2 == 1
    assert step >= Packet.size + room
    assert bytes_for(size, room) >= size * step


@pytest.mark.parametrize(
    "size, room, word",
    [
        (0, 2176, "pool size"),
        (-1, 2176, "pool size"),
        (1 << 31, 2176, "pool size"),
        (5, HEADROOM, "buffer room"),
        (5, 1 << 25, "buffer room"),
    ],
)
def test_sizes_out_of_range_are_refused(size, room, word):
    with pytest.raises(GraphError, match=word):
        PacketPool(size, room)


def test_a_negative_number_of_expected_caches_is_refused():
    with pytest.raises(GraphError, match="give 0 when that is not known"):
        PacketPool(5, caches=-1)


def test_a_closed_pool_tells_so_and_closes_again_without_harm():
    pool = PacketPool(4, HEADROOM + 64)
    cache = pool.cache()
    take(cache, 1)
    assert pool.close() == 1
    assert pool.close() == 0
    assert "closed" in repr(pool)
    assert (pool.free_count, pool.in_use, pool.failures) == (0, 0, 0)
    assert set(pool.faults().values()) == {0}
