"""How capture files lie on disk: the layouts of pcap and pcapng, their magic numbers and their limits.

Fields stand in machine order; a file of the other order is read through :func:`u16_at`, :func:`u32_at` and
:func:`u64_at`, which swap when they are told to.  What we write is in machine order.

Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, and https://www.tcpdump.org/linktypes.html for link types.
"""

import numpy as np

from wirespeed.jit.intrinsics import bswap16, bswap32, bswap64, load_u16, load_u32, load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64 = np.int64

PcapHeader = layout(
    "PcapHeader",
    [
        ("magic", "u4"),
        ("major", "u2"),
        ("minor", "u2"),
        ("zone", "i4"),
        ("accuracy", "u4"),
        ("snaplen", "u4"),
        ("link", "u4"),  # the link type in the low 16 bits, what is known of frame check sequences above
    ],
)
assert PcapHeader.size == 24

PcapRecord = layout("PcapRecord", [("seconds", "u4"), ("fraction", "u4"), ("captured", "u4"), ("wire", "u4")])
assert PcapRecord.size == 16

# What Alexey Kuznetzov's patched libpcap wrote: eight more bytes behind the usual four words.
ModifiedRecord = layout(
    "ModifiedRecord",
    [
        ("seconds", "u4"),
        ("fraction", "u4"),
        ("captured", "u4"),
        ("wire", "u4"),
        ("interface", "u4"),
        ("protocol", "u2"),
        ("type", "u1"),
        (None, 1),
    ],
)
assert ModifiedRecord.size == 24

MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
MODIFIED = 0xA1B2CD34  # microseconds, with ModifiedRecord

# pcapng: every block begins with its type and its size and ends with its size again.
Block = layout("Block", [("type", "u4"), ("size", "u4")])
SectionBlock = layout(
    "SectionBlock",
    [("type", "u4"), ("size", "u4"), ("magic", "u4"), ("major", "u2"), ("minor", "u2"), ("length", "i8")],
)
InterfaceBlock = layout(
    "InterfaceBlock", [("type", "u4"), ("size", "u4"), ("link", "u2"), (None, 2), ("snaplen", "u4")]
)
EnhancedPacket = layout(
    "EnhancedPacket",
    [
        ("type", "u4"),
        ("size", "u4"),
        ("interface", "u4"),
        ("high", "u4"),
        ("low", "u4"),
        ("captured", "u4"),
        ("wire", "u4"),
    ],
)
SimplePacket = layout("SimplePacket", [("type", "u4"), ("size", "u4"), ("wire", "u4")])
OldPacket = layout(
    "OldPacket",
    [
        ("type", "u4"),
        ("size", "u4"),
        ("interface", "u2"),
        ("drops", "u2"),
        ("high", "u4"),
        ("low", "u4"),
        ("captured", "u4"),
        ("wire", "u4"),
    ],
)
OptionHeader = layout("OptionHeader", [("code", "u2"), ("size", "u2")])
assert (SectionBlock.size, InterfaceBlock.size, EnhancedPacket.size, SimplePacket.size) == (24, 16, 28, 12)
assert OldPacket.size == EnhancedPacket.size
TRAILER = 4  # bytes of the size that ends a block

SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6
BYTE_ORDER = 0x1A2B3C4D
SWAPPED_BYTE_ORDER = 0x4D3C2B1A

# Options: of every block, of sections, of interfaces, of packets (draft-ietf-opsawg-pcapng, sections 3.5 and 4).
END_OF_OPTIONS, COMMENT = 0, 1
HARDWARE, SYSTEM, APPLICATION = 2, 3, 4
INTERFACE_NAME, INTERFACE_DESCRIPTION, RESOLUTION, TIME_OFFSET = 2, 3, 9, 14
PACKET_FLAGS, DROP_COUNT, PACKET_ID, QUEUE, VERDICT = 2, 4, 5, 6, 7
CUSTOM = (2988, 2989, 19372, 19373)  # these begin with the number of the enterprise that gives them a meaning

ETHERNET = 1
# libpcap's usual limit, which is what other programs read (MAXIMUM_SNAPLEN in pcap-int.h).
USUAL_SNAPLEN = 262_144
# The largest frame that is read: BIG TCP makes 512 kB, and a length beyond this is taken for damage.
LARGEST_FRAME = 1 << 20
# Link types of which libpcap takes frames of up to 128 MB (max_snaplen_for_dlt in pcap-common.c): USB and D-Bus.
# Frames of these that are larger than ours can be are passed over, and counted.
LARGE_LINKS = (189, 220, 231, 249, 266)
LARGEST_LARGE_FRAME = 128 << 20
# The largest block whose parts are looked at; a larger one is passed over.
LARGEST_BLOCK = LARGEST_FRAME + (1 << 18)


@kernel(inline=True)
def u16_at(at, swapped):
    """The 16-bit integer at an address, in the other byte order when ``swapped``."""
    value = load_u16(at)
    return bswap16(value) if swapped else value


@kernel(inline=True)
def u32_at(at, swapped):
    """The 32-bit integer at an address, in the other byte order when ``swapped``."""
    value = load_u32(at)
    return bswap32(value) if swapped else value


@kernel(inline=True)
def u64_at(at, swapped):
    """The 64-bit integer at an address, in the other byte order when ``swapped``."""
    value = load_u64(at)
    return bswap64(value) if swapped else value


@kernel(inline=True)
def padded(size):
    """``size`` rounded up to whole 32-bit words, as everything in pcapng is."""
    return (i64(size) + i64(3)) & i64(-4)
