"""Capture ports in a run: what is open, what the workers share, and what is said at the end.

Thread rules: the control thread calls ``service`` and ``close``, any thread may ask for ``counters``; a lock keeps them
apart, for ``close`` gives back the memory that the others look at.
"""

import logging
import os
from fractions import Fraction
from threading import Lock
from typing import Any, Protocol

from wirespeed.core.arena import Arena
from wirespeed.core.stage import Placement, Site
from wirespeed.errors import PortError
from wirespeed.net.capture import container, damage, scan, scanner, window
from wirespeed.net.capture.format import MICROSECONDS, MODIFIED, NANOSECONDS, SECTION
from wirespeed.net.capture.scan import UNKNOWN, Scan
from wirespeed.net.capture.target import Target, open_source
from wirespeed.net.capture.writer import Form, WriterMemory
from wirespeed.ports import pacing, pcap_sink, pcap_source
from wirespeed.ports.options import Rate
from wirespeed.ports.pcap_feed import AT_ONCE, BY_RATE, LONGEST_NS, SCAN, Feed, set_speed
from wirespeed.ports.pcap_pump import Pump

log = logging.getLogger("wirespeed")
WINDOW = SCAN + Scan.offset("window")
LOOK_S = 0.01  # how often a stream is looked at until it is known whether it is compressed
FLUSH_S = 0.1
_MAGIC = {m.to_bytes(4, order) for m in (MICROSECONDS, NANOSECONDS, MODIFIED) for order in ("little", "big")}
_SECTION = SECTION.to_bytes(4, "little")

Counters = dict[str, int | str]


class SourceSettings(Protocol):
    """What a source needs to know of its port."""

    target: str
    passes: int
    gap_ns: int
    times: Fraction | None
    gap_most: int | None
    overhead: int
    rate: Rate | None
    count: int | None
    strict: bool


class SourcePart:
    """A capture that is being read."""

    def __init__(self, port: SourceSettings) -> None:
        self.port = port
        self._lock = Lock()
        self._last: Counters = {}
        self.target: Target = open_source(port.target)
        self.pump: Pump | None = None
        self.feed = 0
        self._arena = Arena(scan.MEMORY + Feed.size + 8192)
        try:
            self._begin(*self._recognize())
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        self.feed = 0
        self._arena.close()
        if self.pump:
            self.pump.close()
        self.target.close()

    def _recognize(self) -> tuple[int, bool]:
        """The container of a file, and whether there may be pcapng in it; of a stream, what is to be expected."""
        if not self.target.regular:
            if self.port.passes:
                raise PortError(f"{self.target.name} can be read only once, got a loop; leave out loop, or use a file")
            return container.PLAIN, True
        first = os.pread(self.target.fd, 4, self.target.begin)
        kind = container.kind_of(first)
        if kind == container.PLAIN and first != _SECTION and first not in _MAGIC:
            told = f"begins with the bytes {first.hex()}, which no capture file does" if first else "is empty"
            raise PortError(f"{self.target.name} {told}; wanted pcap or pcapng, plain or compressed")
        return kind, kind != container.PLAIN or first == _SECTION

    def _begin(self, kind: int, pcapng: bool) -> None:
        target, port = self.target, self.port
        plain_file = target.regular and kind == container.PLAIN
        memory = self._arena.alloc(scan.MEMORY, 4096)
        self.feed = self._arena.alloc(Feed.size)
        source = window.FILE if plain_file else window.STREAM
        scanner.init(self.feed + SCAN, memory, target.fd, source, begin=target.begin, pcapng=pcapng)
        feed = self._feed
        feed.left = -1 if port.count is None else port.count
        feed.passes, feed.gap_ns = port.passes, port.gap_ns
        feed.pace = AT_ONCE
        if port.rate:
            feed.pace = BY_RATE
            pacing.init(self.feed + Feed.offset("pacer"), port.rate, overhead=port.overhead)
        elif port.times is not None:
            set_speed(self.feed, port.times, LONGEST_NS if port.gap_most is None else port.gap_most)
        if not plain_file:
            self.pump = Pump(target.fd, port.passes, self.feed + WINDOW)
        if self.pump and target.regular:
            feed.scan.window.begin, feed.scan.window.offset, feed.scan.window.fd = 0, 0, self.pump.reader
            self.pump.start(kind, begin=target.begin)

    @property
    def _feed(self) -> Any:
        return Feed.at(self.feed)

    def place(self, site: Site) -> Placement:
        """This worker's copy; all share the feed."""
        address = site.state(pcap_source.State)
        state = pcap_source.State.at(address)
        state.feed, state.shared = self.feed, site.workers > 1
        fds = [self.pump.reader] if self.pump else []
        if not self.target.regular:  # a regular file is always readable
            fds.append(self.target.fd)
        return Placement(pcap_source.receive.address, address, pcap_source.DROPS, tuple(fds))

    def service(self) -> float | None:
        """Unpack a little, where the capture is compressed."""
        with self._lock:
            if self.pump is None or not self.feed:
                return None
            if self.pump.started:
                return self.pump.work()
            kind = int(scanner.container_met(self.feed + SCAN))
            if kind:
                self.pump.start(kind, window.hand_over(self.feed + WINDOW))
                scanner.resume(self.feed + SCAN, self.pump.reader)
                return 0.0
            found = self._feed.scan
            return None if found.format != UNKNOWN or found.damage.what else LOOK_S

    def counters(self) -> Counters:
        """What was met in the file beside packets."""
        with self._lock:
            return self._counters() if self.feed else self._last

    def _counters(self) -> Counters:
        feed = self._feed
        ended, fault = damage.of_scan(feed.scan)
        told: Counters = {"damage": (self.pump and self.pump.damage) or (str(ended) if ended else "")}
        told |= {"faults": feed.scan.faults, "first fault": str(fault) if fault else ""}
        told |= {"frames too long": feed.scan.too_long, "options cut": feed.options_cut}
        return {name: value for name, value in (told | self._pace(feed)).items() if value}

    def _pace(self, feed: Any) -> Counters:
        """At a pace: what was asked for, what came of it, and how late the latest packet was."""
        port, elapsed = self.port, int(feed.last_ns - feed.began)
        if port.rate:
            size = int(feed.given_bytes) + port.overhead * int(feed.given)
            told: Counters = {"rate": str(port.rate)}
            told["achieved"] = pacing.achieved(port.rate, int(feed.given), size, elapsed)
        elif port.times is not None:
            scheduled = int(feed.last_due - feed.began)
            told = {"speed": f"{float(port.times):g}"}
            told["achieved"] = f"{float(port.times * scheduled / elapsed):.6g}" if elapsed > 0 else ""
        else:
            return {}
        return told | {"latest_ns": int(feed.latest_ns)}

    def close(self) -> None:
        """Close it.  Damage is logged, or raised as :class:`PortError` where the port is strict."""
        with self._lock:
            if not self.feed:
                return
            self._last = self._counters()
            self._release()
        wrong = [str(self._last[name]) for name in ("damage", "first fault") if name in self._last]
        for text in wrong:
            log.warning("%s: %s; what was good is kept", self.target.name, text)
        if wrong and self.port.strict:
            raise PortError(f"{self.target.name}: {'; '.join(wrong)}")


