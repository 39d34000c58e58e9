"""Our side of the queue's bench: one producer, one consumer; ``python -m bench.ours_queue NAME ITEMS --cores A,B``.

Loops as a user writes them.  A burst is one array that the producer hands over again and again: the ring copies it, as
pipes and sockets do.  The consumer's bursts are those of ``for burst in ring``.  Times are taken as those of the peers:
from the first burst received to the last, and from the producer's start to the last.
"""

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import numpy as np

import wirespeed as ws
from bench.harness import ToolFailed
from bench.peers.queues import SECONDS, Rate, run_script

CONTEXT = multiprocessing.get_context("fork")  # as the peers'; the child attaches to the ring itself


@dataclass(frozen=True)
class Case:
    """How the ring is used: ``burst`` items a call, between two threads or two processes."""

    name: str
    between: Literal["threads", "processes"]
    burst: int
    items: int  # about half a second's worth
    slots: int
    dtype: Any = np.uint64
    sync: Literal["st", "mt"] = "st"


CASES = {
    case.name: case
    for case in (
        Case("threads.1", "threads", 1, 2_000_000, 1 << 18),
        Case("threads.32", "threads", 32, 50_000_000, 1 << 18),
        Case("threads.512", "threads", 512, 400_000_000, 1 << 19),
        Case("threads-mt.32", "threads", 32, 50_000_000, 1 << 18, sync="mt"),
        Case("threads-mt.512", "threads", 512, 400_000_000, 1 << 19, sync="mt"),
        Case("threads-objects.1", "threads", 1, 2_000_000, 1 << 18, object),
        Case("threads-objects.32", "threads", 32, 10_000_000, 1 << 18, object),
        Case("processes.1", "processes", 1, 2_000_000, 1 << 16),
        Case("processes.32", "processes", 32, 60_000_000, 1 << 16),
        Case("processes.512", "processes", 512, 400_000_000, 1 << 16),
        Case("processes-mt.32", "processes", 32, 60_000_000, 1 << 16, sync="mt"),
    )
}


def run(name: str, cores: Sequence[int], items: int | None = None, seconds: float = SECONDS) -> Rate:
    """Hand ``items`` over in a process of its own, the producer on the first core, the consumer on the second."""
    return run_script("bench.ours_queue", name, items or CASES[name].items, cores, seconds)


def hand_over(case: Case, items: int, cores: Sequence[int]) -> Rate:
    """Produce in a thread or a process, consume here; both stay on their core."""
    producing, consuming = cores
    calls = max(items // case.burst, 2)
    name = f"bench-{os.getpid()}" if case.between == "processes" else ""
    with ws.Ring(case.slots, dtype=case.dtype, prod=case.sync, cons=case.sync, name=name) as ring:
        if name:
            event = CONTEXT.Event()
            process = CONTEXT.Process(target=_attached, args=(name, case, calls, producing, event.wait), daemon=True)
            process.start()
            rate = _consume(ring, case, calls, consuming, event.set)
            process.join()
        else:
            go = threading.Event()
            thread = threading.Thread(target=_produce, args=(ring, case, calls, producing, go.wait), daemon=True)
            thread.start()
            rate = _consume(ring, case, calls, consuming, go.set)
            thread.join()
    return rate


def _attached(name: str, case: Case, calls: int, core: int, go: Callable[[], object]) -> None:
    with ws.Ring.attach(name) as ring:
        _produce(ring, case, calls, core, go)


def _produce(ring: ws.Ring, case: Case, calls: int, core: int, go: Callable[[], object]) -> None:
    os.sched_setaffinity(0, {core})
    if case.burst == 1:
        go()
        for i in range(calls):
            ring.enqueue(i, None)
        return
    items: Any = np.arange(case.burst, dtype=np.uint64)
    if case.dtype is object:
        items = items.tolist()
    go()
    for _ in repeat(None, calls):
        ring.enqueue_bulk(items, None)


def _consume(ring: ws.Ring, case: Case, calls: int, core: int, go: Callable[[], object]) -> Rate:
    os.sched_setaffinity(0, {core})
    clock = time.perf_counter
    left = calls * case.burst
    bursts = ring.bursts(case.burst)
    go()
    start = clock()
    if case.burst == 1:
        last = ring.dequeue(None, None)
        first = clock()
        for _ in repeat(None, calls - 1):
            last = ring.dequeue(None, None)
        end = clock()
        expected, after = calls - 1, calls - 1
    else:
        burst = next(bursts)
        first = clock()
        left -= len(burst)
        after = left
        for burst in bursts:
            left -= len(burst)
            if left <= 0:
                break
        end = clock()
        last, expected = int(burst[-1]), case.burst - 1
    if last != expected or (case.burst > 1 and left):
        raise ToolFailed(f"{case.name}: the last item is {last}, not {expected}, and {left} are missing")
    return Rate(after / (end - first), calls * case.burst / (end - start))


def _main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=CASES)
    parser.add_argument("items", type=int)
    parser.add_argument("--cores", default="0,1", help="the producer's and the consumer's: 0,1")
    options = parser.parse_args(arguments)
    rate = hand_over(CASES[options.name], options.items, [int(core) for core in options.cores.split(",")])
    print(json.dumps({"received": rate.received, "since_start": rate.since_start}))


if __name__ == "__main__":
    _main(sys.argv[1:])
