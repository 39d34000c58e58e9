"""The interfaces of a network namespace as ports see them: driver, MTU, queues, offloads, and what XDP can do there.

*Theory of operation.* Two netlink dumps tell most of all interfaces at once; the driver and the offloads are asked of
each by ethtool's ioctl.  What the kernel cannot say (an old one, a driver without a word for it) is left empty.

*Source:* rtnetlink(7); include/uapi/linux/netdev.h (family ``netdev``, since Linux 6.3); include/uapi/linux/ethtool.h.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from dataclasses import dataclass

from wirespeed.observe import netlink
from wirespeed.ports.link.interface import IFF_RUNNING, IFF_UP, LINK_TYPES, NAME_SIZE
from wirespeed.ports.link.namespace import inside

RTM_GETLINK = 18  # include/uapi/linux/rtnetlink.h
LINK = struct.Struct("=BBHiII")  # struct ifinfomsg
IFLA_IFNAME, IFLA_MTU, IFLA_LINKINFO, IFLA_NUM_TX, IFLA_NUM_RX, IFLA_XDP = 3, 4, 18, 31, 32, 43  # if_link.h
IFLA_INFO_KIND, IFLA_XDP_ATTACHED = 1, 2
ATTACHED = {1: "native", 2: "generic", 3: "hardware", 4: "several"}  # XDP_ATTACHED_*
NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, NETDEV_A_DEV_XDP_FEATURES = 1, 1, 3  # netdev.h
XDP_FEATURES = {0: "native", 3: "zero-copy", 5: "long frames"}  # NETDEV_XDP_ACT_BASIC, XSK_ZEROCOPY, RX_SG
SIOCETHTOOL, ETHTOOL_GDRVINFO = 0x8946, 0x3  # sockios.h, ethtool.h
DRIVER_SIZE, DRIVER = 196, slice(4, 36)  # struct ethtool_drvinfo
ETHTOOL_GCHANNELS, CHANNELS = 0x3C, struct.Struct("=9I")  # struct ethtool_channels
OFFLOADS = {0x14: "rx checksums", 0x16: "tx checksums", 0x1E: "tso", 0x23: "gso", 0x2B: "gro"}  # ETHTOOL_G*


@dataclass(frozen=True)
class Seen:
    """One interface; ``queues`` are those in use for receiving and for transmitting, ``carries`` whether ports know its link.

    ``xdp`` has what its driver can do (``native``, ``zero-copy``, ``long frames``), ``attached`` how a program runs there
    now, or nothing.
    """

    name: str
    kind: str
    driver: str
    up: bool
    mtu: int
    queues: tuple[int, int]
    carries: bool
    offloads: tuple[str, ...]
    xdp: tuple[str, ...]
    attached: str


def seen(netns: str | None = None) -> list[Seen]:
    """Every interface of a namespace.  Raises :class:`PortError` when there is no such namespace."""
    features = {
        _number(told.get(NETDEV_A_DEV_IFINDEX, b"")): _number(told.get(NETDEV_A_DEV_XDP_FEATURES, b""))
        for told in netlink.generic("netdev", NETDEV_CMD_DEV_GET, netns)
    }
    with inside(netns):
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    with asking:
        return [
            _seen(asking, LINK.unpack(fixed), told, features)
            for fixed, told in netlink.routes(RTM_GETLINK, LINK.pack(0, 0, 0, 0, 0, 0), netns)
        ]


def _seen(asking: socket.socket, fixed: tuple[int, ...], told: netlink.Attributes, features: dict[int, int]) -> Seen:
    _, _, hardware, index, flags, _ = fixed
    name = os.fsdecode(told.get(IFLA_IFNAME, b"").rstrip(b"\0"))
    kind = netlink.attributes(told.get(IFLA_LINKINFO, b"")).get(IFLA_INFO_KIND, b"")
    attached = netlink.attributes(told.get(IFLA_XDP, b"")).get(IFLA_XDP_ATTACHED, b"")
    can = features.get(index, 0)
    return Seen(
        name=name,
        kind=os.fsdecode(kind.rstrip(b"\0")),
        driver=os.fsdecode(_ethtool(asking, name, ETHTOOL_GDRVINFO, DRIVER_SIZE)[DRIVER].rstrip(b"\0")),
        up=flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING,
        mtu=_number(told.get(IFLA_MTU, b"")),
        queues=_queues(asking, name) or (_number(told.get(IFLA_NUM_RX, b"")), _number(told.get(IFLA_NUM_TX, b""))),
        carries=hardware in LINK_TYPES,
        offloads=tuple(word for code, word in OFFLOADS.items() if _number(_ethtool(asking, name, code, 8)[4:8])),
        xdp=tuple(word for bit, word in XDP_FEATURES.items() if can >> bit & 1),
        attached=ATTACHED.get(_number(attached), ""),
    )


def _queues(asking: socket.socket, name: str) -> tuple[int, int] | None:
    """Queues that are in use; of those that an interface was made with some may be idle.  None: it does not say."""
    *_, rx, tx, _, both = CHANNELS.unpack(_ethtool(asking, name, ETHTOOL_GCHANNELS, CHANNELS.size))
    return (rx + both, tx + both) if rx + both else None


def _number(value: bytes) -> int:
    """A number as the kernel writes it, in the machine's order; 0 for none."""
    return int.from_bytes(value, sys.byteorder)


def _ethtool(asking: socket.socket, name: str, command: int, size: int) -> bytes:
    """What a driver answers; zeros where it has no answer."""
    answer = ctypes.create_string_buffer(struct.pack("=I", command).ljust(size, b"\0"), size)
    request = os.fsencode(name).ljust(NAME_SIZE, b"\0") + struct.pack("@P16x", ctypes.addressof(answer))
    try:
        fcntl.ioctl(asking, SIOCETHTOOL, request)
    except OSError:
        return bytes(size)
    return answer.raw
