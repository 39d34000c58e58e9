"""The memory of a checker in a run, and what is read from it."""

from typing import Any

from wirespeed.core.arena import Arena
from wirespeed.net.trailer import STREAMS
from wirespeed.ports.checker.result import Result, of_stream, together
from wirespeed.ports.checker.stage import STREAM, Streams
from wirespeed.ports.checker.stream import Stream


class CheckerMemory:
    """Room for ``capacity`` streams with windows of ``window`` numbers.  Pages that are never touched cost nothing."""

    def __init__(self, capacity: int, window: int, *, shared: bool, stamped: bool) -> None:
        bits, jumped = window // 8, 8 * window
        self._arena = Arena(Streams.size + 2 * STREAMS + capacity * (STREAM + bits + jumped) + 8192, huge=False)
        alloc = self._arena.alloc
        self.address = alloc(Streams.size)
        record = self.record
        record.index, record.streams = alloc(2 * STREAMS), alloc(STREAM * capacity)
        record.bits, record.jumped = alloc(bits * capacity), alloc(jumped * capacity)
        record.window, record.capacity = window, capacity
        record.shared, record.stamped = int(shared), int(stamped)

    @property
    def record(self) -> Any:
        """What the workers share."""
        return Streams.at(self.address)

    def result(self) -> Result:
        """What was found out so far; while workers run, the numbers are a moment's."""
        record = self.record
        found = [of_stream(Stream.at(int(record.streams) + STREAM * k)) for k in range(int(record.length))]
        found.sort(key=lambda stream: stream.number)
        numbers = {name: int(getattr(record, name)) for name in ("packets", "foreign", "corrupt", "unlisted")}
        return Result(tuple(found), all=together(found), **numbers)

    def close(self) -> None:
        """Give the memory back.  Closing twice is harmless."""
        self._arena.close()
