"""What is left of a pool or cache that has ended is refused or still there: nothing crashes, locks up or is lost unsaid.

What would crash or hang runs in a process of its own.
"""

import copy
import gc
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from tests.core.test_packet import ROOM
from wirespeed.core.external import ExternalBuffer
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.core.view import PacketView
from wirespeed.errors import GraphError

CAPACITY = HEADROOM + ROOM
SETUP = """
import gc, os, signal
import numpy as np
import wirespeed as ws
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import bytes_for
from wirespeed.errors import GraphError

def refused(call):
    try:
        call()
    except GraphError:
        return
    raise AssertionError("not refused")

def mapped(address):
    with open("/proc/self/maps") as f:
        spans = [[int(at, 16) for at in line.split()[0].split("-")] for line in f]
    return any(start <= address < end for start, end in spans)
"""


def run(script):
    """Run a program to its end."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-c", SETUP + script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"


@pytest.fixture
def pool():
    with PacketPool(40, CAPACITY) as pool:
        yield pool


PROGRAMS = {
    "a closed cache gives no packets": """
for shared in (False, True):
    pool = ws.PacketPool(16, shared=shared)
    other = ws.PacketPool(16)
    with pool.open_cache() as cache:
        ws.PacketView.of(pool, cache, b"x").free()
        ws.PacketView.of(pool, cache.address, b"x").free()
        refused(lambda: ws.PacketView.of(other, cache, b"x"))
        refused(lambda: ws.PacketView.of(other, cache.address, b"x"))
    assert cache.address == 0
    for wrong in (cache, cache.address, 0, 1, -1, None, 1.5, True):
        refused(lambda: ws.PacketView.of(pool, wrong, b"x"))
        refused(lambda: ws.PacketView(pool, wrong, 1))
    cache = pool.open_cache()
    address, number = cache.address, pool.cache()
    pool.close_cache(address)
    refused(cache.alloc)
    pool.close()
    for closed in (cache, address, number):
        refused(lambda: ws.PacketView.alloc(pool, closed))
""",
    "a fork has no views in a shared pool of its parent": """
pool = ws.PacketPool(16, shared=True)
cache = pool.open_cache()
address, view = cache.address, ws.PacketView.of(pool, cache, b"x")
child = os.fork()
if not child:
    for call in (lambda: ws.PacketView.alloc(pool, cache), lambda: ws.PacketView.alloc(pool, address), view.clone, view.free):
        refused(call)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
view.free()
assert pool.whole
""",
    "a view outlives its cache, and another in its place is left alone": """
for shared in (False, True):
    pool = ws.PacketPool(16, shared=shared, caches=2)
    first = pool.open_cache(4)
    views = [ws.PacketView.of(pool, first, b"abc") for _ in range(3)]
    first.close()
    with pool.open_cache(4) as second:
        for view in views:
            assert bytes(view) == b"abc"
            for call in (view.clone, view.copy, view.hold, view.linearize, view.detach, lambda: view.cache):
                refused(call)
            assert view.refcnt == 1
            view.free()
        assert len(second) == 0 and second.failures == 0
    assert pool.whole
    pool.close()
""",
    "arrays outlive the pool": """
for shared in (False, True):
    pool = ws.PacketPool(16, shared=shared)
    cache = pool.open_cache()
    data = os.urandom(3000)
    view = ws.PacketView.of(pool, cache, data)
    shown = view.clone()
    record, parts, part, again = view.record, view.parts, view.read(5, 9), shown.data
    address = pool.address
    assert pool.close() == 4
    del pool, cache, view, shown
    gc.collect()
    assert b"".join(p.tobytes() for p in parts) == data and part.tobytes() == data[5:14]
    assert again.tobytes() == parts[0].tobytes() and record.total == 3000
    parts[0][:] = 1
    part = part[2:].reshape(-1, 1)
    del parts, again, record
    assert part.tobytes() == b"\\1" * 7 and mapped(address)
    del part
    assert not mapped(address)
""",
    "an array in a cycle of garbage is there for the last finalizer": """
class Last:
    def __del__(self):
        seen.append(self.data.tobytes())

for shared in (False, True):
    seen = []
    pool = ws.PacketPool(16, shared=shared)
    last = Last()
    last.itself, last.pool, last.data = last, pool, ws.PacketView.of(pool, pool.cache(), b"abc").data
    address = pool.address
    pool.close()
    del last, pool
    gc.collect()
    assert seen == [b"abc"] and not mapped(address)
""",
    "a shared pool is attached to again while an array keeps its mapping": """
