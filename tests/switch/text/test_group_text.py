"""Groups and meters as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ovs import OpenVSwitch, needs_ovs
from wirespeed.errors import GraphError
from wirespeed.switch import action as ws
from wirespeed.switch.groups import Bucket, Group
from wirespeed.switch.text.group import group_text, parse_group, parse_groups
from wirespeed.switch.text.meter import Meter, meter_text, parse_meter
from wirespeed.tables.meter import Band

GROUPS = (
    "group_id=1,type=select,bucket=weight:5,actions=output:1,bucket=weight:3,watch_port:2,actions=mod_vlan_vid:5,output:2",
    "group_id=2,type=all,bucket=output:1,bucket=bucket_id:7,actions=set_field:1.2.3.4->ip_src,output:2",
    "group_id=3,type=ff,bucket=watch_port:1,actions=1,bucket=watch_group:2,actions=2",
    "group_id=4,type=indirect,bucket=actions=resubmit(,2)",
    "group_id=7,type=all",
    "group_id=8,type=all,bucket=drop",
    "group_id=9,type=all,bucket=output:1,dec_ttl,bucket=actions=output:2,set_field:5->reg0,pop_vlan,output:3",
    "group_id=0x10 type=select bucket=weight=0,output:1 bucket=output:2",
    "group_id=11,type=fast_failover,bucket=bucket_id:5,watch_port:none,watch_group:2,actions=1,bucket=watch_port:3,2",
    "group_id=12,type=all,bucket=actions=2,bucket=bucket_id:0,actions=2",
)
DUMPED = (
    "group_id=1,type=select,bucket=bucket_id:0,weight:5,actions=output:1,bucket=bucket_id:1,weight:3,watch_port:2,"
    "actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:2",
    "group_id=2,type=all,bucket=bucket_id:0,actions=output:1,bucket=bucket_id:7,actions=set_field:1.2.3.4->ip_src,output:2",
    "group_id=3,type=ff,bucket=bucket_id:0,watch_port:1,actions=output:1,bucket=bucket_id:1,watch_group:2,actions=output:2",
    "group_id=4,type=indirect,bucket=bucket_id:0,actions=resubmit(,2)",
    "group_id=7,type=all",
    "group_id=8,type=all,bucket=bucket_id:0,actions=drop",
    "group_id=9,type=all,bucket=bucket_id:0,actions=output:1,dec_ttl,bucket=bucket_id:1,"
    "actions=output:2,set_field:0x5->reg0,pop_vlan,output:3",
    "group_id=16,type=select,bucket=bucket_id:0,weight:0,actions=output:1,bucket=bucket_id:1,actions=output:2",
    "group_id=11,type=ff,bucket=bucket_id:5,watch_group:2,actions=output:1,bucket=bucket_id:0,watch_port:3,actions=output:2",
    "group_id=12,type=all,bucket=bucket_id:1,actions=output:2,bucket=bucket_id:0,actions=output:2",
)


@pytest.mark.parametrize(("text", "dumped"), list(zip(GROUPS, DUMPED, strict=True)))
def test_a_group_is_printed_as_it_was_read(text: str, dumped: str) -> None:
    group = parse_group(text)
    assert group_text(group) == dumped
    assert parse_group(dumped) == group


@needs_ovs
def test_groups_are_printed_as_a_switch_dumps_them() -> None:
    with OpenVSwitch(ports=1) as switch:
        switch.groups("\n".join(GROUPS))
        dumped = [line.strip() for line in switch.ofctl("dump-groups").splitlines() if "group_id=" in line]
    assert sorted(dumped) == sorted(DUMPED)


def test_a_group_of_parts_is_printed_with_numbered_buckets() -> None:
    group = Group(5, "select", (Bucket((ws.output(1),), 2), Bucket((), 1, watch_port=4)))
    text = "group_id=5,type=select,bucket=bucket_id:0,weight:2,actions=output:1,bucket=bucket_id:1,watch_port:4,actions=drop"
    assert group_text(group) == text


def test_ports_of_groups_may_have_names() -> None:
    found = parse_group("group_id=1,type=ff,bucket=watch_port:vm1,output:vm1", {"vm1": 6}.get)
    assert found.buckets == (Bucket((ws.output(6),), 1, 6, None, 0),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group_id=1", "a group needs type"),
        ("type=all", "a group needs group_id"),
        ("group_id=1,type=al", "no type of group 'al'; did you mean all"),
        ("group_id=1,type=all,bukcet=1", "no part of a group 'bukcet'; did you mean bucket"),
        ("group_id=x,type=all", "group_id: 'x' is not a number"),
        ("group_id=4294967295,type=all", "group_id: 4294967295 is not a number from 0 to"),
        ("group_id=1,type=all,bucket=weight:5,actions=1", "only buckets of select groups have a weight"),
        ("group_id=1,type=select,bucket=weight:65536,actions=1", "bucket: 65536 is not a number"),
        ("group_id=1,type=ff,bucket=1", "bucket 0 of a fast failover group watches nothing"),
        ("group_id=1,type=ff,bucket=watch_port:LOCAL,1", "a bucket watches a port by its number, got LOCAL"),
        ("group_id=1,type=indirect,bucket=1,bucket=2", "an indirect group has one bucket, got 2"),
        ("group_id=1,type=all,bucket=", "a bucket needs actions"),
        ("group_id=1,type=all,bucket=bucket_id:5,actions=1,bucket=bucket_id:5,actions=1", "the same bucket_id"),
        ("group_id=1,type=all,bucket=goto_table:1", "a bucket cannot hold goto_table:1"),
        ("group_id=1,type=all,bucket=ouptut:1", "no action 'ouptut'; did you mean output"),
        ("group_id=1,type=select,selection_method=hash,fields(ip_src),bucket=1", "a hash of chosen fields comes later"),
    ],
)
def test_a_text_that_is_no_group_says_why(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_group(text)


def test_a_file_has_a_group_a_line() -> None:
    text = "# two\ngroup_id=1,type=all\n\ngroup_id=2,type=all # the second\n"
    assert [group.id for group in parse_groups(text)] == [1, 2]
    with pytest.raises(GraphError, match=r"groups\.txt, line 2: a group needs type"):
        list(parse_groups("group_id=1,type=all\ngroup_id=2\n", "groups.txt"))


METERS = (
    "meter=1 kbps burst stats bands=type=drop rate=1000 burst_size=100",
    "meter=2 pktps bands=type=drop rate=5",
    "meter=3,kbps,bands=type=drop,rate=3",
    "meter=4 kbps stats band=type=drop rate=100,type=drop rate=200",
    "meter=5 burst pktps band=type=drop rate=5 burst_size=9,type=drop,rate=10,burst_size=3",
)
READ = (
    Meter(1, (Band(1000, 100),), stats=True),
    Meter(2, (Band(5),), packets=True),
    Meter(3, (Band(3),)),
    Meter(4, (Band(100), Band(200)), stats=True),
    Meter(5, (Band(5, 9), Band(10, 3)), packets=True),
)


@pytest.mark.parametrize(("text", "meter"), list(zip(METERS, READ, strict=True)))
def test_a_meter_is_read_and_its_print_too(text: str, meter: Meter) -> None:
    assert parse_meter(text) == meter
    assert parse_meter(meter_text(meter)) == meter


@needs_ovs
def test_meters_are_printed_as_a_switch_dumps_them() -> None:
    with OpenVSwitch(ports=1) as switch:
        switch.meters("\n".join(METERS))
        dumped = switch.ofctl("dump-meters").partition("\n")[2]
    assert sorted(one.strip() for one in dumped.split("\n\n")) == sorted(map(meter_text, READ))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kbps bands=type=drop rate=1", "a meter needs a number"),
        ("meter=0 kbps bands=type=drop rate=1", "a meter needs a number"),
        ("meter=1 bands=type=drop rate=1", "write either kbps or pktps"),
        ("meter=1 kbps pktps bands=type=drop rate=1", "write either kbps or pktps"),
        ("meter=1 kbps", "write its bands once"),
        ("meter=1 kbps bands=", "a meter has 1 to 8 bands, got 0"),
        ("meter=1 kbps bands=type=drop", "a band needs a rate"),
        ("meter=1 kbps bands=rate=5", "a band begins with type=drop, got rate=5"),
        ("meter=1 kbps bands=type=dscp_remark rate=5", "write type=drop, got type=dscp_remark"),
        ("meter=1 kbps burst bands=type=drop rate=1", "burst and the bands' burst_size go together"),
        ("meter=1 kbps bands=type=drop rate=1 burst_size=5", "burst and the bands' burst_size go together"),
        ("meter=1 kpbs bands=type=drop rate=1", "no part of a meter 'kpbs'; did you mean kbps"),
        ("meter=1 kbps bands=type=drop rate=x", "rate: 'x' is not a number"),
    ],
)
def test_a_text_that_is_no_meter_says_why(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_meter(text)


@given(st.text("group_id=1,type=all bucket:()drpkbsmet\"' 12", max_size=60))
def test_any_text_is_a_group_or_a_meter_or_an_error(text: str) -> None:
    for head in ("", "group_id=1,type=all,bucket=", "meter=1,kbps,bands="):
        for parse in (parse_group, parse_meter):
            try:
                parse(head + text)
            except GraphError:
                continue
