"""What a user's function may contain, and what each error says about the rest: name, line and what to write instead."""

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wirespeed as ws
from tests.engine.rig import define
from wirespeed.errors import FunctionError
from wirespeed.jit.layout import layout

My = layout("SubsetState", [("count", "u8"), ("hits", "u4", 4)])


class Settings:
    limit = 3


class Proto(enum.IntEnum):
    UDP = 17


def read_only() -> np.ndarray:
    array = np.arange(4)
    array.flags.writeable = False
    return array


SCOPE: dict[str, Any] = {
    "ws": ws, "np": np, "LIST": [1, 2], "SHARE": 1.5, "ARRAY": np.arange(3), "TEXT": "x", "TABLE": {}, "PORTS": (80, 443),
    "Settings": Settings, "SETTINGS": Settings(), "Proto": Proto, "BIG": 1 << 64, "MIXED": (1, "x"), "NUMBER": np.int32(7),
}  # fmt: skip
HELPERS = """
def again(pkt): return once_more(pkt)
def once_more(pkt): return again(pkt)
def nothing(pkt): pkt.mark = 1
def sometimes(pkt):
    if pkt.mark: return 1
def mixed(pkt):
    if pkt.mark: return 1
    return pkt.ipv4
def ttl(ip): return ip.ttl
def several(*all): return 1
"""
HEAD = HELPERS + "def f(pkt, my, fixed):\n"
FIRST = HEAD.count("\n") + 1  # the line of a case's first statement

