"""Flows as text, as ``ovs-ofctl`` reads and prints them, and of their parts in Python.

Theory of operation
-------------------
There is one parser.  A text is cut at ``actions=``; what is before it are words, each of which says what it does to a
match or to a setting.  What a word or a list of actions means is remembered, for flows repeat themselves: rules by the
ten thousand differ in an address or two.  Nothing that depends on names of ports is remembered.

Source: ovs-ofctl(8), "Flow Syntax"; ovs-fields(7); ovs-actions(7).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from wirespeed.errors import GraphError
from wirespeed.switch.actions.base import Action, actions_text
from wirespeed.switch.actions.instructions import resolve
from wirespeed.switch.match import EVERYTHING, MATCH_NAMES, PROMISES, Item, Match, combine, unknown
from wirespeed.switch.rule import CHECK_OVERLAP, NO_BYTE_COUNTS, NO_PACKET_COUNTS, RESET_COUNTS, SEND_FLOW_REM
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.action import read_actions
from wirespeed.switch.text.item import SHORTHANDS, item, make, quick
from wirespeed.switch.text.split import split

MOST_TABLE = 253
ALL_TABLES = 255
DEFAULT_PRIORITY = 0x8000
MOST_REMEMBERED = 1 << 16  # and no text longer than these
LONGEST_WORD, LONGEST_ACTIONS = 64, 512
_U64 = (1 << 64) - 1
COMMANDS = ("add", "modify", "modify_strict", "delete", "delete_strict")
FLAGS = {
    "send_flow_rem": SEND_FLOW_REM,
    "check_overlap": CHECK_OVERLAP,
    "reset_counts": RESET_COUNTS,
    "no_packet_counts": NO_PACKET_COUNTS,
    "no_byte_counts": NO_BYTE_COUNTS,
}
NUMBERS = {
    "priority": 0xFFFF, "table": 255, "idle_timeout": 0xFFFF, "hard_timeout": 0xFFFF, "importance": 0xFFFF,
    "out_group": 0xFFFFFFFF,
}  # fmt: skip
STATISTICS = ("duration", "n_packets", "n_bytes", "idle_age", "hard_age")  # read over, so that dumps can be given back
_NOTHING: Item = (0, 0, 0, (), "")
SETTINGS = (*NUMBERS, *FLAGS, "cookie", "out_port", "actions")
_ACTIONS = re.compile(r"(?:^|[\s,])actions?\s*=")
_BLANK = re.compile(r"\s*=\s*")


class FlowMod(NamedTuple):
    """What a flow text says.  ``table`` 255 is all tables, of delete and modify; ``out_port`` None is any."""

    command: str = "add"
    table: int = 0
    priority: int = DEFAULT_PRIORITY
    match: Match = EVERYTHING
    actions: tuple[Action, ...] = ()
    cookie: int = 0
    cookie_mask: int = 0
    idle_timeout: int = 0
    hard_timeout: int = 0
    importance: int = 0
    flags: int = 0
    out_port: int | None = None
    out_group: int | None = None


# A word of a flow text: what it does to the match, or (setting, value).
_Word = Item | tuple[str, int]
_words: dict[str, _Word] = {}
_resolved: dict[tuple[Any, int, int, int], tuple[Action, ...]] = {}


def _word(text: str, port_number: texts.PortNumber | None) -> _Word:
    known = _words.get(text)
    if known is None:
        try:
            known = _read_word(text, None)
        except GraphError:
            if port_number is None:
                raise
            return _read_word(text, port_number)
        if len(text) <= LONGEST_WORD:
            if len(_words) >= MOST_REMEMBERED:
                _words.clear()
            _words[text] = known
    return known


def _read_word(text: str, port_number: texts.PortNumber | None) -> _Word:
    name, equals, given = text.partition("=")
    if name in NUMBERS:
        return name, _number(name, given)
    if name in FLAGS and not equals:
        return "flags", FLAGS[name]
    if name == "cookie":
        return name, _cookie(given)
    if name == "out_port":
        return name, _named(name, texts.port, given, port_number)
    if not equals:
        if name in SHORTHANDS:
            return item(name, None)
        if name.lower() in MATCH_NAMES:
            raise GraphError(f"{name} needs a value: write {name}=VALUE")
        raise unknown(name, "field", (*MATCH_NAMES, *SHORTHANDS, *SETTINGS))
    try:
        return item(name, given, port_number)
    except GraphError as error:
        if not str(error).startswith("no field"):
            raise
        raise unknown(name, "field", (*MATCH_NAMES, *SHORTHANDS, *SETTINGS)) from None


def _named(name: str, read: Any, *given: Any) -> int:
    try:
        value: int = read(*given)
    except texts.BadValueError as error:
        raise GraphError(f"{name}: {error}") from None
    return value


def _number(name: str, given: str) -> int:
    return _named(name, texts.number, given, NUMBERS[name])


def _cookie(given: str) -> int:
    """A cookie, with its mask above it."""
    value, slash, mask = given.partition("/")
    own = _U64 if mask == "-1" else _named("cookie", texts.number, mask, _U64) if slash else 0
    return _named("cookie", texts.number, value, _U64) | own << 64


def parse_flow(text: str, command: str = "add", port_number: texts.PortNumber | None = None) -> FlowMod:
    """A flow as ``ovs-ofctl add-flow`` takes it; ``port_number`` gives the number of a port's name, or None."""
    head, rest = _cut(text)
    settings: dict[str, Any] = {}
    match = _read_match(head, settings, port_number)
    return _finish(command, match, rest, settings, port_number)


