"""The generator: which packets come, that they are well-formed, and that workers together make what one would."""

import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from tests.driver import Driver
from wirespeed.core.frame import Packet
from wirespeed.core.packet import HEADROOM
from wirespeed.core.packet_pool import PacketPool
from wirespeed.errors import GraphError
from wirespeed.net.verdict import verdicts
from wirespeed.ports import pacing, port
from wirespeed.ports.generator_stage import State
from wirespeed.ports.sizes import spread
from wirespeed.ports.variation import parse

SEEDS = st.integers(0, (1 << 63) - 1)


@pytest.fixture(scope="module")
def pool():
    with PacketPool(4096) as pool:
        yield pool


def driver(made, pool, **site):
    return Driver(made.open("source", site.get("workers", 1)), pool=pool, **site)


def packets(word, pool, n=None, *, burst=32, **options):
    """The first ``n`` packets that a generator makes, or all of them."""
    with driver(port(word, **options), pool, burst=burst) as one:
        if n is None:
            return one.receive_all()
        got = []
        while len(got) < n:
            got += one.receive(min(burst, n - len(got)))
        return got


def frames(word, pool, n=None, **options):
    return [p.data for p in packets(word, pool, n, **options)]


def good(frame, link=1):
    """Whether every checksum of a frame that can be verified is right, and there is one to verify."""
    found = dict(verdicts(frame, link))
    return bool(found) and set(found.values()) == {"good"}


# What comes by itself.


def test_by_itself_it_makes_64_bytes_of_udp_over_ipv4(pool):
    (packet,) = packets("generator:count=1", pool)
    made = packet.to_scapy()
    assert (len(packet), packet.link, packet.wire) == (64, 1, 64)
    assert (made[IP].src, made[IP].dst, made[UDP].sport, made[UDP].dport) == ("198.18.0.1", "198.19.0.1", 1024, 9)
    assert (made[IP].len, made[UDP].len) == (50, 30)
    assert good(packet.data)


@pytest.mark.parametrize("proto", ["udp", "tcp"])
@pytest.mark.parametrize("src, dst", [("10.1.2.3", "10.4.5.6"), ("2001:db8::1", "2001:db8::2")])
@pytest.mark.parametrize("vlan", [None, 7])
def test_built_frames_are_as_scapy_builds_them(pool, proto, src, dst, vlan):
    addresses = {"src": src, "dst": dst}
    options = addresses | {"sport": 1000, "dport": 2000, "ttl": 9, "tos": 3, "vlan": vlan, "prio": 5 if vlan else 0}
    eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    if vlan:
        eth = eth / Dot1Q(vlan=vlan, prio=5)
    if "." in src:
        ip = IP(**addresses, ttl=9, tos=3, id=0, flags=0)
    else:
        ip = IPv6(**addresses, hlim=9, tc=3)
    l4 = UDP(sport=1000, dport=2000) if proto == "udp" else TCP(sport=1000, dport=2000, flags="A", window=0xFFFF)
    size = 100
    headers = len(bytes(eth / ip / l4))
    expected = bytes(eth / ip / l4 / bytes(size - headers))
    assert frames("generator:count=2", pool, proto=proto, size=size, **options) == [expected] * 2


def test_time_is_that_of_the_making(pool):
    before = time.time_ns()
    (packet,) = packets("generator:count=1", pool)
    assert before <= packet.time <= time.time_ns()


# How many, and in which sizes.


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
def test_count_is_exact_and_then_the_source_is_done(pool, count):
    with driver(port(f"generator:count={count}"), pool) as one:
        assert len(one.receive_all()) == count
        assert one.head.bytes == 64 * count
        assert one.receive() == []


def test_without_a_count_there_is_no_end(pool):
    assert len(packets("generator:", pool, 1000)) == 1000


def test_sizes_come_in_turn(pool):
    assert [len(f) for f in frames("generator:size=64,594,1000", pool, 7)] == [64, 594, 1000, 64, 594, 1000, 64]


