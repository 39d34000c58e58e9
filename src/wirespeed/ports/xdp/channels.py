"""How many queues an interface has, as its driver tells.

*Source:* include/uapi/linux/ethtool.h, ``struct ethtool_channels``.
"""

import array
import fcntl
import os
import socket
import struct

from wirespeed.ports.link.namespace import inside

SIOCETHTOOL = 0x8946  # include/uapi/linux/sockios.h
ETHTOOL_GCHANNELS = 0x3C
CHANNELS = struct.Struct("=9I")  # cmd; most rx, tx, other, combined; rx, tx, other, combined now
REQUEST = struct.Struct("16sP16x")  # struct ifreq with a pointer


def channels(name: str, netns: str | None) -> int:
    """The queues that receive; 1 where the driver does not tell."""
    answer = array.array("B", CHANNELS.pack(ETHTOOL_GCHANNELS, *[0] * 8))
    with inside(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        try:
            fcntl.ioctl(asking, SIOCETHTOOL, REQUEST.pack(os.fsencode(name), answer.buffer_info()[0]))
        except OSError:
            return 1
    told: tuple[int, ...] = CHANNELS.unpack(answer.tobytes())
    return max(1, told[5] + told[8])
