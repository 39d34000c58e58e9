"""The real Open vSwitch that cases are given to: it says which output came from which frame, and it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ovs
from tests.ovs import LOCAL, OpenVSwitch, RefusedError, needs_ovs
from tests.switch.oracle.packets import A, B, frame

pytestmark = needs_ovs


@pytest.fixture(scope="module")
def switch():
    with OpenVSwitch(8) as switch:
        yield switch


def alive(pid: int) -> bool:
    """Is it there, and not a zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_each_frame_is_told_what_came_out_for_it_and_where(switch):
    switch.program(
        f"priority=2,udp,tp_src=7,actions=drop\npriority=1,udp,actions=output:2,mod_dl_src:{B},output:2,output:3,in_port,LOCAL"
    )
    sent = [(1 + n % 4, frame("udp", tp_src=n % 10, payload=n % 60)) for n in range(300)]
    for ordered in (True, False):
        for (port, before), outputs in zip(sent, switch.exchange(sent, ordered=ordered), strict=True):
            changed = before[:6] + bytes.fromhex(B.replace(":", "")) + before[12:]
            assert before[6:12] == bytes.fromhex(A.replace(":", ""))
            by_port = {number: [out for at, out in outputs if at == number] for number in (1, 2, 3, 4, LOCAL)}
            if before[34:36] == b"\0\7":
                assert outputs == []
            else:
                wanted = {
                    2: [before, changed] if port != 2 else [],
                    3: [changed] if port != 3 else [],
                    LOCAL: [changed],
                }
                wanted[port] = wanted.get(port, []) + [changed]
                assert by_port == {number: wanted.get(number, []) for number in by_port}


def test_frames_of_every_size_come_through_whole(switch):
    switch.program("actions=output:2")
    frames = [
        bytes(range(7, 19)) + b"\x88\xb6" + bytes(n % 251 for n in range(size))
        for size in (0, 1, 45, 46, 47, 1000, 1486)
    ]
    assert switch.exchange([(1, one) for one in frames]) == [[(2, one)] for one in frames]


def test_a_change_holds_for_the_next_frame(switch):
    for n in range(30):
        port = 2 + n % 7
        switch.flows(f"actions=output:{port}")
        assert [at for at, _ in switch.send(1, frame())] == [port]


def test_what_is_refused_changes_nothing(switch):
    switch.program("actions=group:1", "group_id=1,type=all,bucket=actions=output:5")
    for flows, groups in (
        ("actions=output:2\nactions=foo", ""),
        ("actions=output:2\npriority=2,actions=group:9", ""),
        ("", "group_id=1,type=indirect"),
    ):
        with pytest.raises(RefusedError):
            switch.program(flows, groups)
    assert [at for at, _ in switch.send(1, frame())] == [5]


def test_a_port_that_is_to_take_no_part_in_floods_takes_none(switch):
    switch.program("in_port=1,actions=flood\nin_port=2,actions=all")
    switch.port_flood(6, flood=False)
    assert [at for at, _ in switch.send(1, frame())] == [LOCAL, 2, 3, 4, 5, 7, 8]
    assert [at for at, _ in switch.send(2, frame())] == [LOCAL, 1, 3, 4, 5, 6, 7, 8]
    switch.port_flood(6, flood=True)
    assert [at for at, _ in switch.send(1, frame())] == [LOCAL, 2, 3, 4, 5, 6, 7, 8]


def test_counters_are_exact_and_leave_the_harness_out(switch):
    switch.program(
        "priority=3,udp,actions=output:2\npriority=2,tcp,actions=goto_table:4\ntable=4,priority=1,actions=drop"
    )
    switch.exchange([(1, frame("udp"))] * 7 + [(1, frame("tcp"))] * 5 + [(1, frame("arp"))])
    udp, tcp = len(frame("udp")), len(frame("tcp"))
    assert switch.counters() == [
        (5, 5 * tcp, "table=0, priority=2,tcp actions=goto_table:4"),
        (7, 7 * udp, "table=0, priority=3,udp actions=output:2"),
        (5, 5 * tcp, "table=4, priority=1 actions=drop"),
    ]


def test_a_trace_tells_the_way_of_a_packet(switch):
    switch.program("priority=3,udp,actions=goto_table:4\ntable=4,priority=1,actions=output:3")
    said = switch.trace("in_port=1", frame("udp"))
    assert "Datapath actions: 3" in said and " 4. priority 1" in said


def test_groups_and_meters_are_replaced_alone():
    with OpenVSwitch(8) as switch:
        switch.time_stop()
        switch.time_warp(2000)
        switch.meters("meter=1,pktps,burst,bands=type=drop,rate=3,burst_size=3")
        switch.groups("group_id=1,type=all,bucket=actions=output:4,bucket=actions=output:6")
        switch.flows("in_port=1,actions=meter:1,group:1")
        got = switch.exchange([(1, frame())] * 9)
        assert [[at for at, _ in outputs] for outputs in got] == [[4, 6]] * 3 + [[]] * 6
        switch.time_warp(1000)
        assert [len(outputs) for outputs in switch.exchange([(1, frame())] * 5)] == [2, 2, 2, 0, 0]


def test_nothing_is_left_when_the_block_ends_in_any_way():
    with pytest.raises(ZeroDivisionError), OpenVSwitch(2) as switch:
        directory, pids = switch.directory, [daemon.pid for daemon in switch._daemons]
        assert len(pids) == 2 and all(alive(pid) for pid in pids)
        raise ZeroDivisionError
    assert not directory.exists() and not any(alive(pid) for pid in pids)
    switch.close()


def test_no_daemon_outlives_a_process_that_is_killed():
    program = "import time\nfrom tests.ovs import OpenVSwitch\nwith OpenVSwitch(2) as s:\n"
    program += "  print(s.directory, *[d.pid for d in s._daemons], flush=True)\n  time.sleep(100)\n"
    root = Path(ovs.__file__).parent.parent
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True) as child:
        directory, *pids = child.stdout.readline().split()
        assert len(pids) == 2 and all(alive(int(pid)) for pid in pids)
        os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(alive(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(alive(int(pid)) for pid in pids)
    subprocess.run(["rm", "-rf", directory], check=True)


def test_a_daemon_that_dies_is_told_of():
    with OpenVSwitch(2) as switch:
        switch._daemons[1].kill()
        switch._daemons[1].wait()
        with pytest.raises((RuntimeError, OSError, RefusedError)):
            switch.send(1, frame())
