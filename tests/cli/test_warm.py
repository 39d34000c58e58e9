"""``wirespeed warm``: afterwards, no kernel of the main path needs compiling in another process."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import ROOT, wirespeed

DEMO = ROOT / "src" / "wirespeed" / "data" / "demo.pcap"

FUNCTION = """
import wirespeed as ws

@ws.function
def only_warm(pkt):
    return ws.FORWARD if pkt.length > 77 else ws.DROP
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a function that has been warmed, and a compressed capture."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "f.py").write_text(FUNCTION)
    (folder / "out.pcap.gz").write_bytes(gzip.compress(DEMO.read_bytes()))
    done = wirespeed("warm", "f.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_second_time_everything_comes_from_the_cache(desk: Path) -> None:
    done = wirespeed("warm", "f.py", cwd=desk)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^([\w.]+) +(cached|[\d.]+) +([\d,]+)$", done.stdout, re.M)
    names = [name for name, _, _ in rows]
    assert {"ports.null.receive", "ports.pcap_source.receive", "engine.worker.work"} <= set(names)
    assert [(name, took) for name, took, _ in rows if took != "cached"] == []
    assert all(int(size.replace(",", "")) > 0 for _, _, size in rows)
    assert any("only_warm" in name for name in names)
    assert f"{len(rows)} kernels, 0 compiled now" in done.stdout


@pytest.mark.parametrize("words", [
    ["demo", "--seconds", "0.1"], ["run", "null:count=9,size=99", "f.py", "null:"],
    ["run", "generator:,size=imix,flows=10,count=99,rate=1Mpps", "f.py", "pcap:out.pcapng"],
    ["run", "pcap:-", "f.py", "null:"], ["run", "pcap:out.pcap.gz", "f.py", "null:"],
    ["distribute", "null:count=99", "f.py", "null:"], ["distribute", "null:count=9", "null:", "--by", "f.py", "--ordered"],
], ids=" ".join)  # fmt: skip
def test_a_command_after_it_compiles_nothing(words: list[str], desk: Path) -> None:
    (desk / "main.py").write_text(
        f"import sys\nfrom wirespeed.cli import main\nfrom wirespeed.jit.kernel import compiled\n"
        f"code = main({words})\nprint([one.name for one in compiled()], file=sys.stderr)\nsys.exit(code)\n"
    )
    with open(DEMO, "rb") as capture:
        done = subprocess.run(
            [sys.executable, "main.py"], cwd=desk, stdin=capture, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("text", ["f = 1\n", ""])
def test_a_file_without_functions_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(text)
    done = wirespeed("warm", "f.py", cwd=tmp_path)
    assert done.returncode == 2 and "has no function" in done.stderr
