"""What the machine offers to a run: cores and shares of them, large pages, a steady cycle counter.

Each function reads what the kernel tells below ``root``, which is the real one except in tests.  What cannot be read
is None, never an error.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


def read(path: Path) -> str | None:
    """The text of a file of the kernel's, without its last line break; None where it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def ranges(numbers: list[int]) -> str:
    """Core numbers as taskset writes them: ``0-3,8``."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


class Mount(NamedTuple):
    """A mounted file system: where, which part of it, its type and its own options."""

    point: str
    part: str
    type: str
    options: frozenset[str]


def mounts(root: Path = ROOT) -> Iterator[Mount]:
    """The mounted file systems, by /proc/self/mountinfo: proc(5)."""
    for line in (read(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) > 4 and len(kind) > 2:
            yield Mount(fields[4], fields[3], kind[0], frozenset(kind[2].split(",")))


def quota(root: Path = ROOT) -> float | None:
    """How many cores' worth of time the control groups allow, the strictest of them; None when none limits it."""
    shares = [s for folder in _cpu_groups(root) if (s := _share(folder)) is not None]
    return min(shares, default=None)


def _cpu_groups(root: Path) -> Iterator[Path]:
    """The folders of this process's groups that may limit its time, from its own up to the topmost: cgroups(7)."""
    mounted = list(mounts(root))
    for line in (read(root / "proc/self/cgroup") or "").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        for mount in mounted:
            second = number == "0" and mount.type == "cgroup2"
            first = "cpu" in controllers.split(",") and mount.type == "cgroup" and "cpu" in mount.options
            if not (first or second):
                continue
            # In a container the mounted part may be the group itself, and the path then lies above it.
            inside = path.removeprefix(mount.part).strip("/") if path.startswith(mount.part) else ""
            top = root / mount.point.lstrip("/")
            folder = top / inside
            yield folder
            yield from (p for p in folder.parents if p.is_relative_to(top))


def _share(folder: Path) -> float | None:
    second = read(folder / "cpu.max")
    if second is not None:
        limit, _, period = second.partition(" ")
    else:
        limit, period = (read(folder / f"cpu.cfs_{word}_us") or "" for word in ("quota", "period"))
    if not limit.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None  # "max" and -1: no limit
    return int(limit) / int(period)


class HugePages(NamedTuple):
    """Pages of one size: how many there are, and how many of them nobody has taken."""

    kilobytes: int
    total: int
    free: int


def huge_pages(root: Path = ROOT) -> list[HugePages]:
    """The sizes of huge pages that the kernel has, smallest first."""
    found = []
    for folder in (root / "sys/kernel/mm/hugepages").glob("hugepages-*kB"):
        size = folder.name.removeprefix("hugepages-").removesuffix("kB")
        total, free = read(folder / "nr_hugepages"), read(folder / "free_hugepages")
        if size.isdecimal() and total and free and total.isdecimal() and free.isdecimal():
            found.append(HugePages(int(size), int(total), int(free)))
    return sorted(found)


def transparent_huge_pages(root: Path = ROOT) -> str | None:
    """``always``, ``madvise`` or ``never``."""
    text = read(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    return text.partition("[")[2].partition("]")[0] or None


def processor(root: Path = ROOT) -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor."""
    text = (read(root / "proc/cpuinfo") or "").partition("\n\n")[0]
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def steady_counter(root: Path = ROOT) -> bool | None:
    """Whether the cycle counter ticks evenly whatever the clock does; None where cpuinfo has no flags (aarch64)."""
    flags = processor(root).get("flags")
    return None if flags is None else {"constant_tsc", "nonstop_tsc"} <= set(flags.split())


def cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def crowding(workers: int, root: Path = ROOT) -> str | None:
    """What to say when so many workers get less than a core each; None when there is enough for all."""
    have, share = len(cores()), quota(root)
    if share is not None and share < min(workers, have):
        return f"{workers} workers have {share:g} cores' worth of time by a control group's quota, and will be held up by it"
    if workers > have:
        return f"{workers} workers share {have} core{'s' * (have > 1)}; one worker a core is the most that helps"
    return None
