"""Queues of a tap or tun: file descriptors that are the wire of an interface of the kernel's.

Each descriptor is one queue of the device.  A device that nobody made before comes into being with its first queue and
goes with its last one, unless it was made persistent; the kernel takes the carrier off when none is left.

Every packet has a virtio-net header before it, whatever offloads are wanted: so what another port received with its
checksum still to be computed, or as one packet of 64 kB that is to be cut into frames, can be given to the kernel as it
is.  Which of these the kernel may give to us is what :func:`allow` says.

*Source:* Linux, Documentation/networking/tuntap.rst, drivers/net/tun.c, include/uapi/linux/if_tun.h.
"""

import contextlib
import errno
import fcntl
import os
import struct
from typing import NamedTuple

from wirespeed.errors import PortError
from wirespeed.ports.link.interface import NAME_SIZE
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.link.rights import refused

CONTROL = "/dev/net/tun"
MOST_WAITING = 1000  # packets in a queue, unless somebody set it longer: TUN_READQ_SIZE of drivers/net/tun.c, twice
HEADER = 12  # bytes of the virtio-net header of virtio 1 before each packet
# include/uapi/linux/if_tun.h
TUNSETIFF, TUNSETPERSIST, TUNSETOWNER, TUNSETGROUP = 0x400454CA, 0x400454CB, 0x400454CC, 0x400454CE
TUNSETOFFLOAD, TUNGETIFF, TUNSETVNETHDRSZ, TUNSETVNETLE = 0x400454D0, 0x800454D2, 0x400454D8, 0x400454DC
TUNDETACHFILTER, TUNGETDEVNETNS = 0x401054D6, 0x54E3
IFF_TUN, IFF_TAP, IFF_MULTI_QUEUE, IFF_PERSIST, IFF_NO_PI, IFF_VNET_HDR = 0x1, 0x2, 0x100, 0x800, 0x1000, 0x4000
IFF_TUN_EXCL = 0x8000
TUN_F_CSUM, TUN_F_TSO, TUN_F_USO = 0x1, 0x2 | 0x4 | 0x8, 0x20 | 0x40  # for IPv4, IPv6 and, of TCP, with ECN
# What is asked for, best first: kernels before 6.2 refuse to join datagrams of UDP.
WANTED = (TUN_F_CSUM | TUN_F_TSO | TUN_F_USO, TUN_F_CSUM | TUN_F_TSO, TUN_F_CSUM, 0)
REQUEST = struct.Struct(f"={NAME_SIZE}sH22x")  # struct ifreq, with its flags
KINDS = {"tap": IFF_TAP, "tun": IFF_TUN}


class Queues(NamedTuple):
    """The descriptors of a device, one a queue, the device's name, and whether it was made for them."""

    fds: list[int]
    name: str
    made: bool


def open_queues(kind: str, name: str, n: int, netns: str | None) -> Queues:
    """Open ``n`` queues of the device ``name``, which is made when there is none; ``%d`` in it is a number that is free.

    Raises :class:`PortError`, and leaves nothing open.
    """
    flags = KINDS[kind] | IFF_NO_PI | IFF_VNET_HDR
    several = IFF_MULTI_QUEUE if n > 1 else 0
    with contextlib.ExitStack() as undo, inside(netns):
        try:
            fd, real, made = _attach_first(kind, name, flags | several, undo)
        except PortError as error:
            if error.errno != errno.EINVAL:
                raise
            # An existing device has one queue or may have several, and wants to be opened as what it is.
            fd, real, made = *_attach(kind, name, flags | several ^ IFF_MULTI_QUEUE, undo), False
            if n > 1:
                raise PortError(
                    errno.EINVAL,
                    f"{kind}:{name}: the device has a single queue, got {n} workers; make it with `ip tuntap add dev {name} "
                    f"mode {kind} multi_queue`, or run with one worker",
                ) from error
        fds = [fd]
        while len(fds) < n:
            fds.append(_attach(kind, real, flags | several, undo)[0])
        undo.pop_all()
        return Queues(fds, real, made)


def _attach_first(kind: str, name: str, flags: int, undo: contextlib.ExitStack) -> tuple[int, str, bool]:
    """The first queue of a device; whether that is made by it is told by asking for one that is not there yet first."""
    try:
        return *_attach(kind, name, flags | IFF_TUN_EXCL, undo), True
    except PortError as error:
        if error.errno != errno.EBUSY:
            raise
    return *_attach(kind, name, flags, undo), False


