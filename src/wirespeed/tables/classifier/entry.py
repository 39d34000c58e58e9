"""One entry of a classifier, and its shape: which bits of a flow it looks at.

Theory of operation
-------------------
Entries with the same mask share a *shape*, the list of the words that the mask has bits in.  An entry is two things: what
readers look at, with the words of its value behind, as many as the shape has; then, on a place that the shape knows,
what only the writer needs.  An entry is there for a reader at version v when ``since <= v < until``.
"""

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables.classifier.heap import Node

i64, u64 = np.int64, np.uint64

FOREVER = (1 << 63) - 1  # ``until`` of what has no end

Entry = layout(
    "ClassifierEntry",
    [
        ("since", "i8"),  # written before the entry is linked
        ("until", "i8"),  # by the writer, at any time
        ("next0", "i8"),  # the one behind it in its chain, or 0,
        ("next1", "i8"),  # and in that of a structure that is built aside
        ("shape", "i8"),  # address of its Shape
        ("data", "i8"),  # the user's
        ("priority", "u4"),
        ("digest", "u4"),  # of the bits that its tuple looks at, if it is in one
    ],
)
VALUE = Entry.size  # the value's words follow, in the order of the shape's

Tail = layout(
    "ClassifierTail",
    [
        ("node", Node),  # ``following`` chains what has an end; then it is retired
        ("group", "i8"),  # address of the one it is in
        ("previous", "i8"),  # the one before it in its chain, or 0
        ("older", "i8"),  # in the list of its shape
        ("newer", "i8"),
        ("expired", "i8"),  # 1 while it is in the list of those with an end
    ],
)

Shape = layout(
    "ClassifierShape",
    [
        ("words", "i8"),  # how many words of a flow have bits in the mask
        ("tail", "i8"),  # bytes from an entry to its Tail
        ("size", "i8"),  # bytes of an entry with all
        # for the writer
        ("bits", "i8"),  # how long a prefix, if its group is a set of prefixes
        ("length", "i8"),  # entries
        ("oldest", "i8"),
        ("newest", "i8"),
        ("group", "i8"),  # where new ones go
    ],
)
assert Shape.size == LINE
SHAPE = Shape.size
Part = layout("ClassifierPart", [("offset", "i8"), ("mask", "u8")])  # in bytes from the flow; they follow the shape
PART = Part.size
Link = layout("ClassifierLink", [("to", "i8")])  # ``next0`` or ``next1``


@kernel(inline=True)
def tail_of(entry):
    """The writer's part of an entry."""
    return Tail(entry + Shape(Entry(entry).shape).tail)


@kernel(inline=True)
def visible(e, version):
    """Whether an entry is there at a version."""
    return e.since <= version and version < load_relaxed(e, "until")


@kernel(inline=True)
def matches(entry, flow):
    """Whether the flow, u8[words] at an address, has the entry's value under the entry's mask."""
    shape = Entry(entry).shape
    part, value = shape + SHAPE, entry + VALUE
    odd = u64(0)
    for _ in range(Shape(shape).words):
        p = Part(part)
        # Relaxed, which is plain, keeps LLVM from vectorising the few words of an entry.
        odd |= (load_u64(flow + load_relaxed(p, "offset")) & p.mask) ^ load_u64(value)
        part += PART
        value += 8
    return odd == u64(0)
