"""The distributor as Python programs use it: what goes to workers, what came back, and what became of the rest."""

import os
import time
import weakref
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wirespeed.core import segment
from wirespeed.core.calls import GONE, NO_ARRAY
from wirespeed.core.distributor import calls, statistics
from wirespeed.core.distributor.calls import Binding
from wirespeed.core.distributor.memory import KIND, LAYOUTS, DeskMemory, DistributorMemory, Shape, desks_size
from wirespeed.core.distributor.process import NO_PLACE, NO_ROOM, NO_WORKER, RETURNS_FULL
from wirespeed.core.distributor.returns import Returns
from wirespeed.core.distributor.statistics import DistributorStatistics
from wirespeed.core.distributor.worker import DistributorWorker, item_dtype
from wirespeed.core.items import converted, fitting, shape_of
from wirespeed.core.liveness import alive, owner_word
from wirespeed.core.number import Deadline, flag, whole
from wirespeed.errors import GraphError
from wirespeed.jit import arrays

Items = Sequence[Any] | NDArray[Any]
TAGS = np.dtype(np.uint32)
SLICE_NS = 5_000_000  # how long one wait lasts before Python has a look at signals and at who lives
SPIN_NS = 20_000
NOW = Deadline(0)
SOME = 4096  # returned items that are taken at a time


