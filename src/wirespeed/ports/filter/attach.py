"""A filter in the kernel: programs attached to packet sockets and to taps, so that what does not match never comes up.

*Source:* socket(7) and Documentation/networking/filter.rst of Linux for ``SO_ATTACH_FILTER``, drivers/net/tun.c for
``TUNATTACHFILTER``.
"""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from wirespeed.errors import GraphError
from wirespeed.jit import bpf
from wirespeed.ports.filter.expression import Filter

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # include/uapi/asm-generic/socket.h
TUNATTACHFILTER, TUNDETACHFILTER = (
    0x401054D5,
    0x401054D6,
)  # include/uapi/linux/if_tun.h: _IOW('T', 213 and 214, sock_fprog)
_STEP = struct.Struct("=HBBI")  # struct sock_filter


@contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A descriptor of a socket as an object, which does not close it."""
    borrowed = socket.socket(fileno=os.dup(fd))
    try:
        yield borrowed
    finally:
        borrowed.close()


def _program(filter: Filter, link: int) -> tuple[bytes, ctypes.Array[ctypes.c_char]] | None:
    """The ``struct sock_fprog`` of a filter and the steps that it points to; None for one that Linux does not take."""
    try:
        steps = filter.kernel_program(link)
    except GraphError:  # too long, or for other link types
        return None
    if bpf.loops(steps):
        return None
    held = ctypes.create_string_buffer(b"".join(_STEP.pack(*step) for step in steps))
    return struct.pack("HP", len(steps), ctypes.addressof(held)), held


def to_socket(fd: int, filter: Filter, link: int) -> bool:
    """Attach a filter to a packet socket, best before it is bound; False when the kernel does not take it."""
    made = _program(filter, link)
    if made is None:
        return False
    try:
        with _borrowed(fd) as s:
            s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, made[0])
    except OSError:
        return False
    return True


def off_socket(fd: int) -> None:
    """Take the filter off a socket; one that has none is left as it is."""
    try:
        with _borrowed(fd) as s:
            s.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    except OSError:
        pass


def to_tap(fd: int, filter: Filter, link: int) -> bool:
    """Attach a filter to a tap, by the descriptor of a queue; False when the kernel does not take it (a tun, say)."""
    made = _program(filter, link)
    if made is None:
        return False
    try:
        fcntl.ioctl(fd, TUNATTACHFILTER, made[0])
    except OSError:
        return False
    return True


def off_tap(fd: int) -> None:
    """Take the filter off a tap."""
    try:
        fcntl.ioctl(fd, TUNDETACHFILTER, bytes(16))
    except OSError:
        pass
