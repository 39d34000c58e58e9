"""``wirespeed warm``: afterwards, no kernel of the main path needs compiling in another process."""

import re
from pathlib import Path

import pytest

from tests.cli.terminal import wirespeed

FUNCTION = """
import wirespeed as ws

@ws.function
def only_warm(pkt):
    return ws.FORWARD if pkt.length > 77 else ws.DROP
"""


def kernels(text: str) -> dict[str, tuple[str, int]]:
    rows = re.findall(r"^([\w.]+) +(cached|[\d.]+) +([\d,]+)$", text, re.M)
    return {name: (took, int(size.replace(",", ""))) for name, took, size in rows}


def test_the_second_time_everything_comes_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FUNCTION)
    first, second = (wirespeed("warm", "f.py", cwd=tmp_path) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    listed = kernels(second.stdout)
    assert {"ports.null.receive", "ports.pcap_source.receive", "engine.worker.work"} <= set(listed)
    assert {name: took for name, (took, _) in listed.items() if took != "cached"} == {}
    assert all(size > 0 for _, size in listed.values())
    assert any("only_warm" in name for name in listed)


def test_a_run_after_it_compiles_nothing(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FUNCTION)
    (tmp_path / "main.py").write_text(
        "import sys\nfrom wirespeed.cli import main\nfrom wirespeed.jit.kernel import compiled\n"
        "code = main(['run', 'null:count=9,size=99', 'f.py', 'null:'])\n"
        "print([one.name for one in compiled()], file=sys.stderr)\nsys.exit(code)\n"
    )
    assert wirespeed("warm", "f.py", cwd=tmp_path).returncode == 0
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("text", ["f = 1\n", ""])
def test_a_file_without_functions_warms_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(text)
    done = wirespeed("warm", "f.py", cwd=tmp_path)
    assert done.returncode == 2 and "has no function" in done.stderr