def _cut(text: str) -> tuple[str, str | None]:
    """(what is before the actions, the actions or None)."""
    at = text.find(",actions=")
    if at >= 0 and "action" not in text[:at]:
        return text[:at], text[at + 9 :]
    found = _ACTIONS.search(text)
    return (text, None) if found is None else (text[: found.start()], text[found.end() :])


def _items(head: str) -> list[str]:
    if "=" in head and (" =" in head or "= " in head):
        head = _BLANK.sub("=", head)
    return head.replace(",", " ").split() if "(" not in head and '"' not in head else split(head)


def _read_match(head: str, settings: dict[str, Any], port_number: texts.PortNumber | None) -> Match:
    items: list[Item] = []
    for text in _items(head):
        word = _words.get(text)
        if word is None:
            name, _, given = text.partition("=")
            word = quick(name, given) or (_NOTHING if name in STATISTICS else _word(text, port_number))
        if len(word) == 5:
            items.append(word)
        else:
            name, number = word
            settings[name] = number | settings.get("flags", 0) if name == "flags" else number
    return combine(items)


def _actions_of(given: Any, match: Match, table: int, port_number: texts.PortNumber | None) -> tuple[Action, ...]:
    """Actions, by text or as records, checked for a match and a table."""
    key = (given, match.value & PROMISES, match.mask & PROMISES, table)
    try:
        found = _resolved.get(key)
    except TypeError:  # what cannot be a key is no action either, and resolve says so
        found = None
    if found is not None:
        return found
    actions, remember = _records(given, port_number)
    found = resolve(actions, match.value, match.mask, table)
    if remember:
        if len(_resolved) >= MOST_REMEMBERED:
            _resolved.clear()
        _resolved[key] = found
    return found


def _records(given: Any, port_number: texts.PortNumber | None) -> tuple[tuple[Action, ...], bool]:
    """(actions, whether they may be remembered)."""
    if not isinstance(given, str):
        return given, len(given) <= LONGEST_WORD
    try:
        return read_actions(given), len(given) <= LONGEST_ACTIONS
    except GraphError:
        if port_number is None:
            raise
    return read_actions(given, port_number), False


def _finish(
    command: str, match: Match, given: Any, settings: dict[str, Any], port_number: texts.PortNumber | None
) -> FlowMod:
    table = settings.get("table", ALL_TABLES)
    cookie = settings.get("cookie", 0)
    cookie_mask = cookie >> 64
    if command == "add":
        table = 0 if table == ALL_TABLES else table
        if table > MOST_TABLE:
            raise GraphError(f"table: a rule's table is 0 to {MOST_TABLE}, got {table}")
        if cookie_mask:
            raise GraphError("a new flow's cookie has no mask: write cookie=VALUE")
    deleting = command.startswith("delete")
    if (given is None) != deleting:
        raise GraphError(
            "a flow to be deleted has no actions: leave them out"
            if deleting
            else "no actions: write actions=..., or actions=drop"
        )
    actions = () if given is None else _actions_of(given, match, 0 if table == ALL_TABLES else table, port_number)
    get = settings.get
    return FlowMod(
        command, table, get("priority", DEFAULT_PRIORITY), match, actions, cookie & _U64, cookie_mask,
        get("idle_timeout", 0), get("hard_timeout", 0), get("importance", 0), get("flags", 0), get("out_port"),
        get("out_group"),
    )  # fmt: skip


