"""A packet of a pool from Python: its bytes as NumPy arrays, and every way to grow, cut, join, share and copy them.

A view stands for one hold of a packet.  It ends with :meth:`PacketView.free`, with the ``with`` block, or when the
packet is given to a chain; any use after that raises :class:`GraphError`.  An array that a view gave out is the
packet's memory itself: it is good while the packet is held and its pool open, and nothing can tell it that this is over.

Thread rules: those of the cache, which the packets that are made here come from and go back to.
"""

import ctypes
from typing import Any, Self

import numpy as np

from wirespeed.core import packet
from wirespeed.core.chain import alloc_length, copy_in, linearize, read
from wirespeed.core.clone import attach, clone, copy_packet, detach
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.free import free_segments, hold
from wirespeed.core.packet import EXTERNAL, INDIRECT, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.sanity import why
from wirespeed.errors import GraphError

MOST_BYTES = 0xFFFFFFFF  # what ``total`` of a packet can count
LINE = 16  # bytes in a line of a dump


class PacketView:
    """One hold of the packet ``handle`` of ``pool``, taken over from the caller; ``cache`` is one of the pool's."""

    def __init__(self, pool: PacketPool, cache: int, handle: int) -> None:
        if not handle:
            raise GraphError("got handle 0, wanted a packet's; 0 says that the pool had none")
        self.pool, self.cache = pool, cache
        self._handle = int(handle)

    @classmethod
    def alloc(cls, pool: PacketPool, cache: int, length: int = 0) -> Self:
        """A new packet with ``length`` bytes, whatever they are, in as many segments as that takes."""
        handle = alloc_length(cache, _size(length, "the length of a packet"))
        if not handle:
            raise GraphError(f"the pool has too few packets left for {length} bytes; free some, or make it larger")
        return cls(pool, cache, handle)

    @classmethod
    def of(cls, pool: PacketPool, cache: int, data: Any) -> Self:
        """A new packet with these bytes."""
        source = np.frombuffer(bytes(data) or b"\0", np.uint8)
        made = cls.alloc(pool, cache, len(data))
        copy_in(made.handle, 0, len(data), source.ctypes.data)
        return made

    @property
    def handle(self) -> int:
        """The packet's handle, for kernels."""
        if not self._handle:
            raise GraphError("this view's packet was freed, or given to a chain; alloc another")
        if not self.pool.address:
            raise GraphError("the pool of this view's packet is closed; close it after its packets are freed")
        return self._handle

    @property
    def record(self) -> Any:
        """The packet's record, with all its fields."""
        return Packet.at(self.handle)

    @property
    def data(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of the first segment, to read and, while nobody else holds or shows them, to write."""
        return _bytes_of(self.handle)

    @property
    def parts(self) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
        """The bytes of each segment."""
        return [_bytes_of(segment) for segment in self._segments()]

    def _segments(self) -> list[int]:
        found, handle = [], self.handle
        while handle:
            found.append(handle)
            handle = Packet.at(handle).next
        return found

    @property
    def segments(self) -> int:
        """How many segments the packet has."""
        return int(self.record.segments)

    @property
    def headroom(self) -> int:
        """How many bytes :meth:`prepend` can add."""
        return int(self.record.data)

    @property
    def tailroom(self) -> int:
        """How many bytes :meth:`append` can add: those behind the data of the last segment."""
        end = Packet.at(self._segments()[-1])
        return int(end.capacity - end.data - end.length)

    @property
    def refcnt(self) -> int:
        """How many hold the packet: views, rings, indirect packets."""
        return int(packet.refcnt(self.handle))

    @property
    def shows(self) -> str:
        """Whose bytes the first segment shows: its ``"own"``, those of a ``"packet"`` or ``"external"`` ones."""
        flags = self.record.flags
        return "external" if flags & EXTERNAL else "packet" if flags & INDIRECT else "own"

    def __len__(self) -> int:
        return int(self.record.total)

    def __bytes__(self) -> bytes:
        return b"".join(part.tobytes() for part in self.parts)

    def prepend(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Grow the packet by ``size`` bytes at its front; these, whatever they are."""
        if not packet.prepend(self.handle, _size(size, "bytes to prepend")):
            raise GraphError(f"got {size} bytes to prepend, wanted up to {self.headroom}, the headroom")
        return self.data[:size]

    def append(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Grow the packet by ``size`` bytes at the end of its last segment; these, whatever they are."""
        if not packet.append(self.handle, _size(size, "bytes to append")):
            raise GraphError(f"got {size} bytes to append, wanted up to {self.tailroom}, the tailroom; chain another")
        end = self.parts[-1]
        return end[len(end) - size :]

    def adjust(self, size: int) -> None:
        """Cut ``size`` bytes off the front of the first segment."""
        if not packet.adjust(self.handle, _size(size, "bytes to cut")):
            raise GraphError(f"got {size} bytes to cut, wanted up to {len(self.data)}, those of the first segment")

    def trim(self, size: int) -> None:
        """Cut ``size`` bytes off the end of the last segment."""
        if not packet.trim(self.handle, _size(size, "bytes to cut")):
            raise GraphError(f"got {size} bytes to cut, wanted up to {len(self.parts[-1])}, those of the last segment")

    def chain(self, tail: "PacketView") -> None:
        """Put another packet behind this one, which owns it then; the other view is over."""
        if tail.handle == self.handle:
            raise GraphError("got a packet to chain behind itself, wanted another one; clone it")
        if not packet.chain(self.handle, tail.handle):
            raise GraphError(
                f"got {self.segments} + {tail.segments} segments and {len(self)} + {len(tail)} bytes, "
                f"wanted up to 65535 segments and {MOST_BYTES} bytes in a chain"
            )
        tail._handle = 0

    def clone(self) -> "PacketView":
        """Another packet that shows the same bytes, which are for reading from now on."""
        return self._made(clone(self.cache, self.handle))

    def copy(self, offset: int = 0, length: int | None = None) -> "PacketView":
        """Another packet with a copy of up to ``length`` bytes from ``offset``."""
        if not 0 <= offset < len(self):
            raise GraphError(f"got offset {offset} to copy from, wanted 0 to {len(self) - 1}")
        length = _size(MOST_BYTES if length is None else length, "bytes to copy")
        return self._made(copy_packet(self.cache, self.handle, offset, length))

    def _made(self, handle: int) -> "PacketView":
        if not handle:
            raise GraphError("the pool has too few packets left; free some, or make it larger")
        return PacketView(self.pool, self.cache, handle)

    def read(self, offset: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """``size`` bytes from ``offset``: the packet's own where they lie in one segment, else a copy."""
        if offset < 0 or size < 0 or offset + size > len(self):
            raise GraphError(f"got {size} bytes from {offset} to read, wanted some of the packet's {len(self)}")
        buffer = np.empty(max(size, 1), np.uint8)
        at = read(self.handle, offset, size, buffer.ctypes.data)
        return buffer[:size] if at == buffer.ctypes.data else _array(at, size)

    def linearize(self) -> None:
        """Move all bytes into the first segment."""
        if not linearize(self.cache, self.handle):
            raise GraphError(
                f"cannot put {len(self)} bytes into the first segment: it has room for {self.record.capacity}, shows "
                f"{self.shows} bytes and is held {self.refcnt} times; copy the packet"
            )

    def attach(self, to: "PacketView | ExternalBuffer", length: int | None = None) -> None:
        """Show the first segment of another packet, or ``length`` bytes of external memory (all by default)."""
        if isinstance(to, ExternalBuffer):
            to.attach(self.handle, 0, length)
            self.append(to.capacity if length is None else length)
            self.record.wire = len(self)
        elif length is not None or not attach(self.handle, to.handle):
            raise GraphError("a packet shows another's bytes whole, and only a fresh one can; alloc one and trim it")

    def detach(self) -> None:
        """Show the own buffer again, empty; nothing happens when it does already."""
        if self.segments != 1 or self.refcnt != 1:
            raise GraphError(f"got {self.segments} segments held {self.refcnt} times to detach, wanted one held once")
        detach(self.cache, self.handle)

    def hold(self) -> "PacketView":
        """Another view of the same packet, with a hold of its own."""
        hold(self.handle)
        return PacketView(self.pool, self.cache, self.handle)

    def free(self) -> None:
        """Give up this view's hold; the packet returns to its pool with the last one."""
        free_segments(self.cache, self.handle)
        self._handle = 0

    def fault(self) -> str:
        """Why the packet's record cannot be right, in words; "" when it can."""
        return why(self.handle)

    def dump(self) -> str:
        """What is known of the packet, and its bytes in hexadecimal and as text, segment by segment."""
        p = self.record
        lines = [
            f"packet {self.handle:#x}: {p.total} bytes in {p.segments} segments, held {p.refcnt} times, "
            f"port {p.port}, time {p.time}, wire {p.wire}, flags {p.flags:#x}"
        ]
        at = 0
        for number, part in enumerate(self.parts):
            q = Packet.at(self._segments()[number])
            lines.append(f"segment {number}: {q.length} bytes at {q.data} of {q.capacity}")
            raw = part.tobytes()
            for i in range(0, len(raw), LINE):
                row = raw[i : i + LINE]
                text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
                lines.append(f"{at + i:08x}  {row.hex(' '):<{3 * LINE - 1}}  {text}")
            at += len(raw)
        return "\n".join(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._handle and self.pool.address:
            self.free()

    def __repr__(self) -> str:
        if not self._handle or not self.pool.address:
            return "<PacketView, freed>"
        return f"<PacketView {len(self)} bytes in {self.segments} segments, held {self.refcnt} times>"


def _size(size: int, what: str) -> int:
    if not 0 <= size <= MOST_BYTES:
        raise GraphError(f"got {size} for {what}, wanted 0 to {MOST_BYTES}")
    return int(size)


def _array(address: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if size == 0:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, np.uint8)


def _bytes_of(segment: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    p = Packet.at(segment)
    return _array(p.buffer + p.data, p.length)
