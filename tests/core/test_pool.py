"""The pool: which packets come and go, against its rule in Python; holds, chains and other pools against sets."""

import ctypes
import os
import subprocess
import sys
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
    n = (record.prod.tail - record.cons.head) % (1 << 32)
    return [slots[(record.cons.head + i) & record.mask] for i in range(n)]


class Rule:
    """A cache of ``limit`` packets before a ring, by the sentence that the pool's module says."""

    def __init__(self, ring, limit):
        self.ring, self.limit, self.stack, self.failures = ring, limit, [], 0

    def take(self, n):
        if len(self.stack) < n:
            if n > self.limit // 2 and len(self.ring) >= n:
                return [self.ring.popleft() for _ in range(n)]
            if n <= self.limit:
                room = self.limit - len(self.stack)
                count = min(max(self.limit // 2, n - len(self.stack)), room, len(self.ring))
                self.stack += [self.ring.popleft() for _ in range(count)]
            if len(self.stack) < n:
                self.failures += 1
                return []
        taken = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return taken

    def give(self, handles):
        n = len(handles)
        if n > self.limit // 2:
            self.ring.extend(handles)
            return
        if len(self.stack) + n > self.limit:
            out = min(len(self.stack), max(self.limit // 2, len(self.stack) + n - self.limit))
            self.ring.extend(self.stack[:out])
            del self.stack[:out]
        self.stack += handles


class WhichPackets(RuleBasedStateMachine):
    """Plain packets: each handle is where the rule puts it, in the caches, in the ring, or out."""

    @initialize(size=st.integers(1, 60), limits=st.lists(st.integers(2, 24), min_size=1, max_size=3))
    def begin(self, size, limits):
        self.pool = PacketPool(size, HEADROOM + 64)
        handles = [handle_of(self.pool, i) for i in range(size)]
        self.ring = deque(handles)
        self.caches = [self.pool.cache(limit) for limit in limits]
        self.rules = [Rule(self.ring, max(2, min(limit, size))) for limit in limits]
        self.out = []

    @rule(which=st.integers(0, 2), n=st.integers(0, 30))
    def take(self, which, n):
        cache, model = self.pick(which)
        got = take(cache, n)
        assert got == model.take(n)
        self.out += got

    @rule(which=st.integers(0, 2))
    def take_one(self, which):
        cache, model = self.pick(which)
        got = take_one(cache)
        assert [got] == (model.take(1) or [0])
        self.out += [got] if got else []

    @rule(which=st.integers(0, 2), n=st.integers(0, 30))
    def give(self, which, n):
        cache, model = self.pick(which)
        back, self.out = self.out[:n], self.out[n:]
        give(cache, back)
        model.give(back)

    @rule(which=st.integers(0, 2))
    def drain(self, which):
        cache, model = self.pick(which)
        drain(cache)
        self.ring.extend(model.stack)
        model.stack.clear()

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
                assert Cache.at(cache).failures == model.failures
            assert self.pool.free_count == self.pool.size - len(self.out)

    def teardown(self):
        if hasattr(self, "pool"):
            assert self.pool.close() == len(self.out)


TestWhichPackets = WhichPackets.TestCase


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


def test_a_refill_never_overfills_a_cache():
    with PacketPool(16, HEADROOM + 64) as pool:
        cache = pool.cache(8)
        out = [packet for _ in range(4) for packet in take(cache, 4)]
        for packet in out[:5]:
            give(cache, [packet])
        give(cache, out[5:10])  # more than half of the cache: past it, into the ring
        assert (stack_of(cache), ring_of(pool)) == (out[:5], out[5:10])
        assert take(cache, 6) == out[2:8]
        assert (stack_of(cache), ring_of(pool)) == (out[:2], out[8:10])


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


def test_a_pool_in_an_arena_of_another_fits_the_bytes_that_were_asked_for():
    with Arena(bytes_for(100, HEADROOM + 64)) as arena, PacketPool(100, HEADROOM + 64, arena=arena) as pool:
        cache = pool.cache(arena=Arena(1 << 16))
        packets = take(cache, 100)
        assert len(set(packets)) == 100
        for handle in packets:
            p = Packet.at(handle)
            assert arena.address <= handle and p.buffer + p.capacity <= arena.address + arena.size
        give(cache, packets)
        assert pool.close() == 0
        assert arena.address, "the arena is its owner's"


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


def test_a_closed_pool_tells_so_and_closes_again_without_harm():
    pool = PacketPool(4, HEADROOM + 64)
    cache = pool.cache()
    take(cache, 1)
    assert pool.close() == 1
    assert pool.close() == 0
    assert "closed" in repr(pool)
    assert (pool.free_count, pool.failures, pool.faults()) == (0, 0, {"double_free": 0, "foreign": 0})


DEBUGGED = """
import numpy as np
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.free import free_bulk
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import Pool, put_bulk, alloc_bulk
from wirespeed.jit.kernel import kernel

@kernel
def take(cache, handles, n):
    return alloc_bulk(cache, handles, n)

@kernel
def give(cache, handles, n):
    free_bulk(cache, handles, n)

def free(cache, *handles):
    array = np.array(handles, np.int64)
    give(cache, array.ctypes.data, len(handles))

with PacketPool(8, HEADROOM + 64) as pool, PacketPool(8, HEADROOM + 64) as other:
    cache, theirs = pool.cache(), other.cache()
    out = np.zeros(4, np.int64)
    assert take(cache, out.ctypes.data, 4) == 4
    a, b, c, d = out.tolist()
    free(cache, a)
    free(cache, a)
    assert pool.faults() == {"double_free": 1, "foreign": 0}, pool.faults()
    free(cache, b, b, c)
    assert pool.faults() == {"double_free": 2, "foreign": 0}, pool.faults()
    fake = np.zeros(16, np.int64)
    record = Packet.at(fake.ctypes.data)
    record.pool, record.refcnt = pool.address, 1
    free(cache, fake.ctypes.data, d)
    assert pool.faults() == {"double_free": 2, "foreign": 1}, pool.faults()
    free(theirs, d)
    assert pool.faults() == {"double_free": 3, "foreign": 1}, pool.faults()
    assert pool.whole and other.whole
    assert take(cache, out.ctypes.data, 4) == 4
    assert len(set(out.tolist())) == 4
print("caught")
"""


def test_debug_mode_counts_double_frees_and_foreign_handles_and_the_pool_stays_whole():
    environment = os.environ | {"WIRESPEED_DEBUG": "1"}
    done = subprocess.run([sys.executable, "-c", DEBUGGED], capture_output=True, text=True, env=environment)
    assert done.stdout == "caught\n", done.stderr
