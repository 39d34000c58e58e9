"""The classifier against a linear scan: versions, priorities, colliding hashes, memory that is used again."""

import ctypes
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.tables.classifier import FOREVER, Classifier, Entry, plan
from wirespeed.tables.classifier.order import Table

WORDS = 2
# Few bits, so that masks, values and flows meet: two words of which the ends are used.
MASKS = [0, 0xF, 0xC, 0x3 << 126, 0xF | 0x3 << 126, 0xC | 0x3 << 62, 0x1 << 127 | 0x1 << 63, 0x3 << 62]
BITS = 0xF | 0x3 << 62 | 0x3 << 126
FLOWS = [a | b << 62 | c << 126 for a in range(16) for b in range(4) for c in range(4)]


@dataclasses.dataclass
class Rule:
    """What the model has of an entry."""

    value: int
    mask: int
    priority: int
    since: int
    until: int = FOREVER


class Scan:
    """The classifier's model: a list that is looked through."""

    def __init__(self) -> None:
        self.rules: dict[int, Rule] = {}  # by the address of the entry

    def best(self, flow: int, version: int) -> int | None:
        """The highest priority of those that match at a version, or None."""
        rules = self.rules.values()
        return max(
            (r.priority for r in rules if flow & r.mask == r.value and r.since <= version < r.until), default=None
        )


def agree(classifier, scan, flows, versions):
    """Each flow finds, at each version, an entry that matches it and that none is above."""
    for flow in flows:
        for version in versions:
            found, best = classifier.lookup(flow, version), scan.best(flow, version)
            if best is None:
                assert found == 0
            else:
                rule = scan.rules[found]
                assert flow & rule.mask == rule.value and rule.since <= version < rule.until
                assert rule.priority == best


class Driver:
    """Does the same to a classifier and to its model, and compares."""

    def __init__(self, classifier):
        self.classifier, self.scan = classifier, Scan()
        self.current = self.safe = 0

    def insert(self, value, mask, priority):
        self.current += 1
        entry = self.classifier.insert(value, mask, priority, self.current, data=self.current)
        assert entry not in self.scan.rules
        self.scan.rules[entry] = Rule(value, mask, priority, self.current)
        return entry

    def pick(self, number, *, ended):
        """An entry that has an end, or has none."""
        some = [e for e, r in self.scan.rules.items() if (r.until != FOREVER) == ended]
        return some[number % len(some)] if some else None

    def expire(self, entry, until=None):
        self.current += 1
        until = self.current if until is None else until
        self.classifier.expire(entry, until)
        self.scan.rules[entry].until = until

    def reclaim(self, safe):
        """Readers are at ``safe`` or later, of which the model is told too."""
        self.safe = max(self.safe, safe)
        gone = [e for e, r in self.scan.rules.items() if r.until <= self.safe]
        assert self.classifier.reclaim(self.safe, self.current) == len(gone)
        for entry in gone:
            del self.scan.rules[entry]

    def step(self, what, value, mask, number, which):
        if what == "insert":
            self.insert(value & mask, mask, number)
        elif what == "expire" and (entry := self.pick(which, ended=False)):
            self.expire(entry)
        elif what == "restore" and (entry := self.pick(which, ended=True)):
            self.expire(entry, FOREVER)
        elif what == "reclaim":
            self.reclaim(self.current - number)
        elif what == "arrange":
            self.classifier.arrange()
        assert sorted(self.classifier.entries()) == sorted(self.scan.rules)

    def compare(self, flows):
        agree(self.classifier, self.scan, flows, range(self.safe, self.current + 1))

    def compare_all(self, flows):
        """All flows now; and what the entries hold."""
        agree(self.classifier, self.scan, flows, [self.safe, self.current])
        for entry, rule in self.scan.rules.items():
            e = Entry.at(entry)
            assert (e.priority, e.since, e.until, e.data) == (rule.priority, rule.since, rule.until, rule.since)


WHAT = st.sampled_from(["insert", "insert", "insert", "expire", "restore", "reclaim", "arrange"])
STEPS = st.lists(
    st.tuples(WHAT, st.sampled_from(FLOWS), st.sampled_from(MASKS), st.integers(0, 5), st.integers(0, 1000)),
    max_size=60,
)


@given(STEPS, st.integers(0, 3))
def test_it_finds_what_a_linear_scan_finds_at_each_version(steps, seed):
    with Classifier(WORDS, seed=seed) as classifier:
        driver = Driver(classifier)
        for what, flow, mask, number, which in steps:
            driver.step(what, flow, mask, number, which)
            driver.compare([flow, flow ^ 1])
        driver.compare_all(FLOWS)


