"""A mutated frame or capture file never crashes or hangs the process, and what is said of it hangs together.

What must hold is in ``frame_check.py`` and ``file_check.py``.  It runs in a process of its own; one that dies or is not
heard of again is a failure with the number of the input and the input itself in a file.  The fixed share is the same
each time; the long form begins with another seed each time and says which.
"""

import json
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fuzz import corpus, planted, runner
from tests.fuzz.mutation import Maker

ROOT = Path(__file__).resolve().parents[2]
MAKERS: dict[str, Callable[[], Maker]] = {"frames": corpus.frames, "files": corpus.files}
SEED = 1
PATIENCE_S = 30.0  # that one input may take, where microseconds are usual


class Outcome(NamedTuple):
    """How many inputs were sound, and what became of the first that was not."""

    sound: int
    number: int | None = None
    what: str = ""
    input: Path | None = None

    def __str__(self) -> str:
        return f"input {self.number}: {self.what}; it is in {self.input}" if self.what else f"{self.sound} sound"


def fuzz(kind: str, seed: int, count: int, where: Path, patience_s: float = PATIENCE_S) -> Outcome:
    """Fuzz in a process of its own."""
    progress = where / "progress"
    command = [sys.executable, "-m", "tests.fuzz.runner", kind, str(seed), str(count), str(progress)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        hung = not watch(process, progress, patience_s)
        if hung:
            process.kill()
        said, complaint = process.communicate()
    if hung:
        return failed(kind, seed, under_way(progress), "the process hangs", where)
    if process.returncode < 0:
        what = f"the process died of {signal.Signals(-process.returncode).name}"
        return failed(kind, seed, under_way(progress), what, where)
    assert process.returncode == 0, complaint
    found = json.loads(said)
    if "broken" in found:
        return failed(kind, seed, found["number"], f"it does not hold that {found['broken']}", where)
    return Outcome(found["sound"])


def watch(process: "subprocess.Popen[str]", progress: Path, patience_s: float) -> bool:
    """Wait for the process to end; False when it is with the same input for too long."""
    last, since = runner.NOT_BEGUN, time.monotonic()
    while process.poll() is None:
        number = under_way(progress)
        if number != last or number == runner.NOT_BEGUN:
            last, since = number, time.monotonic()
        if time.monotonic() - since > patience_s:
            return False
        time.sleep(0.05)
    return True


def under_way(progress: Path) -> int:
    """The number of the input that a process is, or was, with."""
    data = progress.read_bytes() if progress.exists() else b""
    return int(struct.unpack("=q", data)[0]) if data else runner.NOT_BEGUN


def failed(kind: str, seed: int, number: int, what: str, where: Path) -> Outcome:
    """The outcome, with the input made again and kept."""
    link, data = MAKERS.get(kind, corpus.own_files)().one(seed, number)
    kept = where / f"{kind}-{seed}-{number}"
    kept.write_bytes(data)
    return Outcome(number, number, f"{what} (seed {seed}, link type {link})", kept)


@pytest.mark.parametrize("kind, count", [("frames", 140_000), ("files", 60_000)])
def test_mutated_inputs_are_taken_soundly(kind: str, count: int, tmp_path: Path) -> None:
    assert str(fuzz(kind, SEED, count, tmp_path)) == f"{count} sound"


@pytest.mark.torture
@pytest.mark.parametrize("kind, count", [("frames", 70_000_000), ("files", 30_000_000)])
def test_a_hundred_million_mutated_inputs_are_taken_soundly(kind: str, count: int, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    assert str(fuzz(kind, seed, count, tmp_path)) == f"{count} sound"


def test_a_byte_read_too_far_is_found_and_its_input_kept(tmp_path: Path) -> None:
    outcome = fuzz("overrun", SEED, 3000, tmp_path)
    assert outcome.number == planted.NUMBER
    assert "SIGSEGV" in outcome.what
    assert outcome.input is not None
    assert outcome.input.read_bytes() == corpus.own_files().one(SEED, planted.NUMBER)[1]


def test_a_broken_invariant_is_found_and_its_input_kept(tmp_path: Path) -> None:
    outcome = fuzz("broken", SEED, 3000, tmp_path)
    assert (outcome.sound, outcome.number) == (planted.NUMBER, planted.NUMBER)
    assert planted.INVARIANTS[1] in outcome.what
    assert outcome.input is not None
    assert outcome.input.exists()


def test_an_input_that_is_never_done_with_is_found(tmp_path: Path) -> None:
    outcome = fuzz("endless", SEED, 3000, tmp_path, patience_s=1)
    assert outcome.number == planted.NUMBER
    assert "hangs" in outcome.what


def test_an_input_follows_from_its_seed_and_number() -> None:
    for maker in (corpus.frames(), corpus.own_files()):
        some = [maker.one(SEED, number) for number in range(300)]
        assert some == [maker.one(SEED, number) for number in range(300)]
        assert len({data for _, data in some}) > 250
        assert some != [maker.one(SEED + 1, number) for number in range(300)]
