"""``ws.distribute``: which worker had which packet, in what order they come out, and where each one is counted."""

import json
import logging
import time
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirespeed as ws
from tests.elements import (
    SEATS,
    Seated,
    State,
    TestElement,
    deal,
    drop_odd,
    hold_some,
    never_return,
    rise,
    sink,
    sit,
    source,
)
from wirespeed.core.free import free_bulk
from wirespeed.core.packet import Packet, data, reset
from wirespeed.core.pool import alloc_bulk
from wirespeed.core.stage import emit
from wirespeed.jit.intrinsics import load_i64, load_u64, pause, store_i64, store_u64
from wirespeed.jit.kernel import stage

i64, u64, u32 = np.int64, np.uint64, np.uint32


@ws.function
def by_number(pkt):
    """The tag of the packets that tests number: the lowest bits of the number."""
    return pkt.frame[0] & 15


@stage
def note_worker(state, burst, n):
    """Write the worker's number into each packet; count in ``limit`` the tags that another worker has at the same time."""
    s = State(state)
    for i in range(n):
        at = data(Packet(load_i64(burst + 8 * i)))
        sit(s, i64(load_u64(at) & u64(SEATS - 1)))
        store_u64(at, load_u64(at) | u64(s.k + 1) << u64(56))
    for _ in range(100):
        pause()
    for i in range(n):
        rise(s, i64(load_u64(data(Packet(load_i64(burst + 8 * i)))) & u64(SEATS - 1)))
    return n


class Watch(Seated):
    """Sees which worker has which packet."""

    def __init__(self) -> None:
        super().__init__("watch", note_worker)


def parted(numbers: list[int]) -> tuple[list[int], list[int]]:
    """Numbers of packets and, for each, the worker's that had it."""
    return [n & (1 << 56) - 1 for n in numbers], [(n >> 56) - 1 for n in numbers]


def in_order_by_tag(numbers: list[int]) -> bool:
    last: dict[int, int] = defaultdict(lambda: -1)
    for n in numbers:
        if n <= last[n & 15]:
            return False
        last[n & 15] = n
    return True


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("workers", "burst", "lines"), [(1, None, None), (3, None, None), (2, 1, 1), (3, 7, 2), (2, 31, 1)]
)
def test_a_tag_is_never_on_two_workers_at_once_and_keeps_its_order(workers, burst, lines, ordered):
    out, watch = sink(), Watch()
    spread = ws.distribute(watch, workers=workers, by=by_number, burst=burst, lines=lines, ordered=ordered)
    report = ws.run(source(50_000) >> spread >> out)
    numbers, by = parted(out.numbers)
    assert sorted(numbers) == list(range(50_000))
    assert in_order_by_tag(numbers)
    assert not ordered or numbers == list(range(50_000))
    assert watch.clashes == 0
    assert set(by) <= set(range(workers))
    assert report.balanced and report.dropped == 0
    assert (report.received, report.packets) == (50_000, 50_000)


@ws.function
def each_its_own(pkt):
    """A tag for every packet."""
    return pkt.frame[0] + (pkt.frame[1] << 8)


def test_all_workers_have_a_part():
    out = sink()
    ws.run(source(100_000) >> ws.distribute(Watch(), workers=3, by=each_its_own) >> out)
    assert set(parted(out.numbers)[1]) == {0, 1, 2}


def test_a_flow_that_is_on_no_worker_may_come_to_another_one():
    # The port's packets are one flow; each is back before the next is sent.
    with ws.port("memory:") as port, ws.start(port >> ws.distribute(Watch(), workers=2) >> port):
        workers = set()
        for _ in range(40):
            port.push([bytes(64)])
            (packet,) = port.pull(timeout=20)
            workers.add(packet.data[7])
    assert workers == {1, 2}


def test_packets_of_one_flow_are_with_one_worker_at_a_time_and_in_order():
    # Frames without IP hash to 0: they are one flow, so everything keeps its order.
    out = sink()
    report = ws.run(source(20_000) >> ws.distribute(Watch(), workers=3) >> out)
    assert parted(out.numbers)[0] == list(range(20_000))
    assert report.balanced


