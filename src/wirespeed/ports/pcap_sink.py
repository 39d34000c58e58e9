"""The stages that write packets into a capture: a sink, and a tap that lets them pass.

All workers write into one file, each a burst at a time under the writer's lock, so that what is in one burst stays
together and in order.  Copying is what a packet costs; the file is written in large pieces, and at least ten times a
second by the control thread.
"""

import numpy as np

from wirespeed.core.free import free_bulk
from wirespeed.core.lock import lock, unlock
from wirespeed.core.packet import INTERFACE, META, Packet, data
from wirespeed.core.stage import FIRST_REASON, Head, count_drops, drop
from wirespeed.jit.intrinsics import copy, load_handle, move, store_i64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout
from wirespeed.net.capture.heading import Writer
from wirespeed.net.capture.outlet import OPTIONS_ROOM, flush
from wirespeed.net.capture.record import NO_LINK, NO_ROOM, close_record, open_record
from wirespeed.ports.pcap_copy import WHOLE, copy_blocks

i64, u64 = np.int64, np.uint64
DROPS = {
    "write_error": "The file, pipe or socket could not be written",
    "wrong_link": "Its link type is not that of the pcap file; a pcapng file takes any",
}
WRITE_ERROR, WRONG_LINK = FIRST_REASON, FIRST_REASON + 1

State = layout("CaptureSink", [("head", Head), ("writer", "i8"), (None, 56)])


@kernel(inline=True)
def copy_segment(to, p, size):
    """Copy ``size`` bytes of a segment.

    Bounds: whole blocks where up to 63 more bytes lie inside the segment's buffer; behind the writer's there are.
    """
    source = data(p)
    if i64(p.data) + size + WHOLE <= i64(p.capacity):
        copy_blocks(to, source, size)
    else:
        copy(to, source, size)


@kernel
def copy_chain(to, handle, size):
    """Copy ``size`` bytes of a chain of segments."""
    while handle != 0 and size > 0:
        p = Packet(handle)
        run = min(i64(p.length), size)
        copy(to, data(p), run)
        to += run
        size -= run
        handle = p.next


@kernel(inline=True)
def options_of(w, p):
    """The address and size of the options that a packet carries for a pcapng file."""
    if p.flags & META == 0 or w.outlet.pcapng == 0:
        return i64(0), i64(0)
    meta = Packet(p.meta)
    if i64(meta.length) > OPTIONS_ROOM:
        w.options_lost += 1
        return i64(0), i64(0)
    return data(meta), i64(meta.length)


@kernel(inline=True)
def write_packet(w, handle):
    """Write a packet; 1, NO_ROOM, NO_LINK or NOBODY."""
    p = Packet(handle)
    captured = i64(p.total)
    if captured > w.snaplen:
        captured = w.snaplen
        w.cut += 1
    interface = i64(p.interface) if p.flags & INTERFACE else i64(0)
    options, options_size = options_of(w, p)
    to = open_record(w, p.time, captured, i64(p.wire), i64(p.link), interface, options_size)
    if to <= 0:
        return to
    if p.next == 0:
        copy_segment(to, p, captured)
    else:
        copy_chain(to, handle, captured)
    close_record(w, captured, options, options_size)
    return i64(1)


@kernel
def book_losses(w, state):
    """Count packets that were taken and then could not be written."""
    count_drops(state, WRITE_ERROR, w.outlet.lost)
    w.outlet.lost = 0


@stage
def transmit(state, burst, n):
    """Write packets; what a stream does not take now is refused."""
    w = Writer(State(state).writer)
    lock(w)
    done, kept, total = i64(0), i64(0), i64(0)
    while done < n:
        handle = load_handle(burst + 8 * done)
        result = write_packet(w, handle)
        if result == NO_ROOM:
            break
        if result > 0:
            total += i64(Packet(handle).total)
            store_i64(burst + 8 * kept, handle)
            kept += 1
        else:
            drop(state, handle, WRONG_LINK if result == NO_LINK else WRITE_ERROR)
        done += 1
    if w.outlet.lost != 0:
        book_losses(w, state)
    unlock(w)
    Head(state).bytes += u64(total)
    free_bulk(Head(state).cache, burst, kept)
    move(burst, burst + 8 * done, 8 * (n - done))
    return n - done


@stage
def observe(state, burst, n):
    """Write copies of the packets that pass; a copy that cannot be written is missed, the packet goes on."""
    w = Writer(State(state).writer)
    lock(w)
    for i in range(n):
        if write_packet(w, load_handle(burst + 8 * i)) <= 0:
            w.missed += 1
    w.missed += w.outlet.lost
    w.outlet.lost = 0
    unlock(w)
    return n


@kernel
def book(state):
    """Book what was lost after the last burst, for who closes the file."""
    book_losses(Writer(State(state).writer), state)


@kernel
def write_out(writer):
    """Write what waits in the buffer, for the control thread."""
    w = Writer(writer)
    lock(w)
    if w.outlet.used != 0 and w.outlet.broken == 0:
        flush(w.outlet)
    unlock(w)
