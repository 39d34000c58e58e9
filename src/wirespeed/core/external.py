"""Packets that show memory of the user's, which learns when the last of them has let go.

Theory of operation
-------------------
A *record* (:data:`External`) stands for the memory: how many use it, and what to call when nobody does any more.  Its
maker is the first user, each packet attached to it is one more, and so is each clone of such a packet.  Whoever gives
up the last use calls ``callback(argument)``, once.  The record itself may lie inside the memory (:func:`place_external`):
it is not touched after the call has begun.

From Python, :class:`ExternalBuffer` is the maker.  Its callback lets go of a reference to an object that keeps the
memory, which works from any thread and in the middle of any call; ``on_release`` runs as that object goes, and what it
raises is shown by ``sys.unraisablehook`` and harms nobody.

Thread rules: packets that share a record may be freed by different threads; the callback runs in the thread that freed
the last of them, between two steps of the free, so it may use that thread's cache itself, and the pool's ``alloc`` and
``free``; it must not close them.  The callback is code of one process, so packets of a pool that processes share cannot
be attached: who frees one elsewhere would call what is not there.

Not offered: pools whose packets are all external for good (DPDK's pinned external buffers).  A pool takes an arena
instead, so that its packets lie where they shall from the start.

Source: DPDK's rte_pktmbuf_attach_extbuf, where the maker is not counted.
"""

import ctypes
import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from wirespeed.core.number import whole
from wirespeed.core.packet import EXTERNAL, SHOWING, Packet
from wirespeed.core.pool import Pool
from wirespeed.errors import GraphError
from wirespeed.jit.atomics import fetch_add, load_acquire
from wirespeed.jit.kernel import callback, kernel
from wirespeed.jit.layout import layout
from wirespeed.jit.python import call_address, hold, let_go

u16, u32, i64 = np.uint16, np.uint32, np.int64
MOST_BYTES = 0xFFFFFFFF  # what ``capacity`` of a packet can count

External = layout(
    "External",
    [
        ("callback", "i8"),  # address of a C function ``void (*)(void *)``, or 0
        ("argument", "i8"),  # what it is given
        ("refcnt", "u4"),  # users of the memory
        (None, 4),
    ],
)
SIZE = External.size
assert SIZE == 24


@kernel
def init_external(record, callback, argument):
    """Write the record of some memory; its maker is the one user, and gives that up with :func:`release_external`."""
    e = External(record)
    e.callback = callback
    e.argument = argument
    e.refcnt = 1


@kernel
def place_external(address, size):
    """Where a record fits at the aligned end of ``size`` bytes at ``address``, or 0 when no byte would be left.

    What is left for packets reaches from ``address`` to the record.
    """
    record = (address + size - SIZE) & -8
    return record if record > address else i64(0)


@kernel
def attach_external(handle, record, address, capacity):
    """Have a packet show ``capacity`` bytes at ``address``, as one more user of the record; False when it cannot.

    The packet must be one segment in its own buffer that nobody else holds, of a pool of this process alone.  It is
    empty then, and has no headroom.
    """
    p = Packet(handle)
    if Pool(p.pool).caches != 0:
        return False
    if p.flags & SHOWING or p.next != 0 or load_acquire(p, "refcnt") != 1 or record == 0:
        return False
    if capacity < 1 or capacity > MOST_BYTES:
        return False
    fetch_add(External(record), "refcnt", u32(1))
    p.buffer = address
    p.capacity = u32(capacity)
    p.data = 0
    p.length = 0
    p.total = 0
    p.attached = record
    p.flags = u16(p.flags | EXTERNAL)
    return True


@kernel
def release_external(record):
    """Give up one use of a record; the last one calls back."""
    e = External(record)
    if load_acquire(e, "refcnt") == 1 or fetch_add(e, "refcnt", u32(0xFFFFFFFF)) == 1:
        code, argument = e.callback, e.argument
        if code != 0:
            call_address(code, argument)


