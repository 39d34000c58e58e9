"""The compiled translation against the reference: random rules and flows, then the cases in which each could be wrong."""

from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import wirespeed as ws
from wirespeed.errors import GraphError
from wirespeed.switch.fields import W_DERIVED
from wirespeed.switch.groups import Bucket, Group
from wirespeed.switch.switch import Switch
from wirespeed.switch.text.action import read_actions
from wirespeed.switch.trace.compiled import flow_of_frame
from wirespeed.switch.trace.flow import read_flow
from wirespeed.switch.trace.packet import Packet
from wirespeed.switch.trace.replay import normal, replay
from wirespeed.switch.trace.trace import Trace, trace
from wirespeed.switch.translate import translation
from wirespeed.tables.meter import Band

PORTS = (1, 2, 3, 4)
KINDS = {
    "": ("dl_src=02:00:00:00:00:01", "dl_dst=02:00:00:00:00:02", "in_port=1", "reg0=1", "reg1=2/3", "metadata=7/15",
         "vlan_tci=0", "vlan_tci=0x1000/0x1000", "dl_vlan=5", "dl_vlan_pcp=3"),
    "ip": ("nw_src=10.0.0.0/24", "nw_dst=10.0.0.1", "nw_tos=32", "nw_ecn=1", "nw_ttl=1", "nw_proto=6", "ip_frag=no"),
    "tcp": ("nw_dst=10.0.0.0/31", "tp_src=1", "tp_dst=80", "tp_dst=80/0xfff0", "tcp_flags=+syn"),
    "udp": ("udp_src=1", "udp_dst=80"),
    "icmp": ("icmp_type=8",),
    "ipv6": ("ipv6_src=fc00::/64", "ipv6_dst=fc00::1", "ipv6_label=5"),
    "tcp6": ("tcp_dst=80",),
    "icmp6": ("icmp_type=135",),
    "arp": ("arp_op=1", "arp_spa=10.0.0.1", "arp_tpa=10.0.0.0/24", "arp_sha=02:00:00:00:00:01"),
    "mpls": ("mpls_label=100", "mpls_tc=1", "mpls_bos=1", "mpls_ttl=1"),
}  # fmt: skip
ANYWHERE = (
    "output:1", "output:2", "output:3", "output:9", "output(port=2,max_len=64)", "IN_PORT", "FLOOD", "ALL", "NORMAL",
    "CONTROLLER:128", "controller(reason=no_match,max_len=60)", "output:NXM_NX_REG0[0..15]",
    "mod_dl_src:02:00:00:00:00:09", "set_field:02:00:00:00:00:00/ff:00:00:00:00:ff->eth_dst", "set_field:1->reg0",
    "set_field:2->reg1", "set_field:0x30/0xf0->reg1", "load:3->NXM_NX_REG0[0..3]", "set_field:7->metadata",
    "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]", "move:NXM_NX_REG1[0..15]->NXM_NX_REG0[0..15]",
    "move:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]", "load:2->NXM_OF_IN_PORT[]", "push:NXM_NX_REG0[]", "pop:NXM_NX_REG1[]",
    "push:NXM_OF_ETH_DST[0..31]", "pop:NXM_NX_REG0[0..7]", "push_vlan:0x8100", "push_vlan:0x88a8", "pop_vlan",
    "mod_vlan_vid:5", "mod_vlan_pcp:3", "set_field:0->vlan_tci", "load:0x1007->NXM_OF_VLAN_TCI[]",
    "move:NXM_NX_REG0[0..11]->NXM_OF_VLAN_TCI[0..11]", "resubmit(,1)", "resubmit(,2)", "resubmit:3", "resubmit(4,1)",
    "resubmit(2,0)", "group:1", "group:2", "group:3", "group:4", "meter:1", "clone(output:3)",
    "clone(set_field:9->reg0,mod_dl_src:02:00:00:00:00:77,output:2)", "clone(push_vlan:0x8100,resubmit(,1))",
    "clone(dec_ttl,output:4)", "clone(pop_vlan,output:NXM_NX_REG0[0..15])", "dec_ttl", "mod_nw_ttl:7", "exit",
    "mod_nw_src:10.0.0.9", "mod_nw_dst:10.0.0.1", "mod_nw_tos:64", "mod_tp_src:99", "mod_tp_dst:80", "push_mpls:0x8847",
)  # fmt: skip
OF_KIND = {
    "ip": ("set_field:10.0.0.7->ip_dst", "set_field:3->nw_ecn", "set_field:1->nw_ttl", "pop_mpls:0x0800",
           "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]"),
    "tcp": ("set_field:443->tcp_dst", "move:NXM_OF_TCP_SRC[]->NXM_OF_TCP_DST[]"),
    "ipv6": ("set_field:fc00::9->ipv6_dst", "set_field:7->ipv6_label"),
    "icmp6": ("set_field:fc00::5->nd_target",),
    "arp": ("set_field:2->arp_op", "set_field:02:00:00:00:00:05->arp_tha", "load:2->NXM_OF_ARP_OP[]"),
    "mpls": ("set_field:55->mpls_label", "set_field:2->mpls_tc", "dec_mpls_ttl", "set_mpls_ttl(9)", "pop_mpls:0x8847",
             "push_mpls:0x8848", "pop_mpls:0x0800"),
}  # fmt: skip
ENDS = (
    "", "goto_table:1", "goto_table:2", "goto_table:3", "write_metadata:0x5/0xf", "write_actions(output:2)",
    "write_actions(group:1)", "write_actions(set_field:02:00:00:00:00:03->eth_src,output:3,dec_ttl)", "clear_actions",
    "write_actions(push_vlan:0x8100,pop_vlan,output:4)", "write_actions(output:2,IN_PORT),goto_table:3",
)  # fmt: skip
FLOWS = {
    "": ("dl_src=02:00:00:00:00:01", "dl_dst=02:00:00:00:00:02", "vlan_tci=0x1005", "vlan_tci=0x7005", "reg0=1", "reg1=3",
         "metadata=7"),
    "ip": ("nw_src=10.0.0.5", "nw_dst=10.0.0.1", "nw_tos=32", "nw_ecn=1", "nw_ttl=1", "nw_ttl=2", "nw_ttl=20"),
    "tcp": ("tp_src=1", "tp_dst=80", "tp_dst=81", "tcp_flags=syn"),
    "udp": ("udp_src=1", "udp_dst=80"),
    "icmp": ("icmp_type=8",),
    "ipv6": ("ipv6_src=fc00::7", "ipv6_dst=fc00::1", "ipv6_label=5"),
    "tcp6": ("tcp_dst=80",),
    "icmp6": ("icmp_type=135", "icmp_type=135,nd_target=fc00::1"),
    "arp": ("arp_op=1", "arp_spa=10.0.0.1", "arp_tpa=10.0.0.9", "arp_sha=02:00:00:00:00:01"),
    "mpls": ("mpls_label=100", "mpls_tc=1", "mpls_ttl=1", "mpls_ttl=2"),
}  # fmt: skip
PARENT = {"tcp": "ip", "udp": "ip", "icmp": "ip", "tcp6": "ipv6", "icmp6": "ipv6"}