def flow_mod(
    command: str,
    *,
    match: Mapping[str, Any] | str | Match | None = None,
    actions: Iterable[Action] | str | None = None,
    **settings: Any,
) -> FlowMod:
    """A flow of its parts: ``table=``, ``priority=``, ``match={"in_port": 2}``, ``actions=[wirespeed.output(1)]``, ...

    A match may be text too, and actions; ``cookie``, ``cookie_mask``, ``idle_timeout``, ``hard_timeout``, ``importance``,
    ``out_port``, ``out_group`` are numbers; ``send_flow_rem=True`` and the other flags are given by name.
    """
    if type(match) is dict or isinstance(match, Mapping):
        match = make(match)
    elif isinstance(match, str):
        inside: dict[str, Any] = {}
        match = _read_match(match, inside, None)
        if inside:
            raise GraphError(f"{next(iter(inside))} is not part of a match: give it as {next(iter(inside))}=...")
    if settings:
        settings = _checked(settings)
    if actions is not None and not isinstance(actions, str):
        actions = tuple(actions)
    return _finish(command, match or EVERYTHING, actions, settings, None)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, given in settings.items():
        if name in FLAGS:
            found["flags"] = found.get("flags", 0) | (FLAGS[name] if given else 0)
        elif name in NUMBERS or name in ("cookie", "cookie_mask", "flags", "out_port"):
            most = NUMBERS.get(name, 0x1F if name == "flags" else _U64)
            if given is None:
                continue
            if not isinstance(given, int) or not 0 <= given <= most:
                raise GraphError(f"{name} is a number from 0 to {most:#x}, got {given!r}")
            found[name] = found.get("flags", 0) | given if name == "flags" else given
        else:
            raise unknown(name, "part of a flow", ("match", *SETTINGS, "cookie_mask", "flags"))
    if "cookie_mask" in found:
        found["cookie"] = found.get("cookie", 0) | found["cookie_mask"] << 64
    return found


def parse_flows(
    text: str, where: str = "flows", port_number: texts.PortNumber | None = None, command: str = "add"
) -> Iterator[FlowMod]:
    """The flows of a file: a line each, ``#`` comments, and before a flow perhaps what to do with it (``delete ...``)."""
    for n, line in enumerate(text.splitlines(), 1):
        flow = line.partition("#")[0].strip()
        if not flow:
            continue
        first, _, rest = flow.partition(" ")
        try:
            yield parse_flow(rest, first, port_number) if first in COMMANDS else parse_flow(flow, command, port_number)
        except GraphError as error:
            raise GraphError(f"{where}, line {n}: {error}") from None


def flow_text(flow: Any) -> str:
    """A flow (a :class:`FlowMod` or a rule) as ``ovs-ofctl dump-flows --no-stats`` prints it."""
    head = [f"cookie={flow.cookie:#x}"] if flow.cookie else []
    head += [f"table={flow.table}"] if flow.table else []
    return _line(flow, head, [])


def stats_text(stats: Any) -> str:
    """A rule with its statistics, as ``ovs-ofctl dump-flows`` prints it."""
    rule = stats.rule
    head = [
        f"cookie={rule.cookie:#x}", f"duration={stats.duration:.3f}s", f"table={rule.table}",
        f"n_packets={stats.packets}", f"n_bytes={stats.bytes}",
    ]  # fmt: skip
    return _line(rule, head, [f"idle_age={int(stats.idle)}"])


def _line(flow: Any, head: list[str], ages: list[str]) -> str:
    parts = list(head)
    parts += [f"{name}={getattr(flow, name)}" for name in ("idle_timeout", "hard_timeout") if getattr(flow, name)]
    flags = [name for name, bit in FLAGS.items() if flow.flags & bit]
    text = ", ".join(parts) + (", " if parts else "")
    text += " ".join(flags) + (" " if flags else "")
    parts = [f"importance={flow.importance}"] if flow.importance else []
    text += "".join(f"{part}, " for part in parts + ages)
    match = ",".join(
        ([f"priority={flow.priority}"] if flow.priority != DEFAULT_PRIORITY else [])
        + ([str(flow.match)] if flow.match.mask else [])
    )
    return f"{text}{match}{' ' if match else ''}actions={actions_text(flow.actions)}"
