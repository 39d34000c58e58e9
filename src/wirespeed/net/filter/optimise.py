"""Shorter ways through a filter's blocks: tests that are decided already, and loads that are there already.

Theory of operation
-------------------
Blocks are visited in an order in which each comes after those that lead to it.  What the accumulator, X and the scratch
memory hold is kept as terms ("the half word at 12", "that and 0xfff"), and along each way out of a test the fact that
the test gives about its term.  A way that leads to a block whose test is decided by such facts goes to where that test
would have led (``tcp port 80 or 90`` asks once whether a packet is IPv4).  Then blocks that are the same become one, and
what a block loads first is left out where all ways to the block have it in the register.

A load beyond the packet ends the program, so no load may be left out unless the same one has been done on the way; and
a block may be passed over only if it stores nothing, and nothing behind it reads the registers as it leaves them.  A
program with a loop is left as it is.

*Source:* value numbering and jump threading, as in McCanne and Jacobson, "The BSD Packet Filter", section 4, do it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from wirespeed.net.filter import opcode as op
from wirespeed.net.filter.assemble import ordered
from wirespeed.net.filter.block import Block, Statement

Term = tuple[object, ...]
Facts = dict[tuple[Term, int, int], bool]  # (term, the jump's operation, its constant): how it comes out
MOST_FACTS = 48  # kept along one way, so that a long chain of tests costs no more than its length
MOST_PASSED = 64  # blocks that one way is led past
FIELD = (op.ABS, op.IND)


@dataclass
class State:
    """What is known at one point: registers and memory as terms, loads that have been done, facts."""

    a: Term
    x: Term
    memory: dict[int, Term] = field(default_factory=dict)
    done: frozenset[Term] = frozenset()
    facts: Facts = field(default_factory=dict)


def optimise(entry: Block) -> Block:
    """Make the blocks behind ``entry`` fewer and shorter; returns where the program begins now."""
    order = ordered(entry)
    place = {block: n for n, block in enumerate(order)}
    if any(place[way] <= place[block] for block in order for way in block.ways()):
        return entry
    live = _live(order)
    for block, _, if_yes, if_no in _visit(order):
        if block.yes:
            block.yes = _led(block.yes, if_yes, live)
        if block.no:
            block.no = _led(block.no, if_no, live)
    entry = _merged(ordered(entry))
    for block, state, _, _ in _visit(ordered(entry)):
        _drop(block, state)
    return entry


def _merged(order: list[Block]) -> Block:
    """Blocks that do the same and lead to the same become one; returns where the program begins now."""
    one: dict[tuple[object, ...], Block] = {}
    instead: dict[Block, Block] = {}
    for block in reversed(order):
        block.yes = instead[block.yes] if block.yes else None
        block.no = instead[block.no] if block.no else None
        instead[block] = one.setdefault((*block.statements, block.test, block.yes, block.no, block.answer), block)
    return instead[order[0]]


def _visit(order: list[Block]) -> Iterator[tuple[Block, State, State, State]]:
    """Each block that can be reached, with what is known on all ways to it, and behind it along its two ways out.

    A caller may change where these lead.  What was known at a block is let go with it, for the facts of all blocks of a
    long expression together are millions.
    """
    reached: dict[Block, State] = {order[0]: State(("start", "a"), ("start", "x"))}
    for block in order:
        state = reached.pop(block, None)
        if state is None:
            continue
        after, _ = _run(block.statements, state)
        if_yes, if_no = _along(after, block, True), _along(after, block, False)
        yield block, state, if_yes, if_no
        for way, along in ((block.yes, if_yes), (block.no, if_no)):
            if way is not None:
                reached[way] = _met(reached[way], along, way) if way in reached else along


def _met(one: State, other: State, block: Block) -> State:
    """What is known where two ways meet."""
    return State(
        one.a if one.a == other.a else ("met", "a", id(block)),
        one.x if one.x == other.x else ("met", "x", id(block)),
        {word: term for word, term in one.memory.items() if other.memory.get(word) == term},
        one.done & other.done,
        {fact: holds for fact, holds in one.facts.items() if other.facts.get(fact) is holds},
    )


def _along(after: State, block: Block, outcome: bool) -> State:
    """What is known behind a block's test that came out so."""
    if not block.test or block.test[0] & op.X:
        return after
    facts = dict(after.facts)
    fact = (after.a, block.test[0] & 0xF0, block.test[1])
    facts.pop(fact, None)
    facts[fact] = outcome
    if len(facts) > MOST_FACTS:
        # One that says what a term is not, of the same term if there is one: a list of hosts has many such.
        of_term = (one for one, holds in facts.items() if not holds and one[0] == fact[0] and one != fact)
        del facts[next(of_term, next(iter(facts)))]
    return State(after.a, after.x, after.memory, after.done, facts)


