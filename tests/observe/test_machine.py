"""What is read of the kernel's files, from made-up ones."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.cli.parser import cores as cores_of
from wirespeed.observe import machine

# As a Debian 12 machine has them, with one cgroup hierarchy (version 2) ...
SECOND = {
    "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    "proc/self/cgroup": "0::/user.slice/session-2.scope\n",
}
# ... and as older ones have them, a hierarchy for each controller (version 1).
FIRST = {
    "proc/self/mountinfo": "33 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "35 25 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    "proc/self/cgroup": "5:memory:/lab\n4:cpu,cpuacct:/lab/run\n0::/\n",
}


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_no_files_at_all_are_no_error(tmp_path: Path) -> None:
    assert machine.quota(tmp_path) is None
    assert machine.huge_pages(tmp_path) == []
    assert machine.transparent_huge_pages(tmp_path) is None
    assert machine.steady_counter(tmp_path) is None
    assert list(machine.mounts(tmp_path)) == []


@pytest.mark.parametrize(("own", "above", "share"), [
    ("max 100000", "max 100000", None),
    ("150000 100000", "max 100000", 1.5),
    ("max 100000", "50000 100000", 0.5),
    ("200000 100000", "75000 50000", 1.5),
    ("nonsense", "", None),
    ("100000 0", "max", None),
])  # fmt: skip
def test_the_strictest_quota_on_the_way_up_counts(own: str, above: str, share: float | None, tmp_path: Path) -> None:
    slice_ = "sys/fs/cgroup/user.slice"
    files = {**SECOND, f"{slice_}/session-2.scope/cpu.max": own, f"{slice_}/cpu.max": above}
    assert machine.quota(plant(tmp_path, files)) == share


def test_a_quota_of_the_first_version_is_found_in_the_hierarchy_of_its_controller(tmp_path: Path) -> None:
    lab = "sys/fs/cgroup/cpu,cpuacct/lab"
    files = {
        f"{lab}/run/cpu.cfs_quota_us": "-1", f"{lab}/run/cpu.cfs_period_us": "100000",
        f"{lab}/cpu.cfs_quota_us": "250000", f"{lab}/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/lab/cpu.cfs_quota_us": "1", "sys/fs/cgroup/memory/lab/cpu.cfs_period_us": "100000",
    }  # fmt: skip
    assert machine.quota(plant(tmp_path, {**FIRST, **files})) == 2.5


def test_a_container_that_sees_only_its_own_group_is_limited_by_it(tmp_path: Path) -> None:
    files = {
        "proc/self/mountinfo": "29 23 0:26 /docker/4f /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
        "proc/self/cgroup": "0::/docker/4f\n",
        "sys/fs/cgroup/cpu.max": "25000 100000",
    }
    assert machine.quota(plant(tmp_path, files)) == 0.25


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=40))
def test_whatever_stands_in_these_files_is_no_error(mountinfo: str, cgroup: str, limit: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        plant(
            Path(folder), {"proc/self/mountinfo": SECOND["proc/self/mountinfo"] + mountinfo, "proc/self/cgroup": cgroup}
        )
        plant(Path(folder), {"sys/fs/cgroup/cpu.max": limit, "proc/cpuinfo": mountinfo})
        assert machine.quota(Path(folder)) is None or machine.quota(Path(folder)) >= 0  # type: ignore[operator]
        machine.steady_counter(Path(folder))


def test_huge_pages_are_listed_by_size_with_what_is_free(tmp_path: Path) -> None:
    top = "sys/kernel/mm/hugepages"
    files = {
        f"{top}/hugepages-1048576kB/nr_hugepages": "1\n", f"{top}/hugepages-1048576kB/free_hugepages": "0\n",
        f"{top}/hugepages-2048kB/nr_hugepages": "512\n", f"{top}/hugepages-2048kB/free_hugepages": "327\n",
        f"{top}/hugepages-64kB/nr_hugepages": "odd\n", f"{top}/hugepages-64kB/free_hugepages": "0\n",
    }  # fmt: skip
    assert machine.huge_pages(plant(tmp_path, files)) == [(2048, 512, 327), (1048576, 1, 0)]


@pytest.mark.parametrize(("text", "mode"), [
    ("always [madvise] never\n", "madvise"), ("[always] madvise never\n", "always"), ("", None), ("never", None),
])  # fmt: skip
def test_the_mode_of_transparent_huge_pages_is_the_one_in_brackets(text: str, mode: str | None, tmp_path: Path) -> None:
    plant(tmp_path, {"sys/kernel/mm/transparent_hugepage/enabled": text})
    assert machine.transparent_huge_pages(tmp_path) == mode


@pytest.mark.parametrize(("flags", "steady"), [
    ("flags\t\t: fpu tsc constant_tsc nonstop_tsc\n", True), ("flags : fpu tsc constant_tsc\n", False),
    ("Features : fp asimd\n", None),
])  # fmt: skip
def test_the_counter_is_steady_when_both_flags_say_so(flags: str, steady: bool | None, tmp_path: Path) -> None:
    plant(tmp_path, {"proc/cpuinfo": f"processor\t: 0\n{flags}\nprocessor : 1\nflags : none\n"})
    assert machine.steady_counter(tmp_path) is steady


@given(st.lists(st.integers(0, 300), min_size=1, unique=True))
def test_ranges_of_cores_are_read_back_as_the_same_cores(numbers: list[int]) -> None:
    text = machine.ranges(numbers)
    assert cores_of(text) == sorted(numbers)
    assert text.count(",") + text.count("-") < max(2, 2 * len(numbers))


def test_this_machine_has_cores_and_a_quota_that_allows_something() -> None:
    assert machine.cores() == sorted(os.sched_getaffinity(0))
    share = machine.quota()
    assert share is None or share > 0


def test_workers_that_get_less_than_a_core_each_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: [0, 1])
    assert machine.crowding(2, tmp_path) is None
    assert "3 workers share 2 cores" in str(machine.crowding(3, tmp_path))
    limited = plant(tmp_path, {**SECOND, "sys/fs/cgroup/user.slice/cpu.max": "150000 100000"})
    assert machine.crowding(1, limited) is None
    assert "2 workers have 1.5 cores' worth of time" in str(machine.crowding(2, limited))
