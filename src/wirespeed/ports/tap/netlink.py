"""Requests to the kernel about interfaces: their state, address, MTU and namespace, and what it counts of them.

*Source:* rtnetlink(7), netlink(7), include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h.
"""

import errno
import ipaddress
import os
import socket
import struct
from typing import Self

from wirespeed.errors import PortError
from wirespeed.ports.link.interface import IFF_UP
from wirespeed.ports.link.namespace import inside
from wirespeed.ports.link.rights import refused
from wirespeed.ports.link.watch import ATTRIBUTE, HEADER, LINK, NETLINK_ROUTE, RTM_NEWLINK

Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface
NLMSG_ERROR, RTM_DELLINK, RTM_GETLINK, RTM_NEWADDR = 2, 17, 18, 20
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE = 0x1, 0x4, 0x100, 0x400
IFLA_ADDRESS, IFLA_MTU, IFLA_STATS64, IFLA_NET_NS_FD = 1, 4, 23, 28
IFA_ADDRESS, IFA_LOCAL, IFA_F_NODAD = 1, 2, 0x02
ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
COUNTS = struct.Struct("=8Q")  # the beginning of struct rtnl_link_stats64
TX_DROPPED = 7
LARGEST = 1 << 15


class Netlink:
    """A socket for requests in one namespace; a context manager.  One thread at a time."""

    def __init__(self, netns: str | None = None) -> None:
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def change_link(
        self,
        name: str,
        index: int,
        *,
        up: bool | None = None,
        mtu: int | None = None,
        mac: int | None = None,
        netns: int | None = None,
    ) -> None:
        """Change an interface: set it up or down, its MTU, its address, or hand it to the namespace of a descriptor."""
        attributes = b""
        for kind, value in ((IFLA_MTU, mtu), (IFLA_NET_NS_FD, netns)):
            if value is not None:
                attributes += _attribute(kind, struct.pack("=I", value))
        if mac is not None:
            attributes += _attribute(IFLA_ADDRESS, mac.to_bytes(6, "big"))
        flags, mask = (IFF_UP if up else 0), (IFF_UP if up is not None else 0)
        body = LINK.pack(socket.AF_UNSPEC, 0, 0, index, flags, mask) + attributes
        self._ask(name, "change an interface", RTM_NEWLINK, NLM_F_ACK, body)

    def delete(self, name: str, index: int) -> None:
        """Delete an interface."""
        self._ask(name, "delete an interface", RTM_DELLINK, NLM_F_ACK, LINK.pack(socket.AF_UNSPEC, 0, 0, index, 0, 0))

    def add_address(self, name: str, index: int, address: Address) -> None:
        """Give an interface an address of the kernel's; one that it has already is no error."""
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        body = ADDRESS.pack(family, address.network.prefixlen, IFA_F_NODAD, 0, index)
        for kind in (IFA_LOCAL, IFA_ADDRESS):
            body += _attribute(kind, address.ip.packed)
        self._ask(name, f"give it the address {address}", RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, body)

    def dropped(self, name: str, index: int) -> int:
        """How many packets that it was to transmit an interface has dropped."""
        body = LINK.pack(socket.AF_UNSPEC, 0, 0, index, 0, 0)
        told = self._ask(name, "ask for its counters", RTM_GETLINK, 0, body)
        at = HEADER.size + LINK.size
        while at + ATTRIBUTE.size <= len(told):
            size, kind = ATTRIBUTE.unpack_from(told, at)
            if size < ATTRIBUTE.size:
                break
            if kind == IFLA_STATS64 and at + ATTRIBUTE.size + COUNTS.size <= len(told):
                return int(COUNTS.unpack_from(told, at + ATTRIBUTE.size)[TX_DROPPED])
            at += -(-size // 4) * 4
        return 0

    def _ask(self, name: str, what: str, kind: int, flags: int, body: bytes) -> bytes:
        """Send one request; the kernel's answer, or :class:`PortError` when it is one of its refusals."""
        self._socket.send(HEADER.pack(HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 0, 0) + body)
        told = self._socket.recv(LARGEST)
        if HEADER.unpack_from(told)[1] == NLMSG_ERROR:
            code = -struct.unpack_from("=i", told, HEADER.size)[0]
            if code in (errno.EPERM, errno.EACCES):
                raise refused(name, what, "CAP_NET_ADMIN")
            if code:
                raise PortError(code, f"{name}: got {os.strerror(code)!r} when it was to {what}")
        return told


def _attribute(kind: int, value: bytes) -> bytes:
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value.ljust(-(-len(value) // 4) * 4, b"\0")
