"""The frame that a generator sends over and over: built from options or given, resized, and put in order.

A template knows where its outer headers are.  Lengths in headers are those of the frame, and checksums are right, each
as far as the frame has the bytes that they cover: a fragment's transport checksum is left as it stands.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.core.frame import ETHERNET, as_packets
from wirespeed.errors import GraphError
from wirespeed.net.dissect import Header, layers
from wirespeed.net.headers import HEADERS, Ethernet, IPv4, IPv6, Tcp, Udp, Vlan
from wirespeed.net.layer import LAYER_BAD, LAYER_CUT, LAYER_FIRST_FRAGMENT, LAYER_LATER_FRAGMENT
from wirespeed.net.protocol import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_VLAN,
    PROTO_ICMPV6,
    PROTO_TCP,
    PROTO_UDP,
)
from wirespeed.net.trailer import TRAILER

TRANSPORTS = {"udp": PROTO_UDP, "tcp": PROTO_TCP, "icmp": 0, "icmpv6": PROTO_ICMPV6, "sctp": 0}
CHECKSUM_AT = {"udp": 6, "tcp": 16, "icmp": 2, "icmpv6": 2, "sctp": 8}  # of the field, behind the header's begin
UNSUMMABLE = LAYER_BAD | LAYER_CUT | LAYER_FIRST_FRAGMENT | LAYER_LATER_FRAGMENT
LONGEST_IP = 0xFFFF


@dataclass(frozen=True)
class Template:
    """A frame and where its outer headers begin, by their attribute in ``HEADERS``.

    ``ip`` and ``transport`` name the headers whose checksums can be reckoned, or are empty; ``end`` is where what the
    transport checksum covers ends, ``least`` the smallest size that leaves every header whole.
    """

    data: bytes
    link: int = ETHERNET
    places: Mapping[str, int] = field(default_factory=dict)
    ip: str = ""
    transport: str = ""
    end: int = 0
    least: int = 0


def build(values: Mapping[str, Any]) -> bytes:
    """The headers that a generator's options describe."""
    source, target = (ipaddress.ip_address(values[name]) for name in ("src", "dst"))
    if source.version != target.version:
        raise GraphError(f"generator sends from {source} to {target}; give both as IPv4 or both as IPv6 addresses")
    eth = bytearray(Ethernet.size)
    record = Ethernet(eth)
    record.dst, record.src = values["eth_dst"], values["eth_src"]
    kind = ETHERTYPE_IPV4 if source.version == 4 else ETHERTYPE_IPV6
    record.type = kind if values["vlan"] is None else ETHERTYPE_VLAN
    protocol = TRANSPORTS[values["proto"]]
    ip = _ipv4(source, target, protocol, values) if source.version == 4 else _ipv6(source, target, protocol, values)
    return bytes(eth + _tag(values, kind) + ip + _transport(protocol, values))


def _tag(values: Mapping[str, Any], kind: int) -> bytearray:
    if values["vlan"] is None:
        return bytearray()
    tag = bytearray(Vlan.size)
    record = Vlan(tag)
    record.vlan, record.prio, record.type = values["vlan"], values["prio"], kind
    return tag


def _ipv4(source: Any, target: Any, protocol: int, values: Mapping[str, Any]) -> bytearray:
    header = bytearray(IPv4.size)
    record = IPv4(header)
    record.version, record.ihl, record.tos, record.ttl, record.proto = 4, 5, values["tos"], values["ttl"], protocol
    record.src, record.dst = int(source), int(target)
    return header


def _ipv6(source: Any, target: Any, protocol: int, values: Mapping[str, Any]) -> bytearray:
    header = bytearray(IPv6.size)
    record = IPv6(header)
    record.version, record.tc, record.hlim, record.nh = 6, values["tos"], values["ttl"], protocol
    header[8:24], header[24:40] = source.packed, target.packed
    return header


def _transport(protocol: int, values: Mapping[str, Any]) -> bytearray:
    declared = Udp if protocol == PROTO_UDP else Tcp
    header = bytearray(declared.size)
    record = declared(header)
    record.sport, record.dport = values["sport"], values["dport"]
    record.chksum = 0xFFFF  # to be reckoned; 0 would say that a datagram has none
    if protocol == PROTO_TCP:
        record.dataofs, record.flags, record.window = 5, 0x10, 0xFFFF  # ACK
    return header


