"""Mutated captures, at the edge of memory, are read as the obvious reader reads them; many more with WIRESPEED_TORTURE."""

import random

import pytest

from tests.conftest import TORTURE, captures_directory
from tests.net.capture import fuzz, model

COUNT = 1_000_000 if TORTURE else 6_000


def test_mutated_captures_are_read_as_the_model_reads_them():
    for count, seed in fuzz.rounds(COUNT, 1):
        assert fuzz.run(count, seed) > 0


def test_mutated_public_captures_are_read_as_the_model_reads_them(captures):
    assert fuzz.run(COUNT // 10, 2, captures_directory()) > 0


def test_the_fuzzer_sees_a_reader_that_differs(monkeypatch):
    monkeypatch.setattr(model, "LARGEST_FRAME", 50)
    with pytest.raises(AssertionError, match="is read otherwise"):
        fuzz.run(1_000, 1)


def test_mutations_differ_and_repeat_with_their_seed():
    seed = fuzz.seeds()[0]
    first, again = ([fuzz.mutated(seed, g) for _ in range(50)] for g in (random.Random(5), random.Random(5)))
    assert first == again
    assert len(set(first)) > 40
