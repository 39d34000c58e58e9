"""The MAC table against dictionaries and lists, and by itself: who is known, for how long, and who makes room."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.mac_audit import audit
from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel
from wirespeed.tables.learning import (
    GRATUITOUS,
    LEARNED,
    MOST,
    MOVED,
    ORDINARY,
    REFLECTED,
    UNCHANGED,
    MacTable,
    Row,
    key_of,
    learn,
)

u64 = np.uint64
A, B, C = 0x0200_0000_000A, 0x0200_0000_000B, 0x0200_0000_000C
AGE = 10


@pytest.fixture
def table():
    table = MacTable(8)
    yield table
    audit(table)
    table.close()


def counters(table):
    r = table.record
    return {name: int(getattr(r, name)) for name in ("learned", "moved", "expired", "evicted", "refused")}


def test_an_address_is_known_in_its_vlan_only(table):
    assert table.learn(A, 5, 7, 100) == LEARNED
    assert table.find(A, 5, 100) == 7
    assert table.find(A, 6, 100) == -1
    assert table.find(B, 5, 100) == -1
    assert table.learn(A, 4095, 65535, 100) == LEARNED
    assert table.find(A, 4095, 100) == 65535
    assert table.find(A, 5, 100) == 7
    assert table.rows(103) == [Row(7, 5, A, 3, False), Row(65535, 4095, A, 3, False)]


def test_an_address_seen_elsewhere_has_moved(table):
    table.learn(A, 0, 1, 100)
    assert table.learn(A, 0, 2, 100) == MOVED
    assert table.find(A, 0, 100) == 2
    assert table.learn(A, 0, 2, 101) == UNCHANGED
    assert counters(table) == {"learned": 1, "moved": 1, "expired": 0, "evicted": 0, "refused": 0}


def test_an_address_is_unknown_from_the_second_in_which_it_is_too_old(table):
    table.learn(A, 0, 1, 100)
    assert (table.find(A, 0, 399), table.find(A, 0, 400)) == (1, -1)
    assert len(table.rows(399)), not table.rows(400)
    assert table.age(399) == 0
    assert table.age(400) == 1
    assert (len(table), table.find(A, 0, 399)) == (0, -1)


def test_each_packet_keeps_an_address_known(table):
    table.learn(A, 0, 1, 100)
    table.learn(B, 0, 1, 100)
    assert table.learn(A, 0, 1, 399) == UNCHANGED
    assert table.age(400) == 1
    assert table.find(A, 0, 698) == 1
    assert table.find(B, 0, 399) == -1


def test_what_was_forgotten_but_not_yet_taken_out_is_learned_anew(table):
    table.learn(A, 0, 1, 100)
    assert table.learn(A, 0, 1, 400) == LEARNED
    assert counters(table) == {"learned": 2, "moved": 0, "expired": 1, "evicted": 0, "refused": 0}


def test_a_clock_slightly_behind_changes_nothing(table):
    table.learn(A, 0, 1, 100)
    assert table.learn(A, 0, 1, 99) == UNCHANGED
    assert table.find(A, 0, 98) == 1
    assert table.find(A, 0, 399) == 1
    assert table.learn(A, 0, 2, 99) == MOVED
    assert table.find(A, 0, 399) == 2  # and was seen at 100 all the same


def test_the_time_after_which_addresses_are_forgotten_can_be_changed(table):
    table.learn(A, 0, 1, 100)
    table.age_s = 5
    assert (table.find(A, 0, 104), table.find(A, 0, 105)) == (1, -1)
    assert table.age(105) == 1


@pytest.mark.parametrize("source", [0, 0xFFFF_FFFF_FFFF, 0x0100_5E00_0001, 0x3333_0000_0001])
def test_sources_that_are_no_stations_are_never_learned(table, source):
    assert table.learn(source, 0, 1, 100) == UNCHANGED
    assert table.find(source, 0, 100) == -1
    assert not table.rows(100)


def test_a_static_address_neither_ages_nor_moves_nor_makes_room(table):
    table.learn(B, 0, 3, 100)
    table.add_static(A, 0, 1)
    table.add_static(B, 0, 2)  # what was learned becomes static
    assert table.learn(A, 0, 2, 100) == UNCHANGED
    assert table.learn(A, 0, 2, 100, GRATUITOUS) == UNCHANGED
    for mac in range(100, 150):
        table.learn(mac, 0, 1, 100)
    assert table.age(1 << 31) == 6
    assert table.find(A, 0, 1 << 31) == 1
    assert table.rows(1 << 31) == [Row(1, 0, A, 0, True), Row(2, 0, B, 0, True)]
    assert (table.flush(), len(table)) == (0, 2)
    table.add_static(A, 0, 9)
    assert (table.find(A, 0, 5), table.record.static) == (9, 2)
    assert (table.remove(A, 0), table.remove(A, 0), table.find(A, 0, 5)) == (True, False, -1)
    assert (table.flush(static=True), len(table)) == (1, 0)


def test_a_table_full_of_static_addresses_learns_nothing_and_says_so(table):
    for mac in range(100, 108):
        table.add_static(mac, 0, 1)
    assert table.learn(A, 0, 1, 0) == UNCHANGED
    assert table.record.refused == 1
    with pytest.raises(GraphError, match="all 8 entries are static"):
        table.add_static(A, 0, 1)
    assert table.find(107, 0, 0) == 1


def test_only_static_addresses_are_removed_when_only_they_are_meant(table):
    table.learn(A, 0, 1, 0)
    assert not table.remove(A, 0, learned=False)
    assert table.remove(A, 0)
    table.add_static(A, 0, 1)
    assert table.remove(A, 0, learned=False)


def test_a_gratuitous_arp_holds_its_address_against_reflections_for_five_seconds(table):
    assert table.learn(A, 0, 1, 100, GRATUITOUS) == LEARNED
    assert table.learn(A, 0, 2, 104, REFLECTED) == UNCHANGED
    assert table.find(A, 0, 104) == 1
    assert table.find(A, 0, 403) == 1  # though the reflection was a packet of it
    assert table.learn(A, 0, 2, 105, REFLECTED) == MOVED
    assert table.learn(A, 0, 1, 106, GRATUITOUS) == MOVED
    assert table.learn(A, 0, 2, 107, REFLECTED) == UNCHANGED
    assert table.learn(A, 0, 2, 107, ORDINARY) == MOVED
    assert table.learn(B, 0, 2, 107, REFLECTED) == LEARNED


def test_a_port_or_a_vlan_can_be_forgotten():
    table = MacTable(64)
    every = {(mac, vlan): mac % 3 for mac in range(2, 12) for vlan in (0, 5, 4095)}

    def known():
        return {(row.mac, row.vlan): row.port for row in table.rows(0)}

    for (mac, vlan), port in every.items():
        table.learn(mac, vlan, port, 0)
    assert known() == every
    assert table.flush(port=1, vlan=5) == 3
    left = {key: port for key, port in every.items() if (port, key[1]) != (1, 5)}
    assert known() == left
    assert table.flush(vlan=0) == 10
    left = {key: port for key, port in left.items() if key[1] != 0}
    assert known() == left
    table.add_static(A, 7, 2)
    assert table.flush(port=2) == 8
    assert known() == {key: port for key, port in left.items() if port != 2} | {(A, 7): 2}
    assert table.flush(port=2, static=True) == 1
    audit(table)
    table.flush()
    assert (len(table), audit(table)) == (0, {})
    table.close()


def test_the_oldest_of_the_port_with_most_makes_room(table):
    for mac in (20, 21, 22, 23, 24):
        table.learn(mac, 0, 1, 100)
    for mac in (30, 31, 32):
        table.learn(mac, 0, 2, 100)
    table.learn(20, 0, 1, 101)  # so that 21 is the oldest
    table.learn(33, 0, 2, 101)
    assert table.find(21, 0, 101) == -1
    assert all(table.find(mac, 0, 101) == 1 for mac in (20, 22, 23, 24))
    table.learn(34, 0, 2, 101)  # now both have four, and the one that wants more gives
    assert table.find(30, 0, 101) == -1
    assert all(table.find(mac, 0, 101) == 2 for mac in (31, 32, 33, 34))
    table.learn(40, 0, 3, 101)  # one of the two has to
    assert sorted(map(len, audit(table).values())) == [1, 3, 4]
    assert table.record.evicted == 3


@kernel
def flood(table, n, port, now_s):
    """Learn ``n`` random addresses in random VLANs; return the last random number."""
    x = u64(88172645463325252)
    for _ in range(n):
        x ^= x << u64(13)
        x ^= x >> u64(7)
        x ^= x << u64(17)
        learn(table, x, x >> u64(50), port, now_s, ORDINARY)
    return x


def test_case_57_a_flood_of_addresses_at_one_port_leaves_those_of_others_known():
    table = MacTable()
    table.learn(A, 1, 2, 100)
    table.learn(B, 1, 3, 100)
    flood(table.address, 1_000_000, 1, 100)
    assert (table.find(A, 1, 100), table.find(B, 1, 100)) == (2, 3)
    assert len(table) == table.capacity == 8192
    lists = audit(table)
    assert (len(lists[1]), lists[2], lists[3]) == (8190, [key_of(u64(A), 1)], [key_of(u64(B), 1)])
    assert table.learn(C, 1, 2, 101) == LEARNED
    assert table.find(C, 1, 101) == 2
    assert table.record.evicted == table.record.learned - 8192
    table.close()


def test_finding_and_renewing_wait_for_nobody_and_new_addresses_do(table):
    table.learn(A, 0, 1, 100)
    table.record.lock = 1
    assert table.find(A, 0, 100) == 1
    assert table.learn(A, 0, 1, 101) == UNCHANGED
    assert [row.age_s for row in table.rows(101)] == [1]  # so the next packet has to note it
    new = threading.Thread(target=table.learn, args=(B, 0, 1, 101))
    new.start()
    new.join(0.02)
    assert new.is_alive()
    assert table.find(B, 0, 101) == -1
    table.record.lock = 0
    new.join()
    assert table.find(B, 0, 101) == 1


@pytest.mark.parametrize("entries", [1, 2, 3, 1000, 4097])
def test_every_address_up_to_the_capacity_finds_room(entries):
    table = MacTable(entries)
    assert all(table.learn(mac, 0, mac % 7, 0) == LEARNED for mac in range(1, entries + 1))
    assert all(table.find(mac, 0, 0) == mac % 7 for mac in range(1, entries + 1))
    assert (len(audit(table)), table.record.evicted) == (min(7, entries), 0)
    table.close()


def test_the_largest_table_can_be_had():
    table = MacTable(MOST)
    flood(table.address, 1000, 1, 0)
    assert 0 < len(table) == table.record.learned < 1000  # some were multicast
    assert table.record.evicted == 0
    audit(table)
    table.close()


@pytest.mark.parametrize("entries", [0, -1, MOST + 1])
def test_a_size_that_cannot_be_is_refused(entries):
    with pytest.raises(GraphError, match="a MAC table has 1 to"):
        MacTable(entries)


def test_arguments_that_cannot_be_are_refused(table):
    with pytest.raises(GraphError, match="kept for 1 to"):
        table.age_s = 0
    for mac in (0, 1 << 48, 0x0100_0000_0000):
        with pytest.raises(GraphError, match="that of one station"):
            table.add_static(mac, 0, 1)
    with pytest.raises(GraphError, match="number from 0 to 65535, got 65536"):
        table.add_static(A, 0, 65536)
    assert len(table) == 0


class Model:
    """The same with dictionaries and lists."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.port, self.seen, self.held = {}, {}, {}  # by (MAC, VLAN); seen is None for static ones
        self.order = {}  # of ports: their learned keys, the least recently used first
        self.count = dict.fromkeys(("learned", "moved", "expired", "evicted", "refused"), 0)

    def take_out(self, key):
        port = self.port.pop(key)
        if self.seen.pop(key) is not None:
            self.order[port].remove(key)

    def put_in(self, key, port, seen, left):
        """Whether there was room; ``left`` says of keys whether they are still in the real table."""
        if len(self.port) == self.capacity:
            most = max(map(len, self.order.values()), default=0)
            if most == 0:
                return False
            fullest = [p for p, keys in self.order.items() if len(keys) == most]
            oldest = [self.order[p][0] for p in ([port] if port in fullest else fullest)]
            (gone,) = [k for k in oldest if not left(k)]
            self.take_out(gone)
            self.count["evicted"] += 1
        self.port[key], self.seen[key] = port, seen
        if seen is not None:
            self.order.setdefault(port, []).append(key)
        return True

    def fix(self, key, port, left):
        if key in self.port:
            self.take_out(key)
        return self.put_in(key, port, None, left)

    def learn(self, key, port, now, packet, left):
        if key in self.port and self.seen[key] is None:
            return UNCHANGED
        if self.port.get(key) == port and self.seen[key] >= now and packet == ORDINARY:
            return UNCHANGED
        if key in self.port and now - self.seen[key] >= AGE:
            self.take_out(key)
            self.count["expired"] += 1
        if key not in self.port:
            room = self.put_in(key, port, now, left)
            self.count["learned" if room else "refused"] += 1
            self.held[key] = now + 5 if packet == GRATUITOUS else 0
            return LEARNED if room else UNCHANGED
        if packet == GRATUITOUS:
            self.held[key] = now + 5
        before, seen = self.port[key], max(now, self.seen[key])
        if packet == REFLECTED and now < self.held[key]:
            port = before
        self.take_out(key)
        self.put_in(key, port, seen, left)
        self.count["moved"] += port != before
        return MOVED if port != before else UNCHANGED

    def age(self, now):
        old = [key for key, seen in self.seen.items() if seen is not None and now - seen >= AGE]
        # A port's list ends the search at the first one that is young enough, as clocks that differ can have it.
        old = [k for k in old if all(now - self.seen[o] >= AGE for o in self.order[self.port[k]][: self._place(k)])]
        for key in old:
            self.take_out(key)
        self.count["expired"] += len(old)
        return len(old)

    def _place(self, key):
        return self.order[self.port[key]].index(key)

    def flush(self, port, vlan, static):
        chosen = [
            key
            for key, at in self.port.items()
            if port in (-1, at) and vlan in (-1, key[1]) and (static or self.seen[key] is not None)
        ]
        for key in chosen:
            self.take_out(key)
        return len(chosen)


