"""The upkeep of a MAC table: ageing, flushing, static entries and lists of what is there; for control threads.

Each call holds the table's lock for a few entries at a time, so that workers that learn meanwhile wait for a moment only.
"""

import numpy as np

from wirespeed.core.lock import lock, unlock
from wirespeed.jit.atomics import load_relaxed, store_release
from wirespeed.jit.intrinsics import store_u64, trailing_zeros
from wirespeed.jit.kernel import kernel
from wirespeed.tables import shares
from wirespeed.tables.mac_lines import (
    PAIR,
    STATIC,
    Pair,
    Table,
    insert,
    is_static,
    make_room,
    number_of,
    pack,
    pair_of,
    port_of,
    read,
    remove,
    seen_of,
    stamp_of,
)
from wirespeed.tables.shares import WORDS, occupied, oldest

i64, u32, u64 = np.int64, np.uint32, np.uint64

ANY = -1  # port or VLAN
_SLICE = 64  # entries taken out in one holding of the lock


@kernel
def age(table, now_s):
    """Take out what was not seen for too long; how many.  For the control thread, once a second or so."""
    t = Table(table)
    expired = i64(0)
    for word in range(WORDS):
        bits = occupied(t.shares, word)
        while bits != 0:
            expired += _expire(t, 64 * word + i64(trailing_zeros(bits)), now_s)
            bits &= bits - u64(1)
    return expired


@kernel
def _expire(t, port, now_s):
    """Take out what is too old of one port, letting others have the lock now and then."""
    expired, more = i64(0), True
    while more:
        lock(t)
        for _ in range(_SLICE):
            number = oldest(t.shares, port)
            more = number != 0 and now_s - seen_of(pair_of(t, number).value) >= t.age
            if not more:
                break
            remove(t, number)
            t.expired += u64(1)
            expired += 1
        unlock(t)
    return expired


@kernel(inline=True)
def _chosen(pair, port, vlan, static):
    key, value = load_relaxed(pair, "key"), load_relaxed(pair, "value")
    return (
        key != 0
        and (port == ANY or port == port_of(value))
        and (vlan == ANY or vlan == i64(key >> u64(48) & u64(0xFFF)))
        and (static or not is_static(value))
    )


@kernel
def flush(table, port, vlan, static):
    """Take out what was learned at a port and in a VLAN (each may be ``ANY``), static entries only if told so."""
    t = Table(table)
    flushed = i64(0)
    for number in range(4 * (t.mask + 1)):
        if number & 3 != 0 and _chosen(pair_of(t, number), port, vlan, static):
            lock(t)
            if _chosen(pair_of(t, number), port, vlan, static):
                remove(t, number)
                flushed += 1
            unlock(t)
    return flushed


@kernel
def fix(table, key, port):
    """Make an entry static; whether there was room."""
    t = Table(table)
    lock(t)
    number = number_of(t, key)
    if number != 0:
        value = pair_of(t, number).value
        if not is_static(value):
            shares.remove(t.shares, number, port_of(value))
            t.static = u32(t.static + u32(1))
        store_release(pair_of(t, number), "value", pack(port, stamp_of(value), STATIC))
    elif make_room(t, port):
        number = insert(t, key, port, STATIC)
        t.static = u32(t.static + u32(1))
    unlock(t)
    return number != 0


@kernel
def forget(table, key, learned):
    """Take out one entry, if it is static or ``learned`` are meant too; whether it was there."""
    t = Table(table)
    lock(t)
    number = number_of(t, key)
    there = number != 0 and (learned or is_static(pair_of(t, number).value))
    if there:
        remove(t, number)
    unlock(t)
    return there


@kernel
def list_all(table, out, room):
    """Write key and value of up to ``room`` entries to ``out``, u64 each; how many."""
    t = Table(table)
    n = i64(0)
    for number in range(4 * (t.mask + 1)):
        if number & 3 != 0 and n < room:
            at = t.lines + PAIR * number
            key = load_relaxed(Pair(at), "key")
            value, sure = read(at, key)
            if sure and key != 0:
                store_u64(out + 16 * n, key)
                store_u64(out + 16 * n + 8, value)
                n += 1
    return n