pool = ws.PacketPool(16, name=f"test-ends-{os.getpid()}")
with pool.open_cache() as cache, ws.PacketView.of(pool, cache, b"abc") as view:
    data, fd, address = view.data, os.dup(pool.fd), pool.address
pool.close()
again = ws.PacketPool.attach(fd=fd)
assert again.address == address and again.whole
del data
gc.collect()
(handle,) = again.alloc().tolist()
again.free(handle)
assert mapped(address)
again.close()
assert not mapped(address) and not os.path.exists(f"/dev/shm/wirespeed-test-ends-{os.getpid()}")
""",
    "arrays over external memory and other pools' packets outlive these": """
memory = bytearray(b"external" * 1000)
pool, other = ws.PacketPool(4), ws.PacketPool(4)
view = ws.PacketView.alloc(pool, pool.cache())
view.attach(ws.ExternalBuffer(memory))
del memory
data = view.data
view.free()
theirs = ws.PacketView.of(other, other.cache(), b"theirs")
view = ws.PacketView.alloc(pool, pool.cache())
view.attach(theirs)
shown = view.data
pool.close(), other.close()
gc.collect()
assert data.tobytes() == b"external" * 1000 and shown.tobytes() == b"theirs"
""",
    "a pool's memory given as a buffer is kept by arrays": """
pool = ws.PacketPool(4, memory=bytearray(bytes_for(4)))
data = ws.PacketView.of(pool, pool.cache(), b"abc").data
pool.close()
del pool
gc.collect()
assert data.tobytes() == b"abc"
""",
    "a signal's handler may use the pool that it interrupts": """
for shared in (False, True):
    pool = ws.PacketPool(63, shared=shared)
    pool.free(pool.alloc())
    calls = []
    def handler(*_):
        pool.free(pool.alloc(3))
        calls.append(1)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while len(calls) < 100:
        pool.free(pool.alloc(2))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert pool.whole
""",
    "what is called when external memory is let go of may use the pool and the cache": """
pool = ws.PacketPool(63)
cache = pool.open_cache(8)
calls = []
def use():
    pool.free(pool.alloc(2))
    cache.free(cache.alloc(3))
    calls.append(1)
for free in (pool.free, cache.free):
    handles = cache.alloc(8).tolist()
    for handle in handles[::2]:
        with ws.ExternalBuffer(bytearray(10), use) as buffer:
            buffer.attach(handle)
    free(handles)
assert len(calls) == 8 and pool.whole and pool.audit().sound
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_not_crash_or_hang(name):
    run(PROGRAMS[name])


def test_a_call_in_the_middle_of_another_of_the_same_thread_is_served(pool):
    for _ in range(2):
        with pool._lock:
            pool.free(pool.alloc(3))
    assert pool.whole


def test_a_shared_pool_that_was_collected_is_no_member_and_its_caches_are_empty():
    with PacketPool(40, CAPACITY, shared=True, members=3, caches=4) as pool:
        for _ in range(20):
            other = PacketPool.attach(fd=pool.fd)
            cache = other.open_cache(4)
            cache.free(cache.alloc(2))
            del other, cache
            gc.collect()
        assert len(pool.peers()) == 1 and pool.statistics() == []
        assert pool.whole


def test_a_view_in_a_cycle_with_a_collected_shared_pool_says_that_it_is_over():
    class Last:
        def __del__(self):
            try:
                self.view.free()
                said.append("freed")
            except GraphError:
                said.append("over")

    said = []
    with PacketPool(40, CAPACITY, shared=True) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        other = PacketPool.attach(fd=pool.fd)
        last = Last()
        last.itself, last.view = last, PacketView.of(other, other.open_cache(4), b"x")
        del other, last
        gc.collect()
        assert said in (["freed"], ["over"]) and pool.in_use == (said == ["over"])


def test_a_pool_that_could_not_be_made_leaves_nothing_behind():
    with PacketPool(4, CAPACITY, name=f"test-ends-{os.getpid()}") as pool:
        for _ in range(3):
            with pytest.raises(GraphError, match="exists already"):
                PacketPool(4, CAPACITY, name=f"test-ends-{os.getpid()}")
            gc.collect()
        assert len(pool.peers()) == 1


def test_a_view_that_is_collected_before_it_was_freed_is_told_of(pool):
    with pool.open_cache(4) as cache:
        view = PacketView.of(pool, cache, b"abc")
        handle = view.handle
        with pytest.warns(ResourceWarning, match="3 bytes.*was not freed before its end; its packet stays out"):
            del view
            gc.collect()
        assert pool.in_use == 1
        PacketView(pool, cache, handle).free()
    assert pool.whole