def test_imix_is_seven_four_one(pool):
    found = Counter(len(f) for f in frames("generator:size=imix", pool, 1200))
    assert found == {64: 700, 594: 400, 1518: 100}


def test_weights_say_how_many_of_each_size(pool):
    found = Counter(len(f) for f in frames("generator:size=100,200,weights=3,1", pool, 40))
    assert found == {100: 30, 200: 10}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_a_pattern_has_each_as_often_as_its_weight_and_spread_evenly(weights):
    pattern = spread(weights)
    assert Counter(pattern) == dict(enumerate(weights))
    for i, weight in enumerate(weights):
        for n in range(len(pattern) + 1):
            assert abs(pattern[:n].count(i) - Fraction(n * weight, len(pattern))) < len(weights)


@given(st.integers(42, 9000), st.sampled_from(["udp", "tcp"]))
@settings(max_examples=40)
def test_frames_of_every_size_have_that_size_and_right_lengths_and_checksums(pool, size, proto):
    size = max(size, 54 if proto == "tcp" else 42)
    (frame,) = frames("generator:count=1", pool, proto=proto, size=size)
    made = Ether(frame)
    assert (len(frame), made[IP].len) == (size, size - 14)
    assert good(frame)


def test_frames_beyond_a_buffer_are_chains_and_whole():
    with PacketPool(64, HEADROOM + 200) as small:
        got = frames("generator:size=9000,64,700,flows=7,count=12", small, burst=2)
        with PacketPool(512, HEADROOM + 16384) as large:
            assert got == frames("generator:size=9000,64,700,flows=7,count=12", large)
        assert all(good(f) for f in got)


def test_sizes_whose_copy_in_chunks_goes_beyond_the_buffer_are_whole_too():
    with PacketPool(64, HEADROOM + 100) as small:
        assert [len(f) for f in frames("generator:size=65,90,100,101,count=8", small, burst=3)] == [
            65,
            90,
            100,
            101,
        ] * 2


# Fields that vary.


def test_flows_are_told_apart_by_address_and_port_and_come_in_turn(pool):
    got = [Ether(f) for f in frames("generator:flows=3,sport=2047", pool, 7)]
    assert [p[IP].src for p in got] == [f"198.18.0.{1 + k % 3}" for k in range(7)]
    assert [p[UDP].sport for p in got] == [(2047, 1024, 1025)[k % 3] for k in range(7)]


def test_the_first_flow_is_that_of_the_template(pool):
    alone, first = frames("generator:count=1", pool), frames("generator:count=1,flows=1000", pool)
    assert alone == first


def test_many_flows_are_all_different(pool):
    got = Counter((f[26:30], f[34:36]) for f in frames("generator:flows=70000", pool, 70000, burst=256))
    assert len(got) == 70000


def test_random_flows_are_among_those_that_come_in_turn(pool):
    turn = {f[26:36] for f in frames("generator:flows=50", pool, 50)}
    drawn = [f[26:36] for f in frames("generator:flows=50,order=random", pool, 2000)]
    assert set(drawn) == turn
    assert drawn[:50] != [f[26:36] for f in frames("generator:flows=50", pool, 50)]
    assert max(Counter(drawn).values()) < 100


def test_flows_of_ipv6_vary_the_lower_half_and_wrap(pool):
    got = [Ether(f) for f in frames("generator:flows=3", pool, 3, src="2001:db8::ffff:ffff:ffff:ffff", dst="::1")]
    assert [p[IPv6].src for p in got] == ["2001:db8::ffff:ffff:ffff:ffff", "2001:db8::", "2001:db8::1"]


def test_a_counted_field_goes_through_its_range_in_steps_and_begins_again(pool):
    got = [Ether(f) for f in frames("generator:vary=udp.dport=count:100-107+3", pool, 7)]
    assert [p[UDP].dport for p in got] == [100, 103, 106, 100, 103, 106, 100]


