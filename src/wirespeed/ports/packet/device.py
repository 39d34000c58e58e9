"""The interface that a packet port stands on, wherever it goes: down and up, renamed, gone, and back as another one.

Theory of operation
-------------------
Sockets are bound to an interface's number, so a port follows its interface as long as that exists, under whatever name.
When it is gone (deleted, or moved to another namespace), the port waits for one that has the name it was given, in the
namespace it was given; that may be another interface, and another namespace of the same name.

Thread rule: one thread at a time.
"""

import socket
from dataclasses import dataclass

from wirespeed.errors import PortError
from wirespeed.ports.link.interface import Interface
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.link.watch import Watch


@dataclass
class Device:
    """``name`` in ``netns``; ``index`` is 0 while it is not there, and ``called`` what it is called now."""

    name: str
    netns: str | None
    index: int = 0
    link: int = 0
    up: bool = False
    mtu: int = 0
    called: str = ""
    link_changes: int = 0  # times that it went down or came up
    returns: int = 0  # times that it was gone and came back
    _watch: Watch | None = None

    def find(self) -> None:
        """Find the interface by its name; raises :class:`PortError` when there is none."""
        watch = Watch(self.netns)  # before the first look, so that no change falls between the two
        try:
            with Interface(self.name, self.netns) as interface:
                self.index, self.link = interface.index, interface.link
                self.up, self.mtu, self.called = interface.is_up, interface.mtu, self.name
        except BaseException:
            watch.close()
            raise
        self.close()
        self._watch = watch

    def look(self) -> bool:
        """Bring everything up to date with what the kernel told; whether it is back as another interface."""
        if self.index:
            self._follow()
        if self.index:
            return False
        try:
            self.find()
        except PortError:
            return False
        self.returns += 1
        self.link_changes += self.up
        return True

    def _follow(self) -> None:
        assert self._watch is not None
        changes = self._watch.changes()
        if changes is None:
            self._look_again()
            return
        for change in changes:
            if change.index == self.index:
                self._set(change.is_up, change.mtu, change.name)
                if change.gone:
                    self.index = 0
                    return

    def _set(self, up: bool, mtu: int, called: str) -> None:
        self.link_changes += up != self.up
        self.up, self.mtu, self.called = up, mtu or self.mtu, called or self.called

    def _look_again(self) -> None:
        """Ask for everything, for some of what the kernel told was lost."""
        try:
            with inside(self.netns):
                called = socket.if_indextoname(self.index)
            with Interface(called, self.netns) as interface:
                self._set(interface.is_up, interface.mtu, called)
        except OSError:
            self._set(False, self.mtu, self.called)
            self.forget()

    def forget(self) -> None:
        """It is gone again, as a failure told; look for it anew."""
        self.index, self.up = 0, False

    def close(self) -> None:
        """Stop watching."""
        if self._watch:
            self._watch.close()
            self._watch = None
