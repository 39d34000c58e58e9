"""Look-ups compiled for known groups, and of whole bursts, against the usual one."""

import importlib.util

import numpy as np
import pytest

from tests.tables.test_classifier import FLOWS, MASKS, WORDS, prefix_mask
from wirespeed.jit.kernel import kernel
from wirespeed.tables.classifier import Classifier, Entry
from wirespeed.tables.classifier.known import describe, source
from wirespeed.tables.classifier.search import BURST, lookup_bulk

i64 = np.int64
PREFIX_FLOWS = [5 | field << 100 for field in range(64)]


@kernel
def all_of(table, flows, stride, n, version, found):
    for start in range(i64(0), n, i64(BURST)):
        m = min(i64(BURST), n - start)
        lookup_bulk(table, flows + stride * start, stride, m, version, found + 8 * start)


def in_bursts(classifier, flows, version):
    array = np.frombuffer(b"".join(flow.to_bytes(8 * WORDS, "little") for flow in flows), np.uint64)
    found = np.full(len(flows), -1, np.int64)
    all_of(classifier.address, array.ctypes.data, i64(8 * WORDS), i64(len(flows)), i64(version), found.ctypes.data)
    return found.tolist()


def loaded(path, known):
    """The look-up generated for groups, as a function of a classifier, a flow and a version."""
    path.write_text(source("known_lookup", known))
    spec = importlib.util.spec_from_file_location("generated_lookup", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    numbers = np.array([group.number for group in known] or [0], np.uint32)

    def look(classifier, flow, version):
        words = np.frombuffer(flow.to_bytes(8 * WORDS, "little"), np.uint64)
        return module.known_lookup(classifier.address, words.ctypes.data, version, numbers.ctypes.data)

    return look


def priorities(entries):
    return [Entry.at(entry).priority if entry else -1 for entry in entries]


def fill(classifier, masks):
    random = np.random.default_rng(4)
    for i in range(40):
        mask, flow = masks[i % len(masks)], FLOWS[int(random.integers(len(FLOWS)))]
        classifier.insert(flow & mask, mask, i % 5, 1 + i % 2)


def test_a_burst_finds_what_each_flow_finds():
    with Classifier(WORDS) as classifier:
        assert set(in_bursts(classifier, FLOWS, 1)) == {0}
        fill(classifier, MASKS)
        for field in range(64):
            mask = prefix_mask(6 + field % 3)
            classifier.insert((5 | field << 100) & mask, mask, 6 + field % 3, 1)
        flows = FLOWS + PREFIX_FLOWS
        for arranged in (False, True):
            assert not arranged or classifier.arrange()
            for version in (0, 1, 2):
                found = in_bursts(classifier, flows, version)
                assert len(set(found)) > 1 or version == 0
                alone = [classifier.lookup(flow, version) for flow in flows]
                assert priorities(found) == priorities(alone)
        assert any(group.field for group in classifier.groups())


@pytest.mark.parametrize("arranged", [False, True])
def test_a_look_up_that_knows_groups_finds_the_same(tmp_path, arranged):
    with Classifier(WORDS) as classifier:
        fill(classifier, MASKS)
        for field in range(64):
            mask = prefix_mask(6 + field % 3)
            classifier.insert((5 | field << 100) & mask, mask, 6 + field % 3, 1)
        assert not arranged or classifier.arrange()
        known = describe(classifier, 3)
        assert len(known) == 3 and any(group.prefixes for group in known) == arranged
        look = loaded(tmp_path / "known.py", known)

        def same():
            flows = FLOWS[::2] + PREFIX_FLOWS
            for version in (0, 1, 2):
                found = [look(classifier, flow, version) for flow in flows]
                assert priorities(found) == priorities([classifier.lookup(flow, version) for flow in flows])

        same()
        # Entries come, groups come, and the known ones go: it is right all the same.
        fill(classifier, [*MASKS[:4], 0xFF << 20, 0xFF << 70])
        same()
        for i in range(20):
            classifier.insert(0, 1 << 30 + i, 9, 1)
        classifier.reclaim(2, 1)
        classifier.reclaim(3, 2)
        assert classifier.arrange()
        same()
        assert not {group.number for group in describe(classifier, 9)} & {group.number for group in known}


def test_groups_are_described_in_the_order_of_the_search():
    with Classifier(WORDS) as classifier:
        assert describe(classifier, 4) == []
        classifier.insert(0, 0xF, 1, 0)
        classifier.insert(0, 0xF << 64 | 1 << 63, 9, 0)
        described = describe(classifier, 4)
        assert {group.words for group in described} == {((0, 0xF),), ((0, 1 << 63), (1, 0xF))}
        assert all(group.exact and not group.prefixes for group in described)
        assert len(describe(classifier, 1)) == 1


def test_a_look_up_that_knows_nothing_is_the_usual_one(tmp_path):
    with Classifier(WORDS) as classifier:
        entry = classifier.insert(0, 0, 1, 0)
        assert loaded(tmp_path / "known.py", [])(classifier, 5, 0) == entry
