"""The spin lock: what it guards is changed by one thread at a time."""

import threading

import numpy as np

from wirespeed.core.lock import lock, unlock
from wirespeed.jit.intrinsics import load_i64, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

Guarded = layout("TestGuarded", [("lock", "u4"), (None, 4), ("count", "i8"), ("twice", "i8")])
TWICE = Guarded.offset("twice")


@kernel
def add(at, n):
    """Add to two plain words ``n`` times; return how often they were not in step."""
    torn = np.int64(0)
    for _ in range(n):
        lock(Guarded(at))
        if load_i64(at + TWICE) != 2 * Guarded(at).count:
            torn += 1
        Guarded(at).count += 1
        store_i64(at + TWICE, 2 * Guarded(at).count)
        unlock(Guarded(at))
    return torn


def test_threads_that_hold_the_lock_see_what_it_guards_whole():
    memory = np.zeros(Guarded.size, np.uint8)
    torn = []
    add(memory.ctypes.data, 0)
    threads = [threading.Thread(target=lambda: torn.append(add(memory.ctypes.data, 50_000))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = Guarded(memory)
    assert torn == [0, 0, 0]
    assert (record.count, record.twice, record.lock) == (150_000, 300_000, 0)
