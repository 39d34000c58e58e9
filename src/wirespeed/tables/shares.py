"""The entries of each port in the order of their use, and which port has most of them: who makes room in a full table.

Theory of operation
-------------------
A table's entries are known here by number, from 1 on.  Each is in the list of one port, the least recently used one
first.  Ports that have the same number of entries are in a list too, one list for each number, so that a port which gets
or loses one entry moves to the neighbouring list, and the port with most is the first one of the last list that is not
empty: a step for each change and none to find it.  When a port leaves the last list empty, it has gone to the one before,
so that one is the last then.  A bit for each port says whether it has entries, for walks over all ports.

Whoever takes entries from the port with most of them takes none from those that have few, however fast that one adds
more: a flood of addresses on one port pushes out its own only.

Thread rules: for holders of the table's lock, but for :func:`occupied`.
Source: the idea of eviction by fairness is Open vSwitch's (CERT VU#784996).
"""

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.jit.atomics import load_relaxed, store_relaxed
from wirespeed.jit.intrinsics import load_u32, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u32, u64 = np.int64, np.uint32, np.uint64

PORTS = 1 << 16
WORDS = PORTS // 64

Shares = layout(
    "Shares",
    [
        ("nodes", "i8"),  # address of the node of number 0, which is nobody
        ("ports", "i8"),  # address of the port of number 0
        ("tallies", "i8"),  # address of u4 by number of entries: the first port that has so many, plus one
        ("occupied", "i8"),  # address of a bit for each port
        ("most", "u4"),  # the most entries that a port has
        (None, 28),
    ],
)
assert Shares.size == LINE

Node = layout("SharesNode", [("older", "u4"), ("newer", "u4"), ("held_until", "u4"), (None, 4)])
NODE = Node.size
Port = layout(
    "SharesPort",
    [
        ("oldest", "u4"),  # its entry that was used least recently,
        ("newest", "u4"),  # and the last one
        ("count", "u4"),
        ("left", "u4"),  # its neighbours among those with as many, plus one
        ("right", "u4"),
        (None, 12),
    ],
)
PORT = Port.size
_Bits = layout("SharesBits", [("word", "u8")])


@kernel(inline=True)
def node_of(s, number):
    """An entry's node; what is there besides its neighbours belongs to the table."""
    return Node(s.nodes + NODE * i64(number))


@kernel(inline=True)
def _port_of(s, port):
    return Port(s.ports + PORT * i64(port))


@kernel(inline=True)
def oldest(s, port):
    """The least recently used entry of a port, or 0."""
    return i64(_port_of(s, port).oldest)


@kernel(inline=True)
def fullest(s, port):
    """The port with most entries, ``port`` if it is one of those that have as many; -1 when none has any."""
    if s.most == 0:
        return i64(-1)
    if _port_of(s, port).count == s.most:
        return i64(port)
    return i64(load_u32(s.tallies + 4 * i64(s.most))) - 1


@kernel(inline=True)
def occupied(s, word):
    """A bit for each of 64 ports, from number 64 * word on: whether it has entries.  Needs no lock."""
    return load_relaxed(_Bits(s.occupied + 8 * word), "word")


@kernel(inline=True)
def _mark(s, port, has):
    bits = _Bits(s.occupied + 8 * (port >> 6))
    bit = u64(1) << u64(port & 63)
    store_relaxed(bits, "word", bits.word | bit if has else bits.word & ~bit)


@kernel
def _count(s, port, count):
    """Say how many entries a port has, one more or less than before."""
    p, number = _port_of(s, port), u32(port + 1)
    before = p.count
    if before != 0:
        if p.left != 0:
            _port_of(s, i64(p.left) - 1).right = p.right
        else:
            store_u32(s.tallies + 4 * i64(before), p.right)
        if p.right != 0:
            _port_of(s, i64(p.right) - 1).left = p.left
    if count != 0:
        first = load_u32(s.tallies + 4 * i64(count))
        p.left, p.right = u32(0), first
        if first != 0:
            _port_of(s, i64(first) - 1).left = number
        store_u32(s.tallies + 4 * i64(count), number)
    if count > before:
        s.most = max(s.most, count)
    elif s.most == before and load_u32(s.tallies + 4 * i64(before)) == 0:
        s.most = count
    p.count = count
    if (before == 0) != (count == 0):
        _mark(s, port, count != 0)


@kernel(inline=True)
def _append(s, number, port):
    p, n = _port_of(s, port), node_of(s, number)
    n.older, n.newer = p.newest, u32(0)
    if p.newest != 0:
        node_of(s, p.newest).newer = u32(number)
    else:
        p.oldest = u32(number)
    p.newest = u32(number)


@kernel(inline=True)
def _detach(s, number, port):
    p, n = _port_of(s, port), node_of(s, number)
    if n.older != 0:
        node_of(s, n.older).newer = n.newer
    else:
        p.oldest = n.newer
    if n.newer != 0:
        node_of(s, n.newer).older = n.older
    else:
        p.newest = n.older


@kernel
def add(s, number, port):
    """Give a port an entry that no port has, as the one used last."""
    _append(s, number, port)
    _count(s, port, u32(_port_of(s, port).count + u32(1)))


@kernel
def remove(s, number, port):
    """Take an entry from the port that has it."""
    _detach(s, number, port)
    _count(s, port, u32(_port_of(s, port).count - u32(1)))


@kernel
def renew(s, number, port):
    """Have an entry of a port be the one used last."""
    if _port_of(s, port).newest != u32(number):
        _detach(s, number, port)
        _append(s, number, port)


def make(arena: Arena, shares: int, numbers: int, capacity: int) -> None:
    """Make the zeroed record at ``shares`` one for ``capacity`` entries, whose numbers are less than ``numbers``."""
    record = Shares.at(shares)
    record.nodes = arena.alloc(NODE * numbers)
    record.ports = arena.alloc(PORT * PORTS)
    record.tallies = arena.alloc(4 * (capacity + 1))
    record.occupied = arena.alloc(8 * WORDS)


def size(numbers: int, capacity: int) -> int:
    """Bytes of an arena that :func:`make` takes, at most."""
    return NODE * numbers + PORT * PORTS + 4 * (capacity + 1) + 8 * WORDS + 4 * LINE
