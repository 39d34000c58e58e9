"""Where every packet of a pool is, who had those last that are out, and what is wrong with the others.

An audit is exact while no thread works on the pool; under way it is a guess.  Outside debug mode it can say which
packets are out, not who had them.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wirespeed.core import ring
from wirespeed.core.history import events
from wirespeed.core.packet import SPECIAL, Packet
from wirespeed.core.pool import FAULTS, HANDLES, LOG, RECORD, RING, Cache, Fault, Pool

SHOWN = 16  # packets that a text names, and how many of each kind of damage
Words = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Out:
    """A packet that is not in the pool.  ``cache`` and ``trail`` (the latest event first) are known in debug mode."""

    number: int
    handle: int
    refcnt: int
    cache: int
    name: str
    trail: tuple[str, ...]

    def __str__(self) -> str:
        text = f"packet {self.number} at {self.handle:#x}, refcnt {self.refcnt}"
        if self.trail:
            text += f", had by {self.name} (latest first: {', '.join(self.trail)})"
        return text


@dataclass(frozen=True, slots=True)
class Audit:
    """Where the packets of a pool are; ``print`` it.

    ``in_ring`` and ``in_caches`` are counts, ``out`` are the packets that are elsewhere, ``damage`` says what cannot
    be (a packet in two places, a foreign handle, one that is not at rest), ``faults`` counts what debug mode found
    and ``log`` tells the latest of it.
    """

    size: int
    in_ring: int
    in_caches: dict[str, int]
    out: tuple[Out, ...]
    damage: tuple[str, ...]
    faults: dict[str, int]
    log: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong; packets that are out are no damage."""
        return not self.damage and not any(self.faults.values())

    def __str__(self) -> str:
        free = self.in_ring + sum(self.in_caches.values())
        lines = [f"{self.size} packets: {free} free, {len(self.out)} out", f"  in the ring: {self.in_ring}"]
        lines += [f"  in {name}: {length}" for name, length in self.in_caches.items()]
        lines += _some("out: ", self.out)
        if self.out and not any(packet.trail for packet in self.out):
            lines.append("  WIRESPEED_DEBUG=1 tells who had them")
        lines += _some("damage: ", self.damage)
        lines += [f"  {name}: {count}" for name, count in self.faults.items() if count]
        lines += [f"  fault: {text}" for text in self.log]
        return "\n".join(lines)


def _some(kind: str, things: tuple[Any, ...]) -> list[str]:
    lines = [f"  {kind}{thing}" for thing in things[:SHOWN]]
    if len(things) > SHOWN:
        lines.append(f"  {kind}and {len(things) - SHOWN} more")
    return lines


def audit(pool: int, caches: Mapping[int, str], names: Mapping[int, str]) -> Audit:
    """Walk the pool at an address; ``caches`` are its open ones with their names, ``names`` those of all by number."""
    q = Pool.at(pool)
    size, stride, first = int(q.size), int(q.stride), int(q.first)
    places = {"the ring": ring_handles(pool)} | {name: cache_handles(at) for at, name in caches.items()}
    records = packets(pool)
    damage: list[str] = []
    found = np.zeros(size, np.int64)  # how many places have the packet
    for place, handles in places.items():
        numbers, rest = np.divmod(handles - first, stride)
        ours = (numbers >= 0) & (numbers < size) & (rest == 0)
        damage += [f"{place} has {int(handle):#x}, which is no packet of the pool" for handle in handles[~ours]]
        np.add.at(found, numbers[ours], 1)
        places[place] = numbers[ours]
    for number in np.flatnonzero(found > 1):
        where = [place for place, numbers in places.items() for _ in range(int((numbers == number).sum()))]
        damage.append(f"packet {number} is in {' and in '.join(where)}")
    damage += [_unrest(int(n), records[n]) for n in np.flatnonzero((found > 0) & ~_rest(records, q))]
    out = tuple(_out(int(n), first + int(n) * stride, records[n], names) for n in np.flatnonzero(found == 0))
    lengths = {place: len(numbers) for place, numbers in places.items()}
    in_ring = lengths.pop("the ring")
    return Audit(size, in_ring, lengths, out, tuple(damage), faults(pool), _log(pool, names))


