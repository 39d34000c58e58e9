"""Network namespaces: work done inside another one, by the thread that asks for it.

A namespace is named as ``ip netns`` names it, by the number of a process that is in it, or by a path.

*Source:* setns(2), network_namespaces(7).
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from wirespeed.errors import PortError

CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
NAMED = "/run/netns"
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(netns: str) -> str:
    """The file that stands for a namespace."""
    if netns.isdigit():
        return f"/proc/{netns}/ns/net"
    return netns if "/" in netns else f"{NAMED}/{netns}"


@contextlib.contextmanager
def inside(netns: str | None) -> Iterator[None]:
    """Within, the calling thread is in a namespace; None is the one that it is in anyway.

    Sockets opened within stay there.  Raises :class:`PortError` when there is no such namespace, or no right to enter.
    """
    if netns is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, home)
        try:
            there = os.open(path_of(netns), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise PortError(
                error.errno,
                f"network namespace {netns}: {error.strerror}; `ip netns list` shows those that have a name",
            ) from error
        stack.callback(os.close, there)
        _enter(there, netns)
        stack.callback(_enter, home, "of this process")
        yield


def _enter(fd: int, name: str) -> None:
    if _libc.setns(fd, CLONE_NEWNET):
        code = ctypes.get_errno()
        raise PortError(code, f"network namespace {name}: {os.strerror(code)}; entering one needs CAP_SYS_ADMIN")
