"""What a run did: frozen records, as text, JSON and HTML.

A report can be taken at any time; while a run goes on, its numbers are a moment's, read without stopping anyone.
"""

import dataclasses
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StageReport:
    """One stage, summed over the workers.

    ``outputs`` counts packets by output (for a sink: what it took); ``refused`` counts offers that a sink turned down,
    each time; ``held`` is what waits in the stage or before it; ``sentences`` explains each reason in ``drops``;
    ``made`` are packets that it made out of others, less those that it joined (fragments of a datagram, say).
    ``crew`` names the stage to whose crew it belongs: what passes there is inside that stage and counted there.
    """

    name: str
    kind: str
    packets_in: int
    packets_out: int
    outputs: tuple[int, ...]
    bytes: int
    held: int
    refused: int
    drops: Mapping[str, int]
    sentences: Mapping[str, str]
    cycles_per_packet: float | None
    counters: Mapping[str, Any] = field(default_factory=dict)
    crew: str = ""
    made: int = 0

    @property
    def dropped(self) -> int:
        """Packets dropped here, for whatever reason."""
        return sum(self.drops.values())

    @property
    def missing(self) -> int:
        """Packets in and made, less packets out, held and dropped: 0 when the books balance."""
        entered = self.packets_out + self.dropped if self.kind == "source" else self.packets_in
        return entered + self.made - self.packets_out - self.held - self.dropped


@dataclass(frozen=True)
class WorkerReport:
    """One worker: ``stage`` is where it is or was last, ``idle_share`` the part of its time without packets."""

    number: int
    core: int | None
    loops: int
    idle_share: float
    stage: str


@dataclass(frozen=True)
class Report:
    """What a run did so far, or in all once it is ``finished``.

    ``pool_free`` is exact only then; ``notes`` has what a person should know: damage in a file, a stage that stalled.
    ``errors`` are those of the notes by which a port failed at the end: damage where ``strict`` was asked for.
    """

    seconds: float
    stages: tuple[StageReport, ...]
    workers: tuple[WorkerReport, ...]
    pool_size: int
    pool_free: int
    pool_failures: int
    notes: tuple[str, ...]
    tsc_hz: float
    finished: bool
    errors: tuple[str, ...] = ()

    @property
    def packets(self) -> int:
        """Packets that sinks took."""
        return sum(s.packets_out for s in self._main() if s.kind == "sink")

    @property
    def received(self) -> int:
        """Packets that sources gave."""
        return sum(s.packets_out for s in self._main() if s.kind == "source")

    @property
    def dropped(self) -> int:
        """Packets dropped, for whatever reason, in all stages but sources."""
        return sum(s.dropped for s in self._main() if s.kind != "source")

    @property
    def balanced(self) -> bool:
        """Whether every packet is accounted for: in each stage, in all, and in the pool once the run is over."""
        held = sum(s.held for s in self._main())
        made = sum(s.made for s in self._main())
        whole = self.received + made == self.packets + held + self.dropped
        back = not self.finished or self.pool_free == self.pool_size
        return whole and back and all(s.missing == 0 for s in self.stages)

    def _main(self) -> Iterator[StageReport]:
        """The stages where each packet is counted once: all but those of crews."""
        return (s for s in self.stages if not s.crew)

    def stage(self, name: str) -> StageReport:
        """The stage of that name (or of that port target)."""
        for s in self.stages:
            if name in (s.name, s.name.partition(":")[2]):
                return s
        raise KeyError(f"no stage {name!r}; the stages are {', '.join(s.name for s in self.stages)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers."""
        plain = dataclasses.asdict(self)
        plain |= {
            "packets": self.packets,
            "received": self.received,
            "dropped": self.dropped,
            "balanced": self.balanced,
        }
        return plain

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), default=str)

    def __str__(self) -> str:
        lines = _align([_HEADINGS, *(_row(s) for s in self.stages)])
        for s in self.stages:
            lines += [f"  {s.name} dropped {n:,}: {s.sentences.get(r, r)} ({r})" for r, n in s.drops.items() if n]
            lines += [f"  {s.name} {k}: {v}" for k, v in s.counters.items()]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join([*lines, self._summary()])

    def _summary(self) -> str:
        rate = self.packets / self.seconds if self.seconds > 0 else 0.0
        idle = " ".join(f"{w.idle_share:.0%}" for w in self.workers)
        books = "books balanced" if self.balanced else "BOOKS DO NOT BALANCE"
        pool = f"pool {self.pool_free} of {self.pool_size} free" if self.finished else f"pool of {self.pool_size}"
        return (
            f"{self.packets:,} packets in {self.seconds:.3f} s, {_si(rate)}pps; {books}; {pool}; "
            f"{len(self.workers)} worker{'s' * (len(self.workers) != 1)}, idle {idle}"
        )

    def _repr_html_(self) -> str:
        """For notebooks."""

        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        rows = [line(_HEADINGS, "th"), *(line(_row(s), "td") for s in self.stages)]
        reasons = [
            f"{s.name} dropped {n:,}: {s.sentences.get(r, r)}" for s in self.stages for r, n in s.drops.items() if n
        ]
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in [*reasons, *self.notes])
        return f"<table>{''.join(rows)}</table><ul>{notes}</ul><p>{html.escape(self._summary())}</p>"


_HEADINGS = ("stage", "in", "out", "dropped", "held", "bytes", "cycles/packet")


def _row(s: StageReport) -> tuple[str, ...]:
    out = " + ".join(f"{n:,}" for n in s.outputs) if len(s.outputs) > 1 else f"{s.packets_out:,}"
    per_packet = "" if s.cycles_per_packet is None else f"{s.cycles_per_packet:.1f}"
    size = f"{s.bytes:,}" if s.bytes else ""
    return (
        f"  {s.name}" if s.crew else s.name,
        "" if s.kind == "source" else f"{s.packets_in:,}",
        out,
        f"{s.dropped:,}",
        f"{s.held:,}",
        size,
        per_packet,
    )


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _si(value: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.2f} {unit}"
    return f"{value:.2f} "
