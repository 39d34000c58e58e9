"""What is said of rights that a process does not have."""

import subprocess
import sys

import pytest

from tests.lab import needs_root

CODE = """
import sys
from wirespeed.ports.link import rights
print(rights.refused("xdp:x0", "send", *sys.argv[1:]))
"""


@needs_root
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["CAP_NET_RAW"], "xdp:x0: no right to send: CAP_NET_RAW is missing; run as root"),
        (["CAP_BPF", "CAP_NET_RAW"], "CAP_BPF and CAP_NET_RAW are missing"),
        (["CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW"], "CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW are missing"),
    ],
)
def test_each_right_is_named_and_what_setcap_gives_to_whom(wanted, said):
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", CODE, *wanted]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said in told
    assert f"all programs of all users by this Python: setcap {','.join(wanted).lower()}+ep /" in told
    assert "setpriv --ambient-caps" in told
