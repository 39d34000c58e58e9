"""Readers that look up all the time, without the GIL, while the classifier changes under them."""

import threading

import numpy as np
import pytest

from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables.classifier import Classifier, Entry, lookup
from wirespeed.tables.classifier.entry import matches, visible
from wirespeed.tables.classifier.search import lookup_bulk

i64, u64 = np.int64, np.uint64
WORDS = 3
STRIDE = 8 * WORDS
BURST = 32

Shared = layout(
    "TestClassifierShared",
    [
        ("version", "i8"),  # the writer's
        ("stop", "i8"),
        (None, 48),
        ("mine", "i8"),  # the reader is at this version or later
        ("rounds", "i8"),
        ("lost", "i8"),  # stable entries that were not found
        ("wrong", "i8"),  # entries found that do not match, or are not visible
        ("seen", "i8"),  # others than the stable ones
        (None, 24),
    ],
)


Data = layout("TestClassifierData", [("it", "i8")])


@kernel
def watch(shared, table, flows, n, expected, found):
    """Look up ``n`` flows in bursts until told to stop; ``expected`` is i8[n], the data of a stable entry or 0."""
    s = Shared(shared)
    while load_acquire(s, "stop") == 0:
        version = load_acquire(s, "version")
        store_release(s, "mine", version)
        for start in range(i64(0), n, i64(BURST)):
            bulk = start % 64 == 0
            if bulk:
                lookup_bulk(table, flows + STRIDE * start, i64(STRIDE), i64(BURST), version, found)
            for i in range(BURST):
                flow = flows + STRIDE * (start + i)
                entry = Data(found + 8 * i).it if bulk else lookup(table, flow, version)
                wanted = Data(expected + 8 * (start + i)).it
                if entry == 0:
                    s.lost += 1 if wanted != 0 else 0
                elif not visible(Entry(entry), version) or not matches(entry, flow):
                    s.wrong += 1
                elif Entry(entry).data != wanted:
                    s.lost += 1 if wanted != 0 else 0
                    s.seen += 1
        s.rounds += 1


def field(position, bits):
    return (1 << bits) - 1 << position


# Masks of which many pairs share bits, and prefixes of a field of eight bits.
MASKS = [field(0, a) | field(64, b) | field(128, c) for a in (4, 8) for b in (4, 8) for c in (0, 8)]
PREFIXES = [field(0, 8) | field(128 + 8 - length, length) for length in range(9)]


class Churn:
    """A writer that inserts, ends, reclaims and rearranges around stable entries."""

    def __init__(self, classifier, masks, seed):
        self.classifier, self.masks = classifier, masks
        self.random = np.random.default_rng(seed)
        self.shared = np.zeros(Shared.size // 8, np.int64)
        self.state = Shared.at(self.shared.ctypes.data)
        self.values = [int.from_bytes(self.random.bytes(8 * WORDS), "little") & ~0xFF | 5 for _ in range(256)]
        self.mortal = []
        self.arranged = 0

    def settle(self, numbers):
        """Insert the stable entries, above all others; return which of them each flow finds, as the reader expects it."""
        mask, data = self.masks[-1], {}
        for number in numbers:
            if self.values[number] & mask not in data:
                data[self.values[number] & mask] = number + 1
                self.classifier.insert(self.values[number] & mask, mask, 1000, 0, data=number + 1)
        return np.array([data.get(value & mask, 0) for value in self.values], np.int64)

    def run(self, steps):
        for step in range(steps):
            version = self.state.version + 1
            for _ in range(8):
                mask = self.masks[int(self.random.integers(len(self.masks)))]
                value = self.values[int(self.random.integers(256))] ^ int(self.random.integers(2)) << 140
                priority = mask.bit_count()
                self.mortal.append(self.classifier.insert(value & mask, mask, priority, version, data=1 << 40))
            while len(self.mortal) > (8, 400, 60)[step // 50 % 3]:
                at = int(self.random.integers(len(self.mortal)))
                self.classifier.expire(self.mortal.pop(at), version)
            self.arranged += self.classifier.arrange()
            self.state.version = version
            self.classifier.reclaim(self.state.mine, version)


@pytest.mark.parametrize(("masks", "seed"), [(MASKS, 1), (PREFIXES, 2)], ids=["masks", "prefixes"])
def test_a_reader_finds_each_stable_entry_at_all_times(masks, seed):
    with Classifier(WORDS) as classifier:
        churn = Churn(classifier, masks, seed)
        expected = churn.settle(range(0, 256, 2))
        flows = np.frombuffer(b"".join(v.to_bytes(STRIDE, "little") for v in churn.values), np.uint64).copy()
        found = np.zeros(BURST, np.int64)
        arguments = (
            churn.shared.ctypes.data,
            classifier.address,
            flows.ctypes.data,
            256,
            expected.ctypes.data,
            found.ctypes.data,
        )
        churn.state.stop = 1
        watch(*arguments)  # compiled before it matters
        churn.state.stop = 0
        reader = threading.Thread(target=watch, args=arguments)
        reader.start()
        try:
            churn.run(600)
        finally:
            churn.state.stop = 1
            reader.join()
        assert (churn.state.lost, churn.state.wrong) == (0, 0)
        assert churn.state.rounds > 0 and churn.state.seen > 0 and churn.arranged >= 1
        # All of the reader is over: everything that has an end goes, and its memory serves again.
        last = churn.state.version
        for entry in churn.mortal:
            classifier.expire(entry, last)
        classifier.reclaim(last + 1, last)
        assert len(classifier) == len(set(expected) - {0})
