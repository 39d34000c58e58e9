"""A user's function as an element: verdicts, drops, state, tables, random numbers, and what it can be called with."""

import copy
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

import wirespeed as ws
from tests.engine.rig import Rig, define
from wirespeed.core.frame import Packet as Frame
from wirespeed.core.packet import Packet, chain
from wirespeed.engine.function import Function, runtime
from wirespeed.engine.function.pkt import Pkt
from wirespeed.engine.function.twin import State
from wirespeed.jit.layout import layout
from wirespeed.net.headers import HEADERS

Part = layout("FaceInner", [("deep", "i4")])
Mine = layout("FaceState", [("count", "u8"), ("last", "i8"), ("inner", Part), ("hits", "u4", 4)])
ROUTES = np.zeros(256, np.int64)
UDP_FRAME = bytes(Ether() / IP(src="1.2.3.4", dst="5.6.7.8") / UDP(sport=1, dport=2) / b"hello")


@ws.function
def first_byte(pkt: ws.Pkt) -> int:
    """The first byte, less 10, is the verdict."""
    return pkt.frame[0] - 10


@ws.function(state=Mine, routes=ROUTES)
def counting(pkt: ws.Pkt, my: Any, routes: Any) -> int:
    """Counts, and looks the verdict up by the first byte."""
    my.count += 1
    my.last = pkt.length
    my.inner.deep -= 1
    my.hits[pkt.frame[0]] += 1
    return routes[pkt.frame[0]]


@ws.function
def endless(pkt: ws.Pkt) -> int:
    """Never returns."""
    x = 0
    while x >= 0:
        x = pkt.frame[0] & 1
    return 0


@ws.function
def first_segment(pkt: ws.Pkt) -> int:
    """What is seen of a packet in several segments."""
    pkt.frame[len(pkt.frame)] = 0xEE
    return len(pkt.frame) * 1000000 + pkt.length * 1000 + len(pkt.payload)


@ws.function(seed=3)
def draws(pkt: ws.Pkt) -> int:
    """One random number."""
    return ws.random(1 << 31) + 1


def test_a_verdict_is_the_number_of_an_output_and_the_order_stays() -> None:
    rig = Rig(first_byte, outputs=3)
    out = rig.send([bytes([10 + verdict, i]) for i, verdict in enumerate([0, 1, 2, 0, 0, 2, 1, 1, 0])])
    assert [[frame[1] for frame in frames] for frames in out] == [[0, 3, 4, 8], [1, 6, 7], [2, 5]]
    assert rig.drops() == {}
    rig.close()


def test_packets_that_go_nowhere_are_counted_by_reason() -> None:
    rig = Rig(first_byte, outputs=2, capacity=2)
    rig.send([bytes([10 + verdict]) for verdict in (0, -1, -1, -2, -10, 1, 1, 1, 2, 245)])
    assert rig.drops() == {"dropped": 2, "bad_verdict": 2, "output_full": 1, "no_output": 2}
    rig.close()


def test_each_reason_has_a_sentence() -> None:
    rig = Rig(first_byte)
    assert list(rig.placed.drops) == ["dropped", "bad_verdict", "stopped"]
    assert all(sentence[0].isupper() for sentence in rig.placed.drops.values())
    rig.close()


def test_a_burst_of_nothing_is_nothing() -> None:
    rig = Rig(first_byte)
    assert rig.call(0) == 0
    rig.close()


def test_each_worker_has_a_state_and_the_counters_are_their_sums() -> None:
    part = counting.open("stage", 2)

    class Opened:
        def open(self, role: str, workers: int) -> Any:
            return part

    rigs = [Rig(Opened(), worker=w, workers=2) for w in range(2)]
    rigs[0].send([b"\0", b"\1ab", b"\3"])
    rigs[1].send([b"\3" * 9])
    assert [state.count for state in part.states] == [3, 1]
    assert [list(state.hits) for state in part.states] == [[1, 1, 0, 1], [0, 0, 0, 1]]
    wanted = {"count": 4, "last": 10, "inner.deep": -4}
    assert part.counters() == wanted
    for rig in rigs:
        rig.close()
    assert part.counters() == wanted, "what was counted is still there when the run's memory is gone"


def test_a_table_is_the_array_itself() -> None:
    routes = np.zeros(8, np.int64)
    rig = Rig(counting.bind(routes=routes), outputs=2)
    assert [len(frames) for frames in rig.send([b"\5"])] == [1, 0]
    routes[5] = 1
    assert [len(frames) for frames in rig.send([b"\5", b"\6", b"\x40"])] == [2, 1], "outside of a table is 0"
    rig.close()


