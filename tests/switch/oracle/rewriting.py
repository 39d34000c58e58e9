"""Cases of ours about what actions do to bytes: fields and their checksums, tags, labels, hops, cut copies."""

from tests.switch.oracle.case import Case, Send
from tests.switch.oracle.frames import FIRST, LATER
from tests.switch.oracle.packets import A, B, C, D, frame, packet

IP_KINDS = ["tcp", "udp", "sctp", "icmp", "ip"]
IP6_KINDS = ["tcp6", "udp6", "sctp6", "icmp6", "ipv6"]
# Open vSwitch mends what would be a checksum if a later fragment were a first one: this one has no room for one.
FRAGMENTS: list[dict[str, int]] = [{}, {"frag": FIRST}, {"frag": LATER, "payload": 3}]
TAGS = [(None, None), (0xA00A, None), (0xA00A, 0x6014)]

CASES = [
    Case(
        name="addresses, ports, ToS and TTL of IPv4, each with its checksums",
        flows=(
            "priority=9,tcp,in_port=1,actions=mod_nw_src:192.168.1.1,mod_nw_dst:192.168.1.2,mod_tp_src:7,mod_tp_dst:8,output:2",
            "priority=9,udp,in_port=1,actions=mod_nw_src:192.168.1.1,mod_tp_dst:0,output:2",
            "priority=9,sctp,in_port=1,actions=mod_tp_src:7,mod_nw_dst:192.168.1.2,output:2",
            "priority=9,icmp,in_port=1,actions=set_field:0->icmp_type,set_field:5->icmp_code,mod_nw_src:1.2.3.4,output:2",
            "priority=1,ip,actions=mod_nw_tos:184,mod_nw_ecn:3,mod_nw_ttl:9,output:2",
        ),
        steps=tuple(
            packet(kind, at=port, tos=1, **more)
            for kind in IP_KINDS
            for port in (1, 3)
            for more in (*FRAGMENTS, {"options": 2}, {"payload": 13})
        ),
    ),
    Case(
        name="addresses, ports, class, label and hops of IPv6",
        flows=(
            "priority=9,tcp6,in_port=1,actions=set_field:2001:db8::1->ipv6_src,set_field:2001:db8::2->ipv6_dst,set_field:7->tcp_src,output:2",
            "priority=9,udp6,in_port=1,actions=set_field:2001:db8::2->ipv6_dst,set_field:7->udp_dst,output:2",
            "priority=9,sctp6,in_port=1,actions=set_field:7->sctp_dst,set_field:::1->ipv6_src,output:2",
            "priority=9,icmp6,in_port=1,actions=set_field:fe80::1->ipv6_src,set_field:129->icmpv6_type,output:2",
            "priority=1,ipv6,actions=set_field:46->ip_dscp,set_field:1->nw_ecn,set_field:0xabcde->ipv6_label,dec_ttl,output:2",
        ),
        steps=tuple(
            packet(kind, at=port, tos=2, **more)
            for kind in IP6_KINDS
            for port in (1, 3)
            for more in (*FRAGMENTS, {"extensions": 7}, {"payload": 13})
        ),
    ),
    Case(
        name="an UDP packet without a checksum gets none, and one that comes out as zero is written as ones",
        flows=(
            "priority=2,udp,in_port=1,actions=mod_nw_dst:10.0.0.3,mod_tp_src:77,output:2",
            "priority=2,udp,in_port=3,actions=move:nw_src[0..15]->udp_src[0..15],output:2",
            "priority=2,udp6,in_port=1,actions=set_field:5->udp_dst,output:2",
        ),
        steps=tuple(
            packet(kind, at=port, no_checksum=none) for kind in ("udp", "udp6") for port in (1, 3) for none in (0, 1)
        )
        + tuple(
            packet("udp", at=3, nw_src=0x0A000000 + n, payload=2, tp_dst=0x1000 * (n % 16))
            for n in range(0, 65536, 4099)
        ),
    ),
    Case(
        name="a checksum that was wrong stays wrong by as much",
        flows=("ip,actions=mod_nw_dst:10.9.8.7,dec_ttl,output:2", "ipv6,actions=set_field:::5->ipv6_dst,output:2"),
        steps=tuple(
            Send(1, frame(kind)[:at] + bytes([value]) + frame(kind)[at + 1 :])
            for kind, places in (
                ("tcp", (24, 25, 50, 51)),
                ("udp", (24, 40, 41)),
                ("icmp", (24, 36)),
                ("tcp6", (70, 71)),
                ("icmp6", (56,)),
            )
            for at in places
            for value in (0, 0x5A, 0xFF)
        ),
    ),
    Case(
        name="parts of fields: load, masked set_field, move",
        flows=(
            "priority=9,tcp,in_port=1,actions=load:0xab->nw_src[8..15],set_field:0x0100/0xff00->tcp_dst,load:3->nw_tos[2..4],output:2",
            "priority=9,tcp,in_port=2,actions=move:nw_src[0..15]->tcp_dst[],move:dl_src[0..31]->nw_dst[],output:3",
            "priority=9,tcp,in_port=3,actions=move:dl_src[16..47]->reg0[],move:reg0[0..31]->nw_src[],output:4",
            "priority=9,tcp,in_port=4,actions=move:dl_src[0..23]->dl_dst[24..47],set_field:00:00:00:00:00:0c/00:00:00:00:ff:ff->dl_src,output:5",
            "priority=9,tcp,in_port=5,actions=move:nw_ttl[2..7]->nw_tos[2..7],output:6",
            "priority=9,tcp,in_port=6,actions=move:ip_dscp[0..5]->nw_ttl[2..7],load:1->nw_ecn[0],output:1",
        ),
        steps=tuple(packet(kind, at=port, tos=0x29) for kind in ("tcp", "udp") for port in range(1, 7)),
    ),
    Case(
        name="addresses are swapped over a register, in the order of the actions",
        flows=(
            "priority=1,ip,actions=move:nw_src[]->reg0[],move:nw_dst[]->nw_src[],move:reg0[]->nw_dst[],move:dl_src[]->xreg1[0..47],"
            "move:dl_dst[]->dl_src[],move:xreg1[0..47]->dl_dst[],output:2,in_port",
        ),
        steps=(packet("tcp"), packet("icmp"), packet("arp")),
    ),
    Case(
        name="each output has the packet as it is at that point",
        flows=(
            f"priority=1,udp,actions=output:2,mod_dl_src:{C},output:3,push_vlan:0x8100,set_field:0x1005->vlan_vid,output:4,mod_tp_dst:9,"
            f"output:5,pop_vlan,output:6,dec_ttl,mod_dl_src:{A},in_port",
        ),
        steps=tuple(packet(vlan=vlan, inner=inner) for vlan, inner in TAGS),
    ),
    Case(
        name="ARP's fields",
        flows=(
            f"priority=9,arp,arp_op=1,actions=move:dl_src[]->dl_dst[],mod_dl_src:{D},load:2->arp_op[],move:arp_sha[]->arp_tha[],"
            f"set_field:{D}->arp_sha,move:arp_spa[]->reg0[],move:arp_tpa[]->arp_spa[],move:reg0[]->arp_tpa[],in_port",
            "priority=8,arp,actions=set_field:1.2.3.4->arp_spa,set_field:77->arp_op,output:2",
        ),
        steps=(
            packet("arp"),
            packet("arp", arp_op=2),
            packet("arp", vlan=7),
            packet("arp", arp_op=0x101),
            Send(1, frame("arp")[:41]),
        ),
    ),
    Case(
        name="neighbour discovery: target and options, with the checksum",
        flows=(
            f"priority=9,icmp6,icmp_type=135,icmp_code=0,actions=set_field:fd00::99->nd_target,set_field:{C}->nd_sll,output:2",
            f"priority=9,icmp6,icmp_type=136,icmp_code=0,actions=set_field:{C}->nd_tll,set_field:fd00::98->ipv6_src,output:2",
        ),
        steps=tuple(
            packet("icmp6", tp_src=t, **options)
            for t in (135, 136)
            for options in ({}, {"nd_sll": A}, {"nd_tll": A}, {"nd_sll": A, "nd_tll": B})
        ),
    ),
    Case(
        name="a hop less: at the last hop the table's other actions are not done, elsewhere they are",
        flows=(
            "priority=9,ip,in_port=1,actions=output:2,dec_ttl,output:3",
            "priority=9,ip,in_port=2,actions=output:3,resubmit(,1),output:4",
            "priority=9,ipv6,actions=dec_ttl,dec_ttl,output:2",
            "priority=9,ip,in_port=3,actions=write_actions(dec_ttl,output:2)",
            "priority=9,ip,in_port=4,actions=dec_ttl(1,2),output:5,goto_table:1",
            "table=1,priority=9,ip,actions=dec_ttl,output:5",
        ),
        steps=tuple(
            packet(kind, at=port, nw_ttl=ttl)
            for kind in ("udp", "udp6")
            for port in (1, 2, 3, 4)
            for ttl in (0, 1, 2, 3, 255)
        ),
    ),
    Case(
        name="tags come and go",
        flows=(
            "priority=9,in_port=1,actions=push_vlan:0x8100,output:2,push_vlan:0x88a8,output:3",
            "priority=9,in_port=2,vlan_tci=0x1000/0x1000,actions=pop_vlan,output:3,push_vlan:0x88a8,set_field:0x1007->vlan_vid,output:4",
            "priority=9,in_port=3,actions=mod_vlan_vid:99,output:2,mod_vlan_pcp:3,output:4",
            "priority=9,in_port=4,vlan_tci=0x1000/0x1000,actions=set_field:0x1063->vlan_vid,set_field:6->vlan_pcp,output:2",
            "priority=9,in_port=5,vlan_tci=0x1000/0x1000,actions=load:0->vlan_tci[],output:2,load:0x3009->vlan_tci[],output:3",
            "priority=9,in_port=6,actions=load:0x7005->vlan_tci[],output:2,strip_vlan,output:3",
            "priority=1,in_port=2,actions=push_vlan:0x88a8,push_vlan:0x8100,output:3,pop_vlan,output:4,pop_vlan,output:5",
        ),
        steps=tuple(
            packet(kind, at=port, vlan=vlan, inner=inner)
            for port in range(1, 7)
            for kind in ("udp", "")
            for vlan, inner in TAGS
        )
        + tuple(packet("udp", at=port, vlan=0x6005, tpid=0x88A8) for port in range(1, 7)),
    ),
    Case(
        name="fields behind a tag that is pushed or popped can be matched and written",
        flows=(
            "priority=1,udp,actions=push_vlan:0x8100,set_field:0x1005->vlan_vid,mod_tp_dst:7,mod_nw_dst:10.0.0.77,resubmit(,1)",
            "priority=2,udp,vlan_tci=0x1000/0x1000,actions=pop_vlan,mod_tp_dst:8,resubmit(,1)",
            "table=1,priority=9,dl_vlan=5,udp,tp_dst=7,actions=output:2,pop_vlan,output:3",
            "table=1,priority=8,udp,tp_dst=8,vlan_tci=0,actions=output:4",
            "table=1,priority=7,udp,tp_dst=8,actions=output:5",
        ),
        steps=tuple(packet(vlan=vlan, inner=inner) for vlan, inner in TAGS),
    ),
    Case(
        name="labels: pushed, changed, popped",
        flows=(
            "priority=9,ip,in_port=1,actions=push_mpls:0x8847,output:2,set_field:77->mpls_label,set_field:5->mpls_tc,set_mpls_ttl:9,output:3",
            "priority=9,ip,in_port=2,actions=push_mpls:0x8847,set_mpls_label:100,push_mpls:0x8848,set_mpls_label:200,output:3",
            "priority=9,mpls,in_port=1,mpls_bos=1,actions=pop_mpls:0x0800,output:2,dec_ttl,output:3",
            "priority=9,mpls,in_port=1,mpls_bos=0,actions=pop_mpls:0x8847,dec_mpls_ttl,output:4",
            "priority=9,mpls,in_port=2,actions=dec_mpls_ttl,output:3,push_mpls:0x8848,output:4",
            "priority=9,mpls,in_port=3,actions=pop_mpls:0x0800,resubmit(,1)",
            "priority=9,mplsm,actions=pop_mpls:0x86dd,output:5,set_field:::7->ipv6_dst,output:6",
            "priority=9,arp,actions=push_mpls:0x8847,output:5",
            "table=1,priority=9,udp,tp_dst=80,actions=mod_tp_dst:81,mod_nw_tos:4,output:6",
            "table=1,priority=8,ip,actions=output:5",
        ),
        steps=tuple(
            packet(kind, at=port, vlan=vlan) for port in (1, 2) for kind in ("udp", "arp") for vlan in (None, 0x2005)
        )
        + tuple(
            packet(
                "mpls",
                at=port,
                mpls_label=16,
                mpls_bos=bos,
                mpls_ttl=ttl,
                mpls_inner=0x0800,
                nw_proto=17,
                vlan=vlan,
                **({} if bos else {"mpls2": 0x00030140}),
            )
            for port in (1, 2, 3)
            for bos in (0, 1)
            for ttl in (0, 1, 2, 64)
            for vlan in (None, 0x2005)
        )
        + tuple(packet("mplsm", mpls_inner=inner, nw_proto=17) for inner in (0x0800, 0x86DD, 0)),
    ),
    Case(
        name="a tag goes in front of a label, whichever came first",
        flows=(
            "priority=9,ip,in_port=1,actions=push_vlan:0x8100,set_field:0x1005->vlan_vid,push_mpls:0x8847,set_mpls_label:3,output:2",
            "priority=9,ip,in_port=2,actions=push_mpls:0x8847,set_mpls_label:3,push_vlan:0x8100,set_field:0x1006->vlan_vid,output:3",
            "priority=9,mpls,in_port=3,vlan_tci=0x1000/0x1000,actions=pop_vlan,pop_mpls:0x0800,output:4",
            "priority=9,mpls,in_port=4,vlan_tci=0x1000/0x1000,actions=pop_mpls:0x0800,pop_vlan,output:5",
        ),
        steps=tuple(packet(at=port, vlan=vlan, inner=inner) for port in (1, 2) for vlan, inner in TAGS)
        + tuple(
            packet("mpls", at=port, vlan=vlan, inner=inner, mpls_inner=0x0800, nw_proto=6)
            for port in (3, 4)
            for vlan, inner in TAGS
        ),
    ),
    Case(
        name="copies are cut, the packet itself is not",
        flows=(
            "priority=1,in_port=1,actions=output(port=2,max_len=14),output:3,output(port=4,max_len=60),output(port=5,max_len=65535)",
            "priority=1,in_port=2,udp,actions=mod_tp_dst:9,output(port=3,max_len=40),mod_nw_ttl:5,output(port=4,max_len=30),output:5",
            "priority=1,in_port=3,actions=output(port=3,max_len=20),output(port=in_port,max_len=20),output:4",
        ),
        steps=tuple(
            packet(kind, at=port, payload=n)
            for port in (1, 2, 3)
            for kind in ("udp", "arp")
            for n in (0, 12, 100, 1300)
        ),
    ),
    Case(
        name="what is written to a header that is not there is not written",
        flows=("priority=1,actions=group:1", "priority=2,in_port=2,actions=group:2"),
        groups=(
            "group_id=1,type=all,bucket=actions=set_field:1.2.3.4->nw_src,output:2,bucket=actions=set_field:9->tcp_dst,output:3,"
            "bucket=actions=set_field:5.6.7.8->arp_spa,output:4,bucket=actions=mod_nw_ttl:3,output:5,bucket=actions=set_field:::9->ipv6_src,output:6",
            "group_id=2,type=all,bucket=actions=dec_ttl,output:3,bucket=actions=set_field:5->vlan_pcp,output:4,"
            "bucket=actions=set_mpls_label:5,output:5,bucket=actions=set_field:9->udp_dst,output:6,bucket=actions=pop_vlan,output:1",
        ),
        steps=tuple(
            packet(kind, at=port, vlan=vlan)
            for port in (1, 2)
            for kind in ("tcp", "udp6", "arp", "mpls", "")
            for vlan in (None, 0x6005)
        ),
    ),
    Case(
        name="writing what is there already changes nothing, not even a wrong checksum",
        flows=(
            f"priority=1,ip,actions=mod_dl_src:{A},mod_nw_src:10.0.0.1,mod_nw_ttl:64,mod_nw_tos:0,output:2",
            "priority=1,ipv6,actions=set_field:fd00::1->ipv6_src,output:2",
        ),
        steps=(packet("udp"), packet("tcp6"), Send(1, frame("udp")[:24] + b"\0\0" + frame("udp")[26:])),
    ),
]
