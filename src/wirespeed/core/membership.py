"""Who works on a segment: joining, leaving, and which members are known to be gone.

A member belongs to a process, which may have several.  It is gone when its pidfd says so, or when another process has
its number: the time at which it began stands in its record.  One that only hangs is not gone.  Processes of different
PID namespaces cannot tell about each other: there, a member looks gone to those that do not see it, so they must not
recover.

Source: pidfd_open(2), proc_pid_stat(5).
"""

import errno
import os
import select
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wirespeed.core.liveness import stat
from wirespeed.core.member import (
    ABANDONED,
    ACTIVE,
    CLAIMED,
    DONE,
    HELD,
    IDLE,
    TAKEN,
    WAITING,
    Member,
    become_recoverer,
    inherit,
    join,
    no_more_recoverer,
)
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.libc import thread_id

DOING = {
    ACTIVE: "began",
    CLAIMED: "claimed",
    WAITING: "copied, and waited for its turn,",
    TAKEN: "copied, and waited for its turn,",
    HELD: "held",
    ABANDONED: "gave up",
}
COUNTERS = ("enqueued", "enqueues", "refused", "dequeued", "dequeues", "empty")
LEFT = 1  # in the place of when it began: a process that left with something unfinished, as good as gone


@dataclass(frozen=True)
class Peer:
    """A member, as another sees it: its process, its name, and what it was doing ("" for nothing)."""

    pid: int
    name: str
    doing: str
    alive: bool

    def __str__(self) -> str:
        words = f"process {self.pid}" + (f" ({self.name})" if self.name else "")
        if not self.alive:
            words += ", which is gone"
        return words + (f", and {self.doing}" if self.doing and not self.alive else "")


def started(pid: int) -> int:
    """When a process began, in clock ticks since the machine did; 0 when there is none, or nothing can be told of it."""
    try:
        return stat(pid)[1]
    except OSError:
        return 0


class Membership:
    """The members' records of a ring or pool, ``count`` of them from ``address`` on, and this process's among them.

    ``own`` is the address of our record.
    """

    def __init__(self, address: int, count: int, name: str = "") -> None:
        self.address, self.count = address, count
        self._self = os.getpid(), started(os.getpid())
        self._recovers = False
        self._watched: dict[tuple[int, int], int] = {}  # process and its beginning: pidfd
        self.own = self._join(name.encode()[:32])

    def _join(self, name: bytes) -> int:
        # A record of the dead, who were doing nothing, is as good as one that is nobody's.
        for at in [*self._records(), *(at for at, record in self.records() if self._forgotten(record))]:
            if join(at, self._self[0]) or self._inherit(at):
                record = Member.at(at)
                record.started = self._self[1]
                record.name[:] = list(name.ljust(32, b"\0"))
                for counter in COUNTERS:
                    setattr(record, counter, 0)
                return int(at)
        raise GraphError(
            f"all {self.count} members of it are taken; give it more when it is made (members=), or recover() from dead ones"
        )

    def _forgotten(self, record: Any) -> bool:
        return not self.alive(record) and record.prod.state == record.cons.state == IDLE

    def _inherit(self, at: int) -> bool:
        record = Member.at(at)
        before = record.pid
        if not before or not self._forgotten(record):
            return False
        return bool(inherit(at, before, *self._self))

    @contextmanager
    def recovering(self, owner: Any, what: str) -> Iterator[None]:
        """Be the one that recovers a segment; :class:`PeerError` when another is at it."""
        if self._recovers:
            raise PeerError(f"another thread of this process is at recovering this {what}; try again when it is done")
        self._recovers = True
        try:
            while not become_recoverer(owner.address, self.number):
                number = int(owner.header.recoverer)
                other = self.member(number)
                # Our own mark is left from a call that was interrupted as it began.
                if number != self.number and other is not None and other.alive:
                    raise PeerError(f"{other} is at recovering this {what}; try again when it is done")
                no_more_recoverer(owner.address, number)
            yield
        finally:
            no_more_recoverer(owner.address, self.number)
            self._recovers = False

    def leave(self) -> None:
        """Give our record back."""
        record = Member.at(self.own)
        if all(intent.state in (IDLE, DONE) for intent in (record.prod, record.cons)):
            self.free(record)
        else:  # an interrupted call's claim, or items that are held: for others to recover from
            record.started = LEFT
        self.close()

    @staticmethod
    def free(record: Any) -> None:
        """Make a record nobody's."""
        for intent in (record.prod, record.cons):
            intent.count = 0
            intent.state = IDLE
        record.started = 0  # before the next one has its number there
        record.pid = 0

    def close(self) -> None:
        """Forget the others' descriptors."""
        self._forget(())

    def _records(self) -> range:
        return range(self.address, self.address + self.count * Member.size, Member.size)

    def records(self) -> list[tuple[int, Any]]:
        """Address and record of every member there is."""
        found = [(at, Member.at(at)) for at in self._records()]
        return [(at, record) for at, record in found if record.pid]

    def alive(self, record: Any) -> bool:
        """Whether a member's process lives."""
        key = int(record.pid), int(record.started)
        if key == self._self:
            return True
        fd = self._watched.get(key, -1)
        if fd < 0:
            try:
                fd = os.pidfd_open(key[0])
            except (OSError, OverflowError) as error:
                # Invalid is the number of a thread, as others have it now.
                if isinstance(error, OverflowError) or error.errno in (errno.ESRCH, errno.EINVAL, errno.ENOENT):
                    return False
                raise
            now = started(key[0])  # read behind the opening: it is of the process that is watched
            self._forget({(record.pid, record.started) for _, record in self.records()})
            self._watched[key] = fd
            if key[1] and now not in (0, key[1]):
                self._forget(self._watched.keys() - {key})
                return False
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if poll.poll(0):
            self._forget(self._watched.keys() - {key})
            return False
        return True

    def _forget(self, but: Collection[tuple[int, int]]) -> None:
        """Close the descriptors of all processes but some."""
        for key in self._watched.keys() - set(but):
            os.close(self._watched.pop(key))

    def peers(self) -> list[Peer]:
        """Every member, ourselves included."""
        return [self.describe(record) for _, record in self.records()]

    def describe(self, record: Any) -> Peer:
        """What there is to say of a member."""
        alive = self.alive(record)  # first: what a dead one was doing does not change any more
        words = [
            f"{DOING[state]} {intent.count} items to {verb}"
            for intent, verb in ((record.prod, "put in"), (record.cons, "take out"))
            if (state := min(intent.state, TAKEN)) in DOING
        ]
        name = bytes(record.name).rstrip(b"\0").decode(errors="replace")
        return Peer(record.pid, name, "; ".join(words), alive)

    @property
    def number(self) -> int:
        """Which of the members we are, from 1 on."""
        return (self.own - self.address) // Member.size + 1

    def member(self, number: int) -> Peer | None:
        """The member of a number, if there is one."""
        if not 1 <= number <= self.count:
            return None
        record = Member.at(self.address + (number - 1) * Member.size)
        return self.describe(record) if record.pid else None

    def others(self) -> list[Peer]:
        """Every member but this process."""
        return [self.describe(record) for at, record in self.records() if at != self.own]

    @staticmethod
    def check_holder(intent: Any) -> None:
        """Raise when this process's own hold of items is in the way of the thread that asks, for ever."""
        thread = intent.thread
        if thread == thread_id():
            raise GraphError("this thread looks at items of the ring: finish that before other calls at this end")
        if not os.path.exists(f"/proc/self/task/{thread}"):
            raise PeerError(f"thread {thread} has ended while it looked at items of the ring; recover() lets it go on")
