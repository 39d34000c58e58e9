"""What tshark says of every packet of a capture, brought to the facts of :mod:`tests.oracles.corpus`.

tshark is asked once for each file, for the fields of its dissectors, with checksums checked and nothing put together
out of several packets, so that it says what each frame says by itself.  Its list of protocols (``frame.protocols``)
becomes our stack; a field has a value for each header of its kind, in order, and these are handed out to the headers.

What is behind the headers that we parse is left out: the payload of TCP, UDP and others, the packet that an ICMP error
quotes, and what follows a protocol that we do not parse, whose name is kept as ``beyond``.
"""

import functools
import ipaddress
import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.oracles.corpus import CHECKED, COMPARED, Facts
from wirespeed.net.link import LINKTYPE_LINUX_SLL2

OPTIONS = (
    "ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE", "sctp.checksum:CRC-32c",
    "ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE", "sctp.reassembly:FALSE",
    "tcp.analyze_sequence_numbers:FALSE", "tcp.relative_sequence_numbers:FALSE", "tcp.calculate_timestamps:FALSE",
    "udp.calculate_timestamps:FALSE", "sctp.relative_tsns:FALSE", "sctp.tsn_analysis:FALSE", "ip.use_geoip:FALSE",
    "ipv6.use_geoip:FALSE", "ip.tso_support:TRUE",
)  # fmt: skip

# Our name for each of tshark's protocols that we parse.
NAMES = {
    "eth": "eth", "vlan": "vlan", "ieee8021ad": "vlan", "llc": "llc", "null": "null", "sll": "sll", "ppp": "ppp",
    "pppoes": "pppoe", "mpls": "mpls", "arp": "arp", "ip": "ipv4", "ipv6": "ipv6", "ipv6.hopopts": "hopopts",
    "ipv6.routing": "routing", "ipv6.fraghdr": "fragment", "ah": "ah", "ipv6.dstopts": "dstopts", "mipv6": "mobility",
    "hip": "hip", "shim6": "shim6", "esp": "esp", "tcp": "tcp", "udp": "udp", "icmp": "icmp", "icmpv6": "icmpv6",
    "sctp": "sctp", "gre": "gre", "vxlan": "vxlan", "geneve": "geneve",
}  # fmt: skip
# Names in tshark's list that stand for no header.
NOTHING = {"ethertype", "raw"}
# Nothing behind these is parsed by us; behind UDP there may be one of TUNNELS.
LAST = {"arp", "esp", "tcp", "udp", "icmp", "icmpv6", "sctp"}
TUNNELS = {"vxlan", "geneve"}
# ARP between other addresses has its fields elsewhere, and is not a whole header for us.
ETHERNET_ARP = {"hwtype": 1, "ptype": 0x0800, "hwlen": 6, "plen": 4}

