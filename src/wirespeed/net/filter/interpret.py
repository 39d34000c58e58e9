"""Running a filter program in plain Python: the reference that the kernel, and tests, are compared with.

*Source:* McCanne and Jacobson, "The BSD Packet Filter", 1993; bpf(4).
"""

from collections.abc import Mapping, Sequence

from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.program import Instruction, Program

_LOADS = {op.W: 4, op.H: 2, op.B: 1}


def interpret(
    program: Program | Sequence[Instruction],
    frame: bytes,
    wire_length: int | None = None,
    ancillary: Mapping[int, int] | None = None,
) -> int:
    """What a program returns for a frame: 0 for no match, else how many bytes of it to keep.

    ``wire_length`` is the frame's own length where it was cut; ``ancillary`` is what the kernel would say beside the
    bytes, by the offset (``opcode.AD_*``) that asks for it.
    """
    instructions = program.instructions if isinstance(program, Program) else program
    a = x = at = 0
    memory = [0] * op.WORDS
    length = len(frame) if wire_length is None else wire_length
    while True:
        code, jt, jf, k = instructions[at]
        at += 1
        kind, mode, source = code & 0x07, code & 0xE0, x if code & op.X else k
        match kind:
            case op.RET:
                return a if code & 0x18 == op.A else k
            case op.LD | op.LDX:
                value = _load(code, mode, k, x, memory, frame, length, ancillary or {})
                if value is None:
                    return 0
                a, x = (value, x) if kind == op.LD else (a, value)
            case op.ST:
                memory[k] = a
            case op.STX:
                memory[k] = x
            case op.ALU:
                result = _operate(code & 0xF0, a, source)
                if result is None:
                    return 0
                a = result
            case op.JMP if code & 0xF0 == op.JA:
                at = (at + k) & op.MASK
            case op.JMP:
                at += jt if _holds(code & 0xF0, a, source) else jf
            case op.MISC:
                a, x = (x, x) if code & op.TXA else (a, a)


def _load(
    code: int, mode: int, k: int, x: int, memory: list[int], frame: bytes, length: int, ancillary: Mapping[int, int]
) -> int | None:
    """What a load gives; None beyond the frame."""
    match mode:
        case op.IMM:
            return k
        case op.MEM:
            return memory[k]
        case op.LEN:
            return length & op.MASK
        case op.MSH:
            return (frame[k] & 0x0F) << 2 if k < len(frame) else None
    if mode == op.ABS and k in ancillary:
        return ancillary[k]
    size = _LOADS[code & 0x18]
    at = k if mode == op.ABS else k + x
    return int.from_bytes(frame[at : at + size]) if at + size <= len(frame) else None


def _operate(operation: int, a: int, value: int) -> int | None:
    """An operation of the accumulator; None for a division by zero."""
    if operation in (op.DIV, op.MOD) and value == 0:
        return None
    match operation:
        case op.ADD:
            result = a + value
        case op.SUB:
            result = a - value
        case op.MUL:
            result = a * value
        case op.DIV:
            result = a // value
        case op.MOD:
            result = a % value
        case op.AND:
            result = a & value
        case op.OR:
            result = a | value
        case op.XOR:
            result = a ^ value
        case op.LSH:
            result = a << value if value < 32 else 0
        case op.RSH:
            result = a >> value if value < 32 else 0
        case _:
            result = -a
    return result & op.MASK


def _holds(operation: int, a: int, value: int) -> bool:
    """The test of a jump."""
    match operation:
        case op.JEQ:
            return a == value
        case op.JGT:
            return a > value
        case op.JGE:
            return a >= value
    return bool(a & value)
