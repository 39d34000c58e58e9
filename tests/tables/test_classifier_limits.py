"""A classifier's memory: bounded, used again, and what happens when there is no more of it."""

import numpy as np
import pytest

from tests.tables.test_classifier import FLOWS, MASKS, WORDS, Driver, prefix_mask
from wirespeed.errors import GraphError
from wirespeed.tables.classifier import FOREVER, Classifier, Entry
from wirespeed.tables.classifier.order import Table


def filled(classifier):
    """A driver with entries of many masks in a classifier, and prefixes of a field."""
    driver = Driver(classifier)
    random = np.random.default_rng(3)
    for i in range(60):
        mask, flow = MASKS[i % len(MASKS)], FLOWS[int(random.integers(len(FLOWS)))]
        driver.insert(flow & mask, mask, i % 5)
    for field in range(64):
        mask = prefix_mask(6 + field % 3)
        driver.insert((5 | field << 100) & mask, mask, 6 + field % 3)
    return driver


@pytest.mark.parametrize("failing", range(12))
def test_an_arrangement_for_which_memory_fails_leaves_all_as_it_was(failing, monkeypatch):
    with Classifier(WORDS, seed=4) as classifier:
        driver = filled(classifier)
        before, do, calls = classifier.tuples(), classifier.do, []

        def fail(step, *arguments, refusal=0):
            calls.append(step)
            if len(calls) == failing + 1:
                raise GraphError("no memory")
            return do(step, *arguments, refusal=refusal)

        monkeypatch.setattr(classifier, "do", fail)
        arranged = classifier.arrange()
        monkeypatch.undo()
        if not arranged:
            assert classifier.tuples() == before
        driver.compare_all(FLOWS[::3])
        for number in range(40):
            driver.step("expire", 0, 0, 0, 7 * number)
        driver.reclaim(driver.current)
        driver.compare_all(FLOWS[::3])
        driver = Driver(classifier) if not len(classifier) else driver
        for i in range(30):
            driver.insert(FLOWS[5 * i] & MASKS[i % 8], MASKS[i % 8], i % 6)
        driver.compare_all(FLOWS[::3])


def test_an_arrangement_waits_for_the_readers_of_the_one_before():
    with Classifier(WORDS, seed=4) as classifier:
        driver = filled(classifier)
        assert classifier.arrange()
        for i in range(16):
            driver.insert(i << 20, 0xFF << 20 | 1 << 40 + i, 9)  # sixteen more masks
        driver.insert(1 << 63, 3 << 62, 9)
        classifier.reclaim(0, driver.current)
        many = len(classifier.tuples())
        assert not classifier.arrange()
        classifier.reclaim(driver.current, driver.current)  # a reader at this version may still be in the old groups
        assert not classifier.arrange()
        driver.insert(1 << 62, 3 << 62, 9)
        driver.reclaim(driver.current)
        assert classifier.arrange() == (len(classifier.tuples()) < many)
        driver.compare_all(FLOWS[::3])


def test_memory_of_what_is_gone_is_used_again_without_end():
    with Classifier(WORDS, memory=1 << 18) as classifier:
        old: list[int] = []
        for version in range(1, 301):
            for entry in old:
                classifier.expire(entry, version)
            mask = 0xFFFF | 1 << 64 + version % 8
            old = [classifier.insert(version * 7 + i, 0xFFFF, 1, version) for i in range(40)]
            old += [classifier.insert((i << 3) | mask & ~0xFFFF, mask, 1, version) for i in range(40)]
            classifier.reclaim(version, version)
            if version % 5 == 0:
                classifier.arrange()
        assert len(classifier) == 80
        classifier.reclaim(302, 301)
        assert Table.at(classifier.address).heap.retired == 0


def test_many_versions_of_one_rule_do_not_make_it_slower_to_find():
    with Classifier(WORDS) as classifier:
        entry = classifier.insert(1, 0xF, 5, 1, data=1)
        for version in range(2, 5000):
            classifier.expire(entry, version)
            entry = classifier.insert(1, 0xF, 5, version, data=version)
        assert Entry.at(classifier.lookup(1, 4999)).next0 != 0  # the newest one is the first of its chain
        assert [Entry.at(classifier.lookup(1, v)).data for v in (1, 2, 2500, 4999)] == [1, 2, 2500, 4999]
        assert sum(classifier.reclaim(5000, 4999) for _ in range(2)) == 4998
        assert len(classifier) == 1 and classifier.lookup(1, 4999) == entry


