"""The headers of Ethernet captures, field by field under scapy's names, as scapy dissects them.

Both ways: each header that scapy finds is one of ours, at the same offset and with the same values through our layout,
and each whole header of ours is one that scapy finds.  Of a large file every so many-th packet is looked at, for scapy
takes a tenth of a millisecond for each; the long form of the tests looks at all.
"""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import NoPayload, Packet

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
# What is between those and has no layout of ours, or not scapy's names; behind anything else we stop looking.
PASSED = (
    "LLC", "SNAP", "PPPoE", "PPP", "HDLC", "IPv6ExtHdrHopByHop", "IPv6ExtHdrRouting", "IPv6ExtHdrSegmentRouting",
    "IPv6ExtHdrDestOpt", "AH", "GRE_PPTP",
)  # fmt: skip
# Where scapy has another name for a field of ours, and fields of ours that it has not or splits otherwise.
RENAMED = {("eth", "type"): ("type", "len"), ("vxlan", "reserved1"): (), ("vxlan", "reserved2"): ()}
LEFT_OUT = {
    "icmp": {"rest"},
    "gre": {"chksum_present", "routing_present", "key_present", "seqnum_present"},
    "vxlan": {"reserved1", "reserved2"},
    "geneve": {"reserved", "reserved2"},
    "fragment": {"reserved"},
}


def number(value: Any) -> int:
    """A field of scapy's as the integer that stands in the header."""
    if not isinstance(value, str):
        return int(value)
    return int(value.replace(":", ""), 16) if value.count(":") == 5 else int(ipaddress.ip_address(value))
