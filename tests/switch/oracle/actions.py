"""Random actions that a match allows, as text for ``ovs-ofctl``.

A rule's actions are written one by one while what they do to the packet's shape is followed (tags, EtherType), since each
may use only headers that are surely there.  A switch refuses others, and this is not exact: what it refuses is a case too.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.switch.oracle.case import PORTS
from tests.switch.oracle.fields import FIELDS, KINDS, SPECIFIC, Field, provided
from tests.switch.oracle.match import Match
from tests.switch.oracle.world import World, fits

NOWHERE = (9, 300)  # ports that no switch of a case has
UNREADABLE = (
    "dl_vlan",
    "dl_vlan_pcp",
    "vlan_vid",
    "xxreg1",
)  # `load` and `move` do not take them, or not all their bits


@dataclass
class Shape:
    """What is surely known of a packet: its kind, its number of tags, the words that fields may need."""

    kind: str
    tags: int
    icmp_type: int | None = None
    fields: list[Field] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed()

    def changed(self) -> None:
        """Find again which fields may be used."""
        words = provided(self.kind, vlan=self.tags > 0, icmp_type=self.icmp_type)
        self.fields = [field for field in FIELDS.values() if fits(field, words)]

    def become(self, kind: str) -> None:
        """The EtherType is another, and nothing is known behind it."""
        self.kind, self.icmp_type = kind, None
        self.changed()

    def tag(self, n: int) -> None:
        """So many tags more, or fewer."""
        self.tags = max(0, self.tags + n)
        self.changed()


class Writer:
    """Writes actions of one rule or bucket."""

    def __init__(self, world: World, shape: Shape, tables: list[int], groups: list[int]) -> None:
        self.world, self.rng, self.shape = world, world.rng, shape
        self.later = tables  # which may be gone to
        self.groups = groups

    # Each of these returns an action, or nothing when there is none.

    def output(self) -> str:
        """To a port, in one of the ways there are."""
        rng = self.rng
        port = rng.choice(NOWHERE) if rng.random() < 0.03 else rng.choice(PORTS[:6] * 3 + PORTS)
        how = rng.random()
        if how < 0.60:
            return rng.choice([f"output:{port}", str(port)])
        if how < 0.68:
            return rng.choice(["in_port", "IN_PORT", "output:IN_PORT"])
        if how < 0.74:
            return rng.choice(["ALL", "all", "FLOOD", "flood"])
        if how < 0.84 and self.world.cuts:
            return f"output(port={port},max_len={rng.choice([14, 20, 34, 54, 60, 64, 1500])})"
        if how < 0.94:
            register = rng.choice(["reg0", "reg1", "reg2"])
            return f"load:{port:#x}->{register}[0..15],output:{register}[0..15]"
        if how < 0.97:
            return f"output:{rng.choice(['reg0[0..15]', 'reg1[]', 'reg2[3..18]', 'metadata[0..15]'])}"
        return rng.choice(["LOCAL", "controller", "controller(max_len=64)"])

    def plain_output(self) -> str:
        """To a port, in one of the ways that an action set allows."""
        rng = self.rng
        if rng.random() < 0.01:
            return self.output()
        return rng.choice([f"output:{rng.choice(PORTS)}"] * 4 + ["in_port", "ALL", "FLOOD"])

    def set_field(self) -> str:
        """A field gets a value, or some of its bits do."""
        rng = self.rng
        usable = [field for field in self.shape.fields if field.writable and field.name not in ("in_port", "vlan_tci")]
        usable = [field for field in usable if field.name != "vlan_vid" or self.shape.tags or rng.random() < 0.01]
        if rng.random() < 0.6:
            usable = [field for field in usable if field.needs or field.key[:2] == "dl"] or usable
            usable += 2 * [field for field in usable if field.needs in SPECIFIC]
        chosen = rng.choice(usable)
        value = self.world.part(chosen)
        if chosen.name == "vlan_vid":
            return f"set_field:{value | 0x1000:#x}->vlan_vid"
        if chosen.bits <= 64 and rng.random() < 0.35:
            first, last = self.span(chosen)
            wide = last - first + 1
            return f"load:{value & (1 << wide) - 1:#x}->{chosen.name}[{first}..{last}]"
        mask = self.world.mask(chosen) if chosen.masks and rng.random() < 0.4 else chosen.full
        return f"set_field:{chosen.value(value & mask, mask)}->{chosen.name}"

    def span(self, chosen: Field, wide: int = 0) -> tuple[int, int]:
        """First and last bit of a part of a field, ``wide`` bits or any number."""
        rng = self.rng
        wide = wide or rng.choice([chosen.bits, chosen.bits, rng.randint(1, chosen.bits)])
        first = rng.randint(0, chosen.bits - wide)
        return first, first + wide - 1

    def modify(self) -> str:
        """One of the older actions for single fields."""
        rng, world, fields = self.rng, self.world, {field.name for field in self.shape.fields}
        forms: list[Callable[[], str]] = [
            lambda: f"mod_dl_src:{FIELDS['dl_src'].value(world.value('dl_src'))}",
            lambda: f"mod_dl_dst:{FIELDS['dl_dst'].value(world.value('dl_dst'))}",
        ]
        if "nw_src" in fields:
            forms += [
                lambda: f"mod_nw_src:{FIELDS['nw_src'].value(world.value('nw_src'))}",
                lambda: f"mod_nw_dst:{FIELDS['nw_dst'].value(world.value('nw_dst'))}",
            ]
        if "nw_ttl" in fields:
            forms += [
                lambda: f"mod_nw_tos:{world.value('tos') & 0xFC}",
                lambda: f"mod_nw_ecn:{world.value('tos') & 3}",
                lambda: f"mod_nw_ttl:{world.value('nw_ttl')}",
            ]
        if fields & {"tcp_src", "udp_src", "sctp_src"}:
            forms += [
                lambda: f"mod_tp_src:{world.value('tp_src')}",
                lambda: f"mod_tp_dst:{world.value('tp_dst')}",
            ] * 2
        return rng.choice(forms)()

    def move(self) -> str:
        """Bits of one field into another."""
        rng = self.rng
        readable = [field for field in self.shape.fields if field.name not in UNREADABLE and field.bits <= 64]
        writable = [field for field in readable if field.writable and field.name not in ("in_port", "vlan_tci")]
        source, target = rng.choice(readable), rng.choice(writable)
        wide = min(source.bits, target.bits)
        wide = rng.choice([wide, wide, rng.randint(1, wide)])
        a, b = self.span(source, wide), self.span(target, wide)
        return f"move:{source.name}[{a[0]}..{a[1]}]->{target.name}[{b[0]}..{b[1]}]"

    def register(self) -> str:
        """Something for a later table to match."""
        rng = self.rng
        name = rng.choice(["reg0", "reg1", "reg2", "reg7", "reg15", "metadata", "xreg1", "xxreg1"])
        value = self.world.value(name)
        if name == "xxreg1" or rng.random() < 0.5:
            return f"set_field:{value:#x}->{name}"
        return f"load:{value:#x}->{name}[]"

    def vlan(self) -> str:
        """Tags come, go or change."""
        rng, shape = self.rng, self.shape
        if self.world.cuts:
            return ""
        tci = self.world.value("tci")
        how = rng.random()
        if shape.tags and how < 0.35:
            shape.tag(-1)
            return rng.choice(["pop_vlan", "strip_vlan"])
        if how < 0.65:
            if shape.tags > 1 and rng.random() < 0.95:
                return ""
            shape.tag(1)
            return f"push_vlan:{rng.choice(['0x8100', '0x8100', '0x88a8'])}"
        if how < 0.72:
            shape.tag(-shape.tags)
            if rng.random() < 0.7:
                shape.tag(1)
                return f"load:{tci | 0x1000:#x}->vlan_tci[]"
            return "load:0->vlan_tci[]"
        shape.tag(0 if shape.tags else 1)
        return f"mod_vlan_vid:{tci & 0xFFF}" if how < 0.9 else f"mod_vlan_pcp:{tci >> 13}"

    def mpls(self) -> str:
        """Labels come, go or change."""
        rng, shape, world = self.rng, self.shape, self.world
        if world.cuts:
            return ""
        how = rng.random()
        if KINDS[shape.kind][0] in (0x8847, 0x8848) and how < 0.8:
            if how < 0.35:
                kind = rng.choice(["ip", "ipv6", "mpls", ""])
                shape.become(kind)
                return f"pop_mpls:{KINDS[kind][0] or 0x88B6:#06x}"
            label, tc, ttl = (world.value(f"mpls_{name}") for name in ("label", "tc", "ttl"))
            forms = [f"set_mpls_label:{label}", f"set_mpls_tc:{tc}", f"set_mpls_ttl:{ttl}", "dec_mpls_ttl"]
            return rng.choice([*forms, "dec_mpls_ttl", f"set_field:{label}->mpls_label", f"set_field:{tc}->mpls_tc"])
        kind = rng.choice(["mpls", "mpls", "mplsm"])
        shape.become(kind)
        return f"push_mpls:{KINDS[kind][0]:#06x}"

    def ttl(self) -> str:
        """A hop less."""
        return "dec_ttl" if KINDS[self.shape.kind][0] in (0x0800, 0x86DD) else ""

    def resubmit(self) -> str:
        """Another table, and back."""
        rng = self.rng
        if not self.later:
            return ""
        table = rng.choice(self.later)
        if rng.random() < 0.25:
            return f"resubmit({rng.choice(self.world.in_ports)},{table})"
        return f"resubmit(,{table})"

    def group(self) -> str:
        """A group."""
        return f"group:{self.rng.choice(self.groups)}" if self.groups else ""

    def misc(self) -> str:
        """What fits nowhere else: the packet forgets where it came from."""
        return self.rng.choice(
            ["load:0->in_port[]", "set_field:0->in_port", f"load:{self.rng.choice(PORTS)}->in_port[]"]
        )

    # Lists of actions.

    def some(self, ways: dict[Callable[[], str], float], n: int) -> list[str]:
        """``n`` actions, each by one of the ways."""
        return [text for way in self.rng.choices(list(ways), list(ways.values()), k=n) if (text := way())]

    def edits(self) -> dict[Callable[[], str], float]:
        """Ways to change a packet, with their weights."""
        return {
            self.set_field: 4,
            self.modify: 2,
            self.move: 2,
            self.register: 2,
            self.vlan: 2.5,
            self.mpls: 0.8,
            self.ttl: 1.5,
            self.misc: 0.2,
        }

    def apply(self) -> list[str]:
        """A list of actions that are done at once."""
        rng = self.rng
        ways = {**self.edits(), self.output: 5, self.resubmit: 3, self.group: 1.5}
        return self.some(ways, rng.choice([1, 1, 2, 2, 3, 4, 6, 8]))

    def bucket(self) -> list[str]:
        """What a group's bucket does."""
        done = self.some(self.edits(), self.rng.choice([0, 0, 1, 1, 2, 3]))
        return done + self.some({self.output: 6, self.resubmit: 1, self.group: 1}, self.rng.choice([1, 1, 1, 2]))