def _run(statements: list[Statement], state: State) -> tuple[State, bool]:
    """What is known behind some statements; the second is True if all that can end the program was done before."""
    a, x, memory, done, safe = state.a, state.x, dict(state.memory), set(state.done), True
    for code, k in statements:
        kind, mode = code & 0x07, code & 0xE0
        term: Term = (code, k)
        if kind in (op.LD, op.LDX):
            if mode in (op.ABS, op.IND, op.MSH):
                term = (code, k, x) if mode == op.IND else (code, k)
                safe = safe and term in done
                done.add(term)
            elif mode == op.MEM:
                # What a word holds that was not stored on each way is not known, and another thing at each place.
                term = memory.setdefault(k, ("memory", k, id(statements)))
            a, x = (term, x) if kind == op.LD else (a, term)
        elif kind in (op.ST, op.STX):
            memory[k] = a if kind == op.ST else x
        elif kind == op.ALU:
            term = (code, k, a, x) if code & op.X else (code, k, a)
            if code & op.X and code & 0xF0 in (op.DIV, op.MOD):
                safe = safe and term in done
                done.add(term)
            a = term
        elif code & op.TXA:
            a = x
        else:
            x = a
    return State(a, x, memory, frozenset(done), state.facts), safe


def _led(target: Block, state: State, live: dict[Block, tuple[bool, bool]]) -> Block:
    """Where a way leads in the end, past blocks whose test is decided."""
    for _ in range(MOST_PASSED):
        if target.answer is not None or any(code & 0x07 in (op.ST, op.STX) for code, _ in target.statements):
            break
        if target.test is None:
            if target.statements or target.yes is None:
                break
            target = target.yes
            continue
        after, safe = _run(target.statements, state)
        outcome = _decided(after.a, *target.test, state.facts)
        following = target.yes if outcome else target.no
        if outcome is None or not safe or following is None or any(live[following]):
            break
        target = following
    return target


def _decided(term: Term, code: int, k: int, facts: Facts) -> bool | None:
    """How a test of a term comes out, None if that is not known."""
    operation = code & 0xF0
    if code & op.X:
        return None
    if (term, operation, k) in facts:
        return facts[term, operation, k]
    value = _constant(term, facts)
    if value is None:
        return None
    if operation == op.JEQ:
        return value == k
    if operation == op.JSET:
        return bool(value & k)
    return value > k if operation == op.JGT else value >= k


def _constant(term: Term, facts: Facts) -> int | None:
    """The value of a term that is known to be one number."""
    if len(term) == 2 and term[0] == op.LD | op.IMM and isinstance(term[1], int):
        return term[1]
    for (known, operation, k), holds in facts.items():
        if holds and operation == op.JEQ and known == term:
            return k
    return None


def _live(order: list[Block]) -> dict[Block, tuple[bool, bool]]:
    """Whether the accumulator and X, as they are where a block begins, are read there or behind it."""
    live: dict[Block, tuple[bool, bool]] = {}
    for block in reversed(order):
        a = any(live[way][0] for way in block.ways())
        x = any(live[way][1] for way in block.ways())
        if block.test:
            a, x = True, x or bool(block.test[0] & op.X)
        for code, _ in reversed(block.statements):
            kind = code & 0x07
            if kind == op.LD:
                a, x = False, x or code & 0xE0 == op.IND
            elif kind == op.LDX:
                x = False
            elif kind == op.ST:
                a = True
            elif kind == op.STX:
                x = True
            elif kind == op.ALU:
                a, x = True, x or bool(code & op.X)
            else:
                a, x = (False, True) if code & op.TXA else (True, False)
        live[block] = a, x
    return live


def _drop(block: Block, state: State) -> None:
    """Leave out the statements a block begins with as long as they change nothing that is known."""
    for n in range(len(block.statements), 0, -1):
        after, safe = _run(block.statements[:n], state)
        if safe and (after.a, after.x) == (state.a, state.x) and after.memory == state.memory:
            del block.statements[:n]
            return
