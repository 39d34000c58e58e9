"""Rules as users write them, for the text form: what Open vSwitch prints of each is kept beside it."""

import random
import re

from tests.ovs import OpenVSwitch, RefusedError
from tests.switch.oracle import generate
from tests.switch.oracle.case import Case

RANDOM = 7  # cases whose rules are asked for as well

# What is read otherwise than it is written: fields whose prerequisites are missing are left out, others are completed.
ODD = [
    "dl_vlan=4096,actions=drop",
    "dl_vlan_pcp=8,actions=drop",
    "ip,nw_tos=1,actions=drop",
    "ip,ip_dscp=64,actions=drop",
    "ip,nw_ecn=4,actions=drop",
    "mpls,mpls_label=1048576,actions=drop",
    "mpls,mpls_tc=8,actions=drop",
    "mpls,mpls_bos=2,actions=drop",
    "priority=1,actions=output:xreg0[0..16]",
    "nw_src=10.0.0.1,actions=drop",
    "tcp_dst=80,actions=drop",
    "ip,tcp_dst=80,actions=drop",
    "udp,tcp_dst=80,actions=drop",
    "tcp,udp_dst=80,actions=drop",
    "arp,nw_tos=4,actions=drop",
    "ip,ipv6_src=::1,actions=drop",
    "ipv6,ip_src=10.0.0.1,actions=drop",
    "ipv6,nw_dst=10.0.0.1,actions=drop",
    "ip,arp_spa=10.0.0.1,actions=drop",
    "udp,tcp_flags=+syn,actions=drop",
    "icmp6,nd_target=fd00::1,actions=drop",
    "icmp6,icmp_type=135,icmp_code=0,nd_tll=02:00:00:00:00:01,actions=drop",
    "icmp6,icmp_type=136,icmp_code=0,nd_sll=02:00:00:00:00:01,actions=drop",
    "icmp,icmpv6_type=1,actions=drop",
    "icmp6,icmp_type=135,icmp_code=1,nd_target=fd00::1,actions=drop",
    "ip,mpls_label=5,actions=drop",
    "vlan_pcp=3,actions=drop",
    "dl_vlan=0xffff,dl_vlan_pcp=3,actions=drop",
    "ip_frag=first,actions=drop",
    "nw_ttl=3,actions=drop",
    "ip,ipv6,actions=drop",
    "tcp,udp,actions=drop",
    "ip,nw_src=10.0.0.1,nw_src=10.0.0.2,actions=drop",
    "priority=1,actions=write_actions(move:dl_src[]->dl_dst[])",
    "ip,actions=write_actions(mod_tp_dst:5)",
]

