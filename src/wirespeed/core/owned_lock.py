"""A spin lock that says which process holds it, so that the death of that process does not end all waiting.

Theory of operation
-------------------
The word ``lock`` of a record is 0, or the number of the process whose thread holds it.  Who has waited for long looks
whether that process still lives; when it is gone, the lock is taken from it by the exchange that would otherwise take
it from nobody.  So what the lock protects must be whole after every single instruction of a holder: then there is
nothing to mend.  One that only hangs is waited for.

When the number is another process's by now, the holder looks alive: whoever knows by other means that it is gone calls
:func:`take_from`.  Processes of different PID namespaces cannot tell about each other, and must not share such a lock.

Order pairs: L1, the exchange that takes it, pairs with L0, the releasing store that lets go.
Source: pidfd_open(2).
"""

import errno

import numpy as np

from wirespeed.jit.atomics import compare_exchange, load_relaxed, store_release
from wirespeed.jit.intrinsics import pause, stack, store_i64
from wirespeed.jit.kernel import kernel
from wirespeed.jit.libc import sys_close, sys_pidfd_open, sys_poll, sys_yield

i64 = np.int64
ESRCH, EINVAL = errno.ESRCH, errno.EINVAL
SPINS = 128  # how often a waiting thread pauses before it lets another one have the core
LOOK = 64 * SPINS  # and before it looks whether the holder lives
POLLIN = 1


@kernel
def is_gone(pid):
    """Whether a process is known to have ended, also when nobody has asked yet how; False when that cannot be told."""
    fd = sys_pidfd_open(pid)
    if fd < 0:
        return fd == -ESRCH or fd == -EINVAL  # invalid is the number of a thread, as others have it now
    entry = stack(8)
    store_i64(entry, fd | i64(POLLIN) << 32)  # struct pollfd: fd, events, revents
    ended = sys_poll(entry, i64(1), i64(0)) > 0
    sys_close(fd)
    return ended


@kernel(inline=True)
def take(record, pid):
    """Take the lock of a record, a u4 field of that name, for a thread of the process ``pid``."""
    spins = i64(0)
    while True:
        holder = load_relaxed(record, "lock")
        if holder == 0:
            if compare_exchange(record, "lock", 0, pid):  # L1
                return
        elif spins % LOOK == LOOK - 1 and is_gone(holder) and compare_exchange(record, "lock", holder, pid):  # L1
            return
        spins += 1
        if spins % SPINS == 0:
            sys_yield()
        pause()


@kernel(inline=True)
def let_go(record):
    """Let the next thread have it."""
    store_release(record, "lock", 0)  # L0


@kernel(inline=True)
def take_from(record, holder):
    """Free the lock of a record from a holder that is known to be gone; whether it had it."""
    return compare_exchange(record, "lock", holder, 0)
