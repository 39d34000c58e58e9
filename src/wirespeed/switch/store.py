"""All rules of a switch, and how a change of them becomes visible.

Theory of operation
-------------------
A change is prepared for the version after the one in force: new entries begin with it, old ones end with it, and then
it is published (:mod:`wirespeed.switch.publish`).  Several changes prepared together, a bundle, become visible at
once; when one of them cannot be done, it is undone, and so are all when the bundle fails: nobody has seen any.  What
undoes a step is noted before the step, so that Ctrl-C between any two of them leaves the tables as they were; only what
a classifier was given in that moment must be looked for (:meth:`Store._sweep`).

What matters of a flow (:mod:`wirespeed.switch.live`) grows before the rules that need it are visible.  What a change is
about goes into the log: a single rule's match, less what programs may have written before the look-up; anything more
is "all".

Thread rules: one thread at a time, under the switch's lock.
"""

import ctypes
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch import publish
from wirespeed.switch.counters import Counters
from wirespeed.switch.fields import FLOW_SIZE, PORT_MAX, WORDS
from wirespeed.switch.heap import Heap
from wirespeed.switch.live import LiveBits
from wirespeed.switch.memory import (
    ALL_CHANGED,
    MOST_TABLE,
    ONE_OUTPUT,
    SOME_CHANGED,
    TABLE_RECORD,
    TABLES,
    RuleRecord,
    Shared,
    TableRecord,
)
from wirespeed.switch.program import OUTPUT
from wirespeed.switch.rule import CHECK_OVERLAP, RESET_COUNTS, Rule
from wirespeed.tables.classifier import FOREVER, Classifier, Entry

RECLAIM_EVERY = 256  # changes
MOST_RULES = 1 << 20
_RECORD = struct.Struct("<QQIIII")
assert _RECORD.size == RuleRecord.size
_MODIFIED = ("actions", "entry", "record", "size", "reads", "modified", "base_packets", "base_bytes", "seen_packets")
_Step = tuple[Any, ...]  # what is called, and its arguments: one object, for a bundle may have a million