# Every form of each field and action, once.
FORMS = [
    "actions=drop",
    "priority=32768,actions=normal",
    "table=1,priority=0,cookie=0x123456789abcdef0,actions=NORMAL",
    "priority=5,idle_timeout=10,hard_timeout=20,importance=3,actions=LOCAL",
    "priority=5,send_flow_rem,check_overlap,reset_counts,actions=in_port",
    "in_port=LOCAL,actions=all,flood,local,in_port,controller",
    "in_port=controller,actions=controller(max_len=100,id=5,reason=no_match)",
    "in_port=65534,actions=output:controller",
    "dl_type=0x800,nw_proto=6,tp_dst=0x50,actions=1,2,3",
    "dl_type=0x86dd,nw_proto=58,icmp_type=128,actions=output:1",
    "eth_type=0x0806,arp_op=2,actions=output:1",
    "eth,actions=output:1",
    "ip_proto=6,ip,tcp_src=0x10/0xfff0,actions=output:1",
    "tcp,tcp_flags=+syn+ack-fin,actions=output:1",
    "tcp,tcp_flags=0x12,actions=output:1",
    "tcp,tcp_flags=0x3/0x7,actions=output:1",
    "ip,nw_src=10.1.2.3/8,nw_dst=10.1.2.3/255.0.255.0,actions=output:1",
    "ip,nw_src=0.0.0.0/0,actions=output:1",
    "ipv6,ipv6_src=fd00::1/16,ipv6_dst=::1/::ffff,actions=output:1",
    "ipv6,ipv6_src=2001:DB8:0:0:0:0:0:1,ipv6_label=5,actions=output:1",
    "dl_src=02:00:00:00:00:01/ff:00:00:00:00:ff,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=output:1",
    "eth_dst=FF:FF:FF:FF:FF:FF,actions=output:1",
    "dl_vlan=5,actions=output:1",
    "dl_vlan=5,dl_vlan_pcp=3,actions=output:1",
    "dl_vlan_pcp=3,actions=output:1",
    "dl_vlan=0xffff,actions=output:1",
    "vlan_tci=0x1005,actions=output:1",
    "vlan_tci=0x1005/0x1fff,actions=output:1",
    "vlan_tci=0xf005,actions=output:1",
    "vlan_tci=0x1000/0x1000,actions=output:1",
    "vlan_tci=0/0x1000,actions=output:1",
    "vlan_tci=0,actions=output:1",
    "vlan_vid=0x1005,actions=output:1",
    "vlan_vid=0x1005/0x1007,vlan_pcp=2,actions=output:1",
    "vlan_vid=0x1000/0x1000,actions=output:1",
    "arp,arp_spa=10.0.0.1,nw_dst=10.0.0.2,actions=output:1",
    "arp,nw_proto=1,actions=output:1",
    "rarp,arp_sha=02:00:00:00:00:01,actions=output:1",
    "icmp,icmp_type=8,icmp_code=0,actions=output:1",
    "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fd00::1,nd_sll=02:00:00:00:00:01,actions=output:1",
    "icmp6,icmp_type=136,icmp_code=0,nd_tll=02:00:00:00:00:01,actions=output:1",
    "mpls,mpls_label=100,mpls_tc=3,mpls_bos=1,mpls_ttl=9,actions=output:1",
    "mplsm,actions=output:1",
    "ip,nw_tos=184,nw_ecn=2,nw_ttl=1,actions=output:1",
    "ip,ip_dscp=46,ip_ecn=1,actions=output:1",
    "ip,ip_frag=yes,actions=output:1",
    "ip,nw_frag=first,actions=output:1",
    "metadata=0x5,reg0=1,reg15=0x1/0xf,actions=output:1",
    "metadata=0x5/0xff,xreg0=0x100000002,actions=output:1",
    "xreg2=0x100000000/0xffffffff00000000,actions=output:1",
    "xxreg0=0x1,actions=output:1",
    "sctp,tp_src=5,sctp_dst=6,actions=output:1",
    "udp6,tp_src=5,actions=output:1",
    "ip,actions=mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:02,mod_nw_src:10.0.0.1,mod_nw_dst:10.0.0.2",
    "ip,actions=mod_nw_tos:184,mod_nw_ecn:1,mod_nw_ttl:9,dec_ttl,dec_ttl(1,2)",
    "tcp,actions=mod_tp_src:1,mod_tp_dst:2",
    "actions=mod_vlan_vid:5",
    "actions=mod_vlan_pcp:5",
    "actions=mod_vlan_vid:5,mod_vlan_pcp:6",
    "dl_vlan=7,actions=mod_vlan_vid:5,mod_vlan_pcp:6,strip_vlan",
    "dl_vlan=7,actions=pop_vlan,push_vlan:0x8100,push_vlan:0x88a8",
    "ip,actions=push_mpls:0x8847,set_mpls_label:5,set_mpls_tc:6,set_mpls_ttl:7,dec_mpls_ttl,pop_mpls:0x0800",
    "actions=load:5->NXM_NX_REG0[],load:0x5->NXM_NX_REG0[0..7],load:1->reg1[3],load:1->OXM_OF_METADATA[60..63]",
    "actions=load:0x020000000001->NXM_OF_ETH_SRC[],load:0->NXM_OF_IN_PORT[],load:0x1005->NXM_OF_VLAN_TCI[]",
    "actions=set_field:5->reg0,set_field:0x5/0xf->reg1,set_field:02:00:00:00:00:01->eth_src,set_field:0x1/0xff->metadata",
    "actions=set_field:02:00:00:00:00:01/ff:ff:ff:00:00:ff->dl_dst,set_field:0x5->xreg1,set_field:0x5->xxreg1",
    "ip,actions=set_field:10.0.0.1->nw_src,set_field:10.0.0.1->ip_dst,set_field:0.0.0.1/0.0.0.255->ip_src,set_field:9->nw_ttl",
    "ip,actions=set_field:46->ip_dscp,set_field:1->nw_ecn,set_field:184->nw_tos",
    "ipv6,actions=set_field:fd00::1->ipv6_src,set_field:5->ipv6_label,set_field:::1/::ff->ipv6_dst",
    "tcp,actions=set_field:80->tcp_dst,set_field:1/1->tcp_src",
    "dl_vlan=5,actions=set_field:4101->vlan_vid,set_field:3->vlan_pcp,set_field:0x1001/0x1001->vlan_vid",
    "arp,actions=set_field:2->arp_op,set_field:10.0.0.1->arp_spa,set_field:02:00:00:00:00:01->arp_tha,load:1->NXM_OF_ARP_OP[]",
    "icmp,actions=set_field:0->icmp_type,set_field:1->icmp_code",
    "icmp6,icmp_type=135,icmp_code=0,actions=set_field:fd00::1->nd_target,set_field:02:00:00:00:00:01->nd_sll",
    "tcp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:reg0[0..15]->tcp_dst[],move:eth_src[0..31]->reg1[]",
    "actions=output:NXM_NX_REG0[],output:reg1[0..15],output:OXM_OF_METADATA[0..15]",
    "actions=output(port=2,max_len=100),output(port=in_port,max_len=20)",
    "actions=resubmit(,1),resubmit(2,3),resubmit:4,resubmit(in_port,5),resubmit(7)",
    "actions=goto_table:1",
    "actions=output:1,write_actions(output:2),goto_table:3",
    "actions=clear_actions,write_metadata:0x5,goto_table:1",
    "actions=write_metadata:0x5/0xff",
    "ip,actions=write_actions(dec_ttl,output:2,mod_dl_src:02:00:00:00:00:01,push_vlan:0x8100)",
    "actions=write_actions()",
    "actions=clear_actions",
    "actions=enqueue:2:3,set_queue:5,pop_queue",
    "actions=note:01.02.03,exit",
    "actions=clone(output:2,mod_dl_src:02:00:00:00:00:01),output:3",
    "actions=push:NXM_NX_REG0[],pop:NXM_NX_REG1[]",
    "priority=10 ip nw_src=10.0.0.1 actions=output:2 output:3",
    "  priority=10 , ip , actions=output:2 , output:3  ",
]


def ask(ovs: OpenVSwitch) -> list[tuple[str, str]]:
    """Pairs of a rule as it is written and as ``dump-flows --no-stats`` prints it."""
    return [pair for line in written() if (pair := _asked(ovs, line))]


def written() -> list[str]:
    """Every form, the rules of the cases written by hand, and some random ones, once each."""
    from tests.switch.oracle.recorded import WRITTEN

    cases: list[Case] = [
        *WRITTEN.values(),
        *(generate.generate(random.Random(-seed), packets=0) for seed in range(1, RANDOM)),
    ]
    rules = [flow for case in cases for flow in case.flows if "group:" not in flow and "meter:" not in flow]
    # Of rules that differ in numbers only, as many cases have them, one is enough.
    kept = {re.sub(r"[0-9a-fx:.]*[0-9][0-9a-fx:.]*", "0", rule): rule for rule in rules}
    return list(dict.fromkeys([*FORMS, *ODD, *kept.values()]))


def _asked(ovs: OpenVSwitch, line: str) -> tuple[str, str] | None:
    try:
        ovs.program(line)
    except RefusedError:
        return None
    (printed,) = ovs.dump_flows("--no-stats")
    return line, printed
