"""The staged ordered ring from Python: NumPy arrays in and out, and a ``with`` around what a stage works on.

Thread rules: any thread may call anything, as far as the two ends' syncs allow (``st`` is for one thread at that end).
Whoever closes or resets the ring makes sure that nobody works on it.  A call holds no lock and lets other threads run.
"""

import ctypes
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wirespeed.core import staged
from wirespeed.core.arena import Arena
from wirespeed.core.ring import HTS, MT, RTS, ST, End
from wirespeed.core.staged import Staged
from wirespeed.errors import GraphError

SYNCS = {"st": ST, "mt": MT, "rts": RTS, "hts": HTS}
NAP = 0.0002  # seconds between two looks of a call that waits; shorter ones cost a core and see little sooner
Array = NDArray[Any]


class StageLength(NamedTuple):
    """Items that wait for a stage, and items that are in its work (or finished behind some that are)."""

    waiting: int
    working: int


class _Column:
    """How items or metadata look as a NumPy array: ``base`` elements, ``shape`` of them for each item."""

    def __init__(self, dtype: DTypeLike, what: str) -> None:
        self.dtype = np.dtype(dtype)
        self.base: np.dtype[Any] = self.dtype.base
        self.shape = self.dtype.shape
        self.size = self.dtype.itemsize
        self.what = what
        if self.dtype.hasobject:
            raise GraphError(
                f"{what} of type {self.dtype} hold Python objects, which cannot be shared; give numbers or records"
            )

    def empty(self, n: int) -> Array:
        return np.empty((n, *self.shape), self.base)

    def at(self, address: int, n: int) -> Array:
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * (self.size * n)).from_address(address))
        return memory.view(self.base).reshape(n, *self.shape)

    def given(self, values: Any) -> Array:
        """``values`` as a contiguous array of ours, without a copy where it is one."""
        array = np.asarray(values) if isinstance(values, np.ndarray) else np.asarray(values, self.base)
        if array.shape[1:] != self.shape or array.ndim == 0:
            wanted = ", ".join(["n", *map(str, self.shape)])
            raise GraphError(f"{self.what} came in the shape {array.shape}, wanted ({wanted}); reshape the array")
        if not np.can_cast(array.dtype, self.base, "same_kind"):
            raise GraphError(f"{self.what} came as {array.dtype}, wanted {self.base}; convert them with astype()")
        return np.ascontiguousarray(array, self.base)

    def room(self, array: Array, n: int) -> int:
        """The address of a caller's array that ``n`` of ours are to be written to."""
        if array.dtype != self.base or array.shape[1:] != self.shape or not array.flags.carray or len(array) < n:
            raise GraphError(
                f"room for {n} {self.what} of type {self.dtype} is wanted, got {len(array)} of {array.dtype};"
                " give a writable, contiguous array of that type and length"
            )
        return array.ctypes.data


class Work:
    """Items that one stage has acquired: ``items`` (and ``metadata``) to read and write, released at the end of ``with``.

    They are copies that are written back at the release, or with ``in_place`` the slots themselves: then ``runs`` (and
    ``metadata_runs``) are one or two arrays over them, the second what lies at the start of the slots, not to be
    touched after the release.  When the body raises, copies are dropped and the items are released as they were (in
    place: as they are), for otherwise all that is behind them would wait for ever; the exception goes on.
    """

    def __init__(self, ring: "StagedRing", stage: int, token: int, n: int) -> None:
        self.ring, self.stage, self.token, self.count = ring, stage, token, n
        self.items: Array | None = None
        self.metadata: Array | None = None
        self.runs: tuple[Array, ...] = ()
        self.metadata_runs: tuple[Array, ...] = ()
        self._is_open = n > 0

    def release(self, *, unchanged: bool = False) -> None:
        """Hand the items to the next stage, as ``items`` and ``metadata`` now are or ``unchanged``.  Only once."""
        if self.count and not self._is_open:
            raise GraphError("these items were released already; release what was acquired once")
        if self._is_open:
            items, metadata = (None, None) if unchanged else (self.items, self.metadata)
            done = self.ring.release(self.stage, self.token, self.count, items, metadata)
            self._is_open = False
            self.runs = self.metadata_runs = ()
            if not done:
                raise GraphError(
                    f"stage {self.stage} does not know token {self.token} with {self.count} items; it was released"
                    " by its token before, so leave the release to one of the two"
                )

    def __enter__(self) -> "Work":
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if self._is_open:  # the body may have released them
            self.release(unchanged=kind is not None)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<Work of stage {self.stage}, {self.count} items{'' if self._is_open else ', released'}>"


