"""The kernel's own stacks at both ends of two taps, or tuns, with a run between them and offloads at their defaults."""

import contextlib
import hashlib
import random
import re
import socket
import threading

import pytest

import wirespeed as ws
from tests.lab import laboratory
from wirespeed.ports.link.namespace import inside

BULK = random.Random(5).randbytes(8 << 20)


@ws.function
def forward_all(pkt):
    """Forward all; a function between the ports, as users have one."""
    return ws.FORWARD


@ws.function
def there(pkt):
    """To 10.9.0.2 what is for 10.9.0.99; only the header's own checksum is written."""
    if pkt.ipv4 and pkt.ipv4.dst == 0x0A090063:
        pkt.ipv4.dst = 0x0A090002
        ws.checksum_ipv4(pkt.ipv4)
    return ws.FORWARD


@ws.function
def back(pkt):
    """The other way round."""
    if pkt.ipv4 and pkt.ipv4.src == 0x0A090002:
        pkt.ipv4.src = 0x0A090063
        ws.checksum_ipv4(pkt.ipv4)
    return ws.FORWARD


@pytest.fixture
def lab():
    with laboratory() as lab:
        yield lab


@contextlib.contextmanager
def joined(lab, kind="tap", workers=1, **options):
    """Two devices in two namespaces, 10.9.0.1 and .2, fd09::1 and ::2, with a run that forwards both ways."""
    ends = [
        ws.port(
            f"{kind}:w{i}", netns=lab.space(name), address=[f"10.9.0.{i}/24", f"fd09::{i}/64"], **options
        )
        for i, name in ((1, "a"), (2, "b"))
    ]  # fmt: skip
    a, b = ends
    with ws.start(a >> forward_all.bind() >> b, b >> forward_all.bind() >> a, workers=workers) as run:
        yield run, ends
    report = run.report()
    assert report.balanced, report
    assert not any(stage.drops for stage in report.stages), report


def transfer(lab, here, there, address, data, asked=None):
    """Send bytes over TCP from one namespace to another, to the address or to the one ``asked``; what arrived."""
    with inside(lab.space(there)):
        server = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    arrived, number = [], server.getsockname()[1]

    def serve():
        with server, server.accept()[0] as client:
            while part := client.recv(1 << 20):
                arrived.append(part)

    thread = threading.Thread(target=serve)
    thread.start()
    with inside(lab.space(here)):
        client = socket.create_connection((asked or address, number), timeout=60)
    with client:
        client.sendall(data)
    thread.join(60)
    assert not thread.is_alive()
    return b"".join(arrived)


def retransmitted(lab, name):
    """Segments that a namespace's TCP has sent again."""
    told = lab.do(name, "nstat", "-az", "TcpRetransSegs").stdout
    return int(float(re.search(r"TcpRetransSegs\s+(\d+)", told)[1]))


@pytest.mark.parametrize("kind", ["tap", "tun"])
def test_pings_of_both_versions_and_of_all_sizes_are_answered(lab, kind):
    with joined(lab, kind, mtu=9000):
        for address in ("10.9.0.2", "fd09::2"):
            for size in (56, 8900, 30000):
                told = lab.do("a", "ping", "-c", "3", "-i", "0.01", "-W", "5", "-s", str(size), address, check=False)
                assert "3 received" in told.stdout, told.stdout


@pytest.mark.parametrize("kind", ["tap", "tun"])
@pytest.mark.parametrize("address", ["10.9.0", "fd09:"])
def test_tcp_arrives_as_it_was_sent_in_few_large_packets(lab, kind, address):
    end = "." if "." in address else ":"
    with joined(lab, kind) as (run, _):
        assert transfer(lab, "a", "b", f"{address}{end}2", BULK) == BULK
        assert transfer(lab, "b", "a", f"{address}{end}1", BULK) == BULK
        report = run.report()
        first = report.stages[0]
        assert first.bytes / first.packets_out > 2000, "packets that the kernel did not cut came in whole"
        assert retransmitted(lab, "a") + retransmitted(lab, "b") < 100, "a storm"


def test_tcp_arrives_without_offloads(lab):
    with joined(lab, offloads="no") as (run, _):
        assert transfer(lab, "a", "b", "10.9.0.2", BULK) == BULK
        first = run.report().stages[0]
        assert 1000 < first.bytes / first.packets_out <= 1514


def test_several_workers_carry_several_flows(lab):
    with joined(lab, workers=2):
        results, digest = [], hashlib.sha256(BULK).digest()

        def one(name, other, address):
            results.append(hashlib.sha256(transfer(lab, name, other, address, BULK)).digest())

        threads = [
            threading.Thread(target=one, args=args)
            for args in [("a", "b", "10.9.0.2"), ("b", "a", "10.9.0.1"), ("a", "b", "fd09::2"), ("b", "a", "fd09::1")]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert results == [digest] * 4


@pytest.mark.parametrize("size", [0, 1, 1471, 1472, 1473, 20000, 65507])
def test_datagrams_arrive_as_they_were_sent(lab, size):
    with joined(lab), contextlib.ExitStack() as stack:
        with inside(lab.space("b")):
            server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with inside(lab.space("a")):
            client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(("10.9.0.2", 4000))
        server.settimeout(60)
        sent = [BULK[i : i + size] for i in range(20)]
        for data in sent:
            client.sendto(data, ("10.9.0.2", 4000))
            assert server.recv(1 << 16) == data


def test_datagrams_that_the_kernel_was_to_cut_come_in_whole_and_leave_whole(lab):
    with joined(lab) as (run, _), contextlib.ExitStack() as stack:
        with inside(lab.space("b")):
            server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with inside(lab.space("a")):
            client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(("10.9.0.2", 4000))
        server.settimeout(60)
        client.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT of include/uapi/linux/udp.h
        client.sendto(BULK[:40500], ("10.9.0.2", 4000))
        got = [server.recv(1 << 16) for _ in range(41)]
        assert [len(data) for data in got] == [1000] * 40 + [500]
        assert b"".join(got) == BULK[:40500]
        assert run.report().stages[0].bytes >= 40500


def test_a_function_may_rewrite_addresses_and_the_checksum_that_was_left_to_be_done_follows(lab):
    a = ws.port("tap:w1", netns=lab.space("a"), address="10.9.0.1/24", mac="02:00:00:00:00:01")
    b = ws.port("tap:w2", netns=lab.space("b"), address="10.9.0.2/24", mac="02:00:00:00:00:02")
    with ws.start(a >> there >> b, b >> back >> a) as run:
        lab.ip("a", "neigh", "add", "10.9.0.99", "lladdr", "02:00:00:00:00:02", "dev", "w1")
        assert transfer(lab, "a", "b", "10.9.0.2", BULK, asked="10.9.0.99") == BULK
    assert run.report().balanced
