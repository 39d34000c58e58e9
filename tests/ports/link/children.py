"""Children that a test's process forks, as multiprocessing does, or as a library does of which Python does not know."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator

FORKS: dict[str, Callable[[], int]] = {"os.fork": os.fork, "a library": ctypes.PyDLL(None).fork}


@contextlib.contextmanager
def child(how: str) -> Iterator[int]:
    """A child that lives, and does nothing, while the block runs."""
    pid = FORKS[how]()
    if pid == 0:
        time.sleep(120)
        os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def said_by_child(work: Callable[[], object]) -> str:
    """What a child that is forked now says when it is to do some work: the error, or nothing."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader, encoding="utf-8") as told:
        return told.read()
