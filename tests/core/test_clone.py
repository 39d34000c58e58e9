"""Packets that show each other's bytes, against a model that counts who holds which segment and whose bytes it shows."""

import ctypes
import itertools

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.core.test_packet import ROOM, adjust, chain, content, segments, take, trim
from wirespeed.core.chain import linearize
from wirespeed.core.clone import attach, clone, copy_packet, detach
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.free import free_mixed, free_segment, free_segments, hold
from wirespeed.core.packet import EXTERNAL, HEADROOM, INDIRECT, META, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.sanity import why

CAPACITY = HEADROOM + ROOM
NAMES = ("buffer", "next", "data", "length", "refcnt", "segments", "flags", "attached")
PARTS = [(Packet.offset(name), Packet.offset(name) + Packet.fields[name].size) for name in NAMES]


def look(handle):
    """The fields NAMES of a packet; read without a Record, for that takes most of a test's time."""
    raw = ctypes.string_at(handle, Packet.size)
    return [int.from_bytes(raw[start:end], "little") for start, end in PARTS]


class Memory:
    """Bytes that somebody gave; ``users`` counts who shows them, the giver included."""

    def __init__(self, size):
        self.store = bytearray(np.random.default_rng(size).bytes(size))
        self.users, self.gone = 1, 0
        self.external = ExternalBuffer(self.store, self.count)

    def count(self):
        self.gone += 1


class Segment:
    """One segment that is out of its pool: how many hold it, whose store it shows from where to where."""

    def __init__(self, handle, pool, start, end, capacity=CAPACITY):
        self.handle, self.pool, self.holds = handle, pool, 1
        self.own = bytearray(capacity)
        self.shows, self.store, self.start, self.end = None, self.own, start, end

    @property
    def data(self):
        return bytes(self.store[self.start : self.end])


class Model:
    """A packet: its segments, and how often it is held as a whole."""

    def __init__(self, parts):
        self.parts, self.holds = parts, 1

    @property
    def data(self):
        return b"".join(part.data for part in self.parts)


