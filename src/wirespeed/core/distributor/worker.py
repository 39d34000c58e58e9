"""A worker as Python programs use it: bursts of items come, and what is returned of them goes back.

``for burst in worker`` is all that most need.  The calls that the field knows are there too: ``request``, ``poll``,
``get``, ``give_back``.
"""

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.core import segment
from wirespeed.core.calls import GONE
from wirespeed.core.distributor import calls
from wirespeed.core.distributor.desk import (
    CLOSED,
    HOLDING,
    IS_CLOSED,
    MOST_BURST,
    NOT_JOINED,
    NOT_YET,
    NOTHING,
    TOO_MANY,
    WAS_FENCED,
    Cursor,
    Desk,
    own,
)
from wirespeed.core.distributor.memory import KIND, LAYOUTS, PAGE, DeskMemory
from wirespeed.core.items import converted
from wirespeed.core.liveness import alive, owner_word
from wirespeed.core.mapping import Mapping, array_over
from wirespeed.core.number import Deadline, whole
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.libc import thread_id

SLICE_NS = 20_000_000  # how long one wait lasts before Python has a look at signals and at the distributor
SPIN_NS = 20_000  # how long it spins before it sleeps
CHECK_S = 0.05  # how often it is looked whether the distributor lives


class DistributorWorker:
    """A worker of a distributor: made by :meth:`Distributor.worker`, or, in another process, by :meth:`attach`.

    A burst is an array of the items' dtype that is valid until the next call, which uses it again; it may be written.
    On the next turn of the loop, or by ``request(burst)``, it is given back, and comes out of ``Distributor.returned``.
    Whoever leaves without having given back, by an exception or by dying, has not done it: another worker gets it.

    One thread at a time uses it, and is taken for the worker: when that thread has ended, the worker has.  Leaving its
    ``with``, or :meth:`close`, leaves the distributor; a program that forgets to does so at its end.

    A call that an exception of a signal's handler ends (Ctrl-C) loses nothing: a burst that it had taken is handed out
    by the next.
    """

    def __init__(self, desks: DeskMemory, keeper: Any, dtype: np.dtype[Any], number: int | None, name: str) -> None:
        if not isinstance(name, str):
            raise GraphError(f"a worker's name must be a text, got {name!r}")
        self._desks, self._keeper, self.dtype = desks, keeper, dtype
        shown = list(name.encode(errors="replace")[:32].ljust(32, b"\0"))
        self._page = Mapping(PAGE, own=True)
        self._at, self._items = self._page.address, self._page.address + Cursor.size
        room = array_over(self._page.memory, self._items, MOST_BURST, dtype)
        self._bursts = [room[:n] for n in range(MOST_BURST + 1)]
        self._cursor = Cursor.at(self._at)
        self._seen = -1  # the cursor's next line when a burst was last handed out
        self._checked = 0.0  # when it was last looked whether the distributor lives
        self._pid, self._thread = os.getpid(), thread_id()
        owner = owner_word()
        self.number = self._claim(number, owner)
        self._desk = desks.desk(self.number)
        Desk.at(self._desk).name[:] = shown
        desks.fill_cursor(self._at, self.number)
        self._cursor.owner = owner
        self._ending = weakref.finalize(self, _leave, self._pid, self._at, (self._page, keeper))

    @classmethod
    def attach(
        cls, name: str = "", *, fd: int = -1, number: int | None = None, worker_name: str = "",
        dtype: Any = np.uint64,
    ) -> "DistributorWorker":  # fmt: skip
        """A worker of a distributor that another process made under ``name``, or has at descriptor ``fd``.

        ``dtype`` is how its items are seen, of 8 bytes.  Raises :class:`PortError` when there is no such distributor,
        :class:`PeerError` when it is another release's, or none.
        """
        if bool(name) == (whole(fd, "fd") >= 0):
            raise GraphError(f"attach needs either a name or a descriptor, got name={name!r}, fd={fd}")
        made = segment.attach(KIND, "distributor", LAYOUTS, name=name, fd=fd)
        try:
            desks = DeskMemory(made.address + segment.HEADER_SIZE, made.mapping)
            desks.check(made.size - segment.HEADER_SIZE)
            return cls(desks, desks, item_dtype(dtype), number, worker_name)
        finally:
            made.close()  # the memory stays mapped for as long as the worker has it

    def _claim(self, number: int | None, owner: int) -> int:
        """A desk that is nobody's: that of ``number``, or the first."""
        count = self._desks.workers
        wanted = range(count) if number is None else [whole(number, "a worker's number", 0)]
        for k in wanted:
            if own(self._desks.desk(k), owner):
                return k
        if number is None:
            raise GraphError(
                f"all {count} workers are there already; give the distributor more (workers=), or close one"
            )
        raise GraphError(f"worker {number} is there already; leave the number out for one that is not")

    # What the field knows.

    def request(self, returned: Any = None) -> None:
        """Give the burst in hand back, of which ``returned`` (nothing) comes out of the distributor, and ask for more."""
        self._begin()
        self._check_grant()
        self._settle(calls.request.function(self._at, self._items, self._fill(returned)))

    def poll(self) -> NDArray[Any] | None:
        """The next burst, if it is there; None when it is not."""
        self._begin()
        n: int = calls.poll.function(self._at, self._items)
        if n == HOLDING and self._kept_back():
            n = self.in_hand
        if n >= 0:
            self._seen = self._cursor.next
            return self._bursts[n]
        if n in (NOTHING, NOT_YET):
            self._check_distributor()
            return None
        self._settle(n)
        return None

    def get(self, returned: Any = None, timeout_s: float | None = None) -> NDArray[Any]:
        """:meth:`request`, and wait for the next burst; an empty one when the time is over, or nothing comes any more."""
        if timeout_s is not None:
            Deadline(timeout_s)  # raises before anything is given back
        self._begin()
        if self._kept_back():
            n = self.in_hand
        else:
            n = calls.turn.function(self._at, self._items, self._fill(returned))
            if n < 0:
                n = self._wait(n, timeout_s)
        self._seen = self._cursor.next
        return self._bursts[n]

    def give_back(self, returned: Any = None) -> None:
        """Give the burst in hand back and leave; the next call that asks for a burst joins again."""
        self._take_over()
        self._check_grant()
        n = self._fill(returned)
        if self._cursor.joined or not self._cursor.desks:
            self._settle(calls.leave.function(self._at, self._items, n))

    def abandon(self) -> None:
        """Leave without giving back what is in the hand: another worker gets it."""
        self._take_over()
        self._check_grant()
        if self._cursor.joined or not self._cursor.desks:
            self._settle(calls.abandon.function(self._at))

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Bursts, until the distributor or this worker is closed; each is given back, as it is then, on the next turn.

        After a ``break`` another loop may go on: it begins by giving back the burst that was in hand.
        """
        turn, at, items, bursts = calls.turn.function, self._at, self._items, self._bursts
        self._begin()
        cursor = self._cursor
        n, there = self.in_hand, self._kept_back()
        while True:
            if not there:
                n = turn(at, items, n)
                if n < 0:
                    try:
                        n = self._wait(n, None)
                    except GraphError:  # another thread, or the program's end, may have closed this worker
                        if not self.closed or os.getpid() != self._pid:
                            raise
                    if self.closed:
                        return
            there = False
            if n:
                self._seen = cursor.next
                yield bursts[n]
                if not cursor.joined:  # the loop has left, by give_back() or abandon()
                    self._begin()
                # It may also have given back, or got another burst, on its own.
                n = cursor.count if cursor.hand else 0

    # States.

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more: the distributor was closed, or this worker."""
        if not self._cursor.desks:
            return True
        return bool(Desk.at(self._desk).state & 0xFF == CLOSED)

    @property
    def in_hand(self) -> int:
        """Items of the burst in hand."""
        cursor = self._cursor
        return int(cursor.count) if cursor.hand else 0

    @property
    def active(self) -> bool:
        """Whether the distributor gives this worker bursts."""
        return bool(self._cursor.grant)

    def close(self) -> None:
        """Leave, and let another have the place.  What is in hand goes to another worker.  Closing twice is harmless."""
        self._leave()

    def __enter__(self) -> "DistributorWorker":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(
        self, ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:  # at the end there is no ``sys`` any more
        if not ending() and getattr(self, "_ending", None) is not None:  # else it was never made
            self._leave()

    def __repr__(self) -> str:
        return f"<DistributorWorker {self.number}{' (closed)' * self.closed}>"

    def __reduce__(self) -> Any:
        raise TypeError("a worker is not copied or pickled; attach to the distributor where another is wanted")

    # The slow ways.

    def _leave(self) -> None:
        """Leave, and let go of the desk; what interrupts it can be done again."""
        _leave(self._pid, self._at, None)
        self._ending.detach()

    def _begin(self) -> None:
        """Be the calling thread's, and join if that was not done."""
        self._take_over()
        if not self._cursor.joined:
            self._settle(calls.join.function(self._at))

    def _take_over(self) -> None:
        """Be the calling thread's."""
        thread = thread_id()
        if thread != self._thread:
            self._settle(calls.take_over.function(self._at, owner_word()))
            self._thread = thread

    def _check_grant(self) -> None:
        """Raise when it was fenced, for calls that do not look for a line."""
        grant = Desk.at(self._desk).grant
        if self._cursor.grant not in (0, grant) and grant >> 32 & 0xFF != CLOSED:
            self._settle(WAS_FENCED)

    def _kept_back(self) -> bool:
        """Whether the burst in hand has not been handed out, for the call that took it was interrupted."""
        cursor = self._cursor
        return bool(cursor.hand and cursor.next != self._seen)

    def _fill(self, returned: Any) -> int:
        """Have what is returned in the burst's place; how many."""
        if returned is None:
            return 0
        if type(returned) is np.ndarray and returned.dtype == self.dtype and returned.ndim == 1:
            given = returned  # of the burst itself, maybe
        else:
            given = converted(returned, self.dtype)
        n = len(given)
        most = self._desks.burst
        if n > most or (n and not self.in_hand):
            if not self._cursor.desks:
                self._settle(GONE)
            has = f"a burst has up to {most}" if n > most else "it has no burst in hand"
            raise GraphError(f"{n} items cannot be returned by this worker at once: {has}")
        if n:
            self._bursts[n][:] = given
        return n

    def _wait(self, code: int, timeout_s: float | None) -> int:
        """Wait for the next burst; how many items it has, 0 when the time is over or the distributor is closed."""
        deadline = Deadline(timeout_s)
        while True:
            if code >= 0:
                return code
            if code == IS_CLOSED:
                return 0
            if code not in (NOTHING, NOT_YET):
                self._settle(code)
            if deadline.over():
                return 0
            keeper = self._page, self._keeper  # another thread may close this worker meanwhile
            calls.wait_for_line.function(self._at, deadline.left_ns(SLICE_NS), SPIN_NS)
            del keeper
            code = calls.poll.function(self._at, self._items)
            if code in (NOTHING, NOT_YET):
                self._check_distributor()

    def _check_distributor(self) -> None:
        now = time.monotonic()
        if now - self._checked < CHECK_S:
            return
        self._checked = now
        maker = int(self._desks.record.owner)
        if maker and not alive(maker):
            raise PeerError(f"the distributor of this worker is gone: its process {maker & 0xFFFFFFFF} has ended")

    def _settle(self, code: int) -> None:
        """Raise what a code of an entry says."""
        if code >= 0 or code == IS_CLOSED:
            return
        if code == GONE:
            if os.getpid() != self._pid:
                raise GraphError(
                    f"this worker belongs to process {self._pid}, not to its fork; attach to the distributor here"
                )
            raise GraphError("this worker is closed; make another, or keep it open for as long as it is used")
        if code == WAS_FENCED:
            self._leave()
            raise PeerError(
                "this worker was fenced, or taken for dead: what it had is counted lost or was given to others; make another"
            )
        if code == NOT_JOINED:
            raise GraphError(
                "another thread has had this worker leave meanwhile; ask again to join, or have one for each"
            )
        if code == HOLDING:
            raise GraphError("this worker has a burst in hand; give it back first, by request() or get()")
        assert code == TOO_MANY
        raise GraphError("more items are returned than a burst has, or there is no burst in hand")


def _leave(pid: int, cursor: int, _memory: object) -> None:
    """Leave the distributor, in the process that joined, and let go of the desk."""
    if os.getpid() != pid or not Cursor.at(cursor).desks:
        return
    calls.resign.function(cursor, owner_word())


def item_dtype(given: Any) -> np.dtype[Any]:
    """The type of a distributor's items, which have 8 bytes."""
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except (TypeError, ValueError) as error:
        raise GraphError(f"dtype must be one of NumPy's of 8 bytes, got {given!r}") from error
    if given is None or dtype.itemsize != 8 or dtype.hasobject or dtype.subdtype is not None:
        raise GraphError(f"a distributor's items are numbers or records of 8 bytes, got {given!r}; use numpy.uint64")
    return dtype
