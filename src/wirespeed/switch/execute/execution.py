"""A worker's own part of executing: where copies come back to, what was mirrored, what time it is."""

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.libc import monotonic_ns
from wirespeed.switch.execute.events import RING_SIZE, make_ring
from wirespeed.switch.memory import MOST_MIRRORS
from wirespeed.switch.state import State

i64 = np.int64
LEVELS = 128  # copies one in another, more than a translation makes
SECOND = 1_000_000_000

Level = layout("SwitchLevel", [("end", "i8"), ("handle", "i8")])
LEVEL = Level.size

# A packet that is being mirrored, and how far that is; mirrors' own outputs may be mirrored by others.
MirrorLevel = layout(
    "SwitchMirrorLevel",
    [
        ("handle", "i8"),
        ("bits", "u8"),  # mirrors that select it
        ("mirror", "i8"),  # the one that is being served into a VLAN,
        ("next", "i8"),  # and the place of the port that comes next there, or -1
        ("tags", "i8"),  # see Vlan
        ("tci", "i8"),
        ("tpid", "i8"),
        ("vlan", "i8"),
        ("inner", "i8"),
        (None, 56),
    ],
)
MIRROR_LEVEL = MirrorLevel.size
assert MIRROR_LEVEL == 128
MIRROR_LEVELS = MOST_MIRRORS + 1  # each mirror is done once for a packet

Execution = layout(
    "SwitchExecution",
    [
        ("shared", "i8"),
        ("events", "i8"),  # address of the ring of events for Python
        ("levels", "i8"),  # address of Level[LEVELS]
        ("mirror_levels", "i8"),  # address of MirrorLevel[MIRROR_LEVELS]
        # of the packet
        ("mirrored", "u8"),  # a bit for each mirror that has it, or needs it no more
        # of the burst
        ("passes", "u8"),  # the worker's, when it last looked at its clock
        ("now_ns", "i8"),
        ("now_s", "i8"),
        # read by the control path
        ("made", "i8"),  # packets made out of others, less those that were taken back
        (None, 56),
    ],
)
assert Execution.size == 2 * LINE
SIZE = Execution.size + LEVEL * LEVELS + MIRROR_LEVEL * MIRROR_LEVELS + RING_SIZE + 4096
"""Bytes of an arena that :func:`make` takes, at most."""


def make(arena: Arena, shared: int) -> int:
    """The address of a worker's execution."""
    address = arena.alloc(Execution.size)
    e = Execution.at(address)
    e.shared = shared
    e.levels, e.mirror_levels = arena.alloc(LEVEL * LEVELS), arena.alloc(MIRROR_LEVEL * MIRROR_LEVELS)
    e.events = make_ring(arena)
    return address


@kernel
def _look_at_clock(e, passes):
    e.passes = passes
    e.now_ns = monotonic_ns()
    e.now_s = e.now_ns // SECOND


@kernel(inline=True)
def know_time(state, e):
    """Have ``now_ns`` and ``now_s`` be those of this burst: the clock is read once a burst, if anybody asks."""
    if State(state).passes != e.passes:
        _look_at_clock(e, State(state).passes)
