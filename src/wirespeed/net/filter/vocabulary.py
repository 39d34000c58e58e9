"""The reserved words of the filter language and the names of its numbers.

*Source:* pcap-filter(7), pcap-savefile(5) and the protocols' own documents: RFC 792 and 4443 (ICMP types), RFC 9293
(TCP flags), IEEE 802.11-2020 section 9.2.4.1 (frame control), IEEE 802.2 (LLC), the pf(4) manuals (log reasons).
"""

# A word that can qualify a primitive by its protocol; the words of one meaning share a name.
LINK_WORDS = ("link", "ether", "ppp", "slip", "fddi", "tr", "wlan")
PROTOCOLS = {
    **dict.fromkeys(LINK_WORDS, "link"),
    **{
        word: word
        for word in (
            *("arp", "rarp", "ip", "sctp", "tcp", "udp", "icmp", "igmp", "igrp", "pim", "vrrp", "carp", "radio"),
            *("ip6", "icmp6", "ah", "esp", "atalk", "aarp", "decnet", "lat", "sca", "moprc", "mopdl", "iso", "esis"),
            *("isis", "l1", "l2", "iih", "lsp", "snp", "csnp", "psnp", "clnp", "stp", "ipx", "netbeui"),
        )
    },
    "es-is": "esis",
    "is-is": "isis",
}
DIRECTIONS = {
    "src": "src",
    "dst": "dst",
    **{f"addr{n}": f"addr{n}" for n in range(1, 5)},
    **{f"address{n}": f"addr{n}" for n in range(1, 5)},
    "ra": "ra",
    "ta": "ta",
}
KINDS = ("host", "net", "port", "portrange")  # may follow a direction
BARE_KINDS = ("gateway", "proto", "protochain")  # may not

# Primitives that begin with their own word; the words of one meaning share a name.
WORDS = {
    **{
        word: word
        for word in (
            *("less", "greater", "byte", "broadcast", "multicast", "inbound", "outbound", "ifindex", "vlan", "mpls"),
            *("pppoed", "pppoes", "geneve", "vxlan", "llc", "type", "subtype", "dir", "ifname", "ruleset", "rulenum"),
            *("subrulenum", "reason", "action", "mask", "and", "or", "not"),
            *("lane", "metac", "bcc", "oam", "oamf4", "oamf4ec", "oamf4sc", "sc", "ilmic", "vpi", "vci"),
            *("connectmsg", "metaconnect", "fisu", "lssu", "msu", "hfisu", "hlssu", "hmsu"),
            *("sio", "opc", "dpc", "sls", "hsio", "hopc", "hdpc", "hsls", "len"),
        )
    },
    "direction": "dir",
    "length": "len",
    "on": "ifname",
    "rset": "ruleset",
    "rnr": "rulenum",
    "srnr": "subrulenum",
    "lsu": "lssu",
}
ATM_TYPES = ("lane", "metac", "bcc", "oamf4ec", "oamf4sc", "sc", "ilmic", "oam", "oamf4", "connectmsg", "metaconnect")
MTP2_TYPES = ("fisu", "lssu", "msu", "hfisu", "hlssu", "hmsu")
ATM_FIELDS = ("vpi", "vci")
MTP3_FIELDS = ("sio", "opc", "dpc", "sls", "hsio", "hopc", "hdpc", "hsls")
RESERVED = {*PROTOCOLS, *DIRECTIONS, *KINDS, *BARE_KINDS, *WORDS}

_ICMP = {
    "echoreply": 0,
    "unreach": 3,
    "sourcequench": 4,
    "redirect": 5,
    "echo": 8,
    "routeradvert": 9,
    "routersolicit": 10,
    "timxceed": 11,
    "paramprob": 12,
    "tstamp": 13,
    "tstampreply": 14,
    "ireq": 15,
    "ireqreply": 16,
    "maskreq": 17,
    "maskreply": 18,
}
_ICMP6 = {
    "destinationunreach": 1,
    "packettoobig": 2,
    "timeexceeded": 3,
    "parameterproblem": 4,
    "echo": 128,
    "echoreply": 129,
    "multicastlistenerquery": 130,
    "multicastlistenerreportv1": 131,
    "multicastlistenerdone": 132,
    "routersolicit": 133,
    "routeradvert": 134,
    "neighborsolicit": 135,
    "neighboradvert": 136,
    "redirect": 137,
    "routerrenum": 138,
    "nodeinformationquery": 139,
    "nodeinformationresponse": 140,
    "ineighbordiscoverysolicit": 141,
    "ineighbordiscoveryadvert": 142,
    "multicastlistenerreportv2": 143,
    "homeagentdiscoveryrequest": 144,
    "homeagentdiscoveryreply": 145,
    "mobileprefixsolicit": 146,
    "mobileprefixadvert": 147,
    "certpathsolicit": 148,
    "certpathadvert": 149,
    "multicastrouteradvert": 151,
    "multicastroutersolicit": 152,
    "multicastrouterterm": 153,
}
_TCP = {"fin": 0x01, "syn": 0x02, "rst": 0x04, "push": 0x08, "ack": 0x10, "urg": 0x20, "ece": 0x40, "cwr": 0x80}
NUMBERS = {
    "icmptype": 0,
    "icmpcode": 1,
    "icmp6type": 0,
    "icmp6code": 1,
    "tcpflags": 13,
    **{f"icmp-{name}": value for name, value in _ICMP.items()},
    **{f"icmp6-{name}": value for name, value in _ICMP6.items()},
    **{f"tcp-{name}": value for name, value in _TCP.items()},
}

