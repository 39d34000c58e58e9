"""Blocks of a filter's control flow, and conditions made of them.

Theory of operation
-------------------
A block is a row of statements and then a test with two ways out, a plain way on, or the end.  A condition is the block
where it begins and the open ways out for "yes" and for "no".  ``both`` leads the ways for yes of one condition to the
other and joins the ways for no; ``either`` does the reverse, ``inverse`` exchanges the two.  A condition may be known
already (``always``): then it disappears from what it is joined with.

*Source:* backpatching, as in Aho, Sethi and Ullman, "Compilers", section 8.6.
"""

from dataclasses import dataclass, field
from typing import Self

from wirespeed.net.filter import opcode as op

Statement = tuple[int, int]  # code and k of an instruction that does not jump


@dataclass(eq=False, slots=True)
class Block:
    """Statements, and what follows.

    ``test`` is the code and k of a jump: then ``yes`` or ``no`` follows.  Without one ``yes`` follows, and a block with
    ``answer`` returns that.
    """

    statements: list[Statement] = field(default_factory=list)
    test: Statement | None = None
    yes: Self | None = None
    no: Self | None = None
    answer: int | None = None

    def ways(self) -> list[Self]:
        """The blocks that may follow."""
        return [way for way in (self.yes, self.no) if way is not None]


Way = tuple[Block, bool]  # a block and which of its two ways out


@dataclass(eq=False, slots=True)
class Condition:
    """Where a condition begins and its open ways out; or ``always``, what it is for each packet."""

    entry: Block
    yes: list[Way] = field(default_factory=list)
    no: list[Way] = field(default_factory=list)
    always: bool | None = None


def constant(value: bool) -> Condition:
    """A condition that is known."""
    return Condition(Block(), always=value)


def test(statements: list[Statement], operation: int, k: int | None, positive: bool = True) -> Condition:
    """The condition that a jump's test holds behind some statements; k of None compares with X."""
    code = op.JMP | operation | (op.X if k is None else op.K)
    block = Block(statements, (code, k or 0))
    return Condition(block, [(block, positive)], [(block, not positive)])


def lead(ways: list[Way], target: Block) -> None:
    """Let open ways out go to a block."""
    for block, is_yes in ways:
        if is_yes:
            block.yes = target
        else:
            block.no = target


def both(first: Condition, second: Condition) -> Condition:
    """First and second."""
    if first.always is False or second.always is True:
        return first
    if second.always is False or first.always is True:
        return second
    lead(first.yes, second.entry)
    return Condition(first.entry, second.yes, _joined(first.no, second.no))


def either(first: Condition, second: Condition) -> Condition:
    """First or second."""
    if first.always is True or second.always is False:
        return first
    if second.always is True or first.always is False:
        return second
    lead(first.no, second.entry)
    return Condition(first.entry, _joined(first.yes, second.yes), second.no)


def inverse(condition: Condition) -> Condition:
    """Not."""
    always = None if condition.always is None else not condition.always
    return Condition(condition.entry, condition.no, condition.yes, always)


def any_of(*conditions: Condition) -> Condition:
    """The first, or the second, and so on."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = either(result, condition)
    return result


def all_of(*conditions: Condition) -> Condition:
    """The first, and the second, and so on."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = both(result, condition)
    return result


def _joined(some: list[Way], more: list[Way]) -> list[Way]:
    """Two lists in one; the longer one grows, so that a long chain costs no more than its length."""
    if len(some) < len(more):
        some, more = more, some
    some.extend(more)
    return some
