"""A range of bits of a field, as ``move``, ``load`` and ``output`` write it: ``NXM_NX_REG0[0..7]``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wirespeed.errors import GraphError
from wirespeed.switch.fields import NAMES, Field
from wirespeed.switch.match import unknown
from wirespeed.switch.program import place

_FORM = re.compile(r"([A-Za-z0-9_]+)(?:\[(?:(\d+)(?:\.\.(\d+))?)?\])?")


@dataclass(frozen=True, slots=True)
class Subfield:
    """``bits`` bits of a field, from bit ``at`` of what is written on."""

    field: Field
    at: int
    bits: int

    def __str__(self) -> str:
        """As it is printed."""
        if self.at == 0 and self.bits == self.field.reach:
            part = ""
        elif self.bits == 1:
            part = str(self.at)
        else:
            part = f"{self.at}..{self.at + self.bits - 1}"
        return f"{self.field.nxm[0]}[{part}]"

    @property
    def there(self) -> tuple[int, int]:
        """(first, bits) of those of its bits that a flow has, counted from its own lowest."""
        first = max(self.at, self.field.value_at)
        end = min(self.at + self.bits, self.field.width)
        return first - self.at, max(end - first, 0)

    @property
    def mask(self) -> int:
        """Its bits in a flow."""
        first, bits = self.there
        return ((1 << bits) - 1) << self._flow_at(first) if bits else 0

    def _flow_at(self, first: int) -> int:
        return self.field.at + self.at + first - self.field.value_at

    def pieces(self) -> Iterator[tuple[int, int, int, int]]:
        """(word, shift, bits, how many of its bits are below) of each word that it has bits in."""
        first, bits = self.there
        at = self._flow_at(first)
        while bits > 0:
            part = min(bits, 64 - at % 64)
            yield at // 64, at % 64, part, first
            at, bits, first = at + part, bits - part, first + part


def read_subfield(text: str) -> Subfield:
    """A range of bits; the whole field without one."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise GraphError(f"{text!r} is not a field or a range of its bits such as NXM_NX_REG0[0..7]")
    name, low, high = found.groups()
    field = NAMES.get(name) or NAMES.get(name.lower())
    if field is None:
        raise unknown(name, "field", NAMES)
    if not field.nxm:
        raise GraphError(f"{name} has no range of bits: write NXM_OF_VLAN_TCI[0..11] or [13..15]")
    if low is None:
        return Subfield(field, 0, field.reach)
    first, last = int(low), int(high or low)
    if not first <= last < field.reach:
        raise GraphError(f"{text}: the bits of {name} are 0 to {field.reach - 1}")
    return Subfield(field, first, last - first + 1)


def one_place(part: Subfield) -> int:
    """The place of bits that must be in one word."""
    pieces = list(part.pieces())
    if len(pieces) != 1 or pieces[0][3]:
        raise GraphError(f"{part}: only up to 64 bits that the field itself has; write a smaller range of bits")
    word, shift, bits, _ = pieces[0]
    return place(word, shift, bits)
