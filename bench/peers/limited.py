"""Run a measured program that may hang or take too long: it and all it started end with the time it was given."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import ToolFailed, affinity


@dataclass(frozen=True)
class Ended:
    """What a program printed, and whether it came to its end or was ended."""

    output: str
    errors: str
    in_time: bool

    @property
    def last_words(self) -> str:
        """The last line, of the errors if there are any: it usually tells what went wrong."""
        return ((self.errors.strip() or self.output.strip()).splitlines() or ["no message"])[-1][:200]


def run(
    command: Sequence[str], cores: Iterable[int], seconds: float, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a command on ``cores`` for at most so many seconds; ``environment`` is added to ours.

    Raises ToolFailed when it ends in error. One that is still running is killed, with its children: what it printed
    till then may be worth having.
    """
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        with affinity(cores):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # A group of its own, to be killed as one.
            )
        in_time = True
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            _kill_group(process)
        output.seek(0)
        errors.seek(0)
        ended = Ended(output.read(), errors.read(), in_time)
    if in_time and process.returncode != 0:
        raise ToolFailed(f"{Path(command[0]).name} ended with {process.returncode}: {ended.last_words}")
    return ended


def run_whole(
    command: Sequence[str], cores: Iterable[int], seconds: float, environment: Mapping[str, str] | None = None
) -> str:
    """What a program printed that has to come to its end within the time; ToolFailed if it does not."""
    ended = run(command, cores, seconds, environment)
    if not ended.in_time:
        raise ToolFailed(f"{Path(command[0]).name} did not end within {seconds:.0f} s: {ended.last_words}")
    return ended.output


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left: the program itself, or the children of one that did not end well."""
    if process.poll() == 0:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It had no children, or they are gone too.
    process.wait()
