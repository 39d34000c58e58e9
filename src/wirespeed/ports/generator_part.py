"""A generator in a run: its frames rendered once for all workers, and each worker's share of the packets."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from wirespeed.core.arena import Arena
from wirespeed.core.packet import HEADROOM
from wirespeed.core.stage import Placement, Site
from wirespeed.errors import GraphError
from wirespeed.jit.libc import copy_in
from wirespeed.net.headers import IPv4
from wirespeed.net.trailer import STREAMS, TRAILER
from wirespeed.ports import pacing, template
from wirespeed.ports.generator_stage import (
    CHUNK,
    RENDERED,
    SCTP_CRC,
    SEAL_IP,
    SEAL_TRANSPORT,
    SUM,
    UDP_SUM,
    VARIED,
    Rendered,
    Seal,
    State,
    generate,
    seal_template,
)
from wirespeed.ports.options import Rate
from wirespeed.ports.template import CHECKSUM_AT, Template
from wirespeed.ports.variation import Variation
from wirespeed.ports.varied_field import BIAS, IN_IP, IN_TRANSPORT


@dataclass(frozen=True)
class Stream:
    """What a generator makes: frames, the order in which they come, the fields that vary, how many and how fast."""

    templates: list[Template]
    pattern: list[int]
    variations: list[Variation]
    count: int | None
    rate: Rate | None
    overhead: int  # bytes that a rate in bits counts for each frame beside its own
    seed: int
    checksums: bool
    trailer: int | None  # number of the first stream
    streams: int  # 1: each worker has one; else each flow, of which there are so many


class GeneratorPart:
    """A stream in a run.  The rendered frames are the part's own memory, which all workers read."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._states: list[Any] = []
        frames = sum(_padded(made) for made in stream.templates)
        self._arena = Arena(frames + (RENDERED + 64) * len(stream.templates) + 2 * len(stream.pattern) + 4096)
        self._pattern = self._arena.alloc(2 * len(stream.pattern))
        copy_in(self._pattern, np.array(stream.pattern, np.uint16).tobytes())
        self._sealing = self._arena.alloc(Seal.size)
        self._templates = self._arena.alloc(RENDERED * len(stream.templates))
        seal = _place_checksums(Seal.at(self._sealing), stream.templates[0]) if stream.checksums else 0
        for i, made in enumerate(stream.templates):
            _render(self._templates + RENDERED * i, made, self._arena)
            seal_template(self._sealing, self._templates + RENDERED * i, seal)

    def place(self, site: Site) -> Placement:
        """This worker's share of packets and rate."""
        stream, address = self.stream, site.state(State)
        state = State.at(address)
        state.templates, state.pattern, state.sealing = self._templates, self._pattern, self._sealing
        state.link, state.long = stream.templates[0].link, int(_long(stream, site))
        state.slots = slots = len(stream.pattern)
        state.stride, state.slot = site.workers % slots, site.worker % slots
        state.left = -1 if stream.count is None else max(0, -(-(stream.count - site.worker) // site.workers))
        state.sums, state.dues = site.arena.alloc(16 * site.burst), site.arena.alloc(8 * site.burst)
        self._place_fields(state, site)
        if stream.rate:
            after = Fraction(site.worker, site.workers) if stream.rate.unit == "pps" else 0
            state.paced = 1
            pacer, part = address + State.offset("pacer"), pacing.share(stream.rate, site.workers)
            pacing.init(pacer, part, after=after, overhead=stream.overhead)
        self._states.append(state)
        return Placement(generate.address, address, keep=self)

    def _place_fields(self, state: Any, site: Site) -> None:
        fields, base = self.stream.variations, self.stream.templates[0]
        state.n_fields, state.fields = len(fields), site.arena.alloc(VARIED * max(1, len(fields)))
        under = 0
        for i, field in enumerate(fields):
            under |= field.write(state.fields + VARIED * i, base, self.stream.seed, site.worker, site.workers)
        if self.stream.trailer is not None:
            alone = self.stream.streams == 1
            state.trailer, state.streams = 1, self.stream.streams
            state.stream = (self.stream.trailer + alone * site.worker) % STREAMS
            state.sequence, state.step = (0, 1) if alone else (site.worker, site.workers)
            under |= IN_TRANSPORT if base.transport else 0
        if self.stream.checksums:
            state.seal = (SEAL_IP if under & IN_IP else 0) | (SEAL_TRANSPORT if under & IN_TRANSPORT else 0)

    def counters(self) -> dict[str, int | str]:
        """With a rate: what was asked for and what came of it, and how late the latest packet was."""
        rate, states = self.stream.rate, [state for state in self._states if state.made]
        if not rate:
            return {}
        told: dict[str, int | str] = {"rate": str(rate), "latest_ns": max((s.latest_ns for s in states), default=0)}
        if states:
            packets = sum(int(s.made) for s in states)
            size = sum(int(s.head.bytes) for s in states) + self.stream.overhead * packets
            elapsed = max(s.last_ns for s in states) - min(s.pacer.anchor for s in states)
            told["achieved"] = pacing.achieved(rate, packets, size, int(elapsed))
        return told

    def close(self) -> None:
        """Give the rendered frames' memory back."""
        self._arena.close()


def _padded(made: Template) -> int:
    return -(-len(made.data) // CHUNK) * CHUNK


def _render(address: int, made: Template, arena: Arena) -> None:
    """Write a frame, padded, and the sums under its checksums."""
    record = Rendered.at(address)
    record.size, record.frame = len(made.data), arena.alloc(_padded(made))
    copy_in(record.frame, made.data)
    ip, transport = template.sums(made)
    record.ip_sum, record.transport_sum = ip + BIAS, transport + BIAS
    if made.transport:
        record.covered = made.end - made.places[made.transport]
        record.trailer_shift = 8 * ((record.covered - TRAILER) & 1)


def _place_checksums(sealing: Any, base: Template) -> int:
    """Write where the checksums of a frame are and how they are made; return which of the two there are."""
    seal = 0
    if base.ip == "ipv4":
        seal |= SEAL_IP
        sealing.ip_at = base.places["ipv4"] + IPv4.offset("chksum")
    if base.transport:
        seal |= SEAL_TRANSPORT
        sealing.covers_at = base.places[base.transport]
        sealing.transport_at = sealing.covers_at + CHECKSUM_AT[base.transport]
        sealing.transport = {"udp": UDP_SUM, "sctp": SCTP_CRC}.get(base.transport, SUM)
    return seal


def _long(stream: Stream, site: Site) -> bool:
    """Whether some frame needs more than one buffer.

    Then its headers must be in the first, and all of it in the pool, or in half of it where other workers' caches may
    have the rest; raises GraphError where that cannot be.
    """
    first = site.pool.room - HEADROOM
    reach = site.pool.size if site.workers == 1 else site.pool.size // 2
    most = first + (reach - 1) * site.pool.room
    found = [made for made in stream.templates if _padded(made) > first]
    for made in found:
        size = len(made.data)
        if size > first and (made.least > first or made.transport == "sctp" or size > most):
            what = "it" if size > most else "its headers" if made.least > first else "its checksum"
            raise GraphError(
                f"a frame of {size} bytes is too large for a pool of {site.pool.size} buffers of {first} bytes: {what} "
                f"must fit; give the generator a smaller size, or the run a larger pool"
            )
    return bool(found)
