"""The flow of a trace: of a text such as ``in_port=1,tcp,nw_dst=10.0.0.1``, with what a packet of it would have."""

from dataclasses import dataclass
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch.fields import (
    ETH_TYPE_AT,
    FIELDS,
    MPLS_TTL_FLOOR_SHIFT,
    TCI_PRESENT,
    TPID_SHIFT,
    TTL_FLOOR_MOST,
    TTL_FLOOR_SHIFT,
    W_DERIVED,
    W_LABEL,
    W_MPLS2,
)
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.flow import flow_mod
from wirespeed.switch.text.split import split
from wirespeed.switch.trace.packet import MPLS_TYPES
from wirespeed.switch.trace.show import is_there

USUAL_TTL = 64
TAG = 0x8100
HASH = "dp_hash"


@dataclass(frozen=True)
class Asked:
    """A flow, and what was taken as given because nothing was said of it."""

    flow: int
    notes: tuple[str, ...] = ()


def read_flow(switch: Any, text: str) -> Asked:
    """The flow that a text is of.  What a packet must have and the text does not say is added, and noted."""
    words, number = [], 0
    for one in split(text):
        name, equals, given = one.partition("=")
        if name == HASH and equals:
            number = texts.number(given, 0xFFFFFFFF)
        else:
            words.append(one)
    match = flow_mod("delete", match=",".join(words)).match
    flow, mask = match.value | number << 64 * W_DERIVED, match.mask
    port = FIELDS["in_port"]
    notes = []
    if not mask & port.mask:
        have = sorted(switch.ports.by_number)
        if not have:
            raise GraphError("the switch has no ports; give --ports N, or in_port=N")
        flow |= have[0] << port.at
        notes.append(f"in_port is taken as {have[0]}")
    for field in (FIELDS["dl_type"], FIELDS["nw_proto"]):
        if mask & field.mask not in (0, field.mask):
            raise GraphError(f"{field.name} of a packet is one value, without a mask")
    return Asked(*_completed(flow, mask, notes))


def _completed(flow: int, mask: int, notes: list[str]) -> tuple[int, tuple[str, ...]]:
    for name in ("nw_ttl", "mpls_ttl"):
        field = FIELDS[name]
        if is_there(flow, field.needs) and not mask & field.mask:
            flow |= USUAL_TTL << field.at
            notes.append(f"{name} is taken as {USUAL_TTL}")
    if flow >> ETH_TYPE_AT & 0xFFFF in MPLS_TYPES:
        bottom = FIELDS["mpls_bos"]
        if not mask & bottom.mask:
            flow |= bottom.mask
        flow |= 1 << 64 * W_MPLS2 + 32
    if FIELDS["vlan_tci"].get(flow) & TCI_PRESENT:
        flow |= TAG << 64 * W_LABEL + TPID_SHIFT
    return floors(flow), tuple(notes)


def floors(flow: int) -> int:
    """A flow with what is derived of its times to live."""
    for name, shift in (("nw_ttl", TTL_FLOOR_SHIFT), ("mpls_ttl", MPLS_TTL_FLOOR_SHIFT)):
        field, at = FIELDS[name], 64 * W_DERIVED + shift
        if is_there(flow, field.needs):
            flow = flow & ~(15 << at) | min(field.get(flow), TTL_FLOOR_MOST) << at
    return flow
