"""How large a worker's receiving ring is, by what a user chose and, where he did not, by the memory of the machine.

A ring is memory that is never swapped, and is there from when the port is opened.  Most frames that are lost are lost
while the worker does not run, which takes milliseconds: 16,384 slots are 16 of them, at a million frames a second.
"""

import os

from wirespeed.ports.link import rights
from wirespeed.ports.packet.settings import Settings
from wirespeed.ports.packet.slots import IN_BLOCK, Geometry

BEFORE = 128  # most bytes that the kernel writes before a frame
SLOT = BEFORE + 1518 + 8  # a frame of 1,500 bytes with its tags
LARGE_SLOT, LARGE_SLOTS = BEFORE + (1 << 16) + 64, 256  # where the buffer for large frames may not be large
RING, SHARE = 32 << 20, 128  # most bytes of a ring, and the part of the memory that all rings of a port have at most
FEWEST_SLOTS, MOST_SLOTS = 256, 16384


def receiving_ring(settings: Settings, workers: int) -> Geometry:
    """The ring of each of a port's workers."""
    size, slots = SLOT, settings.slots
    if settings.slot is not None:
        size = settings.slot + BEFORE
    elif not rights.has("CAP_NET_ADMIN"):
        size, slots = LARGE_SLOT, slots and min(slots, LARGE_SLOTS)
    size = Geometry.of(1, size).size
    return Geometry.of(slots or fitting_slots(size, workers, _memory()), size)


def fitting_slots(size: int, workers: int, memory: int) -> int:
    """How many slots of ``size`` bytes each of the workers has on a machine with so many bytes of memory."""
    fit = min(RING, memory // SHARE // workers) // size
    return max(FEWEST_SLOTS, min(fit // IN_BLOCK * IN_BLOCK, MOST_SLOTS))


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
