"""Our switch does what Open vSwitch does: over what is recorded of it and, where it is installed, over new random cases."""

import pytest

from tests.conftest import TORTURE
from tests.ovs import OpenVSwitch, needs_ovs
from tests.switch.oracle import compare, generate, recorded, refusals, switched
from tests.switch.oracle.case import Case, Outputs, Refused
from tests.switch.oracle.openvswitch import RealSwitch
from tests.switch.oracle.ours import OurSwitch

SEEDS = 4000 if TORTURE else 60  # each of 25 packets: 100,000 (rules, packet) in the long form
TIMELESS = [name for name, case in recorded.WRITTEN.items() if not case.timed]


class Recorded:
    """The answers of Open vSwitch as a switch that knows one case."""

    def __init__(self, answers: list[Outputs]) -> None:
        self.answers = answers

    def run(self, case: Case) -> list[Outputs]:
        return self.answers


@pytest.fixture(scope="module")
def ours():
    with OurSwitch() as switch:
        yield switch


@pytest.mark.parametrize("name", TIMELESS)
def test_a_written_case_comes_out_as_from_open_vswitch(ours, name):
    answers = {case.name: answers for case, answers in recorded.written_cases()}[name]
    found = compare.difference(Recorded(answers), ours, recorded.WRITTEN[name])
    assert found is None, str(found)


def test_the_recorded_random_cases_come_out_as_from_open_vswitch(ours):
    differences = [compare.difference(Recorded(answers), ours, case) for case, answers in recorded.random_cases()]
    found = [difference for difference in differences if difference]
    assert not found, f"{len(found)} of {len(differences)} differ; the first:\n{found[0]}"


def test_what_open_vswitch_refuses_is_refused(ours):
    taken = []
    for line, error in recorded.refused():
        try:
            ours.run(refusals.alone(line))
            taken.append((line, error))
        except Refused:
            pass
    assert not taken


def test_what_is_odd_but_right_is_accepted(ours):
    for line in refusals.ACCEPTED:
        ours.run(refusals.alone(line))


@needs_ovs
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("draw", [generate.generate, switched.generate], ids=["rules", "learning"])
def test_new_random_cases_come_out_as_from_open_vswitch(ours, draw):
    with OpenVSwitch(8) as switch:
        tally = compare.campaign(RealSwitch(switch), ours, range(50_000, 50_000 + SEEDS), draw=draw)
    print(tally)
    assert tally.cases > SEEDS * 0.95
