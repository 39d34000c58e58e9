"""Scanning pcap files: any byte order, micro- and nanoseconds, the modified form, the exchanged lengths of old ones."""

import numpy as np

from wirespeed.jit.kernel import kernel, stage
from wirespeed.net.capture.format import (
    LARGE_LINKS,
    LARGEST_FRAME,
    LARGEST_LARGE_FRAME,
    MICROSECONDS,
    MODIFIED,
    NANOSECONDS,
    ModifiedRecord,
    PcapHeader,
    PcapRecord,
    u16_at,
    u32_at,
)
from wirespeed.net.capture.scan import (
    ALWAYS,
    ENTRIES,
    ENTRY,
    FRAME_TOO_LARGE,
    NEVER_EXCHANGED,
    PCAP,
    TOO_LONG,
    WHEN_WRONG,
    Entry,
    Scan,
    complain,
    spoil,
    write_entry,
)

u32, i64 = np.uint32, np.int64
FILE_HEADER = PcapHeader.size
RECORD, MODIFIED_RECORD = PcapRecord.size, ModifiedRecord.size
SECONDS, FRACTION = PcapRecord.offset("seconds"), PcapRecord.offset("fraction")
CAPTURED, WIRE = PcapRecord.offset("captured"), PcapRecord.offset("wire")
MAJOR, MINOR = PcapHeader.offset("major"), PcapHeader.offset("minor")
SNAPLEN, LINK = PcapHeader.offset("snaplen"), PcapHeader.offset("link")
OLD_EXCHANGED = 543  # the major version of DG/UX tcpdump, which exchanged the lengths (libpcap's sf-pcap.c)


@kernel(inline=True)
def is_pcap(magic):
    """Whether a magic number, in the file's own byte order, is one of pcap's."""
    return magic == MICROSECONDS or magic == NANOSECONDS or magic == MODIFIED


@kernel
def begin(s, at, magic, swapped):
    """Take up the file's header at an address."""
    s.format = PCAP
    s.swapped = swapped
    s.header = u32(MODIFIED_RECORD) if magic == MODIFIED else u32(RECORD)
    s.scale = i64(1) if magic == NANOSECONDS else i64(1000)
    link = u32_at(at + LINK, swapped)
    s.link = link & u32(0xFFFF)
    s.link_bits = link & u32(0xFFFF0000)
    s.snaplen = u32_at(at + SNAPLEN, swapped)
    major, minor = u16_at(at + MAJOR, swapped), u16_at(at + MINOR, swapped)
    s.order = NEVER_EXCHANGED
    if major == OLD_EXCHANGED or (major == 2 and minor < 3):
        s.order = ALWAYS
    elif major == 2 and minor == 3:
        s.order = WHEN_WRONG
    for i in range(ENTRIES):  # all that is the same for every packet is written here, once
        write_entry(s.entries + ENTRY * i, 0, 0, 0, 0, 0, s.link)
    s.window.at = at + FILE_HEADER


@kernel(inline=True)
def large(link):
    """Whether frames of this link type may be larger than ours can be."""
    found = False
    for known in LARGE_LINKS:
        found |= link == known
    return found


@kernel(inline=True)
def refuse(s, at, count, captured):
    """Pass over a frame that is too long, or end at a length that is none."""
    if not large(s.link) or captured > LARGEST_LARGE_FRAME:
        spoil(s, FRAME_TOO_LARGE, at, count, captured)
        return
    complain(s, TOO_LONG, at, count, captured)
    s.too_long += 1
    s.start = s.window.offset - (s.window.end - at)
    s.window.skip = i64(s.header) + captured - 1
    s.tail = 1
    s.trailer = 0


@kernel(inline=True)
def scan_records(s, entry, n, swapped):
    """Find up to ``n`` whole records; return how many."""
    w = s.window
    at, end = w.at, w.end
    header, scale, order = i64(s.header), s.scale, s.order
    count = i64(0)
    while count < n and at + header <= end:
        captured = i64(u32_at(at + CAPTURED, swapped))
        wire = i64(u32_at(at + WIRE, swapped))
        if order != NEVER_EXCHANGED and (order == ALWAYS or captured > wire):
            captured, wire = wire, captured
        if captured > LARGEST_FRAME:
            w.at = at
            refuse(s, at, count, captured)
            break
        following = at + header + captured
        if following > end:
            break
        e = Entry(entry)
        e.address = at + header
        e.time = i64(u32_at(at + SECONDS, swapped)) * 1_000_000_000 + i64(u32_at(at + FRACTION, swapped)) * scale
        e.captured = captured
        e.wire = wire
        entry += ENTRY
        count += 1
        at = following
    w.at = at
    return count


@stage
def scan_pcap(scan, entries, n):
    """Make entries of up to ``n`` whole records in the window; return how many."""
    s = Scan(scan)
    # The two calls are compiled apart, so that files of this machine's order pay for no swap.
    return scan_records(s, entries, n, True) if s.swapped != 0 else scan_records(s, entries, n, False)