def test_a_drawn_field_stays_in_its_range_and_reaches_all_of_it(pool):
    got = [Ether(f)[UDP].dport for f in frames("generator:vary=udp.dport=random:5-14", pool, 1000)]
    assert set(got) == set(range(5, 15))
    assert all(60 <= n <= 140 for n in Counter(got).values())


def test_the_same_seed_draws_the_same_and_another_one_not(pool):
    word = "generator:vary=udp.dport=random:0-65535,count=20"
    assert frames(word, pool, seed=5) == frames(word, pool, seed=5)
    assert frames(word, pool, seed=5) != frames(word, pool, seed=6)


def test_two_fields_draw_independently(pool):
    got = [Ether(f)[UDP] for f in frames("generator:vary=udp.sport=random:0-65535,udp.dport=random:0-65535", pool, 50)]
    assert all(p.sport != p.dport for p in got)


def test_nearby_seeds_do_not_draw_one_sequence_shifted(pool):
    draws = [[f[36:38] for f in frames("generator:vary=udp.dport=random:0-65535", pool, 100, seed=s)] for s in (1, 2)]
    assert not {draws[0][k] + draws[0][k + 1] for k in range(99)} & {draws[1][k] + draws[1][k + 1] for k in range(99)}


def test_an_address_range_may_be_a_prefix(pool):
    got = [Ether(f)[IP].src for f in frames("generator:vary=ipv4.src=count:10.0.0.5/30", pool, 5)]
    assert got == ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.4"]


def test_mac_and_ipv6_addresses_vary(pool):
    spec = {
        "eth.src": "count:02:00:00:00:00:fe-02:00:00:00:01:01",
        "ipv6.dst": "count:2001:db8::1-2001:db8::2",
    }
    got = [Ether(f) for f in frames("generator:", pool, 3, src="2001:db8::9", dst="2001:db8::1", vary=spec)]
    assert [p.src[-5:] for p in got] == ["00:fe", "00:ff", "01:00"]
    assert [p[IPv6].dst for p in got] == ["2001:db8::1", "2001:db8::2", "2001:db8::1"]


def test_a_field_that_varies_changes_no_bit_beside_it(pool):
    got = [Ether(f) for f in frames("generator:vlan=5,prio=6,vary=vlan.vlan=count:1-4", pool, 4)]
    assert [(p[Dot1Q].vlan, p[Dot1Q].prio, p[Dot1Q].type) for p in got] == [(k, 6, 0x800) for k in (1, 2, 3, 4)]


def test_two_fields_in_one_container_both_vary(pool):
    got = [Ether(f)[IP] for f in frames("generator:vary=ipv4.flags=count:0-1,ipv4.frag=count:0-2", pool, 6)]
    assert [(int(p.flags), p.frag) for p in got] == [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1), (1, 2)]


def test_a_random_field_of_64_bits_takes_all_of_them(pool):
    got = [f[46:54] for f in frames("generator:", pool, 200, src="::1", dst="::1", vary="ipv6.dst=random:::/64")]
    bits = np.array([list(x) for x in got], np.uint8)
    assert len(set(got)) == 200
    assert (np.bitwise_or.reduce(bits) == 255).all() and (np.bitwise_and.reduce(bits) == 0).all()


EVERY_FIELD = [
    ("eth", "dst", 48), ("eth", "src", 48), ("vlan", "prio", 3), ("vlan", "vlan", 12),
    ("ipv4", "tos", 8), ("ipv4", "id", 16), ("ipv4", "ttl", 8), ("ipv4", "src", 32), ("ipv4", "dst", 32),
    ("udp", "sport", 16), ("udp", "dport", 16),
]  # fmt: skip


@st.composite
def specs(draw, fields, most=4):
    """Some fields of a frame with a range for each."""
    found = {}
    for header, name, bits in draw(st.lists(st.sampled_from(fields), min_size=1, max_size=most, unique=True)):
        low = draw(st.integers(0, (1 << bits) - 1))
        high = draw(st.integers(low, (1 << bits) - 1))
        step = draw(st.sampled_from(["", "+1", "+3", "+0x11"]))
        found[f"{header}.{name}"] = f"{draw(st.sampled_from(['count', 'random']))}:{low}-{high}{step}"
    return found


