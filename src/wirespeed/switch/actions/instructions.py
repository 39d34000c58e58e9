"""Whether actions may stand where they do, and what they become for a given match.

Theory of operation
-------------------
What a match promises about headers changes with the actions before: behind ``push_mpls`` there is a label, and nothing
is known of what is behind it; behind ``push_vlan`` there is one tag more.  An action that reads or writes a field, or takes
something off, needs that promise; without it the rule is refused, and the error says what to match.  Actions of OpenFlow
1.0 become what OpenFlow 1.5 has for them.

About an action set nothing is known, for it is done at the end, with the packet as it is then.  There, as in buckets,
actions that do nothing where their header is not there are let pass.

Source: OpenFlow 1.5.1, 5.5 (the order of instructions) and 5.6 (the action set).
"""

from collections.abc import Callable, Iterable
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.switch.actions import headers, sending, steps, writing
from wirespeed.switch.actions.base import Action, actions_text
from wirespeed.switch.fields import ETH_TYPE_AT, FIELDS, FRAG_LATER, PROTO_AT, TCI_PRESENT
from wirespeed.switch.match import PROMISES, WAYS, header

_TCI, _TYPE, _PROTO = FIELDS["vlan_tci"], 0xFFFF << ETH_TYPE_AT, 0xFF << PROTO_AT
_TAG = TCI_PRESENT << _TCI.at
_SORT = FIELDS["tcp_src"].mask
_LATER = FRAG_LATER << FIELDS["ip_frag"].at
_TRANSPORT = ("tcp", "udp", "sctp")
_NO_TAG = "a tag: match vlan_vid=0x1000/0x1000 (or dl_vlan=...), or push_vlan before it"
_NO_PORTS = "a match on tcp, udp or sctp (or tcp6, udp6, sctp6), and not on ip_frag=later"
_LABEL = "a match on mpls, or push_mpls before it"
MOST_TAGS = 2  # that a flow knows of

MOST_ACTIONS = 4096
# The place of an instruction among others; all other actions are applied, in between.
_APPLY = 1
_ORDER: dict[type[Action], int] = {
    sending.Meter: 0, steps.ClearActions: 2, steps.WriteActions: 3, steps.WriteMetadata: 4, steps.Goto: 5,
}  # fmt: skip
_NAMES = ("meter", "apply_actions", "clear_actions", "write_actions", "write_metadata", "goto_table")
_NOT_IN_BUCKET = (writing.Push, writing.Pop, steps.Clone, steps.Exit, *_ORDER)
_NOT_IN_SET = (sending.OutputField, *_NOT_IN_BUCKET)
_FIELDS = (writing.SetField, writing.SetTransport, writing.SetTag, writing.Move, headers.SetMplsTtl)
_FIRST = (headers.PopVlan, headers.PopMpls, headers.PushMpls, headers.PushVlan, headers.DecTtl, headers.DecMplsTtl)
_LAST = ((sending.ToGroup,), (sending.Output, sending.Controller), (steps.Resubmit,))


class _Promise:
    """What is known of headers at an action; ``strict`` says that what needs more than that is refused."""

    def __init__(self, value: int, mask: int, *, strict: bool = True, second: bool = False) -> None:
        self.value, self.mask, self.strict = value, mask, strict
        self.second = second  # whether there is a tag behind the first one

    def copy(self, *, strict: bool) -> "_Promise":
        return _Promise(self.value, self.mask, strict=strict, second=self.second)

    def has(self, needs: str) -> bool:
        if needs in _TRANSPORT and self.value & self.mask & _LATER:
            return False  # later fragments have no ports
        return not needs or any(self.mask & m == m and self.value & m == v for m, v in WAYS[needs])

    def demand(self, one: Action, needs: str, what: str) -> None:
        """Refuse an action whose header need not be there."""
        if self.strict and not self.has(needs):
            raise GraphError(f"{one} needs {what}")

    def know(self, mask: int, value: int) -> None:
        self.value, self.mask = self.value & ~mask | value, self.mask | mask

    def forget(self, mask: int) -> None:
        self.value, self.mask = self.value & ~mask, self.mask & ~mask


def resolve(actions: Iterable[Action], value: int, mask: int, table: int) -> tuple[Action, ...]:
    """The actions of a rule with a match, in a table; refused where they cannot be."""
    actions = tuple(actions)
    _check_order(actions, table)
    return _resolved(actions, _Promise(value & PROMISES, mask & PROMISES))


