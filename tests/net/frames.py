"""Frames for tests: out of the public captures with a reader of its own, at the edge of mapped memory, and mutated."""

import ctypes
import mmap
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def captured(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Yield (link type, captured bytes, wire length) of a pcap or pcapng file, up to the first damage."""
    data = path.read_bytes()
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        yield from _blocks(data)
    elif len(data) >= 24:
        yield from _records(data)


def _records(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    orders = {"d4c3b2a1": "<", "4d3cb2a1": "<", "a1b2c3d4": ">", "a1b23c4d": ">"}
    order = orders.get(data[:4].hex())
    if order is None:
        return
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    at = 24
    while at + 16 <= len(data):
        size, wire = struct.unpack_from(order + "II", data, at + 8)
        if at + 16 + size > len(data):
            return
        yield link, data[at + 16 : at + 16 + size], wire
        at += 16 + size


def _blocks(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    order, links, at = "<", [], 0
    while at + 12 <= len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order, links = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">", []
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < 12 or at + size > len(data):
            return
        if kind == 1:  # interface description: link type and snap length
            links.append(struct.unpack_from(order + "HHI", data, at + 8)[::2])
        elif kind in (2, 6):  # packet (obsolete) and enhanced packet
            form = "HHQII" if kind == 2 else "IQII"
            number, *_, length, wire = struct.unpack_from(order + form, data, at + 8)
            if number >= len(links) or length > size - 32:
                return
            yield links[number][0], data[at + 28 : at + 28 + length], wire
        elif kind == 3 and links:  # simple packet
            (wire,) = struct.unpack_from(order + "I", data, at + 8)
            length = min(wire, links[0][1] or wire, size - 16)
            yield links[0][0], data[at + 12 : at + 12 + length], wire
        at += size


class Edge:
    """Memory between two pages that nobody may touch: one byte read outside ends the process.

    ``high`` puts bytes right before the upper page, ``low`` right behind the lower one; both return the address.
    """

    def __init__(self, size: int = 1 << 17) -> None:
        self._size = -(-size // _PAGE) * _PAGE
        self._memory = mmap.mmap(-1, self._size + 2 * _PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for page in (self._base, self._base + _PAGE + self._size):
            if _libc.mprotect(page, _PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def high(self, data: bytes) -> int:
        at = self._base + _PAGE + self._size - len(data)
        ctypes.memmove(at, data, len(data))
        return at

    def low(self, data: bytes) -> int:
        ctypes.memmove(self._base + _PAGE, data, len(data))
        return self._base + _PAGE


def address(data: bytes) -> tuple[int, object]:
    """The address of a copy of ``data``, and what keeps it alive."""
    array = np.frombuffer(bytearray(data or b"\0"), np.uint8)
    return array.ctypes.data, array


def mutated(frame: bytes, generator: random.Random) -> bytes:
    """A frame with some bytes replaced, cut short, or with a piece doubled or removed."""
    data = bytearray(frame)
    for _ in range(generator.randint(0, 4)):
        if not data:
            break
        place = generator.randrange(len(data))
        what = generator.randrange(6)
        if what < 3:
            data[place] = generator.choice([0, 1, 0xFF, 0x45, 0x60, 0x81, generator.randrange(256)])
        elif what == 3:
            del data[place:]
        elif what == 4:
            data[place:place] = data[place : place + generator.randrange(1, 24)]
        else:
            del data[place : place + generator.randrange(1, 24)]
    return bytes(data)
