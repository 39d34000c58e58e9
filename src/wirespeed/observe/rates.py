"""What a run did between two of its reports: packets and bits a second, cycles a packet, drops."""

from dataclasses import dataclass

from wirespeed.engine.report import Report, StageReport, WorkerReport


@dataclass(frozen=True)
class StageRate:
    """One stage in the time between two reports, and its totals so far.

    ``bits_per_s`` is None for what counts no bytes (only ports do), ``cycles_per_packet`` where nothing was timed.
    """

    name: str
    kind: str
    packets: int
    packets_per_s: float
    bits_per_s: float | None
    cycles_per_packet: float | None
    drops: tuple[tuple[str, str, int], ...]  # reason, its sentence, how many so far
    crew: str = ""  # the stage to whose crew it belongs, which counts what passes there

    @property
    def dropped(self) -> int:
        """Packets dropped here so far, for whatever reason."""
        return sum(n for _, _, n in self.drops)


@dataclass(frozen=True)
class Rates:
    """A run in the time between two reports: its stages in order, and its workers as they are now."""

    seconds: float  # since the run began
    stages: tuple[StageRate, ...]
    workers: tuple[WorkerReport, ...]
    pool_size: int
    pool_free: int
    pool_failures: int
    notes: tuple[str, ...]

    @property
    def packets(self) -> int:
        """Packets that sinks took so far."""
        return sum(s.packets for s in self.stages if s.kind == "sink" and not s.crew)

    @property
    def packets_per_s(self) -> float:
        """Packets that sinks take in a second."""
        return sum(s.packets_per_s for s in self.stages if s.kind == "sink" and not s.crew)

    @property
    def dropped(self) -> int:
        """Packets dropped so far in all stages."""
        return sum(s.dropped for s in self.stages if not s.crew)


def between(before: Report | None, now: Report) -> Rates:
    """The rates from one report to a later one of the same run; from its beginning when ``before`` is None."""
    elapsed = now.seconds - (before.seconds if before else 0.0)
    earlier = before.stages if before else (None,) * len(now.stages)
    stages = tuple(_stage(a, b, elapsed) for a, b in zip(earlier, now.stages, strict=True))
    workers = tuple(_worker(i, before, now) for i in range(len(now.workers)))
    return Rates(now.seconds, stages, workers, now.pool_size, now.pool_free, now.pool_failures, now.notes)


def passed(stage: StageReport | None) -> int:
    """Packets that a stage has dealt with: what a source gave, a sink took, and all that came to any other."""
    if stage is None:
        return 0
    return stage.packets_in if stage.kind == "stage" else stage.packets_out


def _stage(before: StageReport | None, now: StageReport, elapsed: float) -> StageRate:
    per_s = 1 / elapsed if elapsed > 0 else 0.0
    size = now.bytes - (before.bytes if before else 0)
    drops = tuple((reason, now.sentences.get(reason, reason), n) for reason, n in now.drops.items() if n)
    return StageRate(
        now.name,
        now.kind,
        passed(now),
        (passed(now) - passed(before)) * per_s,
        8 * size * per_s if now.bytes or now.kind != "stage" else None,
        _cycles(before, now),
        drops,
        now.crew,
    )


def _cycles(before: StageReport | None, now: StageReport) -> float | None:
    """Cycles a packet since ``before``: a report has the mean since the beginning, so the earlier part is taken off."""
    mean, n = now.cycles_per_packet, passed(now)
    if mean is None or before is None or before.cycles_per_packet is None or n <= passed(before):
        return mean
    return max(0.0, (mean * n - before.cycles_per_packet * passed(before)) / (n - passed(before)))


def _worker(number: int, before: Report | None, now: Report) -> WorkerReport:
    """A worker with the idle share since ``before``, by the same arithmetic."""
    new = now.workers[number]
    if before is None or now.seconds <= before.seconds:
        return new
    idle = new.idle_share * now.seconds - before.workers[number].idle_share * before.seconds
    share = min(1.0, max(0.0, idle / (now.seconds - before.seconds)))
    return WorkerReport(new.number, new.core, new.loops, share, new.stage)
