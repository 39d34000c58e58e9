"""Cases of ours about the way through the tables: goto, resubmit and its limits, action sets, registers, groups."""

from tests.switch.oracle.case import Case, Flows, Port, PortState, Send, Setup
from tests.switch.oracle.packets import C, D, packet

AT_SIX = tuple(packet(at=port) for port in range(1, 7))

CASES = [
    Case(
        name="goto does not come back, resubmit does",
        flows=(
            "priority=1,in_port=1,actions=output:2,goto_table:1",
            f"priority=1,in_port=2,actions=resubmit(,1),output:3,mod_dl_src:{C},resubmit(,1)",
            "table=1,priority=1,actions=output:4,goto_table:7",
            f"table=7,priority=1,actions=output:5,mod_dl_dst:{D},output:6",
        ),
        steps=(packet(at=1), packet(at=2), packet(at=3)),
    ),
    Case(
        name="resubmit with a port looks up as if from there, and puts the port back",
        flows=(
            "priority=2,in_port=1,actions=resubmit:2,output:3,resubmit(4,1),output:6",
            "priority=2,in_port=2,actions=output:4,output:1,output:2",
            "table=1,priority=1,in_port=4,actions=in_port,output:5,output:1",
            "table=1,priority=1,in_port=1,actions=output:6",
        ),
        steps=AT_SIX,
    ),
    Case(
        name="what a resubmitted table changes stays changed",
        flows=(
            "priority=1,udp,actions=resubmit(,1),output:2,resubmit(,2),output:3,resubmit(,9),output:4",
            f"table=1,priority=1,udp,actions=mod_dl_src:{C},load:7->reg0[]",
            "table=2,priority=1,reg0=7,udp,actions=mod_tp_dst:7,push_vlan:0x8100,output:5",
        ),
        steps=(packet("udp"), packet("tcp")),
    ),
    Case(
        name="resubmit to the same table without end: the packet is dropped as a whole",
        flows=(
            "priority=1,in_port=1,actions=output:2,resubmit(,0)",
            "priority=1,in_port=2,actions=output:3,resubmit(,1),output:4",
            "table=1,actions=resubmit:2",
        ),
        steps=(packet(at=1), packet(at=2)),
    ),
    Case(
        name="resubmits may be 64 deep",
        flows=(
            "priority=1,in_port=1,actions=load:0->reg0[],resubmit(,1)",
            *(f"table=1,priority=1,reg0={n},actions=load:{n + 1}->reg0[],resubmit(,1)" for n in range(61)),
            "table=1,priority=1,reg0=61,actions=output:2",
        ),
        steps=(packet(at=1),),
    ),
    Case(
        name="resubmits may not be deeper",
        flows=(
            "priority=1,in_port=1,actions=output:3,load:0->reg0[],resubmit(,1)",
            *(f"table=1,priority=1,reg0={n},actions=load:{n + 1}->reg0[],resubmit(,1)" for n in range(66)),
            "table=1,priority=1,reg0=66,actions=output:2",
        ),
        steps=(packet(at=1),),
    ),
    Case(
        name="a forward chain of tables is longer than 64",
        flows=(
            *(f"table={n},priority=1,actions=resubmit(,{n + 1})" for n in range(80)),
            "table=80,priority=1,actions=output:2",
        ),
        steps=(packet(at=1),),
    ),
    Case(
        name="goto through every table",
        flows=(
            *(f"table={n},priority=1,actions=goto_table:{n + 1}" for n in range(253)),
            "table=253,priority=1,actions=output:2",
        ),
        steps=(packet(at=1),),
    ),
    Case(
        name="more than 4096 resubmits of one packet: it is dropped as a whole",
        flows=(
            *(f"table={n},priority=1,actions=resubmit(,{n + 1}),resubmit(,{n + 1})" for n in range(13)),
            "table=13,priority=1,actions=load:1->reg0[]",
        )
        + ("priority=2,in_port=2,actions=output:3,resubmit(,1)", "priority=3,in_port=3,actions=resubmit(,4),output:2"),
        steps=(packet(at=1), packet(at=2), packet(at=3)),
    ),
    Case(
        name="registers carry values from table to table, whole and in parts",
        flows=(
            "priority=1,in_port=1,actions=load:0x12345678->reg0[],move:reg0[16..31]->reg1[0..15],set_field:0x5/0xf->reg2,goto_table:1",
            "priority=1,in_port=2,actions=set_field:0xfedcba9876543210->xreg1,goto_table:1",
            "priority=1,in_port=3,actions=set_field:0x00112233445566778899aabbccddeeff->xxreg1,goto_table:1",
            "priority=1,in_port=4,actions=set_field:0x55/0xff->metadata,load:0xaa->metadata[56..63],goto_table:1",
            "priority=1,in_port=5,actions=write_metadata:0xff00/0xfff0,goto_table:1",
            "table=1,priority=9,reg0=0x12345678,reg1=0x1234,reg2=5,actions=output:2",
            "table=1,priority=9,reg2=0xfedcba98,reg3=0x76543210,actions=output:3",
            "table=1,priority=9,reg4=0x00112233,reg5=0x44556677,xreg3=0x8899aabbccddeeff,actions=output:4",
            "table=1,priority=9,metadata=0xaa00000000000055,actions=output:5",
            "table=1,priority=8,metadata=0xff00/0xff00,actions=output:6",
            "table=1,priority=1,actions=output:1",
        ),
        steps=AT_SIX,
    ),
    Case(
        name="output to the port that a register names",
        flows=(
            "priority=1,in_port=1,actions=load:3->reg0[],output:reg0[],load:4->reg1[8..23],output:reg1[8..23],output:reg5[]",
            "priority=1,in_port=2,actions=load:2->reg0[],output:reg0[],load:0xfffb->reg0[0..15],output:reg0[0..15]",
            "priority=1,in_port=3,actions=load:0xfff8->reg0[0..15],output:reg0[0..15]",
            "priority=1,in_port=4,actions=move:in_port[]->reg0[0..15],output:reg0[0..15],load:5->in_port[],output:reg0[0..15],output:5",
            "priority=1,in_port=5,udp,actions=output:udp_dst[]",
        ),
        steps=AT_SIX + (packet("udp", at=5, tp_dst=6),),
    ),
    Case(
        name="ports that mean many: all, flood, the packet's own, none",
        setup=Setup(ports=(Port(4, flood=False), Port(5, up=False))),
        flows=(
            "priority=1,in_port=1,actions=all",
            "priority=1,in_port=2,actions=flood",
            "priority=1,in_port=3,actions=in_port,output:3,output:in_port",
            f"priority=1,in_port=4,actions=flood,mod_dl_src:{C},all",
            "priority=1,in_port=6,actions=output:5,output:99,output:6,output:7",
        ),
        steps=AT_SIX,
    ),
    Case(
        name="action sets are done at the end, in their own order, each kind once",
        flows=(
            f"priority=1,in_port=1,ip,actions=write_actions(output:2,mod_dl_src:{C},push_vlan:0x8100,dec_ttl,set_field:0x1005->vlan_vid),goto_table:1",
            "priority=1,in_port=2,actions=output:4,write_actions(output:3),goto_table:1",
            "priority=1,in_port=3,actions=write_actions(output:2),goto_table:2",
            "priority=1,in_port=4,actions=write_actions(output:2,group:1)",
            "priority=1,in_port=5,ip,actions=write_actions(push_mpls:0x8847,mod_nw_ttl:7,output:2)",
            "priority=1,in_port=6,vlan_tci=0x1000/0x1000,actions=write_actions(pop_vlan,push_vlan:0x88a8,output:2)",
            f"table=1,priority=1,actions=write_actions(output:5,mod_dl_dst:{D})",
            "table=2,priority=1,actions=clear_actions,write_actions(mod_dl_src:00:00:00:00:00:01)",
        ),
        groups=(f"group_id=1,type=all,bucket=actions=mod_dl_src:{D},output:5,bucket=actions=output:6",),
        steps=tuple(packet(at=port, vlan=vlan) for port in range(1, 7) for vlan in (None, 0x2007)),
    ),
    Case(
        name="an action set is kept over resubmit and is lost with a missing table only if that drops the packet",
        flows=(
            "priority=1,in_port=1,actions=resubmit(,1),output:3,write_actions(output:2)",
            "priority=1,in_port=2,actions=write_actions(output:3),goto_table:9",
            "priority=1,in_port=3,actions=resubmit(,9),write_actions(output:4)",
            "table=1,priority=1,actions=write_actions(output:4)",
        ),
        steps=AT_SIX,
    ),
    Case(
        name="groups: all, indirect, and a packet that is as before after them",
        flows=(
            "priority=1,in_port=1,udp,actions=group:1,output:6",
            "priority=1,in_port=2,udp,actions=group:2,mod_tp_dst:5,group:2,output:6",
            "priority=1,in_port=3,actions=group:3,group:1",
            "priority=1,in_port=4,actions=write_actions(group:1)",
            "priority=1,in_port=5,actions=group:4,output:6",
        ),
        groups=(
            f"group_id=1,type=all,bucket=actions=mod_dl_src:{C},output:2,bucket=actions=output:3,bucket=actions=push_vlan:0x8100,mod_dl_dst:{D},output:4,bucket=actions=in_port",
            "group_id=2,type=indirect,bucket=actions=push_vlan:0x88a8,set_field:0x1009->vlan_vid,output:3",
            "group_id=3,type=all,bucket=actions=group:2,output:5,bucket=actions=group:1",
            "group_id=4,type=all,bucket=actions=load:7->reg0[],resubmit(,1),bucket=actions=resubmit(,1)",
        ),
        steps=AT_SIX,
    ),
    Case(
        name="registers that a bucket sets do not reach the next bucket, nor what comes after the group",
        flows=(
            "priority=1,actions=load:1->reg0[],group:1,resubmit(,1)",
            "table=1,priority=2,reg0=7,actions=output:4",
            "table=1,priority=2,reg0=1,actions=output:5",
        ),
        groups=("group_id=1,type=all,bucket=actions=load:7->reg0[],resubmit(,1),bucket=actions=resubmit(,1)",),
        steps=AT_SIX,
    ),
    Case(
        name="a group without buckets, and one that leads nowhere",
        flows=(
            "priority=1,in_port=1,actions=group:1,output:2",
            "priority=1,in_port=2,actions=group:2,output:3",
            "priority=1,in_port=3,actions=write_actions(group:1,output:4)",
        ),
        groups=("group_id=1,type=all", "group_id=2,type=indirect,bucket=actions=drop"),
        steps=AT_SIX,
    ),
    Case(
        name="fast failover takes the first bucket that lives, as ports go and come",
        flows=("priority=1,in_port=1,actions=group:1", "priority=1,in_port=2,actions=group:2,output:1"),
        groups=(
            "group_id=1,type=ff,bucket=watch_port:3,actions=output:3,bucket=watch_port:4,actions=output:4,bucket=watch_group:2,actions=output:5",
            f"group_id=2,type=ff,bucket=watch_port:6,actions=mod_dl_src:{C},output:6",
        ),
        steps=(
            *(packet(at=1), packet(at=2), PortState(3, False), packet(at=1), PortState(4, False), packet(at=1)),
            *(
                PortState(6, False),
                packet(at=1),
                packet(at=2),
                PortState(4, True),
                packet(at=1),
                PortState(3, True),
                packet(at=1),
            ),
        ),
    ),
    Case(
        name="select takes the one bucket that lives, or has a weight",
        setup=Setup(ports=(Port(7, up=False),)),
        flows=(
            "priority=1,in_port=1,actions=group:1,output:6",
            "priority=1,in_port=2,actions=group:2",
            "priority=1,in_port=3,actions=group:3,output:4",
        ),
        groups=(
            f"group_id=1,type=select,bucket=weight:5,watch_port:7,actions=output:2,bucket=weight:1,watch_port:3,actions=mod_dl_src:{C},output:3",
            "group_id=2,type=select,bucket=weight:0,actions=output:4,bucket=weight:100,actions=output:5",
            "group_id=3,type=select,bucket=watch_port:7,actions=output:5",
        ),
        steps=tuple(
            packet(kind, at=port, tp_src=p) for kind in ("udp", "tcp6", "arp") for port in (1, 2, 3) for p in (1, 2, 3)
        ),
    ),
    Case(
        name="a packet in a label loses nothing on its way through a group that selects",
        flows=(
            "priority=1,mpls,actions=pop_mpls:0x0800,group:1,output:6",
            "priority=1,udp,actions=mod_tp_dst:7,group:1",
        ),
        groups=(
            "group_id=1,type=select,bucket=weight:0,actions=output:2,bucket=weight:1,actions=output:3,resubmit(,1)",
        ),
        steps=(packet("mpls", mpls_inner=0x0800, nw_proto=17), packet("udp"), packet("mpls", mpls_inner=0)),
    ),
    Case(
        name="rules are replaced: what was decided for a packet before does not stick",
        flows=("priority=1,actions=output:2",),
        steps=(
            *(packet(), Flows("priority=1,actions=output:3"), packet(), Flows(""), packet()),
            *(Flows("priority=1,udp,actions=goto_table:1\ntable=1,priority=1,actions=output:4"), packet()),
            *(
                Flows("priority=1,udp,tp_dst=81,actions=output:2\npriority=0,actions=output:5"),
                packet(),
                packet(tp_dst=81),
            ),
        ),
    ),
    Case(
        name="a packet to the controller goes on, and one with a dead hop stops where it is",
        flows=(
            "priority=1,in_port=1,actions=controller,output:2",
            "priority=1,in_port=2,ip,actions=output:3,dec_ttl,controller,output:4",
        ),
        steps=(packet(at=1), packet(at=2), packet(at=2, nw_ttl=1)),
    ),
    Case(
        name="a drop is a rule like others, and wins by its priority",
        flows=(
            "priority=9,udp,tp_dst=80,actions=drop",
            "priority=1,udp,actions=output:2",
            "priority=5,in_port=2,actions=clear_actions",
        ),
        steps=(packet(), packet(tp_dst=81), packet(at=2, tp_dst=81), Send(1, b"\2" * 14)),
    ),
]
