"""Groups as text, as ``ovs-ofctl add-group`` reads them and ``dump-groups`` prints them.

Source: ovs-ofctl(8), "Group Syntax"; OpenFlow 1.5.1, 7.3.4.3.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from wirespeed.errors import GraphError
from wirespeed.switch.actions.base import Action, actions_text
from wirespeed.switch.actions.instructions import resolve_bucket
from wirespeed.switch.fields import ANY, LOCAL
from wirespeed.switch.groups import MOST_ID, Bucket, Group
from wirespeed.switch.match import unknown
from wirespeed.switch.text import value as texts
from wirespeed.switch.text.action import read_actions
from wirespeed.switch.text.split import name_and_argument, split

KINDS = {"all": "all", "select": "select", "indirect": "indirect", "ff": "ff", "fast_failover": "ff"}
MOST_BUCKET = 0xFFFFFF00
_BUCKET = re.compile(r"(?:^|[\s,])bucket\s*=")
_SETTINGS = ("group_id", "type", "selection_method")
_PARTS = ("weight", "watch_port", "watch_group", "bucket_id", "actions")


def parse_group(text: str, port_number: texts.PortNumber | None = None) -> Group:
    """A group such as ``group_id=1,type=select,bucket=weight:2,actions=output:1,bucket=output:2``."""
    head, *rest = _BUCKET.split(text)
    settings: dict[str, str] = {}
    for one in split(head):
        name, _, given = name_and_argument(one)
        if name == "fields":
            raise GraphError("fields: a hash of chosen fields comes later; leave it and selection_method out")
        if name not in _SETTINGS:
            raise unknown(name, "part of a group", (*_SETTINGS, "bucket"))
        settings[name] = given
    for name in ("group_id", "type"):
        if name not in settings:
            raise GraphError(f"a group needs {name}: write group_id=NUMBER,type=TYPE,bucket=...")
    if settings.get("selection_method", "dp_hash") != "dp_hash":
        raise GraphError("selection_method: only dp_hash yet, a hash of what makes a flow; leave it out")
    kind = KINDS.get(settings["type"])
    if kind is None:
        raise unknown(settings["type"], "type of group", KINDS)
    try:
        number = texts.number(settings["group_id"], MOST_ID)
    except texts.BadValueError as error:
        raise GraphError(f"group_id: {error}") from None
    return Group(number, kind, numbered(tuple(_bucket(one, kind, port_number) for one in rest)))


def _bucket(text: str, kind: str, port_number: texts.PortNumber | None) -> Bucket:
    parts: dict[str, str] = {}
    rest = text.strip().strip(",")
    while rest:
        found = re.match(r"(weight|watch_port|watch_group|bucket_id|actions?)\s*[:=]\s*", rest)
        if found is None:
            break
        name = found.group(1)
        if name.startswith("action"):
            return _made(rest[found.end() :], parts, kind, port_number)
        given, _, rest = rest[found.end() :].replace(" ", ",").partition(",")
        parts[name], rest = given, rest.lstrip(" ,")
    if not rest:
        raise GraphError("a bucket needs actions: write bucket=actions=drop for none")
    return _made(rest, parts, kind, port_number)


def _made(text: str, parts: dict[str, str], kind: str, port_number: texts.PortNumber | None) -> Bucket:
    try:
        weight = texts.number(parts.get("weight", "1"), 0xFFFF)
        id = texts.number(parts["bucket_id"], MOST_BUCKET) if "bucket_id" in parts else None
        port = texts.port(parts["watch_port"], port_number) if "watch_port" in parts else None
        group = texts.number(parts["watch_group"], MOST_ID) if "watch_group" in parts else None
    except texts.BadValueError as error:
        raise GraphError(f"bucket: {error}") from None
    if "weight" in parts and kind != "select" and weight:
        raise GraphError("only buckets of select groups have a weight")
    if port == LOCAL or (port is not None and port > texts.MOST_PORT and port != ANY):
        raise GraphError(f"watch_port: a bucket watches a port by its number, got {parts['watch_port']}")
    actions: tuple[Action, ...] = resolve_bucket(read_actions(text, port_number))
    return Bucket(actions, weight if kind == "select" else 1, None if port == ANY else port, group, id)


def numbered(buckets: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
    """The buckets, each with an id: those without one get the lowest that are free."""
    taken = [bucket.id for bucket in buckets if bucket.id is not None]
    if len(set(taken)) < len(taken):
        raise GraphError(f"two buckets of a group have the same bucket_id: {sorted(taken)}")
    free = (id for id in range(len(buckets) + len(taken)) if id not in set(taken))
    return tuple(bucket if bucket.id is not None else replace(bucket, id=next(free)) for bucket in buckets)


def parse_groups(text: str, where: str = "groups", port_number: texts.PortNumber | None = None) -> Iterator[Group]:
    """The groups of a file: a line each, and ``#`` comments."""
    for n, line in enumerate(text.splitlines(), 1):
        group = line.partition("#")[0].strip()
        if not group:
            continue
        try:
            yield parse_group(group, port_number)
        except GraphError as error:
            raise GraphError(f"{where}, line {n}: {error}") from None


def group_text(group: Group) -> str:
    """A group as ``ovs-ofctl dump-groups`` prints it."""
    parts = [f"group_id={group.id}", f"type={group.kind}"]
    for bucket in numbered(group.buckets):
        inner = [f"bucket_id:{bucket.id}"]
        inner += [f"weight:{bucket.weight}"] if group.kind == "select" and bucket.weight != 1 else []
        inner += [f"watch_port:{texts.port_text(bucket.watch_port)}"] if bucket.watch_port is not None else []
        inner += [f"watch_group:{bucket.watch_group}"] if bucket.watch_group is not None else []
        parts.append(f"bucket={','.join(inner)},actions={actions_text(bucket.actions)}")
    return ",".join(parts)
