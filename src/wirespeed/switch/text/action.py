"""Actions as text, as ``ovs-ofctl`` reads them.  Records print themselves.

Source: ovs-actions(7).
"""

from collections.abc import Callable
from functools import partial

from wirespeed.errors import GraphError
from wirespeed.switch import action as a
from wirespeed.switch.actions.base import Action
from wirespeed.switch.actions.steps import SAME_TABLE
from wirespeed.switch.actions.writing import SetField, SetTransport
from wirespeed.switch.fields import FIELDS, IN_PORT, LOCAL, NAMES, PORT_NAMES
from wirespeed.switch.match import unknown
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.split import name_and_argument, split

Reader = Callable[[str, texts.PortNumber | None], Action]
LATER = {
    "learn": "learning rules", "ct": "connection tracking", "ct_clear": "connection tracking", "nat": "connection tracking",
    "conjunction": "conjunctions", "enqueue": "queues", "set_queue": "queues", "pop_queue": "queues",
    "multipath": "multipath", "bundle": "bundles of ports", "bundle_load": "bundles of ports",
    "sample": "sampling", "fin_timeout": "fin_timeout", "note": "notes", "check_pkt_larger": "check_pkt_larger",
    "encap": "tunnels", "decap": "tunnels", "dec_nsh_ttl": "tunnels", "delete_field": "tunnels",
}  # fmt: skip
_U16, _U32, _U64 = 0xFFFF, 0xFFFFFFFF, (1 << 64) - 1


def _arrow(text: str, what: str) -> tuple[str, str]:
    left, arrow, right = text.rpartition("->")
    if not arrow or not left or not right:
        raise GraphError(f"{what}:{text}: write {what}:VALUE->FIELD")
    return left.strip(), right.strip()


def _output(text: str, port_number: texts.PortNumber | None) -> Action:
    if text.startswith("port=") or text.startswith("max_len="):
        parts = _parts(text, "output", ("port", "max_len"))
        if "port" not in parts or "max_len" not in parts:
            raise GraphError(f"output({text}): write output(port=PORT,max_len=BYTES)")
        port = texts.port(parts["port"], port_number)
        if port > texts.MOST_PORT and port not in (LOCAL, IN_PORT):
            raise GraphError(f"output({text}): what is cut goes to one port, by number, LOCAL or IN_PORT")
        most = texts.number(parts["max_len"], _U32)
        if most < a.LEAST_BYTES:
            raise GraphError(f"output({text}): max_len is at least {a.LEAST_BYTES} bytes, got {most}")
        return a.output(port, most)
    name, _, _ = text.partition("[")
    if text.upper() not in PORT_NAMES and (name in NAMES or name.lower() in NAMES):
        return a.output_field(text)
    return a.output(texts.port(text, port_number))


def _parts(text: str, what: str, known: tuple[str, ...]) -> dict[str, str]:
    parts = {}
    for one in split(text):
        name, _, argument = name_and_argument(one)
        if name not in known:
            raise unknown(name, f"part of {what}", known)
        parts[name] = argument
    return parts


def _controller(text: str, port_number: texts.PortNumber | None) -> Action:
    if text.isdigit():
        return a.controller(texts.number(text, _U16))
    parts = _parts(text, "controller", ("max_len", "reason", "id", "userdata", "pause", "meter_id"))
    for name in ("pause", "meter_id"):
        if name in parts:
            raise GraphError(f"controller({name}) comes later")
    return a.controller(
        texts.number(parts.get("max_len", str(_U16)), _U16),
        parts.get("reason", "action"),
        texts.number(parts.get("id", "0"), _U16),
        _bytes(parts.get("userdata", "")),
    )


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.replace(".", " "))
    except ValueError:
        raise GraphError(f"{text!r} is not bytes such as 01.02.ff") from None


def _set_field(text: str, port_number: texts.PortNumber | None) -> Action:
    value, name = _arrow(text, "set_field")
    if "[" in name:
        raise GraphError(
            f"set_field:{text}: a range of bits is for load; here write VALUE/MASK->{name.partition('[')[0]}"
        )
    if name in ("tp_src", "tp_dst"):
        name = f"tcp{name[2:]}"
    field = NAMES.get(name) or NAMES.get(name.lower())
    if field is None:
        raise unknown(name, "field", NAMES)
    if not field.writable:
        raise GraphError(f"{name} cannot be written")
    number, mask = texts.read(field, value, port_number)
    if mask != (1 << field.width) - 1:
        whole, _ = texts.read(field, value.partition("/")[0], port_number)
        if whole != number:
            raise GraphError(
                f"set_field:{text}: {value} has bits that its mask leaves out: write {texts.show(field, number, mask)}"
            )
    return a.set_bits(field, number, mask)


def _load(text: str, port_number: texts.PortNumber | None) -> Action:
    value, target = _arrow(text, "load")
    return a.load(texts.number(value, (1 << 128) - 1), target)


def _move(text: str, port_number: texts.PortNumber | None) -> Action:
    return a.move(*_arrow(text, "move"))


def _old(name: str, field: str, text: str, port_number: texts.PortNumber | None) -> Action:
    one = a.set_bits(FIELDS[field], *texts.read(FIELDS[field], text, port_number))
    return SetField(one.field, one.value, one.mask, name)


def _plain(field: str, text: str, port_number: texts.PortNumber | None) -> Action:
    return a.set_bits(FIELDS[field], *texts.read(FIELDS[field], text, port_number))


