"""The stage that transmits: packets go out by their address, and are freed when the kernel has sent them.

Theory of operation
-------------------
A packet that is the pool's own and nobody else's is given to the kernel as it is, a chain as several descriptors where the
socket may have such packets.  Any other (of another pool, with external memory, held by others too) is copied first.
What is left to be done on a packet is done before: this port's other side knows nothing of partial checksums.

The kernel sends when it is called, a number of packets at a time; it is called when it asks for that (``needs_wakeup``),
once a burst, and again, by the ticks, for as long as something is left in the ring.  What it has sent stands in
the completion ring, and is held until it was fetched from there: a pool that is small may be there as a whole, and then
nothing comes that would have us called.

Thread rule: one worker.  X5, the releasing store of the socket in use, gives the old one up to the control thread, which
took care of the new one's record before X4 (:mod:`wirespeed.ports.xdp.ring`).
"""

import numpy as np

from wirespeed.core.clone import copy_packet
from wirespeed.core.free import free_mixed, free_segments
from wirespeed.core.packet import PARTIAL, Packet, data
from wirespeed.core.stage import FIRST_REASON, WAITS, Head, count_drops, drop
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import load_be16, load_handle, move
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.net.completion import complete
from wirespeed.net.excerpt import is_alone
from wirespeed.net.offload import NO_PACKET as NOTHING
from wirespeed.net.offload import TOO_LONG as LONG
from wirespeed.net.segmentation import MOST_FRAMES, segment
from wirespeed.ports.xdp.lending import FRAME_LIMIT, can_go, is_looked_at, is_plain, put, put_chain, reap, send, unsent
from wirespeed.ports.xdp.partial import ETHER_SERVICE_TAG, ETHER_TAG
from wirespeed.ports.xdp.ring import SINGLE, Socket, Use, Word, free_slots

u32, i64, u64 = np.uint32, np.int64, np.uint64
DROPS = {
    "link_down": "The interface was down or gone",
    "too_long": "The frame is longer than the interface carries, or than AF_XDP can send: 17 buffers, some 36 kB",
    "too_short": "It is shorter than an Ethernet header",
    "bad_offload": "A checksum or segmentation that was left to be done does not fit the packet's headers",
    "no_packet": "The pool had no packets for a copy or for the frames to be made",
    "not_sent": "The kernel had not sent it when the port was closed",
}
LINK_DOWN, TOO_LONG, TOO_SHORT, BAD_OFFLOAD, NO_PACKET, NOT_SENT = range(FIRST_REASON, FIRST_REASON + 6)
ETHERNET = 14

State = layout(
    "XdpSink",
    [
        ("head", Head),
        ("use", Use),
        # written by the control thread
        ("down", "i8"),  # whether the link is down
        ("longest", "i8"),  # bytes of the longest frame, its tags not counted
        ("box", "i8"),  # address of handles, MOST_FRAMES of them
        (None, 40),
        # written by the worker
        ("boxed", "i8"),  # frames that a packet was cut into, in the box,
        ("sent", "i8"),  # and how many of them were sent
        ("made", "i8"),  # frames that packets were cut into, less these packets
        (None, 40),
    ],
)


@kernel
def adopt(state):
    """Use another socket from now on, and let the control thread have the old one; what that did not send is lost."""
    me = State(state)
    if me.use.socket != 0:
        count_drops(state, LINK_DOWN, unsent(Socket(me.use.socket)))
    me.head.held = 0
    store_release(me.use, "socket", load_acquire(me.use, "next"))  # X5


@kernel
def write_off(state):
    """Count what the kernel has not sent, for who closes the port."""
    me = State(state)
    if me.use.socket != 0:
        count_drops(state, NOT_SENT, unsent(Socket(me.use.socket)))
    count_drops(state, NOT_SENT, me.boxed - me.sent)
    free_mixed(me.head.cache, me.box + 8 * me.sent, me.boxed - me.sent)
    me.boxed = 0
    me.sent = 0
    me.head.held = 0


@kernel
def exchange(state, s, handle):
    """A copy of a packet that the kernel can be given, in its place; 0, and it is dropped, when there is none."""
    cache = Head(state).cache
    new = copy_packet(s.cache if s.cache != 0 else cache, handle, i64(0), i64(Packet(handle).total))
    if new == 0:
        drop(state, handle, NO_PACKET)
        return new
    free_segments(cache, handle)
    return new


@kernel
def fits(handle, longest):
    """Whether a packet is not longer than the interface carries; each of up to two tags is four bytes more."""
    p = Packet(handle)
    size, at = i64(p.total), i64(12)
    for _ in range(2):
        if size <= longest or i64(p.length) < at + 2:
            break
        kind = load_be16(data(p) + at)
        if kind != ETHER_TAG and kind != ETHER_SERVICE_TAG:
            break
        longest += 4
        at += 4
    return size <= longest


