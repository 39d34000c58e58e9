"""Our side of the distributor's bench: the loops of DPDK's distributor_perf_autotest, and of ``peers/distributor.c``.

Between two cores: the distributor gives 64 items a call, again when not all were taken, and the worker does nothing but
give them back.  Unlike there, what came back is fetched.  On one core: between the calls the same thread plays all
workers, and only the distributor's own part is timed.
"""

import os
import threading
import time

import numpy as np
from numpy.typing import NDArray

from wirespeed.core.distributor.backlog import Distributor
from wirespeed.core.distributor.desk import Cursor, items_of, join, poll, request
from wirespeed.core.distributor.memory import DistributorMemory, Shape
from wirespeed.core.distributor.pins import WORKER_BITS, is_live_at, lane_of
from wirespeed.core.distributor.process import process, returned
from wirespeed.jit.atomics import load_acquire
from wirespeed.jit.intrinsics import cycles, load_u32, load_u64, pause
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64, u32, u64 = np.int64, np.uint32, np.uint64
BURST = 64  # items a call

End = layout("BenchEnd", [("over", "u4")], size=128)


@kernel
def echo(cursor, end):
    """Be a worker that gives back what it gets, until it is over; how many items."""
    done = i64(0)
    join(cursor)
    while True:
        n = poll(cursor)
        if n >= 0:
            done += n
            request(cursor, items_of(cursor), n)
        elif load_acquire(End(end), "over") != 0:
            return done
        else:
            pause()
            pause()  # twice: looks that follow each other too fast hold up the line on its way


@kernel
def distribute(distributor, items, tags, n, rounds, out):
    """Give ``n`` items ``rounds`` times; cycles, and how many came back in all once everything did."""
    back = i64(0)
    start = cycles()
    for _ in range(rounds):
        done = i64(0)
        while done < n:
            done += process(distributor, items + 8 * done, tags + 4 * done, n - done)
        back += returned(distributor, out, n)
    spent = cycles() - start
    while back < n * rounds:
        process(distributor, items, tags, i64(0))
        back += returned(distributor, out, n)
    return spent, back


@kernel(inline=True)
def _play(cursors, workers):
    for k in range(workers):
        cursor = cursors + CURSOR * k
        while True:
            n = poll(cursor)
            if n < 0:
                break
            request(cursor, items_of(cursor), n)


@kernel
def own_cost(distributor, cursors, workers, items, tags, total, n, rounds, out):
    """Cycles of the distributor's part of ``rounds`` calls with ``n`` of the ``total`` items, and how many it took.

    Where a line is one item, a call gets no more than there are workers without one, as the peer's does.
    """
    d = Distributor(distributor)
    spent, taken, at, clock = i64(0), i64(0), i64(0), i64(1) << 40
    for _ in range(16):
        start = cycles()
        clock = min(clock, cycles() - start)
    for _ in range(rounds):
        at = i64(0) if at + n > total else at
        few = n if d.burst > 1 else max(i64(1), min(n, workers - d.outstanding))
        start = cycles()
        done = process(distributor, items + 8 * at, tags + 4 * at, few)
        returned(distributor, out, n + n)
        spent += cycles() - start - clock
        taken += done
        at += done
        _play(cursors, workers)
    return spent, taken


@kernel
def match_cost(distributor, tags, total, n, rounds):
    """Cycles of looking ``n`` of the ``total`` tags up, ``rounds`` times; and on how many workers they were, summed."""
    d = Distributor(distributor)
    table, mask, multiplier, backlogs = d.pins.table, d.pins.mask, d.pins.multiplier, d.backlogs
    found, at = i64(0), i64(0)
    start = cycles()
    for _ in range(rounds):
        at = i64(0) if at + n > total else at
        for k in range(n):
            tag = load_u32(tags + 4 * (at + k))
            word = load_u64(lane_of(table, mask, multiplier, tag))
            worker = i64(u32(word) & u32(WORKER_BITS))
            if u32(word >> u64(32)) == tag and is_live_at(u32(word), backlogs + d.pins.stride * worker):
                found += worker + 1
        at += n
    return cycles() - start, found


CURSOR = Cursor.size


class Pair:
    """A distributor on one core and a worker on another."""

    def __init__(self, cores: tuple[int, int], **shape: int) -> None:
        self._cores = cores
        self._memory = DistributorMemory(Shape(1, **shape))
        self._items = np.arange(BURST, dtype=np.uint64)
        self._tags = np.arange(BURST, dtype=np.uint32)  # as DPDK's test has them
        self._out = np.empty(BURST, np.uint64)
        self._end = np.zeros(2 * End.size, np.uint8)
        at = int(self._end.ctypes.data)
        self._end_at = at + -at % End.size
        self._done = 0
        self._worker = threading.Thread(target=self._work)
        self._worker.start()
        while not self._memory.record.n_active:
            process(self._memory.address, self._items.ctypes.data, self._tags.ctypes.data, 0)
            time.sleep(0.0001)

    def _work(self) -> None:
        os.sched_setaffinity(0, {self._cores[1]})
        self._done = echo(self._memory.cursor(0), self._end_at)

    def sample(self, rounds: int) -> float:
        """Cycles a packet of ``rounds`` calls, made by the calling thread on the first core."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self._cores[0]})
        try:
            items, tags, out = (a.ctypes.data for a in (self._items, self._tags, self._out))
            spent, back = distribute(self._memory.address, items, tags, BURST, rounds, out)
        finally:
            os.sched_setaffinity(0, before)
        if back != BURST * rounds:
            raise RuntimeError(f"{back} items came back, {BURST * rounds} should have")
        return float(spent) / back

    def close(self) -> None:
        """End the worker."""
        self._end[self._end_at - self._end.ctypes.data] = 1
        self._worker.join()


class Core:
    """A distributor whose workers are played by its own thread."""

    def __init__(self, workers: int, traffic: str, **shape: int) -> None:
        self._memory = DistributorMemory(Shape(workers, **shape))
        self._workers = workers
        self._tags = _traffic(traffic)
        self._items = np.arange(len(self._tags), dtype=np.uint64)
        self._out = np.empty(4 * BURST, np.uint64)
        for k in range(workers):
            join(self._memory.cursor(k))
        process(self._memory.address, self._items.ctypes.data, self._tags.ctypes.data, 0)

    def sample(self, rounds: int) -> tuple[float, float]:
        """Cycles a packet, in all and of the match; the second with as many tags live as there are then."""
        memory, total = self._memory, len(self._tags)
        items, tags = self._items.ctypes.data, self._tags.ctypes.data
        spent, taken = own_cost(
            memory.address, memory.cursor(0), self._workers, items, tags, total, BURST, rounds, self._out.ctypes.data
        )
        if taken < rounds:
            raise RuntimeError(f"{taken} items were taken in {rounds} calls")
        match, _ = match_cost(memory.address, tags, total, BURST, rounds)
        return float(spent) / taken, float(match) / (BURST * rounds)


def _traffic(name: str) -> NDArray[np.uint32]:
    if name == "seq":  # numbered through: no flow is found held
        return np.arange(1 << 16, dtype=np.uint32)
    return (np.random.default_rng(1).integers(0, 4096, 1 << 16) * 16).astype(np.uint32)