def of_kind(table: dict[str, tuple[str, ...]], kind: str) -> tuple[str, ...]:
    """What a table has for a kind of packet, and for all that it is one of."""
    return tuple(word for one in dict.fromkeys(("", PARENT.get(kind, ""), kind)) for word in table.get(one, ()))


@st.composite
def rules(draw: st.DrawFn) -> str:
    """A rule without its priority."""
    kind = draw(st.sampled_from(("", "", "ip", *sorted(KINDS))))
    known = of_kind(KINDS, kind)
    match = draw(st.just([]) | st.lists(st.sampled_from(known), max_size=2, unique_by=lambda t: t.partition("=")[0]))
    known = (*ANYWHERE, *(of_kind(OF_KIND, kind) * 3))
    actions = draw(st.lists(st.sampled_from(known), min_size=1, max_size=5))
    table = draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3)))
    end = draw(st.sampled_from([end for end in ENDS if "goto" not in end or int(end[-1]) > table]))
    words = [f"table={table}", *([kind] if kind else []), *match]
    return ",".join([*words, "actions=" + ",".join([*actions, *([end] if end else [])])])


@st.composite
def flows(draw: st.DrawFn) -> str:
    """A flow as text."""
    kind = draw(st.sampled_from(sorted(FLOWS)))
    given_fields = st.lists(st.sampled_from(of_kind(FLOWS, kind)), max_size=4, unique_by=lambda t: t.partition("=")[0])
    words = [f"in_port={draw(st.sampled_from((1, 2, 3)))}", *([kind] if kind else []), *draw(given_fields)]
    return ",".join([*words, f"dp_hash={draw(st.integers(0, 255))}"])


