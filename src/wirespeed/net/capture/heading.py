"""What a capture of ours begins with: a pcap file's header, a pcapng file's section and interfaces.

A pcap file takes the link type of its first packet; packets of another one do not fit into it.  A pcapng file has an
interface for each pair of link type and interface number that packets have, described when the first of them comes.
"""

import numpy as np

from wirespeed.jit.intrinsics import copy, load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import Layout, layout
from wirespeed.jit.libc import copy_in
from wirespeed.net.capture import options
from wirespeed.net.capture.format import (
    APPLICATION,
    BYTE_ORDER,
    INTERFACE,
    MICROSECONDS,
    NANOSECONDS,
    RESOLUTION,
    SECTION,
    TRAILER,
    USUAL_SNAPLEN,
    InterfaceBlock,
    OptionHeader,
    PcapHeader,
    SectionBlock,
)
from wirespeed.net.capture.outlet import CAPACITY, Outlet

u32, i64 = np.uint32, np.int64
INTERFACES = 1024  # that a file of ours describes; packets of further ones go to one of the same link type
PATH_ROOM = 8192

Writer = layout(
    "CaptureWriter",
    [
        ("lock", "u4"),
        ("micro", "u4"),  # pcap: 1 for microseconds
        ("link", "i8"),  # pcap: of this file, or -1 before its first packet
        ("snaplen", "i8"),
        ("second", "i8"),  # of the last packet: seconds since 1970, and the same in nanoseconds
        ("second_ns", "i8"),
        ("outlet", Outlet),
        # pcapng: the interfaces that are described
        ("section", "i8"),  # address of a section's block as files of ours begin with it
        ("description", "i8"),  # address of an interface's block, to be copied and filled in
        ("keys", "i8"),  # address of i8[INTERFACES]: link type and number of each
        ("known", "i8"),
        ("last_key", "i8"),
        ("last", "i8"),  # its place
        # counters
        ("packets", "i8"),
        ("cut", "i8"),  # packets of which the snap length left a part
        ("options_lost", "i8"),
        ("missed", "i8"),  # copies that a tap could not take
        ("files", "i8"),
        # rotation
        ("rotate_size", "i8"),  # bytes, or 0
        ("rotate_ns", "i8"),  # or 0
        ("limit", "i8"),  # bytes at which the next file begins
        ("file_packets", "i8"),
        ("file_time", "i8"),  # of its first packet
        ("path", "i8"),  # address of its name, a C string
        ("digits", "i8"),  # address of its number in the name
    ],
)
FILE_HEADER = PcapHeader.size


def _block(layout: Layout, values: dict[str, int], pairs: list[tuple[int, bytes]]) -> bytes:
    """A block whose fixed part is ``layout``, with options and their end."""
    head = bytearray(layout.size)
    record = layout(head)
    rest = options.build(pairs) + bytes(OptionHeader.size)
    size = len(head) + len(rest) + TRAILER
    for name, value in {**values, "size": size}.items():
        setattr(record, name, value)
    return bytes(head) + rest + size.to_bytes(TRAILER, "little")


_SECTION = _block(
    SectionBlock, {"type": SECTION, "magic": BYTE_ORDER, "major": 1, "length": -1}, [(APPLICATION, b"wirespeed")]
)
_DESCRIPTION = _block(InterfaceBlock, {"type": INTERFACE}, [(RESOLUTION, b"\x09")])
SECTION_SIZE, INTERFACE_SIZE = len(_SECTION), len(_DESCRIPTION)


@kernel
def describe(w, link):
    """Put an interface's block behind the buffer's content."""
    o = w.outlet
    at = o.buffer + o.used
    copy(at, w.description, INTERFACE_SIZE)
    block = InterfaceBlock(at)
    block.link = link
    block.snaplen = w.snaplen
    o.used += INTERFACE_SIZE


@kernel
def begin_file(w, link):
    """Put what a file, or a section after a failed write, begins with behind the buffer's content."""
    o = w.outlet
    o.fresh = 0
    at = o.buffer + o.used
    if o.pcapng != 0:
        copy(at, w.section, SECTION_SIZE)
        o.used += SECTION_SIZE
        for i in range(w.known):
            describe(w, load_i64(w.keys + 8 * i) >> 32)
        return
    header = PcapHeader(at)
    header.magic = u32(MICROSECONDS) if w.micro != 0 else u32(NANOSECONDS)
    header.major = 2
    header.minor = 4
    header.zone = 0
    header.accuracy = 0
    header.snaplen = w.snaplen
    header.link = link
    w.link = link
    o.used += FILE_HEADER
    o.first = o.used


@kernel
def find_interface(w, key):
    """The number of the interface with a key, described anew if need be; -1 when there can be no more of them."""
    known, link = w.known, key >> 32
    found, alike = i64(-1), i64(-1)
    for i in range(known):
        here = load_i64(w.keys + 8 * i)
        if here == key:
            found = i
            break
        if here >> 32 == link and alike < 0:
            alike = i
    if found < 0 and known < INTERFACES:
        store_i64(w.keys + 8 * known, key)
        w.known = known + 1
        describe(w, link)
        found = known
    elif found < 0:
        found = alike
    if found >= 0:
        w.last_key = key
        w.last = found
    return found


TEMPLATES = 256
MEMORY = CAPACITY + 8 * INTERFACES + TEMPLATES + PATH_ROOM
assert SECTION_SIZE + INTERFACE_SIZE <= TEMPLATES


def init(writer: int, memory: int, fd: int, *, stream: bool, pcapng: bool) -> None:
    """Make the zeroed ``Writer`` at an address write to ``fd``; it uses the ``MEMORY`` zeroed bytes at ``memory``."""
    w = Writer.at(writer)
    o = w.outlet
    o.buffer, w.keys = memory, memory + CAPACITY
    w.section = w.keys + 8 * INTERFACES
    w.description = w.section + SECTION_SIZE
    w.path = w.section + TEMPLATES
    copy_in(w.section, _SECTION)
    copy_in(w.description, _DESCRIPTION)
    o.fd, o.stream, o.pcapng, o.fresh = fd, stream, pcapng, 1
    w.link, w.snaplen, w.files, w.last_key = -1, USUAL_SNAPLEN, 1, -1
