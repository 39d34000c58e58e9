"""What is switched in the bench: for each case rules, as ``ovs-ofctl`` reads them, and the frames that come in by each port.

Every frame is matched, and leaves by port 2; which rules match it is told by the case.  All is drawn from fixed seeds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bench.switch_frames import SIZE, Frames, address, dotted, saved, shuffled, udp

FLOWS = 10_000
OUT = "actions=output:2"
RULES, MASKS = 1000, 5  # of the cases many*
ATTACK = 33 * 17 * 17  # packets that differ
ATTACKED = 100 * ATTACK  # frames of which one in a hundred is one of the attack


@dataclass(frozen=True)
class Case:
    """Rules, and the frames of each port from number 1 on; None for one that only sends.

    ``flows`` is how many differ in addresses or ports; ``target`` how many times faster than its best setting we are to be.
    """

    name: str
    rules: Callable[[], list[str]]
    frames: Callable[[], list[Frames | None]]
    flows: int
    target: float
    about: str = ""

    def sources(self) -> list[Path | None]:
        """The files of its frames."""
        return _sources(self)


@cache
def _sources(case: Case) -> list[Path | None]:
    return [
        None if frames is None else saved(f"switch-{case.name}-{number}", frames)
        for number, frames in enumerate(case.frames(), 1)
    ]


def _ids(flows: int) -> np.ndarray:
    return np.arange(flows, dtype=np.uint64)


def _spread(ids: np.ndarray) -> np.ndarray:
    """Numbers of 32 bits that differ in all bits (Knuth's multiplicative hash)."""
    return ids * np.uint64(2_654_435_761) & np.uint64(0xFFFFFFFF)


def plain(flows: int) -> list[Frames | None]:
    """Flows from 10/8 to 192.168/16, all to port 53."""
    ids = _ids(flows)
    mixed = _spread(ids)
    to = address("192.168.0.0") + (mixed >> np.uint64(16))
    return [shuffled(udp(address("10.0.0.0") + ids, to, 1024 + (mixed & np.uint64(0x7FFF)), 53)), None]


def with_ports() -> list[str]:
    """One rule that reads addresses and ports."""
    return [f"in_port=1,udp,nw_dst=192.168.0.0/16,tp_dst=53,{OUT}"]


def simple() -> list[str]:
    """One rule for which Open vSwitch need not look into packets."""
    return [f"in_port=1,{OUT}"]


def many() -> list[str]:
    """A thousand rules of five masks, a priority each."""
    rules = []
    for x in range(RULES // MASKS):
        rules += [
            f"priority=50,udp,nw_dst=192.168.{x}.0/24,{OUT}",
            f"priority=60,udp,nw_src=172.16.{x}.0/24,{OUT}",
            f"priority=70,udp,nw_dst=100.64.0.0/10,tp_dst={2000 + x},{OUT}",
            f"priority=80,udp,nw_src=11.0.0.0/8,nw_dst=198.51.{x}.0/24,{OUT}",
            f"priority=90,udp,nw_dst=203.0.0.0/16,tp_src={3000 + x},tp_dst={4000 + x % 7},{OUT}",
        ]
    return rules


def to_many(flows: int) -> list[Frames | None]:
    """Flows that hit the rules of :func:`many` alike."""
    found = []
    ids = _ids(flows)
    for kind in range(MASKS):
        f = ids[ids % np.uint64(MASKS) == kind]
        x = f // np.uint64(MASKS) % np.uint64(RULES // MASKS)
        g = f // np.uint64(RULES)  # which of the flows of one rule
        mixed = _spread(f)
        src, dst = address("10.0.0.0") + f, address("198.18.0.0") + (mixed >> np.uint64(16) & np.uint64(0x1FFFF))
        sport, dport = 10_000 + (mixed & np.uint64(0x3FFF)), 53 + (g & np.uint64(7))
        if kind == 0:
            dst = address("192.168.0.0") + (x << np.uint64(8)) + (g & np.uint64(255))
        elif kind == 1:
            src = address("172.16.0.0") + (x << np.uint64(8)) + (g & np.uint64(255))
        elif kind == 2:
            dst, dport = address("100.64.0.0") + (mixed >> np.uint64(11)), 2000 + x
        elif kind == 3:
            src = address("11.0.0.0") + f
            dst = address("198.51.0.0") + (x << np.uint64(8)) + (g & np.uint64(255))
        else:
            dst = address("203.0.0.0") + (mixed >> np.uint64(16))
            sport, dport = 3000 + x, 4000 + x % np.uint64(7)
        found.append(udp(src, dst, sport, dport))
    return [shuffled(np.concatenate(found)), None]


_MORE = (
    "", ",nw_ttl=64", ",nw_tos=0", ",nw_ecn=0", ",dl_dst=02:00:00:00:00:02", ",dl_src=02:00:00:00:00:01",
    ",nw_ttl=64,nw_tos=0",
)  # fmt: skip


def masks(k: int) -> list[str]:
    """As many masks: a source's /16 leads to a table of its own, whose rule has a prefix and fields like no other."""
    rules = []
    for i in range(k):
        length = i % 16 + 1
        net = dotted(address("192.168.0.0") >> 32 - length << 32 - length)
        rules.append(f"table=0,ip,in_port=1,nw_src=10.{i}.0.0/16,actions=resubmit(,{i + 1})")
        rules.append(f"table={i + 1},ip,nw_dst={net}/{length}{_MORE[i // 16]},{OUT}")
    return rules


def to_masks(k: int) -> list[Frames | None]:
    """Flows that hit the rules of :func:`masks` alike."""
    ids = _ids(FLOWS)
    mixed = _spread(ids)
    src = address("10.0.0.0") + (ids % np.uint64(k) << np.uint64(16)) + ids // np.uint64(k)
    to = address("192.168.0.0") + (mixed >> np.uint64(16))
    return [shuffled(udp(src, to, 1024 + (mixed & np.uint64(0x7FFF)), 53 + (ids & np.uint64(7)))), None]


def hosts() -> list[Frames | None]:
    """Hosts behind two ports, each of which talks with one behind the other; their MACs are the flows."""
    ids = _ids(FLOWS // 2)
    a, b = 0x02_0A_00_00_00_00 + _spread(ids), 0x02_0B_00_00_00_00 + _spread(ids)
    src, dst = address("10.0.0.0") + ids, address("10.1.0.0") + ids
    there = udp(src, dst, 1024, 53, eth_src=a, eth_dst=b)
    back = udp(dst, src, 53, 1024, eth_src=b, eth_dst=a)
    return [shuffled(there), shuffled(back)]


_Entry = tuple[int, int, int, int, int | None, int | None]


def _acl() -> Iterator[_Entry]:
    """Entries of an access list: source and its length, destination and its, port and its mask."""
    random = np.random.default_rng(7)
    for _ in range(10_000):
        source, destination = int(random.choice((0, 16, 24, 32))), int(random.choice((16, 24, 32)))
        src = address("10.0.0.0") + int(random.integers(1 << 24))
        dst = address("192.168.0.0") + int(random.integers(1 << 16))
        kind = int(random.integers(4))
        port = None if kind == 0 else int(random.integers(1, 1 << 15))
        mask = None if kind == 0 else (0xFFFF, 0xFFFF, 0xFFF0)[kind - 1]
        yield _net(src, source), source, _net(dst, destination), destination, port and port & (mask or 0), mask


def _net(number: int, length: int) -> int:
    return number >> 32 - length << 32 - length


def acl() -> list[str]:
    """Ten thousand entries, the first that matches counts; at the end all else is dropped."""
    rules = []
    for i, (src, source, dst, destination, port, mask) in enumerate(_acl()):
        match = f"priority={30_000 - i},udp"
        match += f",nw_src={dotted(src)}/{source}" if source else ""
        match += f",nw_dst={dotted(dst)}/{destination}"
        match += f",tp_dst={port:#x}/{mask:#x}" if port is not None else ""
        rules.append(f"{match},{OUT}")
    return [*rules, "priority=1,ip,actions=drop"]


def to_acl() -> list[Frames | None]:
    """A flow for each entry, which an earlier one may take."""
    random = np.random.default_rng(8)
    entries = list(_acl())
    columns = np.zeros((len(entries), 4), np.uint64)
    for i, (src, source, dst, destination, port, mask) in enumerate(entries):
        columns[i, 0] = (src or address("10.0.0.0")) | int(random.integers(1 << 32 - max(source, 8)))
        columns[i, 1] = dst | int(random.integers(1 << 32 - destination))
        free = 0xFFFF if port is None else ~(mask or 0) & 0xFFFF
        columns[i, 3] = (port or 0) | int(random.integers(1 << 16)) & free
    columns[:, 2] = 1024 + (_spread(_ids(len(entries))) & np.uint64(0x7FFF))
    return [shuffled(udp(*columns.T)), None]


def _prefixes() -> list[tuple[int, int]]:
    random = np.random.default_rng(9)
    found: dict[tuple[int, int], None] = {}
    while len(found) < 10_000:
        length = int(random.choice((12, 16, 18, 20, 22, 24, 24, 24, 24, 28)))
        found[_net(address("64.0.0.0") + int(random.integers(1 << 28)), length), length] = None
    return list(found)


def routes() -> list[str]:
    """Ten thousand prefixes; the longest counts."""
    return [f"priority={100 + length},ip,nw_dst={dotted(net)}/{length},{OUT}" for net, length in _prefixes()]


def to_routes() -> list[Frames | None]:
    """A flow into each prefix."""
    random = np.random.default_rng(10)
    to = np.array([net | int(random.integers(1 << 32 - length)) for net, length in _prefixes()], np.uint64)
    ids = _ids(len(to))
    return [shuffled(udp(address("10.0.0.0") + ids, to, 1024 + (_spread(ids) & np.uint64(0x7FFF)), 53)), None]


def pipeline() -> list[str]:
    """Five tables: admission by MAC, sources, routes, an access list of ports, and the next hop's rewriting."""
    rules = ["table=0,priority=10,ip,in_port=1,dl_dst=02:00:00:00:00:02,actions=goto_table:1"]
    for x in range(50):
        rules.append(f"table=1,priority=10,ip,nw_src=10.{x}.0.0/16,actions=load:{x}->NXM_NX_REG0[],goto_table:2")
    for x in range(256):
        hop = x % 8 + 1
        rules.append(f"table=2,priority=124,ip,nw_dst=192.168.{x}.0/24,actions=load:{hop}->NXM_NX_REG1[],goto_table:3")
        if x % 4 == 0:
            to = f"192.168.{x}.128/25"
            rules.append(f"table=2,priority=125,ip,nw_dst={to},actions=load:{hop}->NXM_NX_REG1[],goto_table:3")
    for port in range(8):
        rules.append(f"table=3,priority=20,udp,tp_dst={53 + port},actions=goto_table:4")
    rules.append("table=3,priority=15,udp,tp_dst=0x4000/0xc000,actions=drop")
    rules.append("table=3,priority=10,tcp,actions=goto_table:4")
    for hop in range(1, 9):
        mac = f"02:00:00:00:01:{hop:02x}"
        change = f"mod_dl_src:02:00:00:00:00:fe,mod_dl_dst:{mac},dec_ttl"
        rules.append(f"table=4,priority=10,ip,reg1={hop},actions={change},output:2")
    return rules


def to_pipeline() -> list[Frames | None]:
    """Flows through all five tables."""
    ids = _ids(FLOWS)
    mixed = _spread(ids)
    src = address("10.0.0.0") + (ids % np.uint64(50) << np.uint64(16)) + ids // np.uint64(50)
    to = address("192.168.0.0") + (mixed >> np.uint64(16))
    return [shuffled(udp(src, to, 1024 + (mixed & np.uint64(0x7FFF)), 53 + (ids & np.uint64(7)))), None]


def guarded() -> list[str]:
    """The published access list: some flows are allowed, by one field each, and all else is dropped (see :func:`attacked`)."""
    return [
        f"priority=1000,ip,in_port=1,nw_src=10.1.1.1,nw_dst=10.1.1.2,{OUT}",
        f"priority=1000,udp,in_port=1,nw_dst=10.0.0.2,tp_dst=80,{OUT}",
        f"priority=1000,udp,in_port=1,nw_dst=10.0.0.2,tp_src=12345,{OUT}",
        f"priority=1000,udp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,{OUT}",
        "priority=10,in_port=1,actions=drop",
    ]


def good(n: int = FLOWS) -> Frames:
    """Flows of the two hosts that the first rule of :func:`guarded` is about."""
    ids = _ids(FLOWS)
    mixed = _spread(ids)
    flows = udp(address("10.1.1.1"), address("10.1.1.2"), 1024 + (mixed & np.uint64(0x7FFF)), 1024 + ids)
    return np.resize(shuffled(flows), (n, SIZE))


def attack() -> Frames:
    """Every combination of the allowed values, each as it is or with one bit turned over.

    Each makes the classifier of Open vSwitch prove a mismatch in another bit of each field, which is a mask of its own:
    Csikor et al., "Tuple Space Explosion", CoNEXT 2019 (CVE-2019-25076), the attack that knows the access list.
    """
    sources = address("10.0.0.1") ^ np.array([0, *(1 << i for i in range(32))], np.uint64)
    sports = 12345 ^ np.array([0, *(1 << i for i in range(16))], np.uint64)
    dports = 80 ^ np.array([0, *(1 << i for i in range(16))], np.uint64)
    src, sport, dport = (column.ravel() for column in np.meshgrid(sources, sports, dports))
    return udp(src, address("10.0.0.2"), sport, dport)


def attacked() -> list[Frames | None]:
    """Good flows, and one packet of the attack in a hundred."""
    bad = shuffled(attack(), 2)
    frames = good(ATTACKED)
    frames[50::100] = bad
    return [frames, None]


def _short(n: int) -> str:
    return f"{n // 1_000_000}M" if n >= 1_000_000 else f"{n // 1000}k"


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *(
            Case(f"flows{n}.{kind}", rules, lambda n=n: plain(n), n, 4.0)
            for n in (1, 1000)
            for kind, rules in (("ports", with_ports), ("simple", simple))
        ),
        *(Case(f"many{_short(n)}", many, lambda n=n: to_many(n), n, 4.0) for n in (10_000, 100_000, 1_000_000)),
        *(Case(f"one{_short(n)}", with_ports, lambda n=n: plain(n), n, 1.0) for n in (10_000, 100_000, 1_000_000)),
        *(
            Case(f"masks{k}", lambda k=k: masks(k), lambda k=k: to_masks(k), FLOWS, 4.0 if k == 20 else 1.0)
            for k in (1, 5, 20, 100)
        ),
        Case("normal", lambda: ["actions=NORMAL"], hosts, FLOWS, 3.0, "10,000 MACs"),
        Case("acl", acl, to_acl, 10_000, 3.0, "10,000 rules"),
        Case("routes", routes, to_routes, 10_000, 3.0, "10,000 prefixes"),
        Case("pipeline", pipeline, to_pipeline, FLOWS, 3.0, "5 tables"),
        Case("tse.good", guarded, lambda: [good(ATTACKED), None], FLOWS, 1.0),
        Case("tse.attacked", guarded, attacked, FLOWS + ATTACK, 1.0),
    )
}
