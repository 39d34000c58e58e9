"""Fuzzing in a process of its own, which may die of it: ``python -m tests.fuzz.runner frames SEED COUNT PROGRESS``.

It prints one line of JSON: how many inputs were sound and, of one that was not, its number and the invariant it broke.
Which input was under way when the process died is in the file PROGRESS.
"""

import ctypes
import functools
import json
import mmap
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz import corpus, file_check, frame_check, planted
from tests.fuzz.inputs import Input
from tests.fuzz.mutation import Maker
from tests.net.frames import Edge
from wirespeed.core.arena import Arena
from wirespeed.net.capture import scan, scanner, window
from wirespeed.net.layer import MAX_LAYERS, Layer
from wirespeed.net.toeplitz import table

BATCH = 2000
NOT_BEGUN = -1


class Progress:
    """The number of the input under way, in a file that outlives this process."""

    def __init__(self, path: str) -> None:
        with open(path, "w+b") as file:
            file.write(struct.pack("=q", NOT_BEGUN))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), 8)
        self.address = ctypes.addressof(ctypes.c_int64.from_buffer(self._memory))


class Bench(NamedTuple):
    """What inputs of one kind are made by and checked with."""

    maker: Maker
    check: Any  # kernel (bench, batch, n) -> how many are sound
    record: np.ndarray
    invariants: tuple[str, ...]
    memory: Any  # what must live as long


def frame_bench(progress: Progress) -> Bench:
    """For frames."""
    edge, records, keys = Edge(1 << 21), np.zeros(2 * MAX_LAYERS, Layer.dtype), table()
    record = np.zeros(1, frame_check.Bench.dtype)
    half = records.ctypes.data + MAX_LAYERS * Layer.size
    record[0] = (edge.low(b""), edge.high(b""), records.ctypes.data, half, keys.ctypes.data, progress.address, 0)
    memory = edge, records, keys, progress
    return Bench(corpus.frames(), frame_check.check, record, frame_check.INVARIANTS, memory)


def file_bench(progress: Progress) -> Bench:
    """For capture files."""
    edge, records, state = Edge(), np.zeros(MAX_LAYERS, Layer.dtype), np.zeros(1, file_check.State.dtype)
    arena = Arena(2 * scan.MEMORY + 4 * scan.Scan.size + (1 << 16))
    scans = [arena.alloc(scan.Scan.size) for _ in range(4)]
    for template in scans[2:]:
        scanner.init(template, arena.alloc(scan.MEMORY, 4096), -1, window.PUSHED)
    record = np.zeros(1, file_check.FileBench.dtype)
    record[0] = (*scans, edge.high(b""), records.ctypes.data, state.ctypes.data, progress.address, 0)
    memory = edge, records, state, arena, progress
    return Bench(corpus.files(), file_check.check, record, file_check.INVARIANTS, memory)


def planted_bench(progress: Progress, fault: int) -> Bench:
    """For seeing that faults are seen."""
    edge, record = Edge(), np.zeros(1, planted.Planted.dtype)
    record[0] = (edge.high(b""), progress.address, fault, 0)
    return Bench(corpus.own_files(), planted.check, record, planted.INVARIANTS, (edge, progress))


BENCHES: dict[str, Callable[[Progress], Bench]] = {
    "frames": frame_bench,
    "files": file_bench,
    "overrun": functools.partial(planted_bench, fault=planted.OVERRUN),
    "broken": functools.partial(planted_bench, fault=planted.BROKEN),
    "endless": functools.partial(planted_bench, fault=planted.ENDLESS),
}


def run(bench: Bench, seed: int, count: int) -> dict[str, Any]:
    """Check ``count`` inputs, a batch at a time, up to the first that is not sound."""
    batch = np.zeros(BATCH, Input.dtype)
    for first in range(0, count, BATCH):
        n = min(BATCH, count - first)
        bench.maker.fill(batch, seed, first, n)
        sound = int(bench.check(bench.record.ctypes.data, batch.ctypes.data, n))
        if sound < n:
            broken = bench.invariants[int(bench.record[0]["violated"])]
            return {"sound": first + sound, "number": first + sound, "broken": broken}
    return {"sound": count}


def main(kind: str, seed: str, count: str, progress: str) -> None:
    print(json.dumps(run(BENCHES[kind](Progress(progress)), int(seed), int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