class Sharing(RuleBasedStateMachine):
    """Two pools and some external memory; each packet's bytes, each segment's holds and each pool's count are known."""

    @initialize()
    def begin(self):
        self.pools = [PacketPool(14, CAPACITY) for _ in range(2)]
        self.caches = [pool.cache(6) for pool in self.pools]
        self.out = set()  # segments that are not in a pool
        self.packets = {}  # by the head's handle
        self.memories = []
        self.serial = 0

    def left(self, which):
        return 14 - sum(part.pool == which for part in self.out)

    def pick(self, data, wanted=lambda model: True):
        """One of the packets that are as wanted, or None."""
        fitting = sorted(handle for handle, model in self.packets.items() if wanted(model))
        return self.packets[data.draw(st.sampled_from(fitting))] if fitting else None

    def add(self, handle, parts):
        self.out |= set(parts)
        self.packets[handle] = Model(parts)

    def made(self, which, length):
        """The model's segments of a new packet of that many bytes, as ``alloc_length`` makes it."""
        lengths = [min(length, ROOM)]
        while sum(lengths) < length:
            lengths.append(min(length - sum(lengths), CAPACITY))
        starts = [HEADROOM] + [0] * (len(lengths) - 1)
        return [Segment(0, which, start, start + size) for start, size in zip(starts, lengths, strict=True)]

    def put(self, handle, parts):
        """Take over a packet that was made, and write bytes of the model's into it when it has its own."""
        assert len(segments(handle)) == len(parts)
        for segment, part in zip(segments(handle), parts, strict=True):
            part.handle = segment
        self.add(handle, parts)

    @rule(which=st.integers(0, 1), length=st.integers(0, 3 * CAPACITY))
    def alloc(self, which, length):
        parts = self.made(which, length)
        handle = take(self.caches[which], length)
        assert (handle != 0) == (len(parts) <= self.left(which))
        if handle:
            self.put(handle, parts)
            for part in parts:
                self.serial += 1
                part.own[:] = bytes((self.serial + 5 * i) & 0xFF for i in range(CAPACITY))
                ctypes.memmove(Packet.at(part.handle).buffer, bytes(part.own), CAPACITY)

    @rule(which=st.integers(0, 1), size=st.integers(1, 300), data=st.data())
    def show_external(self, which, size, data):
        idle = [memory for memory in self.memories if memory.users]
        memory = data.draw(st.sampled_from(idle)) if idle and data.draw(st.booleans()) else Memory(size)
        if not memory.external._end.alive or not self.left(which):
            return
        if memory not in self.memories:
            self.memories.append(memory)
        handle = take(self.caches[which], 0)
        (part,) = self.made(which, 0)
        self.put(handle, [part])
        memory.external.attach(handle)
        p = Packet.at(handle)
        p.length = p.total = len(memory.store)
        part.shows, part.store, part.start, part.end = memory, memory.store, 0, len(memory.store)
        memory.users += 1

    @precondition(lambda self: any(memory.external._end.alive for memory in self.memories))
    @rule(data=st.data())
    def let_go_of_memory(self, data):
        memory = data.draw(st.sampled_from([memory for memory in self.memories if memory.external._end.alive]))
        memory.external.release()
        memory.users -= 1

    def show(self, part, other):
        """The segment ``part`` shows what ``other`` does."""
        owner = other.shows or other
        part.shows, part.store, part.start, part.end = owner, other.store, other.start, other.end
        if isinstance(owner, Memory):
            owner.users += 1
        else:
            owner.holds += 1

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), data=st.data())
    def clone(self, which, data):
        source = self.pick(data)
        handle = clone(self.caches[which], source.parts[0].handle)
        assert (handle != 0) == (len(source.parts) <= self.left(which))
        if handle:
            parts = [Segment(0, which, 0, 0) for _ in source.parts]
            for part, other in zip(parts, source.parts, strict=True):
                self.show(part, other)
            self.put(handle, parts)

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), fresh=st.booleans(), data=st.data())
    def attach(self, which, fresh, data):
        other = self.pick(data)
        if fresh and self.left(which):
            handle = take(self.caches[which], 0)
            self.put(handle, self.made(which, 0))
            model = self.packets[handle]
        else:
            model = self.pick(data, lambda model: model.holds == 1)
        if model is None:
            return
        (part, *rest), to = model.parts, other.parts[0]
        fits = not rest and part.shows is None and part.holds == 1 and part is not to
        assert attach(part.handle, to.handle) == fits
        if fits:
            self.show(part, to)

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), data=st.data())
    def detach(self, which, data):
        model = self.pick(data, lambda model: model.holds == 1)
        if model is None:
            return
        part = model.parts[0]
        shown = part.shows
        assert detach(self.caches[which], part.handle) == (shown is not None)
        if shown:
            part.shows, part.store, part.start, part.end = None, part.own, HEADROOM, HEADROOM
            self.give_up(shown)

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), offset=st.integers(-1, 400), length=st.integers(-1, 400), data=st.data())
    def copy(self, which, offset, length, data):
        source = self.pick(data)
        wanted = source.data[max(offset, 0) :][: max(length, 0)]
        parts = self.made(which, len(wanted))
        can = 0 <= offset < len(source.data) and length >= 0 and len(parts) <= self.left(which)
        handle = copy_packet(self.caches[which], source.parts[0].handle, offset, length)
        assert (handle != 0) == can
        if handle:
            self.put(handle, parts)
            for part in parts:
                part.own[part.start : part.end] = wanted[: part.end - part.start]
                wanted = wanted[part.end - part.start :]

    @precondition(lambda self: sum(model.holds == 1 for model in self.packets.values()) > 1)
    @rule(data=st.data())
    def chain(self, data):
        head, tail = (self.pick(data, lambda model: model.holds == 1) for _ in range(2))
        if head is not None and head is not tail and len(head.parts) + len(tail.parts) < 8:
            assert chain(head.parts[0].handle, tail.parts[0].handle)
            del self.packets[tail.parts[0].handle]
            head.parts += tail.parts

    @precondition(lambda self: self.packets)
    @rule(front=st.booleans(), size=st.integers(0, 80), data=st.data())
    def cut(self, front, size, data):
        model = self.pick(data, lambda model: model.holds == 1)
        if model is None:
            return
        part = model.parts[0 if front else -1]
        fits = size <= part.end - part.start
        assert (adjust if front else trim)(model.parts[0].handle, size) == fits
        if fits and front:
            part.start += size
        elif fits:
            part.end -= size

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), data=st.data())
    def linearize(self, which, data):
        model = self.pick(data, lambda model: model.holds == 1)
        if model is None:
            return
        first, *rest = model.parts
        whole = model.data
        fits = not rest or (len(whole) <= CAPACITY and first.shows is None and first.holds == 1)
        assert linearize(self.caches[which], first.handle) == fits
        if fits and rest:
            if first.start + len(whole) > CAPACITY:
                first.start = 0
            first.end = first.start + len(whole)
            first.own[first.start : first.end] = whole
            model.parts = [first]
            for part in rest:
                self.give_up(part)

    @precondition(lambda self: self.packets)
    @rule(data=st.data())
    def hold(self, data):
        model = self.pick(data)
        hold(model.parts[0].handle)
        model.holds += 1
        for part in model.parts:
            part.holds += 1

    def give_up(self, shown):
        """One hold of a segment or memory less; the last one goes on to what that shows."""
        if isinstance(shown, Memory):
            shown.users -= 1
            return
        shown.holds -= 1
        if not shown.holds:
            self.out.remove(shown)
            if shown.shows:
                self.give_up(shown.shows)

    def freed(self, model):
        model.holds -= 1
        if not model.holds:
            del self.packets[model.parts[0].handle]
        for part in model.parts:
            self.give_up(part)

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), data=st.data())
    def free(self, which, data):
        model = self.pick(data)
        free_segments(self.caches[which], model.parts[0].handle)
        self.freed(model)

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), data=st.data())
    def free_list(self, which, data):
        heads = data.draw(st.lists(st.sampled_from(sorted(self.packets)), max_size=6, unique=True))
        listed = data.draw(st.permutations([*heads, 0]))
        array = np.array(listed, np.int64)
        free_mixed(self.caches[which], array.ctypes.data, len(listed))
        for handle in heads:
            self.freed(self.packets[handle])

    @precondition(lambda self: self.packets)
    @rule(which=st.integers(0, 1), data=st.data())
    def free_by_segments(self, which, data):
        model = self.pick(data, lambda model: model.holds == 1)
        if model is not None:
            for part in data.draw(st.permutations(model.parts)):
                free_segment(self.caches[which], part.handle)
            self.freed(model)

    @invariant()
    def all_is_as_the_model_says(self):
        if not hasattr(self, "pools"):
            return
        for which, pool in enumerate(self.pools):
            assert pool.free_count == self.left(which)
        for part in self.out:
            buffer, _, start, length, refcnt, _, flags, attached = look(part.handle)
            kind = EXTERNAL if isinstance(part.shows, Memory) else INDIRECT if part.shows else 0
            assert (refcnt, flags & (EXTERNAL | INDIRECT)) == (part.holds, kind)
            assert kind != INDIRECT or attached == part.shows.handle
            assert kind or buffer == part.handle + Packet.size
            assert ctypes.string_at(buffer + start, length) == part.data
        for handle, model in self.packets.items():
            assert why(handle) == ""
            assert look(handle)[NAMES.index("segments")] == len(model.parts)
            for part, following in itertools.zip_longest(model.parts, model.parts[1:]):
                assert look(part.handle)[1] == (following.handle if following else 0)
        for memory in self.memories:
            assert memory.gone == (memory.users == 0)

    def teardown(self):
        if hasattr(self, "pools"):
            for model in list(self.packets.values()):
                for _ in range(model.holds):
                    free_segments(self.caches[0], model.parts[0].handle)
                    self.freed(model)
            assert not self.out
            assert all(pool.whole for pool in self.pools)
            for memory in self.memories:
                memory.external.release()
                assert memory.gone == 1
            for pool, cache in zip(self.pools, self.caches, strict=True):
                handles = [take(cache, 0) for _ in range(14)]
                assert {Packet.at(handle).buffer - handle for handle in handles} == {Packet.size}
                assert {Packet.at(handle).capacity for handle in handles} == {CAPACITY}
                for handle in handles:
                    free_segments(cache, handle)
                assert pool.close() == 0


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=2 * settings().max_examples)


