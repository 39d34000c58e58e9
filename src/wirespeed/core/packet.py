"""A packet: a record of two cache lines beside its headroom and data; chains of them make jumbo frames.

A *handle* is the address of a record.  The first line is what ports and functions touch; the second is written once,
when the pool is made, or rarely.  In a chain, ``total``, ``segments`` and all that describes the packet stand in the
first segment; ``length`` counts the bytes of each.

A packet shows bytes of its own buffer, which follows the record; with flag INDIRECT those of another packet (see
:mod:`wirespeed.core.clone`), with flag EXTERNAL memory of the user's (:mod:`wirespeed.core.external`).

Resting invariant (of every packet in a pool): ``refcnt`` 1, ``next`` 0, ``segments`` 1, no flag META, INDIRECT or
EXTERNAL, ``buffer`` and ``capacity`` its own.  That is why taking one from the pool writes only what :func:`reset`
writes.

Thread rules: who holds a packet that others hold too reads it only.  ``refcnt`` alone is shared; it is changed by
atomic exchange as soon as it can be more than 1.

Source of the semantics: DPDK's mbuf, with 32-bit lengths, for frames of 64 kB and more (BIG TCP) occur.
"""

import numpy as np

from wirespeed.jit.atomics import fetch_add, load_acquire, store_relaxed
from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

u16, u32, i64 = np.uint16, np.uint32, np.int64
HEADROOM = 128

Packet = layout(
    "Packet",
    [
        ("buffer", "i8"),  # address of the first byte of headroom
        ("next", "i8"),  # handle of the next segment, or 0
        ("pool", "i8"),  # address of the pool it belongs to
        ("time", "i8"),  # nanoseconds since 1970, or 0 where the port knows none
        ("data", "u4"),  # bytes from buffer to the first byte of data
        ("length", "u4"),  # bytes of data in this segment
        ("total", "u4"),  # bytes of data in the whole packet
        ("wire", "u4"),  # bytes it had on the wire; more than total where a capture cut it
        # one word that tells in one look whether a packet rests
        ("refcnt", "u4"),  # how many hold it
        ("segments", "u2"),  # of the chain
        ("flags", "u2"),
        ("hash", "u4"),  # flow hash, valid with flag HASHED
        ("port", "u2"),  # number of the port it came in by
        ("link", "u2"),  # link type of its first header (LINKTYPE_*), 1 for Ethernet
        # second line
        ("capacity", "u4"),  # bytes from buffer to its end
        ("mark", "u4"),  # the user's own word, carried along; valid with flag MARKED
        ("meta", "i8"),  # handle of a packet that carries capture options of this one; valid with flag META
        ("interface", "u4"),  # number of the capture file's interface it came in by; valid with flag INTERFACE
        ("owner", "u4"),  # debug mode: 1 while in a pool, 0 while out
        (
            "attached",
            "i8",
        ),  # whose bytes ``buffer`` shows: a packet's handle with flag INDIRECT, a record with EXTERNAL
        ("trail", "u8"),  # debug mode: what was done with it last, the latest in the lowest four bits
        ("holder", "u4"),  # debug mode: number of the cache that had it last
        ("fault", "u4"),  # debug mode: why a free left it out of its pool, a key of sanity.REASONS; 0 when none did
        # valid with flag PARTIAL
        ("gso_size", "u2"),  # most bytes of payload of each frame it is to be cut into, or 0: it is one frame
        ("gso_type", "u2"),  # into what, a VIRTIO_NET_HDR_GSO_*
        ("csum_tail", "u4"),  # bytes from where the sum begins to the end of the packet,
        ("csum_offset", "u4"),  # and from there to the field that the checksum goes into
    ],
    size=128,
)
assert Packet.offset("capacity") == 64
HASHED = 1  # ``hash`` is that of these bytes
BAD_CHECKSUM = 2  # a port found a checksum wrong
META = 4  # ``meta`` is the handle of a packet; only then is it looked at
MARKED = 8  # ``mark`` was set on the way; without it, it reads as 0
INTERFACE = 16  # ``interface`` is set; without it, it is 0
INDIRECT = 32  # ``buffer`` is that of the packet ``attached``
EXTERNAL = 64  # ``buffer`` is memory of the user's, described by the record ``attached``
PARTIAL = 128  # its transport checksum is still to be computed, and perhaps it is to be cut into frames
SHOWING = INDIRECT | EXTERNAL  # it shows bytes that are not in its own buffer
SPECIAL = META | SHOWING  # it has hold of something, to be given up with it
NO_PORT = 0xFFFF


