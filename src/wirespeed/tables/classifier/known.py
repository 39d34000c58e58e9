"""Code for a classifier whose first groups are known when it is compiled.

Theory of operation
-------------------
:func:`describe` says which groups a look-up searches first, and the words that each looks at; :func:`source` makes of these a
look-up in which they are constants, so that its loops unroll.  Which group of the order is which of the known ones, it
sees by their numbers, which it is given at run time and which no other group ever has.  So the code is right whatever
happens to the classifier (a group that it does not know is searched in the usual way), and worth making again when
:func:`describe` gives other words.

Source: compiling what changes rarely, as in L. Molnár et al., "Dataplane Specialization for High-performance OpenFlow
Software Switching" (ESwitch), SIGCOMM 2016.
"""

import inspect
from collections.abc import Sequence
from typing import NamedTuple

from wirespeed.tables.classifier.entry import VALUE
from wirespeed.tables.classifier.plan import split
from wirespeed.tables.classifier.slots import LANE, LANES, Tuple, probe
from wirespeed.tables.classifier.table import Classifier


class Described(NamedTuple):
    """One group: its number and address; which bits of which words it looks at; whether all entries have just these."""

    number: int
    address: int
    words: tuple[tuple[int, int], ...]  # number of a word, mask
    exact: bool
    prefixes: bool


def describe(classifier: Classifier, most: int) -> list[Described]:
    """The first groups with entries, up to ``most``, in the order in which a look-up searches them."""
    return [
        Described(
            Tuple.at(group.address).number,
            group.address,
            tuple((word, group.mask >> 64 * word & (1 << 64) - 1) for word in split(group.mask)),
            group.exact,
            group.field is not None,
        )
        for group in classifier.groups()[:most]
    ]


def source(name: str, known: Sequence[Described]) -> str:
    """The text of a module with the kernel ``name(table, flow, version, numbers)``: a look-up that knows groups.

    ``numbers`` is the address of their numbers, u4 each; the same text serves others with the same words.
    """
    tuples = [(i, group) for i, group in enumerate(known) if group.words and not group.prefixes]
    branches = [
        f"        {'elif' if n else 'if'} number == load_u32(numbers + {4 * i}):\n"
        f"            found = probe{i}(m.group, digest{i}(m.group, flow), flow, version, priority)\n"
        for n, (i, _) in enumerate(tuples)
    ]
    if branches:
        branches += ["        else:\n", "            found = search_member(member, flow, version, priority)\n"]
    else:
        branches = ["        found = search_member(member, flow, version, priority)\n"]
    probes = "\n\n".join(_probe_text(i, group) for i, group in tuples)
    return _TEXT.format(name=name, probes=probes, branches="".join(branches))


def _probe_text(i: int, group: Described) -> str:
    """The text of the kernels ``digest`` and ``probe`` of a group, with its words as constants."""
    added = "".join(
        f"    l = Lane(tuple_ + {LANES + LANE * n})\n    total += mix(flow, {8 * word}, u64({mask:#x}), l.low, l.high)\n"
        for n, (word, mask) in enumerate(group.words)
    )
    text = inspect.getsource(probe.py_func).replace("def probe(", f"def probe{i}(", 1)
    if group.exact:
        odd = " | ".join(
            f"(load_u64(flow + {8 * word}) & u64({mask:#x}) ^ load_u64(entry + {VALUE + 8 * n}))"
            for n, (word, mask) in enumerate(group.words)
        )
        text = text.replace("matches(entry, flow)", f"{odd} == u64(0)")
    return _DIGEST.format(number=i, added=added) + text


_DIGEST = """\
@kernel(inline=True)
def digest{number}(tuple_, flow):
    total = Tuple(tuple_).seed
{added}    return u32(total >> u64(32))


"""

_TEXT = '''\
"""A look-up in a classifier with known groups."""

import numpy as np

from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import load_u32, load_u64
from wirespeed.jit.kernel import kernel
from wirespeed.tables.classifier.entry import Entry, Link, matches, visible
from wirespeed.tables.classifier.order import MEMBER, ORDER, Member, Order, Table, bound_of
from wirespeed.tables.classifier.search import search_member
from wirespeed.tables.classifier.slots import ADDRESS, Lane, Slot, Tuple, base_of, mask_of, mix

u32, i64, u64 = np.uint32, np.int64, np.uint64


{probes}

@kernel
def {name}(table, flow, version, numbers):
    """The best entry for a flow at a version, or 0."""
    order = load_acquire(Table(table), "order")
    member = order + ORDER
    end = member + MEMBER * load_acquire(Order(order), "length")
    best, priority = i64(0), i64(-1)
    while member < end and bound_of(member) > priority:
        m = Member(member)
        number = m.number
{branches}        if found != 0:
            best, priority = found, i64(Entry(found).priority)
        member += MEMBER
    return best
'''
