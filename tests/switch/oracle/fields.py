"""The match fields of the random cases: how each is written for ``ovs-ofctl``, and which part of a packet it is.

A packet is described by a *flow*, a dictionary of numbers: ``tci`` and ``inner_tci``, ``tos``, ``nw_src`` ... `frames`
makes bytes of one.  A field is ``bits`` bits of one of those numbers, from ``shift`` on.

Source: ovs-fields(7).
"""

import ipaddress
from dataclasses import dataclass

Flow = dict[str, int]

ETHERTYPES = {"arp": 0x0806, "rarp": 0x8035, "ip": 0x0800, "ipv6": 0x86DD, "mpls": 0x8847, "mplsm": 0x8848}
PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "sctp": 132, "icmp6": 58}
VLAN_PRESENT = 0x1000

# What a rule must match so that a field may be used, by the word for it: EtherType and protocol.
KINDS: dict[str, tuple[int | None, int | None]] = {
    "": (None, None),
    "arp": (0x0806, None),
    "rarp": (0x8035, None),
    "ip": (0x0800, None),
    "icmp": (0x0800, 1),
    "tcp": (0x0800, 6),
    "udp": (0x0800, 17),
    "sctp": (0x0800, 132),
    "ipv6": (0x86DD, None),
    "icmp6": (0x86DD, 58),
    "tcp6": (0x86DD, 6),
    "udp6": (0x86DD, 17),
    "sctp6": (0x86DD, 132),
    "mpls": (0x8847, None),
    "mplsm": (0x8848, None),
}


@dataclass(frozen=True)
class Field:
    """A match field."""

    name: str
    bits: int
    key: str  # the number of a flow that it is a part of
    shift: int = 0
    needs: str = ""  # a word that `provided` finds in what a rule matches
    form: str = "hex"
    masks: bool = True
    writable: bool = True  # may be the target of set_field, load and move

    @property
    def full(self) -> int:
        """All bits."""
        return (1 << self.bits) - 1

    def text(self, value: int, mask: int) -> str:
        """``name=value/mask``, the mask only when it is not whole."""
        return f"{self.name}={self.value(value, mask)}"

    def value(self, value: int, mask: int | None = None) -> str:
        """``value/mask`` in the field's own form."""
        write = FORMS[self.form]
        if mask is None or mask == self.full:
            return write(value, self.bits)
        ones = mask.bit_count()
        if self.form in ("ip", "ip6") and mask == self.full ^ (self.full >> ones):
            return f"{write(value, self.bits)}/{ones}"
        return f"{write(value, self.bits)}/{write(mask, self.bits)}"


def _mac(value: int, bits: int) -> str:
    return value.to_bytes(6).hex(":")


def _ipv6(value: int, bits: int) -> str:
    """An address whose zeros are shortened at its beginning if it has any there: a mask such as 0:0:8::0 is not read."""
    text = str(ipaddress.IPv6Address(value))
    if text.startswith("0:"):
        groups = ipaddress.IPv6Address(value).exploded.split(":")
        while groups and int(groups[0], 16) == 0:
            groups.pop(0)
        text = "::" + ":".join(f"{int(group, 16):x}" for group in groups)
    return text


FORMS = {
    "hex": lambda value, bits: f"{value:#x}",
    "dec": lambda value, bits: str(value),
    "mac": _mac,
    "ip": lambda value, bits: str(ipaddress.IPv4Address(value)),
    "ip6": _ipv6,
}

