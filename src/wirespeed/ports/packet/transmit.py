"""The transmitting stage: packets into slots of a ring, and one system call for a burst of them.

Theory of operation
-------------------
A burst's packets are written into slots one after the other, and one ``send`` has the kernel take all of them.  In front
of each frame is a virtio-net header.  Its ``hdr_len`` tells how much of the frame the kernel shall copy into its own
buffer's first piece; of the rest it would show the ring's pages, which costs it more for short frames (and on a veth it
copies these then, into pages of their own): so we say all of it.

What does not fit into a slot, or lies in several buffers, is written to a second socket, which has no ring, straight
from the packet's buffers.  The ring is transmitted before that, so the order is kept.

A packet whose checksum is to be done, or that is to be cut, is handed to the kernel as it is.  It is made into frames
here, which wait in a box until they are sent, without offloads; when others hold the packet as well, so that nothing may
be written into it; and when it has more than 64 kB: of such a one from a program, Linux takes the jumbo option of IPv6
out, lets it pass uncut, and finds at the other end that it has no length (``ipv6_gso_segment``, seen in 6.18).

What the kernel did not take of a burst is taken back out of the ring, and refused: the worker offers it again.  But an
interface may refuse a packet each time, as a veth does when the other end's MTU is lower, and never say so.  So waiting
for one packet is bounded (:mod:`wirespeed.ports.packet.patience`).

Thread rules: the state is its worker's; ``up`` and ``mtu`` are written by the control thread, each alone.

*Source:* Linux, ``tpacket_snd`` and ``packet_snd`` in net/packet/af_packet.c.
"""

import numpy as np

from wirespeed.core.free import free_bulk
from wirespeed.core.packet import PARTIAL, Packet, data
from wirespeed.core.stage import FIRST_REASON, Head, count_drops
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import copy, load_be16, load_handle, move, store_u16, store_u64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_send, sys_writev
from wirespeed.net.excerpt import is_alone
from wirespeed.net.offload import announce
from wirespeed.net.virtio_net import GSO_NONE, VirtioNetHeader
from wirespeed.ports.packet.box import Box, empty_box, in_box, unpack
from wirespeed.ports.packet.patience import Patience, is_patient
from wirespeed.ports.packet.receive import PIECES, Piece
from wirespeed.ports.packet.rings import Place, adopt
from wirespeed.ports.packet.slots import HEADER, SEND_REQUEST, VIRTIO, VLAN, WRONG_FORMAT, Slot

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64
BEFORE = HEADER + VIRTIO  # bytes of a slot before its frame
PIECE = Piece.size
MOST_SUPER = 0xFFFF  # bytes behind the link header of the largest super-frame that the kernel takes from us
ROUND = 128  # bytes that are copied whatever is in them, where there is room for as many
EAGAIN, EINVAL, EMSGSIZE, ENETDOWN, ENOBUFS, ENODEV, ENXIO = 11, 22, 90, 100, 105, 19, 6

DROPS = {
    "link_down": "The interface was down or not there",
    "too_long": "The frame, or what it is to be cut into, is longer than the interface's MTU, or in too many pieces",
    "wrong_link": "The packet's link type is not the interface's",
    "refused": "The kernel refused the frame: it is too short, or damaged",
    "no_room": "The interface took no packet for a while: its queue is full, or the other end drops them",
    "bad_offload": "A checksum or segmentation that was left to be done does not fit the packet's headers",
    "no_packet": "The pool had no packets for the frames that a super-frame was to be cut into",
}
LINK_DOWN, TOO_LONG, WRONG_LINK, REFUSED, NO_ROOM, BAD_OFFLOAD, NO_PACKET = range(
    FIRST_REASON, FIRST_REASON + len(DROPS)
)

State = layout(
    "PacketTransmitState",
    [
        ("head", Head),
        # filled by the part
        ("slots", "i8"),
        ("slot_size", "i8"),
        ("fd", "i8"),  # of the socket with the ring
        ("other", "i8"),  # of the one without
        ("link", "i8"),
        ("overhead", "i8"),  # bytes of a frame that the MTU does not count
        ("pieces", "i8"),  # address of Piece[PIECES]
        ("offloads", "i8"),  # 0: checksums and segmentation are done here
        # written by the control thread
        ("up", "i8"),
        ("mtu", "i8"),
        (None, 48),
        ("place", Place),  # its first line is written by the control thread; ``at`` is the slot that comes next
        # written by the worker
        ("patience", Patience),  # with the packet that was refused
        ("blocked", "i8"),  # 1 when the latest packet was refused
        ("header", "u1", 16),  # the virtio-net header of a packet that is sent without the ring
        ("box", Box),
        ("boxed", "i8"),  # 1 while it is the box that is sent from,
        ("lost", "i8"),  # and 1 once one of its frames was dropped, by which their packet counts as dropped
        (None, 32),
    ],
)
HEADER_AT, BOX_AT, PLACE_AT = State.offset("header"), State.offset("box"), State.offset("place")
PATIENCE_AT = State.offset("patience")
assert State.offset("up") % 64 == 0 and PLACE_AT % 64 == 0


