"""What a value of a user's function can be, as far as is known before it runs."""

from dataclasses import dataclass
from typing import Any

from wirespeed.jit.layout import Field, Layout
from wirespeed.jit.region import array_code


@dataclass(frozen=True)
class Kind:
    """A number, a condition's result, the packet, a header and so on; two kinds are the same when they are equal."""

    word: str
    layout: Layout | None = None  # of a header or a state
    code: str = ""  # of an array: the format of its elements
    writable: bool = True  # of an array
    parts: tuple["Kind", ...] = ()  # of a tuple

    @property
    def number(self) -> bool:
        """Whether arithmetic can be done with it."""
        return self in (INT, BOOL)

    def __str__(self) -> str:
        if self.word == "header":
            return f"{article(self.layout_name)} header"
        if self.word == "tuple":
            return f"{len(self.parts)} values"
        return _WORDS[self.word]

    @property
    def layout_name(self) -> str:
        """The name of a header's or a state's layout."""
        return self.layout.name if self.layout else ""

    def __hash__(self) -> int:
        return hash((self.word, self.layout and self.layout.hash, self.code, self.writable, self.parts))


_WORDS = {
    "int": "a number",
    "bool": "a condition",
    "nothing": "nothing",
    "packet": "the packet",
    "state": "the state",
    "array": "an array",
    "bytes": "bytes of the packet",
}

INT = Kind("int")
BOOL = Kind("bool")
NOTHING = Kind("nothing")
PACKET = Kind("packet")
BYTES = Kind("bytes", code="u1")


def header(layout: Layout) -> Kind:
    """A header of that layout."""
    return Kind("header", layout)


def state(layout: Layout) -> Kind:
    """A state, or a part of one, of that layout."""
    return Kind("state", layout)


def array(code: str, writable: bool = True) -> Kind:
    """An array of integers of that format."""
    return Kind("array", code=code, writable=writable)


def of_field(field: Field) -> Kind:
    """What a state's field is."""
    if field.sub is not None:
        return state(field.sub)
    return array(array_code(field)) if field.count else INT


def join(a: Kind, b: Kind) -> Kind | None:
    """What a value is that is ``a`` on one path and ``b`` on another; None when that cannot be."""
    if a == b:
        return a
    return INT if a.number and b.number else None


def article(noun: Any) -> str:
    """The noun with "a" or "an", by its sound: an IPv4 header, a UDP header."""
    word = str(noun)
    return f"{'an' if word[:1] in 'AEIOaeio' else 'a'} {word}"
