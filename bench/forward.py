"""Forwarding on one core from null port to null port, 64 bytes, beside DPDK's testpmd.

Ours is the whole of a worker's time over its packets; testpmd's cycles are those it counts itself, which leave out its
own loop, so the comparison leans its way. Both forward the same frames, UDP with a checksum: testpmd's buffers are
filled with them first. The variant ``64B-blank`` shows it as it starts, its buffers zero, where it has nothing to parse
and no checksum to compute (ours still has).
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from bench import machine, ours, traffic
from bench.harness import Figure, Options, Row, ToolFailed, row_name, say
from bench.ours import Chain
from bench.peers import testpmd

# Mode of testpmd: our functions that do the same.
COMPARED: dict[str, tuple[str, ...]] = {
    "io": (),
    "macswap": ("macswap",),
    "5tswap": ("fivetuple_swap",),
    "csum": ("csum",),
}
PARSING = ("5tswap", "csum")  # Modes for which it matters what is in the frames,
PARSERS = {"fivetuple_swap", "csum", "endless_hop"}  # and our functions for which it does.
STAGES = 10
BURSTS = (1, 4, 8, 64, 256)
FRAMES = 1_000  # Of the capture that fills the buffers on both sides.

# Name and variant of each row that is ours alone.
ALONE: dict[tuple[str, str], Chain] = {
    ("one_hop", "64B"): Chain(("endless_hop",)),
    ("stages10", "64B"): Chain(("forward",) * STAGES),
    ("fanout4", "64B"): Chain(("spray",), outputs=4),
    **{("io", f"64B-burst{n}"): Chain(burst=n) for n in BURSTS},
    **{("macswap", f"64B-burst{n}"): Chain(("macswap",), burst=n) for n in BURSTS},
}
Samples = dict[tuple[str, str], list[float]]


class _Measured:
    """Samples by case and variant: cycles a packet and million packets a second, ours and theirs."""

    def __init__(self) -> None:
        self.cycles: dict[str, Samples] = {side: defaultdict(list) for side in ("ours", "theirs")}
        self.mpps: dict[str, Samples] = {side: defaultdict(list) for side in ("ours", "theirs")}
        self.failed: dict[tuple[str, str, str], str] = {}

    def add(self, side: str, case: tuple[str, str], one: ours.Forwarded | testpmd.Forwarded) -> None:
        self.cycles[side][case].append(one.cycles_per_packet)
        self.mpps[side][case].append(one.mpps)

    def figure(self, side: str, unit: str, case: tuple[str, str]) -> Figure | None:
        samples = (self.cycles if unit == "cycles/packet" else self.mpps)[side].get(case)
        return Figure.of(samples) if samples else None


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, row by row."""
    measured = _Measured()
    own = ours.missing()
    their = testpmd.missing() if options.peer else None
    for reason in filter(None, (own, their)):
        say(reason)
    seconds = 0.3 if options.quick else 1.0
    for number in range(options.runs):
        say(f"round {number + 1} of {options.runs}, core {options.core}")
        if options.peer and not their:
            _beside(options, seconds, measured, own)
        elif not own:
            for mode, functions in COMPARED.items():
                _ours(options, measured, (mode, "64B"), Chain(functions, seconds=seconds))
        if not own:
            for case, chain in ALONE.items():
                if options.wants(row_name("forward", *case)):
                    _ours(options, measured, case, replace(chain, seconds=seconds))
    frames = "" if own else _frames(options)
    for row in (*_compared(options, measured, own, their, frames), *_alone(measured, own)):
        if options.wants(row.name):
            yield row
    if options.wants("forward.scaling"):
        yield from _scaling(options, seconds, own)


def _ours(options: Options, measured: _Measured, case: tuple[str, str], chain: Chain) -> None:
    if ("ours", *case) in measured.failed:
        return
    frames = str(traffic.capture("64B", FRAMES)) if PARSERS & set(chain.functions) else ""
    try:
        measured.add("ours", case, ours.run_chain(replace(chain, cores=(options.core,), frames=frames)))
    except ToolFailed as error:
        measured.failed["ours", *case] = f"failed: {error}"
        say(f"ours, {row_name(*case)}: {error}")


