"""What becomes of a port of AF_XDP when its interface goes, comes, and its process is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

import wirespeed as ws
from tests.lab import laboratory
from tests.ports.link.children import child, said_by_child
from tests.ports.xdp.wires import (
    WAIT_S,
    attached,
    balanced,
    frame,
    goes_through,
    pair,
    pull,
    raw,
    received,
    send,
    until,
    xdp,
)
from wirespeed.errors import PortError
from wirespeed.ports.link.interface import Interface
from wirespeed.ports.memory import MemoryPort
from wirespeed.ports.xdp.attachment import Attachment

CHILD = """
import sys, time
import wirespeed as ws
port = ws.port("xdp:x0", netns=sys.argv[1])
with ws.start(port >> port):
    print("ready", flush=True)
    time.sleep(60)
"""


def numbers(frames):
    """The numbers that frames have."""
    return [int.from_bytes(f[14:18], "big") for f in frames]


def test_the_program_is_attached_while_a_run_goes_on_and_gone_behind_it():
    with laboratory() as lab:
        pair(lab)
        assert not attached(lab)
        with received(xdp(lab)):
            assert attached(lab)
        assert not attached(lab)


def test_a_child_that_was_forked_meanwhile_keeps_nothing():
    with laboratory() as lab:
        pair(lab)
        port = xdp(lab)
        with MemoryPort() as memory, contextlib.ExitStack() as living:
            with ws.start(port >> memory, memory >> port):
                living.enter_context(child("os.fork"))
            assert not attached(lab)
            with ws.start(port >> memory, memory >> port) as running, raw(lab) as far:
                send(far, [frame(1)])
                assert pull(memory, 1) == [frame(1)]
            balanced(running)


def test_a_child_of_which_python_knows_nothing_keeps_the_queue_only():
    with laboratory() as lab, contextlib.ExitStack() as living:
        pair(lab)
        with received(xdp(lab)):
            living.enter_context(child("a library"))
        assert not attached(lab)


def test_a_child_that_is_forked_does_not_take_the_program_off():
    with laboratory() as lab:
        pair(lab)
        with received(xdp(lab)) as (memory, _), raw(lab) as far:
            with child("os.fork"):
                pass
            assert "another XDP program" in said_by_child(lambda: xdp(lab).open("source", 1))
            assert attached(lab)
            send(far, [frame(1)])
            assert pull(memory, 1) == [frame(1)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_attached_when_the_process_is_killed(how):
    with laboratory() as lab:
        pair(lab)
        child = subprocess.Popen([sys.executable, "-c", CHILD, lab.space("near")], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout.readline() == "ready\n"
            assert attached(lab)
        finally:
            os.kill(child.pid, how)
            child.communicate()
        until(lambda: not attached(lab), "the program is gone")
        with received(xdp(lab)) as (memory, _), raw(lab) as far:
            send(far, [frame(1)])
            assert pull(memory, 1) == [frame(1)]


def test_a_link_that_goes_down_and_up_carries_again():
    with laboratory() as lab:
        pair(lab)
        port = xdp(lab)
        with MemoryPort() as memory, raw(lab) as far, ws.start(port >> memory, memory >> port) as running:
            send(far, [frame(1)])
            assert pull(memory, 1) == [frame(1)]
            lab.ip("near", "link", "set", "x0", "down")
            until(lambda: memory.push([frame(2)]) and sink(running).drops.get("link_down"), "the link is down")
            lab.ip("near", "link", "set", "x0", "up")
            until(lambda: sink(running).counters.get("link_changes") == 2, "the link is up")
            until(lambda: memory.push([frame(3)]) and comes(far, 3), "it carries again")
            send(far, [frame(4)])
            assert frame(4) in pull(memory, 1)
        balanced(running)


def test_an_interface_that_is_down_at_the_start_carries_once_it_is_up():
    with laboratory() as lab:
        pair(lab)
        lab.ip("near", "link", "set", "x0", "down")
        port = xdp(lab)
        with MemoryPort() as memory, ws.start(port >> memory, memory >> port) as running:
            memory.push([frame(1)])
            until(lambda: sink(running).drops == {"link_down": 1}, "it is dropped")
            lab.ip("near", "link", "set", "x0", "up")
            until(lambda: "state UP" in lab.ip("far", "link", "show", "y0"), "the link is up")
            with raw(lab) as far:
                send(far, [frame(2)])
                assert pull(memory, 1) == [frame(2)]
                until(lambda: memory.push([frame(3)]) and comes(far, 3), "it sends")
        balanced(running)


def test_an_interface_that_somebody_else_took_meanwhile_is_waited_for_and_the_report_says_so():
    with laboratory() as lab:
        pair(lab)
        with received(xdp(lab)) as (memory, running):
            lab.ip("near", "link", "del", "x0")
            until(lambda: running.report().stages[0].counters.get("link_changes"), "it is gone")
            pair(lab, "near/z0", "far/y0")
            with Interface("z0", lab.space("near")) as device:
                theirs = Attachment(device, "native", None, ())
            lab.ip("near", "link", "set", "z0", "down")
            lab.ip("near", "link", "set", "z0", "name", "x0", "up")
            with contextlib.closing(theirs):
                until(lambda: "trouble" in running.report().stages[0].counters, "it cannot be had")
                assert "attached already" in running.report().stages[0].counters["trouble"]
            until(lambda: attached(lab), "a program is attached")
            with raw(lab) as far:
                goes_through(far, memory)
                send(far, [frame(5)])
                assert pull(memory, 1) == [frame(5)]
            assert "trouble" not in running.report().stages[0].counters


def sink(running):
    """What the port says of itself as a sink."""
    return next(s for s in running.report().stages if s.kind == "sink" and s.name.startswith("xdp"))


def comes(far, number):
    """Whether a frame with that number comes at once."""
    far.settimeout(0.05)
    try:
        return number in numbers([far.recv(2048)])
    except (TimeoutError, OSError):  # a packet socket tells once that its link was down
        return False
    finally:
        far.settimeout(WAIT_S)


@pytest.mark.parametrize("role", ["source", "both", "both, nothing sent"])
def test_an_interface_that_is_deleted_and_made_again_is_found(role):
    with laboratory() as lab:
        pair(lab)
        port = xdp(lab)
        with MemoryPort() as memory:
            chains = [port >> memory] + ([memory >> port] if "both" in role else [])
            with ws.start(*chains) as running:
                for round in range(2):
                    with raw(lab) as far:
                        goes_through(far, memory)
                        send(far, [frame(i) for i in range(10)])
                        assert pull(memory, 10) == [frame(i) for i in range(10)]
                        if role == "both":
                            until(lambda far=far: memory.push([frame(99)]) and comes(far, 99), "it sends")
                    if round == 0:
                        lab.ip("near", "link", "del", "x0")
                        until(lambda: running.report().stages[0].counters.get("link_changes"), "it is gone")
                        if role == "both":
                            until(lambda: memory.push([frame(1)]) and sink(running).drops, "it drops")
                            assert set(sink(running).drops) == {"link_down"}
                        pair(lab)
                        until(lambda: attached(lab), "a program is attached")
            balanced(running)
            told = running.report().stages[0].counters
            assert told["returns"] == 1 and told["link_changes"] >= 2


def test_packets_that_stood_in_the_ring_of_a_deleted_interface_are_back():
    with laboratory() as lab:
        pair(lab)
        with raw(lab) as far, received(xdp(lab)) as (_, running):
            send(far, [frame(i) for i in range(20)])
            lab.ip("near", "link", "del", "x0")
            until(lambda: running.report().stages[0].counters.get("link_changes"), "it is gone")


def test_an_interface_that_is_renamed_is_kept():
    with laboratory() as lab:
        pair(lab)
        with raw(lab) as far, received(xdp(lab)) as (memory, running):
            lab.ip("near", "link", "set", "x0", "down")
            lab.ip("near", "link", "set", "x0", "name", "other0")
            lab.ip("near", "link", "set", "other0", "up")
            until(lambda: "state UP" in lab.ip("near", "link", "show", "other0"), "it is up")
            until(lambda: "state UP" in lab.ip("far", "link", "show", "y0"), "its other end is up")
            send(far, [frame(1)])
            assert pull(memory, 1) == [frame(1)]
            until(lambda: running.report().stages[0].counters.get("link_changes") == 2, "both changes are counted")
            told = running.report().stages[0].counters
            assert told["renamed"] == "other0" and "returns" not in told


def test_a_namespace_that_goes_away_ends_nothing_and_loses_no_packet():
    with laboratory() as lab:
        pair(lab)
        with raw(lab) as far, received(xdp(lab)) as (memory, running):
            send(far, [frame(1)])
            assert pull(memory, 1) == [frame(1)]
            for name in list(lab.spaces):
                subprocess.run(["ip", "netns", "del", name], check=True)
                lab.spaces.remove(name)
            time.sleep(0.2)
            assert running.alive


def test_another_program_on_the_interface_is_named_as_the_cause():
    with laboratory() as lab:
        pair(lab)
        with received(xdp(lab)), pytest.raises(PortError, match="another XDP program is attached already"):
            ws.start(xdp(lab) >> ws.port("null:"))


def test_a_queue_that_another_socket_has_is_named_as_the_cause(monkeypatch):
    from wirespeed.ports.xdp import device

    monkeypatch.setattr(device, "PATIENCE_S", 0.05)
    with laboratory() as lab:
        pair(lab)
        with (
            MemoryPort() as memory,
            ws.start(memory >> xdp(lab)),
            pytest.raises(PortError, match="another socket of AF_XDP has queue 0"),
        ):
            ws.start(ws.port("null:count=1") >> xdp(lab))


def test_a_queue_that_is_not_there_is_named_with_those_that_are():
    with laboratory() as lab:
        pair(lab)
        with pytest.raises(PortError, match="there is no queue 1: it has 1 queue, number 0; run with fewer"):
            ws.start(xdp(lab) >> ws.port("null:"), workers=2)
        assert not attached(lab)


def test_an_interface_that_is_not_there_is_named_with_those_that_are():
    with laboratory() as lab:
        lab.space("near")
        with pytest.raises(PortError, match="x0: there is no such interface; there are lo"):
            ws.start(xdp(lab) >> ws.port("null:"))


def test_a_driver_without_zero_copy_says_so():
    with laboratory() as lab:
        pair(lab)
        with pytest.raises(PortError, match="no zero-copy; use mode=auto or mode=copy"):
            ws.start(xdp(lab, mode="zerocopy") >> ws.port("null:"))
        assert not attached(lab)


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ("-net_raw", "CAP_NET_RAW is missing"),
        ("-net_admin,-sys_admin", "CAP_NET_ADMIN"),
        ("-bpf,-sys_admin", "CAP_BPF"),
        ("-all", "CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW are missing"),
    ],
)
def test_rights_that_are_missing_are_named_all_at_once(rights, said):
    """In the namespace itself, for entering one needs rights too; its interface is given by name."""
    code = "import sys, wirespeed as ws\ntry:\n    ws.run(ws.port('xdp:x0') >> ws.port('null:'), seconds=1)\nexcept OSError as e:\n    print(e)"
    with laboratory() as lab:
        pair(lab)
        drop = [
            "setpriv",
            "--inh-caps",
            rights,
            "--bounding-set",
            rights,
            "--ambient-caps",
            "-all",
            sys.executable,
            "-c",
            code,
        ]
        done = lab.do("near", *drop)
        assert said in done.stdout, done.stdout + done.stderr


def test_memory_that_may_not_be_locked_is_named_with_the_rights_that_are_missing():
    code = (
        "import resource, wirespeed as ws\nresource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))\n"
        "try:\n    ws.run(ws.port('xdp:x0') >> ws.port('null:'), seconds=1)\nexcept OSError as e:\n    print(e)"
    )
    with laboratory() as lab:
        pair(lab)
        drop = ["setpriv", "--inh-caps", "-all", "--bounding-set", "-all", sys.executable, "-c", code]
        done = lab.do("near", *drop)
        assert "CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_IPC_LOCK are missing" in done.stdout, done.stderr


def test_a_sink_alone_needs_one_right_only():
    code = (
        "import sys, time, wirespeed as ws\nwith ws.port('memory:') as memory, ws.start(memory >> ws.port('xdp:x0')) as run:\n"
        "    memory.push([bytes.fromhex(sys.argv[1])])\n    time.sleep(60)"
    )
    rights = "-all,+net_raw,+ipc_lock"
    with laboratory() as lab:
        pair(lab)
        words = [
            "setpriv",
            "--inh-caps",
            rights,
            "--bounding-set",
            rights,
            "--ambient-caps",
            "-all",
            sys.executable,
            "-c",
            code,
        ]
        with raw(lab) as far, lab.background("near", *words, frame(1).hex()) as child:
            try:
                assert far.recv(2048) == frame(1)
            except TimeoutError:
                child.kill()
                raise AssertionError(child.communicate()) from None


def test_memory_that_cannot_be_locked_is_told_with_the_limit():
    code = (
        "import resource, wirespeed as ws\nresource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))\n"
        "try:\n    ws.run(ws.port('xdp:x0') >> ws.port('null:'), seconds=1)\nexcept OSError as e:\n    print(e)"
    )
    with laboratory() as lab:
        pair(lab)
        drop = ["setpriv", "--inh-caps", "-ipc_lock", "--bounding-set", "-ipc_lock", sys.executable, "-c", code]
        done = lab.do("near", *drop)
        assert "cannot be locked in memory" in done.stdout, done.stdout + done.stderr
        assert "the limit is 64 kB" in done.stdout


def test_an_mtu_that_native_programs_cannot_have_is_told(monkeypatch):
    """As drivers and kernels are that know no frames in several buffers."""
    monkeypatch.setattr("wirespeed.ports.xdp.bpf.F_XDP_HAS_FRAGS", 0)
    with laboratory() as lab:
        pair(lab, mtu=9000)
        with pytest.raises(PortError, match="MTU of 9000 is too large for native XDP"):
            ws.start(xdp(lab, attach="native") >> ws.port("null:"))
        with received(xdp(lab)) as (memory, running), raw(lab) as far:
            send(far, [frame(1, 9014)])
            assert pull(memory, 1) == [frame(1, 9014)]
        assert running.report().stages[0].counters["program"] == "generic"
