"""What a pool that processes share has beside its packets: its segment, its caches, its members, and their recovery.

Theory of operation
-------------------
All of the pool lies in one segment, which every process maps at the same address, for a handle is an address.  Behind
the packets are the caches, so many as were asked for when the pool was made, and the members' records
(:mod:`wirespeed.core.membership`).  A cache notes the member whose it is.

A process may be killed at any instruction.  Its pool is whole all the same (:mod:`wirespeed.core.pool`): a lock that it
held is taken by whoever waits for it.  What it had in its caches comes back by :meth:`SharedPool.recover`.  What it held
outside of them stays out: an audit names these packets, and :meth:`SharedPool.reclaim` puts back those that it is
given.  Only the user can know that nobody else has them: a packet that the dead one had sent on through a ring belongs
to whoever takes it out there.

What a packet refers to must be in the same pool when it goes to another process: the segments of its chain, its options,
and whose bytes it shows.  External memory is of one process, as its callback is, so no packet of such a pool may be
attached to it.

In one process a segment is mapped once, however often it is attached to.  It is unmapped, and its name taken away, when
all pools are closed and no array over its packets is left.  A fork of the process has the mapping, but not the pool: it
attaches by itself.

Thread rules: one thread at a time, as for the pool.
"""

import os
from dataclasses import dataclass
from threading import RLock
from typing import Any
from weakref import WeakSet

import numpy as np

from wirespeed.core import audit, owned_lock, ring, segment
from wirespeed.core.arena import LINE, SHARED_BASE
from wirespeed.core.inventory import SOUND, TOO_LONG, look_at_ring, put_back
from wirespeed.core.member import Member
from wirespeed.core.membership import Membership, Peer
from wirespeed.core.packet import HEADROOM, Packet
from wirespeed.core.pool import CACHE_LIMIT, HANDLES, RING, Cache, Pool, claim, drain, enrol, free_lock, give_up
from wirespeed.errors import GraphError, PeerError
from wirespeed.jit.machine import DEBUG

KIND = 2  # of segment
LAYOUTS = (Pool, Cache, Packet, ring.Ring, Member)
ALIGN = 2 * LINE  # processors fetch lines in pairs
MOST_SIZE = 1 << 30
MOST_ROOM = 1 << 24
MOST_CACHES = MOST_MEMBERS = 4096
CACHES = 16
NAME_ROOM = 28


@dataclass(frozen=True)
class PoolRecovery:
    """What a recovery found: who was dead, and what came back from their ``caches``, by name.

    The numbers of packets are exact while nobody works on the pool.  ``lock`` tells that one of them held the pool's
    lock.  ``missing`` packets are out now, whoever has them; ``last`` are those that the dead had last, which only debug
    mode knows.
    """

    dead: tuple[Peer, ...]
    caches: dict[str, int]
    lock: bool
    missing: int
    last: tuple[audit.Out, ...]

    @property
    def returned(self) -> int:
        """Packets that came back."""
        return sum(self.caches.values())

    def __str__(self) -> str:
        if not self.dead:
            return "nobody had died"
        text = f"{'; '.join(map(str, self.dead))}: {self.returned} packets came back"
        text += "".join(f", {n} from {name}" for name, n in self.caches.items() if n)
        text += ", and the pool's lock" * self.lock
        if self.missing:
            text += f"; {self.missing} are out"
            text += f", {len(self.last)} of which were last theirs" if DEBUG else ", by whom only debug mode knows"
            text += "; audit() names them, reclaim() puts back those that nobody has"
        return text


class _Mapping:
    """A segment, mapped once for all that attach to it in this process."""

    def __init__(self, owner: segment.Segment) -> None:
        self.owner = owner
        self.users = 1
        status = os.fstat(owner.fd)
        self.key = status.st_dev, status.st_ino

    def close(self) -> None:
        """One user less."""
        with _mapping:
            self.users -= 1
            if not self.users:
                _mappings.pop(self.key, None)
                self.owner.close()


_mappings: dict[tuple[int, int], _Mapping] = {}
_mapping = RLock()  # an array that is collected under it gives its mapping up
opened: WeakSet[Any] = WeakSet()  # pools, which a fork does not have


def _part() -> None:
    """In a fork: the pools are its parent's."""
    _mapping.release()
    for pool in list(opened):
        pool.address = 0
    opened.clear()


os.register_at_fork(before=_mapping.acquire, after_in_parent=_mapping.release, after_in_child=_part)