def _beside(options: Options, seconds: float, measured: _Measured, own: str | None) -> None:
    """One round of testpmd and of ours, mode by mode in turn."""
    try:
        with testpmd.session(options.core, traffic.capture("64B", FRAMES)) as session:
            for mode in PARSING:
                measured.add("theirs", (mode, "64B-blank"), session.measure(mode, seconds))
            session.fill()
            for mode, functions in COMPARED.items():
                measured.add("theirs", (mode, "64B"), session.measure(mode, seconds))
                if not own:
                    _ours(options, measured, (mode, "64B"), Chain(functions, seconds=seconds))
    except ToolFailed as error:
        say(f"testpmd: {error}")
        for mode in COMPARED:
            measured.failed["theirs", mode, "64B"] = f"failed: {error}"


def _frames(options: Options) -> str:
    """What to say of our null port's frames."""
    try:
        share = ours.share_of_udp(str(traffic.capture("64B", FRAMES)), options.core)
    except ToolFailed as error:
        return f"our frames are unknown: {error}"
    return "" if share > 0.99 else f"only {share:.0%} of our frames are UDP: not the same traffic"


def _compared(options: Options, measured: _Measured, own: str | None, their: str | None, frames: str) -> Iterator[Row]:
    cases = [(mode, "64B") for mode in COMPARED]
    if options.peer:
        cases += [(mode, "64B-blank") for mode in PARSING]
    peer = "testpmd" if options.peer else None
    for unit, suffix in (("cycles/packet", ""), ("Mpps", "-rate")):
        for mode, variant in cases:
            notes = [
                own and f"ours: {own}",
                measured.failed.get(("ours", mode, "64B")),
                their,
                measured.failed.get(("theirs", mode, "64B")),
                frames if mode in PARSING else "",
                "testpmd's frames are zeros, ours UDP" if variant.endswith("blank") else "",
            ]
            yield Row(
                row_name("forward", mode + suffix, variant, peer),
                unit,
                measured.figure("ours", unit, (mode, "64B")),
                peer,
                measured.figure("theirs", unit, (mode, variant)),
                "; ".join(filter(None, notes)),
            )


def _alone(measured: _Measured, own: str | None) -> Iterator[Row]:
    unit = "cycles/packet"
    for case, chain in ALONE.items():
        note = own or measured.failed.get(("ours", *case), "")
        if chain.functions == ("endless_hop",):
            note = note or "a TTL of 1 begins anew at 255"
        yield Row(row_name("forward", *case), unit, measured.figure("ours", unit, case), note=note)
    io = measured.cycles["ours"].get(("io", "64B"), [])
    for name, case, share in (
        ("macswap", ("macswap", "64B"), 1),
        ("5tswap", ("5tswap", "64B"), 1),
        ("csum", ("csum", "64B"), 1),
        ("one_hop", ("one_hop", "64B"), 1),
        ("stage", ("stages10", "64B"), STAGES),
        ("fanout4", ("fanout4", "64B"), 1),
    ):
        more = [(a - b) / share for a, b in zip(measured.cycles["ours"].get(case, []), io, strict=False)]
        note = own or ("each of 10, beyond io" if share > 1 else "beyond io")
        yield Row(row_name("forward", "cost", name), unit, Figure.of(more) if more else None, note=note)


def _scaling(options: Options, seconds: float, own: str | None) -> Iterator[Row]:
    """Two workers against one. Where the host has put the two cores is measured before and after."""
    cores = sorted(os.sched_getaffinity(0))
    name = row_name("forward", "scaling", "64B-2workers")
    if len(cores) < 2:
        yield Row(name, "x", None, note="needs two cores")
        return
    pair = (options.core, next(core for core in cores if core != options.core))
    times: list[float] = []
    placements = [machine.measure_placement(*pair)]
    failure = own or ""
    for _ in range(0 if own else options.runs):
        try:
            one = ours.run_chain(Chain(("macswap",), cores=pair[:1], seconds=seconds))
            two = ours.run_chain(Chain(("macswap",), cores=pair, seconds=seconds))
        except ToolFailed as error:
            failure = f"failed: {error}"
            break
        placements.append(machine.measure_placement(*pair))
        if "one core" not in (placements[-2].kind, placements[-1].kind):
            times.append(two.mpps / one.mpps)
    round_trips = Figure.of([placement.round_trip_ns for placement in placements])
    kinds = ", ".join(str(placement) for placement in placements)
    note = failure or ("" if times else "no figure: the host ran both cores on one all the time")
    yield Row(name, "x", Figure.of(times) if times else None, note="; ".join(filter(None, (note, f"cores {kinds}"))))
    yield Row("forward.placement.round-trip", "ns", round_trips, note="a cache line between the two cores, and back")
