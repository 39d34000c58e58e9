"""Rings between processes: every item once and in order, waits that wake across them, and peers that stop or die."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import wirespeed as ws
from wirespeed.core.member import ACTIVE, Member

WIDE = np.dtype([("key", "u8"), ("value", "u8")])
COUNT = 60_000
COMMON = """
import os, signal, sys, time
import numpy as np
import wirespeed as ws

name, k = sys.argv[1], int(sys.argv[2])
ring = ws.Ring.attach(name, member_name=f"child {k}")

def say(*words):
    print(*words, flush=True)
"""
PRODUCE = f"""
while not os.path.exists("GO"):  # who is quick may have left again before another one looks who is there
    time.sleep(0.001)
n, at = {COUNT}, 0
items = np.zeros(n, ring.dtype)
items.view(np.uint64).reshape(n, -1)[:] = (np.arange(n, dtype=np.uint64) + np.uint64(k << 32))[:, None]
while at < n:
    at += ring.enqueue_burst(items[at : at + 1 + at % 61], timeout_s=None)
ring.close()
"""
CONSUME = """
got = [burst.copy() for burst in ring.bursts(53)]
got = np.concatenate(got) if got else np.zeros(0, ring.dtype)
words = got.view(np.uint64).reshape(len(got), ring.dtype.itemsize // 8)
assert (words == words[:, :1]).all()
sys.stdout.buffer.write(words[:, 0].tobytes())
ring.close()
"""


@pytest.fixture
def name():
    return f"test-{os.getpid()}"


class Child:
    """Another Python that has attached to a ring and runs a program."""

    def __init__(self, name, k, text):
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMON + text, name, str(k)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.pid = self.process.pid

    def line(self):
        return self.process.stdout.readline().decode().strip()

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, code=0):
        out, err = self.process.communicate(timeout=100)
        assert self.process.returncode == code, err.decode()
        return out

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.communicate()


def until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


# Every item once.


@pytest.mark.parametrize(
    "prod, cons, dtype",
    [(sync, sync, dtype) for sync in ("st", "mt", "rts", "hts") for dtype in (np.uint64, WIDE)]
    + [("st", "mt", np.uint64), ("rts", "st", np.uint64)],
)
def test_every_item_arrives_once_and_in_each_producers_order(name, tmp_path, prod, cons, dtype):
    with ws.Ring(64, dtype=dtype, prod=prod, cons=cons, name=name) as ring:
        text = PRODUCE.replace("GO", str(tmp_path / "go"))
        producers = [Child(name, k, text) for k in range(1 if prod == "st" else 2)]
        consumers = [Child(name, k, CONSUME) for k in range(1 if cons == "st" else 2)]
        try:
            until(lambda: len(ring.peers()) == 1 + len(producers) + len(consumers))
            (tmp_path / "go").touch()
            for child in producers:
                child.end()
            ring.shutdown()
            got = [np.frombuffer(child.end(), np.uint64) for child in consumers]
        finally:
            for child in producers + consumers:
                child.__exit__()
        together = np.sort(np.concatenate(got))
        wanted = [np.arange(COUNT, dtype=np.uint64) + np.uint64(k << 32) for k in range(len(producers))]
        assert np.array_equal(together, np.concatenate(wanted))
        for taken in got:
            for k in range(len(producers)):
                assert (np.diff(taken[taken >> np.uint64(32) == k].astype(np.int64)) > 0).all()
        assert len(ring.peers()) == 1


# Waiting.


@pytest.mark.parametrize("wait", ["sleep", "spin"])
def test_a_consumer_that_waits_in_another_process_is_woken(name, wait):
    text = f"ring._waiting._spin_ns = {0 if wait == 'sleep' else 1 << 62}\nsay('waiting')\nsay(ring.dequeue(timeout_s=None))"
    with ws.Ring(8, name=name) as ring, Child(name, 1, text) as child:
        assert child.line() == "waiting"
        time.sleep(0.05)
        assert ring.enqueue(7)
        assert child.line() == "7"
        child.end()


def test_a_producer_that_waits_in_another_process_is_woken(name):
    with ws.Ring(2, name=name) as ring:
        ring.enqueue(1)
        with Child(name, 1, "say('waiting')\nsay(ring.enqueue(2, timeout_s=None))") as child:
            assert child.line() == "waiting"
            time.sleep(0.05)
            assert ring.dequeue() == 1
            assert child.line() == "True"
            child.end()
        assert ring.dequeue() == 2


def test_shutting_down_ends_a_loop_in_another_process(name):
    with ws.Ring(8, name=name) as ring, Child(name, 1, "say('waiting')\nsay([b.tolist() for b in ring])") as child:
        assert child.line() == "waiting"
        time.sleep(0.05)
        ring.shutdown()
        assert child.line() == "[]"
        child.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_wait_in_another_process(name, number):
    text = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
say("waiting")
try:
    ring.dequeue(timeout_s=None)
except KeyboardInterrupt:
    sys.exit(5)
finally:
    ring.close()
"""
    with ws.Ring(8, name=name) as ring, Child(name, 1, text) as child:
        assert child.line() == "waiting"
        time.sleep(0.1)
        child.signal(number)
        child.end(5)
        assert len(ring.peers()) == 1, "it has left"


# Peers that die, or only stop.


@pytest.mark.parametrize("call", ["dequeue()", "dequeue_bulk(3)", "bursts"])
def test_a_wait_for_a_process_that_dies_names_it(name, call):
    with ws.Ring(8, name=name) as ring, Child(name, 3, "say('here')\ntime.sleep(1000)") as child:
        assert child.line() == "here"
        child.signal(signal.SIGKILL)
        with pytest.raises(
            ws.PeerError, match=rf"nobody is left to wait for: process {child.pid} \(child 3\), which is gone"
        ):
            if call == "bursts":
                next(ring.bursts())
            elif call == "dequeue()":
                ring.dequeue(timeout_s=60)
            else:
                ring.dequeue_bulk(3, timeout_s=60)
        assert [peer.alive for peer in ring.peers()] == [True, False]
        assert f"process {child.pid} (child 3), which is gone" in str(ring.recover())
        assert ring.dequeue(timeout_s=0.01) is None, "who has gone is forgotten"


def test_one_that_waits_is_told_by_the_death_of_the_last_other(name):
    """The first one dies, and the one that waits for it says so."""
    with ws.Ring(2, name=name) as ring, Child(name, 1, "say('here')\ntime.sleep(1000)") as child:
        assert child.line() == "here"
        ring.enqueue(1)
        until(lambda: len(ring.peers()) == 2)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(ws.PeerError, match="nobody is left"):
            ring.enqueue(2, timeout_s=60)


def hold(state, count):
    """A program that stops in the middle of putting ``count`` items in, as a claim by hand leaves it."""
    return f"""
from wirespeed.core.member import Member
own, end = Member.at(ring._memory.members.own).prod, ring._memory.record.prod
own.first, own.count, own.state = end.position, {count}, {state}
end.position = end.position + {count}
say("claimed")
os.kill(os.getpid(), signal.SIGSTOP)
end.tail = end.tail + {count}
own.count, own.state = 0, 0
say("went on")
time.sleep(1000)
"""


def stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return f.read().rpartition(")")[2].split()[0] == "T"


def test_a_process_that_is_only_stopped_is_waited_for(name):
    with ws.Ring(16, name=name) as ring, Child(name, 1, hold(ACTIVE, 2)) as child:
        assert child.line() == "claimed"
        until(lambda: stopped(child.pid))
        with Child(name, 2, "say('begins')\nsay(ring.enqueue(7))\nring.close()") as behind:
            assert behind.line() == "begins"
            until(lambda: ring._memory.record.prod.position == 3)  # it has its slot, behind the stopped one
            time.sleep(0.1)
            assert len(ring) == 0 and all(peer.alive for peer in ring.peers())
            owner = ring._memory.owner
            before = os.pread(owner.fd, owner.size, 0)
            with pytest.raises(TimeoutError, match=rf"process {child.pid} \(child 1\) lives, and is in the middle"):
                ring.recover(timeout_s=0.05)
            assert os.pread(owner.fd, owner.size, 0) == before
            child.signal(signal.SIGCONT)
            assert child.line() == "went on" and behind.line() == "True"
            behind.end()
        assert len(ring.dequeue_burst(9)) == 3


def test_what_waits_behind_a_process_that_dies_is_told_and_goes_on_after_recovery(name):
    text = """
say("begins")
try:
    ring.enqueue_bulk([7, 8])
except ws.PeerError as error:
    say(error)
while True:
    try:
        say(ring.enqueue_bulk([7, 8]))
        break
    except ws.PeerError:
        time.sleep(0.01)
ring.close()
"""
    with ws.Ring(16, name=name) as ring, Child(name, 1, hold(ACTIVE, 2)) as child:
        ring.enqueue(1)
        assert child.line() == "claimed"
        until(lambda: stopped(child.pid))
        with Child(name, 2, text) as behind:
            assert behind.line() == "begins"
            time.sleep(0.05)
            child.signal(signal.SIGKILL)
            told = f"the ring is held up by process {child.pid} (child 1), which is gone, and began 2 items to put in; "
            assert behind.line() == told + "recover() lets it go on"
            found = ring.recover()
            assert str(found) == (
                f"process {child.pid} (child 1), which is gone, and began 2 items to put in: 4 items never published were "
                f"dropped, 0 went back to the front"
            )
            assert behind.line() == "2"
            behind.end()
        assert ring.dequeue_burst(9).tolist() == [1, 7, 8]


def test_a_process_that_leaves_is_nobody_to_wait_for_any_more_and_its_place_is_free(name):
    with ws.Ring(8, name=name, members=2) as ring:
        for k in range(3):
            with Child(name, k, "say(len(ring.peers()))\nring.close()") as child:
                assert child.line() == "2"
                child.end()
            assert [peer.pid for peer in ring.peers()] == [os.getpid()]


def test_a_number_that_another_process_has_now_is_not_the_one_that_joined(name):
    with ws.Ring(8, name=name) as ring, Child(name, 1, "say('here')\ntime.sleep(1000)") as child:
        assert child.line() == "here"
        until(lambda: len(ring.peers()) == 2)
        record = next(r for _, r in ring._memory.members.records() if r.pid == child.pid)
        assert ring._memory.members.alive(record)
        record.started -= 1
        assert not ring._memory.members.alive(record)
        assert ring._memory.members.alive(Member.at(ring._memory.members.own))