# A case is the body of a function, the line of the error counted from its first one, and what the error says.
REFUSED = [
    # verdicts
    ("return", 1, "a verdict is the number of an output, and this is nothing; return ws.FORWARD or ws.DROP"),
    ("return True", 1, "a verdict is the number of an output, and this is true or false; "
                       "write `return ws.FORWARD if ... else ws.DROP`"),
    ("return pkt.ipv4.ttl > 1", 1, "a verdict is the number of an output, and this is true or false; "
                                   "write `return ws.FORWARD if ... else ws.DROP`"),
    ("return pkt.ipv4", 1, "a verdict is the number of an output, and this is an IPv4 header; "
                           "return ws.FORWARD or ws.DROP"),
    ("pass", 0, "not every path returns a verdict; end f with a return"),
    ("if pkt.ipv4: return 0", 0, "not every path returns a verdict; end f with a return"),
    ("while pkt.mark: return 0", 0, "not every path returns a verdict; end f with a return"),
    ("while True:\n    if pkt.mark: break", 0, "not every path returns a verdict; end f with a return"),
    # statements
    ("assert pkt.ipv4", 1, "assert cannot be compiled; return a verdict, or count the case in a state"),
    ("raise ValueError", 1, "raise cannot be compiled; return a verdict, or count the case in a state"),
    ("try: return 0\nexcept Exception: return 1", 1,
     "try cannot be compiled, and nothing here raises: absent headers read as 0; write plain statements"),
    ("with open('x') as f: return 0", 1, "with cannot be compiled; write plain statements"),
    ("def g(): pass", 1, "a function inside the function cannot be compiled; define it outside"),
    ("class A: pass", 1, "a class inside the function cannot be compiled; define it outside"),
    ("global y\ny = 1", 1, "a global variable cannot be changed; keep the value in a state: @ws.function(state=...)"),
    ("import os", 1, "import cannot be compiled; import outside the function"),
    ("from os import path", 1, "import cannot be compiled; import outside the function"),
    ("yield 1", 1, "yield cannot be compiled; return a verdict"),
    ("del pkt", 1, "del cannot be compiled; leave it out"),
    ("match pkt.mark:\n    case 1: return 0", 1, "match cannot be compiled; write if and elif"),
    ("pkt.mark", 1, "pkt.mark does nothing; assign it, return it or leave it out"),
    ("for x in PORTS: pass", 1,
     "a for loop goes over range(...) only; write `for i in range(len(x))` and x[i]"),
    ("for x in pkt.payload: pass", 1,
     "a for loop goes over range(...) only; write `for i in range(len(x))` and x[i]"),
    ("for x, y in range(3): pass", 1, "a loop over range(...) has one variable; assign others inside"),
    ("for x in range(1, 2, 0): pass", 1, "range with step 0 would never end; give another step"),
    ("for x in range(): pass", 1, "range takes one, two or three numbers; got range()"),
    ("for x in range(3): pass\nelse: pass", 1,
     "else behind a loop cannot be compiled; set a variable before `break`"),
    ("while pkt.mark: pass\nelse: pass", 1, "else behind a loop cannot be compiled; set a variable before `break`"),
    # expressions
    ("x = 1.5", 1, "1.5 is a fraction, and numbers here are whole; scale it, such as to thousandths"),
    ("x = pkt.mark / 2", 1, "`/` gives a fraction, and numbers here are whole; write `//`"),
    ("x = 3\nx /= 2", 2, "`/` gives a fraction, and numbers here are whole; write `//`"),
    ("x = pkt.mark @ 2", 1, "`@` is for matrices; write out what is meant"),
    ("x = 2 ** pkt.mark", 1, "`**` is for constants only; write a loop of multiplications, or `1 << n` for 2 ** n"),
    ("x = [1, 2]", 1, "a list cannot be compiled; write a tuple, or pass a NumPy array as a table: "
                      "@ws.function(name=array)"),
    ("x = {1: 2}", 1, "a dict cannot be compiled; pass a NumPy array as a table: @ws.function(name=array)"),
    ("x = {1}", 1, "a set cannot be compiled; write a tuple: x in (1, 2)"),
    ("x = [i for i in range(3)]", 1, "a comprehension cannot be compiled; write a for loop over range(...)"),
    ("x = any(i for i in range(3))", 1, "any cannot be compiled; write `or`, or a for loop over range(...)"),
    ("x = (i for i in range(3))", 1, "a generator cannot be compiled; write a for loop over range(...)"),
    ("x = f'{pkt}'", 1, "an f-string cannot be compiled; there is no text here, count in a state instead"),
    ("x = 'abc'", 1, "'abc' is text; only whole numbers and tuples of them can be used"),
    ("x = lambda: 1", 1, "a lambda cannot be compiled; write a function with def, outside"),
    ("x = (y := 3)", 1, "`:=` cannot be compiled; assign on a line of its own"),
    ("x = None", 1, "None cannot be compiled; numbers and conditions are all there is"),
    ("x = (1, 2)", 1, "a tuple can stand here only when it is assigned to as many names, or behind `in`; "
                      "use one name for each"),
    ("x = pkt.ipv4 is None", 1, "`is` cannot be compiled; write `==` for numbers, and test a header as it is: "
                                "`if pkt.ipv4`"),
    ("x = pkt.mark in 3", 1, "behind `in` wanted a tuple of numbers; write a loop to search an array"),
    ("x = 1 < pkt.mark in (1, 2)", 1, "`in` cannot be chained with other comparisons; join two with `and`"),
    ("x = 0x1FFFFFFFFFFFFFFFF", 1,
     "36893488147419103231 does not fit into 64 bits; numbers here have 64 bits and wrap"),
    ("x = my.hits[1:2]", 1, "a slice cannot be compiled; read one element at a time, or with u16, u32 and u64"),
    # names
    ("return y", 1, "there is no 'y'; did you mean 'my'?"),
    ("if pkt.mark: x = 1\nreturn x", 2, "'x' may have no value here; give it one on every path that leads here"),
    ("for i in range(3): x = 1\nreturn x", 2, "'x' may have no value here; give it one on every path that leads here"),
    ("for i in range(3): pass\nreturn i", 2, "'i' may have no value here; give it one on every path that leads here"),
    ("while pkt.mark:\n    x = 1\n    break\nreturn x", 4,
     "'x' may have no value here; give it one on every path that leads here"),
    ("_ws_x = 3", 1, "names that begin with _ws_ are taken; choose another one than _ws_x"),
    ("return LIST[0]", 1, "LIST is a list, which could change; write a tuple, or pass a NumPy array as a table"),
    ("return SHARE", 1, "SHARE is a fraction, and numbers here are whole; scale it, such as to thousandths"),
    ("return ARRAY[1]", 1, "ARRAY is an array; pass it as a table: @ws.function(ARRAY=...)"),
    ("return TEXT", 1, "TEXT is text; only whole numbers and tuples of them can be used"),
    ("return TABLE[1]", 1, "TABLE is a dict; pass a NumPy array as a table: @ws.function(name=array)"),
    ("return BIG", 1, "BIG does not fit into 64 bits; numbers here have 64 bits and wrap"),
    ("return MIXED[0]", 1, "an element of MIXED is text; only whole numbers and tuples of them can be used"),
    ("return SETTINGS.limit", 1, "SETTINGS is a Settings; only whole numbers and tuples of them can be used"),
    ("return Settings.limt", 1, "Settings has no 'limt'; did you mean 'limit'?"),
    ("return ws.DORP", 1, "ws has no 'DORP'; did you mean 'DROP'?"),
    ("return ttl", 1, "ttl is a function; call it"),
    ("return PORTS[2]", 1, "PORTS has no element 2; it has 2, counted from 0"),
    ("return PORTS[-1]", 1, "PORTS has no element -1; it has 2, counted from 0"),
    ("ws.DROP = 3", 1, "ws.DROP cannot be written; keep what changes in a state"),
    ("PORTS[0] = 3", 1, "PORTS is constant; keep what changes in a state"),
    # packet, headers, state
    ("return pkt.ipv4.tll", 1, "no field 'tll' in IPv4; the fields are version, ihl, tos, len, id, flags, frag, ttl, "
                               "proto, chksum, src, dst"),
    ("pkt.udp.port = 3", 1, "no field 'port' in Udp; the fields are sport, dport, len, chksum"),
    ("return pkt.ipv5.ttl", 1, "the packet has no 'ipv5'; did you mean 'ipv6'?"),
    ("return my.cnt", 1, "no field 'cnt' in SubsetState; the fields are count, hits"),
    ("pkt.ipv4 = 3", 1, "pkt.ipv4 cannot be written; write its fields"),
    ("pkt.ipv4.chksum = ws.checksum_ipv4(pkt.ipv4)", 1,
     "pkt.ipv4.chksum holds a checksum, and this is true or false; "
     "ws.checksum_ipv4 and ws.checksum_l4 write it themselves, on a line of their own"),
    ("pkt.time = 3", 1, "pkt.time cannot be written; of the packet itself only mark can be"),
    ("my.hits = 3", 1, "my.hits is an array, a place that cannot be replaced; write its elements or fields"),
    ("my.hits[0] = pkt", 1, "my.hits[0] holds a number, and what is assigned is the packet"),
    ("fixed[0] = 1", 1, "fixed[0] is of a table that is read-only; give one that can be written"),
    ("x = pkt.ipv4 == pkt.ipv6", 1, "wanted a number, and pkt.ipv4 is an IPv4 header; name a field of it: version, "
                                    "ihl, tos, len, id, flags, frag, ttl, proto, chksum, src, dst"),
    ("x = pkt + 1", 1, "wanted a number, and pkt is the packet; nothing can be computed with it"),
    ("x = my.hits + 1", 1, "wanted a number, and my.hits is an array"),
    ("if my: return 1", 1, "my is the state, which is neither true nor false; test a field of it"),
    ("if pkt: return 1", 1, "pkt is the packet, which is neither true nor false; test a field of it"),
    ("x = pkt[3]", 1, "pkt is the packet and has no elements; write pkt.frame[i] or pkt.payload[i]"),
    ("x = pkt.mark.low", 1, "pkt.mark is a number and has no 'low'"),
    ("x = pkt.ipv4\nx = pkt.ipv6", 2, "'x' was an IPv4 header before and is an IPv6 header now; use two names"),
    ("x = pkt.ipv4 if pkt.mark else pkt.udp", 1,
     "this is an IPv4 header or a Udp header; make both the same, or write if and else"),
    ("x, y = 1, 2, 3", 1, "2 names get 3 values; give each name one"),
    ("x, y = 3", 1, "3 is a number, not several values; write a tuple"),
    # calls
    ("print(1)", 1, "print cannot be compiled; count in a state, or capture with --tap"),
    ("x = np.zeros(3)", 1, "np.zeros cannot be called here; what can is abs, bool, int, len, max, min, "
                           "wirespeed's own and plain functions of yours"),
    ("x = len(pkt)", 1, "pkt is the packet and has no length; write pkt.length"),
    ("x = min(3)", 1, "min takes two or more numbers here; got min(3)"),
    ("x = max(1, 2, key=3)", 1, "max takes no keywords here; got max(1, 2, key=3)"),
    ("x = range(3)", 1, "range can stand only behind `for ... in`"),
    ("x = nothing(pkt)", 1, "nothing(pkt) is nothing; assign one value to each name"),
    ("x = ttl()", 1, "ttl: missing a required argument: 'ip'; it takes (ip)"),
    ("x = ttl(*pkt)", 1, "`*` before an argument or a name cannot be compiled; write them one by one"),
    ("x = several(1)", 1, "several takes any number of arguments; give it named ones"),
    ("x = pkt.prepend", 1, "prepend is a method; call it: pkt.prepend(...)"),
    ("pkt.prepend()", 1, "pkt.prepend takes one number; got pkt.prepend()"),
    ("pkt.prepand(3)", 1, "pkt is the packet and has no method 'prepand'; did you mean 'prepend'?"),
    ("x = pkt.payload.u15(3)", 1, "pkt.payload is bytes of the packet and has no method 'u15'; did you mean 'u16'?"),
    ("x = pkt.payload.u16", 1, "u16 is a method; call it: pkt.payload.u16(...)"),
    ("ws.decrement_ttl(pkt.udp)", 1, "decrement_ttl wants pkt.ipv4 or pkt.ipv6, and it is given a Udp header"),
    ("ws.push_vlan(3, pkt)", 1, "push_vlan wants the packet first; write push_vlan(pkt, ...)"),
    ("ws.push_vlan(pkt)", 1, "push_vlan: missing a required argument: 'vlan'; it takes "
                             "(pkt, vlan, prio=0, type=33024)"),
    ("ws.rewrite(pkt)", 1, "rewrite changes nothing; give at least one of src, dst, sport, dport"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "line", "message"), REFUSED, ids=[case[0].split("\n")[-1] for case in REFUSED])
