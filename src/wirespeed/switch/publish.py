"""What the control path does to shared memory in an order that workers rely on."""

import ctypes
import time
from collections.abc import Sequence

import numpy as np

from wirespeed.jit.atomics import fence_full, load_acquire, store_release
from wirespeed.jit.intrinsics import copy, load_i64, store_i64
from wirespeed.jit.kernel import entry, kernel
from wirespeed.jit.types import int64
from wirespeed.switch.memory import CHANGE, CHANGE_VALUES, LOG, Change, Shared
from wirespeed.switch.state import State

i64 = np.int64
TERMS = CHANGE - CHANGE_VALUES
PATIENCE_S = 0.05  # that a worker may be kept from its core


@entry(int64(int64, int64, int64, int64))
def publish(shared, version, kind, terms):
    """Make ``version`` the one in force: its entry in the log, with the value and mask at ``terms``, then its number.

    What workers read of it was written before.  The fence is for :func:`oldest`, whose reads come behind.
    """
    s = Shared(shared)
    change = s.log + CHANGE * (version % LOG)
    c = Change(change)
    store_release(c, "version", i64(-1))  # a reader that is so far behind sees that this is none
    fence_full()
    c.kind = kind
    copy(change + CHANGE_VALUES, terms, i64(TERMS))
    store_release(c, "version", version)  # V3
    store_release(s, "version", version)  # V1
    fence_full()
    return version


@entry(int64(int64, int64))
def show(at, value):
    """Write a word that workers read, behind all that was written before."""
    fence_full()
    store_i64(at, value)
    return value


@kernel
def _oldest(states, n, version):
    oldest = version
    for i in range(n):
        s = State(load_i64(states + 8 * i))
        before = load_acquire(s, "version")
        if load_acquire(s, "passes") & np.uint64(1):
            oldest = min(oldest, before)
    return oldest


@entry(int64(int64, int64, int64))
def oldest(states, n, version):
    """The oldest version that any of ``n`` workers, whose states' addresses are at ``states``, may be in."""
    return _oldest(states, n, version)


def oldest_of(states: Sequence[int], version: int) -> int:
    """The same, of a list of addresses."""
    at = (ctypes.c_int64 * max(1, len(states)))(*states)
    found: int = oldest.function(ctypes.addressof(at), len(states), version)
    return found


def wait_for(states: Sequence[int], version: int) -> bool:
    """Wait until all workers are at ``version``, which takes them a burst; False when one does not go on."""
    deadline = time.monotonic() + PATIENCE_S
    while oldest_of(states, version) < version:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0)
    return True
