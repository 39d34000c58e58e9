"""The counters of rules, tables, groups and buckets: numbers given out, and the sums over all workers.

Theory of operation
-------------------
A counter is a number below :data:`MOST`; 0 to 255 are the look-ups without a match of each table.  Workers only ever
add.  A rule's count is the sum over the workers, and over those that have ended, less what the number had when the
rule got it.  Numbers that are free again are given out only when all others have been, and after a look at every
worker's counts, by which time no burst is under way that can still add to them.
"""

from collections import deque
from typing import Any

import numpy as np

from wirespeed.errors import GraphError
from wirespeed.switch import path
from wirespeed.switch.memory import TABLES
from wirespeed.switch.state import State

MOST = 1 << 21
PATHS_AT = State.offset("paths")
Counts = np.ndarray[Any, np.dtype[np.uint64]]


class Counters:
    """Numbers of counters; the control path's, under the switch's lock."""

    def __init__(self) -> None:
        self.ended: Counts = np.zeros(2 * MOST, np.uint64)
        self.states: list[int] = []
        self._next = TABLES
        self._freed: deque[int] = deque()
        self._ready: deque[int] = deque()
        self._base: Counts | None = None

    def take(self) -> tuple[int, int, int]:
        """A number for a new counter, and the packets and bytes that it begins with."""
        if self._next < MOST:
            self._next += 1
            return self._next - 1, 0, 0
        if not self._ready:
            self._base, self._ready, self._freed = self.totals(), self._freed, deque()
        if not self._ready:
            raise GraphError(f"a switch has at most {MOST} counters of rules, groups and buckets; remove some first")
        number = self._ready.popleft()
        assert self._base is not None
        return number, int(self._base[2 * number]), int(self._base[2 * number + 1])

    def give(self, number: int) -> None:
        """Take a number back."""
        self._freed.append(number)

    def totals(self) -> Counts:
        """Packets and bytes of every counter: number n has those at 2 n and 2 n + 1."""
        result = self.ended[: 2 * self._next].copy()
        for state in self.states:
            result += self._of(state)
        return result

    def _of(self, state: int) -> Counts:
        while True:
            found = np.zeros(2 * self._next, np.uint64)
            if path.collect(np.int64(state + PATHS_AT), np.int64(found.ctypes.data), np.int64(self._next)):
                return found

    def end(self, state: int) -> None:
        """Keep what a worker counted that has ended."""
        self.ended[: 2 * self._next] += self._of(state)
        self.states.remove(state)
