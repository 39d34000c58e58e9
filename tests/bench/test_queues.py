"""Each queue that ours is compared with hands everything over, and one that hangs is ended."""

import os
import sys
import time
from pathlib import Path

import pytest

from bench.harness import ToolFailed
from bench.peers import limited, queues
from bench.peers.queues import Channel, Peer

ALLOWED = sorted(os.sched_getaffinity(0))
CORES = [ALLOWED[0], ALLOWED[-1]]


@pytest.mark.parametrize("name", queues.PEERS)
def test_each_queue_hands_everything_over(name: str) -> None:
    peer = queues.PEERS[name]
    if queues.missing(name):
        pytest.skip(f"{peer.package} is not installed")
    rate = queues.run(name, CORES, items=100 * peer.burst)
    assert rate.received > 0
    assert rate.since_start > 0


def test_a_queue_that_is_not_there_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Peer("absent", "threads", 1, 1, queues.PEERS["pyzmq.bytes.1"].channel, "nowhere_to_be_found", "py-absent")
    monkeypatch.setitem(queues.PEERS, "absent", absent)
    assert queues.missing("absent") == "not installed: py-absent"
    assert queues.missing("SimpleQueue.1") is None


def test_a_queue_that_loses_its_last_message_is_a_failure() -> None:
    before = os.sched_getaffinity(0)
    lossy = Peer(
        "lossy",
        "threads",
        1,
        3,
        lambda _burst, _folder: Channel(range, lambda: lambda message: None, lambda: lambda: 0),
    )
    try:
        with pytest.raises(ToolFailed, match="lossy: the last message is 0, not 2"):
            queues.hand_over(lossy, 3, CORES)
    finally:
        os.sched_setaffinity(0, before)


def test_a_program_that_hangs_is_ended_with_its_children_and_keeps_its_words(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open({str(pid)!r}, "w").write(str(child.pid))
print("waiting", flush=True)
time.sleep(100)
"""
    ended = limited.run([sys.executable, "-c", code], ALLOWED, 2.0)
    assert (ended.output, ended.in_time) == ("waiting\n", False)
    assert _gone(int(pid.read_text()))


def test_a_program_that_has_to_end_and_does_not_is_a_failure_with_its_last_words() -> None:
    code = "import sys, time; print('sorry', file=sys.stderr, flush=True); time.sleep(100)"
    with pytest.raises(ToolFailed, match="did not end within 1 s: sorry"):
        limited.run_whole([sys.executable, "-c", code], ALLOWED, 1.0)


def test_a_program_that_ends_in_error_is_a_failure() -> None:
    with pytest.raises(ToolFailed, match="ended with 3: no message"):
        limited.run([sys.executable, "-c", "raise SystemExit(3)"], ALLOWED, 20.0)


def test_a_program_gets_its_environment_beside_ours() -> None:
    code = "import os; print(os.environ['WANTED'], 'PATH' in os.environ)"
    assert limited.run_whole([sys.executable, "-c", code], ALLOWED, 20.0, {"WANTED": "yes"}) == "yes True\n"


def _gone(pid: int) -> bool:
    """Whether a process that was killed is gone, or waits only for its new parent to take note."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False
