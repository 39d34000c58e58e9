"""Live ports beside DPDK's: 64-byte frames over veth pairs and taps, TCP through bridges, and captures to files.

All of it happens in namespaces of its own. ``rx`` receives and forgets, ``tx`` makes and sends, ``forward`` receives on
one interface and sends on another one; what is measured has the core of ``--core`` for itself and never sleeps, as
testpmd never does. What it receives is sent by testpmd's ``txonly`` over AF_XDP on the other core, for both sides.
Rates are counted by the kernel at the far end, or, of what is received, by who receives.

``cycles`` rows are the cycles a packet outside the kernel.  Each side counts the cycles of those rounds in which it has
packets.  Where ``packet`` and ``xdp`` receive, these are all outside the kernel.  Off what they forward go the cycles of
the system calls by which they send (:mod:`bench.kernel_calls`): others they do not make while there are packets.  Else
it is the counted cycles times the share of the core's time (by the clock ticks of /proc/stat) that was spent in user mode:
who only sends has no idle time that would be in it, and a tap is read and written by all kinds of calls.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bench import kernel_calls, kernel_capture, kernel_tcp, machine, namespaces, ours
from bench.harness import Figure, Options, Row, ToolFailed, affinity, interleave, row_name, say
from bench.kernel_calls import Calls
from bench.namespaces import Space
from bench.ours_live import Graph
from bench.ours_live import Live as Ours
from bench.peers import testpmd, testpmd_live
from bench.peers.testpmd_live import Live as Theirs

KINDS = ("packet", "xdp", "tap")
JOBS = ("rx", "tx", "forward")
SIDES = ("ours", "testpmd")
SIZE = 64
VETHS = (("gen", "in"), ("out", "sink"))
SETTLE_SECONDS = 0.4
LAST_SECONDS = 0.05  # until what was sent last has passed
NEEDED = 0.2  # of a whole window's ticks: with fewer, the share of user mode says nothing


@dataclass(frozen=True)
class Case:
    """One row's subject: what is done over which kind of port."""

    kind: str
    job: str

    @property
    def name(self) -> str:
        return row_name("kernel", self.kind, self.job, f"{SIZE}B")

    @property
    def is_polled(self) -> bool:
        """Whether no system call is made while there are packets."""
        return self.kind != "tap" and self.job == "rx"

    @property
    def is_timed(self) -> bool:
        """Whether the only system calls while there are packets are those that send, and their time is taken."""
        return self.kind != "tap" and self.job == "forward"

    @property
    def interfaces(self) -> tuple[str, str]:
        """Where packets come in, and where they go out."""
        return ("tap0", "tap1") if self.kind == "tap" else ("in", "out")

    @property
    def sent_from(self) -> str:
        """The interface over which the traffic is sent; the other side of it is received from."""
        return "tap0" if self.kind == "tap" else "gen"

    @property
    def counted_at(self) -> str:
        """The interface that counts what was sent, as received."""
        return "tap1" if self.kind == "tap" else "sink"


@dataclass(frozen=True)
class Sample:
    """Million packets a second, those that the sender sent meanwhile (0 without one), and cycles outside the kernel."""

    mpps: float
    offered: float
    cycles: float | None


class Side(Protocol):
    """Ours, or testpmd."""

    def start(self) -> None: ...

    def received(self) -> int: ...

    def stop(self) -> float | None: ...


def run(options: Options) -> Iterator[Row]:
    """Measure all of it, part by part."""
    if reason := namespaces.missing() or ours.missing():
        yield Row("kernel", "Mpps", None, note=reason)
        return
    with affinity(sorted(os.sched_getaffinity(0))), testpmd.huge_pages() as huge:
        yield from _frames(options, huge)
        yield from kernel_capture.run(options, huge)
        yield from kernel_tcp.run(options, huge)


def _frames(options: Options, huge: bool) -> Iterator[Row]:
    peer = "testpmd" if options.peer else None
    cases = [
        case
        for case in (Case(kind, job) for kind in KINDS for job in JOBS)
        if any(options.wants(row_name(name, peer)) for name in (case.name, _cycles_name(case)))
    ]
    if not cases:
        return
    absent = testpmd_live.missing()
    if absent:
        say(f"{absent}: nothing can be received, for it is the sender; what is left are the rows of tx")
    failed: dict[tuple[Case, str], str] = {}
    if absent:
        for case in cases:
            failed[case, "testpmd"] = absent
            if case.job != "tx":
                failed[case, "ours"] = f"no sender: {absent}"
    samples: dict[tuple[Case, str], list[Sample]] = defaultdict(list)
    sides = SIDES if options.peer else SIDES[:1]
    seconds = 0.8 if options.quick else 2.0
    places: list[machine.Placement] = []

    def once(which: tuple[Case, str]) -> None:
        if which in failed:
            return
        try:
            samples[which].append(_measure(*which, options, huge, seconds))
        except ToolFailed as error:
            failed[which] = f"failed: {error}"
            say(f"{which[1]}, {which[0].name}: {error}")

    for number in range(options.runs):
        say(f"round {number + 1} of {options.runs}, {len(cases)} cases on core {options.core}")
        if len(set(_cores(options))) > 1:
            places.append(machine.measure_placement(*_cores(options)))
        for case in cases:
            interleave([(case, side) for side in (sides if number % 2 == 0 else sides[::-1])], 1, once)
    for case in cases:
        yield from _rows(options, case, samples, failed)
    if places:
        trips = Figure.of([place.round_trip_ns for place in places])
        kinds = ", ".join(sorted({place.kind for place in places}))
        note = f"a cache line between the two cores, and back: {kinds}"
        yield Row("kernel.placement.round-trip", "ns", trips, note=note)


