"""A packet of a pool from Python: its bytes as NumPy arrays, and every way to grow, cut, join, share and copy them.

A view stands for one hold of a packet.  It ends with :meth:`PacketView.free`, with the ``with`` block, or when the
packet is given to a chain; any use after that raises :class:`GraphError`.  A view that is collected before its end keeps
its packet from the pool for good, and says so by a ``ResourceWarning``.

When its cache is closed first, a view can still be read, written, cut and freed, by way of the pool itself; what takes
packets of the cache, or gives them back, raises.

An array that a view gave out is the packet's memory itself: what it shows is the packet's while that is held, and
nothing can tell it that this is over.  The memory stays, also behind the close of the pool, for as long as an array does.
Only what others mapped, and gave to the pool as an arena or an address, is theirs to keep.

Thread rules: those of the cache, which the packets that are made here come from and go back to.
"""

import ctypes
import sys
import warnings
from typing import Any, Self

import numpy as np

from wirespeed.core import packet
from wirespeed.core.cache import Opening, PoolCache
from wirespeed.core.chain import alloc_length, copy_in, linearize, read
from wirespeed.core.clone import attach, clone, copy_packet, detach
from wirespeed.core.external import ExternalBuffer, memory_of
from wirespeed.core.free import free_segments, hold
from wirespeed.core.number import whole
from wirespeed.core.packet import EXTERNAL, INDIRECT, Packet
from wirespeed.core.packet_pool import Bytes, PacketPool
from wirespeed.core.sanity import why
from wirespeed.errors import GraphError
from wirespeed.jit.layout import Record

MOST_BYTES = 0xFFFFFFFF  # what ``total`` of a packet can count
LINE = 16  # bytes in a line of a dump


