"""The checker behind a live port: across a pair of interfaces, a router, and several workers that share a stream."""

import time

import pytest

import wirespeed as ws
from tests.lab import laboratory
from wirespeed.apps.trial import settle


def sent_and_checked(lab, traffic, workers=1, **options):
    """Send from a's x0 to b's y0, and what a checker there says once all is in."""
    check = ws.checker(**options)
    out = ws.port(f"packet:x0,netns={lab.space('a')}")
    with ws.start(ws.port(f"packet:y0,netns={lab.space('b')}") >> check, workers=workers) as receiving:
        time.sleep(0.1)
        report = ws.run(traffic >> out)
        settle(check, report.packets)
        receiving.stop()
        receiving.wait()
        assert receiving.report().balanced and report.balanced
    return report, check.result


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_lost_and_nothing_comes_twice_however_many_workers_share_the_stream(workers):
    with laboratory() as lab:
        lab.veth("a/x0", "b/y0")
        traffic = ws.port("generator:trailer=yes,flows=16,count=5000,rate=20kpps,size=60,1514")
        report, found = sent_and_checked(lab, traffic, workers)
        assert report.packets == 5000
        assert (found.all.received, found.all.lost, found.all.duplicates, found.corrupt) == (5000, 0, 0, 0)
        assert found.all.latency.count == 5000
        if workers == 1:
            assert found.all.reordered == 0


def test_flows_that_part_on_their_way_keep_their_order_each():
    with laboratory() as lab:
        lab.veth("a/x0", "b/y0")
        traffic = ws.port("generator:trailer=flow,flows=16,count=4000,rate=20kpps")
        _, found = sent_and_checked(lab, traffic, 2)
        assert [(s.number, s.received, s.lost, s.duplicates) for s in found.streams] == [
            (k, 250, 0, 0) for k in range(16)
        ]


def test_the_kernels_stamps_are_the_times_of_arrival():
    with laboratory() as lab:
        lab.veth("a/x0", "b/y0")
        traffic = ws.port("generator:trailer=yes,count=1000,rate=10kpps")
        _, found = sent_and_checked(lab, traffic, clock="port")
        assert found.all.received == found.all.latency.count == 1000
        assert found.all.latency.minimum >= 0


def test_trailers_pass_a_router_which_verifies_the_checksums_on_its_way():
    """a - router - b: the kernel between them forwards by address, with one hop less and new Ethernet addresses."""
    with laboratory() as lab:
        lab.veth("a/x0", "r/r0")
        lab.veth("r/r1", "b/y0")
        lab.address("r/r0", "10.0.1.1/24")
        lab.address("r/r1", "10.0.2.1/24")
        lab.do("r", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0")
        lab.ip("r", "neighbour", "add", "10.0.2.9", "lladdr", "02:00:00:00:00:99", "dev", "r1")
        lab.ip("r", "link", "set", "r0", "address", "02:00:00:00:00:11")
        traffic = ws.port(
            "generator:trailer=yes,count=2000,rate=10kpps,size=60,333",
            eth_dst="02:00:00:00:00:11",
            src="10.0.1.9",
            dst="10.0.2.9",
        )
        _, found = sent_and_checked(lab, traffic)
        assert (found.all.received, found.all.lost, found.corrupt) == (2000, 0, 0)
