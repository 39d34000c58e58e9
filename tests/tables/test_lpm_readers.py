"""A reader that looks up stable prefixes all the time, without the GIL, while others come and go around them."""

import threading

import numpy as np

from wirespeed.errors import GraphError
from wirespeed.jit.atomics import load_acquire, store_release
from wirespeed.jit.intrinsics import load_u32
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout
from wirespeed.tables.lpm import Lpm4
from wirespeed.tables.prefix_trie import Lpm, find

Shared = layout("TestLpmShared", [("stop", "i8"), (None, 56), ("rounds", "i8"), ("wrong", "i8"), (None, 48)])


@kernel
def watch(shared, table, keys, values, n):
    """Look up ``n`` keys until told to stop, and count what is not as it should be."""
    s = Shared(shared)
    slots = Lpm(table).slots
    while load_acquire(s, "stop") == 0:
        for i in range(n):
            if find(slots, load_u32(keys + 4 * i)) != load_u32(values + 4 * i):
                s.wrong += 1
        store_release(s, "rounds", s.rounds + 1)


def test_a_reader_finds_each_stable_prefix_at_all_times():
    random = np.random.default_rng(1)
    with Lpm4(400, blocks=40) as table:
        # Under few blocks, so that these come and go: a prefix of 20 bits, one of 24 in it, and one of 32 in that.
        stable = [(0x0A00A000, 20, 0x0A00A123), (0x0A00A400, 24, 0x0A00A47F), (0x0A00A480, 32, 0x0A00A480)]
        stable += [(n << 24, 8, n << 24 | 0x00FFFFFF) for n in range(16, 32)]
        for number, (prefix, length, _) in enumerate(stable):
            table.add(prefix, length, number)
        keys = np.array([key for _, _, key in stable], np.uint32)
        values = np.arange(1, len(stable) + 1, dtype=np.uint32)
        shared = np.zeros(Shared.size // 8, np.int64)
        state = Shared.at(shared.ctypes.data)
        arguments = (shared.ctypes.data, table.address, keys.ctypes.data, values.ctypes.data, len(stable))
        state.stop = 1
        watch(*arguments)  # compiled before it matters
        state.stop = 0
        reader = threading.Thread(target=watch, args=arguments)
        reader.start()
        try:
            churn(table, state, stable, random)
        finally:
            state.stop = 1
            reader.join()
        assert state.rounds > 1 and state.wrong == 0
        assert table.lookup_bulk(keys).tolist() == list(range(len(stable)))


def churn(table, state, stable, random):
    """Add and remove prefixes that cover stable ones, and others beside the keys that are looked up."""
    fixed = {(prefix, length) for prefix, length, _ in stable}
    there: list[tuple[int, int]] = []
    refused = removed_in = 0
    for _ in range(6000):
        length = int(random.integers(0, 33))
        near = stable[int(random.integers(3))][0]
        prefix = near ^ int(random.integers(1 << 14)) if length > 16 else near
        prefix = prefix >> 32 - length << 32 - length if length else 0
        covers = any(key >> 32 - length == prefix >> 32 - length and length > own for _, own, key in stable)
        if (prefix, length) in fixed or covers:
            continue
        try:
            table.add(prefix, length, 1000)
            there.append((prefix, length))
        except GraphError:
            refused += 1
        while len(there) > 100 or (there and random.integers(3) == 0):
            table.remove(*there.pop(int(random.integers(len(there)))))
            removed_in = state.rounds
        if (
            state.rounds >= removed_in + 2
        ):  # the round that was under way at the removal is over, and so is no later one
            table.reclaim()
    assert refused < 3000 and Lpm.at(table.address).new_block <= 40
