"""The ring as Python programs use it: between threads, between processes, and with our kernels at the other end.

Theory of operation
-------------------
Each call is one entry into compiled code, which holds the GIL and is over in a fraction of a microsecond.  What that
entry cannot do, because of what it was given or because it must wait, it says in a code: then the slow way is taken,
which converts (:mod:`wirespeed.core.items`) and waits (:mod:`wirespeed.core.waiting`).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wirespeed.core import calls, recovery
from wirespeed.core.calls import GONE, NO_ARRAY, SHUT
from wirespeed.core.items import converted, fitting, item_type
from wirespeed.core.look import Look, Room
from wirespeed.core.member import CONS, PROD, UNABLE
from wirespeed.core.membership import Peer
from wirespeed.core.number import Deadline, whole
from wirespeed.core.ring import HTS, MT, ST, SYNCS
from wirespeed.core.ring_memory import RingMemory
from wirespeed.core.waiting import Waiting
from wirespeed.errors import GraphError, PeerError

Sync = Literal["st", "mt", "rts", "hts"]
Items = Sequence[Any] | NDArray[Any]
BURST = 32
_MISSING = object()


class Ring:
    """A ring of ``size`` slots, a power of two, of which ``size - 1`` can be used; all of any number when ``exact``.

    ``dtype`` is that of the items: any of NumPy's whose size is a multiple of 4 bytes, or ``object`` for Python objects
    of one process.  ``prod`` and ``cons`` say how the threads of each end keep apart: ``"st"`` when only one works
    there, ``"mt"``, ``"rts"`` or ``"hts"`` otherwise (:mod:`wirespeed.core.ring`).

    ``shared=True`` puts it into memory that another process can attach to by :attr:`fd`, a ``name`` also by that name
    (:meth:`attach`); up to ``members`` processes.  ``wait="spin"`` makes waits spin instead of sleep.

    Bulk calls take all or nothing, burst calls what they can; both return how many, or an array of what they got.  With
    ``timeout_s`` they wait for room or items, None for ever; without, they never wait.  Close it, or leave its
    ``with``, when no thread uses it any more.
    """

    def __init__(
        self,
        size: int,
        *,
        dtype: DTypeLike = np.uint64,
        prod: Sync = "mt",
        cons: Sync = "mt",
        exact: bool = False,
        shared: bool = False,
        name: str = "",
        members: int = 16,
        wait: Literal["sleep", "spin"] = "sleep",
        member_name: str = "",
    ) -> None:
        syncs = (_sync("prod", prod), _sync("cons", cons))
        self._open(
            RingMemory.create(size, item_type(dtype), syncs, exact, shared or bool(name), name, members, member_name),
            wait,
        )

    @classmethod
    def attach(
        cls, name: str = "", *, fd: int = -1, wait: Literal["sleep", "spin"] = "sleep", member_name: str = ""
    ) -> "Ring":
        """The ring that another process made under ``name``, or has at descriptor ``fd`` (which stays yours).

        ``member_name`` is what others call this process when it has died.  Raises :class:`PortError` when there is no
        such ring, :class:`PeerError` when it is another release's, or none.
        """
        if bool(name) == (fd >= 0):
            raise GraphError(f"attach needs either a name or a descriptor, got name={name!r}, fd={fd}")
        ring = cls.__new__(cls)
        ring._open(RingMemory.attach(name, fd, member_name), wait)
        return ring

    def _open(self, memory: RingMemory, wait: str) -> None:
        if wait not in ("sleep", "spin"):
            memory.close()
            raise GraphError(f"wait must be 'sleep' or 'spin', got {wait!r}")
        self.dtype = memory.dtype
        self._memory = memory
        self._at = memory.binding
        self._waiting = Waiting(memory, spins=wait == "spin")
        self._objects = memory.dtype.hasobject
        self._put = calls.enqueue_objects.function if self._objects else calls.enqueue_array.function
        self._take = calls.dequeue_array.function
        self._put_one, self._take_one = _single_calls(memory)
        self._take_list: Any = calls.dequeue_objects.function if self._objects else None
        self._most = int(memory.capacity)
        self._closing = self._closed = False
        self._interrupted: list[NDArray[Any]] = []  # what calls had taken out when a signal ended them

    # Putting in.

    def enqueue(self, item: Any, timeout_s: float | None = 0.0) -> bool:
        """Put one item in; whether there was room."""
        code = self._put_one(self._at, item)
        if code == 1:
            return True
        if GONE < code < UNABLE:  # it is in its slot, and must only be published
            return self._waiting.settle(code, PROD) == 1
        return self._enqueue_slowly([item], True, timeout_s, code) == 1

    def enqueue_bulk(self, items: Items, timeout_s: float | None = 0.0) -> int:
        """Put all items in, or none; how many."""
        count: int = self._put(self._at, items, True)
        return count if count > 0 else self._enqueue_slowly(items, True, timeout_s, count)

    def enqueue_burst(self, items: Items, timeout_s: float | None = 0.0) -> int:
        """Put in as many of the items as there is room for; how many.

        Quickest with a contiguous array of the ring's dtype; anything else is made one, and refused when values would
        change by that.
        """
        count: int = self._put(self._at, items, False)
        return count if count > 0 else self._enqueue_slowly(items, False, timeout_s, count)

    def enqueue_bulk_free(self, items: Items, timeout_s: float | None = 0.0) -> tuple[int, int]:
        """:meth:`enqueue_bulk`, and how many slots are free after it."""
        return self.enqueue_bulk(items, timeout_s), self.free_count

    def enqueue_burst_free(self, items: Items, timeout_s: float | None = 0.0) -> tuple[int, int]:
        """:meth:`enqueue_burst`, and how many slots are free after it."""
        return self.enqueue_burst(items, timeout_s), self.free_count

    # Taking out.

    def dequeue(self, default: Any = None, timeout_s: float | None = 0.0) -> Any:
        """Take one item out; ``default`` when there is none."""
        item = self._take_one(self._at, _MISSING)
        if item is not _MISSING:
            return item
        if timeout_s == 0 and self._take_one is not _none_taken and self._memory.open and self._memory.used() == 0:
            return default
        got = self._take_some(1, True, timeout_s)
        if not len(got):
            return default
        # What Python has a type of its own for is that; times keep NumPy's, which knows their unit.
        return got[0] if self._objects or self.dtype.kind in "mM" else got.item(0)

    def dequeue_bulk(self, n: int, timeout_s: float | None = 0.0) -> Any:
        """``n`` items, or none: an array of the ring's dtype, for objects a list."""
        return self._take_some(n, True, timeout_s)

    def dequeue_burst(self, n: int = BURST, timeout_s: float | None = 0.0) -> Any:
        """Up to ``n`` items: an array of the ring's dtype, for objects a list; empty when there are none."""
        return self._take_some(n, False, timeout_s)

    def dequeue_bulk_used(self, n: int, timeout_s: float | None = 0.0) -> tuple[Any, int]:
        """:meth:`dequeue_bulk`, and how many items are left after it."""
        return self._take_some(n, True, timeout_s), len(self)

    def dequeue_burst_used(self, n: int = BURST, timeout_s: float | None = 0.0) -> tuple[Any, int]:
        """:meth:`dequeue_burst`, and how many items are left after it."""
        return self._take_some(n, False, timeout_s), len(self)

    def dequeue_bulk_into(self, out: NDArray[Any], timeout_s: float | None = 0.0) -> int:
        """Fill a contiguous array of the ring's dtype, or leave it as it is; how many items."""
        return self._take_into(out, True, timeout_s)

    def dequeue_burst_into(self, out: NDArray[Any], timeout_s: float | None = 0.0) -> int:
        """Fill a contiguous array of the ring's dtype from its beginning; how many items."""
        count: int = self._take(self._at, out, False)
        return count if count > 0 else self._take_into(out, False, timeout_s, count)

    def bursts(self, n: int = BURST) -> Iterator[Any]:
        """Bursts of up to ``n`` items, for ever, or until the ring is shut down and empty.

        An array is valid until the next turn, which uses it again.
        """
        if self._objects:
            n = min(whole(n, "n", 1), self._most)
            while got := self._take_list(self._at, n, False) or self._objects_of(n, False, None):
                yield got
            return
        buffer = np.empty(whole(n, "n", 1), self.dtype)
        take, at = self._take, self._at
        while True:
            count = take(at, buffer, False)
            if count <= 0:
                count = self._take_into(buffer, False, None, count)
                if count == 0:
                    return
            yield buffer if count == n else buffer[:count]

    def __iter__(self) -> Iterator[Any]:
        return self.bursts()

    # Looking first.

    def peek(self, n: int = BURST, *, exact: bool = False, timeout_s: float | None = 0.0) -> Look:
        """Up to ``n`` items (all of them or none when ``exact``) that stay in the ring until the look takes them.

        For ``with``; see :mod:`wirespeed.core.look`.  Only where ``cons`` is ``"st"`` or ``"hts"``, for others could
        not be kept from what is behind them.
        """
        return Look(self._memory, lambda: self._hold(CONS, n, exact, timeout_s))

    def reserve(self, n: int = BURST, *, exact: bool = False, timeout_s: float | None = 0.0) -> Room:
        """Room for up to ``n`` items, to be written in place and shown by the room; ``prod`` is ``"st"`` or ``"hts"``."""
        return Room(self._memory, lambda: self._hold(PROD, n, exact, timeout_s))

    def _hold(self, side: int, n: int, exact: bool, timeout_s: float | None) -> int:
        self._waiting.check_open()
        n = whole(n, "n", 0)
        record = self._memory.record
        name, sync = ("prod", record.prod_sync) if side == PROD else ("cons", record.cons_sync)
        if sync not in (ST, HTS):
            has = next(word for word, number in SYNCS.items() if number == sync)
            raise GraphError(f"holding what is at an end needs {name}='st' or 'hts', this ring has {has!r}; make it so")
        if self._objects:
            raise GraphError("Python objects are not looked at in place; take them out, or keep numbers in the ring")
        deadline = Deadline(timeout_s)
        while n:
            count: int = calls.hold.function(self._at, side, n, exact)
            if count > 0:
                return count
            if count == 0:
                if not self._waiting.wait(side, n if exact else 1, deadline):
                    return 0
            elif self._waiting.settle(count, side, deadline) < 0:
                return 0
        return 0

    # The slow ways: converting, waiting, and telling what is wrong.

    # A first try has returned ``code``: what it has claimed and not published must be settled before there is another.

    def _enqueue_slowly(self, items: Items, exact: bool, timeout_s: float | None, code: int = UNABLE) -> int:
        if GONE < code < UNABLE:
            return self._waiting.settle(code, PROD)
        deadline = Deadline(timeout_s)
        if code == 0 and len(items) and deadline.over():
            self._waiting.check_open()
            return 0
        known = code != NO_ARRAY and isinstance(items, list if self._objects else np.ndarray)
        given = items if known else self._given(items, exact)
        first = code == 0
        while len(given):
            if not first:
                code = self._put(self._at, given, exact)
            first = False
            if code > 0:
                return code
            if code == 0:
                if not self._waiting.wait(PROD, len(given) if exact else 1, deadline):
                    return 0
            elif (claimed := self._waiting.settle(code, PROD, deadline)) > 0:
                return claimed
            elif claimed < 0:
                return 0
        self._waiting.check_open(SHUT if self._memory.open and self._memory.record.closed else 0)
        return 0

    def _given(self, items: Any, exact: bool) -> Any:
        """The items as an entry takes them; of a burst, no more than can ever go in."""
        try:
            some = items if exact or len(items) <= self._most else items[: self._most]
        except TypeError:  # no length, or no slices
            some = items
        if not self._objects:
            return converted(some, self.dtype)
        try:
            return list(some)
        except TypeError as error:
            raise GraphError(
                f"objects go in as a list or anything like it, got {some!r}; for one there is enqueue()"
            ) from error

    def _take_some(self, n: int, exact: bool, timeout_s: float | None) -> Any:
        if self._objects:
            if type(n) is int and 0 < n <= self._most:
                got = self._take_list(self._at, n, exact)
                if got:
                    return got
            return self._objects_of(whole(n, "n", 0), exact, timeout_s)
        if type(n) is not int or not 0 <= n <= self._most:
            n = whole(n, "n", 0)
            if n > self._most:
                if exact:
                    self._waiting.wait(CONS, n, Deadline(timeout_s))
                n = 0 if exact else self._most
        out = np.empty(n, self.dtype)
        count = self._take(self._at, out, exact)
        if count <= 0:
            count = self._take_into(out, exact, timeout_s, count)
        return out if count == n else out[:count]

    def _take_into(self, out: NDArray[Any], exact: bool, timeout_s: float | None, code: int = UNABLE) -> int:
        if GONE < code < UNABLE:
            return self._end_taking(code, out)
        deadline = Deadline(timeout_s)
        first = code == 0 and type(out) is np.ndarray and len(out) > 0
        while True:
            if self._interrupted and (kept := self._give_kept(out, exact)):
                return kept
            if not first:
                code = self._take(self._at, out, exact)
            first = False
            if code > 0:
                return code
            if code == NO_ARRAY:
                out = fitting(out, self.dtype)
                continue
            if code == 0:
                if len(out) == 0 or not self._waiting.wait(CONS, len(out) if exact else 1, deadline):
                    return 0
            elif code < UNABLE and code > GONE:
                return self._end_taking(code, out)
            elif self._waiting.settle(code, CONS, deadline) < 0:
                return 0

    def _end_taking(self, code: int, out: NDArray[Any]) -> int:
        """Settle a claim whose items are in ``out`` already; an interrupt keeps them for a later call."""
        try:
            return self._waiting.settle(code, CONS)
        except PeerError:
            raise  # given up: nothing was taken
        except BaseException:
            self._interrupted.append(out[: UNABLE - code].copy())
            raise

    def _give_kept(self, out: NDArray[Any], exact: bool) -> int:
        """Hand out what an interrupted call had taken, as far as it suits; how many."""
        kept = self._interrupted.pop(0)
        n = min(len(kept), len(out))
        if exact and n < len(out):
            self._interrupted.insert(0, kept)
            return 0
        out[:n] = kept[:n]
        if n < len(kept):
            self._interrupted.insert(0, kept[n:])
        if not self._interrupted:  # until then its claim stays as it is, so that calls come by here
            calls.finish_claim.function(self._at, CONS, 1)
        return n

    def _objects_of(self, n: int, exact: bool, timeout_s: float | None) -> list[Any]:
        deadline = Deadline(timeout_s)
        while True:
            self._waiting.check_open()
            n = min(n, self._most + 1)  # more is never there; the list is made before it is known how many are
            got: list[Any] = self._take_list(self._at, n, exact)
            if got or n == 0 or not self._waiting.wait(CONS, n if exact else 1, deadline):
                return got

    # What there is to know and to do about it.

    @property
    def capacity(self) -> int:
        """Most items that it holds."""
        return self._most

    @property
    def size(self) -> int:
        """Its slots."""
        return int(self._memory.slots)

    def __len__(self) -> int:
        """Items in it; exact while nobody works on it."""
        return self._memory.used() if self._memory.open else 0

    @property
    def free_count(self) -> int:
        """Slots free; exact while nobody works on it."""
        self._waiting.check_open()
        return self.capacity - len(self)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        self._waiting.check_open()
        return len(self) == 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        self._waiting.check_open()
        return len(self) == self.capacity

    @property
    def address(self) -> int:
        """The ring's address, for kernels of this process (:mod:`wirespeed.core.ring`), while it is open."""
        self._waiting.check_open()
        return self._memory.ring

    @property
    def fd(self) -> int:
        """The descriptor by which another process can attach to a shared ring; -1 when it is private."""
        return self._memory.fd

    @property
    def is_shut_down(self) -> bool:
        """Whether :meth:`shutdown` was called here or elsewhere."""
        self._waiting.check_open()
        return bool(self._memory.record.closed)

    def shutdown(self) -> None:
        """Nothing more is put in: producers get an error, consumers what is left, and then their loops end."""
        self._waiting.check_open()
        self._memory.shutdown()

    def reset(self) -> None:
        """Drop everything and begin anew; only while nobody else uses it."""
        self._waiting.check_open()
        if not self._memory.private:
            busy = [peer for peer in self._memory.members.others() if peer.alive and peer.doing]
            if busy:
                raise GraphError(f"the ring is in use: {', '.join(map(str, busy))}; reset it when nobody works on it")
        if self._objects:
            while self._objects_of(self.capacity, False, 0.0):
                pass
        self._memory.reset()

    def peers(self) -> list[Peer]:
        """The processes that work on a shared ring, this one included; those that are gone say what they were doing."""
        with self._waiting.inside():
            return self._memory.members.peers()

    def recover(self, timeout_s: float = 1.0) -> "recovery.Recovery":
        """Take what dead processes left behind out of the ring's way, so that the others can go on.

        What was published and not consumed stays, in order; what a dead producer had claimed and not published is
        dropped; what a dead consumer had claimed and not been given goes back to the front.  Living members that are in
        the middle of something are waited for, for up to ``timeout_s``; then ``TimeoutError`` is raised, and nothing was
        changed.  In ``"mt"`` and ``"rts"`` what goes back may be older than what another consumer has taken meanwhile.
        """
        Deadline(timeout_s)  # refuses what is none
        with self._waiting.inside():
            return recovery.recover(self._memory, timeout_s)

    def statistics(self) -> "Statistics":
        """What all present members together have done."""
        self._waiting.check_open()
        records = [record for _, record in self._memory.members.records()]
        return Statistics(*(sum(getattr(r, name) for r in records) for name in Statistics.__dataclass_fields__))

    def dump(self) -> str:
        """Everything there is to say about it, as text."""
        with self._waiting.inside():
            return self._memory.dump()

    def close(self) -> None:
        """Leave it; its memory goes when the last one does.

        Other threads that wait in this object's calls get a :class:`GraphError`; it returns when they are out.
        """
        if self._closed or self._closing or self._waiting.forked:
            return
        self._closing = True
        try:
            if self._objects and self._memory.open:
                self._memory.record.closed = 1  # what is let go of may run programs that would put in more
                while self._objects_of(self.capacity, False, 0.0):
                    pass
            self._memory.part()  # from now on every call finds it closed
            self._waiting.leave()
            self._memory.close()
            self._closed = True
        finally:
            self._closing = False  # one that was interrupted can be done again

    def __del__(
        self, ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:  # at the end there is no ``sys`` any more
        # Objects that are still in it are let go of; memory and name go by themselves.
        if not ending() and hasattr(self, "_closing") and self._objects:
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a ring is not copied or pickled; hand its name or descriptor on, and attach() there")

    def __enter__(self) -> "Ring":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._memory.open:
            return "<Ring, closed>"
        return f"<Ring {len(self)} of {self.capacity} items of {self.dtype}>"


@dataclass(frozen=True)
class Statistics:
    """Items and calls of a ring's members."""

    enqueued: int  # items
    enqueues: int  # calls that put any in
    refused: int  # and that found no room
    dequeued: int
    dequeues: int
    empty: int  # calls that found too few


def _sync(side: str, name: Any) -> int:
    if not isinstance(name, str) or name not in SYNCS:
        raise GraphError(f"{side} must be one of {', '.join(map(repr, SYNCS))}, got {name!r}")
    return SYNCS[name]


def _single_calls(memory: RingMemory) -> tuple[Any, Any]:
    """The entries for one item at a time; what they cannot do goes by way of an array."""
    if memory.dtype.hasobject:
        return calls.enqueue_object.function, calls.dequeue_object.function
    if memory.dtype not in (np.uint64, np.int64):
        return _none_put, _none_taken
    take = calls.dequeue_signed if memory.dtype == np.int64 else calls.dequeue_value
    # In MT what was taken may have to wait for its turn to be published, which a call that gives an item cannot tell.
    direct = memory.private or memory.record.cons_sync != MT
    return calls.enqueue_value.function, take.function if direct else _none_taken


def _none_put(_: int, item: Any) -> int:
    """The place of an entry that there is none of: the item must become an array,"""
    return NO_ARRAY


def _none_taken(_: int, default: Any) -> Any:
    """or taken out."""
    return default
