"""The ring beside DPDK's: its ring_perf_autotest, row by row, on one core, between two and on all at once.

One core: cycles of an enqueue and the dequeue that follows it, for the whole burst. Two cores: cycles an element, the
producer's and the consumer's added. All workers: pairs of calls in 100 ms. Elements of 8 and 16 bytes.

Where the host runs this machine's two cores changes every row between them by four times, and changes while one
measures. So both sides are measured in turn, many times, each sample between two measures of a cache line's round trip,
and only samples of the same placement are compared; a sample in which it changed counts for nothing.

The rows ``...-read.folded`` compare the 64-bit ring with itself when the size of an element is read at run time.
"""

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log

from bench import machine
from bench.harness import Figure, Options, Row, ToolFailed, affinity, row_name, say
from bench.peers import ring_perf
from bench.peers.ring_perf import Measure

ONE_CORE_SAMPLES = 5  # of ours a round; the peer prints one figure a run
TWO_CORE_SAMPLES = 4
ROUNDS = 2  # a round of both sides, for each of the runs asked for
PEER = "dpdk"

Samples = dict[tuple[Measure, str], list[float]]


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, row by row."""
    cores = sorted(os.sched_getaffinity(0))
    # In this order: with the main thread on the higher of two cores the peer's rows of two cores never end.
    first, second = sorted((options.core, next((core for core in cores if core != options.core), options.core)))
    pair = (first, second)
    theirs: Samples = defaultdict(list)
    ours: Samples = defaultdict(list)
    read: Samples = defaultdict(list)
    reason = ring_perf.missing() if options.peer else None
    if reason:
        say(reason)
    from bench import ring_samples

    bench = ring_samples.Sampler(pair, options.quick)
    for number in range(options.runs * ROUNDS):
        say(f"round {number + 1} of {options.runs * ROUNDS}, cores {pair[0]} and {pair[1]}")
        if options.peer and not reason:
            reason = _their_round(pair, theirs)
        with affinity({pair[0]}):
            for _ in range(ONE_CORE_SAMPLES):
                for measure, value in bench.one_core():
                    ours[measure, ""].append(value)
                for measure, value in bench.size_read():
                    read[measure, ""].append(value)
        if pair[0] != pair[1]:
            for _ in range(TWO_CORE_SAMPLES):
                for measure, value, kind in bench.two_cores():
                    ours[measure, kind].append(value)
    bench.close()
    yield from _rows(options, ours, theirs, reason)
    yield from _folded(options, ours, read)


def _their_round(pair: Sequence[int], theirs: Samples) -> str | None:
    before = machine.measure_placement(*pair).word
    try:
        figures = ring_perf.measure(pair)
    except ToolFailed as error:
        say(f"dpdk-test: {error}")
        return f"failed: {error}"
    same = machine.measure_placement(*pair).word == before
    for measure, value in figures.items():
        if measure.kind not in ("two-core", "all-workers"):
            theirs[measure, ""].append(value)
        elif same:
            theirs[measure, before].append(value)
    return None


def _name(measure: Measure, kind: str) -> str:
    where = {"two-core": "2cores", "all-workers": "workers"}.get(measure.kind, "")
    what = measure.kind if measure.kind in ("single", "empty") else f"bulk{measure.size}"
    if measure.kind == "burst":
        what = f"burst{measure.size}"
    return row_name(
        "ring", f"{measure.sync}-{what}", "-".join(filter(None, (f"{measure.element_bytes}B", where, kind)))
    )


def _unit(measure: Measure) -> str:
    return {"two-core": "cycles/element", "all-workers": "pairs in 0.1 s"}.get(measure.kind, "cycles")


def _rows(options: Options, ours: Samples, theirs: Samples, reason: str | None) -> Iterator[Row]:
    peer = PEER if options.peer else None
    ratios: dict[str, list[float]] = defaultdict(list)
    for measure, kind in sorted(ours, key=_order):
        name = row_name(_name(measure, kind), peer)
        if not options.wants(name):
            continue
        samples = theirs.get((measure, kind), [])
        note = reason or ("" if samples or not peer else "the peer was never measured at this placement")
        row = Row(
            name, _unit(measure), Figure.of(ours[measure, kind]), peer, Figure.of(samples) if samples else None, note
        )
        yield row
        if row.speedup:
            ratios[kind or "one-core"].append(row.speedup)
    for group, values in ratios.items():
        mean = exp(statistics.fmean(map(log, values)))
        note = f"of {len(values)} rows; the least is {min(values):.2f}"
        yield Row(row_name("ring", "mean", group, peer), "x", Figure(mean, min(values), max(values), len(values)), peer,
                  Figure(1.0, 1.0, 1.0, 1), note)  # fmt: skip


def _order(key: tuple[Measure, str]) -> tuple[object, ...]:
    measure, kind = key
    kinds = ("single", "burst", "bulk", "empty", "two-core", "all-workers")
    return kind, kinds.index(measure.kind), measure.element_bytes, measure.sync == "mpmc", measure.size


def _folded(options: Options, ours: Samples, read: Samples) -> Iterator[Row]:
    for (measure, _), samples in sorted(read.items(), key=lambda item: _order(item[0])):
        name = row_name(_name(measure, "read"), "folded")
        if options.wants(name):
            folded = Figure.of(ours[measure, ""])
            yield Row(name, "cycles", Figure.of(samples), "folded", folded, "the size is read at run time, or folded")
