"""Replays of a file: passes on one schedule, gaps that are cut, rates of a line, and what a report says of them.

The clock is set by moving the schedule's anchor, never by waiting.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed as ws
from tests.driver import Driver
from tests.net.capture import files
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import GraphError
from wirespeed.jit.kernel import kernel
from wirespeed.net.capture.scan import ENTRY, Entry
from wirespeed.ports import pacing, port
from wirespeed.ports.generator_stage import State
from wirespeed.ports.options import Rate
from wirespeed.ports.options import rate as parse_rate
from wirespeed.ports.pcap_feed import LONGEST_NS, Feed, due, pass_on, set_speed, settle

EPOCH = 1_700_000_000 * 10**9


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.pcap"


@pytest.fixture(scope="module")
def pool():
    with PacketPool(4096) as pool:
        yield pool


@kernel
def replay(feed, entries, n, passes, out):
    """Write when each of ``n`` entries is due, in each of so many passes."""
    f = Feed(feed)
    for turn in range(passes):
        for i in range(n):
            e = Entry(entries + ENTRY * i)
            out[turn * n + i] = due(f, e)
            pass_on(f, e)
        settle(f)
        f.previous = 0


def scheduled(times, speed, passes=1, gap_most=LONGEST_NS):
    feed = np.zeros(Feed.size, np.uint8)
    Feed(feed).anchor = 1000
    set_speed(feed.ctypes.data, speed, gap_most)
    entries = np.zeros(len(times), Entry.dtype)
    entries["time"] = times
    out = np.zeros(passes * len(times), np.int64)
    replay(feed.ctypes.data, entries.ctypes.data, len(times), passes, out)
    return out.tolist()


gaps = st.lists(st.integers(-(10**10), 10**11), min_size=1, max_size=8)
speeds = st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6).filter(lambda f: f.numerator <= 10**6)


@given(gaps, speeds, st.integers(1, 50), st.integers(0, 10**11))
def test_passes_go_on_on_one_schedule_and_round_once(gaps, speed, passes, gap_most):
    times = [EPOCH]
    for gap in gaps:
        times.append(times[-1] + gap)
    steps = [0, *(min(max(0, gap), gap_most) for gap in gaps)]
    elapsed, expected = 0, []
    for _ in range(passes):
        for step in steps:
            elapsed += step
            expected.append(1000 + int(elapsed / speed))
    assert scheduled(times, speed, passes, gap_most) == expected


def test_a_pass_a_million_times_as_fast_stays_right_after_hours():
    """Two and a half million passes over an hour's capture are 292 years of its time."""
    hour = 3600 * 10**9
    found = scheduled([EPOCH, EPOCH + hour], Fraction(10**6), passes=3_000_000)
    assert found[-1] == 1000 + 3_000_000 * hour // 10**6
    assert found[-2] == 1000 + 2_999_999 * hour // 10**6


@given(
    st.lists(st.integers(0, 1 << 50), min_size=1, max_size=20), speeds.filter(lambda speed: speed > Fraction(1, 100))
)
def test_no_times_make_the_schedule_go_back(times, speed):
    found = scheduled(times, speed, passes=2)
    assert found == sorted(found)


def opened(path, pool, data, **options):
    path.write_bytes(data)
    return Driver(port(f"pcap:{path}", **options).open("source", 1), pool=pool)


def let_pass(source, ns):
    """Let ``ns`` pass, as the port sees it."""
    feed = Feed.at(source.part.feed)
    for name in ("anchor", "began"):
        setattr(feed, name, getattr(feed, name) - ns)
    feed.pacer.due -= ns


