"""Memory for what readers without locks may still be looking at: given back late, never moved.

Theory of operation
-------------------
Blocks are multiples of a cache line up to 1 kB, powers of two above, and come from the list of free ones of their size
or from the end of a *chunk* that Python has mapped.  A kernel that finds neither returns minus the size that it wanted,
having changed nothing; Python maps another chunk and calls again.

What readers may still be in is not freed but *retired*: it waits in the order of retirement until every reader has
begun later.  Readers work at a version that they have read before, and versions rise: who works at a later version than
the newest one that there was when a block was taken out of the structure cannot have found it.  That newest version
is what :func:`stamp` is told; blocks that were retired since the last time wait for it.

Thread rules: one thread writes; no reader comes here.
"""

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.jit.intrinsics import fill, leading_zeros, load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u64 = np.int64, np.uint64

CLASSES = 48
SMALL = 16  # classes of up to so many lines; the others are powers of two

Heap = layout(
    "ClassifierHeap",
    [
        ("at", "i8"),  # the chunk's next free byte
        ("end", "i8"),
        ("first", "i8"),  # the first retired Node, or 0
        ("last", "i8"),
        ("unstamped", "i8"),  # the first one that has no version yet, or 0
        ("retired", "i8"),  # bytes that wait
        (None, 16),
        ("free", "i8", CLASSES),  # the first free block of each class, or 0
    ],
)

# One retired block. An entry has one of its own, anything else is given one.
Node = layout("ClassifierNode", [("following", "i8"), ("block", "i8"), ("size", "i8"), ("version", "i8")])
NODE = Node.size
_FREE = Heap.offset("free")


@kernel(inline=True)
def class_of(size):
    """The class of blocks of at least ``size`` bytes."""
    return (size + 63) >> 6 if size <= 64 * SMALL else i64(SMALL + 54) - i64(leading_zeros(u64(size - 1)))


@kernel(inline=True)
def rounded(size):
    """How many bytes a block of at least ``size`` has."""
    number = class_of(size)
    return number << 6 if number <= SMALL else i64(1) << (number - 6)


@kernel
def alloc(heap, size):
    """The address of a block of at least ``size`` bytes, whatever they hold; minus how many are wanted if there is none."""
    h = Heap(heap)
    free = heap + _FREE + 8 * class_of(size)
    block = load_i64(free)
    if block != 0:
        store_i64(free, load_i64(block))
        return block
    size = rounded(size)
    if h.end - h.at < size:
        return -size
    block = h.at
    h.at = block + size
    return block


@kernel
def alloc_clear(heap, size):
    """:func:`alloc`, all zeros."""
    block = alloc(heap, size)
    if block > 0:
        fill(block, 0, rounded(size))
    return block


@kernel
def free(heap, block, size):
    """Give back a block in which no reader can be."""
    at = heap + _FREE + 8 * class_of(size)
    store_i64(block, load_i64(at))
    store_i64(at, block)


@kernel
def retire(heap, node, block, size):
    """Give a block back when no reader can be in it any more; ``node`` is a Node in it, or one allocated for it."""
    h, n = Heap(heap), Node(node)
    n.following, n.block, n.size = 0, block, size
    if h.last != 0:
        Node(h.last).following = node
    else:
        h.first = node
    h.last = node
    if h.unstamped == 0:
        h.unstamped = node
    h.retired += size


@kernel
def stamp(heap, version):
    """Readers at ``version`` or before may be in what has been retired up to now."""
    h = Heap(heap)
    node = h.unstamped
    while node != 0:
        Node(node).version = version
        node = Node(node).following
    h.unstamped = 0


@kernel
def release(heap, safe):
    """Free what no reader at ``safe`` or later can be in."""
    h = Heap(heap)
    while h.first != h.unstamped and Node(h.first).version < safe:
        node = h.first
        n = Node(node)
        block, size = n.block, n.size
        h.first = n.following
        if h.first == 0:
            h.last = 0
        h.retired -= size
        inside = block <= node and node < block + size
        free(heap, block, size)
        if not inside:
            free(heap, node, i64(NODE))


assert Heap.size % LINE == 0
