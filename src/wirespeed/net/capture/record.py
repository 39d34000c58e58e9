"""Writing packets as records of a capture: pcap with nano- or microseconds, pcapng with nanoseconds.

:func:`open_record` writes a record's header into the outlet's buffer and says where the packet's bytes go; the caller
copies them there, and :func:`close_record` writes what follows them.

Thread rules: one thread at a time; several take the ``lock`` of the writer.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture.format import ENHANCED_PACKET, EnhancedPacket, OptionHeader, PcapRecord, padded
from wirespeed.net.capture.heading import Writer, begin_file, find_interface
from wirespeed.net.capture.outlet import FAILED, OPTIONS_ROOM, flush, put, ready
from wirespeed.net.capture.rotation import watch_size
from wirespeed.net.capture.scan import Entry

u32, i64, u64 = np.uint32, np.int64, np.uint64
BILLION = 1_000_000_000
NO_ROOM, NO_LINK, NOBODY = 0, -1, -2  # what open_record returns in place of an address
RECORD, PACKET, OPTION = PcapRecord.size, EnhancedPacket.size, OptionHeader.size


@kernel(inline=True)
def size_of(o, captured, options_size):
    """Bytes of a record."""
    if o.pcapng == 0:
        return RECORD + captured
    size = PACKET + padded(captured) + 4
    return size + options_size + OPTION if options_size > 0 else size


@kernel(inline=True)
def split_time(w, time):
    """Keep the second that a time lies in, and return the nanoseconds beyond it."""
    rest = time - w.second_ns
    if rest < 0 or rest >= BILLION:  # packets mostly lie in the second of the one before
        second = time // BILLION
        w.second = second
        w.second_ns = second * BILLION
        rest = time - second * BILLION
    return rest


@kernel(inline=True)
def open_record(w, time, captured, wire, link, interface, options_size):
    """Write the header of a record; return the address for its bytes, or NO_ROOM, NO_LINK or NOBODY.

    ``captured`` is at most the snap length.  ``close_record`` must follow.
    """
    o = w.outlet
    if not ready(o):
        return i64(NOBODY if o.broken != 0 else NO_ROOM)
    if w.rotate_size != 0 or w.rotate_ns != 0:
        watch_size(w, time, size_of(o, captured, options_size))
    if o.fresh != 0:
        begin_file(w, link)
    rest = split_time(w, time)
    if o.pcapng == 0:
        if link != w.link:
            return i64(NO_LINK)
        record = PcapRecord(o.buffer + o.used)
        record.seconds = u32(w.second)
        record.fraction = u32(rest // 1000 if w.micro != 0 else rest)
        record.captured = captured
        record.wire = wire
        return o.buffer + o.used + RECORD
    key = link << 32 | interface
    number = w.last if key == w.last_key and w.known > 0 else find_interface(w, key)
    if number < 0:
        return i64(NO_LINK)
    block = EnhancedPacket(o.buffer + o.used)
    block.type = ENHANCED_PACKET
    block.interface = number
    block.high = u32(u64(time) >> u64(32))
    block.low = u32(time)
    block.captured = captured
    block.wire = wire
    return o.buffer + o.used + PACKET


@kernel(inline=True)
def close_record(w, captured, options, options_size):
    """Finish the record whose bytes are in place; ``options`` is the address of its options in machine order."""
    o = w.outlet
    w.packets += 1
    if o.pcapng == 0:
        put(o, RECORD + captured, i64(1))
        return
    begin = o.buffer + o.used
    at = begin + PACKET + padded(captured)
    store_u32(begin + PACKET + captured, 0)  # the padding, over what a copy in whole blocks may have left there
    if options_size > 0:
        copy(at, options, options_size)
        at += options_size
        store_u32(at, 0)  # the end of the options
        at += OPTION
    size = at + 4 - begin
    store_u32(at, size)
    EnhancedPacket(begin).size = size
    put(o, size, i64(1))


@kernel
def finish(writer):
    """Write what even a file without packets has, and all that is in the buffer: DONE, BUSY or FAILED."""
    w = Writer(writer)
    o = w.outlet
    if o.broken != 0:
        return i64(FAILED)
    if o.fresh != 0 and o.base == o.begin and o.used == 0:
        begin_file(w, max(w.link, i64(1)))
    return flush(o)


@kernel
def put_entry(writer, entry):
    """Write the packet that an ``Entry`` tells of, whose options are in machine order; 1, or as ``open_record``."""
    w, e = Writer(writer), Entry(entry)
    captured, options_size = i64(e.captured), i64(e.options_size)
    if captured > w.snaplen:
        captured = w.snaplen
        w.cut += 1
    if options_size > OPTIONS_ROOM:
        options_size = i64(0)
        w.options_lost += 1
    at = open_record(w, e.time, captured, i64(e.wire), i64(e.link), i64(e.interface), options_size)
    if at <= 0:
        return at
    copy(at, e.address, captured)
    close_record(w, captured, e.options, options_size)
    return i64(1)
