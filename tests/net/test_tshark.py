"""Every public capture, frame by frame, against tshark: headers, addresses, ports and verdicts on checksums.

What tshark says is first brought to what the parser claims to do, by three rules; what differs then is listed in
EXPLAINED, frame by frame, with the reason.

* An ICMP error quotes the packet it is about.  tshark parses the quote; for us it is ICMP's payload.
* A header of FOREIGN is one that we do not parse; what tshark finds behind it is left out.
* A header that is cut short is listed by tshark or not, as its dissector sees fit; we list it and say that it is cut.
"""

import ipaddress
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import captures_directory
from tests.net.frames import captured
from wirespeed.net.dissect import Header, layers
from wirespeed.net.verdict import verdicts

MOST = 3000  # frames of one file

NAMES = {
    "eth": "eth", "vlan": "vlan", "ieee8021ad": "vlan", "llc": "llc", "arp": "arp", "ip": "ipv4", "ipv6": "ipv6",
    "tcp": "tcp", "udp": "udp", "icmp": "icmp", "icmpv6": "icmpv6", "sctp": "sctp", "mpls": "mpls", "gre": "gre",
    "vxlan": "vxlan", "geneve": "geneve", "pppoes": "pppoe", "ppp": "ppp", "sll": "sll", "null": "null", "ah": "ah",
    "esp": "esp", "ipv6.hopopts": "hopopts", "ipv6.fraghdr": "fragment", "ipv6.routing": "routing",
    "ipv6.dstopts": "dstopts", "mipv6": "mobility", "hip": "hip", "shim6": "shim6",
}  # fmt: skip
OURS = {"sll2": "sll", "loop": "null"}  # tshark has one name for both
FOREIGN = {
    "nsh",  # network service header
    "vntag",  # 802.1BR
    "cmd",  # Cisco metadata
    "pwethheuristic",  # an Ethernet pseudo wire, which only a guess tells from other payload of MPLS
    "ipcomp",  # compressed payload
    "arcnet",
    "fr",  # frame relay
    "ieee8021ah",  # provider backbone bridges
}
ADDRESSED = ("ipv4", "ipv6")
PORTED = ("tcp", "udp", "sctp")
CHECKED = {"ipv4": "ip", "tcp": "tcp", "udp": "udp", "icmp": "icmp", "icmpv6": "icmpv6", "sctp": "sctp", "gre": "gre"}
STATUS = {"0": "bad", "1": "good", "2": "unverifiable", "3": "absent"}
FIELDS = [
    "frame.protocols", "frame.encap_type", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport",
    "udp.srcport", "udp.dstport", "sctp.srcport", "sctp.dstport",
]  # fmt: skip
FIELDS += [f"{name}.checksum.status" for name in CHECKED.values()]
OPTIONS = [
    "ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE", "sctp.checksum:CRC-32c",
    "ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE", "ip.tso_support:TRUE",
]  # fmt: skip

Row = dict[str, list[str]]

_TOO_LONG = "IP claims more than the frame had on the wire; tshark takes the frame's length then, for us it is cut"
_BAD_LENGTH = "The total length is below the header's; tshark shows nothing of the header, we call it bad and show it"
_PPPOE = "zeek/pppoe-over-qinq.pcap"
_MALFORMED = "PcapPlusPlus/Tests/Packet++Test/PacketExamples/ipv4-malformed.pcap"
EXPLAINED = {
    (_MALFORMED, 1, "ip.src"): _BAD_LENGTH,
    (_MALFORMED, 1, "ip.dst"): _BAD_LENGTH,
    (_MALFORMED, 1, "ipv4 checksum"): _BAD_LENGTH,
    ("tcpdump/arp-oobr.pcap", 186, "headers"): "tshark writes arp twice where it warns of an address used twice",
    (
        "tcpdump/bad-ipv4-version-pgm-heapoverflow.pcap",
        1,
        "headers",
    ): "Version 6 behind IPv4's EtherType: bad for us",
    ("tcpdump/icmp-cksum-oobr-3.pcapng", 1, "icmp checksum"): _TOO_LONG,
    ("zeek/linux_dlt_sll2.pcap", 6, "headers"): "RARP, which has ARP's form but is not ARP",
    **{(_PPPOE, number, "tcp checksum"): _TOO_LONG for number in (19, 33, 41, 47, 63, 81)},
}

# Captures that tshark does not read at all: of link types unknown to it, or damaged in the first block.
REFUSED = {
    "libpcap/filter/brcm-tag-stp.pcap", "libpcap/filter/brcm-tag.pcap", "tcpdump/dsa.pcap", "tcpdump/edsa.pcap",
    "libpcap/pcap-invalid-version-1.pcap", "libpcap/pcapng-invalid-vers-1.pcapng",
    "libpcap/pcapng-invalid-vers-2.pcapng", "libpcap/shb-option-too-long.pcapng",
}  # fmt: skip


