"""Changes of interfaces as the kernel tells them: up, down, gone, back, renamed, another MTU.

A :class:`Watch` is a netlink socket of one namespace that a port's service reads: :meth:`Watch.changes` returns what
was told since it was last asked, and None when the kernel had more to tell than the socket held (look at everything
again then).

*Source:* rtnetlink(7), netlink(7).
"""

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Self

from wirespeed.errors import PortError
from wirespeed.ports.link.interface import IFF_RUNNING, IFF_UP
from wirespeed.ports.link.namespace import inside

NETLINK_ROUTE, RTMGRP_LINK = 0, 1  # include/uapi/linux/netlink.h, rtnetlink.h
RTM_NEWLINK, RTM_DELLINK = 16, 17
IFLA_IFNAME, IFLA_MTU = 3, 4  # include/uapi/linux/if_link.h
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
LINK = struct.Struct("=BBHiII")  # struct ifinfomsg
ATTRIBUTE = struct.Struct("=HH")  # struct rtattr
ALIGN = 4


@dataclass(frozen=True)
class Change:
    """What an interface is now; ``gone`` when it has been deleted or moved to another namespace."""

    index: int
    name: str
    flags: int
    mtu: int
    gone: bool

    @property
    def is_up(self) -> bool:
        """Whether it is set up and its carrier is there."""
        return not self.gone and self.flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING


class Watch:
    """Changes of the interfaces of one namespace; a context manager."""

    def __init__(self, netns: str | None = None) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, kind, NETLINK_ROUTE)
        try:
            self._socket.bind((0, RTMGRP_LINK))
        except OSError as error:
            self._socket.close()
            raise PortError(error.errno, f"watching interfaces: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Readable when there is something to tell."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop watching."""
        self._socket.close()

    def changes(self) -> list[Change] | None:
        """All that was told since the last time, oldest first, without waiting; None when some of it was lost."""
        found: list[Change] = []
        while True:
            try:
                told = self._socket.recv(1 << 16)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    return None
                raise PortError(error.errno, f"watching interfaces: {error.strerror}") from error
            found += _read(told)


def _read(told: bytes) -> list[Change]:
    """The changes in what the kernel told; a message that is cut short is left out with all behind it."""
    found, at = [], 0
    while at + HEADER.size <= len(told):
        size, kind, *_ = HEADER.unpack_from(told, at)
        if size < HEADER.size or at + size > len(told):
            break
        if kind in (RTM_NEWLINK, RTM_DELLINK) and size >= HEADER.size + LINK.size:
            _, _, _, index, flags, _ = LINK.unpack_from(told, at + HEADER.size)
            said = _attributes(told[at + HEADER.size + LINK.size : at + size])
            name = os.fsdecode(said.get(IFLA_IFNAME, b"").rstrip(b"\0"))
            mtu = said.get(IFLA_MTU, b"\0\0\0\0")
            found.append(Change(index, name, flags, struct.unpack("=I", mtu[:4])[0], kind == RTM_DELLINK))
        at += -(-size // ALIGN) * ALIGN
    return found


def _attributes(block: bytes) -> dict[int, bytes]:
    """The attributes in a message by their numbers."""
    found, at = {}, 0
    while at + ATTRIBUTE.size <= len(block):
        size, kind = ATTRIBUTE.unpack_from(block, at)
        if size < ATTRIBUTE.size or at + size > len(block):
            break
        found[kind] = block[at + ATTRIBUTE.size : at + size]
        at += -(-size // ALIGN) * ALIGN
    return found
