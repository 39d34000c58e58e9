"""The primitives that compare ports: port and portrange, of TCP, UDP and SCTP over IPv4 and IPv6.

An IPv4 fragment other than the first has no ports and never matches. IPv6's extension headers are not followed.

*Source:* pcap-filter(7); RFC 791, RFC 8200, RFC 9293, RFC 768, RFC 9260.
"""

import re

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter.block import Condition, all_of, any_of, both, either
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.host import directed
from wirespeed.net.filter.kind import is_kind, limited
from wirespeed.net.filter.layers import BEHIND4, BEHIND6, PAYLOAD, Layers
from wirespeed.net.filter.literal import number
from wirespeed.net.filter.names import Names

TRANSPORTS = {"tcp": et.TCP, "udp": et.UDP, "sctp": et.SCTP}
EACH = tuple(TRANSPORTS.values())
FRAGMENT_OFFSET = 0x1FFF
NUMERIC = re.compile("[0-9]+|0[xX][0-9A-Fa-f]+")


def ports(layers: Layers, direction: str | None, low: int, high: int, transports: tuple[int, ...]) -> Condition:
    """A port within a range, over either version of IP."""
    over6 = ports6(layers, direction, low, high, transports)
    return either(over6, ports4(layers, direction, low, high, transports))


def ports4(layers: Layers, direction: str | None, low: int, high: int, transports: tuple[int, ...]) -> Condition:
    """The same over IPv4."""
    transport = any_of(*(layers.equal(PAYLOAD, 9, 1, one) for one in transports))
    whole = layers.has_bits(PAYLOAD, 6, 2, FRAGMENT_OFFSET, positive=False)
    found = _within(layers, BEHIND4, direction, low, high)
    return all_of(is_kind(layers, et.IP), transport, whole, found)


def ports6(layers: Layers, direction: str | None, low: int, high: int, transports: tuple[int, ...]) -> Condition:
    """The same over IPv6."""
    transport = any_of(*(layers.equal(PAYLOAD, 6, 1, one) for one in transports))
    return all_of(is_kind(layers, et.IPV6), transport, _within(layers, BEHIND6, direction, low, high))


def _within(layers: Layers, where: int, direction: str | None, low: int, high: int) -> Condition:
    def test(way: str) -> Condition:
        offset = 0 if way == "src" else 2
        if low == high:
            return layers.equal(where, offset, 2, low)
        return both(layers.at_least(where, offset, 2, low), layers.at_most(where, offset, 2, high))

    return directed(direction, test)


def transports_of(protocol: str | None, word: str) -> tuple[int, ...]:
    """The transports that a protocol's word means."""
    if protocol is None:
        return EACH
    if protocol not in TRANSPORTS:
        raise FilterError(f"'{protocol}' does not go with '{word}'; tcp, udp and sctp do")
    return (TRANSPORTS[protocol],)


def numbered(layers: Layers, protocol: str | None, direction: str | None, port: int, word: str) -> Condition:
    """A port by its number."""
    transports = transports_of(protocol, word)
    limited(port, 0xFFFF, "port number")
    return ports(layers, direction, port, port, transports)


def named_port(layers: Layers, names: Names, protocol: str | None, direction: str | None, name: str) -> Condition:
    """A port by the name of its service."""
    transports = transports_of(protocol, "port")
    if NUMERIC.fullmatch(name):
        port, owners = number(name), EACH
        limited(port, 0xFFFF, "port number")
    else:
        port, owners = _service(names, name)
    return ports(layers, direction, port, port, _both_mean(transports, owners, name))


def named_range(layers: Layers, names: Names, protocol: str | None, direction: str | None, text: str) -> Condition:
    """A range ``FIRST-LAST`` of ports, each a number or the name of a service."""
    transports = transports_of(protocol, "portrange")
    parts = text.split("-")
    if len(parts) != 2 or not all(parts):
        raise FilterError(f"'{text}' is no range of ports; write FIRST-LAST, such as 6000-6008")
    ends = [(number(part), EACH) if NUMERIC.fullmatch(part) else _service(names, part) for part in parts]
    low, high = sorted(limited(port, 0xFFFF, "port number") for port, _ in ends)
    owners = ends[0][1] if ends[0][1] == ends[1][1] else EACH
    return ports(layers, direction, low, high, _both_mean(transports, owners, text))


def _service(names: Names, name: str) -> tuple[int, tuple[int, ...]]:
    """The port of a service, and whose it is: TCP's or UDP's if the other one has another port or none."""
    tcp, udp = names.service(name, "tcp"), names.service(name, "udp")
    if tcp is None and udp is None:
        raise FilterError(f"unknown port '{name}'")
    if tcp is None or udp is None or tcp != udp:
        return (tcp, (et.TCP,)) if tcp is not None else (udp or 0, (et.UDP,))
    return tcp, EACH


def _both_mean(wanted: tuple[int, ...], owners: tuple[int, ...], name: str) -> tuple[int, ...]:
    """The transports that the qualifier and the service agree on."""
    common = tuple(one for one in EACH if one in wanted and one in owners)
    if not common:
        owner = next(word for word, one in TRANSPORTS.items() if one in owners)
        raise FilterError(f"port '{name}' is of {owner}")
    return common