@kernel(inline=True)
def reset(p, length):
    """Make a packet just taken from its pool an Ethernet frame of ``length`` bytes behind the usual headroom.

    What stands beside another field in the record is written in one go: LLVM merges these into two stores, and would
    into three if the two fields that need not be written were left out.
    """
    p.data = HEADROOM
    p.length = length
    p.total = length
    p.wire = length
    p.refcnt = 1
    p.segments = 1
    p.flags = 0
    p.hash = 0
    p.port = 0
    p.link = 1


@kernel(inline=True)
def data(p):
    """The address of the first byte of data of a segment."""
    return p.buffer + i64(p.data)


@kernel(inline=True)
def mark(p):
    """The user's word of a packet, 0 where nobody has set it."""
    return p.mark if p.flags & MARKED else u32(0)


@kernel(inline=True)
def set_mark(p, value):
    """Set the user's word of a packet."""
    p.mark = value
    p.flags = u16(p.flags | MARKED)


@kernel(inline=True)
def headroom(p):
    """Bytes before the data of a segment."""
    return i64(p.data)


@kernel(inline=True)
def tailroom(p):
    """Bytes behind the data of a segment."""
    return i64(p.capacity) - i64(p.data) - i64(p.length)


@kernel(inline=True)
def last(handle):
    """The handle of the last segment of a chain."""
    while Packet(handle).next != 0:
        handle = Packet(handle).next
    return handle


@kernel(inline=True)
def is_contiguous(handle):
    """Whether all bytes of a packet lie in its first segment's buffer."""
    return Packet(handle).segments == 1


@kernel(inline=True)
def refcnt(handle):
    """How many hold a segment; whoever reads 1 and holds it is alone with it, and sees what the others wrote."""
    return load_acquire(Packet(handle), "refcnt")


@kernel(inline=True)
def set_refcnt(handle, n):
    """Say how many hold a segment, while nobody else does."""
    store_relaxed(Packet(handle), "refcnt", u32(n))


@kernel(inline=True)
def update_refcnt(handle, change):
    """Add to how many hold a segment, which the caller does; return how many now.  Down to 0 is for a free only.

    Who is alone needs no atomic exchange, for nobody else can come to hold it but through him.
    """
    p = Packet(handle)
    if load_acquire(p, "refcnt") == 1:
        now = u32(1 + change)
        store_relaxed(p, "refcnt", now)
        return now
    return u32(fetch_add(p, "refcnt", u32(change)) + u32(change))


@kernel(inline=True)
def prepend(handle, size):
    """Grow the packet by ``size`` bytes at its front; whether the headroom was enough (else nothing is changed)."""
    p = Packet(handle)
    if size < 0 or size > i64(p.data):
        return False
    p.data = u32(i64(p.data) - size)
    p.length = u32(i64(p.length) + size)
    p.total = u32(i64(p.total) + size)
    return True


@kernel(inline=True)
def append(handle, size):
    """Grow the packet by ``size`` bytes at the end of its last segment; whether the tailroom was enough."""
    p = Packet(handle)
    end = Packet(last(handle))
    if size < 0 or size > tailroom(end):
        return False
    end.length = u32(i64(end.length) + size)
    p.total = u32(i64(p.total) + size)
    return True


@kernel(inline=True)
def adjust(handle, size):
    """Cut ``size`` bytes off the front of the first segment; whether it had as many."""
    p = Packet(handle)
    if size < 0 or size > i64(p.length):
        return False
    p.data = u32(i64(p.data) + size)
    p.length = u32(i64(p.length) - size)
    p.total = u32(i64(p.total) - size)
    return True


@kernel(inline=True)
def trim(handle, size):
    """Cut ``size`` bytes off the end of the last segment; whether it had as many."""
    p = Packet(handle)
    end = Packet(last(handle))
    if size < 0 or size > i64(end.length):
        return False
    end.length = u32(i64(end.length) - size)
    p.total = u32(i64(p.total) - size)
    return True


@kernel(inline=True)
def chain(head, tail):
    """Append the packet ``tail`` to the packet ``head``; False, and nothing changed, when segments or bytes overflow.

    ``tail`` then belongs to ``head``.
    """
    h, t = Packet(head), Packet(tail)
    segments = i64(h.segments) + i64(t.segments)
    total = i64(h.total) + i64(t.total)
    if segments > 0xFFFF or total > 0xFFFFFFFF:
        return False
    Packet(last(head)).next = tail
    h.segments = u16(segments)
    h.total = u32(total)
    t.segments = 1
    t.total = t.length
    return True


@kernel
def copy_out(handle, offset, size, dst):
    """Copy up to ``size`` bytes from ``offset`` of a packet, across its segments, to ``dst``; return how many."""
    done = i64(0)
    while handle != 0 and done < size:
        p = Packet(handle)
        length = i64(p.length)
        if offset < length:
            run = min(length - offset, size - done)
            copy(dst + done, data(p) + offset, run)
            done += run
            offset = i64(0)
        else:
            offset -= length
        handle = p.next
    return done
