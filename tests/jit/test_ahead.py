"""Stages that another process compiles meanwhile."""

import os
import subprocess
import sys

import pytest

STAGES = """
import numpy as np
from wirespeed.jit.kernel import entry, stage
from wirespeed.jit.types import int64

i64 = np.int64


@stage
def first(state, burst, n):
    return n + i64(1)


@stage
def second(state, burst, n):
    return n + i64(2)


@entry(int64(int64), nogil=True)
def third(x):
    return x + i64(3)
"""
BEGIN = """
import sys
sys.path.insert(0, {folder!r})
import os
os.environ["PYTHONPATH"] = {folder!r} + os.pathsep + os.environ.get("PYTHONPATH", "")
import stages
from wirespeed.jit import ahead
from wirespeed.jit.kernel import compiled
{before}
ahead.begin([stages.first, stages.second, stages.third])
{after}
print(stages.first(0, 0, 5), stages.second(0, 0, 5), stages.third.function(5))
print(*(one.name for one in compiled()))
"""
WAIT = "for one in (stages.first, stages.second, stages.third): one.prepare()"
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def run(place, before="", after=WAIT):
    (place / "stages.py").write_text(STAGES)
    environment = os.environ | {"WIRESPEED_CACHE": str(place / "cache")}
    code = BEGIN.format(folder=str(place), before=before, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@two_cores
def test_what_another_process_has_compiled_is_loaded(tmp_path):
    assert run(tmp_path, after=f"assert ahead.is_under_way(stages.third)\n{WAIT}") == ["6 7 8", ""]


@two_cores
def test_where_no_process_can_be_started_it_is_compiled_here(tmp_path):
    before = "sys.executable = '/nonexistent/python'"
    answer, names = run(tmp_path, before)
    assert answer == "6 7 8" and {"stages.first", "stages.second", "stages.third"} == set(names.split())


@two_cores
def test_a_process_that_dies_leaves_the_rest_to_this_one(tmp_path):
    after = f"ahead._under_way['stages:first'].kill()\n{WAIT}"
    answer, names = run(tmp_path, after=after)
    assert answer == "6 7 8" and "stages.third" in names.split()
    assert run(tmp_path, after="assert not ahead._under_way") == ["6 7 8", ""]


def test_on_one_core_nothing_is_started(tmp_path):
    before = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    answer, names = run(tmp_path, before, after=f"assert not ahead._under_way\n{WAIT}")
    assert answer == "6 7 8" and len(names.split()) == 3


@pytest.mark.parametrize("executable", ["''", "None"])
def test_where_python_does_not_know_its_own_program_nothing_is_started(tmp_path, executable):
    answer, _names = run(tmp_path, f"sys.executable = {executable}", after=f"assert not ahead._under_way\n{WAIT}")
    assert answer == "6 7 8"
