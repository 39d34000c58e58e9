"""What becomes of a tap while it is open: down, deleted, renamed, moved, its namespace gone, its process killed."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

import pytest

import wirespeed as ws
from tests.driver import Driver
from tests.lab import laboratory
from tests.ports.link.children import FORKS, child, said_by_child
from tests.ports.tap.wires import ethernet, quiet, raw
from wirespeed.core.packet_pool import PacketPool
from wirespeed.ports import port
from wirespeed.ports.tap import queue


@pytest.fixture
def lab():
    with laboratory() as lab:
        yield lab


@pytest.fixture(scope="module")
def pool():
    with PacketPool(1000) as pool:
        yield pool


class Both:
    """A port that is open as source and as sink, by hand; :meth:`passes` asserts that frames go both ways."""

    def __init__(self, tap, pool):
        self.port = tap
        self.parts = [tap.open(role, 1) for role in ("source", "sink")]
        self.source, self.sink = (Driver(part, pool=pool) for part in self.parts)
        self.numbers = iter(range(1, 1000))

    def serve(self):
        """What the control thread does, until there is nothing to be done at once."""
        for part in self.parts:
            while part.service() == 0:
                pass

    def passes(self, space, name):
        """One frame each way."""
        with raw(space, name) as s:
            there, back = ethernet(next(self.numbers)), ethernet(next(self.numbers))
            s.send(there)
            assert [p.data for p in self.source.receive()] == [there]
            assert self.sink.transmit([back]) == 0
            assert s.recv(2048) == back

    def told(self, name):
        return self.parts[0].counters().get(name, 0)

    def close(self):
        for part, driver in zip(self.parts, (self.source, self.sink), strict=True):
            part.close()
            driver.release()


@contextlib.contextmanager
def both(tap, pool):
    open_port = Both(tap, pool)
    try:
        yield open_port
    finally:
        open_port.close()
    assert pool.free_count == pool.size


def interfaces(lab, name):
    return [line.split(":")[1].split("@")[0].strip() for line in lab.ip(name, "-o", "link", "show").splitlines()]


def wait_for(condition, seconds=60):
    """Wait until it holds; a real process or the kernel is about to make it so."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() > end  # looked at before, so that who was stopped meanwhile looks once more
        if condition():
            return
        assert not late
        time.sleep(0.01)