def test_what_a_function_writes_to_a_table_is_seen_in_the_array(tmp_path: Path) -> None:
    python = define(tmp_path, "def f(pkt, t):\n    t[pkt.frame[0]] += 3\n    return 0\n")["f"]
    for dtype in ("u1", ">i2", "<u4", ">u8"):
        table = np.array([1, 2, 253, 4], dtype)
        f = ws.function(t=table)(python)
        f(b"\1"), f(b"\2", compiled=True), f(b"\4"), f(b"\4", compiled=True)
        assert table.tolist() == [1, 5, 0 if dtype == "u1" else 256, 4], dtype


def test_binding_makes_another_function_and_leaves_the_first_alone(tmp_path: Path) -> None:
    python = define(tmp_path, "def f(pkt, t, u):\n    return t[0] * 10 + u[0]\n")["f"]
    one = ws.function(t=np.array([1]), u=np.array([2], np.uint8))(python)
    other = one.bind(t=np.array([7]))
    assert (one(b"")[0], other(b"")[0]) == (12, 72)
    assert (one(b"", compiled=True)[0], other(b"", compiled=True)[0]) == (12, 72)


def test_a_table_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    f = ws.function(define(tmp_path, "def f(pkt, t, u):\n    return t[0] + u[0]\n")["f"])
    with pytest.raises(ws.FunctionError, match=r"f lacks t, u; give it: f.bind\(t=array, u=array\)"):
        f.open("stage", 1)
    with pytest.raises(ws.FunctionError, match=r"f lacks u; give it: f.bind\(u=array\)"):
        f.bind(t=np.zeros(1, int))(b"")


def test_functions_of_the_same_name_never_meet(tmp_path: Path) -> None:
    made = [ws.function(define(tmp_path, f"def f(pkt):\n    return {n}\n")["f"]) for n in (1, 2, 3)]
    assert [f(b"", compiled=True)[0] for f in made] == [1, 2, 3]
    assert [f(b"")[0] for f in made] == [1, 2, 3]


def test_a_function_called_from_another_one_may_be_decorated_itself(tmp_path: Path) -> None:
    text = "@ws.function\ndef inner(pkt): return pkt.length\n@ws.function\ndef outer(pkt): return inner(pkt) + 1\n"
    outer = define(tmp_path, text, ws=ws)["outer"]
    assert outer(b"abc")[0] == outer(b"abc", compiled=True)[0] == 4


def test_a_copy_is_an_element_of_its_own() -> None:
    twin = copy.copy(first_byte)
    assert twin is not first_byte and twin(b"\x0c") == (2, b"\x0c")


def test_it_is_known_which_headers_a_function_names_and_whether_it_writes(tmp_path: Path) -> None:
    def made(body: str) -> Function:
        return ws.function(define(tmp_path, f"def f(pkt):\n    {body}\n    return 0\n", ws=ws)["f"])

    assert made("x = pkt.ipv4.ttl + pkt.length").headers == ("ipv4",)
    assert made("ws.rewrite(pkt, dst=1)").headers == ("ipv4", "tcp", "udp")
    for reads in ("x = pkt.payload[0]", "x = pkt.hash", "x = ws.random()", "x = pkt.vlan.vlan", "pkt.locate()"):
        assert not made(reads).writes, reads
    for writes in (
        "pkt.eth.dst = 1", "pkt.mark = 1", "pkt.payload[0] = 1", "pkt.frame.put_u16(0, 1)", "pkt.trim(1)",
        "ws.decrement_ttl(pkt.ipv4)", "ws.push_vlan(pkt, 1)", "e = pkt.eth; e.src += 1",
    ):  # fmt: skip
        assert made(writes).writes, writes


def test_a_function_at_an_end_of_a_graph_is_refused() -> None:
    for role in ("source", "sink"):
        with pytest.raises(ws.GraphError, match="first_byte is a function and stands at an end"):
            first_byte.open(role, 1)


def test_a_function_stands_in_a_graph() -> None:
    port, first, second = ws.port("memory:in"), ws.port("memory:first"), ws.port("memory:second")
    frames = [bytes([10 + i % 4 - 1]) * 20 for i in range(200)]
    assert port.push(frames) == 200
    port.close_input()
    report = ws.run(port >> first_byte >> (first, second))
    assert report.balanced
    assert report.stage("first_byte").drops == {"dropped": 50, "no_output": 50}
    assert [p.data for p in first.pull(200)] == [f for f in frames if f[0] == 10]
    assert [p.data for p in second.pull(200)] == [f for f in frames if f[0] == 11]