def test_an_address_is_not_used_again_while_a_reader_may_be_there():
    with Classifier(WORDS) as classifier:
        first = classifier.insert(1, 0xF, 5, 1)
        classifier.expire(first, 2)
        assert classifier.reclaim(2, 2) == 1
        assert classifier.insert(1, 0xF, 5, 3) != first
        assert classifier.reclaim(2, 3) == 0
        assert classifier.insert(2, 0xF, 5, 3) != first
        assert classifier.reclaim(3, 3) == 0
        assert classifier.insert(3, 0xF, 5, 4) == first


def test_a_full_classifier_refuses_more_and_goes_on():
    with Classifier(WORDS, limit=3) as classifier:
        entries = [classifier.insert(i, 0xF, 5, 1) for i in range(3)]
        with pytest.raises(GraphError, match="full with 3 entries; make its limit larger, or reclaim"):
            classifier.insert(3, 0xF, 5, 1)
        assert [classifier.lookup(i, 1) for i in range(4)] == [*entries, 0]
        classifier.expire(entries[0], 2)
        classifier.reclaim(2, 1)
        assert classifier.insert(3, 0xF, 5, 2) == classifier.lookup(3, 2)


def test_a_classifier_without_memory_for_more_keeps_what_it_has():
    with Classifier(WORDS, memory=1 << 17) as classifier:
        entries = []
        with pytest.raises(GraphError, match=r"131072 bytes and may have 131072.*allow more memory, or reclaim"):
            for i in range(10000):
                entries.append(classifier.insert(i, 0xFFFF, 5, 1))
        assert len(entries) > 300
        assert [classifier.lookup(i, 1) for i in range(len(entries))] == entries
        for entry in entries:
            classifier.expire(entry, 2)
        classifier.reclaim(3, 2)
        assert classifier.insert(0, 0xFFFF, 5, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.insert(1, 2, 0, 0), "no bits outside of its mask; got 0x1 with mask 0x2"),
        (lambda c: c.insert(-1, 2, 0, 0), "no bits outside of its mask"),
        (lambda c: c.insert(0, 1 << 128, 0, 0), "a mask has 2 words"),
        (lambda c: c.insert(0, -1, 0, 0), "a mask has 2 words"),
        (lambda c: c.insert(0, 0, 1 << 16, 0), "priority must be 0 to 65535, got 65536"),
        (lambda c: c.insert(0, 0, -1, 0), "priority must be 0 to 65535, got -1"),
        (lambda c: c.lookup(1 << 128, 0), "a flow has 2 words"),
        (lambda c: c.lookup(-1, 0), "a flow has 2 words"),
        (lambda c: Classifier(0), "1 to 40 words, got 0"),
        (lambda c: Classifier(41), "1 to 40 words, got 41"),
        (lambda c: Classifier(1, limit=0), "limit must be 1 entry or more"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(change, message):
    with Classifier(WORDS) as classifier:
        with pytest.raises(GraphError, match=message):
            change(classifier)
        assert len(classifier) == 0 and classifier.tuples() == []


def test_too_many_masks_are_refused(monkeypatch):
    monkeypatch.setattr("wirespeed.tables.classifier.table.MOST_MASKS", 2)
    with Classifier(WORDS) as classifier:
        classifier.insert(0, 1, 0, 0)
        classifier.insert(0, 2, 0, 0)
        with pytest.raises(GraphError, match="at most 2 different masks"):
            classifier.insert(0, 3, 0, 0)
        assert classifier.insert(1, 1, 0, 0) and len(classifier) == 3


def test_a_closed_classifier_says_so():
    classifier = Classifier(WORDS)
    entry = classifier.insert(0, 1, 0, 0)
    classifier.close()
    classifier.close()
    for use in (
        lambda: classifier.insert(0, 1, 0, 0),
        lambda: classifier.expire(entry, FOREVER),
        lambda: classifier.reclaim(1, 0),
        lambda: classifier.lookup(0, 0),
        lambda: classifier.entries(),
        lambda: classifier.tuples(),
        lambda: classifier.arrange(),
        lambda: len(classifier),
    ):
        with pytest.raises(GraphError, match="closed"):
            use()