@given(specs(EVERY_FIELD), st.integers(1, 300), SEEDS, st.sampled_from(["64", "imix", "77,131"]))
@settings(max_examples=60)
def test_checksums_are_right_whatever_varies(pool, vary, flows, seed, size):
    for frame in frames("generator:vlan=1,count=40", pool, vary=vary, flows=flows, seed=seed, size=size):
        assert good(frame)


TEMPLATES = {
    "tcp": (Ether() / IP() / TCP() / Raw(b"payload"), [("tcp", "seq", 32), ("tcp", "flags", 9), ("ipv4", "src", 32)]),
    "options": (Ether() / IP(options=b"\x94\x04\0\0") / TCP() / b"x", [("ipv4", "dst", 32), ("tcp", "ack", 32)]),
    "icmp": (Ether() / IP() / ICMP() / b"odd", [("icmp", "type", 8), ("icmp", "rest", 32), ("ipv4", "src", 32)]),
    "icmpv6": (Ether() / IPv6() / ICMPv6EchoRequest(data=b"abc"), [("icmpv6", "rest", 32), ("ipv6", "fl", 20)]),
    "hopopts": (Ether() / IPv6() / IPv6ExtHdrHopByHop() / UDP() / b"abc", [("udp", "sport", 16), ("ipv6", "tc", 8)]),
    "sctp": (Ether() / IP() / SCTP() / b"chunk", [("sctp", "tag", 32), ("sctp", "sport", 16), ("ipv4", "id", 16)]),
    "vxlan": (Ether() / IP() / UDP() / VXLAN(vni=5) / Ether() / IP() / UDP() / b"in", [("vxlan", "vni", 24)]),
    "raw ip": (IP() / UDP() / b"abc", [("udp", "dport", 16), ("ipv4", "ttl", 8)]),
}


@pytest.mark.parametrize("name", TEMPLATES)
@given(data=st.data())
@settings(max_examples=15)
def test_checksums_over_templates_of_every_kind_are_right(pool, name, data):
    made, fields = TEMPLATES[name]
    template = Packet(bytes(made), link=101 if name == "raw ip" else 1)
    vary = data.draw(specs(fields))
    for packet in packets("generator:count=10", pool, template=template, vary=vary):
        assert packet.link == template.link
        assert good(packet.data, packet.link)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_does_not_vary_comes_as_it_is(pool, name):
    made = TEMPLATES[name][0]
    link = 101 if name == "raw ip" else 1
    assert frames("generator:count=3", pool, template=Packet(bytes(made), link=link)) == [bytes(made)] * 3


@pytest.mark.parametrize("name", ["tcp", "options", "icmp", "icmpv6", "hopopts", "sctp", "vxlan"])
@pytest.mark.parametrize("size", [130, 777])
def test_a_resized_template_has_right_lengths_and_checksums(pool, name, size):
    made = TEMPLATES[name][0]
    (frame,) = frames("generator:count=1", pool, template=made, size=size)
    assert len(frame) == size
    outer = 1 if IPv6 in made else 2  # what stands inside a tunnel is payload, cut or filled up
    assert [verdict for _, verdict in verdicts(frame)[:outer]] == ["good"] * outer


# Templates.


def test_templates_may_be_hex_bytes_scapy_or_packets(pool):
    made = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP() / UDP() / b"abc"
    raw = bytes(made)
    for template in (raw, raw.hex(), raw.hex(":"), made, bytearray(raw), Packet(raw)):
        assert frames("generator:count=1", pool, template=template) == [raw]
    assert frames(f"generator:count=1,template={raw.hex()}", pool) == [raw]


