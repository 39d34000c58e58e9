"""The receiving stage: frames out of the ring into packets of the pool.

Theory of operation
-------------------
The kernel fills the slots in order and says so in their status.  A burst looks how many are filled, takes as many
packets from the pool at once, copies, and gives each slot back.  What most frames are not is dealt with out of line:
longer than a packet's buffer (a chain is made), with a VLAN tag that the kernel took out (it is put back, into the
headroom, by moving the two addresses), on its way out (skipped), cut.

A frame longer than a slot is there a second time, whole, in the socket's buffer, and the slot says so: it is read from
there straight into a chain, which is a copy less than a ring of large slots would need.  When that buffer was full
the frame is cut, and dropped with that reason.

In front of each frame is a virtio-net header with what the sender left to be done; see :mod:`wirespeed.net.offload`.
Without offloads it is done here, and what that makes of a super-frame is given before the next slot is looked at.

A frame for a chain may find that the pool has too few packets.  It is tried once more with no other of its burst, whose
packets may be what it lacks, and then waits; but other ports may keep the pool's packets for good (an xdp port in its
fill ring), so that is bounded (:mod:`wirespeed.ports.packet.patience`), and those behind it come to their turn.  A frame for
which there is not one packet waits in the ring, as do all others then; when that is full the kernel drops, and counts.

When the interface has come back as another one, there is another ring (:mod:`wirespeed.ports.packet.rings`); the stage
goes over to it once the old one has nothing more.

Thread rules: the state is its worker's, but for the first line of ``place``.  Order pairs: S1, the acquiring load of a
slot's status, pairs with the kernel's barrier before it sets it; S0, the releasing store, with the kernel's look at it.
"""

import numpy as np

from wirespeed.core.chain import alloc_length, copy_in
from wirespeed.core.free import free_segments
from wirespeed.core.packet import HEADROOM, PARTIAL, Packet, data, prepend, reset
from wirespeed.core.pool import alloc, alloc_bulk, put_bulk, put_one
from wirespeed.core.stage import FIRST_REASON, Head, count_drops
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import (
    copy,
    load_handle,
    move,
    prefetch,
    store_be16,
    store_i64,
)
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_readv, sys_receive
from wirespeed.net.offload import BAD_OFFLOAD, describe
from wirespeed.ports.frame_stages import can_hold
from wirespeed.ports.packet.box import Box, empty_box, in_box, take_out, unpack
from wirespeed.ports.packet.patience import Patience, is_patient
from wirespeed.ports.packet.rings import Place, adopt
from wirespeed.ports.packet.slots import COPY, USER, VIRTIO, VLAN, VLAN_TPID_VALID, VLAN_VALID, Slot

u32, i64, u64 = np.uint32, np.int64, np.uint64
SLOT_HEADER = Slot.size
BILLION = 1_000_000_000
ROUND = 256  # bytes that are copied whatever is in them, where there is room for as many
UNUSUAL = COPY | VLAN_VALID
TAGGED = 0x8100  # the TPID of a tag of which the kernel tells none
NO_LIMIT = 1 << 30
PIECES = 1024  # UIO_MAXIOV, include/uapi/linux/uio.h

DROPS = {
    "cut": "The frame was longer than a slot of the ring, and the socket's buffer had no room for it",
    "no_room": "The frame needs more buffers than the pool has",
    "malformed": "The kernel's ring describes a frame that is not in its slot",
    "no_packet": "The pool had too few packets for a long frame, or for those that a super-frame was to be cut into",
}
CUT, NO_ROOM, MALFORMED, NO_PACKET = range(FIRST_REASON, FIRST_REASON + len(DROPS))

Piece = layout("Piece", [("address", "i8"), ("size", "i8")])  # struct iovec
PIECE = Piece.size

State = layout(
    "PacketReceiveState",
    [
        ("head", Head),
        # filled by the part
        ("slots", "i8"),
        ("slot_size", "i8"),
        ("room", "i8"),  # bytes of a frame that fit into one buffer of the pool
        ("snaplen", "i8"),  # most bytes of a frame that are wanted
        ("skip", "i8"),  # kinds of packets that are not wanted, a bit for each ``pkttype``
        ("link", "i8"),
        ("fd", "i8"),
        ("pieces", "i8"),  # address of Piece[PIECES]
        ("offloads", "i8"),  # 0: checksums and segmentation are done here
        (None, 56),
        ("place", Place),  # its first line is written by the control thread; ``at`` is the slot that comes next
        ("bad_offload", "u8"),  # packets whose header said what does not fit them
        ("skipped", "u8"),  # frames of a kind that is not wanted
        ("alone", "i8"),  # 1 while the frame that comes next is to have the pool for itself,
        ("patience", Patience),  # and with it
        ("header", "u1", 16),  # the virtio-net header of a frame that is read from the buffer
        ("box", Box),
        (None, 56),
    ],
)
HEADER_AT, BOX_AT, PLACE_AT = State.offset("header"), State.offset("box"), State.offset("place")
PATIENCE_AT = State.offset("patience")
assert PLACE_AT % 64 == 0


