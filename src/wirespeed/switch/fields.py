"""The fields of a flow: which bits of which word each has, how it is written, and what must hold for it to be there.

Theory of operation
-------------------
A *flow* is :data:`WORDS` 64-bit words: what rules can match.  In kernels it is the address of as many u64; in Python it
is one whole number of 64 * WORDS bits, word 0 the lowest, so that masks combine with ``&`` and ``|``.  A field is
``bits`` bits from bit ``at`` of that number on; one of 128 bits has its low half in the word before its high one.
Values are numbers: the address 10.0.0.1 is 0x0a000001.  Fields of headers that are not there are 0.

Fields that no packet has together share their bits, as in OpenFlow's own switches: ``tp_src`` is also ICMP's type,
``nw_proto`` ARP's operation, ``nw_src`` ARP's sender.

Source: OpenFlow 1.5.1, 7.2.3.8, with the names and the rules of ovs-fields(7).
"""

from dataclasses import dataclass, field

WORDS = 40
FLOW_SIZE = 8 * WORDS

# Words, for kernels.
W_PORT = 0  # in_port, eth_type, nw_proto, nw_frag
W_ADDRESSES = 1  # nw_src, nw_dst
W_TRANSPORT = 2  # tp_src, tp_dst, tcp_flags, nw_ttl, nw_tos
W_DST = 3  # dl_dst, vlan_tci
W_SRC = 4  # dl_src, vlan_tci2
W_SRC6 = 5  # low half, then high half
W_DST6 = 7
W_LABEL = 9  # ipv6_label, vlan_tpid, vlan_tpid2
W_MPLS = 10  # lse 0 and 1
W_MPLS2 = 11  # lse 2, count of entries
W_SHA = 12  # arp_sha, nd_sll
W_THA = 13  # arp_tha, nd_tll
W_TARGET = 14  # nd_target
HEADER_WORDS = 16  # the words before this one stand for bytes of the packet
W_METADATA = 16
W_REG = 17  # eight words of two registers each
W_MARK = 25  # pkt_mark; room for skb_priority
W_TUNNEL = 26  # tun_id
W_DERIVED = 27  # dp_hash, ttl_floor, mpls_ttl_floor: made of the packet, matched by no rule, read by actions
W_ACTSET = 28  # room for actset_output, conj_id
W_CT = 29  # room for connection tracking: 29 to 32
W_OUTER = 33  # room for outer headers of tunnels: 33 to 39

# Bits in their words.
ETH_TYPE_SHIFT = 32
PROTO_SHIFT = 48
FRAG_SHIFT = 56
FRAG_ANY, FRAG_LATER = 1, 2
NW_SRC_SHIFT = 32
TOS_SHIFT, TTL_SHIFT, TCP_FLAGS_SHIFT, TP_DST_SHIFT, TP_SRC_SHIFT = 0, 8, 16, 32, 48
MAC_SHIFT = 16
TCI_PRESENT = 0x1000  # the bit of a tag's control information that says that the tag is there
TPID_SHIFT, TPID2_SHIFT = 32, 48
TTL_FLOOR_SHIFT, MPLS_TTL_FLOOR_SHIFT = 32, 36
TTL_FLOOR_MOST = 15  # a ttl_floor of this means: this or more

IP, IPV6, ARP, RARP, MPLS, MPLS_MULTICAST = 0x0800, 0x86DD, 0x0806, 0x8035, 0x8847, 0x8848
ICMP, TCP, UDP, ICMPV6, SCTP = 1, 6, 17, 58, 132
NEIGHBOR_SOLICIT, NEIGHBOR_ADVERT = 135, 136