# The fields of tshark that hold those of our layouts; where there are two, a header has one of them, by its types.
FIELDS: dict[str, dict[str, str]] = {
    "eth": {"dst": "eth.dst", "src": "eth.src", "type": "eth.type"},
    "vlan": {"prio": "vlan.priority", "dei": "vlan.dei", "vlan": "vlan.id"},
    "mpls": {"label": "mpls.label", "cos": "mpls.exp", "s": "mpls.bottom", "ttl": "mpls.ttl"},
    "arp": {
        "hwtype": "arp.hw.type", "ptype": "arp.proto.type", "hwlen": "arp.hw.size", "plen": "arp.proto.size",
        "op": "arp.opcode", "hwsrc": "arp.src.hw_mac|arp.src.hw", "psrc": "arp.src.proto_ipv4|arp.src.proto",
        "hwdst": "arp.dst.hw_mac|arp.dst.hw", "pdst": "arp.dst.proto_ipv4|arp.dst.proto",
    },
    "ipv4": {
        "ihl": "ip.hdr_len", "tos": "ip.dsfield", "len": "ip.len", "id": "ip.id", "flags": "ip.flags",
        "frag": "ip.frag_offset", "ttl": "ip.ttl", "proto": "ip.proto", "chksum": "ip.checksum", "src": "ip.src",
        "dst": "ip.dst",
    },
    "ipv6": {
        "version": "ipv6.version", "tc": "ipv6.tclass", "fl": "ipv6.flow", "plen": "ipv6.plen", "nh": "ipv6.nxt",
        "hlim": "ipv6.hlim", "src": "ipv6.src", "dst": "ipv6.dst",
    },
    "fragment": {
        "nh": "ipv6.fraghdr.nxt", "offset": "ipv6.fraghdr.offset", "m": "ipv6.fraghdr.more", "id": "ipv6.fraghdr.ident",
    },
    "tcp": {
        "sport": "tcp.srcport", "dport": "tcp.dstport", "seq": "tcp.seq_raw", "ack": "tcp.ack_raw",
        "dataofs": "tcp.hdr_len", "flags": "tcp.flags", "window": "tcp.window_size_value", "chksum": "tcp.checksum",
        "urgptr": "tcp.urgent_pointer",
    },
    "udp": {"sport": "udp.srcport", "dport": "udp.dstport", "len": "udp.length", "chksum": "udp.checksum"},
    "icmp": {"type": "icmp.type", "code": "icmp.code", "chksum": "icmp.checksum"},
    "icmpv6": {"type": "icmpv6.type", "code": "icmpv6.code", "chksum": "icmpv6.checksum"},
    "sctp": {
        "sport": "sctp.srcport", "dport": "sctp.dstport", "tag": "sctp.verification_tag", "chksum": "sctp.checksum",
    },
    "gre": {"proto": "gre.proto", "version": "gre.flags_and_version"},
    "vxlan": {"flags": "vxlan.flags", "vni": "vxlan.vni"},
    "geneve": {"version": "geneve.version", "proto": "geneve.proto_type", "vni": "geneve.vni"},
}  # fmt: skip
QINQ = {"prio": "ieee8021ad.priority", "dei": "ieee8021ad.dei", "vlan": "ieee8021ad.id"}
STATUS = {name: f"{'ip' if name == 'ipv4' else name}.checksum.status" for name in CHECKED}
WORDS = {0: "bad", 1: "good", 2: "unverifiable", 3: "absent"}


