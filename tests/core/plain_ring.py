"""A ring over plain memory for tests: items are Python integers, written into every word of an item of any size.

The kernels take the sync, the size and whether all or nothing is wanted at run time, so each compiles once.
"""

import ctypes

import numpy as np

from wirespeed.core import peek, ring
from wirespeed.core.arena import Arena
from wirespeed.core.ring import HTS, MT, RTS, SLOTS, ST, Ring, init, size_of
from wirespeed.jit.kernel import kernel

i64 = np.int64
SYNCS = {"ST": ST, "MT": MT, "RTS": RTS, "HTS": HTS}
SIZES = [4, 8, 16, 20]
EDGES = [0, 1, (1 << 31) - 2, (1 << 32) - 1, (1 << 32) - 3, (1 << 32) - 40]  # where counters begin
PLAIN, PEEK, IN_PLACE = "plain", "peek", "in place"  # the ways to put and take
GUARD = 128
MARK = 0xA5


@kernel
def enqueue(at, items, n, size, exact, sync):
    return ring.enqueue_free(at, items, n, size, exact, sync)


@kernel
def dequeue(at, items, n, size, exact, sync):
    return ring.dequeue_used(at, items, n, size, exact, sync)


@kernel
def used(at):
    return ring.used(at)


@kernel
def enqueue_start(at, n, exact, sync):
    return peek.enqueue_start(at, n, exact, sync)


@kernel
def enqueue_finish(at, items, k, size):
    return peek.enqueue_finish(at, items, k, size)


@kernel
def enqueue_places(at, n, size, exact, sync):
    return peek.enqueue_places(at, n, size, exact, sync)


@kernel
def enqueue_commit(at, k):
    return peek.enqueue_commit(at, k)


@kernel
def dequeue_start(at, items, n, size, exact, sync):
    return peek.dequeue_start(at, items, n, size, exact, sync)


@kernel
def dequeue_places(at, n, size, exact, sync):
    return peek.dequeue_places(at, n, size, exact, sync)


@kernel
def dequeue_finish(at, k):
    return peek.dequeue_finish(at, k)


def encode(items, size):
    """Items as rows of 32-bit words, no two words of an item alike."""
    values = np.array([*items], np.uint32).reshape(-1, 1)
    return values + np.arange(size // 4, dtype=np.uint32) * np.uint32(0x01000193)


def decode(words, size):
    items = words.view(np.uint32).reshape(-1, size // 4)[:, 0].tolist()
    assert np.array_equal(words.view(np.uint32).reshape(-1, size // 4), encode(items, size)), "an item is torn"
    return items


class PlainRing:
    """A ring with marked memory around it; ``start`` and ``claims`` are where its counters begin.

    What calls hand over lies ``shift`` bytes off alignment, between marks.
    """

    def __init__(self, slots=8, capacity=None, *, size=8, prod=MT, cons=MT, start=0, claims=0, shift=0, limit=None):
        self.size, self.prod, self.cons, self.shift = size, prod, cons, shift
        bytes_ = size_of(slots, size)
        self.arena = Arena(bytes_ + 3 * GUARD, huge=False)
        self.address = self.arena.alloc(bytes_ + 2 * GUARD) + GUARD
        after = self.address + SLOTS + slots * size
        self.marked = [
            np.frombuffer((ctypes.c_uint8 * length).from_address(at), np.uint8)
            for at, length in ((self.address - GUARD, GUARD), (after, self.address + bytes_ + GUARD - after))
        ]
        for mark in self.marked:
            mark[:] = MARK
        init(self.address, slots, capacity)
        self.record = Ring.at(self.address)
        self.capacity = int(self.record.capacity)
        for end, sync in ((self.record.prod, prod), (self.record.cons, cons)):
            end.tail = end.position = start
            end.head = end.seen = claims if sync == RTS else start
            if limit is not None:
                end.limit = limit

    def counters(self):
        return [(e.word, e.begun) for e in (self.record.prod, self.record.cons)]

    def used(self):
        assert all((mark == MARK).all() for mark in self.marked), "something was written outside the ring"
        return used(self.address)

    def buffer(self, items=(), n=0):
        """Memory with items, or room for ``n``, and its address."""
        data = encode(items, self.size).tobytes() or bytes([MARK]) * (n * self.size)
        memory = np.frombuffer(bytearray([MARK] * self.shift + [*data] + [MARK] * GUARD), np.uint8)
        return memory, memory.ctypes.data + self.shift

    def items(self, memory, count):
        end = self.shift + count * self.size
        assert (memory[: self.shift] == MARK).all() and (memory[end:] == MARK).all(), "written beside the items"
        return decode(memory[self.shift : end].copy(), self.size)

    def enqueue(self, items, exact=True):
        """(How many, slots left free)."""
        _memory, at = self.buffer(items)
        return enqueue(self.address, at, len(items), self.size, exact, self.prod)

    def dequeue(self, n, exact=True):
        """(Items, how many remain)."""
        memory, at = self.buffer(n=n)
        count, left = dequeue(self.address, at, n, self.size, exact, self.cons)
        return self.items(memory, count), left

    def put(self, items, exact=True, way=PLAIN):
        """Put items in, in one of the ways; how many."""
        if way == PLAIN:
            return self.enqueue(items, exact)[0]
        if way == PEEK:
            count, _ = self.start(len(items), exact)
            return self.finish(items[:count])
        return self.commit(items[: self.places(len(items), exact)])

    def take(self, n, exact=True, way=PLAIN):
        """Take items out, in one of the ways."""
        if way == PLAIN:
            return self.dequeue(n, exact)[0]
        items = self.look(n, exact)[0] if way == PEEK else self.look_in_place(n, exact)
        assert dequeue_finish(self.address, len(items)) == len(items)
        return items

    def start(self, n, exact=False):
        """(How many were reserved, slots left free)."""
        return enqueue_start(self.address, n, exact, self.prod)

    def finish(self, items):
        _memory, at = self.buffer(items)
        return enqueue_finish(self.address, at, len(items), self.size)

    def places(self, n, exact=False):
        count, *self.runs = enqueue_places(self.address, n, self.size, exact, self.prod)
        return count

    def commit(self, items, k=None):
        """Write items in place, then commit them, or ``k``."""
        first, n, rest = self.runs
        data = encode(items, self.size).tobytes()
        head = data[: n * self.size]
        ctypes.memmove(first, head, len(head))
        ctypes.memmove(rest, data[len(head) :], len(data) - len(head))
        return enqueue_commit(self.address, len(items) if k is None else k)

    def look(self, n, exact=False):
        """(Items, how many remain besides)."""
        memory, at = self.buffer(n=n)
        count, left = dequeue_start(self.address, at, n, self.size, exact, self.cons)
        return self.items(memory, count), left

    def look_in_place(self, n, exact=False):
        count, first, run, rest = dequeue_places(self.address, n, self.size, exact, self.cons)
        data = ctypes.string_at(first, run * self.size) + ctypes.string_at(rest, (count - run) * self.size)
        return decode(np.frombuffer(data, np.uint8), self.size)

    def drop(self, k):
        return dequeue_finish(self.address, k)

    def close(self):
        assert self.used() >= 0
        self.marked.clear()
        self.arena.close()