class SharedPool:
    """The segment of a pool and this process's part in it; ``address`` is the pool's."""

    def __init__(self, mapping: _Mapping, size: int, room: int, caches: int, members: int, member_name: str) -> None:
        self._mapping = mapping
        self.address = mapping.owner.address + segment.HEADER_SIZE
        self._step = _cache_stride(size)
        self._first = self.address + _caches_at(size, room)
        self._count = caches
        at = self._first + caches * self._step
        self.most = min(CACHE_LIMIT, size)
        self.members = Membership(at, members, member_name)
        self.names: dict[int, str] = {}  # of caches that others had
        self.size = at - self.address  # bytes, packets and caches

    @classmethod
    def create(cls, size: int, room: int, name: str, caches: int, members: int, member_name: str) -> "SharedPool":
        """A segment for a pool, which is to be filled and then published."""
        if not 1 <= caches <= MOST_CACHES:
            raise GraphError(f"a shared pool can have 1 to {MOST_CACHES} caches, got {caches}")
        if not 1 <= members <= MOST_MEMBERS:
            raise GraphError(f"a shared pool can have 1 to {MOST_MEMBERS} members, got {members}")
        total = _caches_at(size, room) + caches * _cache_stride(size) + members * Member.size
        owner = segment.create(KIND, total, LAYOUTS, name=name, fixed=True)
        owner.header.member_count = members
        owner.header.members = segment.HEADER_SIZE + total - members * Member.size
        with _mapping:
            mapping = _Mapping(owner)
            _mappings[mapping.key] = mapping
            return cls(mapping, size, room, caches, members, member_name)

    def publish(self, name: str) -> None:
        """Let others attach."""
        record = Pool.at(self.address)
        record.caches, record.debug = self._count, int(DEBUG)
        segment.publish(self._mapping.owner, name)

    @classmethod
    def attach(cls, name: str, fd: int, member_name: str) -> "SharedPool":
        """The pool of another process."""
        with _mapping:
            mapping = _find(name, fd)
            if mapping is None:
                mapping = _Mapping(segment.attach(KIND, "pool", LAYOUTS, name=name, fd=fd))
            try:
                sizes = _check(mapping.owner)
                shared = cls(mapping, *sizes, member_name)
            except BaseException:
                mapping.close()
                raise
            _mappings[mapping.key] = mapping
            return shared

    @property
    def fd(self) -> int:
        """The segment's descriptor."""
        return self._mapping.owner.fd

    def _all(self) -> range:
        return range(self._first, self._first + self._count * self._step, self._step)

    def caches(self) -> dict[int, str]:
        """Every cache that somebody has, with its name."""
        return {at: _name(record) for at in self._all() if (record := Cache.at(at)).member}

    def free_in_caches(self) -> int:
        """Packets in all caches."""
        return sum(int(Cache.at(at).length) for at in self._all())

    def share(self) -> int:
        """The limit of a cache, when none is given."""
        return min(self.most, int(Pool.at(self.address).size) // 2 // self._count)

    def take_cache(self, limit: int, name: str) -> int:
        """A free cache made ours; its address."""
        for at in self._all():
            if claim(at, self.members.number):
                record = Cache.at(at)
                record.pid, record.pool, record.limit = os.getpid(), self.address, limit
                for counter in ("failures", "refills", "flushes", "past", "gets", "got", "puts", "gave"):
                    setattr(record, counter, 0)
                record.name[:] = list(name.encode()[:NAME_ROOM].ljust(NAME_ROOM, b"\0"))
                enrol(at)
                return at
        raise GraphError(
            f"all {self._count} caches of this pool are taken; give it more when it is made (caches=), close some, or "
            "recover() those of dead processes"
        )

    def give_cache(self, address: int) -> None:
        """Have a cache that was emptied be nobody's."""
        give_up(address)

    def leave(self) -> None:
        """Be no member any more."""
        self.members.leave()

    def unmap(self) -> None:
        """Give up this user's part in the mapping."""
        self._mapping.close()

    def recover(self) -> PoolRecovery:
        """See :meth:`wirespeed.core.packet_pool.PacketPool.recover`."""
        with self.members.recovering(self._mapping.owner, "pool"):
            return self._recover()

    def _recover(self) -> PoolRecovery:
        record = Pool.at(self.address)
        holder = int(record.lock)  # read first: who holds it is a member
        seen = [(at, self.members.describe(Member.at(at))) for at, _ in self.members.records()]
        dead = [(at, peer) for at, peer in seen if not peer.alive]
        living, gone = {peer.pid for _, peer in seen if peer.alive}, {peer.pid for _, peer in dead}
        lost = holder not in living and (holder in gone or bool(holder and owned_lock.is_gone(holder)))
        lock = lost and bool(free_lock(self.address, holder))
        numbers = {(at - self.members.address) // Member.size + 1 for at, _ in dead}
        returned: dict[str, int] = {}
        serials = set()
        for address, name in self.caches().items():
            cache = Cache.at(address)
            if cache.member in numbers:
                self._check_cache(address, name)
                self.names[int(cache.number)] = f"{name}, which is gone"
                serials.add(int(cache.number))
                returned[name] = int(cache.length)
                cache.pid = os.getpid()  # for the lock, which is ours to hold now
                drain(address)
                give_up(address)
        for at, _ in dead:
            Membership.free(Member.at(at))
        if not dead:
            return PoolRecovery((), returned, lock, 0, ())
        out = audit.audit(self.address, self.caches(), self.names).out
        last = tuple(packet for packet in out if packet.trail and packet.cache in serials)
        return PoolRecovery(tuple(peer for _, peer in dead), returned, lock, len(out), last)

    def _check_cache(self, address: int, name: str) -> None:
        """Raise when what a dead process left in its cache cannot be put back."""
        q, length = Pool.at(self.address), int(Cache.at(address).length)
        if 0 <= length <= self.most:
            numbers, rest = np.divmod(audit.cache_handles(address) - int(q.first), int(q.stride))
            if not ((numbers < 0) | (numbers >= int(q.size)) | (rest != 0)).any():
                return
        raise PeerError(f"{name} is damaged: {length} packets, not all of which are any; make the pool anew")

    def reclaim(self, packets: "audit.Words") -> None:
        """See :meth:`wirespeed.core.packet_pool.PacketPool.reclaim`."""
        marks = np.zeros(int(Pool.at(self.address).size), np.uint8)
        there = put_back(
            self.address,
            np.uint32(os.getpid()),
            packets.ctypes.data,
            len(packets),
            marks.ctypes.data,
            self._first,
            self._step,
        )
        if there >= 0:
            raise GraphError(
                f"handle {there} of {len(packets)} is {int(packets[there]):#x}, which is in the pool already, or stands "
                "here twice; none was put back: give what audit() names as out now"
            )


def stride(room: int) -> int:
    """Bytes from one record to the next: whole cache lines, an odd number of them, so that records spread over sets."""
    lines = -(-(Packet.size + room) // LINE)
    return LINE * (lines | 1)


def header(size: int) -> int:
    """Bytes from a pool's address to its first packet."""
    return -(-(RING + ring.size_of(1 << size.bit_length())) // LINE) * LINE


def _caches_at(size: int, room: int) -> int:
    """Bytes from a pool's address to its caches."""
    return -(-(header(size) + size * stride(room)) // ALIGN) * ALIGN


def _cache_stride(size: int) -> int:
    """Bytes from one cache to the next."""
    return -(-(HANDLES + 8 * (min(CACHE_LIMIT, size) + 1)) // ALIGN) * ALIGN


def _name(record: Any) -> str:
    name = bytes(record.name).rstrip(b"\0").decode(errors="replace")
    return f"cache {record.number} ({name + ', ' if name else ''}process {record.pid})"


def _find(name: str, fd: int) -> _Mapping | None:
    """The mapping of a segment that this process has already, for one more user."""
    try:
        status = os.stat(segment.check_name(name)) if name else os.fstat(fd)
    except OSError:
        return None  # attaching says what is wrong
    mapping = _mappings.get((status.st_dev, status.st_ino))
    if mapping is None:
        return None
    mapping.users += 1
    # Its last user, an array, may have been collected just before that.
    return mapping if mapping.owner.address else None


def _check(owner: segment.Segment) -> tuple[int, int, int, int]:
    """Size, room, caches and members of the pool in a segment, none of which leads outside of it."""
    at, head = owner.address + segment.HEADER_SIZE, owner.header
    if owner.size < segment.HEADER_SIZE + header(1):
        raise PeerError(f"the pool is cut off: {owner.size} bytes hold none; have its maker make it anew")
    q, r = Pool.at(at), ring.Ring.at(at + RING)
    size, room, caches, members = int(q.size), int(q.room), int(q.caches), int(head.member_count)
    fits = 1 <= size <= MOST_SIZE and HEADROOM < room <= MOST_ROOM and 1 <= caches <= MOST_CACHES
    fits = fits and 1 <= members <= MOST_MEMBERS
    if fits:
        end = segment.HEADER_SIZE + _caches_at(size, room) + caches * _cache_stride(size)
        fits = (
            (owner.address, int(q.first), int(q.stride)) == (int(head.base), at + header(size), stride(room))
            and owner.address >= SHARED_BASE
            and (int(r.mask), int(r.capacity)) == ((1 << size.bit_length()) - 1, size)
            and int(head.members) == end
            and end + members * Member.size <= owner.size
        )
    if not fits:
        raise PeerError(
            f"the pool's record does not fit its memory: {size} packets of {room} bytes, {int(q.stride)} apart, {caches} "
            f"caches and {members} members in {owner.size} bytes at {owner.address:#x}; have its maker make it anew"
        )
    if int(q.debug) != int(DEBUG):
        raise PeerError(
            f"debug mode is {'on' if q.debug else 'off'} where the pool was made, and not here; set it alike"
        )
    _check_ring(at, size)
    _check_caches(at + _caches_at(size, room), caches, size)
    return size, room, caches, members


def _check_ring(pool: int, size: int) -> None:
    found = look_at_ring(pool)
    if found == SOUND:
        return
    record = ring.Ring.at(pool + RING)
    what = "has more than there is" if found == TOO_LONG else "has what is no packet"
    raise PeerError(
        f"the pool's ring {what}: taken up to {record.cons.tail}, put in up to {record.prod.tail}, of {size} packets; "
        f"have its maker make it anew"
    )


def _check_caches(first: int, count: int, size: int) -> None:
    for i in range(count):
        record = Cache.at(first + i * _cache_stride(size))
        length, limit = int(record.length), int(record.limit)
        if not (0 <= limit <= min(CACHE_LIMIT, size) and 0 <= length <= min(CACHE_LIMIT, size)):
            raise PeerError(
                f"cache {i} of the pool is damaged: {length} of {limit} packets; have its maker make it anew"
            )
