"""What the executor makes of packets, beside what a real Open vSwitch makes of them."""

import random

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6ND_NS,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.packet import Padding, Raw

from tests.ovs import LOCAL, OpenVSwitch, needs_ovs
from tests.switch.execute.machine import Machine, head, set_field
from wirespeed.switch import ops as op
from wirespeed.switch.ports import Mirror

pytestmark = needs_ovs
PORTS = 8
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
DATA = Raw(b"hello world abc")
NEW4, NEW6 = 0x0A090807, 0x20010DB8000000001111222233334444
TRANSPORTS = {
    "tcp": TCP(sport=1000, dport=2000) / DATA,
    "tcp, wrong": TCP(sport=1000, dport=2000, chksum=0xFFFF) / DATA,
    "udp": UDP(sport=1000, dport=2000) / DATA,
    "udp, no sum": UDP(sport=1000, dport=2000, chksum=0) / DATA,
    "udp, wrong": UDP(sport=1000, dport=2000, chksum=0x1234) / DATA,
    "sctp": SCTP(sport=1000, dport=2000) / SCTPChunkData(data=b"xyz"),
    "sctp, wrong": SCTP(sport=1000, dport=2000, chksum=5) / SCTPChunkData(data=b"xyz"),
}
SET4, SET6 = "set_field:10.9.8.7->", "set_field:2001:db8::1111:2222:3333:4444->"
MAC, NUMBER = "set_field:02:aa:bb:cc:dd:ee->", 0x02AABBCCDDEE


def frames():
    """Frames by what is odd about them."""
    four, six = IP(src="1.2.3.4", dst="5.6.7.8"), IPv6(src="fe80::1", dst="fe80::2")
    found = {}
    for name, inside in TRANSPORTS.items():
        found |= {
            f"4 {name}": ETHER / four / inside,
            f"6 {name}": ETHER / six / inside,
            f"4 {name} tag": ETHER / Dot1Q(vlan=5, prio=3) / four / inside,
            f"4 {name} tags": ETHER / Dot1AD(vlan=5) / Dot1Q(vlan=7) / four / inside,
            f"4 {name} first": ETHER / IP(src="1.2.3.4", dst="5.6.7.8", flags="MF") / inside,
            f"6 {name} options": ETHER / six / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / inside,
            f"6 {name} routed": ETHER / six / IPv6ExtHdrRouting(addresses=["fe80::9"], segleft=0) / inside,
            f"6 {name} first": ETHER / six / IPv6ExtHdrFragment(m=1, offset=0, id=3) / inside,
            f"6 {name} later": ETHER / six / IPv6ExtHdrFragment(m=1, offset=9, id=3, nh=17) / bytes(inside),
        }
    found |= {
        "icmp": ETHER / four / ICMP(type=8) / DATA,
        "solicit": ETHER / six / ICMPv6ND_NS(tgt="fe80::5") / ICMPv6NDOptSrcLLAddr(lladdr="02:03:04:05:06:07"),
        "arp": ETHER / ARP(op=1, psrc="1.2.3.4", pdst="5.6.7.8"),
        "padded": ETHER / four / TCP() / Padding(b"x" * 9),
        "cut": ETHER / IP(src="1.2.3.4", dst="5.6.7.8", proto=6) / b"12345678",
    }
    return {name: bytes(frame) for name, frame in found.items()}


ACTIONS = [
    ("ip", SET4 + "ip_src", set_field("nw_src", NEW4)),
    ("ip", "set_field:10.0.8.0/255.0.255.0->ip_dst", set_field("nw_dst", 0x0A000800, 0xFF00FF00)),
    ("ipv6", SET6 + "ipv6_src", set_field("ipv6_src", NEW6)),
    ("ipv6", SET6 + "ipv6_dst", set_field("ipv6_dst", NEW6)),
    ("ipv6", "set_field:0x12345->ipv6_label", set_field("ipv6_label", 0x12345)),
    ("ip", "set_field:33->ip_dscp", set_field("ip_dscp", 33)),
    ("ipv6", "set_field:33->ip_dscp", set_field("ip_dscp", 33)),
    ("ip", "set_field:77->nw_ttl", set_field("nw_ttl", 77)),
    ("ip", "dec_ttl", [head(op.DEC_TTL, 1)]),
    ("ipv6", "dec_ttl", [head(op.DEC_TTL, 1)]),
    ("", MAC + "eth_src", set_field("dl_src", NUMBER)),
    ("dl_vlan=5", "pop_vlan", [head(op.POP_VLAN, 1)]),
    ("dl_vlan=5", "set_field:0x1123->vlan_vid", set_field("vlan_tci", 0x1123, 0x1FFF)),
    ("vlan_tci=0x0000/0x1000", "push_vlan:0x88a8,set_field:0x1123->vlan_vid", [head(op.PUSH_VLAN, 2, 0x88A8), 0x1123]),
    ("icmp", "set_field:3->icmp_code", set_field("icmp_code", 3)),
    ("arp", SET4 + "arp_spa", set_field("arp_spa", NEW4)),
    ("arp", MAC + "arp_tha", set_field("arp_tha", NUMBER)),
    ("icmp6,icmp_type=135,icmp_code=0", SET6 + "nd_target", set_field("nd_target", NEW6)),
    ("icmp6,icmp_type=135,icmp_code=0", MAC + "nd_sll", set_field("nd_sll", NUMBER)),
    *(
        (f"{of}", f"set_field:4242->{name}_dst", set_field(f"{name}_dst", 4242))
        for name in ("tcp", "udp", "sctp")
        for of in (name, f"{name}6")
    ),
]


@pytest.fixture(scope="module")
def ovs():
    with OpenVSwitch(PORTS) as made:
        yield made


