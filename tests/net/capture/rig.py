"""Runs the scan over bytes in memory, in pieces of any size or at the edge of memory, and says what it found."""

import ctypes
import mmap

from tests.net.capture.model import Found, Read
from wirespeed.core.arena import Arena
from wirespeed.jit.libc import copy_out
from wirespeed.net.capture import scan, window
from wirespeed.net.capture.scan import Entry, Scan
from wirespeed.net.capture.scanner import find, init

WINDOW = Scan.offset("window")
EDGE = 1 << 21  # bytes that fit before the page that nobody may touch
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Rig:
    """A scan and its memory.  :meth:`begin` makes it new; the scanners are compiled once."""

    def __init__(self) -> None:
        self.arena = Arena(scan.MEMORY + Scan.size + 8192)
        self.memory = self.arena.alloc(scan.MEMORY, 4096)
        self.address = self.arena.alloc(Scan.size)
        self._edge = mmap.mmap(-1, EDGE + mmap.PAGESIZE)
        self.edge = ctypes.addressof(ctypes.c_char.from_buffer(self._edge)) + EDGE
        assert _libc.mprotect(self.edge, mmap.PAGESIZE, 0) == 0

    @property
    def record(self):
        return Scan.at(self.address)

    def begin(self, source: int = window.PUSHED, fd: int = -1) -> None:
        ctypes.memset(self.address, 0, Scan.size)
        init(self.address, self.memory, fd, source)

    def at_the_edge(self, data: bytes) -> None:
        """Put the whole of ``data`` right before a page that nobody may touch."""
        self.begin()
        w = self.record.window
        w.at = w.base = self.edge - len(data)
        w.end = w.limit = self.edge
        w.offset, w.ended = len(data), 1
        ctypes.memmove(w.base, data, len(data))

    def push(self, data: bytes) -> None:
        """Give it bytes, all of them, as the scan makes room."""
        view = memoryview(data)
        packets = []
        while view:
            view = view[window.push(self.address + WINDOW, view) :]
            packets += self.found()
        return packets

    def end(self) -> None:
        """Say that no more bytes come."""
        self.record.window.ended = 1

    def found(self) -> list[Found]:
        """The packets that the scan finds now."""
        packets = []
        while n := find(self.address):
            for entry in Entry.array_at(self.record.entries, n):
                data, options = (
                    (int(entry[k]), int(entry[v])) for k, v in (("address", "captured"), ("options", "options_size"))
                )
                packets.append(
                    Found(
                        copy_out(*data), int(entry["time"]), int(entry["wire"]), int(entry["link"]),
                        int(entry["interface"]), copy_out(*options) if options[1] else b"", bool(entry["swapped"]),
                    )
                )  # fmt: skip
        return packets

    def report(self, packets: list[Found]) -> Read:
        """What it found, with how it ended."""
        record = self.record
        return Read(packets, _mark(record.damage), record.faults, _mark(record.fault))

    def read(self, data: bytes, *pieces: int) -> Read:
        """Scan ``data``, given in pieces that end at the given places."""
        self.begin()
        packets, at = [], 0
        for end in (*pieces, len(data)):
            packets += self.push(data[at:end])
            at = end
        self.end()
        return self.report(packets + self.found())


def _mark(mark) -> tuple[int, int, int] | None:
    return (mark.what, mark.offset, mark.packet) if mark.what else None
