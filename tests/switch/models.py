"""The obvious Python of the switch's parts: a frame's flow by slices, a table by linear search, a cache by a dict."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wirespeed.switch.fields import FIELDS

VLANS, MPLS_TYPES = (0x8100, 0x88A8), (0x8847, 0x8848)
MAC = slice(0, 6)


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def flow_of(frame: bytes, whole: int | None = None) -> dict[str, int]:
    """The fields of an Ethernet frame, by name, as far as it is whole; one that is not named is 0.

    ``whole`` is the length of the packet that the frame is the beginning of.
    """
    found: dict[str, int] = {}
    if len(frame) < 14:
        return found
    rest = len(frame) if whole is None else whole
    found["dl_dst"], found["dl_src"] = number(frame[0:6]), number(frame[6:12])
    kind, at = number(frame[12:14]), 14
    for tci, tpid in (("vlan_tci", "tpid"), ("vlan_tci2", "tpid2")):
        if kind not in VLANS or len(frame) < at + 4:
            break
        found[tci], found[tpid] = number(frame[at : at + 2]) | 0x1000, kind
        kind, at = number(frame[at + 2 : at + 4]), at + 4
    if kind < 0x600:
        snap = frame[at : at + 8]
        kind, at = 0x05FF, at
        if len(snap) == 8 and snap[:6] == b"\xaa\xaa\x03\0\0\0":
            at += 8
            kind = number(snap[6:]) if number(snap[6:]) >= 0x600 else kind
    found["dl_type"] = kind
    body, rest = frame[at:], rest - at
    if kind == 0x0800:
        found |= _ipv4(body, rest)
    elif kind == 0x86DD:
        found |= _ipv6(body, rest)
    elif kind in (0x0806, 0x8035):
        found |= _arp(body)
    elif kind in MPLS_TYPES:
        found |= _mpls(body)
    return found


def _ipv4(data: bytes, whole: int) -> dict[str, int]:
    if len(data) < 20:
        return {}
    header, total = 4 * (data[0] & 15), number(data[2:4])
    if header < 20 or len(data) < header or not header <= total <= whole:
        return {}
    part = number(data[6:8])
    frag = (1 if part & 0x3FFF else 0) | (2 if part & 0x1FFF else 0)
    found = {"nw_proto": data[9], "ip_frag": frag, "nw_src": number(data[12:16]), "nw_dst": number(data[16:20])}
    found |= {"tos": data[1], "nw_ttl": data[8]}
    return found if frag & 2 else found | _transport(data[header:total], data[9], 4)


def _ipv6(data: bytes, whole: int) -> dict[str, int]:
    if len(data) < 40 or number(data[4:6]) > whole - 40:
        return {}
    found = {"ipv6_src": number(data[8:24]), "ipv6_dst": number(data[24:40])}
    rest, proto, frag = data[40 : 40 + number(data[4:6])], data[6], 0
    while proto in (0, 43, 44, 51, 60):
        if len(rest) < 8:
            return found
        size = 8 if proto == 44 else 4 * (rest[1] + 2) if proto == 51 else 8 * (rest[1] + 1)
        if size > len(rest):
            return found
        if proto == 44 and number(rest[2:4]):
            frag = 3 if number(rest[2:4]) & 0xFFF8 else 1
            if frag == 3:
                break
        proto, rest = rest[0], rest[size:]
    first = number(data[:4])
    found |= {"nw_proto": proto, "ip_frag": frag, "ipv6_label": first & 0xFFFFF}
    found |= {"tos": first >> 20 & 0xFF, "nw_ttl": data[7]}
    return found if frag == 3 else found | _transport(rest, proto, 6)


def _transport(data: bytes, proto: int, version: int) -> dict[str, int]:
    header = 4 * (data[12] >> 4) if len(data) >= 20 else 0
    if 20 <= header <= len(data) if proto == 6 else proto in (17, 132) and len(data) >= {17: 8, 132: 12}[proto]:
        found = {"tcp_src": number(data[:2]), "tcp_dst": number(data[2:4])}
        return found | ({"tcp_flags": number(data[12:14]) & 0xFFF} if proto == 6 else {})
    if proto == 1 and len(data) >= 8:
        return {"tcp_src": data[0], "tcp_dst": data[1]}
    if (proto, version) == (58, 6) and len(data) >= 8:
        found = {"tcp_src": data[0], "tcp_dst": data[1]}
        return found | (_neighbor(data) if data[0] in (135, 136) and data[1] == 0 else {})
    return {}


def _neighbor(data: bytes) -> dict[str, int]:
    if len(data) < 24:
        return {}
    found, rest = {"nd_target": number(data[8:24])}, data[24:]
    while len(rest) >= 8:
        size = 8 * rest[1]
        if size == 0 or size > len(rest):
            break
        name = {1: "nd_sll", 2: "nd_tll"}.get(rest[0])
        if name and size == 8:
            if found.get(name):
                return {}
            found[name] = number(rest[2:8])
        rest = rest[size:]
    return found


def _arp(data: bytes) -> dict[str, int]:
    if len(data) < 28 or data[:6] != b"\0\1\x08\0\6\4":
        return {}
    found = {"nw_proto": number(data[6:8])} if number(data[6:8]) <= 0xFF else {}
    found |= {"nw_src": number(data[14:18]), "nw_dst": number(data[24:28])}
    return found | {"arp_sha": number(data[8:14]), "arp_tha": number(data[18:24])}


def _mpls(data: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for i in range(min(3, len(data) // 4)):
        found[f"lse{i}"] = number(data[4 * i : 4 * i + 4])
        if found[f"lse{i}"] & 0x100:
            return found | {"labels": i + 1}
    return found | {"labels": sum(entry != 0 for entry in found.values())}  # as Open vSwitch counts without an end


# Where in a flow the model's fields are that no match names as a whole.
PLACES = {
    "vlan_tci2": 64 * 4, "tpid": 64 * 9 + 32, "tpid2": 64 * 9 + 48, "tos": 64 * 2, "lse0": 64 * 10, "lse1": 64 * 10 + 32,
    "lse2": 64 * 11, "labels": 64 * 11 + 32,
}  # fmt: skip


def number_of(fields: dict[str, int]) -> int:
    """A flow as one number, of its fields by name."""
    return sum(value << (PLACES[name] if name in PLACES else FIELDS[name].at) for name, value in fields.items())


@dataclass(eq=False)
class Line:
    """One rule of the linear model."""

    table: int
    priority: int
    value: int
    mask: int
    actions: Any
    cookie: int = 0
    idle: int = 0
    hard: int = 0
    flags: int = 0
    created: float = 0.0
    used: float = 0.0
    packets: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        return self.table, self.priority, self.value, self.mask


class Linear:
    """The rules of a switch in one list."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines = list(lines)

    def copy(self) -> "Linear":
        return Linear(self.lines)

    def matching(self, table: int, flow: int) -> list[Line]:
        """The rules of the highest priority that a flow matches; more than one where rules overlap."""
        found = [one for one in self.lines if one.table == table and flow & one.mask == one.value]
        top = max((one.priority for one in found), default=0)
        return [one for one in found if one.priority == top]

    def same(self, line: Line) -> Line | None:
        return next((one for one in self.lines if one.key == line.key), None)

    def overlapping(self, line: Line) -> list[Line]:
        return [
            one
            for one in self.lines
            if (one.table, one.priority) == (line.table, line.priority)
            and not (one.value ^ line.value) & one.mask & line.mask
        ]

    def covered(self, table: int, value: int, mask: int) -> list[Line]:
        return [
            one for one in self.lines if one.table == table and one.mask & mask == mask and one.value & mask == value
        ]
