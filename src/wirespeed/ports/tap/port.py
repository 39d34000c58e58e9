"""The tap and tun ports: an interface of the kernel whose wire is a graph.

``tap:lan0`` is one that carries Ethernet frames, ``tun:vpn0`` one whose packets begin with the IP header.  What the
kernel transmits by the interface is received here, and what is transmitted here the kernel receives by it.  The device is
made when the run begins, unless there is one of that name, and goes with the run unless it is persistent.

One port may stand in a graph as source and as sink: both are the same device.
"""

import grp
import ipaddress
import os
import pwd
import re
from typing import Any, ClassVar

from wirespeed.core.element import Element
from wirespeed.errors import GraphError
from wirespeed.ports import options
from wirespeed.ports.link.interface import NAME_SIZE
from wirespeed.ports.options import Option, Wanted
from wirespeed.ports.tap.device import Device
from wirespeed.ports.tap.netlink import Address
from wirespeed.ports.tap.part import SinkPart, SourcePart
from wirespeed.ports.tap.present import Settings

MOST_MTU = 65535 - 14  # drivers/net/tun.c: MAX_MTU less an Ethernet header
_NUMBERED = re.compile(r"[^%]*(%d)?[^%]*")


def interfaces(value: Any) -> tuple[Address, ...]:
    """Parse one or more addresses with the length of their prefix."""
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        found = tuple(ipaddress.ip_interface(word) for word in words)
    except ValueError:
        found = ()
    if not found or not all("/" in str(word) for word in words):
        raise Wanted("addresses with the length of their prefix", "10.0.0.1/24")
    return found


def interface_mac(value: Any) -> int:
    """Parse an Ethernet address that an interface can have."""
    found = options.mac_address(value)
    if found == 0 or found >> 40 & 1:
        raise Wanted(
            "the address of one interface, no group's (whose first octet is odd) and not zero", "02:00:00:00:00:01"
        )
    return found


def account(of: Any, known: Any) -> Any:
    """A parser of users or groups, by number or by name."""

    def parse(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, str) and value.isdecimal():
            return int(value)
        try:
            return int(known(value)[2])
        except (KeyError, TypeError):
            raise Wanted(f"the name or number of a {of}", "1000") from None

    return parse


def _device_name(kind: str, target: str) -> str:
    size = len(os.fsencode(target))
    if size >= NAME_SIZE or any(c in target for c in "/: \t\n\0") or target in (".", ".."):
        raise GraphError(f"{kind}:{target}: a name has at most 15 bytes, no space, slash or colon; try {kind}:lan0")
    if not _NUMBERED.fullmatch(target):
        raise GraphError(f"{kind}:{target}: a name may have one %d, for a number that is free; try {kind}:lan%d")
    return target or f"{kind}%d"


class TapPort(Element):
    """``tap:name``; a name with ``%d`` gets a number, and :attr:`interface` says which.  Options are read at once."""

    KIND = "tap"
    SUMMARY = (
        "an interface of the kernel's, made here: what the kernel transmits there comes in, and the other way round"
    )
    link = 1
    OPTIONS: ClassVar[dict[str, Option]] = {
        "offloads": Option("yes/no", "yes", "take packets of up to 64 kB and unfinished checksums", options.flag),
        "up": Option("yes/no", "yes", "set the interface up", options.flag),
        "address": Option("addresses", None, "give the kernel's side addresses, such as 10.0.0.1/24", interfaces, True),
        "mac": Option("address", None, "its Ethernet address", interface_mac),
        "mtu": Option("bytes", None, "its MTU", options.size(68, MOST_MTU, "1500")),
        "persist": Option("yes/no", None, "have it stay when the run ends, or no longer", options.flag),
        "owner": Option("user", None, "who may open it without rights", account("user", pwd.getpwnam)),
        "group": Option("group", None, "which group may", account("group", grp.getgrnam)),
        "netns": Option("namespace", None, "make it in this network namespace", options.text),
        "move_to": Option("namespace", None, "hand it to this network namespace", options.text),
    }

    def __init__(self, target: str = "", **given: Any) -> None:
        values = options.read(self.KIND, self.OPTIONS, given)
        self.settings = Settings(
            self.KIND, _device_name(self.KIND, target), addresses=values.pop("address") or (), **values
        )
        self.name = f"{self.KIND}:{target}"
        self._device: Device | None = None

    def open(self, role: str, workers: int) -> "SourcePart | SinkPart":
        """Open the device, or share the one that is open for the other role.  Raises :class:`PortError`."""
        device = self._device
        if device is None or not device.fds:  # in a forked child it has let go of its parent's
            device = Device(self.settings, workers)
        if device.n != workers:
            raise GraphError(f"{self.name} is open with {device.n} queues, got {workers} workers; end the other run")
        part = SourcePart(self, device) if role == "source" else SinkPart(self, device)
        self._device = device
        return part

    def closed(self, device: Device) -> None:
        """The last part of a device was closed."""
        self._device = None

    @property
    def interface(self) -> str:
        """The name of the interface as it is now, while a run has it open; else the name that was given."""
        device = self._device
        return device.told.interface if device else self.settings.name


class TunPort(TapPort):
    """``tun:name``: packets begin with the header of IPv4 or IPv6, of link type 101."""

    KIND = "tun"
    SUMMARY = "the same without Ethernet: packets begin with the header of IPv4 or IPv6"
    link = 101
    OPTIONS: ClassVar[dict[str, Option]] = {k: v for k, v in TapPort.OPTIONS.items() if k != "mac"}
