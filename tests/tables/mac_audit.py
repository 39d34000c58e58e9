"""What must hold in a MAC table that nobody uses at the moment, read from its memory with nothing but Python."""

import numpy as np

from wirespeed.jit.layout import layout
from wirespeed.tables.mac_lines import Line, Pair
from wirespeed.tables.shares import NODE, PORT, PORTS, Node, Port

NUMBER = layout("AuditNumber", [("number", "u4")])


def audit(table):
    """Check a table; return for each port that has learned entries their keys, the least recently used first."""
    t = table.record
    lines = int(t.mask) + 1
    assert t.lock == 0
    keys, static, passed = {}, 0, [0] * lines
    pairs = Pair.array_at(t.lines, 4 * lines)
    for number in np.flatnonzero(pairs["key"]).tolist():
        if number % 4 == 0:  # the head of a line
            continue
        keys[number] = int(pairs["key"][number])
        static += int(pairs["value"][number]) & 0xFFFFFFFF == 0xFFFFFFFF
        line = keys[number] * int(t.multiplier) % (1 << 64) >> int(t.shift)
        while line != number // 4:
            passed[line] += 1
            line = (line + 1) % lines
    assert len(set(keys.values())) == len(keys) == t.length <= t.capacity
    assert static == t.static
    assert Line.array_at(t.lines, lines)["passed"].tolist() == passed
    lists = _lists(t.shares, keys)
    assert sum(map(len, lists.values())) == len(keys) - static
    assert t.shares.most == max(map(len, lists.values()), default=0)
    for port, order in lists.items():
        assert {int(pairs["value"][number]) >> 48 for number in order} == {port}
    return {port: [keys[number] for number in order] for port, order in lists.items()}


def _lists(shares, keys):
    """The numbers of the entries in each port's list."""
    lists = {}
    tallies = NUMBER.array_at(shares.tallies, int(shares.most) + 1)["number"].tolist()
    for count, first in enumerate(tallies):
        port, left = first, 0
        while port:
            p = Port.at(shares.ports + PORT * (port - 1))
            assert p.left == left
            order = lists[port - 1] = _order(shares, p, keys)
            assert len(order) == p.count == count
            port, left = int(p.right), port
    occupied = NUMBER.array_at(shares.occupied, PORTS // 32)["number"].copy()
    assert np.flatnonzero(np.unpackbits(occupied.view(np.uint8), bitorder="little")).tolist() == sorted(lists)
    return lists


def _order(shares, p, keys):
    order, number, older = [], int(p.oldest), 0
    while number:
        node = Node.at(shares.nodes + NODE * number)
        assert node.older == older
        assert number in keys
        order.append(number)
        number, older = int(node.newer), number
    assert p.newest == older
    return order
