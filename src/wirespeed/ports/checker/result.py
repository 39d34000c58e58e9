"""What a checker found out: frozen records, one for each stream and one for all."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from wirespeed.ports.checker.histogram import Histogram, duration
from wirespeed.ports.checker.stream import JITTER


@dataclass(frozen=True)
class StreamResult:
    """One stream of packets, or several added up; ``number`` is that of the stream, -1 for several.

    ``packets`` came with a good trailer, ``received`` counts each number once; ``lost`` numbers lie between the first
    and the last one seen, and those that are merely on their way are among them, as are those that came ``too_late``,
    unless they were duplicates. ``extent`` is the largest of a reordered packet. ``jitter_ns`` is that of RFC 3550; of
    several streams, the largest.
    """

    number: int = -1
    packets: int = 0
    bytes: int = 0
    received: int = 0
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    extent: int = 0
    mean_extent: float = 0.0
    too_late: int = 0
    outliers: int = 0
    restarts: int = 0
    early: int = 0
    jitter_ns: float = 0.0
    latency: Histogram = field(default_factory=Histogram.empty, repr=False)

    @property
    def loss(self) -> float:
        """The part of what was sent that is lost, from 0 to 1."""
        sent = self.received + self.lost
        return self.lost / sent if sent else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers by name."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "latency"}
        return plain | {"latency_ns": self.latency.to_dict()}

    def __str__(self) -> str:
        return (
            f"{self.received:,} received, {self.lost:,} lost ({self.loss:.3%}), {self.duplicates:,} duplicates, "
            f"{self.reordered:,} reordered (extent at most {self.extent:,}), jitter {duration(self.jitter_ns)}; "
            f"latency {self.latency.summary()}"
        )


def of_stream(record: Any) -> StreamResult:
    """The record of a stream, a ``Stream``, as it is now."""
    # While a worker goes on, what it has counted since the first look is not to show as lost.
    span = int(record.lost_before + record.next - record.first)
    reordered = int(record.reordered)
    return StreamResult(
        number=int(record.number),
        packets=int(record.packets),
        bytes=int(record.bytes),
        received=int(record.unique_before + record.unique),
        lost=max(0, span - int(record.unique)),
        duplicates=int(record.duplicates),
        reordered=reordered,
        extent=int(record.longest),
        mean_extent=int(record.extents) / reordered if reordered else 0.0,
        too_late=int(record.too_late),
        outliers=int(record.outliers),
        restarts=int(record.restarts),
        early=int(record.early),
        jitter_ns=int(record.jitter) / JITTER,
        latency=Histogram.of(record.latency),
    )


def together(streams: Iterable[StreamResult]) -> StreamResult:
    """Several streams added up."""
    found = list(streams)
    added = {
        name: sum(getattr(s, name) for s in found)
        for name in ("packets", "bytes", "received", "lost", "duplicates", "reordered")
        + ("too_late", "outliers", "restarts", "early")
    }
    return StreamResult(
        **added,
        extent=max((s.extent for s in found), default=0),
        mean_extent=sum(s.mean_extent * s.reordered for s in found) / max(1, added["reordered"]),
        jitter_ns=max((s.jitter_ns for s in found), default=0.0),
        latency=sum((s.latency for s in found), Histogram.empty()),
    )


@dataclass(frozen=True)
class Result:
    """All that a checker saw: ``streams`` in the order of their numbers, ``all`` of them added up.

    Of ``packets``, ``foreign`` had no trailer, ``corrupt`` ones a damaged one, ``unlisted`` one of a stream for which
    there was no memory; the rest are in ``streams``.
    """

    streams: tuple[StreamResult, ...] = ()
    packets: int = 0
    foreign: int = 0
    corrupt: int = 0
    unlisted: int = 0
    all: StreamResult = field(default_factory=StreamResult)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists by name."""
        seen = {name: getattr(self, name) for name in ("packets", "foreign", "corrupt", "unlisted")}
        return seen | {"all": self.all.to_dict(), "streams": [s.to_dict() for s in self.streams]}

    def counters(self) -> dict[str, int | str]:
        """For a report: what is not nothing, and the latency in a line."""
        total = self.all
        told: dict[str, int | str] = {"streams": len(self.streams), "received": total.received, "lost": total.lost}
        rare = {
            "duplicates": total.duplicates, "reordered": total.reordered, "largest extent": total.extent,
            "too late": total.too_late, "outliers": total.outliers, "restarts": total.restarts,
            "before they were sent": total.early, "without trailer": self.foreign, "corrupt": self.corrupt,
            "of further streams": self.unlisted,
        }  # fmt: skip
        told |= {name: n for name, n in rare.items() if n}
        if total.latency.count:
            told |= {"latency": total.latency.summary(), "jitter": duration(total.jitter_ns)}
        return told

    def __str__(self) -> str:
        """A line for all, the latency as a drawing, and a line for each stream where there are several."""
        lines = [f"{self.packets:,} packets, {self.foreign:,} without trailer, {self.corrupt:,} corrupt"]
        lines += [str(self.all), str(self.all.latency)]
        if len(self.streams) > 1:
            lines += [f"stream {s.number}: {s}" for s in self.streams]
        return "\n".join(lines)
