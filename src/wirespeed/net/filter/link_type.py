"""The link types that filters know: their names, and where in a frame their parts are.

Numbers are those of capture files (LINKTYPE_*), which for most types are those of libpcap in memory (DLT_*) too; where a
number differs and is free in files, the other one is known as well (``SAME``).

*Source:* https://www.tcpdump.org/linktypes.html and the documents of each link type.
"""

from dataclasses import dataclass

ETHERNET = 1
LINKS = {
    "NULL": 0,
    "EN10MB": 1,
    "EN3MB": 2,
    "AX25": 3,
    "PRONET": 4,
    "CHAOS": 5,
    "IEEE802": 6,
    "ARCNET": 7,
    "SLIP": 8,
    "PPP": 9,
    "FDDI": 10,
    "REDBACK_SMARTEDGE": 32,
    "PPP_SERIAL": 50,
    "PPP_ETHER": 51,
    "SYMANTEC_FIREWALL": 99,
    "ATM_RFC1483": 100,
    "RAW": 101,
    "SLIP_BSDOS": 102,
    "PPP_BSDOS": 103,
    "C_HDLC": 104,
    "IEEE802_11": 105,
    "ATM_CLIP": 106,
    "FRELAY": 107,
    "LOOP": 108,
    "ENC": 109,
    "HDLC": 112,
    "LINUX_SLL": 113,
    "LTALK": 114,
    "PFLOG": 117,
    "PRISM_HEADER": 119,
    "IP_OVER_FC": 122,
    "SUNATM": 123,
    "IEEE802_11_RADIO": 127,
    "ARCNET_LINUX": 129,
    "JUNIPER_MLPPP": 130,
    "JUNIPER_MLFR": 131,
    "JUNIPER_ES": 132,
    "JUNIPER_GGSN": 133,
    "JUNIPER_MFR": 134,
    "JUNIPER_ATM2": 135,
    "JUNIPER_SERVICES": 136,
    "JUNIPER_ATM1": 137,
    "APPLE_IP_OVER_IEEE1394": 138,
    "MTP2_WITH_PHDR": 139,
    "MTP2": 140,
    "IEEE802_11_RADIO_AVS": 163,
    "JUNIPER_MONITOR": 164,
    "BACNET_MS_TP": 165,
    "PPP_PPPD": 166,
    "JUNIPER_PPPOE": 167,
    "JUNIPER_PPPOE_ATM": 168,
    "JUNIPER_ETHER": 178,
    "JUNIPER_PPP": 179,
    "JUNIPER_FRELAY": 180,
    "JUNIPER_CHDLC": 181,
    "MFR": 182,
    "JUNIPER_VP": 183,
    "PPI": 192,
    "JUNIPER_ISM": 194,
    "ERF": 197,
    "JUNIPER_ST": 200,
    "AX25_KISS": 202,
    "IPNET": 226,
    "IPV4": 228,
    "IPV6": 229,
    "JUNIPER_VS": 232,
    "JUNIPER_SRX_E2E": 233,
    "JUNIPER_FIBRECHANNEL": 234,
    "JUNIPER_ATM_CEMIC": 238,
    "NETANALYZER": 240,
    "NETANALYZER_TRANSPARENT": 241,
    "PFSYNC": 246,
    "LINUX_SLL2": 276,
    "DSA_TAG_BRCM": 281,
    "DSA_TAG_DSA": 284,
}
SUPPORTED = {number: name for name, number in LINKS.items()}
SAME = {11: "ATM_RFC1483", 12: "RAW", 14: "RAW", 19: "ATM_CLIP"}
# Types whose frames a filter reads as bytes only (``link[0]``, ``len``): nobody has said where other parts are.
FIRST_OTHER, LAST_OTHER = 104, 304

ETHERNETS = ("EN10MB", "NETANALYZER", "NETANALYZER_TRANSPARENT", "DSA_TAG_BRCM", "DSA_TAG_DSA")
WLANS = ("IEEE802_11", "PRISM_HEADER", "IEEE802_11_RADIO_AVS", "IEEE802_11_RADIO", "PPI")
JUNIPERS = tuple(name for name in LINKS if name.startswith("JUNIPER_"))
PPPS = ("PPP", "PPP_PPPD", "PPP_SERIAL", "PPP_ETHER")
HDLCS = ("C_HDLC", "HDLC")
LLCS = ("FDDI", "IEEE802", "ATM_RFC1483", "ATM_CLIP", "IP_OVER_FC")
ARCNETS = ("ARCNET", "ARCNET_LINUX")
LOOPBACKS = ("NULL", "LOOP", "ENC")
SS7S = ("MTP2", "MTP2_WITH_PHDR", "ERF")


