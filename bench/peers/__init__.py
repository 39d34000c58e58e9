"""The programs wirespeed is compared with, one file per family."""

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Command = Callable[[Path, Path], list[str]]


@dataclass(frozen=True, eq=False)
class Tool:
    """A program that reads a capture, and for some cases writes one; ours is one too.

    ``commands`` gives the command line for a case, from the paths of the input and of the output. ``shares`` are the
    packets of the short and the long run of which a steady rate is the difference, ``quick_shares`` those of a trial.
    ``reports`` says that it prints a JSON object with the number of packets it saw, which is then checked.
    """

    name: str
    needs: str
    commands: Mapping[str, Command]
    shares: tuple[int, int] = (1_000_000, 10_000_000)
    quick_shares: tuple[int, int] = (100_000, 1_000_000)
    repeats: int = 1
    reports: bool = False
    remark: str = ""

    def missing(self) -> str | None:
        """Why it cannot run, or None. ``needs`` is a program, or ``python:module``."""
        kind, _, module = self.needs.rpartition(":")
        found = importlib.util.find_spec(module) if kind == "python" else shutil.which(self.needs)
        return None if found else f"not installed: {module if kind == 'python' else self.needs}"
