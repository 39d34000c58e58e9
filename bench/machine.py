"""What a figure was measured on: processor, kernel, and where the host runs this machine's cores."""

import functools
import os
import platform
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUND_TRIPS = 20_000
BLOCKS = 9


def describe() -> Iterator[str]:
    """Lines that belong beside any figure."""
    yield f"processor: {_cpu_model()}, {os.cpu_count()} cores, {len(os.sched_getaffinity(0))} allowed"
    yield f"system: Linux {platform.release()}, Python {platform.python_version()}"
    if (load := os.getloadavg()[0]) > 0.5:
        yield f"load: {load:.2f}; something else is running, and figures will suffer from it"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


@dataclass(frozen=True)
class Placement:
    """Where two cores are to each other, told by a cache line's round trip between them."""

    round_trip_ns: float

    @property
    def kind(self) -> str:
        """``one core`` (threads of one core share its first cache), ``near`` (one last-level cache) or ``far``.

        The bounds lie in the wide gaps between what was measured on Zen 4 machines: 48, 110 and 490 ns.
        """
        return "one core" if self.round_trip_ns < 75 else "near" if self.round_trip_ns < 270 else "far"

    @property
    def word(self) -> str:
        """The kind as it stands in a row's name."""
        return "smt" if self.kind == "one core" else self.kind

    def __str__(self) -> str:
        return f"{self.kind} ({self.round_trip_ns:.0f} ns round trip)"


def quick_placement(first: int, second: int) -> Placement:
    """:func:`measure_placement` in about a millisecond, to be asked around every sample."""
    return measure_placement(first, second, 1000, 3)


def measure_placement(first: int, second: int, round_trips: int = ROUND_TRIPS, blocks: int = BLOCKS) -> Placement:
    """Play ping-pong with two cache lines between two cores.

    A virtual machine's cores wander: the host may run both on one physical core for a while, and nothing in the guest
    shows it. So this stands before and after everything that is measured on two cores.
    """
    import numpy as np

    ping, pong = _players()
    lines = np.zeros(64, np.int64)
    at = lines.ctypes.data + -lines.ctypes.data % 128
    times = np.zeros(blocks, np.float64)
    answering = threading.Thread(target=_on_core, args=(second, pong, at, at + 128, round_trips * blocks))
    answering.start()
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {first})
        _play(ping, at, at + 128, times, round_trips)
    finally:
        os.sched_setaffinity(0, before)
        answering.join()
    return Placement(float(np.median(times)))


class PlacementWatch:
    """Measures the placement of two cores again and again while something else is measured on them.

    It takes about a millisecond each time, which costs what is measured a third of a percent.
    """

    PERIOD_S = 0.3

    def __init__(self, first: int, second: int) -> None:
        self._cores = first, second
        self._seen: list[tuple[float, str]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._end = 0.0

    def _look(self) -> None:
        while not self._over.wait(self.PERIOD_S):
            word = quick_placement(*self._cores).word
            self._seen.append((time.monotonic(), word))

    def __enter__(self) -> "PlacementWatch":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end = time.monotonic()
        self._over.set()
        self._thread.join()

    def word(self, since: float, until: float, share: float) -> str | None:
        """The placement that at least this share of the looks saw, from ``until`` to ``since`` seconds before the end."""
        words = [word for at, word in self._seen if since <= self._end - at <= until]
        return next((word for word in set(words) if words.count(word) >= share * len(words)), None)


def _on_core(core: int, player: Any, *arguments: int) -> None:
    os.sched_setaffinity(0, {core})
    player(*arguments)


def _play(ping: Any, mine: int, theirs: int, times: Any, round_trips: int) -> None:
    for block in range(len(times)):
        start = time.perf_counter_ns()
        ping(mine, theirs, block * round_trips, round_trips)
        times[block] = (time.perf_counter_ns() - start) / round_trips


@functools.cache
def _players() -> tuple[Any, Any]:
    """Compile both sides; atomics are needed, or the compiler would take the waiting loop for an endless one."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    word = ir.IntType(64)

    @intrinsic  # type: ignore[untyped-decorator]
    def load(_context: Any, _address: Any) -> Any:
        def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.load_atomic(builder.inttoptr(arguments[0], word.as_pointer()), "acquire", 8, typ=word)

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def store(_context: Any, _address: Any, _value: Any) -> Any:
        def generate(ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], word.as_pointer()), "release", 8)
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    @njit("void(int64, int64, int64, int64)", nogil=True)  # type: ignore[untyped-decorator]
    def ping(mine: int, theirs: int, before: int, rounds: int) -> None:
        for i in range(before + 1, before + rounds + 1):
            store(mine, i)
            while load(theirs) < i:
                pass

    @njit("void(int64, int64, int64)", nogil=True)  # type: ignore[untyped-decorator]
    def pong(theirs: int, mine: int, rounds: int) -> None:
        for i in range(1, rounds + 1):
            while load(theirs) < i:
                pass
            store(mine, i)

    return ping, pong
