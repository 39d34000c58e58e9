"""DPDK's test suite of its mempool (app/test/test_mempool.c, test_mempool_perf.c), case by case.

======================================  ================================================================================
DPDK's case                             answered by
======================================  ================================================================================
test_mempool_basic (no cache, cache,    test_packets_are_taken_one_by_one_by_two_and_all_and_their_bytes_stay, in each
user-owned cache, stack, default)       way to a pool that we have; a cache is our stack
test_mempool_basic_ex                   test_a_pool_is_full_then_neither_then_empty_and_back,
                                        test_statistics_count_what_was_moved (the debug mode's part: test_pool_debug)
test_mempool_sp_sc                      test_one_thread_takes_and_another_gives (the ring of a pool is for many always)
creation_with_exceeded_cache_size       test_a_cache_larger_than_the_most_or_the_pool_is_not_made
creation_with_invalid_flags             does not apply: there are no flags; wrong sizes are test_pool's
same_name_twice_creation                test_two_pools_of_one_kind_never_meet: a pool has no name that could be taken
test_mempool_events, events_safety      do not apply: nothing registers memory with devices when a pool comes or goes
flag_non_io_* (IOVA flags)              do not apply: addresses are the process's own, no device sees them
obj_iter                                test_every_packet_begins_in_its_resting_state, by the array that audits use
NO_CACHE_ALIGN                          test_records_are_aligned_to_lines_always (there is no other way)
mem_range                               test_the_range_of_a_pool_has_all_its_packets_and_no_more
lookup, walk                            do not apply: no registry of pools; who made one has it
audit                                   test_an_audit_finds_what_was_written_over (and test_pool_audit)
dump                                    test_a_dump_can_be_made_of_every_state
handlers (ops): set by name, broken     do not apply: one implementation
perf: bulk sizes, n_keep, constant n    test_each_bulk_size_with_each_number_kept_gives_every_packet_once; the times are
                                        ``python -m bench pool``
perf: random bulk                       test_bursts_of_random_sizes_give_every_packet_once
leaks (of no case, but of their bugs)   every test ends with all packets back
======================================  ================================================================================
"""

import ctypes
import queue
import random
import threading

import numpy as np
import pytest

from tests.core.test_pool import give, handle_of, rests, take
from wirespeed.core.audit import packets
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import CACHE_LIMIT, alloc_bulk, put_bulk
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_handle
from wirespeed.jit.kernel import kernel

i64 = np.int64
ROOM = HEADROOM + 64
BULKS = [1, 4, 8, 32, 64, 128, 256, 512]
KEEPS = [32, 128, 512, 2048, 8192, 32768]


@kernel
def take_all(cache, handles, bulk, keep):
    """Take ``keep`` packets in bulks; count how often each was marked before, which is never when all differ."""
    seen = i64(0)
    for at in range(0, keep, bulk):
        if alloc_bulk(cache, handles + 8 * at, bulk) != bulk:
            return i64(-1)
        for i in range(bulk):
            p = Packet(load_handle(handles + 8 * (at + i)))
            seen += i64(p.mark)
            p.mark = 1
    return seen


@kernel
def give_all(cache, handles, bulk, keep):
    for at in range(0, keep, bulk):
        for i in range(bulk):
            Packet(load_handle(handles + 8 * (at + i))).mark = 0
        put_bulk(cache, handles + 8 * at, bulk)


@kernel
def keep_32(cache, handles, keep):
    """With a size that is known when this is compiled."""
    seen = take_all(cache, handles, i64(32), keep)
    give_all(cache, handles, i64(32), keep)
    return seen


def user_owned(pool, limit):
    cache = pool.open_cache(limit)
    return lambda n: cache.alloc(n).tolist(), cache.free, cache


def worker(pool, limit):
    cache = pool.cache(limit)
    return lambda n: take(cache, n), lambda handles: give(cache, handles), None


def alone(pool, limit):
    return lambda n: pool.alloc(n).tolist(), pool.free, None


WAYS = {"no cache": (worker, 0), "cache": (worker, 32), "user-owned cache": (user_owned, 32), "the pool": (alone, 0)}


