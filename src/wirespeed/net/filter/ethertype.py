"""Numbers of protocols: EtherTypes, LLC service access points, PPP protocols, IP protocols and ISO identifiers.

*Source:* IANA's registries of those names; IEEE 802.2; ISO/IEC TR 9577.
"""

IP, ARP, REVARP, IPV6, ATALK, AARP, IPX, NS = 0x0800, 0x0806, 0x8035, 0x86DD, 0x809B, 0x80F3, 0x8137, 0x0600
DECNET, LAT, SCA, MOPDL, MOPRC = 0x6003, 0x6004, 0x6007, 0x6001, 0x6002
VLAN, VLAN_AD, VLAN_QINQ, MPLS, PPPOED, PPPOES, TEB = 0x8100, 0x88A8, 0x9100, 0x8847, 0x8863, 0x8864, 0x6558
ETHERTYPES = {
    "aarp": AARP,
    "arp": ARP,
    "atalk": ATALK,
    "decnet": DECNET,
    "ip": IP,
    "ip6": IPV6,
    "lat": LAT,
    "mopdl": MOPDL,
    "moprc": MOPRC,
    "rarp": REVARP,
    "sca": SCA,
}
MORE_ETHERTYPES = {**ETHERTYPES, "lldp": 0x88CC, "loopback": 0x9000, "slow": 0x8809}
LONGEST_LENGTH = 1500  # a larger value in Ethernet's type field is a type

SAP_IP, SAP_SPANNING_TREE, SAP_SNAP, SAP_IPX, SAP_NETBEUI, SAP_ISO = 0x06, 0x42, 0xAA, 0xE0, 0xF0, 0xFE
SAPS = {"iso": SAP_ISO, "stp": SAP_SPANNING_TREE, "ipx": SAP_IPX, "netbeui": SAP_NETBEUI}

PPP_IP, PPP_VJC, PPP_VJNC, PPP_MPLS = 0x0021, 0x002D, 0x002F, 0x0281
PPP = {
    IP: PPP_IP,
    IPV6: 0x0057,
    DECNET: 0x0027,
    ATALK: 0x0029,
    NS: 0x0025,
    SAP_ISO: 0x0023,
    SAP_SPANNING_TREE: 0x0031,
    SAP_IPX: 0x002B,
}
ARCNET = {IPV6: 0xC4, IP: 212, ARP: 213, REVARP: 214, ATALK: 221}

HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, NO_NEXT, DESTINATION = 0, 43, 44, 51, 59, 60
TCP, UDP, SCTP = 6, 17, 132
IP_PROTOCOLS = {
    "ah": AUTHENTICATION,
    "carp": 112,
    "esp": 50,
    "icmp": 1,
    "icmp6": 58,
    "igmp": 2,
    "igrp": 9,
    "pim": 103,
    "sctp": SCTP,
    "tcp": TCP,
    "udp": UDP,
    "vrrp": 112,
}

CLNP, ESIS, ISIS, NLPID_IPV4, NLPID_IPV6 = 0x81, 0x82, 0x83, 0xCC, 0x8E
ISO = {"clnp": CLNP, "esis": ESIS, "isis": ISIS}
# PDU types of IS-IS, in the order in which the words of both levels test them.
L1_HELLO, L2_HELLO, POINT_TO_POINT, L1_LSP, L2_LSP = 15, 16, 17, 18, 20
L1_CSNP, L2_CSNP, L1_PSNP, L2_PSNP = 24, 25, 26, 27
ISIS_PDUS = {
    "l1": (L1_HELLO, POINT_TO_POINT, L1_LSP, L1_CSNP, L1_PSNP),
    "l2": (L2_HELLO, POINT_TO_POINT, L2_LSP, L2_CSNP, L2_PSNP),
    "iih": (L1_HELLO, L2_HELLO, POINT_TO_POINT),
    "lsp": (L1_LSP, L2_LSP),
    "snp": (L1_CSNP, L2_CSNP, L1_PSNP, L2_PSNP),
    "csnp": (L1_CSNP, L2_CSNP),
    "psnp": (L1_PSNP, L2_PSNP),
}
