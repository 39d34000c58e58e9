"""Lists of ops: who gets a copy, who the packet itself, and where everything is counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from tests.switch.execute.machine import Machine, clone, edit, head, out, set_field
from wirespeed.core.packet import Packet
from wirespeed.core.pool import drain
from wirespeed.switch import ops as op
from wirespeed.switch.execute.events import CAPACITY, RECORD, Event
from wirespeed.switch.execute.run import Execution
from wirespeed.switch.ops import ACTION
from wirespeed.switch.ports import Mirror

FRAME = bytes(
    Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    / IP(src="1.2.3.4", dst="5.6.7.8")
    / UDP()
    / Raw(b"data" * 20)
)
POP, DEC_TTL = [head(op.POP_VLAN, 1)], [head(op.DEC_TTL, 1)]


def to(value):
    """The frame with another destination."""
    return value.to_bytes(6) + FRAME[6:]


def meter(place):
    return [head(op.METER, 1, place)]


def tell(most, reason=ACTION, table=3, extra=77, cookie=0xC00C1E, metadata=5):
    return [head(op.CONTROLLER, 4, most), reason | table << 8 | extra << 32, cookie, metadata]


def drop(reason):
    return [head(op.DROP, 1, reason)]


@pytest.fixture(scope="module")
def machine():
    with Machine() as made:
        made.drops()
        yield made


def made(machine):
    return int(Execution.at(machine.execution).made)


def test_each_output_has_the_packet_as_it_was_then(machine):
    got = machine.send(FRAME, out(0), set_field("dl_dst", 1), out(1), set_field("dl_dst", 2), out(2))
    assert got == {0: [FRAME], 1: [to(1)], 2: [to(2)]}


def test_the_last_output_moves_the_packet_and_no_copy_is_made(machine):
    before = made(machine)
    assert machine.send(FRAME, out(1)) == {1: [FRAME]} and made(machine) == before
    assert machine.send(FRAME, clone(out(1))) == {1: [FRAME]} and made(machine) == before
    assert machine.send(FRAME, out(0), clone(clone(out(1)))) == {0: [FRAME], 1: [FRAME]} and made(machine) == before + 1


def test_what_is_done_to_a_copy_is_not_done_to_the_packet(machine):
    got = machine.send(
        FRAME, clone(set_field("dl_dst", 1), out(0), clone(set_field("dl_dst", 2), out(1)), out(2)), out(3)
    )
    assert got == {0: [to(1)], 1: [to(2)], 2: [to(1)], 3: [FRAME]}


def test_copies_that_nobody_gets_are_taken_back(machine):
    before = made(machine)
    assert machine.send(FRAME, clone(set_field("dl_dst", 1)), out(1)) == {1: [FRAME]}
    assert made(machine) == before and not machine.drops()


def test_an_output_of_some_bytes_cuts_that_copy_alone(machine):
    assert machine.send(FRAME, out(0, 20), out(1, 1000), out(2, 14)) == {0: [FRAME[:20]], 1: [FRAME], 2: [FRAME[:14]]}
    assert machine.send(FRAME, out(0, 30), pieces=(10, 10)) == {0: [FRAME[:30]]}


def test_a_port_without_output_counts_and_others_get_theirs(machine):
    machine.add_port(3, output=-1)
    assert machine.send(FRAME, out(3), out(1)) == {1: [FRAME]}
    assert machine.send(FRAME, out(3)) == {}
    assert machine.drops() == {"no_transmit": 2}
    machine.add_port(3)


def test_a_packet_that_is_dropped_says_why(machine):
    assert (
        machine.send(FRAME, drop(0)) == {} and machine.send(FRAME, drop(7)) == {} and machine.send(FRAME, drop(1)) == {}
    )
    assert machine.drops() == {"no_action": 1, "bad_stack": 1, "no_rule": 1}


def test_a_meter_ends_the_list_that_it_is_in(machine):
    machine.meter(1, 2)
    for _ in range(2):
        assert machine.send(FRAME, clone(meter(1), set_field("dl_dst", 1), out(0)), out(1)) == {0: [to(1)], 1: [FRAME]}
    assert machine.send(FRAME, clone(meter(1), set_field("dl_dst", 1), out(0)), out(1)) == {1: [FRAME]}
    assert machine.send(FRAME, out(2), meter(1), out(1)) == {2: [FRAME]}
    assert machine.send(FRAME, meter(1), out(1)) == {}
    assert machine.drops() == {"meter": 3}


def test_the_controller_is_told_the_first_bytes_of_the_packet_as_it_is_then(machine):
    assert machine.send(FRAME, set_field("dl_dst", 9), tell(20), out(1), place=2) == {1: [to(9)]}
    assert machine.send(FRAME, tell(0xFFFF), pieces=(30,)) == {}
    assert machine.drops() == {"controller_only": 1}
    assert machine.events.drain() == [
        Event(ACTION, 3, 77, 0xC00C1E, 5, 3, len(FRAME), to(9)[:20]),
        Event(ACTION, 3, 77, 0xC00C1E, 5, 1, len(FRAME), FRAME),
    ]
    assert machine.events.drain() == []


def test_a_ring_of_events_that_is_full_counts_and_goes_on_where_it_was_drained(machine):
    size = (RECORD + len(FRAME) + 7) & ~7
    for turn in range(3):
        room = CAPACITY // size + 40
        for number in range(room):
            assert machine.send(FRAME, tell(0xFFFF, extra=number), out(1)) == {1: [FRAME]}
        lost = machine.drops().get("controller_full", 0)
        events = machine.events.drain()
        assert lost > 0 and len(events) == room - lost, turn
        assert [event.extra for event in events] == list(range(len(events))) and all(
            event.data == FRAME for event in events
        )


def test_a_pool_that_is_empty_costs_copies_and_nothing_else():
    with Machine(packets=1) as machine:
        assert machine.send(FRAME, out(0), clone(set_field("dl_dst", 1), out(2)), out(1)) == {1: [FRAME]}
        assert machine.drops() == {"no_packet": 2}
        handle = machine.packet(FRAME)
        Packet.at(handle).refcnt = 2
        assert machine.execute(handle, set_field("dl_dst", 1), out(1)) == {}
        assert machine.drops() == {"no_packet": 1}
        machine.give_back(handle)
        drain(machine.cache)


def test_a_full_outbox_drops_and_the_books_balance(machine):
    got = machine.send(FRAME, *[out(1) for _ in range(1030)])
    assert got == {1: [FRAME] * 1024} or len(got[1]) < 1030
    assert sum(machine.drops().values()) == 1030 - len(got[1])


HEADS = [
    bytes(Ether() / IP() / TCP() / Raw(b"x" * 30)),
    bytes(Ether() / Dot1Q() / Dot1Q() / IP() / UDP() / Raw(b"x" * 30)),
    bytes.fromhex("0180c2000001 020000000001 86dd 60000000 0014 06 40") + bytes(32) + bytes(20),
    bytes.fromhex("ffffffffffff 020000000001 0806 0001080006040001") + bytes(20),
    bytes.fromhex("ffffffffffff 020000000001 8847 00001040 00002140 45000014") + bytes(20),
]
words = st.integers(0, (1 << 64) - 1)
simple = st.one_of(
    st.builds(out, st.integers(0, 4), st.sampled_from([0, 14, 60, 5000])),
    st.builds(edit, st.integers(1, 15), words, words),
    st.builds(lambda tpid, tci: [head(op.PUSH_VLAN, 2, tpid), tci], st.sampled_from([0x8100, 0x88A8]), words),
    st.builds(lambda kind, lse: [head(op.PUSH_MPLS, 2, kind), lse], st.sampled_from([0x8847, 0x8848]), words),
    st.builds(lambda kind: [head(op.POP_MPLS, 1, kind)], st.integers(0, 0xFFFF)),
    st.sampled_from([POP, DEC_TTL, [head(op.DEC_MPLS_TTL, 1)], meter(0), tell(40)]),
    st.builds(lambda place: [head(op.NORMAL, 1, place)], st.sampled_from([0, 1, 2, 255])),
    st.builds(drop, st.integers(0, 7)),
)
lists = st.recursive(
    st.lists(simple, max_size=6), lambda inner: st.builds(lambda a, b: [*a, clone(*b)], inner, inner), max_leaves=6
)
frames = st.one_of(
    st.binary(min_size=1, max_size=100),
    st.builds(
        lambda base, at, junk, cut: (base[: at % len(base)] + junk + base[at % len(base) + len(junk) :])[: 1 + cut % 200],
        st.sampled_from(HEADS), st.integers(0, 200), st.binary(max_size=4), st.integers(13, 199),
    ),
)  # fmt: skip


@settings(max_examples=300)
@given(frame=frames, pieces=st.lists(st.integers(0, 40), max_size=3), ops=lists, place=st.integers(0, 4))
def test_whatever_the_bytes_and_the_ops_are_nothing_is_lost(frame, pieces, ops, place):
    machine = fuzzed()
    cuts, left = [], len(frame)
    for size in pieces:
        if size < left:
            cuts.append(size)
            left -= size
    before = machine.pool_size()
    machine.send(frame, *ops, pieces=cuts, place=place)
    machine.drops()
    machine.events.drain()
    assert machine.pool_size() == before
    assert machine.entered + made(machine) == machine.left


_kept = []


def fuzzed():
    """One machine for all examples: ports of all kinds, and mirrors."""
    if not _kept:
        machine = Machine(packets=200)
        machine.add_port(1, tag=5, vlan_mode="access")
        machine.add_port(2, tag=5, vlan_mode="native-untagged")
        machine.mirror(
            Mirror("a", sources=frozenset({1}), output_port=4), Mirror("b", select_all=True, output_vlan=7, snap=40)
        )
        _kept.append(machine)
    return _kept[0]


def test_the_pool_is_whole_when_all_that_is_over():
    for machine in _kept:
        with machine:
            pass
    _kept.clear()
