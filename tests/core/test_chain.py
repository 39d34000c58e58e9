"""Packets longer than a buffer: as many segments as they need, or none taken; the bytes are checked in test_packet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_packet import ROOM, segments, take
from wirespeed.core.chain import MOST_SEGMENTS
from wirespeed.core.free import free_segments
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import PacketPool


@pytest.fixture(scope="module")
def pool():
    with PacketPool(8, HEADROOM + ROOM) as pool:
        yield pool


@pytest.fixture(scope="module")
def cache(pool):
    return pool.cache()


@given(st.integers(0, 1200))
def test_a_new_packet_has_as_many_segments_as_its_length_needs(pool, cache, length):
    handle = take(cache, length)
    needed = 1 + max(0, -(-(length - ROOM) // (ROOM + HEADROOM)))
    p = Packet.at(handle)
    assert (p.total, p.wire, p.data) == (length, length, HEADROOM)
    assert p.segments == len(segments(handle)) == needed
    assert sum(Packet.at(s).length for s in segments(handle)) == length
    free_segments(cache, handle)
    assert pool.whole


def test_a_packet_that_the_pool_cannot_hold_takes_nothing(pool, cache):
    kept = take(cache, 10)
    assert take(cache, ROOM + 7 * (ROOM + HEADROOM)) == 0
    assert pool.free_count == pool.size - 1
    longest = take(cache, ROOM + 6 * (ROOM + HEADROOM))
    assert longest and pool.free_count == 0
    free_segments(cache, longest)
    free_segments(cache, kept)
    assert pool.whole


def test_a_packet_of_more_segments_than_can_be_counted_is_not_made():
    with PacketPool(MOST_SEGMENTS + 10, HEADROOM + 1) as pool:
        cache = pool.cache()
        longest = 1 + (MOST_SEGMENTS - 1) * (HEADROOM + 1)
        assert take(cache, longest + 1) == 0
        assert pool.whole
        handle = take(cache, longest)
        assert Packet.at(handle).segments == MOST_SEGMENTS
        free_segments(cache, handle)
        assert pool.whole
