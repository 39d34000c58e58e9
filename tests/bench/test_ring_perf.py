"""The table of DPDK's ring_perf_autotest is read row by row, and each row for what it is."""

import os

import pytest

from bench.harness import ToolFailed
from bench.peers import dpdk_test, ring_perf
from bench.peers.limited import Ended
from bench.peers.ring_perf import Measure

TABLE = """\
APP: HPET is not enabled, using TSC as default timer
RTE>>ring_perf_autotest

### Testing single element enq/deq ###
legacy APIs: SP/SC: single: 1.25
legacy APIs: MP/MC: single: 2.50

### Testing burst enq/deq ###
legacy APIs: SP/SC: burst (size: 8): 3.00

### Testing bulk enq/deq ###
legacy APIs: MP/MC: bulk (size: 32): 4.00

### Testing empty bulk deq ###
legacy APIs: SP/SC: bulk (size: 8): 5.00

### Testing using two physical cores ###
legacy APIs: SP/SC: bulk (size: 8): 6.00
legacy APIs: MP/MC: bulk (size: 32): 7.00

### Testing using all worker nodes ###

Bulk enq/dequeue count on size 8
Core [0] count = 40
Core [1] count = 60
Total count (size: 8): 100

### Testing single element enq/deq ###
elem APIs: element size 16B: SP/SC: single: 8.00

### Testing using all worker nodes ###

Bulk enq/dequeue count on size 32
Core [0] count = 70
Total count (size: 32): 70
Test OK
RTE>>"""


def test_every_row_is_found_and_no_other() -> None:
    assert ring_perf.parse(TABLE) == {
        Measure(8, "spsc", "single", 1): 1.25,
        Measure(8, "mpmc", "single", 1): 2.5,
        Measure(8, "spsc", "burst", 8): 3.0,
        Measure(8, "mpmc", "bulk", 32): 4.0,
        Measure(8, "spsc", "empty", 8): 5.0,
        Measure(8, "spsc", "two-core", 8): 6.0,
        Measure(8, "mpmc", "two-core", 32): 7.0,
        Measure(8, "mpmc", "all-workers", 8): 100.0,
        Measure(16, "spsc", "single", 1): 8.0,
        Measure(16, "mpmc", "all-workers", 32): 70.0,
    }


@pytest.mark.parametrize("place", ["two hyperthreads", "two physical cores", "two NUMA nodes"])
def test_two_cores_are_two_cores_wherever_they_are(place: str) -> None:
    text = f"### Testing using {place} ###\nelem APIs: element size 16B: SP/SC: bulk (size: 32): 9.5\n"
    assert ring_perf.parse(text) == {Measure(16, "spsc", "two-core", 32): 9.5}


def test_a_section_that_is_not_known_gives_no_rows() -> None:
    assert ring_perf.parse("### Testing something new ###\nlegacy APIs: SP/SC: bulk (size: 8): 1.0\n") == {}


@pytest.mark.parametrize(
    ("ended", "complaint"),
    [
        (Ended(TABLE, "", False), "did not end within"),
        (Ended(TABLE.replace("Test OK", "Test Failed"), "", True), "failed, after 10 rows"),
        (Ended("Test OK", "", True), "failed, after 0 rows"),
    ],
)
def test_a_table_that_is_not_whole_is_not_taken(ended: Ended, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpdk_test, "autotest", lambda *_: ended)
    with pytest.raises(ToolFailed, match=complaint):
        ring_perf.measure(sorted(os.sched_getaffinity(0)))
