"""The capture that comes with wirespeed: made by its script, small, and a mix of what a network carries."""

from collections import Counter

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet
from scapy.utils import RawPcapReader

from tools import demo_capture


@pytest.fixture(scope="module")
def frames() -> list[Packet]:
    with RawPcapReader(str(demo_capture.TARGET)) as reader:
        assert reader.linktype == 1
        return [Ether(data) for data, _ in reader]


def test_the_file_is_what_its_script_makes() -> None:
    assert demo_capture.TARGET.read_bytes() == demo_capture.capture()


def test_it_is_small_enough_to_come_along(frames: list[Packet]) -> None:
    assert demo_capture.TARGET.stat().st_size < 1_000_000
    assert 2_000 <= len(frames) <= 20_000


def test_it_has_what_the_examples_are_about(frames: list[Packet]) -> None:
    kinds = (IP, IPv6, ARP, Dot1Q, TCP, UDP, ICMP)
    seen = Counter(kind for frame in frames for kind in kinds if frame.haslayer(kind))
    assert {kind.__name__: seen[kind] for kind in kinds if seen[kind] < 100} == {}
    assert sum(IP in frame and frame[IP].ttl == 1 for frame in frames) >= 20
    assert sum(len(frame) for frame in frames) / len(frames) < 200


def test_its_checksums_are_right(frames: list[Packet]) -> None:
    wrong = []
    for number, frame in enumerate(frames):
        if frame.haslayer(IP):
            header = bytes(frame[IP])[: 4 * frame[IP].ihl]
            words = (int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
            if sum(words) % 0xFFFF:  # one's complement: a right header adds up to zero (RFC 1071)
                wrong.append(number)
    assert wrong == []


def test_its_times_go_forward_within_a_minute() -> None:
    with RawPcapReader(str(demo_capture.TARGET)) as reader:
        times = [meta.sec * 1_000_000 + meta.usec for _, meta in reader]
    assert times == sorted(times)
    assert times[-1] - times[0] < demo_capture.MINUTE
