"""The distributor beside DPDK's: from its core to a worker's and back, and what it costs its own core by workers.

Between two cores: cycles a packet of DPDK's distributor_perf_autotest, in which a worker gives back what it gets. The
burst mode that is compared is what ``Distributor(1)`` is; ``burst8-1line`` and ``burst31-1line`` have one line under way
at a time, as DPDK's has. On one core, with the workers played by the same thread: cycles a packet of giving and
taking, and of the match alone, by the number of workers.

Where the host runs this machine's two cores changes every row between them several times, and changes while one
measures. Our samples are short, and taken between two measures of a cache line's round trip; the peer's test takes
seconds for each figure, so the round trip is measured again and again while it runs, and a figure counts for the
placement that nine out of ten of these measures saw.
"""

import os
from collections import defaultdict
from collections.abc import Iterator

from bench import machine
from bench.harness import Figure, Options, Row, ToolFailed, affinity, row_name, say
from bench.peers import distributor_perf, dpdk_distributor
from bench.peers.dpdk_distributor import Cost

PEER = "dpdk"
WORKERS = (1, 4, 8, 12, 16, 63, 256)
MODES: dict[str, dict[str, int]] = {
    "burst": {},
    "burst8-1line": {"burst": 8, "lines": 1},
    "burst31-1line": {"burst": 31, "lines": 1},
    "single": {"burst": 1, "lines": 1},
}
SAMPLES = 12  # of each mode a round
CORE_SAMPLES = 5
MOST_OF_IT = 0.9  # of the time that a figure of the peer took

Samples = dict[tuple[str, str], list[float]]


def run(options: Options) -> Iterator[Row]:
    """Measure all of it."""
    cores = sorted(os.sched_getaffinity(0))
    first, second = sorted((options.core, next((core for core in cores if core != options.core), options.core)))
    ours: Samples = defaultdict(list)
    theirs: Samples = defaultdict(list)
    reason = distributor_perf.missing() if options.peer else None
    if reason:
        say(reason)
    if first == second:
        say("only one core is allowed: there are no rows between two cores")
    else:
        for number in range(options.runs):
            say(f"round {number + 1} of {options.runs}, cores {first} and {second}")
            _our_round((first, second), options.quick, ours)
            if options.peer and not reason:
                reason = _their_round((first, second), theirs)
        _our_round((first, second), options.quick, ours)
        yield from _two_core_rows(options, ours, theirs, reason)
    yield from _core_rows(options, first)


def _our_round(pair: tuple[int, int], quick: bool, ours: Samples) -> None:
    from bench.distributor_loops import Pair

    calls = 1 << (12 if quick else 15)
    for mode, shape in MODES.items():
        bench = Pair(pair, **shape)
        times = calls >> (0 if mode == "burst" else 3)
        try:
            bench.sample(times)
            for _ in range(SAMPLES):
                before = machine.quick_placement(*pair).word
                value = bench.sample(times)
                if machine.quick_placement(*pair).word == before:
                    ours[mode, before].append(value)
        finally:
            bench.close()


def _their_round(pair: tuple[int, int], theirs: Samples) -> str | None:
    with machine.PlacementWatch(*pair) as watch:
        try:
            figures = distributor_perf.measure(pair)
        except ToolFailed as error:
            say(f"dpdk-test: {error}")
            return f"failed: {error}"
    end = 0.0
    for mode, value in (("burst", figures.burst), ("single", figures.single)):  # backwards from its end
        seconds = distributor_perf.seconds(value)
        if word := watch.word(end, end + seconds, MOST_OF_IT):
            theirs[mode, word].append(value)
        else:
            say(f"dpdk-test: the cores moved while its {mode} mode was measured, which does not count")
        end += seconds
    return None


def _two_core_rows(options: Options, ours: Samples, theirs: Samples, reason: str | None) -> Iterator[Row]:
    peer = PEER if options.peer else None
    for (mode, place), samples in sorted(ours.items()):
        figure = Figure.of(samples)
        against = [("burst" if mode.startswith("burst") else "single", peer)]
        if mode == "burst" and peer:
            against.append(("single", f"{PEER}-single"))
        for their_mode, name in against:
            found = theirs.get((their_mode, place))
            note = reason or ("" if found or not peer else "the peer was never measured at this placement")
            row = Row(
                row_name("distributor", mode, place, name), "cycles/packet", figure, name,
                Figure.of(found) if found and name else None, note,
            )  # fmt: skip
            if options.wants(row.name):
                yield row
        if mode != "single" and ("single", place) in ours:
            single = Figure.of(ours["single", place])
            row = Row(row_name("distributor", mode, place, "own-single"), "cycles/packet", figure, "own-single", single)
            if options.wants(row.name):
                yield row


def _core_rows(options: Options, core: int) -> Iterator[Row]:
    costs, reason = _their_costs(options, core)
    peer = PEER if options.peer else None
    for traffic in ("seq", "random"):
        base: dict[str, float] = {}
        for workers in WORKERS:
            whole, match = _our_cost(options, core, workers, traffic)
            single, _ = _our_cost(options, core, workers, traffic, burst=1, lines=1)
            theirs = costs.get(("burst", traffic, workers))
            note = reason or ("" if theirs or not peer else "it has no more than 63 workers")
            for what, figure, value in (
                ("core", whole, theirs.cycles if theirs else None),
                ("match", match, theirs.match if theirs else None),
            ):
                base.setdefault(what, figure.value)
                grown = f"{figure.value / base[what]:.2f} times that of one worker"
                yield from _wanted(options, f"{what}-{workers}", traffic, figure, peer, value, note or grown)
            yield from _wanted(options, f"core-{workers}", traffic, whole, "own-single", single.value, "")
            if theirs and (their_single := costs.get(("single", traffic, workers))):
                yield from _wanted(
                    options, f"core-{workers}", traffic, whole, f"{PEER}-single", their_single.cycles, ""
                )


def _wanted(
    options: Options, case: str, traffic: str, ours: Figure, peer: str | None, theirs: float | None, note: str
) -> Iterator[Row]:
    figure = None if theirs is None else Figure(theirs, theirs, theirs, 1)
    row = Row(row_name("distributor", case, traffic, peer), "cycles/packet", ours, peer, figure, note)
    if options.wants(row.name):
        yield row


def _our_cost(options: Options, core: int, workers: int, traffic: str, **shape: int) -> tuple[Figure, Figure]:
    from bench.distributor_loops import Core

    rounds = 1 << (9 if options.quick else 12)
    with affinity({core}):
        bench = Core(workers, traffic, **shape)
        bench.sample(rounds)
        samples = [bench.sample(rounds) for _ in range(CORE_SAMPLES * options.runs)]
    return Figure.of([whole for whole, _ in samples]), Figure.of([match for _, match in samples])


def _their_costs(options: Options, core: int) -> tuple[dict[tuple[str, str, int], Cost], str]:
    """The peer's rows, each the median of several runs; and why there are none."""
    if not options.peer:
        return {}, ""
    if missing := dpdk_distributor.missing():
        say(missing)
        return {}, missing
    runs: dict[tuple[str, str, int], list[Cost]] = defaultdict(list)
    try:
        for _ in range(options.runs):
            for cost in dpdk_distributor.measure(core):
                runs[cost.mode, cost.traffic, cost.workers].append(cost)
    except ToolFailed as error:
        say(f"distributor.c: {error}")
        return {}, f"failed: {error}"
    return {key: sorted(costs, key=lambda cost: cost.cycles)[len(costs) // 2] for key, costs in runs.items()}, ""
