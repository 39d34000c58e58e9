"""The spin lock: one at a time, however many want it."""

import threading

import numpy as np

from wirespeed.core.lock import lock, unlock
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

Shared = layout("LockedCounter", [("lock", "u4"), (None, 4), ("count", "i8")])


@kernel
def count(address, n):
    """Count up ``n`` times, each time in two steps that nobody may come between."""
    s = Shared(address)
    for _ in range(n):
        lock(s)
        value = s.count
        s.count = value + 1
        unlock(s)


def test_nobody_comes_between_a_lock_and_its_release():
    memory = np.zeros(Shared.size, np.uint8)
    count(memory.ctypes.data, 1)
    threads = [threading.Thread(target=count, args=(memory.ctypes.data, 50_000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Shared(memory).count == 200_001
    assert Shared(memory).lock == 0


def test_a_lock_that_is_held_is_waited_for():
    memory = np.zeros(Shared.size, np.uint8)
    Shared(memory).lock = 1
    thread = threading.Thread(target=count, args=(memory.ctypes.data, 1))
    thread.start()
    thread.join(0.02)
    assert thread.is_alive()
    assert Shared(memory).count == 0
    Shared(memory).lock = 0
    thread.join()
    assert Shared(memory).count == 1
