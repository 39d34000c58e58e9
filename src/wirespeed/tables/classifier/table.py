"""The class of classifiers: entries with masks and priorities, changed by one thread while others look up."""

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.errors import GraphError
from wirespeed.tables.classifier import arrangement, build, search, update
from wirespeed.tables.classifier.chunks import Chunks
from wirespeed.tables.classifier.entry import Entry, Shape
from wirespeed.tables.classifier.order import Table
from wirespeed.tables.classifier.update import CROWDED, FULL

MOST_WORDS = 40
MOST_PRIORITY = 0xFFFF
MOST_MASKS = 1 << 14
_LENGTH = Table.offset("length") // 8  # number of this field among words


class Classifier:
    """Entries of a value, a mask and a priority, over flows of ``words`` 64-bit words.

    In Python a flow, a value or a mask is one integer, word 0 lowest.  The kernel :func:`~.search.lookup` gets
    ``address``.  One thread may change the table while any number look up.

    At most ``limit`` entries, those not yet reclaimed included, in at most ``memory`` bytes; a :class:`GraphError` says
    that there is no more room, and nothing has changed then.  ``seed`` makes the hashes the same each time, for tests.
    """

    def __init__(self, words: int, *, limit: int = 1 << 20, memory: int = 1 << 32, seed: int | None = None) -> None:
        if not 1 <= words <= MOST_WORDS:
            raise GraphError(f"a classifier's flow has 1 to {MOST_WORDS} words, got {words}")
        if limit < 1:
            raise GraphError(f"a classifier's limit must be 1 entry or more, got {limit}")
        self.words = words
        self._size = 8 * words
        self.shapes: dict[int, int] = {}  # address of each mask's Shape
        seeds = 8 + 2 * self._size
        # What lives as long as the classifier, and is no larger for more entries.
        home = Arena(4 * Table.size + 4 * self._size + 2 * seeds)
        self.address = home.alloc(Table.size)
        self.chunks = Chunks(
            memory,
            lambda chunk, size: build.extend.function(self.address, chunk, size),
            lambda block, size: build.give.function(self.address, block, size),
        )
        self.chunks.arenas.append(home)
        record = Table.at(self.address)
        record.words, record.limit = words, limit
        record.value, record.flow = home.alloc(self._size), home.alloc(self._size)
        record.tombstone = home.alloc(Entry.size)  # all zeros: it ends before it begins
        record.seeds = home.alloc(seeds)
        random = os.urandom(seeds) if seed is None else np.random.default_rng(seed).bytes(seeds)
        ctypes.memmove(record.seeds, random, seeds)
        self._flow_at = record.flow
        self._value, self._flow = (_memory(at, self._size) for at in (record.value, record.flow))
        self._record = _memory(self.address, Table.size).cast("q")
        self._insert, self._expire = update.insert.function, update.expire.function
        self._reclaim, self._look = update.reclaim.function, search.look.function
        self.do(build.begin.function)
        self._arranged = arrangement.Arrangement(self)

    def insert(self, value: int, mask: int, priority: int, since: int, data: int = 0) -> int:
        """Add an entry that is there from version ``since`` on; return its address, that of an ``Entry``.

        It may have the value, mask and priority of another: which of two is found that are there at once is not said.
        """
        if value & mask != value:
            raise GraphError(f"a value has no bits outside of its mask; got {value:#x} with mask {mask:#x}")
        if not 0 <= priority <= MOST_PRIORITY:
            raise GraphError(f"priority must be 0 to {MOST_PRIORITY}, got {priority}")
        shape = self.shapes.get(mask) or self._make_shape(mask)
        self._value[:] = value.to_bytes(self._size, "little")
        entry = self._insert(self.address, shape, priority, since, data)
        return entry if entry > 0 else self._insert_anyhow(value, mask, shape, priority, since, data)

    def _insert_anyhow(self, value: int, mask: int, shape: int, priority: int, since: int, data: int) -> int:
        """Insert what needs memory first, or a group of its own."""
        entry = self.do(self._insert, shape, priority, since, data, refusal=CROWDED)
        if entry == CROWDED:
            self._arranged.leave(mask, shape)
            self._value[:] = value.to_bytes(self._size, "little")
            entry = self.do(self._insert, shape, priority, since, data)
        return entry

    def expire(self, entry: int, until: int) -> None:
        """End an entry: readers at version ``until`` or later do not see it.  ``FOREVER`` takes that back."""
        self._expire(self._open(), entry, until)

    def reclaim(self, safe: int, current: int) -> int:
        """Use memory again: every reader is at version ``safe`` or later, and none can have read one above ``current``.

        Entries with an end at ``safe`` or before are unlinked; return how many.  Their addresses mean nothing from here
        on.  Their memory is used again by a later call, with ``safe`` above this call's ``current``, for readers may be
        walking over them now.  Without readers, ``reclaim(current + 1, current)`` does both.
        """
        done: int = self._reclaim(self._open(), safe, current)
        self._arranged.settle(safe, current)
        return done

    def arrange(self) -> bool:
        """Put the entries into other groups if that makes searching shorter; return whether it did.

        For the writer to call when it has made many changes, before it publishes them.  It takes microseconds when
        nothing is to be gained, else about one for each entry; and it waits for a :meth:`reclaim` that says that no
        reader is in what the last one left.
        """
        self._open()
        return self._arranged.improve()

    def lookup(self, flow: int, version: int) -> int:
        """The address of the entry of the highest priority that matches a flow at a version, or 0.

        For the thread that changes the table; others call the kernel.
        """
        at = self._open()
        try:
            self._flow[:] = flow.to_bytes(self._size, "little")
        except OverflowError:
            raise GraphError(f"a flow has {self.words} words of 64 bits, got {flow:#x}") from None
        found: int = self._look(at, self._flow_at, version)
        return found

    def entries(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The addresses of all entries, those that wait to be reclaimed included; by mask, in the order of insertion."""
        self._open()
        shapes = [(s, Shape.at(s).length) for s in self.shapes.values()]
        addresses = np.zeros(sum(length for _, length in shapes), np.int64)
        at = addresses.ctypes.data
        for shape, length in shapes:
            build.collect.function(shape, at)
            at += 8 * length
        return addresses

    def tuples(self) -> list[int]:
        """The masks of the groups that hold entries, in the order in which a look-up searches them.

        That of a set of prefixes has all bits of its field.
        """
        return [g.mask | (g.field.mask if g.field else 0) for g in self.groups()]

    def groups(self) -> list[arrangement.Known]:
        """What is known of the groups that hold entries, in the order in which a look-up searches them."""
        self._open()
        return self._arranged.groups()

    def _make_shape(self, mask: int) -> int:
        if not 0 <= mask < 1 << 64 * self.words:
            raise GraphError(f"a mask has {self.words} words of 64 bits, got {mask:#x}")
        if len(self.shapes) >= MOST_MASKS:
            raise GraphError(f"a classifier has at most {MOST_MASKS} different masks, {mask:#x} would be one more")
        self._open()
        group, bits = self._arranged.group_for(mask)
        shape = self.do(build.make_shape.function, self.write(mask), group, bits)
        self.shapes[mask] = shape
        return shape

    def write(self, mask: int) -> int:
        """Write a mask into the table's buffer; return where that is."""
        self._value[:] = mask.to_bytes(self._size, "little")
        return int(Table.at(self.address).value)

    def do(self, step: Callable[..., int], *arguments: int, refusal: int = 0) -> int:
        """Call what may lack memory until it does not; what it says in return, or ``refusal`` if it says that."""
        while (result := step(self.address, *arguments)) < 0:
            if refusal and result == refusal:
                break
            if result == FULL:
                raise GraphError(f"the classifier is full with {len(self)} entries; make its limit larger, or reclaim")
            self.chunks.grow(-result)
        return result

    def close(self) -> None:
        """Unmap the memory; no reader may be in it, and nothing of it be used afterwards.  Closing twice is harmless."""
        self.address = 0
        self.shapes.clear()
        self.chunks.close()

    def _open(self) -> int:
        if not self.address:
            raise GraphError("this classifier is closed; use it before it is, or make another")
        return self.address

    def __len__(self) -> int:
        self._open()
        return self._record[_LENGTH]

    def __enter__(self) -> "Classifier":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")
