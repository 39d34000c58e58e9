"""A flow's fields in words: which are there, what they are, and what a change made of them."""

from collections.abc import Iterator

from wirespeed.switch.fields import FIELDS, FRAG_LATER, PROTO_AT, TCI_PRESENT, Field
from wirespeed.switch.match import WAYS, Match
from wirespeed.switch.text import value as texts

# Each bit of a flow under one name; where headers share bits, the name of the header that is there.
ALIASES = ("in_port_oxm", "dl_vlan", "dl_vlan_pcp", "vlan_vid", "vlan_pcp", "ip_dscp")
NAMED = tuple(f for f in FIELDS.values() if f.name not in ALIASES and not f.name.startswith(("xreg", "xxreg")))
_FRAG = FIELDS["ip_frag"]


def is_there(flow: int, needs: str) -> bool:
    """Whether a flow has the header that a field or an action needs."""
    if not needs:
        return True
    if needs in ("tcp", "udp", "sctp") and FIELDS["ip_frag"].get(flow) & FRAG_LATER:
        return False
    if not any(flow & mask == value for mask, value in WAYS[needs]):
        return False
    if needs.startswith("nd"):
        return FIELDS["tcp_dst"].get(flow) == 0
    return True


def fields_of(flow: int, mask: int) -> Iterator[Field]:
    """The fields that have bits of a mask, by the names that suit a flow's headers."""
    for field in NAMED:
        if field.mask & mask and is_there(flow, field.needs):
            mask &= ~field.mask
            yield field


def shown(field: Field, flow: int) -> str:
    """A field's value as it is written."""
    return texts.show(field, field.get(flow) << field.value_at, (1 << field.width) - 1)


def changes(before: int, after: int) -> list[str]:
    """What is another value after than before, each as ``field before -> after``."""
    mask = before ^ after
    flow = after if any(True for _ in fields_of(after, mask)) else before
    return [f"{field.name} {shown(field, before)} -> {shown(field, after)}" for field in fields_of(flow, mask)]


def flow_text(flow: int) -> str:
    """A flow as a match of all that it has."""
    mask = 0
    for field in NAMED:
        if field.get(flow) and is_there(flow, field.needs):
            mask |= field.mask
    mask |= FIELDS["in_port"].mask | FIELDS["dl_type"].mask
    if is_there(flow, "ip any"):
        mask |= 0xFF << PROTO_AT
        if _FRAG.get(flow) & FRAG_LATER:
            mask &= ~(FIELDS["tcp_src"].mask | FIELDS["tcp_dst"].mask)
    tci = FIELDS["vlan_tci"]
    if not tci.get(flow) & TCI_PRESENT:
        mask &= ~tci.mask
    return str(Match(flow & mask, mask))
