"""Actions that push and pop headers, and those that count hops."""

from dataclasses import dataclass

from wirespeed.switch import fields, program
from wirespeed.switch.actions.base import (
    BEHIND,
    LABELS,
    MPLS_TTL,
    MPLS_TTL_FLOOR,
    NEEDED,
    TAGS,
    TPIDS,
    TTL,
    TTL_FLOOR,
    TYPE,
    Action,
    Places,
)
from wirespeed.switch.fields import FIELDS
from wirespeed.switch.program import head


@dataclass(frozen=True, slots=True)
class PushVlan(Action):
    """Put a tag before the first one."""

    kind: int = 0x8100

    @property
    def reads(self) -> int:
        return TAGS | TPIDS

    @property
    def writes(self) -> int:
        return TAGS | TPIDS

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.PUSH_VLAN, 1, self.kind),)

    def __str__(self) -> str:
        return f"push_vlan:{self.kind:#06x}"


@dataclass(frozen=True, slots=True)
class PopVlan(Action):
    """Take the first tag off."""

    @property
    def reads(self) -> int:
        return TAGS | TPIDS

    @property
    def writes(self) -> int:
        return TAGS | TPIDS

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.POP_VLAN),)

    def __str__(self) -> str:
        return "pop_vlan"


@dataclass(frozen=True, slots=True)
class PushMpls(Action):
    """Put a label before the first one."""

    kind: int = fields.MPLS

    @property
    def reads(self) -> int:
        return TYPE | LABELS | TTL | FIELDS["nw_tos"].mask | FIELDS["nw_ecn"].mask

    @property
    def writes(self) -> int:
        return BEHIND

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.PUSH_MPLS, 1, self.kind),)

    def __str__(self) -> str:
        return f"push_mpls:{self.kind:#06x}"


@dataclass(frozen=True, slots=True)
class PopMpls(Action):
    """Take the first label off; what is behind it is of type ``kind``."""

    kind: int = fields.IP

    @property
    def reads(self) -> int:
        return TYPE | LABELS

    @property
    def writes(self) -> int:
        return BEHIND

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.POP_MPLS, 1, self.kind),)

    def __str__(self) -> str:
        return f"pop_mpls:{self.kind:#06x}"


@dataclass(frozen=True, slots=True)
class SetMplsTtl(Action):
    """Write the first label's time to live."""

    value: int

    @property
    def reads(self) -> int:
        return NEEDED["mpls"]

    @property
    def writes(self) -> int:
        return MPLS_TTL | MPLS_TTL_FLOOR

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.SET_MPLS_TTL, 1, self.value),)

    def __str__(self) -> str:
        return f"set_mpls_ttl({self.value})"


@dataclass(frozen=True, slots=True)
class DecTtl(Action):
    """Take one from the time to live; where nothing would be left, tell the controllers ``ids`` and stop."""

    ids: tuple[int, ...] = (0,)
    shown: bool = False  # whether the text names them

    @property
    def reads(self) -> int:
        return NEEDED["ip any"] | TTL_FLOOR

    @property
    def writes(self) -> int:
        return TTL | TTL_FLOOR

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.DEC_TTL),)

    def __str__(self) -> str:
        return f"dec_ttl({','.join(map(str, self.ids))})" if self.shown else "dec_ttl"


@dataclass(frozen=True, slots=True)
class DecMplsTtl(Action):
    """The same for the first label's."""

    @property
    def reads(self) -> int:
        return NEEDED["mpls"] | MPLS_TTL_FLOOR

    @property
    def writes(self) -> int:
        return MPLS_TTL | MPLS_TTL_FLOOR

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.DEC_MPLS_TTL),)

    def __str__(self) -> str:
        return "dec_mpls_ttl"