class SinkPart:
    """A capture that is being written."""

    stage, drops = pcap_sink.transmit, pcap_sink.DROPS
    ends = True  # whether a run is over when this can take nothing more

    def __init__(self, target: str, form: Form) -> None:
        self._lock = Lock()
        for kernel in (pcap_sink.book, pcap_sink.write_out):  # now, as WriterMemory does with what it calls at the end
            kernel.compile("(int64,)")
        self._memory = WriterMemory(target, form)
        self._states: list[int] = []
        self._last: Counters = {}

    def place(self, site: Site) -> Placement:
        """This worker's copy; all write into one file."""
        address = site.state(pcap_sink.State)
        pcap_sink.State.at(address).writer = self._memory.address
        self._states.append(address)
        return Placement(self.stage.address, address, self.drops)

    def service(self) -> float | None:
        """Write what waits in the buffer.  A stream that nobody reads any more ends the run, as it ends any program."""
        with self._lock:
            if not self._memory.address:
                return None
            pcap_sink.write_out(self._memory.address)
            if self.ends and self._memory.record.outlet.broken:
                raise PortError(self._memory.trouble())
            return FLUSH_S

    def counters(self) -> Counters:
        """What happened while writing."""
        with self._lock:
            return self._counters() if self._memory.address else self._last

    def _counters(self) -> Counters:
        writer = self._memory.record
        told: Counters = {
            "trouble": self._memory.trouble() or "",
            "missed": writer.missed,
            "cut to snaplen": writer.cut,
        }
        told |= {"options lost": writer.options_lost, "files": writer.files if writer.files > 1 else 0}
        return {name: value for name, value in told.items() if value}

    def close(self) -> None:
        """Write what is left, and close the file; what cannot be written is a counted drop, and logged."""
        with self._lock:
            if not self._memory.address:
                return
            self._memory.finish()
            if self._states and self._memory.record.outlet.lost:
                pcap_sink.book(self._states[0])  # the run's memory is still there, and its last report not yet made
            self._last = self._counters()
            self._memory.close()
        if "trouble" in self._last:
            log.warning("%s", self._last["trouble"])


class TapPart(SinkPart):
    """A capture into which copies of what passes are written."""

    stage, drops = pcap_sink.observe, {}
    ends = False
