"""Packets against the bytes they should hold: every way to grow, cut, join and copy them, within their bounds."""

import ctypes

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wirespeed.core import packet
from wirespeed.core.chain import alloc_length, copy_in, linearize
from wirespeed.core.free import free_segments
from wirespeed.core.packet import HEADROOM, MARKED, Packet, copy_out
from wirespeed.core.packet_pool import PacketPool
from wirespeed.jit.kernel import kernel

ROOM = 64


@kernel
def take(cache, length):
    return alloc_length(cache, length)


@kernel
def prepend(handle, size):
    return packet.prepend(handle, size)


@kernel
def append(handle, size):
    return packet.append(handle, size)


@kernel
def adjust(handle, size):
    return packet.adjust(handle, size)


@kernel
def trim(handle, size):
    return packet.trim(handle, size)


@kernel
def chain(head, tail):
    return packet.chain(head, tail)


@kernel
def rooms(handle):
    p = Packet(handle)
    return packet.headroom(p), packet.tailroom(p), packet.data(p), packet.last(handle)


@kernel
def mark(handle, value):
    before = packet.mark(Packet(handle))
    packet.set_mark(Packet(handle), value)
    return before, packet.mark(Packet(handle))


def segments(handle):
    """The handles of a chain."""
    found = []
    while handle:
        found.append(handle)
        handle = Packet.at(handle).next
    return found


def content(handle):
    """The bytes of a packet, by its record alone."""
    return b"".join(
        ctypes.string_at(p.buffer + p.data, p.length) for p in (Packet.at(segment) for segment in segments(handle))
    )


def fill(handle, data):
    """Write all bytes of a packet."""
    for segment in segments(handle):
        p = Packet.at(segment)
        ctypes.memmove(p.buffer + p.data, data[: p.length], p.length)
        data = data[p.length :]


