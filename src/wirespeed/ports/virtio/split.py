"""The split format of a virtqueue: a table of descriptors, the ring of available chains and that of used ones.

*Source:* virtio 1.2, section 2.7.
"""

from wirespeed.jit.layout import layout

SplitDescriptor = layout(
    "SplitDescriptor", [("address", "u8"), ("word", "u8", [("len", "u4"), ("flags", "u2"), ("next", "u2")])]
)
DESCRIPTOR = SplitDescriptor.size
assert DESCRIPTOR == 16
# ``flags``; the word at +8 has them from bit 32 on, and ``next`` from bit 48 on.
NEXT, WRITE, INDIRECT = 1, 2, 4

# What both rings begin with; entries follow, 2 bytes each of the available ring and 8 of the used one, and behind these
# the other side's event index.
Ring = layout("SplitRing", [("flags", "u2"), ("idx", "u2")])
Entry = layout("AvailableEntry", [("id", "u2")])
ENTRIES = Ring.size
NO_INTERRUPT = 1  # ``flags`` of the available ring
NO_NOTIFY = 1  # ``flags`` of the used ring

MOST_ENTRIES = 32768


def table_bytes(size: int) -> int:
    """Bytes of the table of descriptors."""
    return 16 * size


def avail_bytes(size: int) -> int:
    """Bytes of the available ring, the event index behind it included."""
    return 6 + 2 * size


def used_bytes(size: int) -> int:
    """Bytes of the used ring, the event index behind it included."""
    return 6 + 8 * size
