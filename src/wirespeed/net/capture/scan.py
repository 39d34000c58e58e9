"""The state of a scan through a capture, what it finds, and what it says of damage.

Theory of operation
-------------------
A scan turns the bytes in the window into *entries*: where a packet's bytes lie, when it was captured, how long it was.
Nothing is copied: an entry points into the window and is good until the next scan.  Each format has a scanner, a stage
``(scan, entries, n) -> n`` that goes on from where it stopped and stops where the window does not hold a whole record.
It is called by its address, so that who reads pcap alone never compiles pcapng.

*Damage* ends the scan; the packets before it are good.  A *fault* is counted and passed over: the first is kept with
its place.  Offsets are those of the record's first byte, packets are counted from 1.

*Notes* are the blocks that describe sections and interfaces, kept whole for who wants their comments and names; they
have a bounded place, and what no longer fits is only counted.

Counters are 64 bits wide, since 2^31 packets are one night at 100 kpps.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.net.capture import window
from wirespeed.net.capture.window import Window

u32, i64 = np.uint32, np.int64

ENTRIES = 128  # packets that one scan finds at most
INTERFACES = 1 << 16  # in a section, and different ones in a file
NOTES_ROOM = 4 << 20

Entry = layout(
    "Entry",
    [
        ("address", "i8"),  # of the packet's first byte
        ("time", "i8"),  # nanoseconds since 1970, or 0 where the file gives none
        ("captured", "u4"),
        ("wire", "u4"),
        ("interface", "u4"),  # its number among all of the file
        ("link", "u2"),
        ("swapped", "u2"),  # 1: the options are in the other byte order
        ("options", "i8"),  # address of the packet block's options
        ("options_size", "u4"),
        (None, 4),
    ],
)
ENTRY = Entry.size
assert ENTRY == 48

Interface = layout(
    "Interface",
    [
        ("link", "u2"),
        ("swapped", "u2"),
        ("snaplen", "u4"),
        ("unit", "u4"),  # how its time stamps become nanoseconds: MULTIPLY, DIVIDE, SHIFT or NEVER
        ("shift", "u4"),
        ("factor", "u8"),
        ("offset", "i8"),  # nanoseconds to add
        ("note", "i8"),  # address of its block among the notes, or 0
        ("note_size", "i8"),
    ],
    size=64,
)
INTERFACE_SIZE = Interface.size

Note = layout("CaptureNote", [("type", "u4"), ("size", "u4"), ("swapped", "u4"), ("number", "u4")])
NOTE = Note.size

Mark = layout("Mark", [("what", "u4"), ("errno", "i4"), ("offset", "i8"), ("packet", "i8"), ("detail", "i8")])

Scan = layout(
    "Scan",
    [
        ("window", Window),
        # what kind of file it is
        ("format", "u4"),  # UNKNOWN, PCAP or PCAPNG
        (
            "container",
            "u4",
        ),  # a magic number of a compressed file was met; Python puts a decompressor before the window
        ("swapped", "u4"),
        ("header", "u4"),  # bytes of a pcap record's header
        ("scale", "i8"),  # nanoseconds of a unit of a pcap record's fraction
        ("order", "u4"),  # old pcap files exchange the lengths: NEVER_EXCHANGED, ALWAYS or WHEN_WRONG
        ("link", "u4"),
        ("scanner", "i8"),  # address of the stage that finds this format's packets
        ("pcap", "i8"),  # and of those there are for each format, or 0
        ("pcapng", "i8"),
        ("link_bits", "u4"),  # what stood above the link type
        ("snaplen", "u4"),
        # pcapng
        ("interfaces", "i8"),  # in this section
        ("known", "i8"),  # in the table
        ("local", "i8"),  # address of u4[INTERFACES]: number in the section -> number in the table
        ("table", "i8"),  # address of Interface[INTERFACES]
        ("sections", "i8"),
        ("notes", "i8"),
        ("notes_used", "i8"),
        ("notes_lost", "i8"),
        ("last_section", "i8"),  # address of the last section's note
        ("tail", "i8"),  # bytes at the end of what is passed over that must be there
        ("trailer", "i8"),  # the size that these must repeat, or 0
        ("start", "i8"),  # where what is passed over begins
        # what was found
        ("passes", "i8"),  # that are over
        ("packets", "i8"),  # in this pass
        ("faults", "i8"),
        ("too_long", "i8"),  # frames that were passed over
        ("fault", Mark),
        ("damage", Mark),
        ("before", Mark),  # the damage of an earlier pass
        ("entries", "i8"),  # address of Entry[ENTRIES]
        ("first", "i8"),  # the first entry that nobody took
        ("count", "i8"),  # entries
    ],
)
UNKNOWN, PCAP, PCAPNG = 0, 1, 2
NEVER_EXCHANGED, ALWAYS, WHEN_WRONG = 0, 1, 2
MULTIPLY, DIVIDE, SHIFT, NEVER = 0, 1, 2, 3

# Damage, and faults.  `damage.py` says each in words.  Plain numbers would be literals to numba, and each call that is
# given one a specialisation of its own.
(
    NOT_A_CAPTURE, EMPTY, CUT_SHORT, READ_ERROR, FRAME_TOO_LARGE, BLOCK_SIZE, SECTION_ORDER, FRAME_BEYOND_BLOCK,
    NO_INTERFACE, TOO_MANY_INTERFACES, BLOCK_TOO_LARGE, TRAILER, OPTIONS, VERSION, TOO_LONG, CONTAINER,
) = (np.int64(n) for n in range(1, 17))  # fmt: skip


@kernel
def mark(m, what, offset, packet, detail):
    """Note what was met where, unless something is noted already."""
    if m.what == 0:
        m.what = u32(what)
        m.offset = offset
        m.packet = packet
        m.detail = detail


@kernel
def spoil(s, what, at, count, detail):
    """Note damage at the address ``at``, behind ``count`` entries of this scan; the scan ends there."""
    w = s.window
    mark(s.damage, i64(what), w.offset - (w.end - at), s.packets + i64(count) + 1, i64(detail))


@kernel
def complain(s, what, at, count, detail):
    """Count a fault at the address ``at``, behind ``count`` entries of this scan; the scan goes on."""
    w = s.window
    if s.passes != 0:
        return
    s.faults += 1
    mark(s.fault, i64(what), w.offset - (w.end - at), s.packets + i64(count) + 1, i64(detail))


@kernel
def keep_note(s, kind, number, at, size):
    """Keep the block at an address; the address it is kept at, or 0 when there is no place left."""
    used = s.notes_used
    if used + NOTE + size > NOTES_ROOM:
        s.notes_lost += 1
        return i64(0)
    n = Note(s.notes + used)
    n.type = kind
    n.size = size
    n.swapped = s.swapped
    n.number = number
    copy(s.notes + used + NOTE, at, size)
    s.notes_used = (used + NOTE + size + 7) & -8
    return s.notes + used + NOTE


@kernel(inline=True)
def write_entry(entry, address, time, captured, wire, interface, link):
    """Write all of an entry but its options, of which it gets none."""
    e = Entry(entry)
    e.address = address
    e.time = time
    e.captured = captured
    e.wire = wire
    e.interface = interface
    e.link = link
    e.swapped = 0
    e.options = 0
    e.options_size = 0


MEMORY = window.SIZE + ENTRIES * ENTRY + INTERFACES * (4 + INTERFACE_SIZE) + NOTES_ROOM + 8192


def init(scan: int, memory: int, fd: int, source: int, begin: int = 0) -> None:
    """Make the zeroed ``Scan`` at an address read ``fd``; it uses the ``MEMORY`` zeroed bytes at ``memory``.

    The addresses of the scanners are still to be filled in.
    """
    s = Scan.at(scan)
    window.init(scan + Scan.offset("window"), memory, fd, source, begin)
    s.entries = memory + window.SIZE
    s.local = s.entries + ENTRIES * ENTRY
    s.table = s.local + 4 * INTERFACES
    s.notes = s.table + INTERFACE_SIZE * INTERFACES
