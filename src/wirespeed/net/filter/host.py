"""The primitives that compare addresses: host, net and gateway, of IPv4, IPv6, ARP, DECnet and link layers.

*Source:* pcap-filter(7); RFC 791, RFC 826, RFC 8200; IEEE 802.11-2020 table 9-60 (which address is which); DECnet
Phase IV routing, 1983 (its long and short headers).
"""

from collections.abc import Callable

from wirespeed.net.filter import ethertype as et
from wirespeed.net.filter import link_type
from wirespeed.net.filter.block import Condition, all_of, any_of, both, either, inverse
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.kind import is_kind, previous_check
from wirespeed.net.filter.layers import HEADER, PAYLOAD, Layers
from wirespeed.net.filter.names import Names
from wirespeed.net.filter.wlan import wlan_host

ALL = 0xFFFFFFFF
WLAN_ONLY = ("addr1", "addr2", "addr3", "addr4", "ra", "ta")
# Where the sender's and the receiver's IPv4 address are.
OFFSETS4 = {"ip": (et.IP, 12, 16), "arp": (et.ARP, 14, 24), "rarp": (et.REVARP, 14, 24)}
# Where a frame has the sender's and the receiver's hardware address.
OFFSETS_MAC = {
    **dict.fromkeys(link_type.ETHERNETS, (6, 0)),
    "FDDI": (7, 1),
    "IEEE802": (8, 2),
    "IP_OVER_FC": (10, 2),
}
OFFSETS_MAC8 = {"ARCNET": (0, 1), "ARCNET_LINUX": (0, 1), "BACNET_MS_TP": (4, 3)}
DECNET_LONG, DECNET_SHORT, DECNET_MASK, DECNET_PAD = 0x06, 0x02, 0x07, 0x81


def directed(direction: str | None, test: Callable[[str], Condition]) -> Condition:
    """A test of the sender's address, the receiver's, or both of them."""
    if direction in WLAN_ONLY:
        raise FilterError(f"'{direction}' is of 802.11 hardware addresses only")
    if direction in ("src", "dst"):
        return test(direction)
    return (both if direction == "src and dst" else either)(test("src"), test("dst"))


def hosts4(
    layers: Layers, pairs: list[tuple[int, int]], protocol: str | None, direction: str | None, negative: bool = False
) -> Condition:
    """One of some IPv4 addresses, each with its mask; ``negative``: a packet of the protocol with none of them."""
    if protocol is None:
        kinds = ("ip",) if layers.labels else ("ip", "arp", "rarp")
        return any_of(*(hosts4(layers, pairs, kind, direction, negative) for kind in kinds))
    if protocol not in OFFSETS4:
        raise FilterError(f"'{protocol}' does not go with an IPv4 address")
    kind, source, destination = OFFSETS4[protocol]
    carried = is_kind(layers, kind)
    if carried.always is False:
        return carried

    def one(address: int, mask: int) -> Callable[[str], Condition]:
        return lambda way: layers.equal(PAYLOAD, source if way == "src" else destination, 4, address, mask)

    found = any_of(*(directed(direction, one(address, mask)) for address, mask in pairs))
    return both(carried, inverse(found) if negative else found)


def hosts6(
    layers: Layers, pairs: list[tuple[int, int]], protocol: str | None, direction: str | None, negative: bool = False
) -> Condition:
    """One of some IPv6 addresses, each with its mask."""
    if protocol not in (None, "ip6"):
        raise FilterError(f"'{protocol}' does not go with an IPv6 address")

    def one(address: int, mask: int) -> Callable[[str], Condition]:
        def test(way: str) -> Condition:
            offset = 8 if way == "src" else 24
            words = [
                layers.equal(PAYLOAD, offset + 4 * n, 4, address >> 96 - 32 * n & ALL, mask >> 96 - 32 * n & ALL)
                for n in range(4)
            ]
            return all_of(*words)

        return test

    carried = is_kind(layers, et.IPV6)
    found = any_of(*(directed(direction, one(address, mask)) for address, mask in pairs))
    return both(carried, inverse(found) if negative else found)


