"""The memory port: what is pushed is what arrives, in order, whole, or is refused and counted."""

import select
import threading
import time
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.driver import Driver
from wirespeed import FORWARD, function
from wirespeed.core.frame import Packet
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.engine.run import start
from wirespeed.errors import GraphError
from wirespeed.ports import port
from wirespeed.ports.frame_ring import UNIT
from wirespeed.ports.memory import MemoryPort

ROOM = 64  # bytes of data in a buffer of the small pool, so that most frames are chains


@pytest.fixture(scope="module")
def pool():
    with PacketPool(256) as pool:
        yield pool


@pytest.fixture(scope="module")
def small():
    with PacketPool(60, HEADROOM + ROOM) as pool:
        yield pool


@pytest.fixture
def memory():
    with port("memory:test") as memory:
        yield memory


def source(memory, pool, **site):
    return Driver(memory.open("source", site.get("workers", 1)), pool=pool, **site)


def sink(memory, pool, **site):
    return Driver(memory.open("sink", site.get("workers", 1)), pool=pool, **site)


def numbered(n, size=60):
    return [i.to_bytes(4, "big") + bytes(size - 4) for i in range(n)]


packets = st.lists(
    st.builds(
        Packet, st.binary(max_size=300), st.integers(-1, 1 << 62), st.integers(0, 0xFFFF), st.integers(300, 1 << 31),
        st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF),
    ),
    max_size=20,
)  # fmt: skip


@given(packets)
def test_what_is_pushed_is_received_with_all_that_is_known_about_it(pool, packets):
    with MemoryPort(size=16384) as memory, source(memory, pool) as driver:
        assert memory.push(packets) == len(packets)
        assert driver.receive() == packets
        assert driver.head.bytes == sum(len(p) for p in packets)


@given(packets)
def test_what_is_transmitted_is_pulled_with_all_that_is_known_about_it(pool, packets):
    with MemoryPort(size=16384) as memory, sink(memory, pool) as driver:
        assert driver.transmit(packets) == 0
        assert memory.pull() == packets
        assert driver.head.bytes == sum(len(p) for p in packets)


@given(packets)
def test_frames_longer_than_a_buffer_travel_as_chains(small, packets):
    with MemoryPort(size=16384) as memory, source(memory, small) as driver:
        memory.push(packets)
        got = []
        while len(got) < len(packets):
            got += driver.receive(1)
        assert got == packets
    with MemoryPort(size=16384) as memory, sink(memory, small) as driver:
        for packet in packets:
            assert driver.transmit([packet]) == 0
        assert memory.pull() == packets


class Queue(RuleBasedStateMachine):
    """Both directions of one port against two deques; the ring is so small that it wraps and refuses all the time."""

    @initialize(size=st.sampled_from([256, 512, 1024]))
    def begin(self, size):
        self.pool = PacketPool(64, HEADROOM + ROOM)
        self.port = MemoryPort(size=size)
        self.size = size
        self.into, self.out = source(self.port, self.pool), sink(self.port, self.pool)
        self.pushed, self.transmitted = deque(), deque()
        self.serial = 0

    def frame(self, length):
        self.serial += 1
        return (self.serial.to_bytes(4, "big") * 64)[:length]

    def takes(self, waiting, frames):
        free = self.size - sum(span(f) for f in waiting)
        n = 0
        while n < len(frames) and span(frames[n]) <= free:
            free -= span(frames[n])
            n += 1
        return n

    @rule(lengths=st.lists(st.integers(0, 224), max_size=6))
    def push(self, lengths):
        frames = [self.frame(n) for n in lengths]
        taken = self.takes(self.pushed, frames)
        assert self.port.push(frames) == taken
        self.pushed += frames[:taken]

    @rule(n=st.integers(0, 8))
    def receive(self, n):
        got = [p.data for p in self.into.receive(n)]
        assert got == [self.pushed.popleft() for _ in range(min(n, len(self.pushed)))]

    @rule(lengths=st.lists(st.integers(0, 224), max_size=6))
    def transmit(self, lengths):
        frames = [self.frame(n) for n in lengths]
        taken = self.takes(self.transmitted, frames)
        assert self.out.transmit(frames) == len(frames) - taken
        self.transmitted += frames[:taken]

    @rule(n=st.none() | st.integers(0, 8))
    def pull(self, n):
        most = len(self.transmitted) if n is None else min(n, len(self.transmitted))
        assert [p.data for p in self.port.pull(n)] == [self.transmitted.popleft() for _ in range(most)]

    @invariant()
    def nothing_is_lost(self):
        if hasattr(self, "port"):
            assert (self.into.part.counters()["waiting"], self.port.waiting) == (
                len(self.pushed),
                len(self.transmitted),
            )

    def teardown(self):
        if hasattr(self, "port"):
            self.into.part.close()
            self.into.release()
            self.out.close()
            self.port.close()
            self.pool.close()


