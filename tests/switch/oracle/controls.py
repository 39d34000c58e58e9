"""Random changes to rules, one after the other as ``ovs-ofctl`` makes them, and what rules and counters there are then.

They are about which rules a change means: loose and strict, by cookie, by output; what it keeps of them; what it refuses.
"""

import random
from dataclasses import dataclass
from typing import Any, Protocol, Self

from tests.ovs import OpenVSwitch, RefusedError
from tests.switch.oracle.case import Refused
from tests.switch.oracle.packets import frame

GROUPS = "group_id=1,type=all,bucket=actions=output:4\ngroup_id=2,type=all,bucket=actions=drop"
MATCHES = [
    "",
    "in_port=1",
    "in_port=2",
    "ip",
    "tcp",
    "udp",
    "tcp,in_port=1",
    "ip,nw_dst=10.0.0.0/8",
    "ip,nw_dst=10.0.0.0/24",
    "tcp,nw_dst=10.0.0.2,tp_dst=80",
    "tcp,tp_dst=80",
    "tcp,tp_dst=0x50/0xfff0",
    "ip,nw_src=10.0.0.1",
    "arp",
    "dl_vlan=5",
    "vlan_tci=0x1000/0x1000",
    "vlan_tci=0",
    "dl_dst=02:00:00:00:00:0b",
    "dl_dst=02:00:00:00:00:00/ff:00:00:00:00:00",
    "ipv6",
]
ACTIONS = [
    "drop",
    "output:1",
    "output:2",
    "output:3",
    "output:2,output:3",
    "group:1",
    "group:2,output:2",
    "goto_table:1",
    "mod_dl_src:02:00:00:00:00:0c,output:2",
    "resubmit(,1)",
    "normal",
    "in_port",
]
FRAMES = [
    (1, frame("tcp")),
    (2, frame("tcp", tp_dst=81)),
    (1, frame("udp", nw_dst="10.1.0.0")),
    (1, frame("arp")),
    (2, frame("tcp6")),
    (1, frame("udp", vlan=5)),
]


@dataclass(frozen=True)
class Change:
    """A command of ``ovs-ofctl`` on rules: add-flow, mod-flows or del-flows."""

    command: str
    strict: bool
    text: str


Rules = list[
    tuple[int, int, str]
]  # packets, bytes, and the rule as dump-flows prints it without them; sorted by the text


class Table(Protocol):
    """Whatever such changes can be made to; between two of them each of FRAMES comes in once."""

    def change(self, change: Change) -> None:
        """Make a change, or raise Refused."""

    def rules(self) -> Rules:
        """All rules, with exact counters."""


@dataclass(frozen=True)
class Sequence:
    """Changes, whether each is accepted, and the rules at the end."""

    changes: tuple[Change, ...]
    accepted: tuple[bool, ...]
    rules: tuple[tuple[int, int, str], ...]

    def to_json(self) -> list[Any]:
        """As JSON."""
        return [
            [[c.command, int(c.strict), c.text, int(ok)] for c, ok in zip(self.changes, self.accepted)],
            [list(rule) for rule in self.rules],
        ]

    @classmethod
    def from_json(cls, said: list[Any]) -> Self:
        """What ``to_json`` wrote."""
        changes, rules = said
        return cls(
            tuple(Change(command, bool(strict), text) for command, strict, text, _ in changes),
            tuple(bool(ok) for _, _, _, ok in changes),
            tuple((packets, size, text) for packets, size, text in rules),
        )


def generate(rng: random.Random) -> list[Change]:
    """A random sequence: more additions at first, then changes of what is there."""
    known: list[str] = []
    changes = []
    for i in range(rng.choice([4, 6, 9, 12])):
        how = rng.random()
        match = rng.choice(known) if known and rng.random() < 0.6 else rng.choice(MATCHES)
        words = [match] if match else []
        words += [f"table={rng.choice([0, 0, 1])}"] if rng.random() < 0.6 else []
        if how < max(0.3, 0.9 - 0.2 * i):
            known.append(match)
            words += [f"priority={rng.choice([1, 2, 3])}"] if rng.random() < 0.8 else []
            words += [f"cookie={rng.choice(['0x1', '0x2', '0xff'])}"] if rng.random() < 0.5 else []
            words += [word for word in ("check_overlap", "reset_counts", "send_flow_rem") if rng.random() < 0.1]
            words += [f"{kind}_timeout={rng.choice([500, 60000])}" for kind in ("idle", "hard") if rng.random() < 0.1]
            changes.append(Change("add-flow", False, ",".join([*words, f"actions={rng.choice(ACTIONS)}"])))
            continue
        strict = rng.random() < 0.4
        words += [f"priority={rng.choice([1, 2, 3])}"] if strict and rng.random() < 0.9 else []
        words += (
            [rng.choice(["cookie=0x1/-1", "cookie=0x1/0x1", "cookie=0xff/0xf0", "cookie=0/0xff"])]
            if rng.random() < 0.3
            else []
        )
        if how < 0.75:
            words += ["reset_counts"] if rng.random() < 0.2 else []
            changes.append(Change("mod-flows", strict, ",".join([*words, f"actions={rng.choice(ACTIONS)}"])))
        else:
            words += (
                [rng.choice(["out_port=2", "out_port=3", "out_group=1", "out_group=2"])] if rng.random() < 0.3 else []
            )
            changes.append(Change("del-flows", strict, ",".join(words)))
    return changes


def play(table: Table, changes: list[Change], send: Any) -> Sequence:
    """Make all changes, with FRAMES sent behind each; what was refused, and what is there at the end."""
    accepted = []
    for change in changes:
        try:
            table.change(change)
            accepted.append(True)
        except Refused:
            accepted.append(False)
        send(FRAMES)
    return Sequence(tuple(changes), tuple(accepted), tuple(table.rules()))


class RealTable:
    """The rules of a real Open vSwitch, none at first, with two groups to speak of."""

    def __init__(self, ovs: OpenVSwitch) -> None:
        self.ovs = ovs
        ovs.program("", GROUPS)

    def change(self, change: Change) -> None:
        """Make a change, or raise Refused."""
        try:
            self.ovs.change(change.command, change.text, strict=change.strict)
        except RefusedError as error:
            raise Refused(str(error)) from None

    def rules(self) -> Rules:
        """All rules, with exact counters."""
        return self.ovs.counters()