@kernel(inline=True)
def _filled(s, n):
    """How many slots from the next one on are filled, of ``n``."""
    size, found = s.slot_size, i64(0)
    at, end = s.place.ring + s.place.at * size, s.place.ring + s.slots * size
    while found < n and load_acquire(Slot(at), "status") & u32(USER):  # S1
        prefetch(at + 64)
        prefetch(at + 128)
        found += 1
        at += size
        if at == end:
            at = s.place.ring
    return found


@kernel(inline=True)
def _is_usual(s, slot, mac, size):
    """Whether a slot holds a whole frame for one buffer, without anything to be done to it."""
    return (
        slot.status & u32(UNUSUAL) == 0
        and size == i64(slot.len)
        and size > 0
        and size <= s.room
        and size <= s.snaplen
        and mac >= SLOT_HEADER + VIRTIO
        and mac + max(size, i64(ROUND)) <= s.slot_size
        and s.skip >> (i64(slot.pkttype) & 7) & 1 == 0
    )


@kernel(inline=True)
def _copy_frame(dst, src, size, room):
    """Copy a frame whose slot has ROUND bytes at least and whose buffer ``room``; short ones need no call.

    One copy lies in the other's branch, for of three beside each other LLVM makes one, a call, with a size that varies.
    """
    if size <= ROUND and room >= ROUND:
        copy(dst, src, 64)
        if size > 64:
            copy(dst + 64, src + 64, 64)
            if size > 128:
                copy(dst + 128, src + 128, ROUND - 128)
    else:
        copy(dst, src, size)


@kernel(inline=True)
def _label(s, slot, p):
    """What the kernel tells of a packet beside its bytes."""
    p.time = i64(slot.sec) * BILLION + i64(slot.nsec)
    p.link = s.link


@kernel
def _skip_copy(s):
    """Take a frame that is not wanted out of the socket's buffer."""
    sys_receive(s.fd, s.pieces, i64(0))


@kernel
def _read_copy(state, handle, size):
    """Read a frame of ``size`` bytes out of the socket's buffer into a packet; whether it was there."""
    s = State(state)
    piece = Piece(s.pieces)
    piece.address = state + HEADER_AT
    piece.size = VIRTIO
    n, segment = i64(1), handle
    while segment != 0 and n < PIECES:
        piece = Piece(s.pieces + PIECE * n)  # Bounds: n is less than PIECES.
        piece.address = data(Packet(segment))
        piece.size = i64(Packet(segment).length)
        segment = Packet(segment).next
        n += 1
    if segment != 0:
        _skip_copy(s)
        return False
    got = sys_readv(s.fd, s.pieces, n)
    if got < 0:  # an error of the socket that is pending is told once, and the frame is still there
        got = sys_readv(s.fd, s.pieces, n)
    return got == VIRTIO + size


@kernel
def _put_tag_back(handle, slot):
    """Put the tag that the kernel took out before what follows the addresses."""
    p = Packet(handle)
    if i64(p.length) < 12 or not prepend(handle, i64(VLAN)):
        return False
    move(data(p), data(p) + VLAN, i64(12))
    store_be16(data(p) + 12, i64(slot.vlan_tpid) if slot.status & u32(VLAN_TPID_VALID) else i64(TAGGED))
    store_be16(data(p) + 14, i64(slot.vlan_tci))
    p.wire = u32(p.wire + u32(VLAN))
    return True


@kernel
def _make_chain(cache, spot, size):
    """Put a chain for ``size`` bytes in the place of the packet at ``spot``; False, and one is there, if it cannot be."""
    put_one(cache, load_handle(spot))  # the chain may need it
    handle = alloc_length(cache, size)
    # What failed has given back what it had, and that to this cache: it is not empty.
    store_i64(spot, handle if handle != 0 else alloc(cache))
    return handle != 0


@kernel
def _lack(state, size):
    """What becomes of a frame of ``size`` bytes for which the pool has too few packets: -1, it waits, or 0, dropped."""
    s = State(state)
    if not can_hold(s.head.cache, size):
        count_drops(state, NO_ROOM, 1)
        return i64(0)
    if s.alone == 0:
        s.alone = 1
        return i64(-1)
    if is_patient(state + PATIENCE_AT):
        return i64(-1)
    count_drops(state, NO_PACKET, 1)
    return i64(0)


