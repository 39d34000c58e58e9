"""What the kernel tells of all things of one kind at once: a netlink dump, message by message, as attributes.

*Source:* netlink(7), rtnetlink(7), Documentation/userspace-api/netlink/intro.rst (the generic families).
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator

from wirespeed.errors import PortError
from wirespeed.ports.link.namespace import inside

NETLINK_ROUTE, NETLINK_GENERIC = 0, 16  # include/uapi/linux/netlink.h
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2  # genetlink.h
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
GENERIC = struct.Struct("=BBH")  # struct genlmsghdr
ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
KIND = 0x3FFF  # of an attribute's number; the two bits above say how its value is to be read
ALIGN = 4
LARGEST = 1 << 17
PATIENCE_S = 5.0

Attributes = dict[int, bytes]


def routes(kind: int, body: bytes, netns: str | None = None) -> Iterator[tuple[bytes, Attributes]]:
    """Each message of a dump of rtnetlink: the fixed part, as long as ``body``, and the attributes behind it."""
    for told in _ask(NETLINK_ROUTE, kind, NLM_F_REQUEST | NLM_F_DUMP, body, netns):
        yield told[: len(body)], attributes(told[len(body) :])


def generic(family: str, command: int, netns: str | None = None) -> Iterator[Attributes]:
    """The attributes of each message of a dump of a generic family; none where the kernel has not got it."""
    name = family.encode() + b"\0"
    asked = GENERIC.pack(CTRL_CMD_GETFAMILY, 1, 0) + ATTRIBUTE.pack(ATTRIBUTE.size + len(name), CTRL_ATTR_FAMILY_NAME)
    try:
        found = list(_ask(NETLINK_GENERIC, GENL_ID_CTRL, NLM_F_REQUEST, asked + _padded(name), netns))
        number = struct.unpack("=H", attributes(found[0][GENERIC.size :])[CTRL_ATTR_FAMILY_ID])[0]
        dump = list(_ask(NETLINK_GENERIC, number, NLM_F_REQUEST | NLM_F_DUMP, GENERIC.pack(command, 1, 0), netns))
    except (OSError, LookupError, struct.error):
        return
    for told in dump:
        yield attributes(told[GENERIC.size :])


def attributes(block: bytes) -> Attributes:
    """The attributes in a message by their numbers; what is cut short is left out."""
    found: Attributes = {}
    at = 0
    while at + ATTRIBUTE.size <= len(block):
        size, kind = ATTRIBUTE.unpack_from(block, at)
        if size < ATTRIBUTE.size or at + size > len(block):
            break
        found[kind & KIND] = block[at + ATTRIBUTE.size : at + size]
        at += -(-size // ALIGN) * ALIGN
    return found


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % ALIGN)


def _ask(protocol: int, kind: int, flags: int, body: bytes, netns: str | None) -> Iterator[bytes]:
    """What answers a request, without the headers: all of a dump, or one message."""
    with inside(netns):
        asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    with asking:
        asking.settimeout(PATIENCE_S)
        asking.send(HEADER.pack(HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            told, at = asking.recv(LARGEST), 0
            while at + HEADER.size <= len(told):
                size, answer, *_ = HEADER.unpack_from(told, at)
                if size < HEADER.size or at + size > len(told):
                    raise PortError(errno.EBADMSG, "netlink: the kernel's answer is cut short")
                if answer == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", told, at + HEADER.size)[0]
                    raise PortError(code, f"netlink: {os.strerror(code)}")
                if answer == NLMSG_DONE:
                    return
                yield told[at + HEADER.size : at + size]
                at += -(-size // ALIGN) * ALIGN
            if flags & NLM_F_DUMP != NLM_F_DUMP:
                return