WLAN_TYPE_MASK, WLAN_SUBTYPE_MASK, WLAN_DIRECTION_MASK = 0x0C, 0xF0, 0x03
WLAN_MANAGEMENT, WLAN_CONTROL, WLAN_DATA = 0x00, 0x04, 0x08
WLAN_TYPES = {
    "data": WLAN_DATA,
    "mgt": WLAN_MANAGEMENT,
    "management": WLAN_MANAGEMENT,
    "ctl": WLAN_CONTROL,
    "control": WLAN_CONTROL,
}
WLAN_SUBTYPES = {
    WLAN_MANAGEMENT: {
        **dict.fromkeys(("assocreq", "assoc-req"), 0x00),
        **dict.fromkeys(("assocresp", "assoc-resp"), 0x10),
        **dict.fromkeys(("reassocreq", "reassoc-req"), 0x20),
        **dict.fromkeys(("reassocresp", "reassoc-resp"), 0x30),
        **dict.fromkeys(("probereq", "probe-req"), 0x40),
        **dict.fromkeys(("proberesp", "probe-resp"), 0x50),
        "beacon": 0x80,
        "atim": 0x90,
        **dict.fromkeys(("disassoc", "disassociation"), 0xA0),
        **dict.fromkeys(("auth", "authentication"), 0xB0),
        **dict.fromkeys(("deauth", "deauthentication"), 0xC0),
    },
    WLAN_CONTROL: {
        "bar": 0x80,
        "ba": 0x90,
        "ps-poll": 0xA0,
        "rts": 0xB0,
        "cts": 0xC0,
        "ack": 0xD0,
        "cf-end": 0xE0,
        "cf-end-ack": 0xF0,
    },
    WLAN_DATA: {
        "data": 0x00,
        "data-cf-ack": 0x10,
        "data-cf-poll": 0x20,
        "data-cf-ack-poll": 0x30,
        "null": 0x40,
        "cf-ack": 0x50,
        "cf-poll": 0x60,
        "cf-ack-poll": 0x70,
        "qos-data": 0x80,
        "qos-data-cf-ack": 0x90,
        "qos-data-cf-poll": 0xA0,
        "qos-data-cf-ack-poll": 0xB0,
        "qos": 0xC0,
        "qos-cf-poll": 0xE0,
        "qos-cf-ack-poll": 0xF0,
    },
}
WLAN_DIRECTIONS = {"nods": 0, "tods": 1, "fromds": 2, "dstods": 3}

LLC_SUPERVISORY = {"rr": 0x01, "rnr": 0x05, "rej": 0x09}
LLC_UNNUMBERED = {
    "ui": 0x03,
    "ua": 0x63,
    "disc": 0x43,
    "dm": 0x0F,
    "sabme": 0x6F,
    "test": 0xE3,
    "xid": 0xAF,
    "frmr": 0x87,
}

# The first fifteen are the same everywhere; behind them each system goes on by itself, with names of its own.
PF_REASONS = {
    "match": 0,
    "bad-offset": 1,
    "fragment": 2,
    "short": 3,
    "normalize": 4,
    "memory": 5,
    "bad-timestamp": 6,
    "congestion": 7,
    "ip-option": 8,
    "proto-cksum": 9,
    "state-mismatch": 10,
    "state-insert": 11,
    "state-limit": 12,
    "src-limit": 13,
    "synproxy": 14,
    "map-failed": 15,  # FreeBSD
    "state-locked": 15,  # NetBSD
    "translate": 15,  # OpenBSD
    "no-route": 16,  # OpenBSD
    "dummynet": 15,  # macOS
}
PF_ACTIONS = {
    "pass": 0,
    "accept": 0,
    "drop": 1,
    "block": 1,
    "scrub": 2,
    "noscrub": 3,
    "nat": 4,
    "nonat": 5,
    "binat": 6,
    "nobinat": 7,
    "rdr": 8,
    "nordr": 9,
    "synproxy-drop": 10,
    "defer": 11,  # FreeBSD and OpenBSD
    "match": 12,  # OpenBSD, with the next three
    "divert": 13,
    "rt": 14,
    "afrt": 15,
    "dummynet": 11,  # macOS, with the next three
    "nodummynet": 12,
    "nat64": 13,
    "nonat64": 14,
}
