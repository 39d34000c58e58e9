"""What a rule does: one immutable record for each kind of action, and short functions that make them.

Theory of operation
-------------------
A record knows four things: its text, as ``ovs-ofctl`` prints it; its words (:mod:`wirespeed.switch.program`); which
bits of a flow are looked at when it is translated (``reads``), so that they are in every key; and which it may change
(``writes``), so that the log of changes does not claim too much.  Records are equal when they do the same, and can be
keys.

An action whose header is not there does nothing.  Whether a match promises the header is not known here; see
:mod:`wirespeed.switch.instructions`.

Source: OpenFlow 1.5.1, 5.5 and 7.2.6; ovs-actions(7).
"""

from collections.abc import Iterable
from typing import Protocol

from wirespeed.switch import fields
from wirespeed.switch.fields import FIELDS
from wirespeed.switch.match import WAYS
from wirespeed.switch.program import NEEDS_NUMBER


class Places(Protocol):
    """Who resolves the numbers of groups and meters."""

    def group(self, number: int) -> int: ...
    def meter(self, number: int) -> int: ...


def _words(first: int, n: int = 1) -> int:
    return ((1 << 64 * n) - 1) << 64 * first


# What translation looks at, and what it changes; see wirespeed.switch.translate.edit.
NEEDED = dict.fromkeys(NEEDS_NUMBER, 0)
for _needs, _ways in WAYS.items():
    for _mask, _ in _ways:
        NEEDED[_needs] |= _mask
    if _needs.startswith("nd"):
        NEEDED[_needs] |= 0xFFFF << FIELDS["tcp_src"].at | 0xFFFF << FIELDS["tcp_dst"].at
for _needs in ("tcp", "udp", "sctp"):
    NEEDED[_needs] |= fields.FRAG_LATER << 64 * fields.W_PORT + fields.FRAG_SHIFT  # a later fragment has no ports
NEEDED[""] = 0
NEEDED["arp"] |= FIELDS["arp_op"].mask  # without an operation nothing is written
TAGS = FIELDS["vlan_tci"].mask | 0xFFFF << 64 * fields.W_SRC
TPIDS = 0xFFFFFFFF << 64 * fields.W_LABEL + fields.TPID_SHIFT
LABELS = _words(fields.W_MPLS) | (1 << 34) - 1 << 64 * fields.W_MPLS2
TTL, MPLS_TTL = FIELDS["nw_ttl"].mask, FIELDS["mpls_ttl"].mask
TTL_FLOOR = 15 << 64 * fields.W_DERIVED + fields.TTL_FLOOR_SHIFT
MPLS_TTL_FLOOR = 15 << 64 * fields.W_DERIVED + fields.MPLS_TTL_FLOOR_SHIFT
IN_PORT_BITS, TYPE = FIELDS["in_port"].mask, FIELDS["dl_type"].mask
BEHIND = (
    TYPE | FIELDS["nw_proto"].mask | FIELDS["ip_frag"].mask | _words(fields.W_ADDRESSES, 2)
    | _words(fields.W_SRC6, 4) | _words(fields.W_LABEL, 7) | TTL_FLOOR | MPLS_TTL_FLOOR
)  # fmt: skip


def read_for(written: int) -> int:
    """What is looked at when bits of a flow are written."""
    reads = 0
    if written & TAGS:
        reads |= TAGS | TPIDS
    for bits in (TTL, MPLS_TTL):
        if written & bits not in (0, bits):
            reads |= bits
    return reads


def changed_by(written: int) -> int:
    """What changes with bits of a flow that are written."""
    if written & TAGS:
        written |= TAGS | TPIDS
    if written & TTL:
        written |= TTL_FLOOR
    if written & MPLS_TTL:
        written |= MPLS_TTL_FLOOR
    return written


class Action:
    """What all actions have: numbers of the ports, groups and meters that they name, and bits that they look at."""

    __slots__ = ()

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports that it sends by."""
        return ()

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups that it names."""
        return ()

    @property
    def meters(self) -> tuple[int, ...]:
        """Meters that it names."""
        return ()

    @property
    def reads(self) -> int:
        """Bits of a flow that are looked at when it is translated."""
        return 0

    @property
    def writes(self) -> int:
        """Bits of a flow that it may change."""
        return 0

    def encode(self, places: Places) -> tuple[int, ...]:
        """Its words."""
        raise NotImplementedError


def union(masks: Iterable[int]) -> int:
    """All bits of some masks."""
    bits = 0
    for mask in masks:
        bits |= mask
    return bits


def actions_text(actions: Iterable[Action]) -> str:
    """Actions as they are printed; none of them is ``drop``."""
    return ",".join(map(str, actions)) or "drop"
