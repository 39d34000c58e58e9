"""Whether the other side wants to be told: the arithmetic of event indexes, of both ring formats.

*Source:* virtio 1.2, 2.7.7.1 (``vring_need_event``) and 2.8.10.
"""

from wirespeed.jit.kernel import kernel


@kernel(inline=True)
def is_passed(event, new, old):
    """Whether an index that went from ``old`` to ``new`` passed the entry ``event``, all of them modulo 2^16."""
    return ((new - event - 1) & 0xFFFF) < ((new - old) & 0xFFFF)


@kernel(inline=True)
def is_passed_packed(off_wrap, new, wrap, old, size):
    """The same for a packed ring, whose indexes are places; ``wrap`` is the wrap counter that goes with ``new``."""
    event = off_wrap & 0x7FFF
    if new <= old:
        old -= size
    if wrap != off_wrap >> 15:
        event -= size
    return is_passed(event, new, old)
