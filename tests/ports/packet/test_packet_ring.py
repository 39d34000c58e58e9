"""The ring's geometry, what a damaged ring does to the receiving stage, and counters that the kernel lets wrap."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed as ws
from wirespeed.core.arena import Arena
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.stage import COMMON_DROPS, Outbox
from wirespeed.errors import GraphError
from wirespeed.jit.libc import copy_in, copy_out
from wirespeed.ports.packet import receive
from wirespeed.ports.packet.clock import ETHTOOL_GET_TS_INFO, has_clock
from wirespeed.ports.packet.receive import DROPS, PIECES, Piece, State
from wirespeed.ports.packet.ring_size import fitting_slots, receiving_ring
from wirespeed.ports.packet.slots import COPY, OUTGOING, USER, VLAN_VALID, Geometry, Slot
from wirespeed.ports.packet.statistics import Statistics

SLOTS, FRAME_AT = 64, 128
REASONS = [*COMMON_DROPS, *DROPS]


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 17))
def test_a_ring_is_whole_pages_of_even_slots_of_an_odd_multiple(slots: int, size: int) -> None:
    ring = Geometry.of(slots, size)
    block, blocks, frame, frames = np.frombuffer(ring.request(), "=u4").tolist()
    assert (frame, frames) == (ring.size, ring.slots) and ring.size >= size and ring.slots >= slots
    assert block % 4096 == 0 and frame % 64 == 0 and frame // 64 % 2 == 1
    assert block // frame * blocks == frames and block * blocks == ring.memory
    assert ring.size < size + 128 and ring.slots < slots + 64


class Kernel:
    """A ring in memory of ours, filled as the kernel does or as it would not, and the state of a stage that reads it."""

    def __init__(self, slot: int = 2000, pool: int = 256) -> None:
        self.arena = Arena(1 << 21)
        self.pool = PacketPool(pool)
        self.cache = self.pool.open_cache()
        self.geometry = Geometry.of(SLOTS, slot)
        self.ring = self.arena.alloc(self.geometry.memory, 4096)
        self.address = self.arena.alloc(State.size)
        self.reasons = self.arena.alloc(8 * len(REASONS))
        self.burst = self.arena.alloc(8 * 32)
        state = self.state = State.at(self.address)
        state.head.cache, state.head.reasons, state.head.drops = self.cache.address, self.reasons, self.arena.alloc(64)
        Outbox.at(state.head.drops).capacity = 0
        state.place.ring = state.place.next_ring = self.ring
        state.slots, state.slot_size = self.geometry.slots, self.geometry.size
        state.room, state.snaplen, state.skip = self.pool.room - HEADROOM, 1 << 20, 1 << OUTGOING
        state.link, state.fd, state.offloads = 1, -1, 1
        state.pieces = self.arena.alloc(Piece.size * PIECES)

    def fill(self, number: int, data: bytes, *, header: bytes = bytes(10), **fields: int) -> None:
        """Fill a slot; ``fields`` are written last."""
        at = self.ring + self.geometry.size * (number % SLOTS)
        slot = Slot.at(at)
        slot.mac, slot.len, slot.snaplen, slot.pkttype, slot.sec, slot.nsec = FRAME_AT, len(data), len(data), 0, 1, 2
        copy_in(at + FRAME_AT - len(header), header + data)
        slot.status = USER
        for name, value in fields.items():
            setattr(slot, name, value)

    def receive(self, n: int = 32) -> list[bytes]:
        """What the stage gives; all slots that it passed are the kernel's again."""
        got = receive.receive(self.address, self.burst, n)
        handles = np.array([self.arena_word(self.burst + 8 * i) for i in range(got)], np.int64)
        found = [self.bytes_of(handle) for handle in handles.tolist()]
        self.cache.free(handles)
        return found

    def bytes_of(self, handle: int) -> bytes:
        """The bytes of a packet, over all of its segments."""
        found = b""
        while handle:
            p = Packet.at(handle)
            found += copy_out(p.buffer + p.data, p.length)
            handle = p.next
        return found

    def receive_until(self, enough: Callable[[list[bytes]], bool]) -> list[bytes]:
        """What calls give one after the other until it is enough; what it is after ten seconds in any case."""
        got: list[bytes] = []
        end = time.monotonic() + 10.0
        while not enough(got) and time.monotonic() < end:
            got += self.receive()
        return got

    def arena_word(self, at: int) -> int:
        return int(Outbox.at(at).address)

    def drops(self) -> dict[str, int]:
        """Drops by reason."""
        counts = [self.arena_word(self.reasons + 8 * i) for i in range(len(REASONS))]
        return {reason: n for reason, n in zip(REASONS, counts, strict=True) if n}

    def close(self) -> None:
        self.cache.close()
        assert self.pool.free_count == self.pool.size
        self.pool.close()
        self.arena.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.close()