class Distributor:
    """Spreads items over up to ``workers`` workers so that those of one tag are on one worker at a time, and in order.

    Items are of ``dtype``, any of 8 bytes; a tag is a number of 32 bits.  ``mode`` is ``"burst"``, lines of up to
    ``burst`` items of which ``lines`` are under way to each worker at once, or ``"single"``, one item at a time.
    ``slots`` lines are kept for a worker in all, ``returns`` items that came back wait to be taken (0: they are only
    counted), and ``park`` items may wait for workers that are stalled: those that gave nothing back for ``stall_s``
    while others could go on.

    A worker whose thread has ended is noticed by any call, ``notice_s`` seconds later at most, and what it had goes to
    others; the burst that it had begun too, unless ``redo`` is false: then that is counted lost.

    ``shared=True`` lets workers of other processes attach by :attr:`fd`, a ``name`` also by that name.  Its calls may
    come from any thread of its process, one at a time.  Leaving its ``with`` flushes, then ends the workers' loops;
    what came back by then can still be taken.
    """

    def __init__(
        self,
        workers: int,
        *,
        mode: Literal["burst", "single"] = "burst",
        burst: int | None = None,
        lines: int | None = None,
        slots: int | None = None,
        returns: int = 8192,
        park: int = 1024,
        dtype: Any = np.uint64,
        redo: bool = True,
        notice_s: float = 0.1,
        stall_s: float = 0.01,
        shared: bool = False,
        name: str = "",
    ) -> None:
        if str(mode) not in ("burst", "single"):
            raise GraphError(f"mode must be 'burst' or 'single', got {mode!r}")
        if mode == "single":
            burst, lines = 1 if burst is None else burst, 1 if lines is None else lines
        redo, shared = flag(redo, "redo"), flag(shared, "shared")
        if type(name) is not str or name:
            segment.check_name(name)
        self._notice_s, self._stall_s = _seconds("notice_s", notice_s), _seconds("stall_s", stall_s)
        shape = Shape(workers, burst=burst, lines=lines, slots=slots, returns=returns, park=park)
        self.dtype = item_dtype(dtype)
        arrays.check()
        self._segment: segment.Segment | None = None
        if shared or name:
            self._segment = _share(shape, name)
        try:
            desks = None
            if self._segment:
                desks = DeskMemory(self._segment.address + segment.HEADER_SIZE, self._segment.mapping)
            self._memory = DistributorMemory(shape, desks, redo=redo)
            self._memory.desks.record.owner = owner_word(os.getpid())
            if self._segment:
                segment.publish(self._segment, name)
        except BaseException:
            if self._segment:
                self._segment.close()
            raise
        self.workers = shape.workers
        self._pid = os.getpid()
        self._at = self._memory.binding
        binding = Binding.at(self._at)
        binding.array_type, binding.items, binding.tags = id(np.ndarray), id(self.dtype), id(TAGS)
        binding.distributor = self._memory.address
        self._closed = False
        self._over = False  # closed by the end of its ``with``
        self._returns = Returns(self._memory, self.dtype)
        self._left: list[NDArray[Any]] = []  # what had neither come back nor been counted when it was closed
        self._final: DistributorStatistics | None = None  # the numbers then
        self._checked = time.monotonic()  # when it was last looked who lives,
        self._beats = self._memory.desks.beats.copy()  # and how often each worker had looked for a line then
        self._progress: dict[int, tuple[int, float]] = {}  # lines of a worker that came back, and when that was seen
        self._ending = weakref.finalize(self, _end, self._pid, self._memory, self._segment)

    # Giving and taking.

    def process(self, items: Items, tags: Items, timeout_s: float | None = 0.0) -> int:
        """Give items to workers, item k by ``tags[k]``; how many were taken, from the first on.

        Those beyond stay the caller's, and :attr:`reason` says why.  With ``timeout_s`` it waits for room, None for
        ever; but not where only :meth:`returned` makes some.  Quickest with contiguous arrays of the distributor's dtype
        and of uint32.  Without items, all workers are looked at: what came back is taken, and what waits for company is
        sent.  When a signal's handler ends the call by an exception, ``statistics.processed`` tells how many were taken.
        """
        deadline = Deadline(timeout_s) if timeout_s != 0.0 else NOW
        count: int = calls.process_arrays.function(self._at, items, tags, 0)
        if count == NO_ARRAY and type(items) is type(tags) is tuple and not items and not tags:
            count = calls.look_at_all.function(self._at)
            self._check_open(count)
        elif count < 0:
            items, tags = self._given(items, tags, count)
            count = self._give(items, tags, 0)
        self._look_who_lives()
        return count if count == len(items) else self._process_slowly(items, tags, count, deadline)

    def _process_slowly(self, items: Any, tags: Any, taken: int, deadline: Deadline) -> int:
        while True:
            if self._note_stalled():
                taken += self._give(items, tags, taken)
            # Room for what came back is made by the caller alone.
            if taken == len(items) or self._memory.record.reason == RETURNS_FULL or deadline.over():
                return taken
            self._wait(deadline)
            taken += self._give(items, tags, taken)

    def _give(self, items: Any, tags: Any, start: int) -> int:
        count: int = calls.process_arrays.function(self._at, items, tags, start)
        self._check_open(count)  # another thread may have closed it
        return count

    def _given(self, items: Any, tags: Any, code: int) -> tuple[NDArray[Any], NDArray[Any]]:
        self._check_open(code)
        given = converted(items, self.dtype)
        try:
            tagged = converted(tags, TAGS)
        except GraphError as error:
            raise GraphError(f"tags are numbers of 32 bits: {error}") from None
        if len(given) != len(tagged):
            raise GraphError(f"every item has its tag, got {len(given)} items and {len(tagged)} tags")
        return given, tagged

    def returned(self, n: int | None = None) -> NDArray[Any]:
        """Up to ``n`` items (all) that came back; those of one tag in the order in which they were given."""
        if not self._over:
            self._check_open()
        most = -1 if n is None else whole(n, "n", 0)
        while not self._closed and (most < 0 or len(self._returns) < most):
            if not self._keep(SOME if most < 0 else most):
                break
        return self._returns.hand_out(most)

    def _keep(self, n: int) -> int:
        """Take up to ``n`` items that came back out of the returns, to hand them out later; how many."""
        if not self._returns.there:
            self.process((), ())
        return self._returns.take(n)

    def returned_into(self, out: NDArray[Any]) -> int:
        """Fill a contiguous array of the distributor's dtype with items that came back; how many."""
        kept = len(self._returns)
        count: int = calls.returned_into.function(self._at, out[:0] if kept else out)
        if count == NO_ARRAY:
            out = fitting(out, self.dtype)
            count = calls.returned_into.function(self._at, out[:0] if kept else out)
            if count == NO_ARRAY:
                raise GraphError(
                    f"items are taken into a writable contiguous array of {self.dtype} of one dimension, got "
                    f"{shape_of(out)}"
                )
        self._check_open(count)
        if kept:
            part = self.returned(len(out))
            out[: len(part)] = part
            return len(part)
        return count

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until everything that was taken has come back, or been counted; how many items are still out.

        That is 0, unless the time is over.  It does not depend on who takes what came back, which waits for
        :meth:`returned`, however much it is.
        """
        deadline = Deadline(timeout_s)
        while True:
            self.process((), ())
            out = self.outstanding
            if not out or deadline.over():
                return out
            if self._returns.there:
                self._keep(SOME)
            self._note_stalled()
            self._wait(deadline)

    def clear(self) -> int:
        """Forget what came back and was not taken; how many items that were."""
        self._check_open()
        return len(self._returns.hand_out()) + int(calls.forget.function(self._at))

    # Workers.

    def worker(self, number: int | None = None, *, name: str = "") -> DistributorWorker:
        """A worker of this process, for one thread: that of ``number``, or the first that is free."""
        self.check()  # the place of a dead one is free
        return DistributorWorker(self._memory.desks, self._memory, self.dtype, number, name)

    def fence(self, number: int) -> int:
        """Expect nothing more of a worker that hangs: what was sent to it is lost; how many items that are.

        What it was not sent yet goes to others.  It may wake up at any time: it is told by its next call, and until
        then, or until it is dead, nobody else has its place.
        """
        self._check_open()
        self._number(number)
        lost: int = calls.fence.function(self._at, number)
        if lost == -2:
            raise GraphError(f"worker {number} has given back items for which there is no room; take returned() first")
        if lost < 0:
            raise GraphError(f"worker {number} is not active, so there is nothing to be fenced")
        self.process((), ())
        return lost

    def check(self) -> list[int]:
        """Look who lives, and take over from those that do not; the numbers of the workers that were found dead."""
        self._check_open()
        return self._take_over(np.flatnonzero(self._memory.desks.owners))

    def _look_who_lives(self) -> None:
        """:meth:`check`, when it is time to, of those that have not looked for a line since the last time."""
        now = time.monotonic()
        if now - self._checked < self._notice_s / 2:
            return
        self._checked = now
        desks, before = self._memory.desks, self._beats
        self._beats = desks.beats.copy()
        self._take_over(np.flatnonzero((desks.owners != 0) & (self._beats == before)))

    def _take_over(self, numbers: Sequence[int] | NDArray[np.intp]) -> list[int]:
        """Take over from those of these workers that are dead; which."""
        owners = self._memory.desks.owners
        dead = []
        for number in map(int, numbers):
            owner = int(owners[number])
            if owner and not alive(owner) and calls.bury.function(self._at, number, owner) == 1:
                dead.append(number)
        if dead:
            calls.look_at_all.function(self._at)
        return dead

    def _number(self, number: Any) -> None:
        if not 0 <= whole(number, "a worker's number", 0) < self.workers:
            raise GraphError(f"the workers are 0 to {self.workers - 1}, got {number}")

    def _note_stalled(self) -> bool:
        """Have a worker that keeps us waiting stalled, if it has done nothing for long; whether one is."""
        record = self._memory.record
        number = int(record.blocked)
        if record.reason != NO_ROOM or number < 0:
            return False
        backlog, now = self._memory.backlog(number), time.monotonic()
        done, since = self._progress.get(number, (-1, now))
        if backlog.window.done != done:
            self._progress[number] = int(backlog.window.done), now
            return False
        if now - since < self._stall_s or backlog.stalled:
            return False
        calls.stall.function(self._at, number)
        return True

    def _wait(self, deadline: Deadline) -> None:
        """Wait until there is something to look at, for a moment; and look who lives."""
        keeper = self._memory  # another thread may close this meanwhile
        self._check_open(calls.wait.function(self._at, deadline.left_ns(SLICE_NS), SPIN_NS))
        del keeper
        self._look_who_lives()

    # States.

    @property
    def reason(self) -> str:
        """Why the last :meth:`process` took no more, or what is out does not come back; "" when all is well."""
        self._check_open()
        record = self._memory.record
        number = int(record.blocked)
        who = f"worker {number}" if number >= 0 else "every worker"
        if record.outstanding and not record.n_active:
            return "no worker is active"
        return {
            NO_WORKER: "no worker is active",
            NO_ROOM: f"{who} has all that can be held for it" + self._hanging(number),
            RETURNS_FULL: f"there is no room for what came back ({self._memory.shape.returns} items); take returned()",
            NO_PLACE: "as many tags are out as the table of tags can hold in one place",
        }.get(int(record.reason), "")

    def _hanging(self, number: int) -> str:
        if number < 0 or not self._memory.backlog(number).stalled:
            return ""
        since = time.monotonic() - self._progress.get(number, (0, time.monotonic()))[1]
        return f", and has given nothing back for {since:.1f} s; fence({number}) gives it up"

    @property
    def outstanding(self) -> int:
        """Items that were taken, and have neither come back nor been counted."""
        self._check_open()
        return int(self._memory.record.outstanding)

    @property
    def active(self) -> tuple[int, ...]:
        """The numbers of the workers that are given items now."""
        self._check_open()
        return tuple(number for number in range(self.workers) if self._memory.backlog(number).active)

    @property
    def statistics(self) -> DistributorStatistics:
        """Numbers of the whole and of every worker; of a closed distributor, those at its end."""
        if self._final:
            return self._final
        self._check_open()
        return statistics.read(self._memory, len(self._returns))

    @property
    def fd(self) -> int:
        """The descriptor by which other processes can attach, -1 when it is not shared."""
        return self._segment.fd if self._segment else -1

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> NDArray[Any]:
        """End the workers' loops at once; the items that are neither back nor counted, and what came back and was not taken.

        To have everything done first, :meth:`flush`.  Closing twice is harmless; behind a ``with`` that an exception
        ended, it hands out what was left then.
        """
        if os.getpid() != self._pid:
            return np.empty(0, self.dtype)
        if not self._closed:
            self._close()
        left, self._left = self._left, []
        return np.concatenate([self._returns.hand_out(), *left], dtype=self.dtype)

    def _close(self) -> None:
        """End it; what came back stays, to be handed out.  What a signal's handler interrupts can be done again."""
        if self._final is None:
            while self._keep(SOME):
                pass
            self._left = [self._memory.held().view(self.dtype)]
            self._final = statistics.read(self._memory, len(self._returns))
        _end(self._pid, self._memory, self._segment)
        self._ending.detach()
        self._closed = True

    def __enter__(self) -> "Distributor":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        try:
            if kind is None:
                self.flush()
        finally:
            self._close()
            self._over = True

    def __repr__(self) -> str:
        return f"<Distributor of {self.workers} workers{' (closed)' * self._closed}>"

    def __reduce__(self) -> Any:
        raise TypeError("a distributor is not copied or pickled; have workers of other processes attach to it")

    def _check_open(self, code: int = 0) -> None:
        if os.getpid() != self._pid:
            raise GraphError(
                f"this distributor belongs to process {self._pid}, not to its fork; attach workers to it here"
            )
        if self._closed or code == GONE:  # the program's end closes it too
            raise GraphError("this distributor is closed; make another, or keep it open for as long as it is used")


def _end(pid: int, memory: DistributorMemory, shared: segment.Segment | None) -> None:
    """Have the workers' loops end, in the process that made the distributor."""
    if os.getpid() != pid:
        return
    calls.close.function(memory.binding)
    Binding.at(memory.binding).distributor = 0
    memory.desks.record.owner = 0
    if shared:
        shared.close()


def _share(shape: Shape, name: str) -> segment.Segment:
    return segment.create(KIND, desks_size(shape.workers, shape.burst, shape.lines), LAYOUTS, name=name)


def _seconds(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise GraphError(f"{what} must be a number of seconds, at least 0, got {value!r}")
    return float(value)
