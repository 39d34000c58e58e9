"""Workers that are processes are killed at any moment: every item comes back once or is counted, and flows stay whole.

Workers attach, join, take bursts, leave, come back and close, each in turn; one of them is killed, and a new one takes
its place.  Who has which flow lies in memory that outlives them: a worker that finds somebody living has a flow of its
burst says so there.

The processes are forks of one that has loaded everything and has no distributor open: see :func:`nursery`.
"""

import ctypes
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import wirespeed as ws
from tests.core.distributor.test_distributor import FLOWS, flows_of, in_order, until
from tests.core.distributor.test_processes import Child
from wirespeed.core.liveness import alive, owner_word

u64 = np.uint64
SIZE = 4096
HOLDERS, WRONG, STATE = 0, FLOWS, FLOWS + 1  # words of the board: who has each flow, mistakes, and what each is at
BEFORE, WAITING, HOLDING, LEFT = range(1, 5)


def board_at(path):
    with open(path, "r+b") as f:
        return np.frombuffer(mmap.mmap(f.fileno(), SIZE), u64)


def live(name, path, slot, seed):
    """What a forked process does until it is killed, or the distributor is closed."""
    board, chance, me = board_at(path), random.Random(seed), owner_word()
    while True:
        board[STATE + slot] = BEFORE
        try:
            worker = ws.DistributorWorker.attach(name)
        except ws.GraphError:  # the place of who was killed is not free yet
            time.sleep(0.001)
            continue
        except ws.PortError:
            return
        if chance.random() < 0.2:
            time.sleep(0.002)
        board[STATE + slot] = WAITING
        for burst in worker:
            board[STATE + slot] = HOLDING
            flows = set((burst >> u64(32)).tolist())
            for flow in flows:
                holder = int(board[HOLDERS + flow])
                if holder not in (0, me) and alive(holder):
                    board[WRONG] += u64(1)
                board[HOLDERS + flow] = me
            if chance.random() < 0.3:
                time.sleep(chance.uniform(0, 0.001))
            for flow in flows:
                board[HOLDERS + flow] = 0
            board[STATE + slot] = WAITING
            if chance.random() < 0.05:
                worker.give_back(burst)
                board[STATE + slot] = LEFT
                time.sleep(chance.uniform(0, 0.003))
                break
        if worker.closed:
            return
        worker.close()