@pytest.mark.parametrize(("match", "text", "ops"), ACTIONS, ids=[f"{match} {text}" for match, text, _ in ACTIONS])
def test_a_packet_is_edited_as_by_open_vswitch(ovs, match, text, ops):
    sent = frames()
    ovs.flows(f"{match + ',' if match else ''}actions={text},output:2\npriority=0,actions=output:3")
    with Machine(packets=2000) as machine:
        for (name, frame), out in zip(
            sent.items(), ovs.exchange([(1, frame) for frame in sent.values()], ordered=False), strict=True
        ):
            ((port, theirs),) = out
            if port == 2:
                assert machine.edited(frame, ops).hex() == theirs.hex(), name


MODES = [
    {"tag": 10, "vlan_mode": "access"},
    {"tag": 20, "vlan_mode": "access"},
    {},
    {"trunks": frozenset({10, 12})},
    {"tag": 10, "vlan_mode": "native-tagged", "trunks": frozenset({10, 20})},
    {"tag": 10, "vlan_mode": "native-untagged"},
    {"tag": 0, "vlan_mode": "native-untagged", "trunks": frozenset({0, 12})},
    {"tag": 10, "vlan_mode": "access"},
]
MIRRORS = [
    [],
    [{"select_all": True, "output_port": 8, "snap": 30}],
    [{"sources": (2, 3), "destinations": (1,), "output_port": 8, "vlans": (10,)}],
    [{"sources": (3,), "output_vlan": 12}, {"destinations": (3, 4), "output_vlan": 20}],
    [{"select_all": True, "vlans": (0, 12), "output_port": 4}, {"sources": (1, 2, 3), "output_port": 4}],
]


def set_up(ovs, machine, mirrors):
    words = ["--", "clear", "Bridge", "br0", "mirrors"]
    for place, mode in enumerate(MODES):
        machine.add_port(place, **mode)
        columns = {"tag": mode.get("tag"), "vlan_mode": mode.get("vlan_mode"), "trunks": mode.get("trunks")}
        for column, value in columns.items():
            if value is not None:
                text = ",".join(map(str, sorted(value))) if isinstance(value, frozenset) else value
                words += ["--", "set", "Port", f"p{place + 1}", f"{column}={text}"]
    names = {
        "select_all": "select_all",
        "sources": "select_src_port",
        "destinations": "select_dst_port",
        "vlans": "select_vlan",
    }
    names |= {"output_port": "output_port", "output_vlan": "output_vlan", "snap": "snaplen"}
    for number, mirror in enumerate(mirrors):
        ports = {*mirror.get("sources", ()), *mirror.get("destinations", ()), mirror.get("output_port")} - {None}
        for port in ports:
            words += ["--", f"--id=@p{number}_{port}", "get", "Port", f"p{port}"]
        words += ["--", f"--id=@m{number}", "create", "Mirror", f"name=m{number}"]
        for key, value in mirror.items():
            if "port" in names[key]:
                text = ",".join(f"@p{number}_{port}" for port in (value if isinstance(value, tuple) else (value,)))
            else:
                text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
            words.append(f"{names[key]}={text}")
        words += ["--", "add", "Bridge", "br0", "mirrors", f"@m{number}"]
    ovs.vsctl(*words)
    ovs.deaf = {mirror["output_port"] for mirror in mirrors if "output_port" in mirror}
    ovs.appctl("fdb/flush", "br0")
    frozen = [
        {key: frozenset(value) if isinstance(value, tuple) else value for key, value in mirror.items()}
        for mirror in mirrors
    ]
    machine.mirror(*(Mirror(f"m{number}", **mirror) for number, mirror in enumerate(frozen)))


def talk(draw, places):
    """Packets between hosts that stay at their ports, with the tags that these may and may not have."""
    for _ in range(300):
        place = draw.choice(places)
        groups = [
            "ff" * 6,
            "01005e000001",
            f"0180c20000{draw.randrange(0x20):02x}",
            f"01000ccccc{draw.randrange(0xC0, 0xD0):02x}",
        ]
        dst = draw.choice([f"02000000000{draw.randrange(PORTS)}"] * 8 + groups)
        tags = b""
        for depth in range(draw.choice([0, 0, 1, 1, 1, 2])):
            vlan = draw.choice([0, 10, 10, 12, 20, 4095][depth:])
            tags += draw.choice([b"\x81\0", b"\x81\0", b"\x88\xa8"]) + (
                draw.choice([0, 0, 3, 7]) << 13 | vlan
            ).to_bytes(2)
        yield (
            place,
            bytes.fromhex(f"{dst}02000000000{place}")
            + tags
            + b"\x08\x00"
            + bytes(IP(src="1.2.3.4", dst="5.6.7.8") / UDP()),
        )


@pytest.mark.parametrize("mirrors", MIRRORS, ids=range(len(MIRRORS)))
def test_ports_vlans_and_mirrors_are_as_with_open_vswitch(ovs, mirrors):
    draw = random.Random(len(str(mirrors)))
    with Machine(PORTS, packets=2000) as machine:
        set_up(ovs, machine, mirrors)
        ovs.flows("actions=normal")
        heard = [place for place in range(PORTS) if place + 1 not in ovs.deaf]
        sent = list(talk(draw, heard))
        for (place, frame), out in zip(sent, ovs.exchange([(place + 1, frame) for place, frame in sent]), strict=True):
            theirs = sorted((port - 1, data.hex()) for port, data in out if port != LOCAL)
            got = machine.send(frame, [head(op.NORMAL, 1, place)], place=place)
            mine = sorted((port, data.hex()) for port, many in got.items() for data in many)
            assert mine == theirs, f"{frame.hex()} that came in at place {place}"
