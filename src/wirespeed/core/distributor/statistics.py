"""Numbers of a distributor: frozen, to be read at any time by the thread that uses it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from wirespeed.core.distributor.desk import Desk
from wirespeed.core.distributor.memory import DistributorMemory
from wirespeed.core.distributor.pins import LINE_BITS, LINE_SHIFT, WORKER_BITS, Lane


@dataclass(frozen=True)
class WorkerStatistics:
    """One worker, whoever had its place so far; ``name`` is that of who has it now.

    ``packets`` were sent to it and ``lines[k]`` of the lines were of k items; ``returned`` came back, ``consumed`` did
    not (the worker had done with them), ``added`` came back beyond what was sent.  ``lost`` were counted so by a fence or
    with a dead worker, ``taken_back`` given to others.  ``occupancy`` is how many lines were under way on average, the
    one sent included, ``in_flight`` how many items are now, ``waiting`` how many more are kept for it; ``pinned`` is how
    many tags are on it.  ``beats`` counts its looks for a line: it tells one that works from one that hangs.
    """

    number: int
    name: str
    active: bool
    stalled: bool
    packets: int
    returned: int
    consumed: int
    added: int
    lost: int
    taken_back: int
    takeovers: int
    fences: int
    joins: int
    malformed: int
    lines: tuple[int, ...]
    occupancy: float
    in_flight: int
    waiting: int
    pinned: int
    beats: int


@dataclass(frozen=True)
class DistributorStatistics:
    """The whole: ``processed`` items were taken, ``parked`` wait for stalled workers (``parked_ever`` did once).

    ``ready`` came back and wait to be taken; ``outstanding`` are with workers, kept for them or parked; ``no_place``
    counts offers of tags that the table had no room for.
    """

    processed: int
    outstanding: int
    ready: int
    parked: int
    parked_ever: int
    no_place: int
    workers: tuple[WorkerStatistics, ...]

    @property
    def returned(self) -> int:
        """Items that came back."""
        return sum(w.returned for w in self.workers)

    @property
    def lost(self) -> int:
        """Items counted lost."""
        return sum(w.lost for w in self.workers)

    @property
    def balanced(self) -> bool:
        """Whether every item is accounted for."""
        came = self.returned + sum(w.consumed - w.added for w in self.workers)
        return self.processed == came + self.lost + self.outstanding


def read(memory: DistributorMemory, kept: int = 0) -> DistributorStatistics:
    """The numbers of a distributor; ``kept`` items have been taken out of its returns, and wait elsewhere."""
    record = memory.record
    pinned = _pinned(memory)
    return DistributorStatistics(
        processed=int(record.processed),
        outstanding=int(record.outstanding),
        ready=int(record.returns_tail - record.returns_head) + kept,
        parked=int(record.parked_tail - record.parked_head),
        parked_ever=int(record.parked_ever),
        no_place=int(record.out_of_place),
        workers=tuple(_worker(memory, number, int(pinned[number])) for number in range(memory.shape.workers)),
    )


def _worker(memory: DistributorMemory, number: int, pinned: int) -> WorkerStatistics:
    b, desk = memory.backlog(number), Desk.at(memory.desks.desk(number))
    lines = tuple(int(n) for n in b.bursts[: memory.shape.burst + 1])
    in_flight = sum(memory.counts(number, int(b.window.done), int(b.sent)))
    return WorkerStatistics(
        number=number,
        name=bytes(desk.name).rstrip(b"\0").decode(errors="replace") if desk.owner else "",
        active=bool(b.active),
        stalled=bool(b.stalled),
        packets=int(b.packets),
        returned=int(b.returned),
        consumed=int(b.consumed),
        added=int(b.added),
        lost=int(b.lost),
        taken_back=int(b.taken_back),
        takeovers=int(b.takeovers),
        fences=int(b.fences),
        joins=int(b.joins),
        malformed=int(b.malformed),
        lines=lines,
        occupancy=int(b.occupancy) / max(1, sum(lines)),
        in_flight=in_flight,
        waiting=sum(memory.counts(number, int(b.sent), int(b.open))) + int(b.fill),
        pinned=pinned,
        beats=int(desk.beats),
    )


def _pinned(memory: DistributorMemory) -> Any:
    """How many live tags each worker has."""
    pins = memory.record.pins
    entries = Lane.array_at(int(pins.table), int(pins.mask) // Lane.size + 1)["entry"].astype(np.int64)
    count = memory.shape.workers
    windows = [memory.backlog(number).window for number in range(count + 1)]  # the last is of lanes never used
    done = np.array([w.done for w in windows], np.int64)
    length = np.array([w.length for w in windows], np.int64)
    worker = entries & WORKER_BITS
    live = ((entries >> LINE_SHIFT) - done[worker] & LINE_BITS) < length[worker]
    return np.bincount(worker[live], minlength=count)[:count]
