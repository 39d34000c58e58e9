"""The throughput of a device or a function: the highest rate at which it loses nothing, for each size of frames.

Theory of operation
-------------------
A *trial* sends packets with trailers at a rate for some seconds, through one port, and has them checked as they come
back by another one: two runs, each with workers of its own, so that sending does not keep receiving waiting.  Without
ports, functions are tried in memory, between a generator and a checker in one run; there what is found is how fast they
are, for they refuse nothing and the generator waits.

The first trial sends as fast as it may, or can.  When that loses packets, the rate that loses nothing is looked for
between nothing and there: first a little below what was received and a little above, for what a device lets through
when it is full is commonly what it can do, then halving, until it is known to the resolution.  A sender that cannot
keep a rate ends the search: nothing faster can be tried, and the result says so.

Sizes are those of frames with their check sequence, as in RFC 2544; a line's rate counts 20 bytes more for each.

*Source:* RFC 2544, 26.1 (throughput), 23 (what a trial is), 9.1 (sizes).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from wirespeed.core.element import Chain, Element
from wirespeed.engine.report import Report
from wirespeed.engine.run import run, start
from wirespeed.errors import GraphError, PortError
from wirespeed.ports import port
from wirespeed.ports.checker.element import Checker
from wirespeed.ports.checker.histogram import Histogram
from wirespeed.ports.options import Rate, rate

SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
FCS = 4
GAP = 20  # preamble, delimiter and gap between frames: IEEE 802.3
HELD = 0.98  # a sender that reaches less of a rate did not keep it
MOST_TRIALS = 32
MOST_FAILURES = 12  # one that still loses at a thousandth of what it received loses at any rate
SETTLE_S = 2.0  # after sending, packets may be on their way for so long (RFC 2544, 23),
QUIET_S = 0.25  # unless none has come for so long
LEARN_S = 0.05  # between the receiver's start and the sender's


@dataclass(frozen=True)
class Trial:
    """Packets sent at a rate and what came back of them.

    ``asked_pps`` is None when as fast as could be, ``offered_pps`` the rate at which they were really sent.
    """

    size: int
    asked_pps: float | None
    offered_pps: float
    sent: int
    received: int
    duplicates: int = 0
    reordered: int = 0
    corrupt: int = 0
    jitter_ns: float = 0.0
    latency: Histogram = field(default_factory=Histogram.empty, repr=False)

    @property
    def lost(self) -> int:
        """Packets that did not come back."""
        return max(0, self.sent - self.received)

    @property
    def loss(self) -> float:
        """The part that did not come back; all of it when nothing was sent."""
        return self.lost / self.sent if self.sent else 1.0

    @property
    def received_pps(self) -> float:
        """The rate at which they came back."""
        return self.offered_pps * (1 - self.loss)

    @property
    def held(self) -> bool:
        """Whether the sender kept the rate that was asked for."""
        return self.asked_pps is None or self.offered_pps >= HELD * self.asked_pps


@dataclass(frozen=True)
class Throughput:
    """What was found for one size: ``best`` is the fastest trial that lost no more than was tolerated, if any did."""

    size: int
    best: Trial | None
    trials: tuple[Trial, ...]
    line_bps: float | None = None

    @property
    def pps(self) -> float:
        """Packets a second without loss."""
        return self.best.offered_pps if self.best else 0.0

    @property
    def bps(self) -> float:
        """Bits of frames a second, with their check sequences."""
        return 8 * self.size * self.pps

    @property
    def line(self) -> float | None:
        """The part of the line's rate that this is; None when that is not known."""
        return self.pps / line_pps(self.line_bps, self.size) if self.line_bps else None

    @property
    def limit(self) -> str:
        """What kept it from being more: ``sender``, ``device``, or the ``rate`` that was not to be exceeded."""
        if not self.best or any(t.offered_pps > self.best.offered_pps and t.lost for t in self.trials):
            return "device"
        return "rate" if self.best.asked_pps is not None and self.best.held else "sender"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers by name."""
        best = self.best
        found: dict[str, Any] = {
            "size": self.size,
            "pps": self.pps,
            "bps": self.bps,
            "line": self.line,
            "limit": self.limit,
        }
        if best:
            found |= {"sent": best.sent, "received": best.received, "duplicates": best.duplicates}
            found |= {"reordered": best.reordered, "corrupt": best.corrupt, "jitter_ns": best.jitter_ns}
            found |= {"latency_ns": best.latency.to_dict()}
        rates = [{"asked_pps": t.asked_pps, "offered_pps": t.offered_pps, "loss": t.loss} for t in self.trials]
        return found | {"trials": rates}


def line_pps(bps: float, size: int) -> float:
    """Frames of ``size`` bytes, with their check sequence, that a line carries in a second."""
    return bps / (8 * (size + GAP))


def search(
    trial: Callable[[float | None], Trial], most_pps: float | None, tolerance: float, resolution: float
) -> tuple[Trial | None, list[Trial]]:
    """The fastest trial that loses no more than ``tolerance``, to a part ``resolution`` of its rate, and all trials."""
    made = [trial(most_pps)]
    first = made[0]
    if first.loss <= tolerance:
        return first, made
    best: Trial | None = None
    low, high = 0.0, min(first.offered_pps, most_pps or first.offered_pps)
    guesses = [first.received_pps * (1 + part * resolution / 2) for part in (1, -1)]
    while high - low > resolution * high and len(made) < (MOST_TRIALS if best else MOST_FAILURES):
        asked = guesses.pop() if guesses else 0.0
        if not low < asked < high:
            asked = (low * high) ** 0.5 if low else high / 2
        made.append(trial(asked))
        if made[-1].loss > tolerance:
            high = asked
            continue
        if best is None or made[-1].offered_pps > best.offered_pps:
            best = made[-1]
        low = max(low, made[-1].offered_pps)
        if not made[-1].held:
            break
    return best, made


@dataclass(frozen=True)
class Bench:
    """What is tried, and how: ``sender`` and ``receiver`` are ports, or both None to try ``functions`` in memory.

    With ports, what comes back goes through the functions before it is checked.  ``packets`` are options of the
    generator, ``cores`` those of sender and receiver, in turn.
    """

    sender: Element | None
    receiver: Element | None
    functions: Sequence[Element] = ()
    seconds: float = 2.0
    packets: str = ""
    workers: int = 1
    cores: Sequence[int] | None = None

    def trial(self, size: int, pps: float | None) -> Trial:
        """One trial with frames of ``size`` bytes, check sequence included; as fast as can be when ``pps`` is None."""
        checker = Checker()
        if self.sender is None or self.receiver is None:
            return self._send(self._to(self._generator(size, pps), checker), size, pps, checker)
        with start(self._to(self.receiver, checker), workers=self.workers, cores=self._cores(1)) as receiving:
            time.sleep(LEARN_S)
            made = self._send(self._generator(size, pps) >> self.sender, size, pps, checker, receiving)
        return made

    def _to(self, first: Element, last: Element) -> Chain:
        chain = Chain(first)
        for element in (*self.functions, last):
            chain = chain >> element
        return chain

    def _generator(self, size: int, pps: float | None) -> Element:
        how: dict[str, Any] = {"size": size - FCS, "trailer": "yes"}
        if pps is not None:
            exact = Fraction(pps)
            how |= {"rate": Rate(exact, "pps"), "count": max(1, round(exact * Fraction(self.seconds)))}
        return port(f"generator:,{self.packets}" if self.packets else "generator:", **how)

    def _cores(self, number: int) -> list[int] | None:
        return [self.cores[number % len(self.cores)]] if self.cores else None

    def _send(self, chain: Chain, size: int, pps: float | None, checker: Checker, receiving: Any = None) -> Trial:
        # A rate that is kept ends by its count; one that is not has a little longer.
        longest = self.seconds if pps is None else 1.2 * self.seconds + 0.2
        report = run(chain, seconds=longest, workers=self.workers, cores=self._cores(0))
        sent = report.packets if receiving else report.received
        if receiving:
            settle(checker, sent)
            if not receiving.alive:
                raise PortError(f"{self.receiver.name if self.receiver else ''}: receiving ended before the trial did")
        found = checker.result
        total = found.all
        return Trial(
            size,
            pps,
            offered_pps(report, sent),
            sent,
            total.received,
            total.duplicates,
            total.reordered,
            found.corrupt,
            total.jitter_ns,
            total.latency,
        )


def offered_pps(report: Report, sent: int) -> float:
    """The rate at which a run sent: by the generator's clock, where it kept one, else by that of the whole run."""
    achieved = report.stages[0].counters.get("achieved")
    return float(rate(achieved).value) if achieved else sent / report.seconds


