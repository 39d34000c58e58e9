"""What a forked child lets go of at once: the descriptors and mappings by which it would keep a device.

A device of the kernel's (a tap, a queue that a socket is bound to) is gone or free again once nobody has it open.  A child
that is forked in the middle of a run has copies of all descriptors, and no use for them, for a run belongs to the process
that started it.  So whoever keeps a device says so here, and closes its own copies in each child.

That is for children that Python makes.  Of those that a library forks by itself nobody tells us; what can be taken off or
deleted by a request is therefore not left to the last descriptor either.

Thread rules: any thread may register; a child has one thread only.
"""

import contextlib
import os
from typing import Protocol
from weakref import WeakSet


class Keeper(Protocol):
    """Has descriptors that keep a device."""

    def let_go(self) -> None:
        """Close them in a child that was forked: the device is the parent's, and is left as it is."""


_keepers: WeakSet[Keeper] = WeakSet()


def register(keeper: Keeper) -> None:
    """Have a keeper let go in each child; it is kept no longer than others keep it."""
    _keepers.add(keeper)


def _in_child() -> None:
    for keeper in list(_keepers):
        with contextlib.suppress(OSError):
            keeper.let_go()


os.register_at_fork(after_in_child=_in_child)
