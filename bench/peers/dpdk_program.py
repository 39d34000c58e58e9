"""Programs of the bench's own over DPDK's library: a C file beside this, compiled here and run on one core."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.harness import ToolFailed
from bench.peers.limited import run_whole
from bench.traffic import folder

COMPILE_SECONDS = 120.0
COMPILER = "gcc"


def missing() -> str | None:
    """Why none can run, or None. (Debian has what they need in ``gcc``, ``pkg-config`` and ``libdpdk-dev``.)"""
    for program in (COMPILER, "pkg-config"):
        if shutil.which(program) is None:
            return f"not installed: {program}"
    found = subprocess.run(["pkg-config", "--exists", "libdpdk"], stdin=subprocess.DEVNULL, check=False)
    return None if found.returncode == 0 else "not installed: libdpdk (pkg-config does not find it)"


def output(program: Path, core: int, seconds: float, huge: bool) -> str:
    """What a program prints that runs on ``core``; without ``huge`` pages it gets ordinary ones."""
    # Neither leaves files behind; --in-memory does not go together with --no-huge.
    memory = ["--in-memory"] if huge else ["--no-huge", "--no-shconf", "-m", "512"]
    return run_whole([str(program), "-l", str(core), "--no-pci", "--no-telemetry", *memory], {core}, seconds)


def compiled(source: Path, architecture: str = "native", archives: Sequence[str] = ()) -> Path:
    """The program for an architecture, compiled unless the very same was before.

    The libraries named in ``archives`` are linked from their archives where these are installed, which makes what they
    do not export callable too.
    """
    flags = [option for option in _pkg_config("--cflags") if not option.startswith("-march=")]
    command = [COMPILER, "-O3", *flags, f"-march={architecture}", str(source)]
    whole = [Path(*_pkg_config("--variable=libdir")) / f"lib{name}.a" for name in archives]
    libraries = [*(str(path) for path in whole if path.exists()), "-Wl,--as-needed", *_pkg_config("--libs")]
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    same = "\n".join([source.read_text(), *command, *libraries, _pkg_config("--modversion")[0], processor])
    program = folder() / f"dpdk-{source.stem}-{architecture}-{hashlib.sha256(same.encode()).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_name(program.name + ".part")
        run_whole([*command, "-o", str(part), *libraries], os.sched_getaffinity(0), COMPILE_SECONDS)
        part.replace(program)
    return program


def _pkg_config(question: str) -> list[str]:
    """What pkg-config says about libdpdk, in words."""
    answer = subprocess.run(
        ["pkg-config", question, "libdpdk"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if answer.returncode != 0:
        raise ToolFailed(f"pkg-config {question} libdpdk ended with {answer.returncode}: {answer.stderr.strip()[:200]}")
    return answer.stdout.split()
