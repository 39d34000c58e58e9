"""Debug mode finds what is freed twice, foreign or written to while free, and tells who had a packet; it is compiled
in or it is not there: the machine code without it is that of the kernels whose checks were cut out of the source.
"""

import os
import subprocess
import sys

import pytest

SETUP = """
import threading
import numpy as np
from tests.core.test_pool import give, handle_of, ring_of, take, take_one, hold_one, join
from wirespeed.core import history
from wirespeed.core.packet import HEADROOM, META, Packet
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.pool import Cache, put_one
from wirespeed.jit.kernel import kernel

ROOM = HEADROOM + 64

@kernel
def note(handle, event):
    history.note(handle, event)

def found(pool):
    return {name: n for name, n in pool.faults().items() if n}

pool, other = PacketPool(8, ROOM), PacketPool(8, ROOM)
cache, theirs = pool.cache(4, name="rx"), other.cache(4)
"""


def run(script, debug=True):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = os.environ | {"WIRESPEED_DEBUG": "1" if debug else "0", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", SETUP + script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES = {
    "double frees are counted and the packet is free once": """
a, b, c = take(cache, 3)
give(cache, [a])
give(cache, [a])
assert found(pool) == {"double_free": 1}
give(cache, [b, b, c])
assert found(pool) == {"double_free": 2}
put_one(theirs, c)
assert found(pool) == {"double_free": 3} and not found(other)
assert pool.whole and other.whole and pool.audit().damage == ()
assert len(set(take(cache, 8))) == 8
""",
    "a foreign handle is counted and put nowhere": """
(a,) = take(cache, 1)
fake = np.zeros(32, np.int64)
record = Packet.at(fake.ctypes.data)
record.pool, record.refcnt = pool.address, 1
give(cache, [fake.ctypes.data, a])
assert found(pool) == {"foreign": 1}
assert pool.whole
assert str(pool.audit()).endswith(f"fault: foreign of {fake.ctypes.data:#x} in cache 1 (rx)")
""",
    "a packet that is freed without its rest is counted and put to rest": """
from wirespeed.core.pool import put_bulk
@kernel
def put(cache, handles, n):
    put_bulk(cache, handles, n)
for name, value in {"refcnt": 2, "next": 64, "segments": 2, "flags": META, "buffer": 64, "capacity": 9}.items():
    out = np.array(take(cache, 2))
    before = pool.faults()["unclean_free"]
    setattr(Packet.at(int(out[1])), name, value)
    put(cache, out.ctypes.data, 2)
    assert found(pool) == {"unclean_free": before + 1}, name
    assert pool.whole and pool.audit().damage == (), name
""",
    "a packet that was written to while it was free is counted when it is taken": """
a, b = take(cache, 2)
give(cache, [a, b])
Packet.at(b).next = a
Packet.at(a).refcnt = 0
assert [line.split()[1] for line in pool.audit().damage] == ["0", "1"]
assert take(cache, 2) == [a, b] and found(pool) == {"unclean_alloc": 2}
assert (Packet.at(b).next, Packet.at(a).refcnt) == (0, 1)
give(cache, [a, b])
assert found(pool) == {"unclean_alloc": 2} and pool.whole
""",
    "the latest faults are told with packet, cache and trail": """
packets = take(cache, 8)
give(cache, packets)
for packet in packets + packets[:1]:
    put_one(cache, packet)
lines = pool.audit().log
assert len(lines) == 8 and found(pool) == {"double_free": 9}
assert lines[0] == "double_free of packet 0 in cache 1 (rx) (latest first: free, alloc)", lines[0]
assert lines[1].startswith("double_free of packet 7 in"), lines[1]
assert lines[7].startswith("double_free of packet 1 in"), lines[7]
assert not pool.audit().sound
""",
    "an audit names who had a packet last and what was done with it": """
second = pool.cache(2, name="tx")
a, b = take(cache, 2)
(c,) = take(second, 1)
note(a, history.RECEIVE)
note(a, history.ENQUEUE)
give(second, [b])
out = {packet.handle: packet for packet in pool.audit().out}
assert set(out) == {a, c}
assert (out[a].cache, out[a].name, out[a].trail) == (1, "cache 1 (rx)", ("enqueue", "receive", "alloc"))
assert (out[c].cache, out[c].name, out[c].trail) == (2, "cache 2 (tx)", ("alloc",))
assert "had by cache 2 (tx) (latest first: alloc)" in str(pool.audit())
assert Packet.at(b).holder == 2
pool.close()
assert [packet.name for packet in pool.left.out] == ["cache 1 (rx)", "cache 2 (tx)"]
""",
    "a trail keeps the latest sixteen events": """
(a,) = take(cache, 1)
for _ in range(16):
    note(a, history.HOLD)
note(a, history.USER)
assert history.events(int(Packet.at(a).trail)) == ("user",) + ("hold",) * 15
""",
    "a name is told after its cache is closed": """
with pool.open_cache(4, name="gone") as mine:
    mine.alloc(1)
assert pool.audit().out[0].name == "cache 2 (gone)"
""",
    "the pool itself serves every thread": """
pool.free(pool.alloc(2))
thread = threading.Thread(target=lambda: pool.free(pool.alloc(3)))
thread.start()
thread.join()
assert pool.statistics()[-1].gave == 5 and pool.whole
""",
    "calls and packets are counted": """
packets = take(cache, 3) + [take_one(cache)]
for packet in packets:
    put_one(cache, packet)
(found_,) = pool.statistics()
assert (found_.gets, found_.got, found_.puts, found_.gave) == (2, 4, 4, 4), found_
""",
    "allocations that fail count as no packets": """
assert take(cache, 9) == [] and pool.failures == 1
assert pool.statistics()[0].got == 0
""",
    "a cache belongs to one thread until it is flushed": """
from wirespeed.errors import GraphError
mine = pool.open_cache(4)
mine.free(mine.alloc(2))
said = []
def use():
    try:
        mine.free(mine.alloc(2))
    except GraphError as error:
        said.append(str(error))
for flush in (False, True):
    if flush:
        mine.flush()
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
assert len(said) == 1 and "used by two threads" in said[0]
mine.close()
assert pool.whole
""",
}


