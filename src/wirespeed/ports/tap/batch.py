"""Many system calls in one: reads or writes of one queue that the kernel does one after the other, by io_uring.

Theory of operation
-------------------
A call of its own for each packet costs some 500 cycles beside what the kernel does with the packet, a fourth of all of
it.  Here the worker writes entries into a ring that it shares with the kernel (:func:`prepare`) and has them done by one
call (:func:`run`), which returns when all are.  None of them waits (RWF_NOWAIT): what cannot be done at once has failed
with EAGAIN, as it would have by a call.  So nothing is ever under way between two calls of a stage.

Where there is no io_uring (it may be switched off, containers often forbid it), there is no batch, and the stages make
their calls one by one.

Thread rule: a batch is one worker's.  Its order is with the kernel: the entries are written before the releasing store
of the tail, the answers are read behind the acquiring load of theirs.

*Source:* io_uring(7), include/uapi/linux/io_uring.h.
"""

import ctypes
import errno
import mmap
import os
import struct
from typing import Any, Self

import numpy as np

from wirespeed.core.stage import MAX_BURST
from wirespeed.jit.atomics import load_acquire, load_relaxed, store_release
from wirespeed.jit.intrinsics import store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_ring_enter

i64, u64, u32, u8, u16, i32 = np.int64, np.uint64, np.uint32, np.uint8, np.uint16, np.int32
SETUP = 425  # io_uring_setup, the same on all machines
READV, WRITE = 1, 23  # enum io_uring_op
NOWAIT = 8  # RWF_NOWAIT of include/uapi/linux/fs.h
GETEVENTS = 1  # IORING_ENTER_GETEVENTS
SINGLE_MMAP = 1  # IORING_FEAT_SINGLE_MMAP: Linux 5.4, and RWF_NOWAIT on a tap is younger
ENTRIES = 64  # most calls of one batch
ENTRIES_AT = 0x10000000  # IORING_OFF_SQES
EAGAIN = -errno.EAGAIN

# struct io_uring_sqe
Entry = layout(
    "UringEntry",
    [
        ("opcode", "u1"),
        ("flags", "u1"),
        ("priority", "u2"),
        ("fd", "i4"),
        ("offset", "u8"),
        ("address", "u8"),
        ("length", "u4"),
        ("how", "u4"),  # RWF_*
        ("number", "u8"),  # the caller's, given back with the answer
        (None, 24),
    ],
)
assert Entry.size == 64
ENTRY = Entry.size
# struct io_uring_cqe
Answer = layout("UringAnswer", [("number", "u8"), ("result", "i4"), ("flags", "u4")])
assert Answer.size == 16
ANSWER = Answer.size
Word = layout("UringWord", [("value", "u4")])

Batch = layout(
    "Batch",
    [
        ("fd", "i8"),
        ("head", "i8"),  # addresses: how many entries the kernel has taken, modulo 2^32,
        ("tail", "i8"),  # how many were written,
        ("entries", "i8"),  # and where they are
        ("mask", "i8"),
        ("done_head", "i8"),  # how many answers were read,
        ("done_tail", "i8"),  # how many there were,
        ("answers", "i8"),  # and where they are
        ("done_mask", "i8"),
        ("prepared", "i8"),  # entries that were written since the last run
        ("results", "i8"),  # what each call returned, or minus errno, by its number: i8[MAX_BURST]
        (None, 40),
    ],
)


@kernel(inline=True)
def enter(b, submit, complete):
    """Have entries done; how many the kernel took, or minus errno."""
    return sys_ring_enter(b.fd, submit, complete, GETEVENTS)


@kernel(inline=True)
def prepare(b, number, opcode, fd, address, length):
    """Write an entry; ``number`` (below MAX_BURST) is where its result will be.  The caller runs each ENTRIES of them."""
    at = i64(load_relaxed(Word(b.tail), "value")) + b.prepared
    e = Entry(b.entries + ENTRY * (at & b.mask))
    e.opcode = opcode
    e.fd = fd
    e.address = address
    e.length = length
    e.how = NOWAIT
    e.number = number
    b.prepared += 1


