"""Workers in other processes: how they find the distributor, what they are refused, and that every item passes once."""

import os
import subprocess
import sys

import numpy as np
import pytest

import wirespeed as ws
from tests.core.distributor.test_distributor import flows_of, in_order, joined, until
from wirespeed.core import segment
from wirespeed.core.distributor.memory import KIND, LAYOUTS
from wirespeed.core.segment import Header

COMMON = """
import os, signal, sys, time
import numpy as np
import wirespeed as ws

def attached(**options):
    where = {"fd": int(sys.argv[1])} if sys.argv[1].isdigit() else {"name": sys.argv[1]}
    return ws.DistributorWorker.attach(**where, **options)

def say(*words):
    print(*words, flush=True)
"""
SERVE = """
with attached(worker_name=f"child {sys.argv[2]}") as w:
    n, last = 0, {}
    for burst in w:
        for item in burst.tolist():
            assert last.get(item >> 32, -1) < item & 0xFFFFFFFF
            last[item >> 32] = item & 0xFFFFFFFF
        n += len(burst)
    say(n)
"""


class Child:
    """Another Python that runs a program with where the distributor is, and a number."""

    def __init__(self, where, text, k=0, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMON + text, str(where), str(k)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip
        self.pid = self.process.pid

    def line(self):
        return self.process.stdout.readline().strip()

    def end(self, code=0):
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == code, err
        return out

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def name():
    return f"distributor-{os.getpid()}"


@pytest.mark.parametrize(
    "shape", [{"mode": "single"}, {"burst": 7, "lines": 1}, {}], ids=["single", "burst", "pipelined"]
)
def test_every_item_passes_processes_once_and_in_its_flows_order(name, shape):
    items, tags = flows_of(20000)
    back = []
    with ws.Distributor(3, name=name, **shape) as d:
        children = [Child(name, SERVE, k) for k in range(3)]
        try:
            until(lambda: d.process((), ()) == 0 and len(d.active) == 3)
            assert {w.name for w in d.statistics.workers} == {"child 0", "child 1", "child 2"}
            at = 0
            while at < len(items):
                at += d.process(items[at:], tags[at:], timeout_s=0.01)
                back.append(d.returned())
            assert d.flush() == 0
            back.append(d.returned())
            told = d.statistics
            d.close()
            counts = [int(child.end()) for child in children]
        finally:
            for child in children:
                child.__exit__()
    back = np.concatenate(back)
    assert np.array_equal(np.sort(back), np.sort(items)) and in_order(back)
    assert sorted(counts) == sorted(w.returned for w in told.workers) and sum(counts) == len(items) and told.balanced
    assert not os.path.exists(f"/dev/shm/wirespeed-{name}")


def test_a_worker_attaches_by_a_descriptor_that_it_inherits_and_has_the_number_and_type_it_wants():
    text = "w = attached(number=1, dtype='i8')\nwhile not (b := w.get(timeout_s=1)).size: pass\nsay(b, w.number)\nw.give_back(-b)"
    with ws.Distributor(2, shared=True, dtype="i8") as d, Child(d.fd, text, pass_fds=[d.fd]) as child:
        until(lambda: d.process((), ()) == 0 and d.active)
        assert d.process([-5, 6], [1, 1]) == 2
        assert child.line() == "[-5  6] 1"
        child.end()
        assert d.flush() == 0 and d.returned().tolist() == [5, -6] and d.active == ()


def test_workers_of_other_processes_come_and_go_while_items_flow(name):
    text = """
for turn in range(15):
    with attached() as w:
        for k, burst in enumerate(w):
            if k == 3:
                break  # it leaves with a burst in hand
            time.sleep(0.0001)
"""
    items, tags = flows_of(8000)
    back = []
    with ws.Distributor(3, name=name, burst=4, lines=2) as d:
        children = [Child(name, text), Child(name, text), Child(name, SERVE)]
        try:
            until(lambda: d.process((), ()) == 0 and len(d.active) == 3)
            at = 0
            while at < len(items):
                at += d.process(items[at : at + 20], tags[at : at + 20], timeout_s=0.01)
                back.append(d.returned())
            d.flush()
            back.append(d.returned())
            told = d.statistics
            d.close()
            for child in children:
                child.end()
        finally:
            for child in children:
                child.__exit__()
    back = np.concatenate(back)
    assert np.array_equal(np.sort(back), np.sort(items)) and in_order(back)
    assert told.balanced and sum(w.joins for w in told.workers) > 10 and told.lost == 0


@pytest.mark.parametrize("call", ["get", "loop", "poll"])
def test_workers_whose_distributors_process_dies_are_told(call):
    maker = """
import os, sys, time
import wirespeed as ws
d = ws.Distributor(2, shared=True)
os.set_inheritable(d.fd, True)
print(d.fd, flush=True)
while True: d.process([1], [1], timeout_s=0.01); d.returned()
"""
    with subprocess.Popen([sys.executable, "-c", maker], stdout=subprocess.PIPE, text=True) as process:
        fd = int(process.stdout.readline())
        w = ws.DistributorWorker.attach(fd=os.open(f"/proc/{process.pid}/fd/{fd}", os.O_RDWR))
        until(lambda: w.poll() is not None)
        w.request()
        process.kill()
        process.wait()
        with pytest.raises(
            ws.PeerError, match=rf"distributor of this worker is gone: its process {process.pid} has ended"
        ):
            while True:
                if call == "loop":
                    for burst in w:
                        assert len(burst)
                elif call == "get":
                    w.get()
                elif w.poll() is not None:
                    w.request()
        w.close()


def test_who_attaches_late_to_a_closed_distributor_has_nothing_to_do():
    d = ws.Distributor(1, shared=True)
    fd = os.dup(d.fd)
    d.close()
    with ws.DistributorWorker.attach(fd=fd) as w:
        assert w.closed and list(w) == [] and w.get().tolist() == [] and w.poll() is None
    os.close(fd)


def test_the_name_goes_with_its_distributor_and_workers_go_on_with_the_memory(name):
    d = ws.Distributor(1, name=name)
    w = ws.DistributorWorker.attach(name)
    with pytest.raises(ws.GraphError, match="exists already"):
        ws.Distributor(1, name=name)
    w.poll()
    d.process([1], [1])
    d.close()
    assert w.poll() is None and w.closed
    with pytest.raises(ws.PortError, match="does it still run"):
        ws.DistributorWorker.attach(name)


def test_distributors_and_workers_give_back_descriptors_and_memory():
    def held():
        with open("/proc/self/maps", encoding="ascii") as f:
            return len(os.listdir("/proc/self/fd")), sum("wirespeed" in line for line in f)

    before = held()
    for _ in range(3):
        with ws.Distributor(2, shared=True) as d:
            for _ in range(3):
                with ws.DistributorWorker.attach(fd=d.fd) as w:
                    w.poll()
        with pytest.raises(ws.GraphError):
            ws.Distributor(2, shared=True, name="no/name")
        del d, w
    assert held() == before


# What is refused.


def made(**header):
    """The descriptor of a segment like a distributor's, with fields of its header set."""
    with ws.Distributor(2, shared=True) as d:
        size = os.fstat(d.fd).st_size
        fd = os.memfd_create("spoiled")
        os.truncate(fd, size)
        os.pwrite(fd, os.pread(d.fd, size, 0), 0)
    raw = Header(bytearray(os.pread(fd, Header.size, 0)))
    for field, value in header.items():
        setattr(raw, field, value)
    os.pwrite(fd, bytes(raw._array.tobytes()), 0)
    return fd


@pytest.mark.parametrize(
    "header, says",
    [
        ({"magic": 7}, "is no distributor"), ({"version": 9}, "another release"), ({"layouts": 1}, "another release"),
        ({"kind": 1}, "kind 1, not 3"), ({"size": 4096}, "says that it has 4096 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_distributor_of_this_release_is_refused(header, says):
    fd = made(**header)
    with pytest.raises(ws.PeerError, match=says):
        ws.DistributorWorker.attach(fd=fd)
    os.close(fd)


def test_a_segment_of_another_kind_or_cut_short_or_empty_is_refused():
    with ws.Ring(8, shared=True) as ring, pytest.raises(ws.PeerError):
        ws.DistributorWorker.attach(fd=ring.fd)
    with ws.Distributor(1, shared=True) as d, pytest.raises(ws.PeerError):
        ws.Ring.attach(fd=d.fd)
    for size in (0, 100, 128, 4096):
        fd = made()
        os.truncate(fd, size)
        with pytest.raises(ws.PeerError):
            ws.DistributorWorker.attach(fd=fd)
        os.close(fd)
    empty = segment.create(KIND, 4096, LAYOUTS)
    segment.publish(empty)
    with pytest.raises(ws.PeerError, match="does not fit its memory: 0 workers"):
        ws.DistributorWorker.attach(fd=empty.fd)
    empty.close()


@pytest.mark.parametrize("where", [{"name": "no-such"}, {"fd": 12345}, {"fd": 2**40}])
def test_what_is_not_there_is_a_port_error(where):
    with pytest.raises(ws.PortError):
        ws.DistributorWorker.attach(**where)


@pytest.mark.parametrize(
    "arguments", [{"dtype": "u4"}, {"dtype": None}, {"number": 2}, {"number": -1}, {"number": 0}, {"worker_name": 5}]
)
def test_an_attachment_that_is_refused_leaves_nothing_behind(arguments):
    with ws.Distributor(2, shared=True) as d:
        (w,) = joined(d, 1)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(ws.GraphError):
                ws.DistributorWorker.attach(fd=d.fd, **arguments)
        assert len(os.listdir("/proc/self/fd")) == before and d.worker().number == 1 and w.active is False
