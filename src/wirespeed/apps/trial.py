"""A trial of a device or a function: packets with trailers sent at a rate, and what came back of them.

Theory of operation
-------------------
A :class:`Bench` says what is tried, and how.  Between two ports, packets leave by the one and are checked as they come
in by the other, in two runs, each with workers of its own, so that sending does not keep receiving waiting.  Without
ports, functions are tried in memory, between a generator and a checker in one run.

What is measured is the device: a sender that drops packets of its own (the interface is down, or carries no frames of
that size) ends the trial with its reason.  Only a link that has just been set up gets a little time.

*Source:* RFC 2544, 23 (what a trial is).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from wirespeed.core.element import Chain, Element
from wirespeed.engine.report import Report
from wirespeed.engine.run import run, start
from wirespeed.engine.running import Running
from wirespeed.errors import GraphError, PortError
from wirespeed.net.trailer import TRAILER
from wirespeed.ports import port
from wirespeed.ports.checker.element import Checker
from wirespeed.ports.checker.histogram import Histogram
from wirespeed.ports.link.interface import Interface
from wirespeed.ports.options import Rate, rate

FCS = 4
ETHERNET = 14  # bytes before what an MTU counts
LARGEST = 1 << 16
HELD = 0.98  # a sender that reaches less of a rate did not keep it
SETTLE_S = 2.0  # after sending, packets may be on their way for so long (RFC 2544, 23),
QUIET_S = 0.25  # unless none has come for so long
LEARN_S = 0.05  # between the receiver's start and the sender's
LINK_S = 3.0  # the kernel takes up to a second to see that a link which was set up has a carrier

# Ports that are no way to a device, and what to do instead.  A file would be written over by what is sent.
NO_WAY = {
    "pcap": "to send what is in a capture, write: wirespeed run {name},rate=1Mpps packet:tx0",
    "generator": "the packets are generated already; say what they look like with --packets",
    "checker": "what comes back is checked already",
    "memory": "to measure functions in memory, name them alone",
    "null": "to measure functions in memory, name them alone",
}
# Options of the generator that a trial sets, and how they are said to it.
SET = {
    "size": "the sizes of frames are given by --sizes",
    "rate": "the rate is what is looked for; --max-rate limits it",
    "count": "how long a trial sends is given by --seconds",
    "trailer": "packets always have one, with a number for all of a worker's",
}


@dataclass(frozen=True)
class Trial:
    """Packets sent at a rate and what came back of them.

    ``asked_pps`` is None when as fast as could be, ``offered_pps`` the rate at which they were really sent.  ``foreign``
    ones, without a trailer, may be anybody's.
    """

    size: int
    asked_pps: float | None
    offered_pps: float
    sent: int
    received: int
    duplicates: int = 0
    reordered: int = 0
    corrupt: int = 0
    foreign: int = 0
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


class SenderDropped(PortError):
    """The sender dropped packets of its own, for ``reasons``: what is missing is not the device's loss."""

    def __init__(self, message: str, reasons: set[str]) -> None:
        super().__init__(message)
        self.reasons = reasons