@dataclass(frozen=True)
class Places:
    """Offsets in a frame, in bytes; None where the link type has no such thing.

    ``kind`` is of the field that tells the protocol, ``payload`` of what follows the link's header (the LLC header where
    there is one).  ``skip`` is from there to the network's header behind LLC and SNAP, ``skip_plain`` behind LLC only.
    """

    kind: int | None = None
    payload: int | None = None
    skip: int | None = 0
    skip_plain: int | None = 0
    header: int = 0


_PLACES = {
    **dict.fromkeys(("NULL", "LOOP"), Places(0, 4)),
    "EN10MB": Places(12, 14, 0, 3),
    "IEEE802": Places(14, 14, 8, 3),
    "ARCNET": Places(2, 6),
    "ARCNET_LINUX": Places(4, 8),
    "SLIP": Places(None, 16),
    "SLIP_BSDOS": Places(None, 24),
    "FDDI": Places(13, 13, 8, 3),
    **dict.fromkeys(("PPP", "PPP_PPPD", "PPP_SERIAL", "C_HDLC", "HDLC"), Places(2, 4)),
    "PPP_ETHER": Places(6, 8),
    "PPP_BSDOS": Places(5, 24),
    "ENC": Places(0, 12),
    **dict.fromkeys(WLANS, Places(24, 0, 8, 3)),
    **dict.fromkeys(("ATM_RFC1483", "ATM_CLIP"), Places(0, 0, 8, 3)),
    "SUNATM": Places(4, 4, 8, 3),
    **dict.fromkeys(("RAW", "IPV4", "IPV6", "LTALK", "FRELAY"), Places(None, 0)),
    "MFR": Places(None, 0, 4, 0),
    "LINUX_SLL": Places(14, 16),
    "LINUX_SLL2": Places(0, 20),
    "IP_OVER_FC": Places(16, 16, 8, 3),
    "APPLE_IP_OVER_IEEE1394": Places(16, 18),
    "SYMANTEC_FIREWALL": Places(6, 44),
    "PFLOG": Places(0, 0),
    "PFSYNC": Places(None, 4),
    "IPNET": Places(1, 24, 0, None),
    "NETANALYZER": Places(16, 18, 0, 3, header=4),
    "NETANALYZER_TRANSPARENT": Places(24, 26, 0, 3, header=12),
    **dict.fromkeys(("DSA_TAG_BRCM", "DSA_TAG_DSA"), Places(16, 18, 0, 3)),
    **dict.fromkeys(
        ("JUNIPER_MFR", "JUNIPER_MLFR", "JUNIPER_MLPPP", "JUNIPER_PPP", "JUNIPER_CHDLC", "JUNIPER_FRELAY"),
        Places(4, 4, 0, None),
    ),
    "JUNIPER_ATM1": Places(4, 4, 0, 10),
    "JUNIPER_ATM2": Places(8, 8, 0, 10),
    **dict.fromkeys(("JUNIPER_PPPOE", "JUNIPER_ETHER"), Places(16, 14, 18, 21)),
    "JUNIPER_PPPOE_ATM": Places(4, 6, 0, None),
    "JUNIPER_GGSN": Places(6, 12, 0, None),
    "JUNIPER_MONITOR": Places(12, 12, 0, None),
}

SS7 = {
    # Where the length indicator, that of high speed links, the service octet, the codes and the selection are.
    "MTP2": {"li": 2, "hli": 4, "sio": 3, "opc": 4, "dpc": 4, "sls": 7},
    "MTP2_WITH_PHDR": {"li": 6, "hli": 8, "sio": 7, "opc": 8, "dpc": 8, "sls": 11},
    "ERF": {"li": 22, "hli": 24, "sio": 23, "opc": 24, "dpc": 24, "sls": 27},
}


def name_of(link: int) -> str:
    """The name of a link type, with its number where it has no name here."""
    return SUPPORTED.get(link) or SAME.get(link) or f"link type {link}"


def known(link: int) -> bool:
    """True for a link type that filters can be compiled for, if only for bytes."""
    return link in SUPPORTED or link in SAME or FIRST_OTHER <= link <= LAST_OTHER


def places(name: str) -> Places:
    """Where the parts of a frame are."""
    return _PLACES.get(name, Places(None, None, None, None))
