"""A guest with memory, both formats of ring and a device's queue, small and plain, for the tests of the ring kernels.

The guest's memory has a page that nobody may touch before and behind each region, so one byte beyond ends the process.
"""

import ctypes
import mmap
import struct
from collections import deque

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_segments
from wirespeed.core.packet import HEADROOM, Packet, copy_out
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.stage import MAX_BURST, Head
from wirespeed.ports.vhost_user.dequeue import dequeue
from wirespeed.ports.vhost_user.enqueue import enqueue
from wirespeed.ports.virtio.queue import QUEUE_BYTES, Virtqueue, lay_out, refusals, renew
from wirespeed.ports.virtio.region import RECORDS, REGION, Region, Regions

PAGE = mmap.PAGESIZE
EDGE = 1 << 20  # where two regions of memory() meet
NEXT, WRITE, INDIRECT = 1, 2, 4
AVAIL, USED = 1 << 7, 1 << 15
_libc = ctypes.CDLL(None, use_errno=True)


class Guest:
    """Memory in regions ``(address, size)``; whole pages, each mapped apart from the others and fenced off."""

    def __init__(self, *regions):
        self.memory = [(at, self._map(size), size) for at, size in regions]
        self._block = np.zeros(Regions.size + 64, np.uint8)
        self.regions = -(-self._block.ctypes.data // 64) * 64
        Regions.at(self.regions).n = len(regions)
        for i, (at, view, size) in enumerate(self.memory):
            record = Region.at(self.regions + RECORDS + REGION * i)
            record.guest, record.size, record.user = at, size, at + (1 << 40)
            record.host = ctypes.addressof(ctypes.c_char.from_buffer(view)) + PAGE
        self.next = [at for at, _, _ in self.memory]

    @staticmethod
    def _map(size):
        view = mmap.mmap(-1, size + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(view))
        for fence in (base, base + PAGE + size):
            assert _libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(PAGE), 0) == 0
        return view

    def _runs(self, address, size):
        while size:
            for at, view, length in self.memory:
                if at <= address < at + length:
                    run = min(size, at + length - address)
                    yield view, PAGE + address - at, run
                    break
            else:
                raise AssertionError(f"the guest has no memory at {address:#x}")
            address, size = address + run, size - run

    def read(self, address, size):
        return b"".join(view[at : at + run] for view, at, run in self._runs(address, size))

    def write(self, address, data):
        for view, at, run in self._runs(address, len(data)):
            view[at : at + run] = data[:run]
            data = data[run:]

    def place(self, size, region=0, align=16):
        """Room of its own in a region."""
        at = -(-self.next[region] // align) * align
        self.next[region] = at + size
        assert self.next[region] <= self.memory[region][0] + self.memory[region][2]
        return at

    def host(self, address):
        """Where an address lies in this process."""
        for i, (at, _, length) in enumerate(self.memory):
            if at <= address < at + length:
                return Region.at(self.regions + RECORDS + REGION * i).host + address - at
        raise AssertionError(f"{address:#x}")

    def word(self, address, form="<H"):
        return struct.unpack(form, self.read(address, struct.calcsize(form)))[0]


class SplitDriver:
    """The driver's side of a split ring; ``base`` is where its indexes begin."""

    packed = 0

    def __init__(self, guest, size, base=0):
        self.guest, self.size, self.index, self.seen = guest, size, base & 0xFFFF, base & 0xFFFF
        self.desc = guest.place(16 * size)
        self.avail = guest.place(6 + 2 * size)
        self.used = guest.place(6 + 8 * size)
        self.free = deque(range(size))
        self.chains = {}
        self.table = guest.place(16 * size)
        guest.write(self.avail + 2, struct.pack("<H", self.index))
        guest.write(self.used + 2, struct.pack("<H", self.index))

    def describe(self, at, address, length, flags=0, following=0):
        self.guest.write(self.desc + 16 * at, struct.pack("<QIHH", address, length, flags, following))

    def offer(self, head):
        """Make a head available, whatever it is."""
        self.guest.write(self.avail + 4 + 2 * (self.index % self.size), struct.pack("<H", head))
        self.index = self.index + 1 & 0xFFFF
        self.guest.write(self.avail + 2, struct.pack("<H", self.index))

    def add(self, chain, indirect=0):
        """Make a chain of ``(address, length, write)`` available; its id, or None when the ring has no room.

        ``indirect`` is the address of a table to be used, or 0.
        """
        needed = 1 if indirect else len(chain)
        if needed > len(self.free):
            return None
        places = [self.free.popleft() for _ in range(needed)]
        flags = [WRITE * bool(w) | NEXT * (i + 1 < len(chain)) for i, (_, _, w) in enumerate(chain)]
        if indirect:
            for i, (address, length, _) in enumerate(chain):
                self.guest.write(indirect + 16 * i, struct.pack("<QIHH", address, length, flags[i], i + 1))
            self.describe(places[0], indirect, 16 * len(chain), INDIRECT)
        else:
            for i, (address, length, _) in enumerate(chain):
                self.describe(places[i], address, length, flags[i], places[(i + 1) % len(places)])
        self.chains[places[0]] = places
        self.offer(places[0])
        return places[0]

    def returned(self):
        """The ``(id, length)`` of what was given back since the last time; each must have been lent."""
        now, out = self.guest.word(self.used + 2), []
        while self.seen != now:
            at = self.used + 4 + 8 * (self.seen % self.size)
            head, length = struct.unpack("<II", self.guest.read(at, 8))
            self.seen = self.seen + 1 & 0xFFFF
            out.append((head, length))
            self.free.extend(self.chains.pop(head, ()))
        return out

    def start(self, queue):
        """Have a queue begin where this driver does."""
        q = Virtqueue.at(queue)
        q.packed, q.last_avail, q.last_used = 0, self.index, self.seen


class PackedDriver:
    """The driver's side of a packed ring."""

    packed = 1
    in_order = False  # whether one that is given back stands for those before it

    def __init__(self, guest, size, base=0):
        self.guest, self.size = guest, size
        self.desc = guest.place(16 * size)
        self.avail, self.used = guest.place(4), guest.place(4)
        self.at, self.wrap = base % size, 1 ^ base // size & 1
        self.seen, self.seen_wrap = self.at, self.wrap
        self.room = size
        self.ids = deque(range(size))
        self.chains = {}
        # Descriptors from before the beginning: used ones, of this round before the place, of the last one behind it.
        for i in range(size):
            wrap = self.wrap if i < self.at else 1 ^ self.wrap
            guest.write(self.desc + 16 * i + 14, struct.pack("<H", (AVAIL | USED) * wrap))

    def describe(self, at, address, length, flags=0, chain=0):
        self.guest.write(self.desc + 16 * at, struct.pack("<QIHH", address, length, chain, flags))

    def bits(self, wrap):
        return AVAIL if wrap else USED

    def add(self, chain, indirect=0):
        needed = 1 if indirect else len(chain)
        if needed > self.room:
            return None
        number = self.ids.popleft()
        self.room -= needed
        flags = [WRITE * bool(w) | NEXT * (i + 1 < len(chain)) for i, (_, _, w) in enumerate(chain)]
        if indirect:
            for i, (address, length, _) in enumerate(chain):
                self.guest.write(indirect + 16 * i, struct.pack("<QIHH", address, length, 0, flags[i] & WRITE))
            chain, flags = [(indirect, 16 * len(chain), 0)], [INDIRECT]
        entries = []
        for (address, length, _), flag in zip(chain, flags, strict=True):
            entries.append((self.at, address, length, flag | self.bits(self.wrap)))
            self.at += 1
            if self.at == self.size:
                self.at, self.wrap = 0, self.wrap ^ 1
        for at, address, length, flag in reversed(entries):
            self.describe(at, address, length, flag, number)
        self.chains[number] = needed
        return number

    def returned(self):
        out = []
        while True:
            _, length, number, flags = struct.unpack("<QIHH", self.guest.read(self.desc + 16 * self.seen, 16))
            if bool(flags & AVAIL) != bool(flags & USED) or bool(flags & USED) != bool(self.seen_wrap):
                return out
            numbers = [number]
            if self.in_order:  # all that were lent up to this one
                numbers = list(self.chains)[: list(self.chains).index(number) + 1]
            for number in numbers:
                out.append((number, length))
                count = self.chains.pop(number, 1)
                self.ids.append(number)
                self.room += count
                self.seen += count
            if self.seen >= self.size:
                self.seen, self.seen_wrap = self.seen - self.size, self.seen_wrap ^ 1

    def start(self, queue):
        q = Virtqueue.at(queue)
        q.packed, q.last_avail, q.last_used = 1, self.at, self.at
        q.avail_wrap = q.used_wrap = self.wrap


class Device:
    """A queue of the device's, with a pool, on a driver's ring; ``features`` are fields of the queue."""

    def __init__(self, driver, *, pool=64, room=HEADROOM + 2048, **features):
        self.driver = driver
        self.arena = Arena(QUEUE_BYTES + 4096, huge=False)
        self.queue = self.arena.alloc(QUEUE_BYTES)
        self.state = self.arena.alloc(Head.size)
        self.pool = PacketPool(pool, room)
        self.cache = self.pool.cache()
        Head.at(self.state).cache = self.cache
        lay_out(self.queue)
        q = self.q = Virtqueue.at(self.queue)
        q.regions, q.size = driver.guest.regions, driver.size
        q.desc, q.avail, q.used = (driver.guest.host(a) for a in (driver.desc, driver.avail, driver.used))
        for name, value in features.items():
            setattr(q, name, value)
        driver.start(self.queue)
        renew(self.queue)
        self.burst = np.zeros(MAX_BURST, np.int64)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.pool.whole
        self.pool.close()
        self.arena.close()

    def receive(self, most=32):
        """What a dequeue gives, as ``(bytes, packet record's flags, gso_size)``; the packets go back."""
        n = dequeue(self.queue, self.state, self.burst.ctypes.data, most)
        out = []
        for handle in map(int, self.burst[:n]):
            p = Packet.at(handle)
            memory = np.zeros(p.total, np.uint8)
            assert copy_out(handle, 0, p.total, memory.ctypes.data) == p.total
            out.append((memory.tobytes(), p.flags, p.gso_size))
            free_segments(self.cache, handle)
        return out

    def frames(self, most=32):
        return [frame for frame, _, _ in self.receive(most)]

    def packet(self, frame):
        """A packet of these bytes."""
        handle = alloc_length(self.cache, len(frame))
        assert handle, "the pool is too small for the test"
        memory = np.frombuffer(frame, np.uint8)
        copy_in(handle, 0, len(frame), memory.ctypes.data)
        return handle

    def transmit(self, frames):
        """Enqueue; how many were taken. All packets go back."""
        handles = [self.packet(f) if isinstance(f, bytes) else f for f in frames]
        self.burst[: len(handles)] = handles
        taken = enqueue(self.queue, self.cache, self.burst.ctypes.data, len(handles))
        assert list(self.burst[: len(handles)]) == handles
        self.give_back(handles)
        return taken

    def give_back(self, handles):
        for handle in handles:
            free_segments(self.cache, handle)

    @property
    def refused(self):
        return {k: v for k, v in refusals(self.queue).items() if v}


def memory(*extra):
    """A guest with three regions: two that are neighbours to it, and one at the top of what 64 bits can name."""
    guest = Guest((EDGE - 128 * PAGE, 128 * PAGE), (EDGE, 128 * PAGE), (2**64 - 64 * PAGE, 64 * PAGE), *extra)
    guest.next[1] += 4 * PAGE  # for what lies astride the edge
    return guest


def frame(number, size):
    """A frame by which one sees which it is."""
    return (struct.pack(">I", number) * (size // 4 + 1))[:size]
