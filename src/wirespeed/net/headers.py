"""The headers of the wire, one layout each, with the field names that scapy uses.

``HEADERS`` maps the attribute of a packet (``pkt.ipv4``) to its layout.  Every layout is the fixed part of its header;
options and other variable parts lie behind it and belong to the parser.

Source: each layout names its own.
"""

from wirespeed.jit.layout import Layout, layout

# IEEE 802.3-2022, 3.1.1.
Ethernet = layout("Ethernet", [("dst", ">u6"), ("src", ">u6"), ("type", ">u2")])
assert Ethernet.size == 14

# IEEE 802.1Q-2022, 9.6: the tag control information, and the type of what follows.  The tag's own type stands before
# it, where the type of the header before it is.
Vlan = layout("Vlan", [({"prio": 3, "dei": 1, "vlan": 12}, ">u2"), ("type", ">u2")])
assert Vlan.size == 4

# RFC 826, for Ethernet and IPv4; the only form that the parser calls ``arp``.
Arp = layout(
    "Arp",
    [
        ("hwtype", ">u2"),
        ("ptype", ">u2"),
        ("hwlen", "u1"),
        ("plen", "u1"),
        ("op", ">u2"),
        ("hwsrc", ">u6"),
        ("psrc", ">u4"),
        ("hwdst", ">u6"),
        ("pdst", ">u4"),
    ],
)
assert Arp.size == 28

# RFC 791, 3.1.
IPv4 = layout(
    "IPv4",
    [
        ({"version": 4, "ihl": 4}, "u1"),
        ("tos", "u1"),
        ("len", ">u2"),
        ("id", ">u2"),
        ({"flags": 3, "frag": 13}, ">u2"),
        ("ttl", "u1"),
        ("proto", "u1"),
        ("chksum", ">u2"),
        ("src", ">u4"),
        ("dst", ">u4"),
    ],
)
assert IPv4.size == 20

# RFC 8200, 3.  An address is two 64-bit halves, for kernels have no wider integer.
IPv6 = layout(
    "IPv6",
    [
        ({"version": 4, "tc": 8, "fl": 20}, ">u4"),
        ("plen", ">u2"),
        ("nh", "u1"),
        ("hlim", "u1"),
        ("src_hi", ">u8"),
        ("src_lo", ">u8"),
        ("dst_hi", ">u8"),
        ("dst_lo", ">u8"),
    ],
)
assert IPv6.size == 40

# RFC 8200, 4.5.
Fragment = layout(
    "Fragment", [("nh", "u1"), ("reserved", "u1"), ({"offset": 13, "res2": 2, "m": 1}, ">u2"), ("id", ">u4")]
)
assert Fragment.size == 8

# RFC 9293, 3.1.  The nine flag bits end with FIN; the first is the historic NS (RFC 3540), now AE (RFC 9768).
Tcp = layout(
    "Tcp",
    [
        ("sport", ">u2"),
        ("dport", ">u2"),
        ("seq", ">u4"),
        ("ack", ">u4"),
        ({"dataofs": 4, "reserved": 3, "flags": 9}, ">u2"),
        ("window", ">u2"),
        ("chksum", ">u2"),
        ("urgptr", ">u2"),
    ],
)
assert Tcp.size == 20

# RFC 768.
Udp = layout("Udp", [("sport", ">u2"), ("dport", ">u2"), ("len", ">u2"), ("chksum", ">u2")])
assert Udp.size == 8

# RFC 792 and RFC 4443; ``rest`` is the word whose meaning depends on the type (identifier and sequence of an echo).
Icmp = layout("Icmp", [("type", "u1"), ("code", "u1"), ("chksum", ">u2"), ("rest", ">u4")])
assert Icmp.size == 8

# RFC 9260, 3.1.  The checksum is a CRC-32C sent lowest byte first; as in scapy the field reads it as the bytes stand.
Sctp = layout("Sctp", [("sport", ">u2"), ("dport", ">u2"), ("tag", ">u4"), ("chksum", ">u4")])
assert Sctp.size == 12

# RFC 3032, 2.1, with RFC 5462's traffic class under the name it had.
Mpls = layout("Mpls", [({"label": 20, "cos": 3, "s": 1, "ttl": 8}, ">u4")])
assert Mpls.size == 4

# RFC 2784, RFC 2890 and, for routing and version 1, RFC 1701 and RFC 2637.  The optional words lie behind it.
Gre = layout(
    "Gre",
    [
        (
            {
                "chksum_present": 1,
                "routing_present": 1,
                "key_present": 1,
                "seqnum_present": 1,
                "strict_route_source": 1,
                "recursion_control": 3,
                "flags": 5,
                "version": 3,
            },
            ">u2",
        ),
        ("proto", ">u2"),
    ],
)
assert Gre.size == 4

# RFC 7348, 5.
Vxlan = layout("Vxlan", [({"flags": 8, "reserved1": 24}, ">u4"), ({"vni": 24, "reserved2": 8}, ">u4")])
assert Vxlan.size == 8

# RFC 8926, 3.4.  ``optionlen`` counts words of four bytes.
Geneve = layout(
    "Geneve",
    [
        ({"version": 2, "optionlen": 6}, "u1"),
        ({"oam": 1, "critical": 1, "reserved": 6}, "u1"),
        ("proto", ">u2"),
        ({"vni": 24, "reserved2": 8}, ">u4"),
    ],
)
assert Geneve.size == 8

HEADERS: dict[str, Layout] = {
    "eth": Ethernet,
    "vlan": Vlan,
    "vlan2": Vlan,
    "arp": Arp,
    "ipv4": IPv4,
    "ipv6": IPv6,
    "fragment": Fragment,
    "tcp": Tcp,
    "udp": Udp,
    "icmp": Icmp,
    "icmpv6": Icmp,
    "sctp": Sctp,
    "mpls": Mpls,
    "gre": Gre,
    "vxlan": Vxlan,
    "geneve": Geneve,
}
