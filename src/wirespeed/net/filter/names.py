"""What names in a filter expression stand for: hosts, networks, hardware addresses, ports and protocols.

The databases of the system are asked (``/etc/hosts``, ``/etc/networks``, ``/etc/ethers``, ``/etc/services``,
``/etc/protocols``); a host's name may go to the resolver.  Nothing else in the filter language leaves the process.
"""

import contextlib
import socket
from pathlib import Path

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.literal import mac

MOST_ADDRESSES = 100  # of one family that a name may have
_PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": et.TCP, "udp": et.UDP, "esp": 50, "ah": 51, "sctp": et.SCTP, "pim": 103}


class Names:
    """The system's databases of names; tests and programs with names of their own give another one."""

    def __init__(self) -> None:
        self._hosts: dict[str, tuple[list[int], list[int]]] = {}

    def host(self, name: str) -> tuple[list[int], list[int]]:
        """The IPv4 and the IPv6 addresses of a host, each sorted; none for an unknown one.  A resolver is asked once."""
        if name not in self._hosts:
            self._hosts[name] = self._resolved(name)
        return self._hosts[name]

    def _resolved(self, name: str) -> tuple[list[int], list[int]]:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return [], []
        addresses: dict[int, set[int]] = {socket.AF_INET: set(), socket.AF_INET6: set()}
        for family, _, _, _, address in found:
            if family in addresses:
                text = str(address[0]).partition("%")[0]
                addresses[family].add(int.from_bytes(socket.inet_pton(family, text)))
        v4, v6 = (sorted(addresses[family]) for family in (socket.AF_INET, socket.AF_INET6))
        if len(v4) > MOST_ADDRESSES or len(v6) > MOST_ADDRESSES:
            raise FilterError(f"host '{name}' has more than {MOST_ADDRESSES} addresses of one family")
        return v4, v6

    def network(self, name: str) -> int:
        """The number of a network, 0 for an unknown one."""
        for words in _lines("/etc/networks"):
            if len(words) > 1 and name in (words[0], *words[2:]):
                parts = words[1].split(".")
                with contextlib.suppress(ValueError):
                    return int.from_bytes(bytes(int(part) for part in parts))
        return 0

    def hardware(self, name: str) -> bytes | None:
        """The hardware address of a host, None for an unknown one."""
        for words in _lines("/etc/ethers"):
            if len(words) > 1 and words[1] == name:
                with contextlib.suppress(ValueError):
                    address = mac(words[0])
                    if len(address) == 6:
                        return address
        return None

    def service(self, name: str, transport: str) -> int | None:
        """The port of a service of tcp or udp, None for an unknown one."""
        try:
            return socket.getservbyname(name, transport)
        except (OSError, UnicodeError):
            return None

    def protocol(self, name: str) -> int | None:
        """The number of an IP protocol, None for an unknown one."""
        try:
            return socket.getprotobyname(name)
        except (OSError, UnicodeError):
            return _PROTOCOLS.get(name)


def _lines(path: str) -> list[list[str]]:
    """The words of each line of a database, without remarks; none if there is no such file."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return []
    return [words for line in text.splitlines() if (words := line.partition("#")[0].split())]
