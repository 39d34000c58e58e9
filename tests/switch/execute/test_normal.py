"""NORMAL: learning, VLANs, and what is not forwarded."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from tests.switch.execute.machine import Machine, head, out
from wirespeed.switch import ops as op
from wirespeed.switch.execute.run import Execution

A, B, C, ALL = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c", "ff:ff:ff:ff:ff:ff"
NUMBER = {A: 0x02000000000A, B: 0x02000000000B, C: 0x02000000000C}
INSIDE = IP(src="1.2.3.4", dst="5.6.7.8") / UDP() / Raw(b"data")


@pytest.fixture
def machine():
    with Machine(6) as made:
        made.drops()
        yield made


def frame(src, dst, vlan=None, prio=0, inside=INSIDE):
    tag = Dot1Q(vlan=vlan, prio=prio) / inside if vlan is not None else inside
    return bytes(Ether(src=src, dst=dst) / tag)


def normal(machine, data, place, *more, pieces=()):
    return machine.send(data, [head(op.NORMAL, 1, place)], *more, place=place, pieces=pieces)


def test_who_is_not_known_is_looked_for_everywhere_and_then_found_where_he_spoke(machine):
    there, back = frame(A, B), frame(B, A)
    assert normal(machine, there, 0) == {place: [there] for place in (1, 2, 3, 4, 5)}
    before = Execution.at(machine.execution).made
    assert normal(machine, back, 3) == {0: [back]}
    assert normal(machine, there, 0) == {3: [there]}
    assert Execution.at(machine.execution).made == before, "one that is known is sent itself"


def test_who_moves_is_found_at_his_new_place(machine):
    normal(machine, frame(A, ALL), 0)
    normal(machine, frame(A, ALL), 4)
    assert normal(machine, frame(B, A), 2) == {4: [frame(B, A)]}


def test_a_packet_for_a_station_behind_its_own_port_goes_nowhere(machine):
    normal(machine, frame(A, ALL), 0)
    assert normal(machine, frame(B, A), 0) == {} and machine.drops() == {"own_port": 1}


@pytest.mark.parametrize("dst", ["01:80:c2:00:00:00", "01:80:c2:00:00:0e", "01:00:0c:cc:cc:cd", "00:e0:2b:00:00:04"])
def test_addresses_that_bridges_keep_to_themselves_are_not_forwarded(machine, dst):
    assert normal(machine, frame(A, dst), 0) == {} and machine.drops() == {"reserved": 1}
    assert normal(machine, frame(B, A), 1).keys() == {0, 2, 3, 4, 5}, "nor is their sender learned"


def test_an_address_is_known_in_its_own_vlan(machine):
    normal(machine, frame(A, ALL, 5), 0)
    assert normal(machine, frame(B, A, 5), 1) == {0: [frame(B, A, 5)]}
    assert normal(machine, frame(B, A, 6), 1).keys() == {0, 2, 3, 4, 5}


def test_each_port_gets_the_tags_that_it_wants(machine):
    machine.add_port(1, vlan_mode="access", tag=5)
    machine.add_port(2, vlan_mode="access", tag=6)
    machine.add_port(3, vlan_mode="trunk", trunks=frozenset({5, 7}))
    machine.add_port(4, vlan_mode="native-untagged", tag=5)
    machine.add_port(5, vlan_mode="native-tagged", tag=5, trunks=frozenset({7}))
    plain, tagged = frame(A, ALL), frame(A, ALL, 5)
    assert normal(machine, tagged, 0) == {1: [plain], 3: [tagged], 4: [plain], 5: [tagged]}
    assert normal(machine, plain, 1) == {0: [tagged], 3: [tagged], 4: [plain], 5: [tagged]}
    assert normal(machine, plain, 4) == {0: [tagged], 1: [plain], 3: [tagged], 5: [tagged]}
    assert normal(machine, plain, 5) == {0: [tagged], 1: [plain], 3: [tagged], 4: [plain]}
    assert normal(machine, frame(B, ALL, 7), 5) == {place: [frame(B, ALL, 7)] for place in (0, 3, 4)}


def test_a_priority_goes_into_the_new_tag_and_a_second_tag_stays(machine):
    machine.add_port(1, vlan_mode="access", tag=5)
    machine.add_port(2, vlan_mode="native-untagged", tag=5)
    assert normal(machine, frame(A, ALL, 0, 3), 1)[0] == [frame(A, ALL, 5, 3)]
    two = bytes(Ether(src=A, dst=ALL) / Dot1AD(vlan=5) / Dot1Q(vlan=9) / INSIDE)
    assert normal(machine, two, 0) == {2: [frame(A, ALL, 9)], 3: [two], 4: [two], 5: [two]}


def test_what_a_port_does_not_carry_does_not_come_in(machine):
    machine.add_port(1, vlan_mode="access", tag=5)
    machine.add_port(2, vlan_mode="trunk", trunks=frozenset({7}))
    for data, place in ((frame(A, ALL, 5), 1), (frame(A, ALL), 2), (frame(A, ALL, 5), 2)):
        assert normal(machine, data, place) == {}
    assert machine.drops() == {"vlan": 3}
    assert normal(machine, frame(B, A), 0).keys() == {3, 4, 5}, "nobody was learned"


def test_ports_that_are_closed_get_nothing_and_floods_pass_by_who_wants_none(machine):
    machine.add_port(1, config={"no-flood"})
    machine.add_port(2, config={"down"})
    machine.add_port(3, config={"no-forward"})
    assert normal(machine, frame(A, ALL), 0).keys() == {4, 5}
    assert normal(machine, frame(B, ALL), 1).keys() == {0, 4, 5}
    assert normal(machine, frame(A, B), 0) == {1: [frame(A, B)]}
    normal(machine, frame(C, ALL), 3)
    assert normal(machine, frame(A, C), 0) == {} and machine.drops() == {"port_down": 1}


def test_without_another_port_a_flood_is_dropped():
    with Machine(1) as machine:
        assert normal(machine, frame(A, ALL), 0) == {} and machine.drops() == {"no_destination": 1}


def test_frames_without_a_whole_header_are_dropped(machine):
    for data in (frame(A, ALL)[:13], frame(A, ALL, 5)[:17], b"\0"):
        assert normal(machine, data, 0) == {}
    assert machine.drops() == {"malformed": 3}
    short = frame(A, ALL)[:14]
    assert normal(machine, short, 0)[1] == [short]


def test_a_packet_that_came_in_by_no_port_is_sent_and_not_learned(machine):
    assert normal(machine, frame(A, B), 255).keys() == {0, 1, 2, 3, 4, 5}
    assert normal(machine, frame(B, A), 0).keys() == {1, 2, 3, 4, 5}


def test_the_packet_is_still_there_for_what_follows(machine):
    assert normal(machine, frame(A, ALL), 0, out(1)) == {
        place: [frame(A, ALL)] * (2 if place == 1 else 1) for place in (1, 2, 3, 4, 5)
    }
    assert normal(machine, frame(B, A), 0, out(1)) == {1: [frame(B, A)]} and machine.drops() == {"own_port": 1}


def test_headers_in_pieces_are_joined_first(machine):
    machine.add_port(1, vlan_mode="access", tag=5)
    got = normal(machine, frame(A, ALL), 1, pieces=(9, 4))
    assert got == {place: [frame(A, ALL, 5)] for place in (0, 2, 3, 4, 5)}
    assert normal(machine, frame(B, A, 5), 3, pieces=(15, 1)) == {1: [frame(B, A)]}


def test_a_gratuitous_arp_is_learned_as_one(machine):
    data = bytes(Ether(src=A, dst=ALL) / ARP(op=1, psrc="1.1.1.1", pdst="1.1.1.1"))
    assert normal(machine, data, 2).keys() == {0, 1, 3, 4, 5}
    (row,) = machine.mac_table.rows(int(Execution.at(machine.execution).now_s))
    assert (row.port, row.vlan, row.mac) == (2, 0, NUMBER[A])
