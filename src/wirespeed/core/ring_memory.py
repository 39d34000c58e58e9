"""What a ring of Python's lies in: its own memory or a segment, its members' records, and this process's binding."""

import ast
import errno
import mmap
import os
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from wirespeed.core import calls, ring, segment
from wirespeed.core.calls import Binding
from wirespeed.core.mapping import Mapping
from wirespeed.core.member import CONS, IDLE, INTENT, PROD, Member, finish, wake_consumers, wake_producers
from wirespeed.core.membership import Membership
from wirespeed.core.ring import HTS, RTS, Ring, claimed
from wirespeed.errors import GraphError, PeerError, PortError
from wirespeed.jit import arrays, libc

KIND = 1  # of segment
MOST_SLOTS = 1 << 30
MOST_MEMBERS = 4096
PATIENCE = 256  # pauses for earlier claims, in memory whose other users may be dead
ENDLESS = 1 << 62
DTYPE_ROOM = 1024  # bytes behind the header for the dtype, as text
LAYOUTS = (Ring, Member)


class RingMemory:
    """A ring's memory and what this process has of it; ``ring`` and ``binding`` are addresses.

    ``private`` tells that no other process can reach it.
    """

    def __init__(self, dtype: np.dtype[Any], at: int, owner: Mapping | segment.Segment, members: Membership) -> None:
        self.dtype = dtype
        self.ring = at
        self.owner = owner
        self.mapping = owner if isinstance(owner, Mapping) else owner.mapping
        self.members = members
        self.held: list[object] = [None, None]  # who looks at an end: PROD, CONS
        self.private = isinstance(owner, Mapping)
        self.slots, self.capacity = self.record.mask + 1, self.record.capacity
        self._page = Mapping(mmap.PAGESIZE, own=True)  # it outlives the ring: calls into a closed one look at it
        self.binding = self._page.address
        record = Binding.at(self.binding)
        record.ring, record.member = at, members.own
        record.array_type, record.descr = id(np.ndarray), id(dtype)
        record.list_type, record.int_type = id(list), id(int)
        record.patience = ENDLESS if self.private else PATIENCE
        # A program that forgets to close leaves as well, when the ring is collected or the interpreter ends.
        self._depart = weakref.finalize(self, _depart, os.getpid(), self.ring, members, self.mapping)

    @property
    def record(self) -> Any:
        """The ring's own record."""
        return Ring.at(self.ring)

    @property
    def open(self) -> bool:
        """Whether it can be used: neither closed, nor in a fork of the process that opened it."""
        return bool(Binding.at(self.binding).ring)

    @property
    def fd(self) -> int:
        """The segment's descriptor, -1 without one."""
        return -1 if isinstance(self.owner, Mapping) else self.owner.fd

    def dead_recoverer(self) -> int:
        """The number of the member that died while it recovered the ring, or 0."""
        if not isinstance(self.owner, segment.Segment):
            return 0
        number = int(self.owner.header.recoverer)
        other = self.members.member(number)
        return 0 if other is not None and other.alive else number

    def check_recoverer(self) -> None:
        """Raise when the ring is frozen and nobody is left to end that."""
        if not isinstance(self.owner, segment.Segment):
            return
        for _ in range(2):  # once more, for between two looks one recovery can end and another begin
            if not self.record.frozen or (self.owner.header.recoverer and not self.dead_recoverer()):
                return
            time.sleep(0.001)
        raise PeerError("whoever recovered the ring has died at it; recover() takes it up")

    def used(self) -> int:
        """Items in the ring."""
        return int(calls.count_used.function(self.ring))

    def shutdown(self) -> None:
        """Mark the ring's end, and wake all who wait."""
        self.record.closed = 1
        wake_consumers(self.ring)
        wake_producers(self.ring)

    def reset(self) -> None:
        """Begin anew; the dead are no members any more."""
        record = self.record
        for end in (record.prod, record.cons):
            end.word = end.begun = 0
        for at, member in self.members.records():
            if at == self.members.own:
                member.prod.state = member.cons.state = IDLE
            elif not self.members.alive(member):
                self.members.free(member)
        record.closed = record.frozen = 0

    def dump(self) -> str:
        """The ring's record and its members, as text."""
        record = self.record
        lines = [
            f"ring at {self.ring:#x}: {self.slots} slots, {self.capacity} usable, of {record.size} bytes ({self.dtype})",
            f"  used {self.used()}, free {self.capacity - self.used()}" + ", shut down" * bool(record.closed),
        ]
        for name, end, sync in (("prod", record.prod, record.prod_sync), ("cons", record.cons, record.cons_sync)):
            line = f"  {name} {['ST', 'MT', 'RTS', 'HTS'][sync]}: head {claimed(end, sync)}, tail {end.tail}"
            if sync == RTS:
                line += f", {end.seen} claims begun, {end.head} ended, limit {end.limit}"
            lines.append(line)
        lines += [f"  member: {peer}" for peer in self.members.peers()]
        return "\n".join(lines)

    @classmethod
    def create(
        cls,
        size: int,
        dtype: np.dtype[Any],
        syncs: Sequence[int],
        exact: bool,
        shared: bool,
        name: str,
        members: Any,
        own: Any,
    ) -> "RingMemory":
        """A new ring, in a segment when ``shared``."""
        slots, capacity = _slots(size, exact)
        if not isinstance(members, int) or not 1 <= members <= MOST_MEMBERS:
            raise GraphError(f"a ring can have 1 to {MOST_MEMBERS} members, got {members}")
        if not isinstance(own, str):
            raise GraphError(f"member_name must be a text, got {own!r}")
        if shared and dtype.hasobject:
            raise GraphError("Python objects cannot leave their process; give a dtype of numbers for a shared ring")
        arrays.check()
        item = dtype.itemsize
        behind = ring.size_of(slots, item)
        count = members if shared else 1
        total = DTYPE_ROOM + behind + count * Member.size
        owner: Mapping | segment.Segment
        if shared:
            owner = segment.create(KIND, total, LAYOUTS, name=name)
            base = owner.address + segment.HEADER_SIZE
        else:
            try:
                owner = Mapping(total)
            except (OSError, OverflowError, ValueError) as error:
                raise PortError(
                    errno.ENOMEM, f"no memory of {total} bytes for the ring ({error}); make it smaller"
                ) from error
            base = owner.address
        try:
            at = base + DTYPE_ROOM
            ring.init(at, slots, capacity)
            record = Ring.at(at)
            record.size = item
            record.prod_sync, record.cons_sync = syncs
            joined = Membership(at + behind, count, own)
            if isinstance(owner, segment.Segment):
                _write_dtype(base, dtype)
                owner.header.member_count, owner.header.members = count, at + behind - owner.address
                segment.publish(owner, name)
            return cls(dtype, at, owner, joined)
        except BaseException:
            if isinstance(owner, segment.Segment):
                owner.close()
            raise

    @classmethod
    def attach(cls, name: str, fd: int, own: str) -> "RingMemory":
        """The ring of another process."""
        arrays.check()
        owner = segment.attach(KIND, "ring", LAYOUTS, name=name, fd=fd)
        try:
            base = owner.address + segment.HEADER_SIZE
            at, header = base + DTYPE_ROOM, owner.header
            if owner.size < at - owner.address + ring.size_of(2):
                raise PeerError(f"the ring is cut off: {owner.size} bytes hold none; have its maker make it anew")
            dtype, record = _read_dtype(base), Ring.at(at)
            slots = record.mask + 1
            end = at - owner.address + ring.size_of(slots, record.size)
            if (
                slots & (slots - 1)
                or not 0 < record.capacity < slots
                or record.size != dtype.itemsize
                or max(record.prod_sync, record.cons_sync) > HTS
                or header.members != end
                or not 1 <= header.member_count <= MOST_MEMBERS
                or end + header.member_count * Member.size > owner.size
            ):
                raise PeerError(
                    f"the ring's record does not fit its memory: {slots} slots of {record.size} bytes, dtype {dtype}, "
                    f"{header.member_count} members in {owner.size} bytes; have its maker make it anew"
                )
            _check_counters(record)
            return cls(dtype, at, owner, Membership(owner.address + header.members, header.member_count, own))
        except BaseException:
            owner.close()
            raise

    def part(self) -> None:
        """Have every later call find the ring closed."""
        Binding.at(self.binding).ring = 0

    def close(self) -> None:
        """Leave the ring, when no thread is in a call any more; its memory goes with the last array over its slots."""
        self.part()
        self._depart()
        if isinstance(self.owner, segment.Segment):
            self.owner.close()
        self.mapping = None


