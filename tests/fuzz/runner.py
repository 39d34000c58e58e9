"""Fuzzing in a process of its own, which may die of it: ``python -m tests.fuzz.runner frames SEED COUNT PROGRESS``.

It prints one line of JSON: how many inputs were sound and, of one that was not, its number and the invariant it broke.
Which input was under way when the process died is in the file PROGRESS.
"""

import ctypes
import json
import mmap
import sys
from typing import Any

import numpy as np

from tests.fuzz import corpus, frame_check
from tests.fuzz.mutation import Input, Maker
from tests.net.frames import Edge
from wirespeed.net.layer import MAX_LAYERS, Layer
from wirespeed.net.toeplitz import table

BATCH = 2000
MAKERS = {"frames": corpus.frames}


class Progress:
    """The number of the input under way, in a file that outlives this process."""

    def __init__(self, path: str) -> None:
        with open(path, "w+b") as file:
            file.write(bytes(8))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), 8)
        self.address = ctypes.addressof(ctypes.c_int64.from_buffer(self._memory))


def frame_bench(progress: Progress) -> tuple[Any, Any]:
    """The kernel that checks frames and the record it works with; the second item keeps its memory."""
    edge, records, keys = Edge(), np.zeros(2 * MAX_LAYERS, Layer.dtype), table()
    bench = np.zeros(1, frame_check.Bench.dtype)
    half = records.ctypes.data + MAX_LAYERS * Layer.size
    bench[0] = (
        edge.low(b""), edge.high(b""), records.ctypes.data, half, keys.ctypes.data, progress.address, 0
    )  # fmt: skip
    return bench, (edge, records, keys)


def run(maker: Maker, check: Any, bench: np.ndarray, seed: int, count: int) -> dict[str, Any]:
    """Check ``count`` inputs, a batch at a time, up to the first that is not sound."""
    batch = np.zeros(BATCH, Input.dtype)
    for first in range(0, count, BATCH):
        n = min(BATCH, count - first)
        maker.fill(batch, seed, first, n)
        sound = int(check(bench.ctypes.data, batch.ctypes.data, n))
        if sound < n:
            return {"sound": first + sound, "number": first + sound, "violated": int(bench[0]["violated"])}
    return {"sound": count}


def main(kind: str, seed: str, count: str, progress: str) -> None:
    bench, memory = frame_bench(Progress(progress))
    print(json.dumps(run(MAKERS[kind](), frame_check.check, bench, int(seed), int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
