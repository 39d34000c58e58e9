"""Our side of the ring's bench: the loops of DPDK's ring_perf_autotest over our ring, compiled.

What is constant there is constant here: the sync, the size of an element, all or nothing, one element at a time.  The
number of a burst is known at run time only, on both sides.  ``which`` chooses the constants; with ``READ`` the size is
read from the ring's record instead.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wirespeed.core import ring as rings
from wirespeed.core.arena import Arena
from wirespeed.core.ring import MT, ST, Ring, dequeue, enqueue
from wirespeed.jit.atomics import fetch_add, load_acquire
from wirespeed.jit.intrinsics import cycles, pause
from wirespeed.jit.kernel import kernel
from wirespeed.jit.layout import layout

i64 = np.int64
SLOTS = 8192  # as there
MOST = 32  # elements a call
READ = 4  # added to ``which``: the size is not folded

# Lets two threads begin at once, and tells them that the time is over.
Gate = layout("BenchGate", [("arrived", "i8")], size=128)


@kernel(inline=True)
def _pairs(ring, items, n, iterations, size, exact, sync):
    done = i64(0)
    start = cycles()
    for _ in range(iterations):
        done += enqueue(ring, items, n, size, exact, sync)
        done += dequeue(ring, items, n, size, exact, sync)
    return cycles() - start, done


@kernel
def pairs(ring, items, n, iterations, which, exact):
    """Cycles of ``iterations`` times an enqueue and a dequeue of ``n``; and the elements that went through."""
    size = i64(Ring(ring).size)
    if exact:
        if which == 0:
            return _pairs(ring, items, n, iterations, 8, True, ST)
        if which == 1:
            return _pairs(ring, items, n, iterations, 8, True, MT)
        if which == 2:
            return _pairs(ring, items, n, iterations, 16, True, ST)
        if which == 3:
            return _pairs(ring, items, n, iterations, 16, True, MT)
        if which == READ:
            return _pairs(ring, items, n, iterations, size, True, ST)
        return _pairs(ring, items, n, iterations, size, True, MT)
    if which == 0:
        return _pairs(ring, items, n, iterations, 8, False, ST)
    if which == 1:
        return _pairs(ring, items, n, iterations, 8, False, MT)
    if which == 2:
        return _pairs(ring, items, n, iterations, 16, False, ST)
    return _pairs(ring, items, n, iterations, 16, False, MT)


@kernel
def singles(ring, items, iterations, which):
    """:func:`pairs`, one element at a time."""
    size = i64(Ring(ring).size)
    if which == 0:
        return _pairs(ring, items, i64(1), iterations, 8, True, ST)
    if which == 1:
        return _pairs(ring, items, i64(1), iterations, 8, True, MT)
    if which == 2:
        return _pairs(ring, items, i64(1), iterations, 16, True, ST)
    if which == 3:
        return _pairs(ring, items, i64(1), iterations, 16, True, MT)
    if which == READ:
        return _pairs(ring, items, i64(1), iterations, size, True, ST)
    return _pairs(ring, items, i64(1), iterations, size, True, MT)


@kernel(inline=True)
def _empty(ring, items, n, iterations, size, sync):
    done = i64(0)
    start = cycles()
    for _ in range(iterations):
        done += dequeue(ring, items, n, size, True, sync)
    return cycles() - start, done


@kernel
def empties(ring, items, n, iterations, which):
    """Cycles of ``iterations`` dequeues that find nothing."""
    if which == 0:
        return _empty(ring, items, n, iterations, 8, ST)
    if which == 1:
        return _empty(ring, items, n, iterations, 8, MT)
    if which == 2:
        return _empty(ring, items, n, iterations, 16, ST)
    return _empty(ring, items, n, iterations, 16, MT)


@kernel(inline=True)
def _meet(gate, n):
    """Wait until ``n`` threads are here."""
    fetch_add(Gate(gate), "arrived", 1)
    while load_acquire(Gate(gate), "arrived") < n:
        pause()


@kernel(inline=True)
def _produce(ring, items, n, iterations, size, sync):
    start = cycles()
    for _ in range(iterations):
        while enqueue(ring, items, n, size, True, sync) == 0:
            pause()
    return cycles() - start


@kernel(inline=True)
def _consume(ring, items, n, iterations, size, sync):
    start = cycles()
    for _ in range(iterations):
        while dequeue(ring, items, n, size, True, sync) == 0:
            pause()
    return cycles() - start


@kernel
def produce(ring, gate, items, n, iterations, which):
    """Cycles of putting ``iterations`` times ``n`` in, when the other thread is there."""
    _meet(gate, 2)
    if which == 0:
        return _produce(ring, items, n, iterations, 8, ST)
    if which == 1:
        return _produce(ring, items, n, iterations, 8, MT)
    if which == 2:
        return _produce(ring, items, n, iterations, 16, ST)
    return _produce(ring, items, n, iterations, 16, MT)


@kernel
def consume(ring, gate, items, n, iterations, which):
    """Cycles of taking ``iterations`` times ``n`` out."""
    _meet(gate, 2)
    if which == 0:
        return _consume(ring, items, n, iterations, 8, ST)
    if which == 1:
        return _consume(ring, items, n, iterations, 8, MT)
    if which == 2:
        return _consume(ring, items, n, iterations, 16, ST)
    return _consume(ring, items, n, iterations, 16, MT)


@kernel(inline=True)
def _work(ring, items, n, ticks, size):
    pairs_done = i64(0)
    start = cycles()
    while cycles() - start < ticks:  # there, too, the clock is read after each pair
        enqueue(ring, items, n, size, True, MT)
        dequeue(ring, items, n, size, True, MT)
        pairs_done += 1
    return pairs_done


@kernel
def work(ring, gate, items, n, ticks, which):
    """How many pairs, both of all or nothing, one of two workers does in so many cycles."""
    _meet(gate, 2)
    return _work(ring, items, n, ticks, 8) if which == 1 else _work(ring, items, n, ticks, 16)


@dataclass(frozen=True)
class Place:
    """A ring and what belongs to it: addresses."""

    ring: int
    gate: int
    items: tuple[int, int]


class Bench:
    """Rings to measure with; ``which`` is 0 or 1 for SP/SC or MP/MC with 8 bytes, 2 or 3 with 16."""

    def __init__(self) -> None:
        self._arena = Arena(4 << 20)

    def place(self, which: int) -> Place:
        """A new empty ring."""
        self._arena.used = 0  # One at a time.
        size = 16 if which & 2 else 8
        at = self._arena.alloc(rings.size_of(SLOTS, size), 128)
        record = Ring.at(at)
        for end in (record.prod, record.cons):
            end.word = end.begun = 0
        rings.init(at, SLOTS)
        record.size = size
        gate = self._arena.alloc(Gate.size, 128)
        Gate.at(gate).arrived = 0
        items = (self._arena.alloc(16 * MOST, 128), self._arena.alloc(16 * MOST, 128))
        return Place(at, gate, items)

    def close(self) -> None:
        """Give the memory back."""
        self._arena.close()


def together(cores: tuple[int, int], first: Callable[[], int], second: Callable[[], int]) -> tuple[int, int]:
    """What two functions return that run at once, each on a core of its own."""
    results = [0, 0]

    def run(number: int, function: Callable[[], int]) -> None:
        os.sched_setaffinity(0, {cores[number]})
        results[number] = function()

    threads = [threading.Thread(target=run, args=(k, f)) for k, f in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results[0], results[1]