@pytest.mark.parametrize("ordered", [False, True])
def test_the_output_that_the_function_chose_is_the_output_of_the_stage(ordered):
    outs = [sink(name=f"out{k}") for k in range(4)]
    spread = ws.distribute(TestElement("deal", deal, k=4), workers=2, by=by_number, ordered=ordered)
    report = ws.run(source(10_000) >> spread >> tuple(outs))
    for k, out in enumerate(outs):
        assert sorted(out.numbers) == list(range(k, 10_000, 4))
        assert not ordered or out.numbers == sorted(out.numbers)
    assert report.balanced
    assert report.stage("distribute").outputs == (2500, 2500, 2500, 2500)


@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_worker_drops_is_counted_at_the_stage_under_one_reason_and_explained_by_the_rows_of_the_crew(ordered):
    out = sink()
    spread = ws.distribute(TestElement("odd", drop_odd), workers=3, by=by_number, ordered=ordered)
    report = ws.run(source(20_000) >> spread >> out)
    assert sorted(out.numbers) == list(range(0, 20_000, 2))
    assert not ordered or out.numbers == sorted(out.numbers)
    assert report.stage("distribute").drops == {"dropped_by_worker": 10_000}
    assert report.stage("odd").drops == {"odd": 10_000} and report.stage("odd").crew == "distribute"
    assert report.dropped == 10_000 and report.balanced
    assert "the rows of the crew's stages say why" in str(report)


def test_without_a_function_the_workers_pass_packets_on():
    out = sink()
    report = ws.run(source(10_000) >> ws.distribute(workers=2, by=by_number) >> out)
    assert sorted(out.numbers) == list(range(10_000))
    assert [s.name for s in report.stages if s.crew] == ["from distribute", "to distribute"]


def test_a_chain_of_stages_is_run_by_the_workers():
    out, flows = sink(), ws.FlowCounter()
    chain = TestElement("odd", drop_odd) >> flows >> Watch()
    report = ws.run(source(10_000) >> ws.distribute(chain, workers=2, by=by_number) >> out)
    assert sorted(parted(out.numbers)[0]) == list(range(0, 10_000, 2))
    assert report.balanced
    assert flows.table()["packets"].sum() == 5_000


def test_a_tag_that_is_drop_drops_the_packet_and_any_other_number_is_a_tag():
    @ws.function
    def by(pkt):
        n = pkt.frame[0]
        return ws.DROP if n & 3 == 1 else n if n & 3 == 0 else -n if n & 3 == 2 else n << 40

    out = sink()
    report = ws.run(source(4_096) >> ws.distribute(workers=2, by=by) >> out)
    assert sorted(out.numbers) == [n for n in range(4_096) if n & 3 != 1]
    assert report.stage("distribute").drops == {"said_drop": 1_024}
    assert report.balanced


def test_the_state_of_the_function_that_chooses_tags_is_kept_and_its_counters_reported():
    Count = ws.layout("Count", [("asked", "u8")])

    @ws.function(state=Count)
    def by(pkt, my):
        my.asked += 1
        return my.asked

    report = ws.run(source(5_000) >> ws.distribute(workers=2, by=by) >> sink())
    assert report.stage("distribute").counters["by.asked"] == 5_000


def test_the_functions_counters_are_summed_over_the_workers():
    Count = ws.layout("Count", [("seen", "u8")])

    @ws.function(state=Count)
    def look(pkt, my):
        my.seen += 1
        return ws.FORWARD

    report = ws.run(source(5_000) >> ws.distribute(look, workers=3, by=by_number) >> sink())
    assert report.stage("look").counters["seen"] == 5_000


def test_flows_of_generated_packets_are_spread_by_their_hash():
    report = ws.run(ws.port("generator:flows=500,count=50000") >> ws.distribute(workers=2) >> ws.port("null:"))
    shares = report.stage("distribute").counters
    assert report.balanced and sum(shares[f"worker {i}"].packets for i in range(2)) == 50_000
    assert all(shares[f"worker {i}"].packets > 5_000 for i in range(2))


