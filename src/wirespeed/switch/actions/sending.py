"""Actions that send the packet somewhere: ports, controllers, groups; and meters, which may not let it go on."""

from dataclasses import dataclass

from wirespeed.switch import fields, program
from wirespeed.switch.actions.base import Action, Places
from wirespeed.switch.ops import ACTION
from wirespeed.switch.program import head
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.subfield import Subfield, one_place

ALL_BYTES = 0xFFFF
REASONS = ("no_match", "action", "invalid_ttl", "action_set", "group")


@dataclass(frozen=True, slots=True)
class Output(Action):
    """Send the packet, as it is now, by a port; at most ``max_len`` bytes of it, where that is not 0."""

    port: int
    max_len: int = 0

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def encode(self, places: Places) -> tuple[int, ...]:
        return head(program.OUTPUT, 2, self.port), self.max_len

    def __str__(self) -> str:
        name = texts.port_text(self.port)
        if self.max_len:
            return f"output(port={name},max_len={self.max_len})"
        return f"output:{name}" if name.isdigit() else name


@dataclass(frozen=True, slots=True)
class OutputField(Action):
    """Send the packet by the port whose number a field has."""

    source: Subfield
    max_len: int = 0

    @property
    def reads(self) -> int:
        return self.source.mask

    def encode(self, places: Places) -> tuple[int, ...]:
        return head(program.OUTPUT_FIELD, 2, one_place(self.source)), self.max_len

    def __str__(self) -> str:
        return f"output:{self.source}"


@dataclass(frozen=True, slots=True)
class Controller(Action):
    """Tell a controller: at most ``max_len`` bytes of the packet, why, and what else it is to know."""

    max_len: int = ALL_BYTES
    reason: int = ACTION
    id: int = 0
    userdata: bytes = b""

    @property
    def ports(self) -> tuple[int, ...]:
        return (fields.CONTROLLER,)

    def encode(self, places: Places) -> tuple[int, ...]:
        extra = int.from_bytes(self.userdata[:4], "little")
        return head(program.CONTROLLER, 2, self.max_len), self.reason | self.id << 8 | extra << 32

    def __str__(self) -> str:
        if (self.reason, self.id, self.userdata) == (ACTION, 0, b""):
            return f"CONTROLLER:{self.max_len}"
        parts = [f"reason={REASONS[self.reason]}"] if self.reason != ACTION else []
        parts += [f"max_len={self.max_len}"] if self.max_len != ALL_BYTES else []
        parts += [f"id={self.id}"] if self.id else []
        parts += [f"userdata={self.userdata.hex('.')}"] if self.userdata else []
        return f"controller({','.join(parts)})"


@dataclass(frozen=True, slots=True)
class ToGroup(Action):
    """Do what a group does, with a copy of the packet."""

    number: int

    @property
    def groups(self) -> tuple[int, ...]:
        return (self.number,)

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.GROUP, 1, places.group(self.number)),)

    def __str__(self) -> str:
        return f"group:{self.number}"


@dataclass(frozen=True, slots=True)
class Meter(Action):
    """Drop the packet where a meter says so."""

    number: int

    @property
    def meters(self) -> tuple[int, ...]:
        return (self.number,)

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.METER, 1, places.meter(self.number)),)

    def __str__(self) -> str:
        return f"meter:{self.number}"
