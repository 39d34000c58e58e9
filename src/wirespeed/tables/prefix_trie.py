"""A trie of 16, 8 and 8 bits that finds the longest prefix of a 32-bit key, and is changed in place under its readers.

Theory of operation
-------------------
*Slots* are u4: 65,536 of the root, one for each value of a key's upper half, then blocks of 256.  A slot says which
*value* the keys below it have (0 is none), or, with the upper bit set, in which block the next eight bits are looked up.
So a look-up reads one to three slots.  A prefix is written into all slots that it covers and that no longer one has;
one longer than 16 or 24 bits first turns the slot above it into a block.

Beside the slots lie *owners*, which only the writer reads: the number of the :data:`Node`, a prefix, that a slot has its
value from.  Each node names its *parent*, the longest prefix that covers it, so nothing is ever searched for:
what a key's slots do not show is among the ancestors of what they show.  A block counts the prefixes that need it; with
the last of these it turns into one slot again.

A slot changes at once, from one right answer to another; a block is whole before a slot names it.  Blocks and nodes that
are let go are used again only when no reader can be in them (:func:`settle`).

Thread rules: one thread writes, any number look up.  Order pairs: a slot is stored with release and loaded with acquire, so
that a block's slots are there for who finds the block.
Source: the lengths of the levels as in DIR-24-8 (Gupta, Lin and McKeown, INFOCOM 1998), with a root that stays in a
core's second-level cache.
"""

import numpy as np

from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import load_u32, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

u32, i64 = np.uint32, np.int64

ROOT = 1 << 16
BLOCK = 1 << 8
MOST_NODES = (1 << 24) - 1
MOST_BLOCKS = 1 << 22
_INSIDE = u32(1 << 31)  # the rest of the slot is a block's number
_NUMBER = u32((1 << 31) - 1)
FULL = -1

Lpm = layout(
    "Lpm",
    [
        # for readers
        ("slots", "i8"),  # address of u4[ROOT + BLOCK * blocks]
        (None, 56),
        # for the writer
        ("owners", "i8"),  # u4 for each slot: the number of a node, or 0
        ("nodes", "i8"),  # address of Node[capacity + 1]; number 0 is nobody's
        ("counts", "i8"),  # u4 for each block: prefixes that need it; the next one of its list
        ("capacity", "i8"),  # most prefixes
        ("blocks", "i8"),  # most blocks
        ("length", "i8"),  # prefixes
        ("own", "i8"),  # 1: the value of a prefix is its node's number
        ("version", "i8"),  # what waits, waits for every reader to be at a later one than this
        ("new_node", "u4"),  # none from this number on was ever used,
        ("new_block", "u4"),
        ("free_node", "u4"),  # the first of a list of free ones, or 0
        ("free_block", "u4"),  # plus one
        ("left_node", "u4"),  # of those let go since the last time that settled,
        ("left_block", "u4"),
        ("waiting_node", "u4"),  # and before
        ("waiting_block", "u4"),
    ],
)
Node = layout(
    "LpmNode",
    [
        ("prefix", "u4"),  # the next one of its list, when it is free
        ("value", "u4"),
        ("parent", "u4"),  # a node's number, or 0; a reader who came too late still goes on from here
        ("length", "u4"),
    ],
)
NODE = Node.size
Slot = layout("LpmSlot", [("word", "u4")])


@kernel(inline=True)
def find(slots, key):
    """The value of the longest prefix of a u4 key, or 0; ``slots`` is the trie's field of this name."""
    word = load_acquire(Slot(slots + 4 * i64(key >> u32(16))), "word")
    if word & _INSIDE:
        word = load_acquire(Slot(_inside(slots, word, key >> u32(8))), "word")
        if word & _INSIDE:
            word = load_acquire(Slot(_inside(slots, word, key)), "word")
    return word


@kernel(inline=True)
def _inside(slots, word, bits):
    """The address of the slot for the low eight of the bits, in the block that a slot's word names."""
    return slots + 4 * (ROOT + BLOCK * i64(word & _NUMBER) + i64(bits & u32(255)))


@kernel(inline=True)
def node_of(l, number):
    """A node by its number."""
    return Node(l.nodes + NODE * i64(number))


@kernel(inline=True)
def _owner(l, index):
    return load_u32(l.owners + 4 * index)


