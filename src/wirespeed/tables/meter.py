"""Meters: token buckets that say which packets of a burst are too many, shared by all workers.

Theory of operation
-------------------
A meter has up to eight bands, each a bucket that holds ``burst`` kilobits, or packets, and is refilled at ``rate`` of
them a second.  A packet takes its bits, or one packet, from every bucket that has so many; when one has not, the packet
is dropped, and counted by the band with the highest rate among those that were exceeded (the first of equals).  Where a
bucket has enough for a whole burst, it is taken at once.

Tokens are a thousand-millionth of what a rate counts, for then a nanosecond brings ``rate`` of them and nothing is ever
rounded: a packet is 10^9 tokens, a bit 10^6 (a kilobit a second is a bit in 10^6 ns).  The fullest bucket holds less than
2^32 * 10^9 tokens, and is given no more than that and 2^32 at once, together less than 2^63; a burst of 64 packets costs
less than 2^61.  A bucket whose last refill is as long ago as it takes to fill it is full, so the product that may be too
large is never made.  Open vSwitch counts whole milliseconds; where time goes by in those, both do the same, but for a
bucket there that stays a little short of full for ever when its rate does not divide its burst.

Each worker has read its clock some time before, so the time may be earlier than that of the last refill; then no time
has passed, and the time of the refill stays.

Thread rules: each meter has a spin lock, held for one burst.  Any number of threads may meter, and one may add, modify,
delete and read meters meanwhile.  A number without a meter lets everything pass.
Source: OpenFlow 1.5.1, 5.7, "Meter Table"; Open vSwitch's userspace meters for what that leaves open.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wirespeed.core.arena import LINE, Arena
from wirespeed.core.lock import lock, unlock
from wirespeed.errors import GraphError
from wirespeed.jit.atomics import load_relaxed
from wirespeed.jit.intrinsics import copy, load_u32, prefetch_write, stack, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u32, u64 = np.int64, np.uint32, np.uint64

BANDS = 8
BURST = 64  # most packets of one call
MOST = 1 << 18  # meters
_ABSENT, _BITS, _PACKETS = 0, 1, 2  # what a meter counts
_NEVER = (1 << 63) - 1
PACKET_TOKENS = 1_000_000_000
BYTE_TOKENS = 8_000_000

_Band = layout(
    "MeterBand",
    [
        ("rate", "u4"),
        ("burst", "u4"),
        ("filling", "i8"),  # nanoseconds until it is full when it was empty
        ("tokens", "i8"),
        ("packets", "u8"),  # dropped by it
        ("bytes", "u8"),
    ],
)
_Meter = layout(
    "Meter",
    [
        ("lock", "u4"),
        (None, 4),
        ("counts", "u4"),  # _ABSENT, _BITS or _PACKETS
        ("bands", "u4"),  # how many it has
        ("refilled", "i8"),  # when, in nanoseconds
        ("packets", "u8"),  # that came
        ("bytes", "u8"),
        (None, 24),
        ("band", "u1", BANDS * _Band.size),
    ],
)
assert _Meter.size % LINE == 0 and _Meter.offset("band") == LINE
_BAND, _METER = _Band.size, _Meter.size

Table = layout("MeterTable", [("first", "i8"), ("capacity", "i8"), (None, 48)])
assert Table.size == LINE


@kernel(inline=True)
def prefetch_meter(table, number):
    """Ask for a meter, which is about to be used."""
    at = Table(table).first + _METER * number
    prefetch_write(at)
    prefetch_write(at + LINE)


@kernel(inline=True)
def _tokens(m, packets, size):
    return packets * PACKET_TOKENS if m.counts == _PACKETS else size * BYTE_TOKENS


@kernel(inline=True)
def _refill(m, now_ns):
    """Put into all buckets what the time since the last refill brings."""
    elapsed = now_ns - m.refilled
    if elapsed <= 0:
        return
    m.refilled = now_ns
    for i in range(i64(m.bands)):
        b = _Band(m.band + _BAND * i)
        full = i64(b.burst) * PACKET_TOKENS
        b.tokens = full if elapsed >= b.filling else min(full, b.tokens + elapsed * i64(b.rate))


@kernel(inline=True)
def _take(m, tokens):
    """Take tokens from each bucket that has so many; a bit for each that has not."""
    exceeded = u64(0)
    for i in range(i64(m.bands)):
        b = _Band(m.band + _BAND * i)
        if b.tokens >= tokens:
            b.tokens -= tokens
        else:
            exceeded |= u64(1) << u64(i)
    return exceeded


@kernel
def _take_each(m, short, sizes, n):
    """Take tokens packet by packet from the buckets of the bits of ``short``; a bit for each packet that may pass."""
    passes = u64(0)
    for k in range(n):
        size = i64(load_u32(sizes + 4 * k))
        tokens = _tokens(m, i64(1), size)
        fastest, fired = i64(-1), i64(0)
        for i in range(i64(m.bands)):
            b = _Band(m.band + _BAND * i)
            if short >> u64(i) & u64(1) == 0:
                continue
            if b.tokens >= tokens:
                b.tokens -= tokens
            elif i64(b.rate) > fastest:
                fastest, fired = i64(b.rate), i64(i)
        if fastest < 0:
            passes |= u64(1) << u64(k)
        else:
            b = _Band(m.band + _BAND * fired)
            b.packets += u64(1)
            b.bytes += u64(size)
    return passes


@kernel
def meter(table, number, sizes, n, now_ns):
    """Put up to 64 packets through a meter, their sizes in bytes u4 at ``sizes``; a bit for each that may pass."""
    every = ~u64(0) >> u64(BURST - n) if n > 0 else u64(0)
    t = Table(table)
    if number < 0 or number >= t.capacity or n <= 0:
        return every
    m = _Meter(t.first + _METER * number)
    if load_relaxed(m, "counts") == _ABSENT:
        return every
    size = i64(0)
    for k in range(n):
        size += i64(load_u32(sizes + 4 * k))
    lock(m)
    passes = every
    if m.counts != _ABSENT:
        _refill(m, now_ns)
        m.packets += u64(n)
        m.bytes += u64(size)
        short = _take(m, _tokens(m, n, size))
        if short != 0:
            passes = _take_each(m, short, sizes, n)
    unlock(m)
    return passes


@kernel(inline=True)
def meter_one(table, number, size, now_ns):
    """Put one packet through a meter; whether it may pass."""
    sizes = stack(8)
    store_u32(sizes, u32(size))
    return meter(table, number, sizes, i64(1), now_ns) != 0


@kernel
def _put(table, number, new):
    """Have a meter be as the one at ``new``, but for its lock."""
    m = Table(table).first + _METER * number
    lock(_Meter(m))
    copy(m + 8, new + 8, _METER - 8)
    unlock(_Meter(m))


@kernel
def _get(table, number, out):
    """Copy a meter to ``out`` between two bursts."""
    m = Table(table).first + _METER * number
    lock(_Meter(m))
    copy(out + 8, m + 8, _METER - 8)
    unlock(_Meter(m))


class Band(NamedTuple):
    """Drop what exceeds ``rate`` kilobits or packets a second; a ``burst`` of 0 stands for one second's worth."""

    rate: int
    burst: int = 0


