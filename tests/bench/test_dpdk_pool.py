"""The rows of DPDK's pools are read, and the program that prints ours compiles and runs without huge pages too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.peers import dpdk_pool, dpdk_test
from bench.peers.dpdk_pool import Rate
from bench.peers.limited import Ended

CORE = min(os.sched_getaffinity(0))

RATES = """\
RTE>>mempool_perf_autotest
start performance test (without cache)
mempool_autotest cache=0 cores=1 n_get_bulk=1 n_put_bulk=1 n_keep=32 constant_n=0 rate_persec=118000000
mempool_autotest cache=512 cores=2 n_get_bulk=4 n_put_bulk=32 n_keep=128 constant_n=1 rate_persec=900000000
mempool_autotest cache=512 cores=2 n_get_bulk=32 n_put_"""


def test_the_rows_of_our_program_are_found_among_what_dpdk_prints() -> None:
    text = (
        "EAL: something\nROW mbuf.bulk32 12.5000 cycles/object\nROW mbuf.single 14.0000 cycles/object\nTELEMETRY: no\n"
    )
    assert dpdk_pool.parse(text) == {"mbuf.bulk32": 12.5, "mbuf.single": 14.0}


def test_rates_are_read_and_a_line_that_was_cut_off_is_not() -> None:
    assert dpdk_pool.parse_rates(RATES) == {
        Rate(0, 1, 1, 1, 32, constant=False): 118e6,
        Rate(512, 2, 4, 32, 128, constant=True): 900e6,
    }


def test_an_autotest_that_was_stopped_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpdk_test, "autotest", lambda *_: Ended(RATES, "", False))
    assert dpdk_pool.mempool_autotest(CORE, 20).note == "stopped after 20 s: 2 rows, 1 of them with a cache"
    uncached = Ended(RATES.replace("cache=512", "cache=0"), "", False)
    monkeypatch.setattr(dpdk_test, "autotest", lambda *_: uncached)
    assert dpdk_pool.mempool_autotest(CORE, 20).note == "stopped after 20 s: 2 rows, none of them with a cache"


def test_our_program_compiles_and_measures_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if dpdk_pool.missing():
        pytest.skip("libdpdk is not installed")

    @contextmanager
    def none() -> Iterator[bool]:
        yield False

    monkeypatch.setenv("WIRESPEED_BENCH_DIR", str(tmp_path))
    monkeypatch.setattr(dpdk_pool, "huge_pages", none)
    rows = dpdk_pool.measure(CORE)
    sizes = ("bulk1", "bulk8", "bulk32", "bulk32.constant")
    ways = [f"batch32.{way}" for way in ("bulk", "single", "segment", "chain4")]
    assert rows.keys() == {
        *(f"mempool.{cache}.{size}" for cache in ("cache512", "nocache") for size in sizes),
        *(f"mbuf.{name}" for name in ("single", "bulk32", "bulk32.keep512", "clone")),
        *(f"mbuf.{way}{half}" for way in ways for half in ("", ".free")),
    }
    assert all(cycles > 0 for cycles in rows.values())
