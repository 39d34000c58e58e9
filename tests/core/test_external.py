"""Memory of a Python program that packets show: it is kept as long as it is used, and let go of once, by any thread."""

import gc
import mmap
import threading
import weakref

import numpy as np
import pytest

from tests.core.test_packet import ROOM, chain, content, take
from wirespeed.core.clone import clone
from wirespeed.core.external import External, ExternalBuffer, release_external
from wirespeed.core.free import free_mixed, free_segments
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import GraphError

CAPACITY = HEADROOM + ROOM


@pytest.fixture
def pool():
    """A pool that must be whole at the end of the test."""
    with PacketPool(40, CAPACITY) as pool:
        yield pool
        assert pool.whole


@pytest.fixture
def cache(pool):
    return pool.cache(16)


def shown(cache, buffer, offset=0, size=None):
    """A packet that shows external memory from ``offset``, all of it that it can."""
    handle = take(cache, 0)
    buffer.attach(handle, offset, size)
    p = Packet.at(handle)
    p.length = p.total = p.capacity
    return handle


class Bytes(bytearray):
    """A bytearray that a weak reference can watch."""


@pytest.mark.parametrize(
    "memory",
    [lambda: bytearray(b"x" * 50), lambda: mmap.mmap(-1, 50), lambda: np.full((5, 10), 120, np.uint8)],
    ids=["bytearray", "mmap", "array"],
)
def test_packets_show_any_writable_buffer_and_write_to_it(memory, pool, cache):
    memory = memory()
    memoryview(memory).cast("B")[:] = b"x" * 50
    with ExternalBuffer(memory) as buffer:
        handle = shown(cache, buffer)
        assert content(handle) == b"x" * 50
        p = Packet.at(handle)
        np.frombuffer(memory, np.uint8)[3] = 0x79
        assert content(handle) == b"xxxy" + b"x" * 46
        assert (p.buffer, p.capacity, buffer.users) == (buffer.address, 50, 1)
        free_segments(cache, handle)
        assert buffer.users == 0


def test_the_memory_is_kept_until_the_last_packet_lets_go(pool, cache):
    memory = Bytes(b"abc" * 100)
    watch = weakref.ref(memory)
    buffer = ExternalBuffer(memory)
    first = shown(cache, buffer, 3, 6)
    second = clone(cache, first)
    del memory, buffer
    gc.collect()
    assert watch() is not None
    assert content(first) == content(second) == b"abcabc"
    free_segments(cache, first)
    gc.collect()
    assert content(second) == b"abcabc"
    free_segments(cache, second)
    assert watch() is None


def test_memory_that_is_shown_cannot_be_taken_away(pool, cache):
    memory = bytearray(10)
    buffer = ExternalBuffer(memory)
    handle = shown(cache, buffer)
    buffer.release()
    with pytest.raises(BufferError):
        memory.append(1)
    free_segments(cache, handle)
    memory.append(1)


@pytest.mark.parametrize("first", ["packets", "maker"])
def test_the_release_is_told_once_whoever_lets_go_last(first, pool, cache):
    told = []
    buffer = ExternalBuffer(bytearray(100), lambda: told.append(threading.get_ident()))
    parts = [shown(cache, buffer, 10 * i, 10) for i in range(3)]
    assert chain(parts[0], parts[1])
    listed = np.array([parts[0], clone(cache, parts[0]), parts[2]], np.int64)
    assert buffer.users == 5
    if first == "maker":
        buffer.release()
        buffer.release()
        assert (told, buffer.users, repr(buffer)) == ([], 0, "<ExternalBuffer 100 bytes, released>")
    free_mixed(cache, listed.ctypes.data, 3)
    if first == "packets":
        assert told == []
        buffer.release()
        buffer.release()
    assert told == [threading.get_ident()]
    with pytest.raises(GraphError, match="released"):
        shown_again = take(cache, 0)
        try:
            buffer.attach(shown_again)
        finally:
            free_segments(cache, shown_again)


def test_a_release_that_raises_is_reported_and_harms_nothing(pool, cache, monkeypatch):
    reported = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: reported.append(what.exc_value))

    def fail():
        raise RuntimeError("no")

    with ExternalBuffer(bytearray(10), fail) as buffer:
        handle = shown(cache, buffer)
    other = take(cache, 5)
    listed = np.array([handle, other], np.int64)
    free_mixed(cache, listed.ctypes.data, 2)
    assert [str(error) for error in reported] == ["no"]


def test_a_release_may_use_the_cache_whose_free_it_runs_in(pool, cache):
    taken = []

    def again():
        taken.append(take(cache, 3 * CAPACITY))
        free_segments(cache, taken[0])

    buffer = ExternalBuffer(bytearray(10), again)
    handle = shown(cache, buffer)
    buffer.release()
    others = [take(cache, 1) for _ in range(5)]
    assert chain(others[0], handle)
    listed = np.array([others[1], others[0], *others[2:]], np.int64)
    free_mixed(cache, listed.ctypes.data, len(listed))
    assert taken and pool.whole


def test_threads_let_go_of_one_memory_and_it_is_released_once():
    with PacketPool(400, CAPACITY) as pool:
        cache, theirs = pool.cache(64), [pool.cache(16) for _ in range(3)]
        for _ in range(20):
            told = []
            with ExternalBuffer(bytearray(64), lambda told=told: told.append(threading.get_ident())) as buffer:
                original = shown(cache, buffer)
                shares = [[clone(cache, original) for _ in range(60)] for _ in theirs]
                free_segments(cache, original)
            threads = [
                threading.Thread(target=lambda c, s: [free_segments(c, h) for h in s], args=pair)
                for pair in zip(theirs, shares, strict=True)
            ]
            assert not told
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(told) == 1 and pool.whole


def test_what_packets_cannot_show_is_refused(pool, cache):
    for memory, words in (
        (b"bytes", "cannot be written"),
        (np.zeros(20, np.uint8)[::2], "not in one piece"),
        (bytearray(), "1 to"),
        (5, "wanted a writable buffer"),
    ):
        with pytest.raises(GraphError, match=words):
            ExternalBuffer(memory)
    with ExternalBuffer(bytearray(20)) as buffer:
        handle = take(cache, 0)
        for offset, size in ((-1, 5), (0, 21), (20, None), (5, 16), (0, 0), (0, -1), (21, None), (0, 1 << 64)):
            with pytest.raises(GraphError, match="wanted some of its 20"):
                buffer.attach(handle, offset, size)
        assert (buffer.users, Packet.at(handle).flags) == (0, 0)
        buffer.attach(handle, 19)
        with pytest.raises(GraphError, match="attach a fresh one"):
            buffer.attach(handle)
        assert (Packet.at(handle).capacity, buffer.users) == (1, 1)
        free_segments(cache, handle)
        assert buffer.users == 0


def test_a_record_without_a_callback_calls_nobody():
    memory = np.zeros(External.size, np.uint8)
    record = External.at(memory.ctypes.data)
    record.refcnt = 2
    release_external(memory.ctypes.data)
    assert record.refcnt == 1
    release_external(memory.ctypes.data)