def test_a_clone_that_the_pool_has_too_few_packets_for_takes_nothing():
    with PacketPool(7, CAPACITY) as pool:
        cache = pool.cache()
        handle = take(cache, ROOM + 3 * CAPACITY)
        assert pool.free_count == 3
        assert clone(cache, handle) == 0
        assert (pool.free_count, pool.failures) == (3, 1)
        assert {Packet.at(segment).refcnt for segment in segments(handle)} == {1}
        assert copy_packet(cache, handle, 0, ROOM + 3 * CAPACITY) == 0
        assert pool.free_count == 3
        free_segments(cache, handle)
        assert pool.whole


def test_options_stay_with_the_packet_and_are_freed_when_its_last_clone_goes():
    with PacketPool(8, CAPACITY) as pool:
        cache = pool.cache()
        handle, options = take(cache, 10), take(cache, 20)
        Packet.at(handle).meta, Packet.at(handle).flags = options, META
        shown, copied = clone(cache, handle), copy_packet(cache, handle, 0, 10)
        assert Packet.at(shown).flags & META == Packet.at(copied).flags & META == 0
        for packet in (copied, handle):
            free_segments(cache, packet)
        assert pool.free_count == 8 - 3
        free_segments(cache, shown)
        assert pool.whole


def test_a_copy_of_a_part_is_not_larger_than_what_is_left_whatever_length_is_asked_for():
    with PacketPool(8, CAPACITY) as pool:
        cache = pool.cache()
        handle = take(cache, 300)
        whole = content(handle)
        for offset in (0, 1, 299):
            for length in (300 - offset, 301, (1 << 32) - 1, (1 << 63) - 1):
                copied = copy_packet(cache, handle, offset, length)
                assert content(copied) == whole[offset:]
                free_segments(cache, copied)
        for offset, length in (((1 << 63) - 1, 5), (-(1 << 63), 5), (0, -1), (0, -(1 << 63)), (300, 0)):
            assert copy_packet(cache, handle, offset, length) == 0
        free_segments(cache, handle)
        assert pool.whole