def test_the_report_says_what_each_worker_was_given():
    report = ws.run(source(10_000) >> ws.distribute(workers=2, by=by_number, burst=7) >> sink())
    shares = [report.stage("distribute").counters[f"worker {i}"] for i in range(2)]
    assert sum(s.packets for s in shares) == 10_000
    assert all(sum(size * n for size, n in s.sizes.items()) == s.packets for s in shares)
    assert all(set(s.sizes) <= set(range(1, 8)) for s in shares)
    assert "distribute worker 1: " in str(report)
    plain = json.loads(report.to_json())["stages"][1]["counters"]["worker 0"]
    assert plain["packets"] == shares[0].packets
    assert [(s.in_flight, s.waiting, s.pinned, s.takeovers, s.state) for s in shares] == [(0, 0, 0, 0, "active")] * 2
    # How many had to be parked on the way is the machine's affair: a thread that waits for a core counts as stalled.
    assert str(report.stage("distribute").counters["distributor"]).startswith("0 packets parked now, ")


# ---------------------------------------------------------------------------------------------------------------------
# Back-pressure and the end


@pytest.mark.parametrize("ordered", [False, True])
def test_a_slow_sink_holds_everything_back_and_nothing_is_lost(ordered):
    slow = sink(k=1)
    report = ws.run(source(10_000) >> ws.distribute(workers=2, by=by_number, ordered=ordered) >> slow)
    assert sorted(slow.numbers) == list(range(10_000))
    assert report.balanced and report.dropped == 0


@stage
def dawdle(state, burst, n):
    """Take some microseconds for each packet."""
    for _ in range(n * State(state).k):
        pause()
    return n


@pytest.mark.parametrize("ordered", [False, True])
def test_slow_workers_hold_the_source_back_and_nothing_is_lost(ordered):
    out = sink()
    spread = ws.distribute(TestElement("slow", dawdle, k=100), workers=2, by=by_number, ordered=ordered, lines=2)
    report = ws.run(source(20_000) >> spread >> out, burst=256)
    assert sorted(out.numbers) == list(range(20_000))
    assert report.balanced and report.dropped == 0


def test_a_slow_output_beside_a_fast_one_loses_nothing():
    slow, fast = sink(k=1, name="slow"), sink(name="fast")
    spread = ws.distribute(TestElement("deal", deal, k=2), workers=2, by=by_number)
    report = ws.run(source(10_000) >> spread >> (fast, slow), burst=256)
    assert sorted(slow.numbers) == list(range(1, 10_000, 2))
    assert sorted(fast.numbers) == list(range(0, 10_000, 2))
    assert report.balanced and report.dropped == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_run_that_is_stopped_brings_all_packets_back(ordered):
    spread = ws.distribute(Watch(), workers=3, by=by_number, ordered=ordered)
    with ws.start(ws.port("null:") >> spread >> ws.port("null:")) as running:
        while running.report().packets < 10_000:
            time.sleep(0.01)
    report = running.report()
    assert report.balanced and report.dropped == 0
    assert report.received == report.packets


def test_a_run_that_is_stopped_at_once_ends_whole():
    for _ in range(5):
        with ws.start(ws.port("null:") >> ws.distribute(workers=3) >> ws.port("null:")) as running:
            pass
        assert running.report().balanced


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_with_a_worker_that_hangs_when_the_run_is_stopped_is_counted(ordered, caplog):
    out = sink()
    spread = ws.distribute(TestElement("stuck", never_return), workers=2, by=by_number, ordered=ordered)
    with caplog.at_level(logging.WARNING, "wirespeed"), ws.start(source(5_000) >> spread >> out) as running:
        deadline = time.monotonic() + 20
        while not running.report().notes and time.monotonic() < deadline:
            time.sleep(0.05)
        stuck = running.report()
    report = running.report()
    assert any("has been in stuck for" in note for note in report.notes)
    assert stuck.stage("distribute").counters["distributor"].blocked in ("worker 0 has no room", "worker 1 has no room")
    assert report.balanced
    assert report.received == report.packets + report.dropped
    assert set(report.stage("distribute").drops) == {"stopped"}


@stage
def hang_at_three(state, burst, n):
    """Stay with a packet whose lowest bits are 3 until the stop word is set."""
    s = State(state)
    for i in range(n):
        if load_u64(data(Packet(load_i64(burst + 8 * i)))) & u64(15) == u64(3):
            while load_u64(s.head.stop) & u64(0xFFFFFFFF) == u64(0):
                pause()
    return n


