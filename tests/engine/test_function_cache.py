"""Compiled functions are kept: the next process compiles nothing, and what differs is compiled apart."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import wirespeed as ws
from tests.engine.rig import define
from wirespeed.jit import cache, generated
from wirespeed.jit.layout import layout

PROGRAM = """
import numpy as np
import wirespeed as ws
from wirespeed.jit.kernel import compiled

Mine = ws.layout("CacheState", [("count", "u8"), ("hits", "u4", 4)])
SALT = {salt}

def half(x, by=2):
    return x // by

@ws.function(state=Mine, table=np.arange(8, dtype=np.uint16))
def kept(pkt, my, table):
    my.count += half(pkt.length)
    for i in range(pkt.length):
        my.hits[i] += table[i]
    if pkt.ipv4 or pkt.payload[0] == 3:
        ws.push_vlan(pkt, 5)
    return SALT + my.count + my.hits[3] % 4

state = kept.new_state()
print(kept(bytes(20), compiled=True, state=state)[0], [c.name for c in compiled() if "kept" in c.name or "half" in c.name])
print(len(compiled()))
"""


def run(path: Path) -> tuple[str, int]:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    return first, int(second)


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    salt = int.from_bytes(os.urandom(4), "big")  # so that no earlier run of this test has compiled it
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(salt=salt))
    verdict = salt + 10 + 3
    first, compiled = run(path)
    assert first.startswith(f"{verdict} [") and "kept" in first and compiled > 0
    assert run(path) == (f"{verdict} []", 0)


def test_what_changes_the_code_makes_another_module(tmp_path: Path) -> None:
    def text(table: str = "u2", limit: int = 3, field: str = "u4", helper: str = "x + 1") -> str:
        source = f"LIMIT = {limit}\ndef more(x):\n    return {helper}\n"
        source += "def f(pkt, my, t):\n    my.n += t[more(pkt.length)]\n    return LIMIT\n"
        mine = layout("CacheVaried", [("n", field)])
        return ws.function(state=mine, t=np.zeros(4, table))(define(tmp_path, source)["f"]).generated

    base = text()
    assert text() == base, "where a function stands does not matter"
    different = [text(table="u4"), text(table=">u2"), text(limit=4), text(field="u2"), text(helper="x + 2")]
    assert len({base, *different}) == 6


def test_values_of_a_table_are_not_in_the_code(tmp_path: Path) -> None:
    python = define(tmp_path, "def f(pkt, t):\n    return t[0]\n")["f"]
    one, other = (ws.function(t=np.full(n, n, np.int64))(python) for n in (3, 9))
    assert one.generated == other.generated
    assert one.stage() is other.stage()


def test_a_file_in_the_cache_that_is_damaged_is_written_anew(tmp_path: Path) -> None:
    salt = int.from_bytes(os.urandom(4), "big")
    f = ws.function(define(tmp_path, f"def damaged(pkt):\n    return {salt}\n")["damaged"])
    f.stage()
    (title,) = [t for t in generated._loaded if t.startswith("damaged_") and str(salt) in f.generated]
    path = cache.root() / "functions" / f"{title}.py"
    path.write_text("half of a fi")
    assert generated._file("functions", title, f.generated) == path
    assert path.read_text() == f.generated
    assert not list(path.parent.glob("*.tmp"))


def test_only_the_functions_own_code_is_compiled_for_it(tmp_path: Path) -> None:
    from wirespeed.jit.kernel import compiled

    warm = ws.function(define(tmp_path, "def warm(pkt):\n    return pkt.ipv4.ttl * 3 + 1\n")["warm"])
    warm.stage()
    salt = int.from_bytes(os.urandom(4), "big")
    before = len(compiled())
    f = ws.function(define(tmp_path, f"def alone(pkt):\n    return pkt.ipv4.ttl * {salt} + pkt.ipv4.tos\n")["alone"])
    f.stage()
    assert len(compiled()) == before + 2, "the body and the loop over the burst, nothing of ours"
