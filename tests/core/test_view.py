"""A packet from Python: what a view shows is the packet's, each refusal says what was wanted, and an ended view is over."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_packet import ROOM
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.view import PacketView
from wirespeed.errors import GraphError

CAPACITY = HEADROOM + ROOM


@pytest.fixture(scope="module")
def pool():
    with PacketPool(40, CAPACITY) as pool:
        yield pool
        assert pool.whole


@pytest.fixture(scope="module")
def cache(pool):
    return pool.cache(16)


@given(data=st.binary(max_size=1000), offset=st.integers(0, 1000), size=st.integers(0, 1000))
def test_bytes_go_in_and_come_out_whole_in_parts_and_by_offset(pool, cache, data, offset, size):
    with PacketView.of(pool, cache, data) as view:
        assert bytes(view) == data == b"".join(part.tobytes() for part in view.parts)
        assert len(view) == len(data) and view.segments == len(view.parts)
        if offset + size <= len(data):
            assert view.read(offset, size).tobytes() == data[offset : offset + size]
        else:
            with pytest.raises(GraphError, match=f"the packet's {len(data)}"):
                view.read(offset, size)
        assert repr(view) == f"<PacketView {len(data)} bytes in {view.segments} segments, held 1 times>"
    assert pool.whole


def test_what_is_written_to_an_array_is_in_the_packet(pool, cache):
    with PacketView.of(pool, cache, bytes(100)) as view:
        view.data[:] = 1
        view.parts[1][:] = 2
        view.read(3, 2)[:] = 9
        view.read(ROOM - 2, 4)[:] = 9  # a copy, for these lie in two segments
        assert bytes(view) == b"\1\1\1\x09\x09" + b"\1" * (ROOM - 5) + b"\2" * (100 - ROOM)


def test_growing_gives_the_new_bytes_and_cutting_takes_them(pool, cache):
    with PacketView.of(pool, cache, b"body") as view, PacketView.of(pool, cache, b"tail") as tail:
        view.prepend(5)[:] = np.frombuffer(b"head ", np.uint8)
        view.append(5)[:] = np.frombuffer(b" end.", np.uint8)
        assert bytes(view) == b"head body end."
        assert len(view.append(0)) == len(view.prepend(0)) == 0
        view.chain(tail)
        view.append(1)[:] = 0x21
        assert (bytes(view), view.segments, view.tailroom) == (b"head body end.tail!", 2, ROOM - 5)
        view.adjust(5)
        view.trim(1)
        assert bytes(view) == b"body end.tail"
        view.linearize()
        assert (bytes(view), view.segments) == (b"body end.tail", 1)


def test_a_packet_is_held_shared_and_copied(pool, cache):
    with PacketView.of(pool, cache, bytes(range(200))) as view:
        with view.hold() as again, view.clone() as shown, view.copy() as copied, view.copy(190, 100) as part:
            assert (view.refcnt, again.refcnt, shown.refcnt, copied.refcnt) == (3, 3, 1, 1)
            assert [v.shows for v in (view, again, shown, copied)] == ["own", "own", "packet", "own"]
            assert bytes(view) == bytes(again) == bytes(shown) == bytes(copied)
            assert bytes(part) == bytes(range(190, 200))
            assert again.handle == view.handle != shown.handle
        assert view.refcnt == 1
        assert view.fault() == ""


def test_a_packet_shows_another_one_or_memory_and_its_own_again(pool, cache):
    with PacketView.of(pool, cache, b"own") as view, PacketView.of(pool, cache, b"other") as other:
        view.attach(other)
        assert (bytes(view), view.shows) == (b"other", "packet")
        view.detach()
        assert (bytes(view), view.shows, view.headroom) == (b"", "own", HEADROOM)
        with ExternalBuffer(bytearray(b"memory")) as buffer:
            view.attach(buffer, 3)
            assert (bytes(view), view.record.wire, view.tailroom) == (b"mem", 3, 0)
            view.detach()
            view.attach(buffer)
            assert bytes(view) == b"memory"
            for refused in (lambda: view.attach(other), lambda: other.attach(other), lambda: other.attach(view, 3)):
                with pytest.raises(GraphError, match="fresh"):
                    refused()
        with view.hold(), pytest.raises(GraphError, match="held 2 times"):
            view.detach()


def test_each_refusal_leaves_the_packet_as_it_was_and_says_what_was_wanted(pool, cache):
    with PacketView.of(pool, cache, bytes(100)) as view:
        for refused, words in (
            (lambda: view.prepend(HEADROOM + 1), "wanted up to 128, the headroom"),
            (lambda: view.append(CAPACITY), "the tailroom; chain another"),
            (lambda: view.adjust(ROOM + 1), "wanted up to 64, those of the first segment"),
            (lambda: view.trim(100 - ROOM + 1), "wanted up to 36, those of the last segment"),
            (lambda: view.prepend(-1), "wanted 0 to"),
            (lambda: view.append(1 << 64), "wanted 0 to"),
            (lambda: view.chain(view), "behind itself"),
            (lambda: view.copy(100), "wanted 0 to 99"),
            (lambda: view.copy(-1), "wanted 0 to 99"),
            (lambda: view.copy(0, -1), "bytes to copy"),
            (lambda: view.read(-1, 5), "wanted some of the packet's 100"),
            (lambda: view.read(0, 1 << 70), "wanted some of the packet's 100"),
            (lambda: PacketView.alloc(pool, cache, 1 << 40), "length of a packet"),
            (lambda: PacketView.alloc(pool, cache, 41 * CAPACITY), "too few packets"),
            (lambda: PacketView(pool, cache, 0), "handle 0"),
        ):
            with pytest.raises(GraphError, match=words):
                refused()
        assert bytes(view) == bytes(100) and view.fault() == ""
        view.record.segments = 0xFFFF
        with PacketView.alloc(pool, cache) as more, pytest.raises(GraphError, match="65535 segments"):
            view.chain(more)
        view.record.segments = 2
        others = [PacketView.alloc(pool, cache) for _ in range(37)]
        for refused in (view.clone, view.copy):
            with pytest.raises(GraphError, match="too few packets"):
                refused()
        for other in others:
            other.free()


def test_an_ended_view_is_over(pool, cache):
    freed, given, head = (PacketView.of(pool, cache, b"abc") for _ in range(3))
    freed.free()
    head.chain(given)
    for view in (freed, given):
        for use in (
            lambda v: v.handle, lambda v: v.data, lambda v: v.parts, bytes, len, lambda v: v.record, lambda v: v.dump(),
            lambda v: v.free(), lambda v: v.clone(), lambda v: v.prepend(1), lambda v: v.chain(head), head.chain,
        ):  # fmt: skip
            with pytest.raises(GraphError, match="freed, or given to a chain"):
                use(view)
        assert repr(view) == "<PacketView, freed>"
        with view:
            pass
    head.free()


def test_a_view_of_a_closed_pool_is_over():
    pool = PacketPool(4, CAPACITY)
    view = PacketView.of(pool, pool.cache(), b"abc")
    assert pool.close() == 1
    with pytest.raises(GraphError, match="closed"):
        bytes(view)
    with view:
        pass


def test_a_dump_tells_the_packet_its_segments_and_every_byte(pool, cache):
    data = bytes(range(0x40, 0x40 + ROOM + 6)) + b"\0\xff"
    with PacketView.of(pool, cache, data) as view:
        lines = view.dump().splitlines()
        assert lines[0].startswith(f"packet {view.handle:#x}: 72 bytes in 2 segments, held 1 times, port 0, ")
        assert lines[1] == "segment 0: 64 bytes at 128 of 192"
        assert lines[2] == "00000000  40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f  @ABCDEFGHIJKLMNO"
        assert lines[6] == "segment 1: 8 bytes at 0 of 192"
        assert lines[7] == "00000040  80 81 82 83 84 85 00 ff                          ........"
        assert len(lines) == 8
