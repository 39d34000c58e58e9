"""The cases of DPDK's mbuf_autotest, each as a test of ours.

=============================================  ==================================================================
DPDK's case                                    here
=============================================  ==================================================================
test_pktmbuf_pool (two pools)                  test_all_packets_of_a_pool_can_be_taken_and_freed_again_and_again
test_pktmbuf_pool_bulk                         test_a_list_of_zeros_chains_and_single_packets_is_freed_at_once
test_pktmbuf_pool_ptr                          test_what_a_pool_wrote_into_its_records_stays
test_one_pktmbuf (two pools)                   test_a_packet_grows_and_shrinks_within_its_room_and_not_beyond_it
test_pktmbuf_with_non_ascii_data               test_a_packet_of_any_bytes_can_be_shown_as_text
test_pktmbuf_free_segment                      test_the_segments_of_a_chain_can_be_freed_one_by_one
testclone_testupdate_testdetach                test_a_clone_shows_the_same_bytes_and_keeps_them_alive,
                                               test_a_clone_of_a_chain_of_clones_holds_the_real_owners,
                                               test_a_packet_that_shows_others_or_is_shown_cannot_be_attached
test_pktmbuf_copy                              test_a_copy_is_of_its_own_whole_or_in_part_and_from_clones_too,
                                               test_a_copy_from_outside_the_packet_is_none
test_attach_from_different_pool                test_packets_of_two_pools_show_each_others_bytes
test_refcnt_mbuf                               test_threads_give_up_holds_of_the_same_packets_and_none_is_lost
test_failing_mbuf_sanity_check                 test_each_damaged_field_is_found
test_mbuf_linearize_check                      test_a_chain_becomes_one_segment_when_it_fits_and_stays_when_not
alloc_bulk, neg_alloc_bulk                     test_bulks_of_every_size_up_to_all_are_taken_and_none_above
test_pktmbuf_read                              test_bytes_are_read_in_place_within_one_segment
test_pktmbuf_read_from_offset                  test_reading_outside_the_packet_gives_nothing_whatever_the_numbers
test_pktmbuf_read_from_chain                   test_bytes_are_read_across_every_shape_of_chain
test_pktmbuf_ext_shinfo_init_helper            test_external_memory_is_let_go_of_once_when_its_last_user_goes,
                                               test_the_record_of_external_memory_fits_at_its_aligned_end
test_nb_segs_and_next_reset                    test_segments_and_next_are_reset_in_whatever_order_parts_are_freed,
                                               test_a_head_that_was_cut_off_its_chain_by_hand_rests_all_the_same
=============================================  ==================================================================

Not here, for there is nothing they could test: test_mbuf_dyn (records have no fields but their own; the user's word is
``mark``), test_pktmbuf_ext_pinned_buffer (pools of that kind are not offered), and all about transmit offloads and
their names (test_tx_offload, the flag lists, test_mbuf_validate_tx_offload): no port of ours leaves work to a card.
NULL for a pool or an array has no meaning here either: a cache's address is not checked.
"""

import itertools
import random
import threading

import numpy as np
import pytest

from tests.core.test_packet import ROOM, chain, content, fill, segments, take
from wirespeed.core import ring
from wirespeed.core.arena import Arena
from wirespeed.core.chain import read
from wirespeed.core.clone import attach, clone
from wirespeed.core.external import External, ExternalBuffer, attach_external, init_external, place_external
from wirespeed.core.free import free_mixed, free_segment, free_segments, hold
from wirespeed.core.packet import EXTERNAL, HEADROOM, INDIRECT, Packet, is_contiguous, refcnt, set_refcnt, update_refcnt
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import alloc_bulk
from wirespeed.core.sanity import REASONS, why
from wirespeed.core.view import PacketView
from wirespeed.errors import GraphError
from wirespeed.jit.intrinsics import load_i64
from wirespeed.jit.kernel import kernel

CAPACITY = HEADROOM + ROOM
SIZE = 24


@kernel
def take_bulk(cache, handles, n):
    return alloc_bulk(cache, handles, n)


@kernel
def pass_on(handles, n, at):
    return ring.enqueue(at, handles, n, 8, True, ring.MT)


