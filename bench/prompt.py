"""A program that is told what to do word by word, and read for what it answers: testpmd, and our own side of a bench."""

import os
import re
import selectors
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bench.harness import ToolFailed

WAIT_SECONDS = 30.0


class Prompt:
    """A running program; a context manager that ends it.

    It says ``ready`` when it is, and leaves when told ``quit``.
    """

    def __init__(
        self, name: str, command: Sequence[str], ready: str = r"Done\n", patience_s: float = WAIT_SECONDS
    ) -> None:
        self._name = name
        self._patience_s = patience_s
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._output = ""
        try:
            self.wait(ready)
        except ToolFailed:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def say(self, *commands: str) -> None:
        """Give it commands."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("".join(f"{command}\n" for command in commands).encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ToolFailed(f"{self._name} ended: {self._last_line()}") from error

    def wait(self, pattern: str) -> re.Match[str]:
        """Read its output up to a match of ``pattern``."""
        assert self._process.stdout is not None
        until = time.monotonic() + self._patience_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                found = re.search(pattern, self._output)
                if found:
                    self._output = self._output[found.end() :]
                    return found
                if not selector.select(until - time.monotonic()):
                    raise ToolFailed(
                        f"{self._name} did not answer within {self._patience_s:.0f} s: {self._last_line()}"
                    )
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise ToolFailed(f"{self._name} ended: {self._last_line()}")
                self._output += piece.decode(errors="replace")

    def _last_line(self) -> str:
        """What it said last, or, where it gives a cause (as DPDK does), that."""
        lines = self._output.strip().splitlines() or ["no message"]
        return next((line for line in reversed(lines) if "Cause:" in line), lines[-1]).strip()[:200]

    def _end(self) -> None:
        """Ask it to leave, then make it."""
        try:
            self._process.communicate(b"quit\n", timeout=10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.communicate()
