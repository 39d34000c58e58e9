"""Aligned memory for pools, rings and states: huge pages where the machine has them, no privilege needed.

An arena maps one block and hands out parts of it in order; nothing is given back before the arena closes, when all of
it is.  Private arenas are anonymous memory with transparent huge pages asked for; shared ones are a memfd, mapped
from a fixed high base, so that another process can map them at the same address (a handle is an address).
"""

import mmap
import os
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.jit import libc

LINE = 64  # bytes of a cache line, on every machine we compile for
HUGE = 2 << 20
MAP_HUGETLB = 0x40000  # include/uapi/asm-generic/mman.h
# Where shared arenas are mapped: far above what the kernel gives out by itself on x86-64 and aarch64 with 47 or 48
# bits of user addresses, and far below the stack.
SHARED_BASE = 0x5000_0000_0000


class Arena:
    """A block of zeroed memory of at least ``size`` bytes.

    ``address`` is where it begins, ``pages`` says in words which pages it got.  Close it (or leave its ``with``) when
    no kernel can reach it any more.  Not thread-safe: one thread allocates.
    """

    def __init__(self, size: int, *, shared: bool = False, huge: bool = True) -> None:
        if size <= 0:
            raise GraphError(f"arena size must be positive, got {size}; give the bytes that its parts add up to")
        self.size = -(-size // HUGE) * HUGE if huge and size >= HUGE else -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = -1
        self.address = 0
        self.used = 0
        self.pages = f"{mmap.PAGESIZE >> 10} kB pages"
        if shared:
            self._map_shared()
        else:
            self._map_private(huge and self.size >= HUGE)

    def _map_private(self, huge: bool) -> None:
        if huge and _free_huge_pages() * HUGE >= self.size:
            try:
                self.address = libc.map_memory(self.size, flags=MAP_HUGETLB)
                self.pages = "2 MB huge pages"
                return
            except OSError:
                pass  # somebody else took them, or a cgroup limit says no: ordinary pages serve as well
        self.address = libc.map_memory(self.size)
        if huge and libc.advise_huge(self.address, self.size):
            self.pages = "transparent huge pages"

    def _map_shared(self) -> None:
        self.fd = os.memfd_create("wirespeed-arena")
        os.ftruncate(self.fd, self.size)
        at = SHARED_BASE
        while not self.address:
            try:
                self.address = libc.map_memory(self.size, self.fd, at)
            except FileExistsError:
                at += 1 << 32
                if at >= SHARED_BASE + (1 << 44):
                    raise
        self.pages = f"shared {self.pages}"

    def alloc(self, size: int, align: int = LINE) -> int:
        """The address of ``size`` zeroed bytes, a multiple of ``align``; they live as long as the arena."""
        if not self.address:
            raise GraphError("this arena is closed; take memory before it is, or make another")
        at = -(-self.used // align) * align
        if at + size > self.size:
            raise GraphError(
                f"arena of {self.size} bytes has {self.size - at} left, {size} were asked for; make it larger"
            )
        self.used = at + size
        return self.address + at

    def close(self) -> None:
        """Unmap the memory.  Closing twice is harmless."""
        if self.address:
            libc.unmap_memory(self.address, self.size)
            self.address = 0
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Arena {self.used} of {self.size} bytes at {self.address:#x}, {self.pages}>"


def _free_huge_pages() -> int:
    try:
        with open("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", encoding="ascii") as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0