def files() -> list[str]:
    """The captures, by their names below the directory."""
    directory = captures_directory()
    if directory is None:
        return []
    found = [path for path in sorted(directory.rglob("*")) if "cap" in path.suffix]
    return [str(path.relative_to(directory)) for path in found]


def tshark(path: Path, n: int) -> list[Row]:
    """What tshark says of the first ``n`` frames."""
    command = [
        "tshark",
        "-n",
        "-r",
        str(path),
        "-c",
        str(n),
        "-T",
        "fields",
        "-E",
        "occurrence=a",
        "-E",
        "separator=/t",
    ]
    command += [word for option in OPTIONS for word in ("-o", option)]
    command += [word for field in FIELDS for word in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    lines = (line.split("\t") for line in done.stdout.split("\n")[:-1])
    rows = [
        {field: word.split(",") if word else [] for field, word in zip(FIELDS, line, strict=True)} for line in lines
    ]
    # A row without a link type is a block of pcapng that is no packet, or a packet of a type that tshark does not know.
    return [row for row in rows if row["frame.encap_type"] or row["frame.protocols"] != ["data"]]


def theirs(row: Row) -> list[str]:
    """tshark's headers, by our names, up to what we do not parse."""
    names: list[str] = []
    for word in row["frame.protocols"][0].split(":"):
        if word in FOREIGN or (names and names[-1] in ("icmp", "icmpv6")):
            break
        if word in NAMES and not (word == "llc" and names[-1:] == ["llc"]):
            names.append(NAMES[word])
    return names


def ours(found: list[Header]) -> list[str]:
    """Our headers as tshark lists them: it does not name SNAP, and names a stack of MPLS labels once."""
    names = [OURS.get(header.name, header.name) for header in found if header.name != "snap"]
    return [name for number, name in enumerate(names) if name != "mpls" or names[:number][-1:] != ["mpls"]]


def ends(found: list[Header], frame: bytes) -> Row:
    """Addresses and ports, as tshark writes them."""
    said: Row = {field: [] for field in FIELDS[2:12]}
    for header in found:
        data = frame[header.offset :]
        if not header.whole:
            continue
        if header.name in ADDRESSED:
            at, size, text = (12, 4, "ip") if header.name == "ipv4" else (8, 16, "ipv6")
            said[f"{text}.src"].append(str(ipaddress.ip_address(data[at : at + size])))
            said[f"{text}.dst"].append(str(ipaddress.ip_address(data[at + size : at + 2 * size])))
        elif header.name in PORTED:
            said[f"{header.name}.srcport"].append(str(int.from_bytes(data[:2], "big")))
            said[f"{header.name}.dstport"].append(str(int.from_bytes(data[2:4], "big")))
    return said


def differences(row: Row, frame: bytes, link: int) -> Iterator[tuple[str, object, object]]:
    """Yield (what, tshark's, ours) for each difference in one frame."""
    found = layers(frame, link)
    names, mine = theirs(row), ours(found)
    if names != mine and not (found and not found[-1].whole and names == mine[:-1]):
        yield "headers", names, mine
    for field, said in ends(found, frame).items():
        # tshark may have more: of the quote in an ICMP error, and of headers cut short after the ports.
        if row[field][: len(said)] != said:
            yield field, row[field], said
    judged = verdicts(frame, link)
    for name, prefix in CHECKED.items():
        status = [STATUS[word] for word in row[f"{prefix}.checksum.status"]]
        said = [verdict for header, verdict in judged if header == name]
        if status[: len(said)] != said:
            yield f"{name} checksum", status, said


@pytest.mark.parametrize("name", files())
def test_a_capture_is_read_as_tshark_reads_it(captures: Path, name: str) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    frames = list(captured(captures / name))[:MOST]
    rows = tshark(captures / name, len(frames)) if frames else []
    found = [
        (number, what, tsharks, mine)
        for number, (row, (link, frame, _)) in enumerate(zip(rows, frames), 1)
        for what, tsharks, mine in differences(row, frame, link)
    ]
    assert bool(rows) == (bool(frames) and name not in REFUSED)
    unexplained = [difference for difference in found if (name, *difference[:2]) not in EXPLAINED]
    assert not unexplained, "\n".join(map(str, unexplained))
    # An explanation of what no longer differs is wrong, too.
    assert {key[1:] for key in EXPLAINED if key[0] == name} == {difference[:2] for difference in found}
