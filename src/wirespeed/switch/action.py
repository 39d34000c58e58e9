"""Short functions that make actions, checked: ``ws.output(2)``, ``ws.set_field("ip_dst", "10.0.0.1")``.

The records that they make are those of :mod:`wirespeed.switch.actions`; whether a rule's match allows them is known
when they are in a rule.

Source: ovs-actions(7).
"""

from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch import fields
from wirespeed.switch.actions.base import Action
from wirespeed.switch.actions.headers import DecMplsTtl, DecTtl, PopMpls, PopVlan, PushMpls, PushVlan, SetMplsTtl
from wirespeed.switch.actions.sending import ALL_BYTES, REASONS, Controller, Meter, Output, OutputField, ToGroup
from wirespeed.switch.actions.steps import (
    SAME_TABLE,
    ClearActions,
    Clone,
    Exit,
    Goto,
    Resubmit,
    WriteActions,
    WriteMetadata,
)
from wirespeed.switch.actions.writing import Move, Pop, Push, SetField, SetTag
from wirespeed.switch.fields import FIELDS, NAMES, Field
from wirespeed.switch.match import unknown
from wirespeed.switch.ops import ACTION
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.subfield import Subfield, one_place, read_subfield

MOST_USERDATA = 4  # bytes that an event has room for
LEAST_BYTES = 14  # that an output can be cut to: an Ethernet header


def output(port: int | str, max_len: int = 0) -> Action:
    """Send the packet by a port: its number, or a reserved one's name such as "NORMAL" or "IN_PORT"."""
    if port == fields.CONTROLLER or port == "CONTROLLER":
        return Controller(max_len or ALL_BYTES)
    if max_len and not LEAST_BYTES <= max_len <= 0xFFFFFFFF:
        raise GraphError(f"max_len is at least {LEAST_BYTES} bytes, got {max_len}")
    number = texts.check_port(port) if isinstance(port, int) else texts.port(port)
    if number == fields.ANY:
        raise GraphError("ANY is no port to send by; write a port's number, or drop")
    return Output(number, max_len)


def output_field(source: str) -> OutputField:
    """Send the packet by the port whose number is in bits of a field: ``output_field("NXM_NX_REG0[0..15]")``."""
    return OutputField(_one_word(source))


def _one_word(text: str) -> Subfield:
    part = read_subfield(text)
    one_place(part)
    return part


def controller(max_len: int = ALL_BYTES, reason: int | str = ACTION, id: int = 0, userdata: bytes = b"") -> Controller:
    """Tell a controller."""
    if isinstance(reason, str):
        if reason not in REASONS:
            raise GraphError(f"a reason is one of {', '.join(REASONS)}, got {reason!r}")
        reason = REASONS.index(reason)
    if not 0 <= max_len <= ALL_BYTES or not 0 <= id <= 0xFFFF:
        raise GraphError(f"max_len and id are 0 to {0xFFFF}, got {max_len} and {id}")
    if len(userdata) > MOST_USERDATA:
        raise GraphError(f"userdata has at most {MOST_USERDATA} bytes yet, got {len(userdata)}")
    return Controller(max_len, reason, id, userdata)


def set_field(name: str, value: Any, mask: int | None = None) -> SetField:
    """Write a field, or with ``mask`` bits of it; ``value`` is a number or a text such as "10.0.0.1"."""
    field = NAMES.get(name) or NAMES.get(name.lower())
    if field is None:
        raise unknown(name, "field", NAMES)
    if not field.writable:
        raise GraphError(f"{name} cannot be written")
    ones = (1 << field.width) - 1
    number, own = texts.read(field, value) if isinstance(value, str) else (value, ones)
    return set_bits(field, number, own if mask is None else mask)


def set_bits(field: Field, value: int, mask: int) -> SetField:
    """Write bits of a field, checked."""
    ones = (1 << field.width) - 1
    if not 0 <= value <= ones or not 0 < mask <= ones:
        raise GraphError(f"{field.name} has {field.width} bits, got {value:#x}/{mask:#x}")
    if not field.nxm:
        raise GraphError(f"{field.name} cannot be written: write vlan_vid or vlan_pcp, or mod_vlan_vid or mod_vlan_pcp")
    if field.name == "vlan_vid" and not value & mask & 0x1000:
        raise GraphError(
            f"vlan_vid has a bit that says that the tag is there: write {value | 0x1000:#x}"
            + ("" if mask & 0x1000 else f"/{mask | 0x1000:#x}, or load to vlan_tci[0..11]")
        )
    if field.form == "port":
        field, value = FIELDS["in_port"], texts.check_port(value)
    if field.name == "nw_tos" and value & 3:
        raise GraphError(f"nw_tos is written with its two lowest bits 0, got {value}")
    if field.bits == field.width and mask == field.ones:
        mask = ones
    return SetField(field, value & mask, mask)


