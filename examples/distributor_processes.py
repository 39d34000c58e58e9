"""A distributor whose workers are processes: one of them is killed, and another does what it had in hand."""

import os
import subprocess
import sys

import numpy as np

import wirespeed as ws

COUNT = 100_000


def work(name: str) -> None:
    with ws.DistributorWorker.attach(name) as worker:
        for burst in worker:  # until the distributor is closed
            burst += np.uint64(1_000_000)


def main() -> None:
    name, jobs = f"example-{os.getpid()}", np.arange(COUNT, dtype=np.uint64)
    with ws.Distributor(2, name=name) as distributor:
        processes = [subprocess.Popen([sys.executable, __file__, name]) for _ in range(2)]
        while len(distributor.active) < 2:
            distributor.process((), ())  # nothing to give: looks who is there
        taken, done = 0, []
        while taken < COUNT:
            taken += distributor.process(jobs[taken : taken + 64], jobs[taken : taken + 64] % 100, timeout_s=1)
            done.append(distributor.returned())
            if taken >= COUNT // 2:
                processes[0].kill()
        distributor.flush()  # who is dead is noticed within a tenth of a second
        taken_over = sum(w.taken_back for w in distributor.statistics.workers)
    [process.wait() for process in processes]
    once = np.array_equal(np.sort(np.concatenate([*done, distributor.returned()])), jobs + np.uint64(1_000_000))
    print(f"every job was done once: {once}; {taken_over} were taken over")


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