@kernel
def take_back(b, tail, n):
    """Take entries that the kernel did not want back; how many it took.  The others have failed, to be tried again."""
    taken = i64(u32(load_acquire(Word(b.head), "value") - tail))
    for i in range(taken, n):
        store_i64(b.results + 8 * i64(Entry(b.entries + ENTRY * ((i64(tail) + i) & b.mask)).number), i64(EAGAIN))
    store_release(Word(b.tail), "value", u32(i64(tail) + taken))
    return taken


@kernel
def run(b):
    """Have all done that was prepared; the results stand in ``results``."""
    n = b.prepared
    if n == 0:
        return
    b.prepared = i64(0)
    tail = load_relaxed(Word(b.tail), "value")
    store_release(Word(b.tail), "value", u32(i64(tail) + n))
    if enter(b, n, n) < n:
        n = take_back(b, tail, n)
    while n > 0:
        head = load_relaxed(Word(b.done_head), "value")
        ready = i64(u32(load_acquire(Word(b.done_tail), "value") - head))
        if ready == 0:
            enter(b, i64(0), n)
        for i in range(ready):
            answer = Answer(b.answers + ANSWER * ((i64(head) + i) & b.done_mask))
            if answer.number < u64(MAX_BURST):
                store_i64(b.results + 8 * i64(answer.number), i64(answer.result))
        store_release(Word(b.done_head), "value", u32(i64(head) + ready))
        n -= ready


_libc = ctypes.CDLL(None, use_errno=True)
# struct io_uring_params: the beginning, and struct io_sqring_offsets and io_cqring_offsets within it.
_PARAMETERS = struct.Struct("=10I")
_OFFSETS = struct.Struct("=8IQ")


class BatchMemory:
    """The owner of a batch's memory and descriptor; ``address`` is the record."""

    def __init__(self, fd: int, parameters: bytes) -> None:
        self._fd = fd
        entries, answers = _PARAMETERS.unpack_from(parameters)[:2]
        head, tail, _, _, _, _, array, _, _ = _OFFSETS.unpack_from(parameters, _PARAMETERS.size)
        done_head, done_tail, _, _, _, done, _, _, _ = _OFFSETS.unpack_from(
            parameters, _PARAMETERS.size + _OFFSETS.size
        )
        self._rings = _mapped(fd, max(array + 4 * entries, done + ANSWER * answers), 0)
        self._entries = _mapped(fd, ENTRY * entries, ENTRIES_AT)
        self._record = np.zeros(1, Batch.dtype)
        self._results = np.zeros(MAX_BURST, np.int64)
        base = self._rings.ctypes.data
        self._rings[array : array + 4 * entries].view(np.uint32)[:] = np.arange(entries)  # entry i is in slot i
        self.address = self._record.ctypes.data
        record = Batch.at(self.address)
        record.fd, record.head, record.tail = fd, base + head, base + tail
        record.entries, record.mask = self._entries.ctypes.data, entries - 1
        record.done_head, record.done_tail, record.answers = base + done_head, base + done_tail, base + done
        record.done_mask, record.results = answers - 1, self._results.ctypes.data

    @classmethod
    def open(cls, queue: int) -> Self | None:
        """A new one for calls on a queue; None where there can be none."""
        if not knows_nowait(queue):
            return None
        parameters = ctypes.create_string_buffer(_PARAMETERS.size + 2 * _OFFSETS.size)
        fd = _libc.syscall(SETUP, ENTRIES, parameters)
        if fd < 0:
            return None
        features = _PARAMETERS.unpack_from(parameters.raw)[5]
        try:
            if features & SINGLE_MMAP:
                return cls(fd, parameters.raw)
        except OSError:
            pass
        os.close(fd)
        return None

    def close(self) -> None:
        """Give all back; the worker must have left."""
        if self.address:
            self.address = 0
            del self._rings, self._entries
            os.close(self._fd)


def knows_nowait(fd: int) -> bool:
    """Whether calls on a queue can be asked not to wait; asked by a write that is too short to be taken for a packet."""
    try:
        os.pwritev(fd, [b"\0"], -1, os.RWF_NOWAIT)
    except OSError as error:
        return error.errno == errno.EINVAL
    return False


def _mapped(fd: int, size: int, offset: int) -> Any:
    """Memory that is shared with the kernel, as an array that keeps it mapped."""
    memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)
    return np.frombuffer(memory, np.uint8)
