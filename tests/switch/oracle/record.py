"""Asks a real Open vSwitch for the answers that tests keep: ``python -m tests.switch.oracle.record [FILE ...]``."""

import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ovs import OpenVSwitch
from tests.switch.oracle import compare, controls, generate, refusals, texts
from tests.switch.oracle.case import Case, Setup, Unanswered
from tests.switch.oracle.openvswitch import RealSwitch
from tests.switch.oracle.recorded import DATA, WRITTEN, packed

CASES = 300
PACKETS = 4
SEQUENCES = 40
LONGEST = 700  # characters of a case: the small ones tell as much


def chosen(real: RealSwitch) -> list[tuple[Case, list[Any]]]:
    """Small random cases that do something, until every kind of action and of field has come often enough."""
    found: list[tuple[Case, list[Any]]] = []
    seen: dict[str, int] = {}
    seed = 0
    while len(found) < CASES:
        seed += 1
        rng = random.Random(seed)
        drawn = generate.generate(rng, rules=rng.choice([1, 2, 3, 4, 6]), packets=PACKETS)
        if len(json.dumps(drawn.without(setup=Setup()).to_json())) > LONGEST:
            continue
        try:
            case, _ = compare.accepted(real, drawn)
            answers = real.run(case) if case.flows else []
        except Unanswered:
            continue
        case = case.without(name=f"seed {seed}", setup=Setup())  # which is the same for all
        words = set(re.findall(r"[a-z_0-9]{3,}(?=[=:(\[,])", ",".join(case.flows + case.groups)))
        rare = any(seen.get(word, 0) < 5 for word in words)
        if sum(bool(outputs) for outputs in answers) < (1 if rare else 3):
            continue
        for word in words:
            seen[word] = seen.get(word, 0) + 1
        found.append((case, answers))
    return found


def write(path: Path, lines: list[Any], *, one_a_line: bool) -> None:
    """Write JSON: an object a line, or one list with an element a line."""
    said = [json.dumps(line, separators=(",", ":")) for line in lines]
    path.write_text("\n".join(said) + "\n" if one_a_line else "[\n" + ",\n".join(said) + "\n]\n")
    print(f"{path.name}: {len(lines)} lines, {path.stat().st_size} bytes")


def played(ovs: OpenVSwitch) -> list[list[Any]]:
    """Sequences of changes to rules, and how they end."""
    sequences = (controls.generate(random.Random(seed)) for seed in range(SEQUENCES))
    return [controls.play(controls.RealTable(ovs), changes, ovs.exchange).to_json() for changes in sequences]


def main(names: list[str]) -> None:
    """Record the files that are named, or all."""
    DATA.mkdir(exist_ok=True)
    with OpenVSwitch(8) as ovs:
        real = RealSwitch(ovs)
        files: dict[str, Callable[[], list[Any]]] = {
            "random.jsonl": lambda: [{**case.to_json(), "answers": packed(case, said)} for case, said in chosen(real)],
            "answers.jsonl": lambda: [{"name": n, "answers": packed(c, real.run(c))} for n, c in WRITTEN.items()],
            "refused.json": lambda: refusals.ask(real),
            "controls.jsonl": lambda: played(ovs),
            "printed.json": lambda: texts.ask(ovs),
        }
        for name in names or files:
            write(DATA / name, files[name](), one_a_line=name.endswith(".jsonl"))


if __name__ == "__main__":
    main(sys.argv[1:])