METADATA = [
    Field("in_port", 16, "in_port", form="dec", masks=False),
    Field("metadata", 64, "metadata"),
    *(Field(f"reg{i}", 32, f"reg{i}") for i in (0, 1, 2, 7, 15)),
    Field("xreg1", 64, "xreg1"),
    Field("xxreg1", 128, "xxreg1"),
]
ETHERNET = [
    Field("dl_src", 48, "dl_src", form="mac"),
    Field("dl_dst", 48, "dl_dst", form="mac"),
]
VLAN = [
    Field("dl_vlan", 12, "tci", needs="any", form="dec", masks=False, writable=False),
    Field("dl_vlan_pcp", 3, "tci", 13, needs="any", form="dec", masks=False, writable=False),
    Field("vlan_tci", 16, "tci", needs="any"),
    Field("vlan_vid", 13, "tci", needs="any"),
    Field("vlan_pcp", 3, "tci", 13, needs="vlan", form="dec", masks=False),
]
ARP = [
    Field("arp_op", 8, "arp_op", needs="arp", form="dec", masks=False),
    Field("arp_spa", 32, "arp_spa", needs="arp", form="ip"),
    Field("arp_tpa", 32, "arp_tpa", needs="arp", form="ip"),
    Field("arp_sha", 48, "arp_sha", needs="arp", form="mac"),
    Field("arp_tha", 48, "arp_tha", needs="arp", form="mac"),
]
IP = [
    Field("nw_src", 32, "nw_src", needs="ip", form="ip"),
    Field("nw_dst", 32, "nw_dst", needs="ip", form="ip"),
    Field("ipv6_src", 128, "ipv6_src", needs="ipv6", form="ip6"),
    Field("ipv6_dst", 128, "ipv6_dst", needs="ipv6", form="ip6"),
    Field("ipv6_label", 20, "ipv6_label", needs="ipv6"),
    Field("nw_proto", 8, "nw_proto", needs="l3", form="dec", masks=False, writable=False),
    Field("ip_dscp", 6, "tos", 2, needs="l3", form="dec", masks=False),
    Field("nw_ecn", 2, "tos", needs="l3", form="dec", masks=False),
    Field("nw_ttl", 8, "nw_ttl", needs="l3", form="dec", masks=False),
]
TRANSPORT = [
    Field("tcp_src", 16, "tp_src", needs="tcp"),
    Field("tcp_dst", 16, "tp_dst", needs="tcp"),
    Field("tcp_flags", 12, "tcp_flags", needs="tcp", writable=False),
    Field("udp_src", 16, "tp_src", needs="udp"),
    Field("udp_dst", 16, "tp_dst", needs="udp"),
    Field("sctp_src", 16, "tp_src", needs="sctp"),
    Field("sctp_dst", 16, "tp_dst", needs="sctp"),
    Field("icmp_type", 8, "tp_src", needs="icmp", form="dec", masks=False),
    Field("icmp_code", 8, "tp_dst", needs="icmp", form="dec", masks=False),
    Field("icmpv6_type", 8, "tp_src", needs="icmp6", form="dec", masks=False),
    Field("icmpv6_code", 8, "tp_dst", needs="icmp6", form="dec", masks=False),
    Field("nd_target", 128, "nd_target", needs="nd", form="ip6"),
    Field("nd_sll", 48, "nd_sll", needs="ns", form="mac"),
    Field("nd_tll", 48, "nd_tll", needs="na", form="mac"),
]
MPLS = [
    Field("mpls_label", 20, "mpls_label", needs="mpls", form="dec", masks=False),
    Field("mpls_tc", 3, "mpls_tc", needs="mpls", form="dec", masks=False),
    Field("mpls_bos", 1, "mpls_bos", needs="mpls", form="dec", masks=False, writable=False),
    Field("mpls_ttl", 8, "mpls_ttl", needs="mpls", form="dec", masks=False),
]
SPECIFIC = ("tcp", "udp", "sctp", "icmp", "icmp6", "nd", "ns", "na", "arp", "mpls")  # needs that few rules meet
FIELDS = {field.name: field for field in (*METADATA, *ETHERNET, *VLAN, *ARP, *IP, *TRANSPORT, *MPLS)}


def provided(kind: str, *, vlan: bool, icmp_type: int | None = None) -> set[str]:
    """The words that ``Field.needs`` may be, for a rule of this kind."""
    words = {"", "any"} | ({"vlan"} if vlan else set())
    ethertype, protocol = KINDS[kind]
    words |= {"arp"} if ethertype in (0x0806, 0x8035) else set()
    words |= {"mpls"} if ethertype in (0x8847, 0x8848) else set()
    words |= {"ip", "l3"} if ethertype == 0x0800 else set()
    words |= {"ipv6", "l3"} if ethertype == 0x86DD else set()
    words |= {name for name, number in PROTOCOLS.items() if number == protocol}
    if protocol == 58 and icmp_type in (135, 136):
        words |= {"nd", "ns" if icmp_type == 135 else "na"}
    return words
