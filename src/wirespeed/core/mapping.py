"""Memory that stays mapped for as long as anything refers to it.

What unmaps it is the deallocation of Python's own mmap object.  In a cycle of garbage that comes after every finalizer
of the cycle, which a call by a weak reference, or ``__del__``, does not: a program's own ``__del__`` may still use a
ring, or an array over its slots, and must find memory there.  When the interpreter ends, threads that still wait in a
kernel hold references as well, so nothing is unmapped under them.
"""

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirespeed.core.arena import HUGE
from wirespeed.jit import libc


class Mapping:
    """``size`` bytes of zeros, or of a file: ``memory`` is the mmap to refer to, ``address`` where it begins.

    ``own`` memory is private and found zeroed by a forked child.
    """

    def __init__(self, size: int, fd: int = -1, *, own: bool = False) -> None:
        if fd >= 0:
            self.memory = mmap.mmap(fd, size)
        else:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # The object that tells the address is gone at once; a view that stayed would only keep mmap.close() away.
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if own:
            libc.wipe_on_fork(self.address, size)
        elif fd < 0 and size >= HUGE:
            libc.advise_huge(self.address, size)


class _Interface:
    """What NumPy makes an array of; the array refers to it, and it to what keeps the memory."""

    def __init__(self, keeper: object, address: int, size: int, writable: bool) -> None:
        self.keeper = keeper
        self.__array_interface__ = {"data": (address, not writable), "shape": (size,), "typestr": "|u1", "version": 3}


def array_over(keeper: object, address: int, length: int, dtype: np.dtype[Any], writable: bool = True) -> NDArray[Any]:
    """An array of ``length`` items at an address, which has ``keeper`` live for as long as it does."""
    return np.asarray(_Interface(keeper, address, length * dtype.itemsize, writable)).view(dtype)