def _transport(end: str, text: str, port_number: texts.PortNumber | None) -> Action:
    return SetTransport(end, texts.number(text, _U16))


def _resubmit(text: str, port_number: texts.PortNumber | None) -> Action:
    words = [word.strip() for word in text.split(",")]
    if len(words) > 2:
        raise GraphError(f"resubmit({text}): a look-up with connection tracking comes later")
    port: int | str = texts.port(words[0], port_number) if words[0] else ""
    port = "" if port == IN_PORT else port
    table = texts.number(words[1], 255, "a table") if len(words) == 2 and words[1] else SAME_TABLE
    return a.resubmit(port, table)


def _metadata(text: str, port_number: texts.PortNumber | None) -> Action:
    value, slash, mask = text.partition("/")
    return a.write_metadata(texts.number(value, _U64), texts.number(mask, _U64) if slash else _U64)


def _dec_ttl(text: str, port_number: texts.PortNumber | None) -> Action:
    return a.dec_ttl(*(texts.number(one, _U16) for one in split(text)))


def _numbered(make: Callable[[int], Action], most: int, text: str, port_number: texts.PortNumber | None) -> Action:
    return make(texts.number(text, most))


READERS: dict[str, Reader] = {
    "output": _output,
    "controller": _controller,
    "set_field": _set_field,
    "load": _load,
    "move": _move,
    "mod_dl_src": partial(_plain, "dl_src"),
    "mod_dl_dst": partial(_plain, "dl_dst"),
    "mod_nw_src": partial(_old, "mod_nw_src", "nw_src"),
    "mod_nw_dst": partial(_old, "mod_nw_dst", "nw_dst"),
    "mod_nw_tos": partial(_old, "mod_nw_tos", "nw_tos"),  # written as 8 bits
    "mod_nw_ecn": partial(_old, "mod_nw_ecn", "nw_ecn"),
    "mod_nw_ttl": partial(_old, "mod_nw_ttl", "nw_ttl"),
    "mod_tp_src": partial(_transport, "src"),
    "mod_tp_dst": partial(_transport, "dst"),
    "mod_vlan_vid": partial(_numbered, a.mod_vlan_vid, 0xFFF),
    "mod_vlan_pcp": partial(_numbered, a.mod_vlan_pcp, 7),
    "set_vlan_vid": partial(_numbered, a.mod_vlan_vid, 0xFFF),
    "set_vlan_pcp": partial(_numbered, a.mod_vlan_pcp, 7),
    "push_vlan": partial(_numbered, a.push_vlan, _U16),
    "push_mpls": partial(_numbered, a.push_mpls, _U16),
    "pop_mpls": partial(_numbered, a.pop_mpls, _U16),
    "set_mpls_label": partial(_old, "set_mpls_label", "mpls_label"),
    "set_mpls_tc": partial(_old, "set_mpls_tc", "mpls_tc"),
    "set_mpls_ttl": partial(_numbered, a.set_mpls_ttl, 0xFF),
    "set_tunnel": partial(_plain, "tun_id"),
    "set_tunnel64": partial(_plain, "tun_id"),
    "dec_ttl": _dec_ttl,
    "goto_table": partial(_numbered, a.goto_table, 255),
    "resubmit": _resubmit,
    "group": partial(_numbered, a.group, _U32),
    "meter": partial(_numbered, a.meter, _U32),
    "write_metadata": _metadata,
    "push": lambda text, port_number: a.push(text),
    "pop": lambda text, port_number: a.pop(text),
    "write_actions": lambda text, port_number: a.write_actions(*read_actions(text, port_number)),
    "clone": lambda text, port_number: a.clone(*read_actions(text, port_number)),
}
ALONE: dict[str, Action] = {
    "strip_vlan": a.pop_vlan(),
    "pop_vlan": a.pop_vlan(),
    "dec_mpls_ttl": a.dec_mpls_ttl(),
    "clear_actions": a.clear_actions(),
    "exit": a.exit(),
    "dec_ttl": a.dec_ttl(),
    "controller": a.controller(),
}


def read_action(text: str, port_number: texts.PortNumber | None = None) -> Action:
    """One action."""
    name, between, argument = name_and_argument(text)
    known = name if name in READERS or name in ALONE else name.lower()
    argument = argument.strip()
    if known in ALONE and not argument:
        return ALONE[known]
    reader = READERS.get(known)
    if reader is not None:
        if not argument and known not in ("clone", "write_actions"):
            raise GraphError(f"{name} needs a value: write {name}:VALUE")
        try:
            return reader(argument, port_number)
        except texts.BadValueError as error:
            raise GraphError(f"{text}: {error}") from None
    if known in LATER:
        raise GraphError(f"no action {name} yet: it is of {LATER[known]}, which comes later")
    if between:
        raise unknown(name, "action", (*READERS, *ALONE))
    try:
        return a.output(texts.port(text, port_number))
    except texts.BadValueError:
        raise unknown(name, "action or port", (*READERS, *ALONE, *PORT_NAMES)) from None


def read_actions(text: str, port_number: texts.PortNumber | None = None) -> tuple[Action, ...]:
    """A list of actions; ``drop`` is the empty one."""
    items = split(text)
    if not items or all(one.lower() == "drop" for one in items):
        return ()
    if any(one.lower() == "drop" for one in items):
        raise GraphError("drop stands alone: leave it out, or the other actions")
    return tuple(read_action(one, port_number) for one in items)
