"""Filters on live ports: the kernel's where it takes them, ours where it does not; which frames come up is the same."""

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab, laboratory
from tests.ports.test_filter_option import ALL, ARP, BACK, DNS, TAGGED, WEB, memory
from wirespeed.engine.run import start
from wirespeed.errors import GraphError
from wirespeed.ports import port
from wirespeed.ports.link.namespace import inside

PATIENCE_S = 20


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with laboratory() as made:
        made.veth("a/x0", "b/x1")
        yield made


@contextlib.contextmanager
def sender(lab: Lab, space: str, name: str) -> Iterator[Any]:
    with inside(lab.space(space)):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with opened:
        opened.bind((name, 3))
        yield opened.send


def heard(
    lab: Lab, word: str, space: str, name: str, expression: str, wanted: int, dropped: int
) -> tuple[list[bytes], Any]:
    """What comes up of all frames that are sent to an interface, and the report, once so many came and were dropped."""
    source, sink = port(f"{word},netns={lab.space('b')}", filter=expression), memory()
    got: list[bytes] = []
    with start(source >> sink) as running, sender(lab, space, name) as send:
        for frame in ALL:
            send(frame)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            got += [p.data for p in sink.pull(timeout=0.1)]
            if len(got) >= wanted and running.report().stage(word).dropped >= dropped:
                break
        running.stop()
        running.wait()
        report = running.report()
    assert report.balanced
    return got + [p.data for p in sink.pull()], report


CASES = [
    ("tcp port 80 and not vlan", [WEB, BACK], True),
    ("vlan 7", [TAGGED], True),
    ("arp or (ip protochain 17 and dst port 53)", [DNS, ARP], False),  # it has a loop, which the kernel refuses
]


@pytest.mark.parametrize(("expression", "wanted", "loopless"), CASES)
@pytest.mark.parametrize("kind", ["packet", "xdp", "tap"])
def test_what_a_filter_matches_comes_up(
    lab: Lab, kind: str, expression: str, wanted: list[bytes], loopless: bool
) -> None:
    word, space, name = ("tap:t0", "b", "t0") if kind == "tap" else (f"{kind}:x1", "a", "x0")
    dropped = 0 if loopless and kind != "xdp" else len(ALL) - len(wanted)
    got, report = heard(lab, word, space, name, expression, len(wanted), dropped)
    assert sorted(got) == sorted(wanted)
    # Where the kernel filters, nothing else comes up; where it does not, neither do a few frames of its own.
    ours = report.stage(word).drops.get("filtered", 0)
    assert ours >= dropped and (ours > 0) == (dropped > 0)


@pytest.mark.parametrize("kind", ["packet", "xdp", "tap"])
def test_a_sink_sends_what_its_filter_matches(lab: Lab, kind: str) -> None:
    target = "t0" if kind == "tap" else "x1"
    source = memory("in")
    sink = port(f"{kind}:{target},netns={lab.space('b')},filter=tcp and not vlan")
    space, name = ("b", "t0") if kind == "tap" else ("a", "x0")
    with start(source >> sink) as running:
        with inside(lab.space(space)):
            taker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with taker:
            taker.bind((name, 3))
            taker.settimeout(PATIENCE_S)
            source.push(ALL)
            # The kernel's own multicast reports of IPv6 go through the same interface.
            taken = (frame for frame in iter(lambda: taker.recv(2000), b"") if not frame.startswith(b"\x33\x33"))
            assert [next(taken)[: len(WEB)] for _ in range(2)] == [WEB, BACK]
        source.close_input()
        running.wait()
        report = running.report()
    assert report.balanced and report.stage(f"{kind}:{target}").drops == {"filtered": 3}


def test_a_filter_for_other_link_types_is_refused_when_the_port_is_opened(lab: Lab) -> None:
    with pytest.raises(GraphError, match=r"(?s)vlan.*RAW.*\^\^\^\^"):
        start(port(f"tun:r0,netns={lab.space('b')},filter=not vlan") >> memory())
