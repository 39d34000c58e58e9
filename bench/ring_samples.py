"""Samples of our ring, in the units of DPDK's ring_perf_autotest."""

from collections.abc import Iterator

import numpy as np

from bench import machine
from bench.peers.ring_perf import Kind, Measure, Sync
from bench.ring_loops import READ, Bench, consume, empties, pairs, produce, singles, together, work
from wirespeed.engine.clock import CycleClock

i64 = np.int64
SYNCS: tuple[Sync, ...] = ("spsc", "mpmc")
BURSTS = (8, 32)
WORKERS_SECONDS = 0.1  # what the counts of all workers are of
SHORT = 20  # such a count is taken over a twentieth of that, for the placement must not change within it


class Sampler:
    """Takes samples, one of each row a call; everything is compiled when it is made."""

    def __init__(self, cores: tuple[int, int], quick: bool) -> None:
        self._cores = cores
        self._bench = Bench()
        self._iterations = 1 << (15 if quick else 17)
        self._ticks = int(CycleClock().hz() * WORKERS_SECONDS / SHORT)
        list(self.one_core(2))
        list(self.size_read(2))
        if cores[0] != cores[1]:
            list(self.two_cores(2))

    def close(self) -> None:
        """Give the memory back."""
        self._bench.close()

    def one_core(self, iterations: int = 0) -> Iterator[tuple[Measure, float]]:
        """Cycles of an enqueue and a dequeue, and of a dequeue that finds nothing."""
        times = i64(iterations or self._iterations)
        for which in range(4):
            size, sync = 16 if which & 2 else 8, SYNCS[which & 1]

            def sample(kind: Kind, n: int, cycles: int, size: int = size, sync: Sync = sync) -> tuple[Measure, float]:
                return Measure(size, sync, kind, n), cycles / int(times)

            place = self._bench.place(which)
            yield sample("single", 1, _all(singles(place.ring, place.items[0], times, i64(which)), 2 * int(times)))
            for n in BURSTS:
                kinds: tuple[tuple[Kind, bool], ...] = (("burst", False), ("bulk", True))
                for kind, exact in kinds:
                    place = self._bench.place(which)
                    got = pairs(place.ring, place.items[0], i64(n), times, i64(which), exact)
                    yield sample(kind, n, _all(got, 2 * n * int(times)))
            place = self._bench.place(which)
            yield sample("empty", 8, _all(empties(place.ring, place.items[0], i64(8), times, i64(which)), 0))

    def size_read(self, iterations: int = 0) -> Iterator[tuple[Measure, float]]:
        """The same with 8 bytes, whose size is read at run time."""
        times = i64(iterations or self._iterations)
        for which in range(2):
            place = self._bench.place(which)
            got = singles(place.ring, place.items[0], times, i64(which + READ))
            yield Measure(8, SYNCS[which], "single", 1), _all(got, 2 * int(times)) / int(times)
            for n in BURSTS:
                place = self._bench.place(which)
                got = pairs(place.ring, place.items[0], i64(n), times, i64(which + READ), True)
                yield Measure(8, SYNCS[which], "bulk", n), _all(got, 2 * n * int(times)) / int(times)

    def two_cores(self, iterations: int = 0) -> Iterator[tuple[Measure, float, str]]:
        """Cycles an element between two cores, and pairs that both do in 0.1 s; and where the cores were."""
        times = iterations or self._iterations >> 3
        for which in range(4):
            size, sync = 16 if which & 2 else 8, SYNCS[which & 1]
            for n in BURSTS:
                before = machine.quick_placement(*self._cores).word
                cycles = self._pass(which, n, times)
                if machine.quick_placement(*self._cores).word == before:
                    yield Measure(size, sync, "two-core", n), cycles / times / n, before
            if sync == "mpmc":
                for n in BURSTS:
                    before = machine.quick_placement(*self._cores).word
                    done = self._work(which, n)
                    if machine.quick_placement(*self._cores).word == before:
                        yield Measure(size, sync, "all-workers", n), float(done * SHORT), before

    def _pass(self, which: int, n: int, times: int) -> int:
        place = self._bench.place(which)
        rest = (i64(n), i64(times), i64(which))
        return sum(
            together(
                self._cores,
                lambda: produce(place.ring, place.gate, place.items[0], *rest),
                lambda: consume(place.ring, place.gate, place.items[1], *rest),
            )
        )

    def _work(self, which: int, n: int) -> int:
        place = self._bench.place(which)
        rest = (i64(n), i64(self._ticks), i64(which))
        return sum(
            together(
                self._cores,
                lambda: work(place.ring, place.gate, place.items[0], *rest),
                lambda: work(place.ring, place.gate, place.items[1], *rest),
            )
        )


def _all(result: tuple[int, int], elements: int) -> int:
    """The cycles, when as many elements went through as should have."""
    cycles, done = result
    if done != elements:
        raise RuntimeError(f"{done} elements went through, {elements} should have")
    return int(cycles)
