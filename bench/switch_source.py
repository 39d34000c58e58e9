"""A source of frames of 64 bytes that lie in memory, given over and over: what ``bench/peers/replay.c`` is on the other side.

It takes free packets, resets their records and copies a frame into each, which is what the null driver and that callback
do.  It notes besides how long it is from each call to the next, the gap between two bursts, in parts of 1,024 cycles.
"""

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from wirespeed.core.element import Element
from wirespeed.core.packet import HEADROOM, Packet, reset
from wirespeed.core.pool import alloc_bulk
from wirespeed.core.stage import Head, Placement, Site
from wirespeed.jit.intrinsics import copy, cycles, load_handle, load_u64, store_u64
from wirespeed.jit.kernel import kernel, stage
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64
FRAME = 64
PARTS = 1 << 14  # of gaps; the last one has all longer ones
PART_CYCLES = 1024

State = layout(
    "BenchReplay",
    [
        ("head", Head),
        ("at", "i8"),
        ("begin", "i8"),
        ("end", "i8"),
        ("gaps", "i8"),  # address of u8[PARTS + 1]: how many of each length, and the longest in cycles
        ("last", "i8"),  # when it was called last, or 0
        (None, 24),
    ],
)


@kernel(inline=True)
def note_gap(s):
    """Count the time since the last call."""
    now = cycles()
    if s.last != 0:
        gap = now - s.last
        at = s.gaps + 8 * min(gap // PART_CYCLES, i64(PARTS - 1))
        store_u64(at, load_u64(at) + u64(1))
        longest = s.gaps + 8 * PARTS
        if u64(gap) > load_u64(longest):
            store_u64(longest, u64(gap))
    s.last = now


@stage
def receive(state, burst, n):
    """Give the next frames."""
    s = State(state)
    note_gap(s)
    n = alloc_bulk(s.head.cache, burst, n)
    at, begin, end = s.at, s.begin, s.end
    for i in range(n):
        p = Packet(load_handle(burst + 8 * i))
        reset(p, FRAME)
        copy(p.buffer + HEADROOM, at, FRAME)
        at += FRAME
        if at == end:
            at = begin
    s.at = at
    s.head.bytes += u64(n * FRAME)
    return n


class Replay(Element):
    """A source of the frames of a file, for one run with one worker at a time."""

    KIND = "replay"

    def __init__(self, path: Path) -> None:
        self.name = f"replay:{path.stem}"
        frames = np.fromfile(path, np.uint8)
        self.frames: Any = np.frombuffer(mmap.mmap(-1, max(len(frames), FRAME)), np.uint8)
        self.frames[: len(frames)] = frames
        self._gaps = np.zeros(PARTS + 1, np.uint64)

    def open(self, role: str, workers: int) -> "ReplayPart":
        """Ready for one run."""
        return ReplayPart(self)

    def take_gaps(self) -> tuple[Any, int]:
        """How many gaps of each length there were since the last time this was asked, and the longest, in cycles."""
        found = self._gaps.copy()
        self._gaps[:] = 0
        return found[:PARTS], int(found[PARTS])

    @property
    def gaps_address(self) -> int:
        """Where they are counted."""
        return int(self._gaps.ctypes.data)


class ReplayPart:
    """A replaying source in one run."""

    def __init__(self, element: Replay) -> None:
        self.element = element

    def place(self, site: Site) -> Placement:
        """A worker's copy."""
        address = site.state(State)
        state = State.at(address)
        at = int(self.element.frames.ctypes.data)
        state.at = state.begin = at
        state.end = at + len(self.element.frames) // FRAME * FRAME
        state.gaps = self.element.gaps_address
        return Placement(receive.address, address, keep=self)

    def close(self) -> None:
        """Nothing to close."""
