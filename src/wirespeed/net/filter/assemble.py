"""From blocks to a row of instructions.

Theory of operation
-------------------
Blocks are put in an order in which each comes after all that lead to it, except where a loop goes back.  A test reaches
255 instructions; one that must go farther goes to an unconditional jump behind its own block, and since such a jump
makes other ways longer, the lengths are worked out until nothing changes.
"""

from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.block import Block
from wirespeed.net.filter.program import Instruction

JUMP = op.JMP | op.JA


def assemble(entry: Block) -> tuple[Instruction, ...]:
    """The instructions of everything that can be reached from a block."""
    order = ordered(entry)
    far: set[tuple[Block, bool]] = set()
    while True:
        starts = _starts(order, far)
        longer = {
            way
            for way in _tests(order)
            if way not in far and _distance(order, starts, way) not in range(op.FARTHEST + 1)
        }
        if not longer:
            break
        far |= longer
    instructions: list[Instruction] = []
    for index, block in enumerate(order):
        following = order[index + 1] if index + 1 < len(order) else None
        instructions += _block(block, following, starts, far, len(instructions))
    return tuple(instructions)


def ordered(entry: Block) -> list[Block]:
    """All blocks, each before those that follow it."""
    order: list[Block] = []
    seen = {entry}
    stack = [(entry, iter(entry.ways()))]
    while stack:
        block, ways = stack[-1]
        for way in ways:
            if way not in seen:
                seen.add(way)
                stack.append((way, iter(way.ways())))
                break
        else:
            order.append(block)
            stack.pop()
    order.reverse()
    return order


def _tests(order: list[Block]) -> list[tuple[Block, bool]]:
    return [(block, way) for block in order if block.test for way in (True, False)]


def _starts(order: list[Block], far: set[tuple[Block, bool]]) -> dict[Block, int]:
    """The number of each block's first instruction."""
    starts, at = {}, 0
    for index, block in enumerate(order):
        starts[block] = at
        following = order[index + 1] if index + 1 < len(order) else None
        at += len(block.statements)
        if block.test:
            at += 1 + ((block, True) in far) + ((block, False) in far)
        elif block.answer is not None or block.yes is not following:
            at += 1
    return starts


def _distance(order: list[Block], starts: dict[Block, int], way: tuple[Block, bool]) -> int:
    """How far a test's way goes, in instructions between; negative for a way back."""
    block, is_yes = way
    target = block.yes if is_yes else block.no
    assert target is not None
    return starts[target] - (starts[block] + len(block.statements) + 1)


def _block(
    block: Block, following: Block | None, starts: dict[Block, int], far: set[tuple[Block, bool]], at: int
) -> list[Instruction]:
    """The instructions of one block, the first of which has the number ``at``."""
    out = [Instruction(code, 0, 0, k) for code, k in block.statements]
    here = at + len(out) + 1
    if block.answer is not None:
        return [*out, Instruction(op.RET | op.K, 0, 0, block.answer)]
    if not block.test:
        assert block.yes
        if block.yes is not following:
            out.append(Instruction(JUMP, 0, 0, (starts[block.yes] - here) & op.MASK))
        return out
    distances: list[int] = []
    jumps: list[int] = []
    for target, is_far in ((block.yes, (block, True) in far), (block.no, (block, False) in far)):
        assert target
        if is_far:
            distances.append(len(jumps))
            jumps.append(starts[target])
        else:
            distances.append(starts[target] - here)
    out.append(Instruction(block.test[0], distances[0], distances[1], block.test[1]))
    out += [Instruction(JUMP, 0, 0, (target - (here + n + 1)) & op.MASK) for n, target in enumerate(jumps)]
    return out
