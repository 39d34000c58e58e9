"""Caches that any thread opens for itself, allocation from Python, and the limits that caches get."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_pool import RESTING, handle_of, join, ring_of, stack_of, take
from wirespeed.core import cache as module
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import CACHE_LIMIT, Cache
from wirespeed.errors import GraphError

ROOM = HEADROOM + 64


@pytest.fixture
def pool():
    with PacketPool(64, ROOM) as pool:
        yield pool


def test_packets_come_as_empty_frames_and_go_back(pool):
    with pool.open_cache(16, name="mine") as cache:
        first = cache.alloc(4)
        assert first.dtype == np.int64 and len(set(first.tolist())) == 4
        for handle in first.tolist():
            p = Packet.at(handle)
            p.length = p.total = p.wire = 60
            p.data, p.link, p.port = 3, 7, 9
        cache.free(first)
        again = cache.alloc(4)
        assert again.tolist() == first.tolist()
        for handle in again.tolist():
            p = Packet.at(handle)
            assert (p.length, p.total, p.wire, p.data, p.link, p.port) == (0, 0, 0, HEADROOM, 1, 0)
            assert {name: getattr(p, name) for name in RESTING} == RESTING
        assert (len(cache), pool.in_use) == (4, 4)
        cache.free(again.tolist())
    assert pool.whole


def test_alloc_is_all_or_nothing_and_counts_what_it_could_not_give(pool):
    with pool.open_cache(8) as cache, pool.open_cache(8) as other:
        kept = other.alloc(60)
        assert (cache.alloc(5).tolist(), cache.failures) == ([], 1)
        last = cache.alloc(4)
        assert len(last) == 4
        assert len(cache.alloc(1)) == 0
        assert pool.is_empty and cache.failures == pool.failures == 2
        cache.free(last)
        other.free(kept)
    assert pool.is_full and pool.failures == 2, "failures of closed caches are not forgotten"


def test_no_packets_may_be_asked_for_and_more_than_there_are_may_not(pool):
    with pool.open_cache(8) as cache:
        assert len(cache.alloc(0)) == 0
        cache.free([])
        for n in (-1, 65, (1 << 32) + 1):
            with pytest.raises(GraphError, match=f"cannot give {n}"):
                cache.alloc(n)
        with pytest.raises(GraphError, match="whole number"):
            cache.alloc(1.5)
        assert cache.failures == 0


def test_flush_empties_the_cache_and_close_takes_it_away(pool):
    cache = pool.open_cache(16)
    cache.free(cache.alloc(3))
    assert len(cache) == 8
    cache.flush()
    assert (len(cache), len(ring_of(pool))) == (0, 64)
    cache.free(cache.alloc(3))
    cache.close()
    cache.close()
    assert len(ring_of(pool)) == 64 and pool.statistics() == []
    for use in (cache.alloc, cache.flush, lambda: cache.free([1]), lambda: cache.failures, lambda: len(cache)):
        with pytest.raises(GraphError, match="open another with open_cache"):
            use()
    assert repr(cache) == "<PoolCache, closed>"


def test_a_cache_is_closed_once(pool):
    address = pool.cache(4)
    pool.close_cache(address)
    for wrong in (address, 0):
        with pytest.raises(GraphError, match="no open cache of this pool"):
            pool.close_cache(wrong)


def test_a_cache_that_outlives_its_pool_says_so():
    pool = PacketPool(8, ROOM)
    cache = pool.open_cache(4)
    assert repr(cache) == "<PoolCache 1: 0 of 4 packets>"
    pool.close()
    with pytest.raises(GraphError, match="or its pool, is closed"):
        cache.alloc()
    with pytest.raises(GraphError, match="this pool is closed"):
        pool.open_cache()
    with pytest.raises(GraphError, match="this pool is closed"):
        pool.audit()
    cache.close()


BAD = {
    "zero": (lambda h: [0], "is 0x0, which is no packet of this pool"),
    "negative": (lambda h: [-64], "no packet"),
    "between two": (lambda h: [h + 64], "no packet"),
    "one byte off": (lambda h: [h + 1], "handle 0 of 1"),
    "behind the last": (lambda h: [h, h + 64 * 10_000], "handle 1 of 2"),
    "beyond int64": (lambda h: np.array([1 << 63], np.uint64), "0x8000000000000000"),
    "beyond uint64": (lambda h: [1 << 70], "must be integers"),
    "floats": (lambda h: [float(h)], "must be integers in one dimension, got 1 of float64"),
    "booleans": (lambda h: [True], "must be integers"),
    "text": (lambda h: ["a"], "must be integers"),
    "None": (lambda h: [None], "must be integers"),
    "two dimensions": (lambda h: [[h]], "got 2 of int64"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_handle_of_the_pool_is_refused_before_anything_is_touched(pool, name):
    make, word = BAD[name]
    with pool.open_cache(8) as cache, PacketPool(4, ROOM) as other:
        (handle,) = cache.alloc().tolist()
        before = ring_of(pool), stack_of(cache.address)
        for owner in (cache, pool):
            with pytest.raises(GraphError, match=word):
                owner.free(make(handle))
        with pytest.raises(GraphError, match="handle 1 of 2"):
            cache.free([handle, *other.alloc().tolist()])
        assert (ring_of(pool), stack_of(cache.address)) == before
        assert Packet.at(handle).refcnt == 1
        cache.free(handle)
    assert pool.whole


def test_any_integers_serve_as_handles_and_a_chain_goes_whole(pool):
    with pool.open_cache(8) as cache:
        for make in (tuple, list, np.array, lambda h: np.array(h, np.uint64), lambda h: np.repeat(h, 2)[::2]):
            given_back = make(cache.alloc(3).tolist())
            cache.free(given_back)
            assert pool.whole
        packets = cache.alloc(3).tolist()
        assert join(packets[0], packets[1])
        cache.free([packets[0], packets[2]])
    assert pool.whole


def test_the_pool_itself_serves_any_thread_and_keeps_nothing(pool):
    def churn():
        for _ in range(300):
            packets = pool.alloc(5)
            if len(packets):
                assert len(set(packets.tolist())) == 5
                pool.free(packets)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.whole and sorted(ring_of(pool)) == [handle_of(pool, i) for i in range(64)]


@pytest.mark.parametrize("size, limit", [(64, 65), (64, -1), (10_000, CACHE_LIMIT + 1)])
def test_a_limit_beyond_the_pool_or_the_most_is_refused(size, limit):
    with PacketPool(size, ROOM) as pool:
        for make in (pool.cache, pool.open_cache):
            with pytest.raises(GraphError, match=f"keeps 0 to {min(size, CACHE_LIMIT)} packets, got {limit}"):
                make(limit)
        assert pool.statistics() == []


def test_a_cache_without_room_goes_to_the_ring_each_time(pool):
    with pool.open_cache(0) as cache:
        packets = cache.alloc(3)
        assert len(cache) == 0
        cache.free(packets)
        assert len(ring_of(pool)) == 64


@given(st.integers(1, 3000), st.integers(1, 12))
def test_as_many_caches_as_are_expected_get_equal_parts_of_half_the_pool(size, caches):
    with PacketPool(size, HEADROOM + 1, caches=caches) as pool:
        limits = [Cache.at(pool.cache()).limit for _ in range(caches)]
        assert max(limits) - min(limits) <= 1 and limits[0] == min(CACHE_LIMIT, size // 2 // caches)
        late = [Cache.at(pool.cache()).limit for _ in range(3)]
        assert sum(limits + late) <= size // 2


@given(st.integers(1, 3000), st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=6))
def test_caches_whose_limit_is_not_given_never_take_more_than_half_of_the_pool(size, asked):
    with PacketPool(size, HEADROOM + 1) as pool:
        total = 0
        for n in asked:
            before = total
            total += Cache.at(pool.cache(None if n is None else min(n, size))).limit
            assert n is not None or total <= max(before, size // 2)


def test_no_worker_starves_while_less_than_half_of_a_small_pool_is_out():
    with PacketPool(64, ROOM, caches=4) as pool:
        caches = [pool.cache() for _ in range(4)]
        out = [take(cache, 8) for cache in caches]
        assert all(out) and pool.in_use == 32
        assert all(take(cache, 1) for cache in caches), "what the others keep is not what this one needs"


def test_statistics_tell_what_each_cache_holds_and_did(pool):
    with pool.open_cache(8, name="rx") as cache:
        cache.free(cache.alloc(3))
        (found,) = pool.statistics()
        assert (found.name, found.number, found.length, found.limit) == ("cache 1 (rx)", 1, 4, 8)
        assert (found.refills, found.flushes, found.past, found.failures) == (1, 0, 0, 0)
        assert len(cache.alloc(4)) == 4
        cache.free(packets := cache.alloc(4))
        assert len(packets) == 4 and pool.statistics()[0].refills == 2


def test_debug_mode_tells_a_second_thread_that_a_cache_has_its_thread(pool, monkeypatch):
    monkeypatch.setattr(module, "DEBUG", True)
    said = []

    def use():
        try:
            cache.free(cache.alloc(2))
            cache.flush()
        except GraphError as error:
            said.append(str(error))

    with pool.open_cache(8) as cache:
        cache.free(cache.alloc(2))
        for _ in range(2):
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            cache.flush()
    assert said == ["cache 1 is used by two threads; open one for each, or flush() it before it is handed on"]
