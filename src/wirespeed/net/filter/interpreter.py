"""A kernel that runs programs of classic BPF: any program at once, without compiling anything for it.

Theory of operation
-------------------
One loop over ``struct sock_filter``, as the kernel has it for sockets that it does not compile for.  A program must have
passed :func:`validate` before; then each jump stays within it and each word of scratch memory exists, so that only loads
from the frame need a test, and a load beyond the captured bytes, or a division by zero, returns 0.

A program that jumps back is given as many steps as its instructions times the captured bytes: one that reads another
byte in each turn comes to its end within them, and one that does not would never end, and returns 0.

Thread rules: no state; any number of threads may run one program.

*Source:* McCanne and Jacobson, "The BSD Packet Filter", 1993; Linux, ``net/core/filter.c``.
"""

import numpy as np

from wirespeed.jit.intrinsics import load_be16, load_be32, load_u8, load_u16, load_u32, stack, store_u32
from wirespeed.jit.kernel import kernel
from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.check import validate
from wirespeed.net.filter.program import Instruction, Program

__all__ = ["image", "run", "validate"]

i64, u32 = np.int64, np.uint32

RECORD = np.dtype([("code", "u2"), ("jt", "u1"), ("jf", "u1"), ("k", "u4")])  # struct sock_filter
SIZE = 8
assert RECORD.itemsize == SIZE
LIMIT = 1 << 32
LOAD_SIZE, WORD, HALF = 0x18, op.W, op.H
LD, LDX, ST, STX, ALU, JMP, RET = op.LD, op.LDX, op.ST, op.STX, op.ALU, op.JMP, op.RET
IMM, ABS, IND, MEM, LEN, MSH = op.IMM, op.ABS, op.IND, op.MEM, op.LEN, op.MSH
ADD, SUB, MUL, DIV, OR, AND = op.ADD, op.SUB, op.MUL, op.DIV, op.OR, op.AND
LSH, RSH, MOD, XOR, NEG = op.LSH, op.RSH, op.MOD, op.XOR, op.NEG
JA, JEQ, JGT, JGE = op.JA, op.JEQ, op.JGT, op.JGE
X, A, TXA = op.X, op.A, op.TXA
MASK, BACK = op.MASK, op.SPECIAL
OUTSIDE = -1


def image(program: Program | tuple[Instruction, ...]) -> np.ndarray:
    """A checked program as an array of ``struct sock_filter``; ``.ctypes.data`` is its address while it lives."""
    instructions = program.instructions if isinstance(program, Program) else program
    validate(instructions, loops=True)
    return np.array([tuple(one) for one in instructions], RECORD)


@kernel(inline=True)
def _word(frame, captured, at, size):
    """The field at an offset of a frame, OUTSIDE beyond its captured bytes; at and captured are below 2^33."""
    if size == WORD:
        return i64(load_be32(frame + at)) if at + 4 <= captured else i64(OUTSIDE)
    if size == HALF:
        return i64(load_be16(frame + at)) if at + 2 <= captured else i64(OUTSIDE)
    return i64(load_u8(frame + at)) if at < captured else i64(OUTSIDE)


@kernel(inline=True)
def _operated(operation, a, value):
    """An operation on two 32-bit values, not yet cut to 32 bits; ``value`` is not 0 where it divides."""
    if operation == AND:
        return a & value
    if operation == ADD:
        return a + value
    if operation == LSH:
        return a << value if value < 32 else i64(0)
    if operation == RSH:
        return a >> value if value < 32 else i64(0)
    if operation == SUB:
        return a - value
    if operation == MUL:
        # The low half is all that stays, and a product of 32 bits each would not fit a signed one of 64.
        return (a * (value & 0xFFFF)) + (((a * (value >> 16)) & 0xFFFF) << 16)
    if operation == OR:
        return a | value
    if operation == XOR:
        return a ^ value
    if operation == DIV:
        return a // value
    if operation == MOD:
        return a % value
    return -a


@kernel(inline=True)
def _true(operation, a, value):
    """The test of a conditional jump."""
    if operation == JEQ:
        return a == value
    if operation == JGT:
        return a > value
    if operation == JGE:
        return a >= value
    return (a & value) != 0


@kernel
def run(program, n, frame, captured, wire):
    """What the program of ``n`` instructions at an address returns for a frame: 0 for no match.

    ``frame`` is the address of ``captured`` bytes, one behind another; ``wire`` is the packet's own length.
    """
    memory = stack(64)
    for word in range(16):
        store_u32(memory + 4 * word, u32(0))
    a = i64(0)
    x = i64(0)
    at = i64(0)
    left = n * (captured + 1)
    while left > 0:
        left -= 1
        instruction = program + SIZE * at
        code = i64(load_u16(instruction))
        k = i64(load_u32(instruction + 4))
        at += 1
        kind = code & 0x07
        mode = code & 0xE0
        if kind == LD or kind == LDX:
            if mode == ABS or mode == IND:
                value = _word(frame, captured, k + x if mode == IND else k, code & LOAD_SIZE)
            elif mode == MSH:
                value = (i64(load_u8(frame + k)) & 0x0F) << 2 if k < captured else i64(OUTSIDE)
            elif mode == MEM:
                value = i64(load_u32(memory + 4 * k))
            elif mode == LEN:
                value = wire & MASK
            else:
                value = k
            if value < 0:
                return u32(0)
            if kind == LD:
                a = value
            else:
                x = value
        elif kind == JMP:
            operand = x if code & X else k
            if code & 0xF0 == JA:
                at += k - LIMIT if k >= BACK else k
            elif _true(code & 0xF0, a, operand):
                at += i64(load_u8(instruction + 2))
            else:
                at += i64(load_u8(instruction + 3))
        elif kind == ALU:
            operand = x if code & X else k
            operation = code & 0xF0
            if operand == 0 and (operation == DIV or operation == MOD):
                return u32(0)
            a = _operated(operation, a, operand) & MASK
        elif kind == RET:
            return u32(a) if code & LOAD_SIZE == A else u32(k)
        elif kind == ST:
            store_u32(memory + 4 * k, u32(a))
        elif kind == STX:
            store_u32(memory + 4 * k, u32(x))
        elif code & TXA:
            a = x
        else:
            x = a
    return u32(0)
