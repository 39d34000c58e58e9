"""The interpreted and the compiled form of a function do the same: verdict, bytes, state and tables, on any packet."""

import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrRouting
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN

import wirespeed as ws
from tests.engine.rig import Rig, define
from tests.net.frames import Edge, mutated
from wirespeed.core.packet import Packet
from wirespeed.engine.function import Function, arithmetic, generate, interpreted
from wirespeed.jit.layout import layout

Inner = layout("TwinInner", [("small", "i1"), ("large", ">u8")])
My = layout(
    "TwinState",
    [
        ("count", "u8"),
        ("signed", "i4"),
        ("hits", "u2", 8),
        ("big", ">i4", 3),
        ("inner", Inner),
        ({"a": 3, "b": 13}, ">u2"),
    ],
)

IP4 = IP(src="10.1.2.3", dst="192.168.9.8", ttl=7)
IP6 = IPv6(src="2001:db8::1", dst="ff02::fb", hlim=3)
FRAMES = [
    bytes(frame)
    for frame in (
        Ether() / IP4 / UDP(sport=53, dport=5353) / b"a query that has some length to it",
        Ether() / IP4 / TCP(sport=80, dport=40000, flags="SA", options=[("MSS", 1460)]) / (b"x" * 5),
        Ether() / Dot1Q(vlan=5, prio=3) / IP4 / ICMP() / b"ping",
        Ether() / Dot1AD(vlan=100) / Dot1Q(vlan=200) / IP6 / TCP(dport=443),
        Ether() / IP6 / IPv6ExtHdrDestOpt() / IPv6ExtHdrFragment(m=1, offset=0, id=7) / UDP() / b"abc",
        Ether() / IP6 / IPv6ExtHdrRouting(addresses=["::1"], segleft=1) / ICMPv6EchoRequest(data=b"12345"),
        Ether() / IP(frag=100, proto=17) / b"later fragment",
        Ether() / IP(options=[IPOption_NOP()] * 8, flags="MF") / UDP() / b"first",
        Ether() / ARP(psrc="1.2.3.4"),
        Ether() / MPLS(label=99, s=0) / MPLS(label=100, s=1, ttl=9) / IP4 / UDP(),
        Ether() / IP4 / GRE(proto=0x0800) / IP() / UDP(),
        Ether() / IP4 / UDP(sport=1, dport=4789) / VXLAN(vni=77) / Ether() / IP() / TCP(),
        Ether() / IP4 / UDP(dport=6081) / GENEVE(vni=5) / Ether() / IP(),
        Ether() / IP4 / SCTP(sport=5, dport=6) / (b"chunk" * 3),
        Ether(type=0x88B5) / b"local experiment",
        Ether() / IP4 / UDP() / bytes(1500),
    )
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame of some kind, often with bytes changed, cut off or put behind; sometimes anything at all."""
    frame = bytearray(draw(st.sampled_from(FRAMES)))
    for at, value in draw(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3)):
        if at < len(frame):
            frame[at] = value
    cut = draw(st.integers(0, 100))
    if cut < 60:
        frame = frame[:cut]
    return bytes(frame) + draw(st.binary(max_size=6))


frames = st.one_of(damaged(), st.binary(max_size=90))


# ---------------------------------------------------------------------------------------------------------------------
# The functions


@ws.function
def every_field(pkt: ws.Pkt) -> int:
    """Reads every kind of header there is."""
    x = pkt.eth.dst ^ pkt.eth.src ^ pkt.eth.type
    x = x * 31 + pkt.vlan.vlan + pkt.vlan.prio * 3 + pkt.vlan.dei + pkt.vlan.type + pkt.vlan2.vlan
    x = x * 31 + pkt.arp.op + pkt.arp.psrc + pkt.arp.hwsrc
    x = x * 31 + pkt.ipv4.version + pkt.ipv4.ihl + pkt.ipv4.frag + pkt.ipv4.flags + pkt.ipv4.src
    x = x * 31 + pkt.ipv6.fl + pkt.ipv6.tc + pkt.ipv6.src_hi + pkt.ipv6.dst_lo + pkt.fragment.offset + pkt.fragment.m
    x = x * 31 + pkt.tcp.flags + pkt.tcp.dataofs + pkt.tcp.seq + pkt.udp.len + pkt.icmp.rest + pkt.icmpv6.type
    x = x * 31 + pkt.sctp.tag + pkt.mpls.label + pkt.mpls.s + pkt.gre.proto + pkt.vxlan.vni + pkt.geneve.vni
    return x


@ws.function
def every_write(pkt: ws.Pkt) -> int:
    """Writes to headers of every width, there or not."""
    pkt.eth.dst = pkt.eth.src + 0x1234567890AB
    pkt.vlan.vlan -= 1
    pkt.vlan2.prio ^= 5
    pkt.ipv4.flags = 9
    pkt.ipv4.frag += 8190
    pkt.ipv4.ttl -= 200
    pkt.ipv6.src_hi = ~pkt.ipv6.src_hi
    pkt.ipv6.fl = -1
    pkt.tcp.flags |= 0x1FF
    pkt.udp.sport, pkt.udp.dport = pkt.udp.dport, pkt.udp.sport
    pkt.mpls.ttl = 300
    pkt.arp.psrc = -2
    return pkt.mpls.ttl + pkt.vlan.vlan


@ws.function
def which_headers(pkt: ws.Pkt) -> int:
    """Tests headers in every way that there is."""
    x = 0
    if pkt.eth and not pkt.vlan:
        x += 1
    if not (pkt.ipv4 or pkt.ipv6) or pkt.arp:
        x += 2
    x += 4 if pkt.tcp or (pkt.udp and pkt.udp.dport > 1000) else 8
    ip = pkt.ipv4
    other = ip if pkt.icmp else pkt.ipv4
    x += 16 * bool(other) + 32 * (pkt.sctp and 1) + 64 * (pkt.mpls or pkt.gre or 2)
    while pkt.vxlan and x < 1000:
        x += 200
    return x if pkt.geneve else -x - 10


@ws.function
def payload_bytes(pkt: ws.Pkt) -> int:
    """Reads and writes bytes inside and outside of the payload and the frame."""
    data = pkt.payload
    total = len(data) * 1000003 + pkt.length
    for i in range(-2, len(data) + 2):
        total = total * 33 + data[i]
    for i in range(0, len(pkt.frame), 7):
        total ^= pkt.frame.u16(i) + pkt.frame.u32(i - 3) + pkt.frame.u64(i)
    data[0] = total
    data[len(data)] = 99
    data[-1] = 77
    data[3] ^= 0xFF
    data.put_u16(1, total >> 8)
    data.put_u32(len(data) - 4, 0xDEADBEEF)
    data.put_u32(len(data) - 3, 0xDEADBEEF)
    data.put_u64(-1, 1)
    pkt.frame.put_u64(20, total * 7)
    if data and data.u64(0x7FFFFFFFFFFFFFFF) == 0:
        return total
    return -total


@ws.function
def all_sizes(pkt: ws.Pkt) -> int:
    """Grows, shrinks and finds headers again in between."""
    before = pkt.ipv4.ttl * 2 + (pkt.udp.dport if pkt.udp else 1)
    step = pkt.frame[0] % 24
    done = pkt.adjust(step) * 1 + pkt.trim(pkt.frame[1] % 9) * 2
    middle = pkt.eth.type + len(pkt.payload) + pkt.ipv6.hlim
    done += pkt.prepend(step // 2) * 4 + pkt.append(pkt.frame[2] % 5) * 8
    done += pkt.prepend(1000) * 16 + pkt.append(100000) * 32 + pkt.trim(-1) * 64 + pkt.adjust(-5) * 128
    pkt.eth.type = 0x0800
    pkt.frame[14] = 0x45
    pkt.locate()
    return before * 1000000 + middle * 1000 + done * 2 + pkt.ipv4.proto + pkt.length + pkt.wire


@ws.function
def tags(pkt: ws.Pkt) -> int:
    """Pushes and pops tags by what the frame says."""
    n = pkt.frame[5] & 3
    for i in range(n):
        if not ws.push_vlan(pkt, pkt.frame[i] * 20, prio=i, type=0x88A8 if i else 0x8100):
            return -9
    popped = 0
    while popped < 4 and ws.pop_vlan(pkt):
        popped += 1
    ws.push_vlan(pkt, 4095)
    return pkt.vlan.vlan + popped * 10000 + pkt.vlan2.vlan + pkt.ipv4.ttl + pkt.tcp.dport


@ws.function
def all_actions(pkt: ws.Pkt) -> int:
    """Checksums and addresses."""
    x = ws.decrement_ttl(pkt.ipv4) + 1000 * ws.decrement_ttl(pkt.ipv6)
    if ws.rewrite(pkt, src=pkt.frame.u32(2), dport=pkt.frame.u16(0)):
        x += 100000
    x += ws.rewrite(pkt, dst=-1, sport=0x12345)
    x = x * 2 + ws.checksum_ipv4(pkt.ipv4)
    x = x * 2 + ws.checksum_l4(pkt)
    return x * 3 + pkt.hash + ws.symmetric_hash(pkt)


def mixed(header: Any, state: Any, table: Any, factor: int = 3) -> tuple[int, int]:
    state.inner.small += header.ttl
    table[header.proto & 3] += factor
    return header.ttl * factor, table[1]


@ws.function(
    state=My, seen=np.zeros(4, np.int64), wide=np.arange(5, dtype=">u2"), fixed=np.array([2**64 - 1], np.uint64)
)
def with_state(pkt: ws.Pkt, my: Any, seen: Any, wide: Any, fixed: Any) -> int:
    """State and tables of all formats, inside and outside of their bounds, also by way of another function."""
    my.count += 1
    my.signed -= pkt.length * 100000000
    my.hits[pkt.length & 15] += 40000
    my.hits[-1] += 1
    my.big[pkt.length % 5 - 1] = -pkt.length
    my.inner.large = my.inner.large * 3 - 1
    my.a += 3
    my.b = my.a * 1000 + my.b
    inner = my.inner
    first, second = mixed(pkt.ipv4, my, seen)
    third, fourth = mixed(pkt.ipv4, my, seen, factor=fixed[0])
    wide[pkt.length % 7] += first
    inner.large += my.big[1]
    seen[len(wide)] = 5
    return first + second * third - fourth + wide[2] + fixed[1] + len(seen) + my.hits[5] + ws.random(10)


@ws.function(seed=7)
def sampled(pkt: ws.Pkt) -> int:
    """Random numbers of all ranges."""
    x = ws.random() * 4 + ws.random(1) + ws.random(0) + ws.random(-5) + ws.random(1 << 40)
    return x % 1000003 - ws.random(pkt.length)


@ws.function
def metadata(pkt: ws.Pkt) -> int:
    """What a packet has beside its bytes."""
    pkt.mark += pkt.time
    return pkt.time + pkt.port * 7 + pkt.wire * 11 + pkt.link * 13 + pkt.mark * 17


@ws.function
def loops(pkt: ws.Pkt) -> int:
    """Loops with all kinds of bounds, nested and left early."""
    total = 0
    a, b, c = pkt.frame.u64(0), pkt.frame.u64(3), pkt.frame.u16(1) - 30000
    for i in range(a, b, c):
        total = total * 3 + i
        if total & 3 == 0:
            break
        for j in range(i & 7, -4, -2):
            if j == 3:
                continue
            total ^= j << 5
        if total % 50 == 7 or i - a > c * 20:
            break
    k = pkt.frame[9]
    while k:
        k = k // 2 if k % 2 == 0 else k * 3 + 1
        total += k
        if k == 1:
            k = 0
    for i in range(0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFFF, 7):
        total += i
    return total


FUNCTIONS = [
    every_field, every_write, which_headers, payload_bytes, all_sizes, tags, all_actions, with_state, sampled, metadata, loops,
]  # fmt: skip


def outcome(f: Function, frame: bytes, compiled: bool, **record: int) -> tuple[Any, ...]:
    """All that a function changes: verdict, bytes, state and tables, which begin with what they were made of."""
    state = f.new_state() if f.state else None
    fresh = f.bind(**{name: array.copy() for name, array in f.tables.items()}) if f.tables else f
    if fresh is not f:  # the copy has the code of the original, and so need not be compiled again
        fresh._translated, fresh._stage, fresh._interpreted = f.translated(), f.stage(), f.interpreted()
    verdict, data = fresh(frame, compiled=compiled, state=state, **record)
    return verdict, data, repr(state), [array.tolist() for array in fresh.tables.values()]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.name)
def test_both_forms_do_the_same_to_each_kind_of_frame(f: Function) -> None:
    for frame in FRAMES:
        assert outcome(f, frame, False) == outcome(f, frame, True), frame.hex()


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.name)
@given(
    frame=frames,
    record=st.fixed_dictionaries(
        {},
        optional={
            "time": st.integers(-(1 << 63), (1 << 63) - 1),
            "mark": st.integers(0, (1 << 32) - 1),
            "port": st.integers(0, 65535),
            "link": st.sampled_from([0, 1, 9, 101, 113, 228, 276, 65535]),
        },
    ),
)
def test_both_forms_do_the_same_to_any_frame(f: Function, frame: bytes, record: dict[str, int]) -> None:
    assert outcome(f, frame, False, **record) == outcome(f, frame, True, **record)


# ---------------------------------------------------------------------------------------------------------------------
# Arithmetic, against a model of its own


def signed(x: int) -> int:
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x


def _shift_right(a: int, n: int) -> int:
    return a >> min(max(n, 0), 200)


MODEL: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "<<": lambda a, b: a << max(b, 0) if b < 64 else 0,
    ">>": _shift_right,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "and": lambda a, b: b if a else a,
    "or": lambda a, b: a if a else b,
    "min": min,
    "max": max,
}
LEAVES = ("a", "b", "c", "d")
CONSTANTS = (0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 65536, -1, -2, -8, (1 << 63) - 1, -(1 << 63), 0xFFFFFFFFFFFFFFFF)


class Expression:
    """A random expression: its text, and what it must be."""

    def __init__(self, rng: random.Random, depth: int) -> None:
        self.parts: list[Expression] = []
        self.op = rng.choice(LEAVES) if rng.random() < 0.6 else rng.choice(CONSTANTS)
        if depth and rng.random() < 0.9:
            self.op = rng.choice([*MODEL, *MODEL, "neg", "inv", "not", "abs", "if", "chain"])
            n = {"neg": 1, "inv": 1, "not": 1, "abs": 1, "if": 3, "chain": 3}.get(self.op, 2)
            self.parts = [Expression(rng, depth - 1) for _ in range(n)]

    def __str__(self) -> str:
        p = [str(part) for part in self.parts]
        forms = {"neg": "(-{})", "inv": "(~{})", "not": "(not {})", "abs": "abs({})", "if": "({} if {} else {})",
                 "chain": "({} < {} <= {})", "min": "min({}, {})", "max": "max({}, {})"}  # fmt: skip
        if not p:
            return f"({self.op})" if isinstance(self.op, int) else str(self.op)
        return forms[self.op].format(*p) if self.op in forms else f"({p[0]} {self.op} {p[1]})"

    def value(self, scope: dict[str, int]) -> int:
        if not self.parts:
            return signed(self.op) if isinstance(self.op, int) else scope[str(self.op)]
        v = [part.value(scope) for part in self.parts]
        unary = {"neg": -v[0], "inv": ~v[0], "not": int(not v[0]), "abs": abs(v[0])}
        if self.op == "if":
            return v[0] if v[1] else v[2]
        if self.op == "chain":
            return int(v[0] < v[1] <= v[2])
        return signed(unary[self.op] if self.op in unary else MODEL[str(self.op)](*v))


EXPRESSIONS = [Expression(random.Random(seed), 2 + seed % 4) for seed in range(60)]


@cache
def calculator() -> Function:
    """One function of all expressions over four numbers from the frame, whose values go to a table."""
    lines = ["def calculate(pkt, out):", "    a, b = pkt.frame.u64(0), pkt.frame.u64(8)"]
    lines += ["    c, d = pkt.frame.u64(16), pkt.frame.u64(24)"]
    lines += [f"    out[{i}] = {expression}" for i, expression in enumerate(EXPRESSIONS)]
    folder = Path(tempfile.mkdtemp())
    python = define(folder, "\n".join([*lines, "    return 0", ""]))["calculate"]
    return ws.function(out=np.zeros(len(EXPRESSIONS), np.int64))(python)


EDGES = (0, 1, -1, 2, 7, -8, 63, 64, 65, 255, -(1 << 63), (1 << 63) - 1, 1 << 32, -(1 << 31))
numbers = st.one_of(st.sampled_from(EDGES), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-70, 70))


@pytest.mark.parametrize("name", arithmetic.TOTAL)
def test_an_operation_that_the_machine_does_not_define_everywhere_is_defined(name: str) -> None:
    symbol = {"floor_divide": "//", "remainder": "%", "shift_left": "<<", "shift_right": ">>"}[name]
    for a in EDGES:
        for b in EDGES:
            wanted = signed(MODEL[symbol](a, b))
            assert getattr(arithmetic, name)(a, b) == arithmetic.OPERATIONS[name](a, b) == wanted, (a, symbol, b)


@given(values=st.tuples(numbers, numbers, numbers))
def test_a_range_has_as_many_rounds_as_python_counts(values: tuple[int, int, int]) -> None:
    start, stop, step = values
    wanted = 0
    if step:  # len() of such a range overflows, and so it is divided here
        last = range(start, stop, step)
        wanted = (last[-1] - start) // step + 1 if last else 0
    wanted = min(wanted, (1 << 63) - 1)
    assert arithmetic.kernel_count(*values) == arithmetic.count(*values) == wanted


@given(values=st.tuples(numbers, numbers, numbers, numbers))
def test_arithmetic_wraps_and_never_traps_in_both_forms(values: tuple[int, int, int, int]) -> None:
    f = calculator()
    frame = b"".join(v.to_bytes(8, "big", signed=True) for v in values)
    wanted = [expression.value(dict(zip(LEAVES, values, strict=True))) for expression in EXPRESSIONS]
    for compiled in (False, True):
        f.tables["out"][:] = 0
        f(frame, compiled=compiled)
        got = f.tables["out"].tolist()
        wrong = [(str(e), w, g) for e, w, g in zip(EXPRESSIONS, wanted, got, strict=True) if w != g]
        assert not wrong, (compiled, values, wrong)


# ---------------------------------------------------------------------------------------------------------------------
# Memory


def test_no_function_reads_or_writes_outside_of_the_buffer() -> None:
    """The buffer lies between two pages that nobody may touch: one byte outside ends this process."""
    rng = random.Random(5)
    edge = Edge()
    rigs = [Rig(f) for f in FUNCTIONS]
    cases = [mutated(rng.choice(FRAMES), rng) for _ in range(300)] + [FRAMES[0][:n] for n in range(60)]
    for frame in cases:
        for rig in rigs:
            for place in (edge.high, edge.low):
                (handle,) = rig.fill([frame])
                p = Packet.at(handle)
                before = p.buffer, p.data, p.capacity
                p.buffer, p.data, p.capacity = place(frame), 0, len(frame)
                rig.call(1)
                p.buffer, p.data, p.capacity = before
                rig.empty()
    for rig in rigs:
        rig.close()


def test_both_forms_have_every_name_that_translated_code_can_use() -> None:
    assert set(interpreted.NAMES) == set(generate.ORIGINS)