def buckets(*texts: str, weights: tuple[int, ...] = (), watch: tuple[int | None, ...] = ()) -> tuple[Bucket, ...]:
    return tuple(
        Bucket(read_actions(text), weights[i] if weights else 1, watch_port=watch[i] if watch else None)
        for i, text in enumerate(texts)
    )


def fresh() -> Switch:
    """A switch with ports, a meter and a group of each kind."""
    switch = Switch(memory=1 << 28)
    for number in PORTS:
        switch.add_port(number, ws.port("null:"), config=["no-flood"] if number == 4 else [])
    switch.add_meter(1, [Band(1000)])
    switch.add_group(
        Group(1, "all", buckets("output:2", "push_vlan:0x8100,output:3", "mod_dl_src:02:00:00:00:00:08,output:1"))
    )
    switch.add_group(Group(2, "select", buckets("output:2", "dec_ttl,output:3", "output:4", weights=(1, 5, 0))))
    switch.add_group(Group(3, "ff", buckets("output:2", "set_field:3->reg0,group:1", watch=(2, 3))))
    switch.add_group(Group(4, "indirect", buckets("push_mpls:0x8847,output:2,resubmit(,1)")))
    return switch


@pytest.fixture(scope="module")
def shared() -> Iterator[Switch]:
    switch = fresh()
    yield switch
    switch.close()


@pytest.fixture
def switch(shared: Switch) -> Switch:
    shared.del_flows()
    return shared


def traced(switch: Switch, text: str) -> Trace:
    """The trace of a flow, which agrees with the reference."""
    found = trace(switch, read_flow(switch, text).flow)
    assert found.differences == (), text
    return found


def sent(found: Trace) -> list[int]:
    """The ports that a flow is sent to, in order, those of copies too."""

    def walk(events: object) -> Iterator[int]:
        for event in events:  # type: ignore[attr-defined]
            if event.what == "copy":
                yield from walk(event.about)
            elif event.what == "out":
                yield event.about[0] + 1

    return list(walk(found.outcome.events))


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])  # a rule set is read as it is, and shrinks slowly
@given(st.lists(rules(), min_size=1, max_size=12), st.lists(flows(), min_size=1, max_size=8))
def test_any_rules_make_of_any_flow_what_the_reference_says(
    shared: Switch, texts: list[str], packets: list[str]
) -> None:
    shared.del_flows()
    for priority, text in enumerate(texts):
        try:
            shared.add_flow(f"priority={priority},{text}")
        except GraphError:
            continue
    for packet in packets:
        found = trace(shared, read_flow(shared, packet).flow)
        assert found.differences == (), (packet, [str(rule.match) for rule in found.outcome.rules])


def test_a_rule_that_resubmits_for_ever_is_stopped_by_the_depth(switch: Switch) -> None:
    switch.add_flow("actions=resubmit(,0)")
    found = traced(switch, "in_port=1")
    assert found.outcome.fault == translation.TOO_DEEP
    assert len(found.outcome.rules) == 66  # the first, 64 deeper ones, and the one that is too much


def test_a_rule_that_doubles_its_look_ups_is_stopped_by_their_number(switch: Switch) -> None:
    for table in range(13):
        switch.add_flow(f"table={table},actions=resubmit(,{table + 1}),resubmit(,{table + 1})")
    switch.add_flow("table=13,actions=output:2")
    assert traced(switch, "in_port=1").outcome.fault == translation.TOO_MANY


def test_resubmits_to_later_tables_may_follow_each_other_through_all_tables(switch: Switch) -> None:
    for table in range(253):
        switch.add_flow(f"table={table},actions=resubmit(,{table + 1})")
    switch.add_flow("table=253,actions=output:2")
    assert sent(traced(switch, "in_port=1")) == [2]


def test_goto_leads_through_all_tables_and_what_is_written_on_the_way_is_done_at_the_end(switch: Switch) -> None:
    for table in range(253):
        switch.add_flow(f"table={table},actions=write_actions(output:{2 + table % 2}),goto_table:{table + 1}")
    switch.add_flow("table=253,actions=output:4")
    assert sent(traced(switch, "in_port=1")) == [4, 2]