def set_seeds(classifier, seeds):
    """Have the hashes of a classifier without entries use other multipliers."""
    array = np.array(seeds, np.uint64)
    ctypes.memmove(Table.at(classifier.address).seeds, array.ctypes.data, array.nbytes)


@given(STEPS, st.sampled_from([0, 1 << 32, 1 << 60]))
def test_it_does_so_when_all_hashes_or_most_collide(steps, multiplier):
    with Classifier(WORDS) as classifier:
        set_seeds(classifier, [0] + [0, multiplier] * WORDS)
        driver = Driver(classifier)
        for what, flow, mask, number, which in steps:
            driver.step(what, flow, mask, number, which)
            driver.compare([flow, flow ^ 1])
        driver.compare_all(FLOWS)


def prefix_mask(length):
    """The fixed bits, and so many leading bits of a field of eight in the upper word."""
    return 0xF | (0xFF << 8 - length & 0xFF) << 100


PREFIX_FLOWS = [5 | field << 100 for field in range(256)] + [4, 4 | 0xFF << 100]
PREFIX_STEPS = st.lists(
    st.tuples(
        WHAT,
        st.one_of(st.integers(0, 3), st.sampled_from([0, 0x80, 0xFF])),
        st.integers(0, 8),
        st.sampled_from([0, 0, 0, 0, 0, 2]),  # what is added to the priority that rises with the length
        st.integers(0, 1000),
    ),
    max_size=80,
)


@given(PREFIX_STEPS)
def test_it_does_so_for_prefixes_of_a_field(steps):
    with pytest.MonkeyPatch.context() as patch, Classifier(WORDS, seed=1) as classifier:
        patch.setattr(plan, "LEAST_PREFIXES", 3)
        patch.setattr(plan, "FEW", 2)
        driver = Driver(classifier)
        for what, field, length, odd, which in steps:
            if what == "insert":
                mask = prefix_mask(length)
                driver.insert((5 | field << 100) & mask, mask, length + odd)
            else:
                driver.step(what, 0, 0, odd, which)
            driver.compare([5 | field << 100, 5 | (field ^ 1) << 100])
        driver.compare_all(PREFIX_FLOWS)


def test_prefixes_of_a_field_are_one_group():
    with Classifier(WORDS, seed=1) as classifier:
        driver = Driver(classifier)
        for field in range(64):
            for length in (8, 7, 6):
                mask = prefix_mask(length)
                driver.insert((5 | field << 100) & mask, mask, length)
        default = driver.insert(0, 0, 0)
        assert len(classifier.tuples()) == 4
        assert classifier.arrange()
        assert classifier.tuples() == [prefix_mask(8), 0]
        driver.compare_all(PREFIX_FLOWS)
        # Another length fits in; an entry that breaks the order of priorities, or has other fixed bits, does not.
        driver.insert(5 | 0x30 << 100, prefix_mask(4), 5)
        assert classifier.tuples() == [prefix_mask(8), 0]
        driver.insert(5 | 0x40 << 100, prefix_mask(3), 9)
        driver.insert(4 | 0x40 << 100, prefix_mask(6), 6)
        assert set(classifier.tuples()) == {prefix_mask(8), 0, prefix_mask(3), prefix_mask(6)}
        driver.compare_all(PREFIX_FLOWS)
        driver.expire(default)
        driver.reclaim(driver.current)
        driver.compare_all(PREFIX_FLOWS)


def test_a_few_entries_of_different_masks_are_one_group():
    with Classifier(WORDS) as classifier:
        driver = Driver(classifier)
        for i, mask in enumerate(MASKS):
            driver.insert(FLOWS[-1] & mask, mask, i)
        assert len(classifier.tuples()) == len(MASKS)
        assert classifier.arrange() and classifier.tuples() == [0]
        driver.compare_all(FLOWS)
        driver.insert(0, 0xF, 3)  # one more is too many for it
        assert classifier.tuples() == [0, 0xF]
        driver.compare_all(FLOWS)


def test_many_masks_are_a_handful_of_groups():
    random = np.random.default_rng(3)
    with Classifier(WORDS, seed=1) as classifier:
        driver = Driver(classifier)
        masks = [(1 << 16 + a) - 1 | (1 << 16 + b) - 1 << 64 for a in range(10) for b in range(10)]
        values = [int.from_bytes(random.bytes(16), "little") for _ in range(1000)]
        for i, value in enumerate(values):
            driver.insert(value & masks[i % 100], masks[i % 100], i % 7)
        assert len(classifier.tuples()) == 100
        assert classifier.arrange()
        assert len(classifier.tuples()) <= 5
        driver.compare_all(values[:200] + [value ^ 1 << 70 for value in values[:50]])
        assert not classifier.arrange()