def test_a_mark_goes_along_with_the_packet(tmp_path: Path) -> None:
    text = "def set_it(pkt):\n    if pkt.mark == 0:\n        pkt.mark = 1000 + pkt.frame[0]\n    return 0\n"
    text += "def add(pkt):\n    pkt.mark += 7\n    return 0\n"
    scope = define(tmp_path, text)
    port, out = ws.port("memory:in"), ws.port("memory:out")
    port.push([b"\1" * 20, b"\2" * 20])
    port.close_input()
    ws.run(port >> ws.function(scope["set_it"]) >> ws.function(scope["add"]) >> out)
    assert [p.mark for p in out.pull(2)] == [1008, 1009]


def test_frames_of_all_kinds_can_be_given() -> None:
    scapy = Ether(UDP_FRAME)
    for frame in (UDP_FRAME, bytearray(UDP_FRAME), memoryview(UDP_FRAME), scapy, Frame(UDP_FRAME)):
        verdict, data = first_byte(frame)
        assert (verdict, data) == (UDP_FRAME[0] - 10, UDP_FRAME)
    with pytest.raises(ws.GraphError, match="got str, wanted bytes"):
        first_byte("text")
    with pytest.raises(TypeError, match="a packet has time, port, wire, link, mark, got length"):
        first_byte(b"", length=3)


def test_a_state_that_is_given_is_read_and_written() -> None:
    state = counting.new_state()
    state.count = 41
    for compiled in (False, True):
        counting(b"\2xyz", state=state, compiled=compiled)
    assert (state.count, state.last, state.inner.deep, state.hits[2]) == (43, 4, -2, 2)
    assert isinstance(state, State) and "count=43" in repr(state)
    with pytest.raises(ws.FunctionError, match="first_byte has no state"):
        first_byte.new_state()


def test_of_a_packet_in_segments_the_first_one_is_seen() -> None:
    rig = Rig(first_segment, outputs=1)
    head, tail = rig.fill([UDP_FRAME[:44], b"rest of it"])
    assert chain(head, tail)
    assert rig.call(1) == 0
    assert runtime.FunctionState.at(rig.placed.state).verdict == 44 * 1000000 + 54 * 1000 + 2
    assert rig.drops() == {"no_output": 1}
    segment = Packet.at(tail)
    from wirespeed.jit import libc

    assert libc.copy_out(segment.buffer + segment.data, segment.length) == b"rest of it"
    rig.take(rig.head.drops and _box(rig).address, 1)
    _box(rig).length = 0
    rig.close()


def _box(rig: Rig) -> Any:
    from wirespeed.core.stage import Outbox

    return Outbox.at(rig.head.drops)


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers


def model(seed: int, worker: int, n: int, below: int) -> list[int]:
    """The numbers that a worker draws: SplitMix64 for the first word, then xorshift64*."""
    mask = (1 << 64) - 1
    x = (seed + (worker + 1) * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    x ^= x >> 31
    drawn = []
    for _ in range(n):
        x ^= x >> 12
        x ^= (x << 25) & mask
        x ^= x >> 27
        drawn.append((((x * 0x2545F4914F6CDD1D) & mask) >> 32) * below >> 32)
    return drawn


def test_random_numbers_are_those_of_the_seed_and_the_worker() -> None:
    for worker in (0, 1):
        rig = Rig(draws, worker=worker, workers=2)
        seen = []
        for _ in range(5):
            rig.send([b""])
            seen.append(runtime.FunctionState.at(rig.placed.state).verdict - 1)
        assert seen == model(3, worker, 5, 1 << 31)
        rig.close()


def test_a_call_draws_the_same_numbers_in_both_forms() -> None:
    assert draws(b"")[0] == draws(b"", compiled=True)[0] == model(3, 0, 1, 1 << 31)[0] + 1
    assert draws(b"", seed=9)[0] == draws(b"", seed=9, compiled=True)[0] == model(9, 0, 1, 1 << 31)[0] + 1


def test_random_numbers_spread_evenly() -> None:
    counts = np.bincount([v >> 28 for v in model(3, 0, 8000, 1 << 31)], minlength=8)
    assert (abs(counts - 1000) < 150).all(), counts


# ---------------------------------------------------------------------------------------------------------------------
# Loops that do not end


@ws.function
def nearly_endless(pkt: ws.Pkt) -> int:
    """Loops of a length known beforehand, which take years together."""
    x = 0
    for i in range(1 << 40):
        for j in range(100):
            x += pkt.frame[j & 1] * i
    for _ in range(1 << 40):
        x = x * 3 + pkt.frame[1]
    return x & 1


@ws.function
def nested(pkt: ws.Pkt) -> int:
    """Short loops, which take years only together."""
    x = 0
    for a in range(200):
        for b in range(200):
            for c in range(200):
                for d in range(200):
                    for e in range(200):
                        for f in range(200):
                            x = x * 3 + pkt.frame[(a ^ b ^ c ^ d ^ e ^ f) & 1]
    return x & 1


@pytest.mark.parametrize("f", [endless, nearly_endless, nested], ids=lambda f: f.name)
def test_a_loop_without_end_is_stopped_and_its_packets_are_counted(f: Function) -> None:
    rig = Rig(f)
    rig.fill([b"\1"] * 3)
    rig.part.stage.address  # noqa: B018  (compiled before the clock runs)
    thread = threading.Thread(target=lambda: rig.call(3))
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    rig.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert rig.drops() == {"stopped": 3}
    rig.take(_box(rig).address, 3)
    _box(rig).length = 0
    rig.close()


def test_stopping_costs_no_packet_of_a_function_that_ends_by_itself(tmp_path: Path) -> None:
    text = "def f(pkt):\n    x = 0\n    while x < 1000 + pkt.length:\n        x += 1\n    return x - 1001\n"
    rig = Rig(ws.function(define(tmp_path, text)["f"]))
    rig.stop()
    assert rig.send([b"a"] * 30)[0] == [b"a"] * 30
    rig.close()


def test_ctrl_c_ends_a_call_of_either_form() -> None:
    endless.stage()
    for compiled in (False, True):
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            endless(b"\1", compiled=compiled)
        timer.join()


def test_an_exception_inside_costs_one_packet_and_is_counted() -> None:
    # Nothing that a function may contain raises; what would is counted by the kernel that sends packets away.
    rig = Rig(first_byte)
    (handle,) = rig.fill([b"\1"])
    runtime.leave(rig.placed.state, handle, 0, True)
    assert rig.drops() == {"function_error": 1}
    rig.take(_box(rig).address, 1)
    _box(rig).length = 0
    rig.close()


# ---------------------------------------------------------------------------------------------------------------------
# The interpreted form, and what editors are told


def test_the_interpreted_form_runs_the_lines_of_the_file(tmp_path: Path) -> None:
    text = (
        "def twice(x):\n    y = x * 2\n    return y\n\n\ndef f(pkt):\n    total = 1\n    total += twice(pkt.length)\n"
    )
    python = define(tmp_path, text + "    return total\n")["f"]
    f = ws.function(python)
    f.interpreted()
    seen = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == python.__code__.co_filename:
            if event == "line":
                seen.append((frame.f_lineno, frame.f_locals.get("total")))
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert f(b"abc")[0] == 7
    finally:
        sys.settrace(before)
    assert [line for line, _ in seen] == [7, 8, 2, 3, 9]
    assert seen[-1] == (9, 7)


def test_what_the_interpreted_form_shows_can_be_read() -> None:
    from wirespeed.engine.function.stand import Stand
    from wirespeed.engine.function.twin import Packet as Twin

    stand = Stand(UDP_FRAME, runtime.FunctionState.size, {})
    packet = Twin(stand.packet, stand.state, 0)
    assert "47 bytes" in repr(packet) and UDP_FRAME[:16].hex(" ") in repr(packet)
    assert "dport=2" in repr(packet.udp) and repr(packet.tcp) == "<Tcp, not there>"
    assert repr(packet.payload) == "<5 elements: 104, 101, 108, 108, 111>"
    with pytest.raises(AttributeError, match="a packet has no 'upd'"):
        packet.upd  # noqa: B018
    with pytest.raises(AttributeError, match="'length' of a packet cannot be written"):
        packet.length = 3
    stand.close()


def test_editors_are_told_every_header_and_field() -> None:
    import typing

    told = typing.get_type_hints(Pkt)
    for name, header in HEADERS.items():
        assert list(typing.get_type_hints(told[name])) == list(header.fields), name
    for name in (*runtime.FIELDS, "mark", "hash"):
        assert told[name] is int


def test_an_action_outside_of_a_function_says_where_it_belongs() -> None:
    with pytest.raises(ws.FunctionError, match=r"call them inside of a function under @ws\.function"):
        ws.decrement_ttl(3)  # type: ignore[arg-type]