def test_a_link_that_is_down_drops_what_is_transmitted_and_comes_back(lab, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        tap.passes(space, "t0")
        lab.ip("a", "link", "set", "t0", "down")
        tap.serve()
        assert tap.source.receive() == []
        assert tap.sink.transmit([ethernet(i) for i in range(3)]) == 0
        assert tap.sink.drops() == {"link_down": 3}
        lab.ip("a", "link", "set", "t0", "up")
        tap.serve()
        tap.passes(space, "t0")
        assert tap.told("link_changes") == 2 and tap.told("remakes") == 0


def test_a_device_that_was_deleted_is_made_again_as_it_was(lab, pool):
    space = quiet(lab, "a")
    word = f"tap:t0,netns={space},mac=02:00:00:00:00:77,mtu=1400,address=10.9.0.1/24"
    with both(port(word), pool) as tap:
        fds = list(tap.source.placement.fds)
        lab.ip("a", "link", "del", "t0")
        assert tap.source.receive() == [] and tap.sink.transmit([ethernet(1)]) == 0
        assert tap.sink.drops() == {"link_down": 1}
        tap.serve()
        told = lab.ip("a", "address", "show", "t0")
        assert all(word in told for word in ("02:00:00:00:00:77", "mtu 1400", "10.9.0.1/24", ",UP"))
        tap.passes(space, "t0")
        assert tap.port._device.fds == fds
        assert tap.told("remakes") == 1 and tap.told("link_changes") == 2


def test_while_a_device_cannot_be_made_again_nobody_spins_and_the_report_says_why(lab, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        lab.ip("a", "link", "del", "t0")
        lab.ip("a", "link", "add", "t0", "type", "veth", "peer", "name", "v1")
        tap.serve()
        assert "t0" in tap.told("trouble") and "no tap" in tap.told("trouble")
        poll = select.poll()
        for fd in tap.source.placement.fds:
            poll.register(fd, select.POLLIN)
        assert poll.poll(0) == []
        assert tap.source.receive() == []
        assert tap.sink.transmit([ethernet(1)]) == 0 and tap.sink.drops() == {"link_down": 1}
        assert poll.poll(0) == [], "what was transmitted went nowhere"
        lab.ip("a", "link", "del", "t0")
        tap.serve()
        tap.passes(space, "t0")
        assert tap.told("trouble") == 0


def test_a_device_that_is_renamed_goes_on_and_its_name_is_told(lab, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t%d,netns={space}"), pool) as tap:
        assert tap.port.interface == "t0" and tap.told("interface") == "t0"
        lab.ip("a", "link", "set", "t0", "name", "lan")
        tap.serve()
        tap.passes(space, "lan")
        assert tap.port.interface == "lan" and tap.told("interface") == "lan"
        lab.ip("a", "link", "set", "lan", "down")
        tap.serve()
        assert tap.told("link_changes") == 1
        lab.ip("a", "link", "del", "lan")
        tap.serve()
        assert "lan" in interfaces(lab, "a"), "it is made again under the name that it had"


def test_a_frame_that_waits_while_the_mtu_is_lowered_below_it_arrives_whole(lab, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t0,netns={space},mtu=9000"), pool) as tap, raw(space, "t0") as s:
        s.send(ethernet(1, 9014))
        lab.ip("a", "link", "set", "t0", "mtu", "1000")
        tap.serve()
        assert [p.data for p in tap.source.receive()] == [ethernet(1, 9014)]
        assert tap.sink.transmit([ethernet(2, 9014)]) == 0
        assert s.recv(1 << 16) == ethernet(2, 9014) and not tap.sink.drops()
        assert tap.told("link_changes") == 0


def test_a_device_that_somebody_moves_to_another_namespace_goes_on_there(lab, pool):
    space, other = quiet(lab, "a"), quiet(lab, "b")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        lab.ip("a", "link", "set", "t0", "netns", other)
        tap.serve()
        lab.ip("b", "link", "set", "t0", "up")
        tap.serve()
        tap.passes(other, "t0")
        assert tap.told("link_changes") == 2 and tap.told("remakes") == 0


def test_a_device_is_handed_to_another_namespace_and_found_there_by_the_next_run(lab, pool):
    space, other = quiet(lab, "a"), quiet(lab, "b")
    word = f"tap:t0,netns={space},move_to={other},address=10.9.0.1/24,persist=yes"
    for _ in range(2):
        with both(port(word), pool) as tap:
            assert "t0" not in interfaces(lab, "a") and "10.9.0.1/24" in lab.ip("b", "address", "show", "t0")
            tap.passes(other, "t0")
            lab.ip("b", "link", "del", "t0")
            tap.serve()
            tap.passes(other, "t0")
    assert "NO-CARRIER" in lab.ip("b", "link", "show", "t0")


def test_a_namespace_that_is_gone_stops_nothing_and_one_made_anew_is_followed(lab, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        subprocess.run(["ip", "netns", "del", space], check=True)
        lab.spaces.remove(space)
        tap.serve()
        assert tap.source.receive() == [] and tap.sink.transmit([ethernet(1)]) == 0 and not tap.sink.drops()
        assert quiet(lab, "a") == space
        tap.serve()
        tap.passes(space, "t0")
        assert tap.told("remakes") == 1


def test_a_run_goes_on_when_its_device_is_deleted_and_made_again(lab):
    a, b = (
        ws.port(f"tap:w{i},netns={lab.space(name)},address=10.9.0.{i}/24") for i, name in enumerate("ab", 1)
    )  # fmt: skip
    with ws.start(a >> b, b >> a, workers=2) as run:

        def pings():
            return lab.do("a", "ping", "-c", "1", "-W", "1", "10.9.0.2", check=False).returncode == 0

        for name, interface in (("a", "w1"), ("b", "w2"), ("a", "w1")):
            wait_for(pings)
            lab.ip(name, "link", "del", interface)
        wait_for(pings)
        for change in ("down", "up"):
            lab.ip("b", "link", "set", "w2", change)
        wait_for(pings)
        assert run.report().stages[0].counters["remakes"] == 2
    report = run.report()
    assert report.balanced and not report.notes, report


@contextlib.contextmanager
def process(*words):
    """A process that has ports open in a run, until the block ends."""
    code = (
        "import sys, wirespeed as ws\n"
        "a = ws.port(sys.argv[1])\n"
        "report = ws.run(a >> ws.port('null:'))\n"
        "assert report.balanced, report\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_and_the_device_goes_with_it(lab, signum):
    space = quiet(lab, "a")
    with process(f"tap:t0,netns={space}") as child:
        wait_for(lambda: "t0" in interfaces(lab, "a") and "LOWER_UP" in lab.ip("a", "link", "show", "t0"))
        time.sleep(0.5)  # until the run has begun, so that it is the run that is ended
        child.send_signal(signum)
        said = child.communicate(timeout=120)[0].decode()
    assert "AssertionError" not in said
    assert "t0" not in interfaces(lab, "a")


def test_a_device_goes_with_a_process_that_is_killed(lab):
    space = quiet(lab, "a")
    with process(f"tap:t0,netns={space}") as child:
        wait_for(lambda: "t0" in interfaces(lab, "a"))
        child.kill()
        child.wait()
    assert "t0" not in interfaces(lab, "a")


def test_a_persistent_device_stays_without_a_carrier_and_can_be_opened_again(lab, pool):
    space = quiet(lab, "a")
    with process(f"tap:t0,netns={space},persist=yes,owner=1234,group=0") as child:
        wait_for(lambda: "t0" in interfaces(lab, "a") and "LOWER_UP" in lab.ip("a", "link", "show", "t0"))
        child.kill()
        child.wait()
    assert "NO-CARRIER" in lab.ip("a", "link", "show", "t0")
    assert "user 1234" in lab.ip("a", "tuntap", "show")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        wait_for(lambda: "LOWER_UP" in lab.ip("a", "link", "show", "t0"))
        tap.passes(space, "t0")
    assert "t0" in interfaces(lab, "a"), "persist is left as it is unless it is given"
    with both(port(f"tap:t0,netns={space},persist=no"), pool) as tap:
        tap.passes(space, "t0")
    assert "t0" not in interfaces(lab, "a")


@pytest.mark.parametrize("how", list(FORKS))
@pytest.mark.parametrize("workers", [1, 2])
def test_a_child_that_was_forked_meanwhile_keeps_no_device(lab, how, workers):
    space = quiet(lab, "a")
    tap, memory = port(f"tap:t%d,netns={space}"), ws.port("null:")
    with contextlib.ExitStack() as living:
        with ws.start(tap >> memory, workers=workers):
            living.enter_context(child(how))
            lab.ip("a", "link", "set", "t0", "name", "lan0")
        assert interfaces(lab, "a") == ["lo"]
        with ws.start(tap >> memory, workers=workers) as run:
            assert interfaces(lab, "a") == ["lo", "t0"]
    assert run.report().balanced


@pytest.mark.parametrize("how", list(FORKS))
def test_a_child_that_is_forked_leaves_its_parents_device_as_it_is(lab, how, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        with child(how):
            tap.passes(space, "t0")
        tap.passes(space, "t0")


def test_a_child_that_opens_its_parents_device_is_told_that_it_is_in_use(lab, pool):
    space = quiet(lab, "a")
    with both(port(f"tap:t0,netns={space}"), pool) as tap:
        assert "PortError: [Errno 16]" in said_by_child(lambda: tap.port.open("source", 1))
        tap.passes(space, "t0")
    assert said_by_child(lambda: tap.port.open("source", 1)) == ""


def test_a_device_of_another_programs_is_left_to_it_with_the_queues_that_it_has(lab):
    space = quiet(lab, "a")
    theirs = queue.open_queues("tap", "t0", 2, space).fds
    try:
        ws.run(ws.port("null:count=10") >> ws.port(f"tap:t0,netns={space}"), workers=2)
        assert "t0" in interfaces(lab, "a")
    finally:
        for fd in theirs:
            os.close(fd)
    assert "t0" not in interfaces(lab, "a")


def test_nothing_is_left_open_by_a_run(lab):
    space = quiet(lab, "a")
    ws.run(ws.port("null:count=10") >> ws.port(f"tap:t0,netns={space}"))
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(2):
        report = ws.run(ws.port("null:count=10") >> ws.port(f"tap:t0,netns={space}"))
        assert report.balanced
        assert "t0" not in interfaces(lab, "a")
    assert sorted(os.listdir("/proc/self/fd")) == before