def test_a_resubmit_as_from_another_port_looks_up_with_that_and_acts_with_the_own_one(switch: Switch) -> None:
    switch.add_flow("in_port=1,actions=resubmit(3,1)")
    switch.add_flow("table=1,in_port=3,actions=output:1,output:3,IN_PORT")
    assert sent(traced(switch, "in_port=1")) == [3, 1]


def test_the_action_set_is_done_in_its_own_order_and_only_its_last_output(switch: Switch) -> None:
    switch.add_flow(
        "tcp,actions=write_actions(output:2,set_field:02:00:00:00:00:03->eth_src,push_vlan:0x8100,output:3)"
    )
    (out,) = traced(switch, "in_port=1,tcp").outcome.events
    assert out.about[0] + 1 == 3 and out.packet is not None and out.packet[1] == ((0x8100, 0),)


def test_a_group_in_the_action_set_stands_for_the_output(switch: Switch) -> None:
    switch.add_flow("actions=write_actions(output:4,group:4)")
    (out,) = replayed(traced(switch, "in_port=1,ip"))
    assert out.about[0] + 1 == 2 and len(out.packet[2]) == 1


def test_clear_actions_leaves_nothing_to_be_done(switch: Switch) -> None:
    switch.add_flow("actions=write_actions(output:2),goto_table:1")
    switch.add_flow("table=1,actions=clear_actions")
    found = traced(switch, "in_port=1")
    assert sent(found) == [] and found.outcome.fault == 0


def test_each_bucket_of_a_group_for_all_begins_with_the_packet_as_it_came(switch: Switch) -> None:
    switch.add_flow("actions=mod_vlan_vid:9,group:1,output:4")
    found = traced(switch, "in_port=3,dl_src=02:00:00:00:00:01")
    assert sent(found) == [2, 1, 4]
    tags = [event.packet[1] for event in replayed(found)]
    assert tags == [((0x8100, 9),)] * 3


def replayed(found: Trace) -> list[object]:
    """The outputs that the compiled ops come to."""
    return [event for event in normal(replay(found.compiled.words, Packet.of(found.flow))) if event.what == "out"]


@pytest.mark.parametrize("number", range(0, 16))
def test_a_select_group_chooses_by_the_hash_and_never_a_bucket_of_weight_0(switch: Switch, number: int) -> None:
    switch.add_flow("actions=group:2")
    assert sent(traced(switch, f"in_port=1,ip,dp_hash={number}")) in ([2], [3])


def test_fast_failover_takes_the_first_bucket_whose_port_is_up(switch: Switch) -> None:
    switch.add_flow("actions=group:3")
    assert sent(traced(switch, "in_port=4")) == [2]
    switch.mod_port(2, down=True)
    assert sent(traced(switch, "in_port=4")) == [3, 1]
    switch.mod_port(3, link_down=True)
    assert sent(traced(switch, "in_port=4")) == []
    switch.mod_port(2, down=False)
    switch.mod_port(3, link_down=False)


def test_a_copy_changes_neither_packet_nor_registers_of_what_comes_behind_it(switch: Switch) -> None:
    switch.add_flow(
        "ip,actions=clone(set_field:2->reg0,dec_ttl,push_vlan:0x8100,output:3),output:NXM_NX_REG0[0..15],output:4"
    )
    found = traced(switch, "in_port=1,ip,nw_ttl=2,reg0=2")
    assert sent(found) == [3, 2, 4]
    assert [event.packet[1] for event in replayed(found)] == [((0x8100, 0),), (), ()]


def test_what_a_copy_took_of_ttl_and_labels_is_there_again_behind_it(switch: Switch) -> None:
    switch.add_flow("mpls,actions=clone(pop_mpls:0x0800,dec_ttl,output:3),resubmit(,1)")
    switch.add_flow("table=1,mpls,mpls_label=100,actions=dec_mpls_ttl,output:2")
    assert sent(traced(switch, "in_port=1,mpls,mpls_label=100,mpls_ttl=9")) == [2]
    switch.add_flow("ip,actions=clone(dec_ttl,dec_ttl,output:3),dec_ttl,output:2")
    assert sent(traced(switch, "in_port=1,ip,nw_ttl=2")) == [2]


