"""The checker in a graph: ``ws.checker()`` as a stage or at the end, and ``checker:`` at the end of a command line.

Thread rules: the result may be read by any thread at any time; a lock keeps a reader and the run's end apart.
"""

from threading import Lock
from typing import Any, ClassVar

from wirespeed.core.element import Element
from wirespeed.core.stage import Placement, Site
from wirespeed.errors import GraphError
from wirespeed.net.trailer import STREAMS
from wirespeed.ports import options
from wirespeed.ports.checker.histogram import Histogram
from wirespeed.ports.checker.memory import CheckerMemory
from wirespeed.ports.checker.result import Result, StreamResult
from wirespeed.ports.checker.stage import State, check
from wirespeed.ports.options import Option

MOST_WINDOW = 1 << 20
MOST_NUMBERS = 1 << 26  # in all windows together, half a gigabyte
DECLARED = {
    "streams": Option("count", "64", "most streams that are told apart", options.count(1, STREAMS - 1, "64")),
    "window": Option(
        "count",
        "8192",
        "how late a packet may come, in packets, a power of two",
        options.count(64, MOST_WINDOW, "8192"),
    ),
    "clock": Option(
        "word", "here", "a packet arrives when it is here, or when its port says: port", options.choice("here", "port")
    ),
}


class Checker(Element):
    """Reads the trailers of a generator's packets (``trailer=yes``); ends a chain, or passes everything on.

    ``result`` has all that was found out, of a run that goes on or of the last one; what one asks for most can be
    had from the checker itself.
    """

    ENDS = True
    KIND: ClassVar[str | None] = None

    def __init__(self, **given: Any) -> None:
        values = options.read("checker", DECLARED, given)
        self.name = "checker:" if self.KIND else "checker"
        self.capacity: int = values["streams"]
        self.window: int = values["window"]
        self.stamped: bool = values["clock"] == "port"
        if self.window & (self.window - 1):
            raise options.refused(
                "checker", "window", self.window, "a power of two", str(1 << self.window.bit_length())
            )
        if self.capacity * self.window > MOST_NUMBERS:
            raise GraphError(
                f"checker: got {self.capacity} streams with windows of {self.window}, wanted at most {MOST_NUMBERS} numbers "
                f"in all; make the windows smaller, such as window={_power_below(MOST_NUMBERS // self.capacity)}"
            )
        self._lock = Lock()
        self._memory: CheckerMemory | None = None
        self._last = Result()

    def open(self, role: str, workers: int) -> "CheckerPart":
        """Ready for one run.  Raises :class:`GraphError` when it is in one already."""
        if role == "source":
            raise GraphError("checker: is no source of packets; to make some, begin with generator:,trailer=yes")
        with self._lock:
            if self._memory is not None:
                raise GraphError(f"{self.name} is in a run already; make another one for this run")
            self._memory = CheckerMemory(self.capacity, self.window, shared=workers > 1, stamped=self.stamped)
            return CheckerPart(self, self._memory, sink=role == "sink")

    @property
    def result(self) -> Result:
        """What was found out so far."""
        with self._lock:
            return self._memory.result() if self._memory else self._last

    def end(self) -> None:
        """Called at the end of a run: keep what it found out, and give its memory back."""
        with self._lock:
            if self._memory:
                self._last = self._memory.result()
                self._memory.close()
                self._memory = None

    @property
    def all(self) -> StreamResult:
        """All streams added up."""
        return self.result.all

    @property
    def packets(self) -> int:
        """All that came, whatever they were."""
        return self.result.packets

    @property
    def received(self) -> int:
        return self.all.received

    @property
    def lost(self) -> int:
        return self.all.lost

    @property
    def duplicates(self) -> int:
        return self.all.duplicates

    @property
    def reordered(self) -> int:
        return self.all.reordered

    @property
    def extent(self) -> int:
        return self.all.extent

    @property
    def too_late(self) -> int:
        return self.all.too_late

    @property
    def outliers(self) -> int:
        return self.all.outliers

    @property
    def restarts(self) -> int:
        return self.all.restarts

    @property
    def early(self) -> int:
        return self.all.early

    @property
    def corrupt(self) -> int:
        return self.result.corrupt

    @property
    def foreign(self) -> int:
        return self.result.foreign

    @property
    def unlisted(self) -> int:
        return self.result.unlisted

    @property
    def streams(self) -> tuple[StreamResult, ...]:
        """Each stream by itself, in the order of their numbers."""
        return self.result.streams

    @property
    def jitter_ns(self) -> float:
        return self.all.jitter_ns

    @property
    def latency(self) -> Histogram:
        """How long packets took; print it to see it."""
        return self.all.latency

    def __str__(self) -> str:
        """The result, as text."""
        return str(self.result)


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)


class CheckerPort(Checker):
    """``checker:``, the same as a port, which ends a chain."""

    KIND = "checker"
    SUMMARY = "an end that tells loss, order and latency of a generator's packets"
    OPTIONS: ClassVar[dict[str, Option]] = DECLARED

    def __init__(self, target: str = "", **given: Any) -> None:
        if target:
            raise GraphError(f"checker: takes no target, got {target!r}; its options are {', '.join(DECLARED)}")
        super().__init__(**given)


class CheckerPart:
    """A checker in a run."""

    def __init__(self, checker: Checker, memory: CheckerMemory, *, sink: bool) -> None:
        self.checker = checker
        self.memory = memory
        self.sink = sink

    def place(self, site: Site) -> Placement:
        """This worker's state, which points to the streams of all."""
        address = site.state(State)
        state = State.at(address)
        state.streams, state.sink = self.memory.address, int(self.sink)
        return Placement(check.address, address)

    def counters(self) -> dict[str, int | str]:
        """For the report."""
        found = self.checker.result.counters()
        if "of further streams" in found:
            found["streams told apart"] = f"at most {self.checker.capacity}; streams= says how many"
        return found

    def close(self) -> None:
        """Hand the result to the checker."""
        self.checker.end()


def checker(**given: Any) -> Checker:
    """A stage or an end that reads the trailers of a generator's packets (``generator:,trailer=yes``).

    ``streams`` is how many it tells apart, ``window`` how many packets late one may come and still be told from a
    duplicate; with ``clock="port"`` a packet has arrived when its port says that it has, else when it gets here.
    After the run, and while it goes on, ``.lost``, ``.duplicates``, ``.reordered``, ``.latency`` and ``.result``.
    """
    return Checker(**given)
