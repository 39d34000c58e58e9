"""The ring's geometry, what a damaged ring does to the receiving stage, and counters that the kernel lets wrap."""

from collections.abc import Iterator

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
from wirespeed.ports.packet.receive import DROPS, PIECES, Piece, State
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

    def __init__(self) -> None:
        self.arena = Arena(1 << 20)
        self.pool = PacketPool(256)
        self.cache = self.pool.open_cache()
        self.geometry = Geometry.of(SLOTS, 2000)
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
        packets = [Packet.at(h) for h in handles.tolist()]
        found = [copy_out(p.buffer + p.data, p.length) for p in packets]
        self.cache.free(handles)
        return found

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


def test_packets_on_their_way_out_are_passed_over_without_a_trace(kernel: Kernel) -> None:
    for n in range(32):
        kernel.fill(n, bytes([n]) * 60, pkttype=OUTGOING if n % 2 else n % 4)
    assert kernel.receive() == [bytes([n]) * 60 for n in range(0, 32, 2)]
    assert kernel.drops() == {}


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


class Counting:
    """A socket of which the kernel tells what it is given."""

    def __init__(self, *told: tuple[int, int]) -> None:
        self.told = list(told)

    def counts(self) -> tuple[int, int]:
        return self.told.pop(0)


def test_counters_go_on_where_those_of_the_kernel_would_wrap() -> None:
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
