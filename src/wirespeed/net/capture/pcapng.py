"""Scanning pcapng files: sections of either byte order, interfaces each with its clock, packet blocks of all kinds.

Theory of operation
-------------------
Blocks are taken one after another while they lie whole in the window.  Packet blocks become entries; sections and
interfaces change the state of the scan; every other kind is passed over, whatever its size.  A block whose size at its
end differs from that at its beginning is a fault: the one at its beginning is believed.

A packet's interface is told by its number among all interfaces of the file, since each section counts its own from 0.

Source: draft-ietf-opsawg-pcapng, sections 4.1 to 4.4 and appendix A (the old packet block).
"""

import numpy as np

from wirespeed.jit.intrinsics import equal, load_u32
from wirespeed.jit.kernel import kernel, stage
from wirespeed.net.capture.format import (
    BYTE_ORDER,
    ENHANCED_PACKET,
    INTERFACE,
    LARGEST_BLOCK,
    LARGEST_FRAME,
    OLD_PACKET,
    SECTION,
    SIMPLE_PACKET,
    SWAPPED_BYTE_ORDER,
    TRAILER,
    Block,
    EnhancedPacket,
    InterfaceBlock,
    OldPacket,
    SectionBlock,
    SimplePacket,
    padded,
    u16_at,
    u32_at,
)
from wirespeed.net.capture.interface import add_interface, nanoseconds
from wirespeed.net.capture.scan import (
    BLOCK_SIZE,
    BLOCK_TOO_LARGE,
    ENTRY,
    FRAME_BEYOND_BLOCK,
    INTERFACE_SIZE,
    NO_INTERFACE,
    NOTE,
    SECTION_ORDER,
    TOO_LONG,
    VERSION,
    Entry,
    Interface,
    Note,
    Scan,
    complain,
    keep_note,
    spoil,
)
from wirespeed.net.capture.scan import (
    TRAILER as TRAILER_DIFFERS,
)

u32, i64 = np.uint32, np.int64
SMALLEST = Block.size + TRAILER
FIRST_LOOK = SectionBlock.offset("major")  # bytes that show a block's kind, size and, of a section, byte order
SIZE, MAGIC, MAJOR, MINOR = (SectionBlock.offset(name) for name in ("size", "magic", "major", "minor"))
SECTION_SMALLEST = SectionBlock.size + TRAILER
INTERFACE_SMALLEST = InterfaceBlock.size + TRAILER
PACKET = EnhancedPacket.size
HIGH, LOW = EnhancedPacket.offset("high"), EnhancedPacket.offset("low")
CAPTURED, WIRE = EnhancedPacket.offset("captured"), EnhancedPacket.offset("wire")
NUMBER, OLD_NUMBER = EnhancedPacket.offset("interface"), OldPacket.offset("interface")
SIMPLE_WIRE, SIMPLE = SimplePacket.offset("wire"), SimplePacket.size
assert OldPacket.offset("high") == HIGH and OldPacket.offset("wire") == WIRE


@kernel
def turn(s, at, count):
    """Take the byte order of the section at an address; False when it has none."""
    magic = load_u32(at + MAGIC)
    if magic != BYTE_ORDER and magic != SWAPPED_BYTE_ORDER:
        spoil(s, SECTION_ORDER, at, count, i64(magic))
        return False
    s.swapped = magic == SWAPPED_BYTE_ORDER
    return True


@kernel
def add_section(s, at, size, count):
    """Take up a section: it has no interfaces yet."""
    major, minor = u16_at(at + MAJOR, s.swapped), u16_at(at + MINOR, s.swapped)
    if major != 1 or (minor != 0 and minor != 2):  # section 4.1: 1.2 is to be read as 1.0
        complain(s, VERSION, at, count, i64(major) << 16 | i64(minor))
    s.interfaces = 0
    last = s.last_section
    if last == 0 or i64(Note(last - NOTE).size) != size or not equal(last, at, size):
        s.last_section = keep_note(s, i64(SECTION), s.sections, at, size)
    s.sections += 1


@kernel
def pass_block(s, at, kind, size, count):
    """Pass over the block at an address, of which the window holds a part; False when the scan cannot do without it."""
    w = s.window
    if kind == SECTION or kind == INTERFACE:
        spoil(s, BLOCK_TOO_LARGE, at, count, size)
        return False
    if kind == ENHANCED_PACKET or kind == SIMPLE_PACKET or kind == OLD_PACKET:
        complain(s, TOO_LONG, at, count, size)
        s.too_long += 1
    w.at = at
    s.start = w.offset - (w.end - at)
    w.skip = padded(size) - TRAILER
    s.tail = TRAILER
    s.trailer = size
    return True


