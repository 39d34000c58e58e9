"""The answers that are kept are those of the Open vSwitch that is here, and the tools that ask it are sound."""

import random

import pytest

from tests.conftest import TORTURE
from tests.ovs import OpenVSwitch, needs_ovs
from tests.switch.oracle import compare, controls, generate, recorded, refusals, switched
from tests.switch.oracle.case import Case, Outputs, Refused, Unanswered
from tests.switch.oracle.openvswitch import RealSwitch
from tests.switch.oracle.packets import packet

pytestmark = needs_ovs
SEEDS = 2000 if TORTURE else 25


@pytest.fixture(scope="module")
def real():
    with OpenVSwitch(8) as switch:
        yield RealSwitch(switch)


def refuses(real: RealSwitch, case: Case) -> bool:
    """Does it refuse the case's rules or groups?"""
    try:
        real.run(case)
    except Refused:
        return True
    return False


@pytest.mark.parametrize("name", recorded.WRITTEN)
def test_a_written_case_gives_what_is_recorded(real, name):
    wanted = {case.name: answers for case, answers in recorded.written_cases()}
    # On a busy machine the real one may not have taken in yet what it was told last; what is so stays so.
    answers = (real.run(recorded.WRITTEN[name]) for _ in range(3))
    assert any(answer == wanted[name] for answer in answers)


def test_the_random_cases_give_what_is_recorded(real):
    for case, answers in recorded.random_cases()[:: 1 if TORTURE else 5]:
        assert real.run(case) == answers, case.name


def test_bad_rules_and_groups_are_refused_each_by_itself(real):
    lines = refusals.RULES + refusals.GROUPS
    assert {line for line, _ in recorded.refused()} == set(lines)
    for line in lines if TORTURE else lines[::5]:
        assert refuses(real, refusals.alone(line)), line


def test_odd_but_right_rules_are_accepted(real):
    for line in refusals.ACCEPTED:
        assert not refuses(real, refusals.alone(line)), line


def test_rules_are_printed_as_is_recorded(real):
    pairs = recorded.printed()
    for line, wanted in pairs if TORTURE else pairs[::9]:
        real.ovs.program(line)
        assert real.ovs.dump_flows("--no-stats") == [wanted], line


def test_changes_to_rules_end_as_is_recorded(real):
    for sequence in recorded.control_sequences()[:: 1 if TORTURE else 4]:
        table = controls.RealTable(real.ovs)
        assert controls.play(table, list(sequence.changes), real.ovs.exchange) == sequence


def test_most_random_rules_are_accepted_and_most_packets_come_out_somewhere(real):
    lines = refused = packets = out = 0
    for seed in range(SEEDS):
        drawn = generate.generate(random.Random(seed))
        case, bad = compare.accepted(real, drawn)
        answers = real.run(case)
        lines, refused = lines + len(drawn.flows) + len(drawn.groups), refused + len(bad)
        packets, out = packets + len(answers), out + sum(bool(outputs) for outputs in answers)
    assert refused < lines / 20
    assert out > packets / 3


def test_random_cases_have_one_answer_each(real):
    """A second switch, which is given each packet alone, gives the same: if the harness mixed frames up, it would show."""

    class Alone(RealSwitch):
        def _run(self, case: Case) -> list[Outputs]:
            answers = [super(Alone, self)._run(case.without(steps=(step,))) for step in case.steps[:5]]
            return [answer for one in answers for answer in one] + super()._run(case.without(steps=case.steps[5:]))

    with OpenVSwitch(8) as other:
        tally = compare.campaign(real, Alone(other), range(10_000, 10_000 + SEEDS))
    assert tally.cases + tally.unanswered == SEEDS and tally.packets == 25 * tally.cases


def test_random_cases_of_learning_and_vlans_have_one_answer_each(real):
    """A second switch, which has not seen the cases before, gives the same: nothing of them is left to chance."""
    with OpenVSwitch(8) as other:
        tally = compare.campaign(real, RealSwitch(other), range(SEEDS), draw=switched.generate)
    assert tally.cases == SEEDS and tally.refused == 0


def test_a_switch_that_crashes_over_a_case_is_started_again(real):
    case = Case(flows=("actions=output:2",), steps=(packet(),), setup=generate.SETUP)
    answers = real.run(case)
    real.ovs._daemons[1].kill()
    with pytest.raises(Unanswered):
        real.run(case)
    assert real.run(case) == answers != [[]]


def test_a_wrong_switch_is_found_and_its_fault_is_shown_by_one_rule(real):
    class Forgetful:
        """Open vSwitch without decrement."""

        def run(self, case: Case) -> list[Outputs]:
            return real.run(
                case.without(flows=tuple(flow.replace("dec_ttl", "load:1->reg15[]") for flow in case.flows))
            )

    with pytest.raises(AssertionError) as caught:
        compare.campaign(real, Forgetful(), range(100))
    shown = str(caught.value).splitlines()
    rules = shown[shown.index("rules:") + 1 :]
    rules = rules[: next(i for i, line in enumerate(rules) if line.startswith(("groups:", "setup:")))]
    assert 1 <= len(rules) <= 3 and any("dec_ttl" in rule for rule in rules)
    assert sum(line.startswith("port ") for line in shown) == 1
