"""A distributor between threads: requests of many users on three workers, each user's in order and on one at a time."""

import threading

import numpy as np

import wirespeed as ws

COUNT, USERS = 300_000, 1000


def serve(worker: ws.DistributorWorker, last: np.ndarray) -> None:
    for burst in worker:  # it is given back, as it is then, on the next turn
        user = (burst % USERS).astype(np.int64)
        assert (last[user] < burst).all()  # nobody else has these users now: what is kept of them needs no lock
        last[user] = burst


requests = np.arange(1, COUNT + 1, dtype=np.uint64)
users = (requests % USERS).astype(np.uint32)
last = np.zeros(USERS, np.uint64)

with ws.Distributor(workers=3, burst=7) as distributor:
    threads = [threading.Thread(target=serve, args=(distributor.worker(), last)) for _ in range(3)]
    for thread in threads:
        thread.start()
    taken = done = 0
    while taken < COUNT:  # what is not taken stays ours, and distributor.reason says why
        taken += distributor.process(requests[taken:], users[taken:], timeout_s=1)
        done += len(distributor.returned())
    distributor.flush()
    done += len(distributor.returned())
    told = distributor.statistics
for thread in threads:
    thread.join()

print(f"{done} requests of {USERS} users are done, and nothing is lost: {told.balanced}")
for worker in told.workers:
    print(f"worker {worker.number}: {worker.packets} in {sum(worker.lines)} bursts")
