"""A MAC table: behind which port an address of a VLAN was last seen, shared by all workers.

Theory of operation
-------------------
Who finds no lock in its way, and what is known at the same port, seen this second, writes nothing either: both search
the lines of the table as they are (:mod:`wirespeed.tables.mac_lines`).  Everything else is written by one at a time, under
a spin lock that is held for a few dozen instructions.  Who only has a new second to write down does not wait for it: the
next packet does as well.  A holder that loses its core in between keeps others waiting only with what is new or has
moved; they yield theirs.

When the table is full, the port with most entries loses the one that it has used least recently
(:mod:`wirespeed.tables.shares`), so a flood of addresses on one port leaves those of the others known.  Static entries
never age, never move and never make room.

An entry not seen for ``age_s`` seconds is unknown from that second on, whether or not ageing has taken it out.
The time is in whole seconds from any start, less than 2^32 - 1 of them, and may be slightly behind that of other workers.

Thread rules: any number of threads may do anything at any time, except close the table.
"""

from typing import Any, NamedTuple

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.core.lock import lock, unlock
from wirespeed.errors import GraphError
from wirespeed.jit.atomics import exchange, store_release
from wirespeed.jit.intrinsics import prefetch
from wirespeed.jit.kernel import kernel
from wirespeed.tables import mac_lines, mac_upkeep, shares
from wirespeed.tables.mac_lines import (
    MAC,
    SEEN,
    STATIC,
    Table,
    home_of,
    insert,
    is_static,
    key_of,
    look_up,
    make_room,
    number_of,
    pack,
    pair_of,
    port_of,
    remove,
    seen_of,
    stamp_of,
)
from wirespeed.tables.mac_upkeep import ANY
from wirespeed.tables.shares import PORTS, node_of

i64, u32, u64 = np.int64, np.uint32, np.uint64

MOST = 1 << 20  # entries
UNCHANGED, LEARNED, MOVED = 0, 1, 2  # what learning did
ORDINARY, GRATUITOUS, REFLECTED = 0, 1, 2  # packets: most; a gratuitous ARP; one that came by a bond
HOLD_S = 5  # how long what a gratuitous ARP said is kept against reflections by a bond
GROUP = u64(1 << 40)  # the first bit on the wire of a multicast address


@kernel(inline=True)
def prefetch_line(table, mac, vlan):
    """Ask for the line in which the search for an address begins."""
    t = Table(table)
    prefetch(t.lines + LINE * home_of(t, key_of(mac, vlan)))


@kernel(inline=True)
def find(table, mac, vlan, now_s):
    """The port behind which an address was last seen, or -1."""
    t = Table(table)
    there, value = look_up(t, key_of(mac, vlan))
    # A static entry was seen in the future.
    return port_of(value) if there and now_s - seen_of(value) < t.age else i64(-1)


@kernel(inline=True)
def learn(table, mac, vlan, port, now_s, packet):
    """Note that a packet from ``mac`` came in at ``port``, less than 65,536: ``UNCHANGED``, ``LEARNED`` or ``MOVED``.

    ``packet`` is ``ORDINARY``; or ``GRATUITOUS`` for a gratuitous ARP, after which the entry is not moved for five
    seconds by one that is ``REFLECTED``, which is what a gratuitous ARP is called that comes in by a bond.
    """
    t = Table(table)
    if u64(mac) & GROUP != 0 or u64(mac) & MAC == 0:
        return i64(UNCHANGED)
    key = key_of(mac, vlan)
    there, value = look_up(t, key)
    known = there and port_of(value) == port
    if (known and seen_of(value) >= now_s and packet == ORDINARY) or (there and is_static(value)):
        return i64(UNCHANGED)
    if known and packet == ORDINARY:
        return _renew(table, key, port, now_s)
    return _learn(table, key, port, now_s, packet)


@kernel
def _renew(table, key, port, now_s):
    """Note the new second of what is known, unless somebody holds the lock."""
    t = Table(table)
    if exchange(t, "lock", 1) != 0:
        return i64(UNCHANGED)
    did = _note(t, key, port, now_s, i64(ORDINARY))
    unlock(t)
    return did


@kernel
def _learn(table, key, port, now_s, packet):
    t = Table(table)
    lock(t)
    did = _note(t, key, port, now_s, packet)
    unlock(t)
    return did


@kernel
def _note(t, key, port, now_s, packet):
    """Learn under the lock; what was seen outside of it may be different by now."""
    port &= PORTS - 1
    number = number_of(t, key)
    if number != 0 and now_s - seen_of(pair_of(t, number).value) >= t.age:
        remove(t, number)
        t.expired += u64(1)
        number = i64(0)
    if number == 0:
        if not make_room(t, port):
            t.refused += u64(1)
            return i64(UNCHANGED)
        number = insert(t, key, port, u64(now_s))
        shares.add(t.shares, number, port)
        t.learned += u64(1)
        node_of(t.shares, number).held_until = u32(now_s + HOLD_S) if packet == GRATUITOUS else u32(0)
        return i64(LEARNED)
    pair, node = pair_of(t, number), node_of(t.shares, number)
    value = pair.value
    before, seen = port_of(value), seen_of(value)
    if is_static(value):
        return i64(UNCHANGED)
    if packet == GRATUITOUS:
        node.held_until = u32(now_s + HOLD_S)
    stays = before == port or (packet == REFLECTED and now_s < i64(node.held_until))
    store_release(pair, "value", pack(before if stays else port, stamp_of(value), max(seen, now_s)))
    if stays:
        shares.renew(t.shares, number, before)
        return i64(UNCHANGED)
    shares.remove(t.shares, number, before)
    shares.add(t.shares, number, port)
    t.moved += u64(1)
    return i64(MOVED)


