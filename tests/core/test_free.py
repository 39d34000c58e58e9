"""Giving packets up: every kind of packet in a list, at every place, and two threads that let go at the same moment."""

import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.core.test_packet import ROOM, chain, content, segments, take
from wirespeed.core.arena import Arena
from wirespeed.core.chain import alloc_length
from wirespeed.core.clone import attach, clone, detach
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.free import BATCH, free_bulk, free_mixed, free_segment, free_segments, hold, prefree
from wirespeed.core.packet import HEADROOM, META, SHOWING, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import HANDLES, Cache, alloc
from wirespeed.jit.atomics import fetch_add, load_acquire
from wirespeed.jit.intrinsics import cycles, load_i64, pause
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_yield

CAPACITY = HEADROOM + ROOM
LONG = ROOM + 5 * CAPACITY  # bytes of a packet of six segments
i64, u32 = np.int64, np.uint32

Meeting = layout("Meeting", [("arrived", "u4"), (None, 60), ("packet", "i8"), ("clone", "i8"), (None, 48)])


@kernel
def give_bulk(cache, handles, n):
    free_bulk(cache, handles, n)


@kernel(inline=True)
def meet(meeting, count):
    """Wait until both threads have come here ``count`` times in all."""
    fetch_add(Meeting(meeting), "arrived", u32(1))
    spins = i64(0)
    while load_acquire(Meeting(meeting), "arrived") < count:
        spins += 1
        if spins % 256 == 0:
            sys_yield()
        pause()


@kernel(inline=True)
def linger(n):
    """Spend ``n`` ticks of the cycle counter."""
    since = cycles()
    while cycles() - since < n:
        pass


