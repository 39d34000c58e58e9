"""Whether a program of classic BPF may run at all: the checks that the Linux kernel makes before it takes one.

*Source:* Linux, ``net/core/filter.c``, bpf_check_classic().
"""

from collections.abc import Sequence

from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.error import FilterError
from wirespeed.net.filter.program import Instruction

_SIZES = (op.W, op.H, op.B)
_ALU = (op.ADD, op.SUB, op.MUL, op.DIV, op.OR, op.AND, op.LSH, op.RSH, op.MOD, op.XOR)
_JUMPS = (op.JEQ, op.JGT, op.JGE, op.JSET)
CODES = frozenset(
    (
        *(op.LD | mode | size for mode in (op.ABS, op.IND) for size in _SIZES),
        *(kind | mode for kind in (op.LD, op.LDX) for mode in (op.IMM, op.MEM, op.LEN)),
        op.LDX | op.MSH | op.B,
        op.ST,
        op.STX,
        *(op.ALU | operation | source for operation in _ALU for source in (op.K, op.X)),
        op.ALU | op.NEG,
        op.JMP | op.JA,
        *(op.JMP | operation | source for operation in _JUMPS for source in (op.K, op.X)),
        op.RET | op.K,
        op.RET | op.A,
        op.MISC | op.TAX,
        op.MISC | op.TXA,
    )
)

_ABSOLUTE = frozenset(op.LD | op.ABS | size for size in _SIZES)
ANCILLARY = frozenset(op.AD_OFF + offset for offset in range(0, 64, 4))  # SKF_AD_PROTOCOL to SKF_AD_VLAN_TPID


def validate(instructions: Sequence[Instruction], loops: bool = False) -> None:
    """Raise FilterError unless a program may run.

    Each instruction must be one of classic BPF and stay within the program and its memory, and the last one must return.
    ``loops`` allows jumps back, as our own interpreters do; without them no word of memory may be loaded before one was
    stored in it.
    """
    n = len(instructions)
    if not 0 < n <= op.LONGEST:
        raise FilterError(f"a filter program has 1 to {op.LONGEST} instructions, got {n}")
    for at, (code, jt, jf, k) in enumerate(instructions):
        where = f"instruction {at} of the filter program"
        if code not in CODES:
            raise FilterError(f"{where} has the code {code:#x}, which classic BPF does not know")
        if not (0 <= jt <= op.FARTHEST and 0 <= jf <= op.FARTHEST and 0 <= k <= op.MASK):
            raise FilterError(f"{where} has a number that does not fit its field: jt {jt}, jf {jf}, k {k}")
        kind, operation = code & 0x07, code & 0xF0
        if kind in (op.ST, op.STX) or code in (op.LD | op.MEM, op.LDX | op.MEM):
            if k >= op.WORDS:
                raise FilterError(f"{where} uses word {k} of scratch memory, which has {op.WORDS}")
        elif kind == op.ALU and not code & op.X:
            if operation in (op.DIV, op.MOD) and k == 0:
                raise FilterError(f"{where} divides by zero")
            if operation in (op.LSH, op.RSH) and k > 31:
                raise FilterError(f"{where} shifts by {k}, which is more than 31 bits")
        elif code == op.JMP | op.JA:
            target = at + 1 + (k - (1 << 32) if loops and k >= op.SPECIAL else k)
            if not 0 <= target < n:
                raise FilterError(f"{where} jumps out of the program, or back")
        elif kind == op.JMP and at + 1 + max(jt, jf) >= n:
            raise FilterError(f"{where} jumps out of the program")
        elif code in _ABSOLUTE and k >= op.AD_OFF and k not in ANCILLARY:
            raise FilterError(f"{where} asks the kernel for something that it does not know, {k:#x}")
    if instructions[-1].code & 0x07 != op.RET:
        raise FilterError("the last instruction of a filter program must return")
    if not loops:
        _validate_memory(instructions)


def _validate_memory(instructions: Sequence[Instruction]) -> None:
    """Raise FilterError if a word of scratch memory may be loaded before something was stored in it."""
    every = (1 << op.WORDS) - 1
    stored = [every] * (len(instructions) + 1)  # before each instruction, on all ways to it that were seen so far
    now = 0
    for at, (code, jt, jf, k) in enumerate(instructions):
        now &= stored[at]
        if code in (op.ST, op.STX):
            now |= 1 << k
        elif code in (op.LD | op.MEM, op.LDX | op.MEM) and not now >> k & 1:
            raise FilterError(f"instruction {at} of the filter program loads word {k}, in which nothing was stored")
        elif code & 0x07 == op.JMP:
            for target in (at + 1 + k,) if code == op.JMP | op.JA else (at + 1 + jt, at + 1 + jf):
                stored[target] &= now
            now = every