class Bytes(RuleBasedStateMachine):
    """One packet against a list of bytes, one for each segment; each knows what lies before and behind it."""

    @initialize(length=st.integers(0, 4 * (ROOM + HEADROOM)))
    def begin(self, length):
        self.pool = PacketPool(40, HEADROOM + ROOM)
        self.cache = self.pool.cache()
        self.serial = 0
        self.handle = self.new(length)
        self.model = self.split(self.handle)

    def new(self, length):
        handle = take(self.cache, length)
        fill(handle, self.some(length))
        return handle

    def some(self, n):
        """``n`` bytes that do not repeat soon."""
        self.serial += n
        return bytes((self.serial + 7 * i) & 0xFF for i in range(n))

    @staticmethod
    def split(handle):
        return [bytearray(ctypes.string_at(Packet.at(s).buffer + Packet.at(s).data, Packet.at(s).length))
                for s in segments(handle)]  # fmt: skip

    def room(self, segment):
        """Bytes before and behind the data of a segment of the model."""
        p = Packet.at(segments(self.handle)[segment])
        return p.data, p.capacity - p.data - p.length

    @rule(size=st.integers(-3, HEADROOM + 40))
    def prepend(self, size):
        fits = 0 <= size <= self.room(0)[0]
        assert prepend(self.handle, size) == fits
        if fits:
            data = self.some(size)
            p = Packet.at(self.handle)
            ctypes.memmove(p.buffer + p.data, data, size)
            self.model[0][:0] = data

    @rule(size=st.integers(-3, ROOM + 80))
    def append(self, size):
        fits = 0 <= size <= self.room(-1)[1]
        assert append(self.handle, size) == fits
        if fits:
            data = self.some(size)
            p = Packet.at(segments(self.handle)[-1])
            ctypes.memmove(p.buffer + p.data + p.length - size, data, size)
            self.model[-1] += data

    @rule(size=st.integers(-3, 80))
    def adjust(self, size):
        fits = 0 <= size <= len(self.model[0])
        assert adjust(self.handle, size) == fits
        if fits:
            del self.model[0][:size]

    @rule(size=st.integers(-3, 80))
    def trim(self, size):
        fits = 0 <= size <= len(self.model[-1])
        assert trim(self.handle, size) == fits
        if fits:
            del self.model[-1][len(self.model[-1]) - size :]

    @precondition(lambda self: len(self.model) < 8)
    @rule(length=st.integers(0, 2 * (ROOM + HEADROOM)))
    def chain(self, length):
        tail = self.new(length)
        more = self.split(tail)
        assert chain(self.handle, tail)
        self.model += more

    @rule()
    def linearize(self):
        total = sum(map(len, self.model))
        fits = len(self.model) == 1 or total <= HEADROOM + ROOM
        assert linearize(self.cache, self.handle) == fits
        if fits:
            self.model = [bytearray(b"".join(self.model))]

    @rule(offset=st.integers(0, 700), size=st.integers(0, 700))
    def copy_out(self, offset, size):
        whole = b"".join(self.model)
        out = np.full(size + 1, 0xEE, np.uint8)
        assert copy_out(self.handle, offset, size, out.ctypes.data) == len(whole[offset : offset + size])
        assert out.tobytes() == whole[offset : offset + size].ljust(size + 1, b"\xee")

    @rule(offset=st.integers(0, 700), size=st.integers(0, 700))
    def copy_in(self, offset, size):
        data = np.frombuffer(self.some(size) + b"\0", np.uint8)
        done = copy_in(self.handle, offset, size, data.ctypes.data)
        whole = bytearray(b"".join(self.model))
        assert done == len(whole[offset : offset + size])
        whole[offset : offset + done] = data[:done].tobytes()
        for segment in self.model:
            segment[:] = whole[: len(segment)]
            del whole[: len(segment)]

    @invariant()
    def the_packet_is_the_model(self):
        if hasattr(self, "pool"):
            p = Packet.at(self.handle)
            assert self.split(self.handle) == self.model
            assert (p.total, p.segments) == (sum(map(len, self.model)), len(self.model))
            headroom, tailroom, data, last = rooms(self.handle)
            assert (headroom, tailroom) == self.room(0)
            assert (data, last) == (p.buffer + p.data, segments(self.handle)[-1])
            for segment in segments(self.handle):
                q = Packet.at(segment)
                assert q.data + q.length <= q.capacity == HEADROOM + ROOM

    def teardown(self):
        if hasattr(self, "pool"):
            free_segments(self.cache, self.handle)
            assert self.pool.close() == 0


TestBytes = Bytes.TestCase


def test_chains_that_would_overflow_are_not_made():
    with PacketPool(4, HEADROOM + ROOM) as pool:
        cache = pool.cache()
        head, tail = take(cache, 10), take(cache, 10)
        for name, value in (("segments", 0xFFFF), ("total", 0xFFFFFFFF)):
            before = getattr(Packet.at(head), name)
            setattr(Packet.at(head), name, value)
            assert not chain(head, tail)
            assert (Packet.at(head).next, Packet.at(tail).total) == (0, 10)
            setattr(Packet.at(head), name, before)
        free_segments(cache, head)
        free_segments(cache, tail)


def test_a_mark_reads_as_zero_until_it_is_set_whatever_the_packet_had_before():
    with PacketPool(1, HEADROOM + ROOM) as pool:
        cache = pool.cache()
        for value in (7, 8):
            handle = take(cache, 10)
            assert mark(handle, value) == (0, value)
            assert Packet.at(handle).flags & MARKED
            free_segments(cache, handle)


def test_the_record_is_two_cache_lines_and_what_ports_touch_is_in_the_first():
    assert Packet.size == 128
    hot = [
        "buffer",
        "next",
        "pool",
        "time",
        "data",
        "length",
        "total",
        "wire",
        "refcnt",
        "segments",
        "port",
        "flags",
        "link",
    ]
    assert all(Packet.offset(name) + Packet.fields[name].size <= 64 for name in hot)
