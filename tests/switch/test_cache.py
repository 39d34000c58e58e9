"""The exact match cache against a dict, and what the log of changes says against a search through all changes."""

import ctypes
import random

import numpy as np
import pytest

from tests.conftest import TORTURE
from wirespeed.core.arena import Arena
from wirespeed.jit.kernel import kernel
from wirespeed.switch import cache as caches
from wirespeed.switch.cache import MOST_BEHIND, WAYS, Cache
from wirespeed.switch.fields import WORDS
from wirespeed.switch.memory import (
    ALL_CHANGED,
    CHANGE,
    CHANGE_MASKS,
    CHANGE_VALUES,
    LOG,
    NOTHING_CHANGED,
    SOME_CHANGED,
    Change,
    LiveWord,
    Shared,
)
from wirespeed.switch.publish import publish
from wirespeed.switch.worker import WIDEST, entry_size

i64, u64 = np.int64, np.uint64
STEPS = 400_000 if TORTURE else 12_000
WORDS_OF = {1: [0], 3: [0, 2, 9], 4: [0, 1, 2, 27], 9: [0, 1, 2, 3, 4, 5, 9, 10, 27]}
U64 = (1 << 64) - 1


class Bed:
    """A cache of ``buckets`` buckets for keys of some words of a flow, and a log of changes."""

    def __init__(self, buckets: int, k: int, version: int = 1) -> None:
        self.arena = Arena(buckets * WAYS * WIDEST + Cache.size + Shared.size + CHANGE * LOG + (1 << 14))
        self.k, self.words = k, WORDS_OF[k]
        self.address = self.arena.alloc(Cache.size)
        self.cache = Cache.at(self.address)
        self.cache.entries = self.arena.alloc(buckets * WAYS * WIDEST)
        self.cache.mask, self.cache.insert, self.cache.random = buckets - 1, 1 << 32, 12345
        self.cache.seeds = self.arena.alloc(8 * WORDS)
        self.array(self.cache.seeds, WORDS)[:] = np.random.default_rng(5).integers(1, 1 << 62, WORDS, np.uint64) | u64(
            1
        )
        self.live = self.arena.alloc(LiveWord.size * WORDS)
        for i, word in enumerate(self.words):
            one = LiveWord.at(self.live + LiveWord.size * i)
            one.word, one.mask = word, U64
        self.key_at = self.arena.alloc(8 * WORDS)
        self.key = self.array(self.key_at, WORDS)
        self.shared = self.arena.alloc(Shared.size)
        self.log = self.arena.alloc(CHANGE * LOG)
        Shared.at(self.shared).log, Shared.at(self.shared).version = self.log, version
        self.version = version
        self.terms = self.array(self.arena.alloc(16 * WORDS), 2 * WORDS)

    def array(self, address: int, n: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_uint64 * n).from_address(address))

    def change(self, kind: int, value: dict[int, int] | None = None, mask: dict[int, int] | None = None) -> None:
        self.terms[:] = 0
        for word, bits in (mask or {}).items():
            self.terms[WORDS + word] = bits
            self.terms[word] = (value or {})[word] & bits
        self.version += 1
        publish.function(self.shared, self.version, kind, self.terms.ctypes.data)

    def put_key(self, key: tuple[int, ...]) -> int:
        """The address of its bucket."""
        self.key[: self.k] = key
        total = caches.key_hash(i64(self.cache.seeds), i64(self.key_at), i64(self.k))
        number = (int(total) >> 32) & int(self.cache.mask)
        return int(self.cache.entries) + number * WAYS * entry_size(self.k)

    def look(self, key: tuple[int, ...]) -> int:
        """The path of a key, as a packet finds it: by its version, or by the log."""
        bucket = i64(self.put_key(key))
        found = caches.look(bucket, i64(self.key_at), u64(self.version & 0xFFFFFFFF), i64(self.k))
        if found:
            return int(found)
        return int(again(self.address, bucket, self.key_at, self.version, self.log, self.live, self.k))

    def insert(self, key: tuple[int, ...], path: int) -> None:
        put(self.address, i64(self.put_key(key)), self.key_at, path, self.version, self.k)

    def concerned(self, key: tuple[int, ...], since: int) -> bool:
        self.put_key(key)
        return bool(
            caches.concerns(i64(self.log), i64(self.live), i64(self.key_at), i64(self.k), i64(since), i64(self.version))
        )


