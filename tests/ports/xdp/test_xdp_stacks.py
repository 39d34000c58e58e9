"""The kernel's own stacks at both ends, with their offloads as they are by default, and two ports between them."""

import contextlib
import hashlib
import sys

import pytest

import wirespeed as ws
from tests.lab import laboratory
from tests.ports.xdp.wires import balanced, until, xdp
from wirespeed.core.stage import MAX_BURST

# A megabyte goes there, and as much comes back: what came is told by its hash.
SERVER = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 7000), family=family) as server:
    print("ready", flush=True)
    with server.accept()[0] as line:
        data = b""
        while len(data) < int(sys.argv[2]):
            data += line.recv(1 << 20)
        line.sendall(data)
        print(hashlib.sha256(data).hexdigest(), flush=True)
        line.recv(1)
"""
CLIENT = """
import hashlib, socket, sys
data = bytes(range(256)) * (int(sys.argv[2]) // 256)
with socket.create_connection((sys.argv[1], 7000), timeout=60) as line:
    line.sendall(data)
    back = b""
    while len(back) < len(data):
        back += line.recv(1 << 20)
    print(hashlib.sha256(back).hexdigest())
"""
SIZE = 8 << 20


@contextlib.contextmanager
def between(mtu=1500, **options):
    """Two stacks, in ``left`` and ``right``, with a run that carries both ways between their wires."""
    with laboratory() as lab:
        for side, number in (("left", 1), ("right", 2)):
            lab.veth(f"middle/{side}", f"{side}/eth0", mtu=mtu)
            lab.address(f"{side}/eth0", f"10.9.0.{number}/24", f"fd00:9::{number}/64")
        for side in ("left", "right"):
            until(lambda side=side: "state UP" in lab.ip(side, "link", "show", "eth0"), f"{side} is up")
        left, right = (xdp(lab, f"middle/{side}", **options) for side in ("left", "right"))
        with ws.start(left >> right, right >> left) as running:
            yield lab, running
        balanced(running)
        assert wrong_checksums(lab, "left") == wrong_checksums(lab, "right") == 0


def wrong_checksums(lab, side):
    """What a stack counted of packets with a wrong checksum."""
    words = lab.do(
        side,
        "nstat",
        "-asz",
        "TcpInCsumErrors",
        "UdpInCsumErrors",
        "Udp6InCsumErrors",
        "IcmpInCsumErrors",
        "Icmp6InCsumErrors",
    )
    return sum(int(line.split()[1]) for line in words.stdout.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("attach", ["native", "generic"])
@pytest.mark.parametrize("target", ["10.9.0.2", "fd00:9::2"])
def test_a_stream_arrives_as_it_was_sent_both_ways(attach, target):
    with between(attach=attach) as (lab, _):
        assert stream(lab, target) == hashlib.sha256(bytes(range(256)) * (SIZE // 256)).hexdigest()


def test_a_stream_in_jumbo_frames_arrives_as_it_was_sent():
    with between(mtu=9000) as (lab, _):
        assert stream(lab, "10.9.0.2") == hashlib.sha256(bytes(range(256)) * (SIZE // 256)).hexdigest()


def stream(lab, target):
    """The hash of what came back to the client, which is that of what came to the server."""
    with lab.background("right", sys.executable, "-c", SERVER, target, str(SIZE)) as server:
        assert server.stdout.readline() == "ready\n"
        done = lab.do("left", sys.executable, "-c", CLIENT, target, str(SIZE), check=False)
        assert done.returncode == 0, done.stderr
        assert server.stdout.readline() == done.stdout
        return done.stdout.strip()


@pytest.mark.parametrize("attach", ["native", "generic"])
@pytest.mark.parametrize(("mtu", "size"), [(1500, 56), (1500, 1472), (9000, 8972), (1500, 4000)])
def test_pings_of_all_sizes_are_answered(attach, mtu, size):
    with between(mtu=mtu, attach=attach) as (lab, _):
        for words in (["10.9.0.2"], ["-6", "fd00:9::2"]):
            done = lab.do("left", "ping", "-c", "3", "-i", "0.05", "-W", "5", "-s", str(size), *words, check=False)
            assert " 0% packet loss" in done.stdout, done.stdout


def test_datagrams_arrive_with_right_checksums():
    with between() as (lab, _):
        with lab.background("right", "iperf3", "-s", "-1") as _:
            done = None

            def served():
                nonlocal done
                done = lab.do("left", "iperf3", "-u", "-b", "20M", "-t", "1", "-c", "10.9.0.2", check=False)
                return done.returncode == 0

            until(served, "the server listens")
        assert "receiver" in done.stdout


def test_checksums_can_be_left_as_they_are():
    """Then what the kernel left to be computed stays so, and the other stack finds it wrong."""
    with laboratory() as lab:
        lab.veth("middle/left", "left/eth0")
        lab.veth("middle/right", "right/eth0")
        for side, number in (("left", 1), ("right", 2)):
            lab.address(f"{side}/eth0", f"10.9.0.{number}/24")
            until(lambda side=side: "state UP" in lab.ip(side, "link", "show", "eth0"), f"{side} is up")
        left, right = (xdp(lab, f"middle/{side}", checksums="leave") for side in ("left", "right"))
        with ws.start(left >> right, right >> left, burst=MAX_BURST) as running:
            lab.do(
                "left",
                sys.executable,
                "-c",
                "import socket; s = socket.socket(2, 2); s.sendto(b'x' * 100, ('10.9.0.2', 9))",
            )
            until(lambda: wrong_checksums(lab, "right") == 1, "the datagram is found to be wrong")
        balanced(running)