def _depart(owner: int, ring: int, members: Membership, mapping: Mapping | None) -> None:
    """Leave a ring, which ``mapping`` keeps mapped until it is done; not on behalf of the process we are a fork of."""
    if os.getpid() == owner and mapping is not None:
        for side in (PROD, CONS):  # what a call that was interrupted had claimed, if its turn has come
            finish(ring, members.own + INTENT * side, side, 0)
        members.leave()


def _slots(size: Any, exact: bool) -> tuple[int, int]:
    """Slots and capacity of a ring of ``size``."""
    if not isinstance(size, int | np.integer) or isinstance(size, bool):
        raise GraphError(f"ring size must be a whole number, got {size!r}")
    if not 1 <= size <= MOST_SLOTS:
        raise GraphError(f"ring size must be 1 to {MOST_SLOTS}, got {size}; give how many items may wait at once")
    size = int(size)
    if exact:
        return 1 << size.bit_length(), size
    if size & (size - 1) or size == 1:
        better = 1 << max(1, (size - 1).bit_length())
        raise GraphError(
            f"ring size must be a power of two, got {size}; try {better}, which holds {better - 1}, or exact=True for a "
            f"ring that holds {size}"
        )
    return size, size - 1


def _check_counters(record: Any) -> None:
    """Raise :class:`PeerError` when a ring's ends lie farther apart than it has slots."""
    for _ in range(1000):
        taken, put = record.cons.tail, record.prod.tail
        if (put - taken) % (1 << 32) <= record.capacity:
            return
        if taken != record.cons.tail:  # it moves while we look
            continue
        break
    raise PeerError(
        f"the ring's ends do not fit together: taken up to {taken}, put in up to {put}, of {record.capacity}; "
        f"have its maker make it anew"
    )


def _write_dtype(base: int, dtype: np.dtype[Any]) -> None:
    text = repr(np.lib.format.dtype_to_descr(dtype)).encode()
    if len(text) >= DTYPE_ROOM:
        raise GraphError(f"the dtype takes {len(text)} bytes as text, {DTYPE_ROOM - 1} fit; use shorter field names")
    libc.copy_in(base, text)


def _read_dtype(base: int) -> np.dtype[Any]:
    text = libc.copy_out(base, DTYPE_ROOM).rstrip(b"\0")
    try:
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(text.decode()))
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError) as error:
        raise PeerError(f"the ring's dtype cannot be read: {text[:80]!r}") from error
    if dtype.hasobject:
        raise PeerError("the ring says that it holds Python objects, which cannot leave their process")
    return dtype