def _cores(options: Options) -> tuple[int, int]:
    """The core that is measured on, and the sender's."""
    others = [core for core in sorted(os.sched_getaffinity(0)) if core != options.core]
    return options.core, others[0] if others else options.core


def _measure(case: Case, side: str, options: Options, huge: bool, seconds: float) -> Sample:
    """Forward for so long; everything is made for it and removed."""
    core, other = _cores(options)
    with ExitStack() as stack:
        (space,) = stack.enter_context(namespaces.spaces("k"))
        if case.kind != "tap":
            for a, b in VETHS:
                space.veth(a, b)
        calls = stack.enter_context(Calls()) if case.is_timed and kernel_calls.missing() is None else None
        with calls.preloaded() if calls else nullcontext():
            dut = stack.enter_context(_opened(case, side, space, core, huge))
        if case.kind == "tap":
            for name in case.interfaces[1:] if case.job == "tx" else case.interfaces[: 1 + (case.job == "forward")]:
                space.up(name)
        dut.start()
        sender: Theirs | None = None
        if case.job != "tx":
            device = testpmd_live.device("xdp", 9, case.sent_from)
            sender = stack.enter_context(Theirs(space, "tx", [device], other, huge, SIZE))
            sender.start()
        time.sleep(SETTLE_SECONDS)
        count = dut.received if case.job == "rx" else partial(space.packets, case.counted_at, "rx")
        sent = partial(space.packets, case.sent_from, "tx") if sender else lambda: 0
        mpps, offered, share = _window(count, sent, core, seconds)
        if sender:
            sender.stop()
            time.sleep(LAST_SECONDS)
        through = dut.received() if calls else 0
        busy = dut.stop()
        if isinstance(dut, Ours):
            through = dut.timed()
        called = calls.cycles() / through if calls and through else None
        return Sample(mpps, offered, None if busy is None else _outside(case, busy, share, called))


def _outside(case: Case, busy: float, share: float | None, called: float | None) -> float | None:
    """Cycles a packet outside the kernel, of ``busy`` ones; ``share``: of user mode; ``called``: cycles in calls that send."""
    if case.is_polled:
        return busy
    if case.is_timed:
        return None if called is None else max(0.0, busy - called)
    return None if share is None else busy * share


def _opened(case: Case, side: str, space: Space, core: int, huge: bool) -> AbstractContextManager[Side]:
    names = {"rx": case.interfaces[:1], "tx": case.interfaces[1:], "forward": case.interfaces}[case.job]
    if side == "testpmd":
        devices = [testpmd_live.device(case.kind, number, name) for number, name in enumerate(names)]
        # Of two ports each is a source of what the other one sends; nothing comes in on the second.
        return Theirs(space, case.job, devices, core, huge, SIZE)
    words = [f"{case.kind}:{name}" for name in names]
    chain = {"rx": [*words, "null:"], "tx": [f"generator:,size={SIZE}", *words], "forward": words}[case.job]
    return Ours(space, Graph([chain], core))


def _window(
    count: Callable[[], int], sent: Callable[[], int], core: int, seconds: float
) -> tuple[float, float, float | None]:
    """Packets counted and sent a microsecond meanwhile, and what part of what the core did was in user mode."""
    ticks, begin, counted, offered = _ticks(core), time.perf_counter(), count(), sent()
    time.sleep(seconds)
    counted, offered = count() - counted, sent() - offered
    took = (time.perf_counter() - begin) * 1e6
    user, busy = (after - before for before, after in zip(ticks, _ticks(core), strict=True))
    whole = took / 1e6 * os.sysconf("SC_CLK_TCK")
    return counted / took, offered / took, user / busy if busy > NEEDED * whole else None


def _ticks(core: int) -> tuple[int, int]:
    """Clock ticks that a core has spent in user mode, and in all that is not idle (proc_stat(5))."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, line.split()[1:])
            return user + nice, user + nice + system + irq + softirq
    raise ToolFailed(f"/proc/stat has no line for core {core}")


def _cycles_name(case: Case) -> str:
    return row_name("kernel", case.kind, f"{case.job}-cycles", f"{SIZE}B")


def _rows(
    options: Options,
    case: Case,
    samples: dict[tuple[Case, str], list[Sample]],
    failed: dict[tuple[Case, str], str],
) -> Iterator[Row]:
    """The rate, and the cycles outside the kernel."""
    peer = "testpmd" if options.peer else None
    ours, theirs = samples.get((case, "ours"), []), samples.get((case, "testpmd"), [])
    notes = [f"{side}: {failed[case, side]}" for side in SIDES if (case, side) in failed]
    rate_notes = list(notes)
    if case.job != "tx":
        for side, found in (("ours", ours), ("testpmd", theirs)):
            if offered := sum(sample.offered for sample in found):
                rate_notes.append(f"{side} {sum(s.mpps for s in found) / offered:.0%} of what was sent to it")
    for name, unit, taken, remarks in (
        (case.name, "Mpps", lambda sample: sample.mpps, rate_notes),
        (_cycles_name(case), "cycles/packet", lambda sample: sample.cycles, notes),
    ):
        figures = [_figure([value for s in found if (value := taken(s)) is not None]) for found in (ours, theirs)]
        full = row_name(name, peer)
        if options.wants(full):
            yield Row(full, unit, figures[0], peer, figures[1] if peer else None, "; ".join(remarks))


def _figure(values: list[float]) -> Figure | None:
    return Figure.of(values) if values else None
