"""The bits that name the outer headers of a frame, and where :func:`wirespeed.net.parse.locate` puts their offsets."""

import numpy as np

ETH = 1 << 0
VLAN = 1 << 1
VLAN2 = 1 << 2
MPLS = 1 << 3
ARP = 1 << 4
IPV4 = 1 << 5
IPV6 = 1 << 6
FRAGMENT6 = 1 << 7
TCP = 1 << 8
UDP = 1 << 9
ICMP = 1 << 10
ICMPV6 = 1 << 11
SCTP = 1 << 12
GRE = 1 << 13
VXLAN = 1 << 14
GENEVE = 1 << 15
# Flags, in the order of those of a layer.
CUT = 1 << 16  # a header or the datagram was cut short
BAD = 1 << 17  # a header contradicts itself; nothing behind it is believed
FIRST_FRAGMENT = 1 << 18  # the transport header is here, the rest of the datagram is not
LATER_FRAGMENT = 1 << 19  # no transport header here: the middle or end of a datagram
PAYLOAD = 1 << 20  # only in ``want``: payload and end are wanted, whatever the headers are

EVERYTHING = np.int64((1 << 21) - 1)
TRANSPORT = TCP | UDP | ICMP | ICMPV6 | SCTP | GRE | VXLAN | GENEVE
FLAGS = LATER_FRAGMENT | FIRST_FRAGMENT | CUT | BAD

BITS = {
    "eth": ETH, "vlan": VLAN, "vlan2": VLAN2, "mpls": MPLS, "arp": ARP, "ipv4": IPV4, "ipv6": IPV6,
    "fragment": FRAGMENT6, "tcp": TCP, "udp": UDP, "icmp": ICMP, "icmpv6": ICMPV6, "sctp": SCTP, "gre": GRE,
    "vxlan": VXLAN, "geneve": GENEVE,
}  # fmt: skip
"""The bit of each header, by its attribute in ``HEADERS``."""

POSITION = {
    "vlan": 1, "vlan2": 2, "mpls": 3, "arp": 4, "ipv4": 4, "ipv6": 4, "fragment": 5, "tcp": 6, "udp": 6, "icmp": 6,
    "icmpv6": 6, "sctp": 6, "gre": 6, "vxlan": 6, "geneve": 6,
}  # fmt: skip
"""Where in :func:`locate`'s result a header's offset is; ``eth`` is always at 0.  SHIFT is to be added."""

SHIFT = {"vxlan": 8, "geneve": 8}
"""Bytes to be added to the offset that POSITION names: the size of the UDP header before it."""
