"""The obvious reader of capture files: a loop over ``struct``, that knows the whole file at once."""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from wirespeed.net.capture import scan as s

LARGEST_FRAME, LARGEST_BLOCK, LARGE_LINKS = 1 << 20, (1 << 20) + (1 << 18), (189, 220, 231, 249, 266)
PCAP = {
    0xA1B2C3D4: (1000, 16), 0xA1B23C4D: (1, 16), 0xA1B2CD34: (1000, 24),
}  # fmt: skip


class Found(NamedTuple):
    """A packet: what a reader must tell of it."""

    data: bytes
    time: int
    wire: int
    link: int
    interface: int = 0
    options: bytes = b""
    swapped: bool = False


@dataclass
class Read:
    """What a reader finds: packets, then the damage (what, offset, packet) if any; how many faults, and the first."""

    packets: list[Found] = field(default_factory=list)
    damage: tuple[int, int, int] | None = None
    faults: int = 0
    fault: tuple[int, int, int] | None = None

    def end(self, what: int, offset: int) -> "Read":
        self.damage = (int(what), offset, len(self.packets) + 1)
        return self

    def complain(self, what: int, offset: int, packet: int | None = None) -> None:
        self.faults += 1
        self.fault = self.fault or (int(what), offset, packet or len(self.packets) + 1)


def wrapped(value: int) -> int:
    """A signed 64-bit integer, as its sums wrap."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def read(data: bytes) -> Read:
    """All that a reader must find in a whole file."""
    found = Read()
    if len(data) < 4:
        return found.end(s.CUT_SHORT if data else s.EMPTY, 0)
    for order in "<>":
        magic = struct.unpack_from(order + "I", data)[0]
        if magic in PCAP:
            return _pcap(found, data, order, *PCAP[magic])
    return _pcapng(found, data) if data[:4] == b"\n\r\r\n" else found.end(s.NOT_A_CAPTURE, 0)


def _pcap(found: Read, data: bytes, order: str, scale: int, header: int) -> Read:
    if len(data) < 24:
        return found.end(s.CUT_SHORT, 0)
    major, minor, _, _, _, link = struct.unpack_from(order + "HHiIII", data, 4)
    link &= 0xFFFF
    at = 24
    while at < len(data):
        if at + header > len(data):
            return found.end(s.CUT_SHORT, at)
        seconds, fraction, size, wire = struct.unpack_from(order + "IIII", data, at)
        if major == 543 or (major == 2 and (minor < 3 or (minor == 3 and size > wire))):
            size, wire = wire, size
        if size > LARGEST_FRAME:
            if link not in LARGE_LINKS or size > 128 << 20:
                return found.end(s.FRAME_TOO_LARGE, at)
            found.complain(s.TOO_LONG, at)
            if at + header + size > len(data):
                return found.end(s.CUT_SHORT, at)
        elif at + header + size > len(data):
            return found.end(s.CUT_SHORT, at)
        else:
            frame = data[at + header : at + header + size]
            found.packets.append(Found(frame, seconds * 10**9 + fraction * scale, wire, link))
        at += header + size
    return found


class _Interface(NamedTuple):
    link: int
    snaplen: int
    resolution: int
    offset: int
    block: bytes
    order: str

    def nanoseconds(self, ticks: int) -> int:
        power = self.resolution & 127
        per_second = 2**power if self.resolution & 128 else 10**power
        return wrapped(ticks * 10**9 // per_second + self.offset * 10**9)


def _interface(found: Read, block: bytes, order: str, offset: int) -> _Interface:
    link, _, snaplen = struct.unpack_from(order + "HHI", block, 8)
    resolution, shift, at, end = 6, 0, 16, len(block) - 4
    while at + 4 <= end:
        code, size = struct.unpack_from(order + "HH", block, at)
        if code == 0:
            break
        if at + 4 + size > end:
            found.complain(s.OPTIONS, offset)
            break
        if code == 9 and size:
            resolution = block[at + 4]
        elif code == 14 and size >= 8:
            shift = struct.unpack_from(order + "q", block, at + 4)[0]
        at += 4 + (size + 3) // 4 * 4
    return _Interface(link, snaplen, resolution, shift, block, order)


def _pcapng(found: Read, data: bytes) -> Read:
    table: list[_Interface] = []  # all interfaces of the file
    local: list[int] = []  # numbers in the table, by place in a section; those of former sections stay behind
    here = 0  # interfaces of this section
    order, at = "<", 0
    while at < len(data):
        if at + 12 > len(data):
            return found.end(s.CUT_SHORT, at)
        if data[at : at + 4] == b"\n\r\r\n":
            magic = data[at + 8 : at + 12]
            if magic not in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"):
                return found.end(s.SECTION_ORDER, at)
            order = "<" if magic == b"\x4d\x3c\x2b\x1a" else ">"
        kind, told = struct.unpack_from(order + "II", data, at)
        if told < 12:
            return found.end(s.BLOCK_SIZE, at)
        size = (told + 3) // 4 * 4
        before = len(found.packets)
        if at + size > len(data):
            if size > LARGEST_BLOCK:
                if kind in (0x0A0D0D0A, 1):
                    return found.end(s.BLOCK_TOO_LARGE, at)
                if kind in (2, 3, 6):
                    found.complain(s.TOO_LONG, at)
            return found.end(s.CUT_SHORT, at)
        block = data[at : at + size]
        if kind == 0x0A0D0D0A:
            if size < 28:
                return found.end(s.BLOCK_SIZE, at)
            version = struct.unpack_from(order + "HH", block, 12)
            if version not in ((1, 0), (1, 2)):
                found.complain(s.VERSION, at)
            here = 0
        elif kind == 1:
            if size < 20:
                return found.end(s.BLOCK_SIZE, at)
            same = [n for n in local[here : here + 1] if (table[n].block, table[n].order) == (block, order)]
            if not same:
                table.append(_interface(found, block, order, at))
            local[here : here + 1] = same or [len(table) - 1]
            here += 1
        elif kind in (2, 3, 6):
            what = _packet(found, block, kind, order, at, table, local[:here])
            if what:
                return found.end(what, at)
        if struct.unpack_from(order + "I", block, size - 4)[0] != told:
            found.complain(s.TRAILER, at, before + 1)
        at += size
    return found


def _packet(
    found: Read, block: bytes, kind: int, order: str, at: int, table: list[_Interface], local: list[int]
) -> int:
    if len(block) < (16 if kind == 3 else 32):
        return int(s.BLOCK_SIZE)
    high = low = number = 0
    if kind == 3:
        (wire,) = struct.unpack_from(order + "I", block, 8)
        captured = wire
        if local and table[local[0]].snaplen:
            captured = min(wire, table[local[0]].snaplen)
        begin = 12
    else:
        number, high, low, captured, wire = struct.unpack_from(order + "IIIII", block, 8)
        if kind == 2:
            (number,) = struct.unpack_from(order + "H", block, 8)
        begin = 28
    if number >= len(local):
        return int(s.NO_INTERFACE)
    if begin + captured > len(block) - 4:
        return int(s.FRAME_BEYOND_BLOCK)
    if captured > LARGEST_FRAME:
        found.complain(s.TOO_LONG, at)
        return 0
    it = table[local[number]]
    time = 0 if kind == 3 else it.nanoseconds(high << 32 | low)
    rest = b"" if kind == 3 else block[begin + (captured + 3) // 4 * 4 : -4]
    data = block[begin : begin + captured]
    found.packets.append(Found(data, time, wire, it.link, local[number], rest, order == ">"))
    return 0
