"""The headers of Ethernet captures, field by field under scapy's names, as scapy dissects them.

Both ways: each header that scapy finds is one of ours, at the same offset and with the same values read through our
layout, and each whole header of ours is one that scapy finds.  Of a large file every so many-th packet is looked at,
for scapy takes a third of a millisecond for each; the long form of the tests looks at all.

Frames that are shorter than an Ethernet header are left out: scapy raises an exception over them.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.all import (
    ARP,
    GRE,
    ICMP,
    IP,
    SCTP,
    TCP,
    UDP,
    Dot1AD,
    Dot1Q,
    Dot3,
    Ether,
    IPv6,
    IPv6ExtHdrFragment,
    NoPayload,
    Packet,
    Padding,
    Raw,
)
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.vxlan import VXLAN

from tests.conftest import TORTURE
from tests.oracles import corpus
from tests.oracles.corpus import Frame
from wirespeed.net.headers import HEADERS
from wirespeed.net.link import LINKTYPE_ETHERNET

FILES = corpus.files() or [""]
MOST = 10**9 if TORTURE else 500  # packets of a file

KINDS: dict[type[Packet], str] = {
    Ether: "eth", Dot3: "eth", Dot1Q: "vlan", Dot1AD: "vlan", MPLS: "mpls", ARP: "arp", IP: "ipv4", IPv6: "ipv6",
    IPv6ExtHdrFragment: "fragment", TCP: "tcp", UDP: "udp", ICMP: "icmp", SCTP: "sctp", GRE: "gre", VXLAN: "vxlan",
    GENEVE: "geneve",
}  # fmt: skip
# Headers that are passed over: they have no layout, or other names in scapy.  Behind any further one scapy stops.
PASSED = (
    "LLC", "SNAP", "PPPoE", "PPP", "HDLC", "IPv6ExtHdrHopByHop", "IPv6ExtHdrRouting", "IPv6ExtHdrSegmentRouting",
    "IPv6ExtHdrDestOpt", "GRE_PPTP",
)  # fmt: skip
LAST = ("arp", "tcp", "icmp", "sctp")
# Fields of ours that scapy calls otherwise, or splits.
OTHERWISE: dict[tuple[str, str], Callable[[Any], int]] = {
    ("ipv6", "src_hi"): lambda layer: number(layer.src) >> 64,
    ("ipv6", "src_lo"): lambda layer: number(layer.src) & (1 << 64) - 1,
    ("ipv6", "dst_hi"): lambda layer: number(layer.dst) >> 64,
    ("ipv6", "dst_lo"): lambda layer: number(layer.dst) & (1 << 64) - 1,
    ("fragment", "reserved"): lambda layer: int(layer.res1),
    ("eth", "type"): lambda layer: int(layer.type if isinstance(layer, Ether) else layer.len),
    ("icmp", "rest"): lambda layer: int.from_bytes(layer.original[4:8]),  # split by the message's type
}
MAC = re.compile("[0-9a-f]{2}(:[0-9a-f]{2}){5}")

# Where we differ: (file, number of the packet) -> reason.
EXPLAINED = {
    ("PcapPlusPlus/Tests/Packet++Test/PacketExamples/ipv4-malformed.pcap", 1):
        "The total length is less than the header's: scapy reads TCP behind it, for us nothing is left there.",
    ("PcapPlusPlus/Tests/Packet++Test/PacketExamples/ipv4-malformed.pcap", 2):
        "The version of the IPv4 header is not 4: scapy reads on, for us it is no header.",
    ("tcpdump/bad-ipv4-version-pgm-heapoverflow.pcap", 1):
        "The version of the IPv4 header is not 4: scapy reads on, for us it is no header.",
    ("tcpdump/gre-heapoverflow-1.pcap", 2):
        "The version of the IPv4 header is not 4: scapy reads on, for us it is no header.",
    ("tcpdump/ipv4_invalid_hdr_length.pcap", 1):
        "The header's length is 4 words, one less than there can be: scapy reads on, for us it is no header.",
}  # fmt: skip

Header = tuple[str, int, dict[str, int]]  # kind, offset, fields


def number(value: Any) -> int:
    """A field of scapy's as the integer that stands in the header."""
    if not isinstance(value, str):
        return int(value)
    return int(value.replace(":", ""), 16) if MAC.fullmatch(value) else int(ipaddress.ip_address(value))


def other_arp(layer: Packet) -> bool:
    """Whether it is ARP between other addresses than those of Ethernet and IPv4, which is no header for us."""
    return isinstance(layer, ARP) and (layer.hwtype, layer.ptype, layer.hwlen, layer.plen) != (1, 0x0800, 6, 4)


def scapys(data: bytes) -> tuple[list[Header], float]:
    """The headers that scapy finds, as far as both of us look, and where that is, in bytes."""
    found: list[Header] = []
    layer, at = Ether(data), 0
    while not isinstance(layer, NoPayload | Raw | Padding) and not other_arp(layer):
        kind = KINDS.get(type(layer))
        if kind:
            found.append((kind, at, dict(values(kind, layer))))
        elif type(layer).__name__ not in PASSED:
            return found, at
        inside = layer.payload
        if kind in LAST or (kind == "udp" and not isinstance(inside, VXLAN | GENEVE)):
            break
        at += len(layer.raw_packet_cache)
        layer = inside
    return found, math.inf


def values(kind: str, layer: Packet) -> Iterator[tuple[str, int]]:
    """Yield the fields of a header of scapy's, by our names."""
    for name in HEADERS[kind].fields:
        other = OTHERWISE.get((kind, name))
        yield name, other(layer) if other else number(getattr(layer, name))


def ours(frame: Frame, stop: float) -> Iterator[Header]:
    """Yield the whole headers of the same kinds that we find before ``stop``, read through their layouts."""
    for name, (_, whole, _, offset, _, _) in zip(frame.names, frame.layers):
        if not whole or offset >= stop or name not in KINDS.values():
            continue
        record = HEADERS[name](frame.data, offset)
        if name != "gre" or record.version == 0:  # version 1 is another class of scapy's, with other names
            yield name, offset, {field: getattr(record, field) for field in HEADERS[name].fields}


@pytest.mark.parametrize("name", FILES)
def test_each_header_has_the_fields_that_scapy_reads(captures: Path, name: str) -> None:
    frames = list(corpus.frames(captures / name))
    step = -(-len(frames) // MOST) or 1
    for count, frame in enumerate(frames[::step]):
        if frame.link != LINKTYPE_ETHERNET or frame.captured < 14:
            continue
        theirs, stop = scapys(frame.data)
        same = list(ours(frame, stop)) == theirs
        packet = 1 + step * count
        assert same == ((name, packet) not in EXPLAINED), (
            f"packet {packet}: scapy {theirs}, ours {[*ours(frame, stop)]}"
        )


def test_each_explanation_is_of_a_capture_that_is_there(captures: Path) -> None:
    assert {name for name, _ in EXPLAINED} <= set(FILES)


@pytest.mark.parametrize("layer", KINDS, ids=lambda layer: layer.__name__)
def test_the_names_of_fields_are_scapys(layer: type[Packet]) -> None:
    kind = KINDS[layer]
    theirs = {field.name for field in layer.fields_desc}
    assert {name for name in HEADERS[kind].fields if (kind, name) not in OTHERWISE} <= theirs
