"""Random expressions compiled by us and by the libpcap of an installed tcpdump: accepted alike, and of one meaning."""

import random
import shutil
import subprocess

import pytest

from tests.net.filter.bpf_text import read_program
from tests.net.filter.explore import explore, trace
from tests.net.filter.phrases import phrase
from wirespeed.net import filter as pcap_filter
from wirespeed.net.filter import FilterError, Instruction, interpret
from wirespeed.net.filter.link_type import LINKS

FRAME, TRIED = 160, 60
NEVER = "expression rejects all packets"


def tcpdump(link: str, expression: str, *options: str) -> tuple[tuple[Instruction, ...], str]:
    """What tcpdump compiles an expression to, or why it does not."""
    command = ["tcpdump", *options, "-d", "-y", link, expression]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("(")]
    return read_program(lines), done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


@pytest.mark.parametrize(("link", "seeds"), [("EN10MB", 100), ("PPP", 40), ("FDDI", 40), ("LINUX_SLL", 40)])
def test_random_expressions_mean_what_they_mean_to_libpcap(link: str, seeds: int) -> None:
    if not shutil.which("tcpdump"):
        pytest.skip("tcpdump is not installed")
    compared = 0
    for seed in range(seeds):
        chance = random.Random(f"{link} {seed}")
        expression = phrase(chance)
        theirs, refusal = tcpdump(link, expression)
        try:
            ours = pcap_filter.compile(expression, link=LINKS[link])
        except FilterError as error:
            # We see more contradictions than libpcap does: then its program never matches either.
            assert refusal or "rejects all" in error.what, (expression, error)
            if not refusal:
                frames = explore(theirs, [bytes(FRAME), chance.randbytes(FRAME)], TRIED)
                assert not any(trace(theirs, frame, {})[2] for frame, _, _ in frames), expression
            continue
        assert not refusal or NEVER in refusal, (expression, refusal)
        if not refusal:
            compared += 1
            plain = None
            for program in (theirs, ours.instructions):
                for frame, _, ends in explore(program, [bytes(FRAME), chance.randbytes(FRAME)], TRIED):
                    for cut in {FRAME, *(max(end - less, 0) for end in ends for less in (0, 1))}:
                        got, want = interpret(ours, frame[:cut], FRAME), trace(theirs, frame[:cut], {}, FRAME)[2]
                        if got != want:
                            # Its optimiser drops loads whose value is not used, and with them what they would refuse.
                            plain = plain or tcpdump(link, expression, "-O")[0]
                            want = trace(plain, frame[:cut], {}, FRAME)[2]
                        assert got == want, (expression, frame[:cut].hex())
    assert compared > seeds // 4
