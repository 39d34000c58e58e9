"""DPDK's mempool and mbufs: ``pool.c`` beside this, compiled here, and DPDK's own mempool_perf_autotest.

``pool.c`` is compiled twice and each row is that of the faster: for this processor, and for the one DPDK's package was
compiled for. The first is not always the better: gcc then takes a cache's length through a vector register, on the path
from one call to the next.
"""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.harness import ToolFailed
from bench.peers import dpdk_test
from bench.peers.limited import run_whole
from bench.peers.testpmd import huge_pages
from bench.traffic import folder

SOURCE = Path(__file__).with_name("pool.c")
SECONDS = 30.0  # A run takes about one.
COMPILE_SECONDS = 120.0
COMPILER = "gcc"
ARCHITECTURES = ("native", "corei7")

AUTOTEST = "mempool_perf_autotest"


def missing() -> str | None:
    """Why it cannot run, or None. (Debian has what it needs in ``gcc``, ``pkg-config`` and ``libdpdk-dev``.)"""
    for program in (COMPILER, "pkg-config"):
        if shutil.which(program) is None:
            return f"not installed: {program}"
    found = subprocess.run(["pkg-config", "--exists", "libdpdk"], stdin=subprocess.DEVNULL, check=False)
    return None if found.returncode == 0 else "not installed: libdpdk (pkg-config does not find it)"


def measure(core: int) -> dict[str, float]:
    """TSC cycles per object of every row of ``pool.c``, measured once on ``core``."""
    programs = [_compiled(architecture) for architecture in ARCHITECTURES]
    best: dict[str, float] = {}
    with huge_pages() as huge:
        # Neither leaves files behind; --in-memory does not go together with --no-huge.
        memory = ["--in-memory"] if huge else ["--no-huge", "--no-shconf", "-m", "512"]
        for program in programs:
            command = [str(program), "-l", str(core), "--no-pci", "--no-telemetry", *memory]
            rows = parse(run_whole(command, {core}, SECONDS))
            if not rows:
                raise ToolFailed(f"{program.name} printed no rows")
            for name, cycles in rows.items():
                best[name] = min(cycles, best.get(name, cycles))
    return best


def parse(text: str) -> dict[str, float]:
    """The rows ``pool.c`` prints."""
    return {row["name"]: float(row["value"]) for row in _ROW.finditer(text)}


_ROW = re.compile(r"^ROW (?P<name>\S+) (?P<value>[\d.]+) cycles/object$", re.MULTILINE)


def _pkg_config(question: str) -> list[str]:
    """What pkg-config says about libdpdk, in words."""
    answer = subprocess.run(
        ["pkg-config", question, "libdpdk"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if answer.returncode != 0:
        raise ToolFailed(f"pkg-config {question} libdpdk ended with {answer.returncode}: {answer.stderr.strip()[:200]}")
    return answer.stdout.split()


def _compiled(architecture: str) -> Path:
    """The program for an architecture, compiled unless the very same was before."""
    flags = [option for option in _pkg_config("--cflags") if not option.startswith("-march=")]
    command = [COMPILER, "-O3", *flags, f"-march={architecture}", str(SOURCE)]
    libraries = ["-Wl,--as-needed", *_pkg_config("--libs")]
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    same = "\n".join([SOURCE.read_text(), *command, *libraries, _pkg_config("--modversion")[0], processor])
    program = folder() / f"dpdk-pool-{architecture}-{hashlib.sha256(same.encode()).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_name(program.name + ".part")
        run_whole([*command, "-o", str(part), *libraries], os.sched_getaffinity(0), COMPILE_SECONDS)
        part.replace(program)
    return program


@dataclass(frozen=True)
class Rate:
    """Which row of mempool_perf_autotest it is; ``cache`` is the size of the workers' caches, 0 for none."""

    cache: int
    cores: int
    get: int
    put: int
    keep: int
    constant: bool


@dataclass(frozen=True)
class Autotest:
    """The rows the test got to, as objects a second, and what has to be said about them."""

    rates: dict[Rate, float]
    note: str


def mempool_autotest(core: int, seconds: float) -> Autotest:
    """What mempool_perf_autotest prints within so many seconds.

    It has hundreds of rows and takes seven seconds for each; the ones with a cache come after all those without, so
    they are not reached in less than a quarter of an hour.
    """
    ended = dpdk_test.autotest(AUTOTEST, [core], seconds)
    rates = parse_rates(ended.output)
    cached = sum(rate.cache > 0 for rate in rates)
    if ended.in_time:
        if not rates:
            raise ToolFailed(f"{AUTOTEST} printed no rows: {ended.last_words}")
        return Autotest(rates, "")
    return Autotest(rates, f"stopped after {seconds:.0f} s: {len(rates)} rows, {cached or 'none'} of them with a cache")


def parse_rates(text: str) -> dict[Rate, float]:
    """The rows mempool_perf_autotest prints."""
    rates: dict[Rate, float] = {}
    for row in _RATE.finditer(text):
        cache, cores, get, put, keep = map(int, row.group("cache", "cores", "get", "put", "keep"))
        rates[Rate(cache, cores, get, put, keep, row["constant"] == "1")] = float(row["rate"])
    return rates


_RATE = re.compile(
    r"^mempool_autotest cache=(?P<cache>\d+) cores=(?P<cores>\d+) n_get_bulk=(?P<get>\d+) n_put_bulk=(?P<put>\d+) "
    r"n_keep=(?P<keep>\d+) constant_n=(?P<constant>[01]) rate_persec=(?P<rate>\d+)$",
    re.MULTILINE,
)
