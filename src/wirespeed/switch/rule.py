"""A rule: what it matches, what it does, when it ends, and where its counters are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# Flags of a flow-mod, OpenFlow 1.5.1, 7.3.4.2.
SEND_FLOW_REM, CHECK_OVERLAP, RESET_COUNTS, NO_PACKET_COUNTS, NO_BYTE_COUNTS = 1, 2, 4, 8, 16


class Matching(Protocol):
    """What a rule needs of a match: two whole numbers over a flow."""

    @property
    def value(self) -> int: ...
    @property
    def mask(self) -> int: ...


class Doing(Protocol):
    """What a rule needs of an action."""

    @property
    def reads(self) -> int: ...
    @property
    def writes(self) -> int: ...
    def encode(self, places: Any) -> Sequence[int]: ...


@dataclass(slots=True, eq=False)
class Rule:
    """One rule of one table.  ``number`` is that of its counters; ``base`` what these were when it began."""

    table: int
    priority: int
    match: Any
    actions: tuple[Any, ...]
    cookie: int
    idle_timeout: int
    hard_timeout: int
    importance: int
    flags: int
    number: int
    created: float
    modified: float
    used: float
    reads: int = 0  # bits of a flow that its match and its actions look at
    entry: int = 0  # of the classifier
    record: int = 0  # address and size of what readers have of it
    size: int = 0
    base_packets: int = 0
    base_bytes: int = 0
    seen_packets: int = 0  # when somebody last looked whether it is idle
    removed: bool = False

    @property
    def key(self) -> tuple[int, int, int]:
        """What no other rule of its table has."""
        return self.priority, self.match.mask, self.match.value


@dataclass(frozen=True, slots=True)
class RuleStats:
    """A rule and what it counted, at one moment.  Times are seconds."""

    rule: Rule
    packets: int
    bytes: int
    duration: float
    idle: float


@dataclass(frozen=True, slots=True)
class Removed:
    """A rule that ended: ``reason`` is idle_timeout, hard_timeout, delete, group_delete or meter_delete."""

    stats: RuleStats
    reason: str
