"""A ring between threads: two that put numbers in, two that add up what comes out, in bursts."""

import threading

import numpy as np

import wirespeed as ws

EACH = 1_000_000  # numbers a producer
BURST = 256


def produce(ring: ws.Ring, first: int) -> None:
    numbers = np.arange(first, first + EACH, dtype=np.uint64)
    at = 0
    while at < EACH:  # what does not fit waits for room
        at += ring.enqueue_burst(numbers[at : at + BURST], timeout_s=None)


def consume(ring: ws.Ring, sums: list[int]) -> None:
    sums.append(sum(int(burst.sum()) for burst in ring.bursts(BURST)))  # until it is shut down and empty


with ws.Ring(1 << 16) as ring:
    sums: list[int] = []
    producers = [threading.Thread(target=produce, args=(ring, k * EACH)) for k in range(2)]
    consumers = [threading.Thread(target=consume, args=(ring, sums)) for _ in range(2)]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join()
    ring.shutdown()  # nothing more comes
    for thread in consumers:
        thread.join()
    done = ring.statistics()

print(f"{done.dequeued} numbers in {done.dequeues} bursts, {done.dequeued / done.dequeues:.0f} at a time")
print(f"their sum is {sum(sums)}, and should be {sum(range(2 * EACH))}")
