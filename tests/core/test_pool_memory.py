"""A pool lies in any memory that can be written, at any alignment, and takes as many bytes as it says."""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_pool import give, rests, take
from wirespeed.core.arena import Arena
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import ROOM, PacketPool, bytes_for
from wirespeed.errors import GraphError

SMALL = HEADROOM + 64


def check(pool, address, size):
    """Every packet lies in the memory, apart from the others, rests, and can be written to its end."""
    with pool:
        cache = pool.cache(pool.size)
        packets = take(cache, pool.size)
        assert address <= pool.address
        ends = []
        for handle in packets:
            assert rests(handle)
            p = Packet.at(handle)
            assert handle % 64 == 0 and p.buffer == handle + Packet.size and p.capacity == pool.room
            ends += [(handle, p.buffer + p.capacity)]
        assert max(ends)[1] <= address + size
        assert all(end <= start for (_, end), (start, _) in zip(sorted(ends), sorted(ends)[1:], strict=False))
        give(cache, packets)
        assert pool.close() == 0


@given(st.integers(0, 255), st.integers(1, 40), st.integers(HEADROOM + 1, HEADROOM + 300))
def test_the_bytes_that_it_says_are_enough_wherever_they_begin(offset, size, room):
    needed = bytes_for(size, room)
    memory = np.full(needed + offset, 0xA5, np.uint8)[offset:]
    check(PacketPool(size, room, memory=memory), memory.ctypes.data, needed)
    assert memory.base[:offset].tolist() == [0xA5] * offset


@given(st.integers(0, 127))
def test_memory_that_is_too_small_is_refused_with_the_bytes_that_it_takes(offset):
    needed = bytes_for(10, SMALL)
    with pytest.raises(GraphError, match=f"takes {needed} bytes"):
        PacketPool(10, SMALL, memory=np.zeros(needed + 512, np.uint8)[offset : offset + needed - 256])


def test_a_bytearray_a_mapping_and_an_array_of_anything_serve():
    needed = bytes_for(20, SMALL)
    for memory in (bytearray(needed), mmap.mmap(-1, needed), np.zeros(-(-needed // 8), np.float64)):
        view = np.frombuffer(memory, np.uint8)
        address = view.ctypes.data
        del view
        check(PacketPool(20, SMALL, memory=memory), address, needed)
        if isinstance(memory, mmap.mmap):
            memory.close()


def test_an_address_and_a_size_serve():
    memory = np.zeros(bytes_for(20, SMALL), np.uint8)
    pool = PacketPool(20, SMALL, memory=(memory.ctypes.data, memory.size))
    check(pool, memory.ctypes.data, memory.size)
    with pytest.raises(GraphError, match="takes"):
        PacketPool(20, SMALL, memory=(memory.ctypes.data, 1000))


def test_an_arena_serves_for_two_and_stays_its_owners():
    with Arena(2 * bytes_for(100, SMALL)) as arena:
        for _ in range(2):
            check(PacketPool(100, SMALL, memory=arena), arena.address, arena.size)
        assert arena.address, "the arena is its owner's"
        with pytest.raises(GraphError, match="make it larger"):
            PacketPool(100_000, memory=arena)


def test_a_buffer_stays_in_its_place_while_a_pool_is_in_it():
    memory = bytearray(bytes_for(20, SMALL))
    pool = PacketPool(20, SMALL, memory=memory)
    with pytest.raises(BufferError):
        memory.extend(bytes(100))
    pool.close()
    memory.extend(bytes(100))


@pytest.mark.parametrize(
    "memory, word",
    [
        (bytes(1 << 16), "must be writable, got a bytes"),
        (np.zeros((256, 512), np.uint8)[:, ::2], "one piece"),
        ("text", "must be an Arena, a buffer"),
        (12, "must be an Arena, a buffer"),
        (bytearray(), "takes|one piece"),
    ],
)
def test_memory_that_cannot_serve_is_refused(memory, word):
    with pytest.raises(GraphError, match=word):
        PacketPool(10, SMALL, memory=memory)


def test_caches_of_a_pool_in_the_tightest_memory_have_memory_of_their_own():
    memory = bytearray(bytes_for(1024))
    with PacketPool(1024, memory=memory) as pool:
        assert pool.room == ROOM
        caches = [pool.cache(512) for _ in range(2)]
        for cache in caches:
            give(cache, take(cache, 256))
        assert pool.whole
        for cache in caches:
            pool.close_cache(cache)
        assert pool.whole and pool.statistics() == []
