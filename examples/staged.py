"""Pass numbers through two stages with four threads that finish out of order; they come out in order."""

import random
import threading
import time
from itertools import pairwise

from wirespeed.core.staged_ring import StagedRing

N = 2000
finished: list[int] = []  # the first number of each run, as the first stage's workers got done with it


def work(ring: StagedRing, stage: int, done: threading.Event) -> None:
    """Take what waits for a stage, a few numbers at a time, and write back what becomes of them."""
    while not done.is_set():
        with ring.acquire(stage, 8, timeout_s=0.01) as run:
            if len(run):
                time.sleep(random.random() / 1000)  # some take longer than others
                finished.extend(run.items[:1].tolist() if stage == 0 else [])
                run.items[:] = run.items**2 if stage == 0 else run.items + 1


if __name__ == "__main__":
    done = threading.Event()
    with StagedRing(256, stages=2) as ring:
        workers = [threading.Thread(target=work, args=(ring, stage, done)) for stage in (0, 0, 1, 1)]
        for worker in workers:
            worker.start()
        out: list[int] = []
        put = 0
        while len(out) < N:
            put += ring.enqueue_burst(range(put, min(put + 64, N)))
            out += ring.dequeue_burst(64, timeout_s=0.001).tolist()
        done.set()
        for worker in workers:
            worker.join()
    late = sum(a > b for a, b in pairwise(finished))
    assert out == [number**2 + 1 for number in range(N)]
    print(f"{N} numbers in order, after {late} of {len(finished)} runs were finished before one that came earlier")
