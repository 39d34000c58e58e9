"""A tap or tun that is there: opened or made, set as asked, and looked after while it lasts.

Where the device is may change: it can be made in one namespace and handed to another, and an administrator may rename it
and move it on.  It is known by its descriptors all the time; its name, its number and its namespace are asked anew.

Thread rule: one thread at a time.
"""

import itertools
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from wirespeed.ports.link.interface import IFF_UP, Interface
from wirespeed.ports.link.namespace import inside, path_of
from wirespeed.ports.link.watch import Watch
from wirespeed.ports.tap import queue
from wirespeed.ports.tap.netlink import Address, Netlink


@dataclass(frozen=True)
class Settings:
    """What a device is to be; None leaves it as it is."""

    kind: str  # "tap" or "tun"
    name: str
    offloads: bool = True
    up: bool = True
    mtu: int | None = None
    mac: int | None = None
    addresses: tuple[Address, ...] = ()
    persist: bool | None = None
    owner: int | None = None
    group: int | None = None
    netns: str | None = None  # where it is made,
    move_to: str | None = None  # and where it is handed to then


class Gone(Exception):
    """A device is no more; says why."""


class Present:
    """A device with ``n`` queues; ``fds`` are its descriptors, which :meth:`close` leaves open, ``offloads`` TUN_F_*."""

    def __init__(self, settings: Settings, name: str, n: int) -> None:
        self._settings = settings
        self._named: str | None = settings.netns
        with ExitStack() as undo:
            handed = settings.move_to is not None and _exists(name, settings.move_to)
            if handed:
                self._named = settings.move_to
            self.fds, self.name, self._made = queue.open_queues(settings.kind, name, n, self._named)
            for fd in self.fds:
                undo.callback(os.close, fd)
            queue.off_filter(self.fds[0])  # one that a killed process left on a persistent device
            queue.frame(self.fds[0])
            self.offloads = queue.allow(self.fds[0], settings.offloads)
            label = f"{settings.kind}:{self.name}"
            queue.keep(label, self.fds[0], settings.persist, settings.owner, settings.group)
            if settings.move_to is not None and not handed:
                _hand_over(self.name, self._named, settings.move_to)
                self._named = settings.move_to
            self.netns = self._named
            self._home = undo.enter_context(ExitStack())  # a descriptor of its namespace, where that has no name
            self._identity = _identity(self._named)
            self._sockets = undo.enter_context(ExitStack())
            self._open_sockets()
            self._set()
            self._before = 0  # packets that were dropped before we came
            self._before = self.dropped()
            undo.pop_all()

    def _open_sockets(self) -> None:
        """Open what watches the device and asks for it, in the namespace that it is in; those before stay if we cannot."""
        with ExitStack() as undo:
            watch, netlink = undo.enter_context(Watch(self.netns)), undo.enter_context(Netlink(self.netns))
            self._sockets.close()
            self._watch, self._netlink = watch, netlink
            self._sockets.push(undo.pop_all())
        self._see()

    def _see(self) -> None:
        """Take its state as it is; what was told before is in it."""
        self._watch.changes()
        with Interface(self.name, self.netns) as interface:
            self.index = interface.index
            self.is_up = bool(interface.flags & IFF_UP)
            self.mac = int.from_bytes(interface.address, "big") if self._settings.kind == "tap" else None

    def _set(self) -> None:
        """Make it what it is to be, but for being up; what it is already needs no right."""
        wanted = self._settings
        mac = None if wanted.mac == self.mac else wanted.mac
        with Interface(self.name, self.netns) as interface:
            mtu = None if wanted.mtu == interface.mtu else wanted.mtu
        if mac is not None or mtu is not None:
            self._netlink.change_link(self.name, self.index, mac=mac, mtu=mtu)
            self._see()

    def rise(self) -> None:
        """Set it up, and give it its addresses, where it is to be up and to have any."""
        if self._settings.up and not self.is_up:
            self._netlink.change_link(self.name, self.index, up=True)
        for address in self._settings.addresses:
            self._netlink.add_address(self.name, self.index, address)
        self._see()

    def look(self) -> int:
        """Take in what has changed; how many times it went up or down.  Raises :class:`Gone`."""
        if _identity(self._named) not in (None, self._identity):
            raise Gone(f"the namespace {self._named} was made anew")
        changes = self._watch.changes()
        mine = [change for change in changes or () if change.index == self.index]
        if changes is not None and not mine:
            return 0
        name = queue.name_of(self.fds[0])
        if name is None:
            raise Gone("it was deleted")
        states = [self.is_up, *(bool(change.flags & IFF_UP) for change in mine if not change.gone)]
        if changes is None or name != self.name or any(change.gone for change in mine):
            self._follow(name)
        else:
            self.is_up = states[-1]
        states.append(self.is_up)
        return sum(a != b for a, b in itertools.pairwise(states))

    def _follow(self, name: str) -> None:
        """Look at a device that was renamed, or moved on, where it is now; where we may not, it is left alone there."""
        self.name = name
        fd = queue.namespace_of(self.fds[0])
        if fd is not None:
            self._home.close()
            self._home.callback(os.close, fd)
            self.netns = f"/proc/self/fd/{fd}"
            if _identity(self.netns) != self._identity:
                self._named = None  # somebody took it from there on purpose
        with suppress(OSError):
            self._open_sockets()

    def dropped(self) -> int:
        """Packets for us that found our queues full, or that a filter of ours kept off, since we came."""
        try:
            return self._netlink.dropped(self.name, self.index) - self._before
        except OSError:
            return 0

    def remove(self) -> None:
        """Delete a device that was made by us and is not to stay: a process that was forked may have its queues as well."""
        with suppress(OSError), ExitStack() as undo:
            if not self._made or queue.is_persistent(self.fds[0]):
                return
            fd = queue.namespace_of(self.fds[0])
            if fd is not None:
                undo.callback(os.close, fd)
                here, name = f"/proc/self/fd/{fd}", queue.name_of(self.fds[0])
                with Netlink(here) as netlink, Interface(name or self.name, here) as interface:
                    netlink.delete(self.name, interface.index)

    def close(self) -> None:
        """Close all but the descriptors of the queues."""
        self._sockets.close()
        self._home.close()


def _exists(name: str, netns: str) -> bool:
    """Whether there is an interface of that name in a namespace; never one for a pattern of names."""
    if not name or "%" in name:
        return False
    with Interface(name, netns) as interface:
        return interface.exists()


def _hand_over(name: str, here: str | None, there: str) -> None:
    """Move a device from one namespace to another."""
    with Netlink(here) as netlink, Interface(name, here) as interface, ExitStack() as undo:
        with inside(there):  # for what is said of one that is not there or may not be entered
            fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, fd)
        netlink.change_link(name, interface.index, netns=fd)


def _identity(netns: str | None) -> tuple[int, int] | None:
    """What a namespace is known by, whatever it is called; None when there is none of that name."""
    if netns is None:
        return None
    try:
        status = os.stat(path_of(netns))
    except OSError:
        return None
    return status.st_dev, status.st_ino