@kernel
def _count(state, reason, n):
    """Count ``n`` packets as dropped; frames out of the box are one packet, whose first reason counts."""
    s = State(state)
    if s.boxed == 0:
        count_drops(state, reason, n)
    elif s.lost == 0:
        s.lost = 1
        count_drops(state, reason, 1)


@kernel(inline=True)
def _write(handle, at, size, space):
    """Write a frame into a slot that has room for it; ``space`` is what fits into a slot at most."""
    p = Packet(handle)
    to, source = at + BEFORE, data(p)
    # Bounds: what is read behind the frame is in the packet's own buffer, what is written in the slot.
    room = min(i64(p.capacity) - i64(p.data), space)
    if size <= ROUND and room >= ROUND:  # in one another, as where frames are received
        copy(to, source, 64)
        if size > 64:
            copy(to + 64, source + 64, ROUND - 64)
    else:
        copy(to, source, size)
    Slot(at).len = u32(size + VIRTIO)
    store_release(Slot(at), "status", u32(SEND_REQUEST))


@kernel
def _announce(handle, header, size):
    """Write the header of a frame with flag PARTIAL that need not be cut; False for one that is to go another way."""
    if Packet(handle).gso_size != 0 or not is_alone(handle) or not announce(handle, header):
        return False
    VirtioNetHeader(header).hdr_len = u16(size)
    return True


@kernel(inline=True)
def _fill(s, burst, n):
    """Write packets into slots until one must go another way or no slot is free; return how many, and their bytes."""
    space = s.slot_size - BEFORE
    most, least = min(space, s.mtu + s.overhead), max(s.overhead, i64(1))
    size, total, done = s.slot_size, i64(0), i64(0)
    at, end = s.place.ring + s.place.at * size, s.place.ring + s.slots * size
    while done < n and load_acquire(Slot(at), "status") == 0:
        handle = load_handle(burst + 8 * done)
        p = Packet(handle)
        length = i64(p.length)
        if p.segments != 1 or length > most or length < least or i64(p.link) != s.link:
            break
        if p.flags & PARTIAL:
            if s.offloads == 0 or not _announce(handle, at + HEADER, length):
                break
        else:
            store_u64(at + HEADER, u64(length) << u64(16))  # all zero but ``hdr_len``
            store_u16(at + HEADER + 8, u16(0))
        _write(handle, at, length, space)
        total += length
        done += 1
        at += size
        if at == end:
            at = s.place.ring
    return done, total


@kernel
def _refuse(state):
    """What becomes of a packet that the kernel did not take now: 0, to be offered again, or 1, dropped."""
    s = State(state)
    if is_patient(state + PATIENCE_AT):
        s.blocked = 1
        return i64(0)
    _count(state, NO_ROOM, i64(1))
    return i64(1)


@kernel
def _take_back(state, n, error):
    """After a kick that did not take all of ``n`` slots: take the rest back; return how many packets are settled."""
    s = State(state)
    taken, number = i64(0), s.place.at
    while load_acquire(Slot(s.place.ring + number * s.slot_size), "status") & u32(SEND_REQUEST | WRONG_FORMAT) == 0:
        taken += 1
        number = number + 1 if number + 1 < s.slots else i64(0)
    wrong = Slot(s.place.ring + number * s.slot_size).status & u32(WRONG_FORMAT) != 0
    s.place.at = number
    for _ in range(n - taken):
        slot = Slot(s.place.ring + number * s.slot_size)
        s.head.bytes -= u64(slot.len - u32(VIRTIO))
        store_release(slot, "status", u32(0))
        number = number + 1 if number + 1 < s.slots else i64(0)
    if taken > 0:
        s.patience.since = 0
    if wrong:
        _count(state, REFUSED, i64(1))
        return taken + 1
    if _is_down(error):
        _count(state, LINK_DOWN, n - taken)
        return n
    return taken + _refuse(state)


@kernel(inline=True)
def _is_down(error):
    """Whether what a system call returned says that the interface is down or not there."""
    return error == -ENETDOWN or error == -ENXIO or error == -ENODEV


@kernel(inline=True)
def _kick(state, n):
    """Have the kernel transmit ``n`` slots that were filled; return how many of their packets are settled."""
    s = State(state)
    error = sys_send(s.fd, i64(0), i64(0))
    last = s.place.at + n - 1
    if last >= s.slots:
        last -= s.slots
    # The slots are taken in order.
    if load_acquire(Slot(s.place.ring + last * s.slot_size), "status") & u32(SEND_REQUEST | WRONG_FORMAT) != 0:
        return _take_back(state, n, error)
    s.patience.since = 0
    s.place.at = last + 1 if last + 1 < s.slots else i64(0)
    return n


@kernel(inline=True)
def _is_tagged(handle):
    """Whether an Ethernet frame has a VLAN tag, which its MTU does not count."""
    p = Packet(handle)
    if i64(p.length) < 14:
        return False
    kind = load_be16(data(p) + 12)
    return kind == 0x8100 or kind == 0x88A8


