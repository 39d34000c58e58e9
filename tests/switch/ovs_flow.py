"""What Open vSwitch says of the flow of each packet of a capture, as numbers: ``ovs-ofctl parse-pcap``."""

import ipaddress
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from wirespeed.switch.fields import FIELDS, OTHER_NAMES

needs_ofctl = pytest.mark.skipif(not shutil.which("ovs-ofctl"), reason="ovs-ofctl is not installed")

KINDS = {
    "ip": (0x0800, None), "icmp": (0x0800, 1), "tcp": (0x0800, 6), "udp": (0x0800, 17), "sctp": (0x0800, 132),
    "ipv6": (0x86DD, None), "icmp6": (0x86DD, 58), "tcp6": (0x86DD, 6), "udp6": (0x86DD, 17), "sctp6": (0x86DD, 132),
    "arp": (0x0806, None), "rarp": (0x8035, None), "mpls": (0x8847, None), "mplsm": (0x8848, None),
}  # fmt: skip
FRAGS = {"no": 0, "first": 1, "later": 3}
FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns")
SHARED = {"tp_src": "tcp_src", "tp_dst": "tcp_dst", "icmp_type": "tcp_src", "icmp_code": "tcp_dst"}
UNSAID = ("in_port", "dl_type", "vlan_tci", "igmp_type", "igmp_code")  # and those of NSH, which we do not know
TCI2 = 64 * 4


def write_capture(path: Path, frames: Iterable[bytes]) -> None:
    """A pcap file of Ethernet frames."""
    records = [struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames]
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1) + b"".join(records))


def flows_of(path: Path) -> list[str]:
    """The line for each packet of a capture."""
    command = ["ovs-ofctl", "parse-pcap", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()


def _flags(text: str) -> int:
    if text == "0" or text == "":
        return 0
    known = sum(1 << FLAGS.index(name) for name in text.split("|") if name in FLAGS)
    return known | sum(int(name.strip("[]"), 16) for name in text.split("|") if name not in FLAGS)


def _value(name: str, text: str) -> int:
    if name == "tcp_flags":
        return _flags(text)
    if re.fullmatch(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", text):
        return int(text.replace(":", ""), 16)
    if name == "nw_frag":
        return FRAGS[text]
    if ":" in text or text.count(".") == 3:
        return int(ipaddress.ip_address(text))
    return int(text, 0)


def number_of(line: str) -> int:
    """The flow that a line tells, as one number, without its port and what Open vSwitch does not print."""
    found = 0
    tags = {"": 0, "1": 0}
    labels: dict[str, int] = {}
    for part in line.split(","):
        name, equals, text = part.partition("=")
        if not equals:
            if name in KINDS:
                kind, proto = KINDS[name]
                found |= kind << FIELDS["dl_type"].at | (proto or 0) << FIELDS["nw_proto"].at
            continue
        if name == "dl_type":
            found |= int(text, 0) << FIELDS["dl_type"].at
        elif name.startswith(("dl_vlan", "vlan_tci")):
            bare = name.rstrip("1")
            shift = 13 if "pcp" in name else 0
            tags[name[len(bare) :]] |= int(text, 0) << shift | (0 if bare == "vlan_tci" else 0x1000)
        elif name.startswith("mpls_"):
            labels[name] = int(text, 0)
        elif name not in UNSAID and not name.startswith("nsh_"):
            known = SHARED.get(name, OTHER_NAMES.get(name, name))
            value = _value(name, text)
            if name == "nw_tos":
                value >>= FIELDS["nw_tos"].value_at
            found |= value << FIELDS[known].at
    found |= tags[""] << FIELDS["vlan_tci"].at | tags["1"] << TCI2
    if labels:
        first = labels["mpls_label"] << 12 | labels["mpls_tc"] << 9 | labels["mpls_bos"] << 8 | labels["mpls_ttl"]
        entries = (first, labels.get("mpls_lse1", 0), labels.get("mpls_lse2", 0))
        found |= sum(entry << FIELDS["mpls_ttl"].at + 32 * i for i, entry in enumerate(entries))
    return found