@kernel
def free_what_comes(cache, at, slot, wanted, stop):
    """Free what comes out of a ring until ``wanted`` were freed in all or ``stop`` polls found nothing."""
    done, idle = np.int64(0), np.int64(0)
    while done < wanted and idle < stop:
        if ring.dequeue(at, slot, np.int64(1), 8, True, ring.MT) == 1:
            free_segments(cache, load_i64(slot))
            done += 1
            idle = np.int64(0)
        else:
            idle += 1
    return done


@pytest.fixture
def pool():
    """A pool that must be whole at the end of the test."""
    with PacketPool(SIZE, CAPACITY) as pool:
        yield pool
        assert pool.whole


@pytest.fixture
def cache(pool):
    return pool.cache(SIZE)


def some(n, seed=0):
    return bytes((7 * i + i // 251 + seed) & 0xFF for i in range(n))


def new(cache, data):
    """A packet with these bytes, in as many segments as they need."""
    handle = take(cache, len(data))
    assert handle
    fill(handle, data)
    return handle


def chained(cache, *lengths):
    """A chain of segments of these lengths; its handle and its bytes."""
    head, data = 0, b""
    for length in lengths:
        part = some(length, len(data) + 3)
        handle = new(cache, part)
        data += part
        head = head or handle
        assert head == handle or chain(head, handle)
    return head, data


def bulk(cache, n):
    out = np.zeros(n + 1, np.int64)
    return out[: take_bulk(cache, out.ctypes.data, n)].tolist()


def give(cache, *handles):
    array = np.array([*handles, 0], np.int64)
    free_mixed(cache, array.ctypes.data, len(handles))


def test_all_packets_of_a_pool_can_be_taken_and_freed_again_and_again():
    with PacketPool(SIZE, CAPACITY) as one, PacketPool(SIZE, CAPACITY) as other:
        for pool in (one, other):
            cache = pool.cache(16)
            for _ in range(3):
                packets = [take(cache, 10) for _ in range(SIZE)]
                assert len(set(packets)) == SIZE and all(packets)
                assert take(cache, 10) == 0
                for handle in packets:
                    free_segments(cache, handle)
                assert pool.whole


def test_a_list_of_zeros_chains_and_single_packets_is_freed_at_once(pool, cache):
    pairs, _ = chained(cache, 10, 20)
    long, _ = chained(cache, 5, 5, 5, 5)
    single, twice = take(cache, 1), take(cache, 2)
    hold(twice)
    give(cache, 0, pairs, single, 0, 0, twice, long, 0)
    assert pool.free_count == SIZE - 1
    give(cache, 0)
    give(cache)
    give(cache, twice)


def test_what_a_pool_wrote_into_its_records_stays(pool, cache):
    def own(handle):
        p = Packet.at(handle)
        return p.buffer, p.pool, p.capacity

    packets = bulk(cache, SIZE)
    before = {handle: own(handle) for handle in packets}
    assert all(buffer == handle + Packet.size for handle, (buffer, _, _) in before.items())
    for i in range(0, SIZE, 2):
        assert attach(packets[i], packets[i + 1])
    give(cache, *packets)
    packets = bulk(cache, SIZE)
    assert {handle: own(handle) for handle in packets} == before
    give(cache, *packets)


def test_a_packet_grows_and_shrinks_within_its_room_and_not_beyond_it(pool, cache):
    with PacketView.alloc(pool, cache) as view:
        assert (len(view), view.headroom, view.tailroom) == (0, HEADROOM, ROOM)
        view.append(60)[:] = 0x66
        assert bytes(view) == b"\x66" * 60
        for refused, words in (
            (lambda: view.append(view.tailroom + 1), "tailroom"),
            (lambda: view.prepend(view.headroom + 1), "headroom"),
            (lambda: view.trim(len(view) + 1), "last segment"),
            (lambda: view.adjust(len(view) + 1), "first segment"),
        ):
            with pytest.raises(GraphError, match=words):
                refused()
            assert bytes(view) == b"\x66" * 60
        view.trim(10)
        view.adjust(10)
        view.prepend(3)[:] = 0x55
        assert bytes(view) == b"\x55" * 3 + b"\x66" * 40
        assert (view.headroom, view.tailroom) == (HEADROOM + 7, ROOM - 50)


def test_a_packet_of_any_bytes_can_be_shown_as_text(pool, cache):
    data = bytes(range(256))
    with PacketView.of(pool, cache, data) as view:
        text = view.dump()
        assert text.isascii()
        rows = [line[10:57] for line in text.splitlines() if line[:1] == "0"]
        assert bytes.fromhex(" ".join(rows)) == data


def test_the_segments_of_a_chain_can_be_freed_one_by_one(pool, cache):
    handle, _ = chained(cache, 10, 20, 30, 40)
    for i, segment in enumerate(segments(handle)):
        free_segment(cache, segment)
        assert pool.free_count == SIZE - 3 + i
    for segment in bulk(cache, SIZE):
        p = Packet.at(segment)
        assert (p.segments, p.next, p.refcnt) == (1, 0, 1)
        free_segment(cache, segment)
    free_segment(cache, 0)
    free_segments(cache, 0)


def test_a_clone_shows_the_same_bytes_and_keeps_them_alive(pool, cache):
    data = some(40)
    original = new(cache, data)
    copy = clone(cache, original)
    p, q = Packet.at(original), Packet.at(copy)
    assert (q.buffer, q.attached, q.flags & INDIRECT) == (p.buffer, original, INDIRECT)
    assert (p.refcnt, q.refcnt) == (2, 1)
    fill(original, data[::-1])
    assert content(copy) == data[::-1], "an update of the bytes is seen through both"
    free_segments(cache, original)
    assert (content(copy), p.refcnt, pool.free_count) == (data[::-1], 1, SIZE - 2)
    second = clone(cache, copy)
    assert (Packet.at(second).attached, p.refcnt) == (original, 2)
    free_segments(cache, copy)
    assert (content(second), p.refcnt, pool.free_count) == (data[::-1], 1, SIZE - 2)
    free_segments(cache, second)


def test_a_clone_of_a_chain_of_clones_holds_the_real_owners(pool, cache):
    handle, data = chained(cache, 30, 40, 50)
    owners = segments(handle)
    first = clone(cache, handle)
    second = clone(cache, first)
    for copy in (first, second):
        p = Packet.at(copy)
        assert (content(copy), p.segments, p.total) == (data, 3, 120)
        assert [Packet.at(s).attached for s in segments(copy)] == owners
    assert [refcnt(owner) for owner in owners] == [3, 3, 3]
    for copy in (first, handle, second):
        assert content(copy) == data
        free_segments(cache, copy)


def test_a_packet_that_shows_others_or_is_shown_cannot_be_attached(pool, cache):
    one, two, three, four = (new(cache, some(10 + i)) for i in range(4))
    assert attach(two, one)
    before = bytes(Packet.at(two)._array)
    assert not attach(two, three), "it shows other bytes already"
    assert not attach(one, three), "its own are shown"
    assert not attach(three, three)
    assert chain(three, four)
    assert not attach(three, one), "the rest of the chain would be lost"
    assert bytes(Packet.at(two)._array) == before
    give(cache, one, two, three)


def test_a_copy_is_of_its_own_whole_or_in_part_and_from_clones_too(pool, cache):
    with PacketView(pool, cache, chained(cache, 60, 50, 150)[0]) as view, view.clone() as shown:
        view.record.time, view.record.port, view.record.hash = 123, 4, 5
        data = bytes(view)
        for source, offset, length in itertools.product((view, shown), (0, 1, 59, 60, 111, 259), (0, 1, 64, 200, None)):
            with source.copy(offset, length) as copy:
                assert bytes(copy) == data[offset:][:length]
                assert copy.shows == "own" and not copy.fault()
                for part in copy.parts:
                    part[:] = 0
        assert bytes(view) == bytes(shown) == data
        with view.copy() as copy, shown.copy() as late:
            p = copy.record
            assert (p.time, p.port, p.hash, p.wire) == (123, 4, 5, view.record.wire)
            assert late.record.time == 0, "what is known now was not when it was cloned"


def test_a_copy_from_outside_the_packet_is_none(pool, cache):
    with PacketView.of(pool, cache, some(100)) as view, PacketView.alloc(pool, cache) as empty:
        for source, offset in ((view, 100), (view, 101), (view, -1), (view, 1 << 32), (empty, 0)):
            with pytest.raises(GraphError, match="offset"):
                source.copy(offset)


def test_packets_of_two_pools_show_each_others_bytes():
    with PacketPool(8, CAPACITY) as one, PacketPool(8, 2 * CAPACITY) as other:
        here, there = one.cache(8), other.cache(8)
        original = new(here, some(50))
        away = clone(there, original)
        back = clone(here, away)
        assert content(away) == content(back) == some(50)
        assert Packet.at(back).attached == original
        assert (one.free_count, other.free_count) == (6, 7)
        free_segments(there, original)
        free_segments(here, away)
        assert (one.free_count, other.free_count) == (6, 8)
        free_segments(there, back)
        assert one.whole and other.whole
        assert {Packet.at(h).capacity for h in bulk(here, 8)} == {CAPACITY}
        assert {Packet.at(h).capacity for h in bulk(there, 8)} == {2 * CAPACITY}


def test_threads_give_up_holds_of_the_same_packets_and_none_is_lost():
    workers = 3
    numbers = random.Random(1)
    with PacketPool(64, CAPACITY) as pool, Arena(1 << 20) as arena:
        at = arena.alloc(ring.size_of(1 << 12))
        ring.init(at, 1 << 12)
        cache, slot, own = pool.cache(4), arena.alloc(64), [pool.cache(4) for _ in range(workers)]
        for _ in range(64):
            handles = []
            for _ in range(12):
                packet, _ = chained(cache, 10, 10)
                for handle, before in ((clone(cache, packet), 1), (packet, 2)):
                    more = numbers.randrange(20)
                    assert [update_refcnt(segment, more) for segment in segments(handle)] == [before + more] * 2
                    handles += [handle] * (more + 1)
            numbers.shuffle(handles)
            found = []

            def work(mine, slot, wanted, found):
                found.append(free_what_comes(mine, at, slot, wanted, 20_000))

            threads = [threading.Thread(target=work, args=(mine, arena.alloc(64), len(handles), found)) for mine in own]
            for thread in threads:
                thread.start()
            listed = np.array(handles, np.int64)
            assert pass_on(listed.ctypes.data, len(handles), at) == len(handles)
            for thread in threads:
                thread.join()
            # A worker that was given no processor time for long may have left some behind.
            found.append(free_what_comes(cache, at, slot, len(handles), 1))
            assert sum(found) == len(handles)
            assert pool.whole


DAMAGES = {
    "the handle is 0": None,
    "it belongs to no pool": {"pool": 0},
    "it has no buffer": {"buffer": 0},
    "its hold count is 0": {"refcnt": 0},
    "its hold count is below 0, or absurd": {"refcnt": 0xFFFFFFFF},
    "it shows bytes of another, but whose is not said, or both of a packet's and external ones": {"flags": EXTERNAL},
    "its data begins behind the end of its buffer": {"data": CAPACITY + 1, "length": 0},
    "its data ends behind the end of its buffer": {"length": 0xFFFFFFFF, "total": 0xFFFFFFFF},
    "its first segment has more bytes than all of it": {"total": 9},
    "it has more or fewer segments than it says": {"segments": 3},
    "its segments have more or fewer bytes than it says": {"total": 31},
}


def test_each_damaged_field_is_found(pool, cache):
    assert set(DAMAGES) == set(REASONS.values())
    handle, _ = chained(cache, 10, 20)
    p = Packet.at(handle)
    assert why(handle) == ""
    for words, fields in DAMAGES.items():
        if fields is None:
            assert why(0) == words
            continue
        before = {name: getattr(p, name) for name in fields}
        for name, value in fields.items():
            setattr(p, name, value)
        assert why(handle) == words
        for name, value in before.items():
            setattr(p, name, value)
    for fields in ({"segments": 1}, {"flags": INDIRECT | EXTERNAL, "attached": 5}):
        before = {name: getattr(p, name) for name in fields}
        for name, value in fields.items():
            setattr(p, name, value)
        assert why(handle)
        for name, value in before.items():
            setattr(p, name, value)
    tail = Packet.at(p.next)
    tail.next, p.segments = handle, 40
    assert why(handle) == "it has more or fewer segments than it says", "a circle ends"
    tail.next, p.segments = 0, 2
    tail.data = CAPACITY
    assert why(handle) == "its data ends behind the end of its buffer", "in any segment"
    assert why(handle, head=False) == ""
    tail.data = HEADROOM
    free_segments(cache, handle)


def test_a_chain_becomes_one_segment_when_it_fits_and_stays_when_not(pool, cache):
    for lengths in ((10,), (0, 20), (50, 14), (50, 15), (60, 60, 60), (64, 64, 64), (1,) * 20):
        handle, data = chained(cache, *lengths)
        with PacketView(pool, cache, handle) as view:
            view.linearize()
            assert (bytes(view), view.segments, view.fault()) == (data, 1, "")
            assert pool.free_count == SIZE - 1
    for lengths in ((64, 64, 64, 1), (64,) * 5):
        handle, data = chained(cache, *lengths)
        with PacketView(pool, cache, handle) as view:
            with pytest.raises(GraphError, match=f"cannot put {sum(lengths)} bytes"):
                view.linearize()
            assert (bytes(view), view.segments, view.fault()) == (data, len(lengths), "")
    with PacketView(pool, cache, chained(cache, 10, 20)[0]) as view:
        with view.clone() as shown, pytest.raises(GraphError, match="shows packet bytes"):
            shown.linearize()
        with view.hold(), pytest.raises(GraphError, match="held 2 times"):
            view.linearize()
        view.linearize()


def test_bulks_of_every_size_up_to_all_are_taken_and_none_above(pool, cache):
    for n in range(SIZE + 1):
        packets = bulk(cache, n)
        assert len(packets) == len(set(packets)) == n
        give(cache, *packets)
        assert pool.whole
    assert bulk(cache, SIZE + 1) == []
    kept = bulk(cache, 1)
    assert bulk(cache, SIZE) == []
    assert pool.free_count == SIZE - 1
    give(cache, *kept)


def test_bytes_are_read_in_place_within_one_segment(pool, cache):
    with PacketView.of(pool, cache, some(ROOM)) as view:
        start = view.record.buffer + HEADROOM
        for offset, size in ((0, ROOM), (0, 0), (10, 20), (ROOM - 1, 1), (ROOM, 0)):
            assert read(view.handle, offset, size, 1) == start + offset
            assert view.read(offset, size).tobytes() == some(ROOM)[offset : offset + size]


TOP = (1 << 63) - 1
HOSTILE = (-TOP - 1, -(1 << 32), -1, 101, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, TOP - 100, TOP)


@pytest.mark.parametrize("lengths", [(100,), (30, 70), (0, 100, 0)], ids=str)
def test_reading_outside_the_packet_gives_nothing_whatever_the_numbers(lengths, pool, cache):
    handle = 0
    for length in lengths:
        packet = take(cache, min(length, ROOM))
        handle = handle or packet
        assert handle == packet or chain(handle, packet)
        if length > ROOM:
            more = take(cache, length - ROOM)
            assert chain(handle, more)
    assert Packet.at(handle).total == 100
    buffer = np.full(200, 0xEE, np.uint8)
    for offset, size in itertools.product(HOSTILE, repeat=2):
        assert read(handle, offset, size, buffer.ctypes.data) == 0
    for value in HOSTILE:
        assert read(handle, value, 1, buffer.ctypes.data) == 0
        assert read(handle, 1, value, buffer.ctypes.data) == 0
    for offset, size in ((0, 101), (100, 1), (1, 100), (99, 2)):
        assert read(handle, offset, size, buffer.ctypes.data) == 0
    assert (buffer == 0xEE).all()
    assert read(handle, 100, 0, buffer.ctypes.data) != 0
    free_segments(cache, handle)


@pytest.mark.parametrize(
    "lengths",
    [(10, 10), (1, 1, 1, 1), (0, 10), (10, 0, 10), (10, 0), (0, 0, 5, 0), (30, 1, 30), (64, 64, 64)],
    ids=str,
)
def test_bytes_are_read_across_every_shape_of_chain(lengths, pool, cache):
    handle, data = chained(cache, *lengths)
    buffer = np.zeros(256, np.uint8)
    edges = sorted({0, len(data), *itertools.accumulate(lengths), *(e + 1 for e in itertools.accumulate(lengths))})
    with PacketView(pool, cache, handle) as view:
        for start, end in itertools.combinations_with_replacement([e for e in edges if e <= len(data)], 2):
            assert view.read(start, end - start).tobytes() == data[start:end]
            at = read(handle, start, end - start, buffer.ctypes.data)
            if at == buffer.ctypes.data:
                assert any(start < edge < end for edge in itertools.accumulate(lengths)), "it lies in two segments"


def test_external_memory_is_let_go_of_once_when_its_last_user_goes(pool, cache):
    gone = []
    memory = bytearray(some(100))
    external = ExternalBuffer(memory, lambda: gone.append(1))
    view = PacketView.alloc(pool, cache)
    view.attach(external)
    assert (bytes(view), view.shows, external.users, view.headroom, view.tailroom) == (some(100), "external", 1, 0, 0)
    shown = view.clone()
    assert (shown.shows, external.users) == ("external", 2), "a clone shares the record, not the packet"
    assert view.refcnt == 1
    external.release()
    view.detach()
    assert (view.shows, len(view), view.headroom, view.record.capacity, gone) == ("own", 0, HEADROOM, CAPACITY, [])
    assert bytes(shown) == some(100)
    shown.free()
    assert gone == [1]
    memory.append(1)
    view.free()


def test_the_record_of_external_memory_fits_at_its_aligned_end():
    for address, size in itertools.product((0x10000, 0x10001, 0x10007), range(1, 80)):
        record = place_external(address, size)
        if record:
            assert record % 8 == 0 and address < record <= address + size - External.size < record + 8
        else:
            assert size < External.size + 9
    assert place_external(0x10000, External.size + 8) == 0x10008


def test_a_record_inside_its_memory_serves_kernels_alone(pool, cache):
    memory = np.zeros(200, np.uint8)
    address = memory.ctypes.data
    record = place_external(address, 200)
    init_external(record, 0, 0)
    handle = take(cache, 0)
    for capacity in (0, -1, 1 << 32):
        assert not attach_external(handle, record, address, capacity)
    assert not attach_external(handle, 0, address, 100)
    assert attach_external(handle, record, address, record - address)
    assert not attach_external(handle, record, address, record - address)
    assert External.at(record).refcnt == 2
    free_segments(cache, handle)
    assert External.at(record).refcnt == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_segments_and_next_are_reset_in_whatever_order_parts_are_freed(order, pool, cache):
    original, _ = chained(cache, 10, 20, 30)
    first = clone(cache, original)
    tail = clone(cache, original)
    extra = take(cache, 5)
    assert chain(tail, extra)
    packets = [original, first, tail]
    for i in order:
        free_segments(cache, packets[i])
    assert pool.whole
    for handle in bulk(cache, SIZE):
        p = Packet.at(handle)
        assert (p.refcnt, p.segments, p.next, p.flags & (INDIRECT | EXTERNAL)) == (1, 1, 0, 0)
        assert (p.buffer, p.capacity) == (handle + Packet.size, CAPACITY)
        free_segment(cache, handle)


@pytest.mark.parametrize("how", [free_segments, free_segment, give], ids=["packet", "segment", "list"])
def test_a_head_that_was_cut_off_its_chain_by_hand_rests_all_the_same(how, pool, cache):
    handle, _ = chained(cache, 10, 20)
    p = Packet.at(handle)
    rest, p.next = p.next, 0
    how(cache, handle)
    assert (p.segments, p.next) == (1, 0)
    how(cache, rest)


def test_counts_of_holds_are_read_and_set_and_segments_told(pool, cache):
    handle, chained_one = take(cache, 1), take(cache, ROOM + 1)
    assert is_contiguous(handle) and not is_contiguous(chained_one)
    free_segments(cache, chained_one)
    assert refcnt(handle) == 1
    assert update_refcnt(handle, 4) == 5
    assert update_refcnt(handle, -3) == refcnt(handle) == 2
    set_refcnt(handle, 1)
    assert update_refcnt(handle, 0) == 1
    free_segments(cache, handle)