@pytest.mark.parametrize("way", WAYS)
def test_packets_are_taken_one_by_one_by_two_and_all_and_their_bytes_stay(way):
    make, limit = WAYS[way]
    with PacketPool(100, ROOM) as pool:
        for i in range(pool.size):
            ctypes.memset(Packet.at(handle_of(pool, i)).buffer, i, ROOM)
        alloc, free, _ = make(pool, limit)
        one = alloc(1)
        assert (pool.free_count, pool.in_use) == (99, 1)
        free(one)
        two = alloc(1) + alloc(1)
        assert len(set(two)) == 2 and pool.in_use == 2
        free(two[:1])
        free(two[1:])
        everything = [handle for _ in range(pool.size) for handle in alloc(1)]
        assert sorted(everything) == [handle_of(pool, i) for i in range(pool.size)]
        assert alloc(1) == [] and pool.failures == 1
        for handle in everything:
            number = (handle - handle_of(pool, 0)) // pool.stride
            assert ctypes.string_at(Packet.at(handle).buffer, ROOM) == bytes([number]) * ROOM
            free([handle])
        assert pool.whole and pool.audit().sound


@pytest.mark.parametrize("way", WAYS)
def test_a_pool_is_full_then_neither_then_empty_and_back(way):
    make, limit = WAYS[way]
    with PacketPool(64, ROOM) as pool:
        alloc, free, _ = make(pool, limit)
        assert (pool.is_full, pool.is_empty) == (True, False)
        out = []
        for _ in range(63):
            out += alloc(1)
            assert (pool.is_full, pool.is_empty) == (False, False)
        out += alloc(1)
        assert (pool.is_full, pool.is_empty, len(set(out))) == (False, True, 64)
        assert alloc(1) == []
        free(out)
        assert (pool.is_full, pool.is_empty) == (True, False)


def test_statistics_count_what_was_moved():
    with PacketPool(64, ROOM) as pool:
        alloc, free, cache = user_owned(pool, 16)
        out = alloc(4)  # a refill of 8
        out += alloc(20)  # past the cache
        free(out[:4])
        for at in range(4, 24, 4):
            free(out[at : at + 4])
        (counts,) = pool.statistics()
        assert (counts.refills, counts.past, counts.flushes, counts.failures) == (1, 1, 1, 0)
        assert alloc(60) and alloc(60) == [] and cache.failures == 1
        pool.free([packet.handle for packet in pool.audit().out])
        assert pool.whole


