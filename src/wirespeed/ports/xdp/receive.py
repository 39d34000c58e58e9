"""The stage that receives: packets which the kernel has filled, and empty ones in their place.

Theory of operation
-------------------
What stands in the receive ring *is* packets of the pool: an address is turned back into a handle, checked, and the packet
is reset to where its data lies.  A packet in several frames becomes a chain.  Then the kernel is given as many empty ones
as it has filled; when the pool has none at the moment, each call tries again, so that the ring never stays dry.

On a veth, what is to be read was written by the sender's core a moment ago, and a look that is made all the time finds
one packet.  So the time goes into waiting for lines of that core, and they are asked for together (``expect``).

Thread rule: one worker.  X1, the releasing store of the receive ring's consumer, keeps the reading of descriptors before
it.  What is used is told by X4 and given up by X5, the releasing store of the socket in use.
"""

import numpy as np

from wirespeed.core.free import free_segments
from wirespeed.core.packet import Packet, reset
from wirespeed.core.pool import RECORD
from wirespeed.core.stage import FIRST_REASON, Head, drop
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import load_handle, prefetch, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import realtime_ns, sys_receive
from wirespeed.ports.xdp.partial import mark_partial
from wirespeed.ports.xdp.ring import (
    CONTINUED,
    DESCRIPTOR,
    OFFSET_SHIFT,
    Descriptor,
    Socket,
    Use,
    Word,
    expect,
    filled_slots,
    is_short,
    needs_wakeup,
    refill,
    take_filled,
)
from wirespeed.ports.xdp.transmit import adopt as adopt_sink

u16, u32, i64, u64 = np.uint16, np.uint32, np.int64, np.uint64
DROPS = {
    "malformed": "The kernel described a frame that does not lie in its packet",
    "too_many_frames": "A packet had more frames than a chain can have",
}
MALFORMED, TOO_MANY = FIRST_REASON, FIRST_REASON + 1
MOST_FRAMES = 256  # far more than the 18 that the kernel puts together (MAX_SKB_FRAGS + 1)

State = layout(
    "XdpSource",
    [
        ("head", Head),
        ("use", Use),
        # written by the control thread
        ("complete", "i8"),  # whether partial checksums are looked for
        ("mtu", "i8"),  # of the interface
        ("sink", "i8"),  # address of the state of the same worker's sink on the same queue, or 0
        (None, 40),
    ],
)


@kernel
def adopt(me):
    """Use another socket from now on, and let the control thread have the old one.

    The sink of the same worker does so as well, for it is not called while there is nothing to send.
    """
    store_release(me.use, "socket", load_acquire(me.use, "next"))  # X5
    if me.sink != 0:
        adopt_sink(me.sink)


@kernel
def let_go(state, s, reason):
    """Drop what there is of a packet that does not end well, and skip the rest of it."""
    if s.begun != 0:
        drop(state, s.begun, reason)
    s.begun = 0
    s.skipping = 1


@kernel
def join(state, s, handle, goes_on):
    """Add a frame to the packet that it is a part of; the packet when it is whole, else 0."""
    if s.skipping:
        free_segments(Head(state).cache, handle)
    elif s.begun == 0:
        s.begun = handle
        s.last = handle
    else:
        p = Packet(s.begun)
        if i64(p.segments) >= MOST_FRAMES:
            free_segments(Head(state).cache, handle)
            let_go(state, s, TOO_MANY)
        else:
            Packet(s.last).next = handle
            s.last = handle
            p.segments = u16(i64(p.segments) + 1)
            p.total = u32(i64(p.total) + i64(Packet(handle).length))
            p.wire = p.total
    if goes_on:
        return i64(0)
    handle = s.begun
    s.begun = 0
    s.skipping = 0
    return handle


@kernel
def spoil(state, s, handle, goes_on):
    """What is done with a frame that is not in its packet: its packet is dropped."""
    if handle != 0:
        drop(state, handle, MALFORMED)
    let_go(state, s, MALFORMED)
    if not goes_on:
        s.skipping = 0


@kernel(inline=True)
def is_inside(s, offset, length):
    """Whether a frame lies behind the record and in the chunk."""
    return offset >= RECORD and offset + length <= s.chunk


@stage
def receive(state, burst, n):
    """Give up to ``n`` packets."""
    me = State(state)
    if me.use.socket != load_acquire(me.use, "next"):
        adopt(me)
    if me.use.socket == 0:
        return i64(0)
    s, cache = Socket(me.use.socket), me.head.cache
    q = s.rx
    expect(s)
    waiting = min(filled_slots(q), n)
    if waiting == 0:
        if is_short(s):
            refill(s.cache if s.cache != 0 else cache, s)
        if needs_wakeup(s.fill):
            sys_receive(s.fd, i64(0), i64(0))
            s.wakeups += u64(1)
        return i64(0)
    now = realtime_ns()
    mine, mask, entries = q.mine, q.mask, q.entries
    complete, mtu = me.complete, me.mtu
    done, total = i64(0), i64(0)
    for i in range(waiting):
        d = Descriptor(entries + DESCRIPTOR * i64(u32(mine + u32(i)) & mask))
        address, length, goes_on = d.address, i64(d.length), d.options & CONTINUED != 0
        handle = take_filled(s, address)
        offset = i64(address >> u64(OFFSET_SHIFT))
        if handle == 0 or not is_inside(s, offset, length):
            spoil(state, s, handle, goes_on)
            continue
        p = Packet(handle)
        if complete:
            prefetch(p.buffer + offset - RECORD)
        reset(p, length)
        p.data = u32(offset - RECORD)
        p.time = now
        total += length
        if goes_on or s.begun != 0 or s.skipping != 0:
            handle = join(state, s, handle, goes_on)
            if handle == 0:
                continue
        store_i64(burst + 8 * done, handle)
        done += 1
    q.mine = u32(mine + u32(waiting))
    store_release(Word(q.consumer), "value", q.mine)  # X1
    me.head.bytes += u64(total)
    if is_short(s):
        refill(s.cache if s.cache != 0 else cache, s)
    if complete:  # last, for the frames come from the sender's core meanwhile
        for i in range(done):
            mark_partial(load_handle(burst + 8 * i), mtu)
    return done
