"""The text form of a program of classic BPF, line for line what ``tcpdump -d`` prints."""

from collections.abc import Sequence

from wirespeed.net.filter import opcode as op

_LOAD = {op.W: "ld", op.H: "ldh", op.B: "ldb"}
_ALU = {
    op.ADD: "add",
    op.SUB: "sub",
    op.MUL: "mul",
    op.DIV: "div",
    op.OR: "or",
    op.AND: "and",
    op.LSH: "lsh",
    op.RSH: "rsh",
    op.MOD: "mod",
    op.XOR: "xor",
}
_HEXADECIMAL = (op.OR, op.AND, op.XOR)  # operations on bits show their constant in hexadecimal
_JUMP = {op.JEQ: "jeq", op.JGT: "jgt", op.JGE: "jge", op.JSET: "jset"}
_ANCILLARY = {
    0: "proto",
    4: "type",
    8: "ifidx",
    12: "nla",
    16: "nlan",
    20: "mark",
    24: "queue",
    28: "hatype",
    32: "rxhash",
    36: "cpu",
    40: "",
    44: "vlan_tci",
    48: "vlanp",
    52: "payload",
    56: "random",
    60: "vlan_tpid",
}


def listing(instructions: Sequence[tuple[int, int, int, int]]) -> str:
    """All instructions, one a line, with their numbers."""
    return "\n".join(f"({at:03d}) {text(*one, at)}" for at, one in enumerate(instructions))


def text(code: int, jt: int, jf: int, k: int, at: int) -> str:
    """One instruction; ``at`` is its number, from which its jumps go."""
    word, operand = _parts(code, k, at)
    line = f"{word:<8} {operand}" if operand else word
    if code & 7 == op.JMP and code & 0xF0 != op.JA:
        line = f"{line:<25} jt {at + 1 + jt}\tjf {at + 1 + jf}"
    return line


def _parts(code: int, k: int, at: int) -> tuple[str, str]:
    """The word of an instruction and its operand."""
    kind, mode, size, source = code & 7, code & 0xE0, code & 0x18, code & op.X
    match kind:
        case op.LD if mode == op.ABS:
            name = _ANCILLARY.get(k - op.AD_OFF, "")
            return _LOAD.get(size, "unimp"), f"[{name or k}]"
        case op.LD | op.LDX if mode in (op.IMM, op.LEN, op.MEM):
            shown = {op.IMM: f"#{k:#x}", op.LEN: "#pktlen", op.MEM: f"M[{k}]"}[mode]
            return "ld" if kind == op.LD else "ldx", shown
        case op.LD if mode == op.IND:
            return _LOAD.get(size, "unimp"), f"[x + {k}]"
        case op.LDX if mode == op.MSH:
            return "ldxb", f"4*([{k}]&0xf)"
        case op.ST | op.STX:
            return "st" if kind == op.ST else "stx", f"M[{k}]"
        case op.RET:
            return "ret", f"#{k}" if code & 0x18 == op.K else "a" if code & 0x18 == op.A else "x"
        case op.MISC:
            return ("txa" if code & op.TXA else "tax"), ""
        case op.JMP if code & 0xF0 == op.JA:
            return "ja", f"{(at + 1 + k) & op.MASK}"
        case op.JMP if code & 0xF0 in _JUMP:
            return _JUMP[code & 0xF0], "x" if source else f"#{k:#x}"
        case op.ALU if code & 0xF0 == op.NEG:
            return "neg", ""
        case op.ALU if code & 0xF0 in _ALU:
            constant = f"#{k:#x}" if code & 0xF0 in _HEXADECIMAL else f"#{k}"
            return _ALU[code & 0xF0], "x" if source else constant
    return "unimp", f"{code:#x}"
