"""The tree of a filter expression, as the parser builds it and the generator walks it.

A chain of ``and`` and ``or`` is one node with a list and not a tree that leans left, so that an expression with
thousands of hosts needs no deep recursion.
"""

from dataclasses import dataclass

from wirespeed.net.filter.lexer import Token


@dataclass(frozen=True)
class Qualifiers:
    """What stands before an identifier: protocol, direction and kind, each None where it was left out."""

    protocol: str | None = None
    direction: str | None = None
    kind: str | None = None
    given: bool = True  # False: nothing to inherit, an identifier that stands alone is an error


@dataclass(frozen=True)
class Node:
    """A part of an expression: where it begins and ends."""

    start: int
    end: int


@dataclass(frozen=True)
class Number(Node):
    value: int


@dataclass(frozen=True)
class Length(Node):
    """The length of the packet on the wire."""


@dataclass(frozen=True)
class Bytes(Node):
    """``protocol[index:size]``."""

    protocol: str
    index: "Arithmetic"
    size: int


@dataclass(frozen=True)
class Binary(Node):
    sign: str
    left: "Arithmetic"
    right: "Arithmetic"


@dataclass(frozen=True)
class Negative(Node):
    operand: "Arithmetic"


Arithmetic = Number | Length | Bytes | Binary | Negative


@dataclass(frozen=True)
class Relation(Node):
    sign: str
    left: Arithmetic
    right: Arithmetic


@dataclass(frozen=True)
class Identifier(Node):
    """An address, port, name or number, with its qualifiers.

    ``prefix`` and ``mask`` are what may follow a network: a prefix length, or an IPv4 address as a mask.
    """

    qualifiers: Qualifiers
    token: Token
    prefix: int | None = None
    mask: Token | None = None


@dataclass(frozen=True)
class Abbreviation(Node):
    """A protocol that stands alone: ``tcp``."""

    protocol: str


@dataclass(frozen=True)
class Word(Node):
    """A primitive that begins with its own word, and what followed it."""

    word: str
    protocol: str | None = None
    arguments: tuple[Token, ...] = ()


@dataclass(frozen=True)
class Comparison(Node):
    """``vpi > 3``, ``opc (1 or 2)``: a field of ATM or MTP3 that has one of some values, or a relation to one."""

    word: str
    sign: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Not(Node):
    operand: "Condition"


@dataclass(frozen=True)
class Chain(Node):
    """``first and second or third``: from left to right, ``and`` binding no tighter than ``or``."""

    first: "Condition"
    rest: tuple[tuple[str, "Condition"], ...]


Condition = Relation | Identifier | Abbreviation | Word | Comparison | Not | Chain
