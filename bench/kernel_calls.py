"""How long a side of the bench of live ports is in the system calls by which it sends, by its own clock.

A library is preloaded into it that takes the time of these calls.  The clock ticks of /proc/stat, 250 a second, cannot tell a
hundred cycles outside the kernel from four thousand inside, nor what a core did while there were packets from what it
did while there were none: one side looks for packets in user mode, the other one by a system call that finds nothing.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.limited import run_whole
from bench.traffic import folder

FILE = "WIRESPEED_CALLS"
SOURCE = Path(__file__).with_name("kernel_calls.c")
COMPILER = "gcc"
COMPILE_SECONDS = 60.0
WORD = 8  # bytes of the sum


def missing() -> str | None:
    """Why calls cannot be timed here, or None."""
    if platform.machine() != "x86_64":
        return "cycles are counted as x86 does"
    return None if shutil.which(COMPILER) else f"not installed: {COMPILER}"


class Calls:
    """The cycles that a program has been in its calls; a context manager."""

    def __init__(self) -> None:
        self._library = _compiled()
        self._file = tempfile.NamedTemporaryFile(prefix="wirespeed-calls-")  # noqa: SIM115
        self._file.write(bytes(WORD))
        self._file.flush()

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        """Programs that are started meanwhile are timed; it is to be one."""
        added = {"LD_PRELOAD": str(self._library), FILE: self._file.name}
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value

    def cycles(self) -> int:
        """So far."""
        return int.from_bytes(os.pread(self._file.fileno(), WORD, 0), "little")

    def __enter__(self) -> "Calls":
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()


def sample(rounds: int, every: int) -> None:
    """In a program that is timed: from now on only in rounds of a loop whose number, at an address, is a multiple."""
    if FILE in os.environ:
        ctypes.CDLL(None).wirespeed_sample(ctypes.c_uint64(rounds), ctypes.c_uint64(every))


def _compiled() -> Path:
    """The library, compiled unless the very same was before."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    library = folder() / f"{SOURCE.stem}-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_name(library.name + ".part")
        command = [COMPILER, "-O2", "-Wall", "-shared", "-fPIC", str(SOURCE), "-o", str(part), "-ldl"]
        run_whole(command, os.sched_getaffinity(0), COMPILE_SECONDS)
        part.replace(library)
    return library