def test_what_is_not_in_the_subset_is_refused_with_advice(tmp_path: Path, body: str, line: int, message: str) -> None:
    text = HEAD + "".join(f"    {row}\n" for row in body.split("\n"))
    python = define(tmp_path, text, **SCOPE)["f"]
    with pytest.raises(FunctionError) as raised:
        ws.function(state=My, fixed=read_only())(python).translated()
    assert str(raised.value) == f"f, line {FIRST + line - 1}: {message}"
    assert raised.value.line == FIRST + line - 1
    assert raised.value.file == python.__code__.co_filename


# What goes wrong in a function that is called is told by that function's name and line.
IN_HELPERS = [
    ("return again(pkt)", "once_more, line 3: it calls itself (again -> once_more -> again); write a loop instead"),
    ("x = sometimes(pkt)", "sometimes, line 5: not every path returns a value; end sometimes with a return"),
    (
        "x = mixed(pkt)",
        "mixed, line 9: it returns an IPv4 header here and a number in line 8; return the same everywhere",
    ),
    ("x = ttl(pkt.udp)", "ttl, line 10: no field 'ttl' in Udp; the fields are sport, dport, len, chksum"),
    ("return f(pkt, my, fixed)", "f, line 13: it calls itself (f -> f); write a loop instead"),
]


