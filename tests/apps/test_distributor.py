"""The distributor sample: which worker had which packet, what comes out, and what DPDK's sample does wrong."""

import struct
import threading
import time
from collections import defaultdict

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader, wrpcap

import wirespeed as ws
from tests.elements import SEATS, Seated, State, rise, sit
from wirespeed.apps.distributor import distributor, placed
from wirespeed.core.packet import Packet, data
from wirespeed.engine.running import Running
from wirespeed.jit.intrinsics import load_i64, load_u8, pause, store_i64
from wirespeed.jit.kernel import stage

i64, u32 = np.int64, np.uint32
PATIENCE_S = 60
PORT, NUMBER, WORKER = 34, 42, 50  # where in a frame its source port is, and what its payload has


@stage
def stamp(state, burst, n):
    """Write the worker's number into each packet; count in ``limit`` flows that another worker has at the same time."""
    s = State(state)
    for i in range(n):
        at = data(Packet(load_i64(burst + 8 * i)))
        sit(s, i64(load_u8(at + PORT + 1) & (SEATS - 1)))
        store_i64(at + WORKER, s.k)
    for _ in range(200):
        pause()
    for i in range(n):
        rise(s, i64(load_u8(data(Packet(load_i64(burst + 8 * i))) + PORT + 1) & (SEATS - 1)))
    return n


class Stamper(Seated):
    """Each packet says afterwards which worker had it."""

    def __init__(self) -> None:
        super().__init__("stamp", stamp)


