"""Where wirespeed and tshark differ over the public captures, one by one, with the reason.

A reason that no longer applies fails the tests, as much as a difference without one.
"""

from dataclasses import dataclass

EXAMPLES = "PcapPlusPlus/Tests/Packet++Test/PacketExamples/"
FILES = "PcapPlusPlus/Tests/Pcap++Test/PcapExamples/"
GENERATED = "pcapng-test-generator/output_le/"

ARP = ("hwtype", "ptype", "hwlen", "plen", "op", "hwsrc", "psrc", "hwdst", "pdst")
BEHIND_LENGTH = ("id", "flags", "frag", "ttl", "proto", "chksum", "src", "dst")
IPV6 = ("version", "tc", "fl", "plen", "nh", "hlim", "src", "dst")


@dataclass(frozen=True)
class Explained:
    """A difference in the ``fields`` of some packets of a file."""

    file: str
    packets: str  # numbers from 1 and ranges of them: "1 5-7"
    fields: tuple[str, ...]
    why: str

    def numbers(self) -> set[int]:
        """The packets as a set."""
        ends = (part.partition("-") for part in self.packets.split())
        return {n for first, _, last in ends for n in range(int(first), int(last or first) + 1)}


@dataclass(frozen=True)
class Refused:
    """A file that tshark does not read to its end: how many packets it gives, and how many we do."""

    theirs: int
    ours: int
    why: str


EXPLAINED = (
    Explained(
        EXAMPLES + "IPv4-TSO.pcap", "1", ("ipv4.len",),
        "A total length of 0 is a segment yet to be cut: the field holds 0, and tshark shows the length it reckons.",
    ),
    Explained(
        "tcpdump/ipv4_tcp_http_xml_tso.pcap", "1", ("ipv4.len",),
        "A total length of 0 is a segment yet to be cut: the field holds 0, and tshark shows the length it reckons.",
    ),
    Explained(
        "zeek/ip-bogus-header-len.pcap", "1", ("ipv4.len",),
        "A total length of 0 is a segment yet to be cut: the field holds 0, and tshark shows the length it reckons.",
    ),
    Explained(
        EXAMPLES + "ipv4-malformed.pcap", "1",
        ("stack", "ipv4.verdict", *(f"ipv4.{name}" for name in BEHIND_LENGTH)),
        "The total length is less than the header's: tshark shows no field behind it; for us the 20 bytes are there, "
        "so the fields can be read, and the header is flagged as bad.",
    ),
    Explained(
        FILES + "pcapng-example.pcapng", "60-159", ("time",),
        "These time stamps are negative numbers of microseconds: 64 bits of nanoseconds are enough for that reading, "
        "and not for tshark's, which puts them into the year 586,524.",
    ),
    Explained(
        FILES + "pcapng-example.pcapng", "60-159", ("comments",),
        "The options' length takes in a zero and more bytes behind the text; the comment is what the length says, and "
        "tshark's ends at the zero.",
    ),
    Explained(
        "extra/tcpdump-atm-oam-loopback-print-overrun.pcap", "1", ("captured", "wire"),
        "tshark takes the four bytes of SunATM's own header off the front of the frame; they are bytes of the packet.",
    ),
    Explained(
        "extra/tcpdump-atm-oam-loopback-print-overrun.pcap", "1", ("time",),
        "1,159,821,166 microseconds within a second are added as they stand; tshark cuts their nanoseconds to 32 bits.",
    ),
    Explained(
        "tcpdump/rx_serviceid_oobr.pcap", "2", ("time",),
        "3,841,916,976 microseconds within a second are added as they stand; tshark cuts their nanoseconds to 32 bits.",
    ),
    Explained(
        "tcpdump/timestamp_invalid_micro.pcap", "3", ("time",),
        "2,147,483,648 microseconds within a second are added as they stand; tshark cuts their nanoseconds to 32 bits.",
    ),
    Explained(
        "tcpdump/bad-ipv4-version-pgm-heapoverflow.pcap", "1", ("stack", *(f"ipv6.{name}" for name in IPV6)),
        "The EtherType says IPv4 and the version says 6: tshark goes by the version; we believe neither and call the "
        "header bad.",
    ),
    Explained(
        "tcpdump/icmp-cksum-oobr-3.pcapng", "1", ("icmp.verdict",),
        "The datagram claims 4,419 bytes and the frame has 323 of them: the sum over a part happens to be right, which "
        "tshark calls good and we call unverifiable.",
    ),
    Explained(
        "zeek/pppoe-over-qinq.pcap", "19 33 41 47 63 81", ("tcp.verdict",),
        "The IP datagram claims more bytes than the PPPoE session around it carries: tshark sums what there is and "
        "calls it bad, for us it cannot be verified.",
    ),
    Explained(
        "tcpdump/ipv6-next-header-oobr-1.pcap", "1", ("stack",),
        "The capture ends where the routing header would begin: we list it as one that is not whole, tshark does not.",
    ),
    Explained(
        "tcpdump/ipv6-rthdr-oobr.pcap", "1", ("stack",),
        "Five bytes of the routing header were captured: enough for tshark's fields, and less than the eight that an "
        "extension header has at least.",
    ),
    Explained(
        "zeek/linux_dlt_sll2.pcap", "6", ("stack", *(f"arp.{name}" for name in ARP)),
        "This is RARP, which has an EtherType of its own that we do not parse; tshark has one dissector for both.",
    ),
)  # fmt: skip

