"""What stands in the way of opening a kind of port here and now: rights, devices, and what the kernel was built with.

What can be tried without a trace is tried (a socket is opened and closed again); where a try would leave something
behind, the right is looked for.  *Source:* packet(7), Documentation/networking/af_xdp.rst, tuntap.rst; capabilities(7).
"""

import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from wirespeed.ports.link.rights import missing

AF_XDP = 44  # include/linux/socket.h
TUN = "/dev/net/tun"
NEEDS = {
    "packet": "CAP_NET_RAW",
    "xdp": "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (or CAP_SYS_ADMIN)",
    "tap": "CAP_NET_ADMIN, unless the device exists and is yours",
    "tun": "CAP_NET_ADMIN, unless the device exists and is yours",
}


def needs(kind: str, port_class: Any) -> str:
    """The rights that a kind of port needs, in words."""
    return getattr(port_class, "NEEDS", "") or NEEDS.get(kind, "no privilege")


def obstacle(kind: str, port_class: Any) -> str | None:
    """What is in the way, in a sentence; None when ports of this kind can be opened."""
    own: Callable[[], str | None] = getattr(port_class, "obstacle", TRIES.get(kind, lambda: None))
    return own()


def _packet() -> str | None:
    return _socket(socket.AF_PACKET, "CAP_NET_RAW", "packet sockets (CONFIG_PACKET)")


def _xdp() -> str | None:
    if said := _socket(AF_XDP, "CAP_NET_RAW", "XDP sockets (CONFIG_XDP_SOCKETS)"):
        return said
    lacking = missing("CAP_NET_ADMIN", "CAP_BPF") if missing("CAP_SYS_ADMIN") else missing("CAP_NET_ADMIN")
    return _lacks(lacking, "attach the program that brings packets") if lacking else None


def _socket(family: int, right: str, what: str) -> str | None:
    try:
        socket.socket(family, socket.SOCK_RAW | socket.SOCK_CLOEXEC).close()
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            return _lacks([right], "open such sockets")
        if error.errno in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT):
            return f"this kernel has no {what}"
        return f"no such socket can be opened: {error.strerror}"
    return None


def _tap() -> str | None:
    try:
        os.close(os.open(TUN, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"there is no {TUN}: modprobe tun, or give the container --device {TUN}"
    except OSError as error:
        return f"{TUN} cannot be opened: {error.strerror}; give the container --device {TUN}"
    lacking = missing("CAP_NET_ADMIN")
    return f"{_lacks(lacking, 'make one')}; one that exists with you as its owner can be opened" if lacking else None


def _lacks(rights: list[str], what: str) -> str:
    return f"{' and '.join(rights)} is missing, which it takes to {what}; run as root, or see `man setcap`"


TRIES: dict[str, Callable[[], str | None]] = {"packet": _packet, "xdp": _xdp, "tap": _tap, "tun": _tap}