# Reserved port numbers, OpenFlow 1.5.1, 7.2.3.1.
PORT_MAX = 0xFFFFFF00
IN_PORT, TABLE, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL, ANY = range(0xFFFFFFF8, 0x100000000)
PORT_NAMES = {
    "IN_PORT": IN_PORT, "TABLE": TABLE, "NORMAL": NORMAL, "FLOOD": FLOOD, "ALL": ALL, "CONTROLLER": CONTROLLER,
    "LOCAL": LOCAL, "ANY": ANY,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Field:
    """One field.  ``form`` says how its value is written, ``needs`` what a match must already say for it."""

    name: str
    at: int
    bits: int
    form: str  # dec, hex, mac, ipv4, ipv6, port, frag or tcp_flags
    needs: str = ""  # a key of NEEDS
    maskable: bool = True
    writable: bool = True
    nxm: tuple[str, ...] = ()  # names in move, load and output, the one that is printed first
    value_at: int = 0  # lowest bit of the written value that the field has: nw_tos is dscp, written as 8 bits
    span: int = 0  # bits as move, load and output see it, where these are not those of its value

    # Made of the others, once, for parsing looks at them ten thousand times a second.
    width: int = field(init=False)  # bits of a written value
    reach: int = field(init=False)  # bits that move, load and output may name
    ones: int = field(init=False)  # a mask of as many bits, from bit 0
    mask: int = field(init=False)  # its bits in a flow

    def __post_init__(self) -> None:
        made = {"width": self.bits + self.value_at, "ones": (1 << self.bits) - 1}
        made |= {"reach": self.span or made["width"], "mask": made["ones"] << self.at}
        for name, number in made.items():
            object.__setattr__(self, name, number)

    @property
    def word(self) -> int:
        """The word that its lowest bit is in."""
        return self.at // 64

    @property
    def shift(self) -> int:
        """Its lowest bit in that word."""
        return self.at % 64

    def get(self, flow: int) -> int:
        """Its value in a flow."""
        return flow >> self.at & self.ones


def _at(word: int, bit: int = 0) -> int:
    return 64 * word + bit


IN_PORT_AT = _at(W_PORT)
ETH_TYPE_AT = _at(W_PORT, ETH_TYPE_SHIFT)
PROTO_AT = _at(W_PORT, PROTO_SHIFT)
_TCI, _TCI2 = _at(W_DST), _at(W_SRC)
_LSE = _at(W_MPLS)

# What a field needs: the Ethernet types one of which must be matched, the protocols, the ICMP types.
NEEDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "": ((), (), ()),
    "ip": ((IP,), (), ()),
    "ipv6": ((IPV6,), (), ()),
    "ip any": ((IP, IPV6), (), ()),
    "arp": ((ARP, RARP), (), ()),
    "mpls": ((MPLS, MPLS_MULTICAST), (), ()),
    "tcp": ((IP, IPV6), (TCP,), ()),
    "udp": ((IP, IPV6), (UDP,), ()),
    "sctp": ((IP, IPV6), (SCTP,), ()),
    "icmp": ((IP,), (ICMP,), ()),
    "icmpv6": ((IPV6,), (ICMPV6,), ()),
    "nd": ((IPV6,), (ICMPV6,), (NEIGHBOR_SOLICIT, NEIGHBOR_ADVERT)),
    "nd solicit": ((IPV6,), (ICMPV6,), (NEIGHBOR_SOLICIT,)),
    "nd advert": ((IPV6,), (ICMPV6,), (NEIGHBOR_ADVERT,)),
    "vlan": ((), (), ()),  # a tag must be matched, or for actions be there
}

_TP_SRC, _TP_DST = _at(W_TRANSPORT, TP_SRC_SHIFT), _at(W_TRANSPORT, TP_DST_SHIFT)
_NW_SRC, _NW_DST = _at(W_ADDRESSES, NW_SRC_SHIFT), _at(W_ADDRESSES)