@functools.cache
def _dropper() -> Any:
    """The C function that lets go of a reference; made when it is first wanted, for that takes time."""

    @callback("void(int64)")
    def drop_reference(argument):
        let_go(argument)

    return drop_reference


class _Kept:
    """What must live as long as a record is used: the record, and the memory by way of its buffer."""

    def __init__(self, memory: Any, on_release: Callable[[], object] | None) -> None:
        self.memory = memory
        self.record = np.zeros(External.size, np.uint8)
        self.on_release = on_release

    def __del__(self) -> None:
        if self.on_release is not None:
            self.on_release()


def memory_of(record: int) -> Any:
    """The memory that a record stands for, as an array of bytes that keeps it; None when no :class:`ExternalBuffer` made
    the record.  Somebody must hold the record."""
    found = External.at(record)
    if found.callback != _dropper().address:
        return None
    kept: _Kept = ctypes.cast(found.argument, ctypes.py_object).value
    return np.frombuffer(kept.memory, np.uint8)


class ExternalBuffer:
    """Memory of a Python program (``bytearray``, ``mmap``, NumPy array...) for packets to show; kept until all let go.

    The memory must be writable and in one piece.  ``on_release()`` is called once, by whatever thread lets go last.
    The object itself is one user, until :meth:`release`, the end of its ``with`` block, or its own end.
    """

    def __init__(self, memory: Any, on_release: Callable[[], object] | None = None) -> None:
        if on_release is not None and not callable(on_release):
            raise GraphError(f"got {on_release!r:.60} for on_release, wanted what can be called, without arguments")
        try:
            view = memoryview(memory)
        except TypeError:
            raise GraphError(
                f"got {type(memory).__name__} for external memory, wanted a writable buffer, such as a bytearray"
            ) from None
        if view.readonly or not view.c_contiguous:
            what = "cannot be written" if view.readonly else "is not in one piece"
            raise GraphError(f"external memory {what} (a {type(memory).__name__}); give a copy, such as a bytearray")
        if not 1 <= view.nbytes <= MOST_BYTES:
            raise GraphError(f"external memory must have 1 to {MOST_BYTES} bytes, got {view.nbytes}")
        kept = _Kept(view, on_release)
        self.capacity = view.nbytes
        self.address = int(np.frombuffer(view, np.uint8).ctypes.data)
        self.record = int(kept.record.ctypes.data)
        init_external(self.record, _dropper().address, hold(kept))
        self._end = weakref.finalize(self, release_external, self.record)
        self._end.atexit = False  # packets may outlive the interpreter's last words

    @property
    def users(self) -> int:
        """Packets that show the memory now, which only the object itself can still tell; 0 once it has let go."""
        return int(External.at(self.record).refcnt) - 1 if self._end.alive else 0

    def attach(self, handle: int, offset: int = 0, size: int | None = None) -> None:
        """Have a packet show ``size`` bytes from ``offset`` (all the rest by default); see :func:`attach_external`."""
        offset = whole(offset, "an offset in external memory")
        size = self.capacity - offset if size is None else whole(size, "bytes of external memory")
        if not self._end.alive:
            raise GraphError("this external memory was released; attach packets before that")
        if offset < 0 or size < 1 or offset + size > self.capacity:
            raise GraphError(f"got {size} bytes from {offset} of external memory, wanted some of its {self.capacity}")
        if not attach_external(handle, self.record, self.address + offset, size):
            raise GraphError(
                "the packet shows other bytes, is a chain, is held elsewhere or is of a shared pool; attach a fresh one"
            )

    def __reduce__(self) -> Any:
        raise TypeError("an ExternalBuffer cannot be copied or pickled; make another of its memory, or copy the bytes")

    def release(self) -> None:
        """Let go of the memory; it stays until the last packet that shows it is freed."""
        self._end()

    def __enter__(self) -> "ExternalBuffer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = f"{self.users} packets" if self._end.alive else "released"
        return f"<ExternalBuffer {self.capacity} bytes, {state}>"
