"""Kernels as parts: what is linked into machine code, what is kept on disk, and what happens when that is gone or bad."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = """
import numpy as np
from wirespeed.jit.kernel import kernel, stage

i64 = np.int64


@kernel
def leaf(x):
    return x * i64(3)


@kernel
def never(x):
    # What is never taken is cut before linking, so nothing that comes behind it may count on its callee being there.
    if x - x == i64(1):
        return leaf(x)
    return x


@kernel
def twice(x):
    return leaf(x) + leaf(x)


@kernel
def root(x):
    return never(x) + twice(x)


@kernel
def raises(x):
    if x == i64(0):
        raise ValueError("nothing to be done")
    return leaf(x)


@stage
def passing(state, burst, n):
    return leaf(n)
"""
ASK = """
import sys
sys.path.insert(0, {folder!r})
import kernels
from wirespeed.jit.kernel import compiled
print(kernels.root(7))
print(*(one.name for one in compiled()))
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def run(place: Path, code: str) -> list[str]:
    environment = os.environ | {"WIRESPEED_CACHE": str(place / "cache")}
    code = code.format(folder=str(place))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def parts(place: Path) -> list[Path]:
    return [path for path in (place / "cache").glob("*/parts/*/*") if path.suffix != ".tmp"]


def codes(place: Path) -> list[Path]:
    return [path for path in (place / "cache").rglob("kernels.*") if path.suffix in (".nbi", ".nbc")]


def test_what_two_kernels_call_is_linked_whatever_is_cut_from_one_of_them(place):
    answer, names = run(place, ASK)
    assert answer == str(7 + 42)
    assert names.split() == ["kernels.leaf", "kernels.never", "kernels.twice", "kernels.root"], "each once"
    assert run(place, ASK) == [answer, ""], "and none in another process"


def test_a_part_serves_another_kernel_in_another_process(place):
    run(place, ASK)
    code = ASK.replace("kernels.root(7)", "kernels.raises(5)")
    assert run(place, code) == ["15", "kernels.raises"]


def test_a_kernel_that_was_loaded_can_be_called_by_one_that_is_compiled(place):
    run(place, ASK.replace("kernels.root(7)", "kernels.leaf(7)"))
    code = ASK.replace("print(kernels.root(7))", "print(kernels.leaf(7), kernels.root(7), kernels.leaf(8))")
    assert run(place, code) == ["21 49 24", "kernels.never kernels.twice kernels.root"]


def test_a_stage_and_a_call_from_python_are_the_same_code(place):
    code = ASK.replace("print(kernels.root(7))", "print(kernels.passing(1, 2, 5), kernels.passing.address != 0)")
    assert run(place, code)[0] == "15 True"
    assert run(place, code) == ["15 True", ""]


def test_an_exception_reaches_python_from_what_was_compiled_and_from_what_was_kept(place):
    code = ASK.replace(
        "print(kernels.root(7))",
        "try:\n    kernels.raises(0)\nexcept ValueError as error:\n    print(error)\n",
    )
    for _ in range(2):
        assert run(place, code)[0] == "nothing to be done"


@pytest.mark.parametrize("damage", ["gone", "empty", "noise", "half"])
def test_parts_that_are_damaged_are_made_again(place, damage):
    run(place, ASK)
    found = parts(place)
    assert len(found) >= 4
    for path in found:
        content = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(
                {"empty": b"", "noise": os.urandom(len(content)), "half": content[: len(content) // 2]}[damage]
            )
    answer, names = run(place, ASK.replace("kernels.root(7)", "kernels.raises(5)"))
    assert answer == "15" and "kernels.leaf" in names.split()
    assert run(place, ASK) == ["49", ""], "machine code needs no parts"


def test_without_the_machine_code_parts_are_linked_again_and_not_compiled(place):
    run(place, ASK)
    assert codes(place)
    for path in codes(place):
        path.unlink()
    answer, _names = run(place, ASK)
    assert answer == "49"


def test_a_cache_that_cannot_be_written_costs_no_more_than_time(place):
    (place / "cache").write_text("a file where a folder should be")
    assert run(place, ASK)[0] == "49"


def test_many_processes_fill_one_cache_at_once(place):
    environment = os.environ | {"WIRESPEED_CACHE": str(place / "cache")}
    code = ASK.format(folder=str(place))
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(4)
    ]
    assert [process.communicate()[0].split()[0] for process in started] == ["49"] * 4
    assert run(place, ASK) == ["49", ""]
