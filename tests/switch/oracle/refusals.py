"""Rules and groups that a switch must refuse: wrong words, values out of range, headers that are not surely there, bad
order.

A few accepted ones stand beside them (`ACCEPTED`), for a parser that refuses everything would pass otherwise.
"""

import re

from tests.switch.oracle.case import Case, Refused, Switch

RULES = [
    # Words.
    "foo=1,actions=drop",
    "priority=1,actions=foo",
    "priority=1,actions=output",
    "priority=1,actions=output:p99",
    "priority=1",
    "priority=1,ip",
    "priority=1,actions=output:2 extra",
    "priority=1,actions=drop,output:2",
    "priority=1,actions=output:2,drop",
    "priority=1,actions=resubmit()",
    "priority=1,actions=group",
    "priority=1,actions=group:x",
    "priority=1,actions=load:1",
    "priority=1,actions=load:1->",
    "priority=1,actions=load:1->foo",
    "priority=1,actions=move:reg0[]",
    "priority=1,actions=set_field:1",
    "priority=1,actions=set_field:1->",
    "priority=1,actions=output(port=2",
    "priority=1,actions=output(port=2)",
    "priority=1,actions=output(max_len=20)",
    "priority=1,actions=push_vlan",
    "priority=1,actions=write_actions(foo)",
    "dl_src=1,actions=drop",
    "ip,nw_src=10.0.0,actions=drop",
    "ipv6,ipv6_src=fd00,actions=drop",
    "dl_src=00:00:00:00:00,actions=drop",
    "tcp,tcp_flags=+foo,actions=drop",
    "ip,ip_frag=maybe,actions=drop",
    # Values out of range.
    "table=256,priority=1,actions=drop",
    "table=-1,actions=drop",
    "priority=65536,actions=drop",
    "priority=-1,actions=drop",
    "idle_timeout=65536,actions=drop",
    "in_port=70000,actions=drop",
    "in_port=99999999999,actions=drop",
    "dl_type=0x10000,actions=drop",
    "ip,nw_proto=256,actions=drop",
    "ip,nw_tos=256,actions=drop",
    "ip,nw_ttl=256,actions=drop",
    "tcp,tcp_dst=65536,actions=drop",
    "icmp,icmp_type=256,actions=drop",
    "ipv6,ipv6_label=0x100000,actions=drop",
    "reg0=0x100000000,actions=drop",
    "reg16=0,actions=drop",
    "metadata=0x10000000000000000,actions=drop",
    "ip,nw_src=10.0.0.0/33,actions=drop",
    "ipv6,ipv6_src=fd00::/129,actions=drop",
    "priority=1,actions=output:70000",
    "priority=1,actions=load:0x100000000->reg0[]",
    "priority=1,actions=load:2->reg0[3]",
    "priority=1,actions=load:1->reg0[32]",
    "priority=1,actions=load:1->reg0[5..4]",
    "priority=1,actions=move:reg0[0..7]->reg1[0..8]",
    "priority=1,actions=move:reg0[30..33]->reg1[0..3]",
    "priority=1,actions=set_field:0x100000000->reg0",
    "priority=1,actions=set_field:0xff/0x0f->reg0",
    "priority=1,actions=mod_vlan_vid:4096",
    "priority=1,actions=mod_vlan_pcp:8",
    "ip,actions=mod_nw_tos:1",
    "ip,actions=mod_nw_ecn:4",
    "ip,actions=mod_nw_ttl:256",
    "tcp,actions=mod_tp_dst:65536",
    "priority=1,actions=push_vlan:0x1234",
    "priority=1,actions=push_vlan:0x9100",
    "priority=1,actions=push_mpls:0x0800",
    "priority=1,actions=output(port=2,max_len=13)",
    "priority=1,actions=output(port=2,max_len=0)",
    "priority=1,actions=goto_table:256",
    "priority=1,actions=resubmit(,256)",
    "priority=1,actions=output:reg0[0..32]",
    "priority=1,actions=write_metadata:0x10000000000000000",
    "priority=1,actions=enqueue:2",
    # A match that lacks what it needs.
    "ip,ip_frag=later,tcp,tcp_dst=80,actions=mod_tp_dst:81",
    # A match that speaks against itself, or masks what has no mask.
    "in_port=1/1,actions=drop",
    "dl_type=0x0800/0xff00,actions=drop",
    "ip,nw_proto=6/7,actions=drop",
    "icmp,icmp_type=8/8,actions=drop",
    "mpls,mpls_label=5/5,actions=drop",
    "ip,nw_ttl=5/5,actions=drop",
    "dl_vlan=10/10,actions=drop",
    # Actions whose headers are not surely there.
    "priority=1,actions=dec_ttl",
    "arp,actions=dec_ttl",
    "arp,actions=mod_nw_src:10.0.0.1",
    "ipv6,actions=mod_nw_src:10.0.0.1",
    "ip,actions=set_field:fd00::1->ipv6_src",
    "ip,actions=mod_tp_dst:80",
    "icmp,actions=mod_tp_dst:80",
    "udp,actions=set_field:80->tcp_dst",
    "udp,ip_frag=later,actions=set_field:80->udp_dst",
    "priority=1,actions=pop_vlan",
    "priority=1,actions=strip_vlan",
    "vlan_tci=0,actions=pop_vlan",
    "vlan_tci=0x1000/0x1000,actions=pop_vlan,pop_vlan",
    "priority=1,actions=set_field:0x1005->vlan_vid",
    "priority=1,actions=set_field:5->vlan_pcp",
    "vlan_tci=0x1000/0x1000,actions=set_field:5->vlan_vid",
    "priority=1,actions=push_vlan:0x8100,push_vlan:0x8100,push_vlan:0x8100",
    "ip,actions=pop_mpls:0x0800",
    "ip,actions=dec_mpls_ttl",
    "ip,actions=set_mpls_label:3",
    "ip,actions=push_mpls:0x8847,dec_ttl",
    "tcp,actions=push_mpls:0x8847,pop_mpls:0x0800,mod_tp_dst:5",
    "priority=1,actions=move:nw_src[]->reg0[]",
    "ip,actions=load:1->arp_spa[]",
    "tcp,actions=load:1->tcp_flags[]",
    "priority=1,actions=set_field:6->nw_proto",
    "priority=1,actions=set_field:0x0800->dl_type",
    "mpls,actions=set_field:1->mpls_bos",
    "icmp6,actions=set_field:fd00::1->nd_target",
    # Instructions in another order, or in the wrong place.
    "priority=1,actions=goto_table:1,output:2",
    "priority=1,actions=write_actions(output:2),output:3",
    "priority=1,actions=clear_actions,output:3",
    "priority=1,actions=write_metadata:1,output:3",
    "priority=1,actions=goto_table:1,goto_table:2",
    "priority=1,actions=write_actions(output:2),write_actions(output:3)",
    "table=3,priority=1,actions=goto_table:3",
    "table=3,priority=1,actions=goto_table:2",
    "table=3,priority=1,actions=goto_table:0",
    "priority=1,actions=output:2,meter:1",
    "priority=1,actions=write_actions(resubmit(,1),output(port=2,max_len=20))",
    "priority=1,actions=write_actions(output(port=2,max_len=14))",
    "priority=1,actions=write_actions(output:reg0[])",
    "priority=1,actions=write_actions(goto_table:1)",
    "priority=1,actions=write_actions(write_actions(output:2))",
    "priority=1,actions=write_actions(clear_actions)",
    "table=254,priority=1,actions=output:1",
    "priority=1,actions=resubmit(,255)",
    # What does not exist.
    "priority=1,actions=group:77",
    "priority=1,actions=meter:77",
    "priority=1,actions=output:65535",
    "priority=1,actions=group:4294967295",
]

