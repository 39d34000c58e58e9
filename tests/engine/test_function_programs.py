"""Random programs: what both forms of a function do is what plain Python does with the same source.

The programs keep their numbers small, so that nothing wraps and Python itself is the oracle: the very same functions,
not decorated, are called with an object that has the packet's attributes.
"""

import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wirespeed as ws
from tests.engine.rig import define
from wirespeed.engine.function import Function

PROGRAMS = 12
NAMES = ("a", "b", "c", "d")
HELPERS = """
LIMITS = (3, 50, 700, 2, 9)

def mix(x, y=4, *, z=1):
    if x > y:
        return x - y * z
    return y

def both(x, y):
    if x < y and x % 3:
        return y, x
    return x + 1, y

def note(pkt, x):
    if x % 2:
        pkt.mark = x % 1000
        return
    pkt.mark = pkt.mark + 1
"""


class Writer:
    """Writes one random function of the packet, statement by statement."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines = [f"def program_{seed}(pkt):"]
        for i, name in enumerate(NAMES):
            self.line(1, f"{name} = pkt.frame[{i}] * {self.rng.randrange(1, 40)}")
        for _ in range(6):
            self.statement(1, 3)
        self.line(1, f"note(pkt, {self.number(2)})")
        self.line(1, f"return {self.small(2)} * 1000 + pkt.mark")

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self) -> str:
        return self.rng.choice(NAMES)

    def number(self, depth: int) -> str:
        """An expression whose value stays far from 2^63 when all names are below 10000."""
        r = self.rng
        if depth == 0:
            return r.choice(
                [self.name(), self.name(), str(r.randrange(-9, 100)), "pkt.length", f"LIMITS[{self.name()} % 5]"]
            )
        x, y = self.number(depth - 1), self.number(depth - 1)
        return r.choice(
            [
                f"({x} {r.choice('+-|&^')} {y})",
                f"({self.small(depth - 1)} * {self.small(depth - 1)})",
                f"({x} {r.choice(['//', '%'])} {self.small(depth - 1, 12)})" if r.random() < 0.5 else f"(-{x})",
                f"({x} {r.choice(['<<', '>>'])} {r.randrange(5)})",
                f"({x} if {self.condition(depth - 1)} else {y})",
                f"{r.choice(['min', 'max'])}({x}, {y}, {self.name()})",
                f"mix({x}, z={self.small(depth - 1)})" if r.random() < 0.5 else f"mix(y={x}, x={y})",
                f"(abs({x}) + bool({y}) + ({self.condition(depth - 1)}))",
            ]
        )

    def small(self, depth: int, below: int = 9973) -> str:
        return f"({self.number(depth)} % {below} + 1)"

    def condition(self, depth: int) -> str:
        r = self.rng
        x, y, z = (self.number(max(depth - 1, 0)) for _ in range(3))
        simple = r.choice(
            [f"{x} {r.choice(['<', '<=', '==', '!=', '>', '>='])} {y}", f"{x} < {y} <= {z}", f"{x} in LIMITS",
             f"{x} % 7 not in (1, {y}, 4)", f"not {x}", f"{x} % 3"]
        )  # fmt: skip
        if depth == 0:
            return simple
        return f"({simple}) {r.choice(['and', 'or'])} ({self.condition(depth - 1)})"

    def statement(self, at: int, depth: int) -> None:
        r = self.rng
        kinds = ["assign", "augment", "swap", "two", "mark", "if", "for", "while", "leave"]
        kind = r.choice(kinds if depth else kinds[:5])
        if kind == "assign":
            self.line(at, f"{self.name()} = {self.small(2)}")
        elif kind == "augment":
            name = self.name()
            self.line(at, f"{name} {r.choice(['+=', '-=', '^=', '//=', '%='])} {self.small(1)}")
            self.line(at, f"{name} %= 9973")
        elif kind == "swap":
            x, y = r.sample(NAMES, 2)
            self.line(at, f"{x}, {y} = {y}, {self.small(1)}")
        elif kind == "two":
            x, y = r.sample(NAMES, 2)
            self.line(at, f"{x}, {y} = both({self.small(1)}, {self.small(1)})")
        elif kind == "mark":
            self.line(at, f"pkt.mark = (pkt.mark + {self.small(1)}) % 1000")
        elif kind == "if":
            self.line(at, f"if {self.condition(1)}:")
            self.block(at + 1, depth - 1)
            if r.random() < 0.5:
                self.line(at, f"elif {self.condition(1)}:")
                self.block(at + 1, depth - 1)
            if r.random() < 0.6:
                self.line(at, "else:")
                self.block(at + 1, depth - 1)
        elif kind == "for":
            i = f"i{at}"
            bounds = r.choice([self.small(0, 5), f"{self.small(0, 4)}, {self.small(0, 7)}",
                               f"{self.small(0, 9)}, {r.randrange(-9, 3)}, -{r.randrange(1, 4)}"])  # fmt: skip
            self.line(at, f"for {i} in range({bounds}):")
            self.line(at + 1, f"{self.name()} = ({self.name()} + {i} * {self.rng.randrange(1, 9)}) % 9973")
            if r.random() < 0.4:
                self.line(at + 1, f"if {self.condition(0)}: {r.choice(['break', 'continue'])}")
            self.block(at + 1, depth - 1)
        elif kind == "while":
            n = f"n{at}"
            self.line(at, f"{n} = {r.randrange(1, 6)}")
            self.line(at, f"while {n} > 0 and {self.condition(0)}:" if r.random() < 0.7 else "while True:")
            self.line(at + 1, f"{n} -= 1")
            self.line(at + 1, f"if {n} < 0 or {self.condition(0)}: break")
            self.block(at + 1, depth - 1)
        else:
            self.line(at, f"if {self.condition(1)}: return {self.small(1)}")

    def block(self, at: int, depth: int) -> None:
        for _ in range(self.rng.randrange(1, 3)):
            self.statement(at, depth)


@cache
def programs(folder: Path) -> tuple[Function, list[Any]]:
    """One function that runs any of the programs, by the time that the packet has, and the programs as plain Python."""
    text = HELPERS + "\n".join("\n".join([*Writer(seed).lines, ""]) for seed in range(PROGRAMS))
    text += "\ndef choose(pkt):\n    which = pkt.time\n"
    text += (
        "".join(f"    if which == {seed}: return program_{seed}(pkt)\n" for seed in range(PROGRAMS)) + "    return 0\n"
    )
    scope = define(folder, text)
    return ws.function(scope["choose"]), [scope[f"program_{seed}"] for seed in range(PROGRAMS)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Function, list[Any]]:
    return programs(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_a_program_does_what_python_does(made: tuple[Function, list[Any]], compiled: bool) -> None:
    f, plain = made
    rng = random.Random(11)
    for seed, program in enumerate(plain):
        for _ in range(40):
            frame = rng.randbytes(rng.randrange(4, 9))
            mark = rng.randrange(1000)
            pkt = SimpleNamespace(frame=frame, length=len(frame), mark=mark)
            wanted = program(pkt)
            assert f(frame, time=seed, mark=mark, compiled=compiled)[0] == wanted, (seed, frame.hex(), mark)
