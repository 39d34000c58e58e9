"""The device of a tap or tun port while a run has it open: it stays, or is made again when it is gone.

Theory of operation
-------------------
A device has a descriptor for each worker, whose number stays the same as long as the run lasts, for workers read, write
and poll the numbers.  When the device is gone (deleted, or its namespace was made anew), the read end of a pipe takes
the place of each (``dup2``): a read finds nothing, a write is refused, a poll waits.  :meth:`Device.look`, which the
run's control thread calls, then tries to make it again, with all its settings, and puts the new descriptors there.

A device that only goes down, is renamed, is given another MTU or is moved to another namespace stays open all the time.

One device serves both roles of its port: who has it open is in ``roles``, and the last one closes it.

Thread rules: one thread opens and starts it; one at a time looks and closes; any may read ``told``.
"""

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import RLock

from wirespeed.ports.link import forks
from wirespeed.ports.tap.present import Gone, Present, Settings

log = logging.getLogger("wirespeed")
LOOK_S = 0.1  # how often the service looks
RETRY_S = 0.5  # and how often it tries to make a device again


@dataclass(frozen=True)
class Told:
    """What there is to tell of a device."""

    interface: str
    offloads: int = 0
    link_changes: int = 0
    remakes: int = 0
    kernel_drops: int = 0  # packets for us that the kernel had no room for
    trouble: str = ""


class Device:
    """A device with ``n`` queues, open for one run; ``fds`` are its descriptors."""

    def __init__(self, settings: Settings, n: int) -> None:
        self.settings = settings
        self.n = n
        self.roles: set[str] = set()
        self.prepare: Callable[[list[int]], None] | None = None  # what is done to new descriptors before packets come
        self._lock = RLock()
        self._rises = False
        with ExitStack() as undo:
            self._quiet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            for fd in self._quiet:
                undo.callback(os.close, fd)
            self._present: Present | None = Present(settings, settings.name, n)
            self.fds = self._present.fds
            for fd in self.fds:
                undo.callback(os.close, fd)
            self._undo = undo.pop_all()
        self._mac = settings.mac  # that it has, so that its neighbours need not learn another when it is made again
        self._drops = 0  # of devices that are gone
        self.told = Told(self._present.name, self._present.offloads)
        forks.register(self)

    def start(self) -> None:
        """Have packets come: set it up, unless that was done."""
        with self._lock:
            if not self._rises and self._present is not None:
                self._present.rise()
            self._rises = True

    def look(self) -> float | None:
        """Attend to changes; in how many seconds to look again, None when it is closed."""
        with self._lock:
            if not self.fds:
                return None
            if self._present is None:
                return self._make_again()
            try:
                changes = self._present.look()
            except Gone as gone:
                log.warning("%s: %s; it is made again as soon as that can be", self._label, gone)
                self._lose()
                return 0.0
            self._tell(self._present, changes)
            return LOOK_S

    def _tell(self, present: Present, changes: int) -> None:
        self.told = replace(
            self.told,
            interface=present.name,
            link_changes=self.told.link_changes + changes,
            kernel_drops=self._drops + present.dropped(),
        )

    @property
    def _label(self) -> str:
        return f"{self.settings.kind}:{self.told.interface}"

    def _lose(self) -> None:
        """Have what takes the place of a device that is gone be read and written instead."""
        assert self._present is not None
        self._mac = self._present.mac
        self._present.close()
        self._present = None
        self._drops = self.told.kernel_drops
        self.told = replace(self.told, link_changes=self.told.link_changes + 1)
        for fd in self.fds:
            os.dup2(self._quiet[0], fd, False)

    def _make_again(self) -> float:
        """Try to make the device again, and put its descriptors where the old ones were."""
        settings = replace(self.settings, mac=self._mac)
        with ExitStack() as undo:
            try:
                present = undo.enter_context(closing(Present(settings, self.told.interface, self.n)))
                new = present.fds
                for fd in new:
                    undo.callback(os.close, fd)
                if self.prepare:
                    self.prepare(new)
                if self._rises:
                    present.rise()
            except OSError as error:  # PortError is one
                self.told = replace(self.told, trouble=str(error))
                return RETRY_S
            for mine, theirs in zip(self.fds, new, strict=True):
                os.dup2(theirs, mine, False)
                os.close(theirs)
            undo.pop_all()
        present.fds, self._present = self.fds, present
        self.told = replace(self.told, remakes=self.told.remakes + 1, trouble="")
        self._tell(present, 1)
        log.warning("%s: it is there again", self._label)
        return LOOK_S

    def release(self, role: str) -> bool:
        """Have one role less; whether it was the last, and the device is closed."""
        with self._lock:
            self.roles.discard(role)
            if not self.roles and self.fds:
                if self._present is not None:
                    self._tell(self._present, 0)
                    self._present.remove()
                    self._present.close()
                self._undo.close()
                self.fds = []
            return not self.roles

    def let_go(self) -> None:
        """Close the queues in a forked child, without the lock, which a thread of the parent's may hold for ever here."""
        self.roles.clear()
        fds, self.fds = self.fds, []
        self._undo.pop_all()
        for fd in fds:
            os.close(fd)
