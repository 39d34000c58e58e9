"""Every public capture through a whole graph, from file to file: nothing is lost, nothing is changed that should not be.

What should come out is worked out here, from the bytes of the capture and the headers that the full parse finds.
"""

from pathlib import Path

import pytest

import wirespeed as ws
from tests.oracles import corpus
from tests.oracles.corpus import Frame
from wirespeed.engine.report import Report

FILES = corpus.files() or [""]
INNER = ("eth", "vlan", "llc", "snap", "ppp", "pppoe", "mpls", "arp", "ipv4", "ipv6")  # behind IP it is a tunnel's
NETWORK = ("arp", "ipv4", "ipv6")
Kept = tuple[bytes, int, int, int, tuple[str, ...]]


@ws.function
def one_hop(pkt):
    """Forward IPv4 with one hop less to live; drop the rest."""
    if not pkt.ipv4 or pkt.ipv4.ttl <= 1:
        return ws.DROP
    ws.decrement_ttl(pkt.ipv4)
    return ws.FORWARD


def told(frame: Frame, data: bytes | None = None) -> Kept:
    """All that a capture keeps of a packet."""
    return frame.data if data is None else data, frame.time, frame.wire, frame.link, frame.comments


def outer_ipv4(frame: Frame) -> int | None:
    """The offset of the outermost headers' IPv4, if there is one and it is whole."""
    networks = 0
    for name, (_, whole, _, offset, _, _) in zip(frame.names, frame.layers):
        if networks and name in INNER:
            return None
        if name == "ipv4" and whole:
            return offset
        networks += name in NETWORK
    return None


def hopped(frame: Frame) -> bytes | None:
    """The frame with one hop less, by equation 3 of RFC 1624; None where it is dropped."""
    at = outer_ipv4(frame)
    if at is None or frame.data[at + 8] <= 1:
        return None
    data = bytearray(frame.data)
    old, checksum = (int.from_bytes(data[at + i : at + i + 2]) for i in (8, 10))
    data[at + 8] -= 1
    total = (checksum ^ 0xFFFF) + (old ^ 0xFFFF) + (old - 0x100)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    data[at + 10 : at + 12] = (total ^ 0xFFFF).to_bytes(2)
    return bytes(data)


def check_books(report: Report, read: int, written: int) -> None:
    assert report.finished
    assert report.balanced
    assert report.pool_free == report.pool_size
    source, *_, sink = report.stages
    assert source.packets_out == read
    assert sink.packets_in - sum(sink.drops.values()) == written
    assert report.dropped == read - written


@pytest.fixture(scope="module", params=FILES)
def capture(captures: Path, request: pytest.FixtureRequest) -> Path:
    """Each capture in turn; pytest runs all tests of one before those of the next."""
    return captures / request.param


@pytest.fixture(scope="module")
def frames(capture: Path) -> list[Frame]:
    return list(corpus.frames(capture))


def test_a_capture_comes_out_as_it_went_in(capture: Path, frames: list[Frame], tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    report = ws.run(ws.port(f"pcap:{capture}") >> ws.port(f"pcap:{out}"))
    check_books(report, len(frames), len(frames))
    assert [told(frame) for frame in corpus.frames(out)] == [told(frame) for frame in frames]


def test_a_capture_takes_one_hop(capture: Path, frames: list[Frame], tmp_path: Path) -> None:
    expected = [told(frame, data) for frame in frames if (data := hopped(frame)) is not None]
    out = tmp_path / "out.pcapng"
    report = ws.run(ws.port(f"pcap:{capture}") >> one_hop >> ws.port(f"pcap:{out}"))
    check_books(report, len(frames), len(expected))
    assert [told(frame) for frame in corpus.frames(out)] == expected


def test_a_pcap_file_takes_what_has_the_first_packets_link_type(
    capture: Path, frames: list[Frame], tmp_path: Path
) -> None:
    out = tmp_path / "out.pcap"
    report = ws.run(ws.port(f"pcap:{capture}") >> ws.port(f"pcap:{out}"))
    kept = [frame for frame in frames if frame.link == frames[0].link]
    check_books(report, len(frames), len(kept))
    # pcap has 32 bits of seconds, and no comments.
    seconds = 10**9 << 32
    expected = [(frame.data, frame.time % seconds, frame.wire, frame.link) for frame in kept]
    assert [(frame.data, frame.time, frame.wire, frame.link) for frame in corpus.frames(out)] == expected