def span(frame):
    return UNIT + -(-len(frame) // UNIT) * UNIT


TestQueue = Queue.TestCase


def test_a_port_serves_two_runs_one_after_the_other(memory, pool):
    for run in range(2):
        memory.push([b"in %d" % run])
        memory.close_input()
        with source(memory, pool) as into, sink(memory, pool) as out:
            assert [p.data for p in into.receive_all()] == [b"in %d" % run]
            out.transmit([b"out %d" % run])
    assert [p.data for p in memory] == [b"out 0", b"out 1"]


def test_a_source_is_done_when_input_is_closed_and_all_is_read(memory, pool):
    with source(memory, pool, burst=2) as driver:
        memory.push(numbered(3))
        memory.close_input()
        assert (len(driver.receive()), driver.head.done) == (2, 0)
        assert (len(driver.receive()), driver.head.done) == (1, 0)
        assert (len(driver.receive()), driver.head.done) == (0, 1)


def test_a_source_that_is_only_empty_is_not_done(memory, pool):
    with source(memory, pool) as driver:
        assert (driver.receive(), driver.head.done) == ([], 0)


def test_pushing_after_the_end_of_input_is_an_error_until_the_run_has_ended(memory, pool):
    memory.close_input()
    with source(memory, pool) as driver:
        driver.receive_all()
        with pytest.raises(GraphError, match="memory:test is closed for input"):
            memory.push([b"late"])
    assert memory.push([b"for the next run"]) == 1


def test_input_stays_closed_while_another_run_has_yet_to_see_it(memory, pool):
    memory.close_input()
    first, second = source(memory, pool), source(memory, pool)
    first.receive_all()
    first.close()
    assert second.receive_all() == []
    second.close()


def test_what_a_run_did_not_read_is_left_to_the_next(memory, pool):
    memory.push(numbered(5))
    memory.close_input()
    with source(memory, pool, burst=2) as driver:
        assert [p.data for p in driver.receive()] == numbered(5)[:2]
    with source(memory, pool) as driver:
        assert [p.data for p in driver.receive_all()] == numbered(5)[2:]


def test_workers_share_what_is_pushed_and_each_packet_goes_to_one(memory):
    memory.push(numbered(50))
    part = memory.open("source", 3)
    with PacketPool(2048) as pool:
        drivers = [Driver(part, pool=pool, worker=w, workers=3, burst=4) for w in range(3)]
        got = [p.data for turn in range(5) for driver in drivers for p in driver.receive()]
        for driver in drivers[1:]:
            driver.release()
        drivers[0].close()
    assert got == numbered(50)


def test_pool_exhaustion_loses_nothing(memory, pool):
    frames = numbered(600)
    memory.push(frames)
    with source(memory, pool, burst=200) as driver:
        held = []
        while n := driver.call(200):
            held += driver.burst[:n].tolist()
        assert [driver.frame(h).data for h in held] == frames[: pool.size]
        driver.free(held)
        assert [p.data for p in driver.receive() + driver.receive()] == frames[pool.size : pool.size + 400]


def test_a_frame_that_the_whole_pool_cannot_hold_is_dropped_with_its_reason(memory, small):
    largest = ROOM + (small.size - 1) * (HEADROOM + ROOM)
    memory.push([bytes(largest + 1), b"next", bytes(largest)])
    with source(memory, small) as driver:
        assert [p.data for p in driver.receive(1)] == [b"next"]
        assert [p.data for p in driver.receive(1)] == [bytes(largest)]
        assert driver.drops() == {"no_room": 1}


def test_a_packet_larger_than_the_ring_is_dropped_with_its_reason_and_the_others_stay(pool):
    with MemoryPort(size=256) as memory, sink(memory, pool) as driver:
        assert driver.transmit([b"a", bytes(225), b"b"]) == 0
        assert driver.drops() == {"too_large": 1}
        assert [p.data for p in memory.pull()] == [b"a", b"b"]


def test_a_full_ring_refuses_the_rest_in_order(pool):
    with MemoryPort(size=256) as memory, sink(memory, pool) as driver:
        frames = numbered(6, 32)
        assert driver.transmit(frames) == 2
        assert [p.data for p in memory.pull()] == frames[:4]


@pytest.mark.parametrize("length", [225, 5000])
def test_a_frame_larger_than_the_ring_is_an_error_and_nothing_is_taken(length, pool):
    with MemoryPort(size=256) as memory:
        with pytest.raises(GraphError, match=f"frame 1 has {length} bytes, the memory port takes at most 224"):
            memory.push([b"fits", bytes(length)])
        assert memory.push([bytes(224)]) == 1
        with source(memory, pool) as driver:
            assert [len(p) for p in driver.receive()] == [224]


def test_no_frames_at_all_are_taken_at_once(memory):
    assert memory.push([]) == 0
    assert memory.push_columns(np.zeros(0, np.uint8), []) == 0
    assert memory.pull() == []


@given(st.lists(st.binary(max_size=50), max_size=12), st.booleans())
def test_columns_go_in_and_come_out(pool, frames, wide):
    lengths = [len(f) for f in frames]
    data = np.frombuffer(b"".join(f.ljust(50, b"\xff") if wide else f for f in frames), np.uint8)
    times = np.arange(len(frames)) + 10
    with MemoryPort() as memory, source(memory, pool) as into, sink(memory, pool) as out:
        assert memory.push_columns(data.reshape(-1, 50) if wide else data, lengths, time=times) == len(frames)
        out.transmit(into.receive())
        got = memory.pull_columns()
        assert [got.data[a : a + n].tobytes() for a, n in zip(got.offset, got.length, strict=True)] == frames
        assert (got.time.tolist(), got.wire.tolist(), len(got)) == (times.tolist(), lengths, len(frames))


@pytest.mark.parametrize("lengths", [[5, 6], [11], [-1], [[1]]])
def test_lengths_that_do_not_fit_the_data_are_refused(memory, lengths):
    with pytest.raises(GraphError, match="do not fit data of shape"):
        memory.push_columns(np.zeros(10, np.uint8), lengths)


def test_rows_shorter_than_their_length_are_refused(memory):
    with pytest.raises(GraphError, match="do not fit data of shape"):
        memory.push_columns(np.zeros((2, 10), np.uint8), [5, 5, 5])


def test_scapy_packets_go_in_and_come_out(memory, pool):
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    made = Ether(dst="02:00:00:00:00:01") / IP(dst="10.0.0.1") / UDP(dport=53)
    with source(memory, pool) as into, sink(memory, pool) as out:
        memory.push([made])
        out.transmit(into.receive())
    (packet,) = memory.pull()
    assert packet.to_scapy()[UDP].dport == 53


def test_a_push_that_waits_gives_up_after_its_time(pool):
    with MemoryPort(size=256) as memory:
        assert memory.push(numbered(9, 32), timeout=0.01) == 4
        assert memory.push(numbered(1, 32), timeout=0.0) == 0


def test_a_pull_that_waits_gives_up_after_its_time(memory):
    assert memory.pull(timeout=0.01) == []


def test_a_push_that_waits_is_woken_by_the_worker(pool):
    frames = numbered(200, 32)
    with MemoryPort(size=256) as memory, source(memory, pool) as driver:
        taken = []
        pusher = threading.Thread(target=lambda: taken.append(memory.push(frames, timeout=None)))
        pusher.start()
        got = []
        while len(got) < len(frames):
            got += [p.data for p in driver.receive()]
        pusher.join()
        assert (taken, got) == ([200], frames)


def test_iteration_waits_for_packets_and_ends_with_the_run(pool):
    frames = numbered(300, 32)
    with MemoryPort(size=1024) as memory:
        driver = sink(memory, pool, burst=8)
        got = []
        puller = threading.Thread(target=lambda: got.extend(p.data for p in memory))
        puller.start()
        for at in range(0, len(frames), 5):
            rest = frames[at : at + 5]
            while rest:
                rest = rest[len(rest) - driver.transmit(rest) :]
        driver.close()
        puller.join()
        assert got == frames


def test_several_threads_push_and_pull_and_each_packet_arrives_once(pool):
    with MemoryPort(size=2048) as memory:
        into, out = source(memory, pool), sink(memory, pool)
        frames = [numbered(300, 40 + k) for k in range(2)]
        pushers = [threading.Thread(target=memory.push, args=(f,), kwargs={"timeout": None}) for f in frames]
        got = [[], []]
        pullers = [threading.Thread(target=lambda mine=mine: mine.extend(memory)) for mine in got]
        for thread in pushers + pullers:
            thread.start()
        sent = 0
        while sent < 600:
            burst = into.receive(16)
            sent += len(burst)
            while burst:
                burst = burst[len(burst) - out.transmit(burst) :]
        into.part.close()
        into.release()
        out.close()
        for thread in pushers + pullers:
            thread.join()
        assert sorted(p.data for mine in got for p in mine) == sorted(frames[0] + frames[1])
        for mine in got:
            for size in (40, 41):
                assert [p.data for p in mine if len(p) == size] == sorted(p.data for p in mine if len(p) == size)


def readable(fd):
    return bool(select.select([fd], [], [], 0)[0])


def test_an_idle_worker_is_woken_by_a_push_and_not_again_afterwards(memory, pool):
    with source(memory, pool) as driver:
        (fd,) = driver.placement.fds
        driver.receive()
        assert not readable(fd)
        memory.push([b"a"])
        assert readable(fd)
        assert [p.data for p in driver.receive()] == [b"a"]
        driver.receive()
        assert not readable(fd)


def test_an_idle_worker_is_woken_by_the_end_of_input(memory, pool):
    with source(memory, pool) as driver:
        driver.receive()
        memory.close_input()
        assert readable(driver.placement.fds[0])


def test_what_is_pushed_between_a_look_and_the_sleep_wakes_too(memory, pool):
    with source(memory, pool) as driver:
        (fd,) = driver.placement.fds
        for turn in range(5):
            driver.receive()
            memory.push([b"%d" % turn])
            assert readable(fd)
            assert len(driver.receive()) == 1


def test_a_busy_worker_costs_no_system_call(memory, pool):
    with source(memory, pool) as driver:
        memory.push([b"a"])
        memory.push([b"b"])
        assert not readable(driver.placement.fds[0])
        assert len(driver.receive()) == 2


def test_data_survive_the_end_of_the_run_and_of_its_pool():
    with MemoryPort() as memory:
        with PacketPool(64) as pool, sink(memory, pool) as driver:
            driver.transmit(numbered(20))
        assert [p.data for p in memory] == numbered(20)


def test_a_closed_port_is_empty_and_usable_again(memory, pool):
    with sink(memory, pool) as driver:
        driver.transmit([b"a"])
    memory.close()
    assert memory.pull() == []


def test_a_port_that_a_run_uses_is_not_closed_and_the_run_goes_on():
    frames = numbered(20)
    with port("memory:in") as into, port("memory:out") as out:
        with start(into >> out) as running:
            for one in (into, out):
                with pytest.raises(GraphError, match=f"a run still uses {one.name}; stop it"):
                    one.close()
            into.push(frames)
            into.close_input()
            assert running.wait(60)
        assert [p.data for p in out] == frames
        assert running.report().balanced


def test_an_error_in_the_port_s_with_is_told_and_a_run_that_still_uses_it_ends_well():
    with pytest.raises(RuntimeError, match="the user's own"), port("memory:in") as into, port("memory:out") as out:
        running = start(into >> out)
        into.push(numbered(5))
        assert len(out.pull(timeout=60)) > 0
        raise RuntimeError("the user's own")
    assert running.alive
    running.stop()
    assert running.wait(60)
    report = running.report()
    assert (report.balanced, report.notes, report.errors) == (True, (), ())


def test_a_port_s_memory_is_given_back_when_it_is_closed_even_where_its_run_is_kept():
    with port("memory:in") as into, port("memory:out") as out:
        into.close_input()
        running = start(into >> out)
        assert running.wait(60)
        rings = [into._queue("source"), out._queue("sink")]
    assert [ring.fd for ring in rings] == [-1, -1]
    assert running.report().balanced


def test_a_thread_that_waits_in_a_port_is_told_when_another_one_closes_it():
    full = numbered(9, 32)
    memory = MemoryPort(size=256)
    said, waiting = [], [threading.Event(), threading.Event()]

    def wait(number, act):
        waiting[number].set()
        try:
            act()
        except GraphError as error:
            said.append(str(error))

    threads = [
        threading.Thread(target=wait, args=(0, lambda: memory.push(full, timeout=None))),
        threading.Thread(target=wait, args=(1, lambda: memory.pull(timeout=None))),
    ]
    for thread, begun in zip(threads, waiting, strict=True):
        thread.start()
        begun.wait()
    time.sleep(0.05)  # so that they are most likely in their wait; what is asserted holds wherever they are
    while any(thread.is_alive() for thread in threads):
        memory.close()
        time.sleep(0.001)
    assert said == ["memory: was closed by another thread meanwhile; end those that wait in it first"] * 2


@pytest.mark.parametrize("size", ["100", "0", "lots", "1e15"])
def test_a_size_out_of_range_is_refused(size):
    with pytest.raises(GraphError, match=f"memory option size: got '{size}', wanted a number of bytes"):
        port(f"memory:size={size}")


def test_a_running_graph_passes_what_is_pushed_and_ends_with_its_input():
    with port("memory:in") as into, port("memory:out") as out:
        with start(into >> out) as running:
            for turn in range(20):
                into.push([b"%d" % turn])
                assert [p.data for p in out.pull(timeout=60)] == [b"%d" % turn]
            into.close_input()
            assert running.wait(60)
        report = running.report()
        assert (report.balanced, report.packets, report.pool_free) == (True, 20, report.pool_size)


@function
def same(pkt):
    """Forward everything."""
    return FORWARD


@pytest.mark.parametrize("workers", [1, 2])
def test_one_port_is_source_and_sink_of_one_graph_and_nothing_is_lost_when_it_is_small(workers):
    frames = numbered(500)
    with MemoryPort(size=1024) as both:
        with start(both >> same >> both, workers=workers) as running:
            pusher = threading.Thread(target=lambda: (both.push(frames, timeout=None), both.close_input()))
            pusher.start()
            got = [p.data for p in both]
            pusher.join()
            assert running.wait(60)
        assert sorted(got) == frames
        assert workers > 1 or got == frames
        assert running.report().balanced


def test_a_mark_that_nobody_set_is_zero_whatever_the_buffer_carried_before(memory):
    with PacketPool(1) as pool, source(memory, pool) as into:
        for mark in (7, 0):
            memory.push([Packet(b"a", mark=mark)])
            assert [p.mark for p in into.receive()] == [mark]


def test_counters_wrap_around_nothing_at_two_to_the_32_bytes(pool):
    with MemoryPort(size=256) as memory:
        into = source(memory, pool)
        ring = memory._queue("source")._ring
        ring.prod.position = ring.cons.position = (1 << 32) - 64
        for turn in range(5):
            memory.push([b"%d" % turn])
            assert [p.data for p in into.receive()] == [b"%d" % turn]
        assert ring.prod.position > 1 << 32
        into.close()


def test_waiting_threads_do_not_hold_the_interpreter(memory):
    waiter = threading.Thread(target=memory.pull, kwargs={"timeout": 0.2})
    waiter.start()
    turns = 0
    while waiter.is_alive():
        turns += 1
        time.sleep(0)
    assert turns > 1
