"""Ctrl-C while machine code is made: it is noted, and raised when the kernel at hand is done.

A KeyboardInterrupt is raised wherever Python happens to be, also in a callback that LLVM has called, which swallows it
and goes on with half of what it needs.  A second Ctrl-C ends the process at once.

Thread rule: signals come to the main thread only, so what other threads compile needs none of this.
"""

import os
import signal
from threading import current_thread, main_thread
from types import FrameType
from typing import Any


class Deferral:
    """A context manager that can be entered again within itself; what came meanwhile is raised by leaving the outermost."""

    def __init__(self) -> None:
        self._depth = 0
        self._before: Any = None
        self._came: FrameType | None = None

    def __enter__(self) -> None:
        if current_thread() is not main_thread():
            return
        if self._depth == 0:
            before = signal.getsignal(signal.SIGINT)
            if not callable(before):  # ignored, or not Python's
                return
            self._before, self._came = before, None
            signal.signal(signal.SIGINT, self._note)
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        if self._depth == 0 or current_thread() is not main_thread():
            return
        self._depth -= 1
        if self._depth > 0:
            return
        before, self._before = self._before, None
        signal.signal(signal.SIGINT, before)
        if self._came is not None:
            frame, self._came = self._came, None
            before(signal.SIGINT, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came is not None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self._came = frame


deferred = Deferral()