def settle(checker: Checker, sent: int) -> None:
    """Wait until all of what was sent is here, or nothing comes any more."""
    begin = quiet = time.monotonic()
    last = -1
    while (now := time.monotonic()) - begin < SETTLE_S and now - quiet < QUIET_S:
        if (received := checker.received) >= sent:
            return
        if received != last:
            last, quiet = received, now
        time.sleep(0.01)


def throughput(
    bench: Bench,
    *,
    sizes: Sequence[int] = SIZES,
    tolerance: float = 0.0,
    resolution: float = 0.01,
    most: Rate | None = None,
    line_bps: float | None = None,
    progress: Callable[[Trial], None] | None = None,
) -> Iterator[Throughput]:
    """The throughput for each of ``sizes``, as soon as it is found.

    ``tolerance`` is the part of the packets that may be lost, ``most`` a rate not to be exceeded: packets, or bits of a
    line.  ``progress`` is called with each trial.  Raises :class:`PortError` when nothing at all comes back.
    """
    if not 0 <= tolerance < 1 or not 0 < resolution < 1:
        raise GraphError(
            f"tolerance and resolution are parts of 1, got {tolerance} and {resolution}; try 0.001 and 0.01"
        )
    for size in sizes:
        if not 60 <= size <= 1 << 16:
            raise GraphError(
                f"frame size must be 60 to 65536, got {size}; with their check sequence, frames have 64 or more"
            )
        most_pps = None if most is None else float(most.value)
        if most is not None and most.unit == "bps":
            most_pps = line_pps(float(most.value), size)

        def trial(pps: float | None, size: int = size) -> Trial:
            made = bench.trial(size, pps)
            if progress:
                progress(made)
            if made.sent and not made.received:
                raise PortError(
                    f"none of {made.sent:,} packets came back; does what is tried forward them from one port to the other? "
                    "A router needs packets with its own address: eth_dst=02:...,dst=10.0.0.2"
                )
            return made

        best, made = search(trial, most_pps, tolerance, resolution)
        yield Throughput(size, best, tuple(made), line_bps)
