"""The frames that cases are made of: right in scapy's eyes, and told short without loss."""

import random

import pytest

from tests.switch.oracle import frames
from tests.switch.oracle.recorded import applied, delta
from tests.switch.oracle.world import WEIGHTS, World

scapy = pytest.importorskip("scapy.all", reason="scapy is not installed")


def whole(frame: bytes) -> bytes:
    """The frame as scapy writes it when it finds all lengths and checksums itself."""
    packet = scapy.Ether(frame)
    layer = packet
    while not isinstance(layer, scapy.NoPayload):
        for name in ("chksum", "len", "plen"):
            layer.fields.pop(name, None)
        layer = layer.payload
    return bytes(packet)


@pytest.mark.parametrize("kind", ["tcp", "udp", "icmp", "ip", "sctp", "tcp6", "udp6", "icmp6"])
def test_lengths_and_checksums_are_those_that_scapy_finds(kind):
    compared = 0
    for seed in range(60):
        flow = World(random.Random(seed)).flow(kind)
        if kind == "ip" and flow["nw_proto"] not in (47, 50, 51, 59, 255):
            continue  # the kinds that have names are looked at by their names
        flow |= {"padding": 0, "no_checksum": 0, "frag": 0, "extensions": 0, "inner_tpid": 0}
        frame = frames.build(flow)
        assert whole(frame).hex() == frame.hex(), f"seed {seed}"
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("kind", list(WEIGHTS))
def test_any_packet_of_a_world_is_a_frame_with_its_addresses_and_tags(kind):
    for seed in range(40):
        flow = World(random.Random(seed)).flow(kind)
        frame = frames.build(flow)
        assert len(frame) >= 14
        assert int.from_bytes(frame[:6]) == flow["dl_dst"] and int.from_bytes(frame[6:12]) == flow["dl_src"]
        tags = [(flow.get(f"{place}tpid", 0), flow.get(f"{place}tci", 0)) for place in ("", "inner_")]
        for at, (tpid, tci) in enumerate(tag for tag in tags if tag[0]):
            assert frame[12 + 4 * at : 16 + 4 * at] == tpid.to_bytes(2) + tci.to_bytes(2)


def test_a_frame_is_told_by_its_difference_to_another_and_read_back():
    rng = random.Random(1)
    for _ in range(500):
        before = rng.randbytes(rng.randint(0, 40))
        after = rng.choice(
            [
                before,
                before[:7] + rng.randbytes(4) + before[7:],
                before[: rng.randint(0, 40)],
                b"",
                before + before,
                rng.randbytes(20),
            ]
        )
        assert applied(before, delta(before, after)) == after
    assert delta(b"abcd", b"abcd") == "=" and delta(b"abcd", b"aXcd") == "1+58+2"


def test_faulty_frames_keep_an_ethernet_header():
    rng = random.Random(1)
    for fault in frames.FAULTS:
        for _ in range(200):
            assert len(fault(rng, frames.build(World(rng).flow()))) >= 14