def frame(flow: int) -> bytes:
    """The headers of a flow's packets."""
    udp = UDP(sport=0x1000 + flow, dport=9)
    return bytes(Ether(dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / udp / bytes(16))[:NUMBER]


HEADERS = [frame(flow) for flow in range(SEATS)]


def frames(count: int) -> list[bytes]:
    """Numbered packets of 16 flows, which come in turn, with a step now and then."""
    return [HEADERS[(n + n // 37) % SEATS] + struct.pack("<qq", n, -1) for n in range(count)]


def read(path) -> list[bytes]:
    with RawPcapReader(str(path)) as capture:
        return [data for data, *_ in capture]


def parted(packets) -> list[tuple[int, int, int]]:
    """Of each packet: its flow, its number, and the worker that had it."""
    return [(p[PORT + 1], *struct.unpack("<qq", p[NUMBER : NUMBER + 16])) for p in map(bytes, packets)]


def in_order_by_flow(found) -> bool:
    last: dict[int, int] = defaultdict(lambda: -1)
    for flow, number, _ in found:
        if number <= last[flow]:
            return False
        last[flow] = number
    return True


@pytest.fixture
def late_workers(monkeypatch):
    """Until the event that it gives is set, no worker of a crew is there."""
    begin = threading.Event()
    work = Running._work

    def wait(self, crew, copy):
        if crew.stage:
            begin.wait(PATIENCE_S)
        work(self, crew, copy)

    monkeypatch.setattr(Running, "_work", wait)
    yield begin
    begin.set()


def wait_until(what, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


# ---------------------------------------------------------------------------------------------------------------------
# What goes where


@pytest.mark.parametrize("mode", ["burst", "single"])
@pytest.mark.parametrize("ordered", [False, True])
def test_every_packet_of_a_capture_comes_out_once_and_a_flow_is_on_one_worker_at_a_time(tmp_path, mode, ordered):
    wrpcap(str(tmp_path / "in.pcap"), frames(6_000))
    stamper = Stamper()
    graph = distributor(
        ws.port(f"pcap:{tmp_path}/in.pcap"), stamper, ws.port(f"pcap:{tmp_path}/out.pcap"), workers=3, mode=mode,
        ordered=ordered,
    )  # fmt: skip
    report = ws.run(graph)
    found = parted(read(tmp_path / "out.pcap"))
    numbers = [number for _, number, _ in found]
    assert sorted(numbers) == list(range(6_000))
    assert numbers == sorted(numbers) if ordered else in_order_by_flow(found)
    assert stamper.clashes == 0
    counters = report.stage("distribute").counters
    had = [sum(worker == i for _, _, worker in found) for i in range(3)]
    assert had == [counters[f"worker {i}"].packets for i in range(3)]
    assert report.balanced and report.dropped == 0


def test_with_a_function_that_chooses_what_it_calls_one_is_on_one_worker_at_a_time():
    @ws.function
    def by(pkt):
        return pkt.udp.sport & 1

    memory, stamper = ws.port("memory:"), Stamper()
    packets = frames(8_000)
    for i, packet in enumerate(packets):  # two seats, one for each number that the function gives
        packets[i] = packet[: PORT + 1] + bytes([packet[PORT + 1] & 1]) + packet[PORT + 2 :]
    assert memory.push(packets) == len(packets)
    memory.close_input()
    report = ws.run(distributor(memory, stamper, memory, workers=3, by=by))
    found = parted(memory.pull())
    assert len(found) == 8_000 and in_order_by_flow(found) and stamper.clashes == 0
    assert report.balanced


def test_what_a_function_sends_to_its_outputs_goes_to_their_ports(tmp_path):
    @ws.function
    def by_parity(pkt):
        return pkt.udp.sport & 1

    wrpcap(str(tmp_path / "in.pcap"), frames(1_000))
    outs = [ws.port(f"pcap:{tmp_path}/{k}.pcap") for k in range(2)]
    report = ws.run(distributor(ws.port(f"pcap:{tmp_path}/in.pcap"), by_parity, *outs, workers=2))
    parts = [parted(read(tmp_path / f"{k}.pcap")) for k in range(2)]
    assert sorted(number for part in parts for _, number, _ in part) == list(range(1_000))
    assert all(flow & 1 == k for k, part in enumerate(parts) for flow, _, _ in part)
    assert report.balanced


def test_many_flows_of_a_generator_are_shared_out():
    report = ws.run(distributor(ws.port("generator:flows=500,count=50000"), None, ws.port("null:"), workers=2))
    counters = report.stage("distribute").counters
    assert sum(counters[f"worker {i}"].packets for i in range(2)) == report.packets == 50_000
    assert report.balanced


# ---------------------------------------------------------------------------------------------------------------------
# What DPDK's sample does wrong


def test_what_no_worker_is_there_for_waits_and_none_of_it_leaks(late_workers):
    # It ignores how many packets rte_distributor_process took: with no worker active, all of them leak.
    running = ws.start(distributor(ws.port("null:count=50000"), None, ws.port("null:"), workers=2))
    with running:
        wait_until(lambda: running.report().stage("distribute").held > 0)
        time.sleep(0.05)
        waiting = running.report()
        assert waiting.packets == waiting.dropped == 0
        assert 0 < waiting.received < 10_000, "the source waits, too"
        counters = waiting.stage("distribute").counters
        assert counters["distributor"].blocked == "no worker is there"
        assert [counters[f"worker {i}"].state for i in range(2)] == ["away", "away"]
        late_workers.set()
        assert running.wait(PATIENCE_S)
    report = running.report()
    assert (report.packets, report.dropped, report.balanced) == (50_000, 0, True)


def test_a_run_that_is_stopped_before_any_worker_is_there_loses_nothing_either(late_workers):
    running = ws.start(distributor(ws.port("null:"), None, ws.port("null:"), workers=2))
    with running:
        wait_until(lambda: running.report().stage("distribute").held > 0)
        running.stop()
        late_workers.set()
    report = running.report()
    assert report.received == report.packets + report.dropped > 0
    assert report.balanced and report.pool_free == report.pool_size


@pytest.mark.parametrize("ordered", [False, True])
def test_a_packet_comes_back_though_none_follows_it(ordered):
    # It looks for what is back only when packets arrive, so the last ones stay until there is traffic again.
    memory = ws.port("memory:")
    with ws.start(distributor(memory, None, memory, workers=2, ordered=ordered)) as running:
        for number, packet in enumerate(frames(20)):
            memory.push([packet])
            (back,) = memory.pull(timeout=PATIENCE_S)
            assert parted([back])[0][1] == number
            time.sleep(0.01 * (number % 3))
    assert running.report().balanced


def test_a_packet_for_an_output_that_is_not_there_is_dropped_and_counted():
    # It puts packets for a port that is not enabled into no buffer, and frees them nowhere.
    @ws.function
    def elsewhere(pkt):
        return pkt.udp.sport & 1

    memory = ws.port("memory:")
    memory.push(frames(1_000))
    memory.close_input()
    report = ws.run(distributor(memory, elsewhere, ws.port("null:"), workers=2))
    assert report.packets + report.dropped == report.received == 1_000
    assert report.stage("elsewhere").drops == {"no_output": report.dropped} and report.dropped > 300
    assert report.balanced and report.pool_free == report.pool_size


def test_a_port_that_takes_nothing_more_holds_everything_back_and_what_waits_for_it_is_counted():
    memory = ws.port("memory:", size="4KB")  # room for some packets, and nobody pulls
    with ws.start(distributor(ws.port("null:"), None, memory, workers=2)) as running:
        wait_until(lambda: running.report().stage("memory:").refused > 10)
        received = running.report().received
        time.sleep(0.05)
        assert running.report().received - received < 10_000
    report = running.report()
    assert report.packets == memory.waiting > 0
    assert report.received == report.packets + report.dropped and report.balanced


def test_at_the_end_the_source_stops_first_and_the_workers_last_so_all_is_delivered():
    # Its parts leave in an order that a comment hopes for; what is on its way between them is lost.
    for pause_s in (0.0, 0.001, 0.02):
        running = ws.start(distributor(ws.port("generator:flows=99"), Stamper(), ws.port("null:"), workers=2))
        with running:
            wait_until(lambda: running.report().packets > 0)  # noqa: B023 (called before the next turn)
            time.sleep(pause_s)
        report = running.report()
        assert report.received == report.packets > 0
        assert report.dropped == 0 and report.balanced


# ---------------------------------------------------------------------------------------------------------------------
# What is refused, and where threads are


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"workers": 257}, "workers must be 1 to 256, got 257"),
        ({"workers": 2, "mode": "bulk"}, "mode must be 'burst' or 'single', got 'bulk'"),
        ({"workers": 2, "mode": "single", "burst": 7}, "mode 'single' sends one packet in a line, got 7"),
        ({"workers": 2, "lines": 3}, "lines must be a power of two"),
        ({"workers": 2, "by": "hash"}, 'by must be "flow" or a function'),
    ],
)
def test_what_cannot_work_is_refused(how, message):
    with pytest.raises(ws.GraphError, match=message):
        distributor(ws.port("null:"), None, ws.port("null:"), **how)


def test_without_a_port_behind_the_workers_it_is_refused():
    with pytest.raises(ws.GraphError, match="got no port behind the workers"):
        distributor(ws.port("null:"), None, workers=1)


def test_the_first_core_is_the_distributors_and_the_workers_have_the_others_in_turn():
    assert placed([4], 3) == [4]
    assert placed([4, 5], 3) == [4, 5, 5, 5]
    assert placed([4, 5, 6], 3) == [4, 5, 6, 5]
    assert placed([4, 5, 6, 7], 2) == [4, 5, 6]