@kernel(inline=True)
def put_packet(s, entry, at, size, data, number, captured, wire, timed, count):
    """Make an entry of a packet block's frame at ``data``; 1, or 0 when there is none, or -1 for damage."""
    left = at + size - TRAILER - data
    if number >= s.interfaces:
        spoil(s, NO_INTERFACE, at, count, number)
        return i64(-1)
    if captured > left:
        spoil(s, FRAME_BEYOND_BLOCK, at, count, captured)
        return i64(-1)
    if captured > LARGEST_FRAME:
        complain(s, TOO_LONG, at, count, captured)
        s.too_long += 1
        return i64(0)
    known = i64(load_u32(s.local + 4 * number))
    it = s.table + INTERFACE_SIZE * known
    e = Entry(entry)
    e.address = data
    e.captured = captured
    e.wire = wire
    e.interface = known
    e.link = Interface(it).link
    e.swapped = s.swapped
    if timed:
        e.time = nanoseconds(it, u32_at(at + HIGH, s.swapped), u32_at(at + LOW, s.swapped))
        e.options = data + padded(captured)
        e.options_size = left - padded(captured)
    else:
        e.time = 0
        e.options = 0
        e.options_size = 0
    return i64(1)


@kernel(inline=True)
def enhanced(s, entry, at, size, number, count):
    """Make an entry of an enhanced or an old packet block."""
    if size < PACKET + TRAILER:
        spoil(s, BLOCK_SIZE, at, count, size)
        return i64(-1)
    captured, wire = i64(u32_at(at + CAPTURED, s.swapped)), i64(u32_at(at + WIRE, s.swapped))
    return put_packet(s, entry, at, size, at + PACKET, number, captured, wire, True, count)


@kernel
def simple(s, entry, at, size, count):
    """Make an entry of a simple packet block, which belongs to interface 0 and has no time."""
    if size < SIMPLE + TRAILER:
        spoil(s, BLOCK_SIZE, at, count, size)
        return i64(-1)
    wire = i64(u32_at(at + SIMPLE_WIRE, s.swapped))
    captured = wire
    if s.interfaces > 0:
        snaplen = i64(Interface(s.table + INTERFACE_SIZE * i64(load_u32(s.local))).snaplen)
        captured = min(wire, snaplen) if snaplen > 0 else wire
    return put_packet(s, entry, at, size, at + SIMPLE, i64(0), captured, wire, False, count)


@kernel
def describe(s, at, kind, size, count):
    """Take up a section or an interface; False for damage."""
    if size < (SECTION_SMALLEST if kind == SECTION else INTERFACE_SMALLEST):
        spoil(s, BLOCK_SIZE, at, count, size)
        return False
    if kind == SECTION:
        add_section(s, at, size, count)
        return True
    return add_interface(s, at, size, count)


@kernel(inline=True)
def take_block(s, entry, at, kind, size, count):
    """Take up the whole block at an address; how many packets it made (0 or 1), or -1 for damage."""
    if kind == ENHANCED_PACKET:
        return enhanced(s, entry, at, size, i64(u32_at(at + NUMBER, s.swapped)), count)
    if kind == SIMPLE_PACKET:
        return simple(s, entry, at, size, count)
    if kind == OLD_PACKET:
        return enhanced(s, entry, at, size, i64(u16_at(at + OLD_NUMBER, s.swapped)), count)
    if kind == SECTION or kind == INTERFACE:
        return i64(0) if describe(s, at, kind, size, count) else i64(-1)
    return i64(0)


@stage
def scan_pcapng(scan, entries, n):
    """Take up the whole blocks in the window, as far as that makes ``n`` entries; return how many there are."""
    s = Scan(scan)
    w = s.window
    at, end = w.at, w.end
    count = i64(0)
    while count < n and at + FIRST_LOOK <= end:
        kind = u32_at(at, s.swapped)
        if kind == SECTION and not turn(s, at, count):
            break
        told = i64(u32_at(at + SIZE, s.swapped))
        if told < SMALLEST:
            spoil(s, BLOCK_SIZE, at, count, told)
            break
        size = padded(told)
        if at + size > end:
            if size > LARGEST_BLOCK and pass_block(s, at, kind, told, count):
                at = w.at
            break
        made = take_block(s, entries + ENTRY * count, at, kind, size, count)
        if made < 0:
            break
        if i64(u32_at(at + size - TRAILER, s.swapped)) != told:
            complain(s, TRAILER_DIFFERS, at, count, told)
        count += made
        at += size
    w.at = at
    return count