def faults(pool: int) -> dict[str, int]:
    """Debug mode's counts, by name."""
    return dict(zip(FAULTS, map(int, Pool.at(pool).faults), strict=True))


def packets(pool: int) -> Any:
    """The records of a pool's packets, as a NumPy array over them."""
    q = Pool.at(pool)
    memory: Any = (ctypes.c_uint8 * (q.size * q.stride)).from_address(q.first)
    return np.ndarray((q.size,), Packet.dtype, memory, strides=(q.stride,))


def ring_handles(pool: int) -> Words:
    """What stands in a pool's ring, the oldest first."""
    record = ring.Ring.at(pool + RING)
    # A pool that processes share works at each end alone, where there is no head.
    head = int(record.cons.tail if Pool.at(pool).caches else record.cons.position)
    mask = int(record.mask)
    length = int(record.prod.tail) - head & 0xFFFFFFFF
    slots = _words(pool + RING + ring.SLOTS, mask + 1)
    handles: Words = slots[(head + np.arange(min(length, mask + 1))) & mask]
    return handles


def cache_handles(cache: int) -> Words:
    """What stands in a cache, the coldest first."""
    return _words(cache + HANDLES, int(Cache.at(cache).length)).copy()


def _words(address: int, length: int) -> Words:
    memory: Any = (ctypes.c_int64 * length).from_address(address)
    return np.frombuffer(memory, np.int64) if length else np.empty(0, np.int64)


def _rest(records: Any, pool: Any) -> npt.NDArray[np.bool_]:
    own = int(pool.first) + RECORD + int(pool.stride) * np.arange(len(records), dtype=np.int64)
    alone = (records["refcnt"] == 1) & (records["next"] == 0) & (records["segments"] == 1)
    whole = (records["buffer"] == own) & (records["capacity"] == int(pool.room))
    result: npt.NDArray[np.bool_] = alone & (records["flags"] & SPECIAL == 0) & whole
    return result


def _unrest(number: int, p: Any) -> str:
    state = f"refcnt {p['refcnt']}, next {int(p['next']):#x}, segments {p['segments']}, flags {int(p['flags']):#x}"
    state += f", buffer {int(p['buffer']):#x}"
    return f"packet {number} is free, but not at rest: {state} of {p['capacity']} bytes{_trail(p)}"


def _trail(p: Any) -> str:
    trail = events(int(p["trail"]))
    return f" (latest first: {', '.join(trail)})" if trail else ""


def _name(number: int, names: Mapping[int, str]) -> str:
    return names.get(number, f"cache {number} of another process" if number else "nobody yet")


def _out(number: int, handle: int, p: Any, names: Mapping[int, str]) -> Out:
    cache = int(p["holder"])
    return Out(number, handle, int(p["refcnt"]), cache, _name(cache, names), events(int(p["trail"])))


def _log(pool: int, names: Mapping[int, str]) -> tuple[str, ...]:
    q = Pool.at(pool)
    size, stride, first = int(q.size), int(q.stride), int(q.first)
    latest = int(q.faulted)
    entries = Fault.array_at(pool + Pool.offset("log"), LOG)
    records = packets(pool)
    lines = []
    for serial in range(latest, max(0, latest - LOG), -1):
        entry = entries[(serial - 1) % LOG]
        number, rest = divmod(int(entry["handle"]) - first, stride)
        ours = 0 <= number < size and rest == 0
        what = f"packet {number}" if ours else f"{int(entry['handle']):#x}"
        tail = _trail(records[number]) if ours else ""
        lines.append(f"{FAULTS[entry['kind']]} of {what} in {_name(int(entry['cache']), names)}{tail}")
    return tuple(lines)
