"""Actions that write fields: set_field and its relatives, move, and the packet's stack.

Theory of operation
-------------------
A value is written as the text has it; which of its bits a flow has, the field says (``nw_tos`` is written with eight
bits, of which six are in its field).  What spans words of a flow is several actions of the program.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from wirespeed.switch import program
from wirespeed.switch.actions.base import IN_PORT_BITS, NEEDED, TAGS, TPIDS, Action, Places, changed_by, read_for, union
from wirespeed.switch.fields import FIELDS, SET_NAMES, Field
from wirespeed.switch.program import NEEDS_NUMBER, head, place
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.subfield import Subfield, one_place


@dataclass(frozen=True, slots=True)
class SetField(Action):
    """Write bits of a field; ``value`` and ``mask`` as they are written.  ``old`` is the action of OpenFlow 1.0.

    An old one does not ask whether the match promises the header.
    """

    field: Field
    value: int
    mask: int
    old: str = ""

    @property
    def needs(self) -> str:
        """What must be there."""
        return "vlan" if self.field.name == "vlan_vid" else self.field.needs

    @property
    def _bits(self) -> tuple[int, int]:
        field = self.field
        mask = self.mask >> field.value_at
        if field.form == "port":
            mask = field.ones
        return self.value >> field.value_at << field.at, mask << field.at

    @property
    def reads(self) -> int:
        return NEEDED[self.needs] | read_for(self._bits[1])

    @property
    def writes(self) -> int:
        return changed_by(self._bits[1])

    def encode(self, places: Places) -> tuple[int, ...]:
        value, mask = self._bits
        # What a match must promise is checked with the rule; in a bucket, nobody promises, and the bits add a tag.
        return set_words(value, mask, self.field.needs)

    def __str__(self) -> str:
        if self.old:
            return f"{self.old}:{texts.show(self.field, self.value, (1 << self.field.width) - 1)}"
        name = SET_NAMES.get(self.field.name, self.field.name)
        return f"set_field:{texts.show(self.field, self.value, self.mask)}->{name}"


def set_words(value: int, mask: int, needs: str) -> tuple[int, ...]:
    words: list[int] = []
    word, ones = 0, (1 << 64) - 1
    while mask:
        if mask & ones:
            words += (head(program.SET, 3, word | NEEDS_NUMBER[needs] << 8), value & ones, mask & ones)
        word, value, mask = word + 1, value >> 64, mask >> 64
    return tuple(words)


@dataclass(frozen=True, slots=True)
class SetTransport(Action):
    """Write a port of TCP, UDP or SCTP, or what messages have in its place, whichever the packet is."""

    end: str  # src or dst
    value: int

    @property
    def each(self) -> list[SetField]:
        """The same for each protocol, of which a packet has one at most."""
        ports = [SetField(FIELDS[f"{kind}_{self.end}"], self.value, 0xFFFF) for kind in ("tcp", "udp", "sctp")]
        # Where no match says which, as in a bucket, messages have their type and code there; so has it Open vSwitch.
        part = "type" if self.end == "src" else "code"
        return ports + [SetField(FIELDS[f"{kind}_{part}"], self.value & 0xFF, 0xFF) for kind in ("icmp", "icmpv6")]

    @property
    def reads(self) -> int:
        return NEEDED["tcp"]

    @property
    def writes(self) -> int:
        return FIELDS[f"tcp_{self.end}"].mask

    def encode(self, places: Places) -> tuple[int, ...]:
        return tuple(word for one in self.each for word in one.encode(places))

    def __str__(self) -> str:
        return f"mod_tp_{self.end}:{self.value}"


@dataclass(frozen=True, slots=True)
class SetTag(Action):
    """Write the number (``vid``) or the priority (``pcp``) of the first tag, which is pushed where there is none."""

    part: str
    value: int

    @property
    def reads(self) -> int:
        return TAGS | TPIDS

    @property
    def writes(self) -> int:
        return TAGS | TPIDS

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.SET_VLAN_VID if self.part == "vid" else program.SET_VLAN_PCP, 1, self.value),)

    def __str__(self) -> str:
        return f"mod_vlan_{self.part}:{self.value}"


@dataclass(frozen=True, slots=True)
class Move(Action):
    """Copy bits of a field to another one."""

    source: Subfield
    target: Subfield

    @property
    def reads(self) -> int:
        reads = self.source.mask | NEEDED[self.source.field.needs] | NEEDED[self.target.field.needs]
        return reads | read_for(self.target.mask)

    @property
    def writes(self) -> int:
        return changed_by(self.target.mask)

    def encode(self, places: Places) -> tuple[int, ...]:
        source_needs, needs = self.source.field.needs, self.target.field.needs
        numbers = NEEDS_NUMBER[needs] << 32 | NEEDS_NUMBER[source_needs] << 40
        parts = list(self._parts())
        covered = union(((1 << bits) - 1) << low for _, _, bits, low in parts)
        zeros = self._zeros(covered, needs)
        words: list[int] = []
        if len(parts) > 1 and self.source.mask & self.target.mask:
            for source, _, _, _ in parts:
                words.append(head(program.PUSH_FIELD, 1, source))
            for _, target, _, _ in reversed(parts):
                words += (head(program.POP_FIELD, 2, target), NEEDS_NUMBER[needs])
        else:
            for source, target, _, _ in parts:
                words += (head(program.MOVE, 2, source), target | numbers)
        return (*words, *zeros)

    def _parts(self) -> Iterator[tuple[int, int, int, int]]:
        """(source, target, bits, how many are below) of each part that is in one word of both."""
        targets = list(self.target.pieces())
        for word, shift, bits, low in self.source.pieces():
            for to_word, to_shift, to_bits, to_low in targets:
                first, end = max(low, to_low), min(low + bits, to_low + to_bits)
                if first < end:
                    yield (
                        place(word, shift + first - low, end - first),
                        place(to_word, to_shift + first - to_low, end - first),
                        end - first,
                        first,
                    )

    def _zeros(self, covered: int, needs: str) -> tuple[int, ...]:
        """Words that clear the bits of the target that the source has no bits for, as it has no more of a field."""
        mask = 0
        for word, shift, bits, low in self.target.pieces():
            mask |= ((1 << bits) - 1 & ~(covered >> low)) << 64 * word + shift
        if self.target.field.form == "port" and self.target.bits == self.target.field.reach:
            mask |= IN_PORT_BITS & ~self.target.mask
        return set_words(0, mask, needs)

    def __str__(self) -> str:
        return f"move:{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Push(Action):
    """Put bits of a field on the packet's stack."""

    source: Subfield

    @property
    def reads(self) -> int:
        return self.source.mask

    def encode(self, places: Places) -> tuple[int, ...]:
        return (head(program.PUSH_FIELD, 1, one_place(self.source)),)

    def __str__(self) -> str:
        return f"push:{self.source}"


@dataclass(frozen=True, slots=True)
class Pop(Action):
    """Take bits of a field from the packet's stack."""

    target: Subfield

    @property
    def reads(self) -> int:
        return NEEDED[self.target.field.needs] | read_for(self.target.mask)

    @property
    def writes(self) -> int:
        return changed_by(self.target.mask)

    def encode(self, places: Places) -> tuple[int, ...]:
        needs = NEEDS_NUMBER[self.target.field.needs]
        return head(program.POP_FIELD, 2, one_place(self.target)), needs

    def __str__(self) -> str:
        return f"pop:{self.target}"
