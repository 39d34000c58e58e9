"""Which groups a classifier's entries should be in: the fewest that keep chains short.

Theory of operation
-------------------
Each group costs every look-up a probe, each entry of a chain a comparison.  Masks are put together into one tuple that looks
at the bits which they share, as long as few entries are the same in these (the idea of TupleMerge; here what is
the same is counted in the entries, so that nothing need be known of fields): first the pair that shares most bits.
Up to eight entries with different masks are one chain, found without a hash.

Masks that differ only in how many leading bits of one field they have, with priorities that rise with these,
are a set of prefixes.

Source: J. Daly et al., "TupleMerge: Fast Software Packet Processing for Online Packet Classification", IEEE/ACM ToN 2019.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.uint64]]

FEW = 8  # entries that are one chain
# Of a tuple that has several masks: most entries of a chain, and of the chain that an entry finds itself in on average.
# Shorter ones need more groups, longer ones were faster still on average; but somebody may send what meets the longest.
MOST_CHAIN = 16
MEAN_CHAIN = 4.0
EVALUATIONS = 2000  # pairs of groups that are looked at, and two more for each mask;
PAIRS = 1 << 16  # that are thought of
NEIGHBOURS = 256  # of a group that was put together
FIELD = 32  # most bits of a field
LEAST_PREFIXES = 32  # entries that are worth a trie
LEAST_LENGTHS = 3
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class Field:
    """``bits`` bits of a flow's word ``word`` from ``shift`` on, of which entries have the leading ones."""

    word: int
    shift: int
    bits: int

    @property
    def mask(self) -> int:
        """All of its bits in a flow."""
        return (1 << self.bits) - 1 << self.shift + 64 * self.word

    def length(self, mask: int) -> int:
        """How many leading bits of the field a mask has, or -1 if it has others too."""
        have = (mask & self.mask) >> self.shift + 64 * self.word
        lacking = (1 << self.bits) - 1 ^ have
        return -1 if lacking & lacking + 1 else self.bits - lacking.bit_length()


@dataclass(frozen=True, eq=False)
class Sample:
    """A mask's entries, or the first ones of many: a row is the words of a value."""

    mask: int
    rows: Rows
    priorities: Rows
    length: int  # entries that there are


@dataclass(eq=False)
class Group:
    """What is to be one group: the bits that it looks at, and the masks of its entries.

    With a field, ``mask`` is that of the fixed words; ``blocks`` is how many blocks its trie needs.
    """

    mask: int
    samples: list[Sample]
    field: Field | None = None
    blocks: int = 0

    @property
    def length(self) -> int:
        """How many entries it will have."""
        return sum(sample.length for sample in self.samples)

    @property
    def rows(self) -> Rows:
        """All rows of the samples."""
        return np.concatenate([sample.rows for sample in self.samples])


def plan(samples: Iterable[Sample], *, prefixes: bool = True) -> list[Group]:
    """The groups for the entries of these masks; without sets of prefixes, if so wanted."""
    samples = [sample for sample in samples if sample.length]
    if len(samples) > 1 and sum(sample.length for sample in samples) <= FEW:
        return [Group(0, samples)]
    families = prefix_sets(samples) if prefixes else []
    taken = {sample.mask for family in families for sample in family.samples}
    return families + merge([Group(s.mask, [s]) for s in samples if s.mask not in taken])


