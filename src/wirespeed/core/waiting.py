"""What a call on a ring does when it cannot go on at once: it waits, settles what is unfinished, or says what is wrong.

Theory of operation
-------------------
Waiting lets go of the GIL, and returns every few milliseconds, so that Ctrl-C works and a peer's death is noticed.  What
cannot be published, because an earlier claim of another member is not yet, is finished here as well: by waiting for
that member while it lives, and with a :class:`PeerError` that names it when it is gone.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from wirespeed.core import calls
from wirespeed.core.calls import NO_ARRAY, SHUT
from wirespeed.core.member import CONS, HELD, PROD, UNABLE, Member
from wirespeed.core.number import Deadline
from wirespeed.core.ring_memory import RingMemory
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.libc import thread_id

SLICE_NS = 20_000_000  # how long one wait lasts before Python has a look at signals and peers
SPIN_NS = 20_000  # how long it spins before it sleeps
FOREVER_NS = 1 << 62
GRACE_NS = 20_000_000  # how long, and how many tries, a call that should not wait gives others that are in the middle
TRIES = 20  # of something
PAUSES = 4096  # of one look whether earlier claims are published


class Waiting:
    """The waits of one Python ring; ``spins`` has them spin instead of sleep."""

    def __init__(self, memory: RingMemory, spins: bool) -> None:
        self.memory = memory
        self._binding = memory.binding
        self._pid = os.getpid()
        self._spin_ns = FOREVER_NS if spins else SPIN_NS
        self._inside: dict[object, int] = {}  # calls that do not hold the GIL, and the threads they are of

    @contextmanager
    def inside(self) -> Iterator[None]:
        """For what lets go of the GIL: another thread's close() waits for it, and its memory stays mapped in any case."""
        kept = self.memory.mapping  # a signal's handler in this very thread is not waited for
        token = object()
        try:
            self._inside[token] = thread_id()
            self.check_open()
            yield
        finally:
            self._inside.pop(token, None)
            del kept

    def leave(self) -> None:
        """Wait until no other thread waits here any more; every new call finds the ring closed already.

        A signal's handler runs in a thread that may have been interrupted in a wait, which goes on behind the handler.
        """
        own = thread_id()
        while any(thread != own for thread in list(self._inside.values())):
            time.sleep(0.001)

    def wait(self, side: int, n: int, deadline: "Deadline") -> bool:
        """Wait until ``n`` slots or items are there; False when the time is over or nothing more comes."""
        if deadline.over():
            self.check_open()
            return False
        if n > self.memory.capacity:
            raise GraphError(
                f"waiting for {n} {'slots' if side == PROD else 'items'} of a ring that holds {self.memory.capacity} has no end; "
                f"ask for fewer at a time"
            )
        with self.inside():
            while True:
                got = calls.wait.function(self._binding, side, n, deadline.left_ns(SLICE_NS), self._spin_ns)
                if got == calls.READY:
                    return True
                if got == SHUT and side == CONS:
                    return False
                self.check_open(got)
                self.check_peers(others=True)
                if deadline.over():
                    return False

    def settle(self, code: int, side: int, deadline: "Deadline | None" = None) -> int:
        """Do what a code of an entry asks for; the items that are through by that, or 0: then it is tried again.

        Less than 0 when nothing is claimed and the time is over: whoever is in the way gets a moment all the same, for
        nearly always it is through then.
        """
        self.check_open(code)
        if code == NO_ARRAY:
            raise GraphError(
                f"NumPy made an array of another type than {self.memory.dtype}; report this with its version"
            )
        with self.inside():
            member = Member.at(self.memory.members.own)
            intent = member.prod if side == PROD else member.cons
            while True:
                self.check_open()
                if intent.state == HELD:
                    self.memory.members.check_holder(intent)
                done = calls.finish_claim.function(self._binding, side, PAUSES)
                if done and code < UNABLE:
                    return UNABLE - code
                self.check_open()
                try:
                    self.check_peers()
                except PeerError:
                    # A claim that cannot be published is given up, so that what raises has not happened.
                    gone = self.memory.dead_recoverer()
                    if code == UNABLE or calls.abandon_claim.function(self._binding, side, thread_id(), gone):
                        raise
                    continue
                if done:
                    time.sleep(0.0002)  # frozen, held, or an earlier one is under way
                    return -1 if deadline is not None and deadline.spent(TRIES, GRACE_NS) else 0

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that the ring belongs to."""
        return os.getpid() != self._pid

    def check_open(self, code: int = 0) -> None:
        """Raise when the ring is closed, or ``code`` says that it was shut down."""
        if code == SHUT:
            raise GraphError("this ring was shut down: nothing more can be put in; make another, or reset() it")
        if not self.memory.open:
            if self.forked:
                raise GraphError(
                    f"this ring belongs to process {self._pid}, not to its fork; attach to it here, by name or descriptor"
                )
            raise GraphError("this ring is closed; make another, or keep it open for as long as it is used")

    def check_peers(self, others: bool = False) -> None:
        """Raise when a dead member keeps the ring from going on, or, with ``others``, when all others are dead."""
        if self.memory.private:
            return
        peers = self.memory.members.others()
        for peer in peers:
            if not peer.alive and peer.doing:
                raise PeerError(f"the ring is held up by {peer}; recover() lets it go on")
        self.memory.check_recoverer()
        if others and peers and not any(peer.alive for peer in peers):
            raise PeerError(f"nobody is left to wait for: {', '.join(map(str, peers))}")
