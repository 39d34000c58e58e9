"""Noticing a worker that makes no round any more, and naming the stage it is in."""

import time
from collections.abc import Callable, Sequence

from wirespeed.engine.placement import GraphCopy

STALL_S = 1.0  # a worker that makes no round for so long is named


class Heartbeat:
    """Compares each worker's rounds from one look to the next; tells of each stage that stalls a worker once."""

    def __init__(self, copies: Sequence[GraphCopy], tell: Callable[[str], None]) -> None:
        self._copies = copies
        self._tell = tell
        self._seen: dict[int, tuple[int, float]] = {}
        self._named: set[tuple[int, str]] = set()

    def look(self) -> None:
        """Look once; to be called a few times a second."""
        now = time.monotonic()
        for number, copy in enumerate(self._copies):
            record, name = copy.worker, copy.stage_name()
            loops, since = self._seen.get(number, (-1, now))
            if record.loops != loops or record.end:
                self._seen[number] = (record.loops, now)
            elif now - since >= STALL_S and (number, name) not in self._named:
                self._named.add((number, name))
                self._tell(f"worker {number} has been in {name} for {now - since:.1f} s")
