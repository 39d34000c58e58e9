"""Programs of BPF for tests: an interpreter of the plain form, and a strategy for every program that is valid."""

import operator
from typing import Any

from hypothesis import strategies as st

from wirespeed.jit.bpf import WORD

Program = list[tuple[int, int, int, int]]

LD_W, LD_H, LD_B, IND_W, IND_H, IND_B = 0x20, 0x28, 0x30, 0x40, 0x48, 0x50
IMM, LDX_IMM, LEN, LDX_LEN, MEM, LDX_MEM, MSH = 0x00, 0x01, 0x80, 0x81, 0x60, 0x61, 0xB1
ST, STX, JA, RET_K, RET_A, TAX, TXA, NEG = 0x02, 0x03, 0x05, 0x06, 0x16, 0x07, 0x87, 0x84
ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR = (0x04 | op << 4 for op in (0, 1, 2, 3, 4, 5, 6, 7, 9, 10))
JEQ, JGT, JGE, JSET = 0x15, 0x25, 0x35, 0x45
BY_X = 8
OPERATORS = {
    ADD: operator.add, SUB: operator.sub, MUL: operator.mul, DIV: operator.floordiv, MOD: operator.mod,
    OR: operator.or_, AND: operator.and_, XOR: operator.xor, LSH: lambda a, b: a << b if b < 32 else 0,
    RSH: lambda a, b: a >> b if b < 32 else 0,
}  # fmt: skip


def interpret(program: Program, frame: bytes, wire: int | None = None) -> int:
    """What a program says of a frame; the plain form of it."""
    a, x, cells, i, turns = 0, 0, [0] * 16, 0, len(frame)
    wire = len(frame) if wire is None else wire
    while True:
        code, jt, jf, k = program[i]
        i += 1
        operand = x if code & BY_X else k
        if code in (LD_W, LD_H, LD_B, IND_W, IND_H, IND_B):
            at = k + (x if code in (IND_W, IND_H, IND_B) else 0)
            size = {0x00: 4, 0x08: 2, 0x10: 1}[code & 0x18]
            if at + size > len(frame):
                return 0
            a = int.from_bytes(frame[at : at + size], "big")
        elif code == MSH:
            if k >= len(frame):
                return 0
            x = 4 * (frame[k] & 15)
        elif code in (IMM, LEN, MEM):
            a = {IMM: k, LEN: wire, MEM: cells[k & 15]}[code]
        elif code in (LDX_IMM, LDX_LEN, LDX_MEM):
            x = {LDX_IMM: k, LDX_LEN: wire, LDX_MEM: cells[k & 15]}[code]
        elif code in (ST, STX):
            cells[k] = a if code == ST else x
        elif code in (TAX, TXA):
            a, x = (a, a) if code == TAX else (x, x)
        elif code in (RET_K, RET_A):
            return k if code == RET_K else a
        elif code == JA:
            if i + k > WORD:
                if turns <= 0:
                    return 0
                turns -= 1
            i = i + k & WORD
        elif code == NEG:
            a = -a & WORD
        elif code & 7 == 4:
            if code & ~BY_X in (DIV, MOD) and operand == 0:
                return 0
            a = OPERATORS[code & ~BY_X](a, operand) & WORD
        else:
            yes = {JEQ: a == operand, JGT: a > operand, JGE: a >= operand, JSET: a & operand != 0}[code & ~BY_X]
            i += jt if yes else jf


PLAIN = [LD_W, LD_H, LD_B, IND_W, IND_H, IND_B, IMM, LDX_IMM, LEN, LDX_LEN, MEM, LDX_MEM, MSH, ST, STX, TAX, TXA, NEG]
BINARY = [op | by for op in (ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR) for by in (0, BY_X)]
JUMPS = [op | by for op in (JEQ, JGT, JGE, JSET) for by in (0, BY_X)]
WORDS = st.one_of(
    st.integers(0, 40),
    st.sampled_from([0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFE, WORD, 0xFFFFF000]),
    st.integers(0, WORD),
)
FRAMES = st.lists(st.binary(max_size=48), min_size=1, max_size=6)


@st.composite
def programs(draw: Any, back: bool = True) -> Program:
    """Any valid program; ``back``: with jumps back, too."""
    length = draw(st.integers(1, 24))
    made: Program = []
    for i in range(length - 1):
        room = length - 2 - i
        code = draw(st.sampled_from([*PLAIN, *BINARY, *JUMPS, JA, RET_K, RET_A, LD_B, IND_B, MEM, ST]))
        jt = jf = 0
        k = draw(WORDS)
        if code in JUMPS:
            jt, jf = draw(st.integers(0, room)), draw(st.integers(0, room))
        elif code == JA:
            k = draw(st.integers(-i - 1 if back else 0, room)) & WORD
        elif code in (MEM, LDX_MEM, ST, STX):
            k &= 15
        elif code in (DIV, MOD):
            k = k or 1
        made.append((code, jt, jf, k))
    return [*made, (draw(st.sampled_from([RET_K, RET_A])), 0, 0, draw(WORDS))]
