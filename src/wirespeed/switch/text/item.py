"""Items of a match: what the name of a field and a value, a number or a text, say of the bits of a flow.

Theory of operation
-------------------
An item is the bits that it says all of, their value and mask, and what it needs.  Most items are an address or a number
without a mask, for which there is a short way (:func:`quick`); what else was read is remembered.

Source: ovs-fields(7).
"""

from collections.abc import Callable, Mapping
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch.fields import (
    ARP,
    ETH_TYPE_AT,
    FIELDS,
    ICMP,
    ICMPV6,
    IP,
    IPV6,
    MPLS,
    MPLS_MULTICAST,
    PROTO_AT,
    RARP,
    SCTP,
    TCI_PRESENT,
    TCP,
    UDP,
    Field,
)
from wirespeed.switch.match import MATCH_NAMES, MATCH_WAYS, MOST_REMEMBERED, Item, Match, Ways, combine, unknown
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.subfield import read_subfield

NO_TAG = (0xFFFF, "0xffff", "0xFFFF", "65535")  # of dl_vlan, as in OpenFlow 1.0
LATER = ("ct_", "tun_", "nsh_", "conj_id", "dp_hash", "recirc_id", "packet_type", "actset_output", "skb_priority")

# Words that stand for a type, and where there is one a protocol.
SHORTHANDS: dict[str, tuple[int, int | None]] = {
    "ip": (IP, None), "ipv6": (IPV6, None), "arp": (ARP, None), "rarp": (RARP, None), "mpls": (MPLS, None),
    "mplsm": (MPLS_MULTICAST, None), "icmp": (IP, ICMP), "tcp": (IP, TCP), "udp": (IP, UDP), "sctp": (IP, SCTP),
    "icmp6": (IPV6, ICMPV6), "tcp6": (IPV6, TCP), "udp6": (IPV6, UDP), "sctp6": (IPV6, SCTP), "eth": (0, None),
    "icmpv4": (IP, ICMP), "icmpv6": (IPV6, ICMPV6), "ipv4": (IP, None),
}  # fmt: skip
WORD_OF = {what: word for word, what in reversed(SHORTHANDS.items()) if word not in ("icmpv4", "icmpv6", "ipv4")}

_READERS: dict[str, Callable[[str], int] | None] = {
    "ipv4": texts.ipv4, "ipv6": texts.ipv6, "mac": texts.mac, "dec": None, "hex": None,
}  # fmt: skip
_TCI = FIELDS["vlan_tci"]

# Fields that are written as they are, for the short way: (lowest bit, all ones, its bits, what it needs, reader of text).
_SIMPLE = {
    name: (field.at, field.ones, field.mask, MATCH_WAYS[name], _READERS[field.form])
    for name, field in MATCH_NAMES.items()
    if field.form in _READERS and field.value_at == 0 and field.at not in (_TCI.at, _TCI.at + 13)
}


def item(name: str, given: Any, port_number: texts.PortNumber | None = None) -> Item:
    """An item by its name and its value: a number, a text, or (value, mask)."""
    at = name.find("[")
    if at >= 0:
        return _part(name, at, given, port_number)
    field = MATCH_NAMES.get(name) or MATCH_NAMES.get(name.lower())
    if field is None:
        return _other(name, given)
    if field.name == "dl_vlan" and given in NO_TAG:
        field, given = MATCH_NAMES["vlan_vid"], 0
    if isinstance(given, str):
        if given in ("*", "ANY") and field.form != "port":
            return field.mask, 0, 0, (), name
        try:
            value, mask = texts.read(field, given, port_number)
        except texts.BadValueError as error:
            raise GraphError(f"{name}: {error}") from None
    else:
        value, mask = _numbers(name, field, given)
    ones = (1 << field.width) - 1
    if mask != ones and mask and not field.maskable:
        raise GraphError(f"{name} has no mask in a match: write {name}={texts.show(field, value, ones)}")
    value &= mask
    if not mask:
        return field.mask, 0, 0, (), name
    if field.at == _TCI.at or field.at == _TCI.at + 13:
        return _tag(field, value, mask, name)
    value, mask = value >> field.value_at, mask >> field.value_at
    return field.mask, value << field.at, mask << field.at, MATCH_WAYS[name.lower()], name


def _numbers(name: str, field: Field, given: Any) -> tuple[int, int]:
    ones = (1 << field.width) - 1
    value, mask = given if isinstance(given, tuple) and len(given) == 2 else (given, ones)
    if not isinstance(value, int) or not isinstance(mask, int):
        raise GraphError(f"{name} is a number, a text or (value, mask), got {given!r}")
    if field.form == "port":
        try:
            value = texts.check_port(value)
        except texts.BadValueError as error:
            raise GraphError(f"{name}: {error}") from None
    if not 0 <= value <= ones or not 0 <= mask <= ones:
        raise GraphError(f"{name} has {field.width} bits, got {given!r}")
    return value, mask


