"""Actions: their words, which bits they look at and change, what they name."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.switch import action as ws
from wirespeed.switch import program
from wirespeed.switch.actions.base import Action
from wirespeed.switch.actions.instructions import order_action_set, resolve, resolve_bucket
from wirespeed.switch.fields import (
    CONTROLLER,
    FIELDS,
    FRAG_LATER,
    IN_PORT,
    LOCAL,
    TPID_SHIFT,
    TTL_FLOOR_SHIFT,
    W_DERIVED,
    W_LABEL,
    W_MPLS,
    W_SRC,
    W_TRANSPORT,
    WORDS,
    Field,
)
from wirespeed.switch.match import WAYS
from wirespeed.switch.text.action import read_action, read_actions
from wirespeed.switch.text.flow import flow_mod, parse_flow
from wirespeed.switch.text.subfield import Subfield

ONES = (1 << 64) - 1
TAG = FIELDS["vlan_tci"].mask | 0xFFFF << 64 * W_SRC
TPIDS = 0xFFFFFFFF << 64 * W_LABEL + TPID_SHIFT


class Places:
    """Group 9 is at place 4, meter 3 at place 5."""

    def group(self, number: int) -> int:
        if number != 9:
            raise GraphError(f"no group {number}; add it first")
        return 4

    def meter(self, number: int) -> int:
        return {3: 5}[number]


def words(*actions: Action) -> list[int]:
    return [word for action in actions for word in action.encode(Places())]


def steps(text: str) -> list[tuple[int, int, tuple[int, ...]]]:
    return list(program.steps(words(*read_actions(text))))


def done(actions: Iterable[Action], flow: int) -> int:
    """What the words that write fields make of a flow, one after the other."""
    stack = []

    def there(needs: int) -> bool:
        name = program.NEEDS[needs]
        return not name or any(flow & mask == value for mask, value in WAYS[name])

    def bits(place: int) -> tuple[int, int]:
        return 64 * (place & 0xFF) + (place >> 8 & 0xFF), (1 << (place >> 16 & 0xFF)) - 1

    def write(place: int, value: int) -> int:
        at, ones = bits(place)
        return flow & ~(ones << at) | (value & ones) << at

    for code, argument, more in program.steps(words(*actions)):
        if code == program.SET:
            assert not more[0] & ~more[1]
            if there(argument >> 8):
                at = 64 * (argument & 0xFF)
                flow = flow & ~(more[1] << at) | more[0] << at
        elif code == program.MOVE:
            if there(more[0] >> 40) and there(more[0] >> 32 & 0xFF):
                at, ones = bits(argument)
                flow = write(more[0] & 0xFFFFFFFF, flow >> at & ones)
        elif code == program.PUSH_FIELD:
            at, ones = bits(argument)
            stack.append(flow >> at & ones)
        elif code == program.POP_FIELD:
            value = stack.pop()
            if there(more[0]):
                flow = write(argument, value)
        else:
            raise AssertionError(program.NAMES[code])
    assert not stack
    return flow


def test_words_of_actions_are_those_that_translation_reads() -> None:
    assert steps("output:7,output(port=2,max_len=64),NORMAL") == [
        (program.OUTPUT, 7, (0,)),
        (program.OUTPUT, 2, (64,)),
        (program.OUTPUT, 0xFFFFFFFA, (0,)),
    ]
    assert steps("output:NXM_NX_REG1[0..15]") == [(program.OUTPUT_FIELD, program.place(18, 0, 16), (0,))]
    assert steps("controller(max_len=99,reason=invalid_ttl,userdata=01.02)") == [
        (program.CONTROLLER, 99, (2 | 0x0201 << 32,))
    ]
    assert steps("resubmit(,3),resubmit:4,resubmit(LOCAL,5)") == [
        (program.RESUBMIT, IN_PORT, (3,)),
        (program.RESUBMIT, 4, (255,)),
        (program.RESUBMIT, LOCAL, (5,)),
    ]
    assert steps("group:9,meter:3,goto_table:8,exit,clear_actions") == [
        (program.GROUP, 4, ()),
        (program.METER, 5, ()),
        (program.GOTO, 8, ()),
        (program.EXIT, 0, ()),
        (program.CLEAR_ACTIONS, 0, ()),
    ]
    assert steps("push_vlan:0x88a8,pop_vlan,push_mpls:0x8847,pop_mpls:0x0800,set_mpls_ttl:9,dec_ttl,dec_mpls_ttl") == [
        (program.PUSH_VLAN, 0x88A8, ()),
        (program.POP_VLAN, 0, ()),
        (program.PUSH_MPLS, 0x8847, ()),
        (program.POP_MPLS, 0x0800, ()),
        (program.SET_MPLS_TTL, 9, ()),
        (program.DEC_TTL, 0, ()),
        (program.DEC_MPLS_TTL, 0, ()),
    ]
    assert steps("write_metadata:0x5/0xff") == [(program.WRITE_METADATA, 0, (5, 255))]
    assert words(ws.mod_vlan_vid(5), ws.mod_vlan_pcp(3)) == [
        program.head(program.SET_VLAN_VID, 1, 5),
        program.head(program.SET_VLAN_PCP, 1, 3),
    ]


def test_what_holds_actions_counts_their_words() -> None:
    inner = words(ws.output(1), ws.set_field("reg0", 5))
    for one, code in ((ws.clone, program.CLONE), (ws.write_actions, program.WRITE_ACTIONS)):
        assert words(one(ws.output(1), ws.set_field("reg0", 5))) == [program.head(code, 6), *inner]
    assert list(program.steps(words(ws.clone(ws.clone(ws.output(1))), ws.output(2))))[1] == (program.OUTPUT, 2, (0,))


def test_a_group_or_meter_that_is_not_there_is_refused_when_words_are_made() -> None:
    with pytest.raises(GraphError, match="no group 8"):
        words(ws.clone(ws.group(8)))


def test_a_field_that_is_written_is_one_set_for_each_word() -> None:
    assert steps("set_field:10.0.0.1/255.0.0.255->ip_dst") == [
        (program.SET, 1 | program.NEEDS_NUMBER["ip"] << 8, (0x0A000001, 0xFF0000FF))
    ]
    assert steps("load:0x123->NXM_NX_XXREG0[60..71]") == [
        (program.SET, 17, (0x3 << 60, 0xF << 60)),
        (program.SET, 18, (0x12, 0xFF)),
    ]
    assert steps("set_field:0x1005->vlan_vid") == [
        (program.SET, 3, (0x1005, 0x1FFF))  # the match promises a tag; where none does, in a bucket, it is added
    ]
    assert steps("load:0xfffe->NXM_OF_IN_PORT[]") == [(program.SET, 0, (LOCAL, 0xFFFFFFFF))]
    assert steps("mod_nw_tos:184")[0][2] == (184, 0xFC)


def test_an_old_way_to_write_ports_is_for_each_transport_and_for_messages() -> None:
    names = [program.NEEDS[argument >> 8] for _, argument, _ in steps("mod_tp_dst:80")]
    assert names == ["tcp", "udp", "sctp", "icmp", "icmpv6"]


WRITABLE = [field for field in FIELDS.values() if field.writable and field.nxm]
READABLE = [field for field in FIELDS.values() if field.nxm]


def subfields(fields: list[Field], bits: int) -> st.SearchStrategy[Subfield]:
    wide = [field for field in fields if field.reach >= bits]
    return st.sampled_from(wide).flatmap(
        lambda field: st.integers(0, field.reach - bits).map(lambda at: Subfield(field, at, bits))
    )


def seen(part: Subfield, flow: int) -> int:
    """The bits of a flow as the text counts them: those that a field has not got are 0."""
    return flow >> part.field.at << part.field.value_at >> part.at & _own(part)


def _own(part: Subfield) -> int:
    field = part.field
    return (field.ones << field.value_at) >> part.at & (1 << part.bits) - 1


@settings(max_examples=300)
@given(st.data())
def test_a_move_copies_bit_by_bit(data: st.DataObject) -> None:
    bits = data.draw(st.integers(1, 128))
    source, target = data.draw(subfields(READABLE, bits)), data.draw(subfields(WRITABLE, bits))
    flow = data.draw(st.integers(0, (1 << 64 * WORDS) - 1))
    for part in (source, target):
        for mask, value in WAYS[part.field.needs][:1] if part.field.needs else ():
            flow = flow & ~mask | value
    if not all(
        not part.field.needs or any(flow & mask == value for mask, value in WAYS[part.field.needs])
        for part in (source, target)
    ):
        return
    after = done([ws.Move(source, target)], flow)
    if target.field.name == "in_port" and bits == 16:
        assert after & 0xFFFFFFFF == seen(source, flow)
        return
    assert seen(target, after) == seen(source, flow) & _own(target)
    assert (after ^ flow) & ~target.mask == 0


@given(st.data())
def test_a_load_writes_these_bits_alone(data: st.DataObject) -> None:
    part = data.draw(st.integers(1, 128).flatmap(lambda bits: subfields(WRITABLE, bits)))
    value = data.draw(st.integers(0, (1 << part.bits) - 1))
    flow = data.draw(st.integers(0, (1 << 64 * WORDS) - 1))
    needs = "vlan" if part.field.name == "vlan_vid" else part.field.needs
    for mask, must in WAYS[needs][:1] if needs else ():
        flow = flow & ~mask | must
    try:
        action = ws.load(value, str(part))
    except GraphError:
        assert part.field.name in ("in_port", "in_port_oxm", "nw_tos", "vlan_vid")
        return
    after = done([action], flow)
    if part.field.name not in ("in_port", "in_port_oxm"):
        assert seen(part, after) == value & _own(part)
        assert (after ^ flow) & ~part.mask == 0
    assert action.writes & part.mask == part.mask


def test_what_is_pushed_comes_back_in_reverse() -> None:
    flow = 5 << FIELDS["reg0"].at | 6 << FIELDS["reg1"].at
    found = done(read_actions("push:reg0[],push:reg1[],pop:reg0[],pop:reg1[]"), flow)
    assert (FIELDS["reg0"].get(found), FIELDS["reg1"].get(found)) == (6, 5)


def reads(text: str) -> int:
    return read_action(text).reads


def test_actions_look_at_the_headers_that_must_be_there() -> None:
    types = FIELDS["dl_type"].mask
    assert reads("output:1") == reads("resubmit(,3)") == reads("goto_table:3") == reads("set_field:1->reg0") == 0
    assert reads("mod_nw_src:1.2.3.4") == types
    later = FRAG_LATER << FIELDS["ip_frag"].at  # a later fragment has no ports
    assert reads("set_field:5->tcp_dst") == types | FIELDS["nw_proto"].mask | later
    ports = FIELDS["tcp_src"].mask | FIELDS["tcp_dst"].mask
    assert reads("set_field:::1->nd_target") == types | FIELDS["nw_proto"].mask | ports
    assert reads("output:NXM_NX_REG0[0..7]") == 0xFF << FIELDS["reg0"].at
    assert reads("move:NXM_OF_IP_SRC[0..7]->reg0[0..7]") == types | 0xFF << FIELDS["nw_src"].at
    assert reads("mod_nw_ttl:5") == types
    assert reads("load:1->NXM_NX_IP_TTL[0..3]") == types | FIELDS["nw_ttl"].mask
    assert reads("dec_ttl") == types | 15 << 64 * W_DERIVED + TTL_FLOOR_SHIFT


def test_actions_on_tags_and_labels_look_at_all_of_them() -> None:
    for text in ("push_vlan:0x8100", "pop_vlan", "load:5->vlan_tci[]", "load:1->NXM_OF_VLAN_TCI[13]"):
        assert reads(text) & (TAG | TPIDS) == TAG | TPIDS, text
        assert read_action(text).writes & TAG == TAG, text
    labels = ONES << 64 * W_MPLS
    tos_and_ttl = 0xFFFF << 64 * W_TRANSPORT
    assert reads("push_mpls:0x8847") & (labels | tos_and_ttl) == labels | tos_and_ttl
    assert reads("pop_mpls:0x0800") & labels == labels
    for text in ("push_mpls:0x8847", "pop_mpls:0x0800"):
        for name in (
            "dl_type",
            "nw_proto",
            "ip_frag",
            "nw_src",
            "ipv6_dst",
            "tcp_dst",
            "nw_ttl",
            "ipv6_label",
            "nd_target",
        ):
            assert read_action(text).writes & FIELDS[name].mask == FIELDS[name].mask, (text, name)


def test_actions_say_what_they_may_change() -> None:
    assert read_action("resubmit(,3)").writes == 0
    assert read_action("resubmit(4,3)").writes == FIELDS["in_port"].mask
    assert read_action("dec_ttl").writes & FIELDS["nw_ttl"].mask == FIELDS["nw_ttl"].mask
    assert read_action("write_metadata:1/3").writes == 3 << FIELDS["metadata"].at
    assert read_action("clone(set_field:1->reg3)").writes == FIELDS["reg3"].mask
    assert read_action("output:1").writes == 0


def test_actions_know_what_they_name_inside_of_others_too() -> None:
    actions = read_actions("clone(output:1,clone(group:9)),write_actions(output:2,group:8),controller,meter:3")
    assert [action.ports for action in actions] == [(1,), (2,), (CONTROLLER,), ()]
    assert [action.groups for action in actions] == [(9,), (8,), (), ()]
    assert [action.meters for action in actions] == [(), (), (), (3,)]


def test_equal_actions_are_one_key() -> None:
    one, other = read_actions("load:5->NXM_NX_REG0[],clone(output:1)"), read_actions("set_field:5->reg0,clone(1)")
    assert one == other and hash(one) == hash(other)
    assert len({*one, *other}) == 2


def rule(text: str) -> str:
    return ",".join(map(str, parse_flow(text).actions))


def test_old_actions_become_what_openflow_1_5_has_where_the_match_says_enough() -> None:
    assert rule("ip,actions=mod_nw_src:1.2.3.4,mod_nw_tos:16") == "set_field:1.2.3.4->ip_src,set_field:4->ip_dscp"
    assert rule("udp,actions=mod_tp_src:5") == "set_field:5->udp_src"
    assert rule("actions=write_actions(mod_nw_src:1.2.3.4,mod_tp_src:5)") == (
        "write_actions(mod_nw_src:1.2.3.4,mod_tp_src:5)"
    )
    assert rule("dl_vlan=3,actions=mod_vlan_vid:5") == "set_field:4101->vlan_vid"
    assert (
        rule("actions=mod_vlan_vid:5,mod_vlan_pcp:1")
        == "push_vlan:0x8100,set_field:4101->vlan_vid,set_field:1->vlan_pcp"
    )
    assert rule("dl_vlan=3,actions=pop_vlan,mod_vlan_vid:5") == "pop_vlan,push_vlan:0x8100,set_field:4101->vlan_vid"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("actions=set_field:1.2.3.4->ip_src", "set_field:1.2.3.4->ip_src needs a match on ip"),
        ("ip,actions=set_field:5->tcp_dst", "needs a match on tcp or tcp6"),
        ("arp,actions=mod_nw_src:1.2.3.4", "mod_nw_src:1.2.3.4 needs a match on ip$"),
        ("actions=dec_ttl", "dec_ttl needs a match on ip or ipv6"),
        ("tcp,ip_frag=later,actions=mod_tp_src:5", "not on ip_frag=later"),
        ("dl_vlan=3,actions=pop_vlan,pop_vlan", "pop_vlan needs a tag"),
        ("dl_vlan=3,actions=push_vlan:0x8100,push_vlan:0x8100", "more than 2 tags"),
        ("ip,actions=pop_mpls:0x0800", "needs a match on mpls"),
        ("ip,actions=clone(push_mpls:0x8847),dec_mpls_ttl", "needs a match on mpls"),
        ("actions=set_field:0xff/0x0f->reg0", "bits that its mask leaves out: write 0xf/0xf"),
        ("actions=output(port=2,max_len=0)", "max_len is at least 14"),
        ("actions=output(port=NORMAL,max_len=20)", "goes to one port"),
        ("actions=write_actions(output(port=2,max_len=20))", "write_actions cannot hold"),
        ("actions=set_field:4101->vlan_vid", "needs a tag"),
        ("actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]", "needs a match on ip"),
        ("ip,actions=push_mpls:0x8847,set_field:1.2.3.4->ip_src", "needs a match on ip"),
        ("tcp,actions=push_mpls:0x8847,pop_mpls:0x0800,set_field:5->tcp_dst", "needs a match on tcp"),
        ("actions=goto_table:3,output:1", "apply_actions must stand before goto_table"),
        ("actions=output:1,meter:3", "meter must stand before apply_actions"),
        ("actions=meter:1,meter:3", "more than one meter"),
        ("actions=write_actions(output:1),write_actions(output:2)", "more than one write_actions"),
        ("actions=write_actions(output:1),clear_actions", "clear_actions must stand before write_actions"),
        ("table=5,actions=goto_table:5", "goto_table goes forward: from table 5 to 6 or later, got 5"),
        ("actions=write_actions(clone(output:1))", "write_actions cannot hold clone"),
        ("actions=write_actions(goto_table:3)", "write_actions cannot hold goto_table:3"),
        ("actions=clone(goto_table:3)", "a copy's actions are no instructions, got goto_table:3"),
        ("actions=drop,output:1", "drop stands alone"),
        ("actions=learn(table=1)", "no action learn yet"),
        ("actions=ct(commit)", "no action ct yet"),
        ("actions=conjunction(1,1/2)", "no action conjunction yet"),
        ("actions=set_queue:3", "no action set_queue yet"),
        ("actions=outptu:3", "no action 'outptu'; did you mean output"),
        ("actions=normale", "no action or port 'normale'"),
        ("actions=resubmit(,)", "resubmit needs a port or a table"),
        ("actions=resubmit(1,2,ct)", "connection tracking comes later"),
        ("actions=set_field:5->reg0[0..3]", "a range of bits is for load"),
        ("actions=set_field:5", "write set_field:VALUE->FIELD"),
        ("actions=set_field:1->mpls_bos", "mpls_bos cannot be written"),
        ("actions=load:300->NXM_NX_REG0[0..7]", "has 8 bits, got 0x12c"),
        ("actions=move:reg0[0..7]->reg1[0..6]", "has 8 bits and reg1.* 7"),
        ("actions=push_vlan:0x9100", "0x8100 or 0x88a8"),
        ("actions=output(port=1,max_len=5)", "max_len is at least 14"),
        ("actions=output:any", "ANY is no port to send by"),
        ("actions=meter:0", "a meter's number is 1 to"),
        ("actions=output:1)", "closing parenthesis"),
        ("actions=clone(output:1", "a parenthesis that does not end"),
        ("actions=clone(output:1)x", "nothing may follow"),
        ("actions=push:NXM_NX_XXREG0[]", "only up to 64 bits"),
        ("actions=set_field:5->dl_vlan", "write vlan_vid"),
        ("actions=controller(pause)", "comes later"),
        ("actions=output", "output needs a value"),
    ],
)
def test_what_cannot_be_done_says_what_was_got_and_what_was_wanted(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_flow(text)


def test_nesting_is_bounded() -> None:
    with pytest.raises(GraphError, match="more than 64 parentheses"):
        read_actions("clone(" * 5000 + ")" * 5000)
    with pytest.raises(GraphError, match="at most 4096 actions"):
        parse_flow("actions=" + "output:1," * 5000)
    with pytest.raises(GraphError, match="at most 65535"):
        words(ws.clone(*[ws.output(1)] * 40000))


def test_functions_make_the_actions_of_their_text() -> None:
    made = [
        ws.output(2), ws.output("LOCAL"), ws.output(3, 64), ws.output_field("NXM_NX_REG0[0..15]"), ws.controller(100),
        ws.set_field("eth_dst", "02:00:00:00:00:01"), ws.set_field("reg0", 5, 0xFF), ws.load(1, "NXM_NX_REG1[0..7]"),
        ws.move("reg0", "reg1"), ws.push_vlan(), ws.pop_vlan(), ws.push_mpls(), ws.dec_mpls_ttl(), ws.set_mpls_ttl(5),
        ws.pop_mpls(0x0800), ws.dec_ttl(1, 2), ws.resubmit(table=3), ws.resubmit(4), ws.group(1), ws.exit(),
        ws.push("reg0"), ws.pop("reg1"), ws.clone(ws.output(1)), ws.clear_actions(), ws.write_actions(ws.output(9)),
        ws.write_metadata(5, 7), ws.goto_table(8),
    ]  # fmt: skip
    text = (
        "output:2,LOCAL,output(port=3,max_len=64),output:NXM_NX_REG0[0..15],CONTROLLER:100,"
        "set_field:02:00:00:00:00:01->eth_dst,set_field:0x5/0xff->reg0,set_field:0x1/0xff->reg1,"
        "move:NXM_NX_REG0[]->NXM_NX_REG1[],push_vlan:0x8100,pop_vlan,push_mpls:0x8847,dec_mpls_ttl,set_mpls_ttl(5),"
        "pop_mpls:0x0800,dec_ttl(1,2),resubmit(,3),resubmit:4,group:1,exit,push:NXM_NX_REG0[],pop:NXM_NX_REG1[],"
        "clone(output:1),clear_actions,write_actions(output:9),write_metadata:0x5/0x7,goto_table:8"
    )
    assert ",".join(map(str, made)) == text
    assert read_actions(text) == tuple(made)
    assert flow_mod("add", actions=made).actions == tuple(made)


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(GraphError, match=r"an action is such as wirespeed.output\(2\), got 'output:1'"):
        flow_mod("add", actions=["output:1"])  # type: ignore[list-item]
    with pytest.raises(GraphError, match="an action is such as"):
        flow_mod("add", actions=[{}])  # type: ignore[list-item]
    with pytest.raises(GraphError, match="an action is such as"):
        resolve_bucket([5])  # type: ignore[list-item]


def test_an_action_set_has_an_order_of_its_own() -> None:
    actions = read_actions(
        "output:1,set_field:1->reg0,dec_ttl,push_vlan:0x8100,pop_vlan,output:2,set_field:2->reg0,push_mpls:0x8847,pop_vlan"
    )
    ordered = ",".join(map(str, order_action_set(actions)))
    assert (
        ordered == "pop_vlan,push_mpls:0x8847,push_vlan:0x8100,dec_ttl,set_field:0x1->reg0,set_field:0x2->reg0,output:2"
    )
    assert order_action_set(read_actions("output:1,group:3,resubmit(,2)")) == read_actions("group:3")
    assert order_action_set(read_actions("resubmit(,2),exit")) == read_actions("resubmit(,2)")


def test_a_bucket_takes_what_an_action_set_can_hold() -> None:
    assert ",".join(map(str, resolve_bucket(read_actions("mod_vlan_vid:5,mod_nw_src:1.2.3.4,2")))) == (
        "push_vlan:0x8100,set_field:4101->vlan_vid,set_field:1.2.3.4->ip_src,output:2"
    )
    with pytest.raises(GraphError, match="a bucket cannot hold exit"):
        resolve_bucket(read_actions("exit"))


def test_a_match_promises_less_behind_what_hides_it() -> None:
    tcp = parse_flow("tcp,actions=drop").match
    assert resolve(read_actions("push_vlan:0x8100,set_field:5->tcp_dst"), tcp.value, tcp.mask, 0)
    with pytest.raises(GraphError, match="needs a match on tcp"):
        resolve(read_actions("push_mpls:0x8847,set_field:5->tcp_dst"), tcp.value, tcp.mask, 0)
    inside = read_actions("clone(push_mpls:0x8847),set_field:5->tcp_dst")
    assert resolve(inside, tcp.value, tcp.mask, 0) == inside