class Counts(NamedTuple):
    """Packets and bytes."""

    packets: int
    bytes: int


class Statistics(NamedTuple):
    """What came to a meter, and what each of its bands dropped."""

    total: Counts
    bands: list[Counts]


class Meters:
    """Room for meters with the numbers from 0 to ``capacity`` - 1, to be passed to kernels by its ``address``."""

    def __init__(self, capacity: int = 1024) -> None:
        if not 1 <= capacity <= MOST:
            raise GraphError(
                f"a switch has room for 1 to {MOST} meters, got {capacity}; give the most that it is to have"
            )
        self.capacity = capacity
        self.arena = Arena(Table.size + _METER * capacity, huge=False)
        self.address = self.arena.alloc(Table.size)
        record = Table.at(self.address)
        record.first, record.capacity = self.arena.alloc(_METER * capacity), capacity

    def __contains__(self, number: int) -> bool:
        return 0 <= number < self.capacity and bool(self._meter(number).counts != _ABSENT)

    def add(self, number: int, bands: Sequence[Band], *, packets: bool = False) -> None:
        """Make a meter of kilobits or ``packets`` a second, its buckets full."""
        if number in self:
            raise GraphError(f"there is a meter {number} already; modify or delete it")
        self._set(number, bands, packets)

    def modify(self, number: int, bands: Sequence[Band], *, packets: bool = False) -> None:
        """Replace a meter by a new one, its buckets full and its counters 0, as Open vSwitch does."""
        self._existing(number)
        self._set(number, bands, packets)

    def delete(self, number: int) -> Statistics:
        """Remove a meter, which lets everything pass then; what it had counted."""
        self._existing(number)
        counted = self.statistics(number)
        self._write(number, np.zeros(_METER, np.uint8))
        return counted

    def statistics(self, number: int) -> Statistics:
        """What a meter has counted, all of the same moment."""
        self._existing(number)
        memory = np.zeros(_METER, np.uint8)
        _get(self.address, i64(number), memory.ctypes.data)
        m = _Meter(memory)
        bands = _Band.array_at(memory.ctypes.data + LINE, BANDS)[: m.bands]
        return Statistics(
            Counts(int(m.packets), int(m.bytes)), [Counts(int(b["packets"]), int(b["bytes"])) for b in bands]
        )

    def close(self) -> None:
        """Unmap the memory; no kernel may use a meter afterwards."""
        self.arena.close()

    def _meter(self, number: int) -> Any:
        return _Meter.at(Table.at(self.address).first + _METER * number)

    def _existing(self, number: int) -> None:
        if number not in self:
            raise GraphError(f"there is no meter {number}; add it first")

    def _set(self, number: int, bands: Sequence[Band], packets: bool) -> None:
        if not 0 <= number < self.capacity:
            raise GraphError(f"meters here have the numbers 0 to {self.capacity - 1}, got {number}")
        if len(bands) > BANDS:
            raise GraphError(f"a meter has up to {BANDS} bands, got {len(bands)}; use several meters")
        memory = np.zeros(_METER, np.uint8)
        m = _Meter(memory)
        m.counts, m.bands = _PACKETS if packets else _BITS, len(bands)
        for i, (rate, burst) in enumerate(bands):
            if not (0 <= rate < 1 << 32 and 0 <= burst < 1 << 32):
                raise GraphError(f"a band's rate and burst are from 0 to {(1 << 32) - 1}, got {rate} and {burst}")
            b = _Band.at(memory.ctypes.data + LINE + _BAND * i)
            b.rate, b.burst = rate, burst or rate
            b.tokens = (burst or rate) * PACKET_TOKENS
            b.filling = -(-b.tokens // rate) if rate else _NEVER
        self._write(number, memory)

    def _write(self, number: int, memory: "np.ndarray[Any, np.dtype[np.uint8]]") -> None:
        _put(self.address, i64(number), memory.ctypes.data)