KEYS = [(mac, vlan) for mac in (A, B, C, 0xD) for vlan in (0, 9)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["learn"] * 9 + ["age", "flush", "static", "remove"]),
        st.sampled_from(KEYS),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 1, 1, 4, AGE]),  # seconds that go by
        st.sampled_from([0, 0, 0, 1]),  # how far behind the clock is
        st.sampled_from([ORDINARY] * 4 + [GRATUITOUS, REFLECTED]),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 6), st.sampled_from([0, 0x9E3779B97F4A7C15]))
def test_it_does_what_dictionaries_and_lists_do(steps, capacity, multiplier):
    table, model, clock = MacTable(capacity, AGE), Model(capacity), 100
    table.record.multiplier = multiplier  # 0 sends all keys to one line

    def left(key):
        return any(int(key_of(u64(key[0]), key[1])) in keys for keys in audit(table).values())

    for what, key, port, seconds, behind, packet in steps:
        clock += seconds
        now = clock - behind
        if what == "learn":
            assert table.learn(*key, port, now, packet) == model.learn(key, port, now, packet, left)
        elif what == "age":
            assert table.age(now) == model.age(now)
        elif what == "flush":
            where = (port if packet else -1, key[1] if behind else -1, seconds == 1)
            assert table.flush(*where[:2], static=where[2]) == model.flush(*where)
        elif what == "static":
            try:
                table.add_static(*key, port)
                assert model.fix(key, port, left)
            except GraphError:
                assert not model.fix(key, port, left)
        elif what == "remove":
            there = key in model.port
            assert table.remove(*key) == there
            if there:
                model.take_out(key)
        kept = {p: [int(key_of(u64(mac), vlan)) for mac, vlan in keys] for p, keys in model.order.items() if keys}
        assert audit(table) == kept
        assert counters(table) == model.count
        young = {k: p for k, p in model.port.items() if model.seen[k] is None or now - model.seen[k] < AGE}
        assert {k: p for k in KEYS if (p := table.find(*k, now)) >= 0} == young
        assert {(row.mac, row.vlan): row.port for row in table.rows(now)} == young
    table.close()
