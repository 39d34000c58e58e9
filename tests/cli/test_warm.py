"""``wirespeed warm``: afterwards, no kernel of the main path needs compiling in another process."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.terminal import ROOT, wirespeed
from tests.lab import laboratory

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


LIVE = """
import json, subprocess, sys, time
import wirespeed as ws
from wirespeed.jit.inventory import entries
from wirespeed.jit.kernel import compiled

spaces, words = json.loads(sys.argv[1]), json.loads(sys.argv[2])

def heard(space, address):
    end = time.monotonic() + 60
    while subprocess.run(
        ["ip", "netns", "exec", space, "ping", "-q", "-c", "1", "-W", "0.3", address], stdout=subprocess.DEVNULL
    ).returncode:
        assert time.monotonic() < end, f"{address} was never heard"

pairs = [(ws.port(one), ws.port(other)) for one, other in words]
with ws.start(*(x >> y for one, other in pairs for x, y in ((one, other), (other, one)))):
    for state in ("up", "down", "up"):
        for name in ("a0", "c0"):
            subprocess.run(["ip", "-n", spaces["f"], "link", "set", name, state], check=True)
        for space, address in (("a", "10.7.0.2"), ("c", "10.8.0.2")) if state == "up" else ():
            heard(spaces[space], address)
ws.run(ws.port("generator:count=99") >> ws.port(f"tun:warm,netns={spaces['b']}"))
print(json.dumps([[one.name for one in compiled()], [one.name for one in entries()]]))
"""


def live(folder: Path, cache: Path | None = None) -> tuple[list[str], list[str]]:
    """What a run over live ports of every kind has compiled, and all kernels that it had, in a process of its own."""
    if not shutil.which("ping"):
        pytest.skip("ping is not installed")
    environment = {**os.environ, **({"WIRESPEED_CACHE": str(cache)} if cache else {})}
    (folder / "live.py").write_text(LIVE)
    with laboratory() as lab:
        spaces = {name: lab.space(name) for name in "abcdf"}
        for host, address in (("a", "10.7.0.1/24"), ("c", "10.8.0.1/24"), ("d", "10.8.0.2/24")):
            lab.veth(f"{host}/eth", f"f/{host}0")
            lab.address(f"{host}/eth", address)
        words = [
            [f"packet:a0,netns={spaces['f']}", f"tap:eth,netns={spaces['b']},address=10.7.0.2/24"],
            [f"xdp:c0,netns={spaces['f']}", f"xdp:d0,netns={spaces['f']}"],
        ]
        done = subprocess.run(
            [sys.executable, "live.py", json.dumps(spaces), json.dumps(words)],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fresh, kernels = json.loads(done.stdout.splitlines()[-1])
    return fresh, kernels


def test_a_live_run_needs_no_kernel_that_it_has_not(desk: Path) -> None:
    """This cache may have a kernel from elsewhere, so what warm has is compared, not what is compiled."""
    done = wirespeed("warm", cwd=desk)
    assert done.returncode == 0, done.stderr
    warm = Counter(re.findall(r"^([\w.]+) +(?:cached|[\d.]+) +[\d,]+$", done.stdout, re.M))
    _, kernels = live(desk)
    assert "ports.xdp.ring.publish" in kernels and "ports.packet.receive.receive" in kernels
    assert Counter(kernels) - warm == Counter()


@pytest.mark.torture
def test_a_live_run_after_it_compiles_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    words = [sys.executable, "-m", "wirespeed", "warm"]
    subprocess.run(words, env={**os.environ, "WIRESPEED_CACHE": str(cache)}, check=True, capture_output=True)
    fresh, kernels = live(tmp_path, cache)
    assert fresh == [] and kernels