@pytest.mark.parametrize(("body", "message"), IN_HELPERS, ids=[case[0] for case in IN_HELPERS])
def test_an_error_in_a_called_function_names_that_function(tmp_path: Path, body: str, message: str) -> None:
    python = define(tmp_path, f"{HEAD}    {body}\n", **SCOPE)["f"]
    with pytest.raises(FunctionError) as raised:
        ws.function(state=My, fixed=read_only())(python).translated()
    assert str(raised.value) == message


# A case is the body of a function and the verdict that both forms come to on an empty frame.
ACCEPTED = [
    ("return NUMBER + Proto.UDP + Settings.limit", 27),
    ("return 0xFFFFFFFFFFFFFFFF", -1),
    ("return -0x8000000000000000 - 1 & 0xFF", 0xFF),
    ("return 2 ** 10 - (1 << 3) // 3", 1022),
    ("x, y = 1, 2\nx, y = y, x\nreturn x * 10 + y", 21),
    ("x = y = 3\nreturn x + y", 6),
    ("x: int = 4\nreturn x", 4),
    ("return 5 if 80 in PORTS and 81 not in PORTS else 6", 5),
    ("return PORTS[pkt.mark] + len(PORTS)", 82),
    ("if False: return unknown\nreturn 1", 1),
    ("return 1\nreturn unknown", 1),
    ("while True:\n    x = 7\n    break\nreturn x", 7),
    ("while True:\n    if pkt.mark == 3: return 9\n    pkt.mark += 1", 9),
    ("x = 1\nfor i in range(5):\n    if i == 2: continue\n    if i == 4: break\n    x = x * 10 + i\nreturn x", 1013),
    ("x = 0\nfor i in range(3): i += 10; x += i\nreturn x", 33),
    ("x = 0\nfor i in range(7, -2, -3): x = x * 10 + i\nreturn x", 741),
    ("...\n'text'\npass\nreturn 3", 3),
    ("return int(pkt.mark == 0) + bool(5) + abs(-3) + min(4, 2, 9) + max(1, 8)", 15),
    ("nothing(pkt)\nreturn pkt.mark", 1),
    ("return +(not pkt.ipv4) + ~(-4)", 4),
]


