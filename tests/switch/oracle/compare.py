"""Gives the same cases to two switches and shows the first difference as small as it can be made."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.switch.oracle import generate
from tests.switch.oracle.case import Case, Output, Outputs, Refused, Send, Switch, Unanswered


@dataclass
class Difference:
    """A case in which two switches do not do the same."""

    case: Case
    wanted: list[Outputs] | str  # what the oracle does, or why it refuses
    got: list[Outputs] | str

    def __str__(self) -> str:
        lines = ["", "Two switches differ.", "rules:", *self.case.flows]
        for title, texts in (("groups:", self.case.groups), ("meters:", self.case.meters)):
            lines += [title, *texts] if texts else []
        lines += [f"setup: {self.case.setup}"]
        if isinstance(self.wanted, str) or isinstance(self.got, str):
            return "\n".join([*lines, f"wanted: {self._told(self.wanted)}", f"got:    {self._told(self.got)}"])
        for step in self.case.steps:
            if not isinstance(step, Send):
                lines.append(f"then: {step}")
        for step, wanted, got in zip(self.case.sent, self.wanted, self.got):
            if wanted != got:
                lines += [
                    f"port {step.port} gets {step.frame.hex()}",
                    "wanted:",
                    *_listed(wanted),
                    "got:",
                    *_listed(got),
                ]
        return "\n".join(lines)

    @staticmethod
    def _told(answer: list[Outputs] | str) -> str:
        return f"refused: {answer}" if isinstance(answer, str) else "accepted"


def difference(oracle: Switch, ours: Switch, case: Case) -> Difference | None:
    """How two switches differ over a case, if they do.  Why a case is refused may differ."""
    wanted, got = _answer(oracle, case), _answer(ours, case)
    if isinstance(wanted, str) and isinstance(got, str):
        return None
    return None if wanted == got else Difference(case, wanted, got)


def _answer(switch: Switch, case: Case) -> list[Outputs] | str:
    try:
        return switch.run(case)
    except Refused as refusal:
        return str(refusal)


def shrunk(oracle: Switch, ours: Switch, found: Difference, tries: int = 600) -> Difference:
    """The same difference over a case with fewer packets, rules, groups, actions and fields."""
    smallest = found

    def still(case: Case) -> bool:
        nonlocal smallest, tries
        if tries <= 0:
            return False
        tries -= 1
        try:
            less = difference(oracle, ours, case)
        except Unanswered:
            return False
        # A difference in what is refused is another one than a difference in what comes out.
        if less is None or isinstance(less.wanted, str) != isinstance(found.wanted, str):
            return False
        if isinstance(less.got, str) != isinstance(found.got, str):
            return False
        smallest = less
        return True

    while _smaller(smallest.case, still):
        pass
    return smallest


def _smaller(case: Case, still: Callable[[Case], bool]) -> bool:
    """Try every way to make the case smaller by one step; True when one was possible."""
    done = False
    for name in ("steps", "flows", "groups", "meters"):
        case, changed = _fewer(case, name, still)
        done = done or changed
    for name in ("flows", "groups"):
        for i in range(len(getattr(case, name))):
            for simpler in simplifications(getattr(case, name)[i]):
                lines = list(getattr(case, name))
                lines[i] = simpler
                if still(case.without(**{name: tuple(lines)})):
                    return True
    return done


def _fewer(case: Case, name: str, still: Callable[[Case], bool]) -> tuple[Case, bool]:
    """Leave out as many elements of a part as possible: halves, quarters, ..., single ones."""
    done = False
    size = max(1, len(getattr(case, name)) // 2)
    while size:
        at = 0
        while at < len(getattr(case, name)):
            parts = getattr(case, name)
            less = case.without(**{name: parts[:at] + parts[at + size :]})
            if still(less):
                case, done = less, True
            else:
                at += size
        size //= 2
    return case, done


def simplifications(line: str) -> Iterable[str]:
    """A rule or a group without one field, one action or one bucket."""
    separator = ",bucket=" if ",bucket=" in line else ",actions=" if ",actions=" in line else " actions="
    if separator == ",bucket=":
        head, *buckets = line.split(separator)
        for i in range(len(buckets)):
            if len(buckets) > 1:
                yield separator.join([head, *buckets[:i], *buckets[i + 1 :]])
            before, _, actions = buckets[i].rpartition("actions=")
            for fewer in _without_one(actions):
                yield separator.join([head, *buckets[:i], f"{before}actions={fewer}", *buckets[i + 1 :]])
        return
    match, _, actions = line.partition(separator)
    for fewer in _without_one(actions):
        yield f"{match}{separator}{fewer}"
    words = split(match)
    for i, word in enumerate(words):
        if not word.startswith(("table=", "priority=")):
            yield f"{','.join([*words[:i], *words[i + 1 :]])}{separator}{actions}"


def _without_one(actions: str) -> Iterable[str]:
    words = split(actions)
    for i, word in enumerate(words):
        inner = word.startswith("write_actions(")
        if inner:
            yield from (
                ",".join([*words[:i], f"write_actions({less})", *words[i + 1 :]]) for less in _without_one(word[14:-1])
            )
        if len(words) > 1 or inner:
            yield ",".join([*words[:i], *words[i + 1 :]]) or "drop"


def split(text: str) -> list[str]:
    """The parts of a list of words between its commas, those in parentheses left alone."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def accepted(oracle: Switch, case: Case) -> tuple[Case, list[str]]:
    """A case as far as the oracle takes it, and the groups and rules, each complete but for its groups, that it refuses."""
    empty = case.without(flows=(), groups=(), steps=())
    if not isinstance(_answer(oracle, case.without(steps=())), str):
        return case, []
    refused: list[str] = []
    groups: tuple[str, ...] = ()
    for group in case.groups:
        if isinstance(_answer(oracle, empty.without(groups=(*groups, group))), str):
            refused.append(group)
        else:
            groups = (*groups, group)
    flows: list[str] = []
    for flow in case.flows:
        if isinstance(_answer(oracle, empty.without(groups=groups, flows=(flow,))), str):
            refused.append(flow)
        else:
            flows.append(flow)
    return case.without(flows=tuple(flows), groups=groups), refused


