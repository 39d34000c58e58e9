"""The switch on one core, 64-byte UDP, beside Open vSwitch with DPDK: the same rules and frames given to both.

What comes in is copied from one array of frames on both sides (``switch_source.py``, ``peers/replay.c``), what goes out is
forgotten; that alone, measured apart (our source to ``null:``, testpmd's ``io`` from the same port), is taken off in the rows
``-own``.  Theirs is measured with its exact match cache as it comes (``emc``), with the signature match cache alone
(``smc``) and with neither (``none``); ours is one and the same, but for the rows that say otherwise.  All take turns on the
core: who is not measured is stopped.  Cycles are those of the whole worker for ours; theirs are those it counts while it
has packets.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import switch_start, switch_updates
from bench.harness import Figure, Options, Row, ToolFailed, interleave, row_name, say
from bench.peers import ovs_switch
from bench.switch_cases import CASES, Case
from bench.switch_clock import steal
from bench.switch_ours import DEFAULT_CACHE, Job, Ours

SECONDS, QUICK_SECONDS = 1.0, 0.3
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = 1.0, 0.4  # after a change of a setting, for caches to fill
MOST_WARM_SECONDS = 40.0
ENOUGH = 0.02  # percent of upcalls below which it has seen all flows
UNIT = "cycles/packet"
PORT_CASE = "flows1000.ports"

# Ways of ours, beside the default one, in cases that tell what cache and specialised kernel are each good for.
WAYS = {
    "generic": {"specialised": False},
    "nocache": {"cache": 0},
    "nocache-generic": {"cache": 0, "specialised": False},
}
UPDATED = "many10k"
UPDATES = {
    "api": "by its parts, one by one; wanted 50", "text": "by its text, one by one; wanted 20",
    "file": "20,000 by their texts, at once", "modify": "of what a rule does", "delete-add": "of a rule",
}  # fmt: skip
GAPS = {
    "quiet": "nothing changes", "paced": "1,000 changes a second", "fast": "as many changes as it can",
    "compile": "a new shape is compiled",
}  # fmt: skip
SEVERAL = ("flows1000.ports", "many10k", "masks20", "pipeline")


@dataclass
class Sample:
    """One look at one side."""

    cycles: float
    stage: float | None = None
    note: str = ""


Samples = dict[tuple[str, str], list[Sample]]


class Bench:
    """Everything that is measured, by case and side: ``ours``, ``ours-WAY``, ``ovs-SETTING``, ``port``, ``ovs-port``."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.samples: Samples = defaultdict(list)
        self.failed: dict[tuple[str, str], str] = {}
        self.steal: dict[str, float] = {}
        self.peer_missing = ovs_switch.missing() if options.peer else "not asked for"
        self.seconds = QUICK_SECONDS if options.quick else SECONDS
        self.settle = QUICK_SETTLE_SECONDS if options.quick else SETTLE_SECONDS

    def job(self, case: Case, rules: Path, **how: Any) -> Job:
        """Our side of a case; its cache has room for all flows."""
        cache = DEFAULT_CACHE if case.flows <= DEFAULT_CACHE // 2 else 2 * case.flows
        sources = [path and str(path) for path in case.sources()]
        return replace(Job(str(rules), sources, self.options.core, cache), **how)

    def measure(self, case: Case) -> None:
        """All sides of a case, in turn."""
        say(f"{case.name}: {case.flows:,} flows")
        before = steal()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wirespeed-bench-switch-")))
            rules = folder / "rules"
            rules.write_text("\n".join(case.rules()) + "\n")
            # Theirs first: it ends when the huge pages are taken, ours does with others.
            theirs = {} if self.peer_missing else self._theirs(case, stack)
            sides = self._ours(case, rules, stack) | theirs

            def once(side: str) -> None:
                if (case.name, side) in self.failed:
                    return
                try:
                    found = sides[side]()
                    if found.cycles > 0:  # a thread that was not on its core at all tells nothing
                        self.samples[case.name, side].append(found)
                except ToolFailed as error:
                    self.fail(case, side, error)

            interleave(list(sides), self.options.runs, once)
        after = steal()
        self.steal[case.name] = (after[0] - before[0]) / max(1, after[1] - before[1])

    def fail(self, case: Case, side: str, error: Exception) -> None:
        """Note why there is no figure."""
        self.failed[case.name, side] = f"failed: {error}"
        say(f"{case.name}, {side}: {error}")

    def _ours(self, case: Case, rules: Path, stack: ExitStack) -> dict[str, Callable[[], Sample]]:
        port = Job("", (str(case.sources()[0]),), self.options.core)
        jobs = {"port": port, "ours": self.job(case, rules)}
        if case.name in SEVERAL:
            jobs |= {f"ours-{way}": self.job(case, rules, **how) for way, how in WAYS.items()}
        sides: dict[str, Callable[[], Sample]] = {}
        for side, job in jobs.items():
            try:
                running = stack.enter_context(Ours(job))
            except ToolFailed as error:
                self.fail(case, side, error)
                continue
            running.pause()
            sides[side] = lambda running=running: self._look(running)
        return sides

    def _look(self, running: Ours) -> Sample:
        running.go_on()
        try:
            time.sleep(0.05)
            found = running.measure(self.seconds)
        finally:
            running.pause()
        if not found.packets:
            raise ToolFailed("no packets came through")
        hits = found.counters.get("cache_hits", 0) / found.packets
        lost = f", {found.dropped / found.packets:.1%} dropped" if found.dropped else ""
        return Sample(found.cycles, found.stage, f"{hits:.1%} cache hits{lost}")

    def _theirs(self, case: Case, stack: ExitStack) -> dict[str, Callable[[], Sample]]:
        sources = case.sources()
        sides: dict[str, Callable[[], Sample]] = {}
        try:
            port = stack.enter_context(ovs_switch.Port(self.options.core, Path(str(sources[0]))))
            sides["ovs-port"] = lambda: Sample(port.measure(self.seconds))
            running = stack.enter_context(ovs_switch.datapath(self.options.core, sources))
            running.load(case.rules())
            self.warm(running)
            running.pause()
        except ToolFailed as error:
            for side in ("ovs-port", *(f"ovs-{setting}" for setting in ovs_switch.SETTINGS)):
                self.fail(case, side, error)
            return {}
        for setting in ovs_switch.SETTINGS:
            sides[f"ovs-{setting}"] = lambda setting=setting: self._look_at(running, setting)
        return sides

    def warm(self, running: ovs_switch.Datapath) -> None:
        """Until all flows are known to it, or it has had time enough."""
        deadline = time.monotonic() + (MOST_WARM_SECONDS / 4 if self.options.quick else MOST_WARM_SECONDS)
        time.sleep(self.settle)
        while time.monotonic() < deadline and running.measure(0.5).upcalls > ENOUGH:
            pass

    def _look_at(self, running: ovs_switch.Datapath, setting: str) -> Sample:
        running.go_on()
        try:
            running.use(setting)
            time.sleep(self.settle)
            found = running.measure(self.seconds)
        finally:
            running.pause()
        shares = {
            "simple": found.simple,
            "emc": found.emc,
            "smc": found.smc,
            "megaflow": found.megaflow,
            "upcalls": found.upcalls,
        }
        hits = ", ".join(f"{share:.0f} % {name}" for name, share in shares.items() if share >= 0.5)
        more = f", {found.subtables:.1f} subtables a hit" if found.megaflow >= 1 else ""
        return Sample(found.cycles, None, f"theirs: {hits}{more}")

    # What is made of it.

    def figure(self, case: str, side: str, less: str | None = None) -> Figure | None:
        """Cycles of a side, or those without what its port takes."""
        found = [sample.cycles for sample in self.samples.get((case, side), [])]
        if less is not None:
            ports = [sample.cycles for sample in self.samples.get((case, less), [])]
            found = [max(0.1, a - b) for a, b in zip(found, ports)]
        return Figure.of(found) if found else None

    def notes(self, case: str, *sides: str) -> str:
        """What else is to be said of sides."""
        said = [self.failed.get((case, side), "") for side in sides]
        said += [samples[-1].note for side in sides if (samples := self.samples.get((case, side)))]
        return "; ".join(filter(None, said))

    def rows(self, case: Case) -> Iterator[Row]:
        """The totals, and the switch's own share, beside each setting."""
        extra = {"steal": round(self.steal.get(case.name, 0.0), 4), "flows": case.flows}
        settings = [f"ovs-{setting}" for setting in ovs_switch.SETTINGS] if self.options.peer else [None]
        theirs = {side: self.figure(case.name, side) for side in settings if side}
        best = min((side for side in theirs if theirs[side]), key=lambda side: theirs[side].value, default=None)
        for suffix, ours_less, theirs_less in (("", None, None), ("-own", "port", "ovs-port")):
            for side in settings:
                note = self.notes(case.name, "ours", *([side] if side else []))
                if side and self.peer_missing:
                    note = self.peer_missing
                if side and side == best:
                    note += f"; their best, wanted {case.target:g} times"
                yield Row(
                    row_name("switch", case.name + suffix, side), UNIT, self.figure(case.name, "ours", ours_less), side,
                    self.figure(case.name, side, theirs_less) if side else None, note, extra,
                )  # fmt: skip
        for side, peer in (("port", "testpmd"),):
            yield Row(
                row_name("switch", f"{case.name}-port", peer if self.options.peer else None), UNIT,
                self.figure(case.name, side), peer if self.options.peer else None, self.figure(case.name, "ovs-port"),
                "source to null, no switch", extra,
            )  # fmt: skip
        yield from self._ways(case, extra)

    def _ways(self, case: Case, extra: dict[str, Any]) -> Iterator[Row]:
        stage = [sample.stage for sample in self.samples.get((case.name, "ours"), []) if sample.stage is not None]
        if stage:
            yield Row(
                row_name("switch", f"{case.name}-stage"),
                UNIT,
                Figure.of(stage),
                note="timed by the worker",
                extra=extra,
            )
        for way in WAYS if case.name in SEVERAL else ():
            side = f"ours-{way}"
            yield Row(
                row_name("switch", f"{case.name}-{way}"), UNIT, self.figure(case.name, side),
                note=self.notes(case.name, side), extra=extra,
            )  # fmt: skip
            cost = self.figure(case.name, side, "port"), self.figure(case.name, "ours", "port")
            if cost[0] and cost[1]:
                times = cost[0].value / cost[1].value
                yield Row(
                    row_name("switch", f"{case.name}-gain-over-{way}"), "x", Figure(times, times, times, cost[0].n),
                    note="the switch's own share, port taken off", extra=extra,
                )  # fmt: skip


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, case by case."""
    bench = Bench(options)
    if options.peer and bench.peer_missing:
        say(bench.peer_missing)
    with ExitStack() as stack:
        if not bench.peer_missing:
            try:
                stack.enter_context(ovs_switch.huge_pages())
            except (ToolFailed, OSError) as error:
                bench.peer_missing = str(error)
                say(f"Open vSwitch: {error}")
        for case in CASES.values():
            if not options.wants(f"switch.{case.name}"):
                continue
            bench.measure(case)
            say(f"{case.name}: {bench.steal[case.name]:.2%} of the time was stolen")
            yield from bench.rows(case)
        yield from _kept(bench)
        if options.wants("switch.updates"):
            yield from _updates(bench)
    if options.wants("switch.start"):
        yield from _start(options)


def _kept(bench: Bench) -> Iterator[Row]:
    """How much of its rate the good traffic keeps while one packet in a hundred is one of the attack."""
    ours: Figure | None = None
    for side in ("ours", *(f"ovs-{setting}" for setting in ovs_switch.SETTINGS)):
        good, attacked = bench.figure("tse.good", side), bench.figure("tse.attacked", side)
        if good is None or attacked is None:
            continue
        kept = 0.99 * good.value / attacked.value
        figure = Figure(kept, 0.99 * good.low / attacked.high, 0.99 * good.high / attacked.low, attacked.n)
        if side == "ours":
            ours = figure
            yield Row("switch.tse.kept", "kept", figure, note="wanted 0.8")
        else:
            yield Row(row_name("switch", "tse", "kept", side), "kept", ours, side, figure)


def _updates(bench: Bench) -> Iterator[Row]:
    """Changes of rules while traffic flows, ours alone but for what ``ovs-ofctl`` adds from a file."""
    case = CASES[UPDATED]
    with tempfile.TemporaryDirectory(prefix="wirespeed-bench-switch-") as folder:
        rules = Path(folder) / "rules"
        rules.write_text("\n".join(case.rules()) + "\n")
        found: list[switch_updates.Updates] = []
        theirs: list[float] = []
        failed = ""
        for _ in range(bench.options.runs):
            try:
                found.append(switch_updates.run(bench.job(case, rules), bench.seconds))
                if not bench.peer_missing:
                    theirs.append(_their_updates(bench, case))
            except ToolFailed as error:
                failed = f"failed: {error}"
                say(failed)
                break
    for kind, note in UPDATES.items():
        rate = [one.rates[kind] / 1e3 for one in found]
        peer = "ovs-ofctl" if kind == "file" and bench.options.peer else None
        their = Figure.of(theirs) if peer and theirs else None
        yield Row(
            row_name("switch", "updates", kind, peer),
            "k/s",
            Figure.of(rate) if rate else None,
            peer,
            their,
            failed or note,
        )
    kept = [one.kept for one in found]
    lost = sum(one.dropped for one in found)
    note = failed or f"at {switch_updates.PACE} changes a second, wanted 0.7; {lost} packets lost"
    yield Row("switch.updates.kept", "kept", Figure.of(kept) if kept else None, note=note)
    for name in found[0].gaps if found else ():
        gaps = [one.gaps[name] for one in found]
        note = f"between bursts, {GAPS[name]}"
        yield Row(f"switch.updates.gap-p99.{name}", "us", Figure.of([gap.p99 for gap in gaps]), note=note)
        yield Row(f"switch.updates.gap-longest.{name}", "us", Figure.of([gap.longest for gap in gaps]), note=note)
    took = [one.compile_s for one in found]
    yield Row(
        "switch.updates.compile", "s", Figure.of(took) if took else None, note="of a new shape, beside the traffic"
    )


def _their_updates(bench: Bench, case: Case) -> float:
    """Thousand rules a second that it adds from a file while its traffic flows."""
    with ovs_switch.datapath(bench.options.core, case.sources()) as running:
        running.load(case.rules())
        bench.warm(running)
        return switch_updates.MANY / running.add(list(switch_updates.others(switch_updates.MANY))) / 1e3


def _start(options: Options) -> Iterator[Row]:
    """From the start of the program to the end of a capture of one packet."""
    case = CASES[PORT_CASE]
    for name, cold, wanted in (("cold", True, 20), ("warm", False, 2)):
        took, note = [], f"wanted {wanted} s"
        for _ in range(1 if cold else options.runs):
            try:
                took.append(switch_start.seconds(case.rules(), Path(str(case.sources()[0])), options.core, cold))
            except ToolFailed as error:
                note = f"failed: {error}"
                say(note)
                break
        yield Row(f"switch.start.{name}", "s", Figure.of(took) if took else None, note=note)
