"""The packed format of a virtqueue: one ring of descriptors that both sides write, and an event structure of each.

*Source:* virtio 1.2, section 2.8.
"""

from wirespeed.jit.layout import layout

PackedDescriptor = layout(
    "PackedDescriptor", [("address", "u8"), ("word", "u8", [("len", "u4"), ("id", "u2"), ("flags", "u2")])]
)
assert PackedDescriptor.size == 16
# ``flags``, beside NEXT, WRITE and INDIRECT, which are those of the split format.  The word at +8 has ``id`` from bit 32
# on and the flags from bit 48 on.
AVAIL, USED_FLAG = 1 << 7, 1 << 15

Event = layout("PackedEvent", [("word", "u4", [("off_wrap", "u2"), ("flags", "u2")])])
EVENT_BYTES = Event.size
# ``flags`` of an event structure
ENABLE, DISABLE, AT_DESCRIPTOR = 0, 1, 2


def ring_bytes(size: int) -> int:
    """Bytes of the ring."""
    return 16 * size
