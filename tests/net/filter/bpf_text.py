"""Programs of classic BPF read from the text that ``tcpdump -d`` prints, for comparing with ours."""

import re
from collections.abc import Iterable

from wirespeed.net.filter import Instruction
from wirespeed.net.filter import opcode as op

LINE = re.compile(r"\((\d+)\)\s+(\S+)\s*(.*?)\s*(?:jt\s+(\d+)\s+jf\s+(\d+))?\s*$")
LOADS = {"ld": op.W, "ldh": op.H, "ldb": op.B}
ALU = {
    "add": op.ADD,
    "sub": op.SUB,
    "mul": op.MUL,
    "div": op.DIV,
    "or": op.OR,
    "and": op.AND,
    "lsh": op.LSH,
    "rsh": op.RSH,
    "mod": op.MOD,
    "xor": op.XOR,
}
JUMPS = {"jeq": op.JEQ, "jgt": op.JGT, "jge": op.JGE, "jset": op.JSET}
EXTENSIONS = {
    "type": op.AD_PKTTYPE,
    "ifidx": op.AD_IFINDEX,
    "vlan_tci": op.AD_VLAN_TAG,
    "vlanp": op.AD_VLAN_TAG_PRESENT,
}


def read_program(lines: Iterable[str]) -> tuple[Instruction, ...]:
    """The instructions of a listing."""
    return tuple(_instruction(line) for line in lines)


def _instruction(line: str) -> Instruction:
    found = LINE.match(line)
    assert found, line
    at, word, operand, jt, jf = int(found[1]), found[2], found[3], found[4], found[5]
    number = int(operand.lstrip("#"), 0) if re.fullmatch(r"#?(0x[0-9a-f]+|\d+)", operand) else 0
    if word in LOADS:
        return _load(LOADS[word], operand, number)
    if word == "ldxb":
        return Instruction(op.LDX | op.MSH | op.B, 0, 0, int(operand[4:-6]))
    if word == "ldx":
        memory = operand.startswith("M[")
        return Instruction(op.LDX | (op.MEM if memory else op.IMM), 0, 0, int(operand[2:-1]) if memory else number)
    if word in ("st", "stx"):
        return Instruction(op.ST if word == "st" else op.STX, 0, 0, int(operand[2:-1]))
    if word in JUMPS:
        source = op.X if operand == "x" else op.K
        return Instruction(op.JMP | JUMPS[word] | source, int(jt) - at - 1, int(jf) - at - 1, number)
    if word in ALU:
        return Instruction(op.ALU | ALU[word] | (op.X if operand == "x" else op.K), 0, 0, number)
    return {
        "ja": Instruction(op.JMP | op.JA, 0, 0, (number - at - 1) & op.MASK),
        "ret": Instruction(op.RET | op.K, 0, 0, number),
        "neg": Instruction(op.ALU | op.NEG, 0, 0, 0),
        "tax": Instruction(op.MISC | op.TAX, 0, 0, 0),
        "txa": Instruction(op.MISC | op.TXA, 0, 0, 0),
    }[word]


def _load(size: int, operand: str, number: int) -> Instruction:
    if operand == "#pktlen":
        return Instruction(op.LD | op.W | op.LEN, 0, 0, 0)
    if operand.startswith("#"):
        return Instruction(op.LD | op.IMM, 0, 0, number)
    if operand.startswith("M["):
        return Instruction(op.LD | op.MEM, 0, 0, int(operand[2:-1]))
    inner = operand.strip("[]")
    if inner.startswith("x + "):
        return Instruction(op.LD | op.IND | size, 0, 0, int(inner[4:]))
    return Instruction(op.LD | op.ABS | size, 0, 0, EXTENSIONS[inner] if inner in EXTENSIONS else int(inner))