def split(mask: int) -> list[int]:
    """The words of a mask that have bits, by their numbers."""
    return [i for i in range((mask.bit_length() + 63) // 64) if mask >> 64 * i & _MASK64]


def same(mask: int, rows: Rows) -> Rows:
    """How many rows have the same value under a mask, for each such value."""
    keys = np.zeros(len(rows), np.uint64)
    for i in split(mask):
        word = rows[:, i] & np.uint64(mask >> 64 * i & _MASK64)
        keys = (keys ^ word ^ word >> np.uint64(32)) * _ODD
        keys ^= keys >> np.uint64(29)
    _, counts = np.unique(keys, return_counts=True)
    return counts.astype(np.uint64)


def crowded(group: Group) -> bool:
    """Whether the chains of a group would be too long."""
    if len(group.samples) == 1:
        return False
    if group.length > MOST_CHAIN << min(group.mask.bit_count(), 40):
        return True
    counts = same(group.mask, group.rows)
    return bool(counts.max() > MOST_CHAIN or (counts * counts).sum() > MEAN_CHAIN * counts.sum())


def merge(groups: list[Group]) -> list[Group]:
    """Put groups together, those first that share most bits."""
    alive = dict(enumerate(groups))
    apart: dict[int, set[int]] = {i: set() for i in alive}
    # Two masks with the same neighbours in numerical order share their upper words; of many, only those are tried.
    near = sorted(alive, key=lambda i: groups[i].mask)
    some = PAIRS // max(len(near), 1) + 1
    heap = [_pair(groups, i, j) for n, i in enumerate(near) for j in near[n + 1 : n + some]]
    heapq.heapify(heap)
    left = EVALUATIONS + 2 * len(groups)
    while heap and left:
        _, i, j = heapq.heappop(heap)
        if i not in alive or j not in alive or j in apart[i]:
            continue
        left -= 1
        both = Group(groups[i].mask & groups[j].mask, groups[i].samples + groups[j].samples)
        if crowded(both):
            # Nor will any group that has both do: it looks at fewer bits of more entries.
            apart[i].add(j)
            apart[j].add(i)
            continue
        new = len(groups)
        groups.append(both)
        apart[new] = apart.pop(i) | apart.pop(j)
        for k in apart[new] & apart.keys():
            apart[k].add(new)
        del alive[i], alive[j]
        for k in islice(alive, NEIGHBOURS):
            heapq.heappush(heap, _pair(groups, k, new))
        alive[new] = both
    return list(alive.values())


def _pair(groups: list[Group], i: int, j: int) -> tuple[int, int, int]:
    return -(groups[i].mask & groups[j].mask).bit_count(), i, j


def prefix_sets(samples: list[Sample]) -> list[Group]:
    """The sets of prefixes among masks, the largest first, no mask in two."""
    by_rest: defaultdict[tuple[int, int], list[Sample]] = defaultdict(list)
    words = {i for sample in samples for i in split(sample.mask)}
    for sample in samples:
        for i in words:
            by_rest[i, sample.mask & ~(_MASK64 << 64 * i)].append(sample)
    found = [g for (word, _), some in by_rest.items() if len(some) >= LEAST_LENGTHS if (g := _prefix_set(word, some))]
    sets: list[Group] = []
    taken: set[int] = set()
    for group in sorted(found, key=lambda g: -g.length):
        masks = {sample.mask for sample in group.samples}
        if not masks & taken:
            taken |= masks
            sets.append(group)
    return sets


def _prefix_set(word: int, samples: list[Sample]) -> Group | None:
    """The set of prefixes that masks which differ in one word are, or None."""
    masks = sorted((s.mask for s in samples), key=int.bit_count)
    longest, shortest = (m >> 64 * word & _MASK64 for m in (masks[-1], masks[0]))
    differ = longest & ~shortest
    low = (differ & -differ).bit_length() - 1
    # The field is the run of bits above the lowest that differs, or as much of it as a field may have.
    run = longest >> low
    field = Field(word, low, min(FIELD, (~run & run + 1).bit_length() - 1))
    fixed = longest << 64 * word & ~field.mask | masks[-1] & ~(_MASK64 << 64 * word)
    members = _rising(
        _alike([s for s in samples if s.mask & ~field.mask == fixed and field.length(s.mask) >= 0], fixed)
    )
    group = Group(fixed, members, field)
    if len(members) < LEAST_LENGTHS or group.length < LEAST_PREFIXES:
        return None
    group.blocks = sum(_blocks(group, field, level) for level in (16, 24))
    return group


def _alike(samples: list[Sample], fixed: int) -> list[Sample]:
    """Those of which all entries have the fixed bits that the mask with the most entries has."""
    most = max(samples, key=lambda sample: sample.length)
    return [s for s in samples if len(same(fixed, np.concatenate([most.rows[:1], s.rows]))) == 1]


def _rising(samples: list[Sample]) -> list[Sample]:
    """Those whose priorities rise with the lengths of their prefixes, beginning with the longest ones."""
    kept: list[Sample] = []
    for sample in sorted(samples, key=lambda s: -s.mask.bit_count()):
        if not kept or sample.priorities.max() <= kept[-1].priorities.min():
            kept.append(sample)
    return kept


def _blocks(group: Group, field: Field, level: int) -> int:
    """How many blocks of a trie the prefixes longer than ``level`` bits need, at least."""
    blocks = 0
    for sample in group.samples:
        if field.length(sample.mask) > level:
            keys = sample.rows[:, field.word] >> np.uint64(field.shift + field.bits - level) & np.uint64(
                (1 << level) - 1
            )
            blocks += len(np.unique(keys)) * sample.length // len(sample.rows)
    return blocks
