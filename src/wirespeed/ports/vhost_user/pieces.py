"""Bytes into and out of a chain's pieces, and the copies of short frames.

Bounds: a piece lies in one region of the guest's memory; its address and size are in the queue's own memory, and were
checked when it was made.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy, load_u8, store_u8
from wirespeed.jit.kernel import kernel
from wirespeed.ports.virtio.queue import LONG, MOST_PIECES, PIECE, UNMAPPED, Piece, Virtqueue
from wirespeed.ports.virtio.region import to_host

i64, u64 = np.int64, np.uint64
SHORT_COPY = 256  # bytes; what is longer is left to the C library


@kernel(inline=True)
def copy_frame(dst, src, size):
    """Copy ``size`` bytes, at least 1, to ``dst`` from ``src``; the two must not overlap.

    Blocks, the last of which may overlap the one before it, so that not a byte beyond the frame is read or written.
    """
    if size > SHORT_COPY:
        copy(dst, src, size)
    elif size >= 64:
        at = i64(0)
        while at + 64 < size:
            copy(dst + at, src + at, 64)
            at += 64
        copy(dst + size - 64, src + size - 64, 64)
    elif size >= 32:
        copy(dst, src, 32)
        copy(dst + size - 32, src + size - 32, 32)
    elif size >= 8:
        if size > 16:
            copy(dst + 8, src + 8, 8)
            copy(dst + size - 16, src + size - 16, 8)
        copy(dst, src, 8)
        copy(dst + size - 8, src + size - 8, 8)
    else:
        for i in range(size):
            store_u8(dst + i, load_u8(src + i))


@kernel
def add(queue, n, guest, size):
    """Put a buffer of the guest's behind the first ``n`` pieces; return how many there are now, or -1 - reason."""
    q = Virtqueue(queue)
    while size > 0:
        if n >= MOST_PIECES:
            return i64(-1 - LONG)
        host, mapped = to_host(q.regions, guest, size)
        if mapped == 0:
            return i64(-1 - UNMAPPED)
        piece = Piece(q.pieces + PIECE * n)
        piece.host = host
        piece.size = mapped
        piece.guest = guest
        n += 1
        guest += u64(mapped)
        size -= mapped
    return n


@kernel
def put(pieces, at, offset, src, size):
    """Write bytes into pieces, from ``offset`` of piece ``at`` on; return where the next ones go, the same way.

    The pieces from there on have room for them.
    """
    while size > 0:
        piece = Piece(pieces + PIECE * at)
        run = min(size, piece.size - offset)
        if run > 0:
            copy(piece.host + offset, src, run)
        src += run
        size -= run
        offset += run
        if offset == piece.size:
            at += 1
            offset = i64(0)
    return at, offset


@kernel
def get(pieces, at, offset, dst, size):
    """Read bytes out of pieces; otherwise as :func:`put`."""
    while size > 0:
        piece = Piece(pieces + PIECE * at)
        run = min(size, piece.size - offset)
        if run > 0:
            copy(dst, piece.host + offset, run)
        dst += run
        size -= run
        offset += run
        if offset == piece.size:
            at += 1
            offset = i64(0)
    return at, offset
