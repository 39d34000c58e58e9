"""Matches: what they say of a flow's bits, what they need, how they compare."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import GraphError
from wirespeed.switch.fields import FIELDS, IN_PORT, LOCAL
from wirespeed.switch.match import MATCH_NAMES, Match
from wirespeed.switch.text.flow import parse_flow
from wirespeed.switch.text.item import item, make, quick
from wirespeed.switch.text.value import show

SMALL = st.integers(0, 15)


def match(text: str) -> Match:
    return parse_flow(f"{text} actions=drop").match


def flow(**values: int) -> int:
    return sum(value << FIELDS[name].at for name, value in values.items())


def test_a_match_is_the_bits_of_its_fields() -> None:
    found = match("ip,nw_dst=10.0.0.0/24,in_port=2")
    assert found.value == flow(dl_type=0x0800, nw_dst=0x0A000000, in_port=2)
    assert found.mask == flow(dl_type=0xFFFF, nw_dst=0xFFFFFF00, in_port=0xFFFFFFFF)
    assert found.hits(flow(dl_type=0x0800, nw_dst=0x0A0000FE, in_port=2, nw_src=5))
    assert not found.hits(flow(dl_type=0x0800, nw_dst=0x0A0001FE, in_port=2))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("in_port=2,tcp,tcp_dst=80", {"in_port": 2, "tcp": True, "tcp_dst": 80}),
        ("ip,nw_src=10.0.0.0/24", {"ip": None, "nw_src": (0x0A000000, 0xFFFFFF00)}),
        ("eth_type=0x86dd,ipv6_dst=fe80::1", {"eth_type": 0x86DD, "ipv6_dst": "fe80::1"}),
        ("dl_src=02:00:00:00:00:01", {"eth_src": 0x020000000001}),
        ("dl_vlan=5,dl_vlan_pcp=1", {"vlan_vid": 0x1005, "vlan_pcp": 1}),
        ("reg0=5/0xff,metadata=7", {"reg0[0..7]": 5, "metadata": 7}),
        ("in_port=LOCAL", {"in_port": LOCAL}),
        ("in_port=LOCAL", {"in_port": "LOCAL"}),
        ("tcp,tcp_flags=+syn-ack", {"tcp": True, "tcp_flags": (2, 0x12)}),
        ("ip,ip_frag=later", {"ip": True, "ip_frag": "later"}),
    ],
)
def test_a_match_of_parts_is_that_of_their_text(text: str, parts: dict[str, object]) -> None:
    assert make(parts) == match(text)


@pytest.mark.parametrize(
    ("text", "value", "mask"),
    [
        ("vlan_tci=0", 0, 0x1FFF),
        ("dl_vlan=0xffff", 0, 0x1FFF),
        ("vlan_tci=0x0000/0x1fff", 0, 0x1FFF),
        ("vlan_vid=0", 0, 0x1FFF),
        ("dl_vlan=5", 0x1005, 0x1FFF),
        ("dl_vlan_pcp=3", 0x7000, 0xF000),
        ("vlan_tci=0x1000/0x1000", 0x1000, 0x1000),
        ("vlan_vid=0x1005/0x1007", 0x1005, 0x1007),
        ("dl_vlan=5,dl_vlan_pcp=3", 0x7005, 0xFFFF),
        ("dl_vlan=5,dl_vlan=6", 0x1006, 0x1FFF),
    ],
)
def test_tags_are_bits_of_their_control_information(text: str, value: int, mask: int) -> None:
    assert match(text).get("vlan_tci") == (value, mask)


@pytest.mark.parametrize(
    ("text", "value", "mask"),
    [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)],
)
def test_fragments_have_names(text: str, value: int, mask: int) -> None:
    assert match(f"ip,ip_frag={text}").get("ip_frag") == (value, mask)


@pytest.mark.parametrize(
    ("text", "value", "mask"),
    [("+syn-ack", 2, 0x12), ("syn|ack", 0x12, 0xFFF), ("0x2/0x3", 2, 3), ("0", 0, 0xFFF), ("+[800]", 0x800, 0x800)],
)
def test_tcp_flags_have_three_forms(text: str, value: int, mask: int) -> None:
    assert match(f"tcp,tcp_flags={text}").get("tcp_flags") == (value, mask)


def test_arbitrary_masks_of_addresses() -> None:
    assert match("ip,nw_src=10.1.2.3/255.0.255.0").get("nw_src") == (0x0A000200, 0xFF00FF00)
    assert match("ipv6,ipv6_src=1:2::5/ffff::f").get("ipv6_src") == ((1 << 112) | 5, (0xFFFF << 112) | 0xF)
    assert match("dl_dst=01:02:03:04:05:06/01:00:00:00:00:00").get("dl_dst") == (0x010000000000, 0x010000000000)


def test_names_that_stand_for_several_headers_follow_the_type() -> None:
    assert match("arp,nw_src=1.2.3.4,nw_proto=2") == match("arp,arp_spa=1.2.3.4,arp_op=2")
    assert match("udp,tp_dst=53") == match("udp,udp_dst=53")
    assert match("icmp6,icmp_type=135") == match("icmp6,icmpv6_type=135")


def test_the_order_of_fields_does_not_matter() -> None:
    assert match("tcp_dst=80,nw_proto=6,nw_src=1.2.3.4,ip") == match("tcp,nw_src=1.2.3.4,tcp_dst=80")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("nw_dst=1.2.3.4", "nw_dst needs a match on ip"),
        ("ipv6,nw_dst=1.2.3.4", "nw_dst needs a match on ip"),
        ("ip,tcp_dst=80", "tcp_dst needs a match on tcp or tcp6"),
        ("udp,tcp_dst=80", "tcp_dst needs a match on tcp or tcp6"),
        ("ip,nw_proto=1,tp_dst=80", "tp_dst needs a match on tcp"),
        ("arp,nw_tos=4", "nw_tos needs a match on ip or ipv6"),
        ("icmp6,nd_target=::1", "nd_target needs a match on icmp6,icmp_type=135 or icmp6,icmp_type=136"),
        ("icmp6,icmp_type=136,nd_sll=02:00:00:00:00:01", "nd_sll needs a match on icmp6,icmp_type=135"),
        ("ip,mpls_label=3", "mpls_label needs a match on mpls"),
        ("ip,arp_spa=1.2.3.4", "arp_spa needs a match on arp"),
        ("tcp_flags=+syn", "tcp_flags needs a match on tcp"),
        ("NXM_OF_IP_SRC[0..7]=4", "needs a match on ip"),
    ],
)
def test_a_field_whose_header_need_not_be_there_is_refused(text: str, needs: str) -> None:
    with pytest.raises(GraphError, match=needs):
        match(text)
    with pytest.raises(GraphError, match=needs):  # what was found wrong is not remembered as right
        match(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nw_scr=4", "no field 'nw_scr'; did you mean nw_src"),
        ("tpc", "no field 'tpc'; did you mean"),
        ("reg16=1", "no field 'reg16'; did you mean reg"),
        ("reg0", "reg0 needs a value: write reg0=VALUE"),
        ("tcp=5", "tcp has no value"),
        ("reg0=0x100000000", "reg0: .* is not a number from 0 to 0xffffffff"),
        ("dl_vlan=4096", "dl_vlan: 4096 is not a number from 0 to 0xfff"),
        ("reg0[0..3]=500", "500 is not a number from 0 to 0xf"),
        ("reg0[3..40]=5", "the bits of reg0 are 0 to 31"),
        ("in_port=70000", "a port's number is 0 to 65279 or a reserved one"),
        ("in_port=vm1", "no port 'vm1'"),
        ("in_port=1/1", "no port '1/1'"),
        ("ip,nw_src=1.2.3", "'1.2.3' is not an IPv4 address"),
        ("ip,nw_src=1.2.3.4/33", "'33' is not an IPv4 address"),
        ("ipv6,ipv6_src=g::", "'g::' is not an IPv6 address"),
        ("dl_src=1:2:3", "'1:2:3' is not an Ethernet address"),
        ("tcp,tcp_flags=+sin", "no TCP flag 'sin'"),
        ("ip,ip_frag=maybe", "'maybe' is not a kind of fragment"),
        ("ip,nw_ttl=5/7", "nw_ttl has no mask in a match"),
        ("ip,nw_tos=\u00b2", "is not a number"),
        ("ct_state=+trk", "no matches on ct_state yet"),
    ],
)
def test_what_cannot_be_read_says_what_was_got_and_what_was_wanted(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        match(text)


@given(st.data())
def test_the_short_way_reads_what_the_long_one_does(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MATCH_NAMES)))
    field = MATCH_NAMES[name]
    value = data.draw(st.integers(0, field.ones))
    mask = data.draw(st.sampled_from([field.ones, field.ones ^ field.ones >> data.draw(st.integers(0, field.bits))]))
    for given_ in (value, show(field, value & mask, mask), str(value), f"0{value}", "x", ""):
        short = quick(name, given_)
        if short is not None:
            assert short == item(name, given_)


@pytest.mark.parametrize("given", [2.5, "x", (1, 2, 3), -1, 1 << 32, (1 << 32, 1), [1]])
def test_parts_of_another_kind_are_refused(given: object) -> None:
    with pytest.raises(GraphError, match="reg0"):
        make({"reg0": given})


def test_ports_have_names_that_somebody_knows() -> None:
    known = {"vm1": 7, "a b": 8}
    assert parse_flow("in_port=vm1 actions=drop", "add", known.get).match == match("in_port=7")
    assert parse_flow('in_port="a b" actions=drop', "add", known.get).match == match("in_port=8")
    assert parse_flow("in_port=vm1 actions=drop", "add", {"vm1": 9}.get).match == match("in_port=9")
    assert match("in_port=in_port").get("in_port") == (IN_PORT, 0xFFFFFFFF)


def test_a_match_covers_those_that_say_more() -> None:
    wide, narrow, other = match("ip,nw_dst=10.0.0.0/8"), match("tcp,nw_dst=10.1.0.0/16"), match("ip,nw_dst=11.0.0.0/8")
    assert Match().covers(wide) and wide.covers(narrow) and wide.covers(wide)
    assert not narrow.covers(wide) and not wide.covers(other)
    assert wide.overlaps(narrow) and narrow.overlaps(wide) and not wide.overlaps(other)
    assert match("in_port=1").overlaps(match("ip")) and not match("in_port=1").covers(match("ip"))


@given(SMALL, SMALL, SMALL, SMALL)
def test_covering_and_overlapping_are_of_the_flows_that_hit(a: int, b: int, c: int, d: int) -> None:
    one, other = Match(a & b, b), Match(c & d, d)
    ones, others = ({flow for flow in range(16) if m.hits(flow)} for m in (one, other))
    assert one.covers(other) == (others <= ones)
    assert one.overlaps(other) == bool(ones & others)


def test_matches_are_keys_and_cannot_be_changed() -> None:
    one = match("tcp")
    assert {one: 1}[match("ip,nw_proto=6")] == 1
    with pytest.raises(AttributeError):
        one.mask = 0  # type: ignore[misc]