def test_one_thread_takes_and_another_gives():
    with PacketPool(64, ROOM) as pool:
        passed: queue.SimpleQueue = queue.SimpleQueue()
        wrong = []

        def taker():
            with pool.open_cache(16) as cache:
                for n in range(2000):
                    while not len(packets := cache.alloc(1 + n % 7)):
                        pass
                    for handle in packets.tolist():
                        Packet.at(handle).mark = n
                    passed.put((n, packets))
            passed.put(None)

        def giver():
            with pool.open_cache(16) as cache:
                while (entry := passed.get()) is not None:
                    n, packets = entry
                    wrong.extend(handle for handle in packets.tolist() if Packet.at(handle).mark != n)
                    cache.free(packets)

        threads = [threading.Thread(target=job) for job in (taker, giver)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == [] and pool.whole and pool.audit().sound


def test_a_cache_larger_than_the_most_or_the_pool_is_not_made():
    with PacketPool(2000, HEADROOM + 1) as pool:
        with pytest.raises(GraphError, match="keeps 0 to 512 packets, got 544"):
            pool.open_cache(CACHE_LIMIT + 32)
        pool.open_cache(CACHE_LIMIT).close()
    with PacketPool(100, HEADROOM + 1) as pool, pytest.raises(GraphError, match="keeps 0 to 100 packets, got 101"):
        pool.open_cache(101)


def test_two_pools_of_one_kind_never_meet():
    with PacketPool(16, ROOM) as one, PacketPool(16, ROOM) as other:
        mine, theirs = one.open_cache(4), other.open_cache(4)
        out = mine.alloc(16)
        assert (one.free_count, other.free_count) == (0, 16)
        assert not set(out.tolist()) & set(theirs.alloc(16).tolist())
        mine.free(out)
        other.free([packet.handle for packet in other.audit().out])
        assert one.whole and other.whole


def test_every_packet_begins_in_its_resting_state():
    with PacketPool(50, ROOM) as pool:
        records = packets(pool.address)
        assert len(records) == 50
        for i, p in enumerate(records):
            handle = handle_of(pool, i)
            assert rests(handle)
            assert (p["pool"], p["buffer"], p["capacity"]) == (pool.address, handle + Packet.size, ROOM)
            assert (p["data"], p["link"], p["length"], p["total"], p["mark"]) == (HEADROOM, 1, 0, 0, 0)
            assert Packet.at(handle).buffer == p["buffer"], "the array lies over the records themselves"


@pytest.mark.parametrize("room", [HEADROOM + 1, HEADROOM + 63, HEADROOM + 64, HEADROOM + 2048, HEADROOM + 9000])
def test_records_are_aligned_to_lines_always(room):
    with PacketPool(9, room) as pool:
        assert all(handle % 64 == 0 and Packet.at(handle).buffer % 64 == 0 for handle in pool.alloc(9).tolist())


def test_the_range_of_a_pool_has_all_its_packets_and_no_more():
    with PacketPool(33, ROOM) as pool:
        first = handle_of(pool, 0)
        out = sorted(pool.alloc(33).tolist())
        assert out[0] == first and out[-1] == first + 32 * pool.stride
        for handle in (first - pool.stride, first + 33 * pool.stride):
            with pytest.raises(GraphError, match="no packet of this pool"):
                pool.free([handle])
        pool.free(out)
        assert pool.whole


def test_an_audit_finds_what_was_written_over():
    with PacketPool(16, ROOM) as pool:
        assert pool.audit().sound
        (a, b) = pool.alloc(2).tolist()
        pool.free([a])
        ctypes.memset(a - 8, 0xFF, 64)  # who wrote too far from the packet before
        audit = pool.audit()
        assert not audit.sound and audit.damage[0].startswith("packet 0 is free, but not at rest")
        assert [packet.handle for packet in audit.out] == [b]


def test_a_dump_can_be_made_of_every_state():
    with PacketPool(16, ROOM) as pool:
        texts = [pool.dump()]
        with pool.open_cache(4, name="here") as cache:
            out = cache.alloc(16)
            texts.append(pool.dump())
            cache.free(out[:9])
            texts.append(pool.dump())
            cache.free(out[9:])
        texts.append(pool.dump())
        assert [line for text in texts for line in text.splitlines() if line.startswith("16 packets:")] == [
            "16 packets: 16 free, 0 out", "16 packets: 0 free, 16 out", "16 packets: 9 free, 7 out",
            "16 packets: 16 free, 0 out",
        ]  # fmt: skip
    with pytest.raises(GraphError, match="closed"):
        pool.dump()


@pytest.fixture(scope="module")
def large():
    with PacketPool(max(KEEPS) + CACHE_LIMIT, HEADROOM + 1) as pool:
        yield pool


@pytest.mark.parametrize("limit", [0, CACHE_LIMIT])
@pytest.mark.parametrize("keep", KEEPS)
def test_each_bulk_size_with_each_number_kept_gives_every_packet_once(large, limit, keep):
    handles = np.zeros(max(KEEPS) + 512, np.int64)
    cache = large.cache(limit)
    for bulk in [bulk for bulk in BULKS if bulk <= keep]:
        for _ in range(2):
            assert take_all(cache, handles.ctypes.data, bulk, keep) == 0
            assert len(np.unique(handles[:keep])) == keep and large.in_use == keep
            give_all(cache, handles.ctypes.data, bulk, keep)
            assert large.whole
    assert keep_32(cache, handles.ctypes.data, keep) == 0
    large.close_cache(cache)
    assert large.whole and large.audit().sound


@pytest.mark.parametrize("limit", [0, 1, 2, 31, CACHE_LIMIT])
def test_bursts_of_random_sizes_give_every_packet_once(limit):
    draw = random.Random(limit)
    with PacketPool(1023, HEADROOM + 1) as pool:
        cache = pool.cache(limit)
        out: list[int] = []
        for _ in range(400):
            got = take(cache, draw.randrange(0, 300))
            out += got
            assert len(set(out)) == len(out) == pool.in_use
            draw.shuffle(out)
            back = draw.randrange(0, min(len(out), 300) + 1)
            give(cache, out[:back])
            del out[:back]
        give(cache, out)
        assert pool.whole and pool.audit().sound