def test_slots_are_read_in_order_over_the_end_of_the_ring(kernel: Kernel) -> None:
    for round in range(10):
        sent = [bytes([round, n]) * (30 + n) for n in range(50)]
        for n, each in enumerate(sent):
            kernel.fill(50 * round + n, each)
        assert kernel.receive() + kernel.receive() + kernel.receive() == sent
    assert kernel.drops() == {} and kernel.state.head.bytes == 10 * sum(2 * (30 + n) for n in range(50))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mac": 0}, {"mac": 61}, {"mac": 65535}, {"mac": 2100}, {"snaplen": 3000, "len": 3000}, {"snaplen": 0xFFFFFFFF},
        {"len": 0xFFFFFFFF, "snaplen": 0xFFFFFFFF}, {"snaplen": 65}, {"len": 0, "snaplen": 0}, {"len": 10},
    ],
    ids=str,
)  # fmt: skip
def test_a_slot_that_says_what_cannot_be_is_malformed_and_the_next_is_read(
    kernel: Kernel, wrong: dict[str, int]
) -> None:
    for status in (USER, USER | COPY, USER | VLAN_VALID):
        before = kernel.drops().get("malformed", 0)
        at = int(kernel.state.place.at)
        kernel.fill(at, bytes(64), **wrong, status=status)
        kernel.fill(at + 1, b"next" * 20)
        assert kernel.receive() == [b"next" * 20]
        assert kernel.drops() == {"malformed": before + 1}


def test_a_frame_that_the_kernel_cut_is_dropped_as_such(kernel: Kernel) -> None:
    kernel.fill(0, bytes(100), len=5000)
    kernel.fill(1, bytes(100), len=5000, status=USER | COPY)  # and the socket, which is closed, has no copy
    kernel.fill(2, b"whole" * 20)
    assert kernel.receive() == [b"whole" * 20]
    assert kernel.drops() == {"cut": 2}


def test_packets_on_their_way_out_are_passed_over_and_no_drop(kernel: Kernel) -> None:
    for n in range(32):
        kernel.fill(n, bytes([n]) * 60, pkttype=OUTGOING if n % 2 else n % 4)
    assert kernel.receive() == [bytes([n]) * 60 for n in range(0, 32, 2)]
    assert kernel.drops() == {} and kernel.state.skipped == 16


def test_a_header_that_fits_no_packet_is_counted_and_the_frame_given(kernel: Kernel) -> None:
    kernel.fill(0, bytes(60), header=bytes.fromhex("01 00 0000 0000 ffff ffff".replace(" ", "")))
    kernel.fill(1, bytes(61), header=bytes.fromhex("01 01 0000 6400 2200 1000".replace(" ", "")))
    assert kernel.receive() == [bytes(60), bytes(61)]
    assert kernel.state.bad_offload == 2


def test_an_empty_pool_leaves_the_slots_as_they_are(kernel: Kernel) -> None:
    held = kernel.cache.alloc(256)
    kernel.fill(0, b"wait" * 16)
    assert kernel.receive() == []
    kernel.cache.free(held)
    assert kernel.receive() == [b"wait" * 16]


@pytest.fixture
def small() -> Iterator[Kernel]:
    """A pool of 8, whose slots have frames of up to five of its packets."""
    made = Kernel(slot=10_000, pool=8)
    yield made
    made.close()


def long_frame(number: int, size: int = 8000) -> bytes:
    return bytes((number + i) & 0xFF for i in range(size))


def test_a_long_frame_does_not_wait_for_packets_that_its_own_burst_has(small: Kernel) -> None:
    sent = [long_frame(0), *(bytes([n]) * 60 for n in range(1, 7)), long_frame(7), long_frame(8), b"last" * 20]
    for number, each in enumerate(sent):
        small.fill(number, each)
    assert small.receive_until(lambda got: len(got) == len(sent)) == sent
    assert small.drops() == {}


def test_a_long_frame_may_have_every_packet_of_the_pool(small: Kernel) -> None:
    whole = long_frame(0, small.pool.room * 4)
    held = small.cache.alloc(3)
    for number, each in enumerate([whole, b"next" * 20]):
        small.fill(number, each)
    assert small.receive_until(lambda got: len(got) == 2) == [whole, b"next" * 20]
    assert small.drops() == {}
    small.cache.free(held)


def test_a_long_frame_waits_for_packets_a_while_and_then_those_behind_it_come_to_their_turn(small: Kernel) -> None:
    held = small.cache.alloc(6)  # as another port does, for good
    shorts = [bytes([n]) * 60 for n in range(4)]
    for number, each in enumerate([long_frame(0), *shorts[:2], long_frame(1), *shorts[2:]]):
        small.fill(number, each)
    assert small.receive() == [] and small.drops() == {}
    assert small.receive_until(lambda got: len(got) == 4) == shorts
    assert small.drops() == {"no_packet": 2}
    small.cache.free(held)
    small.fill(6, long_frame(2))
    assert small.receive_until(lambda got: len(got) == 1) == [long_frame(2)]
    assert small.drops() == {"no_packet": 2}


