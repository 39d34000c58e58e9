"""Where the layers of a packet are at each point of a filter's compilation, and loads and comparisons of their fields.

Theory of operation
-------------------
A place is a constant offset, or a constant beside a word of scratch memory that the program fills at its beginning (the
length of a radiotap header) or on its way (where a tunnel's inner frame begins).  Primitives such as ``vlan`` and
``mpls`` move the places for all that is compiled after them, as pcap-filter(7) says, whatever ``or`` and ``not`` stand
between.

A load beyond the captured bytes ends a program of BPF with "no match".  So the order of loads is part of what a filter
means, and conditions are put together in the order that the manual's primitives have.
"""

from dataclasses import dataclass, replace

from wirespeed.net.filter import link_type
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.block import Condition, Statement, all_of, constant, test
from wirespeed.net.filter.error import FilterError, LinkError

PACKET, HEADER, PREVIOUS, LLC, PAYLOAD, PLAIN, KIND, LABEL, BEHIND4, BEHIND6 = range(10)
IPV6_HEADER = 40
MPLS_ENTRY = 4
TOO_MANY = f"the expression needs more than {op.WORDS} words of scratch memory; make it simpler"


@dataclass(eq=False)
class Cell:
    """A word of scratch memory: its number once it has one, and whether the program uses it."""

    number: int | None = None
    used: bool = False


@dataclass(frozen=True)
class Place:
    """An offset from the packet's beginning; None for ``constant`` if the link type has no such place."""

    constant: int | None
    cell: Cell | None = None

    def plus(self, more: int) -> "Place":
        return self if self.constant is None else replace(self, constant=self.constant + more)


