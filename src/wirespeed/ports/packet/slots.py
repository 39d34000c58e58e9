"""Slots of a packet socket's rings: their layout, the bits of their status, and how a ring of them is asked for.

Theory of operation
-------------------
A ring is memory that the kernel shares with us, cut into slots of one size.  A slot begins with a header (version 2 of
the three that there are); its ``status`` says whose it is.  Version 3 packs frames densely into blocks, but hands a
block over when it is full or a millisecond has passed, which a ping would feel; version 2 hands over each frame at once.

The kernel cuts a ring into blocks, each a contiguous piece of memory with a whole number of slots.  Ours have 64 slots
of a multiple of 64 bytes, so that blocks are whole pages without waste, and slots follow each other evenly over the
whole ring.  The multiple is odd: with slots of 2,048 bytes, all headers would fall into an eighth of the first cache's
lines.

*Source:* Linux, Documentation/networking/packet_mmap.rst, include/uapi/linux/if_packet.h, net/packet/af_packet.c.
"""

import struct
from dataclasses import dataclass

from wirespeed.jit.layout import layout

# What a slot begins with: ``struct tpacket2_hdr``, and behind it, in received ones, ``struct sockaddr_ll``.
Slot = layout(
    "PacketSlot",
    [
        ("status", "u4"),
        ("len", "u4"),  # bytes of the frame; to transmit, and of the virtio-net header before it
        ("snaplen", "u4"),  # how many of them are in the slot
        ("mac", "u2"),  # where the frame begins, from the slot's first byte
        ("net", "u2"),
        ("sec", "u4"),
        ("nsec", "u4"),
        ("vlan_tci", "u2"),
        ("vlan_tpid", "u2"),
        (None, 4),
        ("family", "u2"),
        ("protocol", ">u2"),
        ("ifindex", "i4"),
        ("hatype", "u2"),
        ("pkttype", "u1"),
        ("halen", "u1"),
        ("address", "u1", 8),
    ],
)
HEADER = Slot.offset("family")
assert (HEADER, Slot.size) == (32, 52)

# ``status`` of a received slot; 0 while it is the kernel's.
USER, COPY, LOSING, VLAN_VALID, VLAN_TPID_VALID = 1 << 0, 1 << 1, 1 << 2, 1 << 4, 1 << 6
# ``status`` of a slot to transmit; 0 while it is ours.
SEND_REQUEST, SENDING, WRONG_FORMAT = 1 << 0, 1 << 1, 1 << 2
# ``pkttype``
HOST, BROADCAST, MULTICAST, OTHERHOST, OUTGOING = range(5)

VERSION = 1  # TPACKET_V2
VLAN = 4  # bytes of a tag
VIRTIO = 10  # bytes of a virtio-net header
UNIT, IN_BLOCK = 64, 64
REQUEST = struct.Struct("=IIII")  # struct tpacket_req


@dataclass(frozen=True)
class Geometry:
    """A ring of at least ``slots`` slots of at least ``size`` bytes; both are rounded up."""

    slots: int
    size: int

    @classmethod
    def of(cls, slots: int, size: int) -> "Geometry":
        """The smallest ring that has as much, in whole blocks."""
        units = -(-size // UNIT)
        return cls(-(-slots // IN_BLOCK) * IN_BLOCK, (units | 1) * UNIT)

    @property
    def memory(self) -> int:
        """Bytes of the whole ring."""
        return self.slots * self.size

    def request(self) -> bytes:
        """What PACKET_RX_RING and PACKET_TX_RING take."""
        return REQUEST.pack(self.size * IN_BLOCK, self.slots // IN_BLOCK, self.size, self.slots)