@kernel
def let_go_together(cache, meeting, first, rounds):
    """Two threads run this and free in the same moment: one a packet and one its clone, then both the same packet.

    Who comes last is ahead by as long as the other takes to see it, so it waits for more or less as long.
    """
    m = Meeting(meeting)
    for i in range(rounds):
        if first:
            m.packet = alloc_length(cache, i64(LONG))
            m.clone = clone(cache, m.packet)
        meet(meeting, 8 * i + 2)
        linger(i % 16 * 25 if first else i // 16 % 16 * 25)
        free_segments(cache, m.packet if first else m.clone)
        meet(meeting, 8 * i + 4)
        if first:
            m.packet = alloc_length(cache, i64(LONG))
            hold(m.packet)
        meet(meeting, 8 * i + 6)
        linger(i % 16 * 25 if first else i // 16 % 16 * 25)
        free_segments(cache, m.packet)
        meet(meeting, 8 * i + 8)


@kernel
def load(address):
    return load_i64(address)


@pytest.fixture
def pool():
    """A pool that must be whole at the end of the test."""
    with PacketPool(200, CAPACITY) as pool:
        yield pool
        assert pool.whole


@pytest.fixture
def cache(pool):
    return pool.cache(100)


KINDS = ["plain", "chain", "held", "foreign", "options", "indirect", "shown", "external", "cut", "cut long ago"]


def make(kind, cache, other):
    """A packet of that kind, and what else must be freed."""
    handle = take(other if kind == "foreign" else cache, 10)
    p, rest = Packet.at(handle), []
    if kind == "chain":
        assert chain(handle, take(cache, 5)) and chain(handle, take(other, 5))
    elif kind == "held":
        hold(handle)
        rest = [handle]
    elif kind == "options":
        p.meta, p.flags = take(cache, 5), META
    elif kind == "indirect":
        rest = [take(cache, 20)]
        assert attach(handle, rest[0])
    elif kind == "shown":
        rest = [clone(other, handle)]
    elif kind == "external":
        buffer = ExternalBuffer(bytearray(10))
        buffer.attach(handle)
        buffer.release()
    elif kind == "cut":
        assert chain(handle, take(cache, 5))
        rest, p.next = [p.next], 0
    elif kind == "cut long ago":
        p.segments = 7
    return handle, rest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [give_bulk, free_mixed], ids=["bulk", "mixed"])
def test_one_packet_of_any_kind_anywhere_in_a_list_goes_where_it_belongs(kind, how, pool, cache):
    with PacketPool(20, CAPACITY) as other:
        there = other.cache(8)
        for place in range(4):
            plain = [take(cache, 1) for _ in range(3)]
            handle, rest = make(kind, cache, there)
            listed = np.array(plain[:place] + [handle] + plain[place:], np.int64)
            how(cache, listed.ctypes.data, 4)
            for more in rest:
                free_segments(cache, more)
            assert pool.whole and other.whole
            for some, n, own in ((pool, 200, cache), (other, 20, there)):
                handles = [alloc(own) for _ in range(n)]
                for free in handles:
                    p = Packet.at(free)
                    assert (p.refcnt, p.segments, p.next) == (1, 1, 0) and not p.flags & (META | SHOWING)
                    assert (p.buffer, p.capacity, p.pool) == (free + Packet.size, CAPACITY, some.address)
                    free_segment(own, free)


@pytest.mark.parametrize("kinds", list(itertools.combinations(KINDS, 3)), ids=str)
def test_any_three_kinds_side_by_side(kinds, pool, cache):
    with PacketPool(20, CAPACITY) as other:
        there = other.cache(8)
        made = [make(kind, cache, there) for kind in kinds]
        listed = np.array([handle for handle, _ in made], np.int64)
        give_bulk(cache, listed.ctypes.data, len(made))
        for _, rest in made:
            for more in rest:
                free_segments(cache, more)
        assert pool.whole and other.whole


def test_more_packets_of_another_pool_than_go_back_at_once(pool, cache):
    with PacketPool(3 * BATCH, CAPACITY) as other:
        there = other.cache(2)
        for n in (BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 1):
            foreign = [take(there, 1) for _ in range(n)]
            for tail in foreign[1:10]:
                assert chain(foreign[0], tail)
            listed = np.array([foreign[0], *foreign[10:]], np.int64)
            free_mixed(cache, listed.ctypes.data, len(listed))
            assert pool.whole and other.whole


def test_what_is_freed_by_its_segments_is_the_next_to_be_taken(pool, cache):
    handle = take(cache, ROOM + 2 * CAPACITY)
    parts = segments(handle)
    free_segments(cache, handle)
    length = Cache.at(cache).length
    assert [load(cache + HANDLES + 8 * (length - 3 + i)) for i in range(3)] == parts


def test_one_hold_less_gives_the_segment_when_it_was_the_last(pool, cache):
    handle = take(cache, 100)
    owner = take(cache, 10)
    segment = Packet.at(handle).next
    assert Packet.at(handle).segments == 2
    hold(handle)
    assert prefree(cache, handle) == 0
    assert prefree(cache, handle) == handle
    p = Packet.at(handle)
    assert (p.refcnt, p.next, p.segments) == (1, 0, 1)
    assert attach(handle, owner)
    free_segments(cache, owner)
    before = pool.free_count
    assert prefree(cache, handle) == handle
    assert pool.free_count == before + 1, "the owner went to the pool, the packet did not"
    assert (p.flags & SHOWING, p.buffer) == (0, handle + Packet.size)
    free_segment(cache, handle)
    free_segment(cache, segment)
    free_segment(cache, segment)


def test_the_head_of_a_chain_lets_go_of_the_bytes_it_shows_and_counts_that_many_less(pool, cache):
    owner, tail = take(cache, 30), take(cache, 20)
    head = clone(cache, owner)
    assert chain(head, tail)
    assert detach(cache, head)
    p = Packet.at(head)
    assert (p.total, p.length, p.segments, Packet.at(owner).refcnt) == (20, 0, 2, 1)
    assert content(head) == content(tail)
    assert not detach(cache, head)
    free_segments(cache, head)
    free_segments(cache, owner)


def test_an_owner_that_was_the_head_of_a_chain_goes_alone_when_its_last_clone_lets_go(pool, cache):
    chained = take(cache, 100)
    first, second = segments(chained)
    shown = clone(cache, chained)
    rest = Packet.at(shown).next
    Packet.at(shown).next, Packet.at(shown).segments = 0, 1
    free_segments(cache, chained)
    before = pool.free_count
    assert detach(cache, shown)
    assert pool.free_count == before + 1 and Packet.at(second).refcnt == 1
    assert Packet.at(rest).attached == second
    free_segments(cache, shown)
    free_segments(cache, rest)
    assert first != second and pool.whole


def test_two_threads_that_let_go_at_the_same_moment_free_a_packet_once():
    with PacketPool(64, CAPACITY) as pool, Arena(1 << 16) as arena:
        meeting = arena.alloc(Meeting.size)
        caches = [pool.cache(8), pool.cache(8)]
        jobs = [(cache, meeting, i == 0, 20_000) for i, cache in enumerate(caches)]
        threads = [threading.Thread(target=let_go_together, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.whole


DAMAGED = """
import numpy as np
from tests.core.test_free import give_bulk, take
from wirespeed.core.free import free_segment, free_segments
from wirespeed.core.packet import HEADROOM, INDIRECT, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.sanity import NOT_ATTACHED, NOT_HELD, DATA_OUTSIDE, LENGTH_OUTSIDE

with PacketPool(8, HEADROOM + 64) as pool:
    cache = pool.cache()
    packets = [take(cache, 10) for _ in range(8)]
    damages = {NOT_HELD: ("refcnt", 0), DATA_OUTSIDE: ("data", 500), LENGTH_OUTSIDE: ("length", 500)}
    for handle, (reason, (field, value)) in zip(packets, damages.items()):
        setattr(Packet.at(handle), field, value)
    Packet.at(packets[3]).flags = INDIRECT
    handles = np.array(packets[:6], np.int64)
    give_bulk(cache, handles.ctypes.data, 6)
    assert [Packet.at(handle).fault for handle in packets[:6]] == [*damages, NOT_ATTACHED, 0, 0]
    assert pool.free_count == 2
    Packet.at(packets[6]).refcnt = 0
    free_segments(cache, packets[6])
    free_segment(cache, packets[6])
    assert pool.free_count == 2 and pool.faults()["double_free"] == 0
    free_segments(cache, packets[7])
    free_segments(cache, packets[7])
    assert pool.free_count == 3 and pool.faults()["double_free"] == 1
from wirespeed.core.clone import clone
from wirespeed.core.free import hold
from wirespeed.core.history import events
with PacketPool(8, HEADROOM + 64) as pool:
    cache = pool.cache()
    handle = take(cache, 10)
    hold(handle)
    shown = clone(cache, handle)
    assert events(Packet.at(handle).trail)[:1] == ("hold",)
    assert events(Packet.at(shown).trail)[:2] == ("clone", "attach")
    for packet in (handle, handle, shown):
        free_segments(cache, packet)
    assert pool.whole
print("kept out")
"""


def test_debug_mode_keeps_damaged_packets_out_of_their_pool_and_says_why():
    environment = os.environ | {"WIRESPEED_DEBUG": "1"}
    done = subprocess.run([sys.executable, "-c", DAMAGED], capture_output=True, text=True, env=environment)
    assert done.stdout == "kept out\n", done.stderr
