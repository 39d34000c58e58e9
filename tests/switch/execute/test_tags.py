"""Tags and labels put on and taken off."""

import ctypes

import pytest
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from tests.switch.execute.machine import Machine, head, out
from wirespeed.core.packet import PARTIAL, Packet
from wirespeed.switch import ops as op

A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
ETHER = Ether(src=A, dst=B)
INSIDE = IP(src="1.2.3.4", dst="5.6.7.8") / UDP() / Raw(b"data")
POP = [head(op.POP_VLAN, 1)]


def push(tpid, tci):
    return [head(op.PUSH_VLAN, 2, tpid), tci]


def push_label(kind, label, bottom, ttl=9):
    return [head(op.PUSH_MPLS, 2, kind), label << 12 | bottom << 8 | ttl]


def pop_label(kind):
    return [head(op.POP_MPLS, 1, kind)]


@pytest.fixture(scope="module")
def machine():
    with Machine() as made:
        yield made


def test_a_tag_is_pushed_without_the_bit_that_says_that_it_is_there(machine):
    assert machine.edited(bytes(ETHER / INSIDE), push(0x8100, 0x7005)) == bytes(ETHER / Dot1Q(vlan=5, prio=3) / INSIDE)


def test_tags_stack_up_and_come_off_in_the_other_order(machine):
    one = ETHER / Dot1Q(vlan=5) / INSIDE
    two = Ether(src=A, dst=B) / Dot1AD(vlan=9, prio=1) / Dot1Q(vlan=5) / INSIDE
    assert machine.edited(bytes(one), push(0x88A8, 0x3009)) == bytes(two)
    assert machine.edited(bytes(two), POP) == bytes(one)
    assert machine.edited(bytes(two), POP, POP) == bytes(ETHER / INSIDE)
    assert machine.edited(bytes(two), POP, POP, POP) == bytes(ETHER / INSIDE), "no third one is there"


def test_a_label_stands_behind_the_tags(machine):
    tagged = ETHER / Dot1Q(vlan=5) / INSIDE
    labelled = ETHER / Dot1Q(vlan=5, type=0x8847) / MPLS(label=7, s=1, ttl=9) / INSIDE
    assert machine.edited(bytes(tagged), push_label(0x8847, 7, 1)) == bytes(labelled)
    assert machine.edited(bytes(labelled), pop_label(0x0800)) == bytes(tagged)


def test_labels_stack_up(machine):
    ether = Ether(src=A, dst=B, type=0x8848)
    want = ether / MPLS(label=8, s=0, ttl=3) / MPLS(label=7, s=1, ttl=9) / INSIDE
    got = machine.edited(
        bytes(ETHER / INSIDE), push_label(0x8848, 7, 1), push_label(0x8848, 8, 0, 4), [head(op.DEC_MPLS_TTL, 1)]
    )
    assert got == bytes(want)
    assert machine.edited(got, pop_label(0x8848), pop_label(0x0800)) == bytes(ETHER / INSIDE)
    assert machine.edited(bytes(ETHER / INSIDE), pop_label(0x0800), [head(op.DEC_MPLS_TTL, 1)]) == bytes(ETHER / INSIDE)


def test_a_packet_without_headroom_is_copied_into_one_that_has_it(machine):
    frame = bytes(ETHER / INSIDE)
    handle = machine.packet(frame)
    p = Packet.at(handle)
    p.data = 0
    ctypes.memmove(int(p.buffer), frame, len(frame))
    found = machine.execute(handle, push(0x8100, 0x1005), push_label(0x8847, 7, 1), out(1))[1]
    assert found == [bytes(ETHER / Dot1Q(vlan=5, type=0x8847) / MPLS(label=7, s=1, ttl=9) / INSIDE)]


def test_what_is_noted_of_a_checksum_that_is_yet_to_be_made_counts_from_the_end(machine):
    frame = bytes(ETHER / INSIDE)
    handle = machine.packet(frame)
    p = Packet.at(handle)
    p.flags, p.csum_tail, p.csum_offset = p.flags | PARTIAL, len(frame) - 34, 6
    (left,) = machine.execute_and_keep(handle, push(0x8100, 0x1005), push_label(0x8847, 7, 1), POP, out(1))
    assert (left.csum_tail, left.csum_offset, left.total) == (len(frame) - 34, 6, len(frame) + 4)


@pytest.mark.parametrize("size", range(1, 26))
def test_frames_too_short_for_it_stay_as_they_are(machine, size):
    frame = bytes(ETHER / Dot1Q(vlan=5, type=0x8847) / MPLS(label=7, s=1) / INSIDE)[:size]
    ops = (push(0x8100, 0x1006), push_label(0x8847, 7, 1), pop_label(0x0800), POP, POP, pop_label(0x0800), POP)
    got = machine.edited(frame, *ops)
    assert len(got) <= size and got[: min(size, 12)] == frame[:12]
    if size < 14:
        assert got == frame


@pytest.mark.parametrize("pieces", [(3,), (14, 2), (15, 1, 1)])
def test_headers_in_pieces_are_joined_first(machine, pieces):
    want = bytes(ETHER / Dot1Q(vlan=5) / INSIDE)
    assert machine.edited(bytes(ETHER / INSIDE), push(0x8100, 0x1005), pieces=pieces) == want
