"""The sink of a tap: packets that the kernel receives by the interface.

Theory of operation
-------------------
One ``write`` gives one packet; those of a burst are one call (:mod:`wirespeed.ports.tap.batch`).  The virtio-net header
is written into the headroom, right before the data, where the packet is one segment of its own; where it is a chain,
shows bytes of somebody else's or has no room there, the header and each segment are a piece of one ``writev``.

What the header cannot say is done here: a super-frame in a tunnel is made into frames, which wait in a box until the kernel
has taken them, before anything else; and so is one whose bytes others hold too, for a sum would be written into them.

The kernel's answer decides: a device that is down or gone drops the rest of the burst (``link_down``), what it cannot
take just now stays (back-pressure), and a packet that is none, or is too long for it, is dropped and counted.

Thread rule: one worker a queue.  *Source:* drivers/net/tun.c (tun_get_user).
"""

import errno

import numpy as np

from wirespeed.core.free import free_bulk, free_segments
from wirespeed.core.packet import PARTIAL, SHOWING, Packet, data, refcnt
from wirespeed.core.stage import FIRST_REASON, MAX_BURST, Head, count_drops, drop
from wirespeed.jit.intrinsics import load_handle, load_i64, move, store_i64, store_u32, store_u64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_write, sys_writev
from wirespeed.net.excerpt import is_alone
from wirespeed.net.offload import BAD_OFFLOAD as DAMAGED
from wirespeed.net.offload import NO_PACKET as NOTHING
from wirespeed.net.offload import announce
from wirespeed.ports.packet.box import Box, empty_box, in_box, unpack
from wirespeed.ports.tap.batch import ENTRIES, WRITE, Batch, prepare, run
from wirespeed.ports.tap.queue import HEADER
from wirespeed.ports.tap.receive import LARGEST, PIECE, Piece

i64, u64, u32 = np.int64, np.uint64, np.uint32
LINK_DOWN, TOO_LONG, BAD_FRAME, NO_OFFLOAD, NO_PACKET, NO_MEMORY = range(FIRST_REASON, FIRST_REASON + 6)
DROPS = {
    "link_down": "The interface is down or gone",
    "too_long": "The packet is longer than the kernel takes",
    "bad_frame": "The kernel takes it for no packet: too short, or of no version of IP on a tun",
    "bad_offload": "A checksum or segmentation that was left to be done does not fit the packet's headers",
    "no_packet": "The pool had no packets for the frames that a super-frame was to be cut into",
    "no_memory": "The kernel had no memory for it until the port was closed",
}
MOST_PIECES = 1024  # UIO_MAXIOV of include/uapi/linux/uio.h
# A device that is down; one that is gone; what stands in its place until it is back, which cannot be written.
EIO, EBADFD, EBADF = -errno.EIO, -errno.EBADFD, -errno.EBADF
EAGAIN, ENOMEM, ENOBUFS = -errno.EAGAIN, -errno.ENOMEM, -errno.ENOBUFS
EMSGSIZE = -errno.EMSGSIZE
TO_CUT = -(1 << 32)  # our own: no error of the kernel's is as large
MOST_SUPER = 0xFFFF  # bytes of the largest super-frame that the kernel takes from us: see ports/packet/transmit.py

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
        ("box", Box),
        ("boxed", "i8"),  # 1 while it is the box that is sent from,
        ("lost", "i8"),  # and 1 once one of its frames was dropped, by which their packet counts as dropped
        (None, 16),
    ],
)
BOX_AT = State.offset("box")


@kernel(inline=True)
def introduce(header, handle):
    """Write a packet's virtio-net header; False when that cannot say what is still to be done to the packet."""
    store_u64(header, u64(0))
    store_u32(header + 8, u32(0))
    return Packet(handle).flags & PARTIAL == 0 or announce(handle, header)


@kernel
def may_be_left(handle):
    """Whether what is still to be done to a packet may be left to the kernel, for which a sum is written into it."""
    p = Packet(handle)
    return p.flags & PARTIAL == 0 or (is_alone(handle) and i64(p.total) <= MOST_SUPER)


