"""Trailers of generated packets: at the end, numbered without a gap, under a right checksum."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP

from tests.driver import Driver
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import GraphError
from wirespeed.net.trailer import MAGIC
from wirespeed.net.verdict import verdicts
from wirespeed.ports import port
from wirespeed.ports.generator_stage import State


@pytest.fixture(scope="module")
def pool():
    with PacketPool(4096) as pool:
        yield pool


def frames(word, pool, *, burst=32, **options):
    with Driver(port(word, trailer="yes", **options).open("source", 1), pool=pool, burst=burst) as one:
        return [p.data for p in one.receive_all()]


def trailer(frame):
    """The stream, number and time at the end of a frame."""
    end = frame[-18:]
    assert int.from_bytes(end[:2], "big") == MAGIC
    return tuple(int.from_bytes(part, "big") for part in (end[4:6], end[6:12], end[12:]))


def good(frame):
    found = dict(verdicts(frame, 1))
    return bool(found) and set(found.values()) == {"good"}


@given(st.integers(60, 2000), st.sampled_from(["udp", "tcp"]), st.sampled_from([None, 7]))
@settings(max_examples=40)
def test_frames_of_every_size_have_right_checksums_over_their_trailers(pool, size, proto, vlan):
    size = max(size, 54 + 18 + 4)
    got = frames("generator:count=3", pool, size=size, proto=proto, vlan=vlan)
    assert [len(f) for f in got] == [size] * 3
    assert all(good(f) for f in got)
    assert [trailer(f)[:2] for f in got] == [(0, 0), (0, 1), (0, 2)]


def test_the_smallest_frame_of_ethernet_carries_one(pool):
    (frame,) = frames("generator:count=1,size=60", pool)
    assert good(frame) and trailer(frame)[1] == 0


TEMPLATES = {
    "udp": Ether() / IP() / UDP() / bytes(range(40)),
    "odd": Ether() / IP() / UDP() / bytes(range(41)),
    "tcp6": Ether() / IPv6() / TCP() / bytes(30),
    "icmp": Ether() / IP() / ICMP() / bytes(range(33)),
    "sctp": Ether() / IP() / SCTP() / bytes(32),
    "qinq": Ether() / Dot1Q(vlan=5, type=0x8100) / Dot1Q(vlan=6) / IP() / UDP() / bytes(25),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_keeps_its_size_and_its_payload_before_the_trailer(pool, name):
    raw = bytes(TEMPLATES[name])
    vary = {"ipv6.src": "count:1::1-1::9"} if name == "tcp6" else {"ipv4.src": "count:1.0.0.1-1.0.0.9"}
    got = frames("generator:count=4", pool, template=raw, vary=vary)
    assert [len(f) for f in got] == [len(raw)] * 4
    assert all(good(f) for f in got)
    assert [trailer(f)[1] for f in got] == [0, 1, 2, 3]
    if name == "udp":
        assert got[0][42:-18] == raw[42:-18]


def test_a_frame_that_is_no_ip_carries_one_as_well(pool):
    raw = bytes(Ether(dst="ff:ff:ff:ff:ff:ff") / ARP()) + bytes(30)
    got = frames("generator:count=2", pool, template=raw)
    assert [f[:-18] for f in got] == [raw[:-18]] * 2
    assert [trailer(f)[1] for f in got] == [0, 1]


def test_frames_beyond_a_buffer_carry_one_wherever_it_lies():
    with PacketPool(64, HEADROOM + 200) as small:
        for size in range(380, 480, 7):
            got = frames("generator:count=2,flows=2", small, size=size, burst=2)
            assert all(good(f) for f in got)
            assert [trailer(f)[1] for f in got] == [0, 1]


def test_the_time_is_that_of_sending(pool):
    before = time.time_ns()
    (frame,) = frames("generator:count=1", pool)
    assert before & ((1 << 48) - 1) <= trailer(frame)[2] <= time.time_ns() & ((1 << 48) - 1)


def test_each_worker_numbers_a_stream_of_its_own(pool):
    part = port("generator:trailer=yes,count=11,stream=65535").open("source", 2)
    drivers = [Driver(part, pool=pool, worker=w, workers=2) for w in range(2)]
    got = [[trailer(p.data)[:2] for p in one.receive_all()] for one in drivers]
    drivers[1].release()
    drivers[0].close()
    assert got == [[(65535, k) for k in range(6)], [(0, k) for k in range(5)]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_flow_is_a_stream_of_its_own_if_that_is_asked_for(pool, workers):
    part = port("generator:trailer=flow,flows=6,count=25,stream=65533").open("source", workers)
    drivers = [Driver(part, pool=pool, worker=w, workers=workers, burst=5) for w in range(workers)]
    got = [[(trailer(p.data)[:2], p.data[26:36]) for p in one.receive_all()] for one in drivers]
    for one in drivers[1:]:
        one.release()
    drivers[0].close()
    everything = sorted((number, stream) for found in got for (stream, number), _ in found)
    assert everything == sorted((k // 6, (65533 + k % 6) % 65536) for k in range(25))
    flows = {(stream, flow) for found in got for (stream, _), flow in found}
    assert len(flows) == 6 == len({flow for _, flow in flows}) == len({stream for stream, _ in flows})


def test_numbers_have_no_gap_where_the_pool_was_empty():
    with PacketPool(8, HEADROOM + 64) as small:
        one = Driver(port("generator:trailer=yes,count=20,rate=1Gpps,size=64,200").open("source", 1), pool=small)
        with one:
            found = []
            while not one.head.done:
                found += [trailer(p.data)[1] for p in one.receive(8)]
            assert found == list(range(20))


@pytest.mark.parametrize(
    "word, message",
    [
        (
            "generator:trailer=yes,size=59",
            "got 59, wanted at least 60, which the headers and a trailer take; try size=60",
        ),
        ("generator:trailer=yes,src=::1,dst=::2", "got 64, wanted at least 80"),
        ("generator:trailer=yes,stream=65536", "from 0 to 65535"),
        ("generator:trailer=perhaps", "wanted flow or yes or no"),
        ("generator:trailer=flow,flows=70000", "wanted at most 65536 in turn"),
        ("generator:trailer=flow,flows=7,order=random", "in the order random"),
    ],
)
def test_what_has_no_room_is_said_when_the_port_is_made(word, message):
    with pytest.raises(GraphError) as error:
        port(word)
    assert message in str(error.value)


@pytest.mark.parametrize("start", [2**31 - 5, 2**32 - 5, 2**48 - 5])
def test_numbers_and_counts_go_on_beyond_31_and_32_bits(pool, start):
    with Driver(port("generator:trailer=yes").open("source", 1), pool=pool) as one:
        state = State.at(one.placement.state)
        state.sequence = start
        one.head.bytes = 64 * start
        assert [trailer(p.data)[1] for p in one.receive(10)] == [(start + k) % 2**48 for k in range(10)]
        assert one.head.bytes == 64 * (start + 10)


@pytest.mark.parametrize("start", [2**31 - 5, 2**32 - 5])
def test_a_count_beyond_31_and_32_bits_ends_where_it_should(pool, start):
    with Driver(port("generator:rate=1Gpps", count=start + 10).open("source", 1), pool=pool) as one:
        state = State.at(one.placement.state)
        assert state.left == start + 10
        state.left, state.made = 10, start
        assert len(one.receive_all()) == 10
        assert state.made == start + 10