@kernel
def _put(l, index, number):
    """Have a slot be a node's."""
    value = u32(0)
    if number != 0:
        value = number if l.own != 0 else node_of(l, number).value
    store_u32(l.owners + 4 * index, number)
    store_release(Slot(l.slots + 4 * index), "word", value)


@kernel(inline=True)
def _first_of(word):
    """The index of the first slot of the block that a slot's word names."""
    return ROOT + BLOCK * i64(word & _NUMBER)


@kernel(inline=True)
def _word(l, index):
    return load_u32(l.slots + 4 * index)


@kernel
def seek(l, prefix, length):
    """The number of the node of a prefix, or 0; and that of the longest one that covers it and is shorter, or 0."""
    index = i64(prefix >> u32(16))
    word = _word(l, index)
    if word & _INSIDE:
        index = _first_of(word) + i64(prefix >> u32(8) & u32(255))
        word = _word(l, index)
        if word & _INSIDE:
            index = _first_of(word) + i64(prefix & u32(255))
    number = _owner(l, index)
    while number != 0 and i64(node_of(l, number).length) > length:
        number = node_of(l, number).parent
    if number != 0 and i64(node_of(l, number).length) == length:
        return number, node_of(l, number).parent
    return u32(0), number


@kernel
def _paint(l, index, mine, before, after):
    """Have a slot that is ``before``'s be ``after``'s; below, where there is a longer one, have it see the change.

    ``mine`` is the node that comes or goes: the one of ``before`` and ``after`` that is not the other's parent.
    """
    number = _owner(l, index)
    if number == before:
        _put(l, index, after)
        return
    # The slot shows a longer one. The last of its ancestors below the one that changes gets another parent.
    length = node_of(l, mine).length
    parent = node_of(l, number).parent
    while parent != 0 and parent != mine and node_of(l, parent).length > length:
        number = parent
        parent = node_of(l, number).parent
    if parent == before:
        node_of(l, number).parent = after


@kernel
def _paint_block(l, word, mine, before, after):
    first = _first_of(word)
    for index in range(first, first + BLOCK):
        deeper = _word(l, index)
        if deeper & _INSIDE:
            last = _first_of(deeper)
            for inner in range(last, last + BLOCK):
                _paint(l, inner, mine, before, after)
        else:
            _paint(l, index, mine, before, after)


@kernel
def _paint_all(l, mine, before, after):
    """Go through all slots of a prefix, whose blocks are there."""
    prefix, length = node_of(l, mine).prefix, i64(node_of(l, mine).length)
    index, shift = i64(prefix >> u32(16)), i64(16)
    if length > 16:
        index, shift = _first_of(_word(l, index)) + i64(prefix >> u32(8) & u32(255)), i64(24)
        if length > 24:
            index, shift = _first_of(_word(l, index)) + i64(prefix & u32(255)), i64(32)
    for at in range(index, index + (i64(1) << (shift - length))):
        word = _word(l, at)
        if word & _INSIDE:
            _paint_block(l, word, mine, before, after)
        else:
            _paint(l, at, mine, before, after)


@kernel
def _take_node(l):
    """The number of a node that nobody uses, or 0."""
    number = l.free_node
    if number != 0:
        l.free_node = node_of(l, number).prefix
        return number
    if i64(l.new_node) >= l.capacity:
        return u32(0)
    l.new_node += 1
    return l.new_node


@kernel
def _lacks_blocks(l, prefix, length):
    """Whether a prefix needs more blocks than there are free ones."""
    needed = i64(0)
    if length > 16:
        word = _word(l, i64(prefix >> u32(16)))
        if not word & _INSIDE:
            needed = i64(2) if length > 24 else i64(1)
        elif length > 24 and not _word(l, _first_of(word) + i64(prefix >> u32(8) & u32(255))) & _INSIDE:
            needed = i64(1)
    needed -= l.blocks - i64(l.new_block)
    number = l.free_block
    while number != 0 and needed > 0:
        needed -= 1
        number = load_u32(l.counts + 4 * (i64(number) - 1))
    return needed > 0


@kernel
def _take_block(l):
    number = l.free_block
    if number != 0:
        l.free_block = load_u32(l.counts + 4 * (i64(number) - 1))
        return u32(number - 1)
    l.new_block += 1
    return u32(l.new_block - 1)