def test_a_meter_in_a_copy_may_drop_the_copy_and_not_the_packet(switch: Switch) -> None:
    switch.add_flow("actions=clone(resubmit(,1)),output:2")
    switch.add_flow("table=1,actions=meter:1,output:3")
    found = traced(switch, "in_port=1")
    copy, out = normal(replay(found.compiled.words, Packet.of(found.flow)))
    assert [event.what for event in copy.about] == ["meter", "out"] and out.about[0] + 1 == 2


def test_fields_come_off_the_stack_in_reverse_and_one_too_many_drops_the_packet(switch: Switch) -> None:
    switch.add_flow(
        "actions=push:NXM_NX_REG0[],push:NXM_NX_REG1[],pop:NXM_NX_REG0[],pop:NXM_NX_REG1[],output:NXM_NX_REG0[0..15]"
    )
    assert sent(traced(switch, "in_port=1,reg0=2,reg1=3")) == [3]
    switch.add_flow("in_port=2,priority=50000,actions=pop:NXM_NX_REG0[],output:3")
    assert traced(switch, "in_port=2").outcome.fault == translation.BAD_STACK


def test_a_ttl_that_is_over_stops_the_rule_and_not_who_resubmitted_to_it(switch: Switch) -> None:
    switch.add_flow("ip,actions=resubmit(,1),output:4")
    switch.add_flow("table=1,ip,actions=dec_ttl,output:2")
    found = traced(switch, "in_port=1,ip,nw_ttl=1")
    assert [event.what for event in found.outcome.events] == ["controller", "out"] and sent(found) == [4]
    assert sent(traced(switch, "in_port=1,ip,nw_ttl=2")) == [2, 4]


def test_three_tags_are_two_for_the_one_in_the_middle_is_lost(switch: Switch) -> None:
    switch.add_flow(
        "actions=push_vlan:0x88a8,set_field:4097->vlan_vid,push_vlan:0x8100,set_field:4098->vlan_vid,output:2"
    )
    (out,) = replayed(traced(switch, "in_port=1,vlan_tci=0x1005"))
    assert out.packet[1] == ((0x8100, 2), (0x88A8, 1))


def test_a_fourth_label_drops_the_packet_and_says_why(switch: Switch) -> None:
    switch.add_flow("actions=" + ",".join(["push_mpls:0x8847"] * 3) + ",output:2,push_mpls:0x8847,output:3")
    assert traced(switch, "in_port=1,ip").outcome.fault == translation.TOO_MANY_LABELS


def test_metadata_is_written_by_its_mask_and_matched_in_the_next_table(switch: Switch) -> None:
    switch.add_flow("actions=write_metadata:0xf5/0xff,goto_table:1")
    switch.add_flow("table=1,metadata=0x5/0xf,actions=output:2")
    assert sent(traced(switch, "in_port=1")) == [2]


def test_registers_overlap_as_the_wide_ones_say(switch: Switch) -> None:
    switch.add_flow("actions=set_field:0x200000003->xreg0,output:NXM_NX_REG0[0..15],output:NXM_NX_REG1[0..15]")
    assert sent(traced(switch, "in_port=1")) == [2, 3]


def test_a_table_without_a_match_does_what_it_is_set_to(switch: Switch) -> None:
    switch.add_flow("actions=goto_table:1")
    switch.add_flow("table=2,actions=output:2")
    assert traced(switch, "in_port=1").outcome.fault == translation.NO_RULE
    switch.table_miss(1, "continue")
    assert sent(traced(switch, "in_port=1")) == [2]
    switch.table_miss(1, "controller")
    (told,) = traced(switch, "in_port=1").outcome.events
    assert told.what == "controller" and told.about[2] == 1
    switch.table_miss(1, "drop")


def test_what_is_behind_labels_is_seen_once_they_are_off_and_the_hash_stays(switch: Switch) -> None:
    switch.add_flow("mpls,actions=pop_mpls:0x0800,resubmit(,1)")
    switch.add_flow("table=1,ip,nw_dst=10.0.0.1,actions=group:2")
    frame = bytes.fromhex("020000000002 020000000001 8847 00064140 450000140000000040110000 0a000007 0a000001")
    chosen = set()
    for number in range(16):
        flow = flow_of_frame(switch, frame, 1) & ~(0xFFFFFFFF << 64 * W_DERIVED) | number << 64 * W_DERIVED
        found = trace(switch, flow, frame)
        assert found.differences == ()
        chosen |= set(sent(found))
    assert chosen == {2, 3}
