"""The staged ordered ring from Python: NumPy arrays in and out, and a ``with`` around what a stage works on.

Theory of operation
-------------------
Kernels run without the GIL on addresses, so a call keeps a reference to the memory for as long as it is in one, and a
call that waits asks for the memory anew each time it looks.  Closing only drops the ring's own reference: who is in a
kernel then ends in peace, and the next look finds the ring closed.

An exception can come between any two steps of Python, for handlers of signals raise them.  So what a stage acquires is
noted by the kernel itself, in memory of the :class:`Work` that is made before: whatever becomes of the call, the items
are released with that object.

Thread rules: any thread may call anything, as far as the two ends' syncs allow (``st`` is for one thread at that end).
Whoever resets the ring makes sure that nobody works on it.  A call holds no lock and lets other threads run.
"""

import ctypes
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wirespeed.core import staged
from wirespeed.core.arena import Arena
from wirespeed.core.items import converted, item_type, shape_of
from wirespeed.core.mapping import Mapping, array_over
from wirespeed.core.number import Deadline, whole
from wirespeed.core.ring import SYNCS, End
from wirespeed.core.staged import Staged
from wirespeed.errors import GraphError, PortError

NAP = 0.0002  # seconds between two looks of a call that waits; shorter ones cost a core and see little sooner
Array = NDArray[Any]


class StageLength(NamedTuple):
    """Items that wait for a stage, and items that are in its work (or finished behind some that are)."""

    waiting: int
    working: int


@dataclasses.dataclass(frozen=True, eq=False)
class _Memory:
    """Where a ring lies, from its making or reset on; ``owner`` stays mapped for as long as something refers to this."""

    owner: Mapping | Arena
    at: int
    pid: int  # whose it is; 0 for memory that a fork shares


class _Column:
    """How items or metadata look as a NumPy array."""

    def __init__(self, dtype: DTypeLike, what: str) -> None:
        self.what = what
        try:
            self.dtype = item_type(dtype)
        except GraphError as error:
            raise GraphError(f"{what}: {error}") from error
        self.size = self.dtype.itemsize
        if self.dtype.hasobject:
            raise GraphError(
                f"{what} of type {self.dtype} hold Python objects, which cannot be shared; give numbers or records"
            )

    def empty(self, n: int) -> Array:
        return np.empty(n, self.dtype)

    def at(self, memory: _Memory, address: int, n: int) -> Array:
        return array_over(memory, address, n, self.dtype)

    def given(self, values: Any) -> Array:
        """``values`` as a contiguous array of ours, without a copy where it is one."""
        if type(values) is np.ndarray and values.dtype == self.dtype and values.ndim == 1:
            return np.ascontiguousarray(values)
        try:
            return converted(values, self.dtype)
        except GraphError as error:
            raise GraphError(f"{self.what}: {error}") from error

    def room(self, array: Any, n: int) -> int:
        """The address of a caller's array that ``n`` of ours are to be written to."""
        fits = isinstance(array, np.ndarray) and array.dtype == self.dtype and array.ndim == 1
        if not fits or not array.flags.carray or len(array) < n:
            raise GraphError(
                f"room for {n} {self.what} of type {self.dtype} is wanted, got {shape_of(array)};"
                " give a writable, contiguous array of that type and length"
            )
        return int(array.ctypes.data)


