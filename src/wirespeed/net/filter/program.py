"""A compiled filter: a program of classic BPF, and what it was made from."""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.listing import listing

SOCK_FILTER = struct.Struct("=HBBI")  # struct sock_filter, in the order of the machine


class Instruction(NamedTuple):
    """One instruction, with the fields of ``struct sock_filter``."""

    code: int
    jt: int
    jf: int
    k: int


@dataclass(frozen=True)
class Program:
    """A program of classic BPF; ``str(program)`` lists it as ``tcpdump -d`` does.

    ``snaplen`` is what it returns for a packet that matches; 0 for one that does not.
    """

    instructions: tuple[Instruction, ...]
    expression: str
    link: int
    snaplen: int
    in_kernel: bool = False

    def __len__(self) -> int:
        return len(self.instructions)

    def __str__(self) -> str:
        return listing(self.instructions)

    def to_bytes(self) -> bytes:
        """The array of ``struct sock_filter`` that SO_ATTACH_FILTER takes."""
        return b"".join(SOCK_FILTER.pack(*instruction) for instruction in self.instructions)

    @property
    def loops(self) -> bool:
        """True if it jumps back, which the kernel refuses; only ``protochain`` does."""
        return any(i.code == op.JMP | op.JA and i.k >= op.SPECIAL for i in self.instructions)

    @property
    def ancillary(self) -> bool:
        """True if it asks for facts that only the kernel has beside the packet's bytes."""
        loads = (op.LD | op.ABS | op.W, op.LD | op.ABS | op.H, op.LD | op.ABS | op.B)
        return any(i.code in loads and i.k >= op.SPECIAL for i in self.instructions)
