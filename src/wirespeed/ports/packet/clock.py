"""Whether an interface has a clock of its own, and stamps what it receives by it, as the kernel tells ``ethtool -T``.

*Source:* Linux, include/uapi/linux/ethtool.h, Documentation/networking/timestamping.rst.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct

from wirespeed.errors import PortError
from wirespeed.ports.link.interface import NAME_SIZE
from wirespeed.ports.link.namespace import inside

SIOCETHTOOL, ETHTOOL_GET_TS_INFO = 0x8946, 0x41
INFO = struct.Struct("=IIiI12xI12x")  # struct ethtool_ts_info: cmd, so_timestamping, phc_index, tx_types, rx_filters
RX_HARDWARE, RAW_HARDWARE = 1 << 2, 1 << 6  # SOF_TIMESTAMPING_*
NEEDED = RX_HARDWARE | RAW_HARDWARE
UNKNOWN = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


def require_clock(name: str, netns: str | None) -> None:
    """Raise :class:`PortError` when an interface is known to stamp nothing by a clock of its own."""
    info = _ask(name, netns)
    if info is not None and not has_clock(info):
        raise PortError(
            errno.EOPNOTSUPP,
            f"{name}: got timestamps=hardware, wanted an interface with a clock that stamps what it receives, which"
            f" this is not (see: ethtool -T {name}); leave timestamps out for those of the kernel",
        )


def has_clock(info: bytes) -> bool:
    """Whether what the kernel says of an interface (``struct ethtool_ts_info``) has stamps of its own."""
    _, kinds, _, _, filters = INFO.unpack(info)
    # Of the kinds of packets that can be stamped, the first bit is for none.
    return bool(kinds & NEEDED == NEEDED and filters & ~1)


def _ask(name: str, netns: str | None) -> bytes | None:
    """What the kernel says of an interface's stamps, or None where it cannot."""
    info = ctypes.create_string_buffer(INFO.pack(ETHTOOL_GET_TS_INFO, 0, 0, 0, 0), INFO.size)
    request = os.fsencode(name).ljust(NAME_SIZE, b"\0") + struct.pack("P16x", ctypes.addressof(info))
    with inside(netns):
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    with asking:
        try:
            fcntl.ioctl(asking, SIOCETHTOOL, request)
        except OSError as error:
            if error.errno in UNKNOWN:
                return None
            raise PortError(error.errno, f"{name}: asking for its clock: {error.strerror}") from error
    return info.raw
