"""What one random case talks about: a few values of each number, so that rules overlap and packets hit them."""

import random

from tests.switch.oracle.case import PORTS
from tests.switch.oracle.fields import KINDS, PROTOCOLS, VLAN_PRESENT, Field, Flow, provided
from tests.switch.oracle.frames import LATER

# Kinds of packet, with how often they are drawn. What has no word of its own in KINDS is written as ``dl_type=``.
WEIGHTS = {
    "tcp": 6,
    "udp": 6,
    "tcp6": 4,
    "udp6": 3,
    "ip": 2,
    "ipv6": 2,
    "arp": 3,
    "rarp": 1,
    "icmp": 2,
    "icmp6": 3,
    "sctp": 1,
    "sctp6": 1,
    "mpls": 3,
    "mplsm": 1,
    "": 2,
}
WIDTHS = {
    **{"dl_dst": 48, "dl_src": 48, "arp_sha": 48, "arp_tha": 48, "nd_sll": 48, "nd_tll": 48},
    **{"nw_src": 32, "nw_dst": 32, "arp_spa": 32, "arp_tpa": 32},
    **{"ipv6_src": 128, "ipv6_dst": 128, "nd_target": 128, "ipv6_label": 20},
    **{"tos": 8, "tp_src": 16, "tp_dst": 16, "tcp_flags": 12, "metadata": 64, "tci": 16, "inner_tci": 16},
    **{"mpls_label": 20, "mpls_tc": 3, "mpls_bos": 1, "mpls_ttl": 8, "nw_ttl": 8, "arp_op": 8, "nw_proto": 8},
    **{f"reg{i}": 32 for i in (0, 1, 2, 7, 15)},
    **{"xreg1": 64, "xxreg1": 128},
}
# Values at which something else happens than at most others.
SPECIAL = {
    "nw_ttl": [0, 1, 2, 64, 255],
    "mpls_ttl": [0, 1, 2, 64, 255],
    "mpls_label": [0, 2, 3, 16, 100, 0xFFFFF],
    "arp_op": [1, 2, 3],
    "tci": [0x1000, 0x1001, 0x1FFF, 0x1064, 0xF064, 0x3064],
    "inner_tci": [0x0000, 0x0001, 0x1064, 0x2064, 0xF0C8],
    "tcp_flags": [0x002, 0x012, 0x010, 0x018, 0x011, 0x004, 0xFFF],
    "tos": [0, 1, 2, 3, 0x28, 0xB8, 0xFF],
    "dl_dst": [0xFFFFFFFFFFFF, 0x01005E000001, 0x333300000001],
    "tp_src": [0, 53, 80, 443, 0xFFFF],
    "tp_dst": [0, 53, 80, 443, 0xFFFF],
}
ODD_TYPES = [0x88B6, 0x88CC, 0x0000, 0x86DE, 0x0600]
ODD_PROTOCOLS = [2, 47, 50, 51, 0, 59, 255]


