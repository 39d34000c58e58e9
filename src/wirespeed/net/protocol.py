"""Numbers that name what comes next: EtherTypes, IP protocols, PPP protocols, UDP ports.

*Source:* IANA's registries "IEEE 802 Numbers", "Protocol Numbers", "PPP Numbers" and "Service Names and Port Numbers",
where a line names no other.
"""

# EtherTypes.  Below the first of them the field is the length of an 802.3 frame (IEEE 802.3-2022, 3.2.6).
LEAST_ETHERTYPE = 0x0600
ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_ARP = 0x0806
ETHERTYPE_TEB = 0x6558  # transparent Ethernet bridging: an Ethernet frame (RFC 1701; NVGRE and Geneve use it)
ETHERTYPE_VLAN = 0x8100  # IEEE 802.1Q, customer tag
ETHERTYPE_PPP = 0x880B
ETHERTYPE_MPLS = 0x8847
ETHERTYPE_MPLS_UPSTREAM = 0x8848  # RFC 5332; formerly multicast
ETHERTYPE_PPPOE_DISCOVERY = 0x8863
ETHERTYPE_PPPOE = 0x8864  # session stage, RFC 2516
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_QINQ = 0x88A8  # IEEE 802.1ad, service tag
ETHERTYPE_QINQ_OLD = 0x9100  # outer tags of equipment from before 802.1ad; registered to nobody

# IP protocols and IPv6 extension headers.
PROTO_HOPOPTS = 0
PROTO_ICMP = 1
PROTO_IPIP = 4
PROTO_TCP = 6
PROTO_UDP = 17
PROTO_IPV6 = 41
PROTO_ROUTING = 43
PROTO_FRAGMENT = 44
PROTO_GRE = 47
PROTO_ESP = 50
PROTO_AH = 51
PROTO_ICMPV6 = 58
PROTO_NONE = 59  # no next header
PROTO_DSTOPTS = 60
PROTO_SCTP = 132
PROTO_MOBILITY = 135
PROTO_MPLS = 137  # MPLS in IP, RFC 4023
PROTO_HIP = 139
PROTO_SHIM6 = 140

# PPP protocols.
PPP_IPV4 = 0x0021
PPP_IPV6 = 0x0057
PPP_MPLS = 0x0281

# UDP ports of tunnels.
PORT_VXLAN = 4789
PORT_VXLAN_LINUX = 8472  # what Linux's vxlan device uses unless it is told another (drivers/net/vxlan/vxlan_core.c)
PORT_GENEVE = 6081
