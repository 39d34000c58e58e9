"""The ring from Python beside Python's queues: between two threads, and between two processes.

Million items a second from the first burst received to the last, one producer and one consumer, each pinned to a core
of its own. Ours hands over 64-bit integers, singly or as arrays; what a peer hands over is in its name: integers one at
a time, lists of integers, or as many words as bytes. ``-objects`` rows are ours with Python objects.
"""

import os
from collections import defaultdict
from collections.abc import Iterator

from bench.harness import Figure, Options, Row, ToolFailed, interleave, row_name, say
from bench.peers import queues

QUICK_SHARE = 10  # of the items, in a quick run

# Ours, and what each is compared with.
COMPARED: dict[str, tuple[str, ...]] = {
    "threads.1": ("SimpleQueue.1",),
    "threads.32": ("SimpleQueue.1", "SimpleQueue.list.32"),
    "threads.512": ("SimpleQueue.1", "SimpleQueue.list.512"),
    "threads-mt.32": ("SimpleQueue.1",),
    "threads-mt.512": ("SimpleQueue.1",),
    "threads-objects.1": ("SimpleQueue.1",),
    "threads-objects.32": ("SimpleQueue.1", "SimpleQueue.list.32"),
    "processes.1": ("multiprocessing.Queue.1", "multiprocessing.Pipe.1", "multiprocessing.Pipe.bytes.1",
                    "pyzmq.bytes.1", "faster_fifo.1", "faster_fifo.bytes.1"),
    "processes.32": ("multiprocessing.Queue.1", "multiprocessing.Queue.list.32", "multiprocessing.Pipe.bytes.32",
                     "pyzmq.bytes.32", "faster_fifo.list.32", "faster_fifo.many.32", "faster_fifo.bytes.32"),
    "processes.512": ("multiprocessing.Queue.1",),
    "processes-mt.32": ("multiprocessing.Queue.1",),
}  # fmt: skip


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, row by row."""
    from bench import ours_queue

    cores = sorted(os.sched_getaffinity(0))
    pair = (options.core, next((core for core in cores if core != options.core), options.core))
    wanted = [ours for ours in COMPARED if any(options.wants(name) for name in _names(ours, options.peer))]
    peers = sorted({peer for ours in wanted for peer in COMPARED[ours]}) if options.peer else []
    absent = {peer: reason for peer in peers if (reason := queues.missing(peer))}
    for reason in sorted(set(absent.values())):
        say(reason)
    samples: dict[str, list[float]] = defaultdict(list)
    failed: dict[str, str] = dict(absent)

    def once(what: str) -> None:
        if what in failed:
            return
        try:
            if what in ours_queue.CASES:
                items = ours_queue.CASES[what].items
                rate = ours_queue.run(what, pair, items // QUICK_SHARE if options.quick else items)
            else:
                items = queues.PEERS[what].items
                rate = queues.run(what, pair, items // QUICK_SHARE if options.quick else items)
            samples[what].append(rate.received / 1e6)
        except ToolFailed as error:
            failed[what] = f"failed: {error}"
            say(f"{what}: {error}")

    rounds = iter(range(options.runs))
    for number in rounds:
        say(f"round {number + 1} of {options.runs}, cores {pair[0]} and {pair[1]}")
        interleave([*wanted, *peers], 1, once)
    for ours in wanted:
        for peer in COMPARED[ours] if options.peer else (None,):
            name = row_name("queue", ours, peer)
            if not options.wants(name):
                continue
            yield Row(
                name,
                "Mitems/s",
                Figure.of(samples[ours]) if samples[ours] else None,
                peer,
                Figure.of(samples[peer]) if peer and samples[peer] else None,
                "; ".join(filter(None, (failed.get(ours), failed.get(peer or "")))),
            )


def _names(ours: str, with_peers: bool) -> list[str]:
    return [row_name("queue", ours, peer) for peer in (COMPARED[ours] if with_peers else (None,))]
