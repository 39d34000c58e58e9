"""Mutated capture files through a whole graph: the books are balanced, and what the reader finds comes out."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wirespeed as ws
from tests.conftest import TORTURE
from tests.fuzz import corpus
from wirespeed.engine.report import Report
from wirespeed.errors import PortError
from wirespeed.net.capture.reader import CaptureReader
from wirespeed.net.capture.scan import EMPTY, NOT_A_CAPTURE
from wirespeed.net.capture.scanner import MAGIC

INPUTS = 5_000 if TORTURE else 60
SEED = 5

Kept = tuple[bytes, int, int, int]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Damage is logged, here for nearly every file."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@ws.function
def shift(pkt):
    """Send what has a TCP or UDP port below 1024 one way and the rest the other; drop what is no IP."""
    if not pkt.ipv4 and not pkt.ipv6:
        return ws.DROP
    if pkt.tcp and pkt.tcp.dport < 1024:
        return 0
    return 0 if pkt.udp and pkt.udp.dport < 1024 else 1


def kept(path: Path) -> list[Kept]:
    with CaptureReader(path) as reader:
        return [(packet.data, packet.time, packet.wire, packet.link) for packet in reader.packets()]


def mutated(path: Path, numbers: Iterable[int]) -> Iterator[list[Kept]]:
    """Write one mutated capture after another to a path, and yield its packets; what is no capture at all is refused."""
    maker = corpus.files()
    for number in numbers:
        path.write_bytes(maker.one(SEED, number)[1])
        with CaptureReader(path) as reader:
            packets = len(list(reader.packets()))
            told = reader.damage.what if reader.damage else 0
        if told in (NOT_A_CAPTURE, EMPTY) or path.stat().st_size < MAGIC:
            assert packets == 0
            with pytest.raises(PortError):
                ws.run(ws.port(f"pcap:{path}") >> ws.port("null:"))
        else:
            yield kept(path)


def check_books(report: Report) -> None:
    assert report.balanced
    assert report.pool_free == report.pool_size


def test_mutated_captures_come_out_as_they_are_read(tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out.pcapng"
    for packets in mutated(path, range(INPUTS)):
        report = ws.run(ws.port(f"pcap:{path}") >> ws.port(f"pcap:{out}"))
        check_books(report)
        assert kept(out) == packets


def test_mutated_captures_go_through_a_function(tmp_path: Path) -> None:
    path, one, two = (tmp_path / name for name in ("in", "one.pcapng", "two.pcapng"))
    for packets in mutated(path, range(INPUTS, INPUTS + INPUTS // 2)):
        report = ws.run(ws.port(f"pcap:{path}") >> shift >> (ws.port(f"pcap:{one}"), ws.port(f"pcap:{two}")))
        check_books(report)
        written = kept(one) + kept(two)
        assert len(written) == report.packets == len(packets) - report.dropped
        assert not Counter(written) - Counter(packets)


def test_mutated_captures_are_read_again_as_they_were(tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out.pcapng"
    for packets in mutated(path, range(2 * INPUTS, 2 * INPUTS + INPUTS // 2)):
        report = ws.run(ws.port(f"pcap:{path},loop=3") >> ws.port(f"pcap:{out}"))
        check_books(report)
        assert kept(out) == 3 * packets
