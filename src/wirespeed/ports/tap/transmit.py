"""The sink of a tap: packets that the kernel receives by the interface.

Theory of operation
-------------------
One ``write`` gives one packet; those of a burst are one call (:mod:`wirespeed.ports.tap.batch`).  The virtio-net header
is written into the headroom, right before the data, where the packet is one segment of its own; where it is a chain,
shows bytes of somebody else's or has no room there, the header and each segment are a piece of one ``writev``.

The kernel's answer decides: a device that is down or gone drops the rest of the burst (``link_down``), what it cannot
take just now stays (back-pressure), and a packet that is none, or is too long for it, is dropped and counted.

Thread rule: one worker a queue.  *Source:* drivers/net/tun.c (tun_get_user).
"""

import errno

import numpy as np

from wirespeed.core.free import free_bulk
from wirespeed.core.packet import PARTIAL, SHOWING, Packet, data, refcnt
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.jit.intrinsics import load_handle, load_i64, store_i64, store_u32, store_u64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_write, sys_writev
from wirespeed.net.offload import announce
from wirespeed.ports.tap.batch import ENTRIES, WRITE, Batch, prepare, run
from wirespeed.ports.tap.queue import HEADER
from wirespeed.ports.tap.receive import PIECE, Piece

i64, u64, u32 = np.int64, np.uint64, np.uint32
LINK_DOWN, TOO_LONG, BAD_FRAME, NO_OFFLOAD = range(FIRST_REASON, FIRST_REASON + 4)
DROPS = {
    "link_down": "The interface is down or gone",
    "too_long": "The packet is longer than the kernel takes",
    "bad_frame": "The kernel takes it for no packet: too short, or of no version of IP on a tun",
    "bad_offload": "A checksum or segmentation that was left to be done does not fit the packet's headers",
}
MOST_PIECES = 1024  # UIO_MAXIOV of include/uapi/linux/uio.h
# A device that is down; one that is gone; what stands in its place until it is back, which cannot be written.
EIO, EBADFD, EBADF = -errno.EIO, -errno.EBADFD, -errno.EBADF
EAGAIN, ENOMEM, ENOBUFS = -errno.EAGAIN, -errno.ENOMEM, -errno.ENOBUFS
EMSGSIZE = -errno.EMSGSIZE
BAD_OFFLOAD = -(1 << 32)  # our own: no error of the kernel's is as large

State = layout(
    "TapTransmit",
    [
        ("head", Head),
        ("fd", "i8"),
        ("pieces", "i8"),  # address of Piece[MOST_PIECES]
        ("header", "i8"),  # address of a virtio-net header, for packets that have no room for one
        ("batch", "i8"),  # address of its batch, or 0
        ("answers", "i8"),  # address of what the kernel answered to each packet of a burst
        ("taken", "i8"),  # address of the handles of those that it took
        ("down", "i8"),  # 1 while the device was down or gone the last time
        ("again", "u8"),  # packets that the kernel had no memory for, each time
    ],
)


@kernel(inline=True)
def introduce(header, handle):
    """Write a packet's virtio-net header; False when what is still to be done to the packet cannot be done."""
    store_u64(header, u64(0))
    store_u32(header + 8, u32(0))
    return Packet(handle).flags & PARTIAL == 0 or announce(handle, header)


@kernel
def write_pieces(s, handle):
    """Give the kernel a packet in pieces; what it answers."""
    if not introduce(s.header, handle):
        return i64(BAD_OFFLOAD)
    piece = Piece(s.pieces)
    piece.address, piece.size = s.header, i64(HEADER)
    n = i64(1)
    while handle != 0:
        if n == MOST_PIECES:
            return i64(EMSGSIZE)
        p = Packet(handle)
        piece = Piece(s.pieces + PIECE * n)
        piece.address, piece.size = data(p), i64(p.length)
        n += 1
        handle = p.next
    return sys_writev(s.fd, s.pieces, n)


@kernel(inline=True)
def is_simple(p, handle):
    """Whether a packet is one segment of its own that has room for the header before its data."""
    return p.segments == 1 and p.data >= HEADER and p.flags & SHOWING == 0 and refcnt(handle) == 1


@kernel(inline=True)
def give(s, handle):
    """Give the kernel a packet; what it answers."""
    p = Packet(handle)
    if is_simple(p, handle):
        # Bounds: the headroom has as many bytes, and is nobody else's.
        header = data(p) - HEADER
        if not introduce(header, handle):
            return i64(BAD_OFFLOAD)
        return sys_write(s.fd, header, i64(p.length) + HEADER)
    return write_pieces(s, handle)


@kernel(inline=True)
def meaning(answer):
    """An answer of the kernel's, those that mean the same told by one: down or gone by EIO, not now by EAGAIN."""
    if answer == EBADFD or answer == EBADF:
        return i64(EIO)
    return i64(EAGAIN) if answer == ENOMEM or answer == ENOBUFS else answer


@kernel
def give_many(s, burst, n):
    """Give the kernel packets, many at once; what it answers to each is in ``answers``."""
    b = Batch(s.batch)
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        p = Packet(handle)
        if not is_simple(p, handle):
            run(b)  # what was before it goes before it
            store_i64(s.answers + 8 * i, write_pieces(s, handle))
            continue
        header = data(p) - HEADER
        if not introduce(header, handle):
            store_i64(s.answers + 8 * i, i64(BAD_OFFLOAD))
            continue
        prepare(b, i64(i), i64(WRITE), s.fd, header, i64(p.length) + HEADER)
        if b.prepared == ENTRIES:
            run(b)
    run(b)


@kernel
def give_each(s, burst, n):
    """Give the kernel packets one by one; when the device is down, or takes no more now, the others are not tried."""
    answer = i64(0)
    for i in range(n):
        if answer == EAGAIN or answer == EIO:
            store_i64(s.answers + 8 * i, answer)
            continue
        answer = meaning(give(s, load_handle(burst + 8 * i)))
        store_i64(s.answers + 8 * i, answer)


@stage
def transmit(state, burst, n):
    """Give packets to the kernel; what it has no room for is refused."""
    s = State(state)
    if s.batch != 0 and s.down == 0 and n > 1:
        give_many(s, burst, n)
    else:
        give_each(s, burst, n)
    taken, refused, total, down = i64(0), i64(0), i64(0), i64(0)
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        answer = meaning(load_i64(s.answers + 8 * i))
        if answer >= 0:
            total += i64(Packet(handle).total)
            store_i64(s.taken + 8 * taken, handle)
            taken += 1
        elif answer == EIO:
            down = i64(1)
            drop(state, handle, LINK_DOWN)
        elif answer == EAGAIN:
            store_i64(burst + 8 * refused, handle)
            refused += 1
        elif answer == EMSGSIZE:
            drop(state, handle, TOO_LONG)
        elif answer == BAD_OFFLOAD:
            drop(state, handle, NO_OFFLOAD)
        else:
            drop(state, handle, BAD_FRAME)
    s.down = down
    s.again += u64(refused)
    s.head.bytes += u64(total)
    free_bulk(s.head.cache, s.taken, taken)
    return refused