@pytest.mark.parametrize("name", CASES)
def test_in_debug_mode(name):
    assert run(CASES[name] + "\nprint('found')") == "found\n"


def test_without_debug_mode_nothing_is_noted():
    script = """
a, b = take(cache, 2)
note(a, history.USER)
give(cache, [b])
for handle in (a, b):
    p = Packet.at(handle)
    assert (p.trail, p.holder, p.owner) == (0, 0, 1), p
(found_,) = pool.statistics()
assert (found_.gets, found_.got, found_.puts, found_.gave) == (0, 0, 0, 0)
print('nothing')
"""
    assert run(script, debug=False) == "nothing\n"


CODE = """
import ast, re, types
from wirespeed.core import pool as module
from wirespeed.jit.kernel import assembly
from wirespeed.jit.machine import ARCHITECTURE, DEBUG

class Without(ast.NodeTransformer):
    '''The source without what debug mode adds.'''
    def visit_If(self, node):
        self.generic_visit(node)
        test = ast.unparse(node.test)
        if test == "DEBUG":
            return node.orelse
        if test.startswith("not DEBUG or"):
            return node.body
        if test.startswith("DEBUG or "):
            node.test = node.test.values[1]
        return node

source = open(module.__file__).read()
tree = Without().visit(ast.parse(source))
# An elif is an If alone in the else branch of another, and what replaces it is a list there.
cut = types.ModuleType("wirespeed.core.pool_without_checks")
exec(compile(ast.fix_missing_locations(tree), "<cut>", "exec"), cut.__dict__)
assert "if DEBUG" not in ast.unparse(tree)

def code(kernels):
    alloc_bulk, alloc, put_bulk, put_one = (getattr(kernels, n) for n in ("alloc_bulk", "alloc", "put_bulk", "put_one"))

    @kernel
    def bulk(cache, handles, n):
        got = alloc_bulk(cache, handles, n)
        put_bulk(cache, handles, got)
        return got

    @kernel
    def single(cache):
        handle = alloc(cache)
        if handle != 0:
            put_one(cache, handle)
        return handle

    handles = np.zeros(8, np.int64)
    assert bulk(cache, handles.ctypes.data, 3) == 3 and single(cache)
    return [assembly(bulk), assembly(single)]

def instructions(text):
    '''Each instruction, without the names of functions and labels, which the compiler numbers.'''
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [re.sub(r"[.$_\\w]*[A-Za-z_.$][.$\\w]{9,}|\\.L\\w+", "name", line) for line in lines
            if line and not line.startswith(".") and not line.endswith(":")]

ours, without = code(module), code(cut)
for a, b in zip(ours, without):
    print(len(instructions(a)), int(instructions(a) == instructions(b)), end=" ")
fields = ["owner", "trail", "holder"]
pattern = r"\\b%d\\(%%r(?!sp|bp|ip)" if ARCHITECTURE == "x86_64" else r"#%d\\]"
touched = [f for f in fields if any(re.search(pattern % Packet.offset(f), text) for text in ours)]
checks = [n for n in ("_check_out", "_check_in", "_settle", "_fault") if any(n in text for text in ours)]
print(*touched, *checks)
"""


def test_without_debug_mode_the_machine_code_is_that_of_the_source_without_the_checks():
    bulk, same_bulk, single, same_single, *traces = run(CODE, debug=False).split()
    assert (same_bulk, same_single, traces) == ("1", "1", [])
    debugged_bulk, _, debugged_single, _, *traces = run(CODE).split()
    assert int(debugged_bulk) > int(bulk) and int(debugged_single) > int(single)
    assert {"owner", "trail", "holder"} <= set(traces), "the look at the assembly sees what is there"