def capture(times_us):
    """A packet for each time since some day, which is its number."""
    records = [files.pcap_record(i.to_bytes(2, "big"), 10**9 + t // 10**6, t % 10**6) for i, t in enumerate(times_us)]
    return files.pcap_header() + b"".join(records)


def test_speed_and_gap_max_make_the_schedule(path, pool):
    data = capture([0, 10 * 10**6, 1000 * 10**6, 1001 * 10**6])
    with opened(path, pool, data, speed=2, gap_max="20s") as source:
        came = []
        for second in range(20):
            came += [(second, p.data[1]) for p in source.receive()]
            let_pass(source, 10**9)
        assert came == [(0, 0), (5, 1), (15, 2), (16, 3)]


def test_every_pass_keeps_the_pace_of_the_first(path, pool):
    """tcpreplay #85: later loops came at once."""
    with opened(path, pool, capture([0, 1, 2]), rate="0.1pps", loop="inf") as source:
        came = []
        for second in range(0, 95, 5):
            came += [(second, p.data[1]) for p in source.receive()]
            let_pass(source, 5 * 10**9)
        assert came == [(10 * k, k % 3) for k in range(10)]


def test_a_gap_between_passes_is_waited_for_each_time(path, pool):
    with opened(path, pool, capture([0, 10**6]), speed="original", loop=3, loop_gap="8s") as source:
        came = []
        for second in range(20):
            came += [(second, p.data[1]) for p in source.receive()]
            let_pass(source, 10**9)
        assert came == [(0, 0), (1, 1), (9, 0), (10, 1), (18, 0), (19, 1)]


def test_a_gap_between_passes_is_waited_for_where_nothing_else_is(path, pool):
    with opened(path, pool, capture([0, 1]), loop=3, loop_gap="8s") as source:
        feed = Feed.at(source.part.feed)
        came = []
        for _ in range(3):
            for _ in range(5):
                came += [p.data[1] for p in source.receive()]
            came.append(source.head.done or source.head.due_ns > 0)
            if feed.resume:
                assert feed.resume > source.head.due_ns > feed.resume - 8 * 10**9, "it sleeps until then"
                feed.resume -= 8 * 10**9
        assert came == [0, 1, True, 0, 1, True, 0, 1, True]
        assert source.head.done


def test_case_13_a_file_with_more_packets_than_buffers_is_streamed_again_and_again(path):
    """DPDK bug 595: no buffer was left, and it stopped silently."""
    frames = [i.to_bytes(2, "big") * 32 for i in range(4096)]
    path.write_bytes(files.pcap_header() + b"".join(files.pcap_record(f, 5, i) for i, f in enumerate(frames)))
    count = 3 * 4096 + 100
    with PacketPool(512) as small, opened(path, small, path.read_bytes(), loop="inf", count=count) as source:
        assert [p.data for p in source.receive_all()] == [frames[i % 4096] for i in range(count)]
    report = ws.run(port(f"pcap:{path}", loop="inf", count=20_000) >> port("null:"), pool=512)
    assert report.balanced and report.packets == 20_000


def test_a_report_says_what_rate_was_asked_for_and_what_came_of_it(path):
    path.write_bytes(capture(range(50)))
    paced = ws.run(port(f"pcap:{path}", rate="2kpps") >> port("null:")).stages[0].counters
    assert paced["rate"] == "2kpps"
    assert 0 < parse_rate(paced["achieved"]).value <= 2000
    timed = ws.run(port(f"pcap:{path}", speed="0.01") >> port("null:")).stages[0].counters
    assert timed["speed"] == "0.01"
    assert 0 < float(timed["achieved"]) <= 0.01
    made = ws.run(port("generator:rate=2kpps,count=50") >> port("null:"), workers=2).stages[0].counters
    assert made["rate"] == "2kpps"
    assert 0 < parse_rate(made["achieved"]).value <= 2040  # the last one of each worker may be early by its share
    assert "achieved" not in ws.run(port("generator:count=50") >> port("null:")).stages[0].counters


@pytest.mark.parametrize(
    "packets, size, elapsed, unit, text",
    [
        (11, 0, 10**9, "pps", "10pps"),
        (11, 11 * 125, 10**9, "bps", "10kbps"),
        (2**33 + 1, 0, 2**33 * 100_000, "pps", "10kpps"),
        (1, 64, 5, "pps", ""),
        (5, 64, 0, "pps", ""),
    ],
)
def test_an_achieved_rate_counts_the_gaps_between_packets(packets, size, elapsed, unit, text):
    assert pacing.achieved(Rate(Fraction(1), unit), packets, size, elapsed) == text


def test_a_rate_of_a_line_counts_what_ethernet_puts_round_a_frame(path, pool):
    """10 Gb/s carry 14.88 million frames of 64 bytes a second, 60 without their check sequence."""
    with Driver(port("generator:rate=10Gbps,overhead=wire,size=60").open("source", 1), pool=pool) as one:
        assert len(one.receive(1)) == 1
        pacer = State.at(one.placement.state).pacer
        exact = Fraction(10**9 * 8 * 84, 10**10)
        assert pacer.due - pacer.anchor == int(exact)
    with opened(path, pool, files.pcap([bytes(60)] * 2), rate="1kbps", overhead=40) as source:
        assert len(source.receive()) == 1
        feed = Feed.at(source.part.feed)
        assert feed.pacer.due - feed.anchor == 800 * 10**6


@pytest.mark.parametrize(
    "word, message",
    [
        ("pcap:in.pcap,gap_max=1s", "got gap_max without speed"),
        ("pcap:in.pcap,speed=2,gap_max=long", "wanted a time"),
        ("pcap:in.pcap,rate=1kpps,overhead=much", "wire or a whole number from 0 to 1024"),
        ("pcap:in.pcap,rate=1kpps,speed=2", "wanted one of them"),
        ("pcap:in.pcap,loop_gap=1s", "got loop_gap without loop"),
        ("pcap:in.pcap,overhead=wire", "got overhead and no rate"),
        ("pcap:in.pcap,overhead=wire,rate=1kpps", "got overhead and rate=1kpps"),
        ("pcap:in.pcap,overhead=wire,speed=2", "got overhead and no rate"),
        ("generator:overhead=24", "got overhead and no rate"),
        ("generator:overhead=wire,rate=1kpps", "wanted a rate in bits"),
        ("generator:overhead=-1", "wire or a whole number from 0 to 1024"),
    ],
)
def test_what_cannot_work_is_said(word, message):
    with pytest.raises(GraphError) as error:
        port(word)
    assert message in str(error.value)