@kernel
def write_pieces(s, handle):
    """Give the kernel a packet in pieces; what it answers."""
    if not may_be_left(handle) or not introduce(s.header, handle):
        return i64(TO_CUT)
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
            return i64(TO_CUT)
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
    """Give the kernel packets, many at once, up to one that is to be cut first; how many, their answers in ``answers``."""
    b = Batch(s.batch)
    for i in range(n):
        handle = load_handle(burst + 8 * i)
        p = Packet(handle)
        if is_simple(p, handle):
            header = data(p) - HEADER
            if not introduce(header, handle):
                n = i64(i)
                break
            prepare(b, i64(i), i64(WRITE), s.fd, header, i64(p.length) + HEADER)
            if b.prepared == ENTRIES:
                run(b)
        else:
            run(b)  # what was before it goes before it
            answer = write_pieces(s, handle)
            if answer == TO_CUT:
                n = i64(i)
                break
            store_i64(s.answers + 8 * i, answer)
    run(b)
    return n


@kernel
def give_each(s, burst, n):
    """The same one by one; when the device is down, or takes no more now, the others are not tried."""
    answer = i64(0)
    for i in range(n):
        if answer != EAGAIN and answer != EIO:
            answer = meaning(give(s, load_handle(burst + 8 * i)))
            if answer == TO_CUT:
                return i64(i)
        store_i64(s.answers + 8 * i, answer)
    return n


@kernel
def lose(state, handle, reason):
    """Drop a packet; of frames out of the box, their packet is dropped, once, for the first one's reason."""
    s = State(state)
    if s.boxed == 0:
        drop(state, handle, reason)
        return
    free_segments(s.head.cache, handle)
    if s.lost == 0:
        s.lost = 1
        count_drops(state, reason, 1)


@kernel
def settle(state, burst, n):
    """Do with each of ``n`` packets what the answer to it asks for; how many were refused, which are in front then."""
    s = State(state)
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
            lose(state, handle, LINK_DOWN)
        elif answer == EAGAIN:
            store_i64(burst + 8 * refused, handle)
            refused += 1
        else:
            lose(state, handle, TOO_LONG if answer == EMSGSIZE else BAD_FRAME)
    if n > 0:
        s.down = down
    s.again += u64(refused)
    s.head.bytes += u64(total)
    free_bulk(s.head.cache, s.taken, taken)
    return refused


@kernel
def send_some(state, burst, n):
    """Give the kernel packets up to one that is to be cut first; how many are settled, and how many of these refused."""
    s = State(state)
    given = give_many(s, burst, n) if s.batch != 0 and s.down == 0 and n > 1 else give_each(s, burst, n)
    return given, settle(state, burst, given)


@kernel
def send_box(state):
    """Send the frames in the box; some stay when the kernel does not take them now."""
    s, box = State(state), Box(state + BOX_AT)
    s.boxed = 1
    refused = i64(0)
    while box.begin < box.end and refused == 0:
        at = box.frames + 8 * box.begin
        given, refused = send_some(state, at, min(box.end - box.begin, i64(MAX_BURST)))
        # Those refused are in front of what was given, and the gap behind them is closed from below.
        for i in range(refused):
            store_i64(at + 8 * (given - 1 - i), load_i64(at + 8 * (refused - 1 - i)))
        box.begin += given - refused
    s.boxed = 0
    s.head.held = i64(box.begin < box.end)


@kernel
def cut(state, handle):
    """Make a packet into the frames that it stands for, and send these."""
    s = State(state)
    n = unpack(s.head.cache, handle, state + BOX_AT, i64(LARGEST))
    if n > 0:
        s.lost = 0
        send_box(state)
    else:
        drop(state, handle, NO_PACKET if n == NOTHING else NO_OFFLOAD if n == DAMAGED else TOO_LONG)


@kernel
def abandon(state):
    """Drop what is still in the box, at the end of a run."""
    s = State(state)
    if in_box(state + BOX_AT) > 0:
        empty_box(s.head.cache, state + BOX_AT)
        s.head.held = 0
        if s.lost == 0:
            count_drops(state, NO_MEMORY, 1)


@stage
def transmit(state, burst, n):
    """Give packets to the kernel; what it has no room for is refused."""
    s = State(state)
    done, refused = i64(0), i64(0)
    if s.head.held != 0:
        send_box(state)
    while done < n and refused == 0 and s.head.held == 0:
        given, refused = send_some(state, burst + 8 * done, n - done)
        if refused > 0:
            move(burst, burst + 8 * done, 8 * refused)
        done += given
        if done < n and refused == 0:
            cut(state, load_handle(burst + 8 * done))
            done += 1
    if done < n:
        move(burst + 8 * refused, burst + 8 * done, 8 * (n - done))
    return refused + n - done
