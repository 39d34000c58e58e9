"""Throughput: the search against devices whose rate is known, and trials in memory and over a pair of interfaces."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed as ws
from tests.lab import laboratory
from wirespeed.apps.throughput import Throughput, line_pps, nothing, search, throughput
from wirespeed.apps.trial import Bench, SenderDropped, Trial
from wirespeed.errors import GraphError, PortError
from wirespeed.ports.options import Rate


def device(capacity_pps, sender_pps=1e9, seconds=10.0):
    """A device that forwards so much and drops the rest, and a sender that reaches so much; the rates it was tried at."""
    rates = []

    def trial(pps):
        offered = min(pps or sender_pps, sender_pps)
        rates.append(offered)
        sent = round(offered * seconds)
        return Trial(64, pps, offered, sent, min(sent, round(capacity_pps * seconds)))

    return trial, rates


@given(st.floats(1e4, 1e8), st.sampled_from([0.1, 0.01, 0.001]))
def test_the_rate_of_a_device_is_found_to_the_resolution(capacity, resolution):
    trial, rates = device(capacity)
    best, made = search(trial, None, 0.0, resolution)
    assert best.lost == 0
    assert capacity * (1 - 1.1 * resolution) - 1 <= best.offered_pps <= capacity + 1
    assert best.offered_pps == max(t.offered_pps for t in made if not t.lost)
    assert len(made) == len(rates) <= 5


def test_a_device_as_fast_as_the_sender_takes_one_trial():
    trial, rates = device(1e9, sender_pps=1e6)
    best, _ = search(trial, None, 0.0, 0.01)
    assert best.offered_pps == 1e6 and rates == [1e6]


def test_no_rate_above_the_highest_is_tried():
    trial, rates = device(1e9)
    best, _ = search(trial, 5e5, 0.0, 0.01)
    assert best.offered_pps == 5e5 and rates == [5e5]
    assert Throughput(64, best, (best,)).limit == "rate"


def test_a_sender_that_does_not_keep_a_rate_ends_the_search():
    """What is lost at full speed, in bursts, is not lost at a pace that the sender then does not reach."""

    def trial(pps):
        return Trial(64, pps, 1e6, 1000, 900) if pps is None else Trial(64, pps, pps / 2, 1000, 1000)

    best, made = search(trial, None, 0.0, 0.01)
    assert len(made) == 2 and best is made[1]


def test_tolerated_loss_counts_as_none():
    trial, _ = device(1e6, sender_pps=1.01e6)
    assert search(trial, None, 0.01, 0.01)[0].offered_pps == 1.01e6
    assert search(trial, None, 0.0, 0.001)[0].offered_pps <= 1e6


def test_a_device_that_always_loses_has_no_throughput():
    def trial(pps):
        return Trial(64, pps, pps or 1e6, 1000, 500)

    best, made = search(trial, None, 0.0, 0.01)
    one = Throughput(64, best, tuple(made))
    assert (one.best, one.pps, one.limit) == (None, 0.0, "device")
    assert len(made) == 12


def test_a_line_carries_twenty_bytes_more_for_each_frame():
    assert round(line_pps(10e9, 64)) == 14_880_952
    assert round(line_pps(10e9, 1518)) == 812_744
    half = Trial(64, None, 14_880_952.38 / 2, 10, 10)
    one = Throughput(64, half, (half,), 10e9)
    assert abs(one.line - 0.5) < 1e-6
    assert abs(one.bps - 8 * 64 * one.pps) < 1


@ws.function
def onward(pkt):
    """Forward everything."""
    return ws.FORWARD


def test_a_function_is_tried_in_memory():
    seen = []
    found = list(throughput(Bench(None, None, [onward], seconds=0.1), sizes=[64, 300], progress=seen.append))
    assert [one.size for one in found] == [64, 300]
    assert all(one.best.lost == 0 and one.best.sent > 0 and one.limit == "sender" for one in found)
    assert [t.size for t in seen] == [64, 300]
    assert all(one.best.latency.count == one.best.received for one in found)


def test_a_highest_rate_is_kept_and_packets_are_as_asked_for():
    bench = Bench(None, None, [onward], seconds=0.2, packets="flows=3,dst=10.9.8.7")
    (one,) = throughput(bench, sizes=[64], most=Rate(10_000, "pps"))
    assert one.best.sent == 2000
    assert one.pps <= 10_100


def test_what_lets_nothing_through_is_told():
    @ws.function
    def drop_all(pkt):
        return ws.DROP

    with pytest.raises(PortError, match=r"none of .* packets came back"):
        list(throughput(Bench(None, None, [drop_all], seconds=0.05), sizes=[64]))


@pytest.mark.parametrize(
    "how, message",
    [
        ({"sizes": [63]}, "frame size must be 64 to 65536, got 63: headers"),
        ({"sizes": [64, 65537]}, "frame size must be 64 to 65536, got 65537"),
        ({"tolerance": 1.0}, "tolerance must be a part of 1, from 0 on, got 1.0"),
        ({"resolution": 0.0}, "resolution must be a part of 1, more than 0, got 0.0"),
    ],
)
def test_what_cannot_work_is_said(how, message):
    with pytest.raises(GraphError, match=message):
        next(throughput(Bench(None, None, [onward]), **how))


def test_headers_that_take_more_make_the_least_size_larger():
    assert [Bench(None, None, [], packets=p).least() for p in ("", "vlan=5", "src=fe80::1,dst=fe80::2")] == [64, 68, 84]
    with pytest.raises(GraphError, match="frame size must be 68 to 65536, got 64"):
        next(throughput(Bench(None, None, [onward], packets="vlan=5"), sizes=[64]))


@pytest.mark.parametrize("word", ["pcap:{}/in.pcap", "memory:", "null:", "checker:", "generator:"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_port_that_leads_to_no_device_is_refused_before_anything_is_opened(word, place, tmp_path):
    (tmp_path / "in.pcap").write_bytes(b"what the user has")
    ends = [ws.port("packet:nowhere0"), ws.port("packet:nowhere1")]
    ends[place] = ws.port(word.format(tmp_path))
    with pytest.raises(GraphError, match="wanted ports that lead to a device and back, such as packet:tx0 packet:rx0"):
        Bench(*ends)
    assert (tmp_path / "in.pcap").read_bytes() == b"what the user has"


def test_one_port_alone_is_refused():
    with pytest.raises(GraphError, match="got one port, wanted two"):
        Bench(ws.port("packet:nowhere0"), None)


def test_packets_that_come_back_damaged_are_told_from_those_that_do_not_come():
    @ws.function
    def damage(pkt):
        pkt.payload[11] = pkt.payload[11] ^ 1
        return ws.FORWARD

    with pytest.raises(PortError, match=r"none of .* came back whole: [1-9].* came with a damaged trailer, 0 without"):
        list(throughput(Bench(None, None, [damage], seconds=0.05), sizes=[64]))
    assert "997 without one" in nothing(Trial(64, None, 1e6, 1000, 0, foreign=997))
    assert "does what is tried forward them" in nothing(Trial(64, None, 1e6, 1000, 0, foreign=2))


def test_a_pair_of_interfaces_is_tried_by_sender_and_receiver():
    with laboratory() as lab:
        lab.veth("a/x0", "b/y0")
        sender = ws.port(f"packet:x0,netns={lab.space('a')}")
        receiver = ws.port(f"packet:y0,netns={lab.space('b')}")
        bench = Bench(sender, receiver, [onward], seconds=0.3)
        (one,) = throughput(bench, sizes=[128], most=Rate(5000, "pps"))
        assert one.trials[0].sent == 1500
        assert one.best is None or one.best.received == one.best.sent
        assert one.trials[0].received > 0 and one.trials[0].corrupt == 0


def between(lab, seconds=0.3):
    """A bench over a pair of interfaces, x0 and y0."""
    lab.veth("a/x0", "b/y0")
    ends = [ws.port(f"packet:{name},netns={lab.space(space)}") for space, name in (("a", "x0"), ("b", "y0"))]
    return Bench(*ends, seconds=seconds)


def test_frames_that_the_senders_interface_does_not_carry_are_no_loss_of_the_device():
    trials = []
    with laboratory() as lab:
        bench = between(lab)
        with pytest.raises(SenderDropped) as error:
            list(throughput(bench, sizes=[128, 1600], most=Rate(5000, "pps"), progress=trials.append))
        assert "packet:x0 cannot send these packets" in str(error.value)
        assert "its MTU is 1500, sizes to 1518 fit" in str(error.value)
        assert error.value.reasons == {"too_long"}
    assert {trial.size for trial in trials} == {128}  # not one of 1600 bytes counts


def test_a_sender_whose_link_is_down_is_told_at_the_first_trial():
    trials = []
    with laboratory() as lab:
        bench = between(lab)
        lab.ip("a", "link", "set", "x0", "down")
        with pytest.raises(
            SenderDropped, match="dropped: The interface was down or not there; set it up first"
        ) as error:
            list(throughput(bench, sizes=[128], most=Rate(5000, "pps"), progress=trials.append))
    assert error.value.reasons == {"link_down"} and trials == []


def test_a_link_that_comes_up_a_moment_later_is_waited_for():
    with laboratory() as lab:
        bench = between(lab)
        lab.ip("a", "link", "set", "x0", "down")
        timer = threading.Timer(0.5, lab.ip, ("a", "link", "set", "x0", "up"))
        timer.start()
        try:
            (one,) = throughput(bench, sizes=[128], most=Rate(1000, "pps"))
        finally:
            timer.join()
    assert one.trials[0].sent == 300 and one.trials[0].received > 0