class Work:
    """Items that one stage has acquired: ``items`` (and ``metadata``) to read and write, released at the end of ``with``.

    They are copies that are written back at the release, or with ``in_place`` the slots themselves: then ``runs`` (and
    ``metadata_runs``) are one or two arrays over them, the second what lies at the start of the slots, not to be
    touched after the release.  When the body raises, copies are dropped and the items are released as they were (in
    place: as they are), for otherwise all that is behind them would wait for ever; the exception goes on.  So are they
    when the last reference to this object goes: keep it even if the release is by its ``token``.
    """

    _memory: _Memory | None = None  # so it is from before the first instruction of __init__ on

    def __init__(self, ring: "StagedRing", stage: int) -> None:
        self._note = np.zeros(1, np.uint64)  # kernels write here what is to be released,
        self._note_at = int(self._note.ctypes.data)  # by its address
        self.ring, self.stage, self.token, self.count = ring, stage, 0, 0
        self.items: Array | None = None
        self.metadata: Array | None = None
        self.runs: tuple[Array, ...] = ()
        self.metadata_runs: tuple[Array, ...] = ()

    def _acquire(self, memory: _Memory, n: int, exact: bool) -> int:
        self._memory = memory
        where = (0 if column is None else column.ctypes.data for column in (self.items, self.metadata))
        return int(staged.acquire_noted(memory.at, self.stage, *where, n, exact, self._note_at))

    def _show(self, count: int, item: _Column, metadata: _Column | None) -> None:
        """Have the attributes tell what was acquired."""
        self.count, self.token = count, int(self._note[0]) & 0xFFFFFFFF
        if self.items is not None:
            self.items, self.metadata = self.items[:count], None if self.metadata is None else self.metadata[:count]
        elif count:
            self.runs = self._slots(item, False)
            self.metadata_runs = () if metadata is None else self._slots(metadata, True)

    def _slots(self, column: _Column, is_metadata: bool) -> tuple[Array, ...]:
        memory = self._memory
        assert memory is not None
        first, straight, rest = staged.runs(memory.at, self.stage, self.token, self.count, is_metadata)
        runs = (column.at(memory, first, straight),)
        return (*runs, column.at(memory, rest, self.count - straight)) if rest else runs

    @property
    def _is_open(self) -> bool:
        return bool(self._note[0])

    def release(self, *, unchanged: bool = False) -> None:
        """Hand the items to the next stage, as ``items`` and ``metadata`` now are or ``unchanged``.  Only once."""
        if self.count and not self._is_open:
            raise GraphError("these items were released already; release what was acquired once")
        if self._is_open:
            memory = self.ring._open()
            if memory is not self._memory:
                raise GraphError("the ring was reset after these items were acquired; acquire others")
            values = (None, None) if unchanged else (self.items, self.metadata)
            given = self.ring._values(self.count, *values)
            where = (0 if array is None else array.ctypes.data for array in given)
            done = staged.release_noted(memory.at, self.stage, self._note_at, *where)
            self.runs = self.metadata_runs = ()
            if not done:
                raise GraphError(
                    f"stage {self.stage} does not know token {self.token} with {self.count} items; it was released"
                    " by its token before, so leave the release to one of the two"
                )

    def _give_back(self) -> None:
        """Release unchanged what can still be released."""
        memory = self._memory
        if memory is not None and self._is_open and self.ring._has(memory):
            staged.give_back(memory.at, self.stage, self._note_at)
            self.runs = self.metadata_runs = ()

    def __enter__(self) -> "Work":
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if kind is not None:
            self._give_back()
        elif self._is_open:  # the body may have released them
            try:
                self.release()
            except BaseException:
                self._give_back()  # they were replaced by what cannot be written back, or a signal's handler raised
                raise

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # a kernel that must be compiled or loaded first finds no Python any more
            self._give_back()

    def __len__(self) -> int:
        return self.count

    def __reduce__(self) -> NoReturn:
        raise TypeError("what a stage acquired cannot be copied or pickled, for it is released once; copy its items")

    def __repr__(self) -> str:
        return f"<Work of stage {self.stage}, {self.count} items{'' if self._is_open else ', released'}>"


