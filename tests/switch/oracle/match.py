"""Random matches: as text for ``ovs-ofctl``, and as what a packet must be to hit them."""

import random
from dataclasses import dataclass, field

from tests.switch.oracle.fields import FIELDS, KINDS, SPECIFIC, VLAN_PRESENT, Field, Flow, provided
from tests.switch.oracle.world import World, fits

Wanted = dict[str, tuple[int, int]]  # number of a flow: value and mask
FRAGS = {"no": (0, 3), "yes": (1, 1), "first": (1, 3), "later": (3, 3), "not_later": (0, 2)}
TCP_FLAGS = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"]
OLD_NAMES = {
    name: f"tp_{name[-3:]}" for name in FIELDS if name[:3] in ("tcp", "udp", "sct") and name[-3:] in ("src", "dst")
}
OLD_NAMES |= {"dl_src": "eth_src", "dl_dst": "eth_dst", "nw_src": "ip_src", "nw_dst": "ip_dst", "nw_ttl": "nw_ttl"}


@dataclass
class Match:
    """A match: its words, what a packet must be, and which fields it allows actions to use."""

    kind: str
    words: list[str] = field(default_factory=list)
    wanted: Wanted = field(default_factory=dict)
    tagged: bool = False  # it matches only packets with a tag
    icmp_type: int | None = None

    @property
    def text(self) -> str:
        """As ``ovs-ofctl`` reads it."""
        return ",".join(([self.kind] if self.kind else []) + self.words)

    @property
    def provides(self) -> set[str]:
        """The words that fields may need."""
        return provided(self.kind, vlan=self.tagged, icmp_type=self.icmp_type)

    def want(self, key: str, value: int, mask: int) -> bool:
        """Ask for bits of a number; False, and nothing is asked for, if other bits were asked for before."""
        old_value, old_mask = self.wanted.get(key, (0, 0))
        if (value ^ old_value) & mask & old_mask:
            return False
        self.wanted[key] = (value & mask | old_value & old_mask, mask | old_mask)
        return True

    def disjoint(self, other: "Match") -> bool:
        """Can no packet hit both?"""
        for key, (value, mask) in self.wanted.items():
            other_value, other_mask = other.wanted.get(key, (0, 0))
            if (value ^ other_value) & mask & other_mask:
                return True
        return False

    def hit(self, world: World) -> Flow:
        """A packet that hits, if the packet's kind leaves it a choice."""
        flow = world.flow(self.kind or None)
        for key, (value, mask) in self.wanted.items():
            flow[key] = flow.get(key, 0) & ~mask | value
        if "tci" in self.wanted:
            present = self.wanted["tci"][0] & VLAN_PRESENT
            flow["tpid"] = (flow.get("tpid") or world.rng.choice([0x8100, 0x88A8])) if present else 0
        if self.icmp_type is not None:
            flow.setdefault("nd_sll" if self.icmp_type == 135 else "nd_tll", world.value("nd_sll"))
        return flow


def generate(world: World, table: int) -> Match:
    """A random match for a rule of ``table``."""
    rng = world.rng
    match = Match(world.kind())
    ethertype, protocol = KINDS[match.kind]
    if ethertype is not None:
        match.want("dl_type", ethertype, 0xFFFF)
    if protocol is not None:
        match.want("nw_proto", protocol, 0xFF)
    if not match.kind and rng.random() < 0.3:
        number = world.flow("")["dl_type"]
        if number >= 0x600:
            match.words.append(f"dl_type={number:#06x}")
            match.want("dl_type", number, 0xFFFF)
    if match.kind == "icmp6" and rng.random() < 0.6:
        match.icmp_type = rng.choice([135, 136])
        match.words += [f"icmp_type={match.icmp_type}", "icmp_code=0"]
        match.want("tp_src", match.icmp_type, 0xFF)
        match.want("tp_dst", 0, 0xFF)
    if rng.random() < max(0.15, world.tagged * 0.6):
        _vlan(world, match)
    if ethertype in (0x0800, 0x86DD) and rng.random() < 0.1:
        word, (value, mask) = rng.choice(list(FRAGS.items()))
        if match.want("frag", value, mask):
            match.words.append(f"ip_frag={word}")
    usable = [field for field in FIELDS.values() if fits(field, match.provides) and field.key != "tci"]
    special = [field for field in usable if field.needs]
    special += 2 * [field for field in usable if field.needs in SPECIFIC]
    written = [field for field in usable if "reg" in field.name or field.name == "metadata"]
    if table and rng.random() < 0.5:
        special += written
    elif not table and rng.random() < 0.9:
        usable = [field for field in usable if field not in written]
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2] if table else [0, 0, 1, 1, 2, 3, 5])):
        _add(world, match, rng.choice(special if special and rng.random() < 0.7 else usable))
    rng.shuffle(match.words)
    match.words.sort(key=lambda word: not word.startswith(("icmp_type", "icmp_code")))
    return match