class World:
    """Values for one case."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        self.kinds = rng.choices(kinds, weights, k=rng.choice([1, 2, 2, 3, 4]))
        self.tagged = rng.choice([0.0, 0.3, 0.5, 1.0])  # how often a packet has a tag, and another
        self.values = {key: self._palette(key, bits) for key, bits in WIDTHS.items()}
        # Open vSwitch cuts a copy before it does what was pushed or popped since the last output: one or the other.
        self.cuts = rng.random() < 0.3
        self.in_ports = rng.sample(PORTS[:6], rng.randint(1, 3))

    def _palette(self, key: str, bits: int) -> list[int]:
        """Two to four values, some of them a bit away from another."""
        rng = self.rng
        if "reg" in key or key == "metadata":  # which are zero until a rule writes them
            return [0, 0, rng.getrandbits(bits), rng.choice([1, 5, 1 << rng.randrange(bits)])]
        found = [rng.getrandbits(bits)]
        for _ in range(rng.randint(1, 3)):
            how = rng.random()
            if how < 0.4:
                found.append(found[-1] ^ 1 << rng.randrange(bits))
            elif how < 0.7 and key in SPECIAL:
                found.append(rng.choice(SPECIAL[key]))
            else:
                found.append(rng.getrandbits(bits))
        if key in ("dl_src", "dl_dst") and rng.random() < 0.8:
            found = [value & ~(1 << 40) for value in found]  # unicast
        return found

    def value(self, key: str) -> int:
        """One of the case's values for a number of a flow; now and then any."""
        rng = self.rng
        if rng.random() < 0.05:
            return rng.getrandbits(WIDTHS[key])
        return rng.choice(self.values[key])

    def part(self, field: Field) -> int:
        """One of the case's values for a field."""
        if field.name == "in_port":
            return self.rng.choice(self.in_ports)
        if field.key in ("tci", "inner_tci"):
            return (self.value(field.key) | VLAN_PRESENT) >> field.shift & field.full
        return self.value(field.key) >> field.shift & field.full

    def flow(self, kind: str | None = None) -> Flow:
        """A packet of some kind, untouched by any rule."""
        rng = self.rng
        kind = rng.choice(self.kinds) if kind is None else kind
        flow: Flow = {key: self.value(key) for key in WIDTHS if key not in ("tci", "inner_tci", "nd_sll", "nd_tll")}
        flow["in_port"] = rng.choice(self.in_ports)
        flow["payload"], flow["seed"] = rng.choice([0, 0, 1, 2, 6, 7, 16, 27]), rng.randrange(256)
        if rng.random() < self.tagged:
            flow["tpid"], flow["tci"] = rng.choice([0x8100, 0x8100, 0x88A8]), self.value("tci")
            if rng.random() < self.tagged / 2:
                flow["inner_tpid"], flow["inner_tci"] = rng.choice([0x8100, 0x8100, 0x88A8]), self.value("inner_tci")
        ethertype, protocol = KINDS[kind]
        flow["dl_type"] = rng.choice(ODD_TYPES) if ethertype is None else ethertype
        if flow["dl_type"] < 0x600 and rng.random() < 0.5:
            flow["snap"] = rng.choice([0x0800, 0x88B6, 0x0806])
        self._inside(flow, kind, protocol)
        return flow

    def _inside(self, flow: Flow, kind: str, protocol: int | None) -> None:
        rng = self.rng
        if kind in ("mpls", "mplsm"):
            depth = rng.choice([1, 1, 2, 3])
            flow["mpls_bos"] = int(depth == 1)
            for name in ("mpls2", "mpls3")[: depth - 1]:
                flow[name] = self.value("mpls_label") << 12 | 5 << 8 | self.value("mpls_ttl")
            last = ("mpls2", "mpls3")[depth - 2] if depth > 1 else ""
            if last:
                flow[last] |= 1 << 8
                if depth == 3:
                    flow["mpls2"] &= ~(1 << 8)
            flow["mpls_inner"] = rng.choice([0x0800, 0x0800, 0x86DD, 0])
            protocol = rng.choice([6, 17])
        if protocol is None:
            protocol = rng.choice([*PROTOCOLS.values(), *ODD_PROTOCOLS])
        flow["nw_proto"] = protocol
        if rng.random() < 0.05:
            flow["arp_op"] |= 0x100  # which no rule can match
        if rng.random() < 0.15:
            flow["options"], flow["extensions"] = rng.randint(0, 3), rng.randrange(8)
        if rng.random() < 0.15:
            flow["frag"], flow["more"] = rng.choice([1, 3]), rng.randrange(2)
            if flow["frag"] == LATER:
                # Open vSwitch mends what would be a checksum if this were a first fragment; so there is no room for one.
                flow["payload"] %= 4
        if rng.random() < 0.1:
            flow["no_checksum"] = 1
        if rng.random() < 0.1:
            flow["padding"] = rng.randint(1, 20)
        if protocol == 1:
            flow["tp_src"], flow["tp_dst"] = rng.choice([0, 3, 8, 11]), rng.choice([0, 1, 3])
        if protocol == 58:
            flow["tp_src"], flow["tp_dst"] = rng.choice([128, 135, 135, 136, 1]), rng.choice([0, 0, 0, 1])
            if rng.random() < 0.7:
                flow["nd_sll" if flow["tp_src"] == 135 else "nd_tll"] = self.value("nd_sll")

    def mask(self, field: Field) -> int:
        """A mask for a field: all of it, a prefix, or any bits at all."""
        rng = self.rng
        if not field.masks or rng.random() < 0.4:
            return field.full
        how = rng.random()
        if how < 0.4:
            return field.full ^ (field.full >> rng.randint(1, field.bits))
        if how < 0.6:
            return 1 << rng.randrange(field.bits if field.form != "ip6" else 64)
        if how < 0.7:
            return field.full >> rng.randrange(field.bits)
        # ovs-ofctl takes an IPv6 mask that begins with a decimal digit for a length of a prefix.
        return rng.getrandbits(field.bits) | (1 if field.form != "ip6" else 0xA << 124)

    def kind(self) -> str:
        """A kind for a rule: one that packets have, or a wider one."""
        rng = self.rng
        kind = rng.choice(self.kinds)
        how = rng.random()
        if how < 0.15:
            return ""
        ethertype, _ = KINDS[kind]
        if how < 0.4 and ethertype in (0x0800, 0x86DD):
            return "ip" if ethertype == 0x0800 else "ipv6"
        return kind


def fits(field: Field, words: set[str]) -> bool:
    """May the field be used where ``words`` are provided?"""
    return field.needs in words


__all__ = ["World", "fits", "provided"]