class StagedRing:
    """A ring of up to ``size`` items that pass ``stages`` in place; they leave in the order in which they came.

    ``dtype`` is an item's type (any of a multiple of 4 bytes: numbers, records), ``metadata`` that of a second column
    beside it, which stages can hand on without touching the items.  ``prod`` and ``cons`` are the syncs of the ends:
    ``mt``, ``st``, ``rts`` or ``hts``.  Memory of its own unless ``arena`` is given; that is closed by whoever made it,
    when nobody works on the ring.  What is enqueued without metadata has some of an earlier item.

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
        ends: tuple[tuple[str, Any], ...] = (("prod", prod), ("cons", cons))
        for end, sync in ends:
            if not isinstance(sync, str) or sync not in SYNCS:
                raise GraphError(f"{end} must be one of {', '.join(SYNCS)}, got {sync!r}; mt is for several threads")
        self.size, self.stages = whole(size, "size"), whole(stages, "stages")
        self._item = _Column(dtype, "items")
        self._metadata = None if metadata is None else _Column(metadata, "metadata")
        self._sizes = self._item.size, 0 if self._metadata is None else self._metadata.size
        self.prod, self.cons = prod, cons
        length = staged.size_of(self.size, self.stages, *self._sizes)
        if arena is None:
            try:
                owner = Mapping(length)
            except OSError as error:
                raise PortError(error.errno, f"no memory of {length} bytes for the ring: {error.strerror}") from error
            memory = _Memory(owner, owner.address, os.getpid())
        else:
            memory = _Memory(arena, arena.alloc(length, 128), 0 if arena.fd >= 0 else os.getpid())
        staged.init(memory.at, self.size, self.stages, *self._sizes)
        self._memory: _Memory | None = memory

    def _open(self) -> _Memory:
        """The memory, to be referred to for as long as it is looked at; raises when the ring cannot be used."""
        memory = self._memory
        if memory is None:
            raise GraphError("this ring is closed; use it inside its `with`, or make another")
        if memory.owner.address == 0:
            raise GraphError("this ring's arena is closed; use the ring inside the arena's `with`, or make another")
        if memory.pid not in (0, os.getpid()):
            raise GraphError(f"this ring belongs to process {memory.pid}, not to its fork; make one here")
        return memory

    def _has(self, memory: _Memory | None) -> bool:
        """Whether the ring lies there, now and in this process."""
        return (
            memory is not None
            and self._memory is memory
            and memory.owner.address != 0
            and memory.pid in (0, os.getpid())
        )

    @property
    def address(self) -> int:
        """Of the ring's record, for kernels; good until the ring is closed."""
        return self._open().at

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
        return self._patient(lambda memory: staged.enqueue(memory.at, *where, n, exact, sync)[0], n, timeout_s)

    def dequeue_bulk(self, n: int, metadata: Array | None = None, *, timeout_s: float | None = 0) -> Array:
        """Take ``n`` items that have passed all stages, or none."""
        return self._dequeue(n, metadata, True, timeout_s)

    def dequeue_burst(self, n: int, metadata: Array | None = None, *, timeout_s: float | None = 0) -> Array:
        """Take up to ``n`` items that have passed all stages; their metadata go to the array ``metadata``, if given."""
        return self._dequeue(n, metadata, False, timeout_s)

    def _dequeue(self, n: int, metadata: Array | None, exact: bool, timeout_s: float | None) -> Array:
        n, sync = self._at_most(n, exact, timeout_s), SYNCS[self.cons]
        array = self._item.empty(n)
        where = array.ctypes.data, 0 if metadata is None else self._has_metadata().room(metadata, n)
        return array[: self._patient(lambda memory: staged.dequeue(memory.at, *where, n, exact, sync)[0], n, timeout_s)]

    def acquire(
        self, stage: int, n: int, *, exact: bool = False, in_place: bool = False, timeout_s: float | None = 0
    ) -> Work:
        """Take up to ``n`` items (all or nothing if ``exact``) into the work of a stage, to be released at the end of ``with``.

        An empty :class:`Work`, of ``count`` 0, when there are none.
        """
        stage, exact = whole(stage, "stage"), bool(exact)
        if not 0 <= stage < self.stages:
            raise GraphError(f"this ring has the stages 0 to {self.stages - 1}, got {stage}; name one of these")
        n = self._at_most(n, exact, timeout_s)
        work = Work(self, stage)
        if not in_place:
            work.items = self._item.empty(n)
            work.metadata = None if self._metadata is None else self._metadata.empty(n)
        try:
            count = self._patient(lambda memory: work._acquire(memory, n, exact), n, timeout_s)
            work._show(count, self._item, self._metadata)
        except BaseException:
            work._give_back()  # now, for the exception's traceback refers to it
            raise
        return work

    def release(self, stage: int, token: int, count: int, items: Any = None, metadata: Any = None) -> int:
        """Give back what a stage acquired, all of it, with ``items`` and ``metadata`` written back where they are given.

        Returns ``count``, or 0 when it was not acquired like that: then nothing is done but counted, in ``refused``.
        """
        stage, token, count = whole(stage, "stage"), whole(token, "token"), whole(count, "count")
        given = self._values(count, items, metadata)
        where = (0 if array is None else array.ctypes.data for array in given)
        is_possible = 0 <= stage < self.stages and 0 <= token < 1 << 32 and 0 < count <= self.size
        # What does not even fit a kernel's integers is refused by it as a release of nothing.
        run = (stage, token, count) if is_possible else (0, 0, 0)
        memory = self._open()
        return int(staged.release(memory.at, *run, *where))

    def _values(self, count: int, items: Any, metadata: Any) -> tuple[Array | None, Array | None]:
        """What is to be written back at a release."""
        given = (
            None if items is None else self._item.given(items),
            None if metadata is None else self._has_metadata().given(metadata),
        )
        for array in given:
            if array is not None and len(array) != count:
                raise GraphError(f"{count} items are released with values for {len(array)}; give one for each")
        return given

    def _patient(self, call: Callable[[_Memory], Any], n: int, timeout_s: float | None) -> int:
        """What ``call`` returns: at once when it did something or nothing was wanted, else as soon as it does or time is up."""
        deadline = Deadline(timeout_s)
        while True:
            memory = self._open()
            done = int(call(memory))
            if done or n == 0 or deadline.over():
                return done
            time.sleep(NAP)

    def _can_fit(self, n: int, exact: bool, timeout_s: float | None) -> None:
        Deadline(timeout_s)  # refuses what is none
        if exact and n > self.size and timeout_s != 0:
            raise GraphError(f"{n} items at once never fit a ring of {self.size}; wait for fewer or make it larger")

    def _at_most(self, n: int, exact: bool, timeout_s: float | None) -> int:
        """What to ask a kernel for when ``n`` are wanted, so that there is need for no more room than the ring's."""
        n = whole(n, "n")
        if n < 0:
            raise GraphError(f"the number of items must not be negative, got {n}; 0 is none")
        self._can_fit(n, exact, timeout_s)
        return n if n <= self.size else 0 if exact else self.size

    def _has_metadata(self) -> _Column:
        if self._metadata is None:
            raise GraphError("this ring has no metadata; make it with metadata=, or leave them out here")
        return self._metadata

    def __len__(self) -> int:
        memory = self._open()
        return int(staged.used(memory.at))

    @property
    def free(self) -> int:
        """How many more items fit."""
        return self.size - len(self)

    @property
    def refused(self) -> int:
        """Releases whose token, count or stage did not fit, so far."""
        memory = self._open()
        return int(Staged.at(memory.at).refused)

    @property
    def stage_lengths(self) -> list[StageLength]:
        """What is before and in each stage; exact only while nobody works."""
        memory = self._open()
        tails, heads = (self._counters(memory, name) for name in ("tail", "position"))
        waiting, working = tails[:-1] - heads[1:], heads[1:] - tails[1:]
        return [StageLength(*pair) for pair in zip(waiting.tolist(), working.tolist())]

    @property
    def ready(self) -> int:
        """How many items have passed all stages and wait to be dequeued."""
        memory = self._open()
        taken: int = Staged.at(memory.at).cons.tail
        return int(self._counters(memory, "tail")[-1]) - taken & 0xFFFFFFFF

    def _counters(self, memory: _Memory, name: str) -> NDArray[np.uint32]:
        """A counter of the producers and of each stage."""
        ends = End.array_at(memory.at + staged.STAGES - staged.STAGE, self.stages + 1)
        counters: NDArray[np.uint32] = ends[name].copy()
        return counters

    def dump(self) -> str:
        """What the ring is and where all of its counters are, as text of a line for each end and stage."""
        memory = self._open()
        record = Staged.at(memory.at)
        metadata = f", {self._metadata.size} of metadata" if self._metadata else ""
        lines = [
            f"staged ring at {memory.at:#x}: {len(self)} of {self.size} items of {self._item.size} bytes{metadata}, "
            f"{self.stages} stages, {self.refused} releases refused",
            f"  put in up to {record.prod.tail} ({self.prod})",
        ]
        tails, heads = self._counters(memory, "tail"), self._counters(memory, "position")
        for k, length in enumerate(self.stage_lengths):
            lines.append(
                f"  stage {k}: acquired up to {heads[k + 1]}, finished up to {tails[k + 1]}, {length.waiting} wait"
            )
        return "\n".join([*lines, f"  taken out up to {record.cons.tail} ({self.cons})"])

    def reset(self) -> None:
        """Make it empty, as new.  Nobody may be working on it, and what is acquired can no longer be released."""
        memory = self._open()
        self._memory = dataclasses.replace(memory)
        ctypes.memset(memory.at, 0, Staged.at(memory.at).items)
        staged.init(memory.at, self.size, self.stages, *self._sizes)

    def close(self) -> None:
        """Have every later call, and every one that waits, find the ring closed.  Closing twice is harmless.

        Its own memory goes when no thread is in a call any more, with the last array over the slots.
        """
        self._memory = None

    def __enter__(self) -> "StagedRing":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a staged ring cannot be copied or pickled, for its memory is this process's; hand the ring itself to"
            " threads, and for processes use a plain shared ring"
        )

    def __repr__(self) -> str:
        memory = self._memory
        if memory is None or not self._has(memory):
            return "<StagedRing, closed>"
        return f"<StagedRing {staged.used(memory.at)} of {self.size} items, {self.stages} stages>"