class StagedRing:
    """A ring of up to ``size`` items that pass ``stages`` in place; they leave in the order in which they came.

    ``dtype`` is an item's type (any of a multiple of 4 bytes: numbers, records, ``("u4", 5)``), ``metadata`` that of a
    second column beside it, which stages can hand on without touching the items.  ``prod`` and ``cons`` are the syncs
    of the ends: ``mt``, ``st``, ``rts`` or ``hts``.  Memory of its own unless ``arena`` is given.  What is enqueued
    without metadata has some of an earlier item.

    ``bulk`` calls are for all or nothing, ``burst`` calls for as many as there are.  With ``timeout_s`` a call that would
    do nothing looks again until then (None: for ever), sleeping in between.
    """

    def __init__(
        self,
        size: int,
        stages: int = 1,
        *,
        dtype: DTypeLike = np.int64,
        metadata: DTypeLike | None = None,
        prod: str = "mt",
        cons: str = "mt",
        arena: Arena | None = None,
    ) -> None:
        for end, sync in (("prod", prod), ("cons", cons)):
            if sync not in SYNCS:
                raise GraphError(f"{end} must be one of {', '.join(SYNCS)}, got {sync!r}; mt is for several threads")
        self._item = _Column(dtype, "items")
        self._metadata = None if metadata is None else _Column(metadata, "metadata")
        sizes = self._item.size, 0 if self._metadata is None else self._metadata.size
        self._bytes = staged.size_of(size, stages, *sizes)
        if self._metadata is not None and self._metadata.size == 0:
            raise GraphError(f"metadata of type {self._metadata.dtype} has 0 bytes; give None for no metadata")
        self.size, self.stages = size, stages
        self.prod, self.cons = prod, cons
        self._own = arena is None
        self.arena = arena or Arena(self._bytes + 128)
        self._at = self.arena.alloc(self._bytes, 128)
        staged.init(self._at, size, stages, *sizes)

    @property
    def address(self) -> int:
        """Of the ring's record, for kernels."""
        if not self._at:
            raise GraphError("this ring is closed; use it inside its `with`, or make another")
        return self._at

    def enqueue_bulk(self, items: Any, metadata: Any = None, *, timeout_s: float | None = 0) -> int:
        """Put all of ``items`` in, or none; return how many."""
        return self._enqueue(items, metadata, True, timeout_s)

    def enqueue_burst(self, items: Any, metadata: Any = None, *, timeout_s: float | None = 0) -> int:
        """Put as many of ``items`` in as there is room for; return how many."""
        return self._enqueue(items, metadata, False, timeout_s)

    def _enqueue(self, items: Any, metadata: Any, exact: bool, timeout_s: float | None) -> int:
        array = self._item.given(items)
        beside = None if metadata is None else self._has_metadata().given(metadata)
        if beside is not None and len(beside) != len(array):
            raise GraphError(f"{len(array)} items came with metadata for {len(beside)}; give one for each")
        n, sync = len(array), SYNCS[self.prod]
        where = array.ctypes.data, 0 if beside is None else beside.ctypes.data
        self._can_fit(n, exact, timeout_s)
        return int(_patient(lambda: staged.enqueue(self.address, *where, n, exact, sync), n, timeout_s)[0])

    def dequeue_bulk(self, n: int, metadata: Array | None = None, *, timeout_s: float | None = 0) -> Array:
        """Take ``n`` items that have passed all stages, or none."""
        return self._dequeue(n, metadata, True, timeout_s)

    def dequeue_burst(self, n: int, metadata: Array | None = None, *, timeout_s: float | None = 0) -> Array:
        """Take up to ``n`` items that have passed all stages; their metadata go to the array ``metadata``, if given."""
        return self._dequeue(n, metadata, False, timeout_s)

    def _dequeue(self, n: int, metadata: Array | None, exact: bool, timeout_s: float | None) -> Array:
        self._can_fit(n, exact, timeout_s)
        n, sync = self._at_most(n, exact), SYNCS[self.cons]
        array = self._item.empty(n)
        where = array.ctypes.data, 0 if metadata is None else self._has_metadata().room(metadata, n)
        return array[: _patient(lambda: staged.dequeue(self.address, *where, n, exact, sync), n, timeout_s)[0]]

    def acquire(
        self, stage: int, n: int, *, exact: bool = False, in_place: bool = False, timeout_s: float | None = 0
    ) -> Work:
        """Take up to ``n`` items (all or nothing if ``exact``) into the work of a stage, to be released at the end of ``with``.

        An empty :class:`Work`, of ``count`` 0, when there are none.
        """
        if not 0 <= stage < self.stages:
            raise GraphError(f"this ring has the stages 0 to {self.stages - 1}, got {stage}; name one of these")
        self._can_fit(n, exact, timeout_s)
        n = self._at_most(n, exact)
        items = None if in_place else self._item.empty(n)
        beside = None if in_place or self._metadata is None else self._metadata.empty(n)
        where = (0 if column is None else column.ctypes.data for column in (items, beside))
        call = (self.address, int(stage), *where, n, exact)
        count, token, _ = _patient(lambda: staged.acquire(*call), n, timeout_s)
        work = Work(self, stage, token, count)
        if items is not None:
            work.items, work.metadata = items[:count], None if beside is None else beside[:count]
        elif count:
            work.runs = self._runs(self._item, stage, token, count, False)
            if self._metadata is not None:
                work.metadata_runs = self._runs(self._metadata, stage, token, count, True)
        return work

    def _runs(self, column: _Column, stage: int, token: int, count: int, is_metadata: bool) -> tuple[Array, ...]:
        first, straight, rest = staged.runs(self.address, stage, token, count, is_metadata)
        runs = (column.at(first, straight),)
        return (*runs, column.at(rest, count - straight)) if rest else runs

    def release(self, stage: int, token: int, count: int, items: Any = None, metadata: Any = None) -> int:
        """Give back what a stage acquired, all of it, with ``items`` and ``metadata`` written back where they are given.

        Returns ``count``, or 0 when it was not acquired like that: then nothing is done but counted, in ``refused``.
        """
        given = (
            None if items is None else self._item.given(items),
            None if metadata is None else self._has_metadata().given(metadata),
        )
        for array in given:
            if array is not None and len(array) != count:
                raise GraphError(f"{count} items are released with values for {len(array)}; give one for each")
        where = (0 if array is None else array.ctypes.data for array in given)
        is_possible = 0 <= stage < self.stages and 0 <= token < 1 << 32 and 0 < count <= self.size
        # What does not even fit a kernel's integers is refused by it as a release of nothing.
        run = (int(stage), int(token), int(count)) if is_possible else (0, 0, 0)
        return int(staged.release(self.address, *run, *where))

    def _can_fit(self, n: int, exact: bool, timeout_s: float | None) -> None:
        if n < 0:
            raise GraphError(f"the number of items must not be negative, got {n}; 0 is none")
        if exact and n > self.size and timeout_s != 0:
            raise GraphError(f"{n} items at once never fit a ring of {self.size}; wait for fewer or make it larger")

    def _at_most(self, n: int, exact: bool) -> int:
        """What to ask a kernel for when ``n`` are wanted, so that there is need for no more room than the ring's."""
        return int(n) if n <= self.size else 0 if exact else self.size

    def _has_metadata(self) -> _Column:
        if self._metadata is None:
            raise GraphError("this ring has no metadata; make it with metadata=, or leave them out here")
        return self._metadata

    def __len__(self) -> int:
        return int(staged.used(self.address))

    @property
    def free(self) -> int:
        """How many more items fit."""
        return self.size - len(self)

    @property
    def refused(self) -> int:
        """Releases whose token, count or stage did not fit, so far."""
        return int(Staged.at(self.address).refused)

    @property
    def stage_lengths(self) -> list[StageLength]:
        """What is before and in each stage; exact only while nobody works."""
        tails, heads = (self._counters(name) for name in ("tail", "position"))
        waiting, working = tails[:-1] - heads[1:], heads[1:] - tails[1:]
        return [StageLength(*pair) for pair in zip(waiting.tolist(), working.tolist())]

    @property
    def ready(self) -> int:
        """How many items have passed all stages and wait to be dequeued."""
        taken: int = Staged.at(self.address).cons.tail
        return int(self._counters("tail")[-1]) - taken & 0xFFFFFFFF

    def _counters(self, name: str) -> NDArray[np.uint32]:
        """A counter of the producers and of each stage."""
        ends = End.array_at(self.address + staged.STAGES - staged.STAGE, self.stages + 1)
        counters: NDArray[np.uint32] = ends[name].copy()
        return counters

    def dump(self) -> str:
        """What the ring is and where all of its counters are, as text of a line for each end and stage."""
        record = Staged.at(self.address)
        metadata = f", {self._metadata.size} of metadata" if self._metadata else ""
        lines = [
            f"staged ring at {self.address:#x}: {len(self)} of {self.size} items of {self._item.size} bytes{metadata}, "
            f"{self.stages} stages, {self.refused} releases refused",
            f"  put in up to {record.prod.tail} ({self.prod})",
        ]
        tails, heads = self._counters("tail"), self._counters("position")
        for k, length in enumerate(self.stage_lengths):
            lines.append(
                f"  stage {k}: acquired up to {heads[k + 1]}, finished up to {tails[k + 1]}, {length.waiting} wait"
            )
        return "\n".join([*lines, f"  taken out up to {record.cons.tail} ({self.cons})"])

    def reset(self) -> None:
        """Make it empty, as new.  Nobody may be working on it, and what is acquired can no longer be released."""
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * self._bytes).from_address(self.address))
        memory[: Staged.at(self.address).items] = 0
        staged.init(self.address, self.size, self.stages, self._item.size, self._metadata.size if self._metadata else 0)

    def close(self) -> None:
        """Unmap the memory if it is the ring's own.  Closing twice is harmless."""
        if self._at and self._own:
            self.arena.close()
        self._at = 0

    def __enter__(self) -> "StagedRing":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._at:
            return "<StagedRing, closed>"
        return f"<StagedRing {len(self)} of {self.size} items, {self.stages} stages>"


def _patient(call: Callable[[], tuple[int, ...]], n: int, timeout_s: float | None) -> tuple[int, ...]:
    """What ``call`` returns: at once when it did something or nothing was wanted, else as soon as it does or time is up."""
    result = call()
    if result[0] == 0 and n and timeout_s != 0:
        end = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        while result[0] == 0 and time.monotonic() < end:
            time.sleep(NAP)
            result = call()
    return result