@kernel
def again(cache, bucket, key, version, log, words, k):
    return caches.look_again(Cache(cache), bucket, key, version, log, words, k)


@kernel
def put(cache, bucket, key, path, version, k):
    caches.insert(Cache(cache), bucket, key, path, version, k)


@kernel
def empty(cache, k):
    caches.clear(Cache(cache), k)


@pytest.fixture(params=sorted(WORDS_OF))
def bed(request):
    made = Bed(2, request.param)
    yield made
    made.arena.close()


def keys_for(k: int, n: int) -> list[tuple[int, ...]]:
    """Keys that differ in few bits, the one of zeros among them."""
    rng = random.Random(k)

    def word() -> int:
        return 1 << rng.choice((0, 31, 32, 63)) if rng.random() < 0.5 else rng.randrange(3)

    return [(0,) * k, *(tuple(word() for _ in range(k)) for _ in range(n))]


def test_of_an_empty_cache_no_key_has_a_path_not_even_that_of_zeros(bed: Bed) -> None:
    for key in keys_for(bed.k, 50):
        assert bed.look(key) == 0


def test_case_58_a_key_has_the_path_that_was_put_there_last_or_none(bed: Bed) -> None:
    rng, model = random.Random(7), {}
    keys = keys_for(bed.k, 10)
    present = 0
    for step in range(1, STEPS // 4):
        key = rng.choice(keys)
        found = bed.look(key)
        assert found in (0, model.get(key))
        present += found != 0
        if rng.random() < 0.4:
            bed.insert(key, step)
            model[key] = step
            assert bed.look(key) == step
        if rng.random() < 0.002:
            bed.change(ALL_CHANGED)
            model.clear()
        if rng.random() < 0.001:
            empty(bed.address, bed.k)
            model.clear()
    assert present > STEPS // 40
    assert bed.cache.evicted > 0 or bed.k == 1


def test_no_entry_outlives_a_change_that_concerns_it(bed: Bed) -> None:
    """Entries a few versions old; each change since then is compared with each key, as the log is meant to."""
    rng = random.Random(11)
    keys = keys_for(bed.k, 12)
    kept: dict[tuple[int, ...], tuple[int, int]] = {}  # path and version of its insertion
    changes: dict[int, tuple[int, dict[int, int], dict[int, int]]] = {}
    refreshed = 0
    for step in range(1, STEPS // 4):
        if rng.random() < 0.5:
            kind = rng.choice((SOME_CHANGED,) * 8 + (ALL_CHANGED, NOTHING_CHANGED))
            some = rng.choice(keys)
            chosen = rng.sample(range(bed.k), rng.randrange(1, bed.k + 1))
            mask = {bed.words[j]: rng.choice((U64, 0xFFFFFFFF, U64 << 32 & U64, rng.getrandbits(64))) for j in chosen}
            value = {bed.words[j]: some[j] ^ (1 << rng.randrange(64) if rng.random() < 0.4 else 0) for j in chosen}
            mask[33] = 0xFF  # a word that no key has says nothing
            value[33] = 0x77
            bed.change(kind, value, mask)
            changes[bed.version] = kind, value, mask
        key = rng.choice(keys)
        found = bed.look(key)
        if found:
            path, since = kept[key]
            assert found == path
            assert not any(touches(bed, key, changes[v]) for v in range(since + 1, bed.version + 1))
            refreshed += since != bed.version
            kept[key] = path, bed.version  # brought up to date
        else:
            bed.insert(key, step)
            kept[key] = step, bed.version
    assert refreshed > STEPS // 400


def touches(bed: Bed, key: tuple[int, ...], change: tuple[int, dict[int, int], dict[int, int]]) -> bool:
    kind, value, mask = change
    if kind != SOME_CHANGED:
        return kind == ALL_CHANGED
    flow = dict(zip(bed.words, key, strict=True))
    return all(not (flow[word] ^ value[word]) & bits & U64 for word, bits in mask.items() if word in flow)


def test_what_the_log_says_is_what_all_changes_say() -> None:
    bed = Bed(1, 4)
    rng = random.Random(3)
    changes = {}
    keys = keys_for(4, 30)
    for _ in range(60):
        some, mask = rng.choice(keys), {word: rng.choice((0, 1, U64)) for word in bed.words}
        value = {word: some[j] & mask[word] for j, word in enumerate(bed.words)}
        kind = rng.choice((SOME_CHANGED,) * 9 + (ALL_CHANGED, NOTHING_CHANGED))
        bed.change(kind, value, mask)
        changes[bed.version] = kind, value, mask
    for key in keys:
        for since in range(1, bed.version + 1):
            wanted = any(touches(bed, key, changes[v]) for v in range(since + 1, bed.version + 1))
            assert bed.concerned(key, since) == wanted
    bed.arena.close()


@pytest.mark.parametrize("behind", [1, MOST_BEHIND, MOST_BEHIND + 1, LOG, 1 << 20])
def test_an_entry_is_brought_up_to_date_when_it_is_at_most_so_many_versions_old(behind: int) -> None:
    bed = Bed(1, 1)
    bed.insert((5,), 9)
    for _ in range(min(behind, LOG + 2)):
        bed.change(NOTHING_CHANGED)
    if behind > bed.version:
        bed.version = 1 + behind
    assert bed.look((5,)) == (9 if behind <= MOST_BEHIND else 0)
    bed.arena.close()


def test_a_place_of_the_log_that_another_version_took_says_nothing() -> None:
    bed = Bed(1, 1)
    bed.change(NOTHING_CHANGED)
    assert not bed.concerned((5,), 1)
    Change.at(bed.log + CHANGE * (2 % LOG)).version = 2 + LOG
    assert bed.concerned((5,), 1)
    Change.at(bed.log + CHANGE * (2 % LOG)).version = -1
    assert bed.concerned((5,), 1)
    bed.arena.close()


@pytest.mark.parametrize("first", [(1 << 31) - 9, (1 << 32) - 9, (1 << 40) - 9])
def test_versions_may_pass_where_their_lower_bits_begin_anew(first: int) -> None:
    bed = Bed(4, 3, first)
    key = (1, 2, 3)
    bed.insert(key, 77)
    for _ in range(16):
        bed.change(SOME_CHANGED, {0: 9}, {0: U64})
        assert bed.look(key) == 77
    bed.change(SOME_CHANGED, {0: 1}, {0: U64})
    assert bed.look(key) == 0
    bed.arena.close()


@pytest.mark.parametrize(("insert", "least", "most"), [(0, 0, 0), (1 << 30, 150, 350), (1 << 32, 1000, 1000)])
def test_a_share_of_the_insertions_is_done(insert: int, least: int, most: int) -> None:
    bed = Bed(1024, 1)
    bed.cache.insert = insert
    for i in range(1000):
        bed.insert((i,), 1 + i)
    assert least <= bed.cache.inserted <= most
    assert bed.cache.skipped == 1000 - bed.cache.inserted
    bed.arena.close()


def test_a_full_bucket_lets_go_of_the_older_version_first() -> None:
    bed = Bed(1, 1)
    bed.insert((1,), 1)
    bed.change(SOME_CHANGED, {0: 1}, {0: U64})
    bed.insert((2,), 2)
    bed.insert((3,), 3)
    assert (bed.look((1,)), bed.look((2,)), bed.look((3,))) == (0, 2, 3)
    assert bed.cache.evicted == 1
    bed.arena.close()


def test_case_58_a_key_is_in_its_bucket_once() -> None:
    bed = Bed(1, 1)
    for path in range(1, 20):
        bed.insert((1,), path)
        bed.insert((2,), 100)
        assert (bed.look((1,)), bed.look((2,))) == (path, 100)
        bed.change(SOME_CHANGED, {0: 1}, {0: U64})
    assert bed.cache.evicted == 0
    bed.arena.close()


def test_a_change_has_room_for_every_word_of_a_flow() -> None:
    assert CHANGE_MASKS - CHANGE_VALUES == 8 * WORDS
    assert CHANGE - CHANGE_MASKS == 8 * WORDS