def test_a_frame_that_is_no_ip_is_sent_as_it_is(pool):
    raw = bytes(Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01") / ARP(psrc="10.0.0.1"))
    assert frames("generator:count=2", pool, template=raw, vary="arp.pdst=count:1-2") == [
        raw[:38] + (k).to_bytes(4, "big") for k in (1, 2)
    ]
    assert frames("generator:count=1", pool, template=raw, size=60) == [raw.ljust(60, b"\0")]


def test_wrong_checksums_of_a_template_are_put_right_unless_they_shall_stay(pool):
    raw = bytes(Ether() / IP(chksum=1) / UDP(chksum=2) / b"abc")
    (fixed,) = frames("generator:count=1", pool, template=raw)
    assert good(fixed)
    assert frames("generator:count=1,checksums=no", pool, template=raw) == [raw]
    varied = frames("generator:count=2,checksums=no,vary=ipv4.id=count:1-2", pool, template=raw)
    assert varied == [raw[:18] + bytes([0, k]) + raw[20:] for k in (1, 2)]


def test_a_datagram_without_a_checksum_stays_without(pool):
    raw = bytes(Ether() / IP() / UDP(chksum=0) / b"abc")
    for frame in frames("generator:count=3", pool, template=raw, vary="udp.sport=count:1-9"):
        assert frame[40:42] == b"\0\0"


def test_a_udp_checksum_that_comes_out_as_zero_is_sent_as_ffff(pool):
    got = Counter(f[40:42] for f in frames("generator:vary=udp.dport=count:0-65535", pool, 65536, burst=256))
    assert got[b"\0\0"] == 0
    assert got[b"\xff\xff"] == 1  # no sum of bytes that are not all zero comes out as 0xFFFF by itself


@pytest.mark.parametrize("offset", [0, 100])
def test_fragments_keep_their_transport_bytes(pool, offset):
    whole = bytes(Ether() / IP(flags="MF", frag=offset) / UDP(chksum=7) / b"abcdefgh")
    for frame in frames("generator:count=4", pool, template=whole, vary="ipv4.id=count:1-9"):
        assert frame[34:] == whole[34:]
        assert dict(verdicts(frame))["ipv4"] == "good"


def test_fragments_of_ipv6_vary_in_their_own_header(pool):
    raw = bytes(Ether() / IPv6() / IPv6ExtHdrFragment(m=1) / UDP() / b"abcdefgh")
    got = [Ether(f) for f in frames("generator:count=3", pool, template=raw, vary="fragment.id=count:7-9")]
    assert [p[IPv6ExtHdrFragment].id for p in got] == [7, 8, 9]


@given(st.binary(min_size=1, max_size=120), st.sampled_from([1, 101, 113, 9999]))
def test_any_bytes_can_be_a_template(pool, data, link):
    (packet,) = packets("generator:count=1,checksums=no", pool, template=Packet(data, link=link))
    assert (packet.data, packet.link) == (data, link)
    (packet,) = packets("generator:count=1", pool, template=Packet(data, link=link))
    assert len(packet.data) == len(data)


# Workers.


def shares(made, pool, workers, burst=7):
    part = made.open("source", workers)
    drivers = [Driver(part, pool=pool, worker=w, workers=workers, burst=burst) for w in range(workers)]
    found = [[p.data for p in one.receive_all()] for one in drivers]
    for one in drivers[1:]:
        one.release()
    drivers[0].close()
    return found


@given(
    st.integers(0, 300), st.integers(1, 5), st.integers(1, 30), st.sampled_from(["turn", "random"]), st.integers(0, 9)
)
@settings(max_examples=40)
def test_workers_together_make_what_one_would(count, workers, flows, order, seed):
    made = port("generator:size=imix,vary=udp.dport=random:0-65535,ipv4.id=count:0-99", count=count, flows=flows,
                order=order, seed=seed)  # fmt: skip
    with PacketPool(8192) as pool:
        (alone,) = shares(made, pool, 1)
        together = shares(made, pool, workers)
    assert len(alone) == count
    for worker, found in enumerate(together):
        assert found == alone[worker::workers]


def test_a_flow_stays_with_one_worker_where_the_workers_divide_the_flows(pool):
    seen = [{f[26:30] for f in found} for found in shares(port("generator:flows=12,count=240"), pool, 3)]
    assert [len(s) for s in seen] == [4, 4, 4]
    assert not seen[0] & seen[1] and not seen[1] & seen[2] and not seen[0] & seen[2]


# Rates.  The clock is set by moving the anchor of the pacer, never by waiting.


def paced(one):
    return State.at(one.placement.state)


def rewind(one, ns):
    """Let ``ns`` pass, as the generator sees it."""
    state = paced(one)
    state.pacer.due -= ns
    state.pacer.anchor -= ns


def test_a_paced_source_makes_one_packet_and_says_when_the_next_is_due(pool):
    with driver(port("generator:rate=1pps"), pool) as one:
        assert len(one.receive()) == 1
        state = paced(one)
        assert one.head.due_ns == state.pacer.anchor + 10**9 - pacing.WAKING_NS
        assert one.receive() == []


def test_a_paced_source_makes_what_has_become_due(pool):
    with driver(port("generator:rate=0.1pps"), pool) as one:
        one.receive()
        rewind(one, 45 * 10**9)
        assert len(one.receive()) == 4
        assert one.receive() == []


def test_a_source_that_is_late_catches_up_and_its_schedule_does_not_move(pool):
    with driver(port("generator:rate=0.01pps"), pool, burst=8) as one:
        one.receive()
        rewind(one, 2050 * 10**9)
        assert [len(one.receive()) for _ in range(4)] == [8, 8, 4, 0]
        state = paced(one)
        assert one.head.due_ns == state.pacer.anchor + 2100 * 10**9 - pacing.WAKING_NS
        assert one.part.counters()["latest_ns"] >= 1950 * 10**9


def test_packets_carry_the_times_at_which_they_were_due(pool):
    with driver(port("generator:rate=0.1pps"), pool) as one:
        first = one.receive()
        rewind(one, 60 * 10**9)
        rest = one.receive()
        assert np.diff([p.time for p in first + rest]).tolist() == [10 * 10**9 - 60 * 10**9] + [10 * 10**9] * 5


def test_a_rate_in_bits_counts_the_bits_of_the_frames(pool):
    with driver(port("generator:rate=8bps,size=100,60"), pool) as one:
        assert len(one.receive()) == 1
        rewind(one, 100 * 10**9)
        assert len(one.receive()) == 1
        rewind(one, 59 * 10**9)
        assert one.receive() == []
        rewind(one, 10**9)
        assert len(one.receive()) == 1


def test_a_pool_that_is_empty_delays_packets_and_loses_none():
    with PacketPool(8, HEADROOM + 64) as small, driver(port("generator:rate=0.1pps,count=9,size=64,200"), small) as one:
        one.receive(1)
        rewind(one, 1000 * 10**9)
        n = one.call(8)
        kept = one.burst[:n].tolist()
        assert 0 < n < 8
        assert one.call(8) == 0
        lengths = [len(one.frame(h)) for h in kept]
        one.free(kept)
        while got := one.receive(8):
            lengths += [len(p) for p in got]
        assert lengths == [200, 64] * 4
        state = paced(one)
        assert state.pacer.due == state.pacer.anchor + pacing.due(port("generator:rate=0.1pps").rate, 9)


def test_counters_say_what_rate_was_asked_for(pool):
    with driver(port("generator:rate=1.5Mpps"), pool) as one:
        assert one.part.counters()["rate"] == "1.5Mpps"


# What cannot work.


@pytest.mark.parametrize(
    "word, options, message",
    [
        ("generator:x", {}, "takes no target, got 'x'"),
        ("generator:size=41", {}, "got 41, wanted at least 42"),
        ("generator:size=64,30", {}, "got 30, wanted at least 42"),
        ("generator:size=70000", {}, "wanted at most 65549"),
        ("generator:size=big", {}, "option size: got 'big'"),
        ("generator:size=64,weights=1,2", {}, "one for each of 1 sizes"),
        ("generator:size=64,65,weights=4000,4000", {}, "at most 4096 together"),
        ("generator:weights=0", {}, "whole numbers above 0"),
        ("generator:proto=sctp", {}, "one of udp, tcp"),
        ("generator:src=10.0.0.1", {"dst": "::1"}, "both as IPv4 or both as IPv6"),
        ("generator:src=10.0.0", {}, "option src: got '10.0.0', wanted an IPv4 or IPv6 address"),
        ("generator:vlan=4096", {}, "from 0 to 4095"),
        ("generator:rate=fast", {}, "wanted a number with pps or bps"),
        ("generator:rate=0.1bps", {}, "rate must be at least 1bps"),
        ("generator:count=-1", {}, "a whole number of 0 or more"),
        ("generator:order=backwards", {}, "one of turn, random"),
        ("generator:template=zz", {}, "is not hexadecimal"),
        ("generator:", {"template": b""}, "a frame of 1 to"),
        ("generator:", {"template": 5}, "got int, wanted bytes"),
        ("generator:sport=5", {"template": b"x" * 60}, "the template says it already"),
        ("generator:flows=2", {"template": b"x" * 60}, "no flows"),
        (
            "generator:vary=tcp.sport=count:1-2",
            {},
            "the template has no field 'tcp.sport'; its headers are eth, ipv4, udp",
        ),
        ("generator:vary=udp.port=count:1-2", {}, "no field 'udp.port'"),
        ("generator:vary=udp=count:1-2", {}, "no field 'udp'"),
        ("generator:vary=udp.sport=5", {}, "wanted count: or random:"),
        ("generator:vary=udp.sport=count:9-5", {}, "wanted a range from 0 to 65535"),
        ("generator:vary=udp.sport=count:1-65536", {}, "wanted a range from 0 to 65535"),
        ("generator:vary=udp.sport=count:1-9+0", {}, "a step above 0"),
        ("generator:vary=udp.sport=count:a-b", {}, "give numbers or addresses"),
        ("generator:vary=udp.chksum=count:1-2", {}, "udp.chksum follows from the frame"),
        ("generator:vary=ipv4.ihl=count:5-6", {}, "ipv4.ihl follows from the frame"),
        ("generator:vary=ipv6.src=count:1::1-2::1", {"src": "1::1", "dst": "1::2"}, "only the lower 64 bits"),
    ],
)
def test_what_cannot_work_is_said_when_the_port_is_made(word, options, message):
    with pytest.raises(GraphError) as error:
        port(word, **options)
    assert message in str(error.value)


def test_it_is_no_sink():
    with pytest.raises(GraphError, match="is a source of packets; to forget what leaves a graph, end it in null:"):
        port("generator:").open("sink", 1)


@pytest.mark.parametrize("size, room, reason", [(9000, 8, "it must fit"), (64, 40, "its headers must fit")])
def test_a_frame_too_large_for_the_pool_is_said_when_the_run_starts(size, room, reason):
    with PacketPool(8, HEADROOM + room) as small, pytest.raises(GraphError, match=reason):
        Driver(port(f"generator:size={size}").open("source", 1), pool=small)


def test_case_13_a_pool_with_fewer_packets_than_a_burst_gives_what_it_has():
    word = "generator:flows=7"
    with PacketPool(100) as large, driver(port(word), pool=large) as one:
        wanted = [p.data for p in one.receive_all(60)][:40]
    with PacketPool(20) as small, driver(port(word), pool=small) as one:
        found = [[p.data for p in one.receive()] for _ in range(4)]
    assert [len(frames) for frames in found] == [16, 16, 16, 16]
    assert [data for frames in found for data in frames][:40] == wanted


def test_a_vary_option_reads_alike_as_text_and_as_a_mapping():
    text = "ipv4.src=count:10.0.0.1-10.0.0.254,udp.sport=random:1024-65535"
    expected = {"ipv4.src": "count:10.0.0.1-10.0.0.254", "udp.sport": "random:1024-65535"}
    assert parse(text) == parse(expected) == expected