def _attach(kind: str, name: str, flags: int, undo: contextlib.ExitStack) -> tuple[int, str]:
    """A new queue of a device: its descriptor, which ``undo`` closes, and the device's name."""
    try:
        fd = os.open(CONTROL, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PortError(error.errno, f"{kind}:{name}: {CONTROL} may not be opened: {error.strerror}") from error
        raise PortError(
            error.errno,
            f"{kind}:{name}: {CONTROL}: {error.strerror}; load it with `modprobe tun`, or give the container it",
        ) from error
    undo.callback(os.close, fd)
    try:
        answer = fcntl.ioctl(fd, TUNSETIFF, REQUEST.pack(os.fsencode(name), flags))
    except OSError as error:
        raise _refusal(kind, name, error) from error
    return fd, os.fsdecode(answer[:NAME_SIZE].rstrip(b"\0"))


def _refusal(kind: str, name: str, error: OSError) -> PortError:
    """What is said of a device that the kernel does not open."""
    label = f"{kind}:{name}"
    if error.errno in (errno.EPERM, errno.EACCES):
        return refused(label, f"make a {kind}, or to open one of somebody else", "CAP_NET_ADMIN")
    said = {
        errno.EBUSY: "it is in use by another program or port; end that one, or give another name",
        errno.EINVAL: f"there is an interface of that name which is no {kind}; give another name",
        errno.E2BIG: "it has as many queues as the kernel allows; run with fewer workers",
    }
    return PortError(error.errno, f"{label}: {said.get(error.errno or 0, error.strerror)}")


def frame(fd: int) -> None:
    """Have every packet of a queue's device begin with a virtio-net header of virtio 1, in little endian."""
    for request, value in ((TUNSETVNETHDRSZ, HEADER), (TUNSETVNETLE, 1)):
        fcntl.ioctl(fd, request, struct.pack("=i", value))


def allow(fd: int, offloads: bool) -> int:
    """Say what the kernel may leave to us: all that it can, or nothing; return TUN_F_*, as it then does."""
    for wanted in WANTED if offloads else (0,):
        try:
            fcntl.ioctl(fd, TUNSETOFFLOAD, wanted)
            return wanted
        except OSError:
            continue
    return 0


def keep(label: str, fd: int, persist: bool | None, owner: int | None, group: int | None) -> None:
    """Make the device persistent or not, and say whose it is; None leaves it as it is."""
    for request, value in ((TUNSETPERSIST, persist), (TUNSETOWNER, owner), (TUNSETGROUP, group)):
        if value is None:
            continue
        try:
            fcntl.ioctl(fd, request, int(value))
        except (OSError, OverflowError) as error:
            raise PortError(
                errno.EINVAL, f"{label}: got owner {owner} and group {group}, wanted ones that this system can have"
            ) from error


def name_of(fd: int) -> str | None:
    """The name of a queue's device now, whatever namespace it is in; None when the device is gone."""
    try:
        answer = fcntl.ioctl(fd, TUNGETIFF, bytes(REQUEST.size))
    except OSError:
        return None
    return os.fsdecode(answer[:NAME_SIZE].rstrip(b"\0"))


def is_persistent(fd: int) -> bool:
    """Whether a queue's device stays without its queues."""
    _, flags = REQUEST.unpack(fcntl.ioctl(fd, TUNGETIFF, bytes(REQUEST.size)))
    return bool(flags & IFF_PERSIST)


def namespace_of(fd: int) -> int | None:
    """A descriptor of the namespace that a queue's device is in now; None where we may not ask."""
    try:
        return fcntl.ioctl(fd, TUNGETDEVNETNS)
    except OSError:
        return None


def off_filter(fd: int) -> None:
    """Take off the filter that a tap may have; a tun has none."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, TUNDETACHFILTER, bytes(16))  # struct sock_fprog, which is not looked at


def drain(fds: list[int]) -> None:
    """Throw away what waits in queues, each no longer than it can be."""
    for fd in fds:
        with contextlib.suppress(BlockingIOError):
            for _ in range(MOST_WAITING):
                os.read(fd, 1 << 17)