def end_with_parent():
    """Have the kernel kill this process when its parent ends (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def nursery():
    """Fork a process for each line of input; the answer is its number."""
    end_with_parent()
    with ws.Distributor(1, shared=True) as d, ws.DistributorWorker.attach(fd=d.fd) as w:  # loads every kernel
        w.poll()
        d.process([1], [1])
        w.give_back(w.get())
        w.get(timeout_s=0.03)
        d.flush(timeout_s=0.01)
        d.check()
    for line in sys.stdin:
        name, path, slot, seed = line.split()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                end_with_parent()
                live(name, path, int(slot), int(seed))
                status = 0
            finally:
                if status:
                    sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
                os._exit(status)
        print(child, flush=True)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


class Field:
    """A distributor, and processes that are its workers."""

    def __init__(self, tmp_path, name, count):
        path = tmp_path / "board"
        path.write_bytes(bytes(SIZE))
        self.path, self.name, self.board, self.seed = path, name, board_at(path), 0
        self.errors = open(tmp_path / "errors", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tests.core.distributor.test_killed import nursery; nursery()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip
        self.pids = [self.begin(slot) for slot in range(count)]

    def begin(self, slot):
        self.seed += 1
        self.process.stdin.write(f"{self.name} {self.path} {slot} {self.seed}\n")
        return int(self.process.stdout.readline())

    def kill(self, slot):
        """Kill one, and have another come; what it was at."""
        os.kill(self.pids[slot], signal.SIGKILL)
        state = int(self.board[STATE + slot])
        self.pids[slot] = self.begin(slot)
        return state

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.kill()  # and its children with it
        self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        told = self.errors.read()
        self.errors.close()
        assert exc[0] or not told, told


def run(tmp_path, kills, redo, **shape):
    """Give items and kill workers until so many are dead; then have everything done, and look at the books."""
    name, chance, states = f"killed-{os.getpid()}", random.Random(kills), Counter()
    items, tags = flows_of(2_000_000 if kills > 100 else 200_000)
    back, at, next_kill = [], 0, 0.0
    with (
        ws.Distributor(4, name=name, redo=redo, notice_s=0.002, **shape) as d,
        Field(tmp_path, name, 3) as field,
    ):
        until(lambda: d.process((), ()) == 0 and d.active)
        while states.total() < kills and at < len(items):
            at += d.process(items[at : at + 50], tags[at : at + 50], timeout_s=0.002)
            back.append(d.returned())
            if time.monotonic() >= next_kill:
                states[field.kill(chance.randrange(3))] += 1
                next_kill = time.monotonic() + chance.uniform(0.01, 0.05)
        assert d.flush(timeout_s=30) == 0, (d.reason, d.statistics)
        back.append(d.returned())
        told = d.statistics
        wrong = int(field.board[WRONG])
        d.close()
    back = np.concatenate(back)
    assert wrong == 0, "a flow was on two workers"
    assert told.balanced and told.processed == at and len(back) == at - told.lost
    assert len(np.unique(back)) == len(back) and np.isin(back, items[:at]).all()
    assert states.total() == kills and sum(w.takeovers for w in told.workers) > kills // 4
    if redo:
        assert told.lost == 0 and in_order(back)
    else:
        assert told.lost <= kills * 31
        for flow in range(FLOWS):
            assert (np.diff((back[back >> u64(32) == flow] & u64(0xFFFFFFFF)).astype(np.int64)) > 0).all()
    return states, told


SHAPES = [{"mode": "single"}, {"burst": 7, "lines": 1}, {}]


@pytest.mark.parametrize("shape", SHAPES, ids=["single", "burst", "pipelined"])
@pytest.mark.parametrize("redo", [True, False])
def test_processes_that_are_killed_lose_and_double_nothing_that_is_not_counted(tmp_path, shape, redo):
    run(tmp_path, 25, redo, **shape)


@pytest.mark.torture
@pytest.mark.parametrize("shape", SHAPES, ids=["single", "burst", "pipelined"])
@pytest.mark.parametrize("redo", [True, False])
def test_a_thousand_processes_that_are_killed_lose_and_double_nothing_that_is_not_counted(tmp_path, shape, redo):
    states, _ = run(tmp_path, 1000, redo, **shape)
    assert set(states) == {BEFORE, WAITING, HOLDING, LEFT}


@pytest.mark.parametrize("moment", ["attached", "joined", "holding", "left", "closed"])
def test_a_process_that_is_killed_at_a_moment_that_is_known_is_noticed_and_its_place_is_free(moment):
    program = """
w, moment = attached(), sys.argv[2]
if moment == "joined":
    w.request()
if moment in ("holding", "left", "closed"):
    burst = w.get()
if moment in ("left", "closed"):
    w.give_back(burst)
if moment == "closed":
    w.close()
say("there")
time.sleep(1000)
"""
    name = f"killed-{os.getpid()}"
    with (
        ws.Distributor(1, name=name, notice_s=0.02) as d,
        Child(name, program, moment) as child,
    ):
        until(lambda: moment == "attached" or d.process([1, 2], [5, 5]) == 2)
        assert child.line() == "there"
        child.process.kill()
        begun = time.monotonic()
        w = None
        while w is None:
            d.process((), ())
            try:
                w = d.worker()
            except ws.GraphError:
                assert time.monotonic() - begun < 5
        w.poll()
        d.process((), ())
        got = w.get(timeout_s=0.1)
        assert got.tolist() == ([1, 2] if moment in ("joined", "holding") else [])
        w.give_back(got)
        assert d.flush(timeout_s=1) == 0
        assert d.returned().tolist() == ([] if moment == "attached" else [1, 2])
        told = d.statistics
        assert told.balanced and told.workers[0].takeovers == (moment in ("joined", "holding"))