def given(frame: Any) -> tuple[bytes, int]:
    """The bytes of a template and its link type: of text in hex, bytes, or anything with ``__bytes__``."""
    if isinstance(frame, str):
        try:
            return bytes.fromhex(frame.replace(":", "")), ETHERNET
        except ValueError:
            raise GraphError(f"template {frame[:40]!r} is not hexadecimal; give two digits for each byte") from None
    (packet,) = as_packets([frame])
    return packet.data, packet.link


def read(data: bytes, link: int = ETHERNET) -> Template:
    """Find the outer headers of a frame."""
    outer = _outer(layers(data, link))
    places: dict[str, int] = {}
    for header in outer:
        name = "vlan2" if header.name == "vlan" and "vlan" in places else header.name
        if name in HEADERS and header.whole:
            places.setdefault(name, header.offset)
    least = max((h.offset + h.length for h in outer), default=0)
    network = next((h for h in outer if h.name in ("ipv4", "ipv6") and h.whole and not h.flags & LAYER_BAD), None)
    if network is None:
        return Template(data, link, places, least=least)
    last = next((h for h in outer if h.name in CHECKSUM_AT and h.whole), None)
    if last is None or not _summable(data, outer, last):
        return Template(data, link, places, network.name, least=least)
    return Template(data, link, places, network.name, last.name, last.end, least)


def _summable(data: bytes, outer: list[Header], last: Header) -> bool:
    """Whether the transport header has a checksum, and the frame all that it covers."""
    if any(h.flags & UNSUMMABLE or h.name == "routing" for h in outer):  # a routing header hides the destination
        return False
    return last.name != "udp" or Udp(data, last.offset).chksum != 0


def _outer(headers: list[Header]) -> list[Header]:
    """The headers up to where a tunnel's inner frame begins."""
    found: list[Header] = []
    for header in headers:
        inner = any(h.name in ("ipv4", "ipv6", "arp") for h in found)
        if inner and header.name in ("eth", "vlan", "ppp", "mpls", "arp", "ipv4", "ipv6"):
            break
        found.append(header)
    return found


def resized(template: Template, size: int) -> Template:
    """The same with ``size`` bytes: its payload cut or filled up with zeros, the lengths in its headers set."""
    if size < template.least:
        raise GraphError(
            f"generator option size: got {size}, wanted at least {template.least}, "
            f"which the headers take; try size={template.least}"
        )
    data = bytearray(template.data[:size].ljust(size, b"\0"))
    if not template.ip:
        return Template(bytes(data), template.link, template.places, least=template.least)
    at = template.places[template.ip]
    length = size - at if template.ip == "ipv4" else size - at - IPv6.size
    if length > LONGEST_IP:
        most = size - length + LONGEST_IP
        raise GraphError(f"generator option size: got {size}, wanted at most {most}, for IP has 16 bits of length")
    if template.ip == "ipv4":
        IPv4(data, at).len = length
    else:
        IPv6(data, at).plen = length
    if "udp" in template.places:
        Udp(data, template.places["udp"]).len = size - template.places["udp"]
    return read(bytes(data), template.link)


def for_trailer(template: Template, size: int) -> Template:
    """The same with ``size`` bytes, of which the last ones are zero and for a trailer."""
    if size < template.least + TRAILER:
        raise GraphError(
            f"generator option size: got {size}, wanted at least {template.least + TRAILER}, which the headers and a "
            f"trailer take; try size={template.least + TRAILER}"
        )
    made = resized(template, size)
    return replace(made, data=made.data[:-TRAILER] + bytes(TRAILER))


def sums(template: Template) -> tuple[int, int]:
    """The ones' complement sums under the IPv4 and the transport checksum, their own fields counted as 0.

    0 where there is no such checksum.
    """
    network = template.places.get(template.ip, 0)
    ip = transport = 0
    if template.ip == "ipv4":
        size = 4 * IPv4(template.data, network).ihl
        ip = _ones_sum(template.data[network : network + size], 10)
    if template.transport:
        at = template.places[template.transport]
        transport = _ones_sum(template.data[at : template.end], CHECKSUM_AT[template.transport])
        if TRANSPORTS[template.transport]:
            transport += TRANSPORTS[template.transport] + template.end - at
            first = network + (12 if template.ip == "ipv4" else 8)
            transport += _ones_sum(template.data[first : network + (20 if template.ip == "ipv4" else 40)])
    return ip, transport


def _ones_sum(data: bytes, hole: int = -1) -> int:
    """The ones' complement sum (RFC 1071) is the number that the bytes make, modulo 2^16 - 1."""
    if hole >= 0:
        data = data[:hole] + b"\0\0" + data[hole + 2 :]
    return int.from_bytes(data + bytes(len(data) % 2), "big") % 0xFFFF
