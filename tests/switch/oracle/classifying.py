"""Cases of ours about which rule counts: priorities, masks, prefixes, ports, tags, fragments, headers that are not there."""

from tests.switch.oracle.case import Case, Send
from tests.switch.oracle.frames import FIRST, LATER
from tests.switch.oracle.packets import A, B, C, frame, packet

ADDRESSES = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.1.1",
    "10.1.0.1",
    "11.0.0.1",
    "10.128.0.1",
    "138.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
]
ADDRESSES6 = ["fd00::1", "fd00::2", "fd00:0:0:1::1", "fd01::1", "fd80::1", "7d00::1", "::", "2001:db8::ffff:1"]
PORTS = [0, 1, 63, 64, 79, 80, 81, 95, 96, 127, 128, 1023, 1024, 32768, 65535]
KINDS = [
    "",
    "arp",
    "rarp",
    "ip",
    "icmp",
    "tcp",
    "udp",
    "sctp",
    "ipv6",
    "icmp6",
    "tcp6",
    "udp6",
    "sctp6",
    "mpls",
    "mplsm",
]
FRAGMENTS = [{}, {"frag": FIRST}, {"frag": LATER}, {"frag": LATER, "more": 1}, {"df": 1}]

CASES = [
    Case(
        name="the highest priority counts, whatever the order of the rules and the width of their masks",
        flows=(
            "priority=5,actions=output:2",
            "priority=20,ip,nw_dst=10.0.0.0/8,actions=output:3",
            "priority=30,ip,nw_src=10.0.0.1,actions=output:4",
            "priority=10,in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=80,actions=output:5",
            "priority=40,ip,nw_dst=10.0.0.2/31,udp,actions=output:6",
            "priority=65535,ip,nw_dst=10.0.0.255,actions=drop",
        ),
        steps=tuple(
            packet(kind, nw_src=source, nw_dst=target)
            for kind in ("udp", "tcp", "arp")
            for source in ("10.0.0.1", "10.0.0.9")
            for target in ("10.0.0.2", "10.0.0.3", "10.9.9.9", "11.0.0.1", "10.0.0.255")
        ),
    ),
    Case(
        name="prefixes of every length at once",
        flows=tuple(
            f"priority={length},ip,nw_dst=10.0.0.1/{length},actions=mod_nw_tos:{4 * length},output:{1 + length % 6}"
            for length in range(33)
        ),
        steps=tuple(packet(at=7, nw_dst=address) for address in ADDRESSES)
        + tuple(packet(at=7, nw_dst=0x0A000001 ^ 1 << bit) for bit in range(32)),
    ),
    Case(
        name="prefixes of IPv6, and a mask with holes",
        flows=(
            *(
                f"priority={n},ipv6,ipv6_dst=fd00::1/{n},actions=output:{1 + n % 6}"
                for n in (0, 1, 7, 8, 9, 16, 63, 64, 65, 127, 128)
            ),
            "priority=200,ipv6,ipv6_src=::1/::ff,ipv6_dst=fd00::/f0ff::ff00,actions=output:2,output:3",
        ),
        steps=tuple(
            packet("tcp6", at=7, ipv6_dst=to, ipv6_src=of) for to in ADDRESSES6 for of in ("fd00::1", "fd00::2")
        ),
    ),
    Case(
        name="ranges of ports as masks",
        flows=(
            "priority=6,tcp,tcp_dst=0x40/0xfff0,actions=output:2",
            "priority=5,tcp,tcp_dst=80,actions=output:3",
            "priority=4,tcp,tcp_dst=0x0040/0xffc0,actions=output:4",
            "priority=3,tcp,tcp_src=0x8000/0x8000,actions=output:5",
            "priority=2,udp,udp_dst=1/1,actions=output:6",
            "priority=1,sctp,sctp_dst=0/0xff00,actions=output:2,output:3",
        ),
        steps=tuple(
            packet(kind, tp_dst=p, tp_src=p ^ 0x8000) for kind in ("tcp", "udp", "sctp", "tcp6") for p in PORTS
        ),
    ),
    Case(
        name="MAC addresses by any of their bits",
        flows=(
            "priority=9,dl_dst=ff:ff:ff:ff:ff:ff,actions=output:2",
            "priority=8,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=output:3",
            f"priority=7,dl_src={A},dl_dst={B},actions=output:4",
            f"priority=6,dl_src={A}/ff:ff:ff:ff:ff:f0,actions=output:5",
            "priority=5,dl_src=00:00:00:00:00:01/00:00:00:00:00:01,actions=output:6",
        ),
        steps=tuple(
            packet(kind, dl_src=source, dl_dst=target)
            for kind in ("", "udp")
            for source in (A, B, C, "02:00:00:00:00:1b", "04:00:00:00:00:00")
            for target in (B, "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01")
        ),
    ),
    Case(
        name="each kind of packet finds the rule of its kind",
        flows=tuple(
            f"priority={100 + n},{kind},actions=mod_dl_src:02:00:00:00:01:{n:02x},output:2"
            for n, kind in enumerate(KINDS)
            if kind
        )
        + (
            "priority=50,dl_type=0x88b6,actions=output:3",
            "priority=40,dl_type=0x05ff,actions=output:4",
            "priority=1,actions=output:5",
        ),
        steps=tuple(packet(kind) for kind in KINDS)
        + (
            packet("", dl_type=0),
            packet("", dl_type=0, snap=0x88B6),
            packet("", dl_type=0, snap=0x0800),
            packet("", dl_type=0x0600),
            packet("", dl_type=0x88CC),
        ),
    ),
    Case(
        name="tags: none, one, two, priority only, and bits of them",
        flows=(
            "priority=90,dl_vlan=10,dl_vlan_pcp=5,actions=output:2",
            "priority=80,dl_vlan=10,actions=output:3",
            "priority=70,vlan_tci=0xf001/0xf001,actions=output:4",
            "priority=60,dl_vlan_pcp=3,actions=output:5",
            "priority=50,vlan_vid=0x1000/0x1fff,actions=output:6",
            "priority=40,vlan_vid=0x1000/0x1000,ip,nw_dst=10.0.0.2,actions=output:2,output:3",
            "priority=30,vlan_vid=0x1000/0x1000,actions=output:2,output:4",
            "priority=20,vlan_tci=0,arp,actions=output:2,output:5",
            "priority=10,vlan_tci=0x0000/0x1fff,actions=output:2,output:6",
        ),
        steps=tuple(
            packet(kind, vlan=vlan, inner=inner, **more)
            for kind in ("udp", "arp", "")
            for vlan, inner in [
                (None, None),
                (0, None),
                (10, None),
                (0xA00A, None),
                (0xE001, None),
                (0x6000, None),
                (0xFFFF, None),
                (11, 10),
                (10, 11),
                (0x1005, 0),
            ]
            for more in ({}, {"tpid": 0x88A8} if vlan is not None else {"seed": 1})
        ),
    ),
    Case(
        name="fragments",
        flows=(
            "priority=70,tcp,ip_frag=first,tp_dst=80,actions=output:2",
            "priority=60,ip,ip_frag=later,actions=output:3",
            "priority=50,tcp,tp_dst=80,actions=output:4",
            "priority=40,tcp,tp_dst=0,actions=output:5",
            "priority=30,ipv6,ip_frag=yes,actions=output:6",
            "priority=20,ipv6,ip_frag=not_later,actions=output:2,output:3",
            "priority=10,ip,ip_frag=no,actions=output:2,output:4",
        ),
        steps=tuple(
            packet(kind, tp_dst=port, **frag)
            for kind in ("tcp", "udp", "tcp6", "udp6", "icmp6")
            for port in (80, 81)
            for frag in FRAGMENTS
        ),
    ),
    Case(
        name="TCP flags",
        flows=(
            "priority=9,tcp,tcp_flags=+syn-ack,actions=output:2",
            "priority=8,tcp,tcp_flags=+syn+ack,actions=output:3",
            "priority=7,tcp,tcp_flags=0x004/0x004,actions=output:4",
            "priority=6,tcp6,tcp_flags=+ns,actions=output:5",
            "priority=5,tcp,tcp_flags=0x10,actions=output:6",
            "priority=4,tcp,tcp_flags=0xc00/0xc00,actions=output:2,output:3",
        ),
        steps=tuple(
            packet(kind, tcp_flags=flags)
            for kind in ("tcp", "tcp6")
            for flags in (0, 2, 0x12, 0x10, 4, 0x14, 0x100, 0x102, 0xC00, 0xFFF, 0x110)
        ),
    ),
    Case(
        name="ToS, ECN, TTL, flow label and protocol",
        flows=(
            "priority=9,ip,nw_tos=0xb8,nw_ecn=1,actions=output:2",
            "priority=8,ip,ip_dscp=46,actions=output:3",
            "priority=7,ipv6,nw_tos=0xb8,ipv6_label=0x12345,actions=output:4",
            "priority=6,ipv6,ipv6_label=0x2000/0xf000,actions=output:5",
            "priority=5,ip,nw_ttl=1,actions=output:6",
            "priority=4,ip,nw_proto=61,nw_ecn=3,actions=output:2,output:3",
            "priority=3,ipv6,nw_proto=61,actions=output:2,output:4",
            "priority=2,ipv6,nw_ttl=255,nw_ecn=2,actions=output:2,output:5",
        ),
        steps=tuple(
            packet(kind, tos=tos, nw_ttl=ttl, ipv6_label=label)
            for kind in ("ip", "ipv6", "udp", "udp6")
            for tos in (0xB8, 0xB9, 3, 2)
            for ttl, label in ((1, 0x12345), (64, 0x02000), (255, 0))
        ),
    ),
    Case(
        name="ARP, RARP",
        flows=(
            "priority=9,arp,arp_op=1,arp_tpa=10.0.0.2,actions=output:2",
            f"priority=8,arp,arp_op=2,arp_sha={A},actions=output:3",
            "priority=7,arp,arp_spa=10.0.0.0/24,arp_tpa=10.0.0.0/255.0.255.0,actions=output:4",
            "priority=6,arp,arp_tha=00:00:00:00:00:00,actions=output:5",
            "priority=5,rarp,arp_op=3,actions=output:6",
            "priority=4,rarp,arp_sha=02:00:00:00:00:00/ff:00:00:00:00:00,actions=output:2,output:3",
        ),
        steps=tuple(
            packet(kind, arp_op=op, arp_tpa=to, arp_tha=tha)
            for kind in ("arp", "rarp")
            for op in (1, 2, 3, 4, 0x101, 0x100)
            for to, tha in (("10.0.0.2", 0), ("10.7.0.3", C))
        )
        + (packet("arp", arp_hw=6), Send(1, frame("arp")[:41]), Send(1, frame("arp")[:20])),
    ),
    Case(
        name="ICMP, ICMPv6 and neighbour discovery",
        flows=(
            "priority=9,icmp,icmp_type=8,actions=output:2",
            "priority=8,icmp,icmp_code=1,actions=output:3",
            f"priority=7,icmp6,icmp_type=135,icmp_code=0,nd_target=fd00::2,nd_sll={A},actions=output:4",
            "priority=6,icmp6,icmp_type=135,icmp_code=0,nd_target=fd00::/16,actions=output:5",
            f"priority=5,icmp6,icmp_type=136,icmp_code=0,nd_tll={B}/ff:ff:ff:ff:ff:00,actions=output:6",
            "priority=4,icmp6,icmpv6_type=136,actions=output:2,output:3",
            "priority=3,icmp6,icmpv6_code=1,actions=output:2,output:4",
        ),
        steps=(
            *(packet("icmp", tp_src=t, tp_dst=c) for t in (0, 3, 8) for c in (0, 1)),
            *(
                packet("icmp6", tp_src=t, tp_dst=c, nd_target=target, **options)
                for t in (135, 136, 128)
                for c in (0, 1)
                for target in ("fd00::2", "fd00::3", "fe80::1")
                for options in ({}, {"nd_sll": A}, {"nd_tll": B}, {"nd_sll": B, "nd_tll": A})
            ),
            packet("icmp6", nd_sll=A, nw_ttl=255, extensions=7),
        ),
    ),
    Case(
        name="IPv6 behind extension headers",
        flows=(
            "priority=3,tcp6,tp_dst=80,actions=output:2",
            "priority=2,ipv6,nw_proto=6,actions=output:3",
            "priority=1,ipv6,actions=output:4",
        ),
        steps=tuple(
            packet(kind, extensions=bits, **frag)
            for kind in ("tcp6", "udp6", "ipv6")
            for bits in range(8)
            for frag in ({}, {"frag": FIRST})
        )
        + (
            packet("ipv6", nw_proto=59),
            packet("ipv6", nw_proto=0),
            packet("ipv6", nw_proto=60),
            packet("ipv6", nw_proto=44),
        ),
    ),
    Case(
        name="headers that are cut, byte by byte",
        flows=(
            "priority=9,tcp,tp_dst=80,actions=output:2",
            "priority=8,ip,nw_dst=10.0.0.2,actions=output:3",
            "priority=7,ip,actions=output:4",
            "priority=6,tcp6,actions=output:5",
            "priority=5,ipv6,actions=output:6",
            "priority=4,vlan_tci=0x1000/0x1000,actions=output:2,output:3",
            "priority=1,actions=output:2,output:4",
        ),
        steps=tuple(Send(1, frame("tcp", payload=0)[:n]) for n in range(14, 55))
        + tuple(Send(1, frame("tcp6", payload=0)[:n]) for n in range(14, 75, 3))
        + tuple(Send(1, frame("tcp", vlan=10, payload=0)[:n]) for n in range(14, 40))
        + tuple(Send(1, frame("udp", payload=0)[:n]) for n in range(34, 43))
        + tuple(Send(1, frame("tcp", vlan=5, inner=10, payload=0)[:n]) for n in range(14, 26)),
    ),
    Case(
        name="headers whose words do not fit together",
        flows=(
            "priority=9,tcp,tp_dst=80,actions=mod_tp_dst:81,output:2",
            "priority=8,ip,nw_dst=10.0.0.2,actions=dec_ttl,output:3",
            "priority=6,tcp6,actions=mod_tp_dst:81,output:5",
            "priority=5,ipv6,actions=dec_ttl,output:6",
            "priority=1,actions=output:2,output:4",
        ),
        steps=tuple(
            Send(1, frame(kind)[:at] + bytes([value]) + frame(kind)[at + 1 :])
            for kind, at in [
                ("tcp", 14),
                ("tcp", 16),
                ("tcp", 17),
                ("tcp", 20),
                ("tcp", 46),
                ("udp", 38),
                ("tcp6", 14),
                ("tcp6", 18),
                ("tcp6", 19),
                ("tcp6", 20),
            ]
            for value in (0, 0x10, 0x44, 0x46, 0x4F, 0x55, 0x65, 0x20, 0x28, 0xFF)
        ),
    ),
    Case(
        name="padding behind a packet's end is no part of it",
        flows=(
            "priority=1,tcp,tp_dst=80,actions=mod_tp_dst:81,output:2",
            "priority=1,udp6,actions=mod_tp_src:5,output:3",
        ),
        steps=tuple(packet(kind, padding=n, payload=0) for kind in ("tcp", "udp6") for n in (0, 1, 6, 20)),
    ),
    Case(
        name="what no rule matches is dropped, in any table",
        flows=(
            "priority=1,in_port=1,udp,actions=output:2,goto_table:1",
            "priority=1,in_port=1,tcp,actions=goto_table:2",
            "table=1,priority=1,tcp,actions=output:3",
            "table=2,priority=0,actions=output:4",
        ),
        steps=tuple(packet(kind, at=port) for kind in ("udp", "tcp", "arp") for port in (1, 2)),
    ),
    Case(
        name="ports by number, and a packet that claims another",
        flows=(
            "priority=3,in_port=1,actions=output:2,load:2->in_port[],resubmit(,1)",
            "priority=3,in_port=2,actions=set_field:0->in_port,output:2,output:1",
            "table=1,priority=1,in_port=1,actions=output:3",
            "table=1,priority=1,in_port=2,actions=output:4,output:2,in_port",
        ),
        steps=(packet(at=1), packet(at=2), packet(at=3)),
    ),
]
