"""Frames that lead a filter program down its different ways, found by running it and turning its tests round.

A run keeps what the registers came from: a field of the frame and the operations on it.  At each test the field is
given a value for which the test comes out the other way, which makes another frame; and so on.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wirespeed.net.filter import Instruction
from wirespeed.net.filter import opcode as op

STEPS = 600  # more than any program needs for a frame of tests
BYTES = {op.W: 4, op.H: 2, op.B: 1}


@dataclass(frozen=True)
class Origin:
    """Where a register's value came from: ``size`` bytes at ``at``, or ``beside`` the frame, then operations."""

    at: int
    size: int
    beside: bool = False
    operations: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Turn:
    """A test that was met: where, how it came out, and how the frame can be changed to turn it."""

    place: int
    outcome: bool
    origin: Origin | None
    operation: int
    value: int


def explore(
    program: Sequence[Instruction], seeds: Sequence[bytes], most: int
) -> Iterator[tuple[bytes, Mapping[int, int], list[int]]]:
    """Frames, what the kernel would say beside them, and where in a frame its loads end."""
    queue: deque[tuple[bytes, dict[int, int]]] = deque((seed, {}) for seed in seeds)
    seen: Counter[tuple[tuple[int, bool], ...]] = Counter()
    covered: set[tuple[int, bool]] = set()
    given = 0
    while queue and given < most:
        frame, beside = queue.popleft()
        turns, ends, _ = trace(program, frame, beside)
        path = tuple((turn.place, turn.outcome) for turn in turns)
        given += 1
        yield frame, beside, ends
        # Turning a test may change what another one reads, and the way is the same again; a few times are enough.
        seen[path] += 1
        if seen[path] > 3:
            continue
        # What has come where none came before is followed first, from its last test on.
        fresh = not covered.issuperset(path)
        covered.update(path)
        for turn in turns:
            for other in _turned(turn, frame, beside):
                (queue.appendleft if fresh else queue.append)(other)


def trace(
    program: Sequence[Instruction], frame: bytes, beside: Mapping[int, int], length: int | None = None
) -> tuple[list[Turn], list[int], int | None]:
    """The tests that a run meets, where its loads end, and what it returns; None if it goes on and on.

    ``length`` is what the packet had on the wire.
    """
    a = x = at = steps = 0
    result: int | None = 0
    memory: list[tuple[int, Origin | None]] = [(0, None)] * op.WORDS
    from_a: Origin | None = None
    from_x: Origin | None = None
    turns: list[Turn] = []
    ends: list[int] = []
    while True:
        steps += 1
        if steps > STEPS:
            result = None
            break
        code, jt, jf, k = program[at]
        at += 1
        kind, mode = code & 7, code & 0xE0
        if kind == op.RET:
            result = k
            break
        if kind in (op.LD, op.LDX):
            origin: Origin | None = None
            if mode == op.IMM:
                value = k
            elif mode == op.LEN:
                value = len(frame) if length is None else length
            elif mode == op.MEM:
                value, origin = memory[k]
            elif mode == op.ABS and k >= op.AD_OFF:
                value, origin = beside.get(k, 0), Origin(k, 4, beside=True)
            else:
                size = 1 if mode == op.MSH else BYTES[code & 0x18]
                start = k + (x if mode == op.IND else 0)
                ends.append(start + size)
                if start + size > len(frame):
                    break
                value, origin = int.from_bytes(frame[start : start + size]), Origin(start, size)
                if mode == op.MSH:
                    value = (value & 0xF) << 2
                    origin = Origin(start, size, operations=((op.AND, 0xF), (op.LSH, 2)))
            if kind == op.LD:
                a, from_a = value, origin
            else:
                x, from_x = value, origin
        elif kind == op.ST:
            memory[k] = (a, from_a)
        elif kind == op.STX:
            memory[k] = (x, from_x)
        elif kind == op.MISC:
            if code & op.TXA:
                a, from_a = x, from_x
            else:
                x, from_x = a, from_a
        elif kind == op.ALU:
            operand = x if code & op.X else k
            operation = code & 0xF0
            if operation in (op.DIV, op.MOD) and operand == 0:
                break
            a = _worked(operation, a, operand)
            if from_a is not None:
                from_a = Origin(from_a.at, from_a.size, from_a.beside, (*from_a.operations, (operation, operand)))
        elif code & 0xF0 == op.JA:
            at = (at + k) & op.MASK
        else:
            operand = x if code & op.X else k
            outcome = _holds(code & 0xF0, a, operand)
            turns.append(Turn(at, outcome, from_a, code & 0xF0, operand))
            if code & op.X and from_a is None:
                turns.append(Turn(at, outcome, from_x, code & 0xF0, a))
            at += jt if outcome else jf
    return turns, ends, result


def _turned(turn: Turn, frame: bytes, beside: Mapping[int, int]) -> Iterator[tuple[bytes, dict[int, int]]]:
    """Frames for which a test comes out the other way, as far as its operations can be undone."""
    origin = turn.origin
    if origin is None:
        return
    wanted = {
        op.JEQ: (turn.value ^ 1, turn.value ^ 0x80) if turn.outcome else (turn.value,),
        op.JGT: (turn.value,) if turn.outcome else (turn.value + 1,),
        op.JGE: (turn.value - 1,) if turn.outcome else (turn.value,),
        op.JSET: (0,) if turn.outcome else (turn.value, turn.value & -turn.value),
    }[turn.operation]
    for value in wanted:
        keep = 0
        for operation, operand in reversed(origin.operations):
            if operation == op.AND:
                keep |= ~operand & op.MASK
                value &= operand
            elif operation == op.LSH:
                value, keep = value >> operand, keep >> operand
            elif operation == op.RSH:
                value, keep = value << operand, keep << operand
            elif operation == op.ADD:
                value -= operand
            elif operation == op.SUB:
                value += operand
            elif operation == op.MUL and operand:
                value //= operand
        if origin.beside:
            yield frame, {**beside, origin.at: value & op.MASK}
            continue
        limit = (1 << 8 * origin.size) - 1
        old = int.from_bytes(frame[origin.at : origin.at + origin.size])
        field = (value & limit & ~keep) | (old & keep & limit)
        yield frame[: origin.at] + field.to_bytes(origin.size) + frame[origin.at + origin.size :], dict(beside)


def _worked(operation: int, a: int, operand: int) -> int:
    result = {
        op.ADD: lambda: a + operand,
        op.SUB: lambda: a - operand,
        op.MUL: lambda: a * operand,
        op.DIV: lambda: a // operand,
        op.MOD: lambda: a % operand,
        op.AND: lambda: a & operand,
        op.OR: lambda: a | operand,
        op.XOR: lambda: a ^ operand,
        op.LSH: lambda: a << operand if operand < 32 else 0,
        op.RSH: lambda: a >> operand if operand < 32 else 0,
        op.NEG: lambda: -a,
    }[operation]()
    return result & op.MASK


def _holds(operation: int, a: int, operand: int) -> bool:
    if operation == op.JSET:
        return bool(a & operand)
    return {op.JEQ: a == operand, op.JGT: a > operand, op.JGE: a >= operand}[operation]