def resolve_bucket(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions of a bucket, about whose packets nothing is known."""
    actions = tuple(actions)
    _check_set(actions, "a bucket", _NOT_IN_BUCKET)
    return tuple(found for one in actions for found in _anywhere(one))


def _anywhere(one: Action) -> tuple[Action, ...]:
    if isinstance(one, writing.SetTag):
        return headers.PushVlan(), _tag(one)
    return (_new(one),) if isinstance(one, writing.SetField) else (one,)


def _new(one: writing.SetField) -> writing.SetField:
    """What an action of OpenFlow 1.0 is in 1.5, which has kept one of them."""
    if one.old == "mod_nw_tos":
        return writing.SetField(FIELDS["ip_dscp"], one.value >> 2, FIELDS["ip_dscp"].ones)
    return one if one.old in ("", "mod_nw_ttl") else writing.SetField(one.field, one.value, one.mask)


def _check_order(actions: tuple[Any, ...], table: int) -> None:
    last = 0
    if len(actions) > MOST_ACTIONS:
        raise GraphError(f"a rule has at most {MOST_ACTIONS} actions, got {len(actions)}")
    for one in actions:
        if not isinstance(one, Action):
            raise GraphError(f"an action is such as wirespeed.output(2), got {one!r}")
        at = _ORDER.get(type(one), _APPLY)
        if at < last:
            raise GraphError(f"{_NAMES[at]} must stand before {_NAMES[last]}, got {actions_text(actions)}")
        if at == last and at != _APPLY and at and sum(isinstance(other, type(one)) for other in actions) > 1:
            raise GraphError(f"more than one {_NAMES[at]} in {actions_text(actions)}")
        if isinstance(one, sending.Meter) and sum(isinstance(other, sending.Meter) for other in actions) > 1:
            raise GraphError(f"more than one meter in {actions_text(actions)}")
        if isinstance(one, steps.Goto) and one.table <= table:
            raise GraphError(f"goto_table goes forward: from table {table} to {table + 1} or later, got {one.table}")
        last = at


def _check_set(actions: tuple[Any, ...], what: str, refused: tuple[type[Action], ...]) -> None:
    for one in actions:
        if not isinstance(one, Action):
            raise GraphError(f"an action is such as wirespeed.output(2), got {one!r}")
        if isinstance(one, refused):
            raise GraphError(f"{what} cannot hold {one}")


def _check_clone(actions: tuple[Any, ...]) -> None:
    for one in actions:
        if not isinstance(one, Action) or type(one) in _ORDER:
            raise GraphError(f"a copy's actions are no instructions, got {one}")


def _resolved(actions: tuple[Action, ...], promise: _Promise) -> tuple[Action, ...]:
    found: list[Action] = []
    for one in actions:
        step = _STEPS.get(type(one))
        if step is None:
            found.append(one)
        else:
            found += step(one, promise)
    return tuple(found)


def _what(field: Any) -> str:
    """What to write for a field's header, in an error."""
    if field.needs == "vlan" or field.name == "vlan_vid":
        return _NO_TAG
    later = ", and not on ip_frag=later" if field.needs in _TRANSPORT else ""
    return f"a match on {header(field.needs)}{later}"


def _set_field(one: Action, promise: _Promise) -> tuple[Action, ...]:
    assert isinstance(one, writing.SetField)
    field = one.field
    if not promise.has(one.needs):
        if promise.strict or not one.old:
            raise GraphError(f"{one} needs {_what(field)}")
        return (one,)
    if field is _TCI:  # written at once it may add the tag or remove it
        if one.value & TCI_PRESENT:
            promise.know(_TAG, _TAG)
        else:
            promise.forget(_TAG)
    return (_new(one),)


def _set_transport(one: Action, promise: _Promise) -> tuple[Action, ...]:
    assert isinstance(one, writing.SetTransport)
    for kind in _TRANSPORT:
        if promise.has(kind):
            return (writing.SetField(FIELDS[f"{kind}_{one.end}"], one.value, 0xFFFF),)
    promise.demand(one, "tcp", _NO_PORTS)
    return (one,)


def _set_tag(one: Action, promise: _Promise) -> tuple[Action, ...]:
    assert isinstance(one, writing.SetTag)
    if promise.has("vlan"):
        return (_tag(one),)
    promise.know(_TAG, _TAG)
    return headers.PushVlan(), _tag(one)


def _tag(one: writing.SetTag) -> writing.SetField:
    if one.part == "vid":
        return writing.SetField(FIELDS["vlan_vid"], one.value | TCI_PRESENT, 0x1FFF)
    return writing.SetField(FIELDS["vlan_pcp"], one.value, 7)


def _push_vlan(one: Action, promise: _Promise) -> tuple[Action, ...]:
    if promise.second:
        raise GraphError(f"{one} would make more than {MOST_TAGS} tags, of which the others could not be known")
    promise.second = promise.has("vlan")
    promise.know(_TAG, _TAG)
    return (one,)


def _pop_vlan(one: Action, promise: _Promise) -> tuple[Action, ...]:
    promise.demand(one, "vlan", _NO_TAG)
    if not promise.second:
        promise.forget(_TAG)
    promise.second = False
    return (one,)


def _push_mpls(one: Action, promise: _Promise) -> tuple[Action, ...]:
    assert isinstance(one, headers.PushMpls)
    promise.forget(_PROTO | _SORT)
    promise.know(_TYPE, one.kind << ETH_TYPE_AT)
    return (one,)


def _pop_mpls(one: Action, promise: _Promise) -> tuple[Action, ...]:
    assert isinstance(one, headers.PopMpls)
    promise.demand(one, "mpls", _LABEL)
    promise.forget(_PROTO | _SORT)
    promise.know(_TYPE, one.kind << ETH_TYPE_AT)
    return (one,)


def _label(one: Action, promise: _Promise) -> tuple[Action, ...]:
    promise.demand(one, "mpls", _LABEL)
    return (one,)


def _dec_ttl(one: Action, promise: _Promise) -> tuple[Action, ...]:
    promise.demand(one, "ip any", "a match on ip or ipv6")
    return (one,)


def _check_parts(one: Action, promise: _Promise) -> tuple[Action, ...]:
    for name in ("source", "target"):
        part = getattr(one, name, None)
        if part is not None and not promise.has(part.field.needs):
            raise GraphError(f"{one} needs {_what(part.field)}")
    return (one,)


def _nested(one: Action, promise: _Promise) -> tuple[Action, ...]:
    if isinstance(one, steps.Clone):
        _check_clone(one.actions)
        return (steps.Clone(_resolved(one.actions, promise.copy(strict=promise.strict))),)
    assert isinstance(one, steps.WriteActions)
    if not one.actions:
        return ()
    _check_set(one.actions, "write_actions", _NOT_IN_SET)
    for inner in one.actions:
        if isinstance(inner, sending.Output) and inner.max_len:
            raise GraphError(f"write_actions cannot hold {inner}: what is cut is sent at once")
    return (steps.WriteActions(_resolved(one.actions, promise.copy(strict=False))),)


_STEPS: dict[type[Action], Callable[[Action, _Promise], tuple[Action, ...]]] = {
    writing.SetField: _set_field,
    writing.SetTransport: _set_transport,
    writing.SetTag: _set_tag,
    headers.PushVlan: _push_vlan,
    headers.PopVlan: _pop_vlan,
    headers.PushMpls: _push_mpls,
    headers.PopMpls: _pop_mpls,
    headers.SetMplsTtl: _label,
    headers.DecMplsTtl: _label,
    headers.DecTtl: _dec_ttl,
    writing.Move: _check_parts,
    writing.Push: _check_parts,
    writing.Pop: _check_parts,
    sending.OutputField: _check_parts,
    steps.Clone: _nested,
    steps.WriteActions: _nested,
}


def _is_cut(one: Action) -> bool:
    return isinstance(one, sending.Output) and one.max_len > 0


def order_action_set(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Actions in the order in which an action set is done: of each kind the last, fields as written, one way out.

    One without a way out does nothing at all.
    To send by the number in a field, or to cut what is sent, has no place among them: buckets may hold it, and it is
    not done.  So does Open vSwitch.
    """
    given = tuple(one for one in actions if not isinstance(one, sending.OutputField) and not _is_cut(one))
    found: list[Action] = []
    for kind in _FIRST:
        found += [one for one in given if isinstance(one, kind)][-1:]
    found += [one for one in given if isinstance(one, _FIELDS)]
    for kinds in _LAST:
        last = [one for one in given if isinstance(one, kinds)][-1:]
        if last:
            return (*found, *last)
    return ()