REFUSED = {
    "gopacket/pcapgo/tests/be/test901.pcapng": Refused(
        1, 3, "tshark ends at a section of version 2.0; we count a fault and go on, for all we need of it is the same."
    ),
    "gopacket/pcapgo/tests/le/test901.pcapng": Refused(
        1, 3, "tshark ends at a section of version 2.0; we count a fault and go on, for all we need of it is the same."
    ),
    "libpcap/pcapng-invalid-vers-1.pcapng": Refused(
        0, 1, "tshark refuses a section of version 0.1; we count a fault and go on."
    ),
    "libpcap/pcapng-invalid-vers-2.pcapng": Refused(
        0, 1, "tshark refuses a section of version 1.1; we count a fault and go on."
    ),
    "libpcap/pcap-invalid-version-1.pcap": Refused(
        0, 1, "tshark refuses version 1.4, which nobody ever wrote; the records are those of 2.4, so we read them."
    ),
    "libpcap/shb-option-too-long.pcapng": Refused(
        0, 1, "An option goes beyond the section's block, where tshark ends; we count a fault, and the packet is good."
    ),
    "libpcap/linktype-reserved-field-not-zero.pcap": Refused(
        0, 0, "The reserved bits above the link type are not 0, which tshark refuses; we leave them alone."
    ),
    "libpcap/filter/brcm-tag-stp.pcap": Refused(
        0, 4, "Link type 281 (Broadcom tags) is not known to tshark; to us each link type is a number."
    ),
    "libpcap/filter/brcm-tag.pcap": Refused(
        0, 15, "Link type 281 (Broadcom tags) is not known to tshark; to us each link type is a number."
    ),
    "tcpdump/dsa.pcap": Refused(
        0, 8, "Link type 284 (Marvell DSA) is not known to tshark; to us each link type is a number."
    ),
    "tcpdump/edsa.pcap": Refused(
        0, 10, "Link type 285 (Marvell EDSA) is not known to tshark; to us each link type is a number."
    ),
}
"""Files that tshark does not read to their end."""

NOT_PACKETS = {
    GENERATED + "advanced/test102.pcapng": (1, 3, 8),
    GENERATED + "basic/test017.pcapng": (1, 2, 3, 4),
    GENERATED + "basic/test018.pcapng": (1, 4, 6, 8),
}
"""Custom blocks of pcapng, which tshark numbers among the packets of a file; these are their numbers."""

BEYOND = {
    "data": ("zeek/ipv4/fragmented-1.pcap", "A later fragment, or a payload that tshark has no dissector for."),
    "arcnet": ("libpcap/filter/arcnet-rfc1201-arp-icmp-http.pcap", "A link type that is not parsed."),
    "atm": ("extra/tcpdump-atm-oam-loopback-print-overrun.pcap", "A link type that is not parsed."),
    "fr": ("tcpdump/icmp-icmp_print-oobr-2.pcap", "Frame relay, a link type that is not parsed."),
    "netlink": (FILES + "microsecs_big_endian.pcap", "A link type that is not parsed."),
    "nflog": ("zeek/nflog-bad-tlv-len.pcap", "A link type that is not parsed."),
    "radiotap": ("libpcap/filter/ieee802.11_exthdr.pcap", "IEEE 802.11, a link type that is not parsed."),
    "ieee8021ah": ("zeek/pbb-recursive-frames.pcapng", "Provider backbone bridging; there is no layout for its tag."),
    "vntag": ("zeek/vntag.pcap", "IEEE 802.1BR; there is no layout for its tag."),
    "nsh": ("tcpdump/nsh.pcap", "Network service header; there is no layout for it."),
    "cmd": ("tcpdump/various_gre.pcap", "Cisco's metadata header; there is no layout for it."),
    "pwethheuristic": (
        EXAMPLES + "MplsPackets.pcap",
        "An Ethernet pseudo wire in MPLS, which nothing in the packet tells: tshark guesses.",
    ),
    "ipcomp": ("libpcap/filter/AH-IPcomp-IPv4.pcap", "Compressed payload, which tshark uncompresses."),
    "cdp": ("tcpdump/LLDP_and_CDP.pcap", "Not IP: a protocol of neighbours."),
    "dtp": ("tcpdump/various_gre.pcap", "Not IP: a protocol of neighbours."),
    "lldp": ("tcpdump/LLDP_and_CDP.pcap", "Not IP: a protocol of neighbours."),
    "stp": ("tcpdump/various_gre.pcap", "Not IP: spanning tree."),
    "loop": ("tcpdump/loopback.pcap", "Not IP: the configuration test protocol."),
    "ipx": ("libpcap/filter/llc.pcap", "Not IP."),
    "netbios": ("libpcap/filter/llc.pcap", "Not IP: NetBIOS over LLC."),
    "pppoed": ("tcpdump/pppoe.pcap", "PPPoE's discovery, which carries no packets."),
    "lcp": (FILES + "GrePackets.cap", "PPP's control protocol."),
    "ipcp": (FILES + "GrePackets.cap", "PPP's control protocol."),
    "pap": (FILES + "GrePackets.cap", "PPP's control protocol."),
    "pim": ("libpcap/filter/pim-packet-assortment.pcap", "An IP protocol that is not parsed."),
    "rsvp": ("community-id/rsvp.pcap", "An IP protocol that is not parsed."),
}
"""Protocols of tshark's that we do not parse, where it finds one in place of one that we do: a file, and the reason."""
