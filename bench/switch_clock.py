"""What the kernel says of time: how long a thread was on its core, and what the host took from us."""

from pathlib import Path

from bench.harness import ToolFailed


def cpu_ns(pid: int, thread: int) -> int:
    """Nanoseconds that a thread has been on a core (proc(5), schedstat)."""
    return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])


def thread_of(pid: int, begin: str) -> int:
    """The thread of a process whose name begins so."""
    for path in Path(f"/proc/{pid}/task").iterdir():
        if (path / "comm").read_text().startswith(begin):
            return int(path.name)
    raise ToolFailed(f"process {pid} has no thread {begin}")


def steal() -> tuple[int, int]:
    """Clock ticks that the host took from us, and all of them (proc_stat(5))."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)
