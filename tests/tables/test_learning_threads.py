"""The MAC table under threads: several learn, find, age and flush at once, and nobody is told another's port."""

import threading

import numpy as np
import pytest

from tests.tables.mac_audit import audit
from wirespeed.jit.kernel import kernel
from wirespeed.tables.learning import ORDINARY, MacTable, find, key_of, learn

i64, u64 = np.int64, np.uint64

VLAN = 9  # station i has the address i + 1, and is at port 2 * i or 2 * i + 1, so that a port tells whose it is


@kernel
def move_about(table, stations, seed, n):
    """Learn some of so many stations (a power of two), each at one of its two ports; the seconds go by."""
    x = u64(seed)
    for i in range(n):
        x ^= x << u64(13)
        x ^= x >> u64(7)
        x ^= x << u64(17)
        station = i64(x >> u64(32) & u64(stations - 1))
        learn(table, u64(station + 1), VLAN, 2 * station + i64(x & u64(1)), i64(i >> 10), ORDINARY)


@kernel
def look_for(table, stations, seed, n):
    """Find some of so many stations; return how often one was found, and how often at another's port."""
    x, found, wrong = u64(seed), i64(0), i64(0)
    for _ in range(n):
        x ^= x << u64(13)
        x ^= x >> u64(7)
        x ^= x << u64(17)
        station = i64(x >> u64(32) & u64(stations - 1))
        port = find(table, u64(station + 1), VLAN, i64(0))
        found += port >= 0
        wrong += port >= 0 and port >> 1 != station
    return found, wrong


@kernel
def watch(table, station, n):
    """Find one station ``n`` times; return how often that failed."""
    lost = i64(0)
    for _ in range(n):
        lost += find(table, u64(station + 1), VLAN, i64(0)) != 2 * station
    return lost


def run(*calls):
    """Call functions at the same time; return what each returned."""
    results = [None] * len(calls)

    def call(i, function, *arguments):
        results[i] = function(*arguments)

    threads = [threading.Thread(target=call, args=(i, *one)) for i, one in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize(("entries", "stations"), [(1, 2), (64, 512)])
def test_places_that_change_hands_all_the_time_never_tell_another_stations_port(entries, stations):
    table = MacTable(entries)
    at, n = table.address, 300_000
    move_about(at, stations, 1, 10), look_for(at, stations, 1, 10)  # compiled before the threads begin

    def forget():
        for second in range(200):
            table.age(second)
            table.flush(port=second)
            for row in table.rows(0):
                assert row.port >> 1 == row.mac - 1
        return True

    learners = [(move_about, at, stations, seed, n) for seed in (5, 6)]
    finders = [(look_for, at, stations, seed, n) for seed in (7, 8)]
    results = run(*finders, *learners, (forget,))
    assert results[4] is True
    for found, wrong in results[:2]:
        assert (found > 0, wrong) == (True, 0)
    assert all(key == int(key_of(u64(1 + port // 2), VLAN)) for port, keys in audit(table).items() for key in keys)
    table.close()


def test_stations_that_stay_are_always_found_while_others_come_and_go():
    table = MacTable(64)
    table.record.multiplier = 1  # all in one line and those behind it
    stay = [511, 510]
    for station in stay:
        table.add_static(station + 1, VLAN, 2 * station)

    at, n = table.address, 300_000
    watch(at, stay[0], 1), move_about(at, 512, 1, 1)
    watches = [(watch, at, station, n) for station in stay]
    assert run(*watches, (move_about, at, 512, 3, n), (move_about, at, 512, 4, n))[:2] == [0, 0]
    audit(table)
    table.close()
