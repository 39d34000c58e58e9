"""One interface of the kernel: its number, state, MTU, address and features, read and changed by ioctl.

A handle is a name in a namespace; what it says is asked of the kernel each time, for interfaces come and go and are
renamed.  Errors of an interface that is not there name it and list those that are.

Thread rule: each thread needs an :class:`Interface` of its own.  *Source:* netdevice(7), packet(7).
"""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from wirespeed.errors import PortError
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.link.rights import refused

# include/uapi/linux/sockios.h
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
SIOCGIFMTU, SIOCSIFMTU = 0x8921, 0x8922
SIOCGIFHWADDR, SIOCGIFINDEX = 0x8927, 0x8933
# include/uapi/linux/if.h
IFF_UP, IFF_LOOPBACK, IFF_RUNNING, IFF_PROMISC = 0x1, 0x8, 0x40, 0x100
NAME_SIZE = 16
GONE = (errno.ENODEV, errno.ENXIO)
# include/uapi/linux/if_arp.h -> the link type of what a packet socket of the kind SOCK_RAW gives (LINKTYPE_*)
LINK_TYPES = {1: 1, 772: 1, 65534: 101, 512: 101, 768: 101, 769: 101, 776: 101, 778: 101}


class Interface:
    """The interface ``name``, in a namespace; a context manager that closes the socket it asks with."""

    def __init__(self, name: str, netns: str | None = None) -> None:
        if not 0 < len(os.fsencode(name)) < NAME_SIZE or any(c in name for c in "/ \0"):
            raise PortError(errno.EINVAL, f"interface {name!r}: a name has 1 to 15 bytes, no space and no slash")
        self.name = name
        self.netns = netns
        with inside(netns):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the interface stays as it is."""
        self._socket.close()

    @property
    def index(self) -> int:
        """Its number in its namespace."""
        return int.from_bytes(self._ask(SIOCGIFINDEX)[:4], "little" if LITTLE else "big")

    @property
    def flags(self) -> int:
        """IFF_* flags."""
        return int.from_bytes(self._ask(SIOCGIFFLAGS)[:2], "little" if LITTLE else "big")

    @property
    def is_up(self) -> bool:
        """Whether it is set up and its carrier is there."""
        return self.flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING

    @property
    def mtu(self) -> int:
        """Most bytes of a frame behind its link header."""
        return int.from_bytes(self._ask(SIOCGIFMTU)[:4], "little" if LITTLE else "big")

    @property
    def hardware(self) -> int:
        """ARPHRD_*: what kind of link it is."""
        return int.from_bytes(self._ask(SIOCGIFHWADDR)[:2], "little" if LITTLE else "big")

    @property
    def address(self) -> bytes:
        """Its Ethernet address, six octets."""
        return self._ask(SIOCGIFHWADDR)[2:8]

    @property
    def link(self) -> int:
        """The link type of its packets (LINKTYPE_*), 1 for Ethernet, 101 where they begin with the IP header."""
        kind = self.hardware
        if kind not in LINK_TYPES:
            raise PortError(errno.EPFNOSUPPORT, f"{self.name}: links of kind {kind} (ARPHRD) carry no frames we know")
        return LINK_TYPES[kind]

    def set_up(self, up: bool = True) -> None:
        """Set it up or down.  Needs CAP_NET_ADMIN."""
        flags = self.flags & ~IFF_UP | (IFF_UP if up else 0)
        self._ask(SIOCSIFFLAGS, flags.to_bytes(2, "little" if LITTLE else "big"))

    def set_mtu(self, mtu: int) -> None:
        """Set its MTU.  Needs CAP_NET_ADMIN."""
        self._ask(SIOCSIFMTU, mtu.to_bytes(4, "little" if LITTLE else "big"))

    def exists(self) -> bool:
        """Whether there is an interface of this name now."""
        try:
            return self.index > 0
        except PortError:
            return False

    def _ask(self, request: int, value: bytes = b"") -> bytes:
        """What the kernel answers, from the union of ``struct ifreq``."""
        given = os.fsencode(self.name).ljust(NAME_SIZE, b"\0") + value.ljust(24, b"\0")
        try:
            return fcntl.ioctl(self._socket, request, given)[NAME_SIZE:]
        except OSError as error:
            if error.errno in GONE:
                have = ", ".join(names(self.netns)) or "none"
                raise PortError(error.errno, f"{self.name}: there is no such interface; there are {have}") from error
            if error.errno in (errno.EPERM, errno.EACCES):
                raise refused(self.name, "change an interface", "CAP_NET_ADMIN") from error
            raise PortError(error.errno, f"{self.name}: {error.strerror}") from error


LITTLE = int.from_bytes(b"\1\0", "little") == memoryview(b"\1\0").cast("H")[0]


def names(netns: str | None = None) -> list[str]:
    """The interfaces of a namespace."""
    with inside(netns):
        return [name for _, name in socket.if_nameindex()]


@contextmanager
def opened(name: str, netns: str | None = None) -> Iterator[Interface]:
    """An :class:`Interface` that is known to exist."""
    with Interface(name, netns) as interface:
        interface.flags  # noqa: B018 - raises what is said of an interface that is not there
        yield interface