def test_one_worker_that_hangs_keeps_its_tags_and_the_others_go_on():
    # Few packets have the tag that hangs: they are parked, and the other worker has all the rest.
    out = sink()
    spread = ws.distribute(TestElement("hang", hang_at_three), workers=2, by=mostly_others, burst=1, lines=1)
    with ws.start(source(10_000) >> spread >> out) as running:
        deadline = time.monotonic() + 30
        while running.report().packets < 9_000 and time.monotonic() < deadline:
            time.sleep(0.05)
        at_hang = running.report()
    assert at_hang.packets >= 9_000
    counters = at_hang.stage("distribute").counters
    # The other one may have waited for a core, and its packets have been parked for a moment.
    assert "stalled" in [counters[f"worker {i}"].state for i in range(2)]
    assert 0 < counters["distributor"].parked <= counters["distributor"].parked_ever
    assert running.report().balanced


@ws.function
def mostly_others(pkt):
    """One tag for the packets that hang, and another each for the others."""
    number = pkt.frame[0] + (pkt.frame[1] << 8)
    return 3 if number & 15 == 3 else number


def test_a_pool_that_is_too_small_slows_a_run_and_loses_nothing():
    out = sink()
    report = ws.run(
        source(5_000) >> ws.distribute(TestElement("odd", drop_odd), workers=3, by=by_number) >> out, pool=64
    )
    assert sorted(out.numbers) == list(range(0, 5_000, 2))
    assert report.balanced


def test_a_pool_in_whose_caches_all_packets_could_lie_is_refused():
    with pytest.raises(ws.GraphError, match=r"pool must be at least twice the burst of 32, got 33.* 4 workers"):
        ws.run(source(1) >> ws.distribute(workers=3) >> sink(), pool=33)


# ---------------------------------------------------------------------------------------------------------------------
# Stages that do odd things


@stage
def replace(state, burst, n):
    """Put another packet with the same number in the place of each."""
    s = State(state)
    n = min(n, alloc_bulk(s.head.cache, s.array, n))
    for i in range(n):
        old, new = load_i64(burst + 8 * i), load_i64(s.array + 8 * i)
        reset(Packet(new), 64)
        store_u64(data(Packet(new)), load_u64(data(Packet(old))))
    free_bulk(s.head.cache, burst, n)
    for i in range(n):
        store_i64(burst + 8 * i, load_i64(s.array + 8 * i))
    return n


@stage
def double(state, burst, n):
    """Send a second packet by output 1 for each."""
    s = State(state)
    alloc_bulk(s.head.cache, s.array, n)
    for i in range(n):
        new = load_i64(s.array + 8 * i)
        reset(Packet(new), 64)
        store_u64(data(Packet(new)), load_u64(data(Packet(load_i64(burst + 8 * i)))))
        emit(state, i64(1), new)
    return n


def test_packets_that_take_the_place_of_others_come_back_in_it():
    out = sink()
    report = ws.run(
        source(5_000) >> ws.distribute(TestElement("replace", replace), workers=2, ordered=True, by=by_number) >> out
    )
    assert out.numbers == list(range(5_000))
    assert report.balanced


def test_packets_beyond_those_that_came_are_dropped_and_counted():
    first, second = sink(name="first"), sink(name="second")
    report = ws.run(
        source(5_000) >> ws.distribute(TestElement("double", double), workers=2, by=by_number) >> (first, second)
    )
    assert sorted(first.numbers + second.numbers) == list(range(5_000))
    surplus = sum(s.drops.get("surplus", 0) for s in report.stages if s.crew)
    assert surplus == 5_000
    assert report.received == report.packets
    assert report.pool_free == report.pool_size


def test_while_a_stage_holds_packets_of_a_line_its_tags_stay_with_the_worker():
    out = sink()
    chain = TestElement("hold", hold_some, k=3) >> Watch()
    report = ws.run(source(10_000) >> ws.distribute(chain, workers=3, by=by_number) >> out)
    assert sorted(parted(out.numbers)[0]) == list(range(10_000))
    assert report.balanced


def test_a_distributing_stage_inside_another_one():
    out = sink()
    inner = ws.distribute(Watch(), workers=2, by=by_number)
    report = ws.run(source(10_000) >> ws.distribute(inner, workers=1, by=by_number) >> out)
    numbers, _ = parted(out.numbers)
    assert sorted(numbers) == list(range(10_000)) and in_order_by_tag(numbers)
    assert report.balanced and len(report.workers) == 4


