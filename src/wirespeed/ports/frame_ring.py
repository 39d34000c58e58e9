"""A ring of frames, by which a Python program hands packets to workers and takes packets from them.

Theory of operation
-------------------
It is a ring of bytes.  A frame is a record of 32 bytes that tells what is known about it, followed by its data, filled
up to a multiple of 32; so a record lies in one piece, and only data can go round the end of the ring.  Positions run
freely over 64 bits, and only the access is masked.  The bytes are the ring's own: they outlive the pool of a run.

Each end has one user at a time.  Several workers that share an end take its lock for a burst; Python's side holds a
lock of its own.

Order pairs: F1, the acquiring load of the other end's position, pairs with F0, the releasing store that moves it.
F3, the acquiring load of ``closed`` before a look at the position, pairs with F2, its store behind the last frame.
Who finds nothing to do says so in a *sleep* word and looks once more; who has moved a position looks at that word
after it.  Both have a full fence between, so one of them sees the other and no wake-up is lost.  Python's side sleeps
on the word itself (a futex), a worker on an eventfd: it is written first and the word cleared after it, so a worker
that finds the word cleared can empty the eventfd and knows that nothing is left in it.
"""

import os
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError
from wirespeed.jit.atomics import (
    compare_exchange,
    fence_full,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
)
from wirespeed.jit.intrinsics import copy, stack, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import address, layout
from wirespeed.jit.libc import futex_wait, futex_wake, sys_read, sys_write

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64
EVERYBODY = 0x7FFFFFFF
MOST_FRAME = 1 << 22  # 4 MB: more than any real frame, and within the segments that a chain can have

FrameInfo = layout(
    "FrameInfo",
    [
        ("time", "i8"),
        ("length", "u4"),
        ("wire", "u4"),
        ("mark", "u4"),
        ("port", "u2"),
        ("link", "u2"),
        (None, 8),
    ],
)
assert FrameInfo.size == 32
UNIT = FrameInfo.size

# One cache line for each end's user; the lock and the sleep word lie apart from the position, which the others poll.
FrameEnd = layout(
    "FrameEnd",
    [
        ("position", "u8"),
        ("frames", "u8"),  # that passed this end
        (None, 48),
        ("lock", "u4"),
        ("sleep", "u4"),  # 1: this end's user sleeps, or is about to, until the other end moves
        (None, 56),
    ],
)
assert FrameEnd.size == 128
SLEEP_WORD = FrameEnd.offset("sleep")

FrameRing = layout(
    "FrameRing",
    [
        ("data", "i8"),  # address of the bytes
        ("size", "u8"),  # a power of two
        ("fd", "i8"),  # the eventfd that workers sleep on
        ("closed", "u4"),  # 1: no frame will follow those in the ring
        (None, 36),
        ("prod", FrameEnd),
        ("cons", FrameEnd),
    ],
)
assert FrameRing.size == 64 + 2 * FrameEnd.size


@kernel(inline=True)
def info_at(ring, position):
    """The record at a position."""
    return FrameInfo(ring.data + i64(position & (ring.size - u64(1))))


@kernel(inline=True)
def span(length):
    """Bytes of the ring that a frame of ``length`` bytes takes."""
    return u64((i64(length) + 2 * UNIT - 1) & -UNIT)


@kernel(inline=True)
def read(ring, position, dst, size):
    """Copy ``size`` bytes at a position, at most the ring's size, to the address ``dst``."""
    at = i64(position & (ring.size - u64(1)))
    run = min(i64(ring.size) - at, size)
    copy(dst, ring.data + at, run)
    copy(dst + run, ring.data, size - run)


@kernel(inline=True)
def write(ring, position, src, size):
    """Copy ``size`` bytes, at most the ring's size, from the address ``src`` to a position."""
    at = i64(position & (ring.size - u64(1)))
    run = min(i64(ring.size) - at, size)
    copy(ring.data + at, src, run)
    copy(ring.data, src + run, size - run)


@kernel(inline=True)
def room(ring):
    """Bytes that the producer can write."""
    return ring.size - (ring.prod.position - load_acquire(ring.cons, "position"))  # F1


@kernel(inline=True)
def publish(end, position, n):
    """Move an end to ``position``, ``n`` frames further."""
    end.frames += u64(n)
    store_release(end, "position", position)  # F0


@kernel(inline=True)
def wake(end):
    """Wake the Python thread that sleeps at an end, after the other end has moved."""
    fence_full()
    if load_relaxed(end, "sleep") != 0:
        store_relaxed(end, "sleep", 0)
        futex_wake(address(end) + SLEEP_WORD, EVERYBODY)


@kernel(inline=True)
def rest(ring):
    """A worker at the consumer's end says that it will sleep on the eventfd unless it finds a frame after this."""
    if load_acquire(ring.cons, "sleep") == 0 and compare_exchange(ring.cons, "sleep", 0, 1):
        sys_read(ring.fd, stack(8), 8)
    fence_full()