@pytest.mark.parametrize(("body", "verdict"), ACCEPTED, ids=[case[0].split("\n")[-1] for case in ACCEPTED])
def test_what_is_in_the_subset_means_what_it_means_in_python(tmp_path: Path, body: str, verdict: int) -> None:
    text = HEAD + "".join(f"    {row}\n" for row in body.split("\n"))
    f = ws.function(state=My, fixed=read_only())(define(tmp_path, text, **SCOPE)["f"])
    assert f(b"") == (verdict, b"")


def test_accepted_cases_compile_to_the_same(tmp_path: Path) -> None:
    # One function with all cases, told apart by the mark: a compilation for each would take minutes.
    text = HELPERS
    for i, (body, _) in enumerate(ACCEPTED):
        text += f"def case_{i}(pkt, my, fixed):\n" + "".join(f"    {row}\n" for row in body.split("\n"))
    text += "def f(pkt, my, fixed):\n    case = pkt.mark\n    pkt.mark = 0\n"
    text += "".join(f"    if case == {i}: return case_{i}(pkt, my, fixed)\n" for i in range(len(ACCEPTED)))
    text += "    return 0\n"
    f = ws.function(state=My, fixed=read_only())(define(tmp_path, text, **SCOPE)["f"])
    assert [f(b"", mark=i, compiled=True)[0] for i in range(len(ACCEPTED))] == [verdict for _, verdict in ACCEPTED]


def test_what_cannot_be_a_function_is_refused() -> None:
    with pytest.raises(FunctionError, match="wanted a plain function to compile, got 3"):
        ws.function(3)  # type: ignore[call-overload]
    with pytest.raises(FunctionError, match=r"a lambda, line .*: write a function with def instead"):
        ws.function(lambda pkt: 0)


