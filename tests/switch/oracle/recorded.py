"""What a real Open vSwitch answered, kept so that tests have it where there is none.

``random.jsonl`` has a case and its answers a line; ``answers.jsonl`` the answers to the cases that are written in this
directory, by name; ``controls.jsonl`` changes to rules, a sequence a line; ``refused.json`` what it refuses;
``printed.json`` rules as they are written and as it prints them.  `record` makes all of them anew.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.switch.oracle import classifying, pipelines, rewriting, switching
from tests.switch.oracle.case import Case, Outputs
from tests.switch.oracle.controls import Sequence
from tests.switch.oracle.generate import SETUP

DATA = Path(__file__).resolve().parent.parent / "data"
WRITTEN: dict[str, Case] = {}
for _module in (classifying, rewriting, pipelines, switching):
    for _case in _module.CASES:
        assert _case.name not in WRITTEN, f"two cases of one name: {_case.name}"
        WRITTEN[_case.name] = _case


def random_cases() -> list[tuple[Case, list[Outputs]]]:
    """Random cases, none of which Open vSwitch refuses, with its answers."""
    found = []
    for line in (DATA / "random.jsonl").read_text().splitlines():
        said = json.loads(line)
        case = Case.from_json(said).without(setup=SETUP)
        found.append((case, unpacked(case, said["answers"])))
    return found


def written_cases() -> list[tuple[Case, list[Outputs]]]:
    """The cases written by hand, with the answers of Open vSwitch."""
    found = []
    for line in (DATA / "answers.jsonl").read_text().splitlines():
        said = json.loads(line)
        case = WRITTEN[said["name"]]
        found.append((case, unpacked(case, said["answers"])))
    return found


def control_sequences() -> list[Sequence]:
    """Changes to rules and the rules at their end."""
    return [Sequence.from_json(json.loads(line)) for line in (DATA / "controls.jsonl").read_text().splitlines()]


def refused() -> list[tuple[str, str]]:
    """Rules and groups (those that begin with ``group_id``) that are refused, each with the error that is named."""
    return [tuple(pair) for pair in json.loads((DATA / "refused.json").read_text())]


def printed() -> list[tuple[str, str]]:
    """Rules as they are written, and as ``ovs-ofctl dump-flows --no-stats`` prints them (without the first space)."""
    return [tuple(pair) for pair in json.loads((DATA / "printed.json").read_text())]


def packed(case: Case, answers: list[Outputs]) -> list[Any]:
    """Answers in few characters: a frame that comes out is told by what is unlike the frame that went in."""
    return [
        [[port, delta(step.frame, frame)] for port, frame in outputs]
        for step, outputs in zip(case.sent, answers, strict=True)
    ]


def unpacked(case: Case, said: Iterable[Any]) -> list[Outputs]:
    """The answers that ``packed`` wrote."""
    return [
        [(port, applied(step.frame, text)) for port, text in outputs]
        for step, outputs in zip(case.sent, said, strict=True)
    ]


def delta(before: bytes, after: bytes) -> str:
    """``=``, or how many bytes are the same in front, the bytes between in hexadecimal, and how many are the same behind."""
    if before == after:
        return "="
    shorter = min(len(before), len(after))
    front = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    back = next((i for i in range(shorter - front) if before[-1 - i] != after[-1 - i]), shorter - front)
    return f"{front}+{after[front : len(after) - back].hex()}+{back}"


def applied(before: bytes, text: str) -> bytes:
    """The frame that ``delta`` told of."""
    if text == "=":
        return before
    front, between, back = text.split("+")
    return before[: int(front)] + bytes.fromhex(between) + before[len(before) - int(back) :]