@kernel(inline=True)
def wake_worker(r):
    """Wake the workers that rest at the consumer's end, after a frame was published or the ring closed."""
    fence_full()
    if load_relaxed(r.cons, "sleep") != 0:
        one = stack(8)
        store_i64(one, 1)
        sys_write(r.fd, one, 8)
        store_release(r.cons, "sleep", 0)


@kernel
def sleep(ring, producer, need, timeout_ns):
    """Python's side: wait until ``need`` bytes can be written (or anything can be read); return whether that is so."""
    r = FrameRing(ring)
    end = r.prod if producer else r.cons
    store_relaxed(end, "sleep", 1)
    fence_full()
    if not ready(r, producer, need):
        futex_wait(address(end) + SLEEP_WORD, 1, timeout_ns)
    store_relaxed(end, "sleep", 0)
    return ready(r, producer, need)


@kernel(inline=True)
def ready(ring, producer, need):
    """Whether ``need`` bytes can be written, or anything can be read."""
    if producer:
        return room(ring) >= u64(need)
    return load_acquire(ring.prod, "position") != ring.cons.position  # F1


@kernel
def push(ring, infos, data, n):
    """Write up to ``n`` frames; ``infos`` is the address of their records, ``data`` of their bytes, end to end.

    Returns how many were written.
    """
    r = FrameRing(ring)
    position, free = r.prod.position, room(r)
    done = i64(0)
    while done < n:
        info = FrameInfo(infos + UNIT * done)
        length = i64(info.length)
        need = span(length)
        if need > free:
            break
        copy(address(info_at(r, position)), address(info), UNIT)
        write(r, position + u64(UNIT), data, length)
        position += need
        free -= need
        data += length
        done += 1
    publish(r.prod, position, done)
    wake_worker(r)
    return done


@kernel
def set_closed(ring, closed):
    """Say that no frame will follow (1), or that frames may follow again (0)."""
    r = FrameRing(ring)
    store_release(r, "closed", closed)  # F2, after the positions of all frames before it
    wake_worker(r)


@kernel
def measure(ring, most):
    """How many frames can be read, at most ``most``, and the bytes of their data together."""
    r = FrameRing(ring)
    position, end = r.cons.position, load_acquire(r.prod, "position")  # F1
    n, total = i64(0), i64(0)
    while n < most and position != end:
        length = i64(info_at(r, position).length)
        position += span(length)
        total += length
        n += 1
    return n, total


@kernel
def pull(ring, infos, data, n):
    """Read ``n`` frames that :func:`measure` has seen: records to ``infos``, bytes to ``data``, end to end."""
    r = FrameRing(ring)
    position = r.cons.position
    for i in range(n):
        info = info_at(r, position)
        length = i64(info.length)
        copy(infos + UNIT * i, address(info), UNIT)
        read(r, position + u64(UNIT), data, length)
        data += length
        position += span(length)
    publish(r.cons, position, n)


class FrameQueue:
    """The memory of one ring of frames; its methods are for one Python thread at a time.

    ``size`` is in bytes, rounded up to a power of two.  A frame takes 32 bytes more than its data.
    """

    def __init__(self, size: int) -> None:
        if not 4 * UNIT <= size <= 1 << 36:
            raise GraphError(f"memory size must be {4 * UNIT} bytes to 64 GB, got {size}; try size=4MB")
        self.size = 1 << (size - 1).bit_length()
        self._arena = Arena(FrameRing.size + self.size + 64)
        self.address = self._arena.alloc(FrameRing.size)
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ring = FrameRing.at(self.address)
        self._ring.data, self._ring.size, self._ring.fd = self._arena.alloc(self.size), self.size, self.fd

    def push(self, infos: Any, data: Any) -> int:
        """Write as many frames as fit, from an array of FrameInfo and an array of their bytes; how many."""
        return int(push(self.address, infos.ctypes.data, data.ctypes.data, len(infos)))

    def pull(self, most: int) -> tuple[Any, Any]:
        """Read up to ``most`` frames: an array of FrameInfo, and one of their bytes, end to end."""
        n, total = measure(self.address, most)
        infos, data = np.zeros(n, FrameInfo.dtype), np.empty(total, np.uint8)
        if n:
            pull(self.address, infos.ctypes.data, data.ctypes.data, n)
        return infos, data

    def wait_for_room(self, need: int, timeout_ns: int) -> bool:
        """Sleep, at most so long, until ``need`` bytes can be written; whether they can."""
        return bool(sleep(self.address, True, need, timeout_ns))

    def wait_for_frame(self, timeout_ns: int) -> bool:
        """Sleep, at most so long, until a frame can be read; whether one can."""
        return bool(sleep(self.address, False, 0, timeout_ns))

    @property
    def closed(self) -> bool:
        """Whether no frame will follow those in the ring."""
        return bool(self._ring.closed)

    @closed.setter
    def closed(self, closed: bool) -> None:
        set_closed(self.address, int(closed))

    @property
    def passed(self) -> tuple[int, int]:
        """Frames that were written and that were read, since the beginning."""
        return self._ring.prod.frames, self._ring.cons.frames

    def __len__(self) -> int:
        written, read_ = self.passed
        return written - read_

    def close(self) -> None:
        """Give the memory back; no run may use it any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._arena.close()

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self.close()
