"""Looking at items before they are taken, and writing items in place before they are shown.

``with ring.peek(32) as look`` leaves the items in the ring until ``look.take(k)``; ``with ring.reserve(32) as room``
shows nothing until ``room.commit(k)``.  What was not taken or committed when the block ends, also by an exception, is
given back: the next one to look finds it again.

Nothing is copied: ``runs`` are arrays over the slots themselves, one or, where the slots wrap, two.  They are valid
until the block ends; what is read from them later is whatever is in the slots then, for the memory stays mapped for as
long as such an array lives.

Thread rules: who begins a look ends it.  Meanwhile this end is closed to all other threads and processes.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.core import calls
from wirespeed.core.items import converted
from wirespeed.core.mapping import array_over
from wirespeed.core.member import CONS, HELD, PROD, Member
from wirespeed.core.ring import SLOTS
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.libc import thread_id

if TYPE_CHECKING:
    from wirespeed.core.ring_memory import RingMemory


class Held:
    """Slots that this thread has to itself until it leaves the block; see :class:`Look` and :class:`Room`."""

    _side = CONS
    _done = "taken"

    def __init__(self, memory: "RingMemory", begin: Callable[[], int]) -> None:
        self._memory = memory
        self._length = 0
        self._kept = 0
        self._over = False
        self._thread = thread_id()
        before, self._token = memory.held[self._side], object()
        # From here on __del__ gives back what is held, even if an interrupt keeps the answer from arriving.
        memory.held[self._side] = self._token
        try:
            self._length = begin()
        except GraphError:  # held by another look of this thread, which it stays
            memory.held[self._side] = before
            raise

    def _end(self, kept: int) -> None:
        """Finish, unless that was done, or another look has begun since."""
        memory = self._memory
        if self._over or not memory.open or memory.held[self._side] is not self._token:
            return
        member = Member.at(memory.members.own)
        intent = member.prod if self._side == PROD else member.cons
        if intent.state == HELD and intent.thread == self._thread:
            calls.finish_hold.function(memory.binding, self._side, kept)
        elif self._length:
            self._over = True
            raise PeerError("a recovery has given back what this look held; nothing was taken or shown by it")
        self._over = True

    def __del__(
        self, ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:  # at the end there is no ``sys`` any more
        if not ending() and hasattr(self, "_token"):
            self._length = 0
            self._end(0)

    def __reduce__(self) -> Any:
        raise TypeError("a look at a ring is not copied or pickled; copy its items")

    def __len__(self) -> int:
        return self._length

    @property
    def runs(self) -> list[NDArray[Any]]:
        """The slots, as one array or two."""
        self._check()
        memory, record = self._memory, self._memory.record
        end = record.prod if self._side == PROD else record.cons
        at = end.tail & record.mask
        first = min(self._length, memory.slots - at)
        parts = [(at, first), (0, self._length - first)]
        return [self._run(at, length) for at, length in parts if length]

    def _run(self, at: int, length: int) -> NDArray[Any]:
        memory = self._memory
        address = memory.ring + SLOTS + at * memory.dtype.itemsize
        return array_over(memory.mapping, address, length, memory.dtype, self._side == PROD)

    def _keep(self, k: Any) -> None:
        self._check()
        k = self._length if k is None else k
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= self._length:
            raise GraphError(f"{k} of {self._length} items cannot be {self._done}; give 0 to {self._length}")
        self._kept = int(k)

    def _check(self) -> None:
        if self._over or not self._memory.open:
            raise GraphError("this look at the ring is over; begin another")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            self._end(self._kept if kind is None else 0)
        finally:
            self._length = 0  # an interrupt may have come before the end or behind it
            self._end(0)


class Look(Held):
    """Items that are still in the ring; ``len`` of it says how many."""

    @property
    def items(self) -> NDArray[Any]:
        """A copy of the items."""
        runs = self.runs
        return np.concatenate(runs) if runs else np.empty(0, self._memory.dtype)

    def take(self, k: int | None = None) -> None:
        """Have the first ``k`` (all) taken out when the block ends."""
        self._keep(k)


class Room(Held):
    """Slots that nobody sees yet; ``len`` of it says how many."""

    _side = PROD
    _done = "shown"

    def put(self, items: Any) -> None:
        """Write items to the first slots, and have them shown when the block ends."""
        given = converted(items, self._memory.dtype)
        if len(given) > self._length:
            raise GraphError(f"up to {self._length} items of {given.dtype} go into this room, got {len(given)}")
        done = 0
        for run in self.runs:
            part = given[done : done + len(run)]
            run[: len(part)] = part
            done += len(part)
        self._keep(len(given))

    def commit(self, k: int | None = None) -> None:
        """Have the first ``k`` slots (all) shown when the block ends, as they were written in place."""
        self._keep(k)