def load(value: int, target: str) -> SetField:
    """Write bits of a field: ``load(5, "NXM_NX_REG0[0..7]")``."""
    part = read_subfield(target)
    if not part.field.writable:
        raise GraphError(f"{target} cannot be written")
    if not 0 <= value < 1 << part.bits:
        raise GraphError(f"{target} has {part.bits} bits, got {value:#x}")
    if part.field.form == "port":
        if part.bits != part.field.reach:
            raise GraphError(f"{target}: a port's number is written as a whole: write in_port[]")
        return set_bits(part.field, value, part.field.ones)
    ones = (1 << part.field.width) - 1
    if value << part.at & ~ones:
        raise GraphError(f"{target}: {part.field.name} is 0 to {ones:#x}, got {value << part.at:#x}")
    mask = ((1 << part.bits) - 1 << part.at) & ones
    return set_bits(part.field, value << part.at & ones, mask)


def move(source: str, target: str) -> Move:
    """Copy bits: ``move("NXM_OF_ETH_SRC[]", "NXM_OF_ETH_DST[]")``."""
    one, other = read_subfield(source), read_subfield(target)
    if one.bits != other.bits:
        raise GraphError(f"{source} has {one.bits} bits and {target} {other.bits}; they must have as many")
    if not other.field.writable:
        raise GraphError(f"{target} cannot be written")
    return Move(one, other)


def mod_vlan_vid(number: int) -> SetTag:
    """Write the first tag's VLAN, with a tag where there is none."""
    if not 0 <= number <= 0xFFF:
        raise GraphError(f"a VLAN is 0 to 4095, got {number}")
    return SetTag("vid", number)


def mod_vlan_pcp(priority: int) -> SetTag:
    """Write the first tag's priority, with a tag where there is none."""
    if not 0 <= priority <= 7:
        raise GraphError(f"a tag's priority is 0 to 7, got {priority}")
    return SetTag("pcp", priority)


def push_vlan(kind: int = 0x8100) -> PushVlan:
    """Put a tag before the first one."""
    if kind not in (0x8100, 0x88A8):
        raise GraphError(f"a tag's type is 0x8100 or 0x88a8, got {kind:#06x}")
    return PushVlan(kind)


def pop_vlan() -> PopVlan:
    """Take the first tag off."""
    return PopVlan()


def push_mpls(kind: int = fields.MPLS) -> PushMpls:
    """Put a label before the first one."""
    if kind not in (fields.MPLS, fields.MPLS_MULTICAST):
        raise GraphError(f"a label's type is 0x8847 or 0x8848, got {kind:#06x}")
    return PushMpls(kind)


def pop_mpls(kind: int) -> PopMpls:
    """Take the first label off; what is behind it is of type ``kind``."""
    if not 0 <= kind <= 0xFFFF:
        raise GraphError(f"a type has 16 bits, got {kind:#x}")
    return PopMpls(kind)


def set_mpls_ttl(value: int) -> SetMplsTtl:
    """Write the first label's time to live."""
    if not 0 <= value <= 0xFF:
        raise GraphError(f"a time to live is 0 to 255, got {value}")
    return SetMplsTtl(value)


def dec_ttl(*ids: int) -> DecTtl:
    """Take one from the time to live."""
    return DecTtl(ids, True) if ids else DecTtl()


def dec_mpls_ttl() -> DecMplsTtl:
    """Take one from the first label's time to live."""
    return DecMplsTtl()


def goto_table(table: int) -> Goto:
    """Go on in a later table."""
    return Goto(_table(table))


def resubmit(port: int | str = "", table: int = SAME_TABLE) -> Resubmit:
    """Look up again, in ``table`` or as if from ``port``, and come back."""
    if port == "" and table == SAME_TABLE:
        raise GraphError("resubmit needs a port or a table: write resubmit(port) or resubmit(,table)")
    number = texts.check_port(port) if isinstance(port, int) else texts.port(port or "IN_PORT")
    return Resubmit(number, table if table == SAME_TABLE else _table(table))


def _table(table: int) -> int:
    if not 0 <= table <= 254:
        raise GraphError(f"a table's number is 0 to 254, got {table}")
    return table


def group(number: int) -> ToGroup:
    """Do what a group does."""
    if not 0 <= number <= 0xFFFFFF00:
        raise GraphError(f"a group's number is 0 to {0xFFFFFF00}, got {number}")
    return ToGroup(number)


def meter(number: int) -> Meter:
    """Drop the packet where a meter says so."""
    if not 1 <= number <= 0xFFFF0000:
        raise GraphError(f"a meter's number is 1 to {0xFFFF0000}, got {number}")
    return Meter(number)


def write_metadata(value: int, mask: int = (1 << 64) - 1) -> WriteMetadata:
    """Write bits of the metadata."""
    if not 0 <= value < 1 << 64 or not 0 <= mask < 1 << 64:
        raise GraphError(f"metadata has 64 bits, got {value:#x}/{mask:#x}")
    return WriteMetadata(value, mask)


def write_actions(*actions: Action) -> WriteActions:
    """Put actions into the action set."""
    return WriteActions(tuple(actions))


def clear_actions() -> ClearActions:
    """Empty the action set."""
    return ClearActions()


def clone(*actions: Action) -> Clone:
    """Do actions with a copy."""
    return Clone(tuple(actions))


def exit() -> Exit:
    """Do nothing more with the packet."""
    return Exit()


def push(source: str) -> Push:
    """Put bits of a field on the packet's stack."""
    return Push(_one_word(source))


def pop(target: str) -> Pop:
    """Take bits of a field from the packet's stack."""
    part = _one_word(target)
    if not part.field.writable:
        raise GraphError(f"{target} cannot be written")
    return Pop(part)