def test_a_function_without_source_is_refused() -> None:
    scope: dict[str, Any] = {}
    exec("def unseen(pkt): return 0", scope)
    with pytest.raises(FunctionError, match=r"unseen, line 1: its source cannot be found.*define it in a file"):
        ws.function(scope["unseen"])


def test_a_file_that_changed_since_it_was_imported_is_noticed(tmp_path: Path) -> None:
    python = define(tmp_path, "def f(pkt):\n    return 1\n")["f"]
    Path(python.__code__.co_filename).write_text("def f(pkt):\n    return 1 if pkt.ipv4 else 2\n")
    with pytest.raises(FunctionError, match="has changed since the function was defined"):
        ws.function(python)


def test_a_function_of_no_arguments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FunctionError, match=r"f takes no packet; write def f\(pkt\)"):
        ws.function(define(tmp_path, "def f(): return 0\n")["f"])
    with pytest.raises(FunctionError, match=r"f takes no state; write def f\(pkt, my\)"):
        ws.function(state=My)(define(tmp_path, "def f(pkt): return 0\n")["f"])
    with pytest.raises(FunctionError, match="state is a type; give a layout"):
        ws.function(state=Settings)(define(tmp_path, "def f(pkt, my): return 0\n")["f"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1, 2], r"the table t is a list; give np.array\(..., np.int64\)"),
        (3, "the table t is a int; give a NumPy array of integers"),
        (np.zeros(3), "the table t has the dtype float64; give one of whole numbers"),
        (np.zeros(3, bool), "the table t has the dtype bool; give one of whole numbers"),
        (np.zeros((2, 2), int), "the table t has 2 dimensions; give one with one"),
        (np.zeros(8, int)[::2], "the elements of the table t do not lie side by side; give a copy of it"),
    ],
)
def test_a_table_that_cannot_be_one_is_refused(tmp_path: Path, table: Any, message: str) -> None:
    python = define(tmp_path, "def f(pkt, t): return t[0]\n")["f"]
    with pytest.raises(FunctionError, match=message):
        ws.function(t=table)(python)


def test_a_table_for_no_parameter_is_refused(tmp_path: Path) -> None:
    python = define(tmp_path, "def f(pkt, t): return t[0]\n")["f"]
    with pytest.raises(FunctionError, match="f has no parameter 'u' for a table; those for tables are: t"):
        ws.function(u=np.zeros(3, int))(python)


def test_a_name_that_is_defined_later_is_found_on_the_first_use(tmp_path: Path) -> None:
    text = "@ws.function\ndef f(pkt): return later(pkt) + LATER\ndef later(pkt): return 2\nLATER = 3\n"
    assert define(tmp_path, text, ws=ws)["f"](b"")[0] == 5


def test_constants_are_those_of_the_first_use(tmp_path: Path) -> None:
    scope = define(tmp_path, "LIMIT = 1\n@ws.function\ndef f(pkt): return LIMIT\n", ws=ws)
    scope["LIMIT"] = 2
    assert scope["f"](b"")[0] == 2
    scope["LIMIT"] = 3
    assert scope["f"](b"")[0] == scope["f"](b"", compiled=True)[0] == 2


@pytest.mark.parametrize(
    "loop", ["while True: pass", "while True:\n        x = pkt.length", "while 1:\n        continue"]
)
def test_a_loop_without_a_way_out_is_refused_with_its_line(loop: str, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(f"def f(pkt):\n    {loop}\n    return 0\n")
    scope: dict[str, Any] = {}
    exec(compile((tmp_path / "endless.py").read_text(), str(tmp_path / "endless.py"), "exec"), scope)
    with pytest.raises(FunctionError, match=r"f, line 2: this loop has no way out; give it a condition"):
        ws.function(scope["f"])


def test_an_async_function_is_refused_for_what_it_is() -> None:
    async def waits(pkt: Any) -> int:
        return 0

    with pytest.raises(FunctionError, match=r"waits, line \d+: it is async; write a plain def instead"):
        ws.function(waits)  # type: ignore[arg-type]
