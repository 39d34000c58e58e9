"""Packets and their pool beside DPDK's mempool and mbufs, on one core: cycles an object, for taking it and giving it back.

``bulk1`` to ``bulk32`` are handles through a worker's cache of 512, as ``rte_mempool_get_bulk`` and ``put_bulk``;
``nocache`` goes to the ring each time. The packet rows take packets in the state a port wants them in and free them as
their holders do: in bulk, one by one, as segments, as chains of four; ``.free`` is the freeing alone. All of DPDK's are
measured by a program of the bench's own over its library, compiled for this processor and for its own baseline, of which
the faster counts; ``mempool_perf_autotest`` is asked as well, and says how far it came.
"""

from collections import defaultdict
from collections.abc import Iterator

from bench.harness import Figure, Options, Row, ToolFailed, affinity, row_name, say
from bench.peers import dpdk_pool

ROUNDS = 5  # of both sides, for each of the runs asked for
PEER = "dpdk"
AUTOTEST_SECONDS = 20.0


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, row by row."""
    from bench import pool_loops

    reason = dpdk_pool.missing() if options.peer else None
    if reason:
        say(reason)
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: dict[str, list[float]] = defaultdict(list)
    with affinity({options.core}), pool_loops.Loops(options.quick) as loops:
        for number in range(options.runs * (1 if options.quick else ROUNDS)):
            say(f"round {number + 1}, core {options.core}")
            if options.peer and not reason:
                try:
                    for name, value in dpdk_pool.measure(options.core).items():
                        theirs[name].append(value)
                except ToolFailed as error:
                    reason = f"failed: {error}"
                    say(reason)
            for name, value in loops.measure():
                ours[name].append(value)
    peer = PEER if options.peer else None
    for name, samples in ours.items():
        row = row_name("pool", name, peer)
        if not options.wants(row):
            continue
        their = theirs.get(name, [])
        note = "; ".join(filter(None, (reason if peer else None, pool_loops.NOTES.get(name))))
        yield Row(row, "cycles", Figure.of(samples), peer, Figure.of(their) if their else None, note)
    if options.peer and not options.quick and options.wants("pool.mempool_perf_autotest"):
        yield _autotest(options)


def _autotest(options: Options) -> Row:
    if reason := dpdk_pool.missing():
        return Row("pool.mempool_perf_autotest", "cycles", None, PEER, None, reason)
    try:
        found = dpdk_pool.mempool_autotest(options.core, AUTOTEST_SECONDS)
    except ToolFailed as error:
        return Row("pool.mempool_perf_autotest", "cycles", None, PEER, None, f"failed: {error}")
    note = f"{found.note}; its loop is in the rows mempool.*"
    return Row("pool.mempool_perf_autotest", "cycles", None, PEER, None, note)