def _add(world: World, match: Match, field: Field) -> None:
    rng = world.rng
    if field.key == "nw_proto" and KINDS[match.kind][1] is not None:
        return
    if any(word.startswith((field.name + "=", OLD_NAMES.get(field.name, "-") + "=")) for word in match.words):
        return
    overlapping = {"xreg1": ("xxreg1",), "xxreg1": ("xreg1",)}
    if any(name in match.wanted for name in overlapping.get(field.key, ())):
        return
    mask = world.mask(field)
    value = world.part(field) & mask
    if not match.want(field.key, value << field.shift, mask << field.shift):
        return
    name = OLD_NAMES.get(field.name, field.name) if rng.random() < 0.5 else field.name
    if field.name == "tcp_flags" and rng.random() < 0.5:
        match.words.append(f"tcp_flags={_flags(value & 0x1FF, mask & 0x1FF)}")
        match.wanted["tcp_flags"] = (value & 0x1FF, mask & 0x1FF)
    else:
        match.words.append(f"{name}={field.value(value, mask)}")


def _flags(value: int, mask: int) -> str:
    return (
        "".join(("+" if value >> i & 1 else "-") + name for i, name in enumerate(TCP_FLAGS) if mask >> i & 1) or "0/0"
    )


def _vlan(world: World, match: Match) -> None:
    """Ask for a tag, for none, or for bits of one."""
    rng = world.rng
    tci = world.value("tci") | VLAN_PRESENT
    vid, pcp = tci & 0xFFF, tci >> 13
    forms: list[tuple[str, int, int]] = [
        (f"dl_vlan={vid}", tci & 0x1FFF, 0x1FFF),
        (f"dl_vlan={vid},dl_vlan_pcp={pcp}", tci, 0xFFFF),
        (f"dl_vlan_pcp={pcp}", tci & 0xF000, 0xF000),
        (f"vlan_tci={tci:#06x}", tci, 0xFFFF),
        ("vlan_tci=0x1000/0x1000", 0x1000, 0x1000),
        ("vlan_tci=0", 0, 0xFFFF),
        ("vlan_tci=0/0x1fff", 0, 0x1FFF),
        (f"vlan_tci={tci & 0xF00F:#x}/0xf00f", tci & 0xF00F, 0xF00F),
        (f"vlan_vid={tci & 0x1FFF:#06x}", tci & 0x1FFF, 0x1FFF),
        ("vlan_vid=0x1000/0x1000", 0x1000, 0x1000),
        (f"vlan_vid={tci & 0x1007:#06x}/0x1007", tci & 0x1007, 0x1007),
        (f"dl_vlan={vid},vlan_pcp={pcp}", tci, 0xFFFF),
        ("dl_vlan=0xffff", 0, 0xFFFF),
    ]
    text, value, mask = rng.choice(forms)
    if match.want("tci", value, mask):
        match.words.append(text)
        match.tagged = bool(value & mask & VLAN_PRESENT)


def variant(rng: random.Random, flow: Flow, match: Match) -> Flow:
    """A packet that nearly hits: one of the bits that the match asks for is another."""
    changed = dict(flow)
    keys = [key for key, (_, mask) in match.wanted.items() if mask and key not in ("dl_type", "in_port", "frag")]
    if keys:
        key = rng.choice(sorted(keys))
        mask = match.wanted[key][1]
        bits = [i for i in range(mask.bit_length()) if mask >> i & 1]
        changed[key] = changed.get(key, 0) ^ 1 << rng.choice(bits)
    return changed