@dataclass(frozen=True)
class Bench:
    """What is tried, and how: ``sender`` and ``receiver`` are ports, or both None to try ``functions`` in memory.

    With ports, what comes back goes through the functions before it is checked.  ``packets`` are options of the
    generator, ``cores`` those of sender and receiver, in turn.  Raises :class:`GraphError` for ports that lead to no
    device; nothing is opened before the first trial.
    """

    sender: Element | None
    receiver: Element | None
    functions: Sequence[Element] = ()
    seconds: float = 2.0
    packets: str = ""
    workers: int = 1
    cores: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name in {part.partition("=")[0] for part in self.packets.split(",")} & SET.keys():
            raise GraphError(f"options of the packets: got {name}=, wanted what they look like; {SET[name]}")
        if (self.sender is None) != (self.receiver is None):
            raise GraphError("got one port, wanted two, to send by and to receive by, or none")
        for element in (self.sender, self.receiver):
            kind = getattr(element, "KIND", None)
            if element is not None and kind in NO_WAY:
                raise GraphError(
                    f"got {element.name}, wanted ports that lead to a device and back, such as packet:tx0 packet:rx0, for "
                    f"throughput sends packets of its own; {NO_WAY[kind].format(name=element.name)}"
                )

    def least(self) -> int:
        """The smallest size that the packets can have, with their headers, a trailer and their check sequence."""
        return int(self._generator(LARGEST, None).templates[0].least) + TRAILER + FCS

    def trial(self, size: int, pps: float | None) -> Trial:
        """One trial with frames of ``size`` bytes, check sequence included; as fast as can be when ``pps`` is None."""
        patient = time.monotonic() + LINK_S
        while True:
            try:
                return self._trial(size, pps)
            except SenderDropped as error:
                if error.reasons != {"link_down"} or time.monotonic() > patient:
                    raise
            time.sleep(LEARN_S)

    def _trial(self, size: int, pps: float | None) -> Trial:
        checker = Checker()
        if self.sender is None or self.receiver is None:
            report = self._run(self._to(self._generator(size, pps), checker), pps)
            return told(size, pps, report, report.received, checker)
        with start(self._to(self.receiver, checker), workers=self.workers, cores=self._cores(1)) as receiving:
            time.sleep(LEARN_S)
            report = self._run(self._generator(size, pps) >> self.sender, pps, until=dropping)
            if report.dropped:
                raise refusal(self.sender, report)
            settle(checker, report.packets)
            if not receiving.alive:
                raise PortError(f"{self.receiver.name}: receiving ended before the trial did")
            return told(size, pps, report, report.packets, checker)

    def _to(self, first: Element, last: Element) -> Chain:
        chain = Chain(first)
        for element in (*self.functions, last):
            chain = chain >> element
        return chain

    def _generator(self, size: int, pps: float | None) -> Any:
        how: dict[str, Any] = {"size": size - FCS, "trailer": "yes"}
        if pps is not None:
            exact = Fraction(pps)
            how |= {"rate": Rate(exact, "pps"), "count": max(1, round(exact * Fraction(self.seconds)))}
        return port(f"generator:,{self.packets}" if self.packets else "generator:", **how)

    def _cores(self, number: int) -> list[int] | None:
        return [self.cores[number % len(self.cores)]] if self.cores else None

    def _run(self, chain: Chain, pps: float | None, until: Any = None) -> Report:
        # A rate that is kept ends by its count; one that is not has a little longer.
        longest = self.seconds if pps is None else 1.2 * self.seconds + 0.2
        return run(chain, seconds=longest, workers=self.workers, cores=self._cores(0), until=until)


def dropping(running: Running) -> bool:
    """Whether a run has dropped anything yet."""
    return running.report().dropped > 0


def told(size: int, pps: float | None, report: Report, sent: int, checker: Checker) -> Trial:
    """A trial, from the sender's report and what the checker found."""
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
        found.foreign,
        total.jitter_ns,
        total.latency,
    )


def refusal(sender: Element, report: Report) -> SenderDropped:
    """What a sender that dropped packets says: how many for which reason, and which sizes its interface carries."""
    last = report.stage(sender.name)
    reasons = {reason: n for reason, n in last.drops.items() if n}
    said = "; ".join(f"{n:,} dropped: {last.sentences.get(reason, reason)}" for reason, n in reasons.items())
    advice = "set it up first" if "link_down" in reasons else "that is no loss of what is tried"
    if "too_long" in reasons and (mtu := mtu_of(sender)):
        advice = f"its MTU is {mtu}, sizes to {mtu + ETHERNET + FCS} fit"
    return SenderDropped(f"{sender.name} cannot send these packets: {said}; {advice}", set(reasons))


def mtu_of(sender: Element) -> int | None:
    """The MTU of the interface that a port stands on; None when it stands on none."""
    netns = getattr(getattr(sender, "settings", sender), "netns", None)
    try:
        with Interface(sender.name.partition(":")[2], netns) as interface:
            return interface.mtu
    except PortError:
        return None


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