def generate(world: World, match: Match, tables: list[int], later: list[int], groups: list[int]) -> str:
    """The actions of a rule: those done at once, and instructions for the end and for the next table.

    ``tables`` are those it may resubmit to, ``later`` those behind its own.
    """
    rng = world.rng
    if rng.random() < 0.05:
        return "drop"
    writer = Writer(world, Shape(match.kind, int(match.tagged), match.icmp_type), tables, groups)
    done = writer.apply() if rng.random() < 0.9 else []
    if not any(word in " ".join(done) for word in ("output", "resubmit", "group")) and rng.random() < 0.7:
        done.append(writer.output())
    if rng.random() < 0.06:
        done.append("clear_actions")
    if rng.random() < 0.18:
        kept = writer.some(writer.edits(), rng.choice([0, 1, 1, 2, 3]))
        kept += writer.some({writer.plain_output: 4, writer.group: 1}, rng.choice([0, 1, 1, 2]))
        done.append(f"write_actions({','.join(kept)})")
    if rng.random() < 0.08:
        value, mask = world.value("metadata"), rng.choice([0xFFFFFFFFFFFFFFFF, rng.getrandbits(64)])
        done.append(f"write_metadata:{value & mask:#x}/{mask:#x}")
    if later and rng.random() < 0.45:
        done.append(f"goto_table:{rng.choice(later)}")
    return ",".join(done) or "drop"


def generate_group(world: World, number: int, tables: list[int], groups: list[int]) -> str:
    """A group: of type all or indirect, or of a type that picks one bucket, with one that can be picked."""
    rng: random.Random = world.rng
    kind = rng.choice(["all", "all", "indirect", "ff", "ff", "select"])
    buckets = []
    n = 1 if kind == "indirect" else rng.choice([1, 2, 2, 3, 4])
    live = rng.randrange(n)
    for i in range(n):
        shape = Shape(world.rng.choice(["", "", world.kind()]), rng.choice([0, 0, 1]))
        done = ",".join(Writer(world, shape, tables, groups).bucket())
        watch = ""
        if kind == "ff":
            watch = f"watch_port:{rng.choice(PORTS)},"
        elif kind == "select":
            watch = f"weight:{rng.randint(1, 9)},watch_port:{rng.choice(PORTS[:6]) if i == live else rng.choice(PORTS[6:])},"
        buckets.append(f"bucket={watch}actions={done}")
    return f"group_id={number},type={kind}," + ",".join(buckets)