@kernel
def put_any(state, s, handle):
    """Write the descriptors of a packet of any form, or drop it; there is room for FRAME_LIMIT of them."""
    if not can_go(s, handle):
        handle = exchange(state, s, handle)
        if handle == 0:
            return
    p = Packet(handle)
    if not fits(handle, State(state).longest) or not can_go(s, handle):
        drop(state, handle, TOO_LONG)
        return
    if i64(p.total) < ETHERNET:
        drop(state, handle, TOO_SHORT)
        return
    q = s.tx
    put_chain(s, q.mine, handle)
    q.mine = u32(q.mine + u32(p.segments))
    store_release(Word(q.producer), "value", q.mine)  # X2
    s.sending += 1
    Head(state).bytes += u64(p.total)


@kernel
def empty_box(state, s):
    """Send what the box has, as far as there is room; whether it is empty."""
    me = State(state)
    while me.sent < me.boxed:
        if free_slots(s.tx) < FRAME_LIMIT:
            return False
        put_any(state, s, load_handle(me.box + 8 * me.sent))
        me.sent += 1
    me.sent = 0
    me.boxed = 0
    return True


@kernel
def cut(state, s, handle):
    """Cut a packet into the frames that it stands for, which are in the box then, or drop it."""
    me = State(state)
    # Two tags are let pass here: each frame is looked at when it goes.
    n = segment(me.head.cache, handle, me.longest + 8, me.box, i64(MOST_FRAMES))
    if n > 0:
        me.boxed = n
        me.made += n - 1
    else:
        drop(state, handle, NO_PACKET if n == NOTHING else TOO_LONG if n == LONG else BAD_OFFLOAD)


@kernel
def take_odd(state, s, handle):
    """Send a packet that cannot go as it is; False, and nothing was done, when there is no room."""
    if free_slots(s.tx) < FRAME_LIMIT:
        return False
    p = Packet(handle)
    if p.flags & PARTIAL == 0:
        put_any(state, s, handle)
    elif p.gso_size != 0:
        cut(state, s, handle)
        empty_box(state, s)
    else:
        if not is_alone(handle):
            handle = exchange(state, s, handle)
        if handle != 0 and complete(handle):
            put_any(state, s, handle)
        elif handle != 0:
            drop(state, handle, BAD_OFFLOAD)
    return True


@kernel
def drop_all(state, burst, n, reason):
    """Drop a burst."""
    for i in range(n):
        drop(state, load_handle(burst + 8 * i), reason)


@kernel
def drop_box(state):
    """Drop what the box has."""
    me = State(state)
    drop_all(state, me.box + 8 * me.sent, me.boxed - me.sent, LINK_DOWN)
    me.sent = 0
    me.boxed = 0


@kernel(inline=True)
def tell(me, s):
    """Say what is not back yet, so that we are called again while others may lack just these packets."""
    me.head.held = s.sending + me.boxed - me.sent
    me.head.full = i64(WAITS) if me.boxed == me.sent and is_looked_at(s) else i64(0)


@stage
def transmit(state, burst, n):
    """Take packets to be sent, as many as there is room for."""
    me = State(state)
    if me.use.socket != load_acquire(me.use, "next"):
        adopt(state)
    if me.use.socket == 0 or me.down != 0:
        drop_all(state, burst, n, LINK_DOWN)
        drop_box(state)
        me.head.held = 0
        if me.use.socket != 0:
            reap(me.head.cache, Socket(me.use.socket))
            tell(me, Socket(me.use.socket))
        return i64(0)
    s, q = Socket(me.use.socket), Socket(me.use.socket).tx
    reap(me.head.cache, s)
    done = i64(0)
    if me.boxed == 0 or empty_box(state, s):
        longest = me.longest
        room, slot, total, packets = free_slots(q), q.mine, i64(0), i64(0)
        while done < n:
            handle = load_handle(burst + 8 * done)
            p = Packet(handle)
            size = i64(p.total)
            if is_plain(s, p) and size <= longest and size >= ETHERNET:
                if room == 0:
                    break
                put(s, slot, p, SINGLE, u32(0))
                slot = u32(slot + u32(1))
                room -= 1
                total += size
                packets += 1
            else:
                q.mine = slot
                store_release(Word(q.producer), "value", slot)  # X2
                if not take_odd(state, s, handle):
                    break
                room, slot = free_slots(q), q.mine
                if me.boxed != 0:
                    done += 1
                    break
            done += 1
        q.mine = slot
        store_release(Word(q.producer), "value", slot)  # X2
        s.sending += packets
        me.head.bytes += u64(total)
    send(s)
    tell(me, s)
    if done > 0:
        move(burst, burst + 8 * done, 8 * (n - done))
    return n - done
