"""A worker's part of a switch, made for a run and gone with it: cache, paths, and where a burst is worked on."""

import os
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.stage import MAX_BURST
from wirespeed.errors import GraphError
from wirespeed.jit import ahead, libc
from wirespeed.switch import apart, publish
from wirespeed.switch.cache import WAYS
from wirespeed.switch.counters import MOST
from wirespeed.switch.execute import run as execute
from wirespeed.switch.fields import FLOW_SIZE, WORDS
from wirespeed.switch.path import PATH
from wirespeed.switch.state import MEMO, MEMOS, State
from wirespeed.switch.translate import translation

PATHS = 1 << 16
PATH_WORDS = 32 << 20
MOST_ENTRIES = 1 << 24
WIDEST = 256  # bytes of an entry with the longest key
CACHE_MEMORY = 1 << 32


def entry_size(k: int) -> int:
    """Bytes of a cache entry with a key of ``k`` words, as :func:`wirespeed.switch.cache.entry_size`."""
    return 32 if k <= 3 else 64 if k <= 7 else 128 if k <= 15 else WIDEST


def check_cache(entries: Any, insert: Any, most: Any = MOST_ENTRIES) -> None:
    """Refuse what no cache can be: its flows to begin with and at most, the probability of an insertion."""
    for name, n in (("cache", entries), ("cache_most", most)):
        if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= MOST_ENTRIES:
            raise GraphError(f"{name} must be a whole number of flows from 0 (none) to {MOST_ENTRIES}, got {n!r}")
    if not isinstance(insert, int | float) or isinstance(insert, bool) or not 0 <= insert <= 1:
        raise GraphError(f"insert is the probability of an insertion, a number from 0 to 1, got {insert!r}")


class WorkerMemory:
    """The memory of one worker, whose state is at ``address`` in the run's own memory and outlives it.

    ``entries`` is how many flows its cache is for; it has as many buckets as hold them whatever the length of a key.
    """

    def __init__(self, address: int, shared: int, code: int, entries: int, insert: float) -> None:
        check_cache(entries, insert)
        self._buckets = buckets = 1 << max(0, (max(entries, 2) // WAYS - 1).bit_length())
        self._cache = Arena(buckets * WAYS * WIDEST)
        self._before: Arena | None = None
        self._evicted = 0
        size = MAX_BURST * (FLOW_SIZE + 16) + 16 * FLOW_SIZE + 16 * MOST + PATH * PATHS + PATH_WORDS
        size += 8 * PATHS + MEMO * MEMOS + translation.SIZE + execute.SIZE + (1 << 16)
        self._arena = arena = Arena(size, huge=False)
        self.address = address
        state = self.state
        state.shared, state.shape, state.code = shared, -1, code
        state.translate = apart.translation.address
        # Where it is being compiled, the worker is told when it is there.
        state.execute = 0 if ahead.is_under_way(apart.execution) else apart.execution.address
        state.keys = arena.alloc(MAX_BURST * FLOW_SIZE)
        state.buckets = arena.alloc(8 * MAX_BURST)
        state.flow, state.memos = arena.alloc(FLOW_SIZE), arena.alloc(MEMO * MEMOS)
        state.translation = translation.make(arena, shared)
        state.execution = execute.make(arena, shared)
        self._fill_cache(state.cache, buckets, entries, insert)
        paths = state.paths
        paths.paths, paths.capacity, paths.length = arena.alloc(PATH * PATHS), PATHS, 1
        paths.words, paths.size = arena.alloc(PATH_WORDS), PATH_WORDS
        paths.index, paths.mask = arena.alloc(4 * 2 * PATHS), 2 * PATHS - 1
        paths.totals, paths.n_totals = arena.alloc(16 * MOST), MOST

    def _fill_cache(self, cache: Any, buckets: int, entries: int, insert: float) -> None:
        seeds = np.frombuffer(os.urandom(8 * WORDS), np.uint64) | np.uint64(1)
        cache.seeds = self._arena.alloc(8 * WORDS)
        libc.copy_in(cache.seeds, seeds.tobytes())
        cache.entries, cache.mask = self._cache.address, buckets - 1
        cache.insert = int(insert * (1 << 32)) if entries else 0
        cache.random = int.from_bytes(os.urandom(8), "little") | 1

    @property
    def state(self) -> Any:
        """The record of its state."""
        return State.at(self.address)

    def complete(self) -> None:
        """Give the worker the code that it has begun without; waits until it is compiled."""
        if not int(self.state.execute):
            publish.show.function(self.address + State.offset("execute"), apart.execution.address)  # Q2

    def grow(self, most: int) -> bool:
        """Give the worker a cache for four times as many flows, up to ``most``, when this one keeps throwing flows out.

        To be called now and then by one thread; whether it did.  The worker takes it, empty, at its next burst.
        """
        state = self.state
        if int(state.next_entries):
            return False
        if self._before is not None:
            self._before.close()
            self._before = None
        evicted = int(state.cache.evicted)
        lately, self._evicted = evicted - self._evicted, evicted
        if lately < self._buckets // 4 or 2 * self._buckets * WAYS > most:
            return False
        self._buckets = min(4 * self._buckets, 1 << (most // WAYS).bit_length() - 1)
        self._before, self._cache = self._cache, Arena(self._buckets * WAYS * WIDEST)
        state.next_mask = self._buckets - 1
        publish.show.function(self.address + State.offset("next_entries"), self._cache.address)
        return True

    def close(self) -> None:
        """Unmap it.  Closing twice is harmless."""
        if self._before is not None:
            self._before.close()
        self._cache.close()
        self._arena.close()