class Store:
    """The tables of one switch.  ``places`` resolves what actions name; see :class:`wirespeed.switch.switch.Switch`."""

    def __init__(self, shared: int, heap: Heap, counters: Counters, places: Any) -> None:
        self.shared, self.heap, self.counters, self.places = shared, heap, counters, places
        self.tables: list[dict[tuple[int, int, int], Rule]] = [{} for _ in range(TABLES)]
        self.classifiers: dict[int, Classifier] = {}
        self.live = LiveBits()
        self.version = 1
        self.length = 0
        self.instances = 0
        self.on_removed: Callable[[Rule, str], None] | None = None
        self.on_shape: Callable[[], None] | None = None
        self._since_reclaim = 0
        self._written = 0  # bits that some action may write, of any rule that ever was
        self._terms = (ctypes.c_char * (2 * FLOW_SIZE))()
        self._terms_at = ctypes.addressof(self._terms)
        self._programs: dict[tuple[Any, ...], tuple[bytes, int, int, int]] = {}
        self._pending: deque[_Step] = deque()  # what is done once the change is visible
        self._undo: list[_Step] = []
        self._change: tuple[int, int] | None = None
        self._changes = 0
        self._depth = 0
        self._publish = publish.publish.function
        self._drop_reads, self._free, self._give = self.live.remove, heap.free, counters.give  # one object each
        self._show_live()

    # Changes.

    @contextmanager
    def bundle(self) -> Iterator[None]:
        """What is changed inside becomes visible at once at its end; when that is an error, nothing was changed."""
        mark, depth = self._mark(), self._depth
        try:
            self._depth = depth + 1
            yield
            self._depth = depth
        except BaseException as error:
            self._depth = depth
            self._back_to(mark, error)
            raise
        self._finish()

    def on_undo(self, step: Callable[..., object], *arguments: Any) -> None:
        """Have this done if the bundle under way fails; the last that was noted comes first."""
        self._undo.append((step, *arguments))

    def afterwards(self, step: Callable[..., object], *arguments: Any) -> None:
        """Have this done when the bundle under way has become visible."""
        self._pending.append((step, *arguments))

    def _mark(self) -> tuple[int, int, tuple[int, int] | None, int]:
        return len(self._undo), len(self._pending), self._change, self._changes

    def _back_to(self, mark: tuple[int, int, tuple[int, int] | None, int], error: BaseException) -> None:
        """Undo what was prepared since a mark."""
        undo, pending, self._change, self._changes = mark
        while len(self._undo) > undo:
            step, *arguments = self._undo.pop()
            step(*arguments)
        while len(self._pending) > pending:
            self._pending.pop()
        if not isinstance(error, Exception):
            self._sweep()

    def _sweep(self) -> None:
        """End the entries that an interrupted step may have begun and nobody has noted."""
        for table, classifier in self.classifiers.items():
            known = {rule.entry for rule in self.tables[table].values()}
            for address in map(int, classifier.entries()):
                if Entry.at(address).since > self.version and address not in known:
                    classifier.expire(address, 0)
        self.length = sum(map(len, self.tables))

    def _finish(self) -> None:
        """Make all that was prepared visible, unless more of a bundle is to come."""
        if self._depth:
            return
        if self._changes:
            self._publish_change()
        self._undo.clear()
        self._change, self._changes = None, 0
        failure = None
        while self._pending:
            step, *arguments = self._pending.popleft()
            try:
                step(*arguments)
            except Exception as error:  # of who is told that a rule ended; the steps behind it are done all the same
                failure = failure or error
        if failure is not None:
            raise failure

    def touch_all(self) -> None:
        """Something that any flow may depend on has changed: a port, a group, a table's way with a miss."""
        record = Shared.at(self.shared)
        record.config = int(record.config) + 1
        self._changes += 2
        self._finish()

    def _publish_change(self) -> None:
        kind = ALL_CHANGED
        if self._changes == 1 and self._change is not None:
            value, mask = self._change
            if mask & self._written:
                mask &= ~self._written
                value &= mask
            self._terms.raw = value.to_bytes(FLOW_SIZE, "little") + mask.to_bytes(FLOW_SIZE, "little")
            kind = SOME_CHANGED
        self.version += 1
        self._publish(self.shared, self.version, kind, self._terms_at)
        self._since_reclaim += 1
        if self._since_reclaim >= RECLAIM_EVERY:
            self.reclaim()

    def reclaim(self) -> int:
        """Use memory again that no worker can be in; return the version that all workers are at, or later."""
        self._since_reclaim = 0
        states = self.counters.states
        safe = publish.oldest_of(states, self.version)
        self.heap.reclaim(safe)
        for classifier in self.classifiers.values():
            classifier.reclaim(safe, self.version)
            classifier.arrange()  # microseconds, unless a shorter way to search has become worth it
        return safe

    def _note(self, rule: Rule) -> None:
        self._change = (rule.match.value, rule.match.mask)
        self._changes += 1

    # What is visible of a rule.

    def program_of(self, actions: tuple[Any, ...]) -> tuple[bytes, int, int, int]:
        """(words as bytes, bits read, bits written, flags) of a rule's actions."""
        known = self._programs.get(actions)
        if known is None:
            words = [word for action in actions for word in action.encode(self.places)]
            reads = writes = 0
            for action in actions:
                reads |= action.reads
                writes |= action.writes
            if len(self._programs) > 65536:
                self._programs.clear()
            program = struct.pack(f"<{len(words) + 1}Q", *words, 0)
            known = (program, reads, writes, one_output(program))
            self._programs[actions] = known
        return known

    def forget_programs(self) -> None:
        """What actions name has changed its place: encode them anew."""
        self._programs.clear()

    def _place(self, rule: Rule) -> None:
        """Give readers a rule from the next version on."""
        program, reads, writes, flags = self.program_of(rule.actions)
        if writes & ~self._written:
            self._written |= writes
            self._changes += 2  # what the log says of older versions no longer holds
        rule.reads = reads | rule.match.mask
        self.want(rule.reads, 0)
        self._undo.append((self._drop_reads, rule.reads))
        self.instances += 1
        rule.size = _RECORD.size + len(program)
        rule.record = self.heap.alloc(rule.size)
        self._undo.append((self._free, rule.record, rule.size, self.version))
        head = _RECORD.pack(
            rule.record + _RECORD.size,
            rule.cookie,
            rule.number,
            self.instances & 0xFFFFFFFF,
            rule.table,
            rule.flags | flags,
        )
        ctypes.memmove(rule.record, head + program, rule.size)
        classifier = self.classifiers.get(rule.table) or self._make_table(rule.table)
        rule.entry = classifier.insert(rule.match.value, rule.match.mask, rule.priority, self.version + 1, rule.record)
        self._undo.append((classifier.expire, rule.entry, 0))

    def _make_table(self, table: int) -> Classifier:
        classifier = self.classifiers[table] = Classifier(WORDS, limit=2 * MOST_RULES)
        at = Shared.at(self.shared).tables + TABLE_RECORD * table
        publish.show.function(at + TableRecord.offset("classifier"), classifier.address)
        return classifier

    def _show_live(self) -> None:
        record = self.live.record()
        address = self.heap.write(record)
        old = int(Shared.at(self.shared).live)
        publish.show.function(self.shared + Shared.offset("live"), address)
        if old:
            self.heap.free(old, len(record), self.version + 1)
        if self.on_shape is not None:
            self.on_shape()

    def want(self, reads: int, writes: int) -> None:
        """Count what a rule or a group looks at, and note what it changes."""
        self._written |= writes
        if self.live.add(reads):
            try:
                self._show_live()
            except BaseException:
                self.live.remove(reads)
                raise

    def unwant(self, reads: int) -> None:
        """Take back what a group looked at."""
        self.live.remove(reads)

    def _unplace(self, record: int, size: int, reads: int) -> None:
        """Give back what readers had of a rule, after it has ended."""
        self.heap.free(record, size, self.version)
        self.live.remove(reads)

    # Rules.

    def holds(self, rule: Rule) -> bool:
        """Whether a rule is there: not removed, replaced, or undone."""
        return self.tables[rule.table].get(rule.key) is rule

    def add(self, rule: Rule) -> Rule:
        """Add a rule, in place of one with the same table, priority and match; return it."""
        rules, key = self.tables[rule.table], rule.key
        old = rules.get(key)
        if self.length >= MOST_RULES and old is None:
            raise GraphError(f"a switch has at most {MOST_RULES} rules; remove some first")
        if rule.flags & CHECK_OVERLAP:
            self._check_overlap(rule)
        mark = self._mark()
        try:
            if old is not None:
                if not rule.flags & RESET_COUNTS:
                    rule.base_packets, rule.base_bytes = old.base_packets, old.base_bytes
                    rule.number, rule.seen_packets = old.number, old.seen_packets
                self._end(old)
            if not rule.number:
                rule.number, rule.base_packets, rule.base_bytes = self.counters.take()
                self._undo.append((self._give, rule.number))
            self._place(rule)
            if old is None:
                self._undo.append((self._undo_add, rule))
                rules[key] = rule
                self.length += 1
            else:
                self._undo.append((rules.__setitem__, key, old))
                rules[key] = rule
                if old.number != rule.number:
                    self._pending.append((self._give, old.number))
            self._note(rule)
        except BaseException as error:
            self._back_to(mark, error)
            raise
        self._finish()
        return rule

    def _undo_add(self, rule: Rule) -> None:
        if self.tables[rule.table].pop(rule.key, None) is not None:
            self.length -= 1

    def _check_overlap(self, rule: Rule) -> None:
        value, mask = rule.match.value, rule.match.mask
        for other in self.tables[rule.table].values():
            if other.priority == rule.priority and not (other.match.value ^ value) & other.match.mask & mask:
                raise GraphError(
                    f"a rule of priority {rule.priority} in table {rule.table} overlaps with this one; give one of"
                    " them another priority, or leave check_overlap out"
                )

    def _end(self, rule: Rule) -> None:
        """Have a rule's entry end with the next version."""
        classifier = self.classifiers[rule.table]
        self._undo.append((classifier.expire, rule.entry, FOREVER))
        classifier.expire(rule.entry, self.version + 1)
        self._pending.append((self._unplace, rule.record, rule.size, rule.reads))

    def modify(self, rule: Rule, actions: tuple[Any, ...], reset: bool = False) -> None:
        """Change what a rule does; its times go on, and so do its counters unless they are to begin anew."""
        before = tuple(getattr(rule, name) for name in _MODIFIED)
        mark = self._mark()
        try:
            self._end(rule)
            self._undo.append((self._undo_modify, rule, before))
            rule.actions = actions
            self._place(rule)
            rule.modified = time.monotonic()
            if reset:
                totals = self.counters.totals()
                rule.base_packets, rule.base_bytes = int(totals[2 * rule.number]), int(totals[2 * rule.number + 1])
                rule.seen_packets = 0
            self._note(rule)
        except BaseException as error:
            self._back_to(mark, error)
            raise
        self._finish()

    @staticmethod
    def _undo_modify(rule: Rule, before: tuple[Any, ...]) -> None:
        for name, value in zip(_MODIFIED, before, strict=True):
            setattr(rule, name, value)

    def remove(self, rule: Rule, reason: str = "delete") -> None:
        """Remove a rule."""
        mark = self._mark()
        try:
            self._end(rule)
            self._undo.append((self._undo_remove, rule))
            del self.tables[rule.table][rule.key]
            self.length -= 1
            self._pending.append((self._removed, rule, reason))
            self._note(rule)
        except BaseException as error:
            self._back_to(mark, error)
            raise
        self._finish()

    def _undo_remove(self, rule: Rule) -> None:
        if rule.key not in self.tables[rule.table]:
            self.length += 1
        self.tables[rule.table][rule.key] = rule

    def _removed(self, rule: Rule, reason: str) -> None:
        rule.removed = True
        self.counters.give(rule.number)
        if self.on_removed is not None:
            self.on_removed(rule, reason)

    def find(
        self,
        match: Any,
        *,
        table: int | None = None,
        priority: int | None = None,
        cookie: int = 0,
        cookie_mask: int = 0,
        chosen: Callable[[Rule], bool] | None = None,
    ) -> list[Rule]:
        """The rules that a loose match covers; with ``priority``, the one that is exactly it, in each table."""
        found: list[Rule] = []
        for rules in self._tables(table):
            if priority is not None:
                one = rules.get((priority, match.mask, match.value))
                candidates: Iterable[Rule] = () if one is None else (one,)
            elif match.mask == 0:
                candidates = rules.values()
            else:
                candidates = covered(rules.values(), match.value, match.mask)
            found += [
                rule
                for rule in candidates
                if not (rule.cookie ^ cookie) & cookie_mask and (chosen is None or chosen(rule))
            ]
        return found

    def _tables(self, table: int | None) -> Iterator[dict[tuple[int, int, int], Rule]]:
        if table is not None and table != 255:
            yield self.tables[table]
        else:
            yield from (rules for rules in self.tables[: MOST_TABLE + 1] if rules)

    def rules(self) -> Iterator[Rule]:
        """All rules, by table."""
        for rules in self.tables:
            yield from rules.values()

    def close(self) -> None:
        """Unmap the classifiers; no worker may be there."""
        for classifier in self.classifiers.values():
            classifier.close()
        self.classifiers.clear()


def covered(rules: Iterable[Rule], value: int, mask: int) -> Iterator[Rule]:
    """Those of the rules that match nothing that the given match does not."""
    for rule in rules:
        match = rule.match
        if match.mask & mask == mask and not (match.value ^ value) & mask:
            yield rule


def one_output(program: bytes) -> int:
    """The flag ONE_OUTPUT when a program does nothing or sends the whole packet to one port, else 0."""
    words = struct.unpack(f"<{len(program) // 8}Q", program)
    if len(words) == 1:
        return ONE_OUTPUT
    plain = len(words) == 3 and words[0] & 0xFFFF == OUTPUT and words[0] >> 32 < PORT_MAX and not words[1]
    return ONE_OUTPUT if plain else 0
