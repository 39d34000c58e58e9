"""Random cases: rules over a few tables that overlap, and packets that are made to hit them.

Ports 1 to 5 are plain, 6 takes no part in floods, 7 and 8 are down.  Two rules of one priority that one packet could hit
would leave it to the switch which one counts, so there are none.
"""

import random

from tests.switch.oracle import actions, frames, match
from tests.switch.oracle.case import PORTS, Case, Port, Send, Setup
from tests.switch.oracle.fields import Flow
from tests.switch.oracle.match import Match
from tests.switch.oracle.world import World

SETUP = Setup(ports=(Port(6, flood=False), Port(7, up=False), Port(8, up=False)))


def generate(rng: random.Random, *, rules: int | None = None, packets: int = 25) -> Case:
    """A random case; the same ``rng`` gives the same."""
    world = World(rng)
    rules = rules or rng.choice([1, 2, 3, 4, 6, 8, 10, 12, 20, 40])
    tables = sorted({0, *rng.sample([1, 2, 3, 4, 5, 100, 253], min(rng.choice([0, 1, 2, 3, 5]), rules // 3))})
    numbers = list(range(1, 1 + rng.choice([0, 0, 1, 2, 4])))
    # A group leads only to later tables and to earlier groups, and a rule, but for a few, only on: most cases end.
    groups = tuple(actions.generate_group(world, n, tables[1:], [k for k in numbers if k < n]) for n in numbers)
    made: list[tuple[int, int, Match]] = []
    flows: list[str] = []
    for _ in range(rules):
        table = 0 if rng.random() < 0.4 else rng.choice(tables)
        wanted = match.generate(world, table)
        priority = _priority(rng, table, wanted, made)
        made.append((table, priority, wanted))
        later = [k for k in tables if k > table]
        done = actions.generate(world, wanted, tables if rng.random() < 0.02 else later, later, numbers)
        flows.append(_line(rng, table, priority, wanted, done))
    first = [wanted for table, _, wanted in made if table == 0]
    others = [wanted for table, _, wanted in made if table]
    sent = tuple(_packet(world, first, others) for _ in range(packets))
    return Case(flows=tuple(flows), steps=sent, groups=groups, setup=SETUP)


def _priority(rng: random.Random, table: int, wanted: Match, made: list[tuple[int, int, Match]]) -> int:
    """A priority that leaves no doubt: shared only with rules that no packet hits as well."""
    while True:
        priority = rng.choice([rng.randint(0, 60), rng.randint(0, 65000), 0])
        rivals = [other for place, other_priority, other in made if (place, other_priority) == (table, priority)]
        if all(wanted.disjoint(other) for other in rivals):
            return priority


def _line(rng: random.Random, table: int, priority: int, wanted: Match, done: str) -> str:
    words = ([f"table={table}"] if table or rng.random() < 0.5 else []) + [f"priority={priority}"]
    words += [f"cookie={rng.getrandbits(16):#x}"] if rng.random() < 0.2 else []
    words += [wanted.text] if wanted.text else []
    return f"{','.join(words)},actions={done}"


def _packet(world: World, first: list[Match], others: list[Match]) -> Send:
    """A packet that hits a rule of table 0 and, if the two allow it, one of another table; or nearly, or is broken."""
    rng = world.rng
    flow: Flow = world.flow()
    if first and rng.random() < 0.9:
        chosen = rng.choice(first)
        flow = chosen.hit(world)
        if others and rng.random() < 0.5:
            flow = _also(flow, chosen, rng.choice(others))
        if rng.random() < 0.15:
            flow = match.variant(rng, flow, chosen)
    frame = frames.build(flow)
    if rng.random() < 0.1:
        frame = rng.choice(frames.FAULTS)(rng, frame)
    port = flow["in_port"] if flow["in_port"] in PORTS[:6] else rng.choice(PORTS[:6])
    return Send(port, frame)


def _also(flow: Flow, hit: Match, other: Match) -> Flow:
    """The packet that also hits ``other``, if that asks for nothing else of what the first match asks for."""
    if hit.disjoint(other) or "tci" in other.wanted:
        return flow
    changed = dict(flow)
    for key, (value, mask) in other.wanted.items():
        changed[key] = changed.get(key, 0) & ~mask | value
    return changed