@kernel
def _deepen(l, index):
    """Have a slot be a block; return the block's word.  One more prefix needs it."""
    word = _word(l, index)
    if not word & _INSIDE:
        number = _take_block(l)
        owner = _owner(l, index)
        first = ROOT + BLOCK * i64(number)
        for at in range(first, first + BLOCK):
            store_u32(l.slots + 4 * at, word)
            store_u32(l.owners + 4 * at, owner)
        store_u32(l.counts + 4 * i64(number), u32(0))
        word = _INSIDE | number
        store_release(Slot(l.slots + 4 * index), "word", word)
    count = l.counts + 4 * i64(word & _NUMBER)
    store_u32(count, load_u32(count) + u32(1))
    return word


@kernel
def _flatten(l, index):
    """One prefix less needs the block of a slot; without any, it is a slot again."""
    word = _word(l, index)
    number = i64(word & _NUMBER)
    count = l.counts + 4 * number
    left = u32(load_u32(count) - 1)
    store_u32(count, left)
    if left == 0:
        # No prefix is inside, so what owns one slot owns all.
        _put(l, index, _owner(l, _first_of(word)))
        store_u32(count, l.left_block)
        l.left_block = u32(number + 1)


@kernel
def add(lpm, prefix, length, value):
    """Add a prefix, or give it another value; its node's number, or FULL, in which case nothing has changed.

    ``prefix`` has no bits behind ``length``; ``value`` is above 0.
    """
    l = Lpm(lpm)
    number, parent = seek(l, prefix, length)
    if number != 0:
        node_of(l, number).value = value
        _paint_all(l, number, number, number)
        return i64(number)
    if _lacks_blocks(l, prefix, length):
        return i64(FULL)
    number = _take_node(l)
    if number == 0:
        return i64(FULL)
    n = node_of(l, number)
    n.prefix, n.length, n.value, n.parent = prefix, u32(length), value, parent
    if length > 16:
        word = _deepen(l, i64(prefix >> u32(16)))
        if length > 24:
            _deepen(l, _first_of(word) + i64(prefix >> u32(8) & u32(255)))
    _paint_all(l, number, parent, number)
    l.length += 1
    return i64(number)


@kernel
def remove(lpm, prefix, length):
    """Take a prefix out; the number that its node had, or 0 when it was not there."""
    l = Lpm(lpm)
    number, parent = seek(l, prefix, length)
    if number == 0:
        return i64(0)
    _paint_all(l, number, number, parent)
    if length > 16:
        index = i64(prefix >> u32(16))
        if length > 24:
            _flatten(l, _first_of(_word(l, index)) + i64(prefix >> u32(8) & u32(255)))
        _flatten(l, index)
    node_of(l, number).prefix = l.left_node
    l.left_node = number
    l.length -= 1
    return i64(number)


@kernel
def settle(lpm, safe, current):
    """Use again what no reader can be in: all are at ``safe`` or later, and none can have read one above ``current``."""
    l = Lpm(lpm)
    for _ in range(2):
        if l.version < safe:
            while l.waiting_node != 0:
                n = node_of(l, l.waiting_node)
                number = l.waiting_node
                l.waiting_node = n.prefix
                n.prefix = l.free_node
                l.free_node = number
            while l.waiting_block != 0:
                at = l.counts + 4 * (i64(l.waiting_block) - 1)
                number = l.waiting_block
                l.waiting_block = load_u32(at)
                store_u32(at, l.free_block)
                l.free_block = number
        if l.waiting_node == 0 and l.waiting_block == 0:
            l.waiting_node, l.waiting_block, l.version = l.left_node, l.left_block, current
            l.left_node, l.left_block = u32(0), u32(0)


def size(capacity: int, blocks: int) -> int:
    """How many bytes :func:`lay_out` uses."""
    return Lpm.size + 8 * (ROOT + BLOCK * blocks) + NODE * (capacity + 1) + 4 * blocks


def lay_out(address: int, capacity: int, blocks: int, *, own: bool = False) -> None:
    """Make an empty trie of zeroed memory; ``own`` has the number of its node as each prefix's value."""
    record = Lpm.at(address)
    record.capacity, record.blocks, record.own = capacity, blocks, int(own)
    slots = 4 * (ROOT + BLOCK * blocks)  # whole lines
    record.slots = address + Lpm.size
    record.owners = record.slots + slots
    record.nodes = record.owners + slots
    record.counts = record.nodes + NODE * (capacity + 1)
