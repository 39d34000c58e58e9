"""Functions between live ports change packets whose checksums are still to be computed and that are yet to be cut."""

import random
from typing import Any

import pytest

import wirespeed as ws
from tests.lab import Lab
from tests.live.acceptance import flood
from tests.live.bridge import Bridge, bridged
from tests.live.sockets import send_file

CALLED, ANSWERS = 7001, 7002
FILE = 6_000_000
PAIRS = [("packet", "packet"), ("tap", "tap"), ("packet", "tap"), ("xdp", "tap")]


@ws.function
def call_another(pkt):  # type: ignore[no-untyped-def]
    """Bring who calls one port to another one."""
    if pkt.tcp.dport == CALLED:
        ws.rewrite(pkt, dport=ANSWERS)
    return ws.FORWARD


@ws.function
def answer_as_called(pkt):  # type: ignore[no-untyped-def]
    """Have the answers come from where they are expected."""
    if pkt.tcp.sport == ANSWERS:
        ws.rewrite(pkt, sport=CALLED)
    return ws.FORWARD


@ws.function
def tag(pkt):  # type: ignore[no-untyped-def]
    """Put the packet into VLAN 42."""
    return ws.FORWARD if ws.push_vlan(pkt, 42) else ws.DROP


@ws.function
def untag(pkt):  # type: ignore[no-untyped-def]
    """Take the packet out of VLAN 42; no other one passes."""
    if pkt.vlan.vlan != 42:
        return ws.DROP
    ws.pop_vlan(pkt)
    return ws.FORWARD


def translated(lab: Lab, a: Any, b: Any) -> list[Any]:
    """Host b is called on one port and answers on another."""
    return [a >> call_another >> b, b >> answer_as_called >> a]


def trunked(kind: str) -> Any:
    """Between the two ports, a cable on which every frame has a tag; its two ends are ports of a kind."""

    def join(lab: Lab, a: Any, b: Any) -> list[Any]:
        lab.veth("f/t0", "f/t1", mtu=1504)
        here, there = (ws.port(f"{kind}:{name},netns={lab.space('f')}") for name in ("t0", "t1"))
        return [a >> tag >> here, there >> untag >> b, b >> tag.bind() >> there, here >> untag.bind() >> a]

    return join


def check_whole(bridge: Bridge, ports: tuple[int, int] | None = None) -> None:
    """A file each way is what was sent, with no wrong checksum; and no packet is lost to the books."""
    sent = random.Random(5).randbytes(FILE)
    ways = [("a", "b")] if ports else [("a", "b"), ("b", "a")]
    for sender, receiver in ways:
        assert send_file(bridge.lab, sender, receiver, bridge.address(receiver), sent, ports) == sent
    for host in ("a", "b"):
        wrong = {name: n for name, n in bridge.counters(host).items() if "CsumError" in name and n}
        assert not wrong, f"host {host}: {wrong}"
    bridge.running.stop()
    assert bridge.running.wait(30.0), "the run did not end"
    assert bridge.running.report().balanced, str(bridge.running.report())


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_ports_are_rewritten_under_way(kinds: tuple[str, str]) -> None:
    with bridged(kinds, translated) as bridge:
        check_whole(bridge, (CALLED, ANSWERS))


@pytest.mark.parametrize("kind", ["packet", "xdp"])
@pytest.mark.parametrize("kinds", [("packet", "packet"), ("tap", "tap")], ids="-".join)
def test_tags_are_put_on_and_taken_off_with_a_cable_between(kinds: tuple[str, str], kind: str) -> None:
    with bridged(kinds, trunked(kind)) as bridge:
        flood(bridge, "a")
        check_whole(bridge)