class PacketView:
    """One hold of the packet ``handle`` of ``pool``, taken over from the caller.

    ``cache`` is an open cache of the pool: a :class:`PoolCache`, or the address that ``pool.cache()`` gave.
    """

    _handle = 0

    def __init__(self, pool: PacketPool, cache: PoolCache | Opening | int, handle: int) -> None:
        handle = whole(handle, "a handle")
        if not handle:
            raise GraphError("got handle 0, wanted a packet's; 0 says that the pool had none")
        self.pool = pool
        self._opening = pool.opening(cache)
        self._handle = handle

    @classmethod
    def alloc(cls, pool: PacketPool, cache: PoolCache | int, length: int = 0) -> Self:
        """A new packet with ``length`` bytes, whatever they are, in as many segments as that takes."""
        opening = pool.opening(cache)
        handle = alloc_length(opening.address, _size(length, "the length of a packet"))
        if not handle:
            raise GraphError(f"the pool has too few packets left for {length} bytes; free some, or make it larger")
        return cls(pool, opening, handle)

    @classmethod
    def of(cls, pool: PacketPool, cache: PoolCache | int, data: Any) -> Self:
        """A new packet with the bytes of a buffer in one piece: ``bytes``, an array of anything, a memoryview..."""
        try:
            view = memoryview(data)
        except (TypeError, ValueError, BufferError) as error:
            raise GraphError(f"got {type(data).__name__} for a packet's bytes, wanted a buffer: {error}") from None
        if not view.c_contiguous:
            raise GraphError(f"got {type(data).__name__} that is not in one piece, wanted one that is; give a copy")
        made = cls.alloc(pool, cache, view.nbytes)
        if view.nbytes:
            copy_in(made.handle, 0, view.nbytes, np.frombuffer(view, np.uint8).ctypes.data)
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
    def cache(self) -> int:
        """The address of the view's cache, for kernels."""
        return self.pool.opening(self._opening).address

    @property
    def record(self) -> Any:
        """The packet's record, with all its fields."""
        return Record(Packet, self._array(self.handle, Packet.size, self.handle).view(Packet.dtype))

    @property
    def data(self) -> Bytes:
        """The bytes of the first segment, to read and, while nobody else holds or shows them, to write."""
        return self._bytes_of(self.handle)

    @property
    def parts(self) -> list[Bytes]:
        """The bytes of each segment."""
        return [self._bytes_of(segment) for segment in self._segments()]

    def _bytes_of(self, segment: int) -> Bytes:
        p = Packet.at(segment)
        return self._array(p.buffer + p.data, p.length, segment)

    def _array(self, address: int, size: int, segment: int) -> Bytes:
        """``size`` bytes that a segment has or shows, as a part of an array that keeps the memory."""
        if size == 0:
            return np.empty(0, np.uint8)
        p = Packet.at(segment)
        keepers = [self.pool.holder(p.pool)]
        if p.flags & EXTERNAL:
            keepers.append(memory_of(p.attached))
        elif p.flags & INDIRECT:
            keepers.append(self.pool.holder(Packet.at(p.attached).pool))
        for keeper in keepers:
            if keeper is not None and 0 <= (at := address - keeper.ctypes.data) <= len(keeper) - size:
                return keeper[at : at + size]
        memory: Any = (ctypes.c_uint8 * size).from_address(address)
        return np.frombuffer(memory, np.uint8)

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

    def prepend(self, size: int) -> Bytes:
        """Grow the packet by ``size`` bytes at its front; these, whatever they are."""
        if not packet.prepend(self.handle, _size(size, "bytes to prepend")):
            raise GraphError(f"got {size} bytes to prepend, wanted up to {self.headroom}, the headroom")
        return self.data[:size]

    def append(self, size: int) -> Bytes:
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
        offset = whole(offset, "an offset to copy from")
        if not 0 <= offset < len(self):
            raise GraphError(f"got offset {offset} to copy from, wanted 0 to {len(self) - 1}")
        length = _size(MOST_BYTES if length is None else length, "bytes to copy")
        return self._made(copy_packet(self.cache, self.handle, offset, length))

    def _made(self, handle: int) -> "PacketView":
        if not handle:
            raise GraphError("the pool has too few packets left; free some, or make it larger")
        return PacketView(self.pool, self._opening, handle)

    def read(self, offset: int, size: int) -> Bytes:
        """``size`` bytes from ``offset``: the packet's own where they lie in one segment, else a copy."""
        offset, size = whole(offset, "an offset to read from"), whole(size, "bytes to read")
        if offset < 0 or size < 0 or offset + size > len(self):
            raise GraphError(f"got {size} bytes from {offset} to read, wanted some of the packet's {len(self)}")
        buffer = np.empty(max(size, 1), np.uint8)
        at = read(self.handle, offset, size, buffer.ctypes.data)
        if at == buffer.ctypes.data:
            return buffer[:size]
        for segment in self._segments():
            if offset < (length := int(Packet.at(segment).length)):
                return self._array(at, size, segment)
            offset -= length
        return buffer[:0]

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
        elif not isinstance(to, PacketView):
            raise GraphError(f"got {type(to).__name__} to show, wanted a PacketView or an ExternalBuffer")
        elif length is not None or not attach(self.handle, to.handle):
            raise GraphError("a packet shows another's bytes whole, and only a fresh one can; alloc one and trim it")

    def detach(self) -> None:
        """Show the own buffer again, empty; nothing happens when it does already."""
        if self.segments != 1 or self.refcnt != 1:
            raise GraphError(f"got {self.segments} segments held {self.refcnt} times to detach, wanted one held once")
        detach(self.cache, self.handle)

    def hold(self) -> "PacketView":
        """Another view of the same packet, with a hold of its own."""
        opening = self.pool.opening(self._opening)
        hold(self.handle)
        return PacketView(self.pool, opening, self.handle)

    def free(self) -> None:
        """Give up this view's hold; the packet returns to its pool with the last one."""
        handle = self.handle
        self._handle = 0  # first, for external memory may be let go of on the way, which runs a program of the user's
        if self._opening.address:
            free_segments(self._opening.address, handle)
            return
        try:
            self.pool.free(handle)
        except GraphError:  # all caches of a shared pool are taken
            self._handle = handle
            raise

    def __del__(self) -> None:
        if self._handle and self.pool.address and not sys.is_finalizing():
            words = f"{self!r} was not freed before its end; its packet stays out of {self.pool!r}"
            warnings.warn(words, ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a PacketView cannot be copied or pickled; clone() or copy() it, or send its handle or its bytes"
        )

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
    size = whole(size, what)
    if not 0 <= size <= MOST_BYTES:
        raise GraphError(f"got {size} for {what}, wanted 0 to {MOST_BYTES}")
    return size