def _part(name: str, at: int, given: Any, port_number: texts.PortNumber | None) -> Item:
    """An item for a range of bits of a field."""
    part = read_subfield(name)
    field, ones = part.field, (1 << part.bits) - 1
    try:
        value = texts.number(given, ones) if isinstance(given, str) else int(given)
    except texts.BadValueError as error:
        if part.bits == field.reach:
            return item(name[:at], given, port_number)
        raise GraphError(f"{name}: {error}") from None
    if not 0 <= value <= ones:
        raise GraphError(f"{name} has {part.bits} bits, got {given}")
    if field.form == "port":
        return item(field.name, given, port_number)
    if not field.maskable and part.bits < field.reach:
        raise GraphError(f"{field.name} has no mask in a match, so no range of bits either: write {field.name}=...")
    value, mask = value << part.at >> field.value_at, ones << part.at >> field.value_at
    return mask << field.at, value << field.at, mask << field.at, MATCH_WAYS[field.name], name


def _tag(field: Field, value: int, mask: int, name: str) -> Item:
    """An item for the first tag, whose absence can be asked for too."""
    everything = 0xFFFF
    if field.bits == 3:
        clear, value, mask = 0xF000, value << 13 | TCI_PRESENT, 0xE000 | TCI_PRESENT
    elif field.name == "dl_vlan":
        clear, value, mask = 0x1FFF, value | TCI_PRESENT, 0x1FFF
    elif field.name == "vlan_vid":
        clear = 0x1FFF
    else:
        clear = everything
        if (value, mask) == (0, everything):
            mask = 0x1FFF  # without the tag there is no priority either
    return clear << _TCI.at, value << _TCI.at, mask << _TCI.at, (), name


def _other(name: str, given: Any) -> Item:
    """A shorthand, or no item at all."""
    known = SHORTHANDS.get(name)
    if known is not None and (given is True or given is None or given == ""):
        kind, protocol = known
        if not kind:
            return 0, 0, 0, (), name
        value, mask = kind << ETH_TYPE_AT, 0xFFFF << ETH_TYPE_AT
        if protocol is not None:
            value, mask = value | protocol << PROTO_AT, mask | 0xFF << PROTO_AT
        return mask, value, mask, (), name
    if known is not None:
        raise GraphError(f"{name} has no value: write only {name}")
    if name.startswith(LATER):
        raise GraphError(
            f"no matches on {name} yet: connection tracking, tunnels, conjunctions and what they set come later"
        )
    raise unknown(name, "field", (*MATCH_NAMES, *SHORTHANDS))


_items: dict[tuple[str, Any], Item] = {}


def _remembered(name: str, given: Any, port_number: texts.PortNumber | None) -> Item:
    """The same as :func:`item`, remembering what does not depend on names of ports."""
    try:
        found = _items.get((name, given))
    except TypeError:
        return item(name, given)
    if found is None:
        try:
            found = item(name, given)
        except GraphError:
            if port_number is None:
                raise
            return item(name, given, port_number)
        if len(_items) >= MOST_REMEMBERED:
            _items.clear()
        _items[name, given] = found
    return found


def quick(name: str, given: Any) -> Item | None:
    """The item of an address or a number without a mask; None for anything else."""
    simple = _SIMPLE.get(name)
    if simple is None:
        return None
    at, ones, clear, needs, read = simple
    if type(given) is str:
        if read is None:
            if not given.isdecimal() or len(given) > 9 or (given[0] == "0" and given != "0"):
                return None
            value = int(given)
        else:
            whole, slash, bits = given.partition("/")
            if slash:
                return _prefix_item(at, ones, clear, needs, read, whole, bits, name)
            try:
                value = read(whole)
            except texts.BadValueError:
                return None
    elif type(given) is int:
        value = given
    else:
        return None
    return (clear, value << at, clear, needs, name) if 0 <= value <= ones else None


def _prefix_item(
    at: int, ones: int, clear: int, needs: Ways, read: Callable[[str], int], whole: str, bits: str, name: str
) -> Item | None:
    width = ones.bit_length()
    if width == 48 or not bits.isdecimal() or int(bits) > width:
        return None
    mask = ones ^ ones >> int(bits)
    try:
        return clear, (read(whole) & mask) << at, mask << at, needs if mask else (), name
    except texts.BadValueError:
        return None


def make(fields: Mapping[str, Any], port_number: texts.PortNumber | None = None) -> Match:
    """A match of its fields by name, such as ``{"ip": True, "nw_dst": "10.0.0.0/24"}``."""
    return combine([quick(name, given) or _remembered(name, given, port_number) for name, given in fields.items()])
