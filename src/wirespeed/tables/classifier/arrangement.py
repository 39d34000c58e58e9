"""Which group each mask of a classifier is in: what Python knows of the groups, and their change for better ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wirespeed.core.arena import LINE
from wirespeed.errors import GraphError
from wirespeed.tables import prefix_trie as trie
from wirespeed.tables.classifier import build, rebuild
from wirespeed.tables.classifier.entry import Shape
from wirespeed.tables.classifier.order import MEMBER, ORDER, Member, Order, Table
from wirespeed.tables.classifier.plan import FEW, MOST_CHAIN, Field, Group, Sample, plan, split
from wirespeed.tables.classifier.prefixes import FIRST, FIXED, LENGTHS, Fixed, Prefixes
from wirespeed.tables.classifier.slots import Tuple
from wirespeed.tables.classifier.update import CROWDED
from wirespeed.tables.prefix_trie import Lpm

if TYPE_CHECKING:
    from wirespeed.tables.classifier.table import Classifier

SAMPLE = 1024  # entries of a mask that are looked at
UNREAD = -1  # the old groups have no version yet
SPARE = 64  # groups without entries that are borne


class Known(NamedTuple):
    """A group that there is: where, the bits that it looks at, and whether all of its entries have just these."""

    address: int
    mask: int
    field: Field | None
    exact: bool

    def takes(self, mask: int) -> int:
        """How well entries of a mask fit, a larger number being better; -1 if they do not."""
        if self.field:
            fits = mask & ~self.field.mask == self.mask and self.field.length(mask) >= 0
            return 64 * 64 if fits else -1
        return self.mask.bit_count() if self.mask & mask == self.mask else -1


class Groups:
    """Groups by where they are, and which takes a mask."""

    def __init__(self) -> None:
        self.all: dict[int, Known] = {}
        self.exact: dict[int, int] = {}  # address of each mask's own tuple
        self.shared: list[Known] = []

    def add(self, known: Known) -> int:
        """Have one more; return where it is."""
        self.all[known.address] = known
        if known.exact:
            self.exact[known.mask] = known.address
        else:
            self.shared.append(known)
        return known.address

    def best(self, mask: int) -> Known | None:
        """The group of several masks that fits entries of this one best, if any does."""
        best = max(self.shared, key=lambda known: known.takes(mask), default=None)
        return best if best and best.takes(mask) >= 0 else None


class Arrangement:
    """The groups of one classifier.

    Others are built when there are twice as many as the last time, or four times as many entries, or a quarter.  The
    entries have two links each, so this waits until no reader can be in the groups before.
    """

    def __init__(self, table: "Classifier") -> None:
        self.table = table
        self.known = Groups()
        self.length = 0  # entries,
        self.count = 0  # and groups when it was last looked whether others are better
        self.left: int | None = None  # readers at this version or before may be in old groups

    def groups(self) -> list[Known]:
        """Those that have entries, in the order in which they are searched."""
        order = Table.at(self.table.address).order
        members = (Member.at(order + ORDER + MEMBER * i).group for i in range(Order.at(order).length))
        return [self.known.all[group] for group in members if Tuple.at(group).length]

    def group_for(self, mask: int) -> tuple[int, int]:
        """The group into which entries of a new mask go, and how long they are as prefixes."""
        best = self.known.best(mask)
        if best is None:
            return self._exact(mask), 0
        return best.address, best.field.length(mask) if best.field else 0

    def leave(self, mask: int, shape: int) -> None:
        """Have the next entries of a mask be in a tuple of their own."""
        build.assign.function(shape, self._exact(mask), Shape.at(shape).bits)

    def _exact(self, mask: int) -> int:
        return self.known.exact.get(mask) or self._make_tuple(mask, 1, self.known)

    def settle(self, safe: int, current: int) -> None:
        """Hear from which version on no reader is in old groups; see :meth:`Classifier.reclaim`."""
        if self.left is not None:
            self.left = current if self.left == UNREAD else self.left
            if self.left < safe:
                self.left = None

    def improve(self) -> bool:
        """Build other groups if they are fewer, and there is none to wait for; whether it did."""
        length, count = len(self.table), len(self.known.all)
        same = count < 2 * self.count + 2 and self.length // 4 <= length <= 4 * max(self.length, FEW)
        if same or self.left is not None or not self._try(rebuild.retire_old.function):
            return False
        self.length, self.count = length, count
        samples = [self._sample(mask, shape) for mask, shape in self.table.shapes.items()]
        chunks = self.table.chunks
        wanted = plan(samples)
        if sum(_prefixes_size(group) for group in wanted if group.field) > (chunks.limit - chunks.size) // 2:
            wanted = plan(samples, prefixes=False)
        have = self.groups()
        fields = [group.field for group in wanted if group.field]
        better = len(wanted) < len(have) or len(fields) > sum(1 for known in have if known.field)
        if not better and count - len(have) < SPARE:
            return False
        try:
            self._build(wanted)
        except GraphError:  # no memory for it: what there is serves as well
            return False
        self.count = len(self.known.all)
        return True

    def _sample(self, mask: int, shape: int) -> Sample:
        length = Shape.at(shape).length
        rows = np.zeros((min(length, SAMPLE), 1 + self.table.words), np.uint64)
        build.sample.function(self.table.address, shape, rows.ctypes.data, len(rows))
        return Sample(mask, rows[:, 1:], rows[:, 0], length)

    def _build(self, wanted: list[Group]) -> None:
        """Link all entries into other groups, and have these searched."""
        table, shapes = self.table, self.table.shapes
        before = {shape: (Shape.at(shape).group, Shape.at(shape).bits) for shape in shapes.values()}
        known = Groups()
        try:
            for group in wanted:
                made = self._make_prefixes(group, known) if group.field else self._make_shared(group, known)
                for sample in group.samples:
                    bits = group.field.length(sample.mask) if group.field else 0
                    self._relink(sample.mask, shapes[sample.mask], made, bits, known)
            table.do(rebuild.exchange.function)
        except BaseException:
            rebuild.abandon.function(table.address)
            for shape, (address, bits) in before.items():
                build.assign.function(shape, address, bits)
            raise
        self.known, self.left = known, UNREAD
        for mask, shape in [(m, s) for m, s in shapes.items() if not Shape.at(s).length]:
            if self._try(build.retire_shape.function, shape):
                del shapes[mask]
        self._try(rebuild.retire_old.function)

    def _try(self, step: Callable[..., int], *arguments: int) -> bool:
        """Do what can wait; whether there was memory for it."""
        try:
            self.table.do(step, *arguments)
        except GraphError:
            return False
        return True

    def _relink(self, mask: int, shape: int, made: int, bits: int, known: Groups) -> None:
        """Link all entries of a shape into a group, or into a tuple of their own those that it does not take."""
        table = self.table
        rebuild.resume.function(table.address, build.assign.function(shape, made, bits))
        if table.do(rebuild.relink.function, shape, 0, refusal=CROWDED) == CROWDED:
            spare = self._make_tuple(mask, Shape.at(shape).length // 8 + 1, known, aside=True)
            table.do(rebuild.relink.function, shape, spare)
            build.assign.function(shape, spare, bits)

    def _make_tuple(self, mask: int, n: int, known: Groups, *, aside: bool = False, most: int = 0) -> int:
        make = build.make_tuple.function
        made = self.table.do(make, self.table.write(mask), n, most, int(aside))
        return known.add(Known(made, mask, None, most == 0))

    def _make_shared(self, group: Group, known: Groups) -> int:
        shared = MOST_CHAIN if group.mask else FEW
        most = shared if len(group.samples) > 1 else 0
        return self._make_tuple(group.mask, group.length, known, aside=True, most=most)

    def _make_prefixes(self, group: Group, known: Groups) -> int:
        assert group.field
        field, fixed = group.field, split(group.mask)
        capacity, blocks = _room(group)
        made = self.table.do(build.make_prefixes.function, _prefixes_size(group))
        known.add(Known(made, group.mask, field, False))
        record = Prefixes.at(made)
        record.heads = made + _whole_lines(FIRST + FIXED * len(fixed))
        record.trie = record.heads + _whole_lines(8 * (capacity + 1))
        trie.lay_out(record.trie, capacity, blocks, own=True)
        record.slots = Lpm.at(record.trie).slots
        record.offset, record.shift, record.spare = 8 * field.word, field.shift, 32 - field.bits
        record.fixed = len(fixed)
        for i, word in enumerate(fixed):
            one = Fixed.at(made + FIRST + FIXED * i)
            one.offset, one.mask = 8 * word, group.mask >> 64 * word & (1 << 64) - 1
            one.value = int(group.samples[0].rows[0, word]) & one.mask
        record.low[:], record.high[:] = [1 << 16] * LENGTHS, [-1] * LENGTHS
        return made


def _whole_lines(size: int) -> int:
    return -(-size // LINE) * LINE


def _room(group: Group) -> tuple[int, int]:
    """How many prefixes and blocks a trie for a group has: what it needs, and as much again."""
    return min(2 * group.length + 64, trie.MOST_NODES), min(2 * group.blocks + 64, trie.MOST_BLOCKS)


def _prefixes_size(group: Group) -> int:
    """The bytes of a set of prefixes with its trie."""
    capacity, blocks = _room(group)
    head = _whole_lines(FIRST + FIXED * len(split(group.mask)))
    return head + _whole_lines(8 * (capacity + 1)) + trie.size(capacity, blocks)