@kernel
def _gather(state, handle):
    """List the header and the pieces of a packet; return how many there are, 0 when too many."""
    s = State(state)
    piece = Piece(s.pieces)
    piece.address = state + HEADER_AT
    piece.size = VIRTIO
    n = i64(1)
    while handle != 0:
        if n == PIECES:
            return i64(0)
        p = Packet(handle)
        piece = Piece(s.pieces + PIECE * n)  # Bounds: n is less than PIECES.
        piece.address = data(p)
        piece.size = i64(p.length)
        handle = p.next
        n += 1
    return n


@kernel
def _unpack(state, handle):
    """Make a packet into frames, into the box, which takes it over; 1 when it is dropped instead, else 2."""
    s = State(state)
    n = unpack(s.head.cache, handle, state + BOX_AT, s.mtu + s.overhead + (VLAN if s.overhead > 0 else 0))
    if n > 0:
        s.head.held = 1
        s.lost = 0
        return i64(2)
    _count(state, NO_PACKET if n == 0 else BAD_OFFLOAD if n == -1 else TOO_LONG, i64(1))
    return i64(1)


@kernel
def _send_box(state):
    """Send the frames in the box; some stay when the kernel does not take them now."""
    s, box = State(state), Box(state + BOX_AT)
    s.boxed = 1
    if s.up == 0:
        _count(state, LINK_DOWN, i64(1))
        empty_box(s.head.cache, state + BOX_AT)
    while box.begin < box.end and s.blocked == 0:
        first = box.frames + 8 * box.begin
        sent = _send_some(state, first, box.end - box.begin)
        free_bulk(s.head.cache, first, sent)
        box.begin += sent
    s.boxed = 0
    s.head.held = 1 if box.begin < box.end else 0


@kernel
def _send_alone(state, handle):
    """Send a packet that is not for the ring; 1 when it is sent or dropped, 0 when it is to be offered again."""
    s, p = State(state), Packet(handle)
    header = state + HEADER_AT
    if i64(p.link) != s.link:
        _count(state, WRONG_LINK, i64(1))
        return i64(1)
    if i64(p.total) < max(s.overhead, i64(1)):
        _count(state, REFUSED, i64(1))
        return i64(1)
    large = i64(p.total) - s.overhead > MOST_SUPER
    ours = p.flags & PARTIAL and (large or s.offloads == 0 or not is_alone(handle))
    if ours or not announce(handle, header):  # which cannot say it of a super-frame in a tunnel
        return _unpack(state, handle)
    h = VirtioNetHeader(header)
    longest = i64(p.total) if h.gso_type == GSO_NONE else i64(h.hdr_len) + i64(h.gso_size)
    allowed = s.mtu + s.overhead
    if s.overhead > 0 and _is_tagged(handle):
        allowed += VLAN
    n = _gather(state, handle)
    if longest > allowed or n == 0:
        _count(state, TOO_LONG, i64(1))
        return i64(1)
    done = sys_writev(s.other, s.pieces, n)
    if done >= 0:
        s.patience.since = 0
        s.head.bytes += u64(p.total)
    elif done == -EMSGSIZE:
        _count(state, TOO_LONG, i64(1))
    elif _is_down(done):
        _count(state, LINK_DOWN, i64(1))
    elif done == -EAGAIN or done == -ENOBUFS:
        return _refuse(state)
    else:
        _count(state, REFUSED, i64(1))
    return i64(1)


@kernel(inline=True)
def _send_some(state, burst, n):
    """Send the first of ``n`` packets, or as many as go together; return how many are sent or dropped."""
    s = State(state)
    filled, total = _fill(s, burst, n)
    if filled > 0:
        s.head.bytes += u64(total)
        return _kick(state, filled)
    if Slot(s.place.ring + s.place.at * s.slot_size).status != 0:
        return _refuse(state)
    return _send_alone(state, load_handle(burst))


@kernel
def abandon(state):
    """Drop what is still in the box, at the end of a run."""
    s = State(state)
    if in_box(state + BOX_AT) > 0:
        empty_box(s.head.cache, state + BOX_AT)
        s.head.held = 0
        s.boxed = 1
        _count(state, NO_ROOM, i64(1))


@stage
def transmit(state, burst, n):
    """Transmit packets; what the kernel does not take now is refused."""
    s = State(state)
    done, begin = i64(0), i64(0)
    s.blocked = 0
    adopt(state + PLACE_AT)
    if in_box(state + BOX_AT) > 0:
        _send_box(state)
    if s.up == 0:
        _count(state, LINK_DOWN, n)
        done = n
    while done < n and s.blocked == 0:
        sent = _send_some(state, burst + 8 * done, n - done)
        if s.head.held != 0 and in_box(state + BOX_AT) > 0:
            # The box has taken the packet over: those before it are freed, and it is none of the burst any more.
            free_bulk(s.head.cache, burst + 8 * begin, done - begin)
            done += 1
            begin = done
            _send_box(state)
        else:
            done += sent
    free_bulk(s.head.cache, burst + 8 * begin, done - begin)
    move(burst, burst + 8 * done, 8 * (n - done))
    return n - done
