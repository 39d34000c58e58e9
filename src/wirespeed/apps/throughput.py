"""The throughput of a device or a function: the highest rate at which it loses nothing, for each size of frames.

Theory of operation
-------------------
The first trial (:mod:`wirespeed.apps.trial`) sends as fast as it may, or can.  When that loses packets, the rate that
loses nothing is looked for between nothing and there: first a little below what was received and a little above, for
what a device lets through when it is full is commonly what it can do, then halving, until it is known to the
resolution.  A sender that cannot keep a rate ends the search: nothing faster can be tried, and the result says so.

In memory nothing is lost, for a function refuses nothing and the generator waits: what is found there is how fast the
functions are.  Sizes are those of frames with their check sequence, as in RFC 2544; a line's rate counts 20 bytes more
for each.

*Source:* RFC 2544, 26.1 (throughput), 9.1 (sizes).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.apps.trial import LARGEST, Bench, Trial
from wirespeed.errors import GraphError, PortError
from wirespeed.ports.options import Rate

SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
GAP = 20  # preamble, delimiter and gap between frames: IEEE 802.3
MOST_TRIALS = 32
MOST_FAILURES = 12  # one that still loses at a thousandth of what it received loses at any rate


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
    def loss(self) -> float:
        """The part that was lost at that rate; where there is none, at the lowest rate that was tried."""
        return (self.best or min(self.trials, key=lambda trial: trial.offered_pps)).loss

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
            "loss": self.loss,
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
    line.  ``progress`` is called with each trial.  Raises :class:`GraphError` for what cannot be tried, before anything
    is, and :class:`PortError` when nothing at all comes back, or the sender drops packets.
    """
    if not 0 <= tolerance < 1:
        raise GraphError(f"tolerance must be a part of 1, from 0 on, got {tolerance}; try 0.001")
    if not 0 < resolution < 1:
        raise GraphError(f"resolution must be a part of 1, more than 0, got {resolution}; try 0.01")
    least = bench.least()
    for size in sizes:
        if not least <= size <= LARGEST:
            raise GraphError(
                f"frame size must be {least} to {LARGEST}, got {size}: headers, a trailer of 18 bytes and a check sequence "
                f"of 4 have to fit; try {min(max(size, least), LARGEST)}"
            )
    for size in sizes:
        most_pps = None if most is None else float(most.value)
        if most is not None and most.unit == "bps":
            most_pps = line_pps(float(most.value), size)

        def trial(pps: float | None, size: int = size) -> Trial:
            made = bench.trial(size, pps)
            if progress:
                progress(made)
            if made.sent and not made.received:
                raise PortError(nothing(made))
            return made

        best, made = search(trial, most_pps, tolerance, resolution)
        yield Throughput(size, best, tuple(made), line_bps)


def nothing(made: Trial) -> str:
    """What is said of a trial of which nothing came back."""
    if made.corrupt or 2 * made.foreign > made.sent:  # a few foreign ones are of the network's own
        return (
            f"none of {made.sent:,} packets came back whole: {made.corrupt:,} came with a damaged trailer, {made.foreign:,} "
            "without one; what is tried must leave the last 18 bytes of each packet as they are"
        )
    return (
        f"none of {made.sent:,} packets came back; does what is tried forward them from one port to the other? "
        "A router needs packets with its own address: eth_dst=02:...,dst=10.0.0.2"
    )