def test_bytes_come_from_any_buffer_in_one_piece_and_from_nothing_else(pool):
    with pool.open_cache(4) as cache:
        for data in (
            np.arange(4, dtype="u8"), np.zeros((2**16, 0)), np.ones((3, 5), "u2"), memoryview(b"abc"), bytearray(b"x"), b"",
            np.arange(9, dtype="f4").reshape(3, 3),
        ):  # fmt: skip
            with PacketView.of(pool, cache, data) as view:
                assert bytes(view) == memoryview(data).tobytes() and view.fault() == ""
        for wrong in (5, "text", [1, 2], None, np.arange(10)[::2], np.ones((3, 4)).T, memoryview(b"abcd")[::2]):
            with pytest.raises(GraphError, match="wanted"):
                PacketView.of(pool, cache, wrong)
    assert pool.whole


def test_numbers_are_whole_whoever_made_them():
    for number in (63, np.int64(63), np.uint8(63)):
        with PacketPool(number, np.int64(CAPACITY)) as pool, pool.open_cache(np.int64(8)) as cache:
            cache.free(cache.alloc(np.int64(2)))
            pool.free(pool.alloc(np.uint8(2)))
            with PacketView.alloc(pool, cache, np.int64(10)) as view:
                view.trim(np.int64(1))
                view.copy(np.int64(2), np.int64(3)).free()
                assert len(view.read(np.int64(1), np.int64(3))) == 3 and len(view) == 9
            assert pool.whole and type(pool.size) is int
    for wrong in (1.5, 63.0, True, "63", None, np.float64(8), np.bool_(True)):
        for make in (
            lambda w: PacketPool(w), lambda w: PacketPool(4, w), lambda w: PacketPool(4, caches=w),
            lambda w: PacketPool(4, shared=True, members=w), lambda w: PacketPool(4, memory=(w, 100)),
            lambda w: PacketPool(4, memory=(4096, w)),
        ):  # fmt: skip
            with pytest.raises(GraphError, match="must be a whole number"):
                make(wrong)
    for memory in ((0,), (), (1, 2, 3), (0, 1 << 20), (-64, 1 << 20)):
        with pytest.raises(GraphError, match="wanted"):
            PacketPool(4, memory=memory)


def test_a_view_refuses_what_is_no_whole_number_and_stays_as_it_was(pool):
    with (
        pool.open_cache(4) as cache,
        ExternalBuffer(bytearray(50)) as buffer,
        PacketView.of(pool, cache, bytes(20)) as view,
        PacketView.alloc(pool, cache) as empty,
    ):
        for wrong in (1.5, True, "1", np.float32(2)):
            for use in (
                view.append, view.prepend, view.trim, view.adjust, view.copy, lambda w: view.copy(0, w),
                lambda w: view.read(w, 1), lambda w: view.read(0, w), lambda w: empty.attach(buffer, w),
                lambda w: buffer.attach(empty.handle, w), lambda w: PacketView.alloc(pool, cache, w), cache.alloc,
                pool.alloc, pool.open_cache, lambda w: PacketView(pool, cache, w),
            ):  # fmt: skip
                with pytest.raises(GraphError, match="must be a whole number"):
                    use(wrong)
        assert bytes(view) == bytes(20) and (empty.shows, len(empty), buffer.users) == ("own", 0, 0)
        with pytest.raises(GraphError, match="wanted a PacketView or an ExternalBuffer"):
            empty.attach(5)
    assert pool.whole
    with pytest.raises(GraphError, match="on_release"):
        ExternalBuffer(bytearray(5), on_release=5)


def test_nothing_of_it_can_be_pickled_or_copied(pool):
    with pool.open_cache(4) as cache, PacketView.alloc(pool, cache) as view, ExternalBuffer(bytearray(5)) as buffer:
        for thing in (pool, cache, view, buffer):
            for how in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=f"{type(thing).__name__} .*cannot be copied or pickled; "):
                    how(thing)
    assert pool.whole


def test_a_pool_that_closes_under_threads_at_work_tells_them():
    program = """
import threading, time
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import GraphError

for turn in range(60):
    pool, told = PacketPool(63), []

    def work():
        try:
            while True:
                pool.free(pool.alloc(8))
        except GraphError:
            told.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    time.sleep(turn % 4 / 1000)
    pool.close()
    for thread in threads: thread.join()
    assert len(told) == 3
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout == "done\n", done.stderr