@dataclass
class Tally:
    """What a campaign has compared."""

    cases: int = 0
    packets: int = 0
    refused: int = 0  # rules and groups that neither takes
    unanswered: int = 0  # cases over which the oracle has crashed


def campaign(
    oracle: Switch, ours: Switch, seeds: Iterable[int], draw: Callable[[random.Random], Case] = generate.generate
) -> Tally:
    """Compare two switches over a random case for each seed; an assertion fails at the first difference, made small.

    What the oracle refuses, ours must refuse too, each by itself; the rest of the case is compared.  ``draw`` makes the
    cases: `generate.generate`, or `switched.generate` for those in which the order of packets counts.
    """
    tally = Tally()
    for seed in seeds:
        try:
            case, refused = accepted(oracle, draw(random.Random(seed)))
            found = difference(oracle, ours, case)
        except Unanswered:
            tally.unanswered += 1
            continue
        assert found is None, f"seed {seed}: {shrunk(oracle, ours, found)}"
        for line in refused:
            alone = case.without(steps=(), flows=(line,))
            if line.startswith("group_id"):
                alone = case.without(steps=(), flows=(), groups=(*case.groups, line))
            assert isinstance(_answer(ours, alone), str), f"seed {seed}: this must be refused: {line}"
        tally.cases += 1
        tally.packets += len(case.sent)
        tally.refused += len(refused)
    return tally


def _listed(outputs: Iterable[Output]) -> list[str]:
    return [f"  port {port}: {frame.hex()}" for port, frame in outputs] or ["  nothing"]