def _registers() -> list[Field]:
    """reg0 to reg15; xreg0 is reg0 above reg1, xxreg0 is xreg0 above xreg1."""
    found = []
    for n in range(16):
        word = W_REG + ((n // 2) ^ 1)
        found.append(Field(f"reg{n}", _at(word, 0 if n % 2 else 32), 32, "hex", nxm=(f"NXM_NX_REG{n}",)))
    for n in range(8):
        found.append(Field(f"xreg{n}", _at(W_REG + (n ^ 1)), 64, "hex", nxm=(f"OXM_OF_PKT_REG{n}",)))
    for n in range(4):
        found.append(Field(f"xxreg{n}", _at(W_REG + 2 * n), 128, "hex", nxm=(f"NXM_NX_XXREG{n}",)))
    return found


FIELDS: dict[str, Field] = {
    f.name: f
    for f in [
        Field("in_port", IN_PORT_AT, 32, "port", maskable=False, nxm=("NXM_OF_IN_PORT",), span=16),
        Field("in_port_oxm", IN_PORT_AT, 32, "port", maskable=False, nxm=("OXM_OF_IN_PORT",)),
        Field("metadata", _at(W_METADATA), 64, "hex", nxm=("OXM_OF_METADATA",)),
        *_registers(),
        Field("pkt_mark", _at(W_MARK), 32, "hex", nxm=("NXM_NX_PKT_MARK",)),
        Field("tun_id", _at(W_TUNNEL), 64, "hex", nxm=("NXM_NX_TUN_ID", "OXM_OF_TUNNEL_ID")),
        Field("dl_src", _at(W_SRC, MAC_SHIFT), 48, "mac", nxm=("NXM_OF_ETH_SRC", "OXM_OF_ETH_SRC")),
        Field("dl_dst", _at(W_DST, MAC_SHIFT), 48, "mac", nxm=("NXM_OF_ETH_DST", "OXM_OF_ETH_DST")),
        Field(
            "dl_type", ETH_TYPE_AT, 16, "hex", maskable=False, writable=False,
            nxm=("NXM_OF_ETH_TYPE", "OXM_OF_ETH_TYPE"),
        ),
        Field("vlan_tci", _TCI, 16, "hex", nxm=("NXM_OF_VLAN_TCI",)),
        Field("dl_vlan", _TCI, 12, "dec", maskable=False),
        Field("dl_vlan_pcp", _TCI + 13, 3, "dec", maskable=False),
        Field("vlan_vid", _TCI, 13, "hex", nxm=("OXM_OF_VLAN_VID",), span=12),
        Field("vlan_pcp", _TCI + 13, 3, "dec", maskable=False, needs="vlan", nxm=("OXM_OF_VLAN_PCP",)),
        Field("mpls_label", _LSE + 12, 20, "dec", "mpls", maskable=False, nxm=("OXM_OF_MPLS_LABEL",)),
        Field("mpls_tc", _LSE + 9, 3, "dec", "mpls", maskable=False, nxm=("OXM_OF_MPLS_TC",)),
        Field("mpls_bos", _LSE + 8, 1, "dec", "mpls", maskable=False, writable=False, nxm=("OXM_OF_MPLS_BOS",)),
        Field("mpls_ttl", _LSE, 8, "dec", "mpls", maskable=False, nxm=("NXM_NX_MPLS_TTL",)),
        Field("nw_src", _NW_SRC, 32, "ipv4", "ip", nxm=("NXM_OF_IP_SRC", "OXM_OF_IPV4_SRC")),
        Field("nw_dst", _NW_DST, 32, "ipv4", "ip", nxm=("NXM_OF_IP_DST", "OXM_OF_IPV4_DST")),
        Field("ipv6_src", _at(W_SRC6), 128, "ipv6", "ipv6", nxm=("NXM_NX_IPV6_SRC", "OXM_OF_IPV6_SRC")),
        Field("ipv6_dst", _at(W_DST6), 128, "ipv6", "ipv6", nxm=("NXM_NX_IPV6_DST", "OXM_OF_IPV6_DST")),
        Field("ipv6_label", _at(W_LABEL), 20, "hex", "ipv6", nxm=("NXM_NX_IPV6_LABEL", "OXM_OF_IPV6_FLABEL")),
        Field(
            "nw_proto", PROTO_AT, 8, "dec", "ip any", maskable=False, writable=False,
            nxm=("NXM_OF_IP_PROTO", "OXM_OF_IP_PROTO"),
        ),
        Field(
            "nw_tos", _at(W_TRANSPORT, TOS_SHIFT + 2), 6, "dec", "ip any", maskable=False,
            nxm=("NXM_OF_IP_TOS",), value_at=2,
        ),
        Field("ip_dscp", _at(W_TRANSPORT, TOS_SHIFT + 2), 6, "dec", "ip any", maskable=False, nxm=("OXM_OF_IP_DSCP",)),
        Field("nw_ecn", _at(W_TRANSPORT, TOS_SHIFT), 2, "dec", "ip any", maskable=False, nxm=("NXM_NX_IP_ECN", "OXM_OF_IP_ECN")),
        Field("nw_ttl", _at(W_TRANSPORT, TTL_SHIFT), 8, "dec", "ip any", maskable=False, nxm=("NXM_NX_IP_TTL",)),
        Field("ip_frag", _at(W_PORT, FRAG_SHIFT), 2, "frag", "ip any", writable=False, nxm=("NXM_NX_IP_FRAG",)),
        Field("arp_op", PROTO_AT, 8, "dec", "arp", maskable=False, nxm=("NXM_OF_ARP_OP", "OXM_OF_ARP_OP"), span=16),
        Field("arp_spa", _NW_SRC, 32, "ipv4", "arp", nxm=("NXM_OF_ARP_SPA", "OXM_OF_ARP_SPA")),
        Field("arp_tpa", _NW_DST, 32, "ipv4", "arp", nxm=("NXM_OF_ARP_TPA", "OXM_OF_ARP_TPA")),
        Field("arp_sha", _at(W_SHA, MAC_SHIFT), 48, "mac", "arp", nxm=("NXM_NX_ARP_SHA", "OXM_OF_ARP_SHA")),
        Field("arp_tha", _at(W_THA, MAC_SHIFT), 48, "mac", "arp", nxm=("NXM_NX_ARP_THA", "OXM_OF_ARP_THA")),
        Field("tcp_src", _TP_SRC, 16, "dec", "tcp", nxm=("NXM_OF_TCP_SRC", "OXM_OF_TCP_SRC")),
        Field("tcp_dst", _TP_DST, 16, "dec", "tcp", nxm=("NXM_OF_TCP_DST", "OXM_OF_TCP_DST")),
        Field(
            "tcp_flags", _at(W_TRANSPORT, TCP_FLAGS_SHIFT), 12, "tcp_flags", "tcp", writable=False,
            nxm=("NXM_NX_TCP_FLAGS", "OXM_OF_TCP_FLAGS"),
        ),
        Field("udp_src", _TP_SRC, 16, "dec", "udp", nxm=("NXM_OF_UDP_SRC", "OXM_OF_UDP_SRC")),
        Field("udp_dst", _TP_DST, 16, "dec", "udp", nxm=("NXM_OF_UDP_DST", "OXM_OF_UDP_DST")),
        Field("sctp_src", _TP_SRC, 16, "dec", "sctp", nxm=("OXM_OF_SCTP_SRC",)),
        Field("sctp_dst", _TP_DST, 16, "dec", "sctp", nxm=("OXM_OF_SCTP_DST",)),
        Field("icmp_type", _TP_SRC, 8, "dec", "icmp", maskable=False, nxm=("NXM_OF_ICMP_TYPE", "OXM_OF_ICMPV4_TYPE")),
        Field("icmp_code", _TP_DST, 8, "dec", "icmp", maskable=False, nxm=("NXM_OF_ICMP_CODE", "OXM_OF_ICMPV4_CODE")),
        Field("icmpv6_type", _TP_SRC, 8, "dec", "icmpv6", maskable=False, nxm=("NXM_NX_ICMPV6_TYPE", "OXM_OF_ICMPV6_TYPE")),
        Field("icmpv6_code", _TP_DST, 8, "dec", "icmpv6", maskable=False, nxm=("NXM_NX_ICMPV6_CODE", "OXM_OF_ICMPV6_CODE")),
        Field("nd_target", _at(W_TARGET), 128, "ipv6", "nd", nxm=("NXM_NX_ND_TARGET", "OXM_OF_IPV6_ND_TARGET")),
        Field("nd_sll", _at(W_SHA, MAC_SHIFT), 48, "mac", "nd solicit", nxm=("NXM_NX_ND_SLL", "OXM_OF_IPV6_ND_SLL")),
        Field("nd_tll", _at(W_THA, MAC_SHIFT), 48, "mac", "nd advert", nxm=("NXM_NX_ND_TLL", "OXM_OF_IPV6_ND_TLL")),
    ]
}  # fmt: skip

# Other names, those of OpenFlow's specification among them.
OTHER_NAMES = {
    "tunnel_id": "tun_id", "eth_src": "dl_src", "eth_dst": "dl_dst", "eth_type": "dl_type", "ip_src": "nw_src",
    "ip_dst": "nw_dst", "ipv4_src": "nw_src", "ipv4_dst": "nw_dst", "ipv6_flabel": "ipv6_label", "ip_proto": "nw_proto",
    "ip_ecn": "nw_ecn", "ip_ttl": "nw_ttl", "nw_frag": "ip_frag", "icmpv4_type": "icmp_type",
    "icmpv4_code": "icmp_code", "ipv6_nd_target": "nd_target", "ipv6_nd_sll": "nd_sll", "ipv6_nd_tll": "nd_tll",
}  # fmt: skip

# How set_field prints a field that a match prints by its own name.
SET_NAMES = {"dl_src": "eth_src", "dl_dst": "eth_dst", "nw_src": "ip_src", "nw_dst": "ip_dst"}

# Every name of a field, in lower case.
NAMES: dict[str, Field] = {name.lower(): field for field in FIELDS.values() for name in (*field.nxm, field.name)}
NAMES |= {other: FIELDS[name] for other, name in OTHER_NAMES.items()}
