"""A match: the bits of a flow that a rule asks for, and what they must be.

Theory of operation
-------------------
A match is two whole numbers over a flow (:mod:`wirespeed.switch.fields`): a flow hits when ``flow & mask == value``.
So "is covered by" and "overlaps" are a few operations on numbers, whatever the fields.

A field may be matched only where its header must be there: ``tcp_dst`` needs a match on TCP and on IPv4 or IPv6.  That
is checked when all fields of a match are known, in whatever order they came.

Source: OpenFlow 1.5.1, 7.2.3.6, and ovs-fields(7).
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from wirespeed.errors import GraphError
from wirespeed.switch.fields import (
    ETH_TYPE_AT,
    FIELDS,
    FRAG_LATER,
    NAMES,
    NEEDS,
    PROTO_AT,
    SCTP,
    TCI_PRESENT,
    TCP,
    UDP,
    Field,
)

MOST_REMEMBERED = 1 << 16

# Fields that are matched by one name for several headers: each of these will do.
ANY_OF = {
    "nw_src": ("ip", "arp"),
    "nw_dst": ("ip", "arp"),
    "nw_proto": ("ip any", "arp"),
    "tp_src": ("tcp", "udp", "sctp"),
    "tp_dst": ("tcp", "udp", "sctp"),
    "icmp_type": ("icmp", "icmpv6"),
    "icmp_code": ("icmp", "icmpv6"),
}
MATCH_NAMES: dict[str, Field] = NAMES | {"tp_src": FIELDS["tcp_src"], "tp_dst": FIELDS["tcp_dst"]}
_WHAT = {
    "ip": "ip", "ipv6": "ipv6", "ip any": "ip or ipv6", "arp": "arp", "mpls": "mpls", "tcp": "tcp or tcp6",
    "udp": "udp or udp6", "sctp": "sctp or sctp6", "icmp": "icmp", "icmpv6": "icmp6",
    "nd": "icmp6,icmp_type=135 or icmp6,icmp_type=136", "nd solicit": "icmp6,icmp_type=135",
    "nd advert": "icmp6,icmp_type=136",
}  # fmt: skip

_TCI, _SORT = FIELDS["vlan_tci"], FIELDS["icmpv6_type"]
Ways = tuple[tuple[int, int], ...]


def alternatives(needs: str) -> Ways:
    """(mask, value) of each of the ways in which a flow has what a field needs."""
    if needs == "vlan":
        return ((TCI_PRESENT << _TCI.at, TCI_PRESENT << _TCI.at),)
    types, protocols, sorts = NEEDS[needs]
    found = [(0xFFFF << ETH_TYPE_AT, number << ETH_TYPE_AT) for number in types]
    for ones, at, numbers in ((0xFF, PROTO_AT, protocols), (0xFF, _SORT.at, sorts)):
        if numbers:
            found = [(mask | ones << at, value | number << at) for mask, value in found for number in numbers]
    return tuple(found)


# What a flow must have for a field: each of (mask, value) will do.
WAYS = {needs: alternatives(needs) for needs in NEEDS}
MATCH_WAYS = {
    name: tuple(
        way
        for needs in ANY_OF.get(name, ANY_OF.get(field.name, (field.needs,)))
        if needs != "vlan"
        for way in WAYS[needs]
    )
    for name, field in MATCH_NAMES.items()
}
PROMISES = 0  # the bits of a match that decide which fields and actions it allows
for _ways in WAYS.values():
    for _bits, _ in _ways:
        PROMISES |= _bits
_LATER = FRAG_LATER << FIELDS["ip_frag"].at
PROMISES |= _LATER  # later fragments have no ports


@dataclass(frozen=True, slots=True)
class Match:
    """Flows with ``flow & mask == value``; without arguments, all of them."""

    value: int = 0
    mask: int = 0

    def covers(self, other: "Match") -> bool:
        """Whether it matches all that ``other`` does."""
        return other.mask & self.mask == self.mask and not (self.value ^ other.value) & self.mask

    def overlaps(self, other: "Match") -> bool:
        """Whether some flow hits both."""
        return not (self.value ^ other.value) & self.mask & other.mask

    def hits(self, flow: int) -> bool:
        """Whether a flow hits it."""
        return flow & self.mask == self.value

    def get(self, name: str) -> tuple[int, int]:
        """(value, mask) of a field."""
        field = MATCH_NAMES[name]
        return field.get(self.value), field.get(self.mask)

    def having(self, needs: str) -> bool:
        """Whether only flows hit it that have what a field needs."""
        return any(self.mask & mask == mask and self.value & mask == value for mask, value in WAYS[needs])

    def __str__(self) -> str:
        """As ``ovs-ofctl`` prints it."""
        from wirespeed.switch.text.match import match_text

        return match_text(self)


EVERYTHING = Match()

# What an item of a match does: (bits that it says all of, value, mask, what it needs, its name).
Item = tuple[int, int, int, Ways, str]


def unknown(name: str, what: str, known: Iterable[str]) -> GraphError:
    """The error that says which name was perhaps meant."""
    near = difflib.get_close_matches(name.lower(), list(known), 1)
    return GraphError(f"no {what} {name!r}" + (f"; did you mean {near[0]}" if near else ""))


def check_needs(value: int, mask: int, needs: Ways, name: str) -> None:
    """Refuse a field whose header need not be there."""
    for must_mask, must in needs:
        if mask & must_mask == must_mask and value & must_mask == must:
            if value & _LATER and must >> PROTO_AT & 0xFF in (TCP, UDP, SCTP):
                raise GraphError(f"{name} is not there in later fragments: match ip_frag=not_later, or leave one out")
            return
    raise GraphError(f"{name} needs a match on {needed(name)}")


def needed(name: str) -> str:
    """What to write for the header that a field needs."""
    base = name.partition("[")[0]
    known = MATCH_NAMES[base if base in MATCH_NAMES else base.lower()]
    wanted = ANY_OF.get(base) or ANY_OF.get(known.name) or (known.needs,)
    return " or ".join(map(header, wanted))


def header(needs: str) -> str:
    """What to write for a header, by its key in NEEDS."""
    return _WHAT[needs]


_met: set[tuple[int, int, tuple[str, ...]]] = set()


def check_all(value: int, mask: int, names: tuple[str, ...], needs: list[Ways]) -> None:
    """Refuse fields whose headers need not be there; what was found right is remembered by the bits that decide it."""
    key = (value & PROMISES, mask & PROMISES, names)
    if key in _met:
        return
    for one, name in zip(needs, names, strict=True):
        check_needs(value, mask, one, name)
    if len(_met) >= MOST_REMEMBERED:
        _met.clear()
    _met.add(key)


def combine(items: Iterable[Item]) -> Match:
    """A match of its items; of two that say something of the same bits, the last one counts."""
    value = mask = 0
    names: list[str] = []
    wanted: list[Ways] = []
    for clear, own, own_mask, needs, name in items:
        if mask & clear:
            value, mask = value & ~clear, mask & ~clear
        value, mask = value | own, mask | own_mask
        if needs:
            names.append(name)
            wanted.append(needs)
    if wanted:
        check_all(value, mask, tuple(names), wanted)
    return Match(value, mask) if mask else EVERYTHING
