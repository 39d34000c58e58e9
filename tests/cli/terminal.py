"""Runs the command line as a process of its own: with pipes, or on a terminal that can be read as a person would."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATH = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])  # for tests.elements
PATIENCE_S = 120  # a cold cache compiles first


def wirespeed(*words: str, env: dict[str, str] | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; standard output and error are read apart."""
    command = [sys.executable, "-m", "wirespeed", *words]
    environment = {**os.environ, "PYTHONPATH": PATH, "COLUMNS": "100", **(env or {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment, stdin=subprocess.DEVNULL, **how
    )


class Terminal:
    """A command (or another Python program) whose standard error is a terminal; ``shown`` is all it has written there."""

    def __init__(
        self, *words: str, program: tuple[str, ...] = ("-m", "wirespeed"), env: dict[str, str] | None = None, **how: Any
    ) -> None:
        self.shown = ""
        self._master, slave = pty.openpty()
        environment = {**os.environ, "PYTHONPATH": PATH, "TERM": "xterm", "COLUMNS": "100", **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, *program, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, text=True, env=environment, **how,
        )  # fmt: skip
        os.close(slave)

    def wait_for(self, text: str) -> None:
        """Read until ``text`` has been shown."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was never shown: {self.shown!r}"
            assert self._read(1.0), f"the command ended without showing {text!r}: {self.shown!r}"

    def _read(self, timeout: float) -> bool:
        if not select.select([self._master], [], [], timeout)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux's way of telling that nobody has the other side any more
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, as the terminal does for Ctrl-C."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for the end; the exit code and what went to standard output."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(1.0) and time.monotonic() < deadline:
            pass
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        os.close(self._master)