GROUPS = [
    "group_id=1",
    "group_id=1,type=foo,bucket=actions=output:1",
    "type=all,bucket=actions=output:1",
    "group_id=4294967041,type=all,bucket=actions=output:1",
    "group_id=4294967295,type=all,bucket=actions=output:1",
    "group_id=1,type=indirect",
    "group_id=1,type=indirect,bucket=actions=output:1,bucket=actions=output:2",
    "group_id=1,type=ff,bucket=actions=output:1",
    "group_id=1,type=all,bucket=weight:5,actions=output:1",
    "group_id=1,type=select,bucket=weight:65536,actions=output:1",
    "group_id=1,type=select,bucket=weight:x,actions=output:1",
    "group_id=1,type=all,bucket=foo:1,actions=output:1",
    "group_id=1,type=all,bucket=actions=foo",
    "group_id=1,type=all,bucket=actions=goto_table:1",
    "group_id=1,type=all,bucket=actions=write_actions(output:1)",
    "group_id=1,type=all,bucket=actions=clear_actions",
    "group_id=1,type=all,bucket=bucket_id:0,actions=output:1,bucket=bucket_id:0,actions=output:2",
    "group_id=1,type=all,selection_method=hash,bucket=actions=output:1",
    "group_id=1,type=select,selection_method=foo,bucket=actions=output:1",
]

ACCEPTED = [
    "actions=drop",
    "priority=65534,actions=drop",
    "table=253,priority=1,actions=drop",
    "dl_type=0xffff,actions=2",
    "ip,nw_proto=255,nw_tos=252,nw_ecn=3,nw_ttl=255,actions=output:65279",
    "table=3,priority=1,actions=resubmit(,0)",
    "table=3,priority=1,actions=goto_table:254",
    "dl_vlan=4095,dl_vlan_pcp=7,actions=pop_vlan",
    "priority=1,actions=mod_vlan_vid:4095,mod_vlan_pcp:7,pop_vlan",
    "priority=1,actions=write_actions(group:1),goto_table:1",
    "ip,actions=push_mpls:0x8847,set_mpls_label:1048575,pop_mpls:0x0800,dec_ttl",
    "priority=1,actions=clear_actions,write_actions(output:2),write_metadata:1,goto_table:1",
    "priority=1,actions=load:0xffffffff->reg0[],set_field:0xff/0xff->reg1,move:reg0[0..3]->reg1[4..7]",
    "ip,nw_src=10.0.0.1,nw_dst=10.0.0.1/255.0.255.0,actions=normal",
    "priority=1,actions=output(port=2,max_len=14)",
    "priority=1,actions=write_actions(resubmit(,1))",
]


def alone(line: str) -> Case:
    """A case of just this line; rules have group 1 to speak of."""
    if line in GROUPS or line.startswith("group_id="):
        return Case(flows=(), steps=(), groups=(line,))
    return Case(flows=(line,), steps=(), groups=("group_id=1,type=all,bucket=actions=output:1",))


def ask(oracle: Switch) -> list[tuple[str, str]]:
    """Which of the lines are refused, and with which of OpenFlow's errors, or ``text`` where ovs-ofctl itself refuses."""
    found = []
    for line in RULES + GROUPS + ACCEPTED:
        try:
            oracle.run(alone(line))
        except Refused as refusal:
            error = re.search(r"OFP[A-Z]*_[A-Z_]+", str(refusal))
            found.append((line, error[0] if error else "text"))
    return found
