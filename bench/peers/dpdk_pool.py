"""DPDK's mempool and mbufs: ``pool.c`` beside this, compiled here, and DPDK's own mempool_perf_autotest.

``pool.c`` is compiled twice and each row is that of the faster: for this processor, and for the one DPDK's package was
compiled for. The first is not always the better: gcc then takes a cache's length through a vector register, on the path
from one call to the next.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bench.harness import ToolFailed
from bench.peers import dpdk_program, dpdk_test
from bench.peers.testpmd import huge_pages

SOURCE = Path(__file__).with_name("pool.c")
SECONDS = 30.0  # A run takes about one.
ARCHITECTURES = ("native", "corei7")

AUTOTEST = "mempool_perf_autotest"


missing = dpdk_program.missing


def measure(core: int) -> dict[str, float]:
    """TSC cycles per object of every row of ``pool.c``, measured once on ``core``."""
    programs = [dpdk_program.compiled(SOURCE, architecture) for architecture in ARCHITECTURES]
    best: dict[str, float] = {}
    with huge_pages() as huge:
        for program in programs:
            rows = parse(dpdk_program.output(program, core, SECONDS, huge))
            if not rows:
                raise ToolFailed(f"{program.name} printed no rows")
            for name, cycles in rows.items():
                best[name] = min(cycles, best.get(name, cycles))
    return best


def parse(text: str) -> dict[str, float]:
    """The rows ``pool.c`` prints."""
    return {row["name"]: float(row["value"]) for row in _ROW.finditer(text)}


_ROW = re.compile(r"^ROW (?P<name>\S+) (?P<value>[\d.]+) cycles/object$", re.MULTILINE)


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
