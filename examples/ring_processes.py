"""A ring between processes: a second Python attaches by name, takes measurements out and sends back their mean."""

import os
import subprocess
import sys

import numpy as np

import wirespeed as ws

MEASUREMENT = np.dtype([("sensor", "u4"), ("serial", "u4"), ("value", "f8")])
COUNT = 500_000


def worker(name: str) -> None:
    with ws.Ring.attach(name, member_name="worker") as ring, ws.Ring.attach(f"{name}-answers") as answers:
        total = sum(float(burst["value"].sum()) for burst in ring.bursts(512))  # until the other one shuts it down
        answers.enqueue(total / COUNT)


def main() -> None:
    name = f"example-{os.getpid()}"
    measurements = np.zeros(COUNT, MEASUREMENT)
    measurements["value"] = np.linspace(0, 10, COUNT)
    with (
        ws.Ring(4096, dtype=MEASUREMENT, name=name, prod="st", cons="st") as ring,
        ws.Ring(8, dtype="f8", name=f"{name}-answers") as answers,
        subprocess.Popen([sys.executable, __file__, name]) as process,
    ):
        at = 0
        while at < COUNT:  # a wait ends with a PeerError when the other process dies
            at += ring.enqueue_burst(measurements[at : at + 512], timeout_s=None)
        ring.shutdown()
        mean = answers.dequeue(timeout_s=60)
        print(f"process {process.pid} took {at} measurements of {ring.dtype.itemsize} bytes; their mean is {mean:.3f}")


if __name__ == "__main__":
    worker(sys.argv[1]) if len(sys.argv) > 1 else main()
