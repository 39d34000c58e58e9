"""A packet port needs CAP_NET_RAW and nothing else, and says so where that is missing."""

import shutil
import subprocess
import sys

import pytest

from tests.lab import Lab, laboratory, needs_root
from tests.ports.packet.rig import frame, pair, raw_socket, received, wait_until

pytestmark = [needs_root, pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")]
ECHO = """
import sys
import wirespeed as ws
port = ws.port("packet:x1")
with ws.start(port >> port) as run:
    print("up", flush=True)
    sys.stdin.readline()
report = run.report()
assert report.balanced and report.packets == 3 and not report.dropped, str(report)
"""


def confined(lab: Lab, rights: str, program: str) -> subprocess.Popen[str]:
    """Python in the near namespace, as a process that has no right but these."""
    bounds = ["setpriv", "--inh-caps=-all", f"--bounding-set=-all{rights}", sys.executable, "-c", program]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(lab.words("near", *bounds), text=True, **pipes)


def test_cap_net_raw_is_enough_also_for_large_frames() -> None:
    with laboratory() as lab:
        pair(lab, mtu=30000)
        there = raw_socket(lab, "far/x0", receiving=True)
        with confined(lab, ",+net_raw", ECHO) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n", process.communicate()[1]
            for size in (60, 20000, 1500):
                there.send(frame(size, size))
                assert received(there, 1) == [frame(size, size)]
            _, told = process.communicate("\n", timeout=60)
            assert process.returncode == 0, told


def test_without_it_the_error_names_it() -> None:
    with laboratory() as lab:
        pair(lab)
        with confined(lab, "", ECHO) as process:
            _, told = process.communicate(timeout=60)
        last = told.strip().splitlines()[-1]
        assert "PortError" in last and "x1: no right to open a packet socket: CAP_NET_RAW is missing" in last
        assert "setcap cap_net_raw+ep" in last
        wait_until(lambda: process.returncode == 1, "it ended")