def _bytes(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _address(text: str) -> int:
    return int(ipaddress.ip_address(text))


# How the text of a field becomes a number; int() of any base where nothing stands here.
TEXT: dict[str, Callable[[str], int]] = {
    "eth.dst": _bytes, "eth.src": _bytes, "arp.src.hw_mac": _bytes, "arp.dst.hw_mac": _bytes, "arp.src.hw": _bytes,
    "arp.dst.hw": _bytes, "arp.src.proto": _bytes, "arp.dst.proto": _bytes, "arp.src.proto_ipv4": _address,
    "arp.dst.proto_ipv4": _address, "ip.src": _address, "ip.dst": _address, "ipv6.src": _address,
    "ipv6.dst": _address,
    "ip.hdr_len": lambda text: int(text) // 4,
    "tcp.hdr_len": lambda text: int(text) // 4,
    "tcp.flags": lambda text: int(text, 0) & 0x1FF,
    "gre.flags_and_version": lambda text: int(text, 0) & 7,
    "vxlan.flags": lambda text: int(text, 0) >> 8,
}  # fmt: skip
# Link types by Wireshark's own numbers for them (wiretap/wtap.h), those that captures here have.  What has none is a
# pcapng block that is no packet, which tshark lists all the same.
LINKS: dict[str, int | None] = {
    "1": 1, "3": 8, "4": 9, "7": 101, "9": 129, "13": 123, "15": 0, "23": 127, "25": 113, "26": 107, "129": 228,
    "130": 229, "141": 239, "158": 253, "210": 276, "": None,
}  # fmt: skip

EXTRA = ("eth.len", "llc.oui", *QINQ.values(), *STATUS.values())
FRAME = ("frame.time_epoch", "frame.cap_len", "frame.len", "frame.encap_type", "frame.comment", "frame.protocols")
PARTS = (name for kind in FIELDS.values() for names in kind.values() for name in names.split("|"))
ASKED = tuple(dict.fromkeys((*FRAME, *PARTS, *EXTRA)))


class Answer(NamedTuple):
    """What tshark said of a file: its packets, and why it ended early if it did."""

    packets: list[Facts]
    error: str


@functools.cache
def number(name: str, text: str) -> int:
    """The number that the text of a field stands for."""
    return TEXT[name](text) if name in TEXT else int(text, 0)


def nanoseconds(text: str) -> int:
    """The nanoseconds of ``seconds.fraction``."""
    if not text:
        return 0
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 10**9 + (-1 if seconds.startswith("-") else 1) * int(fraction.ljust(9, "0"))


class Row:
    """One packet's fields, each with a value for each header that has it."""

    def __init__(self, line: str) -> None:
        self.values = dict(zip(ASKED, line.split("\t"), strict=True))
        self.taken: dict[str, int] = {}

    def take(self, names: str) -> int | None:
        """The next value of a field, None when there are no more."""
        for name in names.split("|"):
            if text := self.values[name]:
                break
        else:
            return None
        values, at = text.split(","), self.taken.get(name, 0)
        self.taken[name] = at + 1
        return number(name, values[at]) if at < len(values) else None


def add_header(said: Facts, row: Row, word: str, following: str) -> None:
    """Add a header to what is said of a packet: its name and its fields."""
    name, value = "sll2" if word == "sll" and said["link"] == LINKTYPE_LINUX_SLL2 else NAMES[word], 0
    if name in COMPARED:
        theirs = QINQ if word == "ieee8021ad" else FIELDS[name]
        for field in COMPARED[name]:
            length = field == "type" and word == "eth" and following != "ethertype"
            value = row.take("eth.len" if length else theirs[field])
            said.setdefault(f"{name}.{field}", []).append(value)
    whole = value is not None
    if name == "arp":
        whole = whole and all(said[f"arp.{field}"][-1] == only for field, only in ETHERNET_ARP.items())
    said["stack"].append(name if whole else name + " cut")
    if name in CHECKED:
        status = row.take(STATUS[name])
        said.setdefault(f"{name}.verdict", []).append(None if status is None else WORDS[status])
    if name == "llc" and row.take("llc.oui") is not None:
        said["stack"].append("snap")


def read(line: str) -> Facts:
    """The facts of one packet."""
    row = Row(line)
    words = [*row.values["frame.protocols"].split(":"), ""]
    said: Facts = {
        "time": nanoseconds(row.values["frame.time_epoch"]),
        "captured": int(row.values["frame.cap_len"]),
        "wire": int(row.values["frame.len"]),
        "link": LINKS[row.values["frame.encap_type"]],
        "comments": row.values["frame.comment"],
        "stack": [],
        "beyond": None,
    }
    for word, following in itertools.pairwise(words):
        if word in NOTHING:
            continue
        if word not in NAMES:
            said["beyond"] = word
            break
        add_header(said, row, word, following)
        while word == "mpls" and said["mpls.s"][-1] == 0:  # one name for the whole stack of labels
            add_header(said, row, word, following)
        if word in LAST and following not in TUNNELS:
            break
    return said


def ask(path: Path) -> Answer:
    """Run tshark over a file."""
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]
    command += [word for option in OPTIONS for word in ("-o", option)]
    command += [word for field in ASKED for word in ("-e", field)]
    with tempfile.TemporaryDirectory() as home:  # so that nobody's own settings count
        environment = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)
    error = "\n".join(line for line in done.stderr.splitlines() if "could be dangerous" not in line)
    return Answer([read(line) for line in done.stdout.split("\n")[:-1]], error)
