"""The memory in which a back end notes what it has taken and not given back, for the one that comes after it.

Each queue has a part of its own, ``queue_bytes`` long: a record, behind it one for each descriptor.

*Source:* the vhost-user protocol, "Inflight I/O tracking", version 1.
"""

from wirespeed.jit.layout import layout

VERSION = 1

SplitFlight = layout(
    "SplitFlight",
    [
        ("features", "u8"),
        ("version", "u2"),
        ("desc_num", "u2"),  # descriptors
        ("last_batch_head", "u2"),  # head of the list of those that were given back together last
        ("used_idx", "u2"),  # the used ring's index once that was done
    ],
)
SplitState = layout(
    "SplitState",
    [
        ("inflight", "u1"),  # 1 while the chain with this head is the device's
        (None, 5),
        ("next", "u2"),  # the next one of those that were given back together
        ("counter", "u8"),  # tells in which order they were taken
    ],
)
assert SplitFlight.size == SplitState.size == 16

PackedFlight = layout(
    "PackedFlight",
    [
        ("features", "u8"),
        ("version", "u2"),
        ("desc_num", "u2"),
        ("free_head", "u2"),  # of the list of states that are free,
        ("old_free_head", "u2"),  # and that of before the chain that is being taken or given back
        ("used_idx", "u2"),
        ("old_used_idx", "u2"),
        ("used_wrap_counter", "u1"),
        ("old_used_wrap_counter", "u1"),
    ],
    size=32,
)
PackedState = layout(
    "PackedState",
    [
        ("inflight", "u1"),
        (None, 1),
        ("next", "u2"),
        ("last", "u2"),  # state of the chain's last descriptor
        ("num", "u2"),  # descriptors of the chain
        ("counter", "u8"),
        ("id", "u2"),
        ("flags", "u2"),
        ("len", "u4"),
        ("addr", "u8"),
    ],
)
assert PackedState.size == 32


def queue_bytes(size: int, packed: bool) -> int:
    """Bytes of one queue's part, for a ring of ``size`` descriptors; a multiple of 64."""
    used = PackedFlight.size + PackedState.size * size if packed else SplitFlight.size + SplitState.size * size
    return -(-used // 64) * 64