def test_a_long_frame_whose_packets_come_back_in_time_is_given(small: Kernel) -> None:
    held = small.cache.alloc(6)
    small.fill(0, long_frame(0))
    assert small.receive() == []
    small.cache.free(held)
    assert small.receive_until(lambda got: len(got) == 1) == [long_frame(0)]
    assert small.drops() == {}


@pytest.mark.parametrize("status", [USER, USER | COPY], ids=["in the slot", "and in the buffer"])
def test_a_long_frame_of_which_nothing_comes_leaves_the_pool_whole(small: Kernel, status: int) -> None:
    for number in range(20):
        small.fill(2 * number, long_frame(number), len=9000, status=status)  # and the socket, which is closed, has none
        small.fill(2 * number + 1, bytes([number]) * 60)
    sent = [bytes([number]) * 60 for number in range(20)]
    assert small.receive_until(lambda got: len(got) == 20) == sent
    assert small.drops() == {"cut": 20}


def test_frames_that_nobody_read_are_counted_in_both_rings(kernel: Kernel) -> None:
    for number in range(SLOTS + 10):
        kernel.fill(number, b"read" * 20)
        if number < 10:
            kernel.receive()
    assert receive.unread(kernel.address) == SLOTS
    following = kernel.arena.alloc(kernel.geometry.memory, 4096)
    for number in range(3):
        Slot.at(following + number * kernel.geometry.size).status = USER
    kernel.state.place.next_ring = following
    assert receive.unread(kernel.address) == SLOTS + 3


@pytest.mark.parametrize(
    ("size", "workers", "memory", "slots"),
    [
        (1728, 1, 24 << 30, 16384),
        (1728, 2, 24 << 30, 16384),
        (1728, 16, 24 << 30, 7232),
        (1728, 1, 1 << 30, 4800),
        (1728, 8, 256 << 20, 256),
        (65728, 1, 24 << 30, 448),
        (65728, 16, 24 << 30, 256),
        (192, 1, 1 << 40, 16384),
    ],
)
def test_a_ring_has_as_many_slots_as_the_memory_bears(size: int, workers: int, memory: int, slots: int) -> None:
    assert fitting_slots(size, workers, memory) == slots
    assert Geometry.of(slots, size).slots == slots


@pytest.mark.parametrize(
    ("given", "settings"),
    [({}, 16384), ({"slots": 100}, 128), ({"slots": "20k"}, 20032), ({"slot": 60_000}, 512)],
    ids=["none", "few", "many", "large"],
)
def test_slots_are_as_many_as_the_user_says(given: dict[str, Any], settings: int) -> None:
    ring = receiving_ring(ws.port("packet:x", **given).settings, 1)
    assert ring.slots == settings


@pytest.mark.parametrize(
    ("kinds", "filters", "has"),
    [(0x5F, 0xFFFF, True), (0x44, 2, True), (0x44, 1, False), (0x44, 0, False), (0x04, 2, False), (0x18, 0, False)],
)
def test_a_clock_is_one_that_stamps_what_is_received(kinds: int, filters: int, has: bool) -> None:
    told = np.zeros(11, "=u4")
    told[[0, 1, 7]] = ETHTOOL_GET_TS_INFO, kinds, filters
    assert has_clock(told.tobytes()) == has


class Counting:
    """A socket of which the kernel tells what it is given."""

    def __init__(self, *told: tuple[int, int]) -> None:
        self.told = list(told)

    def counts(self) -> tuple[int, int]:
        return self.told.pop(0)


def test_case_16_counters_go_on_where_those_of_the_kernel_would_wrap() -> None:
    for start in ((1 << 31) - 5, (1 << 32) - 5):
        sums = Statistics(packets=start, drops=start)
        source = Counting((10, 7), ((1 << 32) - 1, 3), (0, 0))
        for _ in range(3):
            sums.read(source)  # type: ignore[arg-type]
        assert (sums.packets, sums.drops) == (start + 10 + (1 << 32) - 1, start + 10)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("packet:", "packet: names no interface; write packet:eth0"),
        ("packet:x,slots=1", "got '1', wanted a whole number from 64"),
        ("packet:x,direction=up", "wanted one of in, out, both"),
        ("packet:x,fanout=flow", "wanted one of hash, lb, cpu, rnd, qm, defrag"),
        ("packet:x,snaplen=0", "wanted a number of bytes from 1"),
        ("packet:x,promisc=maybe", "wanted yes or no"),
        ("packet:x,timestamps=sun", "wanted one of software, hardware"),
        ("packet:x,ring=3", "has no option 'ring'"),
    ],
)
def test_a_wrong_option_is_told(word: str, told: str) -> None:
    with pytest.raises(GraphError, match=told):
        ws.port(word)
