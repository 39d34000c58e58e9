"""Our switch does what Open vSwitch does: over what is recorded of it and, where it is installed, over new random cases."""

import random
import re
from dataclasses import replace

import pytest

from tests.conftest import TORTURE
from tests.ovs import OpenVSwitch, needs_ovs
from tests.switch.oracle import compare, generate, recorded, refusals, switched
from tests.switch.oracle.case import Case, Outputs, Refused, Send
from tests.switch.oracle.openvswitch import RealSwitch
from tests.switch.oracle.ours import OurSwitch

SEEDS = 4000 if TORTURE else 60  # each of 25 packets: 100,000 (rules, packet) in the long form
TIMELESS = [name for name, case in recorded.WRITTEN.items() if not case.timed]


# Labels that come and go within one list leave Open vSwitch with the type that the packet had, ours with the one named.
LABELS_COME_AND_GO = re.compile(r"push_mpls:.*pop_mpls:0x")
# What is cut and sent back by the port that it came in by: Open vSwitch takes such a rule and sends nothing.
CUT_AND_SENT_BACK = re.compile(r"output\(port=in_port,max_len=\d+\),", re.IGNORECASE)
# What is cut for a port and mirrored first is cut by the mirror's tag too.
CUT = re.compile(r"output\(port=\w+,max_len=\d+\),?", re.IGNORECASE)
# A checksum that covers an address is written into later fragments, which have none.
ADDRESSES = re.compile(
    r"mod_nw_(src|dst)|->(nw|ip|ipv6)_(src|dst)|->NXM_OF_IP_|->NXM_NX_IPV6_|->reg|->OXM_OF_IP", re.IGNORECASE
)
# The first port of a flood that a mirror selects decides in which VLAN the mirror has the packet, and Open vSwitch's
# ports are in the order of a hash.
TO_ALL = re.compile(r"actions=(.*,)?(all|flood)\b", re.IGNORECASE)
TAGS = (b"\x81\x00", b"\x88\xa8")


def without_oddities(case: Case) -> Case:
    """A case without what Open vSwitch does in its own way: see "Other than Open vSwitch" in docs/switch.md."""
    steps = tuple(replace(step, frame=_plain(step.frame)) if isinstance(step, Send) else step for step in case.steps)
    odd, cut = LABELS_COME_AND_GO.search, CUT if case.setup.mirrors else CUT_AND_SENT_BACK
    if any(map(ADDRESSES.search, (*case.flows, *case.groups))):
        steps = tuple(step for step in steps if not (isinstance(step, Send) and _is_later_fragment(step.frame)))
    flows = [flow for flow in case.flows if not (odd(flow) or (case.setup.mirrors and TO_ALL.search(flow)))]
    return case.without(
        steps=steps,
        flows=tuple(cut.sub("", flow) for flow in flows),
        groups=tuple(group for group in case.groups if not odd(group)),
    )


def _plain(frame: bytes) -> bytes:
    """A frame whose tags have their DEI bit clear: it does not survive a tag that Open vSwitch takes off and puts back."""
    found, at = bytearray(frame), 12
    while found[at : at + 2] in TAGS and len(found) >= at + 4:
        found[at + 2] &= 0xEF
        at += 4
    return bytes(found)


def _is_later_fragment(frame: bytes) -> bool:
    """Whether a frame has a later fragment of IPv4 in it, behind tags or labels."""
    at = frame.find(b"\x08\x00", 12, 22)
    return at >= 0 and len(frame) >= at + 22 and int.from_bytes(frame[at + 8 : at + 10], "big") & 0x1FFF != 0


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
    case = recorded.WRITTEN[name]
    case = case.without(flows=tuple(CUT_AND_SENT_BACK.sub("", flow) for flow in case.flows))
    found = compare.difference(Recorded(answers), ours, case)
    assert found is None, str(found)


def test_the_recorded_random_cases_come_out_as_from_open_vswitch(ours):
    known = [
        (case, answers)
        for case, answers in recorded.random_cases()
        if not any(map(LABELS_COME_AND_GO.search, (*case.flows, *case.groups)))
    ]
    differences = [compare.difference(Recorded(answers), ours, case) for case, answers in known]
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
    def chosen(rng: random.Random) -> Case:
        return without_oddities(draw(rng))

    with OpenVSwitch(8) as switch:
        tally = compare.campaign(RealSwitch(switch), ours, range(50_000, 50_000 + SEEDS), draw=chosen)
    print(tally)
    assert tally.cases > SEEDS * 0.95