class Row(NamedTuple):
    """One entry: its port, VLAN and address, the seconds since it was last seen, and whether it is static."""

    port: int
    vlan: int
    mac: int
    age_s: int
    static: bool


class MacTable:
    """Up to ``entries`` addresses, each forgotten when it is not seen for ``age_s`` seconds.

    Addresses are 48-bit integers, ports numbers below 65,536; ``now_s`` is a time in whole seconds.
    """

    def __init__(self, entries: int = 8192, age_s: int = 300) -> None:
        if not 1 <= entries <= MOST:
            raise GraphError(f"a MAC table has 1 to {MOST} entries, got {entries}; give the most that it is to know")
        self.arena = Arena(mac_lines.size(entries) + LINE, huge=entries > 1 << 15)
        self.address = self.arena.alloc(Table.size)
        mac_lines.make(self.arena, self.address, entries)
        self.age_s = age_s

    @property
    def record(self) -> Any:
        """The table's own record; ``learned``, ``moved``, ``expired``, ``evicted``, ``refused`` count."""
        return Table.at(self.address)

    @property
    def capacity(self) -> int:
        """The most entries that it holds."""
        return int(self.record.capacity)

    @property
    def age_s(self) -> int:
        """The seconds after which what is not seen is forgotten; may be set at any time."""
        return int(self.record.age)

    @age_s.setter
    def age_s(self, seconds: int) -> None:
        if not 1 <= seconds < 1 << 31:
            raise GraphError(f"addresses are kept for 1 to {(1 << 31) - 1} seconds, got {seconds}; the usual is 300")
        self.record.age = seconds

    def __len__(self) -> int:
        return int(self.record.length)

    def find(self, mac: int, vlan: int, now_s: int) -> int:
        """The port behind which an address was last seen, or -1."""
        return int(find(self.address, u64(mac), i64(vlan), i64(now_s)))

    def learn(self, mac: int, vlan: int, port: int, now_s: int, packet: int = ORDINARY) -> int:
        """Note where a packet came from, as the kernel :func:`learn` does."""
        return int(learn(self.address, u64(mac), i64(vlan), i64(port), i64(now_s), i64(packet)))

    def age(self, now_s: int) -> int:
        """Take out what was not seen for too long; how many."""
        return int(mac_upkeep.age(self.address, i64(now_s)))

    def flush(self, port: int = ANY, vlan: int = ANY, *, static: bool = False) -> int:
        """Forget what was learned, of all ports or of one, in all VLANs or one; ``static`` entries too if told so."""
        return int(mac_upkeep.flush(self.address, i64(port), i64(vlan), static))

    def add_static(self, mac: int, vlan: int, port: int) -> None:
        """Fix an address to a port; raises when there is no room but that of other static entries."""
        if not 0 <= port < PORTS:
            raise GraphError(f"a port of a MAC table has a number from 0 to {PORTS - 1}, got {port}")
        if not 0 < mac <= int(MAC) or mac & int(GROUP):
            raise GraphError(f"a static address is that of one station, got {mac:#014x}; multicast and 0 are nobody's")
        if not mac_upkeep.fix(self.address, key_of(u64(mac), i64(vlan)), i64(port)):
            raise GraphError(f"all {self.capacity} entries are static; remove some, or make the table larger")

    def remove(self, mac: int, vlan: int, *, learned: bool = True) -> bool:
        """Forget one address, static or, unless ``learned`` is false, learned; whether it was there."""
        return bool(mac_upkeep.forget(self.address, key_of(u64(mac), i64(vlan)), learned))

    def rows(self, now_s: int) -> list[Row]:
        """All that is known, what was seen longest ago first and static entries last."""
        pairs = np.empty((self.capacity, 2), np.uint64)
        n = int(mac_upkeep.list_all(self.address, pairs.ctypes.data, i64(self.capacity)))
        rows = []
        for key, value in pairs[:n].tolist():
            seen = value & int(SEEN)
            static = seen == int(STATIC)
            since = 0 if static else max(0, now_s - seen)
            if static or since < self.age_s:
                rows.append(Row(value >> 48, key >> 48 & 0xFFF, key & int(MAC), since, static))
        return sorted(rows, key=lambda row: (row.static, -row.age_s, row[:3]))

    def close(self) -> None:
        """Unmap the memory; nothing of the table may be used afterwards."""
        self.arena.close()
