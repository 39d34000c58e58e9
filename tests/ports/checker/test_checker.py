"""The checker in a graph: which packets it counts as what, with one worker and with several, and books that balance."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirespeed as ws
from tests.driver import Driver
from wirespeed.core.frame import Packet
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import GraphError
from wirespeed.ports.checker.element import Checker, CheckerPort, checker


@pytest.fixture(scope="module")
def pool():
    with PacketPool(4096) as pool:
        yield pool


@pytest.fixture(scope="module")
def frames():
    """A thousand packets with trailers, of three sizes."""
    memory = ws.port("memory:")
    ws.run(ws.port("generator:size=64,127,1000,trailer=yes,flows=7,count=1000") >> memory)
    return [p.data for p in memory.pull(1000, timeout=5)]


def checked(frames, pool, role="sink", **options):
    made = Checker(**options)
    with Driver(made.open(role, 1), pool=pool) as one:
        for at in range(0, len(frames), 32):
            assert one.transmit(frames[at : at + 32]) == 0
    return made


def test_all_that_was_sent_is_received_in_order(frames, pool):
    found = checked(frames, pool).result
    assert (found.packets, found.foreign, found.corrupt) == (1000, 0, 0)
    assert (found.all.received, found.all.lost, found.all.duplicates, found.all.reordered) == (1000, 0, 0, 0)
    assert found.all.bytes == sum(map(len, frames))
    assert found.all.latency.count == 1000


def test_lost_double_and_reordered_ones_are_told(frames, pool):
    sent = frames[:100]
    del sent[50:60]
    sent.insert(30, sent[20])
    sent[5], sent[6] = sent[6], sent[5]
    made = checked(sent, pool)
    assert (made.received, made.lost, made.duplicates, made.reordered, made.corrupt) == (90, 10, 1, 1, 0)
    assert made.result.counters()["largest extent"] == 1


def test_packets_without_a_trailer_and_damaged_ones_are_counted_apart(frames, pool):
    bad = bytearray(frames[3])
    bad[-1] ^= 1
    cut = [frames[0][:17], b"x", bytes(18), bytes(60)]
    found = checked([*frames[:3], bytes(bad), *cut, *frames[4:6]], pool).result
    assert (found.packets, found.corrupt, found.foreign) == (10, 1, 4)
    assert (found.all.received, found.all.lost) == (5, 1)


def test_trailers_survive_what_a_router_and_a_switch_do_to_the_headers(frames, pool):
    tagged = [f[:12] + b"\x81\x00\x00\x07" + f[12:] for f in frames[:20]]
    routed = [bytes(12) + f[12:22] + bytes([f[22] - 1]) + f[23:] for f in frames[20:40]]
    assert checked(tagged + routed, pool).received == 40


def test_trailers_that_lie_in_two_segments_are_read(frames):
    with PacketPool(256, HEADROOM + 55) as small:
        assert checked(frames[:6], small).received == 6


def test_streams_beyond_the_memory_are_counted(pool):
    memory = ws.port("memory:")
    for number in range(5):
        ws.run(ws.port("generator:trailer=yes,count=3", stream=1000 * number) >> memory)
    found = checked([p.data for p in memory.pull(15, timeout=5)], pool, streams=3).result
    assert [s.number for s in found.streams] == [0, 1000, 2000]
    assert [s.received for s in found.streams] == [3, 3, 3]
    assert found.unlisted == 6


@given(st.lists(st.binary(max_size=40), max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_hostile_frames_break_nothing(frames, pool, parts, shuffle):
    sent = [f + part for f, part in zip(frames, parts)] + [bytes(4) + part for part in parts]
    for frame in frames[: len(parts)]:
        damaged = bytearray(frame)
        damaged[-shuffle.randrange(1, 19)] = shuffle.randrange(256)
        sent.append(bytes(damaged))
    shuffle.shuffle(sent)
    found = checked(sent, pool).result
    streams = sum(s.packets for s in found.streams)
    assert found.packets == len(sent) == found.foreign + found.corrupt + found.unlisted + streams


def test_as_a_stage_it_passes_everything_on():
    made, memory = checker(), ws.port("memory:")
    report = ws.run(ws.port("generator:trailer=yes,count=100") >> made >> memory)
    assert report.balanced
    assert (made.received, len(memory.pull(200, timeout=1))) == (100, 100)


def test_a_port_word_ends_a_chain_in_it():
    end = CheckerPort(window=64)
    report = ws.run(ws.port("generator:trailer=yes,count=100") >> end)
    assert report.balanced and report.packets == 100
    assert report.stage("checker:").counters["received"] == 100
    assert report.stage("checker:").counters["lost"] == 0


def test_each_worker_sends_a_stream_of_its_own_and_all_are_counted():
    made = checker()
    report = ws.run(ws.port("generator:trailer=yes,count=30001,stream=65535") >> made, workers=2)
    assert report.balanced
    assert [(s.number, s.received, s.lost) for s in made.result.streams] == [(0, 15000, 0), (65535, 15001, 0)]


def test_a_stream_spread_over_workers_is_put_together_exactly(frames, pool):
    """Each worker gets every other packet, in turns of a random length: loss and duplicates are what they are."""
    made = Checker()
    part = made.open("sink", 2)
    workers = [Driver(part, pool=pool, worker=w, workers=2) for w in range(2)]
    halves = [[f for k, f in enumerate(frames) if k % 2 == w and k not in (100, 501)] for w in range(2)]
    halves[1].append(halves[1][-1])
    draw = random.Random(1)
    while any(halves):
        w = draw.randrange(2)
        turn, halves[w] = halves[w][:8], halves[w][8:]
        if turn:
            workers[w].transmit(turn)
    for one in workers:
        one.release()
    part.close()
    assert (made.received, made.lost, made.duplicates) == (998, 2, 1)
    assert made.reordered > 0


def test_the_result_of_a_run_stays_and_the_next_run_begins_anew():
    made = checker()
    for count in (10, 20):
        ws.run(ws.port("generator:trailer=yes", count=count) >> made)
        assert (made.received, made.result.packets) == (count, count)


def test_the_result_can_be_read_while_the_run_goes_on():
    made = checker()
    with ws.start(ws.port("generator:trailer=yes") >> made) as running:
        while made.received < 1000:
            running.wait(0.01)
        assert made.lost == 0
    assert made.received >= 1000


def test_the_time_of_arrival_may_be_that_of_the_port(frames, pool):
    sent = int.from_bytes(frames[0][-6:], "big")
    now = 1_800_000_000 * 10**9
    packet = Packet(frames[0], time=(now & ~((1 << 48) - 1)) + sent + 12_345)
    assert checked([packet], pool, clock="port").latency.maximum == 12_345
    assert checked([Packet(frames[0])], pool, clock="port").latency.maximum != 12_345


def test_a_result_is_told_as_text_and_as_plain_numbers(frames, pool):
    made = checked(frames[:10] + frames[12:], pool)
    assert "998 received, 2 lost (0.200%)" in str(made.result)
    plain = made.result.to_dict()
    assert plain["all"]["lost"] == plain["streams"][0]["lost"] == 2
    assert plain["all"]["latency_ns"]["count"] == 998


def test_what_the_table_of_the_documents_names_can_be_had_from_the_checker_itself(frames, pool):
    late = frames[:1]
    made = checked([*frames[2:200], frames[300], bytes(60), *late], pool, window=64)
    told = (made.packets, made.received, made.lost, made.too_late, made.foreign, made.corrupt)
    assert told == (201, 199, 102, 1, 1, 0)
    assert (made.duplicates, made.reordered, made.extent, made.restarts, made.outliers) == (0, 0, 0, 0, 0)
    assert (made.early, made.unlisted, [s.number for s in made.streams]) == (0, 0, [0])
    assert made.jitter_ns == made.result.all.jitter_ns


def test_printing_a_checker_tells_its_result(frames, pool):
    made = checked(frames[:10], pool)
    assert str(made) == str(made.result) and "10 received, 0 lost" in str(made)
    assert repr(made) == "<Checker checker>"


def test_a_report_says_which_option_more_streams_need():
    end = CheckerPort(streams=3)
    report = ws.run(ws.port("generator:trailer=flow,flows=10,count=100") >> end)
    told = report.stage("checker:").counters
    assert (told["received"], told["of further streams"]) == (30, 70)
    assert told["streams told apart"] == "at most 3; streams= says how many"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"window": 100}, "checker option window: got 100, wanted a power of two; try window=128"),
        ({"window": 63}, "from 64 to"),
        ({"streams": 0}, "from 1 to 65535"),
        ({"clock": "mine"}, "one of here, port"),
        ({"size": 5}, "has no option 'size'"),
        (
            {"streams": 60_000, "window": 8192},
            "wanted at most 67108864 numbers in all; make the windows smaller, such as window=1024",
        ),
    ],
)
def test_what_cannot_work_is_said(options, message):
    with pytest.raises(GraphError) as error:
        checker(**options)
    assert message in str(error.value)


def test_it_is_no_source_and_takes_no_target_and_one_run_at_a_time():
    with pytest.raises(GraphError, match="takes no target"):
        CheckerPort("x")
    with pytest.raises(GraphError, match="is no source"):
        CheckerPort().open("source", 1)
    made = checker()
    part = made.open("sink", 1)
    with pytest.raises(GraphError, match="in a run already"):
        made.open("sink", 1)
    part.close()
    made.open("sink", 1).close()
