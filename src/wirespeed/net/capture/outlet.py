"""The buffer through which a capture is written, and what becomes of packets that cannot be.

Theory of operation
-------------------
Records are put into the buffer one behind the other and written in chunks.  Of a file, the chunks end at multiples of
their size, so that whole pages are written; the record that such an end goes through is in the buffer with its rest
only, and ``straddle`` is where in the file it began.  A stream (pipe, socket) takes what it can; until it has taken all
that was there, nothing is put in.

When a write fails, the file is cut behind its last whole record, so that it is a good capture still, and writing goes
on there: the disk may have room again.  A stream that failed is broken for good.  The packets that are not in the file
are counted in ``lost``; who books drops takes them from there.

Thread rules: one thread at a time.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_u32, move
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import sys_pwrite, sys_truncate, sys_write
from wirespeed.net.capture.format import ENHANCED_PACKET, LARGEST_FRAME, Block, PcapHeader, PcapRecord

u32, i64, i32 = np.uint32, np.int64, np.int32

# Measured on new files in the page cache, cycles for 80 bytes by chunk: 64 kB 71, 128 kB 59, 256 kB 50, 512 kB 48, 1 MB
# 47, of which the larger ones take from the second cache what the rest of a graph needs; 60 where chunks of 256 kB do
# not end on a page.  Having the file's blocks allocated ahead (fallocate, 16 to 256 MB at once) gave nothing that could
# be told from noise.
CHUNK = 1 << 18
OPTIONS_ROOM = 1 << 17  # of one packet; more than two of the longest comments
SECTION_ROOM = 1 << 16  # a section with all interfaces there can be
CAPACITY = CHUNK + SECTION_ROOM + LARGEST_FRAME + OPTIONS_ROOM + 4096

DONE, BUSY, FAILED = 1, 0, -1
EINTR, EAGAIN, EIO = 4, 11, 5  # include/uapi/asm-generic/errno-base.h

Outlet = layout(
    "Outlet",
    [
        ("buffer", "i8"),
        ("used", "i8"),  # bytes in the buffer
        ("sent", "i8"),  # of which so many are written already
        ("start", "i8"),  # where in the buffer the last record begins
        ("first", "i8"),  # where in the buffer the first record begins that has its beginning there
        ("base", "i8"),  # offset in the file of the buffer's first byte
        ("straddle", "i8"),  # offset in the file of the record whose rest is at the buffer's beginning; else base
        ("begin", "i8"),  # offset at which the file's header lies
        ("waiting", "i8"),  # packets that are in the buffer with any byte
        ("lost", "i8"),  # packets that could not be written and are not booked yet
        ("errors", "i8"),  # writes that failed
        ("errno", "i4"),  # of the first of them
        ("fd", "i4"),
        ("stream", "u4"),
        ("pcapng", "u4"),
        ("fresh", "u4"),  # what is put in next must begin with the file's header, or a section
        ("broken", "u4"),  # a stream that nobody reads any more
    ],
)
PCAP_CAPTURED, RECORD = PcapRecord.offset("captured"), PcapRecord.size
BLOCK_SIZE, FILE_HEADER = Block.offset("size"), PcapHeader.size


@kernel
def whole_records(o):
    """How far the records that are written whole go in the buffer, and how many of them are packets."""
    at, packets = o.first, i64(0)
    while at < o.sent:
        place = o.buffer + at
        if o.pcapng != 0:
            size, is_packet = i64(load_u32(place + BLOCK_SIZE)), load_u32(place) == ENHANCED_PACKET
        else:
            size, is_packet = RECORD + i64(load_u32(place + PCAP_CAPTURED)), True
        if at + size > o.sent:
            break
        at += size
        packets += i64(is_packet)
    return at, packets


@kernel
def fail(o, errno):
    """A write failed: note it, count what is lost, and go back to the end of the last whole record."""
    o.errors += 1
    if o.errno == 0:
        o.errno = i32(errno)
    good, whole = o.straddle - o.base, i64(0)
    if o.sent >= o.first:
        good, whole = whole_records(o)
        whole += i64(o.straddle < o.base)  # the record that the buffer begins in the middle of
    o.lost += o.waiting - whole
    o.base += good
    o.waiting = 0
    o.used = 0
    o.sent = 0
    o.first = 0
    o.straddle = o.base
    if o.stream != 0:
        o.broken = 1
        return
    o.fresh = u32(o.pcapng != 0 or o.base < o.begin + FILE_HEADER)
    if o.fresh != 0 and o.pcapng == 0:
        o.base = o.begin
        o.straddle = o.begin
    sys_truncate(o.fd, o.base)


@kernel
def send(o, upto):
    """Write the first ``upto`` bytes of the buffer, as far as they are not written: DONE, BUSY or FAILED."""
    while o.sent < upto:
        place, size = o.buffer + o.sent, upto - o.sent
        got = sys_write(o.fd, place, size) if o.stream != 0 else sys_pwrite(o.fd, place, size, o.base + o.sent)
        if got > 0:
            o.sent += got
        elif got == -EAGAIN:
            return BUSY
        elif got != -EINTR:
            fail(o, -got if got < 0 else i64(EIO))
            return FAILED
    return DONE


@kernel
def flush(o):
    """Write all that is in the buffer: DONE, BUSY or FAILED."""
    result = send(o, o.used)
    if result == DONE:
        o.base += o.used
        o.straddle = o.base
        o.used = 0
        o.sent = 0
        o.first = 0
        o.waiting = 0
    return result


@kernel
def flush_chunks(o):
    """Write the whole chunks of a file; the rest of the last record stays."""
    upto = o.used - ((o.base + o.used) & (CHUNK - 1))
    upto = max(upto, o.start)  # what lies before that record is no packet, and is not to be left behind in part
    if send(o, upto) != DONE:
        return
    rest = o.used - upto
    o.straddle = o.base + o.start
    o.base += upto
    if rest == 0 or o.start == upto:
        o.straddle = o.base
    o.first = rest if o.start < upto else i64(0)
    o.waiting = i64(rest > 0)
    move(o.buffer, o.buffer + upto, rest)
    o.used = rest
    o.sent = 0


@kernel(inline=True)
def ready(o):
    """Whether a record can be put in; a stream first has to take what waits for it."""
    if o.stream != 0 and (o.sent != 0 or o.used >= CHUNK):
        return flush(o) == DONE
    return o.broken == 0


@kernel(inline=True)
def put(o, size, packets):
    """Count the ``size`` bytes just written behind the buffer's content to it, and write what makes whole chunks.

    Bounds: fewer bytes than a chunk were there before, and no record is larger than the room behind that.
    """
    o.start = o.used
    o.used += size
    o.waiting += packets
    if o.used >= CHUNK - (o.base & (CHUNK - 1)):
        if o.stream != 0:
            flush(o)
        else:
            flush_chunks(o)