def test_two_distributing_stages_in_one_graph():
    out = sink()
    first, second = ws.distribute(workers=1, by=by_number), ws.distribute(Watch(), workers=2, by=by_number)
    report = ws.run(source(10_000) >> first >> second >> out)
    numbers, _ = parted(out.numbers)
    assert sorted(numbers) == list(range(10_000)) and in_order_by_tag(numbers)
    assert report.balanced


def test_one_description_runs_twice_at_the_same_time():
    # The function is shared; what belongs to a run is not.
    spread = ws.distribute(workers=1)
    graph = ws.port("null:count=5000") >> spread >> ws.port("null:")
    first, second = ws.start(graph), ws.start(graph)
    assert first.wait(60) and second.wait(60)
    assert [r.report().packets for r in (first, second)] == [5_000, 5_000]
    assert first.report().balanced and second.report().balanced


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ws.distribute(lambda pkt: 0, workers=2), r"decorate it with @wirespeed\.function"),
        (lambda: ws.distribute(ws.port("null:"), workers=2), "null: is a port"),
        (lambda: ws.distribute(ws.segment(), workers=2), "segment makes packets of others or holds them back"),
        (lambda: ws.distribute(ws.fragment(576), workers=2), "put it before or behind: fragment >> distribute"),
        (lambda: ws.distribute(ws.coalesce() >> ws.segment(), workers=2), "coalesce makes packets of others"),
        (lambda: ws.distribute(ws.filter("ip") >> ws.reassemble(), workers=2), "reassemble makes packets of others"),
        (lambda: ws.distribute(workers=0), "workers"),
        (lambda: ws.distribute(workers=257), "workers must be 1 to 256, got 257"),
        (lambda: ws.distribute(workers=2, burst=32), "burst must be 1 to 31"),
        (lambda: ws.distribute(workers=2, lines=3), "lines must be a power of two"),
        (lambda: ws.distribute(workers=2, by="hash"), 'by must be "flow" or a function'),
        (lambda: ws.distribute(workers=2, by=lambda pkt: 0), r"decorate it with @wirespeed\.function"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make, message):
    with pytest.raises(ws.GraphError, match=message):
        make()


def test_more_than_one_worker_for_the_graph_itself_is_refused():
    with pytest.raises(ws.GraphError, match=r"distribute has workers of its own, 3 of them.*run with workers=1, got 2"):
        ws.run(source(1) >> ws.distribute(workers=3) >> sink(), workers=2)


def test_a_chain_that_ended_in_several_outputs_is_refused():
    chain = TestElement("deal", deal, k=2) >> (TestElement("a", hold_some), TestElement("b", hold_some))
    with pytest.raises(ws.GraphError, match="ended in several outputs"):
        ws.run(source(1) >> ws.distribute(chain, workers=1) >> sink())


def test_one_stage_in_two_places_is_refused():
    spread = ws.distribute(workers=1)
    with pytest.raises(ws.GraphError, match="stands in several places"):
        ws.run(
            source(1, "a") >> TestElement("deal", deal, k=2) >> (sink(name="b"), sink(name="c")), taps={"deal": spread}
        )


# ---------------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    limit=st.integers(0, 3_000), workers=st.integers(1, 3), burst=st.integers(1, 31), lines=st.sampled_from([1, 2, 8]),
    rounds=st.integers(1, 64), ordered=st.booleans(), outputs=st.integers(1, 3), slow=st.integers(0, 5),
)  # fmt: skip
def test_whatever_the_shape_every_packet_is_where_it_belongs(
    limit, workers, burst, lines, rounds, ordered, outputs, slow
):
    outs = [sink(k=slow, name=f"out{k}") for k in range(outputs)]
    chain = TestElement("deal", deal, k=3)
    spread = ws.distribute(chain, workers=workers, by=by_number, ordered=ordered, burst=burst, lines=lines)
    report = ws.run(source(limit) >> spread >> tuple(outs), burst=rounds)
    for k, out in enumerate(outs):
        assert sorted(out.numbers) == list(range(k, limit, 3))
        assert in_order_by_tag(out.numbers)
        assert not ordered or out.numbers == sorted(out.numbers)
    assert report.balanced
    assert report.dropped == limit - sum(len(out.numbers) for out in outs)