@kernel
def _take(state, at, spot):
    """Make a packet of an unusual slot at an address, of the one at ``spot`` or in its place.

    1 when it is there; 0 for none, and -1 when the slot is to wait: then a packet to be used is there as before.
    """
    s, slot = State(state), Slot(at)
    mac, there, whole = i64(slot.mac), i64(slot.snaplen), i64(slot.len)
    copied = slot.status & u32(COPY) != 0
    wanted = min(whole, s.snaplen)
    sound = mac >= SLOT_HEADER + VIRTIO and mac + there <= s.slot_size and there <= whole and whole > 0
    skipped = s.skip >> (i64(slot.pkttype) & 7) & 1 != 0
    if not sound or skipped or (wanted > there and not copied):
        if copied:
            _skip_copy(s)
        if not sound:
            count_drops(state, MALFORMED, 1)
        elif skipped:
            s.skipped += u64(1)
        else:
            count_drops(state, CUT, 1)
        return i64(0)
    if wanted <= s.room:
        reset(Packet(load_handle(spot)), wanted)
    elif _make_chain(s.head.cache, spot, wanted):
        s.patience.since = 0
    else:
        found = _lack(state, wanted)
        if found == 0 and copied:
            _skip_copy(s)
        return found
    handle, header = load_handle(spot), at + mac - VIRTIO
    if wanted > there:
        if not _read_copy(state, handle, wanted):
            count_drops(state, CUT, 1)
            if Packet(handle).segments > 1:
                free_segments(s.head.cache, handle)
                store_i64(spot, alloc(s.head.cache))  # which has them
            return i64(0)
        header = state + HEADER_AT
    else:
        copy_in(handle, i64(0), wanted, at + mac)
        if copied:
            _skip_copy(s)
    _label(s, slot, Packet(handle))
    Packet(handle).wire = slot.len
    if wanted == whole and not describe(handle, header, i64(VIRTIO)):
        s.bad_offload += u64(1)
    if slot.status & u32(VLAN_VALID):
        _put_tag_back(handle, slot)
    return i64(1)


@kernel
def _finish(state, handle):
    """Do what the sender left to be done: return the one frame that this makes, or 0 when it is dropped, or in the box."""
    s = State(state)
    n = unpack(s.head.cache, handle, state + BOX_AT, i64(NO_LIMIT))
    if n == 1:
        take_out(state + BOX_AT, s.pieces, i64(1))
        return load_handle(s.pieces)
    if n == BAD_OFFLOAD:
        s.bad_offload += u64(1)
        return handle
    if n <= 0:
        free_segments(s.head.cache, handle)
        count_drops(state, NO_PACKET, 1)
    return i64(0)


@kernel
def _alloc_some(cache, burst, n):
    """Take packets from a pool that has fewer than ``n``, half as many or less; return how many."""
    while n > 1:
        n = n // 2
        if alloc_bulk(cache, burst, n) > 0:
            return n
    return i64(0)


@kernel
def unread(state):
    """How many frames are still in a worker's ring, and in the one it was to go over to, when none come any more."""
    s = State(state)
    n = _filled(s, s.slots)
    if adopt(state + PLACE_AT):
        n += _filled(s, s.slots)
    return n


@kernel
def abandon(state):
    """Free what is still in the box, at the end of a run."""
    empty_box(State(state).head.cache, state + BOX_AT)


@stage
def receive(state, burst, n):
    """Give up to ``n`` frames of the ring."""
    s = State(state)
    if in_box(state + BOX_AT) > 0:
        return take_out(state + BOX_AT, burst, n)
    n = _filled(s, n)
    if n == 0:
        adopt(state + PLACE_AT)
        return i64(0)
    if s.alone != 0:
        n = i64(1)
    if alloc_bulk(s.head.cache, burst, n) == 0:
        n = _alloc_some(s.head.cache, burst, n)
    size, total, passed, kept, gone = s.slot_size, i64(0), i64(0), i64(0), i64(0)
    at, end = s.place.ring + s.place.at * size, s.place.ring + s.slots * size
    for _ in range(n):
        slot, handle = Slot(at), load_handle(burst + 8 * kept)
        mac, length = i64(slot.mac), i64(slot.snaplen)
        if _is_usual(s, slot, mac, length):
            p = Packet(handle)
            reset(p, length)
            _copy_frame(p.buffer + HEADROOM, at + mac, length, s.room)
            _label(s, slot, p)
            if not describe(handle, at + mac - VIRTIO, i64(VIRTIO)):
                s.bad_offload += u64(1)
            total += length
            kept += 1
        else:
            made = _take(state, at, burst + 8 * kept)
            if made < 0:
                break
            s.alone = 0
            if made > 0:
                total += i64(Packet(load_handle(burst + 8 * kept)).total)
                kept += 1
        store_release(slot, "status", u32(0))  # S0
        passed += 1
        at += size
        if at == end:
            at = s.place.ring
        if s.offloads == 0 and kept > 0 and Packet(load_handle(burst + 8 * (kept - 1))).flags & PARTIAL:
            made = _finish(state, load_handle(burst + 8 * (kept - 1)))
            if made == 0:
                gone += 1
                kept -= 1
                store_i64(burst + 8 * kept, load_handle(burst + 8 * (n - gone)))
                if in_box(state + BOX_AT) > 0:
                    break
            else:
                store_i64(burst + 8 * (kept - 1), made)
    passed += s.place.at
    s.place.at = passed if passed < s.slots else passed - s.slots
    s.head.bytes += u64(total)
    put_bulk(s.head.cache, burst + 8 * kept, n - gone - kept)
    return kept
