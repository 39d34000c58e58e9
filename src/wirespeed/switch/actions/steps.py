"""Actions that say where a packet goes on: other tables, the action set, a copy, the end."""

from dataclasses import dataclass
from typing import ClassVar

from wirespeed.errors import GraphError
from wirespeed.switch import fields, program
from wirespeed.switch.actions.base import IN_PORT_BITS, Action, Places, actions_text, union
from wirespeed.switch.fields import FIELDS
from wirespeed.switch.program import head
from wirespeed.switch.text import value as texts

SAME_TABLE = 255
MOST_WORDS = 1 << 16  # of one action, those inside of it included


@dataclass(frozen=True, slots=True)
class Goto(Action):
    """Go on in a later table."""

    table: int

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.GOTO, 1, self.table),)

    def __str__(self) -> str:
        return f"goto_table:{self.table}"


@dataclass(frozen=True, slots=True)
class Resubmit(Action):
    """Do what a table's rule does, as if the packet had come in by a port, and come back."""

    port: int = fields.IN_PORT
    table: int = SAME_TABLE

    @property
    def writes(self) -> int:
        return 0 if self.port == fields.IN_PORT else IN_PORT_BITS

    def encode(self, places: Places) -> tuple[int, ...]:
        return head(program.RESUBMIT, 2, self.port), self.table

    def __str__(self) -> str:
        name = "" if self.port == fields.IN_PORT else texts.port_text(self.port)
        return f"resubmit:{name}" if self.table == SAME_TABLE else f"resubmit({name},{self.table})"


@dataclass(frozen=True, slots=True)
class WriteMetadata(Action):
    """Write bits of the metadata."""

    value: int
    mask: int = (1 << 64) - 1

    @property
    def writes(self) -> int:
        return self.mask << FIELDS["metadata"].at

    def encode(self, places: Places) -> tuple[int, ...]:
        return head(program.WRITE_METADATA, 3), self.value, self.mask

    def __str__(self) -> str:
        whole = self.mask == (1 << 64) - 1
        return f"write_metadata:{texts.short_hex(self.value)}" + ("" if whole else f"/{texts.short_hex(self.mask)}")


@dataclass(frozen=True, slots=True)
class ClearActions(Action):
    """Empty the action set."""

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.CLEAR_ACTIONS),)

    def __str__(self) -> str:
        return "clear_actions"


@dataclass(frozen=True, slots=True)
class Exit(Action):
    """Do nothing more with the packet, in any table."""

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.EXIT),)

    def __str__(self) -> str:
        return "exit"


class Nested(Action):
    """Actions that hold others."""

    __slots__ = ()
    CODE: ClassVar[int]
    NAME: ClassVar[str]
    actions: tuple[Action, ...]

    def _all(self, what: str) -> tuple[int, ...]:
        return tuple(number for action in self.actions for number in getattr(action, what))

    @property
    def ports(self) -> tuple[int, ...]:
        return self._all("ports")

    @property
    def groups(self) -> tuple[int, ...]:
        return self._all("groups")

    @property
    def meters(self) -> tuple[int, ...]:
        return self._all("meters")

    @property
    def reads(self) -> int:
        return union(action.reads for action in self.actions)

    @property
    def writes(self) -> int:
        return union(action.writes for action in self.actions)

    def encode(self, places: Places) -> tuple[int, ...]:
        words = [word for action in self.actions for word in action.encode(places)]
        if len(words) >= MOST_WORDS:
            raise GraphError(f"{self.NAME} has {len(words)} words of actions; at most {MOST_WORDS - 1}")
        return head(self.CODE, 1 + len(words)), *words

    def __str__(self) -> str:
        return f"{self.NAME}({actions_text(self.actions)})"


@dataclass(frozen=True, slots=True)
class WriteActions(Nested):
    """Put actions into the action set, which is done at the end."""

    actions: tuple[Action, ...]
    CODE: ClassVar[int] = program.WRITE_ACTIONS
    NAME: ClassVar[str] = "write_actions"


@dataclass(frozen=True, slots=True)
class Clone(Nested):
    """Do actions with a copy."""

    actions: tuple[Action, ...]
    CODE: ClassVar[int] = program.CLONE
    NAME: ClassVar[str] = "clone"
