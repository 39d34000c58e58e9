"""Mirrors: what is copied where, with which headers, and how often."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.switch.execute.machine import Machine, clone, head, out, set_field
from wirespeed.switch import ops as op
from wirespeed.switch.ports import Mirror

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
INSIDE = IP(src="1.2.3.4", dst="5.6.7.8") / UDP() / Raw(b"data")
PLAIN = bytes(Ether(src=A, dst=B) / INSIDE)
DROP = [head(op.DROP, 1, 0)]


def tagged(vlan, data=PLAIN):
    return data[:12] + b"\x81\x00" + vlan.to_bytes(2) + data[12:]


def to(value):
    return value.to_bytes(6) + PLAIN[6:]


def ports(*numbers):
    return frozenset(numbers)


@pytest.fixture
def machine():
    with Machine(6) as made:
        made.drops()
        yield made


def test_what_comes_in_is_copied_as_it_came_even_when_it_is_dropped(machine):
    machine.mirror(Mirror("m", sources=ports(1), output_port=6))
    assert machine.send(PLAIN, set_field("dl_dst", 1), out(1)) == {1: [to(1)], 5: [PLAIN]}
    assert machine.send(PLAIN, DROP) == {5: [PLAIN]}
    assert machine.send(PLAIN, out(1), place=2) == {1: [PLAIN]}


def test_a_packet_whose_rules_failed_is_not_mirrored(machine):
    machine.mirror(Mirror("m", sources=ports(1), output_port=6))
    assert machine.send(PLAIN, [head(op.DROP, 1, 2)]) == {}
    assert machine.drops() == {"too_deep": 1}


def test_what_goes_out_is_copied_as_it_goes_once(machine):
    machine.mirror(Mirror("m", destinations=ports(2, 3), output_port=6))
    got = machine.send(PLAIN, set_field("dl_dst", 1), out(1), set_field("dl_dst", 2), out(2), out(3))
    assert got == {1: [to(1)], 2: [to(2)], 3: [to(2)], 5: [to(1)]}


def test_two_mirrors_of_one_destination_copy_once_and_of_two_twice(machine):
    machine.mirror(Mirror("m", sources=ports(1), output_port=6), Mirror("n", destinations=ports(2), output_port=6))
    assert machine.send(PLAIN, out(1)) == {1: [PLAIN], 5: [PLAIN]}
    machine.mirror(Mirror("m", sources=ports(1), output_port=6), Mirror("n", destinations=ports(2), output_port=5))
    assert machine.send(PLAIN, set_field("dl_dst", 1), out(1)) == {1: [to(1)], 5: [PLAIN], 4: [to(1)]}


def test_a_mirror_of_vlans_looks_at_the_vlan_that_the_port_says(machine):
    machine.add_port(1, vlan_mode="access", tag=10)
    machine.mirror(Mirror("m", sources=ports(1, 2), vlans=ports(10), output_port=6))
    assert machine.send(PLAIN, out(2), place=1) == {2: [PLAIN], 5: [tagged(10)]}
    assert machine.send(tagged(10), out(2)) == {2: [tagged(10)], 5: [tagged(10)]}
    assert machine.send(tagged(11), out(2)) == {2: [tagged(11)]}
    assert machine.send(tagged(10), out(2), place=1) == {2: [tagged(10)]}, "what an access port does not carry"


def test_a_copy_is_cut_and_the_packet_is_not(machine):
    machine.mirror(Mirror("m", select_all=True, output_port=6, snap=20))
    assert machine.send(PLAIN, out(1)) == {1: [PLAIN], 5: [PLAIN[:20]]}


def test_a_mirror_into_a_vlan_floods_it(machine):
    machine.add_port(2, vlan_mode="access", tag=12)
    machine.add_port(3, vlan_mode="trunk", trunks=ports(13))
    machine.mirror(Mirror("m", sources=ports(1), output_vlan=12))
    assert machine.send(PLAIN, out(4)) == {
        0: [tagged(12)],
        1: [tagged(12)],
        2: [PLAIN],
        4: [tagged(12), PLAIN],
        5: [tagged(12)],
    }
    assert machine.send(tagged(12), out(4)) == {4: [tagged(12)]}, "it is in that VLAN already"


def test_what_a_mirror_sends_may_be_what_another_one_selects(machine):
    for place in (0, 3, 4, 5):
        machine.add_port(place, vlan_mode="access", tag=99)
    machine.add_port(1, vlan_mode="access", tag=12)
    machine.add_port(2, vlan_mode="access", tag=13)
    machine.mirror(Mirror("m", sources=ports(1), output_vlan=12), Mirror("n", destinations=ports(2), output_vlan=13))
    assert machine.send(PLAIN, DROP) == {1: [PLAIN], 2: [PLAIN]}


def test_copies_are_mirrored_with_their_packet_as_one(machine):
    machine.mirror(Mirror("m", destinations=ports(2, 3), output_port=6))
    assert machine.send(PLAIN, clone(set_field("dl_dst", 1), out(1)), out(2)) == {1: [to(1)], 2: [PLAIN], 5: [to(1)]}


def test_normal_does_not_use_a_mirrors_own_port(machine):
    machine.mirror(Mirror("m", sources=ports(1), output_port=6))
    normal = [head(op.NORMAL, 1, 0)]
    assert machine.send(PLAIN, normal) == {place: [PLAIN] for place in (1, 2, 3, 4, 5)}
    assert machine.send(PLAIN, [head(op.NORMAL, 1, 5)], place=5) == {}
    assert machine.drops() == {"mirror_port": 1}


def test_a_packet_goes_out_when_there_is_none_for_its_mirrors():
    with Machine(3, packets=1) as machine:
        machine.mirror(Mirror("m", select_all=True, output_port=3))
        assert machine.send(PLAIN, out(1)) == {1: [PLAIN]}
        assert machine.drops() == {"no_packet": 2}
