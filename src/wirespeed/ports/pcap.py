"""The capture port: packets from a capture file, pipe or socket, and into one.

``pcap:in.pcap`` reads pcap and pcapng, compressed or not, told by their first bytes; ``pcap:out.pcapng`` writes what
its suffix says.  ``-`` is standard input or output, ``fd=N`` a descriptor, a path may be that of a FIFO or a Unix
socket.  :class:`CaptureTap` is a stage that writes copies of what passes.
"""

import re
from fractions import Fraction
from typing import Any, ClassVar

from wirespeed.core.element import Element
from wirespeed.errors import GraphError, PortError
from wirespeed.net.capture.format import LARGEST_FRAME, USUAL_SNAPLEN
from wirespeed.net.capture.target import number_of
from wirespeed.net.capture.writer import Form
from wirespeed.ports import options, pacing
from wirespeed.ports.options import Option, Rate, Wanted
from wirespeed.ports.pcap_parts import SinkPart, SourcePart, TapPart

FASTEST = 10**6
PACKED = (".gz", ".bz2", ".xz", ".zst")
_SPEED = re.compile(r"\d{1,15}(\.\d{0,15})?(e[+-]?\d{1,2})?|\d{1,15}/0*[1-9]\d{0,15}")


def speed(value: Any) -> str | Fraction:
    """Parse ``max``, ``original``, or how many times as fast as the original: ``2.0``, ``0.1``."""
    if value == "max":
        return "max"
    text = "1" if value == "original" else str(value).removesuffix("x")
    # No exponent of more than two digits, so that no text makes a number with a billion digits.
    times = Fraction(text) if _SPEED.fullmatch(text) else Fraction(0)
    if not Fraction(1, FASTEST) <= times <= FASTEST:
        raise Wanted(f"max, original, or a number of times from 1e-6 to {FASTEST:,} that is as fast", "2.0")
    return times.limit_denominator(FASTEST)


class PcapPort(Element):
    """``pcap:target``; a source, or a sink.  Options that are for the other role do nothing.

    At a pace (``speed``, ``rate``) no packet comes before its time, reckoned from the first one, in all passes over the
    file; it comes as much later as the worker takes to get to it, and that does not add up.
    """

    KIND = "pcap"
    SUMMARY = "packets of a capture file, a pipe or a socket, and into one"
    OPTIONS: ClassVar[dict[str, Option]] = {
        "loop": Option("times", "1", "read the file so many times, or inf", options.either(options.count(1), "inf")),
        "loop_gap": Option("time", "0s", "wait so long before each further time", options.duration(0, 1 << 50)),
        "speed": Option("times", "max", "max, original (by the packets' time stamps) or a multiple of that", speed),
        "gap_max": Option(
            "time", None, "with speed: take a longer gap between two time stamps for this", options.duration(0, 1 << 61)
        ),
        "rate": Option("rate", None, "so many packets or bits a second", options.rate),
        "overhead": pacing.OVERHEAD,
        "count": Option("packets", None, "stop after so many packets", options.count(0)),
        "strict": Option("yes/no", "no", "fail at the end when the file was damaged", options.flag),
        "format": Option("word", None, "pcap or pcapng; by the suffix when not set", options.choice("pcap", "pcapng")),
        "ns": Option("yes/no", "yes", "write pcap with nanoseconds, else with microseconds", options.flag),
        "snaplen": Option(
            "bytes", str(USUAL_SNAPLEN), "write at most so much of a packet", options.size(1, LARGEST_FRAME, "96")
        ),
        "rotate_size": Option("bytes", None, "begin a new file at this size", options.size(4096, example="100MB")),
        "rotate_time": Option("time", None, "begin a new file after so long in the packets' time", options.duration(1)),
    }

    def __init__(self, target: str = "", **given: Any) -> None:
        if not target:
            raise GraphError("pcap: got no target, wanted a path, - or fd=N; write for example pcap:in.pcap")
        values = options.read(self.KIND, self.OPTIONS, given)
        self.name = f"pcap:{target}"
        self.target = target
        self.passes: int = -1 if values["loop"] == "inf" else values["loop"] - 1
        self.gap_ns: int = values["loop_gap"]
        self.times: Fraction | None = None if values["speed"] == "max" else values["speed"]
        self.rate: Rate | None = values["rate"]
        self.gap_most: int | None = values["gap_max"]
        self.overhead = pacing.overhead(values["overhead"])
        self.count: int | None = values["count"]
        self.strict: bool = values["strict"]
        self.form = Form(
            None if values["format"] is None else values["format"] == "pcapng", values["ns"], values["snaplen"],
            values["rotate_size"] or 0, values["rotate_time"] or 0,
        )  # fmt: skip
        if self.gap_most is not None and self.times is None:
            raise GraphError(f"{self.name}: got gap_max without speed, which it limits; add speed=original")
        if self.gap_ns and not self.passes:
            raise GraphError(f"{self.name}: got loop_gap without loop, whose passes it parts; add loop=2 or loop=inf")
        pacing.check_overhead(self.name, self.overhead, self.rate)
        if self.rate and self.times is not None:
            raise GraphError(f"{self.name}: got rate={self.rate} and speed, wanted one of them; leave one out")
        if self.passes and target == "-":
            raise options.refused(self.KIND, "loop", given["loop"], "1, for standard input is read only once", "1")
        if (self.form.rotate_size or self.form.rotate_ns) and number_of(target, 1) is not None:
            raise GraphError(f"{self.name}: rotation needs a file to number; give a path, or leave rotation out")

    def open(self, role: str, workers: int) -> "SourcePart | SinkPart":
        """Open it for one run.  Raises :class:`PortError`."""
        if role == "source":
            return SourcePart(self)
        if self.target.endswith(PACKED):
            raise PortError(
                f"pcap: got {self.target}, wanted a name that does not say compressed, for output is not compressed; "
                "write pcap:- and pipe it into gzip, zstd or their like"
            )
        return SinkPart(self.target, self.form)


class CaptureTap(Element):
    """A stage that writes copies of what passes into a capture, and lets all of it pass."""

    def __init__(self, path: str, **given: Any) -> None:
        port = PcapPort(path, **given)
        self.name = f"tap:{path}"
        self.target, self.form = port.target, port.form

    def open(self, role: str, workers: int) -> TapPart:
        """Open it for one run.  Raises :class:`PortError`."""
        return TapPart(self.target, self.form)
