"""The window through which a file, a pipe or a socket is read: a bounded piece of memory that moves along the bytes.

Theory of operation
-------------------
Bytes are read in chunks to one fixed address, ``base``; with the chunk it stays in the processor's second cache
whatever the size of the file.  When what is left over at the end of the chunk is only the beginning of a record, it is
moved to just before ``base`` and the next chunk is read behind it, so that reads stay aligned and little is moved.
Before ``base`` there is room for the largest thing that is looked at in one piece (``LARGEST_BLOCK``).

Where the bytes come from: a regular file is read at its own position (``pread``), so nobody else's reading disturbs
it, and it can be begun again; a stream (pipe, socket, terminal) is read only when ``poll`` says that it has something,
so a worker never waits in it; or Python puts the bytes in (``PUSHED``).  :func:`refill` returns at once in each case.

``skip`` bytes are passed over before anything else is looked at.  ``boundary``, when not negative, is the offset at
which the bytes of this pass end although the stream does not: a file that is decompressed again and again.

Thread rules: one thread at a time.  ``boundary`` is set by the thread that writes into the stream and cleared by the
one that reads it: W1, the releasing store after the last byte was written, pairs with the acquiring load before a read;
W2, the releasing store that clears it, pairs with the writer's acquiring load.
"""

import numpy as np

from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import move, stack, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import copy_in, copy_out, sys_poll, sys_pread, sys_read
from wirespeed.net.capture.format import LARGEST_BLOCK

i64 = np.int64

# Measured on a file of 64-byte frames in the page cache, million packets a second by chunk: 32 kB 70, 64 kB 81, 128 kB
# 76, 256 kB 85, 512 kB 77, 1 MB 65 (which the second cache does not hold); with the usual mix of sizes 256 and 512 kB
# are alike and 10 % ahead of the others.
CHUNK = 1 << 18
SLACK = 64  # bytes behind the chunk that may be read, not used: copies go in whole blocks
PAGE = 4096
FRONT = -(-LARGEST_BLOCK // PAGE) * PAGE
SIZE = FRONT + -(-(CHUNK + SLACK) // PAGE) * PAGE

FILE, STREAM, PUSHED = 0, 1, 2
ENDED, NOTHING, GOT = -1, 0, 1
POLLIN = 1  # include/uapi/asm-generic/poll.h
EINTR, EAGAIN = 4, 11  # include/uapi/asm-generic/errno-base.h

Window = layout(
    "Window",
    [
        ("at", "i8"),  # address of the next byte that was not looked at
        ("end", "i8"),  # address behind the last byte that is there
        ("offset", "i8"),  # of ``end``, in bytes from the beginning of the file
        ("skip", "i8"),  # bytes to pass over
        ("begin", "i8"),  # offset at which each pass begins
        ("boundary", "i8"),  # offset at which this pass ends, or -1
        ("base", "i8"),  # where chunks are read to
        ("limit", "i8"),  # address behind the chunk
        ("fd", "i4"),
        ("source", "u4"),  # FILE, STREAM or PUSHED
        ("ended", "u4"),  # 1: no more bytes will come in this pass
        ("errno", "i4"),  # of a read that failed
    ],
)


@kernel
def make_room(w):
    """Make room behind ``end``; return how many bytes of it there are."""
    left = w.end - w.at
    if left == 0:
        w.at = w.base
        w.end = w.base
    elif w.end >= w.limit:
        # Bounds: nobody asks for more bytes while as many as the largest block, the room before ``base``, are there.
        move(w.base - left, w.at, left)
        w.at = w.base - left
        w.end = w.base
    return w.limit - w.end


@kernel
def push_room(window):
    """For Python, which puts bytes in: make room, and return how many bytes of it there are."""
    return make_room(Window(window))


@kernel(inline=True)
def readable(fd):
    """Whether a read of ``fd`` returns at once, with bytes, the end or an error."""
    entry = stack(8)
    store_i64(entry, i64(fd) | i64(POLLIN << 32))  # struct pollfd: fd, events, revents
    return sys_poll(entry, i64(1), i64(0)) == 1


@kernel
def refill(w):
    """Read what is there behind the bytes in the window; GOT, NOTHING for now, or ENDED."""
    if w.ended != 0:
        return ENDED
    room = make_room(w)
    if w.source == PUSHED:
        return NOTHING
    boundary = load_acquire(w, "boundary")  # pairs with W1
    if boundary >= 0:
        room = min(room, boundary - w.offset)
    if w.skip > 0 and w.source == FILE:
        w.offset += w.skip
        w.skip = 0
    if room == 0:
        got = i64(0)
    elif w.source == FILE:
        got = sys_pread(w.fd, w.end, room, w.offset)
    elif readable(w.fd):
        got = sys_read(w.fd, w.end, room)
    else:
        return NOTHING
    if got > 0:
        w.end += got
        w.offset += got
        return GOT
    if got == -EAGAIN or got == -EINTR:
        return NOTHING
    w.ended = 1
    w.errno = np.int32(-got)
    return ENDED


@kernel(inline=True)
def pass_over(w):
    """Pass over the bytes that are to be skipped, as far as they are here; whether none are left to skip."""
    run = min(w.skip, w.end - w.at)
    w.at += run
    w.skip -= run
    return w.skip == 0


@kernel
def rewind(w):
    """Begin another pass from the first byte on."""
    w.at = w.base
    w.end = w.base
    w.offset = w.begin
    w.skip = 0
    w.ended = 0
    w.errno = 0
    store_release(w, "boundary", i64(-1))  # W2


def push(window: int, data: memoryview) -> int:
    """Put the beginning of ``data`` into a ``PUSHED`` window; return how many bytes of it found room."""
    size = min(int(push_room(window)), len(data))
    w = Window.at(window)
    copy_in(w.end, data[:size])
    w.end += size
    w.offset += size
    return size


def hand_over(window: int) -> bytes:
    """Take the bytes that were read but not looked at, and have the window read from Python from now on."""
    w = Window.at(window)
    data = copy_out(w.at, w.end - w.at)
    w.at = w.end = w.base
    w.offset = w.begin = w.ended = 0
    w.source = PUSHED
    return data


def init(window: int, memory: int, fd: int, source: int, begin: int = 0) -> None:
    """Make the zeroed ``Window`` at an address read ``fd`` through the ``SIZE`` bytes at ``memory``, a page's start.

    A file is read from the offset ``begin`` on.
    """
    w = Window.at(window)
    w.base = w.at = w.end = memory + FRONT
    w.limit = w.base + CHUNK
    w.begin = w.offset = begin
    w.boundary = -1
    w.fd, w.source = fd, source
