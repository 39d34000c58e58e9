"""Every header's layout, field by field, against the bytes that scapy makes of the same values."""

import random
from typing import Any

import pytest
from scapy.all import ARP, GRE, ICMP, IP, TCP, UDP, Dot1Q, Ether, ICMPv6Unknown, IPv6, IPv6ExtHdrFragment
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN

from wirespeed.net.address import ipv4_text, ipv6_text, mac_text
from wirespeed.net.headers import HEADERS
from wirespeed.net.parse import BITS, POSITION

# What scapy calls a field otherwise, or takes as text.
RENAMED = {"fragment": {"reserved": "res1"}}
TEXT = {
    ("eth", "dst"): mac_text, ("eth", "src"): mac_text, ("arp", "hwsrc"): mac_text, ("arp", "hwdst"): mac_text,
    ("arp", "psrc"): ipv4_text, ("arp", "pdst"): ipv4_text, ("ipv4", "src"): ipv4_text, ("ipv4", "dst"): ipv4_text,
}  # fmt: skip
SCAPY: dict[str, Any] = {
    "eth": Ether, "vlan": Dot1Q, "vlan2": Dot1Q, "arp": ARP, "ipv4": IP, "ipv6": IPv6, "fragment": IPv6ExtHdrFragment,
    "tcp": TCP, "udp": UDP, "icmp": ICMP, "icmpv6": ICMPv6Unknown, "sctp": SCTP, "mpls": MPLS, "gre": GRE,
    "vxlan": VXLAN, "geneve": GENEVE,
}  # fmt: skip
# Fields on which the form of the header depends in scapy, as it has them in the form that the layout is of.
FIXED = {
    "arp": {"hwtype": 1, "ptype": 0x0800, "hwlen": 6, "plen": 4},
    "ipv4": {"ihl": 5, "version": 4},
    "tcp": {"dataofs": 5},
    "gre": {"chksum_present": 0, "routing_present": 0, "key_present": 0, "seqnum_present": 0, "version": 0},
    "geneve": {"optionlen": 0},
    "vxlan": {"flags": 8},
    "icmp": {"type": 9},
}


def test_every_header_has_its_bit_and_its_position() -> None:
    assert set(BITS) == set(HEADERS)
    assert set(POSITION) == set(HEADERS) - {"eth"}
    assert len(set(BITS.values())) == len(BITS)


@pytest.mark.parametrize("name", HEADERS)
def test_fields_lie_where_scapy_has_them(name: str) -> None:
    generator = random.Random(name)
    layout = HEADERS[name]
    for _ in range(50):
        record = layout(bytearray(layout.size))
        values = {}
        for field in layout.fields.values():
            bits = field.bits or 8 * field.size
            values[field.name] = FIXED.get(name, {}).get(field.name, generator.getrandbits(bits))
            setattr(record, field.name, values[field.name])
        assert {field: getattr(record, field) for field in values} == values
        assert record._array.tobytes() == built(name, values)[: layout.size]


def built(name: str, values: dict[str, int]) -> bytes:
    """The header that scapy makes of a layout's fields."""
    given: dict[str, Any] = {}
    for field, value in values.items():
        given[RENAMED.get(name, {}).get(field, field)] = TEXT.get((name, field), int)(value)
    if name == "ipv6":
        for end in ("src", "dst"):
            given[end] = ipv6_text(given.pop(f"{end}_hi"), given.pop(f"{end}_lo"))
    if name in ("icmp", "icmpv6"):
        rest = given.pop("rest").to_bytes(4, "big")
        given["chksum" if name == "icmp" else "cksum"] = given.pop("chksum")
        return bytes(SCAPY[name](**given))[:4] + rest
    return bytes(SCAPY[name](**given))


def test_a_header_is_written_with_wrapping_like_a_kernel_does() -> None:
    header = HEADERS["ipv4"](bytearray(20))
    header.ttl = 256 + 7
    header.frag = 0xFFFF
    assert (header.ttl, header.frag, header.flags) == (7, 0x1FFF, 0)