def named_host(
    layers: Layers,
    names: Names,
    name: str,
    protocols: tuple[str | None, str | None],
    direction: str | None,
    negative: bool = False,
) -> Condition:
    """One of the addresses of a name; ``protocols`` are those of its IPv4 and of its IPv6 addresses."""
    for4, for6 = protocols
    v4, v6 = names.host(name)
    found = []
    if v4 and for4 != "ip6":
        found.append(hosts4(layers, [(address, ALL) for address in v4], for4, direction, negative))
    if v6 and for6 not in ("ip", "arp", "rarp"):
        found.append(hosts6(layers, [(address, (1 << 128) - 1) for address in v6], for6, direction, negative))
    if not found:
        raise FilterError(f"unknown host '{name}'" + (f" with an address for '{for4}'" if for4 and (v4 or v6) else ""))
    return any_of(*found)


def gateway(layers: Layers, names: Names, name: str, protocol: str | None) -> Condition:
    """Sent or received by a host's hardware address, but not by one of its IPv4 addresses: it was routed there."""
    if protocol not in (None, "ip", "arp", "rarp"):
        raise FilterError(f"'{protocol}' does not go with 'gateway'")
    if layers.labels:
        raise FilterError("'gateway' cannot be used within MPLS")
    if layers.in_tunnel:
        raise FilterError("'gateway' cannot be used within VXLAN or Geneve")
    beside = named_mac(layers, names, name, None, "gateway")
    return both(beside, named_host(layers, names, name, (protocol, "ip"), None, negative=True))


def named_mac(layers: Layers, names: Names, name: str, direction: str | None, word: str) -> Condition:
    """The hardware address of a name."""
    if layers.link not in OFFSETS_MAC and layers.link not in link_type.WLANS:
        raise layers.refuse(word)
    address = names.hardware(name)
    if address is None:
        raise FilterError(f"no hardware address is known for '{name}' (/etc/ethers)")
    return mac_host(layers, address, direction, word)


def mac_host(layers: Layers, address: bytes, direction: str | None, word: str) -> Condition:
    """A hardware address of six bytes."""
    if layers.link in link_type.WLANS:
        return wlan_host(layers, address, direction)
    if layers.link not in OFFSETS_MAC:
        raise layers.refuse(word)
    source, destination = OFFSETS_MAC[layers.link]
    check = previous_check(layers) if layers.link in link_type.ETHERNETS else None
    found = directed(
        direction, lambda way: layers.bytes_equal(HEADER, source if way == "src" else destination, address)
    )
    return found if check is None else both(check, found)


def mac8_host(layers: Layers, address: int, direction: str | None, word: str) -> Condition:
    """A hardware address of one byte, of ARCNET and BACnet MS/TP."""
    if layers.link not in OFFSETS_MAC8:
        raise layers.refuse(word)
    source, destination = OFFSETS_MAC8[layers.link]
    return directed(direction, lambda way: layers.equal(HEADER, source if way == "src" else destination, 1, address))


def decnet_host(layers: Layers, address: int, direction: str | None) -> Condition:
    """A DECnet node, in a short or a long header, each with or without a byte of padding before it."""
    swapped = address >> 8 | (address & 0xFF) << 8  # DECnet is little-endian

    def test(way: str) -> Condition:
        short, long = (1, 7) if way == "dst" else (3, 15)

        def header(flags: int) -> Condition:
            return layers.equal(PAYLOAD, 2, 1, flags, DECNET_MASK)

        def padded(flags: int) -> Condition:
            return layers.equal(PAYLOAD, 2, 2, DECNET_PAD << 8 | flags, 0xFF00 | DECNET_MASK)

        def node(offset: int) -> Condition:
            return layers.equal(PAYLOAD, 2 + offset, 2, swapped)

        if way == "dst":
            # The flags and this address are within one word, so that one load compares both.
            first = layers.equal(PAYLOAD, 2, 4, DECNET_SHORT << 24 | swapped << 8, DECNET_MASK << 24 | 0xFFFF00)
            second = layers.equal(PAYLOAD, 2, 4, (DECNET_PAD << 8 | DECNET_SHORT) << 16 | swapped, 0xFF07FFFF)
        else:
            first, second = both(header(DECNET_SHORT), node(short)), both(padded(DECNET_SHORT), node(short + 1))
        return any_of(first, second, both(header(DECNET_LONG), node(long)), both(padded(DECNET_LONG), node(long + 1)))

    return both(is_kind(layers, et.DECNET), directed(direction, test))