class Layers:
    """The state of one compilation."""

    def __init__(self, link: int, in_kernel: bool) -> None:
        if not link_type.known(link):
            raise FilterError(f"filters know no link type {link}; they know {', '.join(link_type.LINKS)}")
        self.in_kernel = in_kernel
        self.link = self.previous = self.outermost = link_type.name_of(link)
        places = link_type.places(self.link)
        wlan = self.link in link_type.WLANS
        # What a header of varying length leaves to be found by the program itself.
        self._taken = [False] * op.WORDS
        self._touched = [False] * op.WORDS
        self.prefix = self.kept() if wlan and self.link != "IEEE802_11" else None
        self.body = self.kept() if wlan or self.link == "PFLOG" else None
        self.header = self.previous_header = self.outermost_header = Place(places.header, self.prefix)
        self.kind = Place(places.kind)
        self.payload = Place(places.payload, self.body)
        self.skip = places.skip
        self.skip_plain = places.skip_plain
        self.labels = 0
        self.tags = 0
        self.in_tunnel = False
        self.tag_cell: Cell | None = None  # what a tag in the packet's bytes adds to places, in the kernel

    def refuse(self, what: str) -> FilterError:
        return LinkError(f"{what!r} is not supported on link type {self.link}")

    def push(self, link: str, header: Place) -> None:
        """Another link layer begins within this one."""
        self.previous, self.previous_header = self.link, self.header
        self.link, self.header, self.in_tunnel = link, header, False

    def kept(self) -> Cell:
        """A cell for what is stored once and stays: its word has not been used for anything before, and never will be."""
        free = [n for n, touched in enumerate(self._touched) if not touched]
        if not free:
            raise FilterError(TOO_MANY)
        self._taken[free[-1]] = self._touched[free[-1]] = True
        return Cell(free[-1])

    def number(self, cell: Cell) -> int:
        """The number of a cell, which is used from now on."""
        cell.used = True
        if cell.number is None:
            free = [n for n, taken in enumerate(self._taken) if not taken]
            if not free:
                raise FilterError(TOO_MANY)
            cell.number = free[0]
            self._taken[cell.number] = self._touched[cell.number] = True
        return cell.number

    def release(self, cell: Cell) -> None:
        """Give the word of a cell back that holds something for a while."""
        if cell.number is not None:
            self._taken[cell.number] = False

    def fill_x(self, place: Place) -> list[Statement]:
        """X becomes the part of a place that varies; nothing for a constant one."""
        return [] if place.cell is None else [(op.LDX | op.MEM, self.number(place.cell))]

    def ipv4_length_to_x(self) -> list[Statement]:
        """X becomes the length of the IPv4 header, plus the part of its own place that varies."""
        at = self._constant(self.payload, self.skip)
        statements = self.fill_x(self.payload)
        if not statements:
            return [(op.LDX | op.MSH | op.B, at)]
        return [
            *statements,
            (op.LD | op.IND | op.B, at),
            (op.ALU | op.AND | op.K, 0x0F),
            (op.ALU | op.LSH | op.K, 2),
            (op.ALU | op.ADD | op.X, 0),
            (op.MISC | op.TAX, 0),
        ]

    def start(self, where: int) -> tuple[list[Statement], int]:
        """Statements that put the varying part of a place into X (none: it does not vary), and the constant part."""
        if where == PACKET:
            return [], 0
        if where == BEHIND4:
            return self.ipv4_length_to_x(), self._constant(self.payload, self.skip)
        place, more = {
            HEADER: (self.header, 0),
            PREVIOUS: (self.previous_header, 0),
            LLC: (self.payload, 0),
            PAYLOAD: (self.payload, self.skip),
            PLAIN: (self.payload, self.skip_plain),
            KIND: (self.kind, 0),
            LABEL: (self.payload, None if self.skip is None else self.skip - MPLS_ENTRY),
            BEHIND6: (self.payload, None if self.skip is None else self.skip + IPV6_HEADER),
        }[where]
        return self.fill_x(place), self._constant(place, more)

    def load(self, where: int, offset: int, size: int) -> list[Statement]:
        """A becomes the field of ``size`` bytes at an offset from a place."""
        statements, base = self.start(where)
        mode = op.IND if statements else op.ABS
        return [*statements, (op.LD | mode | op.SIZES[size], (base + offset) & op.MASK)]

    def equal(self, where: int, offset: int, size: int, value: int, mask: int = op.MASK) -> Condition:
        """The field, with a mask, has a value."""
        return self.compare(where, offset, size, op.JEQ, value, mask)

    def unequal(self, where: int, offset: int, size: int, value: int, mask: int = op.MASK) -> Condition:
        return self.compare(where, offset, size, op.JEQ, value, mask, positive=False)

    def at_most(self, where: int, offset: int, size: int, value: int) -> Condition:
        return self.compare(where, offset, size, op.JGT, value, positive=False)

    def at_least(self, where: int, offset: int, size: int, value: int) -> Condition:
        return self.compare(where, offset, size, op.JGE, value)

    def has_bits(self, where: int, offset: int, size: int, bits: int, positive: bool = True) -> Condition:
        """The field has one of some bits, or none of them."""
        return test(self.load(where, offset, size), op.JSET, bits, positive)

    def compare(
        self, where: int, offset: int, size: int, operation: int, value: int, mask: int = op.MASK, positive: bool = True
    ) -> Condition:
        """A jump's test of the field, with a mask."""
        if mask == 0 and operation == op.JEQ:
            return constant((value == 0) == positive)
        statements = self.load(where, offset, size)
        if mask != op.MASK:
            statements.append((op.ALU | op.AND | op.K, mask))
        return test(statements, operation, value, positive)

    def bytes_equal(self, where: int, offset: int, value: bytes) -> Condition:
        """The bytes at an offset are these; the last ones are compared first, for they differ most often."""
        tests, left = [], len(value)
        while left:
            size = 4 if left >= 4 else 2 if left >= 2 else 1
            left -= size
            tests.append(self.equal(where, offset + left, size, int.from_bytes(value[left : left + size])))
        return all_of(*tests)

    def _constant(self, place: Place, more: int | None) -> int:
        if place.constant is None or more is None:
            raise LinkError(f"where the network layer begins is not known on link type {self.link}")
        return place.constant + more
